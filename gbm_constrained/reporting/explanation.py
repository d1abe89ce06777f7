"""What a gap that is split over the features hands out: its tables and its figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from gbm_constrained.reporting.plotting.parts import GapPartsDisplay

__all__ = ["GapExplanation"]


@dataclass(frozen=True, eq=False)
class GapExplanation:
    """A gap between two groups, split over the features; see :func:`gbm_constrained.explain_gap`.

    Parameters
    ----------
    parts : DataFrame
        One row for each model and feature, largest first: the ``comparison``, ``model``,
        ``feature``, ``part`` and the interval ``low`` to ``high``. Parts of one model add up to
        its gap.
    gaps : DataFrame
        One row for each model: the values of both groups, the ``gap``, and its interval.
    comparison : str
        What was compared: the rate and both groups.
    """

    parts: pd.DataFrame
    gaps: pd.DataFrame
    comparison: str

    def __str__(self) -> str:
        wide = self.parts.pivot(index="feature", columns="model", values="part")
        wide = wide.loc[self.parts["feature"].unique(), self.gaps["model"]]
        whole = pd.DataFrame([self.gaps["gap"].to_numpy()], ["(gap)"], wide.columns)
        shown = pd.concat([whole, wide]).to_string(float_format="{:+.4f}".format)
        return f"{self.comparison}\n{shown}"

    def plot(self, ax: Any = None, *, most: int = 12) -> GapPartsDisplay:
        """Draw one bar for each feature, with its interval, and the models beside each other.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; a new figure by default.
        most : int, default=12
            Features that are drawn, those of the largest parts of any model.
        """
        return GapPartsDisplay(self.parts).plot(ax, most=most)
