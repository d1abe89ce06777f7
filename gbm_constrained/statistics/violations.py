"""Rows of constraints that counted decisions violate in the population, beyond doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.binomial import upper_limit
from gbm_constrained.statistics.counts import Block, CellCounts, blocks_of_rows
from gbm_constrained.statistics.p_values import (
    are_two_binomials,
    p_of_two_binomials,
    p_value_of_blocks,
)
from gbm_constrained.statistics.two_proportions import GAMMA

__all__ = ["find_violated_rows"]


def find_violated_rows(
    compiled: LinearConstraints,
    counts: CellCounts,
    delta: ArrayLike,
    *,
    one_test_each: bool = False,
) -> Bool:
    """Find the rows of constraints that are violated in the population beyond doubt.

    The test rejects that a row *holds*, at level `delta` each: a number, or one for each row. One
    base set has the p-value of :func:`row_p_values` with both sides of the row negated. Several
    base sets have lower limits at ``delta / K`` each, whose sum must exceed the bound. Two
    disjoint ones have the exact test of :func:`row_p_values` where these limits leave the row
    open. Rows with unequal weights count as their effective number in limits. Mean losses and
    empty base sets give False. The result has shape (..., m).

    The exact test takes time. With `one_test_each`, one of a constraint's rows that need it is
    tested: the row furthest beyond its limits, and none where limits refute a row.
    """
    negated = replace(compiled, R=-compiled.R, b=-compiled.b)
    rows, levels = blocks_of_rows(negated), np.broadcast_to(delta, len(compiled)).tolist()
    beyond = np.zeros((*counts.weight.shape[:-2], len(compiled)), dtype=bool)
    room = np.full(beyond.shape, -np.inf)  # Where positive, the exact test may reject.
    limits = dict[tuple[Block, float], Float]()

    def total(blocks: Sequence[Block], level: float) -> Float:
        for block in blocks:
            if (block, level) not in limits:
                limits[block, level] = _upper(block, counts, level)
        return np.asarray(np.sum([limits[block, level] for block in blocks], axis=0))

    for j, (blocks, bound, level) in enumerate(zip(rows, negated.b.tolist(), levels, strict=True)):
        if not blocks:
            continue
        if len(blocks) == 1:
            (block,) = blocks
            weight = block.sum(counts.weight)
            with np.errstate(invalid="ignore", divide="ignore"):
                is_apart = block.sum(counts.weight, block.score) / weight < bound - ROUNDING
            beyond[..., j] = is_apart & (p_value_of_blocks(blocks, bound, counts) <= level)
            continue
        beyond[..., j] = total(blocks, level / len(blocks)) < bound - ROUNDING
        if level > GAMMA and are_two_binomials(blocks, counts):
            # At limits of level sqrt(delta) as few events of both have the probability delta. If
            # the null hypothesis allows these, the p-value is no smaller.
            room[..., j] = bound - ROUNDING - total(blocks, sqrt(level))
    asked = (room > 0.0) & ~beyond
    for own in np.unique(compiled.owner)[:, None] == compiled.owner if one_test_each else ():
        furthest = room[..., own].argmax(axis=-1)[..., None] == np.arange(own.sum())
        asked[..., own] &= furthest & ~beyond[..., own].any(axis=-1, keepdims=True)
    for j in np.flatnonzero(asked.reshape(-1, len(rows)).any(axis=0)).tolist():
        p = p_of_two_binomials(rows[j] or (), negated.b[j], counts, asked[..., j])
        beyond[..., j] |= p <= levels[j]
    return beyond


def _upper(block: Block, counts: CellCounts, delta: float) -> Float:
    """Find the upper limit of the mean of a score at a level; infinite over no row."""
    weight = block.sum(counts.weight)
    n = np.where(weight > 0, block.effective_rows(counts), 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(weight > 0, block.sum(counts.weight, block.score) / weight, 0.0)
        share = np.clip((mean - block.low) / block.width, 0.0, 1.0)
    if block.is_binomial:
        limit = block.low + block.width * upper_limit(share * n, n, delta)
    else:
        limit = mean + block.width * np.sqrt(-log(delta) / (2.0 * n))
    return np.where(weight > 0, np.minimum(limit, block.high), np.inf)
