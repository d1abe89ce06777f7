"""Folds that a user's splitter or the times of rows make, in the place of the package's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.times import Period, Times

LATER_PERIODS = "later periods"  # Name of the held-out rows of windows that expand.
HALVING = 0.5  # Weight of a period over that of the next one.
NAMED = 3  # Rows or classes that a message names.


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
        name = f"cv={cv!r}" if hasattr(cv, "split") else "cv"
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
            folds.append(Fold(*(_keep(position, part) for part in (training, held))))
        of_splitter = f" of {type(cv).__name__}" if hasattr(cv, "split") else ""
        found = cls(folds, name, f"out of fold{of_splitter}")
        found._check()
        return found

    @classmethod
    def of_times(cls, times: Times, n_folds: int) -> GivenFolds:
        """Make windows that expand: each fold is trained on all periods before its own."""
        n = n_folds + 1
        remedy = f"n_folds={n_folds} asks for one more; give finer times, or a smaller n_folds"
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
        for what, rows in [*named, (f"{self.name} holds out", self.held)]:
            lacking = np.bincount(y[rows], minlength=len(classes)) == 0
            if lacking.any():
                names = join_truncated([repr(c) for c in classes[lacking].tolist()], NAMED)
                raise ValueError(
                    f"{what} no row of class {names}: {self._remedy}, or merge the class with "
                    f"another one."
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
            found[np.searchsorted(self.held, fold.held)] = HALVING**age
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

    @property
    def _remedy(self) -> str:
        if self.periods:
            return "take fewer n_folds, so that periods are longer"
        return "take a splitter that stratifies by y, or fewer folds"

    def _check(self) -> None:
        """Refuse folds that lack rows, and rows that are held out twice."""
        if not self.folds:
            raise ValueError(f"{self.name} makes no fold: give at least one pair of positions.")
        for k, fold in enumerate(self.folds):
            for what, part in (("trains on", fold.training), ("holds out", fold.held)):
                if not part.size:
                    raise ValueError(
                        f"fold {k} of {self.name} {what} none of the rows: give another splitter."
                    )
        rows, times = np.unique(self.held, return_counts=True)
        if (twice := rows[times > 1]).size:
            names = join_truncated(list(map(str, twice.tolist())), NAMED)
            raise ValueError(
                f"{self.name} holds out {twice.size} rows more than once, such as {names}, and a "
                f"row is measured by one booster: take a splitter whose held-out parts do not "
                f"overlap, such as KFold in the place of RepeatedKFold, or ShuffleSplit with "
                f"n_splits=1."
            )


def check_splitter(cv: Any) -> None:
    """Refuse what is neither a splitter nor a collection of pairs of positions."""
    if cv is None or (hasattr(cv, "split") and not isinstance(cv, (str, bytes))):
        return
    if isinstance(cv, Iterator):
        raise TypeError(
            f"cv={cv!r} can be walked through once only: give list(cv), or the splitter itself."
        )
    if isinstance(cv, (str, bytes)) or not isinstance(cv, Iterable):
        raise TypeError(
            f"cv must be a splitter of scikit-learn or a list of pairs (train, test) of "
            f"positions, got {cv!r}: the number of the package's own folds is n_folds=."
        )


def _read_pair(pair: Any, n: int, name: str) -> tuple[Codes, Codes]:
    """Read the positions of training and held-out rows."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair (train, test) of positions, got {pair!r:.60}.")
    training, held = (_read_positions(part, n, name) for part in pair)
    if (both := np.intersect1d(training, held)).size:
        raise ValueError(
            f"{name} trains on {both.size} rows that it holds out, such as row {both[0]}: its two "
            f"parts must not overlap."
        )
    return training, held


def _read_positions(part: Any, n: int, name: str) -> Codes:
    """Read positions, ascending."""
    found = np.asarray(part)
    if found.dtype == bool and found.shape == (n,):
        return np.flatnonzero(found)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} has a part of type {found.dtype} and shape {found.shape}: give the positions "
            f"of rows."
        )
    rows = np.unique(found).astype(np.intp)
    if rows.size and not 0 <= rows[0] <= rows[-1] < n:
        outside = rows[0] if rows[0] < 0 else rows[-1]
        raise ValueError(f"{name} has position {outside}, and there are {n} rows: count from 0.")
    if rows.size < found.size:
        raise ValueError(
            f"{name} has {found.size - rows.size} repeated positions: give each row once, and its "
            f"weight as sample_weight."
        )
    return rows


def _keep(position: Codes, rows: Codes) -> Codes:
    """Find the rows that are kept, in their new positions."""
    found = position[rows]
    return found[found >= 0]
