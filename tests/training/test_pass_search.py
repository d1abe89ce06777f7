"""The search for multipliers over passes of fold boosters, by fake boosters."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbm_constrained.training.pass_search import AFFORDABLE, PASSES, PassSearch, next_start
from gbm_constrained.training.passes import Pass

# --- where a pass begins ------------------------------------------------------------------------


@given(slope=st.floats(-3.0, -0.4), rest=st.floats(0.5, 5.0), path=st.floats(0.5, 50.0))
def test_the_second_further_pass_of_a_linear_drift_begins_where_it_ends(slope, rest, path):
    """The secant of a line is the line."""

    def drift(start):
        return slope * (start - rest)

    first = np.zeros(1)
    second = next_start([first], [drift(first)], path)
    factor = 1.0 + min(1.0, 2.0 / path)
    np.testing.assert_allclose(second, factor * drift(first))
    if abs(second[0] - first[0]) > 1e-6:
        third = next_start([first, second], [drift(first), drift(second)], path)
        np.testing.assert_allclose(third, rest, rtol=1e-6)


def test_multipliers_are_not_negative_and_steps_are_bounded():
    starts = [np.zeros(4), np.array([1.0, 1.0, 2.0, 0.0])]
    drifts = [np.array([1.0, 1.0, 2.0, 0.5]), np.array([0.9, 2.0, -9.0, 0.7])]
    found = next_start(starts, drifts, 10.0)
    # Drifts that hardly shrink (the secant would go nine of them), drifts that grow, and those of
    # multipliers that have not moved are followed once.
    np.testing.assert_allclose(found[:2], [1.9, 3.0])
    assert found[2] == pytest.approx(2.0 - 9.0 / 5.5)
    assert found[3] == pytest.approx(0.7)
    assert next_start([np.array([1.0])], [np.array([-5.0])], 1.0) == 0.0


# --- which passes are made ----------------------------------------------------------------------


class Grow:
    """Grows fake boosters, and keeps what it was asked for.

    Parameters
    ----------
    *grown : tuple
        The boosters, from :func:`made`, in the order in which they are grown.
    """

    def __init__(self, *grown):
        self.grown, self.asked = list(grown), []

    def __call__(self, **asked):
        self.asked.append(asked)
        return self.grown.pop(0)


def made(cost, needed=0.1, rounds=20, drift=0.5, noise=0.0, of_labels=(False,), **others):
    """Fake boosters, and in the place of their held-out rows the fields of their pass."""
    m = len(of_labels)
    fields = SimpleNamespace(
        cost=cost, needed=needed, noise=noise, of_labels=np.array(of_labels),
        drift=np.full(m, drift), start=np.zeros(m), pushed=np.full(m, others.get("pushed", 0.0)),
        is_broken=lambda rows: others.get("is_broken", False),
        shift_for=lambda rows: others.get("shift", 0.0),
    )  # fmt: skip
    return SimpleNamespace(rounds=rounds), fields


def describe(grown):
    """The pass of fake boosters."""
    return SimpleNamespace(grown=grown, **vars(grown[1]))


def search(first, *others, has_time=lambda: True, may_be_plain=True):
    """Search over fake boosters: cost of what was found, and what growing was asked for."""
    grow = Grow(*others)
    run = PassSearch(grow, describe, 10.0, has_time, may_be_plain).run
    return run(first)[1].cost, grow.asked


def test_affordable_constraints_need_no_further_pass():
    assert search(made(0.1 + AFFORDABLE)) == (0.1 + AFFORDABLE, [])
    assert search(made(0.14, noise=0.05)) == (0.14, [])  # may be chance
    assert search(made(0.5, needed=np.nan)) == (0.5, [])  # none does better


def test_passes_are_made_in_order_and_the_best_is_taken():
    """Two with multipliers, one without, and the rest with multipliers."""
    costs = [0.4, 0.3, 0.35, 0.25, 0.5]
    cost, asked = search(made(0.6), *map(made, costs))
    assert cost == 0.25
    assert [of["has_multipliers"] for of in asked] == [True, False, True, True, True]
    assert len([of for of in asked if of["has_multipliers"]]) == PASSES - 1
    assert all(
        of["fixed"] is None and of["log_odds"] == 0.0 for of in asked if of["has_multipliers"]
    )
    np.testing.assert_allclose(asked[0]["start"], (1 + 0.2) * 0.5)  # the drift, and a fifth more


@pytest.mark.parametrize("of_labels", [(False,), (True, False)])
def test_multipliers_that_were_asked_for_are_never_left_out(of_labels):
    others = [made(0.5, of_labels=of_labels, is_broken=True, shift=1.0) for _ in range(PASSES - 1)]
    first = made(0.6, of_labels=of_labels)
    cost, asked = search(first, *others, may_be_plain=False)
    assert cost == 0.5
    assert len(asked) == PASSES - 1
    assert all(of["has_multipliers"] and of["fixed"] is None for of in asked)


def test_a_multiplier_that_stalls_beyond_its_bound_is_pushed():
    """The next pass starts there at least."""
    _, asked = search(made(0.6, pushed=0.75), made(0.105))
    np.testing.assert_allclose(asked[0]["start"], 0.75)  # 0.6 otherwise


def test_multipliers_that_end_where_they_began_are_pushed_if_violated():
    start, ends = np.array([0.4, 0.4, 0.4, 0.0]), np.array([0.45, 0.45, 0.6, 0.3])
    record = SimpleNamespace(
        multipliers=ends, rates=np.array([0.2, 0.1, 0.2, 0.2]), bounds=np.full(4, 0.1)
    )
    solver = SimpleNamespace(start=start, history=[record])
    boosters = SimpleNamespace(controller=SimpleNamespace(solver=solver))
    found = Pass((boosters, None), 0.3, 0.1, 0.0).pushed
    np.testing.assert_allclose(found, [1.5 * 0.45, 0.0, 0.0, 0.0])


def test_no_pass_is_made_after_an_affordable_one():
    cost, asked = search(made(0.6), made(0.3), made(0.105), made(0.0))
    assert cost == 0.105
    assert len(asked) == 2


def test_what_the_scores_of_any_pass_allow_counts():
    cost, asked = search(made(0.12, needed=0.115), made(0.14, needed=np.nan))
    assert (cost, len(asked)) == (0.12, 0)
    others = [made(0.14, needed=0.05), made(0.059, needed=0.055)]
    cost, asked = search(made(0.13, needed=0.115), *others)
    assert (cost, len(asked)) == (0.059, 2)


def test_the_first_of_equals_is_taken():
    first = made(0.3)
    grow = Grow(*[made(0.3) for _ in range(5)])
    assert PassSearch(grow, describe, 10.0, lambda: True, True).run(first) is first


def test_a_pass_that_ended_before_its_time_is_not_taken():
    cost, asked = search(made(0.6), made(0.2, rounds=18), made(0.1))
    assert (cost, len(asked)) == (0.6, 1)


def test_passes_are_made_while_there_is_time():
    for most in range(4):
        left = iter([True] * most + [False])
        costs = [0.5, 0.4, 0.3]
        cost, asked = search(made(0.6), *map(made, costs), has_time=lambda left=left: next(left))
        assert (cost, len(asked)) == ([0.6, *costs][most], most)


def test_mixed_constraints_leave_those_of_labels_to_the_threshold():
    """After one pass, with the shift that they need added to the log-odds, more in each pass."""
    mixed = {"of_labels": (True, False)}
    cost, asked = search(
        made(0.6, **mixed),
        made(0.5, is_broken=True, shift=0.8, **mixed),
        made(0.4, shift=0.3, **mixed),
        made(0.3, shift=-0.1, **mixed),
        made(0.2, **mixed),
        made(0.15, **mixed),
    )
    assert cost == 0.15
    assert [of["has_multipliers"] for of in asked] == [False, True, True, True, True]
    weighed = asked[1:]
    assert [of["log_odds"] for of in weighed] == pytest.approx([0.8, 1.1, 1.0, 1.0])
    for of in weighed:
        np.testing.assert_array_equal(of["fixed"], [True, False])
    np.testing.assert_allclose(weighed[0]["start"], [0.0, 0.5])


def test_mixed_constraints_whose_labels_ask_for_nothing_have_multipliers():
    mixed = {"of_labels": (True, False)}
    costs = [0.5, 0.4, 0.3, 0.2, 0.2]
    _, asked = search(made(0.6, **mixed), *[made(c, **mixed) for c in costs])
    assert [of["has_multipliers"] for of in asked] == [False, True, True, True, True]
    assert all(of["fixed"] is None and of["log_odds"] == 0.0 for of in asked[1:])
