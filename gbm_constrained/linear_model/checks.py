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


def check_supported_with_metric(model: Any, fit: dict[str, Any]) -> None:
    """Refuse what has no meaning where decisions are made by probabilities of all classes.

    Parameters
    ----------
    model : LogisticRegression
        The classifier.
    fit : dict from str to object
        Arguments of ``fit`` that are about iterations under constraints, by name.

    Raises
    ------
    ValueError
        If there is one.
    """
    if model.solver == "liblinear":
        raise ValueError(
            "solver='liblinear' fits one model for each class, and a metric is optimised over "
            "decisions by the probabilities of all classes: use solver='lbfgs'."
        )
    for name, value in fit.items():
        if value:
            raise ValueError(
                f"{name}={value!r} is about the iterations of a fit under constraints, and with "
                f"maximize= or minimize= scikit-learn fits the model: leave it out."
            )
