"""Distributions of finitely many atoms: exact oracles, functionals, and the paper's examples.

An atom x has joint weights W[x, i] = P(X = x, Y = i). A functional is a table of what deciding
class j at atom x adds to it, so that u is linear in the decisions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.stats import norm


class AtomOracle:
    """The exact oracle of functionals ``effect`` of shape (d, M, n)."""

    def __init__(self, effect):
        self.effect = np.asarray(effect, dtype=float)
        self.calls = 0

    def __call__(self, cost):
        self.calls += 1
        table = np.tensordot(cost, self.effect, axes=1)
        decisions = table.shape[1] - 1 - table[:, ::-1].argmin(axis=1)  # ties: the larger class
        return decisions.astype(np.int8).tobytes(), self.u_of(decisions)

    def u_of(self, decisions):
        """Functionals of one class for each atom."""
        return self.effect[:, np.arange(len(decisions)), decisions].sum(axis=1)


def recalls(W):
    """Effects on the recall of each class, of shape (n, M, n)."""
    return np.einsum("xi,ij->ixj", W / W.sum(axis=0), np.eye(W.shape[1]))


def shares(W):
    """Effects on the share of rows predicted as each class, of shape (n, M, n)."""
    return np.einsum("x,ij->ixj", W.sum(axis=1), np.eye(W.shape[1]))


def confusion(W):
    """Effects on the joint confusion matrix, row by row, of shape (n * n, M, n)."""
    n = W.shape[1]
    return np.einsum("xi,jk->ijxk", W, np.eye(n)).reshape(n * n, len(W), n)


def coverage_rows(n, skip, target, within):
    """Rows of |q_j - target_j| <= within, for shares that stand behind `skip` functionals."""
    one = np.hstack([np.zeros((n, skip)), np.eye(n)])
    return np.vstack([one, -one]), np.append(target + within, within - target)


def try_all_rules(oracle):
    """Functionals of all n^M rules, of shape (n^M, d)."""
    _, M, n = oracle.effect.shape
    return np.array(
        [oracle.u_of(np.array(rule)) for rule in itertools.product(range(n), repeat=M)]
    )


def solve_exactly(effect, A, b, cuts=None, ratio=None):
    """Minimise over randomised rules by a linear programme in the decisions of each atom.

    ``cuts(u)`` gives the value and a subgradient of a convex objective (Kelley's cutting planes);
    ``ratio`` the coefficients of a ratio (the Charnes-Cooper programme). None if infeasible.
    """
    d, M, n = effect.shape
    flat = effect.reshape(d, M * n)
    simplex = np.kron(np.eye(M), np.ones((1, n)))
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    if ratio is not None:
        a, a0, c, c0 = ratio  # y = s P, with (c.u + c0) s = 1
        found = linprog(
            np.append(a @ flat, a0),
            A_ub=np.hstack([A @ flat, -b[:, None]]) if len(b) else None,
            b_ub=np.zeros(len(b)) if len(b) else None,
            A_eq=np.vstack(
                [np.hstack([simplex, -np.ones((M, 1))]), np.append(c @ flat, c0)[None]]
            ),
            b_eq=np.append(np.zeros(M), 1.0),
            options=options,
        )
        return found.fun if found.success else None
    rows, right = [], []
    for _ in range(300):
        n_cuts = len(rows)
        table = np.vstack([A @ flat, *(row[None] @ flat for row in rows)])
        t = np.append(np.zeros(len(b)), -np.ones(n_cuts))
        found = linprog(
            np.append(np.zeros(M * n), 1.0),
            A_ub=np.hstack([table, t[:, None]]) if len(t) else None,
            b_ub=np.append(b, right) if len(t) else None,
            A_eq=np.hstack([simplex, np.zeros((M, 1))]),
            b_eq=np.ones(M),
            bounds=[(0, None)] * (M * n) + [(-10, None)],
            options=options,
        )
        if not found.success:
            return None
        u = flat @ found.x[:-1]
        value, slope = cuts(u)
        if value - found.x[-1] <= 1e-9:
            return value
        rows.append(slope)
        right.append(slope @ u - value)
    raise AssertionError("the reference did not converge")


@dataclass
class Example:
    """A distribution: joint weights of atoms and classes, and groups of atoms."""

    W: np.ndarray
    group: np.ndarray | None = None

    @property
    def priors(self):
        return self.W.sum(axis=0)


def paper_synthetic(bins=4000):
    """Section 8.3 of the paper on the line that its classes lie on, cut into equal intervals."""
    edges = np.linspace(-9 * np.sqrt(6), 9 * np.sqrt(6), bins + 1)
    mean = np.sqrt(2) * np.array([1.0, 0.0, -1.0])
    cdf = norm.cdf((edges[:, None] - mean) / np.sqrt(6))
    return Example(np.diff(cdf, axis=0) / np.ptp(cdf, axis=0) * np.array([0.85, 0.1, 0.05]))


def paper_fairness(bins=1200):
    """Two groups whose classes differ by 2 and by 1 standard deviations, as separate cells."""
    edges = np.linspace(-8, 8, bins + 1)
    parts, groups = [], []
    for a, (share, positive, delta) in enumerate([(0.7, 0.4, 1.0), (0.3, 0.2, 0.5)]):
        cdf = norm.cdf(edges[:, None] - delta * np.array([-1.0, 1.0]))
        mass = np.diff(cdf, axis=0) / np.ptp(cdf, axis=0)
        parts.append(mass * share * np.array([1 - positive, positive]))
        groups.append(np.full(bins, a))
    return Example(np.vstack(parts), np.concatenate(groups))
