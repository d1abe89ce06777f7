"""Folds in time against random folds: how far the reported rate is from that of the next period.

A stream has known rates. Its base rate rises, and what the features say of the label turns, by the
same step in each period ("drift"), or not at all ("steady"). A model is trained on five periods
under a bound on fnr or fpr, cross-fitted by random folds or by windows that expand
(``measure_on="forward"``). "reported" is the value of the constraint on held-out rows in
``constraint_report_``, "latest" that of the last period in ``period_report_``, and "later" the
rate of the model on many rows of the period after. Errors are the differences of both from it.

On Credit rows are in the order of ``Time``, the model is trained on the first four fifths of them,
and "later" is the last fifth.

    python benchmarks/forward.py [forward credit] [--repetitions 200] [--library lightgbm xgboost]
        [--output FOLDER]

Each fit is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from libraries import LIBRARIES, make
from numpy.typing import NDArray
from result_file import Figures, Table, at_least, make_parser, run_tables

from gbm_constrained import fnr, fpr
from gbm_constrained.datasets import load_credit

N_PERIODS, N_ROWS, N_LATER = 5, 500, 20_000
TURN, RISE = 0.35, 0.25  # Of the coefficients in radians, and of the log-odds, in each period.
RULES = {"fnr": fnr() <= 0.2, "fpr": fpr() <= 0.1}
WAYS = ("crossfit", "forward")


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


def draw_stream(repetition: int, *, drifts: bool) -> tuple[Any, ...]:
    """Draw features, labels and times of the stream, then those of the period after."""
    rng = np.random.default_rng(repetition)
    time, later = np.repeat(np.arange(N_PERIODS), N_ROWS), np.full(N_LATER, N_PERIODS)
    return *draw(rng, time, drifts=drifts), time, *draw(rng, later, drifts=drifts)


def read_credit() -> tuple[Any, ...]:
    """Read the card transactions by their time: the same, the last fifth being later."""
    credit = load_credit(full=True)
    table = credit.data.assign(is_fraud=np.asarray(credit.target)).sort_values(
        "Time", kind="stable"
    )
    time, y = table["Time"].to_numpy(), table["is_fraud"].to_numpy().astype(int)
    X, n = table.drop(columns=["Time", "is_fraud"]), 4 * y.size // 5
    return X[:n], y[:n], time[:n], X[n:], y[n:]


def measure(stream: str, library: str, rule: str, repetition: int, measure_on: str) -> Figures:
    """Fit a model, and set its report against a later period."""
    X, y, time, X_later, y_later = (
        read_credit() if stream == "Credit" else draw_stream(repetition, drifts=stream == "drift")
    )
    size = {"max_depth": 3} if library == "xgboost" else {"num_leaves": 7}
    model = make(
        library, [RULES[rule]], measure_on=measure_on, random_state=0, n_jobs=1, n_estimators=30,
        learning_rate=0.2, **size,
    )  # fmt: skip
    is_forward = measure_on == "forward"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, **({"time": time} if is_forward else {}))
    report = model.constraint_report_.iloc[0]
    return {
        "reported": report.held_out,
        "low": report.low,
        "high": report.high,
        "latest": model.period_report_["value"].iloc[-1] if is_forward else np.nan,
        "later": rate_of(rule, y_later, model.predict(X_later)),
    }


def summarise(table: pd.DataFrame) -> str:
    """Write the mean errors of each stream, library and rule, with their standard errors."""
    lines = []
    for key, part in table.groupby(["stream", "library", "rule", "measure_on"]):
        lines.append(" ".join(key) + f", {len(part)} fits, later {part['later'].mean():.3f}")
        for name in ("reported", "latest"):
            error = (part[name] - part["later"]).abs().dropna()
            if len(error):
                lines[-1] += f", {name} {part[name].mean():.3f}, error {error.mean():.4f}"
                lines[-1] += f" +- {error.sem():.4f}" if len(error) > 1 else ""
    return "\n".join(lines)


def table_of(streams: tuple[str, ...], repetitions: int) -> Table:
    """Make the table of some streams."""
    names = {
        "stream": streams,
        "library": LIBRARIES,
        "rule": RULES,
        "repetition": range(repetitions),
        "measure_on": WAYS,
    }
    return Table(measure, names, summary=summarise, file="forward")


TABLES = {"forward": table_of(("drift", "steady"), 200), "credit": table_of(("Credit",), 1)}


if __name__ == "__main__":
    run_tables(TABLES, "", make_parser(__doc__), library=LIBRARIES, repetition=at_least(1))
