"""Tables and figure of ``benchmarks/acs_income.py``.

Accuracy at equal gaps is that of the best lot between two models of a method in the mean over
splits, of which the decision for the larger class is one. Peers are compared on the splits that
both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from many_groups import accuracy_of
from scipy import stats

from .catalogue import Peer
from .report import OURS, Cell, beside_plain, cells_of, jackknife_interval, read

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
HIDDEN, KNOWN = OURS[:2], OURS[2:]


def cell_of(table: pd.DataFrame, data: str, task: str, methods: list[str]) -> Cell | None:
    """Frontiers of methods in the splits that all of them and the plain booster have."""
    rows = table[(table["data"] == data) & (table["task"] == task)]
    rows = rows[rows["test_value"].notna()]
    shared = [
        set(rows.loc[rows["peer"] == name, "split"]) for name in dict.fromkeys(["plain", *methods])
    ]
    rows = rows[rows["split"].isin(set.intersection(*shared))]
    rows = rows[rows["peer"].isin(["plain", *methods])]
    return next(cells_of(rows), None) if len(rows) else None


def pairs(table: pd.DataFrame) -> Iterator[tuple[str, str, list[str]]]:
    """List data, task and the methods that have a figure there."""
    done = table[table["test_value"].notna()]
    for (data, task), rows in done.groupby(["data", "task"], sort=False):
        yield data, task, list(rows["peer"].unique())


def volumes(table: pd.DataFrame) -> pd.DataFrame:
    """Hypervolumes in points of accuracy, each over the splits that its method has."""
    rows = []
    for data, task, methods in pairs(table):
        row: dict[str, Any] = {"data": data, "task": task}
        for method in methods:
            if method in ("plain", "plain_groups"):
                continue
            cell = cell_of(table, data, task, [method])
            if cell is not None:
                row |= {method: 100 * cell.volume(method)}
        rows.append(row)
    return pd.DataFrame(rows)


def difference(cell: Cell, ours: str, peer: str, gap: float) -> tuple[float, float]:
    """Our accuracy less the peer's at a gap in points, and the standard error over splits."""
    n = cell.frontiers[ours].shape[1]
    found, low, _ = jackknife_interval(
        lambda splits: accuracy_of(cell, ours, gap, splits) - accuracy_of(cell, peer, gap, splits),
        n,
    )
    error = (found - low) / stats.t.ppf(0.975, n - 1) if n > 1 else np.nan
    return 100 * found, 100 * float(error)


def at_equal_gaps(table: pd.DataFrame, peers: Mapping[str, Peer]) -> pd.DataFrame:
    """Accuracy of ours at equal test gaps, less that of the best peer of the same knowledge."""
    rows = []
    for data, task, methods in pairs(table):
        for ours in (name for name in OURS if name in methods):
            others = [
                name for name in methods
                if name not in (*OURS, "plain_groups")
                and (ours in KNOWN or not peers[name].needs_group)
            ]  # fmt: skip
            cells = {name: cell_of(table, data, task, [ours, name]) for name in others}
            for share in SHARES:
                found = {
                    name: (accuracy_of(cell, name, share * cell.at), cell)
                    for name, cell in cells.items()
                    if cell is not None and {ours, name} <= set(cell.frontiers)
                }
                best = max(found, key=lambda name: found[name][0])
                cell = found[best][1]
                gap = share * cell.at
                by, error = difference(cell, ours, best, gap)
                rows.append(
                    {"data": data, "task": task, "ours": ours, "share": share, "gap": gap,
                     "accuracy": 100 * accuracy_of(cell, ours, gap), "best": best,
                     "its accuracy": 100 * found[best][0], "ahead by": by, "error": error,
                     "splits": cell.frontiers[ours].shape[1]}
                )  # fmt: skip
    return pd.DataFrame(rows)


def promises(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Shares of runs beyond what was asked, where the plain booster is above the bound."""
    rows = beside_plain(table)
    rows = rows[rows["test_violation"].notna() & (rows["test_value_plain"] > rows["asked"])]
    rows = rows.assign(
        sampling=rows["is_beyond_sampling"].astype(str) == "True",
        errors=rows["test_value"] - rows["asked"] > 2 * rows["test_standard_error"],
        over=rows["test_value"] - rows["asked"],
    )
    return rows.groupby(by, sort=False).agg(
        runs=("sampling", "size"),
        observed_minus_asked=("over", "mean"),
        beyond_two_errors=("errors", "mean"),
        beyond_sampling=("sampling", "mean"),
    )


def costs(table: pd.DataFrame, peers: Mapping[str, Peer]) -> pd.DataFrame:
    """Medians of processor seconds over plain, and what a decision needs."""
    rows = beside_plain(table)
    rows["over_plain"] = rows["seconds"] / rows["seconds_plain"]
    found = rows.groupby(["data", "peer"])["over_plain"].median().unstack("data")
    found = found.reindex([name for name in peers if name in found.index])
    found["needs group"] = [peers[name].needs_group for name in found.index]
    found["one model"] = [peers[name].is_one_model for name in found.index]
    return found


def print_tables(file: Path, trees: int, peers: Mapping[str, Peer]) -> None:
    """Print all tables of the results in a file."""
    table = read(file, trees)
    wide = ("display.width", 250, "display.max_columns", None, "display.max_rows", None)
    with pd.option_context(*wide, "display.float_format", "{:.3f}".format):
        plain = table[table["peer"].str.startswith("plain")]
        print("\nThe plain booster")
        print(plain.groupby(["data", "task", "peer"], sort=False)[
            ["test_accuracy", "test_value", "test_standard_error"]
        ].mean().to_string())  # fmt: skip
        print("\nHypervolume in points")
        print(volumes(table).to_string(index=False))
        print("\nAccuracy (%) at equal test gaps, shares of the plain booster's")
        print(at_equal_gaps(table, peers).to_string(index=False))
        print("\nBeyond what was asked, where the plain booster is above the bound")
        print(promises(table, ["peer"]).to_string())
        print(promises(table, ["data", "peer"]).to_string())
        print("\nProcessor seconds over plain")
        print(costs(table, peers).to_string())
        failed = table[table["error"].notna()]
        if len(failed):
            print("\nFailed runs")
            print(failed.groupby(["data", "task", "peer", "error"]).size().to_string())
    print(f"\nCommits of these runs: {', '.join(table['commit'].dropna().unique())}")


PANELS = {
    "selection_rate_gap": "Equal selection rates",
    "tpr_gap": "Equal true positive rates",
    "equalized_odds": "Equalized odds",
    "error_rate_gap": "Equal error rates",
}
# Label, colour, and where the label is beside a point.
SHOWN = {
    "ours_lightgbm": ("ours", "tab:blue", (8, -18)),
    "linearpost": ("LinearPost", "tab:orange", (-8, -17)),
    "fairgbm": ("FairGBM", "tab:green", (-4, 9)),
    "tuned_threshold": ("one threshold", "tab:gray", (-45, 8)),
}
ONLY = {"tuned_threshold": "error_rate_gap"}  # Elsewhere it is far below.


def draw(file: Path, trees: int, path: Path, data: str = "acs_by_sex") -> None:
    """Draw a panel for each task: accuracy against the gap on test rows, the group hidden.

    Needs matplotlib (the extra ``plot``).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    table = read(file, trees)
    figure, axes = plt.subplots(
        1, len(PANELS), figsize=(13, 3.8), layout="constrained", sharey=True
    )
    for ax, (task, title) in zip(axes, PANELS.items(), strict=True):
        for method, (label, colour, offset) in SHOWN.items():
            cell = cell_of(table, data, task, [method])
            if cell is None or method not in cell.frontiers or ONLY.get(method, task) != task:
                continue
            gaps, accuracies = cell.averaged(method)
            order = np.argsort(gaps)
            gaps, accuracies = gaps[order], 100 * accuracies[order]
            is_ours = method == "ours_lightgbm"
            ax.plot(
                gaps, accuracies, color=colour, marker="o", markersize=5 if is_ours else 4,
                linewidth=2.8 if is_ours else 1.6, zorder=3 if is_ours else 2,
            )  # fmt: skip
            at = {"fairgbm": 0, "linearpost": -1}.get(method, gaps.size // 2)
            ax.annotate(
                label, (gaps[at], accuracies[at]), offset, textcoords="offset points",
                color=colour, fontsize=11, ha="left" if is_ours else "center",
                weight="bold" if is_ours else "normal",
            )  # fmt: skip
            if is_ours:
                (plain_at,), (plain_accuracy,) = cell.averaged("plain")
        ax.plot(plain_at, 100 * plain_accuracy, "*", color="black", markersize=13, zorder=4)
        ax.annotate(
            "plain", (plain_at, 100 * plain_accuracy), (0, 9), textcoords="offset points",
            ha="center", fontsize=11,
        )  # fmt: skip
        ax.set_title(title, fontsize=12)
        ax.set_xlim(left=0)
        ax.set_ylim(77.5, 81.2)
        ax.margins(x=0.12)
        ax.spines[["top", "right"]].set_visible(False)
        ax.locator_params(nbins=5)
    axes[0].set_ylabel("test accuracy (%)")
    figure.supxlabel("gap between women and men on test rows (left and up is better)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
