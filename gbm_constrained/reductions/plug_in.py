r"""The plug-in oracle: decisions of least cost by given probabilities.

For the cost :math:`c` of the functionals :math:`u`, deciding class j in cell z costs
:math:`L_{zj} = \sum_k c_k T_{kzj}`, and

.. math:: h(x) = \arg\min_j \sum_z P(z \mid x) L_{zj}

minimises :math:`c \cdot u` where the probabilities are right (Narasimhan et al., "Consistent
Multiclass Algorithms for Complex Metrics and Constraints", Algorithms 9 and 10). The functionals
of the rule are counted by the labels of the rows, which must be rows that the booster of the
probabilities has not seen.

Rows that count for an amount a have :math:`\sum_z E[a \mid z] P(z \mid x) L_{zj}` in the place of
the sum. A booster whose rows weigh :math:`a / E[a \mid z]` has, instead of P, what makes the rule
minimise the cost in amounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.cost_rule import decide_by_costs
from gbm_constrained.problem.joint_cells import Coefficients, JointCells

N_CHEAPEST = 20  # Known rules that join the pool of a search with each answer.


@dataclass(frozen=True, eq=False)
class PlugIn:
    """Oracle of least expected cost on held-out rows.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows, n_joint_cells)
        Probability of each joint cell, by boosters that have not seen the row.
    joint : JointCells
        The joint cells.
    rows : ndarray of shape (n_rows,), intp
        Positions of the rows in the partition.
    weight : ndarray of shape (n_rows,) or None
        Weight of each row.
    coefficients : Coefficients
        The functionals in weights of joint cells of these rows.
    by_labels : bool, default=True
        Whether decisions are counted by the cells that rows are in. Otherwise they are counted by
        the probabilities of the cells, and the oracle is exact for the distribution that these
        describe.
    """

    probabilities: Float
    joint: JointCells
    rows: Codes
    weight: Float | None
    coefficients: Coefficients
    by_labels: bool = True

    @property
    def mass(self) -> Float:
        """Weight of the rows of each joint cell."""
        codes = self.joint.codes[self.rows]
        return np.bincount(codes, self.weight, len(self.joint)).astype(np.float64)

    @cached_property
    def mean_amounts(self) -> Float:
        """What the rows of each joint cell count for in the mean, by measure."""
        return self.joint.mean_amounts(self.weight, self.rows)[:, :, None]

    def minimise(self, cost: Float) -> tuple[Float, Float]:
        """Find the rule of least cost.

        Parameters
        ----------
        cost : ndarray of shape (n_functionals,)
            Cost of each functional.

        Returns
        -------
        costs : ndarray of shape (n_joint_cells, n_classes)
            The rule: the cost of each decision in each cell, the largest of size one.
        u : ndarray of shape (n_functionals,)
            Functionals of its decisions.
        """
        of_measures = self.coefficients.costs(cost).reshape(*self.mean_amounts.shape[:2], -1)
        costs = (of_measures * self.mean_amounts).sum(axis=0)
        scale = np.abs(costs).max(initial=0.0)
        costs = costs / scale if scale > 0.0 else costs
        return costs, self.functionals(costs)

    def decide(self, costs: Float) -> Codes:
        """Decide the class index of each row by a rule."""
        return decide_by_costs(self.probabilities, costs)

    def functionals(self, costs: Float) -> Float:
        """Count the functionals of a rule."""
        return self.functionals_of(self.decide(costs))

    def functionals_of(self, decisions: Codes) -> Float:
        """Count the functionals of decisions."""
        return self.coefficients.functionals(self.counts(decisions))

    def counts(self, decisions: Codes) -> Float:
        """Sum weights by measure, joint cell and decision."""
        if self.by_labels:
            return self.joint.counts(decisions, self.weight, self.rows)
        is_decided = np.zeros((len(decisions), self.joint.n_classes))
        is_decided[np.arange(len(decisions)), decisions] = (
            1.0 if self.weight is None else self.weight
        )
        expected = self.mean_amounts * (self.probabilities.T @ is_decided)
        return np.asarray(expected.reshape(self.joint.n_counted, -1))

    def costs_of_rows(self, cost: Float) -> Float:
        """Cost of each decision about each row, by its label, given the cost of functionals."""
        found = self.joint.costs_of_rows(self.coefficients.costs(cost), self.rows)
        return found if self.weight is None else found * self.weight[:, None]

    def by_probabilities(self) -> PlugIn:
        """Return the exact oracle of the distribution that the probabilities describe.

        The probabilities are scaled so that each cell has the weight that its rows have.
        """
        return replace(self, probabilities=self.probabilities * self._scale, by_labels=False)

    def restate(self, rules: Sequence[Float]) -> list[Float]:
        """Restate rules of :meth:`by_probabilities`, so that they decide the same rows here."""
        return [self._scale[:, None] * costs for costs in rules]

    @cached_property
    def _scale(self) -> Float:
        own = np.full(len(self.rows), 1.0) if self.weight is None else self.weight
        expected = own @ self.probabilities
        return np.divide(self.mass, expected, out=np.zeros_like(expected), where=expected > 0)

    def take(self, part: Codes, coefficients: Coefficients) -> PlugIn:
        """Return the oracle of some of the rows."""
        weight = None if self.weight is None else self.weight[part]
        return replace(
            self,
            probabilities=self.probabilities[part],
            rows=self.rows[part],
            weight=weight,
            coefficients=coefficients,
        )


@dataclass(frozen=True, eq=False)
class PooledOracle:
    """A plug-in oracle that knows further rules.

    Counting by labels makes the plug-in oracle inexact: a rule of slightly other costs may have
    the smaller cost on the counted rows. The answer is the best of the plug-in rule and the known
    rules.

    Parameters
    ----------
    oracle : PlugIn
        The oracle.
    rules : sequence of ndarray of shape (n_joint_cells, n_classes)
        The known rules.
    points : ndarray of shape (n_rules, n_functionals)
        Functionals of the known rules, as the oracle counts them.
    start : sequence of (ndarray, ndarray), default=()
        Rules that a search starts with, and their functionals.
    """

    oracle: PlugIn
    rules: Sequence[Float]
    points: Float
    start: Sequence[tuple[Float, Float]] = ()

    def minimise(self, cost: Float) -> tuple[Float, Float]:
        """Find the rule of least cost among the plug-in rule and the known ones."""
        rule, u = self.oracle.minimise(cost)
        if not len(self.rules):
            return rule, u
        known = self.points @ cost
        best = int(known.argmin())
        return (self.rules[best], self.points[best]) if known[best] < cost @ u else (rule, u)

    def list_cheapest(self, cost: Float) -> list[tuple[Float, Float]]:
        """List the known rules of least cost."""
        if not len(self.rules):
            return []
        known = self.points @ cost
        cheapest = np.argsort(known, kind="stable")[:N_CHEAPEST]
        return [(self.rules[i], self.points[i]) for i in cheapest]


class RecordingOracle:
    """An oracle that keeps every rule that it has answered.

    Parameters
    ----------
    oracle : PlugIn
        The oracle.

    Attributes
    ----------
    rules : list of ndarray of shape (n_joint_cells, n_classes)
        The answers.
    """

    def __init__(self, oracle: PlugIn) -> None:
        self.oracle = oracle
        self.rules: list[Float] = []

    def minimise(self, cost: Float) -> tuple[Float, Float]:
        """Find the rule of least cost."""
        rule, u = self.oracle.minimise(cost)
        self.rules.append(rule)
        return rule, u
