"""The threshold of two classes under which a given share of the weight is decided as class 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.communicator import Communicator, SingleMachine
from gbm_constrained.decision.line_tables import LineTable
from gbm_constrained.decision.lines import threshold_line
from gbm_constrained.decision.score_tables import ScoredKinds, ScoreTable

# Rows up to which all scores are sorted, and intervals of scores that narrow the search beyond.
SORTED_ROWS, INTERVALS = 100_000, 4096


def shift_for_share(
    margin: Array,
    share: float,
    weight: Array,
    communicator: Communicator = SingleMachine(),  # noqa: B008 - has no state
) -> Float:
    """Find the shift under which about a given share of the weight is decided as class 1.

    Of many rows, only those are sorted whose scores are near the threshold. To sort all of them
    takes ten times the memory of the scores. Where machines hold different rows, whose weights add
    up without rounding, tables of bins take the place of the sort, and the shift is the same.
    """
    margin = np.asarray(margin)
    if not communicator.holds_all_rows:
        return _search_tables(margin, share, weight, communicator)
    if margin.size > SORTED_ROWS:
        for within in _surround(margin, share, weight):
            if (found := _search(margin, share, weight, within)) is not None:
                return found
    found = _search(margin, share, weight, (-np.inf, np.inf))
    assert found is not None
    return found


def _surround(margin: Array, share: float, weight: Array) -> Iterator[tuple[float, float]]:
    """Iterate over scores on both sides of the threshold, the nearest ones first.

    There are none where all scores are alike, or some are infinite.
    """
    low, high = float(margin.min()), float(margin.max())
    if not (np.isfinite([low, high]).all() and low < high):
        return
    of_interval, ends = np.histogram(margin, INTERVALS, (low, high), weights=weight)
    above = of_interval[::-1].cumsum()[::-1]  # Weight of scores from the interval on.
    at = int(np.searchsorted(-above, -share * weight.sum()))
    width = 2
    while width < INTERVALS:
        below, beyond = at - width, at + width
        yield (
            float(ends[below]) if below > 0 else -np.inf,
            float(ends[beyond]) if beyond < INTERVALS else np.inf,
        )
        width *= 16


def _search(
    margin: Array, share: float, weight: Array, within: tuple[float, float]
) -> Float | None:
    """Search thresholds between two scores; None if the best one may lie outside."""
    low, high = within
    near = (margin >= low) & (margin <= high)
    of_near, above = weight[near], float(weight[margin > high].sum())
    line = threshold_line(margin[near].astype(np.float64), margin.size)
    reached = above + np.concatenate([[0.0], np.cumsum(of_near[line.order])])
    missed = reached[line.flipped] / weight.sum() - share
    # The first and the last threshold decide all near rows alike, and may do so with others.
    has_others_above, has_others_below = bool(np.isfinite(high)), bool(np.isfinite(low))
    kept = slice(int(has_others_above), line.shift.size - int(has_others_below))
    missed, shift = missed[kept], line.shift[kept]
    if not missed.size:
        return None
    if (has_others_above and missed[0] >= 0) or (has_others_below and missed[-1] <= 0):
        return None
    return shift[[np.abs(missed).argmin()]]


def _search_tables(
    margin: Array, share: float, weight: Array, communicator: Communicator
) -> Float:
    """Search thresholds of the rows of all machines."""
    kinds, n_rows = np.zeros(margin.size, dtype=np.intp), sum(communicator.gather(margin.size))
    of_rows = ScoredKinds(margin, kinds, np.zeros(1, np.intp), weight, None, communicator, n_rows)
    table = LineTable(ScoreTable.of(of_rows), 0, 1)
    while True:
        line, reached = table.thresholds, np.concatenate([[0.0], np.cumsum(table.weight)])
        missed = reached / reached[-1] - share
        chosen = int(np.abs(missed[line.flipped]).argmin())
        least, shift = abs(missed[line.flipped[chosen]]), line.shift[chosen]
        # The share grows with the shift: inside of a bin it is between those at its ends.
        first, last = missed[table.stops.flipped[:-1]], missed[table.stops.flipped[1:]]
        nearest = np.maximum(np.maximum(first, -last), 0.0)
        is_before = -table.table.high[table.bins] < shift
        is_better = (nearest < least) | ((nearest == least) & is_before)
        if not (is_open := is_better & table.may_be_split).any():
            return np.array([shift])
        table = table.split(is_open)
