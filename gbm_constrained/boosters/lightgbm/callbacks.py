"""What looks on while LightGBM trains: measurements after each round, and early stopping."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.callback import CallbackEnv, EarlyStopException

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.model_text import END_OF_TREES
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.training.early_stopping import EarlyStoppingOn, StoppingByConstraints
from gbm_constrained.training.fit import ConstrainedFit

_STDERR = threading.Lock()  # there is one for the whole process


class Observer:
    """Callbacks that measure the evaluation sets and keep the last scores of the training rows.

    LightGBM adds each new tree once to the scores of every data set; it hands them to a metric,
    and a metric that returns nothing is not recorded.

    Parameters
    ----------
    fit : ConstrainedFit
        What the values are recorded in.
    intercept : ndarray of shape (n_classes or 1,), default=None
        DART: added to the first trees after the first round. The scores of the training rows are
        then not read, for every reading makes DART drop trees.
    sets : sequence of (EvaluationSet, array-like or None) or None
        The evaluation sets as LightGBM has them, with the scores of the user that each starts
        from, which ``predict`` does not add; None for training rows.
    stopping : sequence of callable
        Early stopping, which says what is the best round where training ends before it is met.
    """

    def __init__(
        self,
        fit: ConstrainedFit,
        intercept: Array | None,
        sets: Sequence[tuple[EvaluationSet, Any] | None],
        stopping: Sequence[Callable[[Any], None]],
    ) -> None:
        self.fit = fit
        self.stopping = stopping
        self.sets = sets
        self.intercept = intercept
        self.begin = 0
        self.grown_in: list[int] = []
        self.train_margin: Array | None = None

    def grown_after(self, rounds: int) -> int:
        """Count the booster's rounds after so many of the solver: one without a split is none."""
        return self.begin + int(np.searchsorted(self.grown_in, rounds))

    def callbacks(self) -> list[Callable[[Any], None]]:
        """List what LightGBM calls before a round, after it, and when all others have seen it."""

        def before(env: Any) -> None:
            self.begin = env.begin_iteration
            if self.intercept is not None and self.fit.solver.rounds == 0:
                self._settle_dart(env.model)
            # Private: says that there is no objective to drop, so that update() does not reset
            # the parameters once more and with them the stream of column samples. Without it the
            # model is as good, but not equal to the native one.
            env.model._Booster__set_objective_to_none = True
            if env.iteration > env.begin_iteration:
                return
            if any(map(self._is_moved_by, self.fit.evaluation_sets[-1:])):
                self._measure(env.model, 0)

        def after(env: Any) -> None:
            rounds = self.fit.solver.rounds
            if rounds == 1 and self.intercept is not None:
                self._add_intercept(env.model)
            if env.model.current_iteration() > self.begin + len(self.grown_in):
                self.grown_in.append(rounds - 1)
            if self.fit.evaluation_sets and self.fit.is_measured_after(rounds):
                self._measure(env.model, rounds)
            if env.iteration + 1 == env.end_iteration and self.intercept is None:
                env.model.eval_train(feval=self._keep)

        def end(env: Any) -> None:
            if self.fit.notifier.is_training_over(env.iteration + 1 - env.begin_iteration):
                for stop in self.stopping:  # which has a round to go back to
                    stop(replace(env, end_iteration=env.iteration + 1))
                raise EarlyStopException(env.iteration, env.evaluation_result_list)

        before.before_iteration = True  # type: ignore[attr-defined]
        after.order = 5  # type: ignore[attr-defined]  # before early stopping ends the round
        end.order = 1000  # type: ignore[attr-defined]  # after all others have seen the round
        return [before, after, end]

    def _measure(self, booster: lgb.Booster, rounds: int) -> None:
        remaining = iter(self.sets)

        def measure(margin: Array, _: Any) -> list[Any]:
            found = next(remaining)
            if found is None:
                return []
            held, start = found
            if start is not None:
                margin = margin - np.asarray(start, dtype=np.float64)
            held.measure(rounds, margin)
            if self.fit.is_iteration_end(rounds) and self._is_moved_by(held):
                self.fit.measured.observe(margin)
            return []

        booster.eval_valid(feval=measure)

    def _is_moved_by(self, held: EvaluationSet) -> bool:
        """Whether an evaluation set moves the multipliers."""
        return self.fit.measured.boosters is None and held is self.fit.measured.rows

    def _settle_dart(self, booster: lgb.Booster) -> None:
        """Bring DART into the state that its own objective would start from.

        LightGBM leaves a flag of DART unset until its first update; reading scores before that,
        as custom gradients do, draws a random number or not as memory happens to say. An update
        that fails for want of an objective sets the flag and does nothing else.
        """
        with quiet_stderr(), contextlib.suppress(lgb.basic.LightGBMError):
            booster.update()

    def _add_intercept(self, booster: lgb.Booster) -> None:
        # Not from dump_model, which makes DART drop trees.
        trees, _, _ = booster.model_to_string(num_iteration=1).partition(END_OF_TREES)
        sizes = re.findall(r"^num_leaves=(\d+)$", trees, re.M)
        assert self.intercept is not None
        for tree, (shift, size) in enumerate(zip(self.intercept, sizes, strict=True)):
            for leaf in range(int(size)):
                booster.set_leaf_output(tree, leaf, booster.get_leaf_output(tree, leaf) + shift)

    def _keep(self, margin: Array, _: Any) -> list[Any]:
        self.train_margin = margin.copy()
        return []


class RulesStopping:
    """Early stopping that looks at the rules; see :mod:`gbm_constrained.training.early_stopping`.

    Parameters
    ----------
    fit : ConstrainedFit
        Its last evaluation set has been measured when this is called.
    by_metric : callable
        ``lightgbm.early_stopping(...)``, which has the patience and judges by the metric.
    on : {"constraints", "both"}
        What is judged.
    """

    before_iteration = False

    def __init__(
        self, fit: ConstrainedFit, by_metric: Callable[..., Any], on: EarlyStoppingOn
    ) -> None:
        self.fit, self.on, self.by_metric = fit, on, copy.copy(by_metric)
        self.by_metric.verbose = False  # type: ignore[attr-defined]  # it would miscount rounds
        self.order = by_metric.order  # type: ignore[attr-defined]
        self.patience = by_metric.stopping_rounds  # type: ignore[attr-defined]
        self.by_constraints = StoppingByConstraints()
        self.results: Any = []  # of the best round by the rules
        self.met_in: list[int] = []

    def __call__(self, env: CallbackEnv) -> None:
        """Look at the round that has ended, as LightGBM asks of a callback."""
        ends = env.iteration + 1 == env.end_iteration
        rounds = env.iteration + 1 - env.begin_iteration
        holds = self.by_constraints.update(env.iteration, self.fit.violation(rounds))
        if self.by_constraints.best == env.iteration:
            self.results = env.evaluation_result_list or []
        if self.on == "both" and self.by_constraints.has_met:
            if holds or ends:
                self._judge_by_metric(env, holds, ends)
            return
        exhausted = env.iteration - self.by_constraints.best >= self.patience
        if ends or (self.on == "constraints" and exhausted):
            raise lgb.callback.EarlyStopException(self.by_constraints.best, self.results)

    def _judge_by_metric(self, env: CallbackEnv, holds: bool, ends: bool) -> None:
        """Let LightGBM judge the rounds that met the rules, as if there were no others."""
        position = env.begin_iteration + len(self.met_in)
        self.met_in.append(env.iteration)
        results = env.evaluation_result_list if holds else _infinitely_bad(env)
        end = position + 1 if ends else env.end_iteration
        seen = replace(env, iteration=position, end_iteration=end, evaluation_result_list=results)
        try:
            self.by_metric(seen)
        except lgb.callback.EarlyStopException as stop:
            best = self.met_in[stop.best_iteration - env.begin_iteration]
            raise lgb.callback.EarlyStopException(best, stop.best_score) from None


def _infinitely_bad(env: CallbackEnv) -> list[Any]:
    """Results of the round as if every metric were the worst there is."""
    worst = []
    for result in env.evaluation_result_list or ():
        values = list(result)
        values[2] = -np.inf if values[3] else np.inf
        # Named since LightGBM 4.7, plain tuples before.
        worst.append(type(result)(*values) if hasattr(result, "_fields") else tuple(values))
    return worst


def is_early_stopping(callback: Any) -> bool:
    """Whether a callback is ``lightgbm.early_stopping(...)`` that is not disabled."""
    return (getattr(callback, "stopping_rounds", None) or 0) > 0


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keep an expected failure of native code from printing; it writes to the descriptor.

    One thread at a time: a second would keep the silence of the first, and bring it back.
    """
    with _STDERR:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)
