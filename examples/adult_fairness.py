"""Fairness on Adult: rates of the sexes, and of sex and race together, that differ by little.

    python examples/adult_fairness.py

Trains XGBoost and LightGBM under ``gap(rate, by="sex") <= bound`` for four rates and several
bounds, then for the intersections of sex and race, and for equalized odds. Prints what was asked,
what holds on training rows and on new ones, and what it costs in accuracy; saves a figure.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    Constraint,
    error_rate,
    fpr,
    gap,
    selection_rate,
    tpr,
)
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import plot_requested

BOUNDS = [0.1, 0.03, 0.01]
CLASSIFIERS = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}
PARAMS: dict[str, dict[str, Any]] = {
    "XGBoost": {"enable_categorical": True, "verbosity": 0},
    "LightGBM": {"verbose": -1},
}
QUIET = {"XGBoost": {"verbose": False}, "LightGBM": {}}  # not every round's loss

# The new names, eval_X and eval_y, are unknown to LightGBM 4.6.
warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
# Which groups are small is printed below.
warnings.filterwarnings("ignore", message=".*fewer than min_group_size")

# Each rule by its bound; equalized odds is two constraints, of which the larger value counts.
RULES: dict[str, Callable[[float], list[Constraint]]] = {
    "selection rate by sex": lambda bound: [gap(selection_rate(), by="sex") <= bound],
    "false positive rate by sex": lambda bound: [gap(fpr(), by="sex") <= bound],
    "true positive rate by sex": lambda bound: [gap(tpr(), by="sex") <= bound],
    "error rate by sex": lambda bound: [gap(error_rate(), by="sex") <= bound],
    "selection rate by sex x race": lambda bound: [
        gap(selection_rate(), by=["sex", "race"], min_group_size=300, small_groups="merge")
        <= bound
    ],
    "equalized odds by sex": lambda bound: [
        gap(tpr(), by="sex") <= bound,
        gap(fpr(), by="sex") <= bound,
    ],
}


def main() -> None:
    args = parse_arguments()
    try:
        adult = load_adult(data_home=args.data_home)
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    print(
        f"Adult: {len(train):,} training rows, {len(test):,} test rows; "
        f"{adult.target[train].mean():.1%} earn more than $50,000.\n"
    )
    libraries = list(CLASSIFIERS) if args.library == "both" else [args.library]

    def fit(library: str, rules: list[Constraint]) -> Any:
        """Fit under rules; the test rows are only watched, for the report."""
        model = CLASSIFIERS[library](
            constraints=rules,
            n_estimators=args.rounds,
            learning_rate=0.1,
            n_jobs=args.jobs,
            **PARAMS[library],
        )
        return model.fit(
            adult.data.loc[train],
            adult.target[train],
            sensitive_features=adult.sensitive_features.loc[train],
            eval_set=[(adult.data.loc[test], adult.target[test])],
            sensitive_features_eval_set=[adult.sensitive_features.loc[test]],
            **QUIET[library],
        )

    records = []
    for library in libraries:
        for name, rule in RULES.items():
            # No gap exceeds 1: this bound never binds, leaves the library's own model as it is,
            # and measures it.
            for bound in [1.0, *BOUNDS]:
                model = fit(library, rule(bound))
                report = model.constraint_report_
                records.append(
                    {
                        "library": library,
                        "rule": name,
                        "requested": 100 * bound if bound < 1.0 else None,
                        "train": 100 * report["train"].max(),
                        "test": 100 * report["held_out"].max(),
                        "accuracy": 100 * model.score(adult.data.loc[test], adult.target[test]),
                    }
                )
            if "race" in name:
                print(f"{library}, {name}, at most {BOUNDS[-1]}; small groups are merged:")
                print_groups(model.group_report_)
    table = pd.DataFrame(records)
    print(
        "Largest difference between groups in percentage points, as requested, on the training "
        "rows and on the\ntest rows; accuracy on the test rows in per cent. 'none' is the plain "
        "model."
    )
    requested = table["requested"].map("{:g}".format, na_action="ignore").fillna("none")
    keys = ["rule", "requested", "library"]
    wide = table.assign(requested=requested).set_index(keys).unstack("library", sort=False)
    print(wide.swaplevel(axis=1)[libraries].to_string(float_format="{:.2f}".format))
    print(
        "\nThe rules are measured on the training rows, which prove nothing about new rows: judge "
        "a model by the\ntest column, and remember that a small group has few test rows."
    )
    plot(table, args.output / "adult_fairness.png")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-home", help="directory with the data set")
    parser.add_argument("--output", type=Path, default=Path("output"), help="where files go")
    parser.add_argument("--library", choices=[*CLASSIFIERS, "both"], default="both")
    parser.add_argument("--rows", type=int, default=48_842, help="of a random sample to use")
    parser.add_argument("--rounds", type=int, default=300, help="boosting rounds")
    parser.add_argument("--jobs", type=int, default=None, help="threads; all by default")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def print_groups(report: pd.DataFrame) -> None:
    """Rows and rates of the groups, the latter in per cent."""
    shown = report.drop(columns="constraint").assign(
        train=100 * report["train"], test=100 * report["held_out"]
    )[["group", "rows", "train", "test"]]
    print(shown.to_string(index=False, float_format="{:.2f}".format), end="\n\n")


def plot(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(table, axes, series="rule", variant="library")
    left.set_xlabel("requested bound on the gap (percentage points)")
    left.set_ylabel("gap between groups (percentage points)")
    right.set_xlabel("gap on the test rows (percentage points)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("Adult: gaps between groups, asked for and found, and their price")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved {path}")


if __name__ == "__main__":
    main()
