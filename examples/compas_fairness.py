"""Fairness on COMPAS: errors that are as frequent in every group of persons.

    python examples/compas_fairness.py

Trains XGBoost and LightGBM under ``gap(error_rate(), ...) <= bound``: between races, and between
races and sexes, when predicting recidivism; and between races when predicting the three classes
of the COMPAS score, from the features of the source paper. Prints what was asked, what holds on
training rows and on new ones, and what it costs in accuracy; saves a figure.

Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    error_rate,
    gap,
)
from gbm_constrained.datasets import load_compas
from gbm_constrained.plotting import plot_requested

BOUNDS = [0.08, 0.05, 0.03, 0.01]
PAPER = ["c_charge_degree", "age_cat", "race", "sex", "priors_count", "two_year_recid"]
RACE = gap(error_rate(), by="race", min_group_size=300, small_groups="drop")
BOTH = gap(error_rate(), by=["race", "sex"], min_group_size=100, small_groups="merge")
RULES = {
    "recidivism, by race": ("two_year_recid", RACE),
    "recidivism, by race x sex": ("two_year_recid", BOTH),
    "score of 3 classes, by race": ("score_text", RACE),
}
CLASSIFIERS = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}
PARAMS: dict[str, dict[str, Any]] = {
    "XGBoost": {"enable_categorical": True, "verbosity": 0},
    "LightGBM": {"verbose": -1},
}
QUIET = {"XGBoost": {"verbose": False}, "LightGBM": {}}  # not every round's loss

# The new names, eval_X and eval_y, are unknown to LightGBM 4.6.
warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
# The groups are printed below.
warnings.filterwarnings("ignore", message=".*fewer than min_group_size")


def main() -> None:
    args = parse_arguments()
    try:
        tables = {
            target: load_compas(data_home=args.data_home, target=target)
            for target in ("two_year_recid", "score_text")
        }
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))
    n_rows = len(tables["two_year_recid"].data)
    chosen = tables["two_year_recid"].data.sample(min(args.rows, n_rows), random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    features = {
        "two_year_recid": tables["two_year_recid"].data,
        "score_text": tables["score_text"].frame[PAPER],
    }
    labels = {
        "two_year_recid": tables["two_year_recid"].target,
        "score_text": tables["score_text"].target.cat.codes,
    }
    print(f"COMPAS: {len(train):,} training rows, {len(test):,} test rows.\n")
    libraries = list(CLASSIFIERS) if args.library == "both" else [args.library]

    records = []
    for library in libraries:
        for name, (target, difference) in RULES.items():
            X, y = features[target], labels[target]
            # No gap exceeds 1: this bound never binds, leaves the library's own model as it is,
            # and measures it.
            for bound in [1.0, *BOUNDS]:
                model = CLASSIFIERS[library](
                    constraints=[difference <= bound],
                    n_estimators=args.rounds,
                    learning_rate=0.1,
                    n_jobs=args.jobs,
                    **PARAMS[library],
                )
                # The test rows are only watched. Groups are columns of X here.
                held_out = [(X.loc[test], y[test])]
                model.fit(X.loc[train], y[train], eval_set=held_out, **QUIET[library])
                report = model.constraint_report_.iloc[0]
                records.append(
                    {
                        "library": library,
                        "rule": name,
                        "requested": 100 * bound if bound < 1.0 else None,
                        "train": 100 * report["train"],
                        "test": 100 * report["held_out"],
                        "std": 100 * model.group_report_["held_out"].std(ddof=0),
                        "accuracy": 100 * model.score(X.loc[test], y[test]),
                    }
                )
            if library == libraries[0]:
                print(f"{library}, {name}: errors in per cent under a gap of at most {BOUNDS[-1]}")
                print_groups(model.group_report_)
    table = pd.DataFrame(records)
    print(
        "Largest difference of error rates between groups in percentage points, as requested, on "
        "the training rows\nand on the test rows; standard deviation of the groups' test error "
        "rates, the measure of the source paper;\naccuracy on the test rows in per cent. 'none' "
        "is the plain model."
    )
    requested = table["requested"].map("{:g}".format, na_action="ignore").fillna("none")
    keys = ["rule", "requested", "library"]
    wide = table.assign(requested=requested).set_index(keys).unstack("library", sort=False)
    print(wide.swaplevel(axis=1)[libraries].to_string(float_format="{:.2f}".format))
    print(
        "\nThe rules are measured on the training rows, which prove nothing about new rows: the "
        "trees know many of\nthem by heart. Judge a model by the test columns, where the error "
        "rate of a group of 150 persons has a\nstandard error of 4 points by itself."
    )
    plot(table, args.output / "compas_fairness.png")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-home", help="directory with the data set")
    parser.add_argument("--output", type=Path, default=Path("output"), help="where files go")
    parser.add_argument("--library", choices=[*CLASSIFIERS, "both"], default="both")
    parser.add_argument("--rows", type=int, default=6_172, help="of a random sample to use")
    parser.add_argument("--rounds", type=int, default=300, help="boosting rounds")
    parser.add_argument("--jobs", type=int, default=None, help="threads; all by default")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def print_groups(report: pd.DataFrame) -> None:
    """Rows and error rates of the groups, the latter in per cent."""
    shown = report.drop(columns="constraint").assign(
        train=100 * report["train"], test=100 * report["held_out"]
    )[["group", "rows", "train", "test"]]
    print(shown.to_string(index=False, float_format="{:.2f}".format), end="\n\n")


def plot(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(table, axes, series="rule", variant="library")
    left.set_xlabel("requested bound on the gap (percentage points)")
    left.set_ylabel("gap of error rates (percentage points)")
    right.set_xlabel("gap of error rates on the test rows (percentage points)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("COMPAS: gaps of error rates, asked for and found, and their price")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved {path}")


if __name__ == "__main__":
    main()
