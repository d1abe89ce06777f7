"""Replacing a deployed model on Adult
===================================

Find as many positives, change few of the decisions::

    python examples/churn_and_recall.py

A plain model, trained on older rows, is deployed. Its successor learns from rows that came since,
under two rules: a ``recall()`` of at least that of the deployed model, and
``churn(to=deployed) <= c``: at most a fraction c of the decisions may differ. The deployed model
has not seen the new rows, so both rules mean there what they mean later on. Prints for several c
what changes, for the better and for the worse, and saves a figure.

Any data set with two classes will do: who has Default of Credit Card Clients (UCI 350) can put it
in the place of Adult.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import (
    CONSTRAINED,
    PLAIN,
    interval,
    load,
    parameters,
    parse_arguments,
    print_notes,
    save,
)
from requested import plot_requested
from sklearn.metrics import accuracy_score, recall_score
from sklearn.model_selection import train_test_split

from gbm_constrained import churn, recall
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import COLOURS

# %%
# The bounds on the churn
# -----------------------
# Each is the largest fraction of decisions that may differ from those of the deployed model.
BOUNDS = [0.04, 0.03, 0.02]


# %%
# Training and measuring
# ----------------------
# The deployed model learns from the older half of the rows, its successors from the newer half.
def main() -> None:
    args = parse_arguments(__doc__, rounds=150, rows=48_842, least=200)
    adult = load(load_adult, data_home=args.data_home)
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    older, newer = train[: len(train) // 2], train[len(train) // 2 :]
    X, y = adult.data.loc[newer], adult.target[newer]
    X_test, y_test = adult.data.loc[test], adult.target[test]
    print(
        f"Adult: the deployed model knows {len(older):,} rows, its successors {len(newer):,} "
        f"others; {len(test):,} test rows.\n"
    )

    records, constrained = [], {}
    for library in args.libraries:
        params = parameters(library, args)
        deployed = PLAIN[library](**params).fit(adult.data.loc[older], adult.target[older])
        models = {"deployed": deployed, "plain": PLAIN[library](**params).fit(X, y)}
        floor = recall() >= recall_score(y, deployed.predict(X))
        models["recall alone"] = CONSTRAINED[library](constraints=[floor], **params).fit(X, y)
        for bound in BOUNDS:
            rules = [floor, churn(to=deployed) <= bound]
            model = CONSTRAINED[library](constraints=rules, **params)
            models[f"{100 * bound:g}"] = model.fit(X, y)
            constrained[f"{library}, {100 * bound:g}"] = model
        print(
            f"{library}: the new rows give a recall of at least {100 * floor.bound:.2f} per cent."
        )
        for name, model in models.items():
            measured = measures(y_test, model.predict(X_test), deployed.predict(X_test))
            records.append({"library": library, "c": name, **out_of_fold(model), **measured})
    table = pd.DataFrame(records)
    for library in args.libraries:
        print(f"\n{library}, in per cent; out of fold with 95% intervals, then on test rows:")
        own = table[table["library"] == library].drop(columns="library")
        print(own.to_string(index=False, na_rep="-", float_format="{:.2f}".format))
    print(
        "\nWins are rows that are right now and were wrong, losses the reverse; churn is their "
        "sum. Out of fold, trees\ndecide about rows that they have not seen; there the rules are "
        "measured. A small c that is not met there takes\nmore --rounds, or contradicts the rule "
        "on the recall."
    )
    print_notes(constrained)
    plot(table, args.output / "churn_and_recall.png")


def out_of_fold(model: Any) -> dict[str, Any]:
    """Recall and churn on new rows that the trees have not seen, and their intervals."""
    found: dict[str, Any] = {}
    report = getattr(model, "constraint_report_", pd.DataFrame())
    rows = [row for _, row in report.iterrows()]
    for i, name in enumerate(("recall", "churn")):
        value, between = np.nan, ""
        if i < len(rows):
            value, between = 100 * rows[i]["held_out"], interval(rows[i]["low"], rows[i]["high"])
        found |= {f"{name} unseen": value, f"{name} interval": between}
    return found


def measures(y: Any, predicted: Any, before: Any) -> dict[str, float]:
    """Quality of decisions, and what changed since those of the deployed model, in per cent."""
    right, was_right = predicted == y, before == y
    return {
        "churn": 100 * float(np.mean(predicted != before)),
        "accuracy": 100 * accuracy_score(y, predicted),
        "recall": 100 * recall_score(y, predicted),
        "wins": 100 * float(np.mean(right & ~was_right)),
        "losses": 100 * float(np.mean(~right & was_right)),
    }


# %%
# The figure
# ----------
def plot(table: pd.DataFrame, path: Path) -> None:
    points = table.assign(requested=pd.to_numeric(table["c"], errors="coerce"))
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    drawn = points[points["requested"].notna() | (points["c"] == "plain")]
    left, right = plot_requested(
        drawn,
        axes,
        test="churn",
        train="churn unseen",
        train_name="out of fold",
        series="library",
        variant="library",
    )
    deployed = points[points["c"] == "deployed"]
    for accuracy, colour in zip(deployed["accuracy"], COLOURS, strict=False):
        right.plot(0.0, accuracy, marker="*", markersize=12, color=colour, clip_on=False)
    beside = {"xytext": (10, 0), "textcoords": "offset points", "va": "center"}
    right.annotate("stars: deployed models", (0.0, deployed["accuracy"].mean()), **beside)
    left.set_xlabel("requested bound c on the churn (% of rows)")
    left.set_ylabel("churn (% of rows)")
    right.set_xlim(left=0.0)
    right.set_xlabel("churn on the test rows (% of rows)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("Adult: churn against the deployed model, asked for and found, and its price")
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
