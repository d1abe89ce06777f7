"""What the rows of `dataset_constraints.py` say: bars beside the prototype's figures, and figures.

    python benchmarks/dataset_constraints_bars.py [--results FOLDER] [--figures FOLDER]

Needs matplotlib (the extra `plot`) for figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

RESULTS = Path(__file__).parent / "results" / "dataset_constraints"
# Test error and ratio of a prototype of one split, by u.
PROTOTYPE = {1.0: (0.1693, 1.010), 1.25: (0.1633, 1.247), 2.0: (0.1558, 1.95)}
BARS = {1.0: (0.170, 1.05), 1.25: (0.164, 1.30), 2.0: (0.1565, 2.05)}
# By how much the error may be above that of Zafar's path at an equal test ratio.
AGAINST_ZAFAR = {1.0: -0.002, 1.25: -0.002, 1.5: -0.002, 2.0: 0.001, 2.5: 0.001, 3.0: 0.001}
LINES = {
    "ramp": "ramp rates", "zafar hinge": "covariance, hinge", "zafar ramp": "covariance, ramp",
    "hinge": "hinge rates", "logistic": "logistic regression", "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}  # fmt: skip


def read(results: Path, part: str) -> pd.DataFrame:
    """Read the rows of a part."""
    return pd.read_csv(results / f"{part}.csv")


def say(name: str, figure: str, is_met: bool) -> None:
    """Print a figure beside its bar."""
    print(f"{'met   ' if is_met else 'missed'} {name}: {figure}")


def say_ratios(rows: pd.DataFrame) -> None:
    """Compare errors and ratios on the test and the training rows of a9a with their bars."""
    plain = rows[rows["method"] == "svm"].iloc[0]
    error, ratio = plain["test_error"], plain["test_ratio"]
    is_met = abs(error - 0.150) <= 0.001 and abs(ratio - 3.46) <= 0.1
    say("no rule, .150 +- .001 @ 3.46 +- .1", f"{error:.4f} @ {ratio:.3f}", is_met)
    ramps = rows[rows["method"] == "ramp"].set_index("value")
    for u, (most, most_ratio) in BARS.items():
        error, ratio = ramps.loc[u, ["test_error", "test_ratio"]]
        figure = f"{error:.4f} @ {ratio:.3f} (prototype {PROTOTYPE[u][0]} @ {PROTOTYPE[u][1]})"
        is_met = error <= most and ratio <= most_ratio
        say(f"u = {u}, <= {most} @ <= {most_ratio}", figure, is_met)
    binding = ramps[ramps.index <= plain["train_ratio"]]
    above = (ramps["random_train_ratio"] - ramps.index).max()
    say("training ramp ratio <= u + .005", f"at most u + {above:.4f}", above <= 0.005)
    away = (binding["train_ratio"] - binding.index).abs().max()
    say("training ratio by the sign, within .05 of u that binds", f"{away:.3f}", away <= 0.05)


def error_at(rows: pd.DataFrame, method: str, ratio: float) -> float:
    """Interpolate the test error of a path of fits at a test ratio; NaN far beyond its ends."""
    path = rows[rows["method"] == method].sort_values("test_ratio")
    inside = path["test_ratio"].min() - 0.02 <= ratio <= path["test_ratio"].max() + 0.02
    return float(np.interp(ratio, path["test_ratio"], path["test_error"])) if inside else np.nan


def say_zafar(rows: pd.DataFrame) -> None:
    """Compare test errors at equal test ratios with Zafar's paths."""
    for ratio, allowed in AGAINST_ZAFAR.items():
        ours = error_at(rows, "ramp", ratio)
        theirs = {
            method: error_at(rows, method, ratio) for method in ("zafar hinge", "zafar ramp")
        }
        reached = min((e for e in theirs.values() if np.isfinite(e)), default=np.inf)
        figure = f"{ours:.4f}, " + ", ".join(f"{name} {e:.4f}" for name, e in theirs.items())
        say(f"test ratio {ratio}, error <= Zafar's {allowed:+}", figure, ours - reached <= allowed)


def say_churn(rows: pd.DataFrame, data: str) -> None:
    """Compare training churn, and the test figures of both kinds of decisions, over the splits."""
    rows = rows[rows["data"] == data]
    thresholded = rows[rows["method"] == "thresholded"].set_index("seed")
    ramps = rows[rows["method"] == "ramp"].set_index("seed")
    free = ramps.loc[ramps["bound"] == ramps["bound"].max(), "random_train_churn"]
    for bound, found in ramps.groupby("bound"):
        churn = found["random_train_churn"]
        is_binding = free > bound
        say(
            f"{data}, c = {bound}, training churn at random within [.8 c, c + .0005]",
            f"{churn.min():.4f} to {churn.max():.4f}",
            bool((churn <= bound + 5e-4).all() and (churn[is_binding] >= 0.8 * bound).all()),
        )
        against = {
            "churn by the sign below at random": found["test_churn"] - found["random_test_churn"],
            "error by the sign below at random": found["test_error"] - found["random_test_error"],
            "error not above the thresholded SVM": found["test_error"] - thresholded["test_error"],
        }
        for name, difference in against.items():
            mean, error = difference.mean(), difference.sem()
            figure = f"{mean:+.4f} +- {error:.4f}"
            say(f"{data}, c = {bound}, test {name}", figure, mean <= error)


def draw_ratios(rows: pd.DataFrame, path: Path) -> None:
    """Draw test errors over test ratios, and ratios over those that were asked for."""
    import matplotlib.pyplot as plt

    from gbm_constrained.plotting import COLOURS

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
    for colour, (method, label) in zip(COLOURS, LINES.items(), strict=True):
        found = rows[rows["method"] == method]
        found = found.sort_values("value")
        left.plot(found["test_ratio"], found["test_error"], ".-", color=colour, label=label)
        if not method.startswith("zafar"):
            right.plot(found["value"], found["test_ratio"], ".-", color=colour, label=label)
    found = rows[rows["method"] == "ramp"].sort_values("random_test_ratio")
    at_random = {"color": COLOURS[0], "ls": ":", "label": "ramp rates, at random"}
    left.plot(found["random_test_ratio"], found["random_test_error"], **at_random)
    found = found.sort_values("value")
    right.plot(found["value"], found["random_test_ratio"], **at_random)
    right.plot([1, 4], [1, 4], color="0.6", lw=0.8, zorder=0)
    left.set(xlabel="test ratio of positive decisions, men to women", ylabel="test error")
    left.set_ylim(top=0.195)
    right.set(xlabel="u that was asked for", ylabel="test ratio")
    left.legend(frameon=False)
    figure.savefig(path, dpi=120)


def draw_churn(rows: pd.DataFrame, path: Path) -> None:
    """Draw churn and error over the bound, on training and test rows of a9a."""
    import matplotlib.pyplot as plt

    from gbm_constrained.plotting import COLOURS

    rows = rows[rows["data"] == "a9a"]
    figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.4), layout="constrained", sharex=True)
    for of, column in zip(("train", "test"), axes.T, strict=True):
        for what, ax in zip(("churn", "error"), column, strict=True):
            for colour, (how, label) in zip(
                COLOURS, {"": "by the sign", "random_": "at random"}.items(), strict=False
            ):
                found = rows[rows["method"] == "ramp"].groupby("bound")[f"{how}{of}_{what}"]
                ax.errorbar(
                    found.mean().index,
                    found.mean(),
                    found.sem(),
                    fmt=".-",
                    color=colour,
                    label=label,
                )
            for colour, method in zip(COLOURS[2:], ("deployed", "thresholded"), strict=False):
                level = rows[rows["method"] == method][f"{of}_{what}"].mean()
                if method == "thresholded" or what == "error":
                    ax.axhline(level, color=colour, lw=1, ls="--", label=method)
            if what == "churn":
                ax.plot([0, 0.1], [0, 0.1], color="0.6", lw=0.8, zorder=0)
            ax.set(title=f"{what}, {of}ing rows" if of == "train" else f"{what}, test rows")
    for ax in axes[1]:
        ax.set_xlabel("churn that was allowed")
    axes[1, 0].legend(frameon=False)
    figure.savefig(path, dpi=120)


def show_means(rows: pd.DataFrame, names: list[str], shown: list[str]) -> None:
    """Print means over the splits."""
    table: Any = rows.groupby(names, sort=False)[shown].mean()
    print(table.round(4).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figures", type=Path, help="draw there; nothing is drawn by default")
    arguments = parser.parse_args()
    ratios, churn = (read(arguments.results, part) for part in ("fairness", "churn"))
    say_ratios(ratios)
    say_zafar(ratios)
    for data in ("a9a", "default"):
        say_churn(churn, data)
    of_test = [
        f"{how}test_{what}" for how in ("", "random_") for what in ("error", "churn", "recall")
    ]
    show_means(churn, ["data", "method", "bound"], of_test)
    credit = read(arguments.results, "neyman_pearson")
    show_means(credit, ["bound", "method"], [c for c in credit if c.startswith(("t", "r"))])
    if arguments.figures is not None:
        draw_ratios(ratios, arguments.figures / "dataset_fairness.png")
        draw_churn(churn, arguments.figures / "dataset_churn.png")


if __name__ == "__main__":
    main()
