"""From scores to classes: shifts of the scores, and drawn prefixes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.lagrangian import Lagrangian


def shifted(margin: Array, shift: Float) -> Array:
    """Scores with a shift added to them."""
    return np.asarray(margin + (shift if margin.ndim > 1 else shift[0]))


def decided(margin: Array, shift: Float) -> Array:
    """Class index that shifted scores decide for."""
    scores = shifted(margin, shift)
    return np.asarray(scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(np.intp))


class Scores(NamedTuple):
    """Scores of rows under a model whose decisions may be shifted.

    Parameters
    ----------
    deciding : ndarray
        Those that ``predict`` decides by.
    telling : ndarray
        Those that ``predict_proba`` tells of, and that mean losses are taken of; the same object
        unless the shift is kept beside the model.
    """

    deciding: Array
    telling: Array

    @classmethod
    def of(cls, margin: Array, shift: Float, *, beside: bool) -> Scores:
        """Shift scores, or keep the shift beside those that probabilities are of."""
        deciding = shifted(margin, shift)
        return cls(deciding, margin if beside and shift.any() else deciding)

    def statistics(self, lagrangian: Lagrangian) -> CellStatistics:
        """Cell statistics of the decisions, and of the losses of the probabilities."""
        found = lagrangian.at(self.deciding).statistics()
        if self.telling is self.deciding:
            return found
        return replace(lagrangian.at(self.telling).statistics(), predicted=found.predicted)


@dataclass(frozen=True)
class Choice:
    """A prefix of the ensemble and a shift of its scores.

    Parameters
    ----------
    rounds : int
        Boosting rounds of the prefix.
    shift : ndarray of shape (1,) or (n_classes,)
        Added to the scores.
    error : float
        0-1 error on the rows it was chosen by.
    excess : float
        Largest violation of a row of constraints there; 0 if all hold.
    p_value : float, default=NaN
        Of the null hypothesis that a rule is violated, on rows used for nothing else.
    level : float, default=NaN
        What it had to be at most for a certificate.
    bounds : ndarray of shape (m,), default=None
        Right-hand sides that the shift was chosen by; those of the constraints by default.
    loss : float, default=nan
        Error plus the price of the largest violation, if there is one; see :func:`price`.
    breaks_rates : bool, default=False
        Whether a constraint is violated that compares no groups: its violation is accepted only
        where no decision meets all such constraints.
    stray : float, default=0
        Largest violation beyond sampling error by the model that would be returned, which may be
        elsewhere than those that scored the rows.
    """

    rounds: int
    shift: Float
    error: float
    excess: float
    p_value: float = np.nan
    level: float = np.nan
    bounds: Float | None = None
    loss: float = np.nan
    breaks_rates: bool = False
    stray: float = 0.0

    @property
    def uncertified(self) -> bool:
        """Whether a certificate was asked for and not given."""
        return self.p_value > self.level


MET = 1e-12  # Violation that is rounding.


def drawn(decide: Callable[[int], Array], prefixes: pd.DataFrame, random_state: Any) -> Array:
    """Decisions of a randomised classifier: each row by a prefix drawn for it.

    Parameters
    ----------
    decide : callable
        Decisions on all rows of the prefix of so many rounds.
    prefixes : DataFrame
        Rounds and probability of each prefix.
    random_state : int, RandomState or None
        As in scikit-learn.
    """
    decisions = np.array([decide(int(rounds)) for rounds in prefixes["rounds"]])
    uniform = check_random_state(random_state).random_sample(decisions.shape[1])
    which = np.searchsorted(np.cumsum(prefixes["probability"])[:-1], uniform, side="right")
    return np.asarray(decisions[which, np.arange(uniform.size)])


def refuse_random_state(random_state: Any) -> None:
    """Refuse a source of randomness where nothing is drawn."""
    if random_state is not None:
        raise ValueError(
            f"random_state={random_state!r} draws from the prefixes of a classifier fitted with "
            f"constraints and iterate='randomized', which this one was not: leave it out."
        )
