"""Decision rules: from the scores of an ensemble's prefixes to classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.lagrangian import Lagrangian

Margins: TypeAlias = Callable[[int], Array]  # Scores of some rows under the prefix of k rounds.


def shift_scores(margin: Array, shift: Float) -> Array:
    """Add a shift to scores: one number to those of two classes, a bias to each of several."""
    return np.asarray(margin + (shift if margin.ndim > 1 else shift[0]))


class DecisionRule(Protocol):
    """Maps the scores of prefixes to classes."""

    def decide(self, margins: Margins) -> Codes:
        """Decide the class index of each row, given its scores by the rounds of a prefix."""


@dataclass(frozen=True)
class MarginShift:
    """Decide for the class of the largest shifted score under one prefix."""

    shift: Float  # Shift of the threshold (1,), or bias of each class.
    rounds: int = 0  # Boosting rounds of the prefix.

    def decide(self, margins: Margins) -> Codes:
        """Decide by ``margin + shift > 0`` for two classes, by the largest score for several."""
        scores = shift_scores(np.asarray(margins(self.rounds)), self.shift)
        return np.asarray(scores.argmax(axis=1) if scores.ndim > 1 else scores > 0, dtype=np.intp)


@dataclass(frozen=True)
class Mixture:
    """Decide each row by a rule that is drawn for it: a randomised classifier."""

    rules: tuple[DecisionRule, ...]
    probability: Float
    random_state: Any = None

    @classmethod
    def of_prefixes(cls, prefixes: pd.DataFrame, n_classes: int, random_state: Any) -> Mixture:
        """Build the mixture of unshifted prefixes of a table of rounds and probability."""
        nothing = np.zeros(1 if n_classes == 2 else n_classes)
        rules = tuple(MarginShift(nothing, int(rounds)) for rounds in prefixes["rounds"])
        return cls(rules, prefixes["probability"].to_numpy(), random_state)

    def decide(self, margins: Margins) -> Codes:
        """Decide each row by one rule, drawn independently with the rules' probabilities."""
        decisions = np.array([rule.decide(margins) for rule in self.rules])
        uniform = check_random_state(self.random_state).random_sample(decisions.shape[1])
        which = np.searchsorted(np.cumsum(self.probability)[:-1], uniform, side="right")
        return np.asarray(decisions[which, np.arange(uniform.size)])


class Scores(NamedTuple):
    """Scores of rows under a model whose decisions may be shifted."""

    for_decisions: Array
    for_probabilities: Array  # The same object, unless the shift is kept beside the model.

    @classmethod
    def of(cls, margin: Array, shift: Float, *, beside: bool) -> Scores:
        """Shift the scores of decisions, and those of probabilities unless the shift is beside."""
        for_decisions = shift_scores(margin, shift)
        return cls(for_decisions, margin if beside and shift.any() else for_decisions)

    def statistics(self, lagrangian: Lagrangian) -> CellStatistics:
        """Compute the cell statistics of the decisions, and of losses and ranks of probabilities.

        Tables of pairs are exact.
        """
        found = lagrangian.at(self.for_decisions).exact_statistics()
        if self.for_probabilities is self.for_decisions:
            return found
        of_scores = lagrangian.at(self.for_probabilities).exact_statistics()
        return replace(of_scores, predicted=found.predicted)


@dataclass(frozen=True)
class Choice:
    """A prefix of the ensemble and a shift of its scores, with what chose them."""

    rounds: int
    shift: Float
    error: float  # 0-1 error on the rows that chose the shift.
    violation: float  # Largest violation of a row of constraints there; 0 if all hold.
    p_value: float = np.nan  # P-value of a violation, on the certification rows.
    level: float = np.nan  # Largest p-value that earns the certificate.
    bounds: Float | None = None  # Right-hand sides that chose the shift; None for the own ones.
    loss: float = np.nan  # Error, or 1 - AUC, plus the penalty of the largest violation.
    # Whether a constraint is violated that compares no groups, which is accepted only where no
    # decision meets all of these constraints.
    has_rate_violation: bool = False
    refit_violation: float = 0.0  # Largest violation of the model of all rows, beyond sampling.

    @property
    def is_certified(self) -> bool:
        """Whether a certificate was asked for and is given."""
        return self.p_value <= self.level

    @property
    def is_uncertified(self) -> bool:
        """Whether a certificate was asked for and is not given."""
        return self.p_value > self.level
