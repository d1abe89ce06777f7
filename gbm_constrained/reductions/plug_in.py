r"""Cost-sensitive oracles: decisions of least cost, and boosters grown at given costs.

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

A linear loss has one plug-in rule, that of its own costs, which is the best one where the
probabilities are right. Where they are not, other costs may decide better. With a price s on
missing class j, which is added to the cost of all other decisions for rows of this class, a row
with expected costs :math:`e_k(x)` is decided as j from

.. math:: s_j(x) = \frac{e_j(x) - \min_{k \ne j} e_k(x)}{P(y = j \mid x)}

on, and as before below. One sort of the rows therefore finds the best price of a class exactly. Of
two classes that is the best threshold. Of several, the prices of the classes are found in turn.

Where costs are counted by labels, the rules of a mixture need not be the best ones near them.
Rules between them join the pool of a further search, or stand for the mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.rules import decide_by_costs
from gbm_constrained.problem.compiler import Coefficients, JointCells
from gbm_constrained.reductions.mixtures import RuleMixture


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


LEAST_WEIGHT = 1e-2  # Of the largest: probabilities are divided by weights.


def mean_costs(solution: RuleMixture) -> Float:
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


def improve_rule(oracle: PlugIn, costs: Float, cost: Float) -> Float:
    """Lower the cost of a rule, counted by the labels of the oracle's rows.

    Parameters
    ----------
    oracle : PlugIn
        The oracle.
    costs : ndarray of shape (n_joint_cells, n_classes)
        The rule.
    cost : ndarray of shape (n_functionals,)
        Cost of each functional.

    Returns
    -------
    ndarray of shape (n_joint_cells, n_classes)
        A rule that costs no more; `costs` itself where no price of one class lowers the cost.
    """
    # Cost of each decision about each row, by its label.
    of_rows = oracle.joint.costs_of_rows(oracle.coefficients.costs(cost), oracle.rows)
    if oracle.weight is not None:
        of_rows = of_rows * oracle.weight[:, None]
    # Over the classes: later ones gain less than what other rows would lose.
    for _ in range(3):
        before = costs
        for j in range(oracle.joint.n_classes):
            costs = _price_class(oracle, costs, of_rows, j)
        if costs is before:
            break
    return costs


def _price_class(oracle: PlugIn, costs: Float, of_rows: Float, j: int) -> Float:
    """Find the best price of missing a class, and add it to the costs."""
    is_class = oracle.joint.labels == j
    expected = oracle.probabilities @ costs
    own = expected[:, j].copy()
    expected[:, j] = np.inf
    other = expected.argmin(axis=1)
    every = np.arange(len(other))
    probability = oracle.probabilities[:, is_class].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.nan_to_num((own - expected[every, other]) / probability, nan=0.0)
    order = np.argsort(turn, kind="stable")
    turn, gain = turn[order], (of_rows[every, other] - of_rows[:, j])[order]
    total = np.append(0.0, gain.cumsum())  # Gain of deciding so many rows as the class.
    now = int(np.searchsorted(turn, 0.0, side="right"))
    # From this price on it costs something to miss rows of the class.
    others = np.delete(costs[is_class], j, axis=1) - costs[is_class][:, [j]]
    least = -float(others.min(initial=np.inf))
    ends = np.concatenate([[turn[0] - 1.0], turn, [turn[-1] + 1.0]])
    low, high = np.maximum(ends[:-1], least), ends[1:]
    is_possible = np.isfinite(low) & np.isfinite(high) & (low < high)
    best = int(np.where(is_possible, total, -np.inf).argmax())
    # Of the loss of all rows, below which it is rounding.
    if not total[best] > total[now] + 1e-9 * np.abs(of_rows).sum() or not is_possible[best]:
        return costs
    priced = costs.copy()
    priced[np.ix_(is_class, np.arange(costs.shape[1]) != j)] += (low[best] + high[best]) / 2
    return np.asarray(priced / np.abs(priced).max())


MAX_SEGMENT_RULES = 100  # Rules between several, all together.


def list_rules_between(oracle: PlugIn, rules: Sequence[Float]) -> list[tuple[Float, Float]]:
    """List rules on the segments between any two of several rules, with their functionals.

    Each decides otherwise on some rows. Rows that both ends of a segment decide alike are decided
    so in between, where costs are linear.
    """
    found: list[tuple[Float, Float]] = []
    coefficients = oracle.coefficients
    # Each rule with the expected cost of each decision on each row, and its decisions.
    decided = [(costs, oracle.probabilities @ costs, oracle.decide(costs)) for costs in rules]
    pairs = list(combinations(decided, 2))
    # Rules between each two of them, where these are many.
    n_rules = max(MAX_SEGMENT_RULES // max(len(pairs), 1), 10)
    for first, second in pairs:
        by_first, by_second = first[2], second[2]
        is_disputed = by_first != by_second
        disputed, agreed = np.flatnonzero(is_disputed), np.flatnonzero(~is_disputed)
        of_disputed = oracle.take(disputed, coefficients)
        counts = oracle.take(agreed, coefficients).counts(by_first[agreed])
        # Cost of the second decision beyond the first one, under both rules.
        low, high = (
            expected[disputed, by_second[disputed]] - expected[disputed, by_first[disputed]]
            for _, expected, _ in (first, second)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            turn = np.unique(low / (low - high))
        turn = turn[(turn > 0.0) & (turn < 1.0)]
        middle = (turn[1:] + turn[:-1]) / 2
        if middle.size > n_rules:
            middle = middle[np.linspace(0, middle.size - 1, n_rules).astype(int)]
        for t in middle:
            costs = (1 - t) * first[0] + t * second[0]
            of_rule = counts + of_disputed.counts(of_disputed.decide(costs))
            found.append((costs, coefficients.functionals(of_rule)))
    return found
