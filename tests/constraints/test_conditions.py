"""Tests of conditions on columns: text both ways, missing values, and names that look alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gbm_constrained import each, fpr, parse_constraint
from gbm_constrained.constraints.conditions import (
    Condition,
    describe_conditions,
    read_conditions,
    write_conditions,
)
from gbm_constrained.data.rows import Rows
from gbm_constrained.exceptions import UnavailableError

EVERY = (
    Condition("age", ">", -2.5),
    Condition("age", "<=", 1e-7),
    Condition("a `b` and c", "==", 'it\'s `x` <= 3 and "y"'),
    Condition("n", "==", 3),
    Condition("flag", "==", True),
    Condition("income", "is missing"),
)


def rows_of(columns: dict[str, object], X: object = None) -> Rows:
    """Make rows without labels."""
    n = len(next(iter(columns.values()))) if columns else len(X)  # type: ignore[arg-type]
    named = {name: np.asarray(values, dtype=object) for name, values in columns.items()}
    return Rows(np.zeros(n, np.intp), np.array([0]), None, named, [X])


@pytest.mark.parametrize("n", range(1, len(EVERY) + 1))
def test_conditions_read_as_they_were_written(n):
    assert read_conditions(write_conditions(EVERY[:n])) == EVERY[:n]
    constraint = each(fpr(), by=write_conditions(EVERY[:n])) <= 0.1
    assert parse_constraint(repr(constraint)) == constraint


@pytest.mark.parametrize(
    "text",
    ["age", "age <= 3", "`age` < 3", "`age` <= 3 or `b` > 1", "`age` <= 3 and", "`age` <= x",
     "`age` == __import__('os')", "`age` <= 3 and b", "", 3, None, ("`a` <= 1",)],
)  # fmt: skip
def test_other_names_are_no_conditions(text):
    assert read_conditions(text) == ()


def test_words_name_each_column_once():
    assert describe_conditions(EVERY[:2]) == "age above -2.5 and at most 1e-07"
    assert describe_conditions(EVERY[3:]) == "n is 3, flag is True, income is missing"


def test_missing_values_meet_is_missing_alone():
    values = np.array([1.0, None, 3.0, np.nan], dtype=object)
    met = {op: Condition("x", op, 2.0).holds(values).tolist() for op in ("<=", ">", "==")}
    assert met == {"<=": [1, 0, 0, 0], ">": [0, 0, 1, 0], "==": [0] * 4}
    assert Condition("x", "is missing").holds(values).tolist() == [0, 1, 0, 1]


def test_categories_and_texts_of_features_are_compared():
    X = pd.DataFrame({"c": pd.Categorical(["a", "b", None]), "x": [1.0, 5.0, 5.0]})
    rows = rows_of({}, X)
    assert rows.column("`c` == 'b' and `x` > 2").tolist() == [False, True, False]
    assert rows.column("`c` is missing").tolist() == [False, False, True]
    with pytest.raises(ValueError, match="compares numbers, and column 'c' holds others"):
        rows.column("`c` > 2")


def test_a_column_of_that_very_name_comes_first():
    text = "`x` <= 2"
    rows = rows_of({text: ["u", "v"], "x": [1, 5]})
    assert rows.column(text).tolist() == ["u", "v"]
    assert rows_of({"x": [1, 5]}).column(text).tolist() == [True, False]


def test_an_unknown_column_of_a_condition_is_named():
    with pytest.raises(UnavailableError, match=r"column 'agee' is neither.*Did you mean 'age'"):
        rows_of({"age": [1, 2]}).column("`agee` <= 2 and `age` > 0")
