"""Tables 1 and 2 beside the paper's, and Figures 1 to 3, from what paper_tables.py has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

# Lin and Deng (2023), Tables 1 and 2, test rows, per cent: mean and standard deviation of the
# accuracy, then of the violation or unfairness. What the two lines of random forests call accuracy
# is 1 minus the sum of the classes' errors, at wider levels; FairGBM on COMPAS is unconstrained
# LightGBM (paper_tables.py --check-claims).
PAPER = {
    ("credit", "lightgbm", "plain"): (99.92, 0.04, 22.94, 13.67),
    ("credit", "lightgbm", "paper"): (96.77, 2.72, 6.63, 3.18),
    ("credit", "xgboost", "plain"): (99.96, 0.01, 15.69, 4.56),
    ("credit", "xgboost", "paper"): (99.86, 0.16, 10.01, 2.60),
    ("dry_bean", "random forest", "npmc-cx"): (52.01, 3.16, 2.66, 1.64),
    ("dry_bean", "random forest", "npmc-er"): (49.12, 4.30, 1.27, 1.38),
    ("dry_bean", "lightgbm", "plain"): (91.73, 0.51, 12.87, 2.22),
    ("dry_bean", "lightgbm", "paper"): (86.39, 1.95, 3.23, 1.29),
    ("dry_bean", "xgboost", "plain"): (91.79, 0.65, 12.14, 2.18),
    ("dry_bean", "xgboost", "paper"): (90.74, 1.44, 9.32, 2.60),
    ("compas", "fairgbm", "FNR"): (62.67, 1.81, 14.74, 6.04),
    ("compas", "lightgbm", "plain"): (62.72, 1.84, 13.71, 5.39),
    ("compas", "lightgbm", "paper"): (62.96, 1.27, 10.09, 1.61),
    ("compas", "xgboost", "plain"): (63.05, 0.78, 26.54, 1.43),
    ("compas", "xgboost", "paper"): (63.46, 0.33, 26.69, 0.09),
    ("adult", "fairgbm", "FNR"): (77.79, 9.19, 17.20, 10.17),
    ("adult", "lightgbm", "plain"): (86.79, 0.57, 10.06, 0.39),
    ("adult", "lightgbm", "paper"): (87.22, 0.21, 9.76, 0.15),
    ("adult", "xgboost", "plain"): (86.96, 0.41, 9.89, 0.34),
    ("adult", "xgboost", "paper"): (84.54, 0.95, 10.90, 0.71),
}
TABLES = {
    "Table 1: accuracy and violation": ("credit", "credit_sample", "dry_bean", "dry_bean_sample"),
    "Table 2: accuracy and unfairness": ("adult", "compas"),
}
# The recommended setting has shades of blue, the darker the lower its bound.
COLOURS = {
    "plain": "tab:gray", "paper": "tab:orange", "npmc-cx": "tab:purple", "npmc-er": "tab:pink",
    "npmc-er, no refit": "tab:brown", "FNR": "tab:red", "FPR,FNR": "tab:olive",
}  # fmt: skip
MARKERS = {"lightgbm": "o", "xgboost": "^", "random forest": "s", "fairgbm": "x"}


def results(folder: Path) -> pd.DataFrame:
    """Rows of all runs in a folder."""
    parts = [pd.read_csv(path, dtype={"commit": str}) for path in sorted(folder.glob("run-*.csv"))]
    if not parts:
        raise SystemExit(f"{folder} has no results: run the experiments first.")
    return pd.concat(parts, ignore_index=True)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and standard deviations over the sets, in per cent, with the paper's beside them.

    Parameters
    ----------
    rows : DataFrame
        From :func:`results`.
    """
    lines = []
    for key, run in rows.groupby(["table", "library", "model"]):
        mean, std = 100 * run.mean(numeric_only=True), 100 * run.std(numeric_only=True)
        accuracy, accuracy_std, violation, violation_std = PAPER.get(key, [np.nan] * 4)
        lines.append(
            {
                "table": key[0], "library": key[1], "model": key[2],
                "accuracy": mean["accuracy"], "std": std["accuracy"], "paper": accuracy,
                "paper std": accuracy_std,
                "violation": mean["violation"], "std ": std["violation"], "paper ": violation,
                "paper std ": violation_std,
                "on training rows": mean["train_violation"],
                "seconds": mean["seconds"] / 100, "cpu": mean["cpu_seconds"] / 100,
                "sets": run["accuracy"].count(), "failed": run["failure"].count(),
            }
        )  # fmt: skip
    return pd.DataFrame(lines).set_index(["table", "library", "model"])


def report(folder: Path, figures: Path) -> None:
    """Print the tables and save the figures.

    Parameters
    ----------
    folder : Path
        Where paper_tables.py has written.
    figures : Path
        Where the pictures go.
    """
    figures.mkdir(parents=True, exist_ok=True)
    rows = results(folder)
    table = summary(rows)
    for title, names in TABLES.items():
        shown = table[table.index.get_level_values("table").isin(names)]
        if len(shown):
            print(f"\n{title} on test rows, in per cent; columns 'paper' are as printed there")
            print(shown.to_string(float_format="{:.2f}".format, na_rep=""))
    for failure in rows["failure"].dropna().unique():
        print(f"failed: {failure}")
    print(f"Commits of these runs: {', '.join(rows['commit'].dropna().unique())}")
    draw_scatters(rows, figures)
    draw_histories(folder, figures)


def draw_scatters(rows: pd.DataFrame, figures: Path) -> None:
    """Figures 1 and 2: a point for each set, and the printed means of the constrained models."""
    for number, names in enumerate(TABLES.values(), start=1):
        drawn = set(rows.loc[rows["violation"].notna(), "table"])  # not of fits that failed
        found = [name for name in names if name in drawn]
        if not found:
            continue
        figure, axes = plt.subplots(
            1, len(found), figsize=(8 * len(found), 5), layout="constrained", squeeze=False
        )
        for ax, name in zip(axes[0], found, strict=True):
            shown = rows[rows["table"] == name]
            asked = sorted(set(shown["model"]) - set(COLOURS), reverse=True)
            blues = plt.get_cmap("Blues")(np.linspace(0.5, 1.0, len(asked)))
            colours = COLOURS | dict(zip(asked, blues, strict=True))
            for (library, model), run in shown.groupby(["library", "model"]):
                ax.scatter(
                    100 * run["violation"], 100 * run["accuracy"], s=14, alpha=0.6,
                    color=colours[model], marker=MARKERS[library], label=f"{library}, {model}",
                )  # fmt: skip
            for (table, library, model), printed in PAPER.items():
                if table == name and model not in ("plain", "npmc-cx", "npmc-er"):
                    ax.scatter(
                        printed[2], printed[0], s=70, facecolors="none", edgecolors="black",
                        marker=MARKERS[library].replace("x", "D"),
                        label=f"printed: {library}, {model}",
                    )  # fmt: skip
            beyond = _without_outliers(ax, shown)
            ax.set_title(f"{name}, {beyond} of {len(shown)} points beyond" if beyond else name)
            ax.set_xlabel("violation (%)" if number == 1 else "unfairness (%)")
            ax.set_ylabel("accuracy (%)")
            ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        save(figure, figures / f"figure_{number}.png")


def _without_outliers(ax: Any, shown: pd.DataFrame) -> int:
    """Fit axes to all but the last hundredth of each; the number of points that are not seen."""
    violation, accuracy = 100 * shown["violation"], 100 * shown["accuracy"]
    right, bottom = max(violation.quantile(0.99), 1.0), accuracy.quantile(0.01)
    width, height = max(right - violation.min(), 1.0), max(accuracy.max() - bottom, 1.0)
    right, bottom = right + 0.05 * width, bottom - 0.05 * height
    ax.set_xlim(violation.min() - 0.05 * width, right)
    ax.set_ylim(bottom, accuracy.max() + 0.05 * height)
    return int(((violation > right) | (accuracy < bottom)).sum())


def draw_histories(folder: Path, figures: Path) -> None:
    """Figure 3: training loss and difference of the groups' losses on Adult."""
    files = sorted(folder.glob("history-adult-*.csv"))
    if not files:
        return
    figure, axes = plt.subplots(
        len(files), 2, figsize=(12, 4 * len(files)), layout="constrained", squeeze=False
    )
    for pair, path in zip(axes, files, strict=True):
        library = path.stem.split("-")[-1]
        for alpha, run in pd.read_csv(path).groupby("alpha"):
            for ax, column in zip(pair, ("loss", "difference"), strict=True):
                ax.plot(run["iteration"], run[column], label=f"alpha = {alpha:g}")
        for ax, name in zip(pair, ("loss", "difference of the groups' losses"), strict=True):
            ax.set_title(library)
            ax.set_xlabel("iteration")
            ax.set_ylabel(f"{name}, training rows (nats)")
        pair[0].legend()  # of both: the same colours
    save(figure, figures / "figure_3.png")


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"{path} is written.")
