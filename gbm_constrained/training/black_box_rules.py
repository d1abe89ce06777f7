"""Constraints on the decisions of a model that is chosen for a black-box metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics.measured_black_box import MeasuredBlackBox
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

PENALTY = 5.0
"""Price of a violation in the search, in units of the loss: a multiplier of that size is larger
than those of bounds that a threshold can meet."""


def check_rules(constraints: Sequence[Constraint]) -> None:
    """Refuse constraints that are not about decisions on any rows.

    Raises
    ------
    ValueError
        If a constraint is about scores, about a named data set, or about given rows, or has a
        priority.
    """
    refuse_priorities(
        constraints,
        "a black-box metric is searched under constraints that all hold: leave with_priority out",
    )
    for constraint in constraints:
        if constraint.amounts:
            raise ValueError(
                f"{constraint} counts amounts, and a black-box metric is searched under rules "
                f"that count rows: leave weight= out of the rate."
            )
        if constraint.is_of_scores or constraint.data_sets or constraint.n_rows_held:
            raise ValueError(
                f"{constraint} beside a black-box metric is measured on decisions about "
                f"validation rows, and is about scores, a named data set or given training rows: "
                f"bound a rate of decisions in groups, such as gap(fpr(), by=...)."
            )


@dataclass(frozen=True, eq=False)
class Rules:
    """Constraints on decisions about some rows.

    Parameters
    ----------
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        The constraints on these rows.
    acting : LinearConstraints
        The same by credible rates of groups (:mod:`gbm_constrained.problem.credibility`), which
        choose the model.
    """

    cells: Cells
    compiled: LinearConstraints
    acting: LinearConstraints

    @classmethod
    def of(cls, constraints: Sequence[Constraint], rows: Rows) -> Rules:
        """Compile constraints on rows of two classes."""
        cells, compiled = compile_constraints(constraints, rows)
        return cls(cells, compiled, compiled.make_credible(cells))

    def violation(self, scores: Float, *, acts: bool = False) -> float:
        """Find by how much the decisions of scores exceed a bound at most; zero if they do not.

        Rates of groups without rows count as within their bounds. Violations that act on a choice
        are those of credible rates.
        """
        compiled = self.acting if acts else self.compiled
        counts = CellCounts.of(self.cells, (scores > 0.0).astype(np.intp))
        excess = compiled.rows_of(functionals_of(compiled, counts)) - compiled.b
        largest = float(np.nan_to_num(excess).max(initial=0.0))
        return largest if largest > ROUNDING else 0.0


class RuledLoss:
    """A black-box loss of models that must keep rules.

    Parameters
    ----------
    metric : MeasuredBlackBox
        The metric on some rows.
    rules : Rules
        Constraints on the same rows.
    is_choice : bool
        Whether a model that breaks a rule is worse than any that keeps all. A search needs a loss
        that changes little with the scores, and has a price of the violation in its place.
    """

    def __init__(self, metric: MeasuredBlackBox, rules: Rules, *, is_choice: bool) -> None:
        self._metric, self._rules, self._is_choice = metric, rules, is_choice

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""
        return self._metric.calls_left

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors of the function name."""
        self._metric.begin_iteration(iteration)

    def __call__(self, scores: Float) -> float:
        """Compute the loss of scores."""
        violation = self._rules.violation(scores, acts=True)
        if not violation:
            return self._metric(scores)
        if self._is_choice:  # No call is needed to know that a threshold breaks a rule.
            return 1.0 + violation
        return self._metric(scores) + PENALTY * violation
