"""One constrained fit of a drop-in classifier: its data, its solver, and where it measures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import compress
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_consistent_length

from gbm_constrained._dataframes import is_same, take_rows
from gbm_constrained._messages import level_of_the_user, some_of
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.alignment import RowAlignment, row_labels_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.combined_rows import Stack, encode
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.splits import Fold, parts_by_cell, parts_by_group
from gbm_constrained.data.validation import (
    as_groups,
    as_labels,
    check_features,
    check_labels,
    check_weight,
    own_random_state,
)
from gbm_constrained.decision.evaluation_set import UnseenRows
from gbm_constrained.decision.guarantee_checks import expected, least_p_values, least_values
from gbm_constrained.decision.guarantees import sequences_of
from gbm_constrained.decision.prefix_choice import FEW_PREFIXES, aims, prefixes, standard_errors
from gbm_constrained.decision.rule import MET, Choice, shifted
from gbm_constrained.problem.compiler import compile_constraints, needs_of
from gbm_constrained.problem.grouping import FEW_NAMED, SmallGroupWarning
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.problem.log_loss_form import as_losses
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.between_folds import optimism_of_boosters
from gbm_constrained.statistics.counts import functionals_of
from gbm_constrained.training.callbacks import Announcer, Phase, check_callbacks
from gbm_constrained.training.checkpoint import Checkpoint, CheckpointFile, State
from gbm_constrained.training.fingerprint import fingerprint_of, machine
from gbm_constrained.training.measurement import (
    PLENTY,
    TELLING,
    Aim,
    MakeScout,
    Measurement,
    Scouts,
)
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.passes import PassSearch
from gbm_constrained.training.plug_in import (
    as_certified,
    choice_by,
    cost_of,
    is_by_heart,
    is_cheap,
    may_be_unweighed,
)
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.time_limit import MeasuringClock, TimeLimit

FactorOfClass: TypeAlias = Callable[[Array, Array], Array]
GROUPED_PARTS = 20  # Parts of whole groups that a share is put together of, at most.


def _product(a: Float | None, b: Float | None) -> Float | None:
    if a is None or b is None:
        return b if a is None else a
    return a * b


def weight_of_rows(sample_weight: Any, y: Any) -> Any:
    """Sample weights, of which scikit-learn reads one number as that of every row."""
    if not isinstance(sample_weight, Number):
        return sample_weight
    return np.full(as_labels(y).size, sample_weight, dtype=np.float64)


def _of_rows(factors: Float, y: Codes) -> Float | None:
    """Each row's factor, or None if all are one."""
    return None if (factors == 1.0).all() else factors[y]


class ConstrainedFit:
    """One constrained fit of a booster: its data, the solver, and what the solver sees.

    Parameters
    ----------
    options : SolverOptions
        What was asked.
    X : array-like of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,)
        Labels.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights.
    sensitive_features, datasets : default=None
        What constraints may look at besides; see the classifiers' ``fit``.
    learning_rate : float
        Shrinkage of the booster.
    n_rounds : int
        Boosting rounds asked for.
    library_factor, objective_factor : callable, default=None
        Given the sorted classes and the class index of each row, the factor of each class in the
        objective (not in the constraints): as the library multiplies it into the weights of its
        data set, or applies it in its own objective.
    softmax_hessian : callable, default=1
        Given the number of classes, the factor of the library's softmax Hessian.
    progress : Progress, default=None
        Shows how far the fit is.
    constraint_callbacks : sequence of callable, default=None
        Told of each outer iteration.
    limit : TimeLimit, default=None
        The time after which measuring and training end.
    unit : {"rounds", "iterations"}, default="rounds"
        What messages count.
    lazy : bool, default=True
        Whether constraints that never bind leave the library's own fit untouched.
    groups : array-like of shape (n_samples,), default=None
        Rows that belong together and stay in one part where rows are split.
    random_state : int, RandomState or None
        Of the splits; None is the same as 0.
    **kernel
        Options of :class:`Lagrangian` that the library decides (dtype, order, ...).

    Attributes
    ----------
    stack : Stack
        Training rows and those of further data sets, as the library is to be given them.
    whole : Stack
        The same with the rows that are kept for certificates.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y, weight, library_weight : ndarray of shape (n_samples,)
        Class indices, sample weights, and these times the class weights; of training rows.
    solver : ABPP or CBPR
        The outer loop.
    rows, cells : Rows, Cells
        All rows of the stack, and their partition.
    reported, driven : CompiledConstraints
        The constraints as they were stated, and as multipliers are driven by them: with mean
        losses in the place of rates where `error_form` says so.
    divisible : bool
        Whether a prefix of the booster is what it was after its rounds.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    measurement : Measurement or None
        What drives multipliers by rows that the trees have not seen, if anything does.
    scouts : Scouts or None
        Boosters of parts of the rows.
    unseen : UnseenRows or None
        The rows that multipliers are driven by, where the trees have not seen them.
    fresh : UnseenRows or None
        Rows kept for certificates.
    plain_error : float
        Error of boosters of the folds without multipliers; NaN if there are none.
    evaluation_sets : list of UnseenRows
        Rows that the user gave to look at.
    alignment : RowAlignment
        Compares the row labels of everything that was given.

    Raises
    ------
    ValueError
        If labels, weights or constraints do not fit together; see the checks.
    """

    def __init__(
        self,
        options: SolverOptions,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        sensitive_features: Any = None,
        datasets: Any = None,
        *,
        learning_rate: float,
        n_rounds: int,
        library_factor: FactorOfClass | None = None,
        objective_factor: FactorOfClass | None = None,
        softmax_hessian: Callable[[int], float] = lambda k: 1.0,
        progress: Progress | None = None,
        constraint_callbacks: Any = None,
        limit: TimeLimit | None = None,
        unit: str = "rounds",
        lazy: bool = True,
        groups: Any = None,
        random_state: Any = None,
        **kernel: Any,
    ) -> None:
        callbacks = check_callbacks(constraint_callbacks)
        self.progress = progress
        self.announcer = Announcer(
            callbacks if progress is None else [*callbacks, progress],
            n_rounds,
            options.rounds_per_iteration,
            limit,
            unit,
        )
        check_features(X)
        check_consistent_length(X, y)
        self.classes, labels = check_labels(y)
        options = options.with_classes(self.classes)
        self.options = options
        weight = check_weight(sample_weight, labels.size)
        self._random = own_random_state(random_state)
        stack = Stack.of(X, y, sample_weight, labels, self.classes, datasets)
        rows = Rows(
            stack.codes,
            self.classes,
            stack.with_ones(weight),
            columns_of(sensitive_features, labels.size),
            stack.features,
            stack.names,
            stack.sizes,
        )
        self.alignment = RowAlignment()
        self._check_alignment(
            {
                "X": X,
                "y": y,
                "sample_weight": sample_weight,
                "sensitive_features": sensitive_features,
                "groups": groups,
            },
            datasets,
        )
        # What no decision can break is reported, and left out of all that makes the model. Mean
        # losses in its place may bind.
        met = [j for j, rule in enumerate(options.constraints) if rule.is_always_met]
        binds = len(met) < len(options.constraints) and options.error_form == "rate"
        self._idle = frozenset(met if binds else ())
        self._groups = None if groups is None else as_groups(groups, labels.size, len(rows))
        self.kept: Codes | None = None
        self.certified: Codes | None = None
        self.stack = self.whole = stack
        self.rows = rows
        if options.guarantee is not None:
            if self._groups is not None:
                raise ValueError(
                    f"guarantee={options.guarantee!r} counts rows as independent, and groups says "
                    f"that those of a group are not: leave the guarantee out, or give one row of "
                    f"each group, without groups."
                )
            needs = [needs_of(constraint, rows) for constraint in options.constraints]
            cells = Cells(rows, needs, idle=self._idle)
            share = options.calibration_fraction
            self.certified, self.kept = self._parts(np.arange(len(rows)), cells, share)
            self.stack, self.rows = stack.take(self.kept), rows.take(self.kept)
        n = self.stack.sizes[0]
        self.y = self.stack.codes[:n]
        left = np.isin(np.arange(self.classes.size), self.y)
        if not left.all():
            raise ValueError(
                f"guarantee={options.guarantee!r} sets aside all rows of class "
                f"{self.classes[~left].tolist()[0]!r}, which has too few of them: give more rows, "
                f"drop the class, or leave the guarantee out."
            )
        self.weight = weight if self.kept is None or weight is None else weight[self.kept[:n]]
        # As the library holds them, in single precision: gradients are then equal to its own.
        of_library, of_objective = map(self._factors, (library_factor, objective_factor))
        self._class_weight = of_library * of_objective
        library_weight = _product(self.weight, _of_rows(of_library, self.y))
        self.library_weight = (
            None if library_weight is None else library_weight.astype(np.float32).astype(float)
        )
        row_weight = _product(self.library_weight, _of_rows(of_objective, self.y))
        try:
            self.cells, self.reported = self._compile(self.rows)
        except ValueError as error:
            if self.certified is None:
                raise
            self._compile(rows)  # tells what is wrong with all rows
            raise ValueError(
                f"guarantee={options.guarantee!r} sets aside calibration_fraction="
                f"{options.calibration_fraction:g} of the rows, and without these {error} Rows "
                f"that it needs are all among those set aside: give more of them or a smaller "
                f"calibration_fraction, or leave the guarantee out."
            ) from None
        trained, factors = self.reported, None
        if options.error_form == "log_loss":
            trained, factors = as_losses(self.reported, self.classes.size)
        start = options.initial_multipliers
        names = trained.all_rows
        if start is not None and start.shape != (len(names),):
            raise ValueError(
                f"initial_multipliers must hold one number for each of the {len(names)} rows "
                f"that the constraints compile to, got {start.size}: the rows are {list(names)}."
            )
        if start is not None:
            start = start[np.isin(names, trained.rows)]
        self.driven, self._row_weight = trained, self.stack.with_mean(row_weight)
        self._kernel = {
            "proxy": options.proxy,
            "outlier_clip": options.outlier_clip,
            "majoriser_factor": softmax_hessian(self.classes.size),
            **kernel,
        }
        self.plain_error = np.nan
        self.n_rounds = n_rounds
        rounds = options.rounds_per_iteration
        self._solver_options: dict[str, Any] = {
            "tau": options.tau,
            "sigma": options.sigma,
            "mu": options.mu,
            "rounds_per_iteration": rounds,
            "progress": max(1.0 - (1.0 - min(learning_rate, 1.0)) ** rounds, 1e-3),
            "lazy": lazy,
            "initial_multipliers": start,
            "level_update": None if factors is None else max(n_rounds // (2 * rounds), 1) * rounds,
            "level_factors": factors,
        }
        self.solver = self._make_solver(self._make_lagrangian())
        self.solver.callback = self._teller("training", "training rows", self.solver)
        self.evaluation_sets: list[UnseenRows] = []
        self.measurement: Measurement | None = None
        self.divisible = self.has_offset = False
        self.scouts: Scouts | None = None
        self.checkpoint: CheckpointFile | None = None
        self._grown: list[Scouts] = []
        self._clock: MeasuringClock
        self._scouts_state: State | None = None
        self.unseen: UnseenRows | None = None
        self.fresh: UnseenRows | None = None
        if self.certified is not None:
            part = rows.take(self.certified)
            found = self._compile(part, self.reported, "the rows set aside")
            self.fresh = UnseenRows(*found, "certification")
            self._check_certifiable(self.fresh)

    def _compile(
        self, rows: Rows, like: CompiledConstraints | None = None, name: str = ""
    ) -> tuple[Cells, CompiledConstraints]:
        """Compile the constraints, those that are always met without rows."""
        found = compile_constraints(
            self.options.constraints,
            rows,
            like=like,
            idle=self._idle,
            warning=SmallGroupWarning(f"{name}, ")
            if name
            else SmallGroupWarning("", "small_groups_"),
        )
        found[0].class_weight = self._class_weight
        return found

    def _check_alignment(self, arguments: Mapping[str, Any], datasets: Any) -> None:
        """Compare the row labels of the training rows, and those of each further data set."""
        self.alignment.check({**arguments, **row_labels_of(self.options.constraints)})
        for name, given in (datasets or {}).items():
            if isinstance(given, tuple):
                parts = (f"{part} of datasets[{name!r}]" for part in ("X", "y"))
                self.alignment.check(dict(zip(parts, given, strict=True)))

    def take(self, values: Any) -> Any:
        """Take the rows that are trained on: all, or without those kept for certificates."""
        return values if values is None or self.kept is None else take_rows(values, self.kept)

    def _check_certifiable(self, rows: UnseenRows) -> None:
        """Refuse, before training, a guarantee that the rows kept for it can never give."""
        options, n = self.options, len(rows.cells.rows)
        for constraint in options.constraints:
            if constraint.has_loss:
                raise ValueError(
                    f"guarantee={options.guarantee!r} cannot be given for {constraint}: a mean "
                    f"loss may be as large as it likes. Bound an error rate, or leave the "
                    f"guarantee out."
                )
        compiled = rows.compiled
        for group in compiled.further_groups(self.reported)[:1]:
            raise ValueError(
                f"guarantee={options.guarantee!r} sets aside all rows of {group}: the model would "
                f"be trained on none. Give more rows of this group, drop them, or leave the "
                f"guarantee out."
            )
        for j, constraint in enumerate(options.constraints):
            undefined = np.isnan(compiled.constant[compiled.spans[j]])
            if j in self._idle or not undefined.any():
                continue
            where = merge = ""
            if compiled.groups[j]:
                where = f" in {next(compress(compiled.groups[j], undefined))}"
                merge = ", or put small groups together with small_groups='merge'"
            raise ValueError(
                f"guarantee={options.guarantee!r} cannot be given for {constraint}: of the {n} "
                f"rows that calibration_fraction={options.calibration_fraction:g} sets aside it "
                f"is taken over none{where}. Give more rows or a larger calibration_fraction"
                f"{merge}."
            )
        least_value = least_values(rows)
        extreme = compiled.b <= least_value + ROUNDING

        def remedy(rows_of_rule: Any, others: str = "") -> str:
            if extreme[rows_of_rule].any():
                return "No number of rows is enough for it: relax the bound."
            return f"Give more rows or a larger calibration_fraction, or relax the bound{others}."

        if options.guarantee == "expected":
            bounds = expected(compiled, rows.cells) + ROUNDING
            short = np.flatnonzero(bounds < least_value)
            for j in short[:1]:
                raise ValueError(
                    f"guarantee='expected' cannot be given for {compiled.rows[j]}: the {n} "
                    f"rows that calibration_fraction={options.calibration_fraction:g} sets aside "
                    f"are too few for it, even without a single error. {remedy(j)}"
                )
            return
        for i, j in zip(*compiled.opposites, strict=True):
            if compiled.b[i] + compiled.b[j] <= ROUNDING:
                raise ValueError(
                    f"guarantee='high_probability' cannot be given for "
                    f"{options.constraints[compiled.owner[i]]}: that two rates are equal no "
                    f"number of rows certifies. Relax the bound."
                )
        among = prefixes(self.n_rounds, options.rounds_per_iteration)
        n_prefixes = len(among) if options.iterate == "best" else 1
        level = options.delta / sequences_of(rows, n_prefixes)
        found = least_p_values(compiled, rows.cells, level)
        for j, (constraint, (least, why)) in enumerate(
            zip(options.constraints, found, strict=True)
        ):
            if least > level:
                raise ValueError(
                    f"guarantee='high_probability' cannot be given for {constraint}: {why}. With "
                    f"not a single error the {n} rows that "
                    f"calibration_fraction={options.calibration_fraction:g} sets aside leave a "
                    f"p-value of {least:.2g}, above {level:.2g}, which delta={options.delta:g} "
                    f"leaves to it. {remedy(compiled.owner == j, ' or delta')}"
                )

    def _make_lagrangian(
        self, index: Codes | None = None, *, told: bool = False, log_odds: float = 0.0
    ) -> Lagrangian:
        """Build the Lagrangian of all rows, or of some: if rates are `told` of these alone.

        The weights of the objective may add to the `log_odds` of the second class.
        """
        weight = self._objective_weight(log_odds)
        if index is None:
            return Lagrangian(self.rows.y, self.cells, self.driven, weight=weight, **self._kernel)
        part = None if weight is None else weight[index]
        cells, y = self.cells.take(index), self.rows.y[index]
        driven = self.driven.on(cells) if told else self.driven
        return Lagrangian(y, cells, driven, weight=part, **self._kernel)

    def _objective_weight(self, log_odds: float) -> Float | None:
        """Give the weights of rows in an objective that adds to log-odds; None if all are one."""
        if not log_odds:
            return self._row_weight
        weight = np.ones(len(self.rows)) if self._row_weight is None else self._row_weight
        leaning = weight * np.exp(np.where(self.rows.y == 1, 0.5, -0.5) * log_odds)
        return np.asarray(leaning * (weight.sum() / leaning.sum()))

    def own_gradient(self, index: Codes) -> Callable[[Array], tuple[Array, Array]]:
        """Make the library's own objective of some rows: gradient and Hessian at their scores."""
        lagrangian, multipliers = self._make_lagrangian(index), np.zeros(len(self.driven))
        return lambda margin: lagrangian.at(margin).gradient(multipliers)

    def _teller(self, phase: Phase, rows: str, solver: ABPP) -> Callable[[Record], None] | None:
        """Make what tells of a solver's iterations."""
        moving = self.options.error_form == "log_loss"
        return self.announcer.teller(phase, rows, solver.lagrangian.constraints, moving)

    def hide_progress(self) -> None:
        """Take a progress bar away; it comes back with the next iteration."""
        if self.progress is not None:
            self.progress.close()

    def _make_solver(self, lagrangian: Lagrangian, **others: Any) -> ABPP:
        solver = self.options.solver_class(lagrangian)
        return solver(lagrangian, **{**self._solver_options, **others})

    def measured_on(self, possible: bool, has_evaluation_set: bool) -> str:
        """Resolve where the constraints are measured: as asked, or on the evaluation set.

        Parameters
        ----------
        possible : bool
            Whether the booster can be grown on part of the rows.
        has_evaluation_set : bool
            Whether rows are held out by the user.
        """
        asked = self.options.measure_on
        self.divisible = possible
        if asked == "holdout" and has_evaluation_set and self.options.holdout_fraction is None:
            return "watch"
        if asked == "auto" and possible:
            return "holdout" if self._has_plenty else "crossfit"
        if asked in ("holdout", "crossfit") and not possible:
            raise ValueError(
                f"measure_on={asked!r} grows boosters on part of the rows, which dart (whose old "
                f"trees change) and a model to continue from (which has seen all rows) do not "
                f"allow: use measure_on='train', or 'holdout' with an evaluation set."
            )
        if asked in ("holdout", "crossfit"):
            return asked
        if self.options.guarantee is not None:
            raise ValueError(
                f"guarantee={self.options.guarantee!r} needs rows that the trees have not seen, "
                f"and measure_on={asked!r} takes the training rows here: use 'crossfit' or "
                f"'holdout' (for dart and continued training with an evaluation set)."
            )
        if self.options.on_infeasible == "raise":
            raise ValueError(
                f"on_infeasible='raise' judges rules on rows that the trees have not seen, and "
                f"measure_on={asked!r} takes the training rows here: use 'crossfit' or 'holdout' "
                f"(for dart and continued training with an evaluation set), or 'warn'."
            )
        if self.options.solver == "threshold":
            raise ValueError(
                f"solver='threshold' is moved on rows that the trees have not seen, and "
                f"measure_on={asked!r} takes the training rows here: use 'holdout' with an "
                f"evaluation set, or another solver."
            )
        if asked == "auto":
            warnings.warn(
                "measure_on='auto' measures the constraints on the training rows here, since dart "
                "and continued training cannot grow boosters on part of the rows. Training rows "
                "are optimistic: give an evaluation set with measure_on='holdout', or ask for "
                "measure_on='train'.",
                UserWarning,
                stacklevel=level_of_the_user(),
            )
        return "train"

    @property
    def _has_plenty(self) -> bool:
        """Whether every rate is taken over so many rows that a part of them tells it."""
        taken_over = [
            self.cells.weighted_count[part.cells].sum()
            for k in np.unique(self.reported.R.indices)
            for part in self.reported.parts[k] or ()
        ]
        return bool(min(taken_over, default=0) >= PLENTY)

    def scout(self, make: MakeScout, measure_on: str) -> None:
        """Grow boosters on parts of the rows; this fit then follows the multipliers they found.

        Parameters
        ----------
        make : callable
            Makes a booster for a fold and a solver.
        measure_on : {"holdout", "crossfit"}
            How the rows are split.
        """
        everyone = np.arange(len(self.rows))
        if measure_on == "crossfit":
            n = min(self.options.n_folds, everyone.size)
            held = self._parts(everyone, self.cells, 1.0 / n, n)
        else:
            held = self._parts(everyone, self.cells, self.options.holdout_fraction or 0.25)[:1]
        folds = [Fold(np.setdiff1d(everyone, part, assume_unique=True), part) for part in held]
        if not all(fold.training.size and fold.held.size for fold in folds):
            raise ValueError(
                f"holdout_fraction={self.options.holdout_fraction!r} of {everyone.size} rows "
                f"leaves none to hold out, or none to train on: give another share."
            )
        rows = np.sort(np.concatenate(held))
        self._check_weighed([rows, *(fold.training for fold in folds)])
        source = "out of fold" if measure_on == "crossfit" else "holdout"
        grow = partial(self._grow_scouts, make, folds, rows, source)
        unweighed = may_be_unweighed(self.options, self.driven, self._has_plenty)
        grown = grow(weighed=not unweighed)
        plain = grown if unweighed else None
        if unweighed and self.options.solver == "auto":
            grown = self._better_with_multipliers(*grown, grow)
        if not grown[0].is_unweighed:
            grown = self._with_better_multipliers(*grown, plain, grow)
        self.scouts, self.unseen = grown
        if self.scouts.rounds < self.announcer.n_rounds:
            self.announcer.end_for_time(self.scouts.rounds, "measuring")
        if self.checkpoint is None:
            self._grown.clear()
        leader = self.scouts.measurement.solver
        if self.scouts.log_odds:
            lagrangian = self._make_lagrangian(log_odds=self.scouts.log_odds)
            self.solver = self._make_solver(lagrangian)
            self.solver.callback = self._teller("training", "training rows", self.solver)
        self.solver.multipliers = leader.start.copy()
        self._follow(self.scouts.measurement)
        if not self.is_unweighed:
            self._correct(leader)

    def _grow_scouts(
        self,
        make: MakeScout,
        folds: Sequence[Fold],
        rows: Codes,
        source: str,
        *,
        weighed: bool,
        start: Float | None = None,
        fixed: Bool | None = None,
        log_odds: float = 0.0,
    ) -> tuple[Scouts, UnseenRows]:
        """Grow boosters, `weighed` by multipliers that they share, or as the library's own.

        Multipliers may `start` elsewhere than was asked for, some of them `fixed`, and the
        objective may add to the `log_odds` of the second class.
        """
        share = len(self.rows) / sum(fold.training.size for fold in folds)
        R = self.options.rounds_per_iteration
        clock = self._clock = MeasuringClock(self.announcer.limit, share, R)
        lagrangian = self._make_lagrangian(rows, told=True, log_odds=log_odds)
        others = {} if weighed else self._no_multipliers()
        if start is not None:
            others = {"initial_multipliers": start, "fixed": fixed}
        leader = self._make_solver(lagrangian, **others)
        told = source if weighed else f"{source}, without multipliers"
        leader.callback = self._teller("measuring", told, leader)
        measurement = Measurement(leader, rows, self._aim(lagrangian))

        def follower(rows: Codes) -> ABPP | None:
            if not weighed:
                return None
            lagrangian = self._make_lagrangian(rows, log_odds=log_odds)
            # Only optimism asks for the rates on the rows that the boosters are grown on.
            has_rates = bool(self.driven.rewards_all_errors.any())
            return self._make_solver(
                lagrangian, schedule=measurement.schedule, has_rates=has_rates
            )

        members = [make(fold, follower(fold.training)) for fold in folds]
        scouts = Scouts(measurement, folds, members, self._prefixes_to_score(), log_odds)
        self.announcer.begin(len(members))
        save: Callable[[], None] | None = None
        if self.checkpoint is not None:
            saved = (self.checkpoint.state or {"scouts": []})["scouts"]
            if len(saved) > len(self._grown):
                scouts.restore(saved[len(self._grown)])
            save = partial(self.checkpoint.offer, self._state_of_scouts)
        self._grown.append(scouts)
        try:
            scouts.grow(
                self.n_rounds,
                R,
                lambda rounds: self.announcer.is_over(rounds) or clock.is_over(rounds),
                save,
            )
        finally:
            self.hide_progress()
        reported = self.reported.on(lagrangian.cells)
        unseen = UnseenRows(lagrangian.cells, reported, source, scouts.positions)
        if self.options.error_form == "rate":
            unseen.functionals_in = {r.rounds: r.functionals for r in leader.history}
        if not weighed:
            self.plain_error = unseen.error(unseen.decisions(scouts.held_margin(scouts.rounds)))
        return scouts, unseen

    def _prefixes_to_score(self) -> list[int]:
        """List the rounds of the prefixes that a choice may look at."""
        found = prefixes(self.n_rounds, self.options.rounds_per_iteration)
        return found if self.classes.size == 2 else found[-FEW_PREFIXES - 1 :]

    def _no_multipliers(self) -> dict[str, Any]:
        """Arguments of a solver whose boosters are the library's own."""
        return {"schedule": [np.zeros(len(self.driven))], "initial_multipliers": None}

    def _better_with_multipliers(
        self, scouts: Scouts, unseen: UnseenRows, grow: Callable[..., tuple[Scouts, UnseenRows]]
    ) -> tuple[Scouts, UnseenRows]:
        """Give these boosters, or others with multipliers if those make fewer errors."""
        margin, certified, asked = scouts.held_margin(scouts.rounds), None, unseen
        broken = unseen.violations(margin)
        if self.fresh is None and (broken <= MET).all():  # nor would a multiplier be at work
            return scouts, unseen
        limit = self.announcer.limit
        limit.has_no_multipliers |= not self._clock.has_time_again()
        if limit.has_no_multipliers:
            return scouts, unseen
        choice = choice_by(scouts, unseen, self.options)
        if self.fresh is not None:
            asked = certified = as_certified(unseen, self.fresh, scouts, choice, self.options)
            broken = asked.violations(margin)
            if (broken <= MET).all():
                return scouts, unseen
        if is_cheap(scouts, unseen, choice) and is_by_heart(
            asked, broken, self.lost_by(scouts, unseen, choice)
        ):
            return scouts, unseen
        other_scouts, other_unseen = grow(weighed=True)
        if other_scouts.rounds < scouts.rounds and not self.announcer.is_over(other_scouts.rounds):
            limit.has_no_multipliers = True  # they were measured for fewer rounds
            return scouts, unseen
        other = choice_by(other_scouts, other_unseen, self.options)
        if cost_of(other, other_scouts, certified) < cost_of(choice, scouts, certified):
            return other_scouts, other_unseen
        return scouts, unseen

    def _with_better_multipliers(
        self,
        scouts: Scouts,
        unseen: UnseenRows,
        plain: tuple[Scouts, UnseenRows] | None,
        grow: Callable[..., tuple[Scouts, UnseenRows]],
    ) -> tuple[Scouts, UnseenRows]:
        """Give these boosters, or those of a further pass if constraints cost too much."""
        if self.options.iterate not in ("last", "best") or self.options.error_form != "rate":
            return scouts, unseen
        path = self.n_rounds / self.options.rounds_per_iteration * self.solver.progress
        search = PassSearch(grow, path, self.options, self.fresh, self._has_time_again, plain)
        return search.run(scouts, unseen)

    def _has_time_again(self) -> bool:
        """Whether there is time for one more pass; a fit that ends early for it says so."""
        has_time = self._clock.has_time_again()
        self.announcer.limit.has_fewer_passes |= not has_time
        return has_time and not self.announcer.is_stopped

    def lost_by(self, scouts: Scouts, unseen: UnseenRows, choice: Choice) -> Float:
        """How much higher rows of constraints are on unseen rows than on own ones, at a shift."""

        def decisions(margin: Array) -> Codes:
            return unseen.decisions(shifted(margin, choice.shift))

        held = unseen.counts(decisions(scouts.held_margin(choice.rounds)))
        return optimism_of_boosters(
            self.reported,
            self.cells,
            [fold.training for fold in scouts.folds],
            [decisions(margin) for margin in scouts.own_margins(choice.rounds)],
            functionals_of(unseen.compiled, held),
        )

    def _check_weighed(self, parts: Sequence[Codes]) -> None:
        """Refuse parts of the rows without any weight: no booster learns or is judged there."""
        if self._row_weight is None:
            return
        weight = self._row_weight[: self.stack.sizes[0]]  # rows of datasets= teach no booster
        if not all(weight[part[part < weight.size]].any() for part in parts):
            raise ValueError(
                f"sample_weight is zero on all rows that one of the boosters would be grown or "
                f"measured on: only {np.count_nonzero(weight)} of {weight.size} rows have weight. "
                f"Leave out rows of weight zero, and with groups= give more groups that have any; "
                f"or use measure_on='train'."
            )

    def _correct(self, leader: ABPP) -> None:
        """Let the model of all rows be driven by what the boosters of the folds lose."""
        compiled = self.driven
        if not leader.history or not compiled.rewards_all_errors.any():
            return
        if self.has_offset:  # of which rates on the boosters' own rows are, and no others
            return
        assert self.scouts is not None
        functionals = leader.history[-1].functionals
        spread = standard_errors(compiled, leader.lagrangian.cells, functionals)
        self.solver.optimism = self.scouts.optimism
        self.solver.corrected = compiled.rewards_all_errors & (spread <= TELLING)

    def watch(self, rows: UnseenRows) -> None:
        """Measure the constraints on an evaluation set while the library's own fit goes on."""
        if found := self.further_groups(rows):
            raise ValueError(
                f"measure_on='holdout' moves multipliers by {rows.source}, which has groups that "
                f"a constraint has no training rows of: {found}. Put rows of these groups among "
                f"the training rows, leave them out of {rows.source}, or give holdout_fraction, "
                f"to split the training rows instead."
            )
        if len(rows.compiled) != len(self.driven):
            raise ValueError(
                f"measure_on='holdout' takes the constraints to {rows.source}, where some cannot "
                f"be measured (a mask, a data set, a column or a group that is not there): give "
                f"holdout_fraction, to split the training rows instead."
            )
        lagrangian = rows.lagrangian
        if self.options.error_form == "log_loss":
            losses = as_losses(rows.compiled, self.classes.size)[0]
            lagrangian = Lagrangian(
                rows.cells.rows.y,
                rows.cells,
                losses,
                weight=rows.cells.rows.weight,
                **self._kernel,
            )
        others = self._no_multipliers() if self.is_unweighed else {}
        leader = self._make_solver(lagrangian, **others)
        leader.callback = self._teller("training", f"{rows.source}, watched", leader)
        self._follow(Measurement(leader, aim=self._aim(lagrangian)))
        self.solver.callback = None  # the leader tells
        self.unseen = rows
        rows.source += ", watched"  # no evidence any more

    def save_to(
        self, checkpoint: Checkpoint | None, estimator: Any, arguments: Mapping[str, Any]
    ) -> None:
        """Save the state to a file from now on, and go on from what it already holds.

        Parameters
        ----------
        checkpoint : Checkpoint, default=None
            The file; without one nothing is saved.
        estimator : classifier
            Its parameters, and
        arguments : mapping
            the arguments of its ``fit``, must be those of the fit that the file is of.
        """
        if checkpoint is None:
            return
        compiled, cells = self.reported, self.cells
        rules = {
            "constraints": compiled.constraints,
            "rows": compiled.rows,
            "tables": [compiled.U, compiled.V, compiled.R, compiled.constant, compiled.b],
            "cells": [view.codes for view in cells.views],
            "weight": cells.weight,
        }
        found = fingerprint_of(estimator, arguments, rules)
        self.checkpoint = CheckpointFile(checkpoint, found, machine())
        if self.checkpoint.state is not None:
            self.announcer.restore(self.checkpoint.state["announcer"])

    def state(self) -> State:
        """State of the fit of the model itself, and of the boosters that went before it."""
        state = {
            "solver": self.solver.state(),
            "evaluation_sets": [rows.state() for rows in self.evaluation_sets],
            "announcer": self.announcer.state(),
        }
        if self.scouts is not None:  # they change no more
            self._scouts_state = self._scouts_state or self._state_of_scouts()
            state["scouts"] = self._scouts_state["scouts"]
        elif self.measurement is not None:
            state["leader"] = self.measurement.solver.state()
        return state

    def _state_of_scouts(self) -> State:
        grown = [scouts.state() for scouts in self._grown]
        return {"scouts": grown, "announcer": self.announcer.state()}

    def restore(self, state: State) -> None:
        """Take over a state of the fit of the model itself."""
        self.solver.restore(state["solver"])
        for rows, of_rows in zip(self.evaluation_sets, state["evaluation_sets"], strict=True):
            rows.restore(of_rows)
        if self.scouts is None and self.measurement is not None:
            self.measurement.restore(state["leader"])

    def observe(self, margin: Array) -> None:
        """Move the multipliers at the scores of the rows that are watched."""
        assert self.measurement is not None
        self.measurement.observe(margin)

    def _aim(self, lagrangian: Lagrangian) -> Aim | None:
        """Bounds that multipliers aim at, by the rates that they are at; None for mean losses."""
        if self.options.error_form == "log_loss":
            return None
        compiled, cells = lagrangian.constraints, lagrangian.cells
        return lambda functionals: aims(compiled, cells, functionals)

    def _follow(self, measurement: Measurement) -> None:
        self.measurement = measurement
        self.solver.schedule = measurement.schedule

    def _parts(self, rows: Codes, cells: Cells, share: float, n: int | None = None) -> list[Codes]:
        """Split rows by cell: a part of this share and the rest, or `n` parts of it."""
        if self._groups is not None:
            n_samples = self.stack.sizes[0]
            n_parts = n or _n_parts(share, np.unique(self._groups[:n_samples]).size)
            parts = parts_by_group(rows, cells, n_parts, self._groups, n_samples, self._random)
            if n:
                return parts
            reached = np.cumsum([part.size for part in parts[:-1]])
            joined = int(np.abs(reached - share * rows.size).argmin()) + 1
            return [np.sort(np.concatenate(some)) for some in (parts[:joined], parts[joined:])]
        shares = [share] * n if n else [share, 1.0 - share]
        return parts_by_cell(rows, cells, shares, self._random)

    def _factors(self, factor: FactorOfClass | None) -> Float:
        """Each class's factor in the objective, (n_classes,)."""
        if factor is None:
            return np.ones(self.classes.size)
        values = np.asarray(factor(self.classes, self.y), dtype=np.float64)
        if not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"class_weight (or scale_pos_weight) gives the classes {self.classes.tolist()} "
                f"the factors {values.tolist()}: under constraints they must be positive. Use "
                f"sample_weight=0 to leave rows out."
            )
        return values

    def add_evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> UnseenRows:
        """Attach rows that are not trained on."""
        codes = encode(y, self.classes, name)
        rows = Rows(
            codes,
            self.classes,
            check_weight(weight, codes.size, f"sample weight of {name}"),
            columns_of(sensitive_features, codes.size, f"sensitive features of {name}"),
            [X],
            like=self.rows,
        )
        try:
            found = self._compile(rows, self.reported, name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        added = UnseenRows(*found, name)
        self.evaluation_sets.append(added)
        return added

    def further_groups(self, rows: UnseenRows) -> str:
        """Name groups of an evaluation set that constraints have no training rows of.

        Each group comes with its number of rows there. Without such groups the text is empty.
        """
        cells = rows.cells
        sizes: dict[str, int] = {}
        for group in rows.compiled.further_groups(self.reported):
            view = next(view for view in cells.views if group.by in view.levels)
            inside = np.isin(view.levels[group.by], list(group.levels))
            sizes[str(group)] = int(cells.count[view.cells][inside].sum())
        return some_of([f"{name} ({size:,} rows)" for name, size in sizes.items()], FEW_NAMED)

    def warn_of_further_groups(self) -> None:
        """Warn of groups of the last evaluation set that constraints have no training rows of."""
        for rows in self.evaluation_sets[-1:]:
            if found := self.further_groups(rows):
                warnings.warn(
                    f"{rows.source} has groups that a constraint has no training rows of: "
                    f"{found}. Values on {rows.source} compare these groups as well, as audit "
                    f"does, and training cannot act on them. Put rows of these groups among the "
                    f"training rows, or leave them out of {rows.source}.",
                    UserWarning,
                    stacklevel=level_of_the_user(),
                )

    def held_out(self, pairs: Sequence[tuple[Any, Any]], X: Any, y: Any) -> list[int]:
        """Positions of the evaluation sets (X_i, y_i) that are not the training rows themselves.

        Raises
        ------
        ValueError
            If one is, and some of them are kept for certificates.
        """
        found = [i for i, pair in enumerate(pairs) if not all(map(is_same, pair, (X, y)))]
        if len(found) < len(pairs) and self.kept is not None:
            raise ValueError(
                f"eval_set holds the training rows, of which guarantee={self.options.guarantee!r} "
                f"sets some aside that nothing else may look at: leave them out; history_ and "
                f"constraint_report_ have the values on training rows."
            )
        return found

    @property
    def is_unweighed(self) -> bool:
        """Whether the model is trained without multipliers, whatever its rows say."""
        if self.scouts is None:
            return self.options.solver == "threshold"
        return self.scouts.is_unweighed

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def measures_after(self, rounds: int) -> bool:
        """Whether evaluation sets are measured after so many boosting rounds."""
        return self.options.early_stopping_on != "metric" or self.is_iteration_end(rounds)

    def check_stopping_set(self) -> None:
        """Refuse to stop early on constraints that the last evaluation set knows nothing of."""
        held = self.evaluation_sets[-1]
        compared = np.unique(self.reported.R.indices)
        there = self.reported.positions_in(held.compiled)[compared]
        if np.isnan(held.compiled.constant[there]).any():
            raise ValueError(
                f"early_stopping_on={self.options.early_stopping_on!r} measures the constraints "
                f"on {held.source}, where some cannot be measured (a mask, a data set, a column "
                f"or a group that is not there): give sensitive_features_eval_set, or use "
                f"'metric'."
            )

    def violation(self, rounds: int) -> float:
        """Largest violation on the last evaluation set, as it was measured after some rounds."""
        held = self.evaluation_sets[-1]
        # What has no value there, such as a rate over no rows, is not violated.
        values = held.compiled.rows_of(np.nan_to_num(held.functionals_in[rounds]))
        return float((values - held.compiled.b).max(initial=-np.inf))

    @property
    def columns(self) -> int:
        """Scores of a row: one for two classes, one per class otherwise."""
        return 1 if self.classes.size == 2 else self.classes.size


def _n_parts(share: float, n_groups: int) -> int:
    """Parts of whole groups to split rows into, so that some of them have nearly a share."""
    most, smaller = min(GROUPED_PARTS, n_groups), min(share, 1.0 - share)
    if smaller * most < 1.0:
        return max(round(1.0 / smaller), 2)
    return Fraction(share).limit_denominator(most).denominator
