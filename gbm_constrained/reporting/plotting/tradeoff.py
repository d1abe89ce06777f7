"""Trade-offs: two measures of several models against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.reporting.plotting.style import (
    GREY,
    check_columns,
    colour_and_marker,
    document_plot,
    find_unit,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
    split_constraint,
)
from gbm_constrained.tradeoff import tradeoff_curve


class TradeoffDisplay:
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

    ax_: Any
    figure_: Any

    def __init__(self, curve: pd.DataFrame) -> None:
        self.curve = curve

    @classmethod
    @document_plot
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
    ) -> TradeoffDisplay:
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
        matplotlib("axes")
        curve = tradeoff_curve(estimator, X, y, bounds, **options)
        return cls(curve).plot(ax, **(plot_options or {}))

    @document_plot
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
    ) -> TradeoffDisplay:
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
        check_columns(curve, x=x, y=y, series=series, label=label)
        bounded = [c for c in ("value", "train") if c in (x, y)] if "value" in curve else [x]
        has_bounds = bound is not None and bool(bounded)
        if has_bounds:
            check_columns(curve, bound=bound)
        ax = get_axes(ax)
        if has_bounds:
            dotted = {"color": GREY, "linestyle": ":", "linewidth": 1.0, "zorder": 1}
            draw_line = ax.axvline if bounded[0] == x else ax.axhline
            for i, value in enumerate(np.unique(curve[bound].dropna())):
                draw_line(value, label="bounds" if i == 0 else None, **dotted)
        for i, (name, points) in enumerate(self._series(series)):
            colour, marker = colour_and_marker(i)
            style = {"color": colour, "marker": marker, "linewidth": 1.4, "markersize": 6}
            style |= (styles or {}).get(str(name), {})
            _draw_intervals(ax, points, x, y, style["color"])
            ax.plot(points[x].to_numpy(), points[y].to_numpy(), label=literal(name) or None,
                    **style)  # fmt: skip
            if label is not None:
                _draw_labels(ax, points[[x, y, label]], style["color"], is_second=i % 2 == 1)
        if plain is not None:
            cross = {"marker": "x", "linestyle": "", "markersize": 8, "markeredgewidth": 2}
            colour = ax.xaxis.label.get_color()  # Dark styles show it, too.
            ax.plot(*plain, color=colour, label="without the constraint", **cross)
        ax.margins(0.12)  # Room for the labels.
        if any(not text.startswith("_") for text in ax.get_legend_handles_labels()[1]):
            ax.legend(framealpha=0.9)
        finish_axes(ax, self._name(x), self._name(y))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _series(self, series: str | None) -> list[tuple[Any, pd.DataFrame]]:
        """List the names of the lines, and their points."""
        if series is not None:
            return list(self.curve.groupby(series, sort=False))
        bounded = self._bounded_expressions()
        if bounded is None or bounded.nunique() == 1:
            return [("", self.curve)]
        return list(self.curve.groupby(bounded, sort=False))

    def _bounded_expressions(self) -> pd.Series[str] | None:
        """Read the bounded expression of each point, where the curve names constraints."""
        if "constraint" not in self.curve:
            return None
        return self.curve["constraint"].map(lambda constraint: split_constraint(constraint)[0])

    def _name(self, column: str) -> str:
        """Write the name of an axis, with its unit."""
        if column not in ("value", "accuracy", "auc", "r2"):
            return column
        rows = list(self.curve["rows"].dropna().unique()) if "rows" in self.curve else []
        where = ""
        if len(rows) == 1:
            known = {"test": ", test rows", "holdout": ", holdout rows"}
            where = known.get(rows[0], f", {rows[0]}")
        bounded = self._bounded_expressions()
        if column != "value" or bounded is None:
            name = "AUC" if column == "auc" else column
            return f"{name}{where} (fraction)"
        name = literal(bounded.iloc[0]) if bounded.nunique() == 1 else "value"
        return f"{name}{where}{find_unit(bounded)}"


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
    effects = matplotlib("patheffects")  # Texts are read on top of lines.
    outline = [effects.withStroke(linewidth=2.5, foreground=ax.get_facecolor())]
    for x, y, text in points.itertuples(index=False):
        if pd.isna(text) or not str(text):
            continue
        ax.annotate(
            literal(text),
            (x, y),
            xytext=(6 if is_second else -6, 4 if is_above else -4),
            textcoords="offset points",
            ha="left" if is_second else "right",
            va="bottom" if is_above else "top",
            fontsize="small",
            color=colour,
            path_effects=outline,
        )


def _draw_intervals(ax: Any, points: pd.DataFrame, x: str, y: str, colour: Any) -> None:
    """Draw the intervals of points as bars, where the table has them."""
    bars = {"xerr": _distances(points, x), "yerr": _distances(points, y)}
    if any(bar is not None for bar in bars.values()):
        thin = {"fmt": "none", "ecolor": colour, "elinewidth": 0.9, "alpha": 0.55}
        ax.errorbar(points[x].to_numpy(), points[y].to_numpy(), **bars, **thin, zorder=1.5)


def _distances(points: pd.DataFrame, name: str) -> NDArray[np.float64] | None:
    """Compute the lengths of the bars to both ends of a column's interval, if it has one.

    Wins over no losses are infinite, and no bar reaches them.
    """
    ends = f"{name}_low", f"{name}_high"
    if not all(end in points for end in ends):
        return None
    low, value, high = (points[c].to_numpy(dtype=np.float64) for c in (ends[0], name, ends[1]))
    with np.errstate(invalid="ignore"):
        lengths = np.array([np.maximum(value - low, 0.0), np.maximum(high - value, 0.0)])
    return np.where(np.isfinite(lengths), lengths, np.nan)
