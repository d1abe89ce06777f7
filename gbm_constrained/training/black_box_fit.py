"""A fit whose objective is only a function to call.

1. The library trains its own model on the training rows.
2. The function is minimised over the parameters of that model, whose structure is frozen: by the
   best threshold, by the best threshold of each group, and by adaptive surrogates from the best
   threshold (Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020).
3. The best of them on the validation rows is put into the model.
4. Rows that chose nothing show what it is worth.

Iterates move with the noise of the validation rows. The mean of their second half, with its own
best thresholds, is therefore one more candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.decision.group_shifts import take_offsets
from gbm_constrained.metrics.measured_black_box import CallBudget
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveResult, minimize_black_box
from gbm_constrained.solvers.parameter_spaces import (
    BlackBoxProblem,
    CountedMetric,
    LinearSpace,
    ParameterSpace,
)
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
from gbm_constrained.training.black_box_rules import RuledLoss

RETURNED = "this model"  # Its name in the report.
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
        Scores of the evaluation rows by each reported model.
    loss : float
        Loss of the returned model on the validation rows, with the constraints.
    """

    parameters: Parameters
    search: AdaptiveResult
    losses: dict[str, float]
    evaluated: dict[str, Float]
    loss: float


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
        # After a search its best parameters are compared with a mean, that with a shift and with
        # offsets, and both starts; and what is returned is measured again.
        n_compared = 7 + (search.n_iterations + 1 if options.constraints else 0)
        self.plan = CallPlan(metric.max_calls, len(self.levels), 1 + search.refits, n_compared)
        self._n_left = search.refits  # Searches after this one.
        budget = CallBudget(metric.max_calls)
        self.metric = metric.bind(validation.rows, validation.y, budget)
        self.reported = metric.bind(evaluation.rows, evaluation.y, budget)
        self.rules_of_evidence = options.rules_on(evaluation.rows)
        self._choice: CountedMetric = self.metric
        self._searched: CountedMetric = self.metric
        if (rules := options.rules_on(validation.rows)) is not None:
            self._choice = RuledLoss(self.metric, rules, is_choice=True)
            self._searched = RuledLoss(self.metric, rules, is_choice=False)
        n_candidates = 1 + bool(self.n_offsets)
        left = self.plan.of_search - self.plan.shifts - self.plan.refinement
        search.check_effort(len(self._surrogates), left, n_candidates)
        for measured, rows in ((self.metric, validation), (self.reported, evaluation)):
            # Decisions of both classes, as those of a model: what fails here fails later.
            scores = np.random.RandomState(0).standard_normal(len(rows))
            first, again = (measured.measure(scores) for _ in range(2))
            if first != again:
                issue_warning(
                    f"{metric} is random: it has the values {first:g} and {again:g} for equal "
                    f"predictions. Fix the random state of the function.",
                    "GC310",
                )
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
        kept_back = self.plan.kept_back(self._n_left)
        self.metric.budget.reserve(kept_back + self.plan.refinement)
        plain = Parameters(model.start, np.zeros(self.n_offsets), 0.0).vector
        space, random = self._make_space(model), self.rows.data.random_state
        threshold, shifts = self._post_shift(space, plain)
        candidates = [plain]
        if self.n_offsets:
            candidates.append(self._with_offsets(threshold, shifts))
        problem = BlackBoxProblem(space, self._surrogates, self._searched, self._of_validation)
        search = self.options.search
        found = minimize_black_box(problem, threshold, candidates, search, random)
        self.metric.budget.reserve(kept_back)
        self._n_left -= 1
        best = self._refine(space, found, candidates)
        columns = self._columns(model, self.rows.evaluation.X, self.rows.evaluation.rows)
        evidence = LinearSpace(columns.matrix, columns.matrix, columns.base, columns.base)
        chosen, scores = (
            self._score_reported(of_rows, rows.rows, (plain, threshold, best), shifts)
            for of_rows, rows in (
                (space, self.rows.validation),
                (evidence, self.rows.evaluation),
            )
        )
        losses = {name: self.metric(given) for name, given in chosen.items()}
        loss = self._choice(chosen[RETURNED])
        parameters = Parameters.split(best, self.n_offsets)
        return BlackBoxResult(parameters, found, losses, scores, loss)

    def row_factors(self, result: BlackBoxResult) -> Float:
        """Weigh the training rows as the last projections weigh their surrogates.

        The gradient of a projection is that of a weighted loss, whose weights are the excess of
        each surrogate over its target.
        """
        iterates = result.search.iterates[1:]
        tail = iterates[len(iterates) // 2 :]
        excess = [np.maximum(one.profile - one.target, 0.0) for one in tail]
        rows, metric = self.rows.data.rows, self.options.metric
        weights = np.mean(excess, axis=0) if tail else np.zeros(len(self._surrogates))
        if not weights.any():  # All targets were reached, or no step was made.
            weights = np.ones(len(self._surrogates))
        return metric.bind_surrogates(rows, None).row_factors(weights)

    def _post_shift(self, space: ParameterSpace, parameters: Float) -> tuple[Float, Float]:
        """Find the best threshold, and shifts of groups from there."""
        shifted = parameters.copy()
        scores = space.validation_scores(parameters)
        shift, value = find_shift(self._choice, scores, self.plan.thresholds)
        if (unshifted := self._choice(scores)) <= value:  # Not all thresholds are tried.
            shift, value = 0.0, unshifted
        shifted[-1] += shift
        if not self.levels:
            return shifted, np.zeros(0)
        groups, n_groups = self.groups_of(self.rows.validation.rows), len(self.levels)
        shifts, _ = find_group_shifts(
            self._choice, scores + shift, groups, n_groups, self.plan.group_thresholds, value
        )
        return shifted, shifts

    def _with_offsets(self, parameters: Float, shifts: Float) -> Float:
        moved = parameters.copy()
        moved[-1 - self.n_offsets : -1] += shifts
        return moved

    def _refine(
        self, space: LinearSpace, found: AdaptiveResult, candidates: Sequence[Float]
    ) -> Float:
        """Choose among what was searched, the mean of the last iterates, and its shifts."""
        tail = found.iterates[len(found.iterates) // 2 :]
        mean = np.mean([one.parameters for one in tail], axis=0)
        shifted, shifts = self._post_shift(space, mean)
        tried: list[Float] = [found.parameters, mean, shifted]
        if self.n_offsets:
            tried.append(self._with_offsets(shifted, shifts))
        if self.options.constraints:  # The search has compared models by another loss.
            tried += [*candidates, *(one.parameters for one in found.iterates)]
        losses = [self._choice(space.validation_scores(parameters)) for parameters in tried]
        return tried[int(np.argmin(losses))]

    def _score_reported(
        self, space: LinearSpace, rows: Rows, reported: tuple[Float, Float, Float], shifts: Float
    ) -> dict[str, Float]:
        """Score the rows of a space by the models of the report, the returned one last."""
        plain, threshold, best = map(space.validation_scores, reported)
        scores = {"plain": plain, "threshold": threshold}
        if self.levels:
            scores["threshold per group"] = threshold + take_offsets(shifts, self.groups_of(rows))
        return {**scores, RETURNED: best}

    def _make_space(self, model: AdjustableModel) -> LinearSpace:
        data, validation = self.rows.data, self.rows.validation
        X = take_rows(data.combined.X, self._sample)
        rows = data.rows.take(self._sample)
        training = self._columns(model, X, rows)
        held = self._columns(model, validation.X, validation.rows)
        return LinearSpace(training.matrix, held.matrix, training.base, held.base, rows.weight)

    def _columns(self, model: AdjustableModel, X: Any, rows: Rows) -> ScoreColumns:
        groups = self.groups_of(rows) if self.n_offsets else None
        return model.score_columns(X, columns_beside(groups, self.n_offsets, len(rows)))
