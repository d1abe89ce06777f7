"""Sampling errors of rows of constraints that are no straight lines, by their tangents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.stats import norm

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.curved_rows import Curve
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, Fractions
from gbm_constrained.statistics.influence import Influence


def scale_parts(
    parts: Sequence[tuple[WeightedFraction, ...] | None], slope: Float
) -> list[WeightedFraction] | None:
    """List the parts of a sum of functionals; None where one is undefined."""
    scaled: list[WeightedFraction] = []
    for of_one, a in zip(parts, slope.tolist(), strict=True):
        if of_one is None:
            return None
        scaled += [replace(part, coefficient=a * part.coefficient) for part in of_one if a]
    return scaled


def find_violated_curves(
    compiled: LinearConstraints, counts: CellCounts, levels: ArrayLike
) -> Bool:
    """Find the curved rows that are violated in the population beyond doubt.

    The test is normal, at the tangent of the worst curve of each constraint. The result has the
    shape of leading axes of the counts, and after them that of the rows.
    """
    beyond = np.zeros((*counts.weight.shape[:-2], len(compiled)), dtype=bool)
    if not compiled.curves.items:
        return beyond
    levels = np.broadcast_to(levels, len(compiled))
    fractions = Fractions.of_constraints(compiled, counts.weight.shape[-2:])
    for place in np.ndindex(*beyond.shape[:-1]):
        one = CellCounts(counts.weight[place], counts.square[place], counts.count[place])
        functionals = fractions.of(one.weight.ravel())
        worst = _find_worst(compiled, functionals)
        errors = _errors_of_tangents(worst, functionals, Influence(fractions, one))
        for curve, error in zip(worst, errors, strict=True):
            violation = curve.value(functionals) - curve.row.bound
            beyond[(*place, curve.rows)] = violation > norm.isf(levels[curve.first]) * error
    return beyond


def _find_worst(compiled: LinearConstraints, functionals: Float) -> list[Curve]:
    """Find the curve of each constraint that is violated most; none where all hold."""
    worst: dict[int, tuple[float, Curve]] = {}
    for curve in compiled.curves.items:
        violation = curve.value(functionals) - curve.row.bound
        j = int(compiled.owner[curve.first])
        if violation > ROUNDING and violation > worst.get(j, (0.0, curve))[0]:
            worst[j] = violation, curve
    return [curve for _, curve in worst.values()]


def _errors_of_tangents(
    curves: Sequence[Curve], functionals: Float, influence: Influence
) -> Float:
    """Compute the standard errors of tangents of curves, shape (n_curves,)."""
    at = [curve.at for curve in curves]
    slopes = [curve.gradient(functionals) for curve in curves]
    of = np.repeat(np.arange(len(curves)), [found.size for found in at])
    places = of, np.concatenate([np.zeros(0, dtype=np.intp), *at])
    shape = len(curves), functionals.size
    combine = sparse.csr_array((np.concatenate([np.zeros(0), *slopes]), places), shape=shape)
    return np.sqrt(influence.variances(combine))
