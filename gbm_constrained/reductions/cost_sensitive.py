r"""Cost-sensitive oracles: boosters that are grown anew at given costs.

Where probabilities are wrong, the plug-in rule of least expected cost is not the rule of least
cost. A booster whose rows are weighted by their costs spends its trees where mistakes are dear
(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints", section
8.7 and Table 8, with weighted logistic regression; Tewari and Bartlett, 2007, for its
calibration). The weight of cell z under costs L is

.. math:: w_z \propto \max_j L_{zj} - \min_j L_{zj}, \qquad \sum_z m_z w_z = \sum_z m_z

with the weight :math:`m_z` of the rows of the cell. The booster's probabilities are divided by w
again, and the rule is optimised on them like on any others. Boosters are grown by a function that
is handed in.

Where weights move while boosters are grown, new weights are the geometric mean of the old ones and
those under the costs at the time:

.. math:: w'_z \propto w_z^{1 - s} \, (\max_j L_{zj} - \min_j L_{zj})^s

Where rows count for amounts, a row i of cell z has the further factor :math:`a_i / E[a \mid z]`,
with the amount :math:`a_i` by which the worst decision of the row costs more than the right one.
The booster then estimates :math:`P(z \mid x) E[a \mid z, x] / E[a \mid z]`, and its decisions of
least expected cost are those of the costs of single rows (Zadrozny, Langford and Abe,
"Cost-Sensitive Learning by Cost-Proportionate Example Weighting", 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.problem.joint_cells import JointCells
from gbm_constrained.reductions.base import Solution
from gbm_constrained.reductions.plug_in import PlugIn

LEAST_WEIGHT = 1e-2  # Of the largest: probabilities are divided by weights.
Grow = Callable[[Float], Float]
"""Given the weight of each joint cell, grows boosters and returns the probabilities of the cells
on the held-out rows, of shape (n_rows, n_joint_cells), as the rows are and not as weighted."""


def mean_costs(solution: Solution) -> Float:
    """Average the costs of the rules of a mixture, of shape (n_joint_cells, n_classes)."""
    return np.asarray(np.tensordot(solution.probability, np.array(solution.rules), axes=1))


def weigh_cells(costs: Float, mass: Float) -> Float:
    """Weight of each joint cell under costs.

    Parameters
    ----------
    costs : ndarray of shape (n_joint_cells, n_classes)
        Cost of each decision in each cell.
    mass : ndarray of shape (n_joint_cells,)
        Weight of the rows of each cell.

    Returns
    -------
    ndarray of shape (n_joint_cells,)
        Positive weights whose mean over the rows is one.
    """
    weights = np.ptp(costs, axis=1)
    weights = np.maximum(weights, LEAST_WEIGHT * weights.max())
    return np.asarray(weights * mass.sum() / (mass @ weights)) if weights.any() else mass**0.0


def weigh_amounts(costs: Float, joint: JointCells, weight: Float | None) -> Float:
    """Weight of each row, relative to the other rows of its joint cell, under costs in amounts.

    Parameters
    ----------
    costs : ndarray of shape (n_measures * n_joint_cells, n_classes)
        Cost of each decision in each measure and cell.
    joint : JointCells
        The joint cells, and what rows count for in each measure.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row.

    Returns
    -------
    ndarray of shape (n_samples,)
        Positive weights whose mean over the rows of each cell is one.
    """
    codes, n = joint.codes, len(joint)
    of_rows = joint.costs_of_rows(costs)
    right = of_rows[np.arange(codes.size), joint.labels[codes]]
    found = of_rows.max(axis=1) - right
    mass = np.bincount(codes, weight, n)

    def average(x: Float) -> Float:
        total = np.bincount(codes, x if weight is None else weight * x, n)
        return np.divide(total, mass, out=np.zeros(n), where=mass > 0)[codes]

    mean = average(found)
    found = np.where(mean > 0, np.maximum(found, LEAST_WEIGHT * mean), 1.0)
    mean = average(found)
    relative = np.divide(found, mean, out=np.ones(codes.size), where=mean > 0)
    return np.asarray(relative.round(12), dtype=np.float64)  # Equal amounts are ones, exactly.


def move_weights(weights: Float, costs: Float, mass: Float, share: float) -> Float:
    """Move the weights of joint cells towards those under costs.

    Parameters
    ----------
    weights : ndarray of shape (n_joint_cells,)
        Positive weights.
    costs : ndarray of shape (n_joint_cells, n_classes)
        Cost of each decision in each cell.
    mass : ndarray of shape (n_joint_cells,)
        Weight of the rows of each cell.
    share : float
        Share of the weights under costs in the geometric mean of both.

    Returns
    -------
    ndarray of shape (n_joint_cells,)
        Positive weights whose mean over the rows is one.
    """
    moved = weigh_cells(costs, mass) ** share * weights ** (1.0 - share)
    return np.asarray(moved * mass.sum() / (mass @ moved))


@dataclass(frozen=True, eq=False)
class CostSensitive:
    """Oracle whose boosters are grown anew at given costs.

    Parameters
    ----------
    oracle : PlugIn
        Plug-in oracle of unweighted boosters.
    grow : callable
        Grows boosters, given the weight of each joint cell.
    weights : ndarray of shape (n_joint_cells,)
        Weights of the boosters that have given the probabilities of `oracle`.
    """

    oracle: PlugIn
    grow: Grow
    weights: Float

    def grow_at(self, costs: Float) -> CostSensitive:
        """Grow boosters at given costs.

        Parameters
        ----------
        costs : ndarray of shape (n_joint_cells, n_classes)
            Cost of each decision in each cell.
        """
        weights = weigh_cells(costs, self.oracle.mass)
        return CostSensitive(
            replace(self.oracle, probabilities=self.grow(weights)), self.grow, weights
        )

    def minimise(self, cost: Float) -> tuple[Float, Float]:
        """Find the rule of least cost of boosters that are grown at this cost."""
        costs, _ = self.oracle.minimise(cost)
        return self.grow_at(costs).oracle.minimise(cost)
