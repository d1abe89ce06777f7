"""Sampling errors of rows of constraints that are no straight lines, by their tangents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, Fractions
from gbm_constrained.statistics.influence import variances_of_tables


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
    shape = counts.weight.shape[-2:]
    weight, square = (of.reshape(-1, shape[0] * shape[1]) for of in (counts.weight, counts.square))
    fractions, found = Fractions.of_constraints(compiled, shape), beyond.reshape(-1, len(compiled))
    functionals = fractions.of(weight)
    quantiles = norm.isf(np.broadcast_to(levels, len(compiled)))
    curves = compiled.curves.items
    violations = np.array([curve.values(functionals) - curve.row.bound for curve in curves])
    violations = np.where(violations > ROUNDING, violations, 0.0)
    owner = compiled.owner[[curve.first for curve in curves]]
    for own in (np.flatnonzero(owner == j) for j in np.unique(owner)):
        worst = own[violations[own].argmax(axis=0)]
        for k in np.unique(worst):
            curve, at = curves[k], np.flatnonzero((worst == k) & (violations[k] > 0.0))
            slopes = np.zeros((at.size, functionals.shape[1]))
            for slope, one in zip(slopes, functionals[at], strict=True):
                slope[curve.at] = curve.gradient(one)
            errors = np.sqrt(variances_of_tables(fractions, slopes, weight[at], square[at]))
            is_beyond = violations[k, at] > quantiles[curve.first] * errors
            found[at, curve.rows] = is_beyond[:, None]
    return found.reshape(beyond.shape)
