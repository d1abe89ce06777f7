"""Certified maps of a regressor's scores, and what stands in the way of a certificate.

As for decisions (:mod:`gbm_constrained.decision.guarantees`), candidates are put in order by the
selection rows from the safest on, and tested in that order on certification rows until one fails
(Angelopoulos et al., "Learn then test", 2021, fixed sequence testing). A candidate is the map of
least loss under bounds that are less and less tight. Of the maps that passed, the one of least
loss is returned. Values of rows are bounded by ranges that the user states, and observed values
outside of them are errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.decision.affine import (
    Affine,
    AffineChoice,
    PredictedRows,
    choose_affine,
)
from gbm_constrained.decision.guarantee_checks import (
    GuaranteeRequest,
    check_amounts,
    check_equalities,
    check_rows_set_aside,
)
from gbm_constrained.decision.guarantees import TIGHTENINGS
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.bounded_means import BoundedMeans

ROOM = 1.0  # Standard deviations between the bounds of training and what just earns a certificate.

# Tightenings before all others: the model of all rows may be further from its bounds than the
# boosters of the folds are, and a sequence that begins with a failure certifies nothing.
WIDEST = (16.0, 8.0)


class CertifiedAffine(NamedTuple):
    """A map of scores with the p-values of the constraints on the certification rows.

    Parameters
    ----------
    affine : Affine
        The map.
    p_values : ndarray of shape (n_constraints,)
        P-value of the violation of each constraint.
    level : float
        Largest p-value that earns the certificate.
    """

    affine: Affine
    p_values: Float
    level: float


def check_affine_guarantee(
    rows: PredictedRows, training: LinearConstraints, asked: GuaranteeRequest
) -> None:
    """Refuse a guarantee that certification rows can never give; `training` as for decisions."""
    constraints = rows.compiled.constraints
    if asked.kind == "expected":
        raise asked.refuse(
            constraints[0],
            "it holds in the mean over samples only where values fall along the maps of scores, "
            "as losses do not. Use guarantee='high_probability', or leave the guarantee out.",
        )
    for constraint in constraints:
        for function in row_functions_of([constraint]):
            if not np.isfinite(function.stated_range).all():
                raise asked.refuse(
                    constraint,
                    "values of a row may be as large as they like. Give the smallest and the "
                    "largest of them, as in mean_loss('squared', range=(0, 25)) or "
                    "mean_prediction(range=(0, 100)), or leave the guarantee out.",
                )
    check_amounts(rows, asked)
    check_rows_set_aside(rows, training, asked)
    check_equalities(rows.compiled, asked)
    smallest = BoundedMeans(rows.cells, rows.compiled).smallest_p_values()
    for constraint, p_value in zip(constraints, smallest, strict=True):
        if p_value > asked.delta:
            raise asked.refuse(
                constraint,
                f"even the best predictions of the {rows.cells.n_rows} rows that "
                f"{asked.set_aside} leave a p-value of {p_value:.2g}, above delta={asked.delta:g}."
                f" Give more rows or a larger calibration_fraction, state a smaller range, or "
                f"relax the bound or delta.",
            )


def check_observed(rows: PredictedRows, score: Array) -> None:
    """Refuse stated ranges that rows leave at some scores."""
    values = rows.row_values(score)
    for outside in BoundedMeans(rows.cells, rows.compiled).find_outside(values):
        constraint, (low, high) = rows.compiled.constraints[outside.constraint], outside.limits
        raise ValueError(
            f"constraints: {constraint} states that the value of each row is from {low:g} to "
            f"{high:g}, and {outside.n_rows} of {rows.cells.n_rows} unseen rows ({rows.source}) "
            f"have others, from {outside.observed[0]:g} to {outside.observed[1]:g}: give a range "
            f"that no row leaves."
        )


def tighten_for_certificate(
    compiled: LinearConstraints, certification: PredictedRows, delta: float
) -> LinearConstraints:
    """Give rows of constraints the bounds at which certification rows would certify them, about.

    No bound is tightened by more than half of what predictions could reach, and pairs of rows with
    opposite sides leave half of the room between them.
    """
    tests = BoundedMeans(certification.cells, certification.compiled)
    step = (norm.isf(delta) + ROOM) * tests.deviations()
    step = np.minimum(step, (compiled.b - tests.smallest_values()) / 2.0)
    for pair in tests.opposites:
        step[[*pair]] = np.minimum(step[[*pair]], compiled.b[[*pair]].sum() / 4.0)
    return replace(compiled, b=compiled.b - np.maximum(step, 0.0))


def certify_affine(
    selection: tuple[PredictedRows, Array],
    certification: tuple[PredictedRows, Array],
    delta: float,
    *,
    has_scale: bool = True,
) -> CertifiedAffine:
    """Find the map of least loss that the certification rows certify.

    Where the first one fails, the map that is chosen without a guarantee is returned, for it costs
    less. Its p-values are no smaller than those that failed.

    Parameters
    ----------
    selection, certification : tuple of PredictedRows and ndarray of shape (n_samples,)
        Rows that order the maps, and rows that were used for nothing else, with their scores.
    delta : float
        Probability of a false certificate.
    has_scale : bool, default=True
        Whether scores can be scaled, and not only shifted.
    """
    rows, score = certification
    tests = BoundedMeans(rows.cells, rows.compiled)

    def test(choice: AffineChoice) -> Float:
        return tests.p_values(rows.row_values(choice.affine(score)))

    passed: list[tuple[AffineChoice, Float]] = []
    p_values = np.ones(len(rows.compiled.constraints))
    for choice in _order_maps(selection, tests.deviations(), has_scale=has_scale):
        p_values = test(choice)
        if p_values.max() > delta:  # No map behind this one can pass.
            break
        passed.append((choice, p_values))
    if passed:
        choice, p_values = min(passed, key=lambda one: one[0].loss)
    else:
        choice = choose_affine(*selection, has_scale=has_scale)
        p_values = np.maximum(test(choice), p_values)
    return CertifiedAffine(choice.affine, p_values, delta)


def _order_maps(
    selection: tuple[PredictedRows, Array], deviations: Float, *, has_scale: bool
) -> list[AffineChoice]:
    """List the maps of least loss under bounds that are less and less tight, the safest first.

    Of bounds that are too tight, the map is returned whose nearest bound is furthest away, in
    deviations of the tests. Maps under which rows leave a stated range would fail, and are not
    allowed. Maps that lose no less than the mean score for all rows are left out, unless the
    scores themselves do: equal predictions have no gaps, and are of no use.
    """
    rows, score = selection
    errors = np.maximum(deviations, np.finfo(np.float64).eps)

    def pick(losses: Float, violations: Float) -> int:
        worst = (violations / errors).max(axis=1, initial=0.0)
        return int(np.lexsort((losses, np.maximum(worst, 0.0)))[0])

    tests, choices = BoundedMeans(rows.cells, rows.compiled), dict[Affine, AffineChoice]()

    def stays_inside(affine: Affine) -> bool:
        return not tests.find_outside(rows.row_values(affine(score)))

    for t in (*WIDEST, *TIGHTENINGS):
        aimed = rows.with_bounds(rows.compiled.b - t * deviations)
        choice = choose_affine(
            aimed,
            score,
            pick,
            has_scale=has_scale,
            is_allowed=stays_inside,
        )
        choices.setdefault(choice.affine, choice)
    constant = np.full_like(score, rows.lagrangian.rows.mean(score))
    least, own = rows.measure_scores(constant)[0], rows.measure_scores(score)[0]
    return [one for one in choices.values() if one.loss < least or own >= least]
