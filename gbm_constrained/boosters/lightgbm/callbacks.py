"""Callbacks of LightGBM that measure evaluation sets, and early stopping on the constraints."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException

from gbm_constrained._typing import Array
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training.early_stopping import EarlyStoppingOn, StoppingByConstraints
from gbm_constrained.training.fit import ConstrainedFit


class Observer:
    """Callbacks that measure the evaluation sets and keep the last scores of the training rows.

    LightGBM adds each new tree once to the scores of every data set. Metrics are the way to these
    scores, and a metric that returns no values is not recorded.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit that records the values.
    sets : sequence of (EvaluationSet, array-like or None) or None
        The evaluation sets as LightGBM has them, each with the scores that it starts from and
        that ``predict`` does not add; None for training rows.
    stopping : sequence of callable
        Early stopping, which names the best round where training ends before it is met.
    """

    def __init__(
        self,
        fit: ConstrainedFit,
        sets: Sequence[tuple[EvaluationSet, Any] | None],
        stopping: Sequence[Callable[[Any], None]],
    ) -> None:
        self.fit, self.sets, self.stopping = fit, sets, stopping
        self.begin = 0
        self.grown_in: list[int] = []
        self.train_margin: Array | None = None

    def grown_after(self, rounds: int) -> int:
        """Count the rounds of the booster after some of the fit, of which some find no split."""
        return self.begin + int(np.searchsorted(self.grown_in, rounds))

    def callbacks(self) -> list[Callable[[Any], None]]:
        """List the callbacks before a round, after it, and after all other callbacks."""

        def before(env: Any) -> None:
            self.begin = env.begin_iteration
            # Private: states that there is no objective to drop, so that update() does not reset
            # the parameters once more and with them the stream of column samples. Without this
            # line the model is as good, but not equal to the native one.
            env.model._Booster__set_objective_to_none = True
            if env.iteration > env.begin_iteration:
                return
            if any(map(self._is_moved_by, self.fit.evaluation_sets[-1:])):
                self._measure(env.model, 0)

        def after(env: Any) -> None:
            rounds = self.fit.solver.rounds
            if env.model.current_iteration() > self.begin + len(self.grown_in):
                self.grown_in.append(rounds - 1)
            if self.fit.evaluation_sets and self.fit.is_measured_after(rounds):
                self._measure(env.model, rounds)
            if env.iteration + 1 == env.end_iteration:
                env.model.eval_train(feval=self._keep)

        before.before_iteration = True  # type: ignore[attr-defined]
        after.order = 5  # type: ignore[attr-defined]  # before early stopping ends the round
        return [before, after, end_rounds(self.fit.notifier.is_training_over, self.stopping)]

    def _measure(self, booster: lgb.Booster, rounds: int) -> None:
        remaining = iter(self.sets)

        def measure(margin: Array, _: Any) -> list[Any]:
            found = next(remaining)
            if found is None:
                return []
            held, start = found
            if start is not None:
                margin = margin - np.asarray(start, dtype=np.float64)
            self.fit.measure_round(held, rounds, margin)
            if self.fit.is_iteration_end(rounds) and self._is_moved_by(held):
                self.fit.measured.observe(margin)
            return []

        booster.eval_valid(feval=measure)

    def _is_moved_by(self, held: EvaluationSet) -> bool:
        """Whether an evaluation set moves the multipliers."""
        return self.fit.measured.boosters is None and held is self.fit.measured.rows

    def _keep(self, margin: Array, _: Any) -> list[Any]:
        self.train_margin = margin.copy()
        return []


def end_rounds(
    is_over: Callable[[int], bool], stopping: Sequence[Callable[[Any], None]]
) -> Callable[[Any], None]:
    """Make a callback that ends training after the number of rounds for which it is over.

    Callbacks of early stopping then go back to their best round.
    """

    def end(env: Any) -> None:
        if is_over(env.iteration + 1 - env.begin_iteration):
            for stop in stopping:
                stop(replace(env, end_iteration=env.iteration + 1))
            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    end.order = 1000  # type: ignore[attr-defined]  # after all others have seen the round
    return end


class ConstraintStopping:
    """Early stopping on the constraints; see :mod:`gbm_constrained.training.early_stopping`.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose last evaluation set has been measured before each call.
    by_metric : callable
        ``lightgbm.early_stopping(...)``, which has the patience and compares the metric.
    on : {"constraints", "both"}
        Whether constraints alone, or the metric as well, decide which round is best.
    """

    before_iteration = False

    def __init__(
        self, fit: ConstrainedFit, by_metric: Callable[..., Any], on: EarlyStoppingOn
    ) -> None:
        self.fit, self.on, self.by_metric = fit, on, copy.copy(by_metric)
        self.by_metric.verbose = False  # type: ignore[attr-defined]  # Its rounds are others.
        self.order = by_metric.order  # type: ignore[attr-defined]
        self.patience = by_metric.stopping_rounds  # type: ignore[attr-defined]
        self.by_constraints = StoppingByConstraints()
        self.results: Any = []  # of the best round by the constraints
        self.met_in: list[int] = []

    def __call__(self, env: CallbackEnv) -> None:
        """Compare the round that has ended with the best one, as LightGBM asks of a callback."""
        ends = env.iteration + 1 == env.end_iteration
        rounds = env.iteration + 1 - env.begin_iteration
        holds = self.by_constraints.update(env.iteration, self.fit.merits[rounds])
        if self.by_constraints.best == env.iteration:
            self.results = env.evaluation_result_list or []
        if self.on == "both" and self.by_constraints.has_met:
            if holds or ends:
                self._compare_metric(env, holds=holds, ends=ends)
            return
        exhausted = env.iteration - self.by_constraints.best >= self.patience
        if ends or (self.on == "constraints" and exhausted):
            raise EarlyStopException(self.by_constraints.best, self.results)

    def _compare_metric(self, env: CallbackEnv, *, holds: bool, ends: bool) -> None:
        """Let LightGBM see the rounds that met the constraints, as if there were no others."""
        position = env.begin_iteration + len(self.met_in)
        self.met_in.append(env.iteration)
        results = env.evaluation_result_list if holds else _infinitely_bad(env)
        end = position + 1 if ends else env.end_iteration
        seen = replace(env, iteration=position, end_iteration=end, evaluation_result_list=results)
        try:
            self.by_metric(seen)
        except EarlyStopException as stop:
            best = self.met_in[stop.best_iteration - env.begin_iteration]
            raise EarlyStopException(best, stop.best_score) from None


def _infinitely_bad(env: CallbackEnv) -> list[Any]:
    """Give results of the round in which every metric has its worst value."""
    worst = []
    for result in env.evaluation_result_list or ():
        values = list(result)
        values[2] = -np.inf if values[3] else np.inf
        # Results are named tuples since LightGBM 4.7, and plain tuples before.
        worst.append(type(result)(*values) if hasattr(result, "_fields") else tuple(values))
    return worst


def is_early_stopping(callback: Any) -> bool:
    """Whether a callback is ``lightgbm.early_stopping(...)`` that is not disabled."""
    return (getattr(callback, "stopping_rounds", None) or 0) > 0
