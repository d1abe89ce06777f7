"""Figures of what a fit reports: its course, its metric and its certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.data.validation import check_choice
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.reporting.plotting import style


class ReportDisplay(style.Display):
    """Base of the displays of a report that a fit has left in its estimator."""

    _report: ClassVar[str]  # Attribute of fitted estimators
    _remedy: ClassVar[str]  # What has it.

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw what a fitted estimator reports.

        Parameters
        ----------
        estimator : fitted constrained estimator
            The estimator.

        Raises
        ------
        TypeError
            If the estimator has no such report: it is not fitted, or was fitted otherwise.
        """
        report = getattr(estimator, cls._report, None)
        if not isinstance(report, pd.DataFrame):
            raise TypeError(
                f"{type(estimator).__name__} has no {cls._report}: give {cls._remedy}."
            )
        display: Self = cls._from_report(estimator, report).plot(ax, **options)
        return display

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        """Make the display of an estimator that has a report."""
        return cls(report)  # type: ignore[call-arg]


class _HistoryDisplay(ReportDisplay):
    """Base of the displays of a history under constraints."""

    _report = "history_"
    _remedy = "an estimator that was fitted with constraints"

    def __init__(self, history: pd.DataFrame, step: str = "boosting rounds") -> None:
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
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        is_linear = hasattr(estimator, "n_iterations")
        return cls(report, "iterations" if is_linear else "boosting rounds")

    def _column(self, kind: str, constraint: str) -> Float:
        """Read a column over the rounds, NaN where the history has none."""
        name = f"{kind}[{constraint}]"
        if name not in self.history:
            return np.full(len(self.history), np.nan)
        return self.history[name].to_numpy(dtype=np.float64)

    def _labels(self, names: Mapping[str, str] | None) -> list[str]:
        """Name the constraints as the legend does."""
        return [(names or {}).get(name, style.literal(name)) for name in self.constraints]


def _line_style(j: int) -> dict[str, Any]:
    """Choose the colour of the j-th constraint, and a marker where colours repeat."""
    colour, marker = style.colour_and_marker(j)
    if j < len(style.COLOURS):
        return {"color": colour}
    return {"color": colour, "marker": marker, "markersize": 4, "markevery": 0.1}


def _get_axes(ax: Any, labels: Sequence[str]) -> Any:
    """Get the given axes, or new ones that have room for a legend beside them."""
    longest = max(map(len, labels), default=0)
    return style.get_axes(ax, (5.7 + 0.085 * longest, max(4.0, 0.5 + 0.21 * len(labels))))


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
        draw_legend = style.legend_beside if ax is None else style.legend_above
        ax = _get_axes(ax, [*labels, train_name, held_out_name, "bound"])
        line_2d = style.matplotlib("lines").Line2D
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
            for name, (column, stroke) in rows.items():
                value = self._column(column, constraint)
                if np.isnan(value).all():
                    continue
                kinds[name] = stroke
                if violation:  # Of lower bounds, the mirror image.
                    sign = -1.0 if style.split_constraint(constraint)[1] == ">=" else 1.0
                    value = np.maximum(sign * (value - bound), 0.0)
                ax.plot(rounds, value, **look, **stroke)
            if not violation:
                kinds["bound"] = dotted
                ax.plot(rounds, bound, **look, **dotted)
            handles.append(line_2d([], [], **look, linewidth=1.8, label=label))
        handles += [
            line_2d([], [], color=style.GREY, label=name, **s) for name, s in kinds.items()
        ]
        self._scale(ax)
        draw_legend(ax, handles)
        name = "violation" if violation else "constrained values"
        if not violation and len(self.constraints) == 1:
            name = style.literal(style.split_constraint(self.constraints[0])[0])
        return self._finish(ax, self.step, name + style.find_unit(self.constraints))

    def _scale(self, ax: Any) -> None:
        """Scale the axis linearly up to the smallest bound, logarithmically beyond."""
        sizes = np.abs([self._column("bound", c) for c in self.constraints])
        sizes = sizes[sizes > 0]
        linear = float(sizes.min()) if sizes.size else 1e-2
        ax.set_yscale("symlog", linthresh=linear, linscale=0.5)
        bottom, top = ax.get_ylim()  # They stay automatic, for axes that several fits share.
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
            locator = style.matplotlib("ticker").MaxNLocator(5, steps=[1, 2, 5, 10])
            ticks = in_sight(locator.tick_values(bottom, top))
        ax.set_yticks(ticks)
        ax.set_yticks([], minor=True)
        ax.yaxis.set_major_formatter(style.matplotlib("ticker").FormatStrFormatter("%g"))


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
        draw_legend = style.legend_beside if ax is None else style.legend_above
        ax = _get_axes(ax, labels if legend else [])
        rounds = self.history["rounds"].to_numpy()
        self.lines_ = []
        for j, (constraint, label) in enumerate(zip(self.constraints, labels, strict=True)):
            multiplier = self._column("multiplier", constraint)
            self.lines_ += ax.plot(
                rounds, multiplier, **_line_style(j), linewidth=1.8, label=label
            )
        # None is negative; the limits stay automatic, for axes that several fits share.
        bottom, top = ax.get_ylim()
        ax.set_ylim(bottom=max(bottom, -0.02 * top), auto=True)
        if legend:
            draw_legend(ax)
        return self._finish(ax, self.step, "multiplier")


OF_BLACK_BOX = "an estimator that was fitted with minimize=BlackBox(...)"
OF_METRIC = "an estimator that was fitted with maximize= or minimize="


class BlackBoxHistoryDisplay(ReportDisplay):
    """Metric on the validation rows over the iterations, beside thresholds alone.

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a classifier with a black-box metric: ``iteration`` and ``metric``.
    report : DataFrame
        Its ``blackbox_report_``: ``model`` and ``validation``.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "blackbox_report_"
    _remedy = OF_BLACK_BOX

    def __init__(self, history: pd.DataFrame, report: pd.DataFrame) -> None:
        style.check_columns(history, history="metric")
        style.check_columns(report, report="validation")
        self.history, self.report = history, report

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        return cls(estimator.history_, report)

    def plot(self, ax: Any = None) -> Self:
        """Draw the metric of each iterate, and lines for the other models that are near.

        Returns
        -------
        BlackBoxHistoryDisplay
            The display itself.
        """
        ax = style.get_axes(ax)
        values = self.history["metric"].to_numpy(np.float64)
        ax.plot(self.history["iteration"], values, ".-", color=style.COLOURS[0], label="iterates")
        low, high = values.min(), values.max()
        room = 4.0 * max(high - low, 0.01)  # A line farther away would squeeze the iterates.
        styles = {"plain": ":", "threshold": "--", "threshold per group": "-."}
        for name, value in zip(self.report["model"], self.report["validation"], strict=True):
            if not low - room <= value <= high + room:
                continue
            stroke, colour = (
                styles.get(name, "-"),
                style.GREY if name in styles else style.COLOURS[1],
            )
            ax.axhline(value, linestyle=stroke, color=colour, linewidth=1.2, label=name, zorder=1)
        style.count_across(ax)
        style.legend_above(ax)
        return self._finish(ax, "iteration", "metric of the rows that choose")


class SurrogateTargetsDisplay(ReportDisplay):
    """Surrogates after each projection, and the targets that the projection was asked for.

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a classifier with a black-box metric.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "blackbox_report_"
    _remedy = OF_BLACK_BOX

    def __init__(self, history: pd.DataFrame) -> None:
        style.check_columns(history, history="iteration")
        self.history = history
        self.names = [
            name.removeprefix("target[").removesuffix("]")
            for name in map(str, history)
            if name.startswith("target[")
        ]

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        return cls(estimator.history_)

    def plot(self, ax: Any = None) -> Self:
        """Draw a line for each surrogate, and a dotted one for its targets.

        Returns
        -------
        SurrogateTargetsDisplay
            The display itself.
        """
        ax, at = style.get_axes(ax), self.history["iteration"]
        for k, name in enumerate(self.names):
            colour, marker = style.colour_and_marker(k)
            values = self.history[f"surrogate[{name}]"]
            label = style.literal(style.shorten(name, 40))
            ax.plot(at, values, "-", marker=marker, markersize=3, color=colour, label=label)
            ax.plot(at[1:], self.history[f"target[{name}]"][1:], ":", color=colour)
        ax.plot([], [], ":", color=style.GREY, label="target")
        style.count_across(ax)
        style.legend_above(ax)
        return self._finish(ax, "iteration", "surrogate (mean loss of training rows)")


class ModelParametersDisplay(ReportDisplay):
    """Parameters of a model before and after its fit for a black-box metric.

    Parameters
    ----------
    parameters : DataFrame
        The ``blackbox_parameters_`` of a classifier: ``before`` and ``after``.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "blackbox_parameters_"
    _remedy = OF_BLACK_BOX

    def __init__(self, parameters: pd.DataFrame) -> None:
        style.check_columns(parameters, "before", "after")
        self.parameters = parameters

    def plot(self, ax: Any = None) -> Self:
        """Draw a line from the value of each parameter before the search to that after it.

        Returns
        -------
        ModelParametersDisplay
            The display itself.
        """
        ax, table = style.get_axes(ax), self.parameters
        names, at = table.index.astype(str), np.arange(len(table), dtype=np.float64)
        named = list(range(len(table)))
        if len(table) > 30:  # Offsets and the intercept have room for their names, others do not.
            is_beside = names.str.startswith("offset[") | (names == "intercept")
            of_model, beside = np.flatnonzero(~is_beside), np.flatnonzero(is_beside)
            at[beside] = of_model.size + np.arange(1, beside.size + 1) * len(table) / 30
            named = [*of_model[:: of_model.size // 6].tolist(), *beside.tolist()]
        change = {"color": style.GREY, "linewidth": 0.8, "zorder": 1, "label": "change"}
        ax.vlines(at, table["before"], table["after"], **change)
        ax.plot(at, table["before"], "_", color=style.GREY, label="before")
        ax.plot(at, table["after"], ".", color=style.COLOURS[0], label="after")
        shown = [style.literal(style.shorten(names[i], 40)) for i in named]
        ax.set_xticks(at[named], shown, rotation=90, fontsize="small")
        style.legend_above(ax)
        return self._finish(ax, "", "parameter")


class CertificateDisplay(ReportDisplay):
    """Ramp objective of each step, and the bounds of the optimum of its convex problem.

    A step solves a convex problem that lies above the ramp problem and touches it at the step
    before. Its cutting planes end with a lower and an upper bound of the optimum. The ramp
    objective after the step is at most the upper one.

    Parameters
    ----------
    certificate : DataFrame
        The ``certificate_`` of a :class:`~gbm_constrained.ConstrainedLinearSVC`: ``objective``,
        ``lower``, ``upper`` and ``n_cuts``.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "certificate_"
    _remedy = "a ConstrainedLinearSVC that was fitted with constraints"

    def __init__(self, certificate: pd.DataFrame) -> None:
        style.check_columns(certificate, "objective", "lower", "upper", "n_cuts")
        self.certificate = certificate

    def plot(self, ax: Any = None, *, over: Literal["steps", "cuts"] = "steps") -> Self:
        """Draw the objective and both bounds after each step.

        Parameters
        ----------
        over : {"steps", "cuts"}, default="steps"
            Whether a step is as far from the next as any other, or as far as it needed cuts.

        Returns
        -------
        CertificateDisplay
            The display itself.
        """
        check_choice("over", over, ("steps", "cuts"))
        ax = style.get_axes(ax)
        x = np.arange(len(self.certificate), dtype=np.float64)
        if over == "cuts":
            x = self.certificate["n_cuts"].to_numpy(np.float64).cumsum()
        bounds = self.certificate[["lower", "upper"]].to_numpy(np.float64)
        is_bounded = np.isfinite(bounds).all(axis=1)  # The start has no bounds.
        middle = bounds[is_bounded].mean(axis=1)
        half = np.diff(bounds[is_bounded], axis=1).ravel() / 2
        ax.errorbar(
            x[is_bounded], middle, half, fmt="none", ecolor=style.COLOURS[1], elinewidth=1.5,
            capsize=5, capthick=1.5, label="bounds of the convex optimum",
        )  # fmt: skip
        objective = self.certificate["objective"].to_numpy(np.float64)
        ax.plot(x, objective, ".-", color=style.COLOURS[0], label="ramp objective")
        style.count_across(ax)
        style.legend_above(ax)
        return self._finish(ax, over, "objective with penalty")


class MetricHistoryDisplay(ReportDisplay):
    """Value and bound of a metric over the calls of the oracle.

    The search begins in the distribution that the model's probabilities describe, where value and
    bound meet. From the rules found there a second search starts, which counts by labels.

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a classifier with a metric: ``call``, ``counted_by``, ``value`` and
        ``bound``.
    name : str, default="metric"
        Name of the metric.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "metric_report_"
    _remedy = OF_METRIC

    def __init__(self, history: pd.DataFrame, name: str = "metric") -> None:
        style.check_columns(history, history="counted_by", value="value", bound="bound")
        self.history, self.name = history, name

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        return cls(estimator.history_, str(report["metric"].iloc[0]))

    def plot(self, ax: Any = None) -> Self:
        """Draw the value of the mixture and the bound after each call.

        Returns
        -------
        MetricHistoryDisplay
            The display itself.
        """
        ax = style.get_axes(ax)
        for name, part in self.history.groupby("counted_by", sort=False):
            colour = style.COLOURS[0] if name == "labels" else style.COLOURS[1]
            values = part["value"].to_numpy(np.float64)
            ax.plot(part["call"], values, ".-", color=colour, label=f"value by {name}")
        bounds = self.history.loc[np.isfinite(self.history["bound"]), ["call", "bound"]]
        if len(bounds):
            low, high = ax.get_ylim()
            last = float(bounds["bound"].iloc[-1])
            ax.plot(
                bounds["call"], bounds["bound"], ":", color=style.GREY, label="bound", zorder=3
            )
            room = 0.15 * (high - low)
            # The first bounds are far beyond the range of a metric.
            ax.set_ylim(min(low, last - room), max(high, last + room))
        style.count_across(ax)
        style.legend_above(ax)
        return self._finish(ax, "calls of the oracle", style.literal(self.name))


class AchievableRatesDisplay(ReportDisplay):
    """Two rates of a metric: what rules achieve on held-out rows, and what decisions reach there.

    Rates that mixtures of rules achieve make a convex set. The hull of the rules that were found
    lies inside of the set, and no decisions lie beyond the line of the bound where the model's
    probabilities are right.

    Parameters
    ----------
    rates : DataFrame
        The ``achieved_rates_`` of a classifier: a row for each rule found, whose ``decisions`` is
        ``"pool"``, and for each candidate, and a column for each rate.
    metric : callable, default=None
        Value of the metric, given an array of the last columns in their order; needed for the
        line of the bound.
    n_rates : int, default=None
        Number of the last columns that the metric is a function of; all rates by default.
    bound : float, default=None
        The bound of the metric, without which no line is drawn.

    Attributes
    ----------
    hull_ : ndarray of shape (n_vertices, 2)
        Vertices of the hull of the rules that were found.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    _report = "metric_report_"
    _remedy = OF_METRIC

    hull_: Float

    def __init__(
        self,
        rates: pd.DataFrame,
        *,
        metric: Callable[[Float], float] | None = None,
        n_rates: int | None = None,
        bound: float | None = None,
    ) -> None:
        style.check_columns(rates, rates="decisions")
        self.rates, self.metric, self.bound = rates, metric, bound
        names = [name for name in rates.columns if name != "decisions"]
        self.names = names if n_rates is None else names[len(names) - n_rates :]

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        objective = read_objective(estimator.maximize, estimator.minimize)
        assert objective is not None
        best = float(report.loc[report["is_returned"], "bound"].iloc[0])
        if getattr(objective, "by", None) is not None:
            # A function of the matrices of groups needs names of the groups, and has no line.
            return cls(estimator.achieved_rates_, bound=best)
        n = len(estimator.classes_)
        bound = objective.bind(np.asarray(estimator.classes_), np.full(n, 1.0 / n))
        n_rates = sum(len(constraint.rates) for constraint in bound.constraints)
        rates = estimator.achieved_rates_
        return cls(rates, metric=bound.function, n_rates=n_rates, bound=best)

    def plot(self, ax: Any = None, *, x: str | None = None, y: str | None = None) -> Self:
        """Draw the hull of the rules, the decisions, and the line of the bound.

        Parameters
        ----------
        x, y : str, default=None
            Columns of the two rates; the first two of the metric by default. The line of the
            bound has the other rates where the returned decisions have them.

        Returns
        -------
        AchievableRatesDisplay
            The display itself.

        Raises
        ------
        ValueError
            If a rate is missing.
        """
        x, y = x or self.names[0], y or self.names[min(1, len(self.names) - 1)]
        style.check_columns(self.rates, x=x, y=y)
        ax = style.get_axes(ax, (5.5, 5.5))
        of = self.rates["decisions"]
        points = self.rates.loc[of == "pool", [x, y]].to_numpy(np.float64)
        # These are rules counted on all held-out rows, so that mixtures of them are achievable.
        is_rule = of.isin(("pool", "argmax", "prior", "model"))
        self.hull_ = self.rates.loc[is_rule, [x, y]].to_numpy(np.float64)
        with suppress(QhullError, ValueError):  # Points on one line are their own hull.
            self.hull_ = self.hull_[ConvexHull(self.hull_).vertices]
        ax.fill(
            *self.hull_.T,
            color=style.COLOURS[0],
            alpha=0.12,
            linewidth=0,
            label="hull of the rules",
        )
        ax.plot(
            *points.T, "o", color=style.COLOURS[0], markersize=4, alpha=0.7, label="rules found"
        )
        looks = {
            "argmax": ("largest probability", style.COLOURS[4], "s"),
            "prior": ("probability / class share", style.COLOURS[3], "^"),
            "returned": ("returned", style.COLOURS[1], "D"),
        }
        for name, (label, colour, marker) in looks.items():
            found = self.rates.loc[of == name, [x, y]].to_numpy(np.float64)
            ax.plot(*found.T, marker, color=colour, markersize=8, label=label, zorder=3)
        self._draw_bound(ax, x, y)
        style.legend_above(ax)
        return self._finish(ax, style.literal(x), style.literal(y))

    def _draw_bound(self, ax: Any, x: str, y: str) -> None:
        """Draw where the metric is equal to its bound."""
        if self.metric is None or self.bound is None or not np.isfinite(self.bound):
            return
        if x not in self.names or y not in self.names or x == y:
            return
        at, n = (self.names.index(x), self.names.index(y)), 101  # points of each side of a grid
        returned = self.rates.loc[self.rates["decisions"] == "returned", self.names]
        u = np.tile(returned.to_numpy(np.float64)[0], (n**2, 1))
        sides = [np.linspace(low, high, n) for low, high in (ax.get_xlim(), ax.get_ylim())]
        u[:, at[0]], u[:, at[1]] = (side.ravel() for side in np.meshgrid(*sides))
        with np.errstate(all="ignore"):
            values = np.array([self.metric(one) for one in u]).reshape(n, n)
        values = np.ma.masked_invalid(values)
        if values.min() < self.bound < values.max():
            ax.contour(*sides, values, [self.bound], colors=style.GREY, linestyles="--")
            ax.plot([], [], color=style.GREY, linestyle="--", label="bound of the metric")
