"""Conditions on columns, and their text, which stands where the name of a column does.

A text such as ``"`age` <= 30 and `hours` > 40"`` names a column of truth values: ``True`` where
all conditions hold. Nothing is evaluated. The text is read by one pattern::

    conditions = condition ("and" condition)*
    condition  = "`" column "`" ("<=" number | ">" number | "==" value | "is missing")

A backtick in the name of a column is doubled, and a value is written as in constraints. A row
whose value is missing meets ``is missing`` and no other condition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._typing import Bool
from gbm_constrained.constraints.writing import write_number, write_value

Operator = Literal["<=", ">", "==", "is missing"]
WORDS = {"<=": "at most {}", ">": "above {}", "==": "is {}", "is missing": "is missing"}
_CONDITION = re.compile(
    r"""\s*`(?P<column>(?:[^`]|``)+)`\s*
    (?:(?P<missing>is\ missing)
    |(?P<order><=|>)\s*(?P<bound>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |==\s*(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+]?[\w.]+(?:[-+]\d+)?))
    \s*(?P<end>and\b|$)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Condition:
    """Condition on the value of a row in one column."""

    column: str
    operator: Operator
    value: Any = None

    def holds(self, values: NDArray[Any]) -> Bool:
        """Find the rows that meet the condition, given their values in its column.

        Raises
        ------
        ValueError
            If the condition compares numbers, and a value is none.
        """
        missing = np.asarray(pd.isna(values))
        if self.operator == "is missing":
            return missing
        if self.operator == "==":
            return np.asarray(values == self.value, dtype=bool) & ~missing
        try:
            numbers = np.where(missing, np.nan, values).astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"the condition {self} compares numbers, and column {self.column!r} holds others: "
                f"compare its values by ==."
            ) from None
        return np.asarray(numbers <= self.value if self.operator == "<=" else numbers > self.value)

    def __str__(self) -> str:
        column = f"`{self.column.replace('`', '``')}` {self.operator}"
        return column if self.operator == "is missing" else f"{column} {self._value}"

    @property
    def _value(self) -> str:
        """The value as text; the ends of intervals are floats, and need no point."""
        return write_value(self.value) if self.operator == "==" else write_number(self.value)


def read_conditions(text: Hashable) -> tuple[Condition, ...]:
    """Read conditions; none where something else is named."""
    found: list[Condition] = []
    place = 0
    while isinstance(text, str) and (read := _CONDITION.match(text, place)):
        column = read["column"].replace("``", "`")
        if read["missing"]:
            found.append(Condition(column, "is missing"))
        elif read["order"]:
            operator: Operator = "<=" if read["order"] == "<=" else ">"
            found.append(Condition(column, operator, float(read["bound"])))
        else:
            try:
                found.append(Condition(column, "==", ast.literal_eval(read["value"])))
            except (SyntaxError, ValueError):
                return ()
        place = read.end()
        if not read["end"]:
            return tuple(found)
    return ()


def columns_named(name: Hashable, known: Collection[Hashable]) -> list[Hashable]:
    """List the columns that a name stands for: itself, or those of conditions.

    A column that is known under that very name comes first.
    """
    conditions = () if name in known else read_conditions(name)
    return list(dict.fromkeys(one.column for one in conditions)) or [name]


def write_conditions(conditions: Sequence[Condition]) -> str:
    """Write conditions as the text that :func:`read_conditions` reads."""
    return " and ".join(map(str, conditions))


def describe_conditions(conditions: Sequence[Condition]) -> str:
    """Describe conditions in words; both ends of an interval of one column stand together."""
    texts: dict[str, list[str]] = {}
    for one in conditions:
        value = write_number(one.value) if one.operator in ("<=", ">") else one.value
        texts.setdefault(one.column, []).append(WORDS[one.operator].format(value))
    return ", ".join(f"{column} {' and '.join(of)}" for column, of in texts.items())
