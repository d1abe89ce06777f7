"""Equal false positive rates on Adult
===================================

False positive rates of women and men that differ by at most 2 points::

    python examples/adult_false_positive_rates.py

Trains XGBoost and LightGBM under ``gap(fpr(), by="sex") <= bound`` for several bounds, on the
training rows of Adult. The column ``sex`` is not among the features: training takes it as
``sensitive_features``, and prediction does not need it. Beside the constrained models stand the
plain model and the plain model with a tuned threshold. Prints the gap and the accuracy on Adult's
own test rows, and saves the figure of the README, and two models that the plain libraries read.
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
    save_models,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, cross_val_predict

from gbm_constrained import audit, fpr, gap
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import TradeoffDisplay

# %%
# The constraint
# --------------
# One model is trained for each bound on the gap.
BOUND = 0.02  # the constraint of the models that are saved
BOUNDS = [0.05, 0.03, BOUND, 0.01]

CONSTRAINT, THRESHOLD, PLAIN_MODEL = "constrained", "plain, tuned threshold", "plain"


# %%
# Training and measuring
# ----------------------
# The threshold of the plain model is chosen by cross-validation, on scores of training rows that
# the trees have not seen. All models are measured on the same test rows, which chose nothing.
def main() -> None:
    args = parse_arguments(__doc__, rounds=100, rows=48_842, least=1_000)
    adult = load(load_adult, data_home=args.data_home)
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    split = adult.split.loc[chosen]
    train, test = (chosen[split == part].sort_values() for part in ("train", "test"))
    features = adult.data.drop(columns="sex")
    X, y, groups = features.loc[train], adult.target[train], adult.sensitive_features.loc[train]
    X_test, y_test = features.loc[test], adult.target[test]
    groups_test = adult.sensitive_features.loc[test]
    print(
        f"Adult: {len(train):,} training rows, {len(test):,} test rows. The model says who earns "
        f"more than $50,000.\nConstraint: the false positive rates of women and men differ by at "
        f"most the bound. Sex is not a feature."
    )

    records, constrained = [], {}
    for library in args.libraries:
        params = parameters(library, args)
        plain = PLAIN[library](**params).fit(X, y)
        folds = cross_val_predict(PLAIN[library](**params), X, y, cv=4, method="predict_proba")
        models: dict[tuple[str, float], Any] = {}
        for bound in BOUNDS:
            model = CONSTRAINED[library](constraints=[gap(fpr(), by="sex") <= bound], **params)
            models[CONSTRAINT, bound] = model.fit(X, y, sensitive_features=groups)
            constrained[library, bound] = model
        for bound in BOUNDS:
            threshold = threshold_for(y, folds[:, 1], groups["sex"], bound)
            models[THRESHOLD, bound] = FixedThresholdClassifier(
                FrozenEstimator(plain), threshold=threshold, response_method="predict_proba"
            ).fit(X, y)
        models[PLAIN_MODEL, np.nan] = plain
        for (name, bound), model in models.items():
            # No bound was asked of the plain model, and no gap exceeds 1.
            constraint = gap(fpr(), by="sex") <= (1.0 if np.isnan(bound) else bound)
            found = audit(model, X_test, y_test, [constraint], sensitive_features=groups_test)
            records.append(
                {"library": library, "model": name, "bound": bound}
                | measures(found)
                | {"out of fold": out_of_fold(model)}
            )
    table = pd.DataFrame(records)
    print_table(table)
    save_models(args.output, {name: constrained[name, BOUND] for name in args.libraries}, X_test)
    print_notes({f"{name}, {bound:g}": model for (name, bound), model in constrained.items()})
    plot(table, args.output / "adult_false_positive_rates.png")


def threshold_for(y: Any, score: Any, sex: Any, bound: float) -> float:
    """Find the threshold with the fewest errors among those whose gap is within the bound."""
    thresholds = np.linspace(0.001, 1.0, 1000)
    rates = [
        [np.mean(score[(y == 0) & (sex == group)] >= t) for t in thresholds]
        for group in np.unique(sex)
    ]
    errors = [np.mean((score >= t) != y) for t in thresholds]
    return float(thresholds[np.argmin(np.where(np.ptp(rates, axis=0) <= bound, errors, np.inf))])


def measures(found: Any) -> dict[str, Any]:
    """Gap and accuracy of an audit, each with its interval."""
    row = found.frame.iloc[0]
    return {
        "gap": row["value"],
        "gap_low": row["low"],
        "gap_high": row["high"],
        "accuracy": found.accuracy.value,
        "accuracy_low": found.accuracy.low,
        "accuracy_high": found.accuracy.high,
        "verdict": row["verdict"],
    }


def out_of_fold(model: Any) -> float:
    """Gap that the report of a constrained model expects on new rows."""
    return (
        model.constraint_report_.loc[0, "held_out"] if hasattr(model, "multipliers_") else np.nan
    )


def print_table(table: pd.DataFrame) -> None:
    ends = zip(table["gap_low"], table["gap_high"], strict=True)
    percent = {name: 100 * table[name] for name in ("bound", "out of fold", "gap", "accuracy")}
    shown = table.assign(
        **percent,
        interval=[interval(*each) for each in ends],
        verdict=table["verdict"].where(table["bound"].notna(), "-"),
    )[["library", "model", "bound", "out of fold", "gap", "interval", "accuracy", "verdict"]]
    print("\nIn per cent; the gap out of fold is of training rows, all else of test rows:\n")
    print(shown.to_string(index=False, na_rep="-", float_format="{:.2f}".format))


# %%
# The figure
# ----------
# Up and to the left is better. The bars are 95% intervals on the test rows, of each model alone.
def plot(table: pd.DataFrame, path: Path) -> None:
    libraries = list(table["library"].unique())
    figure, axes = plt.subplots(
        1, len(libraries), figsize=(5.5 * len(libraries), 4.6), sharex=True, sharey=True,
        layout="constrained", squeeze=False,
    )  # fmt: skip
    points = 100 * table.drop(columns=["library", "model", "verdict"])
    points[["library", "model"]] = table[["library", "model"]]
    points["label"] = points["bound"].map("{:g}".format, na_action="ignore")
    for ax, library in zip(axes.flat, libraries, strict=True):
        TradeoffDisplay(points[points["library"] == library]).plot(
            ax, x="gap", y="accuracy", series="model", label="label"
        )
        ax.set_xlabel("gap of false positive rates on test rows (percentage points)")
        ax.set_ylabel("accuracy on test rows (%)")
        ax.set_title(library)
        ax.label_outer()
    figure.suptitle(
        "Adult: accuracy against the gap between women and men; each point with its bound, and "
        "95% intervals"
    )
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
