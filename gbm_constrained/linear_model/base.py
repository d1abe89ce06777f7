"""Parameters that the linear models have in common."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained._typing import Array
from gbm_constrained.data.validation import refuse_lazy
from gbm_constrained.fit.fit import weight_of_rows
from gbm_constrained.fit.options import LINEAR_SOLVER, SolverName, SolverOptions
from gbm_constrained.solvers.base import Reduction, SolverMethod

# Balanced classes are of equal weight since scikit-learn 1.7, and of equal count before.
_WEIGHTED_BALANCE = "sample_weight" in inspect.signature(compute_class_weight).parameters


def find_class_factor(class_weight: Any, classes: Array, y: Array, sample_weight: Any) -> Array:
    """Find the factor of each class in the objective.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        The parameter, by label.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y : ndarray of shape (n_samples,), intp
        Class index of each row.
    sample_weight : ndarray of shape (n_samples,) or None
        Weight of each row.
    """
    if isinstance(class_weight, dict):
        named = enumerate(classes.tolist())
        class_weight = {k: class_weight[c] for k, c in named if c in class_weight}
    given = {"sample_weight": sample_weight} if _WEIGHTED_BALANCE else {}
    positions = np.arange(classes.size)
    return np.asarray(compute_class_weight(class_weight, classes=positions, y=y, **given))


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


FIT_PARAMETERS = {
    "X": """\
X : array-like or sparse matrix of shape (n_samples, n_features)
    Features.""",
    "y": """\
y : array-like of shape (n_samples,)
    Labels.""",
    "sample_weight": """\
sample_weight : array-like of shape (n_samples,), default=None
    Weights, in the objective and in the rates.""",
    "sensitive_features": """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.""",
    "datasets": """\
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are not in
    the objective. Prepared as X is, for no step of a ``Pipeline`` transforms them; their groups
    are columns of X.""",
    "constraint_callbacks": """\
constraint_callbacks : sequence of callable, default=None
    Called in each iteration with a
    :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, it is the
    last one.""",
    "time_limit": """\
time_limit : float, default=None
    Seconds after which the iterations end, and the best so far is returned, which
    ``stopping_message_`` and a warning say.""",
}
RAISES = """\
Raises
------
TypeError, ValueError
    If a parameter is not supported under constraints, or constraints, targets and weights do not
    fit together; before training starts."""


def document_fit(method: Function) -> Function:
    """Add the arguments that the method does not describe, and its errors."""
    return document_parameters(method, FIT_PARAMETERS, RAISES)
