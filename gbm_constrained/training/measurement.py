"""Rows by which constraints are measured, so that multipliers hold for new rows.

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

``"auto"`` takes the holdout if every rate is taken over
:data:`~gbm_constrained.training.problem.MIN_ROWS_FOR_HOLDOUT` rows, and cross-fitting otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.data.splits import Fold, folds_of
from gbm_constrained.decision.evaluation_set import EvaluationSet, PlainModel
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.solvers.base import Solver
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.dual_controller import DualController
from gbm_constrained.training.fold_boosters import FoldBoosterFactory, FoldBoosters
from gbm_constrained.training.group_options import GROUP_PARAMETERS
from gbm_constrained.training.growth import FoldGrowth
from gbm_constrained.training.passes import Grown
from gbm_constrained.training.priority_options import no_held_out_rows
from gbm_constrained.training.problem import HOLDOUT_FRACTION
from gbm_constrained.training.run import FitRun

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


class MeasurementStrategy(Protocol):
    """A choice of the rows that move the multipliers."""

    def measure(self, run: FitRun) -> Measured:
        """Find the path of the multipliers, or the rows that will move them."""


@dataclass(frozen=True)
class TrainingRows:
    """The training rows move the multipliers while the model is trained."""

    def measure(self, run: FitRun) -> Measured:
        """Make the solver of the model; nothing is measured before."""
        solver = run.make_solver(run.problem.lagrangian())
        run.notify_of(solver, "training", "training rows")
        return Measured(solver)


@dataclass(frozen=True)
class EvaluationRows:
    """An evaluation set of the user moves the multipliers while the model is trained."""

    rows: EvaluationSet

    def measure(self, run: FitRun) -> Measured:
        """Make the controller of the evaluation set, and the solver that follows it."""
        rows = self.rows
        if found := run.problem.name_further_groups(rows):
            raise ValueError(
                f"measure_on='holdout' moves multipliers by {rows.source}, which has groups that "
                f"a constraint has no training rows of: {found}. Put rows of these groups among "
                f"the training rows, leave them out of {rows.source}, or give holdout_fraction, "
                f"to split the training rows instead."
            )
        if len(rows.compiled) != len(run.problem.compiled):
            ours = run.problem.compiled
            missing = next(
                constraint
                for j, constraint in enumerate(ours.constraints)
                if (rows.compiled.owner == j).sum() < (ours.owner == j).sum()
            )
            raise ValueError(
                f"The first evaluation set ({rows.source}) moves the multipliers, and {missing} "
                f"cannot be measured there (a mask, a data set, a column or a group that is not "
                f"there): give its columns as sensitive features of evaluation sets, or give "
                f"measure_on= or holdout_fraction=, to divide the training rows instead."
            )
        has_multipliers = run.options.solver != "threshold"
        others = {} if has_multipliers else run.without_multipliers()
        lagrangian = rows.credible.lagrangian
        measuring = run.make_solver(lagrangian, **others)
        run.notify_of(measuring, "training", f"{rows.source}, watched")
        attainable = run.attainable_bounds(lagrangian) if has_multipliers else None
        bounds_at = run.bounds_at(lagrangian)
        controller = DualController(measuring, bounds_at=bounds_at, attainable=attainable)
        rows.source += ", watched"  # Rows that move multipliers are no evidence any more.
        solver = run.make_solver(run.problem.lagrangian(), schedule=controller.path)
        return Measured(solver, rows, controller, has_multipliers=has_multipliers)


@dataclass(frozen=True)
class HeldOutRows:
    """Boosters on parts of the rows are grown first, and find the path of the multipliers.

    With `n_folds` of one, a share of the rows is held out. Folds of the user come before both.
    """

    factory: FoldBoosterFactory
    n_folds: int = 1
    has_offset: bool = False

    def measure(self, run: FitRun) -> Measured:
        """Grow the boosters of the folds, and make the solver that follows their multipliers."""
        given = run.problem.data.given_folds
        if given is not None:
            folds, source = given.folds, given.source
        else:
            folds, source = self._folds(run), "holdout" if self.n_folds == 1 else "out of fold"
        growth = self.make_growth(run, folds, source)
        return follow(growth, growth.find_best(), has_offset=self.has_offset)

    def make_growth(self, run: FitRun, folds: Sequence[Fold], source: str) -> FoldGrowth:
        """Make what grows the boosters."""
        return FoldGrowth(run, self.factory, folds, source)

    def _folds(self, run: FitRun) -> list[Fold]:
        """Split the rows, and refuse parts without rows."""
        data, cells, options = run.problem.data, run.problem.cells, run.options
        everyone = np.arange(len(data.rows))
        held: Sequence[Codes]
        if self.n_folds > 1:
            n = min(self.n_folds, cells.n_rows)
            held = data.split(everyone, cells, 1.0 / n, n)
        else:
            held = data.split(everyone, cells, options.holdout_fraction or HOLDOUT_FRACTION)[:1]
        folds = folds_of(held, everyone.size)
        sizes = np.array([[fold.training.size, fold.held.size] for fold in folds], np.float64)
        if not cells.reduce_sum(sizes).all():
            raise ValueError(
                f"holdout_fraction={options.holdout_fraction!r} of n_samples={cells.n_rows} "
                f"leaves none to hold out, or none to train on: give another share, or "
                f"measure_on='train'."
            )
        return folds


def follow(growth: FoldGrowth, grown: Grown, *, has_offset: bool = False) -> Measured:
    """Make the solver of the model, which follows the multipliers of a set of fold boosters."""
    run, (boosters, held_out) = growth.run, grown
    if boosters.rounds < run.notifier.n_rounds:
        run.notifier.end_for_time(boosters.rounds, "measuring")
    controller = boosters.controller
    solver = run.make_solver(
        run.problem.lagrangian(log_odds=boosters.log_odds),
        schedule=controller.path,
        initial_multipliers=controller.solver.start.copy(),
    )
    run.notify_of(solver, "training", "training rows")
    if boosters.has_multipliers and not (has_offset or boosters.compared):
        _correct(solver, boosters, run)
    return Measured(solver, held_out, controller, boosters, growth.plain, boosters.has_multipliers)


def _correct(solver: Solver, boosters: FoldBoosters, run: FitRun) -> None:
    """Correct the model's multipliers by the optimism of the fold boosters."""
    measuring, compiled = boosters.controller.solver, run.problem.acting
    if not measuring.history or not compiled.must_reward_errors.any():
        return
    last = measuring.history[-1].predicted
    errors = standard_errors(compiled, CellCounts.of_shares(measuring.lagrangian.cells, last))
    solver.optimism = boosters.optimism
    solver.corrected = compiled.must_reward_errors & (errors <= MAX_STANDARD_ERROR)


Dividing: TypeAlias = Literal["holdout", "crossfit", "forward"]  # Boosters on parts of the rows.
Measurement: TypeAlias = Literal["train", "evaluation set", Dividing]


def resolve_measurement(
    run: FitRun, *, is_divisible: bool, has_evaluation_set: bool
) -> Measurement:
    """Resolve ``measure_on`` to the rows by which constraints are measured.

    `is_divisible` says whether boosters can be grown on part of the rows. With ``"auto"`` the
    training rows take the place of others with a warning.
    """
    options, asked = run.options, run.options.measure_on
    if asked == "holdout" and has_evaluation_set and options.holdout_fraction is None:
        return "evaluation set"
    if asked == "auto" and is_divisible:
        is_holdout = run.problem.has_many_rows and options.cv is None
        return "holdout" if is_holdout else "crossfit"
    if options.cv is not None and not is_divisible:
        raise ValueError(
            f"cv={options.cv!r} divides the rows, which a model to continue from (it has seen all "
            f"rows) does not allow: leave cv out."
        )
    if asked in get_args(Dividing) and not is_divisible:
        raise ValueError(
            f"measure_on={asked!r} grows boosters on part of the rows, which a model to continue "
            f"from (it has seen all rows) does not allow: use measure_on='train', or 'holdout' "
            f"with an evaluation set."
        )
    if asked in ("holdout", "crossfit", "forward"):
        return asked
    _refuse_without_held_out_rows(run)
    if asked == "auto":
        issue_warning(
            "measure_on='auto' measures the constraints on the training rows here, since "
            "continued training cannot grow boosters on part of the rows. Training rows are "
            "optimistic: give an evaluation set with measure_on='holdout', or ask for "
            "measure_on='train'.",
            "GC118",
        )
    return "train"


def _refuse_without_held_out_rows(run: FitRun) -> None:
    """Refuse options that need rows which the trees have not seen."""
    options, asked = run.options, run.options.measure_on
    refuse_priorities(options.constraints, no_held_out_rows(f"measure_on={asked!r}"))
    if options.guarantee is not None:
        raise ValueError(
            f"guarantee={options.guarantee!r} needs rows that the trees have not seen, "
            f"and measure_on={asked!r} takes the training rows here: use 'crossfit' or "
            f"'holdout' (for continued training with an evaluation set)."
        )
    if options.on_infeasible == "raise":
        raise ValueError(
            f"on_infeasible='raise' assesses constraints on rows that the trees have not seen, "
            f"and measure_on={asked!r} takes the training rows here: use 'crossfit' or 'holdout' "
            f"(for continued training with an evaluation set), or 'warn'."
        )
    if (parameter := options.group_parameter) is not None:
        raise ValueError(
            f"{parameter}=True chooses a {GROUP_PARAMETERS[parameter]} for each group on rows "
            f"that the trees have not seen, and measure_on={asked!r} takes the training rows "
            f"here: use 'crossfit' or 'holdout' (for continued training with an evaluation set), "
            f"or {parameter}=False."
        )
    if options.solver == "threshold":
        raise ValueError(
            f"solver='threshold' is moved on rows that the trees have not seen, and "
            f"measure_on={asked!r} takes the training rows here: use 'holdout' with an "
            f"evaluation set, or another solver."
        )
