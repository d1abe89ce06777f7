"""A budget on Adult
=================

Select at most so many persons, here and where no label is known::

    python examples/coverage_budget.py

Trains XGBoost and LightGBM under ``selection_rate() <= budget`` on the training rows; on an
unlabelled monitor set, ``selection_rate(on=dataset("monitor")) <= budget``; and with
``precision() >= 0.9`` besides. The competitor is a threshold on the plain model's score that
spends the same budget. Prints what is selected and how well, and saves a figure.
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
from sklearn.metrics import precision_score
from sklearn.model_selection import train_test_split

from gbm_constrained import Constraint, dataset, precision, selection_rate
from gbm_constrained.datasets import load_adult

# %%
# The budgets
# -----------
# Three budgets, each spent in four ways: the last is a threshold on the plain model.
BUDGETS = [0.15, 0.1, 0.05]
PRECISION = 0.9
BUDGET, MONITOR = "budget on training rows", "budget on monitored rows"
PRECISE, THRESHOLD = f"budget, precision >= {PRECISION:g}", "threshold, monitored rows"
RULES = [BUDGET, MONITOR, PRECISE, THRESHOLD]
PLAIN_MODEL = "plain model"


# %%
# Training and measuring
# ----------------------
# The labels of the monitored rows are never looked at.
def main() -> None:
    args = parse_arguments(__doc__, rounds=150, rows=48_842, least=200)
    adult = load(load_adult, data_home=args.data_home)
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

    records, models = [], {}
    for library in args.libraries:
        params = parameters(library, args)
        plain = PLAIN[library](**params).fit(X, y)
        scores = [plain.predict_proba(rows)[:, 1] for rows in (X_monitor, X_test)]
        decided: dict[tuple[str, float | None], list[Any]] = {}
        decided[PLAIN_MODEL, None] = [score > 0.5 for score in scores]
        fitted: dict[tuple[str, float | None], Any] = {}
        for rule in RULES[:3]:
            for budget in BUDGETS:
                model = CONSTRAINED[library](constraints=constraints(rule, budget), **params)
                on_monitor = {"datasets": {"monitor": X_monitor}} if rule == MONITOR else {}
                fitted[rule, budget] = model.fit(X, y, **on_monitor)
                decided[rule, budget] = [model.predict(rows) for rows in (X_monitor, X_test)]
                models[f"{library}, {rule}, {100 * budget:g}"] = model
        for budget in BUDGETS:
            # The labels are not needed, so the threshold may look at the monitored rows.
            threshold = np.quantile(scores[0], 1.0 - budget, method="higher")
            decided[THRESHOLD, budget] = [score > threshold for score in scores]
        for (rule, budget), (on_monitored, on_test) in decided.items():
            records.append(
                {
                    "library": library,
                    "rule": rule,
                    "requested": None if budget is None else 100 * budget,
                    **out_of_fold(fitted.get((rule, budget))),
                    "monitor": 100 * np.mean(on_monitored),
                    "test": 100 * np.mean(on_test),
                    "accuracy": 100 * np.mean(on_test == y_test),
                    "precision": 100 * precision_score(y_test, on_test, zero_division=np.nan),
                }
            )
    table = pd.DataFrame(records)
    print(
        "Persons selected in per cent: as requested; out of fold, with its 95% interval; of the "
        "monitored rows; of the\ntest rows. Accuracy and precision on the test rows in per cent."
    )
    for library in args.libraries:
        print(f"\n{library}:")
        own = table[table["library"] == library].drop(columns="library")
        print(own.to_string(index=False, na_rep="-", float_format="{:.2f}".format))
    print_notes(models)
    print(
        "\nOut of fold, trees decide about rows that they have not seen, of those that the rule "
        "is about: the training or the\nmonitored ones. The column 'monitor' is no evidence where "
        "they were trained on: trees learn to tell them apart. For\none budget alone a threshold "
        "on the plain model's score costs less and does as much; it is further rules, such as\n"
        "the precision, that take training."
    )
    plot(table, args.output / "coverage_budget.png")


def out_of_fold(model: Any) -> dict[str, Any]:
    """Give the selection rate on rows that the trees have not seen, and its interval."""
    if model is None:
        return {"unseen": np.nan, "interval": ""}
    row = model.constraint_report_.iloc[0]
    return {"unseen": 100 * row["held_out"], "interval": interval(row["low"], row["high"])}


def constraints(rule: str, budget: float) -> list[Constraint]:
    if rule == MONITOR:
        return [selection_rate(on=dataset("monitor")) <= budget]
    both = [selection_rate() <= budget, precision() >= PRECISION]
    return both[:1] if rule == BUDGET else both


# %%
# The figure
# ----------
def plot(table: pd.DataFrame, path: Path) -> None:
    # The plain model is where each line starts.
    plain = table[table["rule"] == PLAIN_MODEL]
    ruled = table[table["rule"] != PLAIN_MODEL]
    table = pd.concat([*(plain.assign(rule=rule) for rule in RULES), ruled])
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    left, right = plot_requested(
        table, axes, train="unseen", train_name="out of fold", series="rule", variant="library"
    )
    left.set_xlabel("budget (% of rows)")
    left.set_ylabel("selected (% of rows)")
    right.set_xlabel("selected of the test rows (%)")
    right.set_ylabel("accuracy on the test rows (%)")
    figure.suptitle("Adult: persons selected, asked for and found, and the accuracy that is left")
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
