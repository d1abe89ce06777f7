"""Figures of metrics: the search, what is achievable, and the recall of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.data.validation import as_labels, check_share, check_weight
from gbm_constrained.evaluation.audit import repeatable_decisions
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.reporting.plotting.style import (
    APART,
    COLOURS,
    GREY,
    Display,
    ReportDisplay,
    check_columns,
    colour_and_marker,
    count_across,
    document_plot,
    draw_rates,
    get_axes,
    legend_above,
    literal,
    matplotlib,
    name_rows,
)
from gbm_constrained.statistics.binomial import clopper_pearson


class _MetricDisplay(ReportDisplay):
    """Base of the displays of a fit with a metric."""

    _report = "metric_report_"
    _remedy = "an estimator that was fitted with maximize= or minimize="


class MetricHistoryDisplay(_MetricDisplay):
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

    def __init__(self, history: pd.DataFrame, name: str = "metric") -> None:
        check_columns(history, history="counted_by", value="value", bound="bound")
        self.history, self.name = history, name

    @classmethod
    def _from_report(cls, estimator: Any, report: pd.DataFrame) -> Self:
        return cls(estimator.history_, str(report["metric"].iloc[0]))

    @document_plot
    def plot(self, ax: Any = None) -> Self:
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
            room = 0.15 * (high - low)
            # The first bounds are far beyond the range of a metric.
            ax.set_ylim(min(low, last - room), max(high, last + room))
        count_across(ax)
        legend_above(ax, 3)
        return self._finish(ax, "calls of the oracle", literal(self.name))


class AchievableRatesDisplay(_MetricDisplay):
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

    def __init__(
        self,
        rates: pd.DataFrame,
        *,
        metric: Callable[[Float], float] | None = None,
        n_rates: int | None = None,
        bound: float | None = None,
    ) -> None:
        check_columns(rates, rates="decisions")
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

    @document_plot
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
        check_columns(self.rates, x=x, y=y)
        ax = get_axes(ax, (5.5, 5.5))
        of = self.rates["decisions"]
        points = self.rates.loc[of == "pool", [x, y]].to_numpy(np.float64)
        # These are rules counted on all held-out rows, so that mixtures of them are achievable.
        is_rule = of.isin(("pool", "argmax", "prior", "model"))
        self.hull_ = self.rates.loc[is_rule, [x, y]].to_numpy(np.float64)
        with suppress(QhullError, ValueError):  # Points on one line are their own hull.
            self.hull_ = self.hull_[ConvexHull(self.hull_).vertices]
        ax.fill(
            *self.hull_.T, color=COLOURS[0], alpha=0.12, linewidth=0, label="hull of the rules"
        )
        ax.plot(*points.T, "o", color=COLOURS[0], markersize=4, alpha=0.7, label="rules found")
        looks = {
            "argmax": ("largest probability", COLOURS[4], "s"),
            "prior": ("probability / class share", COLOURS[3], "^"),
            "returned": ("returned", COLOURS[1], "D"),
        }
        for name, (label, colour, marker) in looks.items():
            found = self.rates.loc[of == name, [x, y]].to_numpy(np.float64)
            ax.plot(*found.T, marker, color=colour, markersize=8, label=label, zorder=3)
        self._draw_bound(ax, x, y)
        ax.legend(framealpha=0.9)
        return self._finish(ax, literal(x), literal(y))

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
            ax.contour(*sides, values, [self.bound], colors=GREY, linestyles="--")
            ax.plot([], [], color=GREY, linestyle="--", label="bound of the metric")


RECALL_COLUMNS = ("class", "rows", "recall", "low", "high")


class ClassRecallsDisplay(Display):
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

    def __init__(self, recalls: Mapping[str, pd.DataFrame], level: float = 0.95) -> None:
        if not recalls:
            raise ValueError("recalls holds no classifier: give the table of one or of several.")
        for table in recalls.values():
            check_columns(table, **{name: name for name in RECALL_COLUMNS})
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
    ) -> Self:
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
        decided = {
            title: pd.DataFrame(model.decision_probabilities(X), columns=model.classes_)
            if hasattr(model, "decision_probabilities")
            else repeatable_decisions(model, X)
            for title, model in models.items()
        }
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
    ) -> Self:
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
    def plot(self, ax: Any = None) -> Self:
        """Draw the recalls, one class below the other.

        Returns
        -------
        ClassRecallsDisplay
            The display itself.
        """
        first = next(iter(self.recalls.values()))
        names = name_rows(first["class"], first["rows"])
        n = len(self.recalls)
        ax = get_axes(ax, (4.5 + 0.085 * max(map(len, names)), 1.6 + 0.3 * (n + 1) * len(names)))
        for i, (title, table) in enumerate(self.recalls.items()):
            at = np.arange(len(table)) + APART * (i - (n - 1) / 2)
            label = f"{literal(title)}, {100 * self.level:g}% intervals"
            draw_rates(ax, at, table, "recall", *colour_and_marker(i), label=label)
        ax.set_yticks(np.arange(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(-0.02, 1.02)
        legend_above(ax)
        self._finish(ax, "recall (fraction)", "")
        ax.grid(False, axis="y")
        return self


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
    return pd.DataFrame(records, columns=list(RECALL_COLUMNS))
