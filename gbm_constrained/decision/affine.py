r"""Scale and shift of a regressor's scores, chosen on held-out rows.

The last step of a classifier moves a threshold. That of a regressor maps scores F to

.. math:: c + s (F - c) + d ,

with c the weighted mean score, a scale s and a shift d. A gap of mean predictions shrinks with the
scale, a mean residual moves with the shift, and both change losses. Among all pairs on a grid that
is refined around its best points, the one of least mean loss is taken that meets the constraints;
where none meets them, the one that violates them least, in standard errors. Maps that add more
than a twentieth to the mean loss are left out, for multipliers serve the constraints at less cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression import RegressionLagrangian
from gbm_constrained.problem.regression_objectives import RegressionObjective
from gbm_constrained.problem.row_functions import row_values
from gbm_constrained.statistics.mean_intervals import MeanIntervals

NORMAL = 1.96  # Half width of a normal interval at level 0.95, in standard errors.
SCALES = np.linspace(0.0, 1.4, 15)  # of the first grid; 1 is one of them
SHIFTS = np.linspace(-1.0, 1.0, 17)  # of the first grid, in standard deviations of the scores
MAX_COST = 0.05  # Largest share of the mean loss that a map may add to it, without a guarantee.
REFINED, N_REFINEMENTS = 5, 3  # Points of later grids along each axis, and their number.


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
    ) -> None:
        self.cells, self.compiled, self.source, self.folds = cells, compiled, source, ()
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

    def with_bounds(self, bounds: Float) -> PredictedRows:
        """Return the same rows with other right-hand sides of the constraints, (m,)."""
        compiled = replace(self.compiled, b=bounds)
        return PredictedRows(self.cells, compiled, self.source, self.targets, self.objective)


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
    violation, loss : float
        Largest violation in standard errors, and mean loss, of the mapped scores.
    violation_before, loss_before : float
        The same of the scores as they are.
    offsets : GroupOffsets or None, default=None
        What is added to the mapped scores of each group, if the group may decide.
    """

    affine: Affine
    violation: float
    loss: float
    violation_before: float
    loss_before: float
    offsets: GroupOffsets | None = None

    def apply(self, score: Array, rows: Rows) -> Array:
        """Map the scores of rows."""
        mapped = self.affine(score)
        return mapped if self.offsets is None else mapped + self.offsets.of(rows)

    @property
    def cost(self) -> float:
        """What the map adds to the mean loss, as a share of it."""
        return (self.loss - self.loss_before) / max(self.loss_before, np.finfo(float).tiny)


def choose_affine(
    rows: PredictedRows,
    score: Array,
    errors: Float | None = None,
    *,
    has_scale: bool = True,
    max_cost: float = MAX_COST,
    is_allowed: Callable[[Affine], bool] = lambda affine: True,
) -> AffineChoice:
    """Choose scale and shift by held-out rows.

    Parameters
    ----------
    rows : PredictedRows
        Held-out rows.
    score : ndarray of shape (n_samples,)
        Their scores.
    errors : ndarray of shape (m,), default=None
        Unit of each row of constraints; :func:`standard_errors` of these scores by default.
    has_scale : bool, default=True
        Whether scores can be scaled, and not only shifted.
    max_cost : float, default=MAX_COST
        Largest share of the mean loss that a map may add to it.
    is_allowed : callable, default=all
        Whether a map may be chosen.

    Returns
    -------
    AffineChoice
        With the identity, if the scores meet the constraints or no other map is better.
    """
    score = np.asarray(score, dtype=np.float64)
    search = _Search(rows, score, standard_errors(rows, score) if errors is None else errors)
    before = search.measure(1.0, 0.0)
    if before[0] <= 0.0:
        return AffineChoice(Affine(), *before, *before)
    most = before[1] + max_cost * abs(before[1])

    def rank(at: tuple[float, float]) -> tuple[bool, float, float]:
        violation, loss = search.measure(*at)
        return loss > most or not is_allowed(search.affine(*at)), violation, loss

    best, point = (False, *before), (1.0, 0.0)
    spacing = (SCALES[1] - SCALES[0], SHIFTS[1] - SHIFTS[0])
    scales = SCALES.tolist() if has_scale else [1.0]
    grid: Iterator[tuple[float, float]] = product(scales, SHIFTS.tolist())
    for _ in range(1 + N_REFINEMENTS):
        ranked = min((rank(at), at) for at in grid)
        if ranked[0] < best:
            best, point = ranked
        around = np.linspace(-1.0, 1.0, REFINED)
        if has_scale:
            scales = np.maximum(point[0] + around * spacing[0], 0.0).tolist()
        grid = product(scales, (point[1] + around * spacing[1]).tolist())
        spacing = (spacing[0] / 2.5, spacing[1] / 2.5)
    return AffineChoice(search.affine(*point), *best[1:], *before)


class _Search:
    """Ranks of maps of the scores of held-out rows."""

    def __init__(self, rows: PredictedRows, score: Array, errors: Float) -> None:
        self.rows, self.score, self.errors = rows, score, errors
        problem = rows.lagrangian.rows
        self.centre = problem.mean(score)
        self.unit = float(np.sqrt(problem.mean((score - self.centre) ** 2))) or 1.0

    def affine(self, scale: float, shift: float) -> Affine:
        """Make the map of a scale around the mean score, and a shift in deviations of scores."""
        return Affine(scale, self.centre * (1.0 - scale) + shift * self.unit)

    def measure(self, scale: float, shift: float) -> tuple[float, float]:
        """Measure a map: its largest violation in standard errors, and its mean loss."""
        return measure_scores(self.rows, self.affine(scale, shift)(self.score), self.errors)


def measure_scores(rows: PredictedRows, score: Array, errors: Float) -> tuple[float, float]:
    """Measure scores of rows: their largest violation in standard errors, and their mean loss."""
    statistics = rows.lagrangian.at(score).statistics()
    compiled = rows.compiled
    functionals = np.nan_to_num(compiled.functionals(statistics))
    violation = (compiled.rows_of(functionals) - compiled.b - ROUNDING) / errors
    return max(float(violation.max(initial=0.0)), 0.0), float(statistics.loss[0])


def standard_errors(rows: PredictedRows, score: Array) -> Float:
    """Estimate the standard error of each row of constraints at some scores, (m,).

    Rows of one constraint have the largest of theirs, so that its worst group stays the worst.
    """
    compiled = rows.compiled
    _, _, of_functionals = rows.intervals(score)
    halves = np.nan_to_num(np.diff(of_functionals, axis=1)[:, 0]) / (2.0 * NORMAL)
    errors = np.sqrt(abs(compiled.R).power(2) @ halves**2)
    largest = np.zeros(len(compiled.constraints))
    np.maximum.at(largest, compiled.owner, errors)
    found: Float = np.maximum(largest[compiled.owner], np.finfo(np.float64).eps)
    return found
