"""Folds in time against random folds: how far the reported rate is from that of the next period.

A stream has known rates. Its base rate rises, and what the features say of the label turns, by the
same step in each period ("drift"), or not at all ("steady"). A model is trained on five periods
under a bound on fnr or fpr, cross-fitted by random folds or by windows that expand
(``measure_on="forward"``). "reported" is the value of the constraint on held-out rows in
``constraint_report_``, "latest" that of the last period in ``period_report_``, and "later" the
rate of the model on many rows of the period after. Errors are the differences of both from it.

On Credit (``--credit``), rows are in the order of ``Time``, the model is trained on the first four
fifths of them, and "later" is the last fifth.

    python benchmarks/forward.py [--repetitions 200] [--libraries lightgbm xgboost] [--credit]
        [--csv FILE]

Each fit is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from arguments import at_least
from numpy.typing import NDArray
from result_file import ResultFile

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, fnr, fpr
from gbm_constrained.datasets import load_credit

COLUMNS = (
    "stream", "library", "rule", "repetition", "measure_on", "reported", "low", "high", "latest",
    "later",
)  # fmt: skip
RESULTS = Path(__file__).parent / "results" / "forward.csv"
N_PERIODS, N_ROWS, N_LATER = 5, 500, 20_000
TURN, RISE = 0.35, 0.25  # Of the coefficients in radians, and of the log-odds, in each period.
SMALL: dict[str, dict[str, Any]] = {
    "lightgbm": {"n_estimators": 30, "num_leaves": 7, "learning_rate": 0.2, "verbose": -1},
    "xgboost": {"n_estimators": 30, "max_depth": 3, "learning_rate": 0.2},
}
CLASSIFIERS: dict[str, Any] = {
    "lightgbm": ConstrainedLGBMClassifier,
    "xgboost": ConstrainedXGBClassifier,
}
RULES = {"fnr": fnr() <= 0.2, "fpr": fpr() <= 0.1}


def draw(
    rng: np.random.Generator, time: NDArray[Any], *, drifts: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Draw rows of given periods, whose labels depend on two of four features."""
    at = time if drifts else np.zeros(time.size)
    X = rng.normal(size=(time.size, 4))
    score = np.cos(TURN * at) * X[:, 0] + np.sin(TURN * at) * X[:, 1]
    log_odds = 3.0 * score - 1.5 + RISE * at
    return X, (rng.random(time.size) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)


def rate_of(rule: str, y: NDArray[Any], decided: NDArray[Any]) -> float:
    """Compute the rate of errors on one class."""
    label = 1 if rule == "fnr" else 0
    return float((decided[y == label] != label).mean())


def measure(
    library: str, rule: str, measure_on: str, rows: tuple[Any, ...], later: tuple[Any, Any]
) -> dict[str, Any]:
    """Fit a model, and set its report against a later period."""
    X, y, time = rows
    given = {"time": time} if measure_on == "forward" else {}
    model = CLASSIFIERS[library](
        constraints=[RULES[rule]], measure_on=measure_on, random_state=0, n_jobs=1,
        **SMALL[library],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, **given)
    report, (X_later, y_later) = model.constraint_report_.iloc[0], later
    found = rate_of(rule, y_later, model.predict(X_later))
    return {
        "library": library, "rule": rule, "measure_on": measure_on,
        "reported": report.held_out, "low": report.low, "high": report.high,
        "latest": model.period_report_["value"].iloc[-1] if given else np.nan, "later": found,
    }  # fmt: skip


def simulate(
    repetition: int, library: str, rule: str, *, drifts: bool
) -> Iterator[dict[str, Any]]:
    """Measure both ways on one draw of the stream."""
    rng = np.random.default_rng(repetition)
    time = np.repeat(np.arange(N_PERIODS), N_ROWS)
    rows = *draw(rng, time, drifts=drifts), time
    later = draw(rng, np.full(N_LATER, N_PERIODS), drifts=drifts)
    for measure_on in ("crossfit", "forward"):
        yield measure(library, rule, measure_on, rows, later)


def read_credit(library: str, rule: str) -> Iterator[dict[str, Any]]:
    """Measure both ways on the card transactions by their time."""
    credit = load_credit(full=True)
    table = credit.data.assign(is_fraud=np.asarray(credit.target)).sort_values(
        "Time", kind="stable"
    )
    time, y = table["Time"].to_numpy(), table["is_fraud"].to_numpy().astype(int)
    X, n = table.drop(columns=["Time", "is_fraud"]), 4 * y.size // 5
    for measure_on in ("crossfit", "forward"):
        yield measure(library, rule, measure_on, (X[:n], y[:n], time[:n]), (X[n:], y[n:]))


def summarise(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Write the mean errors of each stream, library and rule, with their standard errors."""
    table = pd.DataFrame(rows)
    for name in ("reported", "latest", "later"):
        table[name] = table[name].astype(object).astype(float)
    lines = []
    for key, part in table.groupby(["stream", "library", "rule", "measure_on"]):
        lines.append(" ".join(key) + f", {len(part)} fits, later {part['later'].mean():.3f}")
        for name in ("reported", "latest"):
            error = (part[name] - part["later"]).abs().dropna()
            if len(error):
                lines[-1] += f", {name} {part[name].mean():.3f}, error {error.mean():.4f}"
                lines[-1] += f" +- {error.sem():.4f}" if len(error) > 1 else ""
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=at_least(1), default=200)
    parser.add_argument("--libraries", nargs="+", choices=[*SMALL], default=[*SMALL])
    parser.add_argument("--credit", action="store_true", help="the card transactions instead")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    options = parser.parse_args()
    file = ResultFile(options.csv, COLUMNS)
    keys = ("stream", "library", "rule", "repetition")
    done = {tuple(row[name] for name in keys) for row in file.rows()}
    streams = ("Credit",) if options.credit else ("drift", "steady")
    repetitions = range(1 if options.credit else options.repetitions)
    for i, library, rule, stream in product(repetitions, options.libraries, RULES, streams):
        if (stream, library, rule, str(i)) in done:
            continue
        if stream == "Credit":
            found = list(read_credit(library, rule))
        else:
            found = list(simulate(i, library, rule, drifts=stream == "drift"))
        for row in found:
            file.append({"stream": stream, "repetition": i, **row})
    print("\n".join(summarise(file.rows())))


if __name__ == "__main__":
    main()
