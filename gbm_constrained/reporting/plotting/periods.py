"""Values of constraints by period of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained.evaluation.periods import PERIOD_COLUMNS
from gbm_constrained.reporting.plotting.style import (
    check_columns,
    colour_and_marker,
    find_unit,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
)

RING = 13  # Size of the ring around a value that drifts.


def plot_periods(frame: pd.DataFrame, ax: Any = None) -> Any:
    """Draw the value of each constraint in each period, with its interval and its bound.

    A value of the last period that is outside of what earlier periods leave has a ring, and the
    interval that they leave is drawn as a band beside it.

    Parameters
    ----------
    frame : DataFrame
        One row per constraint and period, as ``period_report_`` of a classifier that was fitted
        with ``measure_on="forward"``, or ``periods`` of :class:`gbm_constrained.Audit`.
    ax : matplotlib Axes, default=None
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If `frame` is another table, or is empty.
    """
    matplotlib("axes")
    check_columns(frame, **{name: name for name in PERIOD_COLUMNS})
    if frame.empty:
        raise ValueError(
            "frame holds no period: give time= to audit, or use measure_on='forward'."
        )
    ax = get_axes(ax)
    parts = list(frame.groupby("constraint", sort=False))
    for i, (name, part) in enumerate(parts):
        at = part["period"] + 0.06 * (i - (len(parts) - 1) / 2.0)
        _draw_constraint(ax, i, str(name), part, at.to_numpy())
    lasts = frame.drop_duplicates("period").set_index("period")["last"]
    ax.set_xticks(lasts.index, [str(last).removesuffix(" 00:00:00") for last in lasts])
    finish_axes(ax, "end of the period", "value" + find_unit(str(name) for name, _ in parts))
    ax.legend(fontsize="small")
    return ax


def _draw_constraint(ax: Any, i: int, name: str, part: pd.DataFrame, at: Any) -> None:
    """Draw the values of one constraint, beside those of others."""
    colour, marker = colour_and_marker(i)
    value = part["value"].to_numpy()
    ends = np.abs(part[["low", "high"]].to_numpy().T - value)
    ax.errorbar(at, value, yerr=ends, color=colour, marker=marker, capsize=3, label=literal(name))
    if np.isfinite(part["bound"].iloc[0]):  # A metric has none.
        ax.axhline(part["bound"].iloc[0], color=colour, linestyle="--", linewidth=1.0)
    last = part.iloc[-1]
    if last["drifts"] is not pd.NA and last["drifts"]:
        ax.plot(at[-1:], value[-1:], "o", markersize=RING, color=colour, fillstyle="none")
        band = {"color": colour, "alpha": 0.25, "linewidth": 8, "solid_capstyle": "butt"}
        ax.plot([at[-1]] * 2, [last["expected_low"], last["expected_high"]], **band)
