"""Checks of the parameters and the constraints of a constrained AUC scorer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints, check_linear
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.data.validation import (
    check_choice,
    check_integer,
    check_share,
    is_finite_number,
)
from gbm_constrained.solvers.base import check_positive
from gbm_constrained.solvers.pair_rules import PairRule

SOLVERS = ("level_set", "exact")


def check_parameters(estimator: Any) -> tuple[Constraint, ...]:
    """Refuse parameters of a wrong type or value, and return the constraints as a tuple."""
    check_integer("hidden", estimator.hidden, 0)
    for name in ("batch_size", "n_steps", "max_levels", "n_proximal_points"):
        check_integer(name, getattr(estimator, name), 1)
    for name in ("c1", "c2", "learning_rate", "dual_learning_rate", "interval"):
        check_positive(name, getattr(estimator, name))
    for name in ("tol", "proximal_weight", "slack"):
        value = getattr(estimator, name)
        if not (is_finite_number(value) and value >= 0):
            raise ValueError(f"{name} must be a non-negative number, got {value!r}.")
    for name in ("relative_tol", "first_level"):
        if getattr(estimator, name) is not None:
            check_positive(name, getattr(estimator, name))
    if not (is_finite_number(estimator.theta) and estimator.theta >= 1):
        raise ValueError(
            f"theta must be a number >= 1, got {estimator.theta!r}: with less, a level may fall "
            f"below the optimum."
        )
    check_share("validation_fraction", estimator.validation_fraction)
    check_choice("solver", estimator.solver, SOLVERS)
    if estimator.solver == "exact" and estimator.hidden:
        raise ValueError(
            f"solver='exact' is for linear scores, and hidden={estimator.hidden!r}: use "
            f"solver='level_set', or hidden=0."
        )
    constraints = check_constraints(estimator.constraints)
    check_linear(constraints)
    refuse_priorities(constraints, "pair rates all keep their bounds: leave with_priority out")
    for constraint in constraints:
        if not constraint.is_pair:
            raise ValueError(
                f"constraints: {constraint} is no rule on pair rates, and this method knows no "
                f"others: bound auc(), cross_auc() or mean_rank(), or use "
                f"ConstrainedLogisticRegression."
            )
    return constraints


def check_feasible(rules: Sequence[PairRule], c1: float, c2: float) -> None:
    """Refuse rules that no scores meet under the square surrogate.

    A rule and its opposite have surrogates that add up to ``2 c1 c2^2`` times the sum of the
    absolute coefficients, or more. For a difference of two pair rates and both bounds kappa that
    is ``2 c1 c2^2 <= 1 + kappa``.

    Raises
    ------
    ValueError
        If the limits of a rule and its opposite add up to less.
    """
    for first, second in combinations(rules, 2):
        if first.negated_terms() != frozenset(second.terms):
            continue
        size = sum(abs(term.coefficient) for term in first.terms)
        room = (first.bound + second.bound) / size
        needed = 2 * c1 * c2**2
        if needed > 1 + room + np.finfo(float).eps:
            raise ValueError(
                f"c1={c1!r} and c2={c2!r} leave no score that meets {first.name!r} under the "
                f"square surrogate: 2 c1 c2^2 = {needed:g} must be at most 1 + kappa = "
                f"{1 + room:g}. Use c1=0.5 and c2=1.0, or a larger bound or slack."
            )


def check_two_classes(classes: Array, y: Codes, weight: Float | None) -> None:
    """Refuse more classes than two, and a class without weight.

    Parameters
    ----------
    classes : (n_classes,). Sorted labels.
    y : (n_samples,). Class index of each row.
    weight : (n_samples,). Weight of each row; ones where None.
    """
    if classes.size > 2:
        raise ValueError(
            f"Only binary classification is supported, and y holds {classes.size} classes: give "
            f"y == label, one class against the others."
        )
    left = np.bincount(y, weight, 2) > 0
    if not left.all():
        raise ValueError(
            f"sample_weight is zero on all rows of class {classes[~left].tolist()[0]!r}: give "
            f"rows of both classes a positive weight."
        )


def check_split(n_training: int, n_validation: int, validation_fraction: float) -> None:
    """Refuse a split that leaves no rows to train on, or none to choose a level by."""
    if not (n_training and n_validation):
        raise ValueError(
            f"validation_fraction={validation_fraction!r} splits the rows into {n_training} for "
            f"training and {n_validation} for validation, and neither can be empty: give more "
            f"rows, or another fraction."
        )
