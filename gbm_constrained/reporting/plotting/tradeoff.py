"""What a tighter bound costs: two measures of several models against each other."""

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
    literal,
    matplotlib,
    one_axes,
    split_rule,
    tidy,
    unit_of,
)
from gbm_constrained.tradeoff import tradeoff_curve


class TradeoffDisplay:
    """Two measures of several models against each other: what a tighter bound costs.

    Parameters
    ----------
    curve : DataFrame
        One row per model, as of :func:`gbm_constrained.tradeoff_curve`; points of a series are
        joined in the order of the rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        What was drawn into.
    figure_ : matplotlib Figure
        Its figure.

    See Also
    --------
    gbm_constrained.tradeoff_curve : The numbers.
    """

    ax_: Any
    figure_: Any

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
    ) -> TradeoffDisplay:
        """Train under one bound after the other, and draw what each costs.

        Parameters
        ----------
        estimator : constrained classifier
            As it is to be trained; it stays as it is.
        X, y : array-like
            Training rows.
        bounds : sequence of float
            Bounds, in any order.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
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

    def plot(
        self,
        ax: Any = None,
        *,
        x: str = "value",
        y: str = "accuracy",
        bound: str | None = "bound",
        series: str | None = None,
        label: str | None = None,
        styles: Mapping[str, Mapping[str, Any]] | None = None,
        plain: tuple[float, float] | None = None,
    ) -> TradeoffDisplay:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.
        x, y : str
            Columns for the axes. Where a column has its interval in two others, such as
            ``value_low`` and ``value_high``, that is drawn as a bar.
        bound : str, default="bound"
            Column with the bounds, each a dotted line across the axis of ``"value"``, else of
            ``"train"``; of a table without values, across that of `x`. None for no lines.
        series : str, default=None
            Column that tells which points belong to one line. By default these are the points of
            one rule, where the curve tells its rules.
        label : str, default=None
            Column with the text beside each point; missing or empty for none.
        styles : mapping from str to mapping, default=None
            Properties of the line of a series, by its name, that replace the default ones.
        plain : pair of float, default=None
            Both measures of a model without the rule, drawn as a cross.

        Returns
        -------
        TradeoffDisplay
            Itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the curve lacks one of the columns.
        """
        curve = self.curve
        check_columns(curve, x=x, y=y, series=series, label=label)
        known = [c for c in ("value", "train") if c in (x, y)] if "value" in curve else [x]
        if bound is not None and known:
            check_columns(curve, bound=bound)
        ax = one_axes(ax)
        effects = matplotlib("patheffects")
        # Labels are read on top of lines.
        outline = [effects.withStroke(linewidth=2.5, foreground=ax.get_facecolor())]
        if bound is not None and known:
            dotted = {"color": GREY, "linestyle": ":", "linewidth": 1.0, "zorder": 1}
            line = ax.axvline if known[0] == x else ax.axhline
            for i, value in enumerate(np.unique(curve[bound].dropna())):
                line(value, label="bounds" if i == 0 else None, **dotted)
        for i, (name, group) in enumerate(self._series(series)):
            colour, marker = colour_and_marker(i)
            style = {
                "color": colour,
                "marker": marker,
                "linewidth": 1.4,
                "markersize": 6,
                **dict((styles or {}).get(str(name), {})),
            }
            bars = {"xerr": _distances(group, x), "yerr": _distances(group, y)}
            if any(bar is not None for bar in bars.values()):
                thin = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.9, "alpha": 0.55}
                ax.errorbar(group[x].to_numpy(), group[y].to_numpy(), **bars, **thin, zorder=1.5)
            ax.plot(group[x].to_numpy(), group[y].to_numpy(), label=literal(name) or None, **style)
            if label is None:
                continue
            side = _label_side(group[x], group[y], second=i % 2 == 1)
            for x_i, y_i, text in zip(group[x], group[y], group[label], strict=True):
                if pd.isna(text) or not str(text):
                    continue
                ax.annotate(
                    literal(text),
                    (x_i, y_i),
                    textcoords="offset points",
                    fontsize="small",
                    **side,
                    color=style["color"],
                    path_effects=outline,
                )
        if plain is not None:
            cross = {"marker": "x", "linestyle": "", "markersize": 8, "markeredgewidth": 2}
            colour = ax.xaxis.label.get_color()  # seen in dark styles, too
            ax.plot(*plain, color=colour, label="without the rule", **cross)
        ax.margins(0.12)  # room for the labels
        ax.set_xlabel(self._name(x))
        ax.set_ylabel(self._name(y))
        if any(not text.startswith("_") for text in ax.get_legend_handles_labels()[1]):
            ax.legend(framealpha=0.9)
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _series(self, series: str | None) -> list[tuple[Any, pd.DataFrame]]:
        """Names of the lines, and their points."""
        if series is not None:
            return list(self.curve.groupby(series, sort=False))
        rules = self._rules()
        if rules is None or rules.nunique() == 1:
            return [("", self.curve)]
        return list(self.curve.groupby(rules, sort=False))

    def _rules(self) -> pd.Series[str] | None:
        """Tell what the rule of each point bounds, where the curve does."""
        if "constraint" not in self.curve:
            return None
        return self.curve["constraint"].map(lambda rule: split_rule(rule)[0])

    def _name(self, column: str) -> str:
        """Name of an axis, with its unit."""
        if column not in ("value", "accuracy"):
            return column
        rows = list(self.curve["rows"].dropna().unique()) if "rows" in self.curve else []
        where = ""
        if len(rows) == 1:
            known = {"test": ", test rows", "holdout": ", holdout rows"}
            where = known.get(rows[0], f", {rows[0]}")
        rules = self._rules()
        if column == "accuracy" or rules is None:
            return f"{column}{where} (fraction)"
        name = literal(rules.iloc[0]) if rules.nunique() == 1 else "value"
        return f"{name}{where}{unit_of(rules)}"


def plot_tradeoff(curve: pd.DataFrame, ax: Any = None, **options: Any) -> Any:
    """Draw a trade-off curve: :class:`TradeoffDisplay` for those who want its axes.

    Parameters
    ----------
    curve : DataFrame
        One row per model, as of :func:`gbm_constrained.tradeoff_curve`.
    ax : matplotlib Axes, default=None
        Where to draw; a new figure by default.
    **options
        Options of :meth:`TradeoffDisplay.plot`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    return TradeoffDisplay(curve).plot(ax, **options).ax_


def _label_side(x: Any, y: Any, *, second: bool) -> dict[str, Any]:
    """Beside a line and not on it: left of the first line, right of the second."""
    rises = np.nan_to_num(np.sum(np.diff(x) * np.sign(np.diff(y)))) >= 0.0
    above = rises != second
    return {
        "xytext": (6 if second else -6, 4 if above else -4),
        "ha": "left" if second else "right",
        "va": "bottom" if above else "top",
    }


def _distances(points: pd.DataFrame, name: str) -> NDArray[np.float64] | None:
    """Lengths of the bars to both ends of a column's interval; None where it has none.

    Wins over no losses are infinite, and no bar reaches them.
    """
    ends = f"{name}_low", f"{name}_high"
    if not all(end in points for end in ends):
        return None
    low, value, high = (points[c].to_numpy(dtype=np.float64) for c in (ends[0], name, ends[1]))
    with np.errstate(invalid="ignore"):
        lengths = np.array([np.maximum(value - low, 0.0), np.maximum(high - value, 0.0)])
    return np.where(np.isfinite(lengths), lengths, np.nan)
