"""A budget on Adult: select at most so many persons, here and where no label is known.

    python examples/coverage_budget.py

Trains XGBoost and LightGBM under ``selection_rate() <= budget`` on the training rows; on an
unlabelled monitor set, ``selection_rate(on=dataset("monitor")) <= budget``; and with
``precision() >= 0.9`` besides. The competitor is a threshold on the plain model's score that
spends the same budget. Prints what is selected and how well, and saves a figure.
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
from sklearn.metrics import precision_score
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    Constraint,
    dataset,
    precision,
    selection_rate,
)
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import plot_requested

BUDGETS = [0.2, 0.15, 0.1, 0.05]
PRECISION = 0.9
PLAIN = {"XGBoost": xgb.XGBClassifier, "LightGBM": lgb.LGBMClassifier}
CONSTRAINED = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}
PARAMS: dict[str, dict[str, Any]] = {
    "XGBoost": {"enable_categorical": True, "verbosity": 0},
    "LightGBM": {"verbose": -1},
}
BUDGET, MONITOR = "budget on training rows", "budget on monitored rows"
PRECISE, THRESHOLD = f"budget, precision >= {PRECISION:g}", "threshold, monitored rows"
RULES = [BUDGET, MONITOR, PRECISE, THRESHOLD]


def main() -> None:
    args = parse_arguments()
    try:
        adult = load_adult(data_home=args.data_home)
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))
    chosen = adult.data.sample(min(args.rows, len(adult.data)), random_state=0).index
    train, others = train_test_split(chosen, test_size=0.3, random_state=0)
    monitor, test = train_test_split(others, test_size=0.5, random_state=0)
    X, y = adult.data.loc[train], adult.target[train]
    X_monitor = adult.data.loc[monitor]  # whose labels nobody looks at
    X_test, y_test = adult.data.loc[test], adult.target[test]
    print(
        f"Adult: {len(train):,} training rows, {len(monitor):,} rows without labels to monitor, "
        f"{len(test):,} test rows;\n{y.mean():.1%} of the training rows are positive.\n"
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
        plain = PLAIN[library](**params).fit(X, y)
        scores = [plain.predict_proba(table)[:, 1] for table in (X, X_monitor, X_test)]
        chosen_by: dict[tuple[str, float | None], list[Any]] = {}
        for rule in RULES:
            chosen_by[rule, None] = [score > 0.5 for score in scores]
        for budget in BUDGETS:
            for rule in RULES[:3]:
                model = CONSTRAINED[library](constraints=constraints(rule, budget), **params)
                on_monitor = {"datasets": {"monitor": X_monitor}} if rule == MONITOR else {}
                model.fit(X, y, **on_monitor)
                chosen_by[rule, budget] = [model.predict(t) for t in (X, X_monitor, X_test)]
            # The labels are not needed, so the threshold may look at the monitored rows.
            threshold = np.quantile(scores[1], 1.0 - budget, method="higher")
            chosen_by[THRESHOLD, budget] = [score > threshold for score in scores]
        for (rule, budget), (on_train, on_monitor_rows, on_test) in chosen_by.items():
            records.append(
                {
                    "library": library,
                    "rule": rule,
                    "requested": None if budget is None else 100 * budget,
                    "train": 100 * np.mean(on_train),
                    "monitor": 100 * np.mean(on_monitor_rows),
                    "test": 100 * np.mean(on_test),
                    "accuracy": 100 * np.mean(on_test == y_test),
                    "precision": 100 * precision_score(y_test, on_test, zero_division=np.nan),
                }
            )
    table = pd.DataFrame(records)
    print(
        "Persons selected in per cent, as requested, of the training, the monitored and the test "
        "rows; accuracy\nand precision on the test rows in per cent. 'none' is the plain model."
    )
    for library in libraries:
        own = table[table["library"] == library].drop(columns="library")
        own = own.sort_values("rule", key=lambda rule: rule.map(RULES.index), kind="stable")
        own = own.drop(own.index[own["requested"].isna()][1:])  # the plain model once
        own.loc[own["requested"].isna(), "rule"] = "plain model"
        print(f"\n{library}:")
        print(own.to_string(index=False, na_rep="none", float_format="{:.2f}".format))
    print(
        "\nA budget that is kept on training rows, or on monitored ones, proves nothing about new "
        "rows: the test\ncolumn tells. Trees that are trained under a rule on monitored rows "
        "learn to tell these apart from\nothers; a threshold that is set on them leaves them "
        "unseen by the trees. For one budget alone prefer\nthe threshold."
    )
    plot(table, args.output / "coverage_budget.png")


def constraints(rule: str, budget: float) -> list[Constraint]:
    if rule == MONITOR:
        return [selection_rate(on=dataset("monitor")) <= budget]
    both = [selection_rate() <= budget, precision() >= PRECISION]
    return both[:1] if rule == BUDGET else both


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


def plot(table: pd.DataFrame, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(table, axes, series="rule", variant="library")
    left.set_xlabel("budget (% of rows)")
    left.set_ylabel("selected (% of rows)")
    right.set_xlabel("selected of the test rows (%)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("Adult: persons selected, asked for and found, and the accuracy that is left")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved {path}")


if __name__ == "__main__":
    main()
