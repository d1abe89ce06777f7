"""Checks of the parameters of a constrained logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_parameters(estimator: Any) -> None:
    """Refuse parameters of the parent that have no meaning under constraints."""
    n = estimator.n_iterations
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n_iterations must be an integer >= 1, got {n!r}.")
    refused = {
        "penalty": (
            estimator.penalty not in (None, "l2", "deprecated"),
            "constraints take an L2 penalty (C) or none (C=np.inf)",
        ),
        "l1_ratio": (
            estimator.l1_ratio not in (None, 0),
            "constraints take an L2 penalty: use l1_ratio=0 and set C",
        ),
        "dual": (estimator.dual, "use dual=False"),
        "intercept_scaling": (
            estimator.intercept_scaling != 1,
            "the intercept is not penalised: use intercept_scaling=1",
        ),
        "solver": (
            estimator.solver == "liblinear",
            "'liblinear' penalises the intercept: use solver='lbfgs'",
        ),
    }
    for name, (is_refused, remedy) in refused.items():
        if is_refused:
            value = getattr(estimator, name)
            raise ValueError(f"{name}={value!r} is not supported under constraints: {remedy}.")
