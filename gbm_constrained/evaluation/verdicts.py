"""Verdicts on constraints: one vocabulary for fits, audits, pages, figures and the command line.

A verdict compares the value of a constraint with its bound, on the rows that are reported:

- **met**: the value is on the right side of the bound.
- **met on training rows**: so it is on the rows that the model was trained on, which prove nothing
  about others.
- **missed within sampling error**: the value is on the wrong side, and the 95% interval of the
  value reaches the bound.
- **missed**: the value is on the wrong side, and so is the whole interval. A value without an
  interval, such as a mean loss or a pair rate of a randomised classifier, is missed as well.
- **cannot be told**: the value is undefined, its rows are too few
  (:func:`~gbm_constrained.evaluation.sample_size.find_too_few_rows`), or other evidence speaks
  against the value, such as the training rows of the model returned.
- **cannot be met**: no decision that the model can make meets the constraint, or the smallest set
  of constraints that it conflicts with. Of these, a constraint of a later priority is given up for
  those that come first, which have verdicts of their own.

The value alone decides between met and missed, as it does for ``satisfied`` in reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.decision.evaluation_set import Estimate

__all__ = ["Verdict"]

Kind: TypeAlias = Literal[
    "met",
    "met on training rows",
    "missed within sampling error",
    "cannot be told",
    "missed",
    "cannot be met",
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # From the least grave to the gravest.
TRAINING_ROWS = "training rows"  # Source of values on the rows that the model was trained on.


@dataclass(frozen=True)
class Verdict:
    """Verdict on one constraint.

    Parameters
    ----------
    kind : str
        The verdict, as reports show it: "met", "met on training rows", "missed within sampling
        error", "cannot be told", "missed" or "cannot be met".
    distance : float
        Distance by which the value is beyond the bound; zero or negative where the value is on the
        right side, NaN where it is undefined.
    rows : int
        Number of rows that the constraint is taken over.
    source : str, default=""
        Name of these rows in reports, such as "out of fold" or "training rows"; empty in audits.
    reason : str, default=""
        Reason why a verdict cannot be told.
    conflict : tuple of str, default=()
        The other constraints that this one cannot be met together with.
    given_up_for : tuple of str, default=()
        Those of them that come first by their priority.
    is_open : bool, default=False
        Whether part of the interval is on the wrong side of the bound.
    is_sampled : bool, default=True
        Whether the value has an interval.
    left_out : tuple of str, default=()
        Groups that the value does not compare, which the texts of all verdicts name.
    """

    kind: Kind
    distance: float
    rows: int
    source: str = ""
    reason: str = ""
    conflict: tuple[str, ...] = ()
    given_up_for: tuple[str, ...] = ()
    is_open: bool = False
    is_sampled: bool = True
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        constraint: Constraint,
        estimate: Estimate,
        rows: int,
        source: str = "",
        *,
        doubt: str = "",
        conflict: Sequence[Constraint] = (),
        left_out: Sequence[str] = (),
    ) -> Verdict:
        """Assess a constraint by its value and the interval of the value.

        Parameters
        ----------
        constraint : Constraint
            The constraint.
        estimate : Estimate
            Value, NaN if it is undefined, and its interval, NaN if there is none.
        rows : int
            Number of rows that the constraint is taken over.
        source : str, default=""
            Name of these rows in reports.
        doubt : str, default=""
            Evidence that speaks against the value. A miss beyond sampling error stands in spite of
            it.
        conflict : sequence of Constraint, default=()
            The constraints that cannot be met together, if this one is among them.
        left_out : sequence of str, default=()
            Groups without rows, or with too few, that the value does not compare.
        """
        value, *interval = map(float, estimate)
        distance = constraint.sign * (value - constraint.bound)
        is_missed, is_open = distance > ROUNDING, reaches_beyond(constraint, interval)
        is_sampled = not bool(np.isnan(interval).any())
        others = [c for c in conflict if c != constraint] if constraint in conflict else []
        kind: Kind = "met on training rows" if source == TRAINING_ROWS else "met"
        if constraint in conflict:
            kind = "cannot be met"
        elif np.isnan(distance):
            kind, doubt = "cannot be told", doubt or "the value is undefined on these rows"
        elif is_missed and not (is_sampled and reaches_within(constraint, interval)):
            kind = "missed"
        elif doubt:
            kind = "cannot be told"
        elif is_missed:
            kind = "missed within sampling error"
        return cls(
            kind,
            distance,
            rows,
            source,
            doubt if kind == "cannot be told" else "",
            tuple(map(str, others)),
            tuple(str(c) for c in others if c.priority < constraint.priority),
            is_open,
            is_sampled,
            tuple(left_out),
        )

    @property
    def _sample(self) -> str:
        n = f"{self.rows:,}"
        if self.source == TRAINING_ROWS:
            return f"{n} {TRAINING_ROWS}"
        return f"{n} row{'s' * (self.rows != 1)}" + (f" ({self.source})" if self.source else "")

    def __str__(self) -> str:
        without = f", without {join_truncated(self.left_out)}" if self.left_out else ""
        return self._text + without

    @property
    def _text(self) -> str:
        if self.kind.startswith("met"):
            return self.kind + ", but the interval reaches beyond the bound" * self.is_open
        if self.kind == "cannot be told":
            return f"cannot be told: {self.reason}"
        if self.given_up_for:
            return f"given up for {' and '.join(self.given_up_for)}"
        if self.kind == "cannot be met":
            others = " and ".join(self.conflict)
            return f"cannot be met together with {others}" if others else "cannot be met"
        missed = f"missed by {self.distance:.2g}"
        if not self.is_sampled:
            return f"{missed} on {self._sample}"
        where = "within" if self.kind == "missed within sampling error" else "beyond"
        return f"{missed}, {where} sampling error of {self._sample}"


def gravest(kinds: Iterable[Kind]) -> Kind:
    """Find the gravest of several kinds of verdicts; "met" without any."""
    return max(kinds, key=KINDS.index, default="met")


def reaches_beyond(constraint: Constraint, interval: Float | Sequence[float]) -> bool:
    """Whether part of an interval is on the wrong side of the bound; False if there is none."""
    low, high = interval
    end = high if constraint.sign > 0 else low
    return bool(constraint.sign * (end - constraint.bound) > ROUNDING)


def reaches_within(constraint: Constraint, interval: Float | Sequence[float]) -> bool:
    """Whether part of an interval is on the right side of the bound; False if there is none."""
    low, high = interval
    end = low if constraint.sign > 0 else high
    return bool(constraint.sign * (end - constraint.bound) <= ROUNDING)
