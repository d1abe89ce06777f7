"""What runs and their results say: figures of a run, frontiers, hypervolumes, promises and costs.

A frontier of accuracy against what a rule bounds is drawn through the points that no other point
beats in both, with straight lines between them (whoever draws one of two decisions at random is on
the line), level to the right of the last one and nothing to the left of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from gbm_constrained.statistics.binomial import clopper_pearson, newcombe_difference

from .catalogue import DATA, PEERS, Peer
from .methods import CLASS_TASKS, NEYMAN_PEARSON, Rule, Split, counts, value

OURS = ("ours_lightgbm", "ours_xgboost", "groups_lightgbm", "groups_xgboost")
COLUMNS = (
    "task", "rate", "data", "split", "peer", "asked", "trees", "test_accuracy", "test_value",
    "test_violation", "is_beyond_sampling", "train_accuracy", "train_value", "held_out_value",
    "majority_accuracy", "seconds", "predict_seconds", "peak_mib", "deterministic",
    "needs_group", "error",
)  # fmt: skip


def score(
    rule: Rule, asked: float, split: Split, y_test: Any, answer: dict[str, Any], peer: Peer
) -> dict[str, Any]:
    """Figures of a run whose decisions are in the file of `answer`.

    ``held_out_value`` is the peer's own measure on unseen rows where it makes one, and that on the
    calibration rows where it has these. A penalty's rate (``peer.asks``) is no bound, so that
    nothing is violated.
    """
    with np.load(answer["file"]) as decisions:
        train, test = decisions["train"], decisions["test"]
    observed = value(rule, y_test, test, split.groups_test)
    held_out = answer["held_out"]
    if held_out is None and peer.calibrates:
        _, y, groups = split.part(split.calibration)
        held_out = value(rule, y, train[split.calibration], groups)
    row = {
        "test_accuracy": np.mean(test == y_test),
        "test_value": observed,
        "train_accuracy": np.mean(train == split.y),
        "train_value": value(rule, split.y, train, split.groups),
        "held_out_value": held_out,
        "majority_accuracy": np.bincount(y_test).max() / y_test.size,
        "seconds": answer["seconds"],
        "predict_seconds": answer["predict_seconds"],
        "peak_mib": answer["peak_mib"],
    }
    row = {name: "" if x is None else f"{x:.6g}" for name, x in row.items()}
    if not peer.asks:
        row["test_violation"] = f"{max(observed - asked, 0.0):.6g}"
        row["is_beyond_sampling"] = str(
            is_beyond_sampling(rule, asked, y_test, test, split.groups_test)
        )
    return row


def is_beyond_sampling(rule: Rule, asked: float, y: Any, decisions: Any, groups: Any) -> bool:
    """Whether the 95 % interval of what the rule bounds is above the bound.

    Clopper and Pearson's interval of a rate, Newcombe's of a difference of two groups. Each of
    several rates, and each pair of groups of a rate, has its share of the 5 %.
    """
    alpha = 0.05 / len(rule.rates)
    for rate in rule.rates:
        events, rows = counts(rate, y, decisions, groups if rule.is_gap else None)
        if not rule.is_gap:
            lows, _ = clopper_pearson(events[0], rows[0], 1 - alpha)
        else:
            known = np.flatnonzero(rows)
            order = known[np.argsort(events[known] / rows[known])]
            low, high = (order[ends] for ends in np.triu_indices(order.size, 1))
            level = 1 - alpha / max(low.size, 1)
            lows, _ = newcombe_difference(events[high], rows[high], events[low], rows[low], level)
        if np.any(lows > asked):
            return True
    return False


def standard_error(rule: Rule, y: Any, decisions: Any, groups: Any) -> float:
    """Return the sampling error of the largest gap of a rule: that of its two groups.

    A rate has that of one more event in two more rows, as few rows without an event have none.
    """
    found = []
    for rate in rule.rates:
        events, rows = counts(rate, y, decisions, groups)
        events, rows = events[rows > 0], rows[rows > 0]
        shares, near = events / rows, (events + 1) / (rows + 2)
        ends = [np.argmin(shares), np.argmax(shares)]
        found.append((np.ptp(shares), np.sqrt(sum((near * (1 - near) / rows)[ends]))))
    return float(max(found)[1])


def envelope(values: Any, accuracies: Any) -> tuple[Any, Any]:
    """Points of smallest value for their accuracy, in order of both; NaN is no point."""
    values, accuracies = np.asarray(values, dtype=float), np.asarray(accuracies, dtype=float)
    order = np.lexsort((-accuracies, values))
    order = order[np.isfinite(values[order]) & np.isfinite(accuracies[order])]
    best = np.maximum.accumulate(accuracies[order])
    better = np.diff(best, prepend=-np.inf) > 0
    return values[order][better], accuracies[order][better]


def accuracy_at(values: Any, accuracies: Any, at: Any) -> Any:
    """Accuracy of the envelope where the value is `at`; NaN to the left of all points."""
    x, y = envelope(values, accuracies)
    if x.size == 0:
        return np.full(np.shape(at), np.nan)
    return np.interp(at, x, y, left=np.nan)


def hypervolume(
    values: Any, accuracies: Any, reference_value: float, reference_accuracy: float
) -> float:
    """Area between the envelope and the reference point, divided by the reference value.

    That is, the mean over bounds in [0, `reference_value`] of the accuracy above
    `reference_accuracy`, which is 0 where no point is or where it is below.
    """
    x, y = envelope(values, accuracies)
    inside = x < reference_value
    if not inside.any():
        return 0.0
    end = np.interp(reference_value, x, y)
    x = np.append(x[inside], reference_value)
    y = np.append(y[inside], end) - reference_accuracy
    # Where it crosses the reference accuracy, the area starts.
    if y[0] < 0 < y[-1]:
        start = np.interp(0.0, y, x)
        x, y = np.append(start, x[y > 0]), np.append(0.0, y[y > 0])
    return float(np.trapezoid(np.maximum(y, 0.0), x) / reference_value)


def jackknife_interval(
    statistic: Callable[[list[int]], float], n: int, level: float = 0.95
) -> tuple[float, float, float]:
    """Estimate of a statistic of `n` splits, and its interval from leaving out one after another.

    Parameters
    ----------
    statistic : callable
        Its value from the splits of the given positions.
    n : int
        Number of splits; of fewer than two, the interval is the whole line.
    """
    whole = list(range(n))
    estimate = statistic(whole)
    if n < 2:
        return estimate, -np.inf, np.inf
    without = np.array([statistic([j for j in whole if j != i]) for i in whole])
    pseudo = n * estimate - (n - 1) * without
    half = stats.t.ppf(0.5 + level / 2, n - 1) * pseudo.std(ddof=1) / np.sqrt(n)
    return estimate, estimate - half, estimate + half


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
        """Values and accuracies of a peer at each thing asked, over some splits or all."""
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


def beside_plain(table: pd.DataFrame) -> pd.DataFrame:
    """Put the plain booster's figures of the same split and task beside those of each run."""
    keys = ["data", "split", "task"]
    plain = table[table["peer"] == "plain"].set_index(keys)
    return table.join(plain[["test_value", "seconds", "peak_mib"]].add_suffix("_plain"), on=keys)


def promises(table: pd.DataFrame) -> pd.DataFrame:
    """By peer: requested minus observed, violations, and what a decision needs.

    Means are over the runs in which the plain booster is above the bound of the same split.
    """
    rows = beside_plain(table)
    rows = rows[rows["test_violation"].notna() & (rows["test_value_plain"] > rows["asked"])]
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
    rows = beside_plain(table)
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
        failed = table[table["error"].notna()]
        if len(failed):
            print("\nFailed runs")
            print(failed.groupby(["peer", "error"]).size().rename("runs").to_string())
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


def draw_frontiers(file: Path, trees: int, path: Path) -> None:
    """Draw a panel for each data set and task of two classes: accuracy against what is bounded.

    Needs matplotlib (the extra ``plot``).

    Parameters
    ----------
    file : Path
        Results.
    trees : int
        Of the runs to show.
    path : Path
        The picture to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    own = dict(zip(OURS, ("tab:blue", "tab:cyan", "black", "gray"), strict=True))
    cells = {}
    for cell in cells_of(read(file, trees)):
        if cell.task in CLASS_TASKS:
            continue
        # One panel for all levels of Neyman-Pearson, up to the widest, whichever rate it bounds.
        key = cell.data, NEYMAN_PEARSON if " <= " in cell.task else cell.task
        if key not in cells or cell.at > cells[key].at:
            cells[key] = cell
    data = list(dict.fromkeys(name for name, _ in cells))
    tasks = list(dict.fromkeys(task for _, task in cells))
    shown = [peer for peer in PEERS if any(peer in c.frontiers for c in cells.values())]
    colours = own | {
        peer: plt.get_cmap("tab20")(2 + i)
        for i, peer in enumerate(peer for peer in shown if peer not in own)
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
                is_own = peer in own
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
