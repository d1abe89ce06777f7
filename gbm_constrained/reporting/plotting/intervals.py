"""Values of constraints with their intervals and bounds."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from gbm_constrained.evaluation.audit import AuditRows, measure_classifier
from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    check_columns,
    document_plot,
    get_axes,
    literal,
    matplotlib,
    shorten,
)

# Verdicts differ by shape and by colour.
LOOKS = {
    "met": (COLOURS[2], "o"),
    "met on training rows": (COLOURS[4], "v"),
    "missed within sampling error": (COLOURS[4], "s"),
    "cannot be told": (COLOURS[4], "^"),
    "missed": (COLOURS[1], "D"),
    "cannot be met": (COLOURS[1], "X"),
}
COLUMNS = ("constraint", "sense", "bound", "value", "low", "high", "verdict")
MAX_CHARACTERS = 92  # Most characters of a constraint and its verdict that fit a new figure.


class ConstraintIntervalsDisplay:
    """Values and intervals of constraints next to their bounds, each on an axis of its own.

    Parameters
    ----------
    frame : DataFrame
        One row for each constraint, as ``frame`` of :class:`gbm_constrained.Audit`:
        ``constraint``, ``sense``, ``bound``, ``value``, the interval ``low`` to ``high``, and the
        ``verdict``.

    Attributes
    ----------
    axes_ : list of matplotlib Axes
        The axis of each constraint, inside of ``ax_``.
    ax_ : matplotlib Axes
        The axes that hold them.
    figure_ : matplotlib Figure
        Their figure.

    See Also
    --------
    gbm_constrained.audit : The numbers.
    """

    axes_: list[Any]
    ax_: Any
    figure_: Any

    def __init__(self, frame: pd.DataFrame) -> None:
        check_columns(frame, **{name: name for name in COLUMNS})
        if frame.empty:
            raise ValueError("frame holds no constraint: give one row for each.")
        self.frame = frame

    @classmethod
    @document_plot
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        constraints: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> ConstraintIntervalsDisplay:
        """Measure the constraints of a fitted classifier, and draw their intervals.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``.
        constraints : Constraint or sequence of them
            The constraints.
        **options
            ``positive`` and ``level``, as in :func:`gbm_constrained.audit`.

        Raises
        ------
        TypeError, ValueError
            As :func:`gbm_constrained.audit`.
        """
        matplotlib("axes")
        rows = AuditRows(X, y, sensitive_features, sample_weight)
        return cls(measure_classifier(estimator, rows, constraints, **options).frame).plot(ax)

    def plot(self, ax: Any = None) -> ConstraintIntervalsDisplay:
        """Draw the bound, the side that is allowed, the interval and the value of each constraint.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; a new figure by default. The axes are emptied and divided.

        Returns
        -------
        ConstraintIntervalsDisplay
            The display itself.
        """
        n = len(self.frame)
        ax = get_axes(ax, (7.2, 0.25 + 0.8 * n))
        ax.set_axis_off()
        self.axes_ = []
        for i, record in enumerate(self.frame.to_dict("records")):
            inset = ax.inset_axes([0.0, 1.0 - (i + 0.68) / n, 1.0, 0.3 / n])
            _draw_interval(inset, record)
            self.axes_.append(inset)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _draw_interval(ax: Any, record: dict[Any, Any]) -> None:
    """Draw one constraint."""
    value, low, high, bound = (float(record[c]) for c in ("value", "low", "high", "bound"))
    colour, marker = LOOKS[record["verdict"]]
    verdict = record["verdict"]
    if not math.isfinite(value):
        verdict += " (no value)" if math.isnan(value) else " (infinite)"
    name = shorten(str(record["constraint"]), MAX_CHARACTERS - len(verdict))
    ax.set_title(literal(name), loc="left", fontsize="small", pad=3)
    ax.set_title(verdict, loc="right", fontsize="small", pad=3, color=colour, fontweight="bold")
    left, right = _limits(value, low, high, bound)
    ax.set_xlim(left, right)
    ax.set_ylim(-1.0, 1.0)
    ends = (left, bound) if record["sense"] == "<=" else (bound, right)
    ax.axvspan(*ends, color=LOOKS["met"][0], alpha=0.15, linewidth=0)
    ax.axvline(bound, color=ax.xaxis.label.get_color(), linewidth=1.8)
    if math.isfinite(low) and math.isfinite(high):
        bar = {"linewidth": 6, "alpha": 0.5, "solid_capstyle": "butt"}
        ax.plot([low, high], [0.0, 0.0], color=colour, **bar)
    if math.isfinite(value):
        ax.plot([value], [0.0], color=colour, marker=marker, markersize=7, clip_on=False)
    ax.set_yticks([])
    ax.tick_params(labelsize="small")
    ax.spines[["left", "right", "top"]].set_visible(False)


def _limits(value: float, low: float, high: float, bound: float) -> tuple[float, float]:
    """Find the ends of an axis: room on both sides, but none below zero for rates."""
    ends = [end for end in (value, low, high, bound) if math.isfinite(end)]
    room = 0.2 * (max(ends) - min(ends)) or 0.1 * abs(bound) or 0.01
    left = min(ends) - room
    return (left if min(ends) < 0.0 else max(left, 0.0)), max(ends) + room
