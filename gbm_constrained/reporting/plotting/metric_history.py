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

    Parameters
    ----------
    history : DataFrame
        The ``history_`` of a classifier with a metric: ``call``, ``value`` and ``bound``.
    name : str, default="metric"
        Name of the metric.
    bound : float, default=None
        Bound of the metric in the distribution that the model's probabilities describe.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    ax_: Any
    figure_: Any

    def __init__(
        self, history: pd.DataFrame, name: str = "metric", bound: float | None = None
    ) -> None:
        check_columns(history, history="call", value="value", bound="bound")
        self.history, self.name, self.bound = history, name, bound

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
        bound = float(report.loc[report["is_returned"], "bound"].iloc[0])
        return cls(estimator.history_, str(report["metric"].iloc[0]), bound).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> MetricHistoryDisplay:
        """Draw the value of the mixture and the bound after each call.

        Returns
        -------
        MetricHistoryDisplay
            The display itself.
        """
        ax = get_axes(ax)
        calls = self.history["call"].to_numpy()
        for column, style, label in (("value", "-", "value"), ("bound", ":", "bound, by counts")):
            values = self.history[column].replace([np.inf, -np.inf], np.nan).to_numpy(np.float64)
            look = {"color": COLOURS[0], "linestyle": style, "linewidth": 1.8}
            ax.plot(calls, values, marker=".", label=label, **look)
        if self.bound is not None and np.isfinite(self.bound):
            ax.axhline(self.bound, color=GREY, linestyle="--", label="bound of the model")
        ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
        ax.legend(framealpha=0.9)
        finish_axes(ax, "calls of the oracle", literal(self.name))
        self.ax_, self.figure_ = ax, ax.figure
        return self
