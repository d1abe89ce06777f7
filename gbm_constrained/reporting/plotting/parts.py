"""The figure of a gap that is split over the features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd

from gbm_constrained.reporting.plotting import style


class GapPartsDisplay(style.Display):
    """Parts of the features in a gap between two groups, with intervals.

    Each feature has a line with a bar for each model. The rest of the features has a bar of its
    own, without an interval.

    Parameters
    ----------
    parts : DataFrame
        Parts of :func:`gbm_constrained.explain_gap`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    def __init__(self, parts: pd.DataFrame) -> None:
        self.parts = parts

    def plot(self, ax: Any = None, *, most: int = 12) -> Self:
        """Draw the bars.

        Parameters
        ----------
        most : int, default=12
            Features that are drawn, those of the largest parts of any model.
        """
        largest = self.parts.assign(part=self.parts["part"].abs()).groupby("feature")["part"].max()
        shown = largest.sort_values(ascending=False, kind="stable").index[:most].tolist()
        models = self.parts["model"].unique().tolist()
        ax = style.get_axes(ax, (6.5, 1.2 + 0.32 * (len(shown) + 1)))
        height = 0.8 / len(models)
        n_others = len(largest) - len(shown)
        names = [*shown, f"{n_others} others"] if n_others else shown
        for i, model in enumerate(models):
            own = self.parts[self.parts["model"] == model].set_index("feature")
            rows = own.reindex(shown)[["part", "low", "high"]].fillna({"part": 0.0}).to_numpy()
            if n_others:
                rest = own["part"].drop(shown, errors="ignore").sum()
                rows = np.vstack([rows, [rest, np.nan, np.nan]])
            colour, _ = style.colour_and_marker(i)
            at = np.arange(len(names)) + (i - (len(models) - 1) / 2.0) * height
            part, low, high = rows.T
            ax.barh(at, part, height, color=colour, alpha=0.8, label=style.literal(model))
            ax.errorbar(
                part, at, xerr=np.nan_to_num([part - low, high - part]), fmt="none", ecolor="0.2",
                elinewidth=1.0,
            )  # fmt: skip
        ax.axvline(0.0, color="0.4", linewidth=0.8)
        ax.set_yticks(np.arange(len(names)), [style.literal(style.shorten(n, 32)) for n in names])
        ax.set_ylim(len(names) - 0.5, -0.5)
        style.legend_above(ax)
        self._finish(ax, style.literal(self.parts["comparison"].iloc[0]), "")
        ax.grid(False, axis="y")
        return self
