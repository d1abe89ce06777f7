"""Random rows with weights and scores, and constraints on them."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from gbm_constrained.constraints.rates import class_error, error_rate, fnr, fpr, log_loss
from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 120


CLASS_COUNTS = [2, 3, 7]


def draw(n_classes, n=N, seed=0, ties=True):
    """Labels with every class present, scores with ties, positive weights and two masks."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
    if ties:
        margin[::5] = 0.0
        margin[1::7] = np.round(margin[1::7])
    weight = rng.gamma(2.0, size=n)
    masks = rng.random((2, n)) < [[0.6], [0.3]]
    masks[:, :n_classes] = True
    return y, margin, weight, masks


def decisions(margin):
    """Positive margins are class 1, a tie is class 0; the first of the largest scores wins."""
    return np.where(margin > 0, 1, 0) if margin.ndim == 1 else margin.argmax(axis=1)


def measure(constraints, y, margin, weight=None, classes=None, **options):
    """Value of each bounded rate."""
    if classes is None:
        classes = np.arange(2 if margin.ndim == 1 else margin.shape[1])
    cells, compiled = compile_constraints(constraints, Rows(y, classes, weight))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight, **options)
    return compiled.rates(lagrangian.at(margin).statistics())


def log_probability(margin):
    scores = np.stack([np.zeros_like(margin), margin], axis=1) if margin.ndim == 1 else margin
    return log_softmax(scores, axis=1)


def some_constraints(n_classes, masks):
    binary = [fpr() <= 0.1, fnr() <= 0.1, fpr(on=masks[0]) <= 0.1, fnr(on=masks[1]) <= 0.1]
    return [
        error_rate() <= 0.1,
        error_rate(on=masks[0]) <= 0.1,
        error_rate(on=label(1)) <= 0.1,
        class_error(n_classes - 1) <= 0.1,
        class_error(0, on=masks[1]) <= 0.1,
        log_loss() <= 0.1,
        log_loss(on=masks[1]) <= 0.1,
        log_loss(on=label(1)) <= 0.1,
        *(binary if n_classes == 2 else []),
    ]
