"""One constrained fit of a regressor: the stages of a classifier's fit with another problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.priorities import refuse_priorities
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import ClassFactors, FitArguments, Weights
from gbm_constrained.data.targets import TargetData, check_targets
from gbm_constrained.decision.affine import (
    Affine,
    AffineChoice,
    Criterion,
    PredictedRows,
    choose_affine,
    credible_rows,
    find_largest_multipliers,
)
from gbm_constrained.decision.affine_guarantees import (
    check_affine_guarantee,
    check_observed,
    tighten_for_certificate,
)
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet, PlainModel
from gbm_constrained.decision.regression_shifts import find_prices, list_group_shifts
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_owners import find_first
from gbm_constrained.solvers.base import Solver
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


@dataclass(frozen=True, eq=False)
class RegressionProblem(FitProblem):
    """Constraints bound to the rows of a regression.

    Options of the Lagrangian in `kernel` are the objective and the type of gradients. `half` has
    the rows at which a group counts as much as all groups together, by functional.
    """

    data: TargetData
    half: Float | None = None

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
        # A certificate needs every group.
        half = None if options.guarantee is None else np.zeros(compiled.constant.size)
        return options, cls(
            options.constraints, divided, weights, factors, idle, cells, compiled, library.kernel,
            half,
        )  # fmt: skip

    @cached_property
    def acting(self) -> LinearConstraints:
        """The constraints as they move the model: each group as far as its rows can tell."""
        return self.compiled.make_credible(self.cells, self.half)

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
        cells, compiled, weight = self.cells, self.acting, self.weights.objective
        targets = self.data.targets
        if index is not None:
            cells = self.cells.take(index, factor)
            compiled = self.acting.on(cells) if is_restricted else self.acting
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
        targets = self.data.targets[index]
        return PredictedRows(cells, compiled, source, targets, self.objective, self.half)

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
        if not targets.size:
            raise ValueError(f"{name} has no rows: leave it out.")
        self.objective.refuse_negative(targets, f"y of {name}")
        return PredictedRows(*found, name, targets, self.objective, self.half)


class RegressionRun(FitRun):
    """Options, programme and observers of the fit of a regressor."""

    def make_solver(self, lagrangian: Lagrangian, **others: Any) -> Solver:
        """Make a solver; multipliers of boosters are worth the price of violations at most."""
        if self.library.is_lazy and self.certification is None:
            assert isinstance(lagrangian, RegressionLagrangian)
            others = {"largest": find_largest_multipliers(lagrangian.rows), **others}
        return super().make_solver(lagrangian, **others)

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
        self, rows: PredictedRows, score: Array, criterion: Criterion | None = None
    ) -> AffineChoice:
        """Choose scale and shift of scores by rows, or shifts of groups if these may decide.

        The `criterion` is by default that of these scores.
        """
        criterion = Criterion.of(rows, score) if criterion is None else criterion
        choice = choose_affine(rows, score, criterion.pick_map, has_scale=self.library.has_scale)
        if self.groups is None:
            return choice
        found = list_group_shifts(rows, score, choice, self.groups, criterion)
        return found[criterion.best_of(found)]


class RegressionGrowth(FoldGrowth):
    """Grows the boosters of the folds without and with multipliers, and chooses by one criterion.

    Boosters without multipliers come first. They say how far each group acts, and how much the
    constraints cost if their scores are mapped. If it is more than sampling error, boosters follow
    whose multipliers move, from the prices of shifts of groups on.
    """

    run: RegressionRun

    def find_best(self) -> Grown:
        """Grow boosters, and return those that the criterion prefers, with the best map."""
        start = np.zeros(len(self.run.problem.compiled))
        everything = np.ones(start.size, dtype=bool)
        plain = self.grow(has_multipliers=True, start=start, fixed=everything)
        self._learn_credibility(plain)
        rows, score = self._held_out(plain)
        criterion = Criterion.of(rows, score)
        identity = AffineChoice(Affine(), *rows.measure_scores(score))
        self.plain = PlainModel(identity.loss, self._values(plain))
        found, passes = [identity, self._choose(plain, criterion)], [plain, plain]
        best = criterion.best_of(found)
        if not self._is_cheap(plain, found[best], score) and self._has_time_again():
            given = self.run.problem.initial_multipliers(self.run.options.method.start)
            prices = find_prices(rows, score, criterion) if given is None else given
            passes.append(self.grow(has_multipliers=True, start=prices))
            found.append(self._choose(passes[-1], criterion))
        best = criterion.best_of(found)
        boosters, held_out = passes[best]
        assert isinstance(held_out, PredictedRows)
        held_out.choices[boosters.rounds] = found[best]
        held_out.plain_score = score
        return passes[best]

    def _is_cheap(self, grown: Grown, choice: AffineChoice, plain: Array) -> bool:
        """Whether a map meets the constraints for what may be the sampling error of the loss."""
        rows, score = self._held_out(grown)
        more, noise = rows.compare_losses(choice.apply(score, rows.cells.rows), plain)
        return bool((choice.violations <= ROUNDING).all()) and more <= noise

    def _values(self, grown: Grown) -> Float:
        """Compute the value of each constraint as it is stated, (n_constraints,)."""
        boosters, rows = grown
        statistics = rows.lagrangian.at(boosters.held_margin(boosters.rounds)).exact_statistics()
        return rows.compiled.values(rows.compiled.functionals(statistics))

    def _learn_credibility(self, plain: Grown) -> None:
        """Let each group act as far as rows tell it from the others at plain scores."""
        run, rows = self.run, plain[1]
        problem = run.problem
        assert isinstance(problem, RegressionProblem)
        assert isinstance(rows, PredictedRows)
        if problem.half is None:
            half = credible_rows(rows, plain[0].held_margin(plain[0].rounds))
            self.run = replace(run, problem=replace(problem, half=half))
            rows.half = half

    def _choose(self, grown: Grown, criterion: Criterion) -> AffineChoice:
        """Choose the map of the boosters' scores by the rows that they hold out.

        The rows keep the choice for the model of all rows.
        """
        rows, score = self._held_out(grown)
        choice = self.run.choose_map(rows, score, criterion)
        assert isinstance(grown[1], PredictedRows)
        grown[1].choices[grown[0].rounds] = choice
        return choice

    def _held_out(self, grown: Grown) -> tuple[PredictedRows, Array]:
        boosters, rows = grown
        assert isinstance(rows, PredictedRows)
        credible = rows.credible
        aimed = credible.with_bounds(self.run.aim_at(credible.compiled).b)
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
        criterion = Criterion.of(held, margin)
        loss, violations = held.measure_scores(margin)
        left = criterion.weights * np.maximum(violations - criterion.errors, 0.0)
        first = violations[find_first(held.compiled)].max(initial=-np.inf)
        price = VIOLATION_PRICE * left.max(initial=0.0)
        return RoundMerit(float(criterion.share(loss)) + float(price), float(first))

    def training_rows(self) -> PredictedRows:
        """Bind the constraints to the training rows, to report on them."""
        problem = self.problem
        assert isinstance(problem, RegressionProblem)
        everyone = np.arange(len(problem.data.rows))
        return problem.predicted_rows(problem.cells, everyone, TRAINING_ROWS)
