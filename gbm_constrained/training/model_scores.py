"""Scores of a trained model and of the fold boosters, by prefix."""

from __future__ import annotations

import copy
from typing import Protocol

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.training.measurement import Measured


class TrainedModel(Protocol):
    """A booster that the library has trained.

    Rounds are those of this fit, without the rounds of a model that was continued.
    """

    def margin(self, rounds: int) -> Array:
        """Scores of the training rows after some rounds."""

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        """Scores of an evaluation set or of certification rows after some rounds."""

    def truncate(self, rounds: int) -> None:
        """Keep the first rounds."""

    def add_to_margin(self, shift: Float) -> None:
        """Add a shift to all scores."""

    def rescale(self, affine: Affine) -> None:
        """Map all scores."""

    def add_to_groups(self, offsets: GroupOffsets) -> None:
        """Append a tree that adds offsets to the scores of groups."""


class ModelScores:
    """Scores that decisions are chosen by.

    Rows that fold boosters hold out are scored by the booster that has not seen them, all others
    by the trained model.

    `known` are scores of the training rows that have been computed, by rounds.
    """

    def __init__(
        self, trained: TrainedModel, measured: Measured, known: dict[int, Array] | None = None
    ) -> None:
        self.trained, self.measured = trained, measured
        self._training = dict(known or {})
        self._offsets: GroupOffsets | None = None
        self._added: Float | None = None  # Offsets of the training rows.

    def with_offsets(self, offsets: GroupOffsets, training: Rows) -> ModelScores:
        """Give the scores with what is added to those of groups; `training` are all rows."""
        moved, added = copy.copy(self), offsets.of(training)
        moved._offsets, moved._added = offsets, added
        moved._training = {rounds: margin + added for rounds, margin in self._training.items()}
        return moved

    def training(self, rounds: int) -> Array:
        """Scores of the training rows after some rounds."""
        if rounds not in self._training:
            margin = self.trained.margin(rounds)
            self._training[rounds] = margin if self._added is None else margin + self._added
        return self._training[rounds]

    def held_out(self, rows: EvaluationSet, rounds: int) -> Array:
        """Scores of rows that are not trained on, after some rounds."""
        boosters = self.measured.boosters
        if rows is self.measured.rows and boosters is not None:
            margin = boosters.held_margin(rounds)
        else:
            margin = self.trained.held_margin(rows, rounds)
        return margin if self._offsets is None else margin + self._offsets.of(rows.cells.rows)
