r"""Lower bound of the violation of constraints by any decisions on the scores of several classes.

With calibrated probabilities :math:`p` of the scores :math:`x`, the rates of randomised decisions
fill a convex set. The least violation over this set,

.. math:: \min_h \max_i \; (A \, \text{predicted}(h) - b)_i ,

is a linear programme over all decisions :math:`h`. It is solved by columns: its multipliers
:math:`\mu` are the costs of the next decision, :math:`\arg\min_k \sum_y p_y(x) L_{yk}`, and the
Lagrangian at that decision is a lower bound. Biases are among the decisions.

The bound is that of the distribution that the probabilities describe. It counts as proved where
the labels of the rows agree: counted by them, none of the decisions has a smaller Lagrangian than
zero.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.cost_rule import decide_by_costs, probabilities_of
from gbm_constrained.decision.score_calibration import calibrate_scores
from gbm_constrained.decision.score_counts import DecisionCounts
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.linear_programme import solve_linear_programme

MOST_COLUMNS = 200  # Decisions of all programmes together: about a second.


class ViolationBound:
    """Decisions of least cost on some rows, and the violations that they leave at least.

    Use :meth:`of`, which knows where there is such a bound.

    Attributes
    ----------
    decisions : list of ndarray of shape (n_samples,)
        The decisions found.
    """

    def __init__(self, probabilities: Float, labels: Codes, weight: Float, costs: Float) -> None:
        self._probabilities, self._labels, self._weight = probabilities, labels, weight
        self._costs = costs  # What a row of unit weight adds, (m, n_labels, n_classes).
        self.decisions: list[Codes] = []
        self._by_model = self._by_labels = np.zeros((0, len(costs)))
        k = probabilities.shape[1]
        for always in range(k):
            self._add(np.full(len(labels), always))
        self._add(probabilities.argmax(axis=1))

    @classmethod
    def of(cls, margin: Array, cells: Cells, compiled: LinearConstraints) -> ViolationBound | None:
        """Calibrate scores; None where rates are of more than labels and decisions."""
        is_linear = compiled.is_known & ~compiled.has_scores & ~compiled.curves.is_curved
        if not (cells.communicator.holds_all_rows and is_linear.all() and cells.labelled.all()):
            return None
        labels, k = cells.labels[cells.views[0].codes], int(cells.classes.size)
        table = compiled.A.toarray().reshape(len(compiled), len(cells), k)
        density, costs = DecisionCounts(cells).density, np.zeros((len(compiled), k, k))
        for view in cells.views:
            of_label = np.zeros(k, dtype=np.intp)
            of_label[labels] = view.codes
            if view.amount is not None or (of_label[labels] != view.codes).any():
                return None
            costs += (table * density[:, None])[:, of_label]
        weight = np.ones(labels.size) if cells.rows.weight is None else cells.rows.weight
        probabilities = probabilities_of(margin, *calibrate_scores(margin, labels, k, weight))
        mass, expected = np.bincount(labels, weight, k), weight @ probabilities
        probabilities *= np.divide(mass, expected, out=np.zeros(k), where=expected > 0.0)
        return cls(probabilities, labels, weight, costs)

    def find_refuted(self, bounds: Float) -> Bool | None:
        """Find rows of constraints that no decisions meet together.

        Parameters
        ----------
        bounds : ndarray of shape (m,)
            Right-hand sides; infinite ones are left out.

        Returns
        -------
        ndarray of shape (m,), bool, or None
            The rows that have multipliers; None where no bound is proved.
        """
        kept = np.flatnonzero(np.isfinite(bounds))
        while len(self.decisions) < MOST_COLUMNS:
            least, multipliers = self._solve(kept, bounds)
            if least <= ROUNDING:
                break
            costs = np.tensordot(multipliers, self._costs, axes=1)
            self._add(decide_by_costs(self._probabilities, costs))
            surely, *_ = self._lagrangian(self._by_model[-1:], multipliers, bounds)
            by_labels = self._lagrangian(self._by_labels, multipliers, bounds).min()
            if min(surely, by_labels) > ROUNDING:
                return np.asarray(multipliers > 0.0)
            if least - surely <= ROUNDING:
                break
        return None

    def _lagrangian(self, rates: Float, multipliers: Float, bounds: Float) -> Float:
        has_price = multipliers > 0.0  # Infinite bounds have none.
        return np.asarray((rates - bounds)[:, has_price] @ multipliers[has_price])

    def _add(self, decided: Codes) -> None:
        k = self._probabilities.shape[1]
        is_decided = (decided[:, None] == np.arange(k)) * self._weight[:, None]
        labelled = np.bincount(self._labels * k + decided, self._weight, k * k).reshape(k, k)
        of_model = np.tensordot(self._costs, self._probabilities.T @ is_decided, axes=2)
        self.decisions.append(decided)
        self._by_model = np.vstack([self._by_model, of_model])
        self._by_labels = np.vstack([self._by_labels, np.tensordot(self._costs, labelled, axes=2)])

    def _solve(self, kept: Codes, bounds: Float) -> tuple[float, Float]:
        """Find the least violation of some rows by mixtures of the decisions, and multipliers."""
        n = len(self.decisions)
        found = solve_linear_programme(
            np.append(np.zeros(n), 1.0),
            np.hstack([self._by_model[:, kept].T, -np.ones((kept.size, 1))]),
            bounds[kept],
            [(0, None)] * (n + 1),
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
        )
        multipliers = np.zeros(bounds.size)
        multipliers[kept] = np.maximum(-found.ineqlin.marginals, 0.0)
        return float(found.x[n]), multipliers / max(multipliers.sum(), ROUNDING)
