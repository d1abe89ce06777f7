"""Folds of splitters and of times: what they hold out, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)

from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import GivenFolds, Times, check_splitter

N = 24
X = np.arange(2.0 * N).reshape(N, 2)
Y = np.tile(["no", "yes"], N // 2)
GROUPS = np.repeat(np.arange(N // 3), 3)


def split(cv, kept=None):
    groups = GROUPS if "Group" in type(cv).__name__ else None
    return GivenFolds.of_splitter(cv, X, Y, groups, kept)


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3),
        StratifiedKFold(3, shuffle=True, random_state=0),
        GroupKFold(4),
        StratifiedGroupKFold(2),
        TimeSeriesSplit(3),
        PredefinedSplit(np.repeat([-1, 0, 1], N // 3)),
    ],
)
def test_folds_are_those_of_the_splitter(cv):
    found = split(cv)
    expected = list(cv.split(X, Y, GROUPS if "Group" in type(cv).__name__ else None))
    assert len(found.folds) == len(expected)
    for fold, (training, held) in zip(found.folds, expected, strict=True):
        np.testing.assert_array_equal(fold.training, np.sort(training))
        np.testing.assert_array_equal(fold.held, np.sort(held))
    assert found.source == f"out of fold of {type(cv).__name__}"
    np.testing.assert_array_equal(found.held, np.sort(np.concatenate([h for _, h in expected])))


def test_rows_set_aside_are_in_no_fold():
    kept = np.setdiff1d(np.arange(N), [0, 5, 23])
    for fold, whole in zip(split(KFold(3), kept).folds, split(KFold(3)).folds, strict=True):
        np.testing.assert_array_equal(kept[fold.held], np.intersect1d(whole.held, kept))
        np.testing.assert_array_equal(kept[fold.training], np.intersect1d(whole.training, kept))


def test_pairs_may_be_masks_and_positions():
    mask = np.arange(N) < 12
    pair = (np.flatnonzero(mask), np.flatnonzero(~mask)[::-1])
    (of_masks,), (of_positions,) = split([(mask, ~mask)]).folds, split([pair]).folds
    np.testing.assert_array_equal(of_masks.training, of_positions.training)
    np.testing.assert_array_equal(of_masks.held, of_positions.held)
    assert split([pair]).source == "out of fold"


def test_windows_are_those_of_scikit_learn_on_rows_in_order():
    order = np.random.default_rng(0).permutation(N)
    times = Times.of(order, Rows(np.zeros(N, dtype=np.intp), np.arange(2)))
    found = GivenFolds.of_times(times, 3)
    for fold, (training, held) in zip(found.folds, TimeSeriesSplit(3).split(X), strict=True):
        assert set(order[fold.training]) == set(training)
        assert set(order[fold.held]) == set(held)
    assert [(p.first, p.last) for p in found.periods] == [(6, 11), (12, 17), (18, 23)]


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (RepeatedKFold(n_splits=2, n_repeats=2), "holds out 24 rows more than once, such as 0, 1"),
        (KFold(30), r"cannot split the rows: .*30.*Give what the splitter needs"),
        ([], "measure_on makes no fold"),
        ([([0, 1], [])], "fold 0 of measure_on holds out none of the rows"),
        (
            [([0, 1], [1, 2])],
            "fold 0 of measure_on trains on 1 rows that it holds out, such as row 1",
        ),
        ([([0, 1], [24])], "fold 0 of measure_on has position 24, and there are 24 rows"),
        ([([0, -1], [2])], "fold 0 of measure_on has position -1"),
        ([([0, 0], [2])], "fold 0 of measure_on has 1 repeated positions"),
        ([([0.5, 1.5], [2])], "fold 0 of measure_on has a part of type float64"),
        ([[0, 1, 2]], "fold 0 of measure_on must be a pair"),
    ],
)
def test_folds_that_measure_nothing_are_refused(cv, message):
    with pytest.raises(ValueError, match=message):
        split(cv)


@pytest.mark.parametrize("cv", [5, True, iter([([0], [1])]), b"x"])
def test_what_is_no_splitter_is_refused(cv):
    is_iterator = not isinstance(cv, (int, bytes))
    with pytest.raises(
        TypeError, match="give a list" if is_iterator else re.escape("CrossFit(n_folds=3)")
    ):
        check_splitter(cv)


def test_a_splitter_of_groups_without_groups_says_so():
    with pytest.raises(ValueError, match=r"GroupKFold.* cannot split the rows: .*such as groups="):
        GivenFolds.of_splitter(GroupKFold(2), X, Y, None, None)


def test_classes_that_folds_lack_are_named():
    codes = np.array([0] * 12 + [1] * 12)
    classes = np.array(["no", "yes"])
    lacking = split([(np.arange(12), np.arange(12, 24))])
    with pytest.raises(ValueError, match="fold 0 of measure_on trains on no row of class 'yes'"):
        lacking.check_classes(codes, classes)
    with pytest.raises(ValueError, match="measure_on holds out no row of class 'no'"):
        split([(np.arange(13), np.arange(13, 24))]).check_classes(codes, classes)
