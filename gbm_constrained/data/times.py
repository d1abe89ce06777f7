"""Times of rows, and the periods that rows are divided into by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import as_column, order_of
from gbm_constrained._typing import Codes
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import order_of_column
from gbm_constrained.exceptions import UnavailableError


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
