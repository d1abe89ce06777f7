"""Figures of the benchmark of peers on cases made by hand, and options; no peer, no network."""

import numpy as np
import pandas as pd
import peers
import pytest
from data_sets import encoded
from hypothesis import given
from hypothesis import strategies as st
from peer_runs import report
from peer_runs.catalogue import DATA, split_of
from peer_runs.methods import GAP_RULES, counts, rule_of, value
from peer_runs.report import accuracy_at, envelope, hypervolume, jackknife_interval

from gbm_constrained.statistics.binomial import newcombe_difference

# Group 0: labels 0 0 1 1, decisions 1 0 1 1; group 1: labels 0 0 1 1, decisions 0 0 0 1.
Y = np.array([0, 0, 1, 1, 0, 0, 1, 1])
DECISIONS = np.array([1, 0, 1, 1, 0, 0, 0, 1])
GROUPS = np.repeat([0, 1], 4)


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("selection_rate_gap", 3 / 4 - 1 / 4),
        ("fpr_gap", 1 / 2),
        ("tpr_gap", 1 / 2),
        ("error_rate_gap", 0.0),
        ("equalized_odds", 1 / 2),
    ],
)
def test_gaps_counted_by_hand(task, expected):
    assert value(GAP_RULES[task], Y, DECISIONS, GROUPS) == pytest.approx(expected)


@pytest.mark.parametrize(("rate", "expected"), [("fpr", 1 / 4), ("fnr", 1 / 4)])
def test_levels_counted_by_hand(rate, expected):
    assert value(rule_of("neyman_pearson", rate), Y, DECISIONS, GROUPS) == pytest.approx(expected)


def test_equalized_odds_is_the_larger_of_two_gaps():
    decisions = np.where((GROUPS == 0) & (Y == 0), 1, DECISIONS)
    assert value(GAP_RULES["fpr_gap"], Y, decisions, GROUPS) == 1.0
    assert value(GAP_RULES["equalized_odds"], Y, decisions, GROUPS) == 1.0


@pytest.mark.parametrize(
    ("task", "expected"), [("class_shares_gap", 1 / 2), ("class_recalls_gap", 1.0)]
)
def test_gaps_of_classes_counted_by_hand(task, expected):
    """Shares 1/4 1/4 1/2 and 3/4 0 1/4; recalls 1/2 1 1 and 1 0 1 of the groups."""
    y = np.array([0, 0, 1, 2, 0, 0, 1, 2])
    decisions = np.array([0, 2, 1, 2, 0, 0, 0, 2])
    rule = rule_of(task, "fpr", 3)
    assert len(rule.rates) == 3
    assert value(rule, y, decisions, GROUPS) == pytest.approx(expected)


def test_a_group_without_rows_of_the_base_does_not_count():
    groups = np.array([0, 0, 2, 2, 0, 1, 1, 2])
    events, rows = counts("fpr", Y, DECISIONS, groups)
    np.testing.assert_array_equal(events, [1, 0, 0])
    np.testing.assert_array_equal(rows, [3, 1, 0])
    assert value(GAP_RULES["fpr_gap"], Y, DECISIONS, groups) == pytest.approx(1 / 3)


def test_beyond_sampling_asks_more_than_a_larger_figure():
    y = np.zeros(200, dtype=int)
    rule = rule_of("neyman_pearson", "fpr")
    # Clopper and Pearson's lower limit of 12 in 200 is 0.0314, of 18 it is 0.0543.
    for events, beyond in ((12, False), (18, True)):
        decisions = (np.arange(200) < events).astype(int)
        assert report.is_beyond_sampling(rule, 0.05, y, decisions, y) is beyond


def test_beyond_sampling_of_a_gap_and_of_two_gaps():
    y, groups = np.tile([0, 1], 200), np.repeat([0, 1], 200)
    # False positive rates 0.2 and 0.1 of 100 rows each: the lower limit of the gap is 0.001.
    decisions = np.concatenate(
        [np.where(y[:200] == 1, 1, np.arange(200) < 2 * n) for n in (20, 10)]
    ).astype(int)
    assert value(GAP_RULES["fpr_gap"], y, decisions, groups) == pytest.approx(0.1)
    assert report.is_beyond_sampling(GAP_RULES["fpr_gap"], 0.0, y, decisions, groups)
    assert not report.is_beyond_sampling(GAP_RULES["fpr_gap"], 0.02, y, decisions, groups)
    # Each of two rates has a wider interval.
    assert not report.is_beyond_sampling(GAP_RULES["equalized_odds"], 0.0, y, decisions, groups)


def _selected(rates, rows):
    """Decisions of groups with these selection rates, and the groups; labels do not matter."""
    groups = np.repeat(np.arange(len(rates)), rows)
    return np.concatenate([np.arange(rows) < round(rate * rows) for rate in rates]), groups


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0, 0.5))
def test_beyond_sampling_of_two_groups_is_the_interval_of_newcombe(first, second, asked):
    decisions, groups = _selected([first / 100, second / 100], 100)
    low, _ = newcombe_difference(max(first, second), 100, min(first, second), 100)
    found = report.is_beyond_sampling(
        GAP_RULES["selection_rate_gap"], asked, np.zeros(200, int), decisions.astype(int), groups
    )
    assert found == (low > asked)


def test_beyond_sampling_of_many_groups_pays_for_the_pairs():
    rule = GAP_RULES["selection_rate_gap"]
    rng, found = np.random.default_rng(0), {2: 0, 9: 0}
    for k in found:
        groups = np.repeat(np.arange(k), 200)
        for _ in range(200):
            decisions = (rng.random(groups.size) < 0.3).astype(int)
            found[k] += report.is_beyond_sampling(rule, 0.0, groups, decisions, groups)
    # All rates are the same: one in twenty at most is beyond by chance, whatever the groups.
    assert found[9] <= 20
    assert found[2] <= 20
    # The largest pair of few rows hides no pair of many rows that is beyond.
    decisions, groups = _selected([0.2, 0.5], 1000)
    decisions, groups = np.append(decisions, [1, 0]), np.append(groups, [2, 3])
    assert report.is_beyond_sampling(rule, 0.2, groups, decisions.astype(int), groups)


def test_standard_error_is_that_of_the_two_groups_of_the_gap():
    decisions, groups = _selected([0.2, 0.3, 0.5], 100)
    found = report.standard_error(
        GAP_RULES["selection_rate_gap"], groups, decisions.astype(int), groups
    )
    near = np.array([21, 51]) / 102
    assert found == pytest.approx(np.sqrt((near * (1 - near) / 100).sum()))
    # A rate of no event has an error, too.
    decisions, groups = _selected([0.0, 0.0], 4)
    assert report.standard_error(
        GAP_RULES["selection_rate_gap"], groups, decisions.astype(int), groups
    ) == pytest.approx(np.sqrt(2 * (1 / 6) * (5 / 6) / 4))


# --- frontiers --------------------------------------------------------------------------------

VALUES, ACCURACIES = [0.04, 0.01, 0.02, 0.03, np.nan], [0.85, 0.80, 0.70, 0.84, 0.99]


def test_envelope_drops_what_another_point_beats():
    x, y = envelope(VALUES, ACCURACIES)
    np.testing.assert_array_equal(x, [0.01, 0.03, 0.04])
    np.testing.assert_array_equal(y, [0.80, 0.84, 0.85])


def test_accuracy_at_equal_value():
    found = accuracy_at(VALUES, ACCURACIES, [0.005, 0.01, 0.02, 0.03, 0.5])
    np.testing.assert_allclose(found, [np.nan, 0.80, 0.82, 0.84, 0.85])
    assert np.isnan(accuracy_at([], [], 0.1))


@pytest.mark.parametrize(
    ("values", "accuracies", "reference", "floor", "expected"),
    [
        ([0.0], [0.8], 0.1, 0.7, 0.1),  # a rectangle
        ([0.05], [0.8], 0.1, 0.7, 0.05),  # half of it
        ([0.0, 0.1], [0.7, 0.8], 0.1, 0.7, 0.05),  # a triangle
        ([0.0, 0.2], [0.7, 0.9], 0.1, 0.7, 0.05),  # the line goes on beyond the reference
        ([0.0, 0.1], [0.6, 0.8], 0.1, 0.7, 0.025),  # the area starts at the floor
        ([0.2], [0.9], 0.1, 0.7, 0.0),  # beyond the reference
        ([0.0], [0.6], 0.1, 0.7, 0.0),  # below the floor
        ([], [], 0.1, 0.7, 0.0),
    ],
)
def test_hypervolume_of_shapes(values, accuracies, reference, floor, expected):
    assert hypervolume(values, accuracies, reference, floor) == pytest.approx(expected)


points = st.lists(st.tuples(st.floats(0, 0.3), st.floats(0.4, 1)), min_size=1, max_size=8)


@given(points)
def test_hypervolume_is_the_mean_of_the_envelope_over_a_grid(found):
    values, accuracies = map(np.array, zip(*found, strict=True))
    grid = (np.arange(20_000) + 0.5) / 20_000 * 0.2
    height = np.nan_to_num(np.maximum(accuracy_at(values, accuracies, grid) - 0.6, 0.0))
    assert hypervolume(values, accuracies, 0.2, 0.6) == pytest.approx(height.mean(), abs=1e-4)


@given(points, st.floats(0, 0.3), st.floats(0.4, 1))
def test_another_point_never_makes_a_hypervolume_smaller_than_the_rectangle_it_adds(found, x, y):
    values, accuracies = map(np.array, zip(*found, strict=True))
    both = hypervolume(np.append(values, x), np.append(accuracies, y), 0.2, 0.6)
    alone = max(0.2 - x, 0.0) / 0.2 * max(y - 0.6, 0.0)
    assert both >= alone - 1e-12


def test_jackknife_of_a_mean_is_the_interval_of_student():
    numbers = np.array([1.0, 2.0, 4.0, 5.0])
    estimate, low, high = jackknife_interval(lambda rows: numbers[rows].mean(), 4)
    half = 3.18244630528371 * numbers.std(ddof=1) / 2  # t of three degrees of freedom
    np.testing.assert_allclose([estimate, low, high], [3.0, 3.0 - half, 3.0 + half], rtol=1e-6)
    assert jackknife_interval(lambda rows: 1.0, 1) == (1.0, -np.inf, np.inf)


# --- tables -----------------------------------------------------------------------------------


def _results(points_by_peer):
    """Rows of one cell: for each peer and split the points (asked, value, accuracy)."""
    return pd.DataFrame(
        {
            "data": "adult", "task": "fpr_gap", "split": split, "peer": peer, "asked": asked,
            "trees": 100, "test_value": at, "test_accuracy": accuracy,
            "test_violation": np.nan if np.isinf(asked) else max(at - asked, 0.0),
            "is_beyond_sampling": at > asked, "majority_accuracy": 0.7, "seconds": 2.0,
            "peak_mib": 10.0, "error": None,
        }
        for peer, splits in points_by_peer.items()
        for split, points in enumerate(splits)
        for asked, at, accuracy in points
    )  # fmt: skip


PLAIN = [[(np.inf, 0.1, 0.9)]] * 3


def test_cells_average_over_splits_at_each_thing_asked():
    ours = [[(0.01, 0.0, 0.8)], [(0.01, 0.04, 0.9)], [(0.01, 0.02, 0.85)]]
    (cell,) = report.cells_of(_results({"plain": PLAIN, "ours_lightgbm": ours}))
    assert [cell.at, cell.floor] == pytest.approx([0.1, 0.7])
    np.testing.assert_allclose(cell.averaged("ours_lightgbm"), [[0.02], [0.85]])
    assert cell.volume("ours_lightgbm") == pytest.approx(0.15 * 0.8)
    assert cell.volume("plain") == 0.0
    table = report.volumes([cell])
    assert table.loc[0, "ours_lightgbm"] == pytest.approx(12.0)
    assert report.accuracies([cell])["value"].tolist() == [0.025, 0.05, 0.1]


def test_something_asked_that_failed_in_one_split_is_no_point():
    ours = [[(0.01, 0.0, 0.8), (0.05, 0.05, 0.9)], [(0.01, 0.0, 0.8)], [(0.01, 0.0, 0.8)]]
    (cell,) = report.cells_of(_results({"plain": PLAIN, "ours_lightgbm": ours}))
    assert cell.frontiers["ours_lightgbm"].shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ([0.84, 0.83, 0.82], "first"),
        ([0.90, 0.80, 0.88], "within noise"),
        ([0.87, 0.88, 0.87], "behind"),
    ],
)
def test_standing_tells_noise_from_a_difference(theirs, verdict):
    ours = [[(0.01, 0.02, a)] for a in (0.85, 0.86, 0.84)]
    peer = [[(0.01, 0.02, a)] for a in theirs]
    (cell,) = report.cells_of(_results({"plain": PLAIN, "ours_lightgbm": ours, "oxonfair": peer}))
    (row,) = report.standing([cell], "ours_lightgbm", group_at_prediction=True).itertuples()
    assert row.verdict == verdict
    # OxonFair needs the group, so without it only the plain booster is left.
    (row,) = report.standing([cell], "ours_lightgbm", group_at_prediction=False).itertuples()
    assert row.verdict == "first"


def test_nobody_is_first_where_no_frontier_has_an_area():
    beyond = [[(0.01, 0.2, 0.85)]] * 3
    (cell,) = report.cells_of(_results({"plain": PLAIN, "ours_lightgbm": beyond}))
    (row,) = report.standing([cell], "ours_lightgbm", group_at_prediction=True).itertuples()
    assert (row.advantage, row.verdict) == (0.0, "within noise")


def test_promises_count_bounds_that_bind():
    ours = [[(0.01, 0.03, 0.8), (0.5, 0.1, 0.9)]] * 3
    row = report.promises(_results({"plain": PLAIN, "ours_lightgbm": ours})).loc["ours_lightgbm"]
    assert row["runs"] == 3
    assert row["requested_minus_observed"] == pytest.approx(-0.02)
    assert row["violation"] == pytest.approx(0.02)
    assert row["share_beyond_sampling"] == 1.0
    found = report.costs(_results({"plain": PLAIN, "ours_lightgbm": ours})).loc["ours_lightgbm"]
    assert found["over_plain"] == 1.0


# --- what is run ------------------------------------------------------------------------------


def test_levels_are_among_the_bounds():
    for data in DATA.values():
        for n in (3, 4, 8):
            bounds = peers.bounds_of("neyman_pearson", data, {}, n)
            assert set(data.levels) <= set(bounds)
        assert len(bounds) >= 8
    bounds = peers.bounds_of("fpr_gap", DATA["adult"], {"fpr_gap": 0.05}, 8)
    assert bounds == (0.0, 0.0025, 0.005, 0.01, 0.0175, 0.025, 0.035, 0.045)
    assert peers.bounds_of("fpr_gap", DATA["adult"], {"fpr_gap": 0.1}, 2) == (0.0, 0.09)


def test_codes_and_missing_values():
    frame = pd.DataFrame({"n": [1.5, np.nan, 3.0], "c": pd.Categorical(["b", None, "a"])})
    np.testing.assert_array_equal(encoded(frame), [[1.5, 1.0], [-1.0, -1.0], [3.0, 0.0]])


def test_splits_have_no_labels_of_test_rows_and_a_quarter_for_calibration(tmp_path):
    split, y_test = split_of("compas", 0)
    assert not {"y_test", "test"} & set(vars(split))
    assert split.y.size + y_test.size == 6172
    assert split.calibration.mean() == pytest.approx(0.25, abs=1e-3)
    for rows in (split.calibration, ~split.calibration):
        assert split.y[rows].mean() == pytest.approx(y_test.mean(), abs=0.002)
    split.save(tmp_path / "split.npz")
    again = type(split).load(tmp_path / "split.npz")
    np.testing.assert_array_equal(again.X_test, split.X_test)
