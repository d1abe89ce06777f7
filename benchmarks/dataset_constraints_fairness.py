"""Ratios of selection rates of two groups of a9a: the parts of `dataset_constraints.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import dataset_constraints_data as data
import numpy as np
from numpy.typing import NDArray
from result_file import Measurements

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLinearSVC,
    ConstrainedLogisticRegression,
    ConstrainedXGBClassifier,
    selection_rate,
)
from gbm_constrained.solvers.dataset_rates import ramp

Scores: TypeAlias = NDArray[np.float64]

N_RATIOS = 24
BOOSTER_RATIOS = (1.0, 1.25, 1.5, 2.0, 3.0)
# Of Zafar's constraint, from none to its tightest.
MULTIPLIERS = {
    data.MALE: np.linspace(0.0, 0.078, N_RATIOS),
    data.EDUCATION: np.linspace(0.0, 0.1, N_RATIOS),
}
STRENGTHS = np.append(1 - np.logspace(-0.5, -2.5, N_RATIOS - 1), 1.0)
HELD_OUT = {
    "ramp": (1.0, 1.1, 1.2, 1.35, 1.5, 1.7, 1.9, 2.1, 2.3, 2.5, 2.7, 3.0, 3.2),
    "zafar hinge": tuple(round(float(v), 6) for v in np.linspace(0.0, 0.072, 13)),
}
HELD_OUT_RATIOS, HELD_OUT_SEEDS = (1.05, 1.25, 1.5, 2.0, 2.5, 3.0), range(3)
HELD_OUT_NAMES, HELD_OUT_FIGURES = ("method", "value", "seed"), ("error", "ratio")
TREES = {"n_estimators": 100, "learning_rate": 0.1, "n_jobs": 1}
NAMES = ("method", "value")
FIGURES = (
    *(f"{how}{of}_{what}" for of in ("train", "test") for how in ("", "random_")
      for what in ("error", "ratio")),
    "seconds",
)  # fmt: skip


def list_runs(column: int) -> list[tuple[str, float]]:
    """List the methods, each with its ratios or strengths; fewer by the education bin."""
    is_sex = column == data.MALE
    ratios = np.linspace(1.0, 4.0 if is_sex else 6.5, N_RATIOS)
    swept = {"ramp": ratios, "zafar hinge": MULTIPLIERS[column]}
    if is_sex:
        swept["ramp"] = np.union1d(ratios, BOOSTER_RATIOS)
        swept |= {"zafar ramp": STRENGTHS, "hinge": ratios, "logistic": swept["ramp"]}
        swept |= dict.fromkeys(("xgboost", "lightgbm"), np.array(BOOSTER_RATIOS))
    runs = [(method, round(float(value), 6)) for method, values in swept.items()
            for value in values]  # fmt: skip
    return [("svm", np.inf), *runs]


def make_classifier(method: str, rule: Any) -> Any:
    """Make the classifier of a method, with defaults but for a booster's trees."""
    if method in ("ramp", "hinge"):
        options = data.HINGES if method == "hinge" else {}
        return ConstrainedLinearSVC(constraints=[rule], **options)
    if method == "logistic":
        return ConstrainedLogisticRegression(constraints=[rule])
    if method == "xgboost":
        return ConstrainedXGBClassifier(constraints=[rule], max_depth=4, verbosity=0, **TREES)
    return ConstrainedLGBMClassifier(constraints=[rule], num_leaves=15, verbose=-1, **TREES)


def train(
    table: data.Table, group: NDArray[np.bool_], method: str, value: float
) -> Callable[[Any], Scores]:
    """Train a method, and return a function that scores rows by it."""
    if method == "svm":
        return data.fit_plain(table).decision_function
    if method.startswith("zafar"):
        fit = data.fit_zafar_hinge if method == "zafar hinge" else data.fit_zafar_ramp
        found = fit(table, group, value)
        return lambda X: X @ found[:-1] + found[-1]
    inside, outside = (selection_rate(on={"group": name}) for name in ("yes", "no"))
    model = make_classifier(method, inside / outside <= value)
    model.fit(table.X, table.y, sensitive_features={"group": np.where(group, "yes", "no")})
    if hasattr(model, "decision_function"):
        return model.decision_function
    return lambda X: np.where(model.predict(X), 1.0, -1.0)


def tell(of: str, y: NDArray[np.bool_], group: NDArray[np.bool_], z: Scores) -> dict[str, float]:
    """Compute errors and ratios of selection rates, decided by the sign and at random."""
    found = {}
    for how, p in (("", (z > 0).astype(float)), ("random_", ramp(z))):
        found[f"{how}{of}_error"] = float(np.where(y, 1 - p, p).mean())
        found[f"{how}{of}_ratio"] = float(p[group].mean() / max(p[~group].mean(), 1e-12))
    return found


def measure(column: int, method: str, value: float) -> dict[str, float]:
    """Train a method at a ratio, or at a strength of Zafar's, and measure it."""
    training, began = data.load_a9a("a9a"), time.process_time()
    score = train(training, data.is_in(training, column), method, value)
    figures = {"seconds": time.process_time() - began}
    for of, name in (("train", "a9a"), ("test", "a9a.t")):
        table = data.load_a9a(name)
        figures |= tell(of, table.y, data.is_in(table, column), score(table.X))
    return figures


def measure_held_out(method: str, value: float, seed: int) -> dict[str, float]:
    """Train on two thirds of the training rows, and measure decisions on the others, by sex."""
    training, held_out = data.split_training(seed)
    score = train(training, data.is_in(training, data.MALE), method, value)
    figures = tell("", held_out.y, data.is_in(held_out, data.MALE), score(held_out.X))
    return {"error": figures["_error"], "ratio": figures["_ratio"]}


def run_held_out(results: Measurements) -> None:
    """Compare errors at equal ratios on held-out parts of the training rows."""
    print("held-out ratio; error of ramp rates less that of Zafar's constraint, standard error")
    differences = []
    for seed in HELD_OUT_SEEDS:
        errors = []
        for method, values in HELD_OUT.items():
            found = [
                results.once(partial(measure_held_out, method, value, seed), method, value, seed)
                for value in values
            ]
            path = sorted((row["ratio"], row["error"]) for row in found)
            errors.append(np.interp(HELD_OUT_RATIOS, *np.transpose(path)))
        differences.append(errors[0] - errors[1])
    error = np.std(differences, axis=0, ddof=1) / len(differences) ** 0.5
    for shown in zip(HELD_OUT_RATIOS, np.mean(differences, axis=0), error, strict=True):
        print("{:5} {:+.4f} {:.4f}".format(*shown), flush=True)


def run(results: Measurements, column: int) -> None:
    """Measure all methods by a column, and print their test figures."""
    print("method         value  error @ ratio by the sign, error @ ratio at random, CPU seconds")
    for method, value in list_runs(column):
        found = results.once(partial(measure, column, method, value), method, value)
        by_sign, at_random = (
            f"{found[f'{how}test_error']:.4f} @ {found[f'{how}test_ratio']:6.3f}"
            for how in ("", "random_")
        )
        print(f"{method:12} {value:7.4f}  {by_sign}  {at_random} {found['seconds']:6.1f}",
              flush=True)  # fmt: skip
