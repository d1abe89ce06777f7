"""Splits of rows into folds, by cell or by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from gbm_constrained._typing import Codes
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.row_hash import hash_numbers, hash_texts

BINS = 256  # Intervals of hashes by which the rows of a cell are counted; a power of two.


@dataclass(frozen=True)
class Fold:
    """Positions of the rows that a booster is grown on, and of its held-out rows."""

    training: Codes
    held: Codes


def folds_of(parts: Sequence[Codes], n_rows: int) -> list[Fold]:
    """Make a fold of each part that is held out; all other rows are trained on."""
    everyone = np.arange(n_rows)
    return [Fold(np.setdiff1d(everyone, part, assume_unique=True), part) for part in parts]


def parts_by_cell(
    rows: Codes, cells: Cells, shares: Sequence[float], random_state: np.random.RandomState
) -> list[Codes]:
    """Split rows at random into parts, ascending, with given shares of every cell."""
    order = random_state.permutation(rows)
    # Small types are sorted by their bits, which takes a fraction of the time.
    order = order[np.argsort(cells.views[0].small_codes[order], kind="stable")]
    # Each cell is a run of positions in this order. A part takes positions at even distances, and
    # so has its share of each cell, as nearly as whole rows allow.
    if len(set(shares)) == 1:
        return [np.sort(order[i :: len(shares)]) for i in range(len(shares))]
    parts, rest = [], 1.0
    for share in shares[:-1]:
        steps = np.arange(order.size + 1) * (share / rest) + random_state.random_sample()
        taken = np.diff(np.floor(steps)) > 0
        parts.append(np.sort(order[taken]))
        order, rest = order[~taken], rest - share
    return [*parts, np.sort(order)]


def parts_by_hash(
    rows: Codes,
    cells: Cells,
    shares: Sequence[float],
    random_state: np.random.RandomState,
    groups: NDArray[Any] | None = None,
) -> list[Codes]:
    """Split rows of several machines into parts, ascending, with given shares of every cell.

    The number of a row decides which part it is in, wherever it is. Rows of a cell are counted by
    :data:`BINS` intervals of their hashes, and a part takes consecutive intervals that hold its
    share. Rows of one of the `groups` stay together, and cells then have their shares on average.
    """
    seed = int(random_state.randint(np.iinfo(np.int32).max))
    ends = np.cumsum(shares)[:-1]
    if groups is not None:
        codes, names = pd.factorize(groups[rows])
        of_names = hash_texts([str(name) for name in names], seed)
        at = (of_names / 2.0**64)[codes]
    else:
        assert cells.rows.machine.numbers is not None
        hashes = hash_numbers(cells.rows.machine.numbers[rows], seed)
        view = cells.views[0]
        place = view.small_codes[rows].astype(np.intp) * BINS
        place += (hashes >> np.uint64(64 - BINS.bit_length() + 1)).astype(np.intp)
        counts = np.bincount(place, minlength=len(view) * BINS).astype(np.float64)
        counts = cells.reduce_sum(counts).reshape(-1, BINS)
        middle = counts.cumsum(axis=1) - counts / 2.0
        middle /= np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        # A small cell begins anywhere, so that its few rows may be in every part.
        begin = hash_numbers(np.arange(len(view)), seed) / 2.0**64
        at = np.mod(middle + begin[:, None], 1.0).ravel()[place]
    part = np.searchsorted(ends, at, side="right")
    return [rows[part == i] for i in range(len(shares))]


def parts_by_group(
    rows: Codes,
    cells: Cells,
    n_parts: int,
    groups: NDArray[Any],
    n_samples: int,
    random_state: np.random.RandomState,
) -> list[Codes]:
    """Split rows into parts of about equal size that share no group.

    Rows from `n_samples` on are of further data sets, and do not count as groups to split.
    """
    found = np.unique(groups[rows[rows < n_samples]]).size
    if found < n_parts:
        raise ValueError(
            f"groups has {found} different values, and the rows are to be split into {n_parts} "
            f"parts that share none (n_folds, or one over holdout_fraction or "
            f"calibration_fraction): give more groups, or ask for fewer parts."
        )
    splitter = StratifiedGroupKFold(n_parts, shuffle=True, random_state=random_state)
    codes = cells.codes[rows]
    # A cell with fewer rows than parts is no stratum, and joins the largest cell.
    rare = np.bincount(codes) < n_parts
    codes = np.where(rare[codes], np.bincount(codes).argmax(), codes)
    return [rows[held] for _, held in splitter.split(np.zeros(rows.size), codes, groups[rows])]
