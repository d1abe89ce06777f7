"""What decision rules achieve of a metric's rates, and what decisions reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from gbm_constrained._typing import Float
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.reporting.plotting.metric_history import read_metric_report
from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    check_columns,
    document_plot,
    finish_axes,
    get_axes,
    literal,
)

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
