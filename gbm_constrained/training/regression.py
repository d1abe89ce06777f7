"""One constrained fit of a regressor: the stages of a classifier's fit with another problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import ClassFactors, FitArguments, Weights
from gbm_constrained.data.targets import TargetData, check_targets
from gbm_constrained.decision.affine import (
    AffineChoice,
    PredictedRows,
    choose_affine,
    measure_scores,
    standard_errors,
)
from gbm_constrained.decision.affine_guarantees import (
    check_affine_guarantee,
    check_observed,
    tighten_for_certificate,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.regression_shifts import choose_group_shifts
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.training.dual_controller import BoundsAt
from gbm_constrained.training.early_stopping import RoundMerit
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fold_boosters import FoldBoosters
from gbm_constrained.training.given_folds import check_measurable, check_rows, divide_as_given
from gbm_constrained.training.growth import FoldGrowth
from gbm_constrained.training.measurement import HeldOutRows
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.passes import Grown
from gbm_constrained.training.problem import (
    FitProblem,
    LibrarySettings,
    compile_what_is_left,
    find_idle,
    set_aside,
)
from gbm_constrained.training.run import FitRun

LAST = 4  # The end of a pass is one part in so many of its iterations.
# Violation in standard errors, and share of the loss that a map adds, up to which a pass is done.
SMALL_VIOLATION, SMALL_COST = 0.5, 0.01
PRICE = 0.02  # Share of the plain mean loss that one standard error of a violation is worth.


@dataclass(frozen=True, eq=False)
class RegressionProblem(FitProblem):
    """Constraints bound to the rows of a regression.

    Options of the Lagrangian in `kernel` are the objective and the type of gradients.
    """

    data: TargetData

    @classmethod
    def of(
        cls, options: SolverOptions, arguments: FitArguments, library: LibrarySettings
    ) -> tuple[SolverOptions, RegressionProblem]:
        """Encode the rows, and compile the constraints."""
        check_rows(options, arguments)
        check_straight(options.constraints, "a regressor", "use a sum of gaps")
        refuse_priorities(
            options.constraints, "regressors serve all alike: leave with_priority out"
        )
        data = TargetData.of(arguments, options.constraints, library.random_state)
        library.kernel["objective"].check_targets(data.targets)
        idle = find_idle(options.constraints)
        if options.guarantee is not None:
            left = set_aside(data, options, idle)
            assert isinstance(left, TargetData)
            data = left
        divided = divide_as_given(data, options)
        assert isinstance(divided, TargetData)
        ones = np.ones(data.classes.size)
        factors = ClassFactors(ones, ones)
        cells, compiled = compile_what_is_left(data, options, factors)
        check_measurable(divided, cells, compiled)
        weights = Weights.of(divided, factors)
        rewards = np.zeros(len(compiled), dtype=bool)
        compiled = replace(
            compiled, may_reward_errors=rewards, must_reward_errors=rewards, splits_targets=rewards
        )
        return options, cls(
            options.constraints, divided, weights, factors, idle, cells, compiled, library.kernel
        )

    @property
    def objective(self) -> RegressionObjective:
        """The objective."""
        found: RegressionObjective = self.kernel["objective"]
        return found

    def lagrangian(
        self,
        index: Codes | None = None,
        *,
        is_restricted: bool = False,
        log_odds: float = 0.0,
        factor: Float | None = None,
    ) -> Lagrangian:
        """Build the Lagrangian of all rows, or of those at positions `index`.

        With `is_restricted`, means are taken over these rows alone. A `factor` is that of the
        weight of each of these rows. Numbers have no log-odds.
        """
        cells, compiled, weight = self.cells, self.compiled, self.weights.objective
        targets = self.data.targets
        if index is not None:
            cells = self.cells.take(index, factor)
            compiled = self.compiled.on(cells) if is_restricted else self.compiled
            weight = None if weight is None else weight[index]
            if factor is not None:
                weight = factor if weight is None else weight * factor
            targets = targets[index]
        found: Any = RegressionLagrangian(
            targets,
            cells,
            compiled,
            functions=row_functions_of(self.constraints),
            weight=weight,
            **self.kernel,
        )
        return found  # type: ignore[no-any-return]  # It has the interface of a Lagrangian.

    def predicted_rows(self, cells: Cells, index: Codes, source: str) -> PredictedRows:
        """Bind the constraints to rows at positions `index`, which are in these cells."""
        compiled = self.compiled.on(cells)
        return PredictedRows(cells, compiled, source, self.data.targets[index], self.objective)

    def certification_set(self) -> PredictedRows | None:
        """Bind the constraints to the rows that are set aside; None without a guarantee."""
        data = self.data
        if data.certification is None:
            return None
        found = self.compile(data.whole_rows.take(data.certification), "the rows set aside")
        return PredictedRows(*found, "certification", data.certification_targets, self.objective)

    def evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> PredictedRows:
        """Bind the constraints to rows that are not trained on."""
        rows = self.data.evaluation_rows(name, X, y, weight, sensitive_features)
        try:
            found: tuple[Cells, LinearConstraints] = self.compile(rows, name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        targets = check_targets(y, f"y of {name}")
        self.objective.refuse_negative(targets, f"y of {name}")
        return PredictedRows(*found, name, targets, self.objective)


def is_settled(choice: AffineChoice) -> bool:
    """Whether scores nearly meet the constraints by themselves, and a map adds next to nothing."""
    return choice.violation_before <= SMALL_VIOLATION and choice.cost <= SMALL_COST


def rank(choice: AffineChoice, unit: float) -> tuple[bool, float]:
    """Rank passes: violations that are small come first, and then the loss with their price.

    `unit` is the mean loss without multipliers.
    """
    violation = max(choice.violation - SMALL_VIOLATION, 0.0)
    return violation > 0.0, choice.loss + PRICE * violation * abs(unit)


class RegressionRun(FitRun):
    """Options, programme and observers of the fit of a regressor."""

    def aim_at(self, compiled: LinearConstraints) -> LinearConstraints:
        """Give constraints the bounds that training aims at: tighter ones for a guarantee."""
        if self.certification is None:
            return compiled
        assert isinstance(self.certification, PredictedRows)
        return tighten_for_certificate(compiled, self.certification, self.options.delta)

    def bounds_at(self, lagrangian: Lagrangian) -> BoundsAt:
        """Move the multipliers towards the bounds that training aims at."""
        bounds = self.aim_at(lagrangian.constraints).b
        return lambda record: bounds

    def choose_map(
        self, rows: PredictedRows, score: Array, errors: Float | None = None
    ) -> AffineChoice:
        """Choose scale and shift of scores by rows, or shifts of groups if these may decide.

        `errors` are the units of the rows of constraints, by default standard errors.
        """
        errors = standard_errors(rows, score) if errors is None else errors
        choice = choose_affine(rows, score, errors, has_scale=self.library.has_scale)
        if self.groups is None:
            return choice
        return choose_group_shifts(rows, score, choice, self.groups, errors)


class RegressionGrowth(FoldGrowth):
    """Grows boosters in passes, until the constraints cost no more than they have to.

    Multipliers of the first pass are on their way for most of its rounds, and rise without end
    where no model of this size meets a constraint. Where the held-out rows violate a constraint
    after it, or scale and shift cost loss to meet it, boosters without multipliers follow. If the
    multipliers did bring the constraints nearer, boosters are grown again from those that the last
    quarter of the pass had in the mean; if not, with half of these. The pass of least rank is
    taken. Where groups may decide, boosters without multipliers follow in any case, since shifts
    of groups may cost less than multipliers.
    """

    run: RegressionRun

    def find_best(self) -> Grown:
        """Grow boosters; without a violated constraint, no multiplier moves."""
        first = self.grow(has_multipliers=True)
        choice = self._choose(first)
        history = first[0].controller.solver.history
        last = history[-max(len(history) // LAST, 1) :]
        start = np.mean([record.multipliers for record in last], axis=0)
        is_done = self.run.groups is None and is_settled(choice)
        if is_done or not start.any() or not self._has_time_again():
            return first
        everything = np.ones(start.size, dtype=bool)
        plain = self.grow(has_multipliers=True, start=np.zeros_like(start), fixed=everything)
        errors = standard_errors(*self._held_out(plain))
        passes = [(one, self._choose(one, errors)) for one in (first, plain)]
        unit = passes[1][1].loss_before
        if self._has_time_again():
            helps = rank(passes[0][1], unit) < rank(passes[1][1], unit)
            start, fixed = (start, None) if helps else (start / 2.0, everything)
            again = self.grow(has_multipliers=True, start=start, fixed=fixed)
            passes.append((again, self._choose(again, errors)))
        return min(passes, key=lambda one: rank(one[1], unit))[0]

    def _choose(self, grown: Grown, errors: Float | None = None) -> AffineChoice:
        """Choose the map of the boosters' scores by the rows that they hold out.

        The rows keep the last choice for the model of all rows.
        """
        rows, score = self._held_out(grown)
        choice = self.run.choose_map(rows, score, errors)
        assert isinstance(grown[1], PredictedRows)
        grown[1].choices[grown[0].rounds] = choice
        return choice

    def _held_out(self, grown: Grown) -> tuple[PredictedRows, Array]:
        boosters, rows = grown
        assert isinstance(rows, PredictedRows)
        assert isinstance(self.run, RegressionRun)
        aimed = rows.with_bounds(self.run.aim_at(rows.compiled).b)
        return aimed, boosters.held_margin(boosters.rounds)

    def hold_out(self, lagrangian: Lagrangian, boosters: FoldBoosters) -> EvaluationSet:
        """Bind the constraints to the rows that the boosters hold out."""
        problem = self.run.problem
        assert isinstance(problem, RegressionProblem)
        return problem.predicted_rows(lagrangian.cells, self.rows, self.source)


@dataclass(frozen=True)
class HeldOutTargets(HeldOutRows):
    """Boosters on parts of the rows are grown first, and find the path of the multipliers."""

    def make_growth(self, run: FitRun, folds: Sequence[Any], source: str) -> FoldGrowth:
        """Make what grows the boosters."""
        return RegressionGrowth(run, self.factory, folds, source)


class RegressionFit(ConstrainedFit):
    """One constrained fit of a regressor; see :class:`ConstrainedFit`."""

    run: RegressionRun
    problem_class = RegressionProblem
    run_class = RegressionRun
    held_out_rows = HeldOutTargets
    check_guarantee = staticmethod(check_affine_guarantee)

    def measure(self, *args: Any, **options: Any) -> None:
        """Find the path of the multipliers, and refuse stated ranges that held-out rows leave."""
        super().measure(*args, **options)
        rows, boosters = self.measured.rows, self.measured.boosters
        if self.run.certification is not None and boosters is not None:
            assert isinstance(rows, PredictedRows)
            check_observed(rows, boosters.held_margin(boosters.rounds))

    def find_merit(self, held: EvaluationSet, margin: Array) -> RoundMerit:
        """Find the mean loss of the scores with the price of their violation, in it."""
        assert isinstance(held, PredictedRows)
        violation, loss = measure_scores(held, margin, standard_errors(held, margin))
        return RoundMerit(loss + PRICE * violation * abs(loss), violation)

    def training_rows(self) -> PredictedRows:
        """Bind the constraints to the training rows, to report on them."""
        problem = self.problem
        assert isinstance(problem, RegressionProblem)
        everyone = np.arange(len(problem.data.rows))
        return problem.predicted_rows(problem.cells, everyone, TRAINING_ROWS)
