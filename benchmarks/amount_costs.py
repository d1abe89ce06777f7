"""The expected cost of decisions on Credit, where a missed fraud costs its amount.

The bundled sample of Credit in five stratified halves, XGBoost and LightGBM with 100 rounds. A
missed fraud costs its amount, and each alarm the price of a review. The objective of the fits is
this cost, with each oracle. The peers are written without this package: the plain booster and the
booster whose rows weigh what an error on them costs, each with the threshold of least cost on
folds of its own, and the decision by the amount of the row itself, ``P(fraud | x) a > price``,
which no threshold of one model can make.

    python benchmarks/amount_costs.py [--library xgboost] [--output FOLDER]

Each fit is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

import argparse
import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from amounts import LIBRARIES, SEEDS
from amounts import OPTIONS as OF_AMOUNTS
from result_file import Measurements, column
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from gbm_constrained import cost
from gbm_constrained.datasets import load_credit
from gbm_constrained.solvers import Reduction

OPTIONS = {**OF_AMOUNTS, "n_jobs": 1}  # Seconds are then those of work, on a shared machine too.
PRICE = 3.0  # Of a review, in the currency of the amounts.
OBJECTIVE = cost([[0, 0], [1, 0]], weight="Amount") + cost([[0, PRICE], [0, PRICE]])
ORACLES = ("plug_in", "refit", "in_training", "auto")
PEERS = ("plain threshold", "weighted threshold", "amount of the row")
NAMES = ("library", "method", "seed")
FIGURES = ("cost", "missed_value", "alarms", "held_out", "seconds")
RESULTS = Path(__file__).parent / "results" / "amount_costs"


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


def decide(library: str, method: str, data: tuple[Any, ...]) -> tuple[Any, float]:
    """Train on one half; returns the alarms in the other one, and the cost on held-out rows."""
    X, X_test, y, _ = data
    amount, amount_test = (table["Amount"].to_numpy(np.float64) for table in (X, X_test))
    constrained, plain, quiet = LIBRARIES[library]
    if method in ORACLES:
        model = constrained(
            minimize=OBJECTIVE, solver=Reduction(oracle=method), **OPTIONS, **quiet
        ).fit(X, y)
        report = model.metric_report_
        return model.predict(X_test) == 1, report.loc[report["is_returned"], "held_out"].iloc[0]
    model, folds = plain(**OPTIONS, **quiet), StratifiedKFold(5, shuffle=True, random_state=0)
    is_weighted = method == "weighted threshold"
    given = {"sample_weight": weights_of_errors(y, amount)} if is_weighted else {}
    score = cross_val_predict(model, X, y, cv=folds, method="predict_proba", params=given)[:, 1]
    new = model.fit(X, y, **given).predict_proba(X_test)[:, 1]
    if method == "amount of the row":
        return new * amount_test > PRICE, cost_of(score * amount > PRICE, y, amount).mean()
    threshold = cheapest_threshold(score, y, amount)
    return new > threshold, cost_of(score > threshold, y, amount).mean()


def fit(library: str, method: str, seed: int) -> dict[str, float]:
    """Train on one half, and measure on the other."""
    credit = load_credit(download=False)
    y = credit.target.to_numpy()
    data = train_test_split(credit.data, y, test_size=0.5, stratify=y, random_state=seed)
    start = time.perf_counter()
    alarm, held_out = decide(library, method, data)
    seconds = time.perf_counter() - start
    y_test, amount = data[3], data[1]["Amount"].to_numpy(np.float64)
    missed = amount[(y_test == 1) & ~alarm].sum() / amount[y_test == 1].sum()
    return {
        "cost": cost_of(alarm, y_test, amount).mean(),
        "missed_value": missed,
        "alarms": alarm.mean(),
        "held_out": held_out,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", choices=LIBRARIES, nargs="*", default=list(LIBRARIES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    results = Measurements(asked.output / "amount_costs.csv", NAMES, FIGURES)
    for library, method in itertools.product(asked.library, (*PEERS, *ORACLES)):
        found = [
            results.once(partial(fit, library, method, seed), library, method, seed)
            for seed in SEEDS
        ]
        of_splits = column(found, "cost")
        print(
            f"{library:9s} {method:18s} cost {of_splits.mean():.3f} "
            f"(splits {of_splits.round(3)}); held out {column(found, 'held_out').mean():.3f}; "
            f"missed value {column(found, 'missed_value').mean():.3f}; alarms "
            f"{column(found, 'alarms').mean():.4f}; {column(found, 'seconds').mean():.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
