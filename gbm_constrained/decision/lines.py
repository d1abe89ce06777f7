"""Candidates of a search along a line of decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.data.cells import Cells

# Scores closer to each other than this, relative to their size (at least one), count as equal: a
# threshold between them would not survive the rounding of a booster's float32 sums, up to 1e-6 of
# the scores after some hundred trees. Beyond MANY rows the few that are rounded to the other side
# no longer count, while all gaps are small.
RESOLUTION, MANY = 1e-5, 1_000_000


def check_margin(margin: NDArray[Any], cells: Cells) -> Float:
    """Check that scores fit the rows and classes of a partition."""
    n, k = len(cells.rows), cells.classes.size
    shape = (n,) if k == 2 else (n, k)
    margin = np.asarray(margin, dtype=np.float64)
    if margin.shape != shape:
        raise ValueError(
            f"margin has shape {margin.shape}, but there are {n} rows of {k} classes: its shape "
            f"must be {shape}."
        )
    return margin


@dataclass(frozen=True)
class Line:
    """Rows in the order in which they change their decision, and where shifts can stop."""

    order: Codes  # The rows, (n_samples,).
    before: Codes | int  # Decision of each row, not ordered, at the beginning of the line.
    after: Codes | int  # The same at the end.
    shift: Float  # Candidates, ascending, (T,).
    flipped: Codes  # Number of rows that have changed at each candidate.

    def thin(self, most: int) -> Line:
        """Keep about `most` of the candidates, evenly spread over the rows."""
        wanted = np.linspace(0, self.order.size, most - 1)
        middle = np.searchsorted((self.flipped[1:] + self.flipped[:-1]) / 2, wanted)
        keep = np.unique(np.append(middle, np.flatnonzero(self.shift == 0.0)))
        return Line(self.order, self.before, self.after, self.shift[keep], self.flipped[keep])


def are_apart(at: Float, size: Float, n_rows: int = 0) -> Bool:
    """Find the sorted scores that a threshold midway separates from the next ones, shape (n - 1,).

    `at` are the ascending shifts at which rows change their decision, `size` the magnitudes of the
    scores of these rows. They may be some of `n_rows`.
    """
    resolution = RESOLUTION * min(1.0, MANY / max(at.size, n_rows, 1))
    larger = np.maximum(np.maximum(size[1:], size[:-1]), 1.0)
    return np.asarray(np.diff(at) > resolution * larger)


def sort_along_line(
    at: Float, size: Float, before: Codes | int, after: Codes | int, n_rows: int = 0
) -> Line:
    """Sort rows that change their decision where the shift exceeds `at`; some of `n_rows`.

    A threshold lies between two scores of magnitude `size` only if they differ by more than their
    rounding.
    """
    order = np.argsort(at)
    at, size = at[order], size[order]
    cut = np.flatnonzero(are_apart(at, size, n_rows))
    flipped = np.concatenate([[0], cut + 1, [at.size]])
    return Line(order, before, after, stop_at(at, cut), flipped)


def stop_at(at: Float, cut: Codes) -> Float:
    """Put a shift midway after each of some positions, and one by 1 past either end."""
    middle = (at[cut] + at[cut + 1]) / 2
    return np.concatenate([[at[0] - 1.0], middle, [at[-1] + 1.0]])


def threshold_line(margin: Float, n_rows: int = 0) -> Line:
    """List thresholds of two classes, no shift among them, for some of `n_rows` rows."""
    line = sort_along_line(-margin, np.abs(margin), 0, 1, n_rows)
    return with_no_shift(line, int(np.count_nonzero(margin > 0)))


def with_no_shift(line: Line, positive: int) -> Line:
    """Add no shift to the thresholds of two classes, which decides some rows as class 1."""
    i = int(np.searchsorted(line.flipped, positive))
    shift, flipped = line.shift, line.flipped
    if flipped[i] == positive:  # The candidate decides as no shift does.
        shift[i] = 0.0
    else:
        shift, flipped = np.insert(shift, i, 0.0), np.insert(flipped, i, positive)
    return Line(line.order, 0, 1, shift, flipped)
