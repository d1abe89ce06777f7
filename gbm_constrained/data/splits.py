"""Splits of rows into folds, by cell or by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from gbm_constrained._typing import Codes
from gbm_constrained.data.cells import Cells


@dataclass(frozen=True)
class Fold:
    """Rows that a booster is grown on, and rows that it is measured on.

    Parameters
    ----------
    training, held : Positions among all rows of the fit.
    """

    training: Codes
    held: Codes


def parts_by_cell(
    rows: Codes, cells: Cells, shares: Sequence[float], random_state: np.random.RandomState
) -> list[Codes]:
    """Split rows at random into parts with given shares of every cell."""
    order = random_state.permutation(rows)
    order = order[np.argsort(cells.codes[order], kind="stable")]
    # Positions in the order of cells, taken by a part at even distances: each cell, being a run of
    # positions, is spread as evenly as whole rows allow.
    if len(set(shares)) == 1:
        return [np.sort(order[i :: len(shares)]) for i in range(len(shares))]
    parts, rest = [], 1.0
    for share in shares[:-1]:
        steps = np.arange(order.size + 1) * (share / rest) + random_state.random_sample()
        taken = np.diff(np.floor(steps)) > 0
        parts.append(np.sort(order[taken]))
        order, rest = order[~taken], rest - share
    return [*parts, np.sort(order)]


def parts_by_group(
    rows: Codes,
    cells: Cells,
    n_parts: int,
    groups: NDArray[Any],
    n_samples: int,
    random_state: np.random.RandomState,
) -> list[Codes]:
    """Split rows into parts of about equal size that share no group; see :func:`parts_by_cell`.

    Those from `n_samples` on, of further data sets, are groups that make up for no other.
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
    # A cell of fewer rows than parts joins the largest one: it is not a stratum.
    rare = np.bincount(codes) < n_parts
    codes = np.where(rare[codes], np.bincount(codes).argmax(), codes)
    return [rows[held] for _, held in splitter.split(np.zeros(rows.size), codes, groups[rows])]
