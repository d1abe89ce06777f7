r"""Decisions of least expected cost, by the probabilities of joint cells.

.. math:: h(x) = \arg\min_j \sum_c P(c \mid x) L_{cj}

with ties to the larger class (Narasimhan et al., "Consistent Multiclass Algorithms for Complex
Metrics and Constraints", Proposition 5 and Algorithms 9 and 10). The cells c are the labels, or
labels and groups together; groups need not be known where a booster estimates their probability.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.rule import Margins


def probabilities_of(margin: Array, factors: Float, scale: float = 1.0) -> Float:
    """Turn scores into probabilities of the classes, as the rows are and not as weighted.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of a booster.
    factors : ndarray of shape (n_classes,)
        Factor of each class in the booster's objective.
    scale : float, default=1
        Factor by which scores become log-odds.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    scores = scale * np.asarray(margin, dtype=np.float64)
    if scores.ndim == 1:
        positive = expit(scores)
        found = np.column_stack([1.0 - positive, positive])
    else:
        found = softmax(scores, axis=1)
    if (factors != factors[0]).any():
        found = found / factors
        found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found)


def decide_by_costs(probabilities: Float, costs: Float) -> Codes:
    """Decide the class of least expected cost, the larger one of equals.

    Parameters
    ----------
    probabilities : ndarray of shape (n_samples, n_cells)
        Probability of each cell.
    costs : ndarray of shape (n_cells, n_classes)
        Cost of each decision in each cell.
    """
    expected = costs.T @ probabilities.T  # one row for each decision, for speed
    least = expected.min(axis=0) + ROUNDING * np.abs(costs).max(initial=0.0)
    found = np.zeros(len(probabilities), dtype=np.intp)
    for j in range(1, len(expected)):
        np.copyto(found, j, where=expected[j] <= least)
    return found


@dataclass(frozen=True, eq=False)
class CostRule:
    """The decision of least expected cost.

    Parameters
    ----------
    costs : ndarray of shape (n_cells, n_classes)
        Cost of each decision in each cell.
    factors : ndarray of shape (n_cells,)
        Factor of each cell in the objective of the booster that scores rows.
    rounds : int, default=0
        Boosting rounds of the prefix that scores rows.
    scale : float, default=1
        Factor by which its scores become log-odds.
    """

    costs: Float
    factors: Float = field(repr=False)
    rounds: int = 0
    scale: float = 1.0

    def decide(self, margins: Margins) -> Codes:
        """Decide the class index of each row."""
        probabilities = probabilities_of(margins(self.rounds), self.factors, self.scale)
        return decide_by_costs(probabilities, self.costs)

    @property
    def class_weights(self) -> Float | None:
        """Weights of the classes whose weighted probability the rule maximises, if it does.

        The largest weight is one.
        """
        gain = _class_weights(self.costs)
        return None if gain is None else gain / gain.max()

    def as_shift(self) -> Float | None:
        """Shift of scores that makes the same decisions, if there is one.

        Returns
        -------
        ndarray of shape (1,) or (n_classes,), or None
            Rules whose cost is a positive weight on each class have one: the class of the largest
            weighted probability is that of the largest score plus the logarithm of the weight.
        """
        gain = _class_weights(self.costs)
        if gain is None:
            return None
        bias = (np.log(gain) - np.log(self.factors)) / self.scale
        return np.array([bias[1] - bias[0]]) if bias.size == 2 else bias - bias.mean()


def _class_weights(costs: Float) -> Float | None:
    """Weight of each class whose argmax the rule is; None if it is no such rule."""
    n, k = costs.shape
    if n != k:
        return None
    # A constant on a row of the costs changes no decision.
    wrong = costs + np.diag(np.full(k, np.nan))
    base = np.nanmean(wrong, axis=1)
    gain = base - np.diag(costs)
    is_constant = np.nanmax(np.abs(wrong - base[:, None])) <= 1e-9 * np.abs(costs).max(initial=0.0)
    return np.asarray(gain) if is_constant and (gain > 0.0).all() else None


def mixture_shares(decisions: Any, probability: Float, n_classes: int) -> Float:
    """Probability that a mixture of rules decides each class, of shape (n_samples, n_classes).

    Parameters
    ----------
    decisions : ndarray of shape (n_rules, n_samples), intp
        Decisions of each rule.
    probability : ndarray of shape (n_rules,)
        Probability of each rule.
    n_classes : int
        Number of classes.
    """
    shares = np.zeros((np.shape(decisions)[1], n_classes))
    at = np.arange(len(shares))
    for of_rule, p in zip(decisions, probability, strict=True):
        shares[at, of_rule] += p
    return shares
