"""Frontiers of all peers as small multiples. Needs matplotlib (the extra ``plot``)."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from .catalogue import PEERS
from .frontiers import envelope
from .report import OURS, cells_of, read
from .rules import NEYMAN_PEARSON

mpl.use("Agg")
import matplotlib.pyplot as plt

OWN = dict(zip(OURS, ("tab:blue", "tab:cyan", "black", "gray"), strict=True))


def draw_frontiers(file: Path, trees: int, path: Path) -> None:
    """Draw a panel for each data set and task: accuracy against what the rule bounds.

    Parameters
    ----------
    file : Path
        Results.
    trees : int
        Of the runs to show.
    path : Path
        The picture to write.
    """
    cells = {}
    for cell in cells_of(read(file, trees)):
        # One panel for all levels of Neyman-Pearson, up to the widest, whichever rate it bounds.
        key = cell.data, NEYMAN_PEARSON if " <= " in cell.task else cell.task
        if key not in cells or cell.at > cells[key].at:
            cells[key] = cell
    data = list(dict.fromkeys(name for name, _ in cells))
    tasks = list(dict.fromkeys(task for _, task in cells))
    shown = [peer for peer in PEERS if any(peer in c.frontiers for c in cells.values())]
    colours = OWN | {
        peer: plt.get_cmap("tab20")(2 + i)
        for i, peer in enumerate(peer for peer in shown if peer not in OWN)
    }
    figure, axes = plt.subplots(
        len(data), len(tasks), figsize=(3.2 * len(tasks), 2.6 * len(data)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax, name, task in zip(
        axes.flat, np.repeat(data, len(tasks)), tasks * len(data), strict=True
    ):
        if (name, task) not in cells:
            ax.axis("off")
            continue
        cell = cells[name, task]
        for peer in shown:
            if peer in cell.frontiers:
                x, y = envelope(*cell.averaged(peer))
                inside = x <= 1.1 * cell.at
                is_own = peer in OWN
                ax.plot(
                    x[inside], 100 * y[inside], color=colours[peer], label=peer, marker="o",
                    markersize=3 if is_own else 2, linewidth=2.2 if is_own else 0.9,
                    zorder=3 if is_own else 2,
                )  # fmt: skip
        # Below the reference accuracy nothing counts.
        _, top = ax.get_ylim()
        bottom = 100 * cell.floor
        ax.set_ylim(bottom - 0.05 * (top - bottom), top)
        ax.axhline(bottom, color="gray", linewidth=0.7, linestyle=":")
        ax.locator_params(nbins=5)
        rate = cell.task.split(" <= ")[0].replace("_", " ")
        ax.set_title(f"{name}, {rate}", fontsize=9)
        ax.tick_params(labelsize=7)
    figure.supxlabel("what the rule bounds, on test rows")
    figure.supylabel("test accuracy (%)")
    found = {
        label: line
        for ax in axes.flat
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        [found[peer] for peer in shown if peer in found],
        [peer.replace("_", " ") for peer in shown if peer in found],
        loc="outside upper center", ncols=7, fontsize=8,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
