"""Boosters of a fit for a metric under constraints: those that a fit without a metric grows.

Fold boosters are grown without multipliers, and with them while constraints cost more errors than
they should (:mod:`gbm_constrained.training.pass_search`). Decisions of a metric begin at what the
fit without a metric would decide on the best of these sets, and on the set without multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.prefix_choice import choose_with_room
from gbm_constrained.decision.refit_transfer import match_positive_rate, rows_to_match
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.growth import FoldGrowth
from gbm_constrained.training.measurement import follow
from gbm_constrained.training.passes import Grown
from gbm_constrained.training.plug_in import choose_by_held_out


@dataclass(frozen=True, eq=False)
class BoosterSet:
    """A set of fold boosters, and what a fit without a metric decides on its scores.

    Parameters
    ----------
    grown : tuple of FoldBoosters and EvaluationSet
        The boosters, and the rows that they hold out.
    rounds : int
        Rounds of the prefix that decides.
    shift : ndarray
        Shift of its scores.
    decisions : ndarray of shape (n_rows,), intp
        Decisions about the held-out rows, cross-fitted.
    """

    grown: Grown
    rounds: int
    shift: Float
    decisions: Codes

    @property
    def oracle(self) -> str:
        """Name of the boosters in reports."""
        return "multipliers" if self.grown[0].has_multipliers else "plug_in"

    @property
    def margin(self) -> Array:
        """Scores of the held-out rows."""
        return self.grown[0].held_margin(self.rounds)


class ConstrainedBoosters:
    """Grows fold boosters as a fit without a metric does, and then the model of one set.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit under the same constraints, without a metric.
    adapter : BoosterAdapter
        Drives the library, and has taken the rows of the fit.
    """

    def __init__(self, fit: ConstrainedFit, adapter: Any) -> None:
        self.fit, self.adapter = fit, adapter
        self._growth: FoldGrowth

    def grow(self, folds: Sequence[Fold], source: str) -> list[BoosterSet]:
        """Grow sets of boosters on folds; the one that a fit without a metric takes comes first.

        Parameters
        ----------
        folds : sequence of Fold
            Rows of each booster.
        source : str
            Name of the held-out rows in reports.
        """
        with self.adapter.measuring():
            self._growth = FoldGrowth(self.fit.run, self.adapter.make_factory(), folds, source)
            best, plain = self._growth.find_best(), self._growth.plain_boosters
        sets = [best] if plain is None or plain[0] is best[0] else [best, plain]
        return [self._decide(one) for one in sets]

    def _decide(self, grown: Grown) -> BoosterSet:
        """Decide as a fit without a metric does before it has trained its model."""
        boosters, held_out = grown
        choice = choose_by_held_out(grown, self.fit.options)
        margin = boosters.held_margin(choice.rounds)
        choice, decisions = choose_with_room(held_out.credible, margin, choice)
        return BoosterSet(grown, choice.rounds, choice.shift, decisions)

    def train(self, chosen: BoosterSet) -> None:
        """Train the model of all rows as a set of boosters was grown."""
        self.fit.measured = follow(self._growth, chosen.grown)
        trained = self.adapter.train()
        if chosen.rounds != trained.rounds:
            trained.model.truncate(chosen.rounds)
        if self.fit.run.checkpoint is not None:
            self.fit.run.checkpoint.remove()

    def transfer(self, chosen: BoosterSet, shift: Float, margin: Array) -> Float:
        """Find the shift by which the model of all rows decides as many rows as the folds do.

        Parameters
        ----------
        chosen : BoosterSet
            The set of boosters that a shift was found for.
        shift : ndarray
            The shift.
        margin : ndarray
            Scores of all rows by the model.
        """
        boosters, cells = chosen.grown[0], self.fit.problem.cells
        matched = rows_to_match(self.fit.problem.compiled, cells)
        if boosters.compared or matched is None or not shift.any():
            return shift
        scores = boosters.scores(chosen.rounds)
        return np.asarray(match_positive_rate(scores, shift, margin, matched, cells))
