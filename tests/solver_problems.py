"""Small problems of solvers, and boosters of leaves with one row."""

import numpy as np

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPPSolver

Y = np.repeat([0, 1], 4)


# Four positives, of which 2, 1 and 0 are missed; all negatives are recognised.
HALF, QUARTER, NONE = (
    np.array([-1.0] * (4 + missed) + [1.0] * (4 - missed)) for missed in (2, 1, 0)
)


def build(y, constraints=(), weight=None, **options):
    cells, compiled = compile_constraints(constraints, Rows(y, np.unique(y), weight))
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def draw(n_classes, n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    scores = rng.normal(size=n if n_classes == 2 else (n, n_classes))
    return y, scores, rng.gamma(2.0, size=n), rng.random(n) < 0.5


def run(solver, n_rounds, start, rate=0.3):
    """Descend as a booster of one-row leaves does; every answer of the solver."""
    margin, answers = start.copy(), []
    for _ in range(n_rounds):
        grad, hess = (x.copy() for x in solver(margin))
        answers.append((grad, hess))
        margin -= rate * grad / (hess + 1e-3)
    return answers


# Three rows: two of the gap.
GAP = [gc.gap(gc.error_rate(), by="g", min_group_size=1) <= 0.1, gc.fnr() <= 0.1]


def with_groups(*, lazy=True, **options):
    groups = np.tile([0, 1], 4)
    cells, compiled = compile_constraints(GAP, Rows(Y, np.array([0, 1]), None, {"g": groups}))
    return ABPPSolver(Lagrangian(Y, cells, compiled), lazy=lazy, **options)
