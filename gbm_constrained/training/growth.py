"""Sets of fold boosters, grown one after the other until the constraints cost what they should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.prefix_choice import N_PREFIXES_OF_SEVERAL_CLASSES, Prefixes
from gbm_constrained.decision.refit_transfer import estimate_optimism_of_decisions
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.solvers.base import Solver
from gbm_constrained.statistics.counts import functionals_of
from gbm_constrained.training.dual_controller import DualController
from gbm_constrained.training.fold_boosters import FoldBoosterFactory, FoldBoosters
from gbm_constrained.training.passes import Grown, PassSearch
from gbm_constrained.training.plug_in import (
    as_certified,
    choice_by,
    cost_of,
    is_cheap,
    is_memorised,
    may_do_without_multipliers,
)
from gbm_constrained.training.run import FitRun
from gbm_constrained.training.time_limit import MeasuringClock


class FoldGrowth:
    """Grows sets of boosters on the same folds, and chooses the set that the model follows.

    Parameters
    ----------
    run : FitRun
        The fit.
    factory : callable
        Makes a booster for a fold and a solver.
    folds : sequence of Fold
        Rows of each booster.
    source : str
        Name of the held-out rows in reports.

    Attributes
    ----------
    plain_error : float
        Held-out error of boosters without multipliers; NaN if none were grown.

    Raises
    ------
    ValueError
        If no row of a part has weight.
    """

    def __init__(
        self, run: FitRun, factory: FoldBoosterFactory, folds: Sequence[Fold], source: str
    ) -> None:
        self.run, self.factory, self.folds, self.source = run, factory, folds, source
        self.rows = np.sort(np.concatenate([fold.held for fold in folds]))
        run.problem.check_has_weight([self.rows, *(fold.training for fold in folds)])
        self.plain_error = np.nan
        self._n_grown = 0
        self._clock: MeasuringClock

    def best(self) -> Grown:
        """Grow boosters, and others if these cost more errors than the constraints should."""
        options, problem = self.run.options, self.run.problem
        is_plain = may_do_without_multipliers(options, problem.compiled, problem.has_many_rows)
        grown = self.grow(has_multipliers=not is_plain)
        plain = grown if is_plain else None
        if is_plain and options.solver == "auto":
            grown = self._with_multipliers_if_better(*grown)
        if grown[0].has_multipliers and options.iterate in ("last", "best"):
            n_iterations = self.run.library.n_rounds / options.rounds_per_iteration
            path = n_iterations * grown[0].controller.solver.progress
            search = PassSearch(
                self.grow, path, options, self.run.certification, self._has_time_again, plain
            )
            grown = search.run(*grown)
        return grown

    def grow(
        self,
        *,
        has_multipliers: bool,
        start: Float | None = None,
        fixed: Bool | None = None,
        log_odds: float = 0.0,
    ) -> Grown:
        """Grow a set of boosters.

        Parameters
        ----------
        has_multipliers : bool
            Whether the boosters share multipliers that move, or are the library's own.
        start : ndarray of shape (m,), default=None
            Multipliers to start from, in the place of those asked for.
        fixed : ndarray of shape (m,), bool, default=None
            Multipliers that stay where they start.
        log_odds : float, default=0
            Log-odds that the objective adds to the second class.
        """
        run = self.run
        R = run.options.rounds_per_iteration
        share = len(run.problem.data.rows) / sum(fold.training.size for fold in self.folds)
        clock = self._clock = MeasuringClock(run.notifier.limit, share, R)
        lagrangian = run.problem.lagrangian(self.rows, is_restricted=True, log_odds=log_odds)
        others: dict[str, Any] = {} if has_multipliers else run.without_multipliers()
        if start is not None:
            others = {"initial_multipliers": start, "fixed": fixed}
        leader = run.make_solver(lagrangian, **others)
        source = self.source if has_multipliers else f"{self.source}, without multipliers"
        run.notify_of(leader, "measuring", source)
        controller = DualController(leader, self.rows, run.bounds_at(lagrangian))
        members = [
            self.factory(
                fold,
                self._follower(fold, controller, log_odds) if has_multipliers else None,
            )
            for fold in self.folds
        ]
        boosters = FoldBoosters(controller, self.folds, members, self._kept_rounds(), log_odds)
        run.notifier.begin(len(members))
        self._grow_or_restore(boosters, clock)
        unseen = EvaluationSet(
            lagrangian.cells,
            run.problem.compiled.on(lagrangian.cells),
            self.source,
            boosters.positions,
        )
        unseen.functionals_in = {r.rounds: r.functionals for r in leader.history}
        if not has_multipliers:
            margin = boosters.held_margin(boosters.rounds)
            self.plain_error = unseen.error(unseen.decisions(margin))
        return boosters, unseen

    def _follower(self, fold: Fold, controller: DualController, log_odds: float) -> Solver:
        """Make the solver of a booster, which follows the multipliers of the controller."""
        problem = self.run.problem
        return self.run.make_solver(
            problem.lagrangian(fold.training, log_odds=log_odds),
            schedule=controller.path,
            # Nothing but optimism asks for the rates on the rows that the boosters are grown on.
            has_rates=bool(problem.compiled.must_reward_errors.any()),
        )

    def _grow_or_restore(self, boosters: FoldBoosters, clock: MeasuringClock) -> None:
        """Grow boosters, or take them from the checkpoint of an interrupted fit."""
        run, position = self.run, self._n_grown
        self._n_grown += 1
        file = run.checkpoint
        if file is not None and position < len(file.passes):
            state = file.passes[position]
            boosters.restore(state["boosters"])
            run.notifier.restore(state["notifier"])
            clock.restore(state["seconds"])
            return
        try:
            boosters.grow(
                run.library.n_rounds,
                run.options.rounds_per_iteration,
                lambda rounds: run.notifier.is_over(rounds) or clock.is_over(rounds),
            )
        finally:
            run.hide_progress()
        if file is not None:
            file.save(
                {
                    "boosters": boosters.state(),
                    "notifier": run.notifier.state(),
                    "seconds": clock.spent,
                }
            )

    def _kept_rounds(self) -> list[int]:
        """List the rounds of the prefixes that a choice may look at."""
        n_rounds = self.run.library.n_rounds
        found = Prefixes(n_rounds, self.run.options.rounds_per_iteration).candidates
        if self.run.problem.data.columns == 1:
            return found
        return found[-N_PREFIXES_OF_SEVERAL_CLASSES - 1 :]

    def _with_multipliers_if_better(self, boosters: FoldBoosters, unseen: EvaluationSet) -> Grown:
        """Grow boosters with multipliers as well, and return those that make fewer errors."""
        run, limit = self.run, self.run.notifier.limit
        margin, certified, asked = boosters.held_margin(boosters.rounds), None, unseen
        broken = unseen.violations(margin)
        if run.certification is None and (broken <= ROUNDING).all():  # nor would a multiplier move
            return boosters, unseen
        limit.has_no_multipliers |= not self._clock.has_time_again()
        if limit.has_no_multipliers:
            return boosters, unseen
        choice = choice_by(boosters, unseen, run.options)
        if run.certification is not None:
            asked = certified = as_certified(
                unseen, run.certification, boosters, choice, run.options
            )
            broken = asked.violations(margin)
            if (broken <= ROUNDING).all():
                return boosters, unseen
        if is_cheap(boosters, unseen, choice) and is_memorised(
            asked, broken, measure_optimism(run, boosters, unseen, choice)
        ):
            return boosters, unseen
        others, unseen_by_others = self.grow(has_multipliers=True)
        is_cut_short = others.rounds < boosters.rounds
        if is_cut_short and not run.notifier.is_over(others.rounds):
            limit.has_no_multipliers = True
            return boosters, unseen
        other = choice_by(others, unseen_by_others, run.options)
        if cost_of(other, others, certified) < cost_of(choice, boosters, certified):
            return others, unseen_by_others
        return boosters, unseen

    def _has_time_again(self) -> bool:
        """Whether there is time for one more pass; the notifier says if there is none."""
        has_time = self._clock.has_time_again()
        self.run.notifier.limit.has_fewer_passes |= not has_time
        return has_time and not self.run.notifier.is_stopped


def measure_optimism(
    run: FitRun, boosters: FoldBoosters, unseen: EvaluationSet, choice: Choice
) -> Float:
    """Estimate by how much rows of constraints are higher on held-out than on training rows.

    Parameters
    ----------
    run : FitRun
        The fit.
    boosters : FoldBoosters
        The boosters of the folds.
    unseen : EvaluationSet
        The rows that they hold out.
    choice : Choice
        Prefix and shift of the decisions that are compared.

    Returns
    -------
    ndarray of shape (m,)
    """

    def decisions(margin: Array) -> Codes:
        return unseen.decisions(shift_scores(margin, choice.shift))

    held = unseen.counts(decisions(boosters.held_margin(choice.rounds)))
    own = zip(boosters.folds, boosters.own_margins(choice.rounds), strict=True)
    return estimate_optimism_of_decisions(
        run.problem.compiled,
        run.problem.cells,
        [(fold.training, decisions(margin)) for fold, margin in own],
        functionals_of(unseen.compiled, held),
    )
