"""The search for the parameters that minimise a black-box metric, and what it has found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
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
    shorten,
)

STYLES = {"plain": ":", "threshold": "--", "threshold per group": "-."}
MOST_NAMES = 30  # Of parameters that are named one by one,
N_NAMES = 6  # and of those that are named where there are more.
MOST_CHARACTERS = 40
OUT_OF_VIEW = 4.0  # Ranges of the iterates beyond which a line would squeeze them.


def _read(estimator: Any, name: str) -> pd.DataFrame:
    """Read a table of a fit for a black-box metric."""
    table = vars(estimator).get(name)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            f"{type(estimator).__name__} has no {name}: give an estimator that was fitted with "
            f"minimize=BlackBox(...)."
        )
    return table


class BlackBoxHistoryDisplay:
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

    ax_: Any
    figure_: Any

    def __init__(self, history: pd.DataFrame, report: pd.DataFrame) -> None:
        check_columns(history, history="metric")
        check_columns(report, report="validation")
        self.history, self.report = history, report

    @classmethod
    @document_plot
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> BlackBoxHistoryDisplay:
        """Draw the search of a classifier.

        Parameters
        ----------
        estimator : fitted classifier
            One with ``minimize=BlackBox(...)`` or ``maximize=``.

        Raises
        ------
        TypeError
            If the estimator was fitted without a black-box metric.
        """
        report = _read(estimator, "blackbox_report_")
        return cls(estimator.history_, report).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> BlackBoxHistoryDisplay:
        """Draw the metric of each iterate, and lines for the other models that are near.

        Returns
        -------
        BlackBoxHistoryDisplay
            The display itself.
        """
        ax = get_axes(ax)
        values = self.history["metric"].to_numpy(np.float64)
        ax.plot(self.history["iteration"], values, ".-", color=COLOURS[0], label="iterates")
        low, high = values.min(), values.max()
        room = OUT_OF_VIEW * max(high - low, 0.01)
        for name, value in zip(self.report["model"], self.report["validation"], strict=True):
            if not low - room <= value <= high + room:
                continue
            style, colour = STYLES.get(name, "-"), GREY if name in STYLES else COLOURS[1]
            ax.axhline(value, linestyle=style, color=colour, linewidth=1.2, label=name, zorder=1)
        ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2)
        finish_axes(ax, "iteration", "metric of the rows that choose")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class SurrogateTargetsDisplay:
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

    ax_: Any
    figure_: Any

    def __init__(self, history: pd.DataFrame) -> None:
        check_columns(history, history="iteration")
        self.history = history
        self.names = [
            name.removeprefix("target[").removesuffix("]")
            for name in map(str, history)
            if name.startswith("target[")
        ]

    @classmethod
    @document_plot
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> SurrogateTargetsDisplay:
        """Draw the surrogates of a classifier.

        Parameters
        ----------
        estimator : fitted classifier
            One with ``minimize=BlackBox(...)`` or ``maximize=``.

        Raises
        ------
        TypeError
            If the estimator was fitted without a black-box metric.
        """
        _read(estimator, "blackbox_report_")
        return cls(estimator.history_).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> SurrogateTargetsDisplay:
        """Draw a line for each surrogate, and a dotted one for its targets.

        Returns
        -------
        SurrogateTargetsDisplay
            The display itself.
        """
        ax, at = get_axes(ax), self.history["iteration"]
        for k, name in enumerate(self.names):
            colour, marker = colour_and_marker(k)
            values = self.history[f"surrogate[{name}]"]
            label = literal(shorten(name, MOST_CHARACTERS))
            ax.plot(at, values, "-", marker=marker, markersize=3, color=colour, label=label)
            ax.plot(at[1:], self.history[f"target[{name}]"][1:], ":", color=colour)
        ax.plot([], [], ":", color=GREY, label="target")
        ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2)
        finish_axes(ax, "iteration", "surrogate (mean loss of training rows)")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ModelParametersDisplay:
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

    ax_: Any
    figure_: Any

    def __init__(self, parameters: pd.DataFrame) -> None:
        check_columns(parameters, before="before", after="after")
        self.parameters = parameters

    @classmethod
    @document_plot
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ModelParametersDisplay:
        """Draw the parameters of a classifier.

        Parameters
        ----------
        estimator : fitted classifier
            One with ``minimize=BlackBox(...)`` or ``maximize=``.

        Raises
        ------
        TypeError
            If the estimator was fitted without a black-box metric.
        """
        return cls(_read(estimator, "blackbox_parameters_")).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> ModelParametersDisplay:
        """Draw a line from the value of each parameter before the search to that after it.

        Returns
        -------
        ModelParametersDisplay
            The display itself.
        """
        ax, table = get_axes(ax), self.parameters
        at, named = _place(table)
        ax.vlines(at, table["before"], table["after"], color=GREY, linewidth=0.8, zorder=1)
        ax.plot(at, table["before"], "_", color=GREY, label="before")
        ax.plot(at, table["after"], ".", color=COLOURS[0], label="after")
        names = [literal(shorten(str(table.index[i]), MOST_CHARACTERS)) for i in named]
        ax.set_xticks(at[named], names, rotation=90, fontsize="small")
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=2)
        finish_axes(ax, "", "parameter")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _place(table: pd.DataFrame) -> tuple[Float, list[int]]:
    """Place the parameters on the axis, and choose those that are named.

    Of many parameters some are named. All offsets and the intercept are named, with room between
    them.
    """
    names, at = table.index.astype(str), np.arange(len(table), dtype=np.float64)
    is_beside = names.str.startswith("offset[") | (names == "intercept")
    of_model, beside = np.flatnonzero(~is_beside), np.flatnonzero(is_beside)
    if len(table) <= MOST_NAMES:
        return at, list(range(len(table)))
    at[beside] = of_model.size + np.arange(1, beside.size + 1) * len(table) / MOST_NAMES
    return at, [*of_model[:: of_model.size // N_NAMES].tolist(), *beside.tolist()]
