"""Sampling errors of rows of constraints that are no straight lines, by their tangents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.curved_rows import Curve
from gbm_constrained.problem.functionals import WeightedFraction
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, blocks_of, functionals_of


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


def standard_error_of_sum(parts: Sequence[WeightedFraction], counts: CellCounts) -> float:
    """Compute the standard error of a sum of fractions by the influence of each row.

    A row's influence on a mean is its score less the mean, over the weight of the base set (the
    delta method). Rows of several base sets have the sum of their influences.
    """
    influence = np.zeros_like(counts.weight)
    for block in blocks_of(parts):
        total = block.sum(counts.weight)
        if not total > 0.0:
            return np.nan
        influence[block.cells] += (block.score - block.mean(counts.weight)) / total
    return float(np.sqrt((influence**2 * counts.square).sum()))


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
    for place in np.ndindex(*beyond.shape[:-1]):
        one = CellCounts(counts.weight[place], counts.square[place], counts.count[place])
        functionals = functionals_of(compiled, one)
        worst: dict[int, tuple[float, Curve]] = {}
        for curve in compiled.curves.items:
            violation = curve.value(functionals) - curve.row.bound
            j = int(compiled.owner[curve.first])
            if violation > ROUNDING and violation > worst.get(j, (0.0, curve))[0]:
                worst[j] = violation, curve
        for violation, curve in worst.values():
            parts = [compiled.parts[k] for k in curve.at]
            scaled = scale_parts(parts, curve.gradient(functionals))
            if scaled is not None:
                error = standard_error_of_sum(scaled, one)
                beyond[(*place, curve.rows)] = violation > norm.isf(levels[curve.first]) * error
    return beyond
