"""Feasibility of the constraints of a fit, as data.

Each constraint has a verdict on the rows that are reported
(:mod:`gbm_constrained.evaluation.verdicts`), and the gravest of them is the status of the fit. A
constraint cannot be met if each decision *of this model* violates some constraint beyond doubt
(:mod:`gbm_constrained.evaluation.conflicts`), which does not prove that no model meets all. Where
that is not proved of the decisions of several classes, none was found that meets the constraints.
Constraints that are met may still be **fragile**: the decisions are hardly better than a constant
one, while the model without constraints gains much more (:mod:`.assessment`). Verdicts on
constraints that are measured on training rows are optimistic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gbm_constrained._findings import Finding, issue_warning
from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.data.given_folds import LATER_PERIODS
from gbm_constrained.decision.evaluation_set import Estimate, PlainModel
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost
from gbm_constrained.evaluation.findings import findings_of_fit
from gbm_constrained.evaluation.messages import (
    MESSAGES,
    describe,
    describe_conflict,
    describe_cost,
    describe_too_few_rows,
)
from gbm_constrained.evaluation.sample_size import TooFewRows
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS, Kind, Verdict, gravest
from gbm_constrained.exceptions import (
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsError,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
)

__all__ = ["Feasibility"]


@dataclass(frozen=True)
class Feasibility:
    """Whether the constraints of a fit can be met, and the values that were reached.

    Parameters
    ----------
    conflict : tuple of Constraint
        Smallest set of constraints that cannot be met together; empty if all can. With
        ``guarantee="high_probability"`` the constraints that are not certified. With priorities
        those that are given up, and those that they are given up for. Without `is_proved` the
        smallest set that no decision was found to meet.
    rules : tuple of ConstraintResult
        Value and verdict of each constraint; for those in conflict also their best values.
    too_few_rows : tuple of TooFewRows
        Rates over too few rows to assess their constraints.
    unsteady : tuple of ConstraintResult
        Constraints on which the boosters of the folds differ, and that part of the interval
        violates.
    error : float
        0-1 error of the model returned, on the rows of `source`. In all errors, classes have the
        weights of ``class_weight`` and ``scale_pos_weight``, as in the objective.
    constant_class : object
        Class of the best constant decision that meets the constraints; None if none does.
    constant_error : float
        Error of that decision; NaN if there is none.
    free_error : float
        Error of the best decision of the model without constraints; NaN if it was not needed.
    source : str
        Name of the rows that the model was assessed by: held-out ones such as "out of fold", or
        "training rows".
    n_rows : int
        Number of these rows.
    p_value, level : float, default=NaN
        With ``guarantee="high_probability"``: the p-value of the constraints, and the largest one
        that earns the certificate.
    refuted : tuple of ConstraintResult, default=()
        Constraints that the model returned violates on its own training rows, whether the boosters
        of the folds meet them or not.
    left : tuple of ConstraintResult, default=()
        Constraints that the model returned violates beyond doubt, although it can make decisions
        that bring all constraints to within sampling error, at more errors than that is worth.
    is_fragile : bool, default=False
        Whether the constraints leave a model that is hardly better than a constant decision.
    cost : Cost, default=Cost()
        Errors that the constraints cost, and should cost. Of a regressor, shares of the deviance
        that are left unexplained.
    plain : PlainModel, default=None
        Objective and values of the constraints of the library's own model on the rows of `source`;
        None where no such model was measured.
    drifting : tuple of ConstraintResult, default=()
        Constraints whose value in the last period is outside of what earlier periods leave.
    rounds_trained, rounds_asked : int, default=0
        Boosting rounds (iterations of a linear model) that were trained, and that were asked for.
        Fewer were trained where a callback or early stopping ended the fit.
    is_proved : bool, default=True
        Whether no decision of the model meets the constraints of `conflict`. Otherwise none was
        found, and their verdicts are those of their values.
    """

    conflict: tuple[Constraint, ...]
    rules: tuple[ConstraintResult, ...]
    too_few_rows: tuple[TooFewRows, ...]
    unsteady: tuple[ConstraintResult, ...]
    error: float
    constant_class: Any
    constant_error: float
    free_error: float
    source: str
    n_rows: int
    p_value: float = np.nan
    level: float = np.nan
    refuted: tuple[ConstraintResult, ...] = ()
    left: tuple[ConstraintResult, ...] = ()
    is_fragile: bool = False
    cost: Cost = field(default_factory=Cost)
    plain: PlainModel | None = None
    drifting: tuple[ConstraintResult, ...] = ()
    rounds_trained: int = 0
    rounds_asked: int = 0
    is_proved: bool = True

    @property
    def status(self) -> Kind:
        """The gravest verdict: "met" exactly if each constraint is met on unseen rows."""
        return gravest(result.verdict.kind for result in self.rules)

    @property
    def given_up(self) -> tuple[ConstraintResult, ...]:
        """Constraints that are given up for others of priorities that come first."""
        return tuple(result for result in self.rules if result.given_up_for)

    def conflict_of(self, constraint: Constraint) -> tuple[Constraint, ...]:
        """List the constraints that one cannot be met together with, itself among them.

        Parameters
        ----------
        constraint : Constraint
            The constraint.

        Returns
        -------
        tuple of Constraint
            Empty for one that others are given up for, and where the conflict is not proved.
        """
        if not self.given_up:
            return self.conflict if self.is_proved else ()
        return next(
            ((constraint, *r.given_up_for) for r in self.given_up if r.constraint == constraint),
            (),
        )

    @property
    def undefined(self) -> tuple[ConstraintResult, ...]:
        """Constraints whose values are undefined, beside conflicts and rates over too few rows."""
        named = {rate.constraint for rate in self.too_few_rows}.union(self.conflict)
        return tuple(
            result
            for result in self._with_verdict("cannot be told")
            if np.isnan(result.value) and result.constraint not in named
        )

    @property
    def broken_by_shift(self) -> tuple[ConstraintResult, ...]:
        """Constraints on mean losses that are missed, or missed by more, due to the shift."""
        missed = self._with_verdict("missed")
        return tuple(result for result in missed if np.isfinite(result.unshifted))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, by the codes that ``docs/warnings.md`` explains."""
        return findings_of_fit(self)

    @property
    def message(self) -> str:
        """The findings in plain words, one line for each constraint that is not met."""
        within = () if self.conflict else self._with_verdict("missed within sampling error")
        reported = self._reported_rows
        found = [
            self._conflict_message or self._fragile_message,
            describe_cost(self.cost),
            *self._doubts,
            *self._misses,
            describe("missed within sampling error", within, rows=reported),
        ]
        lines = [*filter(None, found)] or [MESSAGES["met"].lead.format(rows=reported)]
        if any(result.verdict.source == TRAINING_ROWS for result in self.rules):
            lines.append(MESSAGES["training rows"].lead)
        if self.rounds_trained < self.rounds_asked:
            ended = {"trained": self.rounds_trained, "asked": self.rounds_asked}
            lines.append(MESSAGES["fewer rounds"].lead.format(**ended))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.message

    def add_training_evidence(self, values: Float, is_violated: Bool) -> Feasibility:
        """Add what the training rows of the model returned say against constraints.

        Parameters
        ----------
        values : ndarray of shape (n_constraints,)
            Value of each constraint by the training rows.
        is_violated : ndarray of shape (n_constraints,), bool
            Whether the training rows refute each constraint.
        """
        refuted = tuple(
            replace(self.rules[j], trained=float(values[j])) for j in np.flatnonzero(is_violated)
        )
        doubts = {
            result.constraint: f"the model breaks the constraint on its training rows, "
            f"{result.trained:.4f}"
            for result in refuted
        }
        results = tuple(
            replace(
                result,
                verdict=Verdict.of(
                    result.constraint,
                    Estimate(result.value, result.low, result.high),
                    result.verdict.rows,
                    result.verdict.source,
                    doubt=result.verdict.reason or doubts.get(result.constraint, ""),
                    conflict=self.conflict_of(result.constraint),
                    left_out=result.verdict.left_out,
                ),
            )
            for result in self.rules
        )
        return replace(self, rules=results, refuted=refuted)

    def warn(self, raises: bool) -> None:
        """Warn of the findings, or raise if constraints cannot be met.

        Parameters
        ----------
        raises : bool
            Whether constraints that cannot be met are an error.

        Raises
        ------
        InfeasibleConstraintsError
            If constraints cannot be met and `raises` is set.
        """
        conflict = self._conflict_message
        found: list[tuple[str, type[Warning]]] = [
            ("\n".join(filter(None, [self._fragile_message, *self._doubts])),
             FragileConstraintsWarning),
            ("\n".join(filter(None, self._misses)), MissedConstraintsWarning),
            (describe_cost(self.cost), CostlyConstraintsWarning),
            ("" if raises else conflict, InfeasibleConstraintsWarning),
        ]  # fmt: skip
        for text, category in found:
            if text:
                issue_warning(text, *(f.code for f in self.findings if f.category is category))
        if conflict and raises:
            raise InfeasibleConstraintsError(conflict, self)

    @property
    def _rows(self) -> str:
        if self.source == TRAINING_ROWS:
            return f"{self.n_rows:,} {TRAINING_ROWS}"
        return f"{self.n_rows:,} unseen rows ({self.source})"

    @property
    def _reported_rows(self) -> str:
        """The rows that the verdicts are about, which may be those of an evaluation set."""
        sources = list(dict.fromkeys(result.verdict.source for result in self.rules))
        if sources == [self.source]:
            return self._rows
        return " and ".join(s if s == TRAINING_ROWS else f"unseen rows ({s})" for s in sources)

    def _with_verdict(self, kind: Kind) -> list[ConstraintResult]:
        return [result for result in self.rules if result.verdict.kind == kind]

    @property
    def _conflict_message(self) -> str:
        certificate = self.p_value, self.level
        return describe_conflict(
            self.conflict,
            self.rules,
            self.error,
            certificate,
            self._rows,
            is_proved=self.is_proved,
        )

    @property
    def _fragile_message(self) -> str:
        if not self.is_fragile:
            return ""
        if self.cost.is_of_numbers:
            share, free = 1.0 - self.cost.error, 1.0 - self.cost.unconstrained_error
            return describe("fragile numbers", self.rules, share=share, free=free, rows=self._rows)
        more = ", or give more rows to certify on, if it is these that leave no room"
        is_met = all(result.is_met for result in self.rules)
        return describe(
            "fragile",
            self.rules,
            hold="hold" if is_met else "are met to within sampling error",
            constant_class=self.constant_class,
            objective=self.cost.objective,
            error=self.error if self.cost.objective == "error" else self.cost.error,
            constant_error=self.constant_error,
            free_error=self.free_error,
            rows=self._rows,
            more_rows=more if np.isfinite(self.p_value) else "",
        )

    @property
    def _doubts(self) -> list[str]:
        is_over_time = self.source == LATER_PERIODS
        return [
            describe_too_few_rows(self.too_few_rows),
            describe("undefined", self.undefined, rows=self._reported_rows),
            describe("unsteady over time" if is_over_time else "unsteady", self.unsteady),
            describe("refuted", self.refuted, rows=self._rows),
            describe("drifting", self.drifting),
        ]

    @property
    def _misses(self) -> list[str]:
        named = {result.constraint for result in (*self.left, *self.broken_by_shift)}
        others = [r for r in self._with_verdict("missed") if r.constraint not in named]
        of_numbers = row_functions_of([result.constraint for result in self.rules])
        missed = "missed by numbers" if of_numbers else "missed"
        return [
            describe("broken by the shift", self.broken_by_shift, rows=self._rows),
            describe("violations left", self.left, rows=self._rows),
            # A conflict names all constraints.
            describe(missed, () if self.conflict else others, rows=self._reported_rows),
        ]
