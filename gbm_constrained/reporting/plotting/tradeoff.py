"""Figures of values of constraints: trade-offs, intervals and periods."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd

from gbm_constrained.evaluation.audit import PERIOD_COLUMNS, AuditRows, measure_model
from gbm_constrained.reporting.plotting import style
from gbm_constrained.tradeoff import tradeoff_curve


class TradeoffDisplay(style.Display):
    """Two measures of several models, such as value and accuracy for each of several bounds.

    Parameters
    ----------
    curve : DataFrame
        One row per model, as of :func:`gbm_constrained.tradeoff_curve`; points of a series are
        joined in the order of the rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    gbm_constrained.tradeoff_curve : The numbers.
    """

    def __init__(self, curve: pd.DataFrame) -> None:
        self.curve = curve

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        bounds: Any,
        *,
        ax: Any = None,
        plot_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Train one model for each bound, and draw what each bound costs.

        Parameters
        ----------
        estimator : constrained classifier
            Estimator to train; its clones are fitted, and it stays as it is.
        X, y : array-like
            Training rows.
        bounds : sequence of float
            Bounds, in any order.
        plot_options : mapping, default=None
            Options of :meth:`plot`.
        **options
            Everything else that :func:`gbm_constrained.tradeoff_curve` takes, such as ``X_test``
            and ``y_test``.

        Raises
        ------
        ImportError
            If matplotlib is not installed; before anything is trained.
        TypeError, ValueError
            As :func:`gbm_constrained.tradeoff_curve`.
        """
        style.matplotlib("axes")
        curve = tradeoff_curve(estimator, X, y, bounds, **options)
        return cls(curve).plot(ax, **(plot_options or {}))

    def plot(
        self,
        ax: Any = None,
        *,
        x: str = "value",
        y: str | None = None,
        bound: str | None = "bound",
        series: str | None = None,
        label: str | None = None,
        styles: Mapping[str, Mapping[str, Any]] | None = None,
        plain: tuple[float, float] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        x, y : str
            Columns for the axes, ``"value"`` and ``"accuracy"`` by default; y is ``"auc"`` where
            the curve has that column, as those of pair rates have. Where a column has its
            interval in two others, such as ``value_low`` and ``value_high``, that is drawn as a
            bar.
        bound : str, default="bound"
            Column with the bounds, each a dotted line across the axis of ``"value"``, else of
            ``"train"``; of a table without values, across that of `x`. None for no lines.
        series : str, default=None
            Column with the line that each point belongs to. By default these are the points of
            one constraint, where the curve names its constraints.
        label : str, default=None
            Column with the text beside each point; missing or empty for none.
        styles : mapping from str to mapping, default=None
            Properties of the line of a series, by its name, that replace the default ones.
        plain : pair of float, default=None
            Both measures of a model without the constraint, drawn as a cross.

        Returns
        -------
        TradeoffDisplay
            The display itself.

        Raises
        ------
        ValueError
            If the curve lacks one of the columns.
        """
        curve = self.curve
        y = y or next((name for name in ("auc", "r2") if name in curve), "accuracy")
        style.check_columns(curve, x=x, y=y, series=series, label=label)
        bounded = [c for c in ("value", "train") if c in (x, y)] if "value" in curve else [x]
        has_bounds = bound is not None and bool(bounded)
        if has_bounds:
            style.check_columns(curve, bound=bound)
        ax = style.get_axes(ax)
        if has_bounds:
            dotted = {"color": style.GREY, "linestyle": ":", "linewidth": 1.0, "zorder": 1}
            draw_line = ax.axvline if bounded[0] == x else ax.axhline
            for i, value in enumerate(np.unique(curve[bound].dropna())):
                draw_line(value, label="bounds" if i == 0 else None, **dotted)
        lines: list[tuple[Any, pd.DataFrame]] = [("", curve)]
        bounded_by = self._bounded_expressions()
        if series is not None:
            lines = list(curve.groupby(series, sort=False))
        elif bounded_by is not None and bounded_by.nunique() != 1:
            lines = list(curve.groupby(bounded_by, sort=False))
        for i, (name, points) in enumerate(lines):
            colour, marker = style.colour_and_marker(i)
            stroke = {"color": colour, "marker": marker, "linewidth": 1.4, "markersize": 6}
            stroke |= (styles or {}).get(str(name), {})
            _draw_intervals(ax, points, x, y, stroke["color"], "intervals" if i == 0 else None)
            shown = style.literal(name) or "models"
            ax.plot(points[x].to_numpy(), points[y].to_numpy(), label=shown, **stroke)
            if label is not None:
                _draw_labels(ax, points[[x, y, label]], stroke["color"], is_second=i % 2 == 1)
        if plain is not None:
            cross = {"marker": "x", "linestyle": "", "markersize": 8, "markeredgewidth": 2}
            colour = ax.xaxis.label.get_color()  # Dark styles show it, too.
            ax.plot(*plain, color=colour, label="without the constraint", **cross)
        ax.margins(0.12)  # Room for the labels.
        if len(ax.get_legend_handles_labels()[0]) > 1:  # One kind of points needs no name.
            style.legend_above(ax)
        return self._finish(ax, self._name(x), self._name(y))

    def _bounded_expressions(self) -> pd.Series[str] | None:
        """Read the bounded expression of each point, where the curve names constraints."""
        if "constraint" not in self.curve:
            return None
        return self.curve["constraint"].map(
            lambda constraint: style.split_constraint(constraint)[0]
        )

    def _name(self, column: str) -> str:
        """Write the name of an axis, with its unit."""
        if column == "r2":
            return "R\N{SUPERSCRIPT TWO}"
        if column not in ("value", "accuracy", "auc"):
            return column
        rows = list(self.curve["rows"].dropna().unique()) if "rows" in self.curve else []
        where = f", {rows[0]}" if len(rows) == 1 else ""
        where += " rows" if where in (", test", ", holdout") else ""
        bounded = self._bounded_expressions()
        if column != "value" or bounded is None:
            name = "AUC" if column == "auc" else column
            return f"{name}{where} (fraction)"
        name = style.literal(bounded.iloc[0]) if bounded.nunique() == 1 else "value"
        return f"{name}{where}{style.find_unit(bounded)}"


def plot_tradeoff(curve: pd.DataFrame, ax: Any = None, **options: Any) -> Any:
    """Draw a trade-off curve as :class:`TradeoffDisplay` does, and return the axes.

    Parameters
    ----------
    curve : DataFrame
        One row per model, as of :func:`gbm_constrained.tradeoff_curve`.
    ax : matplotlib Axes, default=None
        Axes to draw into; a new figure by default.
    **options
        Options of :meth:`TradeoffDisplay.plot`.

    Returns
    -------
    matplotlib Axes
    """
    return TradeoffDisplay(curve).plot(ax, **options).ax_


def _draw_labels(ax: Any, points: pd.DataFrame, colour: Any, *, is_second: bool) -> None:
    """Write texts beside a line and not on it: left of the first line, right of the second."""
    rises = np.nan_to_num(np.sum(np.diff(points.iloc[:, 0]) * np.sign(np.diff(points.iloc[:, 1]))))
    is_above = bool(rises >= 0.0) != is_second
    effects = style.matplotlib("patheffects")  # Texts are read on top of lines.
    outline = [effects.withStroke(linewidth=2.5, foreground=ax.get_facecolor())]
    for x, y, text in points.itertuples(index=False):
        if pd.isna(text) or not str(text):
            continue
        ax.annotate(
            style.literal(text),
            (x, y),
            xytext=(6 if is_second else -6, 4 if is_above else -4),
            textcoords="offset points",
            ha="left" if is_second else "right",
            va="bottom" if is_above else "top",
            fontsize="small",
            color=style.TEXT_COLOURS.get(colour, colour),
            path_effects=outline,
        )


def _draw_intervals(
    ax: Any, points: pd.DataFrame, x: str, y: str, colour: Any, label: str | None
) -> None:
    """Draw the intervals of points as bars, where the table has them.

    Wins over no losses are infinite, and no bar reaches them.
    """
    bars = {}
    for bar, name in (("xerr", x), ("yerr", y)):
        columns = [f"{name}_low", name, f"{name}_high"]
        if all(column in points for column in columns):
            low, value, high = points[columns].to_numpy(np.float64).T
            with np.errstate(invalid="ignore"):
                lengths = np.maximum([value - low, high - value], 0.0)
            bars[bar] = np.where(np.isfinite(lengths), lengths, np.nan)
    if bars:
        thin = {"fmt": "none", "ecolor": colour, "elinewidth": 0.9, "alpha": 0.55}
        at = points[x].to_numpy(), points[y].to_numpy()
        ax.errorbar(*at, **bars, **thin, zorder=1.5, label=label)


# Verdicts differ by shape and by colour.
LOOKS = {
    "met": (style.COLOURS[2], "o"),
    "met on training rows": (style.COLOURS[4], "v"),
    "missed within sampling error": (style.COLOURS[4], "s"),
    "cannot be told": (style.COLOURS[4], "^"),
    "missed": (style.COLOURS[1], "D"),
    "cannot be met": (style.COLOURS[1], "X"),
}


class ConstraintIntervalsDisplay(style.Display):
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

    def __init__(self, frame: pd.DataFrame) -> None:
        style.check_columns(
            frame, "constraint", "sense", "bound", "value", "low", "high", "verdict"
        )
        if frame.empty:
            raise ValueError("frame holds no constraint: give one row for each.")
        self.frame = frame

    @classmethod
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
    ) -> Self:
        """Measure the constraints of a fitted classifier, and draw their intervals.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``.
        constraints : Constraint, str or sequence of these
            The constraints.
        **options
            ``positive`` and ``level``, as in :func:`gbm_constrained.audit`.

        Raises
        ------
        TypeError, ValueError
            As :func:`gbm_constrained.audit`.
        """
        style.matplotlib("axes")
        rows = AuditRows(X, y, sensitive_features, sample_weight)
        return cls(measure_model(estimator, rows, constraints, **options).frame).plot(ax)

    def plot(self, ax: Any = None) -> Self:
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
        ax = style.get_axes(ax, (7.2, 0.5 + 0.8 * n))
        ax.set_axis_off()
        self.axes_ = []
        for i, record in enumerate(self.frame.to_dict("records")):
            inset = ax.inset_axes([0.0, 1.0 - (i + 0.68) / n, 1.0, 0.3 / n])
            _draw_interval(inset, record)
            self.axes_.append(inset)
        line = functools.partial(style.matplotlib("lines").Line2D, [], [], color=style.GREY)
        allowed = {"color": LOOKS["met"][0], "alpha": 0.15, "linewidth": 0}
        handles = [
            line(linestyle="none", marker="o", label="value"),
            line(linewidth=6, alpha=0.5, label="interval"),
            line(color=self.axes_[0].xaxis.label.get_color(), linewidth=1.8, label="bound"),
            style.matplotlib("patches").Patch(**allowed, label="allowed side"),
        ]
        ax.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=4, frameon=False,
            fontsize="small",
        )  # fmt: skip
        return self._keep(ax)


def _draw_interval(ax: Any, record: dict[Any, Any]) -> None:
    """Draw one constraint."""
    value, low, high, bound = (float(record[c]) for c in ("value", "low", "high", "bound"))
    colour, marker = LOOKS[record["verdict"]]
    verdict = record["verdict"]
    if not math.isfinite(value):
        verdict += " (no value)" if math.isnan(value) else " (infinite)"
    # A new figure has room for 92 characters of both.
    name = style.shorten(str(record["constraint"]), 92 - len(verdict))
    ax.set_title(style.literal(name), loc="left", fontsize="small", pad=3)
    bold = {"color": style.TEXT_COLOURS[colour], "fontweight": "bold"}
    ax.set_title(verdict, loc="right", fontsize="small", pad=3, **bold)
    # There is room on both sides, but none below zero for rates.
    known = [end for end in (value, low, high, bound) if math.isfinite(end)]
    room = 0.2 * (max(known) - min(known)) or 0.1 * abs(bound) or 0.01
    left, right = min(known) - room, max(known) + room
    left = left if min(known) < 0.0 else max(left, 0.0)
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
    style.matplotlib("axes")
    style.check_columns(frame, *PERIOD_COLUMNS)
    if frame.empty:
        raise ValueError(
            "frame holds no period: give time= to audit, or use measure_on='forward'."
        )
    ax = style.get_axes(ax)
    parts = list(frame.groupby("constraint", sort=False))
    ring = {"marker": "o", "markersize": 13, "fillstyle": "none", "linestyle": "none"}
    band = {"alpha": 0.25, "linewidth": 8, "solid_capstyle": "butt"}
    dashed = {"linestyle": "--", "linewidth": 1.0}
    handles: list[Any] = []
    for i, (name, part) in enumerate(parts):  # The values of constraints are beside each other.
        colour, marker = style.colour_and_marker(i)
        at = (part["period"] + 0.06 * (i - (len(parts) - 1) / 2.0)).to_numpy()
        value = part["value"].to_numpy()
        ends = np.abs(part[["low", "high"]].to_numpy().T - value)
        bars = {"yerr": ends, "color": colour, "marker": marker, "capsize": 3}
        handles.append(ax.errorbar(at, value, **bars, label=style.literal(name)))
        if np.isfinite(part["bound"].iloc[0]):  # A metric has none.
            ax.axhline(part["bound"].iloc[0], color=colour, **dashed)
        last = part.iloc[-1]
        if last["drifts"] is not pd.NA and last["drifts"]:
            ax.plot(at[-1:], value[-1:], color=colour, **ring)
            expected = [last["expected_low"], last["expected_high"]]
            ax.plot([at[-1]] * 2, expected, color=colour, **band)
    drifts = frame["drifts"].fillna(value=False).astype(bool).any()
    for label, stroke, is_drawn in (
        ("bound", dashed, np.isfinite(frame["bound"]).any()),
        ("value that drifts", ring, drifts),
        ("interval that earlier periods leave", band, drifts),
    ):
        if is_drawn:
            handles += ax.plot([], [], color=style.GREY, label=label, **stroke)
    lasts = frame.drop_duplicates("period").set_index("period")["last"]
    ax.set_xticks(lasts.index, [str(last).removesuffix(" 00:00:00") for last in lasts])
    style.finish_axes(
        ax, "end of the period", "value" + style.find_unit(str(name) for name, _ in parts)
    )
    style.legend_above(ax, handles)
    return ax


def plot_segments(frame: pd.DataFrame, ax: Any = None) -> Any:
    """Draw the value of each segment with its interval, and that of the rest of the rows.

    Parameters
    ----------
    frame : DataFrame
        One row per segment, as ``frame`` of :class:`gbm_constrained.Segments` or ``segments`` of
        :class:`gbm_constrained.Audit`: ``segment``, ``rows``, ``value``, ``rest``, ``low`` and
        ``high``.
    ax : matplotlib Axes, default=None
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib Axes
        The axes.

    Raises
    ------
    ValueError
        If `frame` has no segment, or lacks a column.
    """
    style.check_columns(frame, "segment", "rows", "value", "rest", "low", "high")
    if frame.empty:
        raise ValueError("frame holds no segment: find_segments reports those that hold up.")
    ax, at = style.get_axes(ax, (7.2, 1.0 + 0.6 * len(frame))), np.arange(len(frame))[::-1]
    style.draw_rates(ax, at, frame, "value", *style.colour_and_marker(1), label="segment")
    rest = {"linestyle": "none", "marker": "o", "markerfacecolor": "none", "color": style.GREY}
    ax.plot(frame["rest"], at, label="rest of the rows", **rest)
    names = style.name_rows(frame["segment"], frame["rows"])
    lines = [textwrap.fill(name, 40, max_lines=3, placeholder=" ...") for name in names]
    ax.set_yticks(at, lines, fontsize="small")
    ax.set_ylim(-0.6, len(frame) - 0.4)
    style.legend_above(ax)
    style.finish_axes(ax, "value", "")
    return ax
