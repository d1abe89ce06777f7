"""Random rows in sets, the six metrics of pair rates, and the square surrogate by brute force."""

from __future__ import annotations

import numpy as np

from gbm_constrained.solvers.level_set import PairRule, PairTerm, density_ratios

# Columns of `members_of`: labels, groups, everything, and labels in groups.
POSITIVE, NEGATIVE, PROTECTED, OTHER, ALL = range(5)
POSITIVE_PROTECTED, POSITIVE_OTHER, NEGATIVE_PROTECTED, NEGATIVE_OTHER = range(5, 9)
N_SETS = 9

METRICS = {
    "group AUC": ((PROTECTED, OTHER), (ALL, ALL)),
    "inter-group": ((POSITIVE_PROTECTED, NEGATIVE_OTHER), (POSITIVE_OTHER, NEGATIVE_PROTECTED)),
    "intra-group": ((POSITIVE_PROTECTED, NEGATIVE_PROTECTED), (POSITIVE_OTHER, NEGATIVE_OTHER)),
    "positive gap": ((POSITIVE_PROTECTED, POSITIVE), (ALL, ALL)),
    "negative gap": ((NEGATIVE_PROTECTED, NEGATIVE), (ALL, ALL)),
    "BPSN - BNSP": ((POSITIVE, NEGATIVE_PROTECTED), (POSITIVE_PROTECTED, NEGATIVE)),
}


def members_of(y, group, weight):
    """Weigh the rows in each set of the catalogue; (n, 9)."""
    y, group = y.astype(bool), group.astype(bool)
    masks = [y, ~y, group, ~group, np.ones_like(y), y & group, y & ~group, ~y & group]
    return np.stack([*masks, ~y & ~group], axis=1) * weight[:, None]


class PairProblem:
    """Rows with features, labels and a group, which both depend on the features."""

    def __init__(self, seed=0, n=150, d=4):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, d))
        self.group = (self.X[:, 1] + 0.5 * rng.normal(size=n) > 0.4).astype(int)
        noise = rng.logistic(size=n)
        self.y = (1.5 * self.X[:, 0] + 0.8 * self.X[:, 1] - 0.5 + noise > 0).astype(int)
        self.weight = rng.uniform(0.2, 2.0, n)
        self.members = members_of(self.y, self.group, self.weight)
        self.ratios = density_ratios(self.members)
        self.scores = self.X @ rng.normal(size=d)


def bound_difference(first, second, bound):
    """Write ``|AUC(first) - AUC(second)| <= bound`` as two rules; (2) of the paper."""
    return [
        PairRule((PairTerm(sign, *first), PairTerm(-sign, *second)), bound) for sign in (1.0, -1.0)
    ]


def rules_of(metric, bound):
    """Bound the absolute difference of a metric's two pair rates."""
    return bound_difference(*METRICS[metric], bound)


def count_pair_loss(scores, members, upper, lower, c1, c2):
    """Compute the square loss of all pairs of rows of two sets, one by one, and its gradient."""
    mass = np.outer(members[:, upper], members[:, lower])
    mass /= mass.sum()
    shift = scores[:, None] - scores - c2
    slope = 2 * c1 * mass * shift
    return c1 * (mass * shift**2).sum(), slope.sum(axis=1) - slope.sum(axis=0)


def count_functions(scores, members, rules, c1, c2):
    """Compute objective and rules (left-hand side, limit) by all pairs, and their gradients."""
    value, gradient = count_pair_loss(scores, members, POSITIVE, NEGATIVE, c1, c2)
    values, gradients, limits = [value], [gradient], [0.0]
    for rule in rules:
        total, slope, limit = 0.0, 0.0, rule.bound
        for s, upper, lower in rule.terms:
            pair = (lower, upper) if s > 0 else (upper, lower)
            value, gradient = count_pair_loss(scores, members, *pair, c1, c2)
            total, slope = total + abs(s) * value, slope + abs(s) * gradient
            limit += max(-s, 0.0)
        values.append(total)
        gradients.append(slope)
        limits.append(limit)
    return np.array(values), np.array(gradients), np.array(limits)
