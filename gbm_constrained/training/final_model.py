"""The model that a fit returns, and what rows say of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from gbm_constrained._typing import Codes, Float
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.rule import Choice
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows
from gbm_constrained.solvers.base import Record
from gbm_constrained.training.report_layout import ReportLayout


@dataclass(frozen=True, eq=False)
class FinalModel:
    """The model that a fit returns; each step of finalizing fills in further fields.

    Parameters
    ----------
    rounds : int
        Boosting rounds of the model.
    shift : ndarray of shape (1,) or (n_classes,)
        Shift of the scores.
    layout : ReportLayout
        Order of constraints and groups in reports.
    affine : Affine, default=Affine()
        Map of the scores behind probabilities, which leaves decisions as they are.
    offsets : GroupOffsets, default=None
        What is added to the scores of groups, if these have thresholds of their own.
    prefixes : DataFrame, default=None
        Rounds and probability of each prefix of a randomised classifier.
    choice : Choice, default=None
        Prefix and shift, if held-out rows chose them.
    decided : ndarray of shape (n_rows,), intp, default=None
        Decisions about these rows that are reported, such as cross-fitted ones.
    outcome : Outcome, default=None
        Values of the constraints on held-out rows.
    feasibility : Feasibility, default=None
        Verdicts on the constraints by held-out rows.
    mixture_violations : ndarray of shape (m,), default=None
        Violations by a mixture of prefixes.
    too_few_rows : tuple of TooFewRows, default=()
        Rates that the reported rows are too few for.
    record : Record, default=None
        State of the solver at the model.
    functionals : ndarray of shape (n_functionals,), default=None
        Rates on the training rows.
    periods : DataFrame, default=None
        Values of the constraints by period, if the held-out rows are of several.
    training_intervals : ndarray of shape (n_constraints, 2), default=None
        Intervals of values on the training rows, if these are reported.
    """

    rounds: int
    shift: Float
    layout: ReportLayout
    affine: Affine = field(default_factory=Affine)
    offsets: GroupOffsets | None = None
    prefixes: pd.DataFrame | None = None
    choice: Choice | None = None
    decided: Codes | None = None
    outcome: Outcome | None = None
    feasibility: Feasibility | None = None
    mixture_violations: Float | None = None
    too_few_rows: tuple[TooFewRows, ...] = ()
    record: Record | None = None
    functionals: Float | None = None
    periods: pd.DataFrame | None = None
    training_intervals: Float | None = None

    @property
    def has_offsets(self) -> bool:
        """Whether a group has a threshold of its own."""
        return self.offsets is not None and bool(self.offsets.values.any())

    @property
    def is_shifted(self) -> bool:
        """Whether decisions differ from those of the trained booster."""
        return bool(self.shift.any()) or self.has_offsets

    @property
    def is_changed(self) -> bool:
        """Whether decisions or probabilities differ from those of the trained booster."""
        return self.is_shifted or not self.affine.is_identity

    @property
    def shift_of_mapped(self) -> Float:
        """Shift of mapped scores, by which they decide as shifted scores do."""
        return self.affine.scale * self.shift - self.affine.shift

    @property
    def has_training_verdicts(self) -> bool:
        """Whether the verdict on some constraint is by the training rows, for want of others."""
        if self.feasibility is not None:
            return False
        return self.outcome is None or bool(np.isnan(self.layout.values(self.outcome)).any())

    def with_training_intervals(self, intervals: Float, few: tuple[TooFewRows, ...]) -> FinalModel:
        """Add intervals of values on training rows, and rates over too few of these rows."""
        few = (*self.too_few_rows, *few)
        return replace(self, training_intervals=intervals, too_few_rows=few)
