"""Splits of rows into folds and periods: the package's own, those of splitters, and refusals."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from counted_data import random
from hypothesis import given
from hypothesis import strategies as st
from machines import run_on_machines
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
)

from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import (
    GivenFolds,
    Times,
    check_splitter,
    hash_numbers,
    parts_by_cell,
    parts_by_group,
    parts_by_hash,
)
from gbm_constrained.data.validation import columns_of


def test_hashes_are_those_of_splitmix64():
    """The first outputs of the reference generator, whose state starts at zero."""
    golden = 0x9E3779B97F4A7C15
    states = np.array([k * golden % 2**64 for k in range(3)], dtype=np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hash_numbers(states).tolist() == expected


def test_bits_are_fair_and_seeds_unrelated():
    numbers = np.arange(100_000)
    first, second = hash_numbers(numbers), hash_numbers(numbers, seed=1)
    assert np.unique(first).size == numbers.size
    for bit in range(64):
        ones = (first >> np.uint64(bit)) & np.uint64(1)
        others = (second >> np.uint64(bit)) & np.uint64(1)
        assert abs(ones.mean() - 0.5) < 0.01
        assert abs((ones == others).mean() - 0.5) < 0.01


def cells_of(n, n_classes=3, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n, p=rng.dirichlet(np.ones(n_classes) * 2)).astype(np.intp)
    y[:n_classes] = range(n_classes)
    s = rng.integers(0, n_groups, n)
    return Cells(Rows(y, np.arange(n_classes), columns={"s": s}), [["label", ("s",)]])


@pytest.mark.parametrize(
    "shares", [[0.5, 0.5], [0.25] * 4, [0.1] * 10, [0.2, 0.8], [0.25, 0.75], [0.37, 0.63]]
)
@pytest.mark.parametrize("n", [40, 999, 20_000])
def test_each_part_has_its_share_of_each_cell_within_a_row(shares, n):
    for seed in range(3):
        cells = cells_of(n, seed=seed)
        rows = np.sort(np.random.default_rng(seed).permutation(n)[: n - n // 7])
        parts = parts_by_cell(rows, cells, shares, np.random.RandomState(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
        assert all((np.diff(part) > 0).all() for part in parts)
        counts = [np.bincount(cells.codes[part], minlength=len(cells)) for part in parts]
        whole = np.bincount(cells.codes[rows], minlength=len(cells))
        for share, count in zip(shares, counts, strict=True):
            assert abs(count - share * whole).max() <= 1.0 + 1e-9
            assert abs(count.sum() - share * rows.size) <= 1.0 + 1e-9


def test_parts_are_random_and_reproducible():
    cells = cells_of(500)
    rows = np.arange(500)
    first, again, other = (
        parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(seed))[0]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.intersect1d(first, other).size < 0.5 * first.size
    # Every row may be in every part.
    drawn = np.concatenate(
        [parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(s))[0] for s in range(300)]
    )
    share = np.bincount(drawn, minlength=500) / 300
    assert abs(share - 0.2).max() < 5 * np.sqrt(0.16 / 300)


@pytest.mark.parametrize("share", [0.2, 0.25, 0.3, 1 / 3])
def test_rows_of_small_cells_may_be_in_every_part(share):
    """Of the first cell and of the last as well, though they have fewer rows than parts fit in."""
    cells = cells_of(40, n_classes=5, n_groups=4)
    sizes = np.bincount(cells.codes)
    assert max(sizes[0], sizes[-1]) < 1 / share
    shares = [share, 1.0 - share]
    draws = range(300)
    drawn = np.zeros(40)
    for seed in draws:
        drawn[parts_by_cell(np.arange(40), cells, shares, np.random.RandomState(seed))[0]] += 1
    chance = np.sqrt(share * (1.0 - share) / len(draws))
    assert abs(drawn / len(draws) - share).max() < 5 * chance


def test_groups_are_not_split():
    cells = cells_of(900, n_classes=2)
    groups = np.random.default_rng(1).integers(0, 60, 900)
    rows = np.arange(30, 900)
    parts = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    for i, part in enumerate(parts):
        others = np.concatenate(parts[:i] + parts[i + 1 :])
        assert not np.intersect1d(groups[part], groups[others]).size
        assert abs(part.size - rows.size / 4) < 60
    again = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    for one, two in zip(parts, again, strict=True):
        np.testing.assert_array_equal(one, two)


def test_cells_smaller_than_the_number_of_parts():
    """They are no stratum where groups are kept together, and scikit-learn does not warn."""
    cells = cells_of(200, n_classes=4, n_groups=8)
    groups = np.arange(200) // 3
    parts = parts_by_group(np.arange(200), cells, 5, groups, 200, np.random.RandomState(0))
    assert sum(part.size for part in parts) == 200


N = 3000


def draw(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, N, p=[0.6, 0.39, 0.01]).astype(np.intp)
    return y, rng.integers(0, 2, N), rng.integers(0, 200, N)


def deal(n_machines, seed):
    """Deal the rows, in random order, to machines of very different sizes; the first has none."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    if n_machines == 1:
        return [order]
    ends = np.sort(rng.integers(0, N, n_machines - 2))
    return [order[:0], *np.split(order, ends)]


def split(n_machines, shares, seed=0, by_group=False, random_state=0):
    """Numbers of the rows in each part, sorted, by all machines together."""
    y, s, group = draw()
    parts = deal(n_machines, seed)

    def work(communicator):
        mine = parts[communicator.rank]
        rows = Rows(
            y[mine], np.arange(3), columns={"s": s[mine]}, machine=Machine(communicator, mine)
        )
        cells = Cells(rows, [["label", ("s",)]])
        groups = group[mine] if by_group else None
        everyone = np.arange(mine.size)
        found = parts_by_hash(everyone, cells, shares, np.random.RandomState(random_state), groups)
        assert all((np.diff(part) > 0).all() for part in found)
        return [mine[part] for part in found]

    by_machine = run_on_machines(work, n_machines)
    return [np.sort(np.concatenate(part)) for part in zip(*by_machine, strict=True)]


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("shares", [[0.25] * 4, [0.2, 0.8]])
def test_parts_do_not_depend_on_machines(shares, by_group):
    one = split(1, shares, by_group=by_group)
    for n_machines, seed in [(1, 5), (2, 0), (4, 1), (4, 2)]:
        other = split(n_machines, shares, seed, by_group)
        for part, again in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize("shares", [[0.25] * 4, [0.2, 0.8], [0.37, 0.63]])
def test_each_part_has_its_share_of_each_cell(shares):
    """Up to the rows of one interval of hashes at either end."""
    y, s, _ = draw()
    cell = y * 2 + s
    parts = split(2, shares)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    whole = np.bincount(cell, minlength=6)
    for share, part in zip(shares, parts, strict=True):
        count = np.bincount(cell[part], minlength=6)
        assert (np.abs(count - share * whole) <= 2 + 3 * 3 * whole / 256).all()


def test_rows_of_a_group_stay_together():
    _, _, group = draw()
    parts = split(4, [0.25] * 4, by_group=True)
    groups = [set(group[part].tolist()) for part in parts]
    assert sum(map(len, groups)) == np.unique(group).size


def test_other_random_states_make_other_parts():
    first, other = (split(2, [0.2, 0.8], random_state=state)[0] for state in (0, 1))
    assert np.intersect1d(first, other).size < 0.4 * first.size


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


@random(25)
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


@random(25)
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


N_SPLIT = 24
X = np.arange(2.0 * N_SPLIT).reshape(N_SPLIT, 2)
Y = np.tile(["no", "yes"], N_SPLIT // 2)
GROUPS = np.repeat(np.arange(N_SPLIT // 3), 3)


def split_by(cv, kept=None):
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
        PredefinedSplit(np.repeat([-1, 0, 1], N_SPLIT // 3)),
    ],
)
def test_folds_are_those_of_the_splitter(cv):
    found = split_by(cv)
    expected = list(cv.split(X, Y, GROUPS if "Group" in type(cv).__name__ else None))
    assert len(found.folds) == len(expected)
    for fold, (training, held) in zip(found.folds, expected, strict=True):
        np.testing.assert_array_equal(fold.training, np.sort(training))
        np.testing.assert_array_equal(fold.held, np.sort(held))
    assert found.source == f"out of fold of {type(cv).__name__}"
    np.testing.assert_array_equal(found.held, np.sort(np.concatenate([h for _, h in expected])))


def test_rows_set_aside_are_in_no_fold():
    kept = np.setdiff1d(np.arange(N_SPLIT), [0, 5, 23])
    for fold, whole in zip(split_by(KFold(3), kept).folds, split_by(KFold(3)).folds, strict=True):
        np.testing.assert_array_equal(kept[fold.held], np.intersect1d(whole.held, kept))
        np.testing.assert_array_equal(kept[fold.training], np.intersect1d(whole.training, kept))


def test_pairs_may_be_masks_and_positions():
    mask = np.arange(N_SPLIT) < 12
    pair = (np.flatnonzero(mask), np.flatnonzero(~mask)[::-1])
    (of_masks,), (of_positions,) = split_by([(mask, ~mask)]).folds, split_by([pair]).folds
    np.testing.assert_array_equal(of_masks.training, of_positions.training)
    np.testing.assert_array_equal(of_masks.held, of_positions.held)
    assert split_by([pair]).source == "out of fold"


def test_windows_are_those_of_scikit_learn_on_rows_in_order():
    order = np.random.default_rng(0).permutation(N_SPLIT)
    times = Times.of(order, Rows(np.zeros(N_SPLIT, dtype=np.intp), np.arange(2)))
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
        split_by(cv)


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
    lacking = split_by([(np.arange(12), np.arange(12, 24))])
    with pytest.raises(ValueError, match="fold 0 of measure_on trains on no row of class 'yes'"):
        lacking.check_classes(codes, classes)
    with pytest.raises(ValueError, match="measure_on holds out no row of class 'no'"):
        split_by([(np.arange(13), np.arange(13, 24))]).check_classes(codes, classes)
