"""One constrained fit of a regressor, and what rows say of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint, refuse_priorities
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, check_targets
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import (
    UNKNOWN,
    Estimate,
    EvaluationSet,
    Outcome,
    PlainModel,
)
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.guarantees import (
    CertifiedAffine,
    certify_affine,
    check_observed,
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
from gbm_constrained.evaluation.assessment import (
    FRAGILE_GAIN,
    Feasibility,
    describe_missing_guarantee,
)
from gbm_constrained.evaluation.audit import determination, measure_predictions
from gbm_constrained.evaluation.verdicts import (
    TRAINING_ROWS,
    Cost,
    measure_cost_of_numbers,
)
from gbm_constrained.fit.cross_fit import BoundsAt, FoldBoosters, Grown
from gbm_constrained.fit.finalize import (
    FinalModel,
    ModelScores,
    ReportLayout,
    TrainedModel,
    report_periods,
)
from gbm_constrained.fit.fit import ConstrainedFit, FoldGrowth, tabulate_shifts
from gbm_constrained.fit.fitted_report import (
    assess_as_reported,
    make_history,
    set_fit,
    set_reports,
)
from gbm_constrained.fit.options import RoundMerit, SolverOptions
from gbm_constrained.fit.problem import FitProblem, LibrarySettings
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_first
from gbm_constrained.problem.losses import RegressionObjective
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.statistics.sampled_intervals import Sampled


@dataclass(frozen=True, eq=False)
class RegressionProblem(FitProblem):
    """Constraints bound to the rows of a regression.

    Options of the Lagrangian in `kernel` are the objective and the type of gradients. `half` has
    the rows at which a group counts as much as all groups together, by functional.
    """

    half: Float | None = None
    predicts_numbers: ClassVar[bool] = True

    @classmethod
    def of(
        cls, options: SolverOptions, arguments: FitArguments, library: LibrarySettings
    ) -> tuple[SolverOptions, Self]:
        """Encode the rows, and compile the constraints."""
        check_straight(options.constraints, "a regressor", "use a sum of gaps")
        refuse_priorities(
            options.constraints, "regressors serve all alike: leave with_priority out"
        )
        options, problem = super().of(options, arguments, library)
        rewards = np.zeros(len(problem.compiled), dtype=bool)
        compiled = replace(
            problem.compiled,
            may_reward_errors=rewards,
            must_reward_errors=rewards,
            splits_targets=rewards,
        )
        # A certificate needs every group.
        half = None if options.guarantee is None else np.zeros(compiled.constant.size)
        return options, replace(problem, compiled=compiled, half=half)

    @cached_property
    def acting(self) -> LinearConstraints:
        """The constraints as they move the model: each group as far as its rows can tell."""
        return self.compiled.make_credible(self.cells, self.half)

    @property
    def objective(self) -> RegressionObjective:
        """The objective."""
        found: RegressionObjective = self.kernel["objective"]
        return found

    def _bind(
        self, index: Codes | None, cells: Cells, compiled: LinearConstraints, weight: Float | None
    ) -> Lagrangian:
        """Build the Lagrangian of rows at positions `index`, which are in these cells."""
        targets = self.data.targets
        assert targets is not None
        found: Any = RegressionLagrangian(
            targets if index is None else targets[index],
            cells,
            compiled,
            functions=row_functions_of(self.constraints),
            weight=weight,
            **self.kernel,
        )
        return found  # type: ignore[no-any-return]  # It has the interface of a Lagrangian.

    def predicted_rows(self, cells: Cells, index: Codes, source: str) -> PredictedRows:
        """Bind the constraints to rows at positions `index`, which are in these cells."""
        assert self.data.targets is not None
        targets = self.data.targets[index]
        return self._hold_out(cells, self.compiled.on(cells), source, targets)

    def _hold_out(
        self, cells: Cells, compiled: LinearConstraints, name: str, y: Any
    ) -> PredictedRows:
        """Describe rows with targets y, on which constraints are compiled."""
        targets = check_targets(y, f"y of {name}")
        if not targets.size:
            raise ValueError(f"{name} has no rows: leave it out.")
        self.objective.refuse_negative(targets, f"y of {name}")
        return PredictedRows(cells, compiled, name, targets, self.objective, self.half)


class RegressionGrowth(FoldGrowth):
    """Grows the boosters of the folds without and with multipliers, and chooses by one criterion.

    Boosters without multipliers come first. They say how far each group acts, and how much the
    constraints cost if their scores are mapped. If it is more than sampling error, boosters follow
    whose multipliers move, from the prices of shifts of groups on.
    """

    fit: RegressionFit
    problem: RegressionProblem

    def find_best(self) -> Grown:
        """Grow boosters, and return those that the criterion prefers, with the best map."""
        start = np.zeros(len(self.problem.compiled))
        everything = np.ones(start.size, dtype=bool)
        plain = self.grow(has_multipliers=True, start=start, fixed=everything)
        held_out = plain[1]
        assert isinstance(held_out, PredictedRows)
        if self.problem.half is None:  # Groups act as far as rows tell them from the others.
            held_out.half = credible_rows(held_out, plain[0].held_margin(plain[0].rounds))
            self.problem = replace(self.problem, half=held_out.half)
        rows, score = self._held_out(plain)
        criterion = Criterion.from_rows(rows, score)
        identity = AffineChoice(Affine(), *rows.measure_scores(score))
        values = held_out.compiled.values(
            held_out.compiled.functionals(held_out.lagrangian.at(score).statistics(is_exact=True))
        )
        self.plain = PlainModel(identity.loss, values)
        found, passes = [identity, self._choose(plain, criterion)], [plain, plain]
        best = found[criterion.best_of(found)]
        more, noise = rows.compare_losses(best.apply(score, rows.cells.rows), score)
        is_cheap = (best.violations <= ROUNDING).all() and more <= noise
        if not is_cheap and self._has_time_again():
            given = self.problem.initial_multipliers(self.fit.options.method.start)
            prices = find_prices(rows, score, criterion) if given is None else given
            passes.append(self.grow(has_multipliers=True, start=prices))
            found.append(self._choose(passes[-1], criterion))
        chosen = criterion.best_of(found)
        boosters, held_out = passes[chosen]
        assert isinstance(held_out, PredictedRows)
        held_out.choices[boosters.rounds] = found[chosen]
        held_out.plain_score = score
        return passes[chosen]

    def _choose(self, grown: Grown, criterion: Criterion) -> AffineChoice:
        """Choose the map of the boosters' scores by the rows that they hold out.

        The rows keep the choice for the model of all rows.
        """
        assert isinstance(grown[1], PredictedRows)
        choice = self.fit.choose_map(*self._held_out(grown), criterion)
        grown[1].choices[grown[0].rounds] = choice
        return choice

    def _held_out(self, grown: Grown) -> tuple[PredictedRows, Array]:
        boosters, rows = grown
        assert isinstance(rows, PredictedRows)
        credible = rows.credible
        aimed = credible.with_bounds(self.fit.aim_at(credible.compiled).b)
        return aimed, boosters.held_margin(boosters.rounds)

    def hold_out(self, lagrangian: Lagrangian, boosters: FoldBoosters) -> EvaluationSet:
        """Bind the constraints to the rows that the boosters hold out."""
        return self.problem.predicted_rows(lagrangian.cells, self.rows, self.source)


class RegressionFit(ConstrainedFit):
    """One constrained fit of a regressor; see :class:`ConstrainedFit`."""

    problem: RegressionProblem
    problem_class = RegressionProblem
    growth_class = RegressionGrowth

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

    def training_rows(self) -> PredictedRows:
        """Bind the constraints to the training rows, to report on them."""
        everyone = np.arange(len(self.data.rows))
        return self.problem.predicted_rows(self.problem.cells, everyone, TRAINING_ROWS)


@dataclass(frozen=True, eq=False)
class FinalRegressor:
    """The regressor that a fit returns.

    Parameters
    ----------
    affine : Affine
        Scale and shift of its scores.
    record : Record
        State of the solver at the model, with values on the training rows.
    rows : PredictedRows
        Rows that are reported.
    score : ndarray of shape (n_samples,)
        Scores of these rows.
    others : tuple of PredictedRows and ndarray, or None, default=None
        Further held-out rows and their scores. Constraints that the reported rows measure less
        completely are reported by these.
    offsets : GroupOffsets or None, default=None
        What is added to the scores of each group, if groups may decide.
    certified : CertifiedAffine or None
        P-values of the constraints on these rows; None without a guarantee.
    periods : DataFrame or None
        Values of the constraints by period, if the held-out rows are of several.
    cost : Cost
        What the constraints cost on the held-out rows that chose the model.
    """

    affine: Affine
    record: Record
    rows: PredictedRows
    score: Array
    others: tuple[PredictedRows, Array] | None = None
    offsets: GroupOffsets | None = None
    certified: CertifiedAffine | None = None
    periods: pd.DataFrame | None = None
    cost: Cost = field(default_factory=Cost)


def finalize_regression(
    fit: RegressionFit, trained: TrainedModel, rounds: int, margin: Array | None
) -> FinalRegressor:
    """Choose the map of a trained booster's scores, and measure the model on all rows.

    `rounds` are those of the whole ensemble; `margin` are the scores of the training rows after
    these rounds, if they are known.
    """
    scores = ModelScores(fit, trained, rounds, margin)
    choice, measured = AffineChoice(Affine(), np.nan, np.zeros(0)), fit.measured.rows
    held_out: tuple[PredictedRows, Array] | None = None
    others = None
    certification, certified, periods = fit.certification, None, None
    cost = Cost()
    if isinstance(measured, PredictedRows):
        score = scores.held_out(measured, rounds)
        if isinstance(certification, PredictedRows):
            unseen = certification, scores.held_out(certification, rounds)
            check_observed(*unseen)
            has_scale = fit.library.has_scale
            certified = certify_affine(
                (measured, score), unseen, fit.options.delta, has_scale=has_scale
            )
            choice = choice._replace(affine=certified.affine)
        else:
            choice = measured.choices.get(rounds) or fit.choose_map(measured.credible, score)
        held_out = others = measured, choice.apply(score, measured.cells.rows)
        periods = report_periods(fit, functools.partial(measure_predictions, *held_out))
        if measured.plain_score is not None:
            cost = measure_cost_of_numbers(*held_out)
    for rows in fit.evaluation_sets:  # The last one is reported, if there is any.
        assert isinstance(rows, PredictedRows)
        held_out = rows, choice.apply(scores.held_out(rows, rounds), rows.cells.rows)
        rows.measure(rounds, held_out[1])
    if certified is not None:  # Verdicts are by the rows of the certificate.
        held_out = unseen[0], choice.apply(unseen[1], unseen[0].cells.rows)
        others = None
    training = choice.apply(scores.training(rounds), fit.data.rows)
    return describe_regressor(
        fit,
        choice.affine,
        rounds,
        training,
        held_out,
        others=others,
        offsets=choice.offsets,
        certified=certified,
        periods=periods,
        cost=cost,
    )


def describe_regressor(
    fit: RegressionFit,
    affine: Affine,
    rounds: int,
    training: Array,
    held_out: tuple[PredictedRows, Array] | None = None,
    **reported: Any,
) -> FinalRegressor:
    """Measure a model by the scores of its training rows, and of held-out rows, if any.

    `reported` are further fields of the model.
    """
    solver = fit.solver
    lagrangian, compiled = solver.lagrangian, fit.problem.compiled
    statistics = lagrangian.at(training).statistics(is_exact=True)
    functionals = compiled.functionals(statistics)
    record = Record(
        iteration=len(solver.history),
        rounds=rounds,
        objective=lagrangian.objective(statistics),
        error=np.nan,
        rates=compiled.rows_of(functionals),
        functionals=functionals,
        bounds=solver.bounds,
        multipliers=solver.multipliers,
        bregman=np.nan,
        seconds=solver.elapsed,
    )
    if held_out is None:
        held_out = fit.training_rows(), training
    return FinalRegressor(affine, record, *held_out, **reported)


def report_regressor(
    estimator: Any, fit: RegressionFit, model: FinalRegressor, rounds: int | None = None
) -> Feasibility:
    """Set the fitted attributes that report on the constraints, and return the verdicts.

    `rounds` are those that were trained; by default those of the solver.
    """
    compiled, record, rows = fit.problem.compiled, model.record, model.rows
    layout = ReportLayout(compiled, fit.evaluation_sets)
    outcome = _measure(rows, model.score)
    spread, is_training = layout.spread(record.functionals), rows.source == TRAINING_ROWS
    if model.others is not None:
        outcome = outcome.complete_by(layout.lay_out(_measure(*model.others)), layout.compiled)
    elif not is_training and model.certified is None:  # No other rows but those of the trees.
        outcome = outcome.leave_out_incomplete(spread, layout.compiled)
    uncertified: tuple[Constraint, ...] = ()
    p_value, level, cost = np.nan, np.nan, model.cost
    if (certified := model.certified) is not None:
        missing = np.flatnonzero(certified.p_values > certified.level)
        uncertified = tuple(rows.compiled.constraints[j] for j in missing)
        p_value, level = float(certified.p_values.max()), certified.level
    # Whether the constraints cost most of what the model explains beyond the mean target.
    gain, left = 1.0 - cost.unconstrained_error, 1.0 - cost.error
    is_fragile = gain > 2.0 * cost.noise and cost.is_costly and left < FRAGILE_GAIN * gain
    doubt = describe_missing_guarantee("high_probability") if uncertified else ""
    reported = FinalModel(
        record.rounds,
        np.zeros(1),
        layout,
        record=record,
        periods=model.periods,
        outcome=None if is_training else outcome,
        functionals=outcome.functionals if is_training else record.functionals,
        training_intervals=outcome.intervals if is_training else None,
    )
    feasibility = replace(
        assess_as_reported(fit, reported, rounds, doubt),
        conflict=uncertified, p_value=p_value, level=level, source=rows.source,
        n_rows=rows.cells.n_rows, is_fragile=bool(is_fragile), cost=cost, plain=fit.measured.plain,
    )  # fmt: skip
    laid_out = None if is_training else layout.lay_out(outcome)
    set_reports(
        estimator, layout.compiled, spread, record.multipliers, laid_out, feasibility,
        ("loss", rows.measure_scores(model.score)[0]), _describe_plain(rows),
    )  # fmt: skip
    set_fit(estimator, fit, record.multipliers, model.periods)
    history = make_history(fit, layout, record, outcome)
    estimator.history_ = history.drop(columns="error")
    estimator.unseen_r2_ = UNKNOWN if is_training else _determination(rows, model.score)
    estimator.adjustment_ = model.affine.as_series()
    if (offsets := model.offsets) is not None:
        groups, shift = offsets.groups_of(fit.data.rows), np.array([model.affine.shift])
        estimator.group_shifts_ = tabulate_shifts(shift, offsets, groups)
    return feasibility


def _describe_plain(rows: PredictedRows) -> PlainModel | None:
    """Describe the model without constraints by the rows that know its scores."""
    if rows.plain_score is None:
        return None
    statistics = rows.lagrangian.at(rows.plain_score).statistics(is_exact=True)
    values = rows.compiled.values(rows.compiled.functionals(statistics))
    return PlainModel(float(statistics.loss[0]), values)


def _measure(rows: PredictedRows, score: Array) -> Outcome:
    """Measure the constraints by the scores of rows."""
    functionals, intervals, of_functionals = rows.intervals(score)
    sources = np.full(len(rows.compiled.constraints), rows.source, dtype=object)
    sampled = Sampled(intervals, of_functionals)
    return Outcome(functionals, intervals, of_functionals, sources, sampled)


def _determination(rows: PredictedRows, score: Array) -> Estimate:
    """Estimate R^2 on rows, with a normal interval of the mean squared loss."""
    problem = rows.lagrangian.rows
    square = (rows.targets - rows.objective.predict(np.asarray(score, np.float64))) ** 2
    weight = problem.objective_weight / problem.total_weight
    loss = float(weight @ square)
    half = 1.96 * float(np.sqrt(weight**2 @ (square - loss) ** 2))
    return determination(Estimate(loss, loss - half, loss + half), problem.scale)
