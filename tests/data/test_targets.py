"""Rows of a regression: checks of targets, keys of functions, further data sets."""

import numpy as np
import pandas as pd
import pytest

import gbm_constrained as gc
from gbm_constrained.constraints.rates import (
    coverage,
    mean_loss,
    mean_prediction,
    row_functions_of,
)
from gbm_constrained.constraints.selectors import dataset
from gbm_constrained.data.fit_data import FitArguments, TargetData, check_targets


@pytest.mark.parametrize(
    "y",
    [
        [1, 2, 3],
        np.array([1, 2, 3], dtype=np.float32),
        pd.Series([1.0, 2.0, 3.0]),
        np.array([[1.0], [2.0], [3.0]]),
        np.array(["1", "2", "3"]),
    ],
)
def test_targets_are_read_as_numbers(y):
    found = check_targets(y)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.inf], "y is inf in row 1: drop those rows, or clip them"),
        (["low", "high"], "y holds 'low', which is no number: a regressor needs numbers"),
        (np.ones((3, 2)), "y"),
        ([1.0, np.nan], "y"),
    ],
)
def test_refused_targets(y, message):
    with pytest.raises(ValueError, match=message):
        check_targets(y)


def make(rules, datasets=None, n=6, **given):
    X = np.arange(float(n))[:, None]
    return TargetData.of(FitArguments(X, np.arange(1.0, n + 1), datasets=datasets, **given), rules)


def test_functions_stand_in_the_place_of_classes():
    rules = [mean_prediction() <= 1, mean_loss() <= 1, mean_loss() >= 0.1, coverage() >= 0.5]
    data = make(rules)
    assert data.classes.tolist() == [function.key for function in row_functions_of(rules)]
    assert len(data.classes) == 3
    np.testing.assert_array_equal(data.y, 0)
    np.testing.assert_array_equal(data.targets, np.arange(1.0, 7.0))
    assert data.columns == 1
    assert make([]).classes.size == 1


def test_further_rows_have_targets_or_none():
    X = np.zeros((2, 1))
    rules = [
        mean_prediction(on=dataset("new")) <= 1,
        mean_loss(on=dataset("known")) <= 1,
    ]
    data = make(rules, {"new": X, "known": (X, [7.0, 8.0])})
    np.testing.assert_array_equal(data.targets, [1, 2, 3, 4, 5, 6, 0, 0, 7, 8])
    np.testing.assert_array_equal(data.rows.y, [0] * 6 + [-1] * 2 + [0] * 2)


def test_further_targets_of_another_length_are_refused():
    rules = [mean_loss(on=dataset("known")) <= 1]
    message = r"datasets\['known'\] has 2 rows of features and 3 targets"
    with pytest.raises(ValueError, match=message):
        make(rules, {"known": (np.zeros((2, 1)), [1.0, 2.0, 3.0])})
    with pytest.raises(ValueError, match=r"y of datasets\['known'\] is inf in row 0"):
        make(rules, {"known": (np.zeros((2, 1)), [np.inf, 1.0])})


def test_losses_of_rows_without_targets_are_refused():
    from gbm_constrained.problem.compiler import compile_constraints

    rules = [mean_loss(on=dataset("new")) <= 1]
    with pytest.raises(ValueError, match="new"):
        compile_constraints(rules, make(rules, {"new": np.zeros((2, 1))}).rows)


def test_evaluation_rows_are_encoded_alike():
    rules = [gc.gap(mean_loss(), by="group", min_group_size=1) <= 1]
    group = np.array(list("aabbab"))
    data = make(rules, sensitive_features={"group": group})
    rows = data.evaluation_rows("eval", np.zeros((2, 1)), [5.0, 6.0], None, {"group": ["b", "a"]})
    np.testing.assert_array_equal(rows.y, 0)
    assert rows.classes.tolist() == data.classes.tolist()
    with pytest.raises(ValueError, match="y of eval"):
        data.evaluation_rows("eval", np.zeros((2, 1)), [5.0, np.nan])
