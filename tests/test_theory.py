"""ABPP against exact solutions: the rates, the multipliers and the step sizes of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from gbm_constrained.cells import Cells, compile_constraints, masks_of
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.learners import DictionaryLearner, LinearLearner, leaf_indicators
from gbm_constrained.rates import fnr, label, log_loss
from gbm_constrained.solvers import ABPP

CASES = [
    (n_classes, kind, l2)
    for n_classes in (2, 7)
    for kind in ("linear", "dictionary")
    for l2 in (0.0, 0.3)
]
NAMES = [f"{k}-{kind}-{'mu>0' if l2 else 'mu=0'}" for k, kind, l2 in CASES]
WEIGHTS = (0.1, 0.06, 0.04)  # about the multipliers of the three constraints


@dataclass
class Problem:
    """A learner, and the exact solution of its problem."""

    learner: DictionaryLearner
    optimum: float
    weights: np.ndarray
    multipliers: np.ndarray


def _lagrangian(y, n_classes, constraints, weight=None, **options) -> Lagrangian:
    cells = Cells.build(y, np.arange(n_classes), weight, masks_of(constraints))
    compiled = compile_constraints(constraints, cells)
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def _minimise(S, offset, y, n_classes, shares, l2, bounds=None) -> tuple[Any, float, Any]:
    """Solve the problem with cvxpy: ``shares[0] @ loss``, subject to ``shares[j] @ loss <= b_j``."""
    if n_classes == 2:
        x = cp.Variable(S.shape[1])
        loss = cp.logistic(cp.multiply(1 - 2 * y, S @ x + offset))
    else:
        x = cp.Variable((S.shape[1], n_classes))
        F = S @ x + np.broadcast_to(offset, (len(y), n_classes))
        loss = cp.log_sum_exp(F, axis=1) - cp.sum(cp.multiply(F, np.eye(n_classes)[y]), axis=1)
    rules = [] if bounds is None else [
        s @ loss <= b for s, b in zip(shares[1:], bounds, strict=True)
    ]  # fmt: skip
    objective = shares[0] @ loss + l2 / 2 * cp.sum_squares(x)
    problem = cp.Problem(cp.Minimize(objective), rules)
    tol = 1e-9 if rules else 1e-6
    problem.solve("CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    assert problem.status == "optimal"
    duals = np.array([float(rule.dual_value) for rule in rules])
    return x.value, float(problem.value), duals if rules else loss.value


@cache
def problem(n_classes: int, kind: str, l2: float) -> Problem:
    """Three constraints on overlapping rows; the bounds are those of a re-weighted fit, rounded."""
    rng = np.random.default_rng(n_classes)
    prior = np.arange(9, n_classes + 9) / np.arange(9, n_classes + 9).sum()
    n = 40 * n_classes + 120
    y = rng.choice(n_classes, n, p=prior)
    X = 0.4 * rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(n, 3))
    weight = rng.uniform(0.5, 1.5, n)
    mask = X[:, 0] > 0
    offset: Any = 0.0
    S = X
    if kind == "linear" and l2 == 0:
        S = np.hstack([X, np.ones((n, 1))])
    elif kind == "dictionary":
        S = leaf_indicators(np.digitize(X[:, :2], [-0.5, 0.5])).toarray()
        if n_classes > 2:
            S = np.tanh(X @ rng.normal(size=(3, 6)) + rng.normal(size=6))
    shares = [weight, weight * (y == 0), weight * (y == 1), weight * mask]
    shares = [s / s.sum() for s in shares]
    mixed = shares[0] + sum(c * s for c, s in zip(WEIGHTS, shares[1:], strict=True))
    *_, loss = _minimise(S, offset, y, n_classes, [mixed], l2)
    bounds = [float(np.ceil(1e3 * (s @ loss)) / 1e3) for s in shares[1:]]
    x, optimum, duals = _minimise(S, offset, y, n_classes, shares, l2, bounds)
    rules = [
        log_loss(on=on) <= b
        for on, b in zip((label(0), label(1), mask), bounds, strict=True)
    ]  # fmt: skip
    lagrangian = _lagrangian(y, n_classes, rules, weight)
    learner = (
        LinearLearner(lagrangian, X, fit_intercept=l2 == 0, l2=l2)
        if kind == "linear"
        else DictionaryLearner(lagrangian, S, offset=offset, l2=l2)
    )
    return Problem(learner, optimum, x, duals)
