"""Constraints and costs that count money, on Credit, where a missed fraud costs its amount.

The bundled sample of Credit in five stratified halves, XGBoost and LightGBM with 100 rounds.

    python benchmarks/amounts.py [amounts costs] [--library xgboost] [--output FOLDER]

- amounts: the value of missed fraud and what it costs in false alarms, under
  ``fnr(weight="Amount") <= 0.1``. The peers are the plain booster with a threshold on its score
  that misses a tenth of the value at most: on the same held-out rows as the constrained fit
  (``solver="threshold"``), and on folds of its own, written without this package.
- costs: the expected cost of decisions. A missed fraud costs its amount, and each alarm the price
  of a review. The objective of the fits is this cost, with each oracle. The peers are written
  without this package: the plain booster and the booster whose rows weigh what an error on them
  costs, each with the threshold of least cost on folds of its own, and the decision by the amount
  of the row itself, ``P(fraud | x) a > price``, which no threshold of one model can make.

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from libraries import LIBRARIES, make, make_plain
from result_file import Figures, Table, make_parser, run_tables
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from gbm_constrained import cost, fnr
from gbm_constrained.datasets import load_credit
from gbm_constrained.solvers import Reduction

BOUND = 0.1
PRICE = 3.0  # Of a review, in the currency of the amounts.
OPTIONS = {"n_estimators": 100, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
ORACLES = ("plug_in", "refit", "in_training", "auto")


def split_credit(seed: int) -> tuple[Any, ...]:
    """Split Credit in halves: features, labels and amounts, of each those of training first."""
    credit = load_credit(download=False)
    X, X_test, y, y_test = train_test_split(
        credit.data, credit.target.to_numpy(), test_size=0.5, stratify=credit.target,
        random_state=seed,
    )  # fmt: skip
    amounts = (table["Amount"].to_numpy(np.float64) for table in (X, X_test))
    return X, X_test, y, y_test, *amounts


def scores_of(library: str, X: Any, y: Any, X_test: Any, **given: Any) -> tuple[Any, Any]:
    """Train the plain booster; its scores out of fold, and those of the test rows."""
    model, folds = make_plain(library, **OPTIONS), StratifiedKFold(5, shuffle=True, random_state=0)
    score = cross_val_predict(model, X, y, cv=folds, method="predict_proba", params=given)[:, 1]
    return score, model.fit(X, y, **given).predict_proba(X_test)[:, 1]


def threshold_for_value(score: Any, y: Any, amount: Any) -> float:
    """Find the highest threshold under which at most a tenth of the value scores below it."""
    order = np.argsort(score[y == 1])
    value = amount[y == 1][order]
    missed = np.cumsum(value) / value.sum()
    return float(score[y == 1][order][np.searchsorted(missed, BOUND, side="right")])


def measure(decided: Any, y: Any, amount: Any, held_out: float) -> Figures:
    """Count the value and the rows that are missed, with the bootstrap's error, and alarms."""
    missed, value = decided[y == 1] == 0, amount[y == 1]
    drawn = np.random.default_rng(0).integers(0, value.size, (2000, value.size))
    shares = (value * missed)[drawn].sum(axis=1) / value[drawn].sum(axis=1)
    return {
        "missed_value": value @ missed / value.sum(),
        "standard_error": shares.std(),
        "missed_rows": missed.mean(),
        "false_alarms": decided[y == 0].mean(),
        "held_out": held_out,
    }


def fit_amounts(library: str, method: str, seed: int) -> Figures:
    """Train on one half, and measure on the other."""
    X, X_test, y, y_test, amount, amount_test = split_credit(seed)
    if method != "own folds":
        solver = "auto" if method == "constrained" else "threshold"
        model = make(library, [fnr(weight="Amount") <= BOUND], solver=solver, **OPTIONS).fit(X, y)
        decided, held_out = model.predict(X_test), model.constraint_report_["held_out"][0]
    else:
        score, new = scores_of(library, X, y, X_test)
        threshold = threshold_for_value(score, y, amount)
        held_out = amount[(y == 1) & (score < threshold)].sum() / amount[y == 1].sum()
        decided = (new >= threshold).astype(int)
    return measure(decided, y_test, amount_test, held_out)


def cost_of(alarm: Any, y: Any, amount: Any) -> Any:
    """Cost of each row."""
    return np.where(alarm, PRICE, np.where(y == 1, amount, 0.0))


def cheapest_threshold(score: Any, y: Any, amount: Any) -> float:
    """Find the threshold above which alarms cost least."""
    order = np.argsort(-score)
    total = np.append(0.0, np.where(y == 1, PRICE - amount, PRICE)[order].cumsum())
    ends = np.concatenate([[np.inf], score[order], [-np.inf]])
    is_possible = ends[:-1] > ends[1:]
    best = int(np.where(is_possible, total, np.inf).argmin())
    is_inside = 0 < best < score.size
    return float(ends[best : best + 2].mean() if is_inside else np.copysign(np.inf, -best))


def weights_of_errors(y: Any, amount: Any) -> Any:
    """Weigh each row by what an error on it costs, with a mean of one."""
    weight = np.where(y == 1, np.maximum(amount - PRICE, 0.0), PRICE)
    return weight / weight.mean()


def fit_costs(library: str, method: str, seed: int) -> Figures:
    """Train on one half, and measure the alarms on the other, and the cost on held-out rows."""
    X, X_test, y, y_test, amount, amount_test = split_credit(seed)
    start = time.perf_counter()
    if method in ORACLES:
        objective = cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, PRICE], [0, PRICE]])
        solver = Reduction(oracle=method)
        model = make(library, None, minimize=objective, solver=solver, **OPTIONS).fit(X, y)
        report = model.metric_report_
        alarm = model.predict(X_test) == 1
        held_out = report.loc[report["is_returned"], "held_out"].iloc[0]
    else:
        is_weighted = method == "weighted threshold"
        given = {"sample_weight": weights_of_errors(y, amount)} if is_weighted else {}
        score, new = scores_of(library, X, y, X_test, **given)
        if method == "amount of the row":
            known, alarm = score * amount > PRICE, new * amount_test > PRICE
        else:
            threshold = cheapest_threshold(score, y, amount)
            known, alarm = score > threshold, new > threshold
        held_out = cost_of(known, y, amount).mean()
    seconds = time.perf_counter() - start
    missed = amount_test[(y_test == 1) & ~alarm].sum() / amount_test[y_test == 1].sum()
    return {
        "cost": cost_of(alarm, y_test, amount_test).mean(),
        "missed_value": missed,
        "alarms": alarm.mean(),
        "held_out": held_out,
        "seconds": seconds,
    }


TABLES = {
    "amounts": Table(
        fit_amounts,
        {
            "library": LIBRARIES,
            "method": ("constrained", "threshold", "own folds"),
            "seed": range(5),
        },
        "{library:9s} {method:12s} missed value {missed_value:.4f} (splits {missed_value each}, "
        "bootstrap {standard_error:.4f}); false alarms {false_alarms:.5f}; missed rows "
        "{missed_rows:.4f}",
    ),
    "costs": Table(
        fit_costs,
        {
            "library": LIBRARIES,
            "method": ("plain threshold", "weighted threshold", "amount of the row", *ORACLES),
            "seed": range(5),
        },
        "{library:9s} {method:18s} cost {cost:.3f} (splits {cost each}); held out {held_out:.3f}; "
        "missed value {missed_value:.3f}; alarms {alarms:.4f}; {seconds:.1f} s",
    ),
}


if __name__ == "__main__":
    run_tables(TABLES, "amounts", make_parser(__doc__), library=LIBRARIES)
