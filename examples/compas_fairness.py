"""Fairness on COMPAS
==================

Errors that are as frequent in every group of persons::

    python examples/compas_fairness.py

Trains XGBoost and LightGBM under ``gap(error_rate(), ...) <= bound``: between races, and between
races and sexes, when predicting recidivism; and between races when predicting the three classes
of the COMPAS score, from the features of the source paper. Prints what was asked, what holds out
of fold, with its interval, and on test rows, and what it costs in accuracy; saves a figure.

Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
"""

from __future__ import annotations

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

from gbm_constrained import error_rate, gap
from gbm_constrained.datasets import load_compas

# %%
# The rules
# ---------
# Races, and races by sex; groups of fewer than 300 persons are dropped or merged.
BOUNDS = [0.08, 0.05, 0.02]
PAPER = ["c_charge_degree", "age_cat", "race", "sex", "priors_count", "two_year_recid"]
RACE = gap(error_rate(), by="race", min_group_size=300, small_groups="drop")
BOTH = gap(error_rate(), by=["race", "sex"], min_group_size=300, small_groups="merge")
RULES = {
    "recidivism, by race": ("two_year_recid", RACE),
    "recidivism, by race x sex": ("two_year_recid", BOTH),
    "score of 3 classes, by race": ("score_text", RACE),
}


# %%
# Training and measuring
# ----------------------
# Groups are columns of the features here, so that ``fit`` needs no ``sensitive_features``.
def main() -> None:
    # Gaps of error rates take rounds: of few, a threshold closes what is left, at a higher price.
    args = parse_arguments(__doc__, rounds=150, rows=6_172, least=1_500)
    tables = {
        target: load(load_compas, data_home=args.data_home, target=target)
        for target in ("two_year_recid", "score_text")
    }
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

    records, models = [], {}
    for library in args.libraries:
        params = parameters(library, args)
        for name, (target, difference) in RULES.items():
            X, y = features[target], labels[target]
            # No gap exceeds 1: this bound never binds, leaves the library's own model as it is,
            # and measures it.
            for bound in [1.0, *BOUNDS]:
                model: Any = CONSTRAINED[library](
                    constraints=[difference <= bound],
                    iterate="best",
                    **params,
                )
                # The test rows are only watched, for the report. Groups are columns of X here.
                held_out = [(X.loc[test], y[test])]
                model.fit(X.loc[train], y[train], eval_set=held_out, **SILENT[library])
                records.append(
                    {
                        "library": library,
                        "rule": name,
                        "requested": 100 * bound if bound < 1.0 else None,
                        **measured(model),
                        "std": 100 * model.group_report_["held_out"].std(ddof=0),
                        "accuracy": 100 * model.score(X.loc[test], y[test]),
                    }
                )
                models[f"{library}, {name}, {100 * bound:g}"] = model
            if library == args.libraries[0]:
                print(f"{library}, {name}: errors in per cent under a gap of at most {BOUNDS[-1]}")
                print_groups(model.group_report_)
    table = pd.DataFrame(records)
    print(
        "Largest difference of error rates between groups in percentage points: as requested; out "
        "of fold, with its\n95% interval; and on the test rows. Standard deviation of the groups' "
        "test error rates, the measure of the\nsource paper; accuracy on the test rows in per "
        "cent. 'none' is the plain model."
    )
    print_by_library(table, ["rule", "requested"])
    print_notes(models)
    print(
        "\nThe intervals are wider than the bounds: the error rate of a group of 150 persons has "
        "a standard error of 4\npoints by itself. With so few rows in a group no training can "
        "promise much of new rows."
    )
    plot(table, args.output / "compas_fairness.png")


# %%
# The figure
# ----------
def plot(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(
        table, axes, train="unseen", train_name="out of fold", series="rule", variant="library"
    )
    left.set_xlabel("requested bound on the gap (percentage points)")
    left.set_ylabel("gap of error rates (percentage points)")
    right.set_xlabel("gap of error rates on the test rows (percentage points)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("COMPAS: gaps of error rates, asked for and found, and their price")
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
