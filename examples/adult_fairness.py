"""Fairness on Adult
=================

Rates of the sexes, and of sex and race together, that differ by little::

    python examples/adult_fairness.py

Trains XGBoost and LightGBM under ``gap(rate, by="sex") <= bound`` for four rates and two bounds,
then for the intersections of sex and race, and for equalized odds. Prints what was asked, what
holds out of fold, with its interval, and on test rows, and what it costs in accuracy; saves a
figure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from common import (
    CONSTRAINED,
    SILENT,
    load,
    measured,
    parameters,
    parse_arguments,
    print_by_library,
    print_groups,
    print_notes,
    save,
)
from requested import plot_requested
from sklearn.model_selection import train_test_split

from gbm_constrained import Constraint, error_rate, fpr, gap, selection_rate, tpr
from gbm_constrained.datasets import load_adult

# %%
# The rules
# ---------
# A rule is made for each bound. Small intersections of sex and race are merged into one group.
BOUNDS = [0.05, 0.02]

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


# %%
# Training and measuring
# ----------------------
# For each rule the plain model stands beside the constrained ones: a bound that never binds leaves
# the library's own model.
def main() -> None:
    args = parse_arguments(__doc__, rounds=150, rows=48_842, least=1_000)
    adult = load(load_adult, data_home=args.data_home)
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    X, y, groups = adult.data.loc[train], adult.target[train], adult.sensitive_features.loc[train]
    X_test, y_test = adult.data.loc[test], adult.target[test]
    print(
        f"Adult: {len(train):,} training rows, {len(test):,} test rows; "
        f"{y.mean():.1%} earn more than $50,000.\n"
    )

    records, models = [], {}
    for library in args.libraries:
        params = parameters(library, args)
        for name, rule in RULES.items():
            # No gap exceeds 1: this bound never binds, leaves the library's own model as it is,
            # and measures it.
            for bound in [1.0, *BOUNDS]:
                model: Any = CONSTRAINED[library](
                    constraints=rule(bound),
                    iterate="best",  # last trees memorise: the decision may leave them out
                    **params,
                )
                # The test rows are only watched, for the report: nothing is chosen by them.
                model.fit(
                    X,
                    y,
                    sensitive_features=groups,
                    eval_set=[(X_test, y_test)],
                    sensitive_features_eval_set=[adult.sensitive_features.loc[test]],
                    **SILENT[library],
                )
                records.append(
                    {
                        "library": library,
                        "rule": name,
                        "requested": 100 * bound if bound < 1.0 else None,
                        **measured(model),
                        "accuracy": 100 * model.score(X_test, y_test),
                    }
                )
                models[f"{library}, {name}, {100 * bound:g}"] = model
            if "race" in name and library == args.libraries[0]:
                print(f"{library}, {name}, at most {BOUNDS[-1]}; small groups are merged:")
                print_groups(model.group_report_)
    table = pd.DataFrame(records)
    print(
        "Largest difference between groups in percentage points: as requested; out of fold, with "
        "its 95% interval;\nand on the test rows. Accuracy on the test rows in per cent. 'none' "
        "is the plain model."
    )
    print_by_library(table, ["rule", "requested"])
    print_notes(models)
    print(
        "\nOut of fold, trees decide about rows that they have not seen; there the rules are "
        "measured and the threshold is\nset. All models meet the same test rows, which may lean "
        "to one side, with rules or without: see 'none'. A rule\nthat must hold needs room, or a "
        "guarantee (docs/unseen.md)."
    )
    plot(table, args.output / "adult_fairness.png")


# %%
# The figure
# ----------
# On the left what was asked for and what was found; on the right what it costs.
def plot(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(
        table, axes, train="unseen", train_name="out of fold", series="rule", variant="library"
    )
    left.set_xlabel("requested bound on the gap (percentage points)")
    left.set_ylabel("gap between groups (percentage points)")
    right.set_xlabel("gap on the test rows (percentage points)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("Adult: gaps between groups, asked for and found, and their price")
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
