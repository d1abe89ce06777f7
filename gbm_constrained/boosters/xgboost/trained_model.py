"""The booster of a finished fit of XGBoost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.xgboost.fold_features import read_rows
from gbm_constrained.boosters.xgboost.group_tree import append_group_tree
from gbm_constrained.boosters.xgboost.model import as_scores, keep_first_rounds, shift_intercept
from gbm_constrained.boosters.xgboost.rescaling import rescale
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.training.fit import ConstrainedFit


class TrainedXGBModel:
    """The booster of a finished fit, as a ``TrainedModel`` of the training.

    Parameters
    ----------
    parent : ConstrainedXGBClassifier
        The classifier that has the booster.
    fit : ConstrainedFit
        The fit.
    matrices : list
        Training rows, and each of the fit's evaluation sets.
    grown_before : int
        Rounds of the model that was continued.
    base_margin : array-like or None
        Scores that all rows given to ``fit`` start from.
    score_after : callable
        The value that early stopping compared after some rounds.
    """

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        fit: ConstrainedFit,
        matrices: list[Any],
        grown_before: int,
        base_margin: Any,
        score_after: Callable[[int], float | None],
    ) -> None:
        self.parent, self.fit, self.grown_before = parent, fit, grown_before
        self.base_margin, self.score_after = base_margin, score_after
        self.booster = parent.get_booster()
        self.training = matrices[0]
        self.matrices = dict(zip(fit.evaluation_sets, matrices[1:], strict=True))

    def margin(self, rounds: int) -> Array:
        return self._predict(self.training, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.matrices:  # Certification rows are no evaluation set of the user.
            data = self.fit.data
            assert data.certification is not None
            self.matrices[rows] = read_rows(
                self.parent, data.whole.X, self.base_margin, data.certification
            )
        return self._predict(self.matrices[rows], rounds)

    def _predict(self, matrix: Any, rounds: int) -> Array:
        span = (0, self.grown_before + rounds)
        scores = self.booster.predict(matrix, output_margin=True, iteration_range=span)
        return as_scores(scores, self.fit.data.columns)

    def truncate(self, rounds: int) -> None:
        end = self.grown_before + rounds
        stopped = self.booster.attr("best_iteration") is not None
        self.booster = self.parent._Booster = keep_first_rounds(self.booster, end)
        if stopped:  # ``predict`` uses the rounds up to the best iteration.
            score = self.score_after(rounds)
            best_score = None if score is None else str(score)
            self.booster.set_attr(best_iteration=str(end - 1), best_score=best_score)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.booster, shift)

    def rescale(self, affine: Affine) -> None:
        rescale(self.booster, affine)

    def add_to_groups(self, offsets: GroupOffsets) -> None:
        data = self.fit.data
        tree = GroupTree.of(data.combined.X, offsets, offsets.groups_of(data.rows))
        self.booster = self.parent._Booster = append_group_tree(self.booster, tree)
