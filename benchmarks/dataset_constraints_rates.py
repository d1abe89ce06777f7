"""Churn to a deployed model, and Neyman-Pearson: parts of `dataset_constraints.py`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, TypeAlias

import dataset_constraints_data as data
import numpy as np
from dataset_constraints_data import HINGES, Table
from numpy.typing import NDArray
from result_file import Measurements, column

from gbm_constrained import ConstrainedLinearSVC, churn, dataset, fpr, recall
from gbm_constrained.solvers.dataset_rates import ramp

Decided: TypeAlias = NDArray[np.bool_]
Scores: TypeAlias = NDArray[np.float64]

SEEDS = range(5)
CHURNS = (0.01, 0.02, 0.03, 0.05, 0.1)
FALSE_POSITIVES = (0.001, 0.003, 0.01, 0.03, 0.1)
HOW = ("", "random_")  # By the sign of the score, and positive with the ramp's probability.
CHURN_NAMES = ("data", "method", "bound", "seed")
CHURN_FIGURES = (
    *(f"{how}{of}_{what}" for of in ("train", "test") for how in HOW
      for what in ("error", "recall", "churn")),
    "seconds",
)  # fmt: skip
NP_NAMES = ("method", "bound", "seed")
NP_FIGURES = ("train_fpr", "random_train_fpr", "test_fpr", "test_fnr", "seconds")


def decide(z: Scores) -> dict[str, Scores]:
    """Compute the probabilities of positive decisions, by the sign and at random."""
    return dict(zip(HOW, ((z > 0).astype(float), ramp(z)), strict=True))


def tell_churn(of: str, labelled: Table, z: Scores, old: Decided, new: Scores) -> dict[str, float]:
    """Compute error and recall on labelled rows, and churn from old decisions by new scores."""
    found, others = {}, decide(new)
    for how, p in decide(z).items():
        found[f"{how}{of}_error"] = float(np.where(labelled.y, 1 - p, p).mean())
        found[f"{how}{of}_recall"] = float(p[labelled.y].mean())
        found[f"{how}{of}_churn"] = float(np.where(old, 1 - others[how], others[how]).mean())
    return found


def measure_churn(name: str, method: str, bound: float, seed: int) -> dict[str, float]:
    """Train a successor of the deployed model, and measure it."""
    rows = data.split_churn(name, seed)
    deployed, positive = data.fit_plain(rows.deployed), rows.labelled.y
    least = float(deployed.predict(rows.labelled.X)[positive].mean())
    model, shift, began = deployed, 0.0, time.process_time()
    if method == "ramp":
        rules = [churn(to=deployed, on=dataset("recent")) <= bound, recall() >= least]
        model = ConstrainedLinearSVC(constraints=rules, initial_model=deployed)
        model.fit(*rows.labelled, datasets={"recent": rows.unlabelled.X})
    elif method != "deployed":
        model = data.fit_plain(rows.labelled)
    if method == "thresholded":
        scores = model.decision_function(rows.labelled.X)[positive]
        shift = data.find_shift(scores, least, at_least=True)
    figures = {"seconds": time.process_time() - began}
    for of, labelled, others in (
        ("train", rows.labelled, rows.unlabelled),
        ("test", rows.test, rows.test),
    ):
        z, new = (model.decision_function(part.X) + shift for part in (labelled, others))
        figures |= tell_churn(of, labelled, z, deployed.predict(others.X), new)
    return figures


def run_churn(results: Measurements) -> None:
    """Measure a9a and Default of credit at all bounds, and print means over the splits."""
    runs = [("deployed", 0.0), ("svm", 1.0), ("thresholded", 1.0)]
    runs += [("ramp", bound) for bound in CHURNS]
    print("means: test error, churn and recall, by the sign; at random; training churn of both")
    shown = [f"{how}test_{what}" for how in HOW for what in ("error", "churn", "recall")]
    shown += ["train_churn", "random_train_churn"]
    for name in ("a9a", "default"):
        for method, bound in runs:
            found = [
                results.once(partial(measure_churn, name, method, bound, seed),
                             name, method, bound, seed)
                for seed in SEEDS
            ]  # fmt: skip
            print_means(f"{name:8} {method:12} {bound:5}", found, shown)


def print_means(title: str, found: list[Any], shown: list[str]) -> None:
    """Print the means of figures, and of the seconds."""
    row = " ".join(f"{column(found, figure).mean():.4f}" for figure in shown)
    print(f"{title} {row} {column(found, 'seconds').mean():6.1f} s", flush=True)


def measure_false_positives(method: str, bound: float, seed: int) -> dict[str, float]:
    """Train for both error rates on Credit under a bound of one of them, and measure it."""
    training, test = data.split_credit(seed)
    began, shift = time.process_time(), 0.0
    if method == "shift":
        model = data.fit_plain(training, class_weight="balanced")
        scores = model.decision_function(training.X)[~training.y]
        shift = data.find_shift(scores, bound, at_least=False)
    else:
        options = HINGES if method == "hinge" else {}
        rules = [fpr() <= bound]
        model = ConstrainedLinearSVC(constraints=rules, class_weight="balanced", **options)
        model.fit(training.X, training.y)
    seconds = time.process_time() - began
    z = model.decision_function(training.X)[~training.y] + shift
    decided = model.decision_function(test.X) + shift > 0
    figures = ((z > 0).mean(), ramp(z).mean(), decided[~test.y].mean(), (~decided)[test.y].mean())
    return dict(zip(NP_FIGURES, (*map(float, figures), seconds), strict=True))


def run_neyman_pearson(results: Measurements) -> None:
    """Measure Credit at all bounds, and print means over the splits."""
    print("means: false positive rate in training, its ramp rate, both test error rates")
    for bound in FALSE_POSITIVES:
        for method in ("ramp", "hinge", "shift"):
            found = [
                results.once(partial(measure_false_positives, method, bound, seed),
                             method, bound, seed)
                for seed in SEEDS
            ]  # fmt: skip
            print_means(f"{bound:6} {method:8}", found, list(NP_FIGURES[:-1]))
