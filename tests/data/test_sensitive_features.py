"""Columns of sensitive features, of every form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from group_values import AGE, PREDICTED, SEX, N, expected_of, groups_of

from gbm_constrained.data.validation import columns_of


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pd.Series(SEX, name="sex"), "sex"),
        (pd.Series(SEX), "sensitive_feature_0"),
        (pd.Series(SEX, index=range(7, N + 7), name="sex"), "sex"),
        (pd.Series(SEX, name=5), 5),
        (pd.DataFrame({"sex": SEX}), "sex"),
        ({"sex": SEX}, "sex"),
        ({"sex": list(SEX)}, "sex"),
        ({"sex": pd.Series(SEX)}, "sex"),
        ({"sex": pd.Categorical(SEX)}, "sex"),
        (SEX, "sensitive_feature_0"),
        (list(SEX), "sensitive_feature_0"),
        (SEX[:, None], "sensitive_feature_0"),
        (SEX.astype(object), "sensitive_feature_0"),
        ([[s] for s in SEX], "sensitive_feature_0"),
        (pd.Categorical(SEX), "sensitive_feature_0"),
        (pd.Series(SEX, dtype="string", name="sex"), "sex"),
    ],
)
def test_the_forms_of_one_column(given, name):
    """All give the same groups; without by=, too."""
    columns = columns_of(given, N)
    assert list(columns) == [name]
    expected = {(k,): v for k, v in expected_of(SEX).items()}
    assert list(expected) == [("F",), ("M",)]
    for by in (None, name, [name]):
        assert groups_of(columns, by) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"sex": SEX, "age": AGE}),
        {"sex": SEX, "age": AGE},
        {"sex": pd.Categorical(SEX), "age": list(AGE)},
    ],
)
def test_intersections_of_several_columns(given):
    """In the order of by=, which is all columns by default."""
    columns = columns_of(given, N)
    frame = pd.DataFrame({"sex": SEX, "age": AGE, "p": PREDICTED})
    expected = frame.groupby(["sex", "age"])["p"].mean().to_dict()
    assert groups_of(columns) == pytest.approx(expected)
    assert groups_of(columns, ["sex", "age"]) == pytest.approx(expected)
    swapped = {(age, sex): v for (sex, age), v in expected.items()}
    assert groups_of(columns, ["age", "sex"]) == pytest.approx(swapped)
    alone = {(k,): v for k, v in frame.groupby("age")["p"].mean().items()}
    assert groups_of(columns, "age") == pytest.approx(alone)


def test_only_intersections_that_occur_are_groups():
    sex = np.array(["F"] * 30 + ["M"] * 30)
    age = np.array([0] * 30 + [1] * 20 + [2] * 10)
    found = groups_of({"sex": sex, "age": age}, ["sex", "age"])
    assert list(found) == [("F", 0), ("M", 1), ("M", 2)]


def test_columns_of_an_array_are_numbered():
    columns = columns_of(np.column_stack([AGE, 7 * (AGE > 0)]), N)
    assert list(columns) == ["sensitive_feature_0", "sensitive_feature_1"]
    assert list(groups_of(columns, "sensitive_feature_1")) == [(0,), (7,)]
    assert columns_of(None, N) == {}
    assert columns_of({}, N) == {}


@pytest.mark.parametrize(
    "given",
    [
        SEX[:-1],
        np.append(SEX, "F"),
        pd.Series(SEX[:-1], name="sex"),
        {"age": AGE, "sex": SEX[:-1]},
        {"sex": SEX[:, None]},
        {"sex": "F"},
        {"sex": []},
        SEX[None, :],
    ],
)
def test_another_number_of_rows_is_refused(given):
    with pytest.raises(ValueError, match=f"but there are {N} rows: give one value per row"):
        columns_of(given, N)


def test_dicts_are_not_split_by_scikit_learn():
    with pytest.raises(ValueError, match="in cross-validation a Series or DataFrame"):
        columns_of({"sex": SEX[:-1]}, N)


def test_two_columns_of_one_name_are_refused():
    twice = pd.DataFrame(np.column_stack([SEX, AGE]), columns=["c", "c"])
    with pytest.raises(ValueError, match="several columns called 'c': rename them"):
        columns_of(twice, N)


@pytest.mark.parametrize("given", [3, np.zeros((N, 1, 1)), "sex"])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(ValueError, match="must have one or two dimensions"):
        columns_of(given, N)


def test_columns_are_found_in_the_features():
    """Sensitive features go first; without a DataFrame there is nothing to find."""
    X = pd.DataFrame({"sex": SEX[::-1], "age": AGE, 3: AGE % 2})
    columns = columns_of({"sex": SEX}, N)
    for given, by, values in ((columns, "sex", SEX), (columns, "age", AGE), ({}, 3, AGE % 2)):
        found = {k: v for (k,), v in groups_of(given, by, [X]).items()}
        assert found == pytest.approx(expected_of(values))
    assert len(groups_of({"sex": SEX}, ["sex", "age"], [X])) == 6
    with pytest.raises(ValueError, match=r"the columns known are \['sex', 'age', 3\]"):
        groups_of(columns, "region", [X])
    with pytest.raises(ValueError, match="column 'age' is neither in sensitive_features nor in X"):
        groups_of(columns, "age", [X.to_numpy()])
    with pytest.raises(ValueError, match="groups are made by no column"):
        groups_of({}, None, [X])
