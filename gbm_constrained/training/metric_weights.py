r"""Weights of the classes by which the decisions of one set of scores optimise a metric.

The class of the largest weighted probability :math:`w_k P(k \mid x)` is decided. With all other
weights at rest, a row with the largest other logarithm :math:`m_j(x)` is decided as class j from

.. math:: \log w_j = m_j(x) - \log P(j \mid x)

on. One sort of the rows and a running sum give every functional of every such decision, and the
criterion of all fits chooses among them (:func:`~gbm_constrained.decision.choose.choose`). Of two
classes that is the best threshold. Of several, the weights of the classes are found in turn.

Weights of each group by itself say what constraints should cost, as thresholds of groups do
(:mod:`gbm_constrained.decision.group_thresholds`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.choose import choose
from gbm_constrained.reductions.plug_in import PlugIn
from gbm_constrained.training.metric_problem import HeldOutProblem

MAX_PASSES = 3  # Over the classes, of more than two.
N_POINTS = 64
"""Decisions along a line that are measured at once, and again between two of them."""
SMALLEST_PROBABILITY = 1e-15  # Of a class, by whose logarithm weights are searched.


def costs_of_weights(weights: Float) -> Float:
    """Write weights of the classes as the cost of each decision in each class."""
    return np.asarray((1.0 - np.eye(weights.size)) * (weights / weights.max())[:, None])


@dataclass(frozen=True, eq=False)
class WeightSearch:
    """Search for weights of the classes.

    Parameters
    ----------
    held : HeldOutProblem
        The metric and the constraints on the held-out rows.
    oracle : PlugIn
        Probability of each class on these rows.
    criterion : mapping
        Weights of violations, and the rows of constraints that are strict.
    is_over : callable, default=None
        Sees the functionals at each step, and may end the search.
    """

    held: HeldOutProblem
    oracle: PlugIn
    criterion: dict[str, Any]
    is_over: Callable[[Float], bool] | None = None

    @cached_property
    def scores(self) -> Float:
        """Logarithms of the probabilities, shape (n_rows, n_classes)."""
        return np.log(np.maximum(self.oracle.probabilities, SMALLEST_PROBABILITY))

    @cached_property
    def of_decisions(self) -> Float:
        """Functionals by joint cell and decision, (n_functionals, n_measures, n_cells, k)."""
        joint, table = self.oracle.joint, self.oracle.coefficients.table
        return table.reshape(len(table), len(joint.measures), len(joint), -1)

    def find(self, start: Float, errors: Float, groups: Codes | None = None) -> Float:
        """Find the weights of least merit, beginning at some.

        Parameters
        ----------
        start : ndarray of shape (n_classes,)
            Weights to begin at.
        errors : ndarray of shape (n_rows_of_constraints,)
            Violations within which strict rows count as met.
        groups : ndarray of shape (n_rows,), intp, default=None
            Group of each row that has weights of its own; by default all rows have the same.

        Returns
        -------
        ndarray of shape (n_groups, n_classes)
        """
        rows = np.arange(len(self.scores))
        members = [rows] if groups is None else [rows[groups == g] for g in np.unique(groups)]
        bias = np.tile(np.log(start / start.max()), (len(members), 1))
        classes = [1] if start.size == 2 else range(start.size)
        for _ in range(1 if start.size == 2 and groups is None else MAX_PASSES):
            before = bias.copy()
            for g, j in itertools.product(range(len(members)), classes):
                u = self._move(bias, members, g, j, errors)
                if self.is_over is not None and self.is_over(u):
                    return np.asarray(np.exp(bias))
            if (bias == before).all():
                break
        return np.asarray(np.exp(bias))

    def decide(self, bias: Float, members: Sequence[Codes]) -> Codes:
        """Decide each row by the biases of its group."""
        found = np.zeros(len(self.scores), dtype=np.intp)
        for own, of_group in zip(bias, members, strict=True):
            found[of_group] = (self.scores[of_group] + own).argmax(axis=1)
        return found

    def _move(self, bias: Float, members: Sequence[Codes], g: int, j: int, errors: Float) -> Float:
        """Move the bias of one class in one group to the best, and give the functionals there."""
        inside = members[g]
        rivals = self.scores[inside] + bias[g]
        rivals[:, j] = -np.inf
        other = rivals.argmax(axis=1)
        turn = rivals[np.arange(other.size), other] - self.scores[inside, j]
        order = np.argsort(turn, kind="stable")
        turn = turn[order]
        decided = self.decide(bias, members) if len(members) > 1 else other.copy()
        decided[inside] = other
        start = self.oracle.functionals_of(decided)
        gained = np.cumsum(self._gains(inside, other, j)[:, order], axis=1)
        ends = np.flatnonzero(np.diff(turn, append=np.inf) > 0.0) + 1
        cuts = np.append(0, ends)  # Numbers of rows that are decided as the class.
        at = np.concatenate([[turn[0] - 1.0], (turn[1:] + turn[:-1]) / 2.0, [turn[-1] + 1.0]])
        now = int(np.searchsorted(cuts, np.searchsorted(turn, bias[g, j], side="right")))

        def measure(points: Codes) -> Float:
            rows = cuts[points]
            return start + np.where(rows > 0, gained[:, rows - 1], 0.0).T

        low, high, best = 0, cuts.size - 1, now
        while True:
            points = np.unique(np.linspace(low, high, N_POINTS).astype(int))
            points = np.append(best, points)
            u = measure(points)
            best = int(points[self._choose(u, errors)])
            step = -(-(high - low) // (N_POINTS - 1))
            if step <= 1:
                break
            low, high = max(best - step, 0), min(best + step, cuts.size - 1)
        if best != now:
            bias[g, j] = at[cuts[best]]
        return np.asarray(measure(np.array([best]))[0])

    def _gains(self, inside: Codes, other: Codes, j: int) -> Float:
        """Change of each functional where a row is decided as a class, (n_functionals, n)."""
        oracle = self.oracle
        rows = oracle.rows[inside]
        codes, table = oracle.joint.codes[rows], self.of_decisions
        measures = [None, *oracle.joint.amounts(rows)]
        gains = np.zeros((len(table), codes.size))
        for of_measure, amount in zip(np.moveaxis(table, 1, 0), measures, strict=True):
            change = (of_measure[:, :, [j]] - of_measure)[:, codes, other]
            gains += change if amount is None else amount * change
        return gains if oracle.weight is None else oracle.weight[inside] * gains

    def _choose(self, u: Float, errors: Float) -> int:
        loss = self.held.problem.loss
        losses = np.array([loss.value(one) for one in u])
        violations = self.held.violations(u * self.held.problem.units)
        return choose(losses, violations, errors, **self.criterion)
