"""One constrained fit, in stages.

Boosted trees drive training rates to whatever is asked, by memorising rows if need be. Multipliers
that move by training rates then come to rest while the constraint is violated on every new row.
Four strategies choose the rows that move the multipliers:

- ``"crossfit"``: K boosters are grown in step, each on all but one of K folds, and share one set
  of multipliers, which the rates of the pooled out-of-fold scores move. The model itself is then
  trained on all rows with the multipliers of that path. The cost is K - 1 further fits and the
  scoring of the folds.
- ``"holdout"``: the same with one booster and the rows of one part, at less than the cost of one
  further fit. With an evaluation set of the user the cost is nothing.
- ``"forward"``: as ``"crossfit"``, with windows that expand. Rows are divided into K + 1 periods
  of about equal numbers, and each booster is grown on all periods before the one that it holds
  out. The first period is never held out.
- ``"train"``: the training rows.

A splitter of the user may take the place of the folds, and need not hold out every row either.

``"auto"`` takes a holdout of half of the rows if every rate is taken over
:data:`~gbm_constrained.fit.problem.MIN_ROWS_FOR_HOLDOUT` rows, and two folds otherwise; four, or a
holdout of a quarter, for constraints on another model's decisions.

The libraries read evaluation sets when their own training starts, which is after the fold boosters
have been grown, and some of their messages name no argument. So the sets are checked before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from scipy import sparse

from gbm_constrained._dataframes import categories_of, foreign_categories, is_frame, names_of
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.base import ROUNDING, refuse_priorities
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import is_any
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import (
    as_labels,
    check_features,
    check_sensitive_sets,
    refuse_strange,
)
from gbm_constrained.decision.choose import (
    VIOLATION_PRICE,
    FoldScores,
    choose_for_groups,
    match_positive_rate,
    tightened_bounds,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, PlainModel, ScoredRows
from gbm_constrained.decision.groups import GroupOffsets, number_of
from gbm_constrained.decision.guarantees import (
    GuaranteeRequest,
    check_guarantee,
    check_observed,
    find_room,
    smallest_values,
    tighten_for_certificate,
)
from gbm_constrained.decision.regression import (
    Affine,
    AffineChoice,
    Criterion,
    PredictedRows,
    choose_affine,
    credible_rows,
    find_largest_multipliers,
    find_prices,
    list_group_shifts,
)
from gbm_constrained.decision.violations import standard_errors
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.fit.callbacks import (
    CALLBACK,
    CallbackNotifier,
    MeasuringClock,
    Phase,
    Progress,
    TimeLimit,
    check_callbacks,
)
from gbm_constrained.fit.checkpoint import CheckpointFile
from gbm_constrained.fit.cross_fit import (
    AFFORDABLE,
    MEMORISED_SHARE,
    BoundsAt,
    DualController,
    FoldBoosterFactory,
    FoldBoosters,
    Grown,
    Pass,
    divide_into_folds,
    measure_optimism,
    measure_pass,
    search_passes,
)
from gbm_constrained.fit.options import (
    GROUP_PARAMETERS,
    EarlyStoppingOn,
    RoundMerit,
    SolverOptions,
    find_merit,
    no_held_out_rows,
)
from gbm_constrained.fit.problem import (
    FitProblem,
    LibrarySettings,
    TreeLimits,
    has_many_rows,
)
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_first, find_levels
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.statistics.counts import CellCounts


def begin_groups(problem: FitProblem, parameter: str, library: LibrarySettings) -> GroupOffsets:
    """Find the groups that decide, with offsets of zero.

    Parameters
    ----------
    problem : FitProblem
        Constraints bound to the rows.
    parameter : str
        One of :data:`~gbm_constrained.fit.options.GROUP_PARAMETERS`.
    library : LibrarySettings
        Settings of the library, which limit what trees may split by.

    Raises
    ------
    ValueError
        If groups cannot decide: by the constraints, the classes, the machines, the columns, or
        the library's parameters.
    """
    data, of_group = problem.data, GROUP_PARAMETERS[parameter]
    asked, otherwise = f"{parameter}=True", f"use {parameter}=False"
    if not problem.cells.communicator.holds_all_rows:
        raise ValueError(
            f"{asked} searches {of_group}s on one machine, and the rows are on several: train on "
            f"one, or {otherwise}."
        )
    if data.rows.sources:
        raise ValueError(
            f"{asked} decides by groups of the training rows, and constraints are about the data "
            f"sets {list(data.rows.sources)}: leave these constraints out, or {otherwise}."
        )
    if parameter == "group_thresholds":
        compiled, n_classes = problem.compiled, data.classes.size
        if n_classes > 2:
            raise ValueError(
                f"{asked} moves a threshold of two classes, and y has {n_classes}: {otherwise}, "
                f"or label one class against the others."
            )
        for j, constraint in enumerate(compiled.constraints):
            if compiled.has_scores[compiled.owner == j].any():
                raise ValueError(
                    f"{asked} moves decisions, and {constraint} is about scores: bound a rate of "
                    f"decisions instead, or {otherwise}."
                )
        check_straight(compiled.constraints, asked, otherwise)
    keys = [key for need in problem.cells.needs for key in need if isinstance(key, tuple)]
    columns = tuple(dict.fromkeys(column for key in keys for column in key))
    if not columns:
        raise ValueError(
            f"{asked} decides by the columns that constraints group by, and no constraint names "
            f"one: give one, such as a gap with by='sex', or {otherwise}."
        )
    X = data.arguments.X
    for column in columns:
        if column in data.whole_rows.columns or column not in names_of(X):
            where = "of sensitive_features" if column in data.whole_rows.columns else "not of X"
            raise ValueError(
                f"{asked} decides by the column {column!r}, which is {where}, and the model sees "
                f"X alone: give the column in X, a table with names, and not in "
                f"sensitive_features; or {otherwise}."
            )
        if column in foreign_categories(X):
            raise ValueError(
                f"{asked} splits by the categories of {column!r} as pandas numbers them: give X "
                f"as a table of pandas."
            )
    groups = GroupOffsets.none(columns, data.whole_rows)
    limits = TreeLimits() if library.tree_limits is None else library.tree_limits(names_of(X))
    _check_trees(X, groups, limits, parameter)
    warn_of_groups(parameter)
    return groups


def _check_trees(X: Any, groups: GroupOffsets, limits: TreeLimits, parameter: str) -> None:
    """Refuse columns that trees may not split by, and values that they do not tell apart."""
    columns, asked = groups.columns, f"{parameter}=True"
    if bound := [column for column in columns if column in limits.monotone]:
        raise ValueError(
            f"{asked} adds a {GROUP_PARAMETERS[parameter]} for each value of {bound[0]!r}, which "
            f"need not be monotone in it, as monotone_constraints asks: take the column out of "
            f"them, or use {parameter}=False."
        )
    together = limits.together
    if together and len(columns) > 1 and not any(each.issuperset(columns) for each in together):
        raise ValueError(
            f"{asked} splits by {list(columns)} in one tree, and no set of "
            f"interaction_constraints holds all of these: add one that does, or use "
            f"{parameter}=False."
        )
    names, all_categories = names_of(X), categories_of(X)
    for k, column in enumerate(columns):
        categories = all_categories.get(names.index(column))
        values = [*{level[k] for level in groups.levels} - {MISSING}]
        with np.errstate(over="ignore"):  # Trees split in single precision.
            numbers = np.array([number_of(value, categories) for value in values], np.float32)
        lost = ~np.isfinite(numbers) | (numbers == np.float32(limits.missing))
        if lost.any():
            value = values[int(np.argmax(lost))]
            is_finite = np.isfinite(numbers[lost]).any()
            why = f"missing={limits.missing!r}" if is_finite else "infinite"
            raise ValueError(
                f"{asked} splits by the column {column!r}, whose value {value!r} is {why} to the "
                f"trees: number its groups from 1 on."
            )
        if np.unique(numbers).size < len(values):
            raise ValueError(
                f"{asked} splits by the column {column!r}, some of whose {len(values)} values "
                f"are equal in single precision: number its groups from 1 on."
            )


@functools.cache
def warn_of_groups(parameter: str) -> None:
    """Warn once in a process that decisions, or predictions, use the group."""
    issue_warning(
        f"{parameter}=True lets the group of a person decide, by a {GROUP_PARAMETERS[parameter]} "
        f"for each group. That is unlawful in places and for some purposes: make sure that it is "
        f"allowed where the model is used. {parameter}=False decides for all groups alike.",
        "GC122",
    )


def transfer_offsets(
    scores: FoldScores, shift: Float, offsets: GroupOffsets, margin: Array, inside: Bool,
    cells: Cells,
) -> tuple[Float, GroupOffsets]:  # fmt: skip
    """Find the shifts under which the model of all rows has the positive rates of the folds.

    Each group with an offset is matched by itself, and all other rows together; see
    :func:`~gbm_constrained.decision.choose.match_positive_rate`.
    """
    groups, values = offsets.groups_of(cells.rows), offsets.values
    own = np.flatnonzero(values)
    others = inside & ~np.isin(groups, own)
    common = match_positive_rate(scores, shift, margin, others, cells) if shift.any() else shift
    moved = np.zeros_like(values)
    for g in own:
        of_group = inside & (groups == g)
        found = match_positive_rate(scores, shift + values[g], margin, of_group, cells)
        moved[g] = found[0] - common[0]
    return common, replace(offsets, values=moved)


def tabulate_shifts(shift: Float, offsets: GroupOffsets, groups: Array) -> pd.DataFrame:
    """Make the table of the shift of each group, in the order of the groups."""
    table = {
        column: [None if level[k] is MISSING else level[k] for level in offsets.levels]
        for k, column in enumerate(offsets.columns)
    }
    count = np.bincount(groups, minlength=len(offsets.levels))[: len(offsets.levels)]
    return pd.DataFrame({**table, "shift": shift[0] + offsets.values, "rows": count})


def weight_of_rows(sample_weight: Any, y: Any) -> Any:
    """Repeat a single sample weight for every row, as scikit-learn reads it."""
    if not isinstance(sample_weight, Number):
        return sample_weight
    return np.full(as_labels(y).size, sample_weight, dtype=np.float64)


def _refuse_tables(compiled: LinearConstraints) -> None:
    """Refuse pair rates and calibration errors where decisions alone are moved."""
    for constraint in compiled.constraints:
        if "residual" in constraint.kinds:
            why = "is about probabilities, which no threshold changes"
        elif "pair" in constraint.kinds:
            why = "compares scores, whose order no threshold changes"
        else:
            continue
        raise ValueError(
            f"solver='threshold' moves the threshold alone, and {constraint} {why}: use "
            f"solver='auto', or leave the constraint out."
        )


Dividing: TypeAlias = Literal["holdout", "crossfit", "forward"]  # Boosters on parts of the rows.
MAX_STANDARD_ERROR = 0.01
"""Standard error of a rate up to which the model of all rows is corrected by the fold boosters."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The product of measuring, by which the model is trained.

    Attributes
    ----------
    solver : Solver
        Solver that gives the gradients of the model.
    rows : EvaluationSet or None
        Held-out rows that move the multipliers; None if the training rows do.
    controller : DualController or None
        Controller of the held-out rows.
    boosters : FoldBoosters or None
        Boosters of the folds.
    plain : PlainModel or None
        What fold boosters without multipliers do on held-out rows; None if there are none.
    has_multipliers : bool
        Whether the model is trained under multipliers.
    """

    solver: Solver
    rows: EvaluationSet | None = None
    controller: DualController | None = None
    boosters: FoldBoosters | None = None
    plain: PlainModel | None = None
    has_multipliers: bool = True

    def observe(self, margin: Array) -> None:
        """Move the multipliers at scores of the held-out rows, during the library's own fit."""
        assert self.controller is not None
        self.controller.observe(margin)


class FoldGrowth:
    """Grows sets of boosters on the same folds, one of which the model then follows.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit.
    factory : callable
        Makes a booster for a fold and a solver.
    folds : sequence of Fold
        Rows of each booster.
    source : str
        Name of the held-out rows in reports.

    Attributes
    ----------
    problem : FitProblem
        The constraints, as they move the multipliers of these boosters and of the model.
    plain : PlainModel or None
        What boosters without multipliers do on held-out rows; None if none were grown.
    plain_boosters : tuple of FoldBoosters and EvaluationSet, or None
        These boosters.
    """

    def __init__(
        self, fit: ConstrainedFit, factory: FoldBoosterFactory, folds: Sequence[Fold], source: str
    ) -> None:
        self.fit, self.problem = fit, fit.problem
        self.factory, self.folds, self.source = factory, folds, source
        self.rows = np.sort(np.concatenate([fold.held for fold in folds]))
        self.problem.check_has_weight([self.rows, *(fold.training for fold in folds)])
        n_trained = np.array([sum(fold.training.size for fold in folds)], dtype=np.float64)
        self.n_trained = float(self.problem.cells.reduce_sum(n_trained)[0])
        self.share = self.n_trained / self.problem.cells.n_rows
        fit.notifier.limit.check_cost(1.0 + self.share, f"measuring {source}")
        self.plain: PlainModel | None = None
        self.plain_boosters: Grown | None = None
        self._n_grown, self._longest = 0, 0
        self._clock: MeasuringClock

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
        fit, problem = self.fit, self.problem
        n_rounds, per_iteration = fit.library.n_rounds, fit.options.rounds_per_iteration
        notifier, file, position = fit.notifier, fit.checkpoint, self._n_grown
        clock = self._clock = MeasuringClock(notifier.limit, 1.0 / self.share, per_iteration)
        boosters = self._begin(start, fixed, log_odds, has_multipliers=has_multipliers)
        notifier.begin_pass(len(boosters.members))
        self._n_grown += 1
        if file is not None and position < len(file.passes):
            state = file.passes[position]
            boosters.restore(state["boosters"])
            notifier.restore(state["notifier"])
            clock.restore(state["seconds"])
        else:
            try:
                boosters.grow(
                    n_rounds, per_iteration, lambda at: notifier.is_over(at) or clock.is_over(at)
                )
            finally:
                fit.hide_progress()
            if file is not None:
                state = {"boosters": boosters.state(), "notifier": notifier.state()}
                file.save({**state, "seconds": clock.spent})
        if boosters.rounds < self._longest and not notifier.is_over(boosters.rounds):
            self._give_up(is_first=self._n_grown == 2)  # Cut earlier than those before.
        self._longest = max(self._longest, boosters.rounds)
        boosters.release()  # Other boosters may follow, and the model of all rows does.
        solver, targets = boosters.controller.solver, problem.data.targets
        cells = solver.lagrangian.cells
        held_out = problem.hold_out(
            cells,
            problem.compiled.on(cells),
            self.source,
            None if targets is None else targets[self.rows],
            folds=boosters.positions,
            holds_groups=fit.certification is not None,
        )
        held_out.room = problem.room
        held_out.functionals_in = {r.rounds: r.functionals for r in solver.history}
        if not has_multipliers:
            self.leave_room(boosters, held_out)
            margin = boosters.held_margin(boosters.rounds)
            self.plain = PlainModel(
                held_out.error(held_out.decisions(margin)),
                held_out.compiled.values(held_out.functionals(margin)),
            )
            self.plain_boosters = boosters, held_out
        return boosters, held_out

    def leave_room(self, boosters: FoldBoosters, rows: EvaluationSet) -> None:
        """Aim from inside of the bounds, if asked, by errors of boosters without multipliers."""
        if self.fit.options.standard_errors and self.problem.room is None:
            acting = rows.under(rows.compiled.make_credible(rows.cells, rows.half))
            margin = boosters.held_margin(boosters.rounds)
            rows.room = find_room(acting, margin, self.fit.options.standard_errors)
            self.problem = replace(self.problem, room=rows.room)

    def _begin(
        self, start: Float | None, fixed: Bool | None, log_odds: float, *, has_multipliers: bool
    ) -> FoldBoosters:
        """Make a set of boosters with their solvers; the parameters are those of :meth:`grow`."""
        fit, problem, given = self.fit, self.problem, self.problem.data.given_folds
        lagrangian = problem.lagrangian(
            self.rows,
            is_restricted=True,
            log_odds=log_odds,
            factor=None if given is None else given.recency,
        )
        others: dict[str, Any] = {} if has_multipliers else fit.without_multipliers()
        if start is not None:
            others = {"initial_multipliers": start, "fixed": fixed}
        solver = fit.make_solver(lagrangian, **others)
        source = self.source if has_multipliers else f"{self.source}, without multipliers"
        fit.notify_of(solver, "measuring", source)
        controller = DualController(solver, self.rows)
        if has_multipliers:
            controller.bounds_at = fit.bounds_at(lagrangian)
            controller.attainable = fit.attainable_bounds(lagrangian)
        members = []
        for fold in self.folds:
            follower = None
            if has_multipliers:
                follower = fit.make_solver(
                    problem.lagrangian(fold.training, log_odds=log_odds),
                    schedule=controller.path,
                    # Optimism alone needs the rates on the rows that the boosters are grown on.
                    has_rates=bool(problem.compiled.must_reward_errors.any()),
                )
            members.append(self.factory(fold, follower))
        kept = fit.options.prefixes(fit.library.n_rounds).candidates  # A choice may look at them.
        return FoldBoosters(controller, self.folds, members, problem.cells.n_rows, kept, log_odds)

    def follow(self, grown: Grown) -> Measured:
        """Make the solver of the model, which follows the multipliers of a set of boosters."""
        fit, problem, (boosters, held_out) = self.fit, self.problem, grown
        if boosters.rounds < fit.notifier.n_rounds:
            fit.notifier.end_for_time(boosters.rounds, "measuring")
        controller = boosters.controller
        solver = fit.make_solver(
            problem.lagrangian(log_odds=boosters.log_odds),
            schedule=controller.path,
            initial_multipliers=controller.solver.start.copy(),
        )
        fit.notify_of(solver, "training", "training rows")
        # The model's multipliers are corrected by the optimism of the fold boosters.
        history, rewards = controller.solver.history, problem.acting.must_reward_errors
        is_comparable = not (fit.has_offset or boosters.compared)
        if boosters.has_multipliers and is_comparable and history and rewards.any():
            cells = controller.solver.lagrangian.cells
            counts = CellCounts.of_shares(cells, history[-1].predicted)
            solver.optimism = boosters.optimism
            is_known = standard_errors(problem.acting, counts) <= MAX_STANDARD_ERROR
            solver.corrected = rewards & is_known
        return Measured(
            solver, held_out, controller, boosters, self.plain, boosters.has_multipliers
        )

    def has_time_again(self) -> bool:
        """Whether there is time for one more pass; if not, the time limit reports the lack."""
        notifier = self.fit.notifier
        is_affordable = notifier.limit.affords(1.0 + self.share * (self._n_grown + 1))
        if has_time := is_affordable and self._clock.has_time_again():
            return not notifier.is_stopped
        self._give_up(is_first=self._n_grown == 1)
        return has_time

    def _give_up(self, *, is_first: bool) -> None:
        """Note in the time limit that multipliers, or better ones, were given up."""
        limit, is_first = self.fit.notifier.limit, is_first and self.fit.options.solver == "auto"
        limit.has_no_multipliers |= is_first
        limit.has_fewer_passes |= not is_first

    def is_enough(self, plain: Pass) -> bool:
        """Whether boosters without multipliers need none beside them.

        Under constraints on labels and decisions alone no decisions of groups are better than a
        threshold, and memorised rows say whether multipliers would be. A threshold that is worse
        than deciding all rows alike says so, too.
        """
        compiled, asked = self.problem.compiled, plain.asked.compiled
        if (plain.violations <= ROUNDING).all():
            return True  # No multiplier would move.
        if not all(compiled.constraints[i].is_of_labels for i in np.unique(compiled.owner)):
            excess = plain.cost - plain.needed
            return excess <= max(AFFORDABLE, plain.noise) and not plain.misses
        boosters, held_out = plain.grown
        choice = held_out.credible.choices[boosters.rounds]
        if held_out.cells.classes.size > 2 or choice.violation > 0.0:
            return False
        if choice.error > min(held_out.error(np.full(len(self.rows), k)) for k in (0, 1)):
            return False
        optimism = measure_optimism(self.problem, plain.grown, choice)
        is_memorised = optimism > MEMORISED_SHARE * (asked.b - smallest_values(asked))
        return bool(is_memorised[plain.violations > ROUNDING].any())


class ConstrainedFit:
    """One constrained fit, whose stages take the products of those before.

    1. The rows are encoded, 2. the constraints compiled, 3. the options checked: all three when
    the object is made. 4. and 5. :meth:`measure` finds the path of the multipliers. 6. The
    library trains with :attr:`solver` as its objective. 7.
    :func:`~gbm_constrained.fit.finalize.finalize` chooses the decision. 8.
    :func:`~gbm_constrained.fit.finalize.report` sets the fitted attributes.

    Parameters
    ----------
    options : SolverOptions
        Constructor parameters.
    arguments : FitArguments
        Rows that the user gave.
    library : LibrarySettings
        Settings of the library's own fit.
    progress : Progress, default=None
        Display of the progress.
    constraint_callbacks : sequence of callable, default=None
        Notified of each outer iteration.
    limit : TimeLimit, default=None
        Time after which measuring and training end.

    Attributes
    ----------
    problem : FitProblem
        Constraints bound to the rows.
    data : FitData
        The rows.
    notifier : CallbackNotifier
        Notifies callbacks, and ends training when one of them or the time limit asks for it.
    certification : EvaluationSet or None
        Rows that are set aside for a guarantee.
    groups : GroupOffsets or None
        Groups that have thresholds of their own, if the user asked for these.
    checkpoint : CheckpointFile or None
        File that finished stages are saved to.
    evaluation_sets : list of EvaluationSet
        Evaluation sets of the user.
    measured : Measured
        Product of :meth:`measure`.
    merits : dict of int to RoundMerit
        What early stopping on the constraints compares, by rounds.
    is_divisible : bool
        Whether a prefix of the booster is what the booster was after its rounds.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    """

    def __init__(
        self,
        options: SolverOptions,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        progress: Progress | None = None,
        constraint_callbacks: Any = None,
        limit: TimeLimit | None = None,
    ) -> None:
        callbacks = check_callbacks(constraint_callbacks)
        self.notifier = CallbackNotifier(
            callbacks if progress is None else [*callbacks, progress],
            library.n_rounds,
            options.rounds_per_iteration,
            limit,
            "iterations" if library.is_linear else "rounds",
            arguments.machine.communicator,
            library.learning_rate,
        )
        self.library, self.progress = library, progress
        self.options, self.problem = FitProblem.of(options, arguments, library)
        self.data: FitData = self.problem.data
        options, compiled = self.options, self.problem.compiled
        options.method.check_problem(compiled, options.iterate)
        if options.solver == "threshold":
            _refuse_tables(compiled)
        self.problem.initial_multipliers(options.method.start)
        self.certification = self.problem.certification_set()
        if self.certification is not None:
            prefixes = options.prefixes(library.n_rounds)
            fraction, delta = options.calibration_fraction, options.delta
            asked = GuaranteeRequest(str(options.guarantee), fraction, delta, prefixes)
            check_guarantee(self.certification, compiled, asked)
        self.groups: GroupOffsets | None = None
        if options.group_parameter is not None:
            self.groups = begin_groups(self.problem, options.group_parameter, library)
        self.checkpoint: CheckpointFile | None = None
        self.evaluation_sets: list[EvaluationSet] = []
        self.merits: dict[int, RoundMerit] = {}
        self.measured: Measured
        self.is_divisible = self.has_offset = False

    @property
    def solver(self) -> Solver:
        """Solver that gives the gradients of the model."""
        return self.measured.solver

    @property
    def reporting_rows(self) -> list[EvaluationSet]:
        """Held-out rows whose rates are reported; the first that have a value count."""
        rows = self.measured.rows
        return [*self.evaluation_sets[-1:], *([] if rows is None else [rows])]

    def make_solver(self, lagrangian: Lagrangian, **others: Any) -> Solver:
        """Make a solver by the options and the library's settings; `others` override them."""
        method, rate = self.options.method, min(self.library.learning_rate, 1.0)
        given: dict[str, Any] = {
            "progress": max(1.0 - (1.0 - rate) ** self.options.rounds_per_iteration, 1e-3),
            "lazy": not self.library.is_linear,
            "initial_multipliers": self.problem.initial_multipliers(method.start),
        }
        return method.begin(lagrangian, **{**given, **others})

    def without_multipliers(self) -> dict[str, Any]:
        """Arguments of a solver whose multipliers stay zero."""
        path = [np.zeros(len(self.problem.compiled))]
        return {"schedule": path, "initial_multipliers": None}

    def notify_of(self, solver: Solver, phase: Phase, rows: str) -> None:
        """Notify the callbacks of a solver's iterations, which may end the phase."""
        notifier, compiled = self.notifier, solver.lagrangian.constraints

        def notify(record: Record) -> None:
            if notifier.notify(phase, rows, record, compiled):
                end = record.rounds + self.options.rounds_per_iteration
                notifier.end_after(min(notifier.n_rounds, end), CALLBACK, phase)

        if is_any(notifier.communicator, bool(notifier.callbacks)):
            solver.callback = notify

    def bounds_at(self, lagrangian: Lagrangian) -> BoundsAt:
        """Make the bounds that multipliers move towards, as a function of the last record."""
        compiled, rows = lagrangian.constraints, CellCounts.undecided(lagrangian.cells)
        return lambda record: tightened_bounds(compiled, rows.decide(record.predicted))

    def attainable_bounds(self, lagrangian: Lagrangian) -> LinearConstraints | None:
        """Bind the constraints whose later priorities are relaxed; None without priorities."""
        compiled = lagrangian.constraints
        return compiled.on(lagrangian.cells) if len(find_levels(compiled)) > 1 else None

    def hide_progress(self) -> None:
        """Hide a progress bar until the next iteration."""
        if self.progress is not None:
            self.progress.close()

    def measure(
        self,
        make_factory: Callable[[], FoldBoosterFactory] | None = None,
        *,
        is_divisible: bool = False,
        has_offset: bool = False,
    ) -> None:
        """Find the path of the multipliers, or the rows that will move them.

        `make_factory` makes the factory of fold boosters; None stands for a learner without any.
        The attributes of the class describe the other parameters.
        """
        self.is_divisible, self.has_offset = is_divisible, has_offset
        kind = self.resolve_measurement()
        if kind not in get_args(Dividing):
            self.notifier.limit.check_cost(1.0, "a fit under multipliers")
        if kind in get_args(Dividing):
            assert make_factory is not None
            folds, source = divide_into_folds(
                self.data, self.problem.cells, self.options, is_holdout=kind == "holdout"
            )
            growth = FoldGrowth(self, make_factory(), folds, source)
            self.measured = growth.follow(self.find_best(growth))
        elif self.checkpoint is not None:
            raise ValueError(
                "checkpoint= saves the boosters of the folds, and this fit has none: it measures "
                "the constraints on the training rows or on an evaluation set. Leave checkpoint "
                "out, or use measure_on='crossfit'."
            )
        elif kind == "evaluation set":
            self.measured = self._watch(self.evaluation_sets[-1])
        else:
            self.measured = Measured(self.make_solver(self.problem.lagrangian()))
            self.notify_of(self.solver, "training", "training rows")

    def find_best(self, growth: FoldGrowth) -> Grown:
        """Grow boosters, and others if these cost more errors than the constraints should."""
        options = self.options
        if options.standard_errors and options.solver not in ("auto", "threshold"):
            how = f"guarantee={options.guarantee_asked!r} with solver={options.solver!r}"
            self.notifier.limit.check_cost(1.0 + 2.0 * growth.share, how)
            growth.grow(has_multipliers=False)  # The margin is by the errors of these.
        if self.groups is not None:
            return self._find_for_groups(growth, self.groups)
        if options.solver == "threshold" or options.iterate not in ("last", "best"):
            return growth.grow(has_multipliers=options.solver != "threshold")
        return search_passes(
            growth.grow,
            functools.partial(measure_pass, options=options, certification=self.certification),
            has_time=growth.has_time_again,
            is_enough=growth.is_enough,
            may_be_plain=options.solver == "auto",
        )

    def _find_for_groups(self, growth: FoldGrowth, groups: GroupOffsets) -> Grown:
        """Grow boosters without and with multipliers, and return those that groups need fewer of.

        Where the group is at hand, thresholds of groups close most gaps without multipliers.
        """
        options = self.options
        kinds = {"auto": (False, True), "threshold": (False,)}.get(options.solver, (True,))
        grown = [growth.grow(has_multipliers=kinds[0])]
        if len(kinds) > 1 and growth.has_time_again():
            others = growth.grow(has_multipliers=kinds[1])
            grown += [others] * (others[0].rounds == grown[0][0].rounds)
        costs = [
            choose_for_groups(
                ScoredRows(rows.credible, boosters.held_margin),
                options.prefixes(boosters.rounds),
                groups,
            ).loss
            for boosters, rows in grown
        ]
        return grown[int(np.argmin(costs))]

    def resolve_measurement(self) -> Literal["train", "evaluation set"] | Dividing:
        """Resolve ``measure_on`` to the rows by which constraints are measured.

        With ``"auto"`` the training rows take the place of others with a warning.
        """
        options, asked = self.options, self.options.measure_on
        if asked == "holdout" and self.evaluation_sets and options.holdout_fraction is None:
            if options.standard_errors:
                raise ValueError(
                    f"guarantee={options.guarantee_asked!r} takes standard errors from boosters "
                    f"that are grown before the model, and measure_on='holdout' with an "
                    f"evaluation set grows none: use Holdout(0.25) or 'crossfit'."
                )
            return "evaluation set"
        if asked == "auto" and self.is_divisible:
            cells, compiled = self.problem.cells, self.problem.compiled
            is_large = has_many_rows(cells, compiled, np.unique(compiled.R.indices))
            return "holdout" if is_large and options.cv is None else "crossfit"
        if asked != "auto" and asked != "train":
            if self.is_divisible:
                return asked
            refused = "which a model to continue from (it has seen all rows) does not allow"
            if options.cv is not None:
                raise ValueError(
                    f"measure_on={options.cv!r} divides the rows, {refused}: use "
                    f"measure_on='train'."
                )
            raise ValueError(
                f"measure_on={asked!r} grows boosters on part of the rows, {refused}: use "
                f"measure_on='train', or 'holdout' with an evaluation set."
            )
        _refuse_without_held_out_rows(options)
        if asked == "auto":
            issue_warning(
                "measure_on='auto' measures the constraints on the training rows here, since "
                "continued training cannot grow boosters on part of the rows. Training rows are "
                "optimistic: give an evaluation set with measure_on='holdout', or ask for "
                "measure_on='train'.",
                "GC118",
            )
        return "train"

    def _watch(self, rows: EvaluationSet) -> Measured:
        """Let an evaluation set move the multipliers while the model is trained."""
        ours = self.problem.compiled
        if found := self.problem.name_further_groups(rows):
            raise ValueError(
                f"measure_on='holdout' moves multipliers by {rows.source}, which has groups that "
                f"a constraint has no training rows of: {found}. Put rows of these groups among "
                f"the training rows, leave them out of {rows.source}, or give "
                f"measure_on=Holdout(0.25), to split the training rows instead."
            )
        if len(rows.compiled) != len(ours):
            missing = next(
                constraint
                for j, constraint in enumerate(ours.constraints)
                if (rows.compiled.owner == j).sum() < (ours.owner == j).sum()
            )
            raise ValueError(
                f"The first evaluation set ({rows.source}) moves the multipliers, and {missing} "
                f"cannot be measured there (a mask, a data set, a column or a group that is not "
                f"there): give its columns as sensitive features of evaluation sets, or "
                f"measure_on=Holdout(0.25), to divide the training rows instead."
            )
        has_multipliers = self.options.solver != "threshold"
        lagrangian = rows.credible.lagrangian
        others = {} if has_multipliers else self.without_multipliers()
        measuring = self.make_solver(lagrangian, **others)
        self.notify_of(measuring, "training", f"{rows.source}, watched")
        attainable = self.attainable_bounds(lagrangian) if has_multipliers else None
        controller = DualController(
            measuring, bounds_at=self.bounds_at(lagrangian), attainable=attainable
        )
        rows.source += ", watched"  # Rows that move multipliers are no evidence any more.
        solver = self.make_solver(self.problem.lagrangian(), schedule=controller.path)
        return Measured(solver, rows, controller, has_multipliers=has_multipliers)

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def is_measured_after(self, rounds: int) -> bool:
        """Whether evaluation sets are measured after so many boosting rounds."""
        return self.options.early_stopping_on != "metric" or self.is_iteration_end(rounds)

    def measure_round(self, held: EvaluationSet, rounds: int, margin: Array) -> None:
        """Measure an evaluation set by its scores after some rounds."""
        held.measure(rounds, margin)
        if self.options.early_stopping_on != "metric" and held is self.evaluation_sets[-1]:
            self.merits[rounds] = self.find_merit(held, margin)

    def find_merit(self, held: EvaluationSet, margin: Array) -> RoundMerit:
        """Find what early stopping on the constraints compares, by the scores after a round."""
        is_shifted = self.measured.rows is not None and self.options.iterate != "randomized"
        return find_merit(held, margin, is_shifted=is_shifted)


class RegressionFit(ConstrainedFit):
    """One constrained fit of a regressor; see :class:`ConstrainedFit`."""

    certification: PredictedRows | None

    def make_solver(self, lagrangian: Lagrangian, **others: Any) -> Solver:
        """Make a solver; multipliers of boosters are worth the price of violations at most."""
        if not self.library.is_linear and self.certification is None:
            assert isinstance(lagrangian, RegressionLagrangian)
            others = {"largest": find_largest_multipliers(lagrangian.rows), **others}
        return super().make_solver(lagrangian, **others)

    def aim_at(self, compiled: LinearConstraints) -> LinearConstraints:
        """Give constraints the bounds that training aims at: tighter ones for a guarantee."""
        if self.certification is None:
            return compiled
        return tighten_for_certificate(compiled, self.certification, self.options.delta)

    def bounds_at(self, lagrangian: Lagrangian) -> BoundsAt:
        """Move the multipliers towards the bounds that training aims at."""
        bounds = self.aim_at(lagrangian.constraints).b
        return lambda record: bounds

    def find_best(self, growth: FoldGrowth) -> Grown:
        """Grow boosters, and return those that the criterion prefers, with the best map.

        Boosters without multipliers come first. They say how far each group acts, and how much the
        constraints cost if their scores are mapped. If it is more than sampling error, boosters
        follow whose multipliers move, from the prices of shifts of groups on.
        """
        start = np.zeros(len(growth.problem.compiled))
        everything = np.ones(start.size, dtype=bool)
        plain = growth.grow(has_multipliers=True, start=start, fixed=everything)
        held_out: Any = plain[1]
        if growth.problem.half is None:  # Groups act as far as rows tell them from the others.
            held_out.half = credible_rows(held_out, plain[0].held_margin(plain[0].rounds))
            growth.problem = replace(growth.problem, half=held_out.half)
        growth.leave_room(*plain)
        rows, score = self._held_out(plain)
        criterion = Criterion.from_rows(rows, score)
        identity = AffineChoice(Affine(), *rows.measure_scores(score))
        values = held_out.compiled.values(
            held_out.compiled.functionals(held_out.lagrangian.at(score).statistics(is_exact=True))
        )
        growth.plain = PlainModel(identity.loss, values)
        found, passes = [identity, self._choose(plain, criterion)], [plain, plain]
        best = found[criterion.best_of(found)]
        more, noise = rows.compare_losses(best.apply(score, rows.cells.rows), score)
        is_cheap = (best.violations <= ROUNDING).all() and more <= noise
        if not is_cheap and growth.has_time_again():
            given = growth.problem.initial_multipliers(self.options.method.start)
            prices = find_prices(rows, score, criterion) if given is None else given
            passes.append(growth.grow(has_multipliers=True, start=prices))
            found.append(self._choose(passes[-1], criterion))
        chosen = criterion.best_of(found)
        boosters, held_out = passes[chosen]
        held_out.choices[boosters.rounds] = found[chosen]
        held_out.plain_score = score
        return passes[chosen]

    def _choose(self, grown: Grown, criterion: Criterion) -> AffineChoice:
        """Choose the map of the boosters' scores by the rows that they hold out.

        The rows keep the choice for the model of all rows.
        """
        choice = self.choose_map(*self._held_out(grown), criterion)
        choices: dict[int, Any] = grown[1].choices
        choices[grown[0].rounds] = choice
        return choice

    def _held_out(self, grown: Grown) -> tuple[PredictedRows, Array]:
        """Give the held-out rows the bounds that training aims at; the scores come second."""
        boosters, rows = grown
        credible: Any = rows.credible
        aimed = credible.with_bounds(self.aim_at(credible.compiled).b)
        return aimed, boosters.held_margin(boosters.rounds)

    def choose_map(
        self, rows: PredictedRows, score: Array, criterion: Criterion | None = None
    ) -> AffineChoice:
        """Choose scale and shift of scores by rows, or shifts of groups if these may decide.

        The `criterion` is by default that of these scores.
        """
        criterion = Criterion.from_rows(rows, score) if criterion is None else criterion
        choice = choose_affine(rows, score, criterion.pick_map, has_scale=self.library.has_scale)
        if self.groups is None:
            return choice
        found = list_group_shifts(rows, score, choice, self.groups, criterion)
        return found[criterion.best_of(found)]

    def measure(self, *args: Any, **options: Any) -> None:
        """Find the path of the multipliers, and refuse stated ranges that held-out rows leave."""
        super().measure(*args, **options)
        rows, boosters = self.measured.rows, self.measured.boosters
        if self.certification is not None and boosters is not None:
            assert isinstance(rows, PredictedRows)
            check_observed(rows, boosters.held_margin(boosters.rounds))

    def find_merit(self, held: EvaluationSet, margin: Array) -> RoundMerit:
        """Find the mean loss of the scores with the price of their violation, in it."""
        assert isinstance(held, PredictedRows)
        criterion = Criterion.from_rows(held, margin)
        loss, violations = held.measure_scores(margin)
        left = criterion.weights * np.maximum(violations - criterion.errors, 0.0)
        first = violations[find_first(held.compiled)].max(initial=-np.inf)
        price = VIOLATION_PRICE * left.max(initial=0.0)
        return RoundMerit(float(criterion.share(loss)) + float(price), float(first))

    def training_rows(self) -> Any:
        """Bind the constraints to the training rows, to report on them."""
        cells = self.problem.cells
        compiled = self.problem.compiled.on(cells)
        return self.problem.hold_out(cells, compiled, TRAINING_ROWS, self.data.targets)


def _refuse_without_held_out_rows(options: SolverOptions) -> None:
    """Refuse options that need rows which the trees have not seen."""
    here = f"measure_on={options.measure_on!r}"
    refuse_priorities(options.constraints, no_held_out_rows(here))
    unseen = f"rows that the trees have not seen, and {here} takes the training rows here: use"
    others = f"{unseen} 'crossfit' or 'holdout' (for continued training with an evaluation set)"
    if options.guarantee_asked is not None:
        raise ValueError(f"guarantee={options.guarantee_asked!r} needs {others}.")
    if options.on_infeasible == "raise":
        raise ValueError(f"on_infeasible='raise' assesses constraints on {others}, or 'warn'.")
    if (parameter := options.group_parameter) is not None:
        raise ValueError(
            f"{parameter}=True chooses a {GROUP_PARAMETERS[parameter]} for each group on "
            f"{others}, or {parameter}=False."
        )
    if options.solver == "threshold":
        raise ValueError(
            f"solver='threshold' is moved on {unseen} 'holdout' with an evaluation set, or "
            f"another solver."
        )


def check_pairs(eval_set: Any, X: Any, *, by_name: bool) -> list[tuple[Any, Any]]:
    """Check evaluation sets against the training rows `X`, and list them as pairs (X_i, y_i).

    `by_name` says whether the library compares the names of columns.
    """
    if eval_set is None:
        return []
    pairs = list(eval_set) if isinstance(eval_set, Iterable) else [eval_set]
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            length = f" of {len(pair)}" if isinstance(pair, (list, tuple)) else ""
            raise TypeError(
                f"eval_set must be a list of pairs (X, y), got a {type(eval_set).__name__} whose "
                f"entry {i} is a {type(pair).__name__}{length}: give "
                f"eval_set=[(X_valid, y_valid)]."
            )
        X_i, y_i = pair
        check_pair(f"eval_set[{i}]", X_i, y_i, X, by_name=by_name)
    return pairs


def check_pair(name: str, X_i: Any, y_i: Any, X: Any, *, by_name: bool) -> None:
    """Check further rows of a name against the training rows `X`.

    `by_name` says whether the names of columns are compared.
    """
    n_values = as_labels(y_i, f"y of {name}").size
    shape, training = _shape(X_i), _shape(X)
    if len(shape) != 2:
        raise ValueError(
            f"X of {name} must have two dimensions, one row for each label and the columns of X; "
            f"got shape {shape}."
        )
    if shape[0] != n_values:
        raise ValueError(
            f"{name} has {shape[0]} rows of X and {n_values} values of y: give one for each row."
        )
    if shape[1:] != training[1:] and len(training) == 2:
        raise ValueError(
            f"X of {name} has {shape[1]} columns, and the training rows have {training[1]}: give "
            f"the same columns."
        )
    check_features(X_i, f"X of {name}")
    found, expected = _names(X_i), _names(X)
    if by_name and found is not None and expected is not None and found != expected:
        raise ValueError(
            f"X of {name} has the columns {found or 'without names'}, and the training rows have "
            f"{expected or 'columns without names'}: give tables of the same columns, in the "
            f"same order."
        )
    if not isinstance(X_i, pd.DataFrame):
        return  # Tables of other libraries have categories of their own kind.
    theirs = categories_of(X_i)
    for j, categories in categories_of(X).items():
        column = X.columns[j]
        if j not in theirs:
            raise TypeError(
                f"X of {name} has no categories in column {column!r}, where X has some: give the "
                f"column as a category."
            )
        refuse_strange(column, categories, theirs[j], f"X of {name}")


def _shape(table: Any) -> tuple[int, ...]:
    shape = tuple(table.shape if hasattr(table, "shape") else np.shape(table))
    return (*shape, 1) if hasattr(table, "to_frame") and len(shape) == 1 else shape


def _names(table: Any) -> list[str] | None:
    """List the names of columns as XGBoost compares them; None for tables of unknown kinds."""
    if is_frame(table) or isinstance(table, (np.ndarray, list)) or sparse.issparse(table):
        return list(map(str, names_of(table)))
    return None


@dataclass(frozen=True)
class EvaluationArguments:
    """Evaluation sets as they were given, and how they end training early.

    Attributes
    ----------
    pairs : sequence of (X_i, y_i)
        All evaluation sets.
    weights : sequence
        Sample weights of each evaluation set, or None.
    initial_scores : sequence
        Scores that the booster starts from in each evaluation set, or None.
    has_patience : bool
        Whether the parent has a number of rounds after which to stop early.
    parameter : str
        Parameter that gives this number.
    is_evaluated : bool
        Whether there is an evaluation set, and a metric of it.
    """

    pairs: Sequence[tuple[Any, Any]]
    weights: Sequence[Any]
    initial_scores: Sequence[Any]
    has_patience: bool
    parameter: str
    is_evaluated: bool

    def check_early_stopping(self, on: EarlyStoppingOn, *, has_held_out: bool) -> None:
        """Refuse early stopping that lacks a patience, a metric or rows to look at."""
        if on == "metric":
            if self.has_patience and not self.is_evaluated:
                raise ValueError(
                    f"Early stopping ({self.parameter}) looks at a metric of an evaluation set, "
                    f"and there is none: give eval_set=[(X_valid, y_valid)], or evals= and "
                    f"valid_sets= of train, or leave early stopping out."
                )
            return
        asked = f"early_stopping_on={on!r}"
        if not self.has_patience:
            raise ValueError(
                f"{asked} does not say after how many rounds without improvement to stop: give "
                f"{self.parameter}, or leave early_stopping_on at 'metric'."
            )
        if not has_held_out:
            raise ValueError(
                f"{asked} measures the constraints on the last evaluation set, and there is none "
                f"besides the training rows: give eval_set=[(X_valid, y_valid)]."
            )


def take_evaluation_sets(
    fit: ConstrainedFit, given: EvaluationArguments, sensitive_features: Any
) -> list[int]:
    """Attach to a fit the evaluation sets that are not its training rows; list their positions."""
    pairs, on = given.pairs, fit.options.early_stopping_on
    check_sensitive_sets(sensitive_features, len(pairs))
    sensitive = [None] * len(pairs) if sensitive_features is None else sensitive_features
    for i, (X_i, y_i) in enumerate(pairs):
        name = f"eval_set[{i}]"
        fit.data.alignment.check(
            {
                f"X of {name}": X_i,
                f"y of {name}": y_i,
                f"sample weight of {name}": given.weights[i],
                f"initial scores of {name}": given.initial_scores[i],
                f"sensitive features of {name}": sensitive[i],
            }
        )
    held_out = [i for i, pair in enumerate(pairs) if not fit.data.holds(pair)]
    if len(held_out) < len(pairs) and fit.certification is not None:
        raise ValueError(
            f"eval_set holds the training rows, of which guarantee={fit.options.guarantee!r} "
            f"sets some aside that nothing else may look at: leave them out; history_ and "
            f"constraint_report_ have the values on training rows."
        )
    given.check_early_stopping(on, has_held_out=bool(held_out))
    fit.evaluation_sets = [
        fit.problem.evaluation_set(f"eval_set[{i}]", *pairs[i], given.weights[i], sensitive[i])
        for i in held_out
    ]
    for held in fit.evaluation_sets[-1:]:
        if found := fit.problem.name_further_groups(held):
            issue_warning(
                f"{held.source} has groups that a constraint has no training rows of: {found}. "
                f"Values on {held.source} compare these groups as well, as audit does, and "
                f"training cannot act on them. Put rows of these groups among the training rows, "
                f"or leave them out of {held.source}.",
                "GC205",
            )
        compiled = fit.problem.compiled
        there = compiled.positions_in(held.compiled)[np.unique(compiled.R.indices)]
        if on != "metric" and np.isnan(held.compiled.constant[there]).any():
            raise ValueError(
                f"early_stopping_on={on!r} measures the constraints on {held.source}, where some "
                f"cannot be measured (a mask, a data set, a column or a group that is not there): "
                f"give sensitive_features_eval_set, or use 'metric'."
            )
    return held_out
