"""Times of rows: whole periods of about equal size, in order, and times that are refused."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Times
from gbm_constrained.data.validation import columns_of


def rows_of(n, **columns):
    return Rows(np.zeros(n, dtype=np.intp), np.arange(2), columns=columns)


def cut(time, n_periods):
    times = Times.of(np.asarray(time), rows_of(len(time)))
    return times.cut([1.0 / n_periods] * n_periods, "give more")


def test_different_times_are_cut_into_parts_of_equal_size():
    time = np.random.default_rng(0).permutation(40)
    periods = cut(time, 5)
    assert [sorted(time[p.rows]) for p in periods] == [[*range(i, i + 8)] for i in range(0, 40, 8)]
    assert [(p.first, p.last) for p in periods] == [(i, i + 7) for i in range(0, 40, 8)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 5))
def test_periods_are_in_order_and_keep_ties_together(time, n_periods):
    time = np.array(time)
    if np.unique(time).size < n_periods:
        with pytest.raises(ValueError, match=r"different values.* periods: give more"):
            cut(time, n_periods)
        return
    periods = cut(time, n_periods)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([p.rows for p in periods])), np.arange(time.size)
    )
    for before, after in itertools.pairwise(periods):
        assert time[before.rows].max() < time[after.rows].min()
    for period in periods:
        assert (period.first, period.last) == (time[period.rows].min(), time[period.rows].max())


@given(st.lists(st.integers(0, 6), min_size=4, max_size=30))
def test_two_periods_are_cut_where_the_first_one_is_nearest_to_its_share(time):
    time = np.array(time)
    if np.unique(time).size < 2:
        return
    found = abs(cut(time, 2)[0].rows.size - time.size / 2)
    every = [abs((time <= t).sum() - time.size / 2) for t in np.unique(time)[:-1]]
    assert found == min(every)


@pytest.mark.parametrize(
    "time",
    [
        pd.date_range("2024-01-01", periods=6),
        np.array(["2024-01", "2024-02", "2024-03", "2024-04", "2024-05", "2024-06"]),
        np.linspace(-1.0, 1.0, 6),
    ],
)
def test_dates_texts_and_numbers_are_ordered(time):
    shuffled = np.random.default_rng(0).permutation(6)
    times = Times.of(time[shuffled], rows_of(6))
    np.testing.assert_array_equal(times.codes, shuffled)
    np.testing.assert_array_equal(times.take(np.array([0, 1])).codes.argsort(),
                                  shuffled[:2].argsort())  # fmt: skip


def months(order=("Jan", "Feb", "Mar", "Apr")):
    return pd.Categorical(["Mar", "Jan", "Apr", "Jan"], categories=order, ordered=True)


@pytest.mark.parametrize(
    ("time", "features", "sensitive"),
    [
        (months(), None, None),
        (pd.Series(months()), None, None),
        ("month", pd.DataFrame({"month": months()}), None),
        ("month", None, pd.DataFrame({"month": months()})),
        ("month", None, {"month": months()}),
        ("month", pd.DataFrame({"month": ["Apr"] * 4}), pd.Series(months(), name="month")),
    ],
)
def test_ordered_categories_are_in_their_order(time, features, sensitive):
    """A category without rows is no time."""
    rows = Rows(
        np.zeros(4, dtype=np.intp), np.arange(2), columns=columns_of(sensitive, 4),
        features=[] if features is None else [features],
    )  # fmt: skip
    times = Times.of(time, rows, sensitive)
    assert times.codes.tolist() == [1, 0, 2, 0]
    assert times.values.tolist() == ["Jan", "Mar", "Apr"]


def test_dictionaries_of_pyarrow_have_their_order():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")
    assert Times.of(arrow.array(months()), rows_of(4)).codes.tolist() == [1, 0, 2, 0]


def test_categories_without_an_order_are_texts():
    times = Times.of(pd.Categorical(["b", "a"], categories=["b", "a"]), rows_of(2))
    assert times.values.tolist() == ["a", "b"]


def test_a_name_is_that_of_a_column():
    times = Times.of("day", rows_of(3, day=np.array([3, 1, 2])))
    assert times.codes.tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="time='month': column 'month' is neither"):
        Times.of("month", rows_of(3, day=np.array([3, 1, 2])))


@pytest.mark.parametrize(
    ("time", "error", "message"),
    [
        ([1, 2], ValueError, r"shape \(2,\), but there are 3 rows"),
        ([1.0, np.nan, np.nan], ValueError, "missing in 2 of 3 rows"),
        (np.array([1, "b", None], dtype=object), ValueError, "missing in 1 of 3 rows"),
        (np.array([1, "b", 2], dtype=object), TypeError, "types int, str, which have no order"),
    ],
)
def test_times_that_order_no_rows_are_refused(time, error, message):
    with pytest.raises(error, match=message):
        Times.of(time, rows_of(3))
