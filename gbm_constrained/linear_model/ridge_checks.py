"""Checks of the parameters of a constrained ridge regression."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_X_y

from gbm_constrained.data.validation import (
    check_choice,
    check_integer,
    check_share,
    is_finite_number,
)
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_functions import curvature_range
from gbm_constrained.solvers.base import check_positive
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.options import SolverOptions

RidgeLoss: TypeAlias = Literal["squared", "huber", "quantile"]
LOSSES: tuple[RidgeLoss, ...] = get_args(RidgeLoss)


def objective_of(estimator: Any) -> RegressionObjective:
    """Make the objective of an estimator, and check its parameters."""
    check_choice("loss", estimator.loss, LOSSES)
    check_positive("huber_delta", estimator.huber_delta)
    check_share("quantile", estimator.quantile)
    parameter = {"huber": estimator.huber_delta, "quantile": estimator.quantile}
    return RegressionObjective(estimator.loss, float(parameter.get(estimator.loss, np.nan)))


def check_parameters(estimator: Any, options: SolverOptions) -> None:
    """Refuse parameters that have no meaning under constraints, or wrong values."""
    check_integer("n_iterations", estimator.n_iterations, 1)
    check_choice("iterate", estimator.iterate, ("last", "ergodic"))
    alpha = estimator.alpha
    if not (np.ndim(alpha) == 0 and is_finite_number(alpha) and alpha >= 0):
        raise ValueError(
            f"alpha must be one number of at least zero under constraints, got {alpha!r}."
        )
    if not (is_finite_number(estimator.tol) and estimator.tol >= 0):
        raise ValueError(f"tol must be a number of at least zero, got {estimator.tol!r}.")
    if estimator.positive:
        raise ValueError(
            "positive=True is not supported under constraints, whose solver leaves the signs of "
            "coefficients free: use positive=False."
        )
    method = options.method
    if method.outlier_clip is not None or method.proxy != "auto":
        raise ValueError(
            f"outlier_clip={method.outlier_clip!r} and proxy={method.proxy!r} are about "
            f"probabilities of classes: leave both out, and bound losses of outliers by "
            f"mean_loss('huber')."
        )


def check_curvature(compiled: LinearConstraints) -> None:
    """Refuse differences of losses that have a kink, which no method solves."""
    for j in range(len(compiled)):
        if (found := _find_kink(compiled, j)) is not None:
            raise ValueError(
                f"{compiled.rows[j]} subtracts {found}, whose curvature has no bound: use "
                f"mean_loss('huber', delta=...) with a small delta, or mean_loss('squared')."
            )


def _find_kink(compiled: LinearConstraints, j: int) -> str | None:
    """Name a convex function without a largest curvature that a row subtracts."""
    functions = compiled.row_functions
    row = compiled.A[[j]]
    columns = row.indices[row.data < 0.0]
    for function in (functions[k] for k in np.unique(columns % max(len(functions), 1))):
        if function.is_convex and np.isinf(curvature_range(function, 1.0)[1]):
            return str(
                next(t.name for c in compiled.constraints for t in c.terms if t.event == function)
            )
    return None


def check_rows(X: Any, y: Any, sample_weight: Any) -> Any:
    """Check features, targets and lengths, and return the weight of each row."""
    check_X_y(X, y, accept_sparse=("csr", "csc", "coo"), y_numeric=True)
    sample_weight = weight_of_rows(sample_weight, y)
    check_consistent_length(X, sample_weight)
    return sample_weight
