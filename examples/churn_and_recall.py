"""Replace a deployed model on Adult: find as many positives, change few of its decisions.

    python examples/churn_and_recall.py

A plain model, trained on half of the training rows, is deployed. Its successor learns from all of
them under two rules: ``recall() >= `` that of the deployed model, and ``churn(to=deployed) <= c``,
at most a fraction c of the decisions may differ. Prints for several c what changes, for the better
and for the worse, and saves a figure.

Any data set with two classes will do: who has Default of Credit Card Clients (UCI 350) can put it
in the place of Adult.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn.metrics import accuracy_score, recall_score
from sklearn.model_selection import train_test_split

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, churn, recall
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import COLOURS, plot_requested

BOUNDS = [0.04, 0.03, 0.02, 0.01]
PLAIN = {"XGBoost": xgb.XGBClassifier, "LightGBM": lgb.LGBMClassifier}
CONSTRAINED = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}
PARAMS: dict[str, dict[str, Any]] = {
    "XGBoost": {"enable_categorical": True, "verbosity": 0},
    "LightGBM": {"verbose": -1},
}


def main() -> None:
    args = parse_arguments()
    try:
        adult = load_adult(data_home=args.data_home)
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    X, y = adult.data.loc[train], adult.target[train]
    X_test, y_test = adult.data.loc[test], adult.target[test]
    half = len(train) // 2
    print(
        f"Adult: {len(train):,} training rows, of which the deployed model knows {half:,}; "
        f"{len(test):,} test rows.\n"
    )
    libraries = list(PLAIN) if args.library == "both" else [args.library]

    records = []
    for library in libraries:
        params = {
            "n_estimators": args.rounds,
            "learning_rate": 0.1,
            "n_jobs": args.jobs,
            **PARAMS[library],
        }
        deployed = PLAIN[library](**params).fit(X.iloc[:half], y.iloc[:half])
        models = {
            "deployed": deployed,
            "all rows": PLAIN[library](**params).fit(X, y),
        }
        floor = recall() >= recall_score(y, deployed.predict(X))
        models["recall alone"] = CONSTRAINED[library](constraints=[floor], **params).fit(X, y)
        for bound in BOUNDS:
            rules = [floor, churn(to=deployed) <= bound]
            model = CONSTRAINED[library](constraints=rules, **params)
            models[f"{100 * bound:g}"] = model.fit(X, y)
        for name, model in models.items():
            for rows, X_of, y_of in (("train", X, y), ("test", X_test, y_test)):
                measured = measures(y_of, model.predict(X_of), deployed.predict(X_of))
                records.append({"library": library, "c": name, "rows": rows, **measured})
    table = pd.DataFrame(records)
    for library in libraries:
        print(f"{library}, in per cent:")
        wide = (
            table[table["library"] == library]
            .drop(columns="library")
            .set_index(["c", "rows"])
            .unstack("rows", sort=False)
            .swaplevel(axis=1)[["train", "test"]]
        )
        print(wide.to_string(float_format="{:.2f}".format), end="\n\n")
    print(
        "Wins are rows that are right now and were wrong, losses the reverse; churn is their "
        "sum. The rules are\nmeasured on the training rows, which prove nothing about new rows. "
        "Half of them the deployed model knows\nby heart: its recall there is higher than on "
        "the test rows, and so is what the first rule asks for. A small\nc that is not met on "
        "the training rows takes more --rounds."
    )
    plot(table, args.output / "churn_and_recall.png")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-home", help="directory with the data set")
    parser.add_argument("--output", type=Path, default=Path("output"), help="where files go")
    parser.add_argument("--library", choices=[*PLAIN, "both"], default="both")
    parser.add_argument("--rows", type=int, default=48_842, help="of a random sample to use")
    parser.add_argument("--rounds", type=int, default=300, help="boosting rounds")
    parser.add_argument("--jobs", type=int, default=None, help="threads; all by default")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    return args


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


def plot(table: pd.DataFrame, path: Path) -> None:
    by_rows = table.set_index(["library", "c", "rows"]).unstack("rows", sort=False)
    points = by_rows["churn"].assign(accuracy=by_rows["accuracy", "test"]).reset_index()
    points["requested"] = pd.to_numeric(points["c"], errors="coerce")
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    drawn = points[points["requested"].notna() | (points["c"] == "all rows")]
    left, right = plot_requested(drawn, axes, series="library", variant="library")
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
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved {path}")


if __name__ == "__main__":
    main()
