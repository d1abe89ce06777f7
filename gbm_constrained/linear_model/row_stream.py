"""Rows that arrive in parts of any size, and the search that reads them."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.linear_model.pair_sets import PairSample, PairSets
from gbm_constrained.solvers.level_set import LevelSetSearch
from gbm_constrained.solvers.pair_rules import NEGATIVES, POSITIVES

MAX_VALIDATION_ROWS = 5_000  # A standard error of an AUC of 0.8 of 0.006 at worst, to choose by.


class Reservoir:
    """A random sample, of bounded size, of all rows that were offered; algorithm R (Vitter, 1985).

    Parameters
    ----------
    capacity : Most rows that are kept.
    random_state : Source of randomness.
    """

    def __init__(self, capacity: int, random_state: np.random.RandomState) -> None:
        self.capacity, self.random_state = capacity, random_state
        self.n_offered = 0
        self._kept: list[PairSample] = []

    def add(self, rows: PairSample) -> None:
        """Offer rows, each of which may replace one that is kept."""
        self._none = rows.take(np.arange(0))
        for i in range(len(rows)):
            at = self.n_offered
            if at >= self.capacity:
                at = self.random_state.randint(self.n_offered + 1)
            if at < self.capacity:
                self._kept[at : at + 1] = [rows.take(np.array([i]))]
            self.n_offered += 1

    @property
    def rows(self) -> PairSample:
        """The rows that are kept."""
        return PairSample.concatenate(self._kept or [self._none])


def share_of_positives(members: Float) -> float:
    """Compute the share of positives, given the weight in each set; one half of no rows."""
    total = members[POSITIVES] + members[NEGATIVES]
    return float(members[POSITIVES] / total) if total > 0 else 0.5


class RowStream:
    """Training rows of a search that arrive in parts, some of which are kept for validation.

    Weights of rows in sets are divided by their mean over the training rows so far.

    Parameters
    ----------
    sets : Sets of the constraints.
    search : The search.
    validation : Sample of validation rows.
    validation_fraction : Probability of a row to be offered to that sample; it is then not trained
        on.
    """

    def __init__(
        self,
        sets: PairSets,
        search: LevelSetSearch,
        validation: Reservoir,
        validation_fraction: float,
    ) -> None:
        self.sets, self.search, self.validation = sets, search, validation
        self.validation_fraction = validation_fraction
        self._sum: Float = np.zeros(sets.sets.shape[1])
        self._n_rows = 0
        self.is_doubtful = False  # Whether a constraint of the present score is not met.

    @property
    def base_rate(self) -> float:
        """Share of positives among the training rows so far."""
        return share_of_positives(self._sum)

    def read(self, rows: PairSample, validation: Codes | None = None) -> bool:
        """Take steps on rows, and return whether a level has ended.

        Parameters
        ----------
        rows : The rows.
        validation : Positions of the rows that are for validation, drawn at random by default.
        """
        if validation is None:
            draws = self.validation.random_state.uniform(size=len(rows))
            validation = np.flatnonzero(draws < self.validation_fraction)
        self.validation.add(rows.take(validation))
        training = rows.take(np.setdiff1d(np.arange(len(rows)), validation))
        n_levels = len(self.search.levels)
        size = self.search.schedule.batch_size
        for start in range(0, len(training), size):
            batch = training.take(np.arange(start, min(start + size, len(training))))
            members = self.sets.members(batch)
            self._sum += members.sum(axis=0)
            self._n_rows += len(batch)
            mean = self._sum / self._n_rows
            ratios = np.divide(members, mean, out=np.zeros_like(members), where=mean > 0)
            self.search.update(batch.X, ratios)
        return len(self.search.levels) > n_levels
