"""Callbacks of XGBoost that measure evaluation sets, and early stopping on the constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.xgboost.checks import list_stoppers
from gbm_constrained.boosters.xgboost.model import as_scores
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training.early_stopping import EarlyStoppingOn, StoppingByConstraints
from gbm_constrained.training.fit import ConstrainedFit


class Observer(xgb.callback.TrainingCallback):
    """Callback that measures the evaluation sets after every outer iteration.

    XGBoost keeps the margins of matrices and adds the new trees only. The booster that its ``fit``
    returns is a copy without these margins, hence the last ones of the training rows are kept.
    """

    def __init__(self, fit: ConstrainedFit, matrices: list[Any]) -> None:
        super().__init__()
        self.fit = fit
        self.matrices = matrices
        self.grown_before = 0  # rounds of the model that is continued
        self.grown_after = 0  # rounds of the model that gave the last margins
        self.train_margin: Array | None = None

    def before_training(self, model: Any) -> Any:
        """Count the rounds of a continued model, and observe its scores."""
        self.grown_before = model.num_boosted_rounds()
        if self._is_moved_by(self.fit.evaluation_sets[-1:]):
            self.fit.measured.observe(self._score(model, self.matrices[-1]))
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether a callback of the user or the time limit ends training."""
        # After an iteration, the callbacks that follow would not see its round.
        if self.fit.notifier.is_training_over(epoch):
            return True
        if not self.fit.measured.has_multipliers:
            self.fit.solver.count_round(lambda: self._training_margin(model))
        return False

    def after_training(self, model: Any) -> Any:
        """Take the last margins of the training rows."""
        self.grown_after = model.num_boosted_rounds()
        if self.matrices:
            self.train_margin = self._training_margin(model)
        return model

    def _training_margin(self, model: Any) -> Array:
        return self._score(model, self.matrices[0])

    def _score(self, model: Any, matrix: Any) -> Array:
        scores = model.predict(matrix, output_margin=True)
        return as_scores(scores, self.fit.data.columns)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Measure the evaluation sets."""
        rounds = self.fit.solver.rounds
        if self.fit.is_measured_after(rounds):
            for held, matrix in zip(self.fit.evaluation_sets, self.matrices[1:], strict=True):
                margin = self._score(model, matrix)
                self.fit.measure_round(held, rounds, margin)
                if self.fit.is_iteration_end(rounds) and self._is_moved_by([held]):
                    self.fit.measured.observe(margin)
        return False

    def _is_moved_by(self, held: Sequence[EvaluationSet]) -> bool:
        """Whether an evaluation set moves the multipliers."""
        measured = self.fit.measured
        return measured.boosters is None and any(rows is measured.rows for rows in held)


class RoundLimit(xgb.callback.TrainingCallback):
    """Callback that ends training after the number of rounds for which it is over."""

    def __init__(self, is_over: Callable[[int], bool]) -> None:
        super().__init__()
        self.is_over = is_over

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether training is over."""
        return self.is_over(epoch)


class ConstraintStopping(xgb.callback.TrainingCallback):
    """Early stopping on the constraints; see :mod:`gbm_constrained.training.early_stopping`.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose last evaluation set has been measured before each call.
    by_metric : EarlyStopping
        XGBoost's own early stopping, which has the patience and compares the metric.
    on : {"constraints", "both"}
        Whether constraints alone, or the metric as well, decide which round is best.
    """

    def __init__(
        self, fit: ConstrainedFit, by_metric: xgb.callback.EarlyStopping, on: EarlyStoppingOn
    ) -> None:
        super().__init__()
        self.fit, self.by_metric, self.on = fit, by_metric, on
        self.by_constraints = StoppingByConstraints()

    @property
    def has_decided_alone(self) -> bool:
        """Whether the constraints alone decided which round is best."""
        return self.on == "constraints" or not self.by_constraints.has_met

    def before_training(self, model: Any) -> Any:
        """Begin XGBoost's own early stopping."""
        return self.by_metric.before_training(model)

    def after_training(self, model: Any) -> Any:
        """End XGBoost's own early stopping."""
        return self.by_metric.after_training(model)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Compare the round with the best one; true ends training."""
        round_ = self.by_metric.starting_round + epoch
        holds = self.by_constraints.update(round_, self.fit.merits[epoch + 1])
        if self.on == "both" and self.by_constraints.has_met:
            # Rounds that break the constraints are not counted, whatever their criterion is.
            return holds and bool(self.by_metric.after_iteration(model, epoch, evals_log))
        if self.by_constraints.best == round_:
            model.set_attr(
                best_iteration=str(round_), best_score=str(self.by_constraints.criterion)
            )
        stops = round_ - self.by_constraints.best >= self.by_metric.rounds
        return bool(self.on == "constraints" and stops)


def score_after_rounds(model: Any, fit: ConstrainedFit) -> Callable[[int], float | None]:
    """Make the function of rounds that early stopping compared, while the fit is driven."""
    by_constraints = [c for c in model.callbacks if isinstance(c, ConstraintStopping)]
    if by_constraints and by_constraints[-1].has_decided_alone:
        return lambda rounds: fit.merits[rounds].criterion
    data = metric = None
    if model.early_stopping_rounds is None:  # XGBoost calls its own early stopping last.
        stopping = [c.by_metric for c in by_constraints] or list_stoppers(model)
        if not stopping:  # A callback of the user has stopped.
            return lambda rounds: None
        data, metric = stopping[-1].data, stopping[-1].metric_name

    def score(rounds: int) -> float | None:
        results = model.evals_result_[data or list(model.evals_result_)[-1]]
        return float(results[metric or list(results)[-1]][rounds - 1])

    return score
