"""Order of constraints and groups in the reports of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.problem.linear_constraints import LinearConstraints


class ReportLayout:
    """The order of reports: the constraints with the groups of the last evaluation set, too.

    Parameters
    ----------
    compiled : LinearConstraints
        The constraints on the training rows.
    evaluation_sets : sequence of EvaluationSet
        Rows that the user gave to look at.

    Attributes
    ----------
    compiled : LinearConstraints
        The constraints with all groups.
    """

    def __init__(
        self, compiled: LinearConstraints, evaluation_sets: Sequence[EvaluationSet]
    ) -> None:
        self._training = compiled
        self._last = evaluation_sets[-1].compiled if evaluation_sets else None
        self.compiled = compiled if self._last is None else compiled.with_groups_of(self._last)

    def spread(self, rates: Float) -> Float:
        """Bring rates into the order of the report, with NaN for groups that their rows lack."""
        if self._last is None or len(rates) != self._training.constant.size:
            return rates
        wide = np.full((self._last.constant.size, *rates.shape[1:]), np.nan)
        wide[self._training.positions_in(self._last)] = rates
        return wide

    def lay_out(self, outcome: Outcome) -> Outcome:
        """Bring the rates of an outcome into the order of the report."""
        return replace(
            outcome,
            functionals=self.spread(outcome.functionals),
            of_functionals=self.spread(outcome.of_functionals),
        )

    def values(self, outcome: Outcome) -> Float:
        """Values that the constraints bound, of shape (n_constraints,)."""
        return self.compiled.values(self.spread(outcome.functionals))
