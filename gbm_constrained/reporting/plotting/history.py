"""How constrained values and multipliers moved while a model was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    colour_and_marker,
    literal,
    matplotlib,
    one_axes,
    split_rule,
    tidy,
    unit_of,
)

ROUNDS = "boosting rounds"


class _HistoryDisplay:
    """What both displays of a history share."""

    ax_: Any
    figure_: Any

    def __init__(self, history: pd.DataFrame, step: str = ROUNDS) -> None:
        if not isinstance(history, pd.DataFrame):
            raise TypeError(
                f"history must be the history_ of a constrained estimator, got a "
                f"{type(history).__name__}."
            )
        self.history = history
        self.step = step
        self.constraints = tuple(
            name.removeprefix("value[").removesuffix("]")
            for name in history.columns
            if name.startswith("value[")
        )
        if not self.constraints:
            raise ValueError("The history holds no constraint: it has no column value[...].")

    def _of(self, kind: str, constraint: str) -> NDArray[np.float64]:
        """Values of a column over the rounds; NaN where there is none."""
        name = f"{kind}[{constraint}]"
        if name not in self.history:
            return np.full(len(self.history), np.nan)
        return self.history[name].to_numpy(dtype=np.float64)

    def _labels(self, names: Mapping[str, str] | None) -> list[str]:
        """Name the constraints as the legend does."""
        return [(names or {}).get(name, literal(name)) for name in self.constraints]

    def _finish(self, ax: Any) -> None:
        ax.set_xlabel(self.step)
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure


def _look(j: int) -> dict[str, Any]:
    """Look of the j-th constraint: a colour, and markers once there are no more colours."""
    colour, marker = colour_and_marker(j)
    if j < len(COLOURS):
        return {"color": colour}
    return {"color": colour, "marker": marker, "markersize": 4, "markevery": 0.1}


def _with_room(ax: Any, labels: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Axes, and where their legend goes: in a figure of its own beside them, where it hides none.

    Axes that are given have no room beside them that is known of.
    """
    if ax is not None:
        return one_axes(ax), {"framealpha": 0.9}
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
    size = 5.7 + 0.085 * max(map(len, labels)), max(4.0, 0.5 + 0.21 * len(labels))
    return one_axes(None, size), beside


def _arguments(estimator: Any) -> tuple[pd.DataFrame, str]:
    """History of an estimator, and what its rounds are."""
    history = getattr(estimator, "history_", None)
    if not isinstance(history, pd.DataFrame):
        raise TypeError(
            f"{type(estimator).__name__} has no history_: give an estimator that was fitted with "
            f"constraints."
        )
    return history, "iterations" if hasattr(estimator, "n_iterations") else ROUNDS


class ConstraintHistoryDisplay(_HistoryDisplay):
    """Constrained values over the boosting rounds.

    Each bounded value on the training rows (solid), on the held-out rows if there were any
    (dashed), and its bound (dotted); a constraint has one colour, as in
    :class:`MultipliersDisplay`.

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a constrained estimator.
    step : str, default="boosting rounds"
        What the horizontal axis counts.

    Attributes
    ----------
    constraints : tuple of str
        The constraints, as they print.
    ax_ : matplotlib Axes
        What was drawn into.
    figure_ : matplotlib Figure
        Its figure.

    Raises
    ------
    ValueError
        If the history holds no constraint.

    See Also
    --------
    MultipliersDisplay : The multipliers over the same rounds.
    """

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, **options: Any
    ) -> ConstraintHistoryDisplay:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted constrained classifier
            The estimator.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
        **options
            Options of :meth:`plot`.

        Raises
        ------
        TypeError
            If it has no history: it is not fitted, or has no constraints.
        ImportError
            If matplotlib is not installed.
        """
        return cls(*_arguments(estimator)).plot(ax, **options)

    def plot(
        self,
        ax: Any = None,
        *,
        violation: bool = False,
        train_name: str = "training rows",
        held_out_name: str = "held-out rows",
        names: Mapping[str, str] | None = None,
    ) -> ConstraintHistoryDisplay:
        r"""Draw the values.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
        violation : bool, default=False
            Draw :math:`\max(\text{value} - \text{bound}, 0)` instead of value and bound: with
            several constraints that is easier to read.
        train_name, held_out_name : str
            What the legend calls the rows.
        names : mapping from str to str, default=None
            What the legend calls a constraint, by the constraint as it prints.

        Returns
        -------
        ConstraintHistoryDisplay
            Itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.

        Notes
        -----
        The vertical axis is linear up to the smallest bound and logarithmic beyond, on both sides
        of zero: the first rounds, where a whole class may be misclassified, would otherwise hide
        the last ones.
        """
        labels = self._labels(names)
        ax, place = _with_room(ax, [*labels, train_name, held_out_name, "bound"])
        line_2d = matplotlib("lines").Line2D
        rounds = self.history["rounds"].to_numpy()
        rows = {
            train_name: ("value", {"linestyle": "-", "linewidth": 1.8}),
            held_out_name: ("held_out", {"linestyle": "--", "linewidth": 1.4}),
        }
        dotted = {"linestyle": ":", "linewidth": 1.4}
        kinds: dict[str, dict[str, Any]] = {}
        handles = []
        for j, (constraint, label) in enumerate(zip(self.constraints, labels, strict=True)):
            look = _look(j)
            bound = self._of("bound", constraint)
            for name, (column, style) in rows.items():
                value = self._of(column, constraint)
                if np.isnan(value).all():
                    continue
                kinds[name] = style
                drawn = _beyond(constraint, value, bound) if violation else value
                ax.plot(rounds, drawn, **look, **style)
            if not violation:
                kinds["bound"] = dotted
                ax.plot(rounds, bound, **look, **dotted)
            handles.append(line_2d([], [], **look, linewidth=1.8, label=label))
        handles += [line_2d([], [], color=GREY, label=name, **s) for name, s in kinds.items()]
        self._scale(ax)
        ax.set_ylabel(self._value_label(violation))
        ax.legend(handles=handles, **place)
        self._finish(ax)
        return self

    def _value_label(self, violation: bool) -> str:
        """Name and unit of the vertical axis."""
        unit = unit_of(self.constraints)
        if violation:
            return "violation" + unit
        if len(self.constraints) > 1:
            return "constrained values" + unit
        return literal(split_rule(self.constraints[0])[0]) + unit

    def _scale(self, ax: Any) -> None:
        """Linear up to the smallest bound, logarithmic beyond, with round numbers as ticks."""
        sizes = np.abs([self._of("bound", c) for c in self.constraints])
        sizes = sizes[sizes > 0]
        linear = float(sizes.min()) if sizes.size else 1e-2
        drawn = np.concatenate([[0.0], *(line.get_ydata() for line in ax.get_lines())])
        ax.set_yscale("symlog", linthresh=linear, linscale=0.5)
        # A line at zero stays in sight, and so do differences of rates below it; the limits stay
        # automatic, for axes that several fits share.
        bottom = min(-0.05 * linear, 1.05 * drawn[np.isfinite(drawn)].min())
        ax.set_ylim(bottom=bottom, auto=True)
        bottom, top = ax.get_ylim()[0], max(ax.get_ylim()[1], 0.0)
        furthest = max(top, -bottom, linear)
        decades = 10.0 ** np.arange(np.floor(np.log10(linear)), np.ceil(np.log10(furthest)) + 1)

        def in_sight(values: Any) -> Any:
            return values[(values >= bottom) & (values <= top)]

        for digits in ([1], [1, 2, 5], range(1, 10)):  # as few as there may be
            sizes = np.ravel(np.outer(decades, digits))
            sizes = sizes[sizes >= linear * (1 - 1e-9)]
            ticks = in_sight(np.concatenate([-sizes[::-1], [0.0], sizes]))
            if ticks.size > 3:
                break
        if ticks.size <= 3 and furthest <= 2.0 * linear:  # hardly beyond what is linear
            locator = matplotlib("ticker").MaxNLocator(5, steps=[1, 2, 5, 10])
            ticks = in_sight(locator.tick_values(bottom, top))
        ax.set_yticks(ticks)
        ax.set_yticks([], minor=True)
        ax.yaxis.set_major_formatter(matplotlib("ticker").FormatStrFormatter("%g"))


class MultipliersDisplay(_HistoryDisplay):
    """Multipliers over the boosting rounds: what each rule weighs in the objective.

    A rule that compiles to several rows, such as a gap, has the sum of theirs.

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a constrained estimator.
    step : str, default="boosting rounds"
        What the horizontal axis counts.

    Attributes
    ----------
    constraints : tuple of str
        The constraints, as they print.
    lines_ : list of matplotlib Line2D
        The line of each.
    ax_ : matplotlib Axes
        What was drawn into.
    figure_ : matplotlib Figure
        Its figure.

    Raises
    ------
    ValueError
        If the history holds no constraint.

    See Also
    --------
    ConstraintHistoryDisplay : The values over the same rounds.
    """

    lines_: list[Any]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, **options: Any
    ) -> MultipliersDisplay:
        """Draw the multipliers of a fitted estimator.

        Parameters
        ----------
        estimator : fitted constrained classifier
            The estimator.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
        **options
            Options of :meth:`plot`.

        Raises
        ------
        TypeError
            If it has no history: it is not fitted, or has no constraints.
        ImportError
            If matplotlib is not installed.
        """
        return cls(*_arguments(estimator)).plot(ax, **options)

    def plot(
        self, ax: Any = None, *, names: Mapping[str, str] | None = None, legend: bool = True
    ) -> MultipliersDisplay:
        """Draw the multipliers.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
        names : mapping from str to str, default=None
            What the legend calls a constraint, by the constraint as it prints.
        legend : bool, default=True
            Whether there is one: below a :class:`ConstraintHistoryDisplay` its legend will do.

        Returns
        -------
        MultipliersDisplay
            Itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        labels = self._labels(names)
        ax, place = _with_room(ax, labels) if legend else (one_axes(ax), {})
        rounds = self.history["rounds"].to_numpy()
        self.lines_ = []
        for j, (constraint, label) in enumerate(zip(self.constraints, labels, strict=True)):
            multiplier = self._of("multiplier", constraint)
            self.lines_ += ax.plot(rounds, multiplier, **_look(j), linewidth=1.8, label=label)
        # A line at zero stays in sight; the top stays automatic, for axes that several fits share.
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1], auto=True)
        ax.set_ylabel("multiplier")
        if legend:
            ax.legend(**place)
        self._finish(ax)
        return self


def _beyond(
    constraint: str, value: NDArray[np.float64], bound: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How far values are on the wrong side of a bound."""
    over = bound - value if split_rule(constraint)[1] == ">=" else value - bound
    return np.maximum(over, 0.0)
