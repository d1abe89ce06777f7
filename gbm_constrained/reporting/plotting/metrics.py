"""Figures of metrics: the search, what is achievable, and the recall of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.data.validation import as_labels, check_share, check_weight
from gbm_constrained.evaluation.audit import repeatable_decisions
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    check_columns,
    colour_and_marker,
    document_plot,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
)
from gbm_constrained.statistics.binomial import clopper_pearson

ROOM = 0.15  # Around the last bound, as a share of the range of the values.


def read_metric_report(estimator: Any) -> pd.DataFrame:
    """Read the report of a fit with a metric."""
    report = getattr(estimator, "metric_report_", None)
    if not isinstance(report, pd.DataFrame):
        raise TypeError(
            f"{type(estimator).__name__} has no metric_report_: give an estimator that was fitted "
            f"with maximize= or minimize=."
        )
    return report


class MetricHistoryDisplay:
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

    ax_: Any
    figure_: Any

    def __init__(self, history: pd.DataFrame, name: str = "metric") -> None:
        check_columns(history, history="counted_by", value="value", bound="bound")
        self.history, self.name = history, name

    @classmethod
    @document_plot
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> MetricHistoryDisplay:
        """Draw the search of a classifier that was fitted with a metric.

        Parameters
        ----------
        estimator : fitted classifier
            One with ``maximize=`` or ``minimize=``.

        Raises
        ------
        TypeError
            If the estimator was fitted without a metric.
        """
        report = read_metric_report(estimator)
        return cls(estimator.history_, str(report["metric"].iloc[0])).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> MetricHistoryDisplay:
        """Draw the value of the mixture and the bound after each call.

        Returns
        -------
        MetricHistoryDisplay
            The display itself.
        """
        ax = get_axes(ax)
        for name, part in self.history.groupby("counted_by", sort=False):
            colour = COLOURS[0] if name == "labels" else COLOURS[1]
            values = part["value"].to_numpy(np.float64)
            ax.plot(part["call"], values, ".-", color=colour, label=f"value by {name}")
        bounds = self.history.loc[np.isfinite(self.history["bound"]), ["call", "bound"]]
        if len(bounds):
            low, high = ax.get_ylim()
            last = float(bounds["bound"].iloc[-1])
            ax.plot(bounds["call"], bounds["bound"], ":", color=GREY, label="bound", zorder=3)
            room = ROOM * (high - low)
            # The first bounds are far beyond the range of a metric.
            ax.set_ylim(min(low, last - room), max(high, last + room))
        ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=3)
        finish_axes(ax, "calls of the oracle", literal(self.name))
        self.ax_, self.figure_ = ax, ax.figure
        return self


DECISIONS = "decisions"
# Decisions that are drawn: legend, colour and marker.
LOOKS = {
    "argmax": ("largest probability", COLOURS[4], "s"),
    "prior": ("probability / class share", COLOURS[3], "^"),
    "returned": ("returned", COLOURS[1], "D"),
}
# Rows that are rules counted on all held-out rows, so that mixtures of them are achievable.
RULES = ("pool", "argmax", "prior", "model")
N_GRID = 101  # Points of each side of the grid on which the level line of a metric is found.


class AchievableRatesDisplay:
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

    hull_: Float
    ax_: Any
    figure_: Any

    def __init__(
        self,
        rates: pd.DataFrame,
        *,
        metric: Callable[[Float], float] | None = None,
        n_rates: int | None = None,
        bound: float | None = None,
    ) -> None:
        check_columns(rates, rates=DECISIONS)
        self.rates, self.metric, self.bound = rates, metric, bound
        names = [name for name in rates.columns if name != DECISIONS]
        self.names = names if n_rates is None else names[len(names) - n_rates :]

    @classmethod
    @document_plot
    def from_estimator(
        cls, estimator: Any, *, x: str | None = None, y: str | None = None, ax: Any = None
    ) -> AchievableRatesDisplay:
        """Draw two rates of a classifier that was fitted with a metric.

        Parameters
        ----------
        estimator : fitted classifier
            One with ``maximize=`` or ``minimize=``.
        x, y : str, default=None
            As in :meth:`plot`.

        Raises
        ------
        TypeError
            If the estimator was fitted without a metric.
        """
        report = read_metric_report(estimator)
        objective = read_objective(estimator.maximize, estimator.minimize)
        assert objective is not None
        n = len(estimator.classes_)
        bound = objective.bind(np.asarray(estimator.classes_), np.full(n, 1.0 / n))
        rates = estimator.achieved_rates_
        # A function of the matrices of groups needs names of the groups, and has no line.
        metric = None if getattr(objective, "by", None) is not None else bound.function
        best = float(report.loc[report["is_returned"], "bound"].iloc[0])
        n_rates = None
        if metric is not None:
            n_rates = sum(len(constraint.rates) for constraint in bound.constraints)
        return cls(rates, metric=metric, n_rates=n_rates, bound=best).plot(ax, x=x, y=y)

    @document_plot
    def plot(
        self, ax: Any = None, *, x: str | None = None, y: str | None = None
    ) -> AchievableRatesDisplay:
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
        check_columns(self.rates, x=x, y=y)
        ax = get_axes(ax, (5.5, 5.5))
        of = self.rates[DECISIONS]
        points = self.rates.loc[of == "pool", [x, y]].to_numpy(np.float64)
        rules = self.rates.loc[of.isin(RULES), [x, y]].to_numpy(np.float64)
        self.hull_ = _find_hull(rules)
        ax.fill(
            *self.hull_.T, color=COLOURS[0], alpha=0.12, linewidth=0, label="hull of the rules"
        )
        ax.plot(*points.T, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="rules found")
        for name, (label, colour, marker) in LOOKS.items():
            found = self.rates.loc[self.rates[DECISIONS] == name, [x, y]].to_numpy(np.float64)
            ax.plot(*found.T, marker, color=colour, markersize=8, label=label, zorder=3)
        self._draw_bound(ax, x, y)
        ax.legend(framealpha=0.9)
        finish_axes(ax, literal(x), literal(y))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bound(self, ax: Any, x: str, y: str) -> None:
        """Draw where the metric is equal to its bound."""
        if self.metric is None or self.bound is None or not np.isfinite(self.bound):
            return
        if x not in self.names or y not in self.names or x == y:
            return
        at = (self.names.index(x), self.names.index(y))
        returned = self.rates.loc[self.rates[DECISIONS] == "returned", self.names]
        u = np.tile(returned.to_numpy(np.float64)[0], (N_GRID**2, 1))
        sides = [np.linspace(low, high, N_GRID) for low, high in (ax.get_xlim(), ax.get_ylim())]
        u[:, at[0]], u[:, at[1]] = (side.ravel() for side in np.meshgrid(*sides))
        with np.errstate(all="ignore"):
            values = np.array([self.metric(one) for one in u]).reshape(N_GRID, N_GRID)
        values = np.ma.masked_invalid(values)
        if values.min() < self.bound < values.max():
            ax.contour(*sides, values, [self.bound], colors=GREY, linestyles="--")
            ax.plot([], [], color=GREY, linestyle="--", label="bound of the metric")


def _find_hull(points: Float) -> Float:
    """Find the vertices of the convex hull, in order; points on one line are their own."""
    try:
        return np.asarray(points[ConvexHull(points).vertices])
    except (QhullError, ValueError):
        return points


COLUMNS = ("class", "rows", "recall", "low", "high")
APART = 0.22  # Distance of two classifiers, where classes are at distance 1.


class ClassRecallsDisplay:
    """Recall of each class with its exact interval.

    Parameters
    ----------
    recalls : dict from str to DataFrame
        By the name of a classifier, one row for each class: ``class``, ``rows``, ``recall``, and
        the interval from ``low`` to ``high``.
    level : float, default=0.95
        Level of the intervals.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    ax_: Any
    figure_: Any

    def __init__(self, recalls: Mapping[str, pd.DataFrame], level: float = 0.95) -> None:
        if not recalls:
            raise ValueError("recalls holds no classifier: give the table of one or of several.")
        for table in recalls.values():
            check_columns(table, **{name: name for name in COLUMNS})
        self.recalls, self.level = dict(recalls), level

    @classmethod
    @document_plot
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        others: Mapping[str, Any] | None = None,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str | None = None,
        ax: Any = None,
    ) -> ClassRecallsDisplay:
        """Measure and draw the recalls of a fitted classifier, and of others beside.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``. Randomised decisions count by their probabilities.
        others : dict from str to fitted classifier, default=None
            Further classifiers by their names in the legend, such as the one before; they are
            drawn first.
        name : str, default=None
            Name of the estimator in the legend; that of its class by default.

        Raises
        ------
        TypeError, ValueError
            If labels or weights do not fit the rows.
        """
        models = dict(others or {}) | {name or type(estimator).__name__: estimator}
        decided = {title: _decide(model, X) for title, model in models.items()}
        given = {"sample_weight": sample_weight, "level": level, "ax": ax}
        return cls.from_predictions(y, decided, **given)

    @classmethod
    @document_plot
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str = "predictions",
        ax: Any = None,
    ) -> ClassRecallsDisplay:
        """Measure and draw the recalls of given decisions.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels.
        y_pred : array-like of shape (n_samples,), DataFrame, or dict of them
            Decisions. In a DataFrame of shape (n_samples, n_classes) they are probabilities of
            the decisions, whose columns are the classes. A dict has them by name.
        name : str, default="predictions"
            Name of decisions without a dict in the legend.

        Raises
        ------
        TypeError, ValueError
            If labels, decisions or weights do not fit each other.
        """
        matplotlib("axes")
        check_share("level", level)
        labels = as_labels(y_true)
        weight = check_weight(sample_weight, labels.size)
        weight = np.ones(labels.size) if weight is None else weight
        given = y_pred if isinstance(y_pred, dict) else {name: y_pred}
        recalls = {
            title: _tabulate(labels, decisions, weight, level)
            for title, decisions in given.items()
        }
        return cls(recalls, level).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> ClassRecallsDisplay:
        """Draw the recalls, one class below the other.

        Returns
        -------
        ClassRecallsDisplay
            The display itself.
        """
        first = next(iter(self.recalls.values()))
        names = [
            literal(f"{label} (n={size:,})")
            for label, size in zip(first["class"], first["rows"], strict=True)
        ]
        n = len(self.recalls)
        ax = get_axes(ax, (4.5 + 0.085 * max(map(len, names)), 1.6 + 0.3 * (n + 1) * len(names)))
        for i, (title, table) in enumerate(self.recalls.items()):
            colour, marker = colour_and_marker(i)
            at = np.arange(len(table)) + APART * (i - (n - 1) / 2)
            low, found, high = (table[c].to_numpy(np.float64) for c in ("low", "recall", "high"))
            ax.errorbar(
                found, at, xerr=np.array([found - low, high - found]).clip(0.0), fmt="none",
                ecolor=colour, elinewidth=1.6, capsize=3, alpha=0.7,
            )  # fmt: skip
            label = f"{literal(title)}, {100 * self.level:g}% intervals"
            ax.plot(found, at, marker, color=colour, markersize=6, label=label)
        ax.set_yticks(np.arange(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(-0.02, 1.02)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
        finish_axes(ax, "recall (fraction)", "")
        ax.grid(False, axis="y")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _decide(model: Any, X: Any) -> Any:
    """Decide by a classifier; a randomised one gives probabilities of its decisions."""
    if hasattr(model, "decision_probabilities"):
        return pd.DataFrame(model.decision_probabilities(X), columns=model.classes_)
    return repeatable_decisions(model, X)


def _tabulate(labels: Any, decisions: Any, weight: Float, level: float) -> pd.DataFrame:
    """Tabulate the recall of each class."""
    if len(decisions) != labels.size:
        raise ValueError(
            f"y_pred has {len(decisions)} rows and y_true has {labels.size}: give one decision "
            f"for each row."
        )
    if isinstance(decisions, pd.DataFrame):
        columns = list(decisions.columns)
        hits = np.array([0.0 if k not in columns else np.nan for k in labels])
        of_column = decisions.to_numpy(np.float64)
        for j, column in enumerate(columns):
            hits = np.where(labels == column, of_column[:, j], hits)
    else:
        hits = (as_labels(decisions) == labels).astype(np.float64)
    records = []
    for label in np.unique(labels):
        w, hit = weight[labels == label], hits[labels == label]
        found = float(np.average(hit, weights=w))
        n_effective = w.sum() ** 2 / (w**2).sum()
        low, high = clopper_pearson(found * n_effective, n_effective, level)
        records.append((label, int((labels == label).sum()), found, float(low), float(high)))
    return pd.DataFrame(records, columns=list(COLUMNS))
