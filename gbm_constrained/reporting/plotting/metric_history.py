"""The search for the optimum of a metric, call by call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    check_columns,
    document_plot,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
)

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
