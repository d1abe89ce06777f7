"""Rows that are held until a stream has some of each class and group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.data.attributes import codes_among
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model.pair_sets import stack_rows
from gbm_constrained.problem.compiler import needs_of


class HeldRows:
    """First rows of a stream whose classes and groups are declared.

    Parameters
    ----------
    constraints : Constraints, whose largest `min_group_size` is the number of rows to wait for.
    classes : Sorted labels.
    groups : Values of columns.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        classes: NDArray[np.generic],
        groups: Mapping[Hashable, Sequence[Any]],
    ) -> None:
        self.constraints, self.classes = constraints, classes
        if not isinstance(groups, Mapping) or any(len(values) == 0 for values in groups.values()):
            raise ValueError(
                f"groups must be a dict from column to values, got {groups!r}: give the groups "
                f"of each column, as in groups={{'sex': ['F', 'M']}}."
            )
        self.groups = {name: np.asarray(values, dtype=object) for name, values in groups.items()}
        sizes = [
            c.expression.min_group_size for c in constraints if isinstance(c.expression, Grouped)
        ]
        self.size = max(sizes, default=Grouped.min_group_size)
        self._counts = {name: np.zeros((len(v), 2)) for name, v in self.groups.items()}
        self._by_class: Float = np.zeros(2)
        self._X: list[Any] = []
        self._rows: list[tuple[Rows, dict[Hashable, NDArray[Any]]]] = []

    def add(self, X: Any, rows: Rows) -> None:
        """Hold rows, and count those of positive weight.

        Raises
        ------
        ValueError
            If no constraint reads a column of `groups`, or a row is of a group not among them.
        """
        names = {
            name: None
            for constraint in self.constraints
            for key in needs_of(constraint, rows)
            if isinstance(key, tuple)
            for name in key
        }
        if unread := [name for name in self.groups if name not in names]:
            raise ValueError(
                f"groups names the column {unread[0]!r}, which no constraint reads: give the "
                f"groups of {list(names)}, or leave groups out."
            )
        columns = {name: rows.column(name) for name in names}
        is_counted = np.ones(len(rows), bool) if rows.weight is None else rows.weight > 0
        for name, values in self.groups.items():
            codes, strange = codes_among(values, columns[name], f"values of column {name!r}")
            if strange:
                raise ValueError(
                    f"a row has the value {strange[0]!r} of {name!r}, which groups= does not "
                    f"name: add it to {values.tolist()}."
                )
            np.add.at(self._counts[name], (codes[is_counted], rows.y[is_counted]), 1)
        self._by_class += np.bincount(rows.y[is_counted], minlength=2)
        self._X.append(X)
        self._rows.append((rows, columns))

    @property
    def is_complete(self) -> bool:
        """Whether there are enough rows of each class, and of each class in each group."""
        counts = [self._by_class, *self._counts.values()]
        return all(bool((count >= self.size).all()) for count in counts)

    def describe(self) -> str:
        """Say what the rows wait for."""
        labels = self.classes.tolist()
        missing = [
            f"{name}={self.groups[name][i]!r} of class {labels[j]!r}"
            for name, count in self._counts.items()
            for i, j in np.argwhere(count < self.size)
        ]
        missing += [f"class {labels[j]!r}" for j in np.flatnonzero(self._by_class < self.size)]
        n = sum(len(rows) for rows, _ in self._rows)
        return (
            f"This ConstrainedAUCScorer holds {n} rows and has no score yet: it waits for "
            f"{self.size} rows of {', of '.join(missing)}. Give more rows to partial_fit."
        )

    def take(self) -> tuple[Any, Rows]:
        """Put all rows together."""
        rows = [rows for rows, _ in self._rows]
        columns = {
            name: np.concatenate([of_part[name].astype(object) for _, of_part in self._rows])
            for name in self._rows[0][1]
        }
        weights = [np.ones(len(part)) if part.weight is None else part.weight for part in rows]
        y = np.concatenate([part.y for part in rows])
        return stack_rows(self._X), Rows(y, self.classes, np.concatenate(weights), columns)
