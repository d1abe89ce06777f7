"""Rows that count for amounts, and the same rows repeated as often."""

import numpy as np

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 60


def draw(n_classes=2, n=N, seed=0):
    """Labels with every class present, scores, whole amounts with zeros, and two groups."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
    amount = rng.integers(0, 5, n)
    amount[: 2 * n_classes] = 1
    group = np.arange(n) % 2
    return y, margin, amount, group


def rules(n_classes, weight):
    """Constraints of each kind whose rows count for amounts."""
    options = {} if weight is None else {"weight": weight}
    common = [
        gc.error_rate(**options) <= 0.2,
        gc.class_error(1, on={"group": 1}, **options) <= 0.1,
        gc.gap(gc.class_error(0, **options), by="group", min_group_size=1) <= 0.1,
        gc.log_loss(**options) <= 0.5,
        gc.selection_rate(1, **options) - gc.class_error(1, **options) <= 0.3,
    ]
    binary = [gc.precision(**options) >= 0.7, gc.fnr(**options) <= 0.1, gc.f1(**options) >= 0.5]
    return [*common, *(binary if n_classes == 2 else [])]


def compile_rows(constraints, y, columns, weight=None, n_classes=2):
    rows = Rows(y, np.arange(n_classes), weight, columns)
    return compile_constraints(constraints, rows)


def lagrangian(constraints, y, columns, weight=None, n_classes=2, **options):
    cells, compiled = compile_rows(constraints, y, columns, weight, n_classes)
    return Lagrangian(y, cells, compiled, weight=weight, **options)
