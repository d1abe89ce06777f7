"""What was asked of models against what they do on new rows; the examples draw it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gbm_constrained.plotting import COLOURS

GREY, MARKERS = "0.45", "os^DvPX"


def plot_requested(
    points: pd.DataFrame,
    axes: Any = None,
    *,
    requested: str = "requested",
    train: str | None = "train",
    test: str = "test",
    accuracy: str = "accuracy",
    series: str = "rule",
    variant: str | None = None,
    train_name: str = "training rows",
) -> NDArray[Any]:
    """Plot what models do on new rows against the bound they were trained under, and its price.

    On the left, the bounded value on the test rows (joined) and on the training rows, or others,
    (hollow) against the bound, with the diagonal; on the right, accuracy against the value on the
    test rows. A model that was trained without the rule is a cross.

    Parameters
    ----------
    points : DataFrame
        One row per model.
    axes : sequence of two matplotlib axes, default=None
        Where to draw; a new figure by default.
    requested, test, accuracy : str
        Columns with the bound (missing for a model without the rule), and with the value and the
        accuracy on the test rows. They name the axes.
    train : str, default="train"
        Column with the value on the training rows, or on other rows to compare with; None to leave
        these out.
    series : str
        Column that tells which points belong together: a colour for each.
    variant : str, default=None
        Column that divides a series further, as by library: a marker and a line style for each.
    train_name : str, default="training rows"
        What the legend calls the rows of `train`.

    Returns
    -------
    ndarray of two matplotlib axes

    Raises
    ------
    ValueError
        If no point has a bound, or axes are not two.
    """
    if points[requested].isna().all():
        raise ValueError(f"No point has a bound: column {requested!r} holds nothing.")
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    if np.size(axes) != 2:
        raise ValueError(
            f"axes must be two axes of matplotlib, got {np.size(axes)}: make them by "
            f"subplots(1, 2)."
        )
    left, right = np.ravel(axes)
    colours = dict(zip(points[series].unique(), itertools.cycle(COLOURS), strict=False))
    variants = [""] if variant is None else list(points[variant].unique())
    looks: list[dict[str, Any]] = [
        {"marker": MARKERS[i % len(MARKERS)], "linestyle": ("-", "--", "-.", ":")[i % 4]}
        for i in range(len(variants))
    ]
    bounds = np.unique(points[requested].dropna())
    room = 0.12 * (np.ptp([*bounds, 0.0]) or 0.1)
    none_at = bounds[-1] + room
    # A line is seen of a single bound, too.
    ends = bounds[[0, -1]] if bounds.size > 1 else bounds[0] + np.array([-0.5, 0.5]) * room
    left.plot(ends, ends, color=GREY, linestyle=":", zorder=1)
    cross = dict[str, Any](marker="x", linestyle="", markersize=8, markeredgewidth=2)
    hollow = dict[str, Any](linestyle="", markerfacecolor="none", markersize=8, alpha=0.6)
    for (name, colour), (i, of) in itertools.product(colours.items(), enumerate(variants)):
        chosen = points[series] == name
        group = points[chosen if variant is None else chosen & (points[variant] == of)]
        if group.empty:
            continue
        # From the largest bound down, starting at the model without the rule.
        group = group.sort_values(requested, ascending=False, na_position="first")
        plain, ruled = group[group[requested].isna()], group.dropna(subset=[requested])
        line = {"color": colour, "markersize": 5, "linewidth": 1.4}
        left.plot(ruled[requested], ruled[test], **line, **looks[i])
        if train is not None:
            left.plot(ruled[requested], ruled[train], color=colour, **{**looks[i], **hollow})
        left.plot(np.full(len(plain), none_at), plain[test], color=colour, **cross)
        joined = range(len(plain), len(group))
        right.plot(group[test], group[accuracy], markevery=list(joined), **line, **looks[i])
        right.plot(plain[test], plain[accuracy], color=colour, **cross)
    any_plain = points[requested].isna().any()
    ticks, names = list(bounds), [f"{bound:g}" for bound in bounds]
    if any_plain:
        ticks, names = [*ticks, none_at], [*names, "none"]
    left.set_xticks(ticks, names)
    if variant in (None, series):  # colour and marker go together
        shown = looks if variant == series else [looks[0] for _ in colours]
        kinds = []
    else:
        shown = [{"linewidth": 4} for _ in colours]
        kinds = [(str(of), look) for of, look in zip(variants, looks, strict=True)]
    if train is not None:
        kinds.append((train_name, {"marker": "o", **hollow}))
    kinds.append(("as requested", {"linestyle": ":"}))
    if any_plain:
        kinds.append(("no rule", cross))
    handles = [
        Line2D([], [], color=colour, label=str(name), **look)
        for (name, colour), look in zip(colours.items(), shown, strict=True)
    ]
    handles += [Line2D([], [], color=GREY, label=kind, **look) for kind, look in kinds]
    right.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    left.set_xlabel(requested)
    left.set_ylabel(test)
    right.set_xlabel(test)
    right.set_ylabel(accuracy)
    for ax in (left, right):
        ax.grid(True, color="0.5", alpha=0.2, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    return np.array([left, right], dtype=object)
