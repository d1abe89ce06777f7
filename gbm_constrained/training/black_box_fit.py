"""A fit whose objective is only a function to call.

1. The library trains its own model on the training rows.
2. The function is minimised over the parameters of that model, whose structure is frozen: by the
   best threshold, by the best threshold of each group, and by adaptive surrogates from the best
   threshold (Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020).
3. The best of them on the validation rows is put into the model.
4. Rows that chose nothing show what it is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.metrics.measured_black_box import CallBudget
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveResult, minimize_black_box
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem, LinearSpace
from gbm_constrained.solvers.post_shift import find_group_shifts, find_shift
from gbm_constrained.training.black_box_calls import CallPlan
from gbm_constrained.training.black_box_model import (
    AdjustableModel,
    Parameters,
    ScoreColumns,
    columns_beside,
)
from gbm_constrained.training.black_box_options import BlackBoxOptions
from gbm_constrained.training.black_box_rows import BlackBoxRows, partition

SURROGATE_ROWS = 10_000
"""Training rows that surrogates are means of: their mean has a standard error of a hundredth of
the standard deviation of a loss, and projections take a time proportional to the rows."""


@dataclass(frozen=True, eq=False)
class BlackBoxResult:
    """What a fit for a black-box metric has found.

    Parameters
    ----------
    parameters : Parameters
        Parameters of the returned model.
    search : AdaptiveResult
        The search on the validation rows.
    losses : dict from str to float
        Loss of each reported model on the validation rows.
    evaluated : dict from str to ndarray of shape (n_evaluation,)
        Scores of the evaluation rows by each reported model but the returned one.
    """

    parameters: Parameters
    search: AdaptiveResult
    losses: dict[str, float]
    evaluated: dict[str, Float]


class BlackBoxFit:
    """One fit for a black-box metric; everything that can be refused is refused here.

    Parameters
    ----------
    options : BlackBoxOptions
        Parameters.
    arguments : FitArguments
        Arguments of ``fit`` about rows.
    random_state : int, RandomState or None
        Source of randomness.
    takes_offsets : bool
        Whether offsets of groups may be added to the scores of the model.

    Attributes
    ----------
    rows : BlackBoxRows
        Rows of training, of choice and of evidence.
    levels : tuple of tuple
        Groups of the metric among the training rows.
    metric, reported : MeasuredBlackBox
        The metric on validation rows and on evaluation rows.
    plan : CallPlan
        What the calls are for.
    """

    def __init__(
        self,
        options: BlackBoxOptions,
        arguments: FitArguments,
        random_state: Any,
        *,
        takes_offsets: bool,
    ) -> None:
        self.options, metric, search = options, options.metric, options.search
        self.rows = BlackBoxRows.of(options, arguments, random_state)
        data, validation, evaluation = self.rows.data, self.rows.validation, self.rows.evaluation
        columns = metric.columns
        self.levels = () if columns is None else data.rows.attribute(columns).levels
        self.n_offsets = len(self.levels) if takes_offsets and search.offsets else 0
        self._sample = self._sample_rows()
        self._surrogates = metric.bind_surrogates(data.rows.take(self._sample), len(validation))
        needs_cells = metric.called.takes_sensitive or search.estimator != "interpolation"
        self._of_validation = (
            metric.bind_validation(validation.rows, data.rows) if needs_cells else None
        )
        self.plan = CallPlan(metric.max_calls, len(self.levels))
        budget = CallBudget(metric.max_calls, self.plan.of_report)
        self.metric = metric.bind(validation.rows, validation.y, budget)
        self.reported = metric.bind(evaluation.rows, evaluation.y, budget)
        n_candidates = 1 + bool(self.n_offsets)
        left = budget.left - self.plan.before_search
        search.check_effort(len(self._surrogates), left, n_candidates)
        for measured, rows in ((self.metric, validation), (self.reported, evaluation)):
            # Decisions of both classes, as those of a model: what fails here fails later.
            measured(np.random.RandomState(0).standard_normal(len(rows)))
        data.alignment.warn()

    def _sample_rows(self) -> Codes:
        """Take rows for the surrogates, with a share of each label in each group."""
        rows = self.rows.data.rows
        everyone = np.arange(len(rows))
        if len(rows) <= SURROGATE_ROWS:
            return everyone
        share, cells = SURROGATE_ROWS / len(rows), partition(rows, self.options)
        return parts_by_cell(everyone, cells, [share, 1.0 - share], self.rows.data.random_state)[0]

    @property
    def surrogate_names(self) -> tuple[str, ...]:
        """Names of the surrogates."""
        return self._surrogates.names

    def groups_of(self, rows: Rows) -> Codes:
        """Find the group of each row, counted from zero; one group without groups."""
        columns = self.options.metric.columns
        if columns is None:
            return np.zeros(len(rows), dtype=np.intp)
        return rows.attribute(columns).codes.astype(np.intp)

    def run(self, model: AdjustableModel) -> BlackBoxResult:
        """Minimise the function over the parameters of a trained model.

        Parameters
        ----------
        model : AdjustableModel
            The model.

        Returns
        -------
        BlackBoxResult
        """
        plain = Parameters(model.start, np.zeros(self.n_offsets), 0.0).vector
        data, space = self.rows.data, self._make_space(model)
        threshold = plain.copy()
        threshold[-1], _ = find_shift(
            self.metric, space.validation_scores(plain), self.plan.thresholds
        )
        shifts, group_loss = self._find_group_shifts(space.validation_scores(threshold))
        candidates, per_group = [plain], threshold.copy()
        if self.n_offsets:
            per_group[-1 - self.n_offsets : -1] = shifts
            candidates.append(per_group)
        problem = BlackBoxProblem(space, self._surrogates, self.metric, self._of_validation)
        found = minimize_black_box(
            problem, threshold, candidates, self.options.search, data.random_state
        )
        evaluation = self._columns(model, self.rows.evaluation.X, self.rows.evaluation.rows)
        on_evaluation = LinearSpace(
            evaluation.matrix, evaluation.matrix, evaluation.base, evaluation.base
        ).validation_scores
        losses = {"plain": found.candidate_losses[0], "threshold": found.iterates[0].loss}
        scores = {"plain": on_evaluation(plain), "threshold": on_evaluation(threshold)}
        if self.levels:
            groups = self.groups_of(self.rows.evaluation.rows)
            losses["threshold per group"] = group_loss
            scores["threshold per group"] = scores["threshold"] + take_offsets(shifts, groups)
        losses["this model"] = found.loss
        parameters = Parameters.split(found.parameters, self.n_offsets)
        return BlackBoxResult(parameters, found, losses, scores)

    def _make_space(self, model: AdjustableModel) -> LinearSpace:
        data, validation = self.rows.data, self.rows.validation
        X = take_rows(data.combined.X, self._sample)
        training = self._columns(model, X, data.rows.take(self._sample))
        held = self._columns(model, validation.X, validation.rows)
        return LinearSpace(training.matrix, held.matrix, training.base, held.base)

    def _columns(self, model: AdjustableModel, X: Any, rows: Rows) -> ScoreColumns:
        groups = self.groups_of(rows) if self.n_offsets else None
        return model.score_columns(X, columns_beside(groups, self.n_offsets, len(rows)))

    def _find_group_shifts(self, scores: Float) -> tuple[Float, float]:
        if not self.levels:
            return np.zeros(0), np.nan
        groups, n_groups = self.groups_of(self.rows.validation.rows), len(self.levels)
        return find_group_shifts(self.metric, scores, groups, n_groups, self.plan.group_thresholds)


def take_offsets(offsets: Float, groups: Codes) -> Float:
    """Take the offset of each row's group; zero for groups without one.

    Parameters
    ----------
    offsets : ndarray of shape (n_groups,)
        Offset of each group.
    groups : ndarray of int of shape (n_samples,)
        Group of each row; rows of no group have numbers from ``n_groups`` on.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    return np.append(offsets, 0.0)[np.minimum(groups, offsets.size)]
