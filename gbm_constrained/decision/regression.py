r"""Scale and shift of the scores of a regressor.

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

Scores F of the rows of group g become

.. math:: F + d_g \quad \text{or} \quad s F + d_g ,

with the common scale s that is best for all rows. A shift
moves the predictions of the group, or multiplies them by :math:`e^{d_g}` under a log link.
The shifts have the least mean loss of those that meet the constraints; where none do, those that
violate them least, in standard errors. Losses and means are sums over groups, so that
:mod:`gbm_constrained.decision.search` finds the best shifts of a grid, which is refined
around them.

Scale and shift of all rows stay alone where they are better.

Multipliers bring calibration errors down in training. Where they leave an error above its bound on
held-out rows, scores F are mapped to :math:`s F + d` with the scale and the shift of maximum
likelihood there (:mod:`gbm_constrained.decision.rules`, Platt, 1999). Trees carry the
map in their leaves. Decisions stay as they are, as the threshold is mapped with the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.optimize import nnls

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.rates import Prediction, Residual, RowLoss, row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import VIOLATION_PRICE, choose
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.rules import calibrate_scores
from gbm_constrained.decision.search import GroupCandidates, PerGroupSearch
from gbm_constrained.problem.linear_constraints import (
    LinearConstraints,
    acts_in_full,
    violation_weights,
)
from gbm_constrained.problem.losses import RegressionObjective, row_derivatives, row_values
from gbm_constrained.problem.regression import (
    RegressionLagrangian,
    RegressionPoint,
    RegressionRows,
)
from gbm_constrained.statistics.intervals import MeanIntervals

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
        :func:`~gbm_constrained.problem.linear_constraints.find_half`.
    """

    lagrangian: RegressionLagrangian
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
        functions, weight = row_functions_of(compiled.constraints), cells.rows.weight
        lagrangian = RegressionLagrangian(
            targets, cells, compiled, functions=functions, objective=objective, weight=weight
        )
        super().__init__(cells, compiled, source, lagrangian=lagrangian)
        self.half, self.targets, self.objective = half, targets, objective
        self.plain_score: Array | None = None  # Scores of boosters without multipliers.

    def intervals(self, score: Array, level: float = 0.95) -> tuple[Float, Float, Float]:
        """Compute functionals, intervals of constraints, and intervals of functionals."""
        functionals = self.compiled.functionals(self.lagrangian.at(score).statistics())
        values = self.row_values(score)
        found = MeanIntervals(self.cells, self.compiled, values=values)
        return functionals, *found.complete(functionals, level=level)

    def row_values(self, score: Array) -> Float:
        """Compute the row functions of each row, (n_samples, n_functions)."""
        f = self.objective.predict(np.asarray(score, np.float64))
        functions = self.lagrangian.rows.functions
        return np.column_stack([row_values(one, self.targets, f) for one in functions])

    def compare_losses(self, score: Array, other: Array) -> tuple[float, float]:
        """Compute how much more scores lose than others in the mean, and its standard error."""
        problem, values = self.lagrangian.rows, self.objective.values
        more = values(self.targets, np.asarray(score, np.float64))
        more = more - values(self.targets, np.asarray(other, np.float64))
        weight = problem.objective_weight / problem.total_weight
        mean = float(weight @ more)
        return mean, float(np.sqrt(weight**2 @ (more - mean) ** 2))

    def under(self, compiled: LinearConstraints) -> Self:
        """Return the same rows under other constraints on them."""
        targets, objective = self.targets, self.objective
        return type(self)(self.cells, compiled, self.source, targets, objective, self.half)

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
    def from_rows(cls, rows: PredictedRows, score: Array) -> Criterion:
        """Find the units of rows, and the standard errors at some scores."""
        problem, is_strict = rows.lagrangian.rows, acts_in_full(rows.compiled)
        errors, weights = standard_errors_of_numbers(rows, score), weigh_violations(problem)
        return cls(*find_deviance(problem), errors, weights, is_strict)

    def share(self, loss: Float | float) -> Float:
        """Express mean losses as shares of the deviance that are left unexplained."""
        return np.asarray((loss - self.least) / self.range)

    def pick(self, losses: Float, violations: Float) -> int:
        """Choose one of several candidates."""
        shares, strict = self.share(losses), self.is_strict
        return choose(shares, violations, self.errors, weights=self.weights, is_strict=strict)

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
    """Find the weight of the violation of each row of constraints, divided by its unit, (m,).

    The unit is the mean loss of the mean target, or a standard deviation of the targets.
    """
    compiled, tiny = problem.constraints, np.finfo(np.float64).tiny
    y, units = problem.targets, np.ones(len(problem.functions))
    constant = problem.objective.predict(np.full(problem.n_samples, problem.constant_score))
    for k, function in enumerate(problem.functions):
        if isinstance(function, RowLoss):
            units[k] = problem.mean(row_values(function, y, constant))
        elif isinstance(function, (Prediction, Residual)):
            units[k] = problem.scale
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
    pick = Criterion.from_rows(rows, score).pick_map if pick is None else pick
    best = AffineChoice(Affine(), *rows.measure_scores(score))
    if (best.violations <= ROUNDING).all():
        return best
    problem = rows.lagrangian.rows
    centre = problem.mean(score)
    unit = float(np.sqrt(problem.mean((score - centre) ** 2))) or 1.0
    # The first grid has scales around one, and shifts in standard deviations of the scores.
    all_scales, shifts = np.linspace(0.0, 1.4, 15), np.linspace(-1.0, 1.0, 17)
    point, scales = (1.0, 0.0), all_scales.tolist() if has_scale else [1.0]
    spacing = (all_scales[1] - all_scales[0], shifts[1] - shifts[0])
    grid: Iterator[tuple[float, float]] = product(scales, shifts.tolist())
    for _ in range(4):
        points, found = [point], [best]
        for scale, shift in grid:
            affine = Affine(scale, centre * (1.0 - scale) + shift * unit)
            if (scale, shift) != point and is_allowed(affine):
                points.append((scale, shift))
                found.append(AffineChoice(affine, *rows.measure_scores(affine(score))))
        chosen = pick(np.array([f.loss for f in found]), np.array([f.violations for f in found]))
        best, point = found[chosen], points[chosen]
        around = np.linspace(-1.0, 1.0, 5)
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
    criterion, violations = Criterion.from_rows(rows, plain), rows.measure_scores(other)[1]
    criterion = replace(criterion, errors=np.maximum(violations, 0.0))
    best, shares = 1.0, np.linspace(0.0, 1.0, 17)
    spacing = shares[1]
    for _ in range(4):
        tried = [best, *shares.tolist()]
        moved = ((1.0 - t) * plain + t * other for t in tried)
        found = [AffineChoice(Affine(), *rows.measure_scores(score)) for score in moved]
        best = tried[criterion.best_of(found)]
        shares = np.clip(best + np.linspace(-spacing, spacing, 5), 0.0, 1.0)
        spacing /= 2.5
    return best


def standard_errors_of_numbers(rows: PredictedRows, score: Array) -> Float:
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
            # Groups that differ by no more than chance count at very many rows.
            ratio = within * spread / between if between > 0.0 else np.inf
            found[at] = min(ratio, 1e12) * (n_groups - 2)
    return found


N_SHIFTS = 97  # of each group on a grid, of which the middle one is the best so far
N_HALVINGS = 8  # of the interval of the least violation, where the constraints cannot be met


def list_group_shifts(
    rows: PredictedRows,
    score: Array,
    common: AffineChoice,
    groups: GroupOffsets,
    criterion: Criterion,
) -> list[AffineChoice]:
    """List the best shifts of groups by held-out rows, beside and in the place of a common map.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    common : AffineChoice
        The best scale and shift of all rows.
    groups : GroupOffsets
        The groups.
    criterion : Criterion
        Standard errors of the constraints.

    Returns
    -------
    list of AffineChoice
        The common map without offsets first. Groups of few held-out rows have offsets of zero.
    """
    none = replace(groups, values=np.zeros(len(groups.levels)))
    found = [common._replace(offsets=none)]
    if (common.violations <= 0.0).all() and common.affine.is_identity:
        return found
    largest = np.zeros(len(rows.compiled.constraints))
    owner = rows.compiled.owner
    np.maximum.at(largest, owner, criterion.errors)  # The worst group stays the worst.
    for affine in dict.fromkeys((Affine(), common.affine)):
        mapped = np.asarray(affine(score), dtype=np.float64)
        offsets = replace(groups, values=_search_grids(rows, mapped, groups, largest[owner]))
        moved = mapped + offsets.of(rows.cells.rows)
        found.append(AffineChoice(affine, *rows.measure_scores(moved), offsets))
    return found


def find_prices(rows: PredictedRows, score: Array, criterion: Criterion) -> Float:
    r"""Find the multipliers under which shifts of the cells of rows would have the least merit.

    With curvatures h of the loss and slopes A of the constraints, shifts d whose loss and largest
    violation t are least, in the units of the criterion, solve

    .. math:: \min_{d, t \ge 0} \; \sum_c h_c d_c^2 / 2 + t + \epsilon t^2 / 2
              \quad \text{s.t.} \quad v + A d \le t ,

    where t is zero for strict rows. That is a least distance problem, whose multipliers
    non-negative least squares give (Lawson and Hanson, "Solving least squares problems", 1974,
    chapter 23). Predictions that know no group need larger ones. They are zero where no shifts
    meet the strict rows.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    criterion : Criterion
        Units of the loss and of the constraints, and which rows are strict.

    Returns
    -------
    ndarray of shape (m,)
    """
    problem, compiled = rows.lagrangian.rows, rows.compiled
    cells, n_functions = rows.cells, len(problem.functions)
    score = np.asarray(score, dtype=np.float64)
    f = problem.objective.predict(score)
    inner = f if problem.objective.has_log_link else 1.0
    A = np.zeros((len(compiled), len(cells)))
    for k, function in enumerate(problem.functions):
        slope = row_derivatives(function, problem.targets, f, problem.scale)[0] * inner
        mean = cells.total(problem.row_weight * slope) / problem.divisor
        A += compiled.A[:, k::n_functions].toarray() * mean
    curvature = problem.objective.derivatives(problem.targets, score, problem.scale)[1]
    h = cells.total(problem.objective_weight * curvature) / problem.total_weight
    has_rows, weights = h > 0.0, criterion.weights
    G = -A[:, has_rows] * weights[:, None] / np.sqrt(h[has_rows] / criterion.range)
    # Of s = sqrt(epsilon) t + 1 / sqrt(epsilon), whose square is linear in t up to epsilon.
    root = np.sqrt(1e-2)  # epsilon: the largest violation has a curvature beside its price
    of_s = np.append(np.where(criterion.is_strict, 0.0, 1.0 / root), 1.0)
    least = np.append(weights * rows.measure_scores(score)[1], 0.0) + of_s / root
    G = np.vstack([G, np.zeros(G.shape[1])])
    E = np.vstack([G.T, of_s, least])
    unit = np.maximum(np.linalg.norm(E, axis=0), np.finfo(np.float64).tiny)
    found, _ = nnls(E / unit, np.eye(len(E))[-1])
    left = 1.0 - least @ (found / unit)
    if left <= 1e-6:  # Square of the distance from the constraints, below which none meets them.
        return np.zeros(len(compiled))
    return np.asarray((found / unit / left)[:-1] * weights * criterion.range)


def _tabulate_shifts(
    problem: RegressionRows, all_scores: Float, index: Codes, used: Codes, combine: Any
) -> Callable[[Float], GroupCandidates]:
    """Make what lists shifts of some rows, with what these add to the loss and the constraints.

    Parameters
    ----------
    problem : RegressionRows
        All held-out rows.
    all_scores : ndarray of shape (n_samples,)
        Scores of all rows.
    index : ndarray of int of shape (n_part,)
        Positions of the rows that are shifted together.
    used : ndarray of int of shape (n_functionals,)
        Functionals that rows of constraints depend on.
    combine : sparse array of shape (m, n_functionals)
        Coefficients of these in the rows.
    """
    shape = index.size, len(problem.cells)
    share = sparse.csr_array(shape)
    for view in problem.cells.take(index).views:
        weight = view.weigh(problem.row_weight[index]) / problem.divisor[view.codes]
        share = share + sparse.csr_array((weight, (np.arange(index.size), view.codes)), shape)
    U, n_functions = problem.constraints.U[used], len(problem.functions)
    # Coefficients of the rows' values in the functionals, (n_functionals, n_part), by function.
    shares: list[Any] = [U[:, k::n_functions] @ share.T for k in range(n_functions)]
    y = problem.targets[index, None]
    share_of_loss = problem.objective_weight[index] / problem.total_weight

    def tabulate(shifts: Float) -> GroupCandidates:
        # Values of rows at several shifts are tables of at most about a million numbers.
        n_blocks = -(-shifts.size * index.size // (1 << 20))
        losses, parts = [], []
        for block in np.array_split(shifts, max(min(n_blocks, shifts.size), 1)):
            score = all_scores[index, None] + block
            f = problem.objective.predict(score)
            of_block = np.zeros((used.size, block.size))
            for of_rows, function in zip(shares, problem.functions, strict=True):
                of_block += of_rows @ row_values(function, y, f)
            losses.append(share_of_loss @ problem.objective.values(y, score))
            parts.append(of_block)
        of_shifts = np.concatenate(parts, axis=1)
        return GroupCandidates(shifts, np.concatenate(losses), of_shifts, combine @ of_shifts)

    return tabulate


def _search_grids(rows: PredictedRows, score: Float, groups: GroupOffsets, errors: Float) -> Float:
    """Find the shift of each group, (n_groups,), on one grid after another.

    Each grid is around the best shifts of the one before, and narrower by a factor of six.
    """
    compiled = rows.compiled
    kept = np.flatnonzero(compiled.is_known)
    own = groups.searchable(rows.cells.rows)
    present = np.unique(own[own >= 0]).tolist()
    indices = (np.flatnonzero(own == g) for g in (-1, *present))
    problem, combine = rows.lagrangian.rows, compiled.R[kept]
    used = np.unique(combine.indices)
    combine = combine[:, used]
    others, *parts = (_tabulate_shifts(problem, score, index, used, combine) for index in indices)
    none = others(np.zeros(1))
    fixed, middle = np.append(none.error, none.rates), N_SHIFTS // 2
    best, width = np.zeros(len(groups.levels)), float(np.ptp(score)) or 1.0
    for _ in range(7):
        steps = np.linspace(-width, width, N_SHIFTS)
        width /= 6.0
        tables = [part(best[g] + steps) for g, part in zip(present, parts, strict=True)]
        search = PerGroupSearch(tables, present, best, fixed, kept, combine, starts=(middle,))
        if (found := search.find(compiled.b)) is not None:
            best = found.values
            continue
        # Where no shifts meet the constraints, the least violation in standard errors is found.
        rates = sum((table.rates[:, middle] for table in tables), fixed[1:])
        excess = (rates - compiled.b[kept]) / errors[kept]
        low, high = 0.0, float(excess.max(initial=0.0))
        for _ in range(N_HALVINGS):
            half = (low + high) / 2.0
            if (found := search.find(compiled.b + half * errors)) is None:
                low = half
            else:
                best, high = found.values, half
    return best


def choose_map(rows: EvaluationSet, margin: Array) -> Affine:
    """Choose the map of the scores of two classes.

    Parameters
    ----------
    rows : EvaluationSet
        Held-out rows.
    margin : ndarray of shape (n_samples,)
        Their scores.

    Returns
    -------
    Affine
        The identity, if no calibration error is above its bound, or the map makes none smaller.
    """
    is_of_bins = np.diff(rows.compiled.row_table("residuals").indptr) > 0

    def largest_violation(margin: Array) -> float:
        return float(rows.violations(margin)[is_of_bins].max(initial=0.0))

    before = largest_violation(margin) if is_of_bins.any() else 0.0
    if not before > 0.0:
        return Affine()
    of_rows, inside = rows.cells.rows, rows.cells.labelled[rows.cells.codes]
    weight = None if of_rows.weight is None else of_rows.weight[inside]
    factors, scale = calibrate_scores(margin[inside], of_rows.y[inside], 2, weight)
    found = Affine(scale, float(np.log(factors[0]) - np.log(factors[1])))
    return found if largest_violation(found(margin)) < before else Affine()
