"""Splits of rows into folds: the package's own, those of a splitter, and those of time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from gbm_constrained._dataframes import as_column, order_of
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import order_of_column
from gbm_constrained.exceptions import UnavailableError


def hash_numbers(numbers: NDArray[Any], seed: int = 0) -> NDArray[np.uint64]:
    """Hash integers to 64 bits that look random (splitmix64: Steele, Lea and Flood, 2014).

    Parameters
    ----------
    numbers : ndarray of int
        Numbers of rows.
    seed : int, default=0
        Hashes under different seeds are unrelated.

    Returns
    -------
    ndarray of uint64
        Hashes; those of different numbers differ.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + golden * np.uint64((seed + 1) & 0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


class Period(NamedTuple):
    """Rows of consecutive times."""

    rows: Codes  # Positions, ascending.
    first: Any  # First time.
    last: Any  # Last time.


@dataclass(frozen=True, eq=False)
class Times:
    """Times of the rows.

    Parameters
    ----------
    codes : (n_samples,). Position of each row's time in `values`.
    values : (n_times,). The different times, ascending; ordered categories in their order.
    """

    codes: Codes
    values: NDArray[Any]

    @classmethod
    def of(cls, time: Any, rows: Rows, sensitive_features: Any = None) -> Times:
        """Read times that are given as an array, or as the name of a column of the rows.

        `sensitive_features` are those of the rows as a user gave them.
        """
        if not isinstance(time, str):
            return cls.read(time, len(rows), "time")
        name = f"time={time!r}"
        try:
            given = rows.column(time)
        except UnavailableError as error:
            raise ValueError(f"{name}: {error}") from None
        order = order_of_column(time, sensitive_features, next(iter(rows.features), None))
        return cls.read(given, len(rows), name, order)

    @classmethod
    def read(cls, given: Any, n_rows: int, name: str, order: pd.Index[Any] | None = None) -> Times:
        """Read the times of so many rows.

        `name` is that of the parameter; `order` has all times in their order, which is by default
        that of ordered categories, of numbers, of dates or of texts.
        """
        order = order_of(given) if order is None else order
        given = as_column(given)
        if np.shape(given) != (n_rows,):
            raise ValueError(
                f"{name} has shape {np.shape(given)}, but there are {n_rows} rows: give one time "
                f"per row."
            )
        series = pd.Series(given).infer_objects()
        if n_missing := int(series.isna().sum()):
            raise ValueError(
                f"{name} is missing in {n_missing} of {n_rows} rows: leave these rows out, or "
                f"give their times."
            )
        if order is not None:
            found, codes = np.unique(order.get_indexer(pd.Index(series)), return_inverse=True)
            return cls(codes, np.asarray(order)[found])
        try:
            values = np.sort(np.asarray(series.unique()))
        except TypeError:
            kinds = sorted({type(value).__name__ for value in series})
            raise TypeError(
                f"{name} has values of the types {', '.join(kinds)}, which have no order: give "
                f"numbers, dates, an ordered categorical, or texts that sort as time does."
            ) from None
        return cls(np.searchsorted(values, np.asarray(series)), values)

    def take(self, index: Codes) -> Times:
        """Take the times of some rows."""
        found, codes = np.unique(self.codes[index], return_inverse=True)
        return Times(codes, self.values[found])

    def cut(self, shares: Sequence[float], remedy: str) -> list[Period]:
        """Divide the rows into periods with about these shares of them.

        A cut is between two times, so that rows of one time stay together.

        Parameters
        ----------
        shares : sequence of float
            Share of each period, in the order of time.
        remedy : str
            What asks for so many periods, and what to do.

        Raises
        ------
        ValueError
            If there are fewer different times than periods.
        """
        n_times, n_periods = self.values.size, len(shares)
        if n_times < n_periods:
            raise ValueError(
                f"time has {n_times} different values, and the rows are to be divided into "
                f"{n_periods} periods: {remedy}."
            )
        reached = np.bincount(self.codes).cumsum()
        wanted = np.cumsum(shares)[:-1] * self.codes.size
        ends, first = [], 0
        for k, target in enumerate(wanted):
            # Each period that follows needs a time of its own.
            allowed = slice(first, n_times - (n_periods - 1 - k))
            first += int(np.abs(reached[allowed] - target).argmin()) + 1
            ends.append(first)
        parts = np.searchsorted(ends, self.codes, side="right")
        firsts, lasts = self.values[[0, *ends]], self.values[np.array([*ends, n_times]) - 1]
        return [Period(np.flatnonzero(parts == k), firsts[k], lasts[k]) for k in range(n_periods)]


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
    256 intervals of their hashes, and a part takes consecutive intervals that hold its
    share. Rows of one of the `groups` stay together, and cells then have their shares on average.
    """
    seed = int(random_state.randint(np.iinfo(np.int32).max))
    ends = np.cumsum(shares)[:-1]
    if groups is not None:
        codes, names = pd.factorize(groups[rows])
        digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in names]
        of_names = hash_numbers(np.frombuffer(b"".join(digests), dtype="<u8"), seed)
        at = (of_names / 2.0**64)[codes]
    else:
        assert cells.rows.machine.numbers is not None
        hashes = hash_numbers(cells.rows.machine.numbers[rows], seed)
        view = cells.views[0]
        place = view.small_codes[rows].astype(np.intp) * 256
        place += (hashes >> np.uint64(64 - 8)).astype(np.intp)
        counts = np.bincount(place, minlength=len(view) * 256).astype(np.float64)
        counts = cells.reduce_sum(counts).reshape(-1, 256)
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
            f"parts that share none (n_folds, or one over the fraction of a holdout or of a "
            f"guarantee): give more groups, or ask for fewer parts."
        )
    splitter = StratifiedGroupKFold(n_parts, shuffle=True, random_state=random_state)
    codes = cells.codes[rows]
    # A cell with fewer rows than parts is no stratum, and joins the largest cell.
    rare = np.bincount(codes) < n_parts
    codes = np.where(rare[codes], np.bincount(codes).argmax(), codes)
    return [rows[held] for _, held in splitter.split(np.zeros(rows.size), codes, groups[rows])]


LATER_PERIODS = "later periods"  # Name of the held-out rows of windows that expand.


@dataclass(frozen=True, eq=False)
class GivenFolds:
    """Folds that need not hold out every row, and what made them.

    Parameters
    ----------
    folds : Rows of each fold.
    name : What made them, in messages.
    source : Name of the held-out rows in reports.
    periods : Period of each fold's held-out rows, where times made the folds.
    """

    folds: Sequence[Fold]
    name: str
    source: str
    periods: Sequence[Period] = ()

    @classmethod
    def of_splitter(cls, cv: Any, X: Any, y: Any, groups: Any, kept: Codes | None) -> GivenFolds:
        """Split the rows by a splitter of scikit-learn, or by pairs of positions.

        The splitter is given the user's rows. Of those in its parts the `kept` ones count, in
        whose positions the folds are; None keeps all.
        """
        name = f"measure_on={cv!r}" if hasattr(cv, "split") else "measure_on"
        n = len(y)
        try:
            pairs = list(cv.split(X, y, groups) if hasattr(cv, "split") else cv)
        except Exception as error:  # A splitter may be anybody's.
            reason = str(error).rstrip(".")
            raise ValueError(
                f"{name} cannot split the rows: {reason}. Give what the splitter needs, such as "
                f"groups= of fit, or another splitter."
            ) from error
        position = np.full(n, -1)
        kept = np.arange(n) if kept is None else kept
        position[kept] = np.arange(kept.size)
        folds = []
        for k, pair in enumerate(pairs):
            training, held = _read_pair(pair, n, f"fold {k} of {name}")
            moved = (position[part] for part in (training, held))
            folds.append(Fold(*(part[part >= 0] for part in moved)))
        of_splitter = f" of {type(cv).__name__}" if hasattr(cv, "split") else ""
        found = cls(folds, name, f"out of fold{of_splitter}")
        if not folds:
            raise ValueError(f"{name} makes no fold: give at least one pair of positions.")
        for k, fold in enumerate(folds):
            for what, part in (("trains on", fold.training), ("holds out", fold.held)):
                if not part.size:
                    raise ValueError(
                        f"fold {k} of {name} {what} none of the rows: give another splitter."
                    )
        rows, times = np.unique(found.held, return_counts=True)
        if (twice := rows[times > 1]).size:
            names = join_truncated(list(map(str, twice.tolist())), 3)
            raise ValueError(
                f"{name} holds out {twice.size} rows more than once, such as {names}, and a "
                f"row is measured by one booster: take a splitter whose held-out parts do not "
                f"overlap, such as KFold in the place of RepeatedKFold, or ShuffleSplit with "
                f"n_splits=1."
            )
        return found

    @classmethod
    def of_times(cls, times: Times, n_folds: int) -> GivenFolds:
        """Make windows that expand: each fold is trained on all periods before its own."""
        n = n_folds + 1
        remedy = f"Forward(n_folds={n_folds}) asks for one more: give finer times, or fewer folds"
        periods = times.cut([1.0 / n] * n, remedy)
        folds = [
            Fold(np.sort(np.concatenate([p.rows for p in periods[:k]])), periods[k].rows)
            for k in range(1, n)
        ]
        return cls(folds, "measure_on='forward'", LATER_PERIODS, periods[1:])

    def check_classes(self, y: Codes, classes: Any) -> None:
        """Refuse folds whose boosters would not know a class, or none of whose rows has it."""
        named = [
            (f"fold {k} of {self.name} trains on", f.training) for k, f in enumerate(self.folds)
        ]
        remedy = "take a splitter that stratifies by y, or fewer folds"
        if self.periods:
            remedy = "take fewer n_folds, so that periods are longer"
        for what, rows in [*named, (f"{self.name} holds out", self.held)]:
            lacking = np.bincount(y[rows], minlength=len(classes)) == 0
            if lacking.any():
                names = join_truncated([repr(c) for c in classes[lacking].tolist()], 3)
                raise ValueError(
                    f"{what} no row of class {names}: {remedy}, or merge the class with another "
                    f"one."
                )

    @property
    def recency(self) -> Float | None:
        """Weight of each held-out row, in their order; None where no times made the folds.

        A period counts half as much as the one after it. What is measured is then nearer to the
        next period where rates drift, and the boosters of the first windows, which are grown on
        few rows, count little.
        """
        if not self.periods:
            return None
        ages = np.arange(len(self.folds))[::-1]
        found = np.empty(self.held.size)
        for fold, age in zip(self.folds, ages, strict=True):
            found[np.searchsorted(self.held, fold.held)] = 0.5**age
        return found

    @property
    def held(self) -> Codes:
        """Positions of all rows that are held out, ascending."""
        return np.sort(np.concatenate([fold.held for fold in self.folds]))

    @property
    def held_periods(self) -> list[Period]:
        """Periods of the rows that are held out, with positions among these, if there are any."""
        return [
            Period(np.searchsorted(self.held, rows), first, last)
            for rows, first, last in self.periods
        ]


def check_splitter(cv: Any) -> None:
    """Refuse what is neither a splitter nor a collection of pairs of positions."""
    if hasattr(cv, "split") and not isinstance(cv, bytes):
        return
    if isinstance(cv, Iterator):
        raise TypeError(
            f"measure_on={cv!r} can be walked through once only: give a list of its folds, or the "
            f"splitter itself."
        )
    if isinstance(cv, bytes) or not isinstance(cv, Iterable):
        raise TypeError(
            f"measure_on must be a name such as 'crossfit', an object such as "
            f"CrossFit(n_folds=3), a splitter of scikit-learn or a list of pairs (train, test) of "
            f"positions, got {cv!r}."
        )


def _read_pair(pair: Any, n: int, name: str) -> tuple[Codes, Codes]:
    """Read the positions of training and held-out rows, ascending."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair (train, test) of positions, got {pair!r:.60}.")
    parts: list[Codes] = []
    for found in map(np.asarray, pair):
        if found.dtype == bool and found.shape == (n,):
            parts.append(np.flatnonzero(found))
            continue
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise ValueError(
                f"{name} has a part of type {found.dtype} and shape {found.shape}: give the "
                f"positions of rows."
            )
        rows = np.unique(found).astype(np.intp)
        if rows.size and not 0 <= rows[0] <= rows[-1] < n:
            outside = rows[0] if rows[0] < 0 else rows[-1]
            raise ValueError(
                f"{name} has position {outside}, and there are {n} rows: count from 0."
            )
        if rows.size < found.size:
            raise ValueError(
                f"{name} has {found.size - rows.size} repeated positions: give each row once, and "
                f"its weight as sample_weight."
            )
        parts.append(rows)
    training, held = parts
    if (both := np.intersect1d(training, held)).size:
        raise ValueError(
            f"{name} trains on {both.size} rows that it holds out, such as row {both[0]}: its two "
            f"parts must not overlap."
        )
    return training, held
