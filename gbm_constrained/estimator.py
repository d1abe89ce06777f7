"""One constrained fit of a drop-in classifier: its data, its solver, and what is chosen."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd
from sklearn.utils import check_consistent_length

from gbm_constrained.boldness import as_bold_as_scouts, rows_to_match
from gbm_constrained.callbacks import Announcer, Phase, check_callbacks
from gbm_constrained.cells import Cells, CellStatistics
from gbm_constrained.checkpointing import Checkpoint, CheckpointFile, State
from gbm_constrained.checks import (
    as_groups,
    check_features,
    check_labels,
    check_weight,
    level_of_the_user,
    own_random_state,
)
from gbm_constrained.compiler import (
    CompiledConstraints,
    as_losses,
    compile_constraints,
    needs_of,
)
from gbm_constrained.counts import CellCounts, functionals_of
from gbm_constrained.decision import (
    UNKNOWN,
    Choice,
    Outcome,
    Scores,
    UnseenRows,
    aims,
    certify,
    choose,
    expected,
    hold_in_the_mean,
    honest_decisions,
    least_p_values,
    least_values,
    sequences_of,
    shifted,
    standard_errors,
)
from gbm_constrained.disagreement import (
    broken_in_training,
    of_predictions,
    optimism_of_boosters,
    values_by_training,
)
from gbm_constrained.feasibility import (
    Feasibility,
    InfeasibleConstraintsWarning,
    judge,
)
from gbm_constrained.fingerprint import fingerprint_of, machine
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.losses import Array
from gbm_constrained.options import SolverOptions
from gbm_constrained.progress import Progress
from gbm_constrained.rates import Constraint
from gbm_constrained.reports import groups_frame, history_frame, rules_frame
from gbm_constrained.rows import Bool, Codes, Float, Rows, columns_of
from gbm_constrained.selection import best_prefix, last_prefix, prefix_mixture
from gbm_constrained.solvers import ABPP
from gbm_constrained.solvers.abpp import Record
from gbm_constrained.stacking import Stack, encode
from gbm_constrained.tables import is_same, take_rows
from gbm_constrained.unseen import (
    PLENTY,
    TELLING,
    Aim,
    Fold,
    MakeScout,
    Measurement,
    Scouts,
    parts_by_cell,
    parts_by_group,
)

FactorOfClass: TypeAlias = Callable[[Array, Array], Array]

GROUPED_PARTS = 20  # Parts of whole groups that a share is put together of, at most.
MIXED = 1e-6  # Violation by a mixture of prefixes that the linear programme leaves.

# What a constrained fit leaves on an estimator.
FITTED_ATTRIBUTES = (
    "constraint_report_", "group_report_", "history_", "multipliers_", "prefixes_",
    "shift_", "unseen_accuracy_", "feasibility_", "_threshold",
)  # fmt: skip


def _product(a: Float | None, b: Float | None) -> Float | None:
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _of_rows(factors: Float, y: Codes) -> Float | None:
    """Each row's factor, or None if all are one."""
    return None if (factors == 1.0).all() else factors[y]


class Trained(Protocol):
    """A booster that the library has trained, as far as its constrained fit looks into it.

    Rounds are those of this fit, without the rounds of a model that was continued.
    """

    def margin(self, rounds: int) -> Array:
        """Scores of the training rows after some rounds."""

    def held_margin(self, rows: UnseenRows, rounds: int) -> Array:
        """Scores of an evaluation set, or of rows kept for certificates, after some rounds."""

    def cut(self, rounds: int) -> None:
        """Keep the first rounds."""

    def shift(self, shift: Float) -> None:
        """Add to all scores."""


class ConstrainedFit:
    """One constrained fit of a booster: the solver, what it saw, and what is reported of it.

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
        lazy: bool = True,
        groups: Any = None,
        random_state: Any = None,
        **kernel: Any,
    ) -> None:
        self.options = options
        callbacks = check_callbacks(constraint_callbacks)
        self.progress = progress
        self.announcer = Announcer(
            callbacks if progress is None else [*callbacks, progress],
            n_rounds,
            options.rounds_per_iteration,
        )
        check_features(X)
        check_consistent_length(X, y)
        self.classes, labels = check_labels(y)
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
        # What no decision can break is reported, and left out of all that makes the model. Mean
        # losses in its place may bind.
        met = [j for j, rule in enumerate(options.constraints) if rule.is_always_met]
        binds = len(met) < len(options.constraints) and options.error_form == "rate"
        self._idle = frozenset(met if binds else ())
        self._groups = None if groups is None else as_groups(groups, labels.size, len(rows))
        self.kept: Codes | None = None
        self.certified: Codes | None = None
        self.stack = self.whole = stack
        self._rows = rows
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
            self.stack, self._rows = stack.take(self.kept), rows.take(self.kept)
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
            self._cells, self._reported = self._compile(self._rows)
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
        trained, factors = self._reported, None
        if options.error_form == "log_loss":
            trained, factors = as_losses(self._reported, self.classes.size)
        start = options.initial_multipliers
        names = trained.all_rows
        if start is not None and start.shape != (len(names),):
            raise ValueError(
                f"initial_multipliers must hold one number for each of the {len(names)} rows "
                f"that the constraints compile to, got {start.size}: the rows are {list(names)}."
            )
        if start is not None:
            start = start[np.isin(names, trained.rows)]
        self._trained, self._row_weight = trained, self.stack.with_mean(row_weight)
        self._kernel = {
            "proxy": options.proxy,
            "outlier_clip": options.outlier_clip,
            "majoriser_factor": softmax_hessian(self.classes.size),
            **kernel,
        }
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
            "level_update": None if factors is None else n_rounds // (2 * rounds) * rounds,
            "level_factors": factors,
        }
        self.solver = self._make_solver(self._make_lagrangian())
        self.solver.callback = self._teller("training", "training rows", self.solver)
        self.evaluation_sets: list[UnseenRows] = []
        self.measurement: Measurement | None = None
        self._divisible = False  # whether a prefix of the booster is what it was after its rounds
        self.scouts: Scouts | None = None
        self.checkpoint: CheckpointFile | None = None
        self._scouts_state: State | None = None
        self.unseen: UnseenRows | None = None
        self.fresh: UnseenRows | None = None
        if self.certified is not None:
            part = rows.take(self.certified)
            found = self._compile(part, like=self._reported)
            self.fresh = UnseenRows(*found, "certification")
            self._check_certifiable(self.fresh)
        self.choice: Choice | None = None
        self.outcome: Outcome | None = None
        self._mixed = np.zeros(len(trained))  # violations by a mixture of prefixes
        self._final: Record
        self.feasibility: Feasibility | None = None

    def _compile(
        self, rows: Rows, like: CompiledConstraints | None = None
    ) -> tuple[Cells, CompiledConstraints]:
        """Compile the constraints, those that are always met without rows."""
        found = compile_constraints(self.options.constraints, rows, like=like, idle=self._idle)
        found[0].class_weight = self._class_weight
        return found

    def take(self, values: Any) -> Any:
        """Take the rows that are trained on: all, or without those kept for certificates."""
        return values if values is None or self.kept is None else take_rows(values, self.kept)

    def _check_certifiable(self, rows: UnseenRows) -> None:
        """Refuse, before training, a guarantee that the rows kept for it can never give."""
        options, n = self.options, len(rows.cells.rows)
        remedy = "Give more rows or a larger calibration_fraction, or relax the bound"
        for constraint in options.constraints:
            if any(term.event == "log_loss" for term in constraint.terms):
                raise ValueError(
                    f"guarantee={options.guarantee!r} cannot be given for {constraint}: a mean "
                    f"loss may be as large as it likes. Bound an error rate, or leave the "
                    f"guarantee out."
                )
        if options.guarantee == "expected":
            short = np.flatnonzero(expected(rows.compiled, rows.cells) < least_values(rows))
            for j in short[:1]:
                raise ValueError(
                    f"guarantee='expected' cannot be given for {rows.compiled.rows[j]}: the {n} "
                    f"rows that calibration_fraction={options.calibration_fraction:g} sets aside "
                    f"are too few for it, even without a single error. {remedy}."
                )
            return
        level = options.delta / sequences_of(rows, options.iterate == "best")
        for constraint, (least, why) in zip(
            options.constraints, least_p_values(rows.compiled, rows.cells, level), strict=True
        ):
            if least > level:
                raise ValueError(
                    f"guarantee='high_probability' cannot be given for {constraint}: {why}. With "
                    f"not a single error the {n} rows that "
                    f"calibration_fraction={options.calibration_fraction:g} sets aside leave a "
                    f"p-value of {least:.2g}, above {level:.2g}, which delta={options.delta:g} "
                    f"leaves to it. {remedy} or delta."
                )

    def _make_lagrangian(self, index: Codes | None = None) -> Lagrangian:
        """Build the Lagrangian of all rows, or of some."""
        weight = self._row_weight
        if index is None:
            return Lagrangian(
                self._rows.y, self._cells, self._trained, weight=weight, **self._kernel
            )
        part = None if weight is None else weight[index]
        cells, y = self._cells.take(index), self._rows.y[index]
        return Lagrangian(y, cells, self._trained, weight=part, **self._kernel)

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
        return solver(lagrangian, **self._solver_options, **others)

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
        self._divisible = possible
        if asked == "holdout" and has_evaluation_set and self.options.holdout_fraction is None:
            return "watch"
        if asked == "auto" and possible:
            taken_over = [
                self._cells.weighted_count[part.cells].sum()
                for k in np.unique(self._reported.R.indices)
                for part in self._reported.parts[k] or ()
            ]
            return "holdout" if min(taken_over, default=0) >= PLENTY else "crossfit"
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
        return "train"

    def scout(self, make: MakeScout, measure_on: str) -> None:
        """Grow boosters on parts of the rows; this fit then follows the multipliers they found.

        Parameters
        ----------
        make : callable
            Makes a booster for a fold and a solver.
        measure_on : {"holdout", "crossfit"}
            How the rows are split.
        """
        everyone = np.arange(len(self._rows))
        if measure_on == "crossfit":
            n = min(self.options.n_folds, everyone.size)
            held = self._parts(everyone, self._cells, 1.0 / n, n)
        else:
            held = self._parts(everyone, self._cells, self.options.holdout_fraction or 0.25)[:1]
        folds = [Fold(np.setdiff1d(everyone, part, assume_unique=True), part) for part in held]
        if not all(fold.training.size and fold.held.size for fold in folds):
            raise ValueError(
                f"holdout_fraction={self.options.holdout_fraction!r} of {everyone.size} rows "
                f"leaves none to hold out, or none to train on: give another share."
            )
        rows = np.sort(np.concatenate(held))
        lagrangian = self._make_lagrangian(rows)
        source = "out of fold" if measure_on == "crossfit" else "holdout"
        leader = self._make_solver(lagrangian)
        leader.callback = self._teller("measuring", source, leader)
        self._follow(Measurement(leader, rows, self._aim(lagrangian)))
        schedule = self.solver.schedule
        members = [
            make(fold, self._make_solver(self._make_lagrangian(fold.training), schedule=schedule))
            for fold in folds
        ]
        assert self.measurement is not None
        self.scouts = Scouts(self.measurement, folds, members)
        self.announcer.n_scouts = len(members)
        if self.checkpoint is not None and self.checkpoint.state is not None:
            self.scouts.restore(self.checkpoint.state)
        try:
            self.scouts.grow(
                self.n_rounds,
                self.options.rounds_per_iteration,
                self.announcer.is_over,
                self.checkpoint,
            )
        finally:
            self.hide_progress()
        self._correct(leader)
        self.unseen = UnseenRows(lagrangian.cells, self._reported, source, self.scouts.positions)
        if self.options.error_form == "rate":
            self.unseen.functionals_in = {r.rounds: r.functionals for r in leader.history}

    def _correct(self, leader: ABPP) -> None:
        """Let the model of all rows be driven by what the boosters of the folds lose."""
        compiled = self._trained
        if not leader.history or not compiled.rewards_all_errors.any():
            return
        assert self.scouts is not None
        functionals = leader.history[-1].functionals
        spread = standard_errors(compiled, leader.lagrangian.cells, functionals)
        self.solver.optimism = self.scouts.optimism
        self.solver.corrected = compiled.rewards_all_errors & (spread <= TELLING)

    def watch(self, rows: UnseenRows) -> None:
        """Measure the constraints on an evaluation set while the library's own fit goes on."""
        if len(rows.compiled) != len(self._trained):
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
        leader = self._make_solver(lagrangian)
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
        compiled, cells = self._reported, self._cells
        rules = {
            "constraints": compiled.constraints,
            "rows": compiled.rows,
            "tables": [compiled.U, compiled.V, compiled.R, compiled.constant, compiled.b],
            "cells": [view.codes for view in cells.views],
            "weight": cells.weight,
        }
        found = fingerprint_of(estimator, arguments, rules)
        self.checkpoint = CheckpointFile(checkpoint, found, machine())

    def state(self) -> State:
        """State of the fit of the model itself, and of the boosters that went before it."""
        state = {
            "solver": self.solver.state(),
            "evaluation_sets": [rows.state() for rows in self.evaluation_sets],
        }
        if self.scouts is not None:  # they change no more
            self._scouts_state = self._scouts_state or self.scouts.state()
            state.update(self._scouts_state)
        elif self.measurement is not None:
            state["leader"] = self.measurement.solver.state()
        return state

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
            n_parts = n or _n_parts(share, np.unique(self._groups).size)
            parts = parts_by_group(rows, cells, n_parts, self._groups, self._random)
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
            like=self._rows,
        )
        found = self._compile(rows, like=self._reported)
        added = UnseenRows(*found, name)
        self.evaluation_sets.append(added)
        return added

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

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def measures_after(self, rounds: int) -> bool:
        """Whether evaluation sets are measured after so many boosting rounds."""
        return self.options.early_stopping_on != "metric" or self.is_iteration_end(rounds)

    def check_stopping_set(self) -> None:
        """Refuse to stop early on constraints that the last evaluation set knows nothing of."""
        held = self.evaluation_sets[-1]
        if len(held.compiled) != len(self._reported):
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

    def prefix_rounds(self, margin: Array, rounds: int) -> int:
        """Boosting rounds of the prefix to keep among the first `rounds`, whose scores are given.

        The best one; or the last one, and where it violates the rules a late one that does less:
        driven on the rows they are measured on, rates swing about their bounds to the end.
        """
        records = self._prefixes(self._statistics(margin), rounds)
        errors, violations = _outcomes(records)
        best = self.options.iterate == "best"
        return records[best_prefix(errors, violations) if best else last_prefix(violations)].rounds

    def mixture(
        self, margin: Array, rounds: int, margins: Callable[[UnseenRows, int], Array]
    ) -> pd.DataFrame:
        """Choose the prefixes that a randomised classifier draws from: rounds and probability.

        Parameters
        ----------
        margin : ndarray
            Scores of the training rows under the whole ensemble.
        rounds : int
            Its boosting rounds.
        margins : callable
            Scores of unseen rows after some rounds. What is measured on such rows is chosen by
            them.
        """
        if self.measurement is None:
            records = self._prefixes(self._statistics(margin), rounds)
        else:
            assert self.unseen is not None
            records = self._unseen_prefixes(margins(self.unseen, rounds), rounds)
        errors, violations = _outcomes(records)
        chosen, probability = prefix_mixture(errors, violations)
        self._mixed = probability @ violations[chosen]
        return pd.DataFrame(
            {"rounds": [records[t].rounds for t in chosen], "probability": probability}
        )

    def _swings(self, rounds: int) -> bool:
        """Whether the rules were driven on training rows to the end, and earlier models exist."""
        return (
            self.options.iterate == "last"
            and self.options.error_form == "rate"
            and self.measurement is None
            and self._divisible
            and rounds == self.solver.rounds
        )

    def _scores(self, margin: Array, shift: Float) -> Scores:
        """Scores under the model returned: the shift is folded into it, or kept beside it."""
        return Scores.of(margin, shift, beside=self.options.probabilities == "calibrated")

    def _statistics(self, margin: Array) -> CellStatistics:
        """Cell statistics of the training rows."""
        return self.solver.lagrangian.at(margin).statistics()

    def _prefixes(
        self, statistics: CellStatistics, rounds: int, solver: ABPP | None = None
    ) -> list[Record]:
        """List the records of all prefixes of one round or more, up to `rounds`.

        The statistics are those after `rounds`, of the rows of `solver`: by default the one of
        this fit.
        """
        solver = solver or self.solver
        before = [r for r in solver.history if 0 < r.rounds < rounds]
        return [*before, self._record(statistics, rounds, solver)]

    def _unseen_prefixes(self, margin: Array, rounds: int) -> list[Record]:
        """List the records of all prefixes on the unseen rows, whose last scores are given."""
        assert self.measurement is not None
        assert self.unseen is not None
        leader = self.measurement.solver
        statistics = leader.lagrangian.at(margin).statistics()
        *before, whole = self._prefixes(statistics, rounds, leader)
        # The others were to meet the bounds that the iteration before them had aimed at.
        start = before[-1] if before else leader.history[0]
        whole = replace(whole, bounds=self.measurement.bounds_after(start))
        self.unseen.functionals_in[rounds] = whole.functionals
        return [*before, whole]

    def _seen(self, rounds: int) -> Record | None:
        """Record of a model that an outer iteration began with, before the dual step.

        None where none did, or where that is not what the report is of.
        """
        if not self._divisible or self._trained is not self._reported:
            return None
        for trained_in, found in itertools.pairwise(self.solver.history):
            if found.rounds == rounds:
                return replace(
                    found,
                    bounds=trained_in.bounds,
                    multipliers=trained_in.multipliers,
                    bregman=np.nan,
                    seconds=self.solver.elapsed,
                )
        return None

    def _record(
        self, statistics: CellStatistics, rounds: int, solver: ABPP | None = None
    ) -> Record:
        """State of a solver after some rounds, which begin no outer iteration."""
        solver = solver or self.solver
        lagrangian = solver.lagrangian
        trained_in = [r for r in solver.history if r.rounds < rounds]
        last = trained_in[-1] if trained_in else solver.history[-1]
        functionals = lagrangian.constraints.functionals(statistics)
        reached = [r.fritz_john for r in solver.history if r.rounds == rounds]
        return replace(
            last,
            iteration=last.iteration + 1,
            rounds=rounds,
            objective=lagrangian.objective(statistics),
            error=lagrangian.error(statistics),
            rates=lagrangian.constraints.rows_of(functionals),
            functionals=functionals,
            bregman=np.nan,
            seconds=solver.elapsed,
            fritz_john=reached[0] if reached else np.nan,
        )

    @property
    def is_idle(self) -> bool:
        """Whether no multiplier has ever been at work."""
        return not any(r.multipliers.any() for r in self.solver.history)

    def settle(self, rounds: int, margins: Callable[[UnseenRows, int], Array]) -> Choice | None:
        """Choose the prefix and the shift of the model that is returned.

        Parameters
        ----------
        rounds : int
            Boosting rounds of the whole ensemble.
        margins : callable
            Scores of unseen rows after some rounds, of boosters that have not seen them.

        Returns
        -------
        Choice or None
            None where nothing was measured on unseen rows, or an average is returned.
        """
        unseen, options = self.unseen, self.options
        if unseen is None or options.iterate in ("ergodic", "randomized"):
            return None
        R = options.rounds_per_iteration
        after = functools.cache(functools.partial(margins, unseen))
        choice = Choice(rounds, np.zeros(self.columns), np.nan, 0.0)
        reported, margin = unseen, after(rounds)
        decisions = unseen.decisions(margin)
        functionals = unseen.functionals(margin, unseen.counts(decisions))
        excess = unseen.compiled.rows_of(np.nan_to_num(functionals)) - unseen.compiled.b
        among = options.iterate == "best"
        # Errors decide about a threshold only where a rule stands in the way of the model's own.
        at_rest = self.is_idle or not (among or self.solver.multipliers.any())
        if not at_rest or excess.max(initial=0.0) > 0.0:
            choice = choose(unseen, after, rounds, R, among_prefixes=among)
            margin = after(choice.rounds)
            decisions = honest_decisions(unseen, margin, choice.shift, choice.bounds)
        scores, bounds = self._scores(margin, choice.shift), None
        if self.fresh is not None:
            fresh = functools.cache(functools.partial(margins, self.fresh))
            given = unseen, after, self.fresh, fresh, choice
            if options.guarantee == "expected":
                choice = hold_in_the_mean(*given)
                bounds = expected(self.fresh.compiled, self.fresh.cells)
            else:
                choice = certify(*given, rounds, R, options.delta, among_prefixes=among)
            reported, scores = self.fresh, self._scores(fresh(choice.rounds), choice.shift)
            decisions = self.fresh.decisions(scores.deciding)
        outcome = Outcome.of(reported, scores, decisions)
        moved = choice.shift.any() or choice.rounds != rounds
        untouched = self.is_idle and not moved
        self.feasibility = judge(
            unseen, after, rounds, R, choice, reported, decisions, outcome, bounds, untouched
        )
        self.choice, self.outcome = choice, outcome
        unseen.functionals_in[choice.rounds] = outcome.functionals
        return choice

    def conclude(
        self, estimator: Any, trained: Trained, rounds: int, margin: Array | None
    ) -> pd.DataFrame | None:
        """Choose what is returned of a trained booster, make it so, and describe it.

        Parameters
        ----------
        estimator : classifier
            Which is given the fitted attributes.
        trained : Trained
            Its booster.
        rounds : int
            Boosting rounds of the whole ensemble; fewer than were trained after early stopping.
        margin : ndarray, default=None
            Scores of the training rows under it, where they are known.

        Returns
        -------
        DataFrame or None
            Prefixes of a randomised classifier: rounds of this fit, and probability.
        """

        def held_margin(rows: UnseenRows, upto: int) -> Array:
            if rows is self.unseen and self.scouts is not None:
                return self.scouts.held_margin(upto)
            return trained.held_margin(rows, upto)

        choice = self.settle(rounds, held_margin)
        kept, shift, prefixes = rounds, np.zeros(self.columns), None
        scored = rounds  # that margin is of
        if choice is not None:
            kept, shift = choice.rounds, choice.shift
            matched = self._matched(shift)
            if matched is not None:
                assert self.scouts is not None
                margin = trained.margin(kept) if margin is None or kept != rounds else margin
                scored = kept
                shift = as_bold_as_scouts(
                    self.scouts, kept, shift, margin, matched, self._rows.weight
                )
        elif self.options.iterate in ("best", "randomized") or self._swings(rounds):
            margin = trained.margin(rounds) if margin is None else margin
            if self.options.iterate == "randomized":
                prefixes = self.mixture(margin, rounds, held_margin)
            else:
                kept = self.prefix_rounds(margin, rounds)
        for held in self.evaluation_sets:
            reports = held is self.evaluation_sets[-1]
            if reports or kept not in held.functionals_in or shift.any():
                self.look_at(held, kept, self._scores(held_margin(held, kept), shift), prefixes)
        # Scoring all rows again takes as long as a fifth of a fit.
        unknown = shift.any() or prefixes is not None or self._may_be_refuted
        seen = None if unknown else self._seen(kept)
        if seen is None and (margin is None or kept != scored):
            margin = trained.margin(kept)
        if kept != rounds:
            trained.cut(kept)
        estimator.shift_ = shift
        if shift.any() and self.options.probabilities == "calibrated":
            estimator._threshold = shift
        elif shift.any():
            trained.shift(shift)
        if seen is not None:
            self._take(seen, seen.functionals)
        else:
            assert margin is not None
            self.finish(self._scores(margin, shift), kept, prefixes)
        self.describe(estimator)
        if self.checkpoint is not None:
            self.checkpoint.finish()
        return prefixes

    def _matched(self, shift: Float) -> Bool | None:
        """Rows by which a threshold chosen on the folds is carried over to the model, if any."""
        if self.scouts is None or self.fresh is not None or not shift.any():
            return None
        return rows_to_match(self._trained, self._cells)

    def finish(self, scores: Scores, rounds: int, prefixes: pd.DataFrame | None = None) -> None:
        """Take the scores of all rows under the model that is returned.

        Parameters
        ----------
        scores : Scores
            Of the training rows, and of further data sets.
        rounds : int
            Boosting rounds in that model; fewer than were trained after early stopping.
        prefixes : DataFrame, default=None
            Those of a randomised classifier, whose expected rates are then reported.
        """
        statistics = scores.statistics(self.solver.lagrangian)
        self._take(self._record(statistics, rounds), self._reported.functionals(statistics))
        if prefixes is None:
            self._hold_against_training(statistics)
            return
        records = {r.rounds: r for r in self._prefixes(statistics, rounds)}
        self._functionals = _expected({t: r.functionals for t, r in records.items()}, prefixes)
        errors = np.array([records[t].error for t in prefixes["rounds"]])
        error = float(prefixes["probability"].to_numpy() @ errors)
        self._final = replace(self._final, functionals=self._functionals, error=error)
        # Each once, also one that is watched: the mean takes the place of a value it is made of.
        for held in {*self.evaluation_sets, *([self.unseen] if self.unseen else [])}:
            held.functionals_in[rounds] = _expected(held.functionals_in, prefixes)
        outcomes = [Outcome.of_mean(held, rounds) for held in self.reporting]
        if outcomes:
            self.outcome = outcomes[0].completed_by(outcomes[-1], self._reported)

    @property
    def _may_be_refuted(self) -> bool:
        """Whether rules are judged by boosters of parts of the rows, and not by the model."""
        return self.scouts is not None and self.fresh is None and self.feasibility is not None

    def _hold_against_training(self, statistics: CellStatistics) -> None:
        """Doubt rules that the model returned breaks, by its training rows."""
        if not self._may_be_refuted:
            return
        assert self.unseen is not None
        assert self.feasibility is not None
        counts = CellCounts.of_shares(self._cells, statistics.predicted)
        compiled, rounds = self._reported, self._final.rounds
        optimism = None
        if self.solver.optimism is not None:
            optimism = self.solver.optimism(rounds // self.options.rounds_per_iteration)[0]
        of_shares = of_predictions(compiled)
        known = np.full(len(compiled), np.nan) if optimism is None else optimism
        broken = broken_in_training(compiled, counts, np.where(of_shares, 0.0, known))
        if broken[compiled.owner[of_shares]].any():
            # Only now: scoring the rows of all boosters takes long.
            known = np.where(of_shares, np.minimum(self._lost_by_scouts(), 0.0), known)
            broken = broken_in_training(compiled, counts, known)
        values = values_by_training(compiled, self._functionals, optimism)
        self.feasibility = self.feasibility.refuted_by(values, broken & self._may_be_doubted())

    def _may_be_doubted(self) -> Bool:
        """Rules with a value on unseen rows, but for those missed for the sake of a conflict."""
        assert self.unseen is not None
        assert self.feasibility is not None
        found = self.unseen.values(self._final.rounds)
        if self.feasibility.status != "infeasible":
            return np.isfinite(found)
        return np.asarray(self._reported.satisfied(found), dtype=bool)

    def _lost_by_scouts(self) -> Float:
        """How much higher rows of constraints are on unseen rows, by the boosters of the folds."""
        assert self.scouts is not None
        assert self.unseen is not None
        assert self.choice is not None
        unseen, choice = self.unseen, self.choice

        def decisions(margin: Array) -> Codes:
            return unseen.decisions(shifted(margin, choice.shift))

        # At the shift of the model returned: reported are decisions at one for each fold.
        held = unseen.counts(decisions(self.scouts.held_margin(choice.rounds)))
        return optimism_of_boosters(
            self._reported,
            self._cells,
            [fold.training for fold in self.scouts.folds],
            [decisions(member.own_margin(choice.rounds)) for member in self.scouts.members],
            functionals_of(unseen.compiled, held),
        )

    def _take(self, final: Record, functionals: Float) -> None:
        """Take the record of the model that is returned, and the rates to report."""
        self._final, self._functionals = final, functionals
        self.multipliers = final.multipliers

    @property
    def reporting(self) -> list[UnseenRows]:
        """Unseen rows whose rates are reported: for each rule the first where it has a value."""
        driving = [self.unseen] if self.unseen is not None else []
        return [*self.evaluation_sets[-1:], *driving]

    def look_at(
        self, held: UnseenRows, rounds: int, scores: Scores, prefixes: pd.DataFrame | None
    ) -> None:
        """Measure an evaluation set at the scores of the returned model."""
        # Rows that are watched report where nothing was chosen by them.
        untouched = self.fresh is None and (held is not self.unseen or self.choice is None)
        if untouched and prefixes is None and held is self.evaluation_sets[-1]:
            outcome, driving = Outcome.of(held, scores), self.outcome
            held.functionals_in[rounds] = outcome.functionals
            if driving is not None:
                outcome = outcome.completed_by(driving, self._reported)
            self.outcome = outcome
        else:
            statistics = scores.statistics(held.lagrangian)
            held.functionals_in[rounds] = held.compiled.functionals(statistics)

    @property
    def columns(self) -> int:
        """Scores of a row: one for two classes, one per class otherwise."""
        return 1 if self.classes.size == 2 else self.classes.size

    @staticmethod
    def forget(estimator: Any) -> None:
        """Remove from an estimator what an earlier constrained fit left on it."""
        for name in FITTED_ATTRIBUTES:
            estimator.__dict__.pop(name, None)

    def complain(self) -> None:
        """Warn or raise where rules cannot be met."""
        if (self._mixed > MIXED).any():
            worst = int(self._mixed.argmax())
            warnings.warn(
                f"No mixture of this model's prefixes meets all rules: the one returned violates "
                f"{self._trained.rows[worst]} by {self._mixed[worst]:.3g}. Relax the bounds, or "
                f"use iterate='last', which moves the threshold as well.",
                InfeasibleConstraintsWarning,
                stacklevel=level_of_the_user(),
            )
        if self.feasibility is not None:
            self.feasibility.complain(raises=self.options.on_infeasible == "raise")

    def describe(self, estimator: Any) -> None:
        """Set the fitted attributes that tell of the constraints."""
        estimator.constraint_report_ = rules_frame(
            self._reported, self._functionals, self.multipliers, self.outcome, self._doubted()
        )
        estimator.group_report_ = groups_frame(self._reported, self._functionals, self.outcome)
        estimator.history_ = self._history()
        estimator.unseen_accuracy_ = UNKNOWN if self.outcome is None else self.outcome.accuracy
        estimator.feasibility_ = self.feasibility
        multipliers = pd.Series(self.multipliers, list(self._reported.rows), name="multiplier")
        estimator.multipliers_ = multipliers.reindex(self._reported.all_rows, fill_value=0.0)

    def _doubted(self) -> Bool:
        """Rules that are not called satisfied, whatever their value on the unseen rows.

        Those that a guarantee was asked for in vain, and those that the training rows refute.
        """
        found, choice = self.feasibility, self.choice
        rules = self._reported.constraints
        doubted: Sequence[Constraint] = ()
        if self.fresh is not None and choice is not None:
            not_given = self.options.guarantee == "expected" and choice.excess > 0.0
            doubted = rules if choice.uncertified or not_given else ()
        elif found is not None and self.outcome is not None and self.unseen is not None:
            refuted = [rule.constraint for rule in found.refuted]
            told_by = zip(rules, self.outcome.sources, strict=True)
            own = self.unseen.source
            doubted = [rule for rule, source in told_by if source == own and rule in refuted]
        return np.array([rule in doubted for rule in rules], dtype=bool)

    def _history(self) -> pd.DataFrame:
        """One row per outer iteration, and a last one for the model that is returned."""
        records = [r for r in self.solver.history if r.rounds < self._final.rounds]
        records.append(self._final)
        losses = self.options.error_form == "log_loss"
        told = [np.array([held.values(r.rounds) for r in records]) for held in self.reporting]
        held_out = np.where(np.isnan(told[0][-1]), told[-1], told[0]) if told else None
        return history_frame(
            records,
            self.solver.lagrangian.constraints,
            None if losses else held_out,  # 0-1 rates, which no mean loss compares with
            moving_bounds=losses,
        )


def _n_parts(share: float, n_groups: int) -> int:
    """Parts of whole groups to split rows into, so that some of them have nearly a share."""
    most, smaller = min(GROUPED_PARTS, n_groups), min(share, 1.0 - share)
    if smaller * most < 1.0:
        return max(round(1.0 / smaller), 2)
    return Fraction(share).limit_denominator(most).denominator


def _outcomes(records: Sequence[Record]) -> tuple[Float, Float]:
    """Errors of prefixes, and their violations of each row of constraints."""
    errors = np.array([r.error for r in records])
    return errors, np.array([r.rates - r.bounds for r in records])


def _expected(functionals: Mapping[int, Float], prefixes: pd.DataFrame) -> Float:
    """Rates of a randomised classifier: the mean over its prefixes."""
    stacked = np.array([functionals[rounds] for rounds in prefixes["rounds"]])
    return np.asarray(prefixes["probability"].to_numpy() @ stacked)
