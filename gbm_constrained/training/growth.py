"""Sets of fold boosters, grown one after the other until the constraints cost what they should."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.evaluation_set import EvaluationSet, PlainModel, ScoredRows
from gbm_constrained.decision.group_shifts import GroupOffsets, choose_for_groups
from gbm_constrained.decision.refit_transfer import estimate_optimism_of_decisions
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Solver
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.training.dual_controller import DualController
from gbm_constrained.training.fold_boosters import FoldBoosterFactory, FoldBoosters
from gbm_constrained.training.pass_search import AFFORDABLE, PassSearch
from gbm_constrained.training.passes import Grown, Pass, measure_pass
from gbm_constrained.training.plug_in import is_memorised
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
    plain : PlainModel or None
        What boosters without multipliers do on held-out rows; None if none were grown.
    plain_boosters : tuple of FoldBoosters and EvaluationSet, or None
        These boosters.
    """

    def __init__(
        self, run: FitRun, factory: FoldBoosterFactory, folds: Sequence[Fold], source: str
    ) -> None:
        self.run, self.factory, self.folds, self.source = run, factory, folds, source
        self.rows = np.sort(np.concatenate([fold.held for fold in folds]))
        run.problem.check_has_weight([self.rows, *(fold.training for fold in folds)])
        n_trained = np.array([sum(fold.training.size for fold in folds)], dtype=np.float64)
        self._n_trained = float(run.problem.cells.reduce_sum(n_trained)[0])
        self.plain: PlainModel | None = None
        self.plain_boosters: Grown | None = None
        self._n_grown, self._longest = 0, 0
        self._clock: MeasuringClock

    def find_best(self) -> Grown:
        """Grow boosters, and others if these cost more errors than the constraints should."""
        run, options, problem = self.run, self.run.options, self.run.problem
        if run.groups is not None:
            return self._find_for_groups(run.groups)
        if options.solver == "threshold" or options.iterate not in ("last", "best"):
            return self.grow(has_multipliers=options.solver != "threshold")
        return PassSearch(
            self.grow,
            functools.partial(measure_pass, options=options, certification=run.certification),
            has_time=self._has_time_again,
            is_enough=functools.partial(self._is_enough, problem.compiled),
            share=self._n_trained / problem.cells.n_rows,
            may_be_plain=options.solver == "auto",
        ).run()

    def _find_for_groups(self, groups: GroupOffsets) -> Grown:
        """Grow boosters without and with multipliers, and return those that groups need fewer of.

        Where the group is at hand, thresholds of groups close most gaps without multipliers.
        """
        asked = self.run.options.solver
        kinds = {"auto": (False, True), "threshold": (False,)}.get(asked, (True,))
        grown = [self.grow(has_multipliers=kinds[0])]
        if len(kinds) > 1 and self._has_time_again():
            others = self.grow(has_multipliers=kinds[1])
            grown += [others] * (others[0].rounds == grown[0][0].rounds)
        prefixes = self.run.options.prefixes
        costs = [
            choose_for_groups(
                ScoredRows(rows.credible, boosters.held_margin),
                prefixes(boosters.rounds),
                groups,
            )[0].loss
            for boosters, rows in grown
        ]
        return grown[int(np.argmin(costs))]

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
            Multipliers at the start; by default those of the solver's options.
        fixed : ndarray of shape (m,), bool, default=None
            Multipliers that stay where they start.
        log_odds : float, default=0
            Log-odds that the objective adds to the second class.
        """
        run = self.run
        share = run.problem.cells.n_rows / self._n_trained
        clock = self._clock = MeasuringClock(
            run.notifier.limit, share, run.options.rounds_per_iteration
        )
        given = run.problem.data.given_folds
        lagrangian = run.problem.lagrangian(
            self.rows,
            is_restricted=True,
            log_odds=log_odds,
            factor=None if given is None else given.recency,
        )
        others: dict[str, Any] = {} if has_multipliers else run.without_multipliers()
        if start is not None:
            others = {"initial_multipliers": start, "fixed": fixed}
        solver = run.make_solver(lagrangian, **others)
        source = self.source if has_multipliers else f"{self.source}, without multipliers"
        run.notify_of(solver, "measuring", source)
        attainable = run.attainable_bounds(lagrangian) if has_multipliers else None
        bounds_at = run.bounds_at(lagrangian) if has_multipliers else None
        controller = DualController(solver, self.rows, bounds_at, attainable)
        members = [
            self.factory(
                fold,
                self._make_follower(fold, controller, log_odds) if has_multipliers else None,
            )
            for fold in self.folds
        ]
        kept = run.options.prefixes(run.library.n_rounds).candidates  # A choice may look at them.
        boosters = FoldBoosters(
            controller, self.folds, members, run.problem.cells.n_rows, kept, log_odds
        )
        run.notifier.begin_pass(len(members))
        self._grow_or_restore(boosters, clock)
        self._report_cut(boosters.rounds)
        boosters.release()  # Other boosters may follow, and the model of all rows does.
        held_out = self.hold_out(lagrangian, boosters)
        held_out.functionals_in = {r.rounds: r.functionals for r in solver.history}
        if not has_multipliers:
            margin = boosters.held_margin(boosters.rounds)
            self.plain = PlainModel(
                held_out.error(held_out.decisions(margin)),
                held_out.compiled.values(held_out.functionals(margin)),
            )
            self.plain_boosters = boosters, held_out
        return boosters, held_out

    def hold_out(self, lagrangian: Lagrangian, boosters: FoldBoosters) -> EvaluationSet:
        """Bind the constraints to the rows that the boosters hold out."""
        cells = lagrangian.cells
        compiled = self.run.problem.compiled.on(cells)
        has_guarantee = self.run.certification is not None
        return EvaluationSet(
            cells, compiled, self.source, boosters.positions, holds_groups=has_guarantee
        )

    def _make_follower(self, fold: Fold, controller: DualController, log_odds: float) -> Solver:
        """Make the solver of a booster, which follows the multipliers of the controller."""
        problem = self.run.problem
        return self.run.make_solver(
            problem.lagrangian(fold.training, log_odds=log_odds),
            schedule=controller.path,
            # Optimism alone needs the rates on the rows that the boosters are grown on.
            has_rates=bool(problem.compiled.must_reward_errors.any()),
        )

    def _grow_or_restore(self, boosters: FoldBoosters, clock: MeasuringClock) -> None:
        """Grow boosters, or take them from the checkpoint of an interrupted fit."""
        run, file, position = self.run, self.run.checkpoint, self._n_grown
        self._n_grown += 1
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
            state = {"boosters": boosters.state(), "notifier": run.notifier.state()}
            file.save({**state, "seconds": clock.spent})

    def _report_cut(self, rounds: int) -> None:
        """Have the time limit report boosters that it ended earlier than those before."""
        limit, is_auto = self.run.notifier.limit, self.run.options.solver == "auto"
        if rounds < self._longest and not self.run.notifier.is_over(rounds):
            is_first = self._n_grown == 2 and is_auto
            limit.has_no_multipliers |= is_first
            limit.has_fewer_passes |= not is_first
        self._longest = max(self._longest, rounds)

    def _is_enough(self, compiled: LinearConstraints, plain: Pass) -> bool:
        """Whether boosters without multipliers need none beside them.

        Under constraints on labels and decisions alone no decisions of groups are better than a
        threshold, and memorised rows say whether multipliers would be. A threshold that is worse
        than deciding all rows alike says so, too.
        """
        if (plain.violations <= ROUNDING).all():
            return True  # No multiplier would move.
        of_labels = [compiled.constraints[i].is_of_labels for i in np.unique(compiled.owner)]
        if not all(of_labels):
            excess = plain.cost - plain.needed
            return excess <= max(AFFORDABLE, plain.noise) and not plain.misses
        boosters, held_out = plain.grown
        choice = held_out.credible.choices[boosters.rounds]
        if held_out.cells.classes.size > 2 or choice.violation > 0.0:
            return False
        if choice.error > min(held_out.error(np.full(len(self.rows), k)) for k in (0, 1)):
            return False
        optimism = measure_optimism(self.run, plain.grown, choice)
        return is_memorised(plain.asked, plain.violations, optimism)

    def _has_time_again(self) -> bool:
        """Whether there is time for one more pass; if not, the time limit reports the lack."""
        has_time, limit = self._clock.has_time_again(), self.run.notifier.limit
        is_first = self._n_grown == 1 and self.run.options.solver == "auto"
        limit.has_no_multipliers |= is_first and not has_time
        limit.has_fewer_passes |= not is_first and not has_time
        return has_time and not self.run.notifier.is_stopped


def measure_optimism(
    run: FitRun, grown: Grown, choice: Choice, offsets: GroupOffsets | None = None
) -> Float:
    """Estimate by how much rows of constraints are higher on held-out than on training rows.

    `choice` gives prefix and shift of the decisions that are compared, and `offsets` what is added
    to the scores of groups; the result is (m,).
    """
    boosters, held_out = grown

    everyone = run.problem.data.rows
    added = np.zeros(len(everyone)) if offsets is None else offsets.of(everyone)

    def decisions(margin: Array, rows: Codes) -> Codes:
        shifted = shift_scores(margin, choice.shift)
        return held_out.decisions(shifted if offsets is None else shifted + added[rows])

    scores, compiled = boosters.scores(choice.rounds), run.problem.compiled
    cells = run.problem.cells
    if scores.compared:
        on_each = [
            functionals_of(compiled, CellCounts.of(cells.take(rows), decisions(margin, rows)))
            for rows, margin in scores.compared
        ]
        unseen = np.mean(on_each, axis=0)
    else:
        rows, margin = scores.held_out
        unseen = functionals_of(held_out.compiled, held_out.counts(decisions(margin, rows)))
    own = [(rows, decisions(margin, rows)) for rows, margin in scores.training]
    return estimate_optimism_of_decisions(compiled, cells, own, unseen)
