"""Majorising steps by held-out training rows: a part of `dataset_constraints.py`.

No test rows are read here, so that the default number of steps can be chosen by these figures.
"""

from __future__ import annotations

from functools import partial

import dataset_constraints_data as data
import numpy as np
from result_file import Measurements, column
from scipy import sparse

from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.dataset_rates import (
    MajorizationMinimization,
    RateProblem,
    find_start,
    ramp,
)

RATIOS, SEEDS = (1.0, 1.25, 2.0, 3.0), range(3)
STEPS = (2, 4, 6, 8, 10, 12, 16, 20)
METHOD = MajorizationMinimization(max_iter=STEPS[-1], tol=1e-5)
NAMES = ("ratio", "seed")
FIGURES = tuple(f"{what}_{k}" for what in ("objective", "error", "random_error") for k in STEPS)


def measure(ratio: float, seed: int) -> dict[str, float]:
    """Train on two thirds of the training rows of a9a, and measure each step on the others."""
    training, held_out = data.split_training(seed)
    y, is_male = training.y, data.is_in(training, data.MALE)
    members = np.array([y, ~y, is_male, ~is_male], dtype=float)
    costs = np.zeros((2, 4, 2))
    costs[0, 0, 0], costs[0, 1, 1] = y.mean(), 1 - y.mean()
    costs[1, 2, 1], costs[1, 3, 0] = 1 / ratio, 1.0
    shares = sparse.csr_array(members / members.sum(axis=1, keepdims=True))
    problem = RateProblem.of(shares, costs, np.ones(1), ("ratio",))
    model = WeightedSVM(training.X, 2 / y.size)
    steps = METHOD.solve(problem, model, find_start(problem, model, METHOD).coefficients)
    figures = {}
    for k in STEPS:
        step = steps[min(k, len(steps) - 1)]
        z = held_out.X @ step.coefficients[:-1] + step.coefficients[-1]
        p = ramp(z)
        figures[f"objective_{k}"] = step.objective
        figures[f"error_{k}"] = float(((z > 0) != held_out.y).mean())
        figures[f"random_error_{k}"] = float(np.where(held_out.y, 1 - p, p).mean())
    return figures


def run(results: Measurements) -> None:
    """Measure all ratios, and print means over them and over the parts."""
    found = [
        results.once(partial(measure, ratio, seed), ratio, seed)
        for ratio in RATIOS
        for seed in SEEDS
    ]
    print(
        "means after each number of steps: ramp objective, held-out error by the sign, at random"
    )
    for k in STEPS:
        means = [
            column(found, f"{what}_{k}").mean() for what in ("objective", "error", "random_error")
        ]
        print(k, " ".join(f"{mean:.4f}" for mean in means), flush=True)
