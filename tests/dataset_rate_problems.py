"""Random problems of rates of data sets, which several test modules share."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from gbm_constrained.linear_model import WeightedSVM
from gbm_constrained.solvers.dataset_rates import RateProblem, ramp


def ramp_values(problem, z):
    """Compute all functions of the ramp of scores z, Problem 2 of the source paper."""
    return problem.values(ramp(z), ramp(-z))


class RateProblemDraw:
    """Rows of two overlapping partitions into data sets, and m rules that zeros meet.

    Costs are of either sign. `slack` is added to the value of each rule at scores of zero.
    """

    def __init__(self, seed, m, n=150, d=3, slack=0.02, l2=0.02):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
        label = self.X @ rng.normal(size=d) + rng.normal(size=n) > 0.3
        group = rng.integers(0, 3, n)
        weight = rng.gamma(2.0, size=n)
        members = [label, ~label, *(group == g for g in range(3)), label & (group == 1)]
        self.members = np.array(members, dtype=float) * weight
        shares = sparse.csr_array(self.members / self.members.sum(axis=1, keepdims=True))
        costs = rng.normal(size=(1 + m, len(members), 2)) * (rng.random((1 + m, 6, 1)) < 0.6)
        costs[0] = 0.0
        costs[0, 0, 0], costs[0, 1, 1] = 0.4, 0.6
        self.costs, self.rng = costs, rng
        self.bounds = costs[1:].sum(axis=(1, 2)) / 2 + slack
        names = tuple(f"rule {j}" for j in range(m))
        self.problem = RateProblem.of(shares, costs, self.bounds, names)
        self.model = WeightedSVM(self.X, l2)
        self.zeros = np.zeros(d + 1)
