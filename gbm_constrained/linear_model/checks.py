"""Checks of the parameters of a constrained logistic regression."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from gbm_constrained.data.validation import refuse_lazy
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.solvers.reduction import Reduction
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.options import LINEAR_SOLVER, SolverName, SolverOptions


def read_options(estimator: Any) -> SolverOptions:
    """Read the options of constraints, and refuse solvers of the parent that do not go with them.

    A metric is optimised over decisions by the probabilities of all classes.
    """
    given = estimator.solver
    is_name = isinstance(given, str) and given in get_args(SolverName)
    if is_name or isinstance(given, (SolverMethod, Reduction)):
        raise ValueError(
            f"solver={given!r} is for constraints, and solver is the parameter of scikit-learn's "
            f"LogisticRegression here: give {LINEAR_SOLVER}={given!r}."
        )
    options = SolverOptions.of(estimator)
    if options.metric is not None and given == "liblinear":
        raise ValueError(
            "solver='liblinear' fits one model for each class, and a metric is optimised over "
            "decisions by the probabilities of all classes: use solver='lbfgs'."
        )
    return options


def check_parameters(estimator: Any) -> None:
    """Refuse parameters of the parent that have no meaning under constraints."""
    if estimator.iterate in ("best", "randomized"):
        raise ValueError(
            f"iterate={estimator.iterate!r} is about prefixes of an ensemble, and a linear model "
            f"has none: use 'last' or 'ergodic'."
        )
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


def check_rows(X: Any, y: Any, sample_weight: Any) -> Any:
    """Check labels and lengths, and return the weight of each row."""
    refuse_lazy(X, "X")
    sample_weight = weight_of_rows(sample_weight, y)
    check_consistent_length(X, y, sample_weight)
    check_classification_targets(y)
    return sample_weight
