"""Histories of a fit: constrained values and multipliers over the boosting rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    colour_and_marker,
    document_plot,
    find_unit,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
    split_constraint,
)

ROUNDS = "boosting rounds"


class _HistoryDisplay:
    """Base of the displays of a history."""

    ax_: Any
    figure_: Any
    plot: Callable[..., Any]

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

    @classmethod
    @document_plot
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted constrained classifier
            The estimator.

        Raises
        ------
        TypeError
            If the estimator has no history: it is not fitted, or has no constraints.
        """
        history = getattr(estimator, "history_", None)
        if not isinstance(history, pd.DataFrame):
            raise TypeError(
                f"{type(estimator).__name__} has no history_: give an estimator that was fitted "
                f"with constraints."
            )
        step = "iterations" if hasattr(estimator, "n_iterations") else ROUNDS
        display: Self = cls(history, step).plot(ax, **options)
        return display

    def _column(self, kind: str, constraint: str) -> NDArray[np.float64]:
        """Read a column over the rounds, NaN where the history has none."""
        name = f"{kind}[{constraint}]"
        if name not in self.history:
            return np.full(len(self.history), np.nan)
        return self.history[name].to_numpy(dtype=np.float64)

    def _labels(self, names: Mapping[str, str] | None) -> list[str]:
        """Name the constraints as the legend does."""
        return [(names or {}).get(name, literal(name)) for name in self.constraints]

    def _finish(self, ax: Any, ylabel: str) -> Self:
        finish_axes(ax, self.step, ylabel)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _line_style(j: int) -> dict[str, Any]:
    """Choose the colour of the j-th constraint, and a marker where colours repeat."""
    colour, marker = colour_and_marker(j)
    if j < len(COLOURS):
        return {"color": colour}
    return {"color": colour, "marker": marker, "markersize": 4, "markevery": 0.1}


def _place_legend(ax: Any, labels: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Get axes and the options of their legend, which goes beside the axes of a new figure."""
    if ax is not None:
        return get_axes(ax), {"framealpha": 0.9}
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
    size = 5.7 + 0.085 * max(map(len, labels)), max(4.0, 0.5 + 0.21 * len(labels))
    return get_axes(None, size), beside


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
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.

    Raises
    ------
    ValueError
        If the history holds no constraint.

    See Also
    --------
    MultipliersDisplay : The multipliers over the same rounds.
    """

    @document_plot
    def plot(
        self,
        ax: Any = None,
        *,
        violation: bool = False,
        train_name: str = "training rows",
        held_out_name: str = "held-out rows",
        names: Mapping[str, str] | None = None,
    ) -> Self:
        r"""Draw the values.

        Parameters
        ----------
        violation : bool, default=False
            Draw :math:`\max(\text{value} - \text{bound}, 0)` instead of value and bound: with
            several constraints that is easier to read.
        train_name, held_out_name : str
            What the legend calls the rows.

        Returns
        -------
        ConstraintHistoryDisplay
            The display itself.

        Notes
        -----
        The vertical axis is linear up to the smallest bound and logarithmic beyond, on both sides
        of zero: the first rounds, where a whole class may be misclassified, would otherwise hide
        the last ones.
        """
        labels = self._labels(names)
        ax, place = _place_legend(ax, [*labels, train_name, held_out_name, "bound"])
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
            look = _line_style(j)
            bound = self._column("bound", constraint)
            for name, (column, style) in rows.items():
                value = self._column(column, constraint)
                if np.isnan(value).all():
                    continue
                kinds[name] = style
                drawn = _violation(constraint, value, bound) if violation else value
                ax.plot(rounds, drawn, **look, **style)
            if not violation:
                kinds["bound"] = dotted
                ax.plot(rounds, bound, **look, **dotted)
            handles.append(line_2d([], [], **look, linewidth=1.8, label=label))
        handles += [line_2d([], [], color=GREY, label=name, **s) for name, s in kinds.items()]
        self._scale(ax)
        ax.legend(handles=handles, **place)
        return self._finish(ax, self._value_label(is_violation=violation))

    def _value_label(self, *, is_violation: bool) -> str:
        """Write the name and the unit of the vertical axis."""
        unit = find_unit(self.constraints)
        if is_violation:
            return "violation" + unit
        if len(self.constraints) > 1:
            return "constrained values" + unit
        return literal(split_constraint(self.constraints[0])[0]) + unit

    def _scale(self, ax: Any) -> None:
        """Scale the axis linearly up to the smallest bound, logarithmically beyond."""
        sizes = np.abs([self._column("bound", c) for c in self.constraints])
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

        for digits in ([1], [1, 2, 5], range(1, 10)):  # Few round numbers are tried first.
            sizes = np.ravel(np.outer(decades, digits))
            sizes = sizes[sizes >= linear * (1 - 1e-9)]
            ticks = in_sight(np.concatenate([-sizes[::-1], [0.0], sizes]))
            if ticks.size > 3:
                break
        if ticks.size <= 3 and furthest <= 2.0 * linear:  # Nearly all is linear.
            locator = matplotlib("ticker").MaxNLocator(5, steps=[1, 2, 5, 10])
            ticks = in_sight(locator.tick_values(bottom, top))
        ax.set_yticks(ticks)
        ax.set_yticks([], minor=True)
        ax.yaxis.set_major_formatter(matplotlib("ticker").FormatStrFormatter("%g"))


class MultipliersDisplay(_HistoryDisplay):
    """Multipliers over the boosting rounds: the weight of each constraint in the objective.

    A constraint that compiles to several rows, such as a gap, has the sum of their multipliers.

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
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.

    Raises
    ------
    ValueError
        If the history holds no constraint.

    See Also
    --------
    ConstraintHistoryDisplay : The values over the same rounds.
    """

    lines_: list[Any]

    @document_plot
    def plot(
        self, ax: Any = None, *, names: Mapping[str, str] | None = None, legend: bool = True
    ) -> Self:
        """Draw the multipliers.

        Parameters
        ----------
        legend : bool, default=True
            Whether there is one: below a :class:`ConstraintHistoryDisplay` its legend will do.

        Returns
        -------
        MultipliersDisplay
            The display itself.
        """
        labels = self._labels(names)
        ax, place = _place_legend(ax, labels) if legend else (get_axes(ax), {})
        rounds = self.history["rounds"].to_numpy()
        self.lines_ = []
        for j, (constraint, label) in enumerate(zip(self.constraints, labels, strict=True)):
            multiplier = self._column("multiplier", constraint)
            self.lines_ += ax.plot(
                rounds, multiplier, **_line_style(j), linewidth=1.8, label=label
            )
        # A line at zero stays in sight; the top stays automatic, for axes that several fits share.
        ax.set_ylim(bottom=-0.02 * ax.get_ylim()[1], auto=True)
        if legend:
            ax.legend(**place)
        return self._finish(ax, "multiplier")


def _violation(
    constraint: str, value: NDArray[np.float64], bound: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute ``max(value - bound, 0)``, or its mirror image for lower bounds."""
    over = bound - value if split_constraint(constraint)[1] == ">=" else value - bound
    return np.maximum(over, 0.0)
