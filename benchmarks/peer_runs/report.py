"""What the results say: frontiers, hypervolumes, promises and costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .catalogue import PEERS
from .data import DATA
from .frontiers import accuracy_at, hypervolume, jackknife_interval
from .rules import NEYMAN_PEARSON

OURS = ("ours_lightgbm", "ours_xgboost", "groups_lightgbm", "groups_xgboost")


@dataclass(frozen=True)
class Cell:
    """A data set and a task, Neyman-Pearson at one of its levels; frontiers of all peers.

    Parameters
    ----------
    data, task : str
        Names; of Neyman-Pearson the task has the rate and the level.
    at : float
        The reference value: the level, or the test gap of the plain booster.
    floor : float
        The reference accuracy: of the best constant decision that meets the rule, which is the
        larger class for gaps.
    frontiers : dict of str to ndarray of shape (2, splits, bounds)
        Test values and accuracies of each peer, NaN where a run failed.
    """

    data: str
    task: str
    at: float
    floor: float
    frontiers: dict[str, Any]

    def volume(self, peer: str, splits: list[int] | None = None) -> float:
        """Hypervolume of a peer's frontier, averaged over splits at each thing asked."""
        return hypervolume(*self.averaged(peer, splits), self.at, self.floor)

    def averaged(self, peer: str, splits: list[int] | None = None) -> Any:
        points = self.frontiers[peer]
        return (points if splits is None else points[:, splits]).mean(axis=1)

    def advantage(self, ours: str, peer: str) -> tuple[float, float, float]:
        """Our hypervolume less the peer's, and its 95 % interval over splits."""
        n = self.frontiers[ours].shape[1]
        return jackknife_interval(
            lambda splits: self.volume(ours, splits) - self.volume(peer, splits), n
        )


def read(file: Path, trees: int) -> pd.DataFrame:
    """Rows of runs with this number of trees, the last of equal ones."""
    table = pd.read_csv(file, dtype={"error": str})
    table = table[table["trees"] == trees]
    return table.drop_duplicates(["data", "split", "peer", "task", "asked"], keep="last")


def cells_of(table: pd.DataFrame) -> Iterator[Cell]:
    """Cells in which the plain booster and others have run, over the splits of all of them."""
    for (name, task), rows in table.groupby(["data", "task"], sort=False):
        done = rows[rows["test_value"].notna()]
        frontiers = {
            peer: found for peer in done["peer"].unique()
            if (found := _frontier(done[done["peer"] == peer], done["split"].unique())) is not None
        }  # fmt: skip
        if "plain" not in frontiers or len(frontiers) < 2:
            continue
        floor = float(done["majority_accuracy"].mean())
        if task == NEYMAN_PEARSON:
            data = DATA[name]
            if not data.level_is_met_by_majority:
                floor = 1.0 - floor
            for level in data.levels:
                yield Cell(name, f"{data.rate} <= {level}", level, floor, frontiers)
        else:
            yield Cell(name, task, float(frontiers["plain"][0].mean()), floor, frontiers)


def _frontier(rows: pd.DataFrame, splits: Any) -> Any:
    """Values and accuracies of a peer in every split, for what succeeded in all of them."""
    tables = [
        rows.pivot(index="split", columns="asked", values=column).reindex(splits)
        for column in ("test_value", "test_accuracy")
    ]
    points = np.stack([t.dropna(axis=1).to_numpy() for t in tables])
    return points if points.shape[2] else None


def volumes(cells: list[Cell]) -> pd.DataFrame:
    """Hypervolumes in points of accuracy, a row for each cell."""
    rows = [
        {"data": cell.data, "task": cell.task, "reference": round(cell.at, 3)}
        | {peer: 100 * cell.volume(peer) for peer in cell.frontiers}
        for cell in cells
    ]
    return _in_order(pd.DataFrame(rows), 3)


def accuracies(cells: list[Cell]) -> pd.DataFrame:
    """Test accuracy in percent at equal test value, a quarter, a half and all of the reference."""
    rows = [
        {"data": cell.data, "task": cell.task, "value": round(share * cell.at, 4)}
        | {
            peer: 100 * float(accuracy_at(*cell.averaged(peer), share * cell.at))
            for peer in cell.frontiers
        }
        for cell in cells
        for share in ((0.25, 0.5, 1.0) if "<=" not in cell.task else (1.0,))
    ]
    return _in_order(pd.DataFrame(rows), 3)


def _in_order(table: pd.DataFrame, n_keys: int) -> pd.DataFrame:
    return table[[*table.columns[:n_keys], *(p for p in PEERS if p in table.columns)]]


def standing(cells: list[Cell], ours: str, *, group_at_prediction: bool) -> pd.DataFrame:
    """For each cell: the best peer, our advantage over it, and whether we are first.

    A cell is "first" if our hypervolume is the largest and not zero, "within noise" if the 95 %
    interval of the difference to every larger one reaches zero, else "behind".
    """
    rows = []
    for cell in cells:
        if ours not in cell.frontiers or cell.frontiers[ours].shape[1] < 2:
            continue  # no noise is known of one split
        peers = [
            peer for peer in cell.frontiers
            if peer not in OURS and (group_at_prediction or not PEERS[peer].needs_group)
        ]  # fmt: skip
        best = max(peers, key=cell.volume)
        differences = {peer: cell.advantage(ours, peer) for peer in peers}
        estimate, low, high = differences[best]
        if estimate >= 0 and cell.volume(ours) > 0:  # where nobody has any area, nobody leads
            verdict = "first"
        elif all(d[0] >= 0 or d[2] >= 0 for d in differences.values()):
            verdict = "within noise"
        else:
            verdict = "behind"
        rows.append(
            {"data": cell.data, "task": cell.task, "best peer": best,
             "advantage": 100 * estimate, "low": 100 * low, "high": 100 * high,
             "verdict": verdict}
        )  # fmt: skip
    return pd.DataFrame(rows)


def promises(table: pd.DataFrame) -> pd.DataFrame:
    """By peer: requested minus observed, violations, and what a decision needs.

    Means are over the runs in which the plain booster is above the bound of the same split.
    """
    keys = ["data", "split", "task"]
    plain = table[table["peer"] == "plain"].set_index(keys)["test_value"].rename("plain_value")
    rows = table.join(plain, on=keys)
    rows = rows[rows["test_violation"].notna() & (rows["plain_value"] > rows["asked"])]
    rows["short"] = rows["asked"] - rows["test_value"]
    rows["beyond"] = rows["is_beyond_sampling"].astype(str) == "True"
    found = rows.groupby("peer").agg(
        runs=("short", "size"),
        requested_minus_observed=("short", "mean"),
        violation=("test_violation", "mean"),
        share_beyond_sampling=("beyond", "mean"),
    )
    return found.reindex([peer for peer in PEERS if peer in found.index])


def costs(table: pd.DataFrame) -> pd.DataFrame:
    """By peer: medians over runs of seconds and peak memory over the plain booster's."""
    keys = ["data", "split", "task"]
    plain = table[table["peer"] == "plain"].set_index(keys)[["seconds", "peak_mib"]]
    rows = table.join(plain.add_suffix("_plain"), on=keys)
    rows["seconds_ratio"] = rows["seconds"] / rows["seconds_plain"]
    rows["memory_ratio"] = rows["peak_mib"] / rows["peak_mib_plain"]
    rows["failed"] = rows["error"].notna()
    found = rows.groupby("peer").agg(
        runs=("failed", "size"),
        failed=("failed", "sum"),
        seconds=("seconds", "median"),
        over_plain=("seconds_ratio", "median"),
        peak_mib=("peak_mib", "median"),
        memory_over_plain=("memory_ratio", "median"),
    )
    found = found.reindex([peer for peer in PEERS if peer in found.index])
    found["group at prediction"] = [PEERS[peer].needs_group for peer in found.index]
    found["one deterministic model"] = [PEERS[peer].is_one_model for peer in found.index]
    return found


def print_tables(file: Path, trees: int) -> None:
    """Print all tables of the results in a file."""
    if not file.is_file():
        raise SystemExit(f"{file} does not exist yet: run without --tables first.")
    table = read(file, trees)
    cells = list(cells_of(table))
    if not cells:
        print("No cell has both the plain booster and another peer yet.")
        return
    wide = ("display.width", 250, "display.max_columns", None, "display.max_rows", None)
    with pd.option_context(*wide, "display.float_format", "{:.3f}".format):
        print("\nHypervolume: mean accuracy (points) above the best constant decision that meets "
              "the rule, over bounds from 0 to the reference")  # fmt: skip
        print(volumes(cells).to_string(index=False))
        print("\nTest accuracy (%) at equal test value; NaN: no model has so small a value")
        print(accuracies(cells).to_string(index=False))
        print("\nRequested and observed, where the plain booster is above the bound")
        print(promises(table).to_string())
        print("\nCost: processor seconds and MiB, medians; what a decision needs")
        print(costs(table).to_string())
        for ours in OURS:
            for group_at_prediction in (True, False):
                _print_standing(cells, ours, group_at_prediction)
        _print_errors(table)
    print(f"\nCommits of these runs: {', '.join(table['commit'].dropna().unique())}")


def _print_standing(cells: list[Cell], ours: str, group_at_prediction: bool) -> None:
    found = standing(cells, ours, group_at_prediction=group_at_prediction)
    if found.empty:
        return
    shares = found["verdict"].value_counts(normalize=True)
    against = "all peers" if group_at_prediction else "peers that decide without the group"
    good = 100 * (shares.get("first", 0.0) + shares.get("within noise", 0.0))
    print(
        f"\n{ours} against {against}: first in {100 * shares.get('first', 0.0):.0f}%, first or "
        f"within noise of first in {good:.0f}% of {len(found)} cells"
    )
    print(found[found["verdict"] != "first"].to_string(index=False))


def _print_errors(table: pd.DataFrame) -> None:
    failed = table[table["error"].notna()]
    if len(failed):
        print("\nFailed runs")
        print(failed.groupby(["peer", "error"]).size().rename("runs").to_string())
