r"""Scale and shift of a regressor's scores, chosen on held-out rows.

The last step of a classifier moves a threshold. That of a regressor maps scores F to

.. math:: c + s (F - c) + d ,

with c the weighted mean score, a scale s and a shift d. A gap of mean predictions shrinks with the
scale, a mean residual moves with the shift, and both change losses. The pairs of a grid that is
refined around its best point are compared by the criterion of
:mod:`gbm_constrained.decision.choose`.

There the objective is the share of the deviance that predictions leave unexplained, one minus
:math:`D^2`: zero for perfect predictions, and one for the mean target. Means of predictions and of
residuals are violated in standard deviations of the targets, and mean losses in shares of that of
the mean target. So a violation of one is worth as much as the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.row_means import (
    Prediction,
    Residual,
    RowFunction,
    RowLoss,
    row_functions_of,
)
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import VIOLATION_PRICE, choose
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.regression_point import RegressionPoint
from gbm_constrained.problem.regression_rows import RegressionRows
from gbm_constrained.problem.row_functions import row_values
from gbm_constrained.problem.row_owners import acts_in_full, violation_weights
from gbm_constrained.statistics.mean_intervals import MeanIntervals

NORMAL = 1.96  # Half width of a normal interval at level 0.95, in standard errors.
SCALES = np.linspace(0.0, 1.4, 15)  # of the first grid; 1 is one of them
SHIFTS = np.linspace(-1.0, 1.0, 17)  # of the first grid, in standard deviations of the scores
MANY_ROWS = 1e12  # at which groups count that differ by no more than chance
REFINED, N_REFINEMENTS = 5, 3  # Points of later grids along each axis, and their number.

# Chooses one of several candidates by their losses and their violations, (n, m).
Pick: TypeAlias = Callable[[Float, Float], int]


class PredictedRows(EvaluationSet):
    """Rows that a regressor's trees have not seen, and the values of constraints there.

    Parameters
    ----------
    cells, compiled, source, folds
        As of :class:`~gbm_constrained.decision.evaluation_set.EvaluationSet`.
    targets : ndarray of shape (n_samples,)
        Targets.
    objective : RegressionObjective
        The objective, which links scores and predictions.
    half : ndarray of shape (n_functionals,), default=None
        Rows at which a group counts as much as all groups together, see
        :func:`~gbm_constrained.problem.credibility.mix_groups`.
    """

    lagrangian: RegressionLagrangian  # type: ignore[assignment]
    choices: dict[int, AffineChoice]  # type: ignore[assignment]

    def __init__(
        self,
        cells: Cells,
        compiled: LinearConstraints,
        source: str,
        targets: Float,
        objective: RegressionObjective,
        half: Float | None = None,
    ) -> None:
        self.cells, self.compiled, self.source, self.folds = cells, compiled, source, ()
        self.half = half
        self.targets, self.objective = targets, objective
        self.lagrangian = RegressionLagrangian(
            targets,
            cells,
            compiled,
            functions=row_functions_of(compiled.constraints),
            objective=objective,
            weight=cells.rows.weight,
        )
        self.functionals_in = {}
        self.choices = {}
        self.plain_score: Array | None = None  # Scores of boosters without multipliers.

    def intervals(self, score: Array, level: float = 0.95) -> tuple[Float, Float, Float]:
        """Compute functionals, intervals of constraints, and intervals of functionals."""
        functionals = self.compiled.functionals(self.lagrangian.at(score).statistics())
        values = self.row_values(score)
        found = MeanIntervals(self.cells, self.compiled, level=level, values=values)
        return functionals, *found.whole(functionals)

    def row_values(self, score: Array) -> Float:
        """Compute the row functions of each row, (n_samples, n_functions)."""
        f = self.objective.predict(np.asarray(score, np.float64))
        functions = self.lagrangian.rows.functions
        return np.column_stack([row_values(one, self.targets, f) for one in functions])

    @property
    def credible(self) -> PredictedRows:
        """The same rows under constraints whose groups act as far as their rows can tell."""
        return self._apart or self

    @cached_property
    def _apart(self) -> PredictedRows | None:
        compiled = self.compiled.make_credible(self.cells, self.half)
        return None if compiled is self.compiled else self._under(compiled)

    def with_bounds(self, bounds: Float) -> PredictedRows:
        """Return the same rows with other right-hand sides of the constraints, (m,)."""
        return self._under(replace(self.compiled, b=bounds))

    def compare_losses(self, score: Array, other: Array) -> tuple[float, float]:
        """Compute how much more scores lose than others in the mean, and its standard error."""
        problem, values = self.lagrangian.rows, self.objective.values
        more = values(self.targets, np.asarray(score, np.float64))
        more = more - values(self.targets, np.asarray(other, np.float64))
        weight = problem.objective_weight / problem.total_weight
        mean = float(weight @ more)
        return mean, float(np.sqrt(weight**2 @ (more - mean) ** 2))

    def _under(self, compiled: LinearConstraints) -> PredictedRows:
        return PredictedRows(
            self.cells, compiled, self.source, self.targets, self.objective, self.half
        )

    def measure_scores(self, score: Array) -> tuple[float, Float]:
        """Measure the mean loss of scores, and the violation of each row of constraints, (m,)."""
        statistics = RegressionPoint(self.lagrangian.rows, np.asarray(score)).statistics()
        functionals = np.nan_to_num(self.compiled.functionals(statistics))
        return float(statistics.loss[0]), self.compiled.rows_of(functionals) - self.compiled.b


@dataclass(frozen=True)
class Affine:
    """Map of scores: ``scale * score + shift``.

    Parameters
    ----------
    scale, shift : float
        Factor and summand of scores.
    """

    scale: float = 1.0
    shift: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether scores stay as they are."""
        return self.scale == 1.0 and self.shift == 0.0

    def as_series(self) -> pd.Series:
        """Give scale and shift as the attribute ``adjustment_`` has them."""
        return pd.Series({"scale": self.scale, "shift": self.shift}, name="adjustment")

    def __call__(self, score: Array) -> Array:
        """Map scores."""
        return score if self.is_identity else self.scale * score + self.shift


class AffineChoice(NamedTuple):
    """A map of scores that held-out rows have chosen.

    Parameters
    ----------
    affine : Affine
        The map.
    loss : float
        Mean loss of the mapped scores.
    violations : ndarray of shape (m,)
        Their violation of each row of constraints.
    offsets : GroupOffsets or None, default=None
        What is added to the mapped scores of each group, if the group may decide.
    """

    affine: Affine
    loss: float
    violations: Float
    offsets: GroupOffsets | None = None

    def apply(self, score: Array, rows: Rows) -> Array:
        """Map the scores of rows."""
        mapped = self.affine(score)
        return mapped if self.offsets is None else mapped + self.offsets.of(rows)


@dataclass(frozen=True, eq=False)
class Criterion:
    """Units and standard errors by which candidates of a regressor are compared.

    Parameters
    ----------
    least, range : float
        Mean loss of perfect predictions, and what the mean target loses beyond it.
    errors : ndarray of shape (m,)
        Standard error of each row of constraints.
    weights : ndarray of shape (m,)
        Weight of each violation, divided by its unit.
    is_strict : ndarray of shape (m,), bool
        Rows that say nothing of groups, or hold them at any price.
    """

    least: float
    range: float
    errors: Float
    weights: Float
    is_strict: Bool

    @classmethod
    def of(cls, rows: PredictedRows, score: Array) -> Criterion:
        """Find the units of rows, and the standard errors at some scores."""
        problem, is_strict = rows.lagrangian.rows, acts_in_full(rows.compiled)
        errors, weights = standard_errors(rows, score), weigh_violations(problem)
        return cls(*find_deviance(problem), errors, weights, is_strict)

    def share(self, loss: Float | float) -> Float:
        """Express mean losses as shares of the deviance that are left unexplained."""
        return np.asarray((loss - self.least) / self.range)

    def pick(self, losses: Float, violations: Float) -> int:
        """Choose one of several candidates."""
        return choose(
            self.share(losses),
            violations,
            self.errors,
            weights=self.weights,
            is_strict=self.is_strict,
        )

    def pick_map(self, losses: Float, violations: Float) -> int:
        """Choose one of several maps of the same scores.

        A map that meets all constraints is preferred to one that does not where it costs no more
        than a standard error of the violation that is left.
        """
        best = self.pick(losses, violations)
        left = self.weights * violations[best]
        is_met = np.asarray((violations <= ROUNDING).all(axis=1))
        if not is_met.any() or is_met[best]:
            return best
        most = left.max() + (self.weights * self.errors)[left.argmax()]
        met = int(np.argmin(np.where(is_met, losses, np.inf)))
        return met if self.share(losses[met] - losses[best] + self.least) <= most else best

    def best_of(self, found: list[AffineChoice]) -> int:
        """Choose one of several maps."""
        losses, violations = zip(*[(one.loss, one.violations) for one in found], strict=True)
        return self.pick(np.array(losses), np.array(violations))


def find_deviance(problem: RegressionRows) -> tuple[float, float]:
    """Find the mean loss of perfect predictions, and what the mean target loses beyond it."""
    objective, y = problem.objective, problem.targets
    constant = np.full(y.size, problem.constant_score)
    least, most = (
        problem.mean(objective.values(y, score)) for score in (objective.score_of(y), constant)
    )
    return least, max(most - least, np.finfo(np.float64).tiny)


def weigh_violations(problem: RegressionRows) -> Float:
    """Find the weight of the violation of each row of constraints, divided by its unit, (m,)."""
    compiled, tiny = problem.constraints, np.finfo(np.float64).tiny
    units = np.array([_unit_of(one, problem) for one in problem.functions])
    has = np.column_stack(
        [np.diff(compiled.A[:, k :: units.size].indptr) > 0 for k in range(units.size)]
    )
    unit = np.max(np.where(has, units, tiny), axis=1, initial=tiny)
    return np.asarray(violation_weights(compiled) / unit)


def find_largest_multipliers(problem: RegressionRows) -> Float:
    r"""Find the multiplier of each row of constraints that its price is worth, (m,).

    With :math:`\bar\lambda_j = \pi w_j` times the deviance, the least merit over all models is

    .. math:: \min \max_\lambda \; o + \sum_j \lambda_j v_j \quad \text{over} \quad
              \lambda \ge 0, \; \sum_j \lambda_j / \bar\lambda_j \le 1 ,

    so that larger multipliers would pay more than the price. Those of strict rows are unbounded.
    """
    found = VIOLATION_PRICE * find_deviance(problem)[1] * weigh_violations(problem)
    return np.where(acts_in_full(problem.constraints), np.inf, found)


def _unit_of(function: RowFunction, problem: RegressionRows) -> float:
    """Find the unit of a row function: what the mean target, or a deviation, makes of it."""
    if isinstance(function, RowLoss):
        constant = problem.objective.predict(np.full(problem.n_samples, problem.constant_score))
        return problem.mean(row_values(function, problem.targets, constant))
    return problem.scale if isinstance(function, (Prediction, Residual)) else 1.0


def choose_affine(
    rows: PredictedRows,
    score: Array,
    pick: Pick | None = None,
    *,
    has_scale: bool = True,
    is_allowed: Callable[[Affine], bool] = lambda affine: True,
) -> AffineChoice:
    """Choose scale and shift by held-out rows.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    pick : callable, default=None
        Chooses one of several candidates; the criterion at these scores by default.
    has_scale : bool, default=True
        Whether scores can be scaled, and not only shifted.
    is_allowed : callable, default=all
        Whether a map may be chosen.

    Returns
    -------
    AffineChoice
        With the identity, if the scores meet the constraints or no other map is better.
    """
    score = np.asarray(score, dtype=np.float64)
    pick = Criterion.of(rows, score).pick_map if pick is None else pick
    best = AffineChoice(Affine(), *rows.measure_scores(score))
    if (best.violations <= ROUNDING).all():
        return best
    problem = rows.lagrangian.rows
    centre = problem.mean(score)
    unit = float(np.sqrt(problem.mean((score - centre) ** 2))) or 1.0
    point, scales = (1.0, 0.0), SCALES.tolist() if has_scale else [1.0]
    spacing = (SCALES[1] - SCALES[0], SHIFTS[1] - SHIFTS[0])
    grid: Iterator[tuple[float, float]] = product(scales, SHIFTS.tolist())
    for _ in range(1 + N_REFINEMENTS):
        points, found = [point], [best]
        for scale, shift in grid:
            affine = Affine(scale, centre * (1.0 - scale) + shift * unit)
            if (scale, shift) != point and is_allowed(affine):
                points.append((scale, shift))
                found.append(AffineChoice(affine, *rows.measure_scores(affine(score))))
        chosen = pick(np.array([f.loss for f in found]), np.array([f.violations for f in found]))
        best, point = found[chosen], points[chosen]
        around = np.linspace(-1.0, 1.0, REFINED)
        if has_scale:
            scales = np.maximum(point[0] + around * spacing[0], 0.0).tolist()
        grid = product(scales, (point[1] + around * spacing[1]).tolist())
        spacing = (spacing[0] / 2.5, spacing[1] / 2.5)
    return best


def choose_share(rows: PredictedRows, plain: Array, other: Array) -> float:
    """Choose how far to go from the scores of one model to those of another by the same rows.

    Parameters
    ----------
    rows : PredictedRows
        The rows.
    plain : ndarray of shape (n_samples,)
        Scores of the model that knows no constraints.
    other : ndarray of shape (n_samples,)
        Scores of the model under constraints. Strict ones are violated no more than by these.

    Returns
    -------
    float
        Between zero, for the plain scores, and one, which is the first of equals.
    """
    criterion, violations = Criterion.of(rows, plain), rows.measure_scores(other)[1]
    criterion = replace(criterion, errors=np.maximum(violations, 0.0))
    best, shares = 1.0, np.linspace(0.0, 1.0, SHIFTS.size)
    spacing = shares[1]
    for _ in range(1 + N_REFINEMENTS):
        tried = [best, *shares.tolist()]
        moved = ((1.0 - t) * plain + t * other for t in tried)
        found = [AffineChoice(Affine(), *rows.measure_scores(score)) for score in moved]
        best = tried[criterion.best_of(found)]
        shares = np.clip(best + np.linspace(-spacing, spacing, REFINED), 0.0, 1.0)
        spacing /= 2.5
    return best


def standard_errors(rows: PredictedRows, score: Array) -> Float:
    """Estimate the standard error of each row of constraints at some scores, (m,)."""
    compiled, values = rows.compiled, rows.row_values(score)
    intervals = MeanIntervals(rows.cells, compiled, values=values)
    found = np.zeros(len(compiled))
    for j, span in enumerate(compiled.spans):
        own = compiled.owner == j
        influence = np.nan_to_num(intervals.influence(j))
        if compiled.mixing is not None:
            influence = influence @ compiled.mixing[span, span].toarray().T
        R = compiled.R[own][:, span].toarray()
        found[own] = np.sqrt(np.maximum(((R @ (influence.T @ influence)) * R).sum(axis=1), 0.0))
    return np.maximum(found, np.finfo(np.float64).eps)


def credible_rows(rows: PredictedRows, score: Array) -> Float:
    r"""Estimate at how many rows a group counts as much as all groups together, by functional.

    This is Bühlmann and Straub's ratio of the variance within groups to that between them
    ("Glaubwürdigkeit für Schadensätze", 1970),

    .. math:: \hat\tau^2 = \frac{\sum_g n_g (f_g - \bar f)^2 - (G - 1) \hat\sigma^2}
              {N - \sum_g n_g^2 / N} ,

    for each group beyond two, as the largest of many differences is more often chance. It is
    large where groups differ by no more than chance, and zero where there are two.
    """
    compiled, values = rows.compiled, rows.row_values(score)
    statistics = rows.lagrangian.at(score).statistics()
    functionals = compiled.functionals(statistics)
    intervals = MeanIntervals(rows.cells, compiled, values=values)
    found = np.zeros(compiled.constant.size)
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        influence = np.nan_to_num(intervals.influence(j))
        n_rates = max(len(constraint.rates), 1)
        n_groups = len(compiled.groups[j])
        if n_groups < 3:  # As of rates, two groups act in full.
            continue
        for position in range(n_rates):
            at = span.start + np.arange(position, n_groups * n_rates, n_rates)
            f, known = functionals[at], ~np.isnan(functionals[at])
            used = (influence[:, at - span.start] != 0.0).sum(axis=0)
            n = np.where(known, np.maximum(used, 1.0), 0.0)
            total = n.sum()
            squares = n**2 * (influence[:, at - span.start] ** 2).sum(axis=0)
            within = squares.sum() / max(total - known.sum(), 1.0)
            mean = n @ np.nan_to_num(f) / max(total, 1.0)
            between = n @ (np.nan_to_num(f) - mean) ** 2 - (known.sum() - 1) * within
            spread = total - n @ n / max(total, 1.0)
            ratio = within * spread / between if between > 0.0 else MANY_ROWS
            found[at] = min(ratio, MANY_ROWS) * (n_groups - 2)
    return found
