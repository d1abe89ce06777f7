"""The search for multipliers over passes of fold boosters, by fake boosters."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gbm_constrained.fit.cross_fit import AFFORDABLE, BUDGET, START, search_passes

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
        boosters, fields = self.grown.pop(0)
        boosters.has_multipliers = asked["has_multipliers"]
        return boosters, fields


def made(cost, needed=0.1, rounds=20, end=0.5, noise=0.0, of_labels=(False,), **others):
    """Fake boosters, and in the place of their held-out rows the fields of their pass."""
    m = len(of_labels)
    fields = SimpleNamespace(
        misses=False, is_open=False, cost=cost, needed=needed, noise=noise,
        of_labels=np.array(of_labels),
        prices=np.full(m, others.get("price", 0.1)),
        end=np.full(m, end),
        is_broken=lambda rows: others.get("is_broken", False),
        shift_for=lambda rows: others.get("shift", 0.0),
    )  # fmt: skip
    return SimpleNamespace(rounds=rounds), fields


def describe(grown):
    """The pass of fake boosters."""
    return SimpleNamespace(grown=grown, **vars(grown[1]))


def search(*grown, has_time=lambda: True, is_enough=lambda plain: False, share=1.0, **options):
    """Search over fake boosters: cost of what was found, and what growing was asked for."""
    grow = Grow(*grown)
    found = search_passes(grow, describe, has_time, is_enough, share, **options)
    return found[1].cost, grow.asked


def kinds(asked):
    """Whether each set of boosters was asked to have multipliers."""
    return [of["has_multipliers"] for of in asked]


def test_plain_boosters_come_first_and_may_be_enough():
    """What is enough is asked of the pass without multipliers alone, and once."""
    seen = []

    def is_enough(plain):
        seen.append(plain.cost)
        return True

    cost, asked = search(made(0.6), is_enough=is_enough)
    assert (cost, kinds(asked), seen) == (0.6, [False], [0.6])
    seen.clear()
    cost, asked = search(made(0.6), made(0.105), is_enough=lambda plain: not is_enough(plain))
    assert (cost, kinds(asked), seen) == (0.105, [False, True], [0.6])


def test_affordable_plain_boosters_that_are_not_enough_have_a_pass_beside_them():
    """Memorised rows are no matter of the cost. The cheaper of the two is returned."""
    assert search(made(0.1), made(0.101))[0] == 0.1
    cost, asked = search(made(0.101), made(0.1))
    assert (cost, kinds(asked)) == (0.1, [False, True])


def test_the_first_pass_starts_from_the_prices_of_group_thresholds():
    _, asked = search(made(0.6, price=0.25), made(0.105))
    assert set(asked[0]) == {"has_multipliers"}
    np.testing.assert_allclose(asked[1]["start"], START * 0.25)
    _, asked = search(made(0.105), may_be_plain=False)
    assert asked[0]["start"] is None  # that of the solver's options


@pytest.mark.parametrize(
    "affordable",
    [made(0.1 + 0.99 * AFFORDABLE), made(0.14, noise=0.05), made(0.5, needed=np.nan)],
    ids=["by little", "by chance", "none does better"],
)
def test_affordable_passes_with_multipliers_are_the_last(affordable):
    cost, asked = search(affordable, may_be_plain=False)
    assert (cost, kinds(asked)) == (affordable[1].cost, [True])


@pytest.mark.parametrize("share", [0.03, 0.75, 1.0, 2.0, 3.0, 4.0, 9.0])
@pytest.mark.parametrize("price", [0.0, START * 0.1])
@pytest.mark.parametrize("may_be_plain", [False, True])
def test_a_fit_costs_no_more_plain_fits_than_its_budget(share, price, may_be_plain):
    """The model, the plain boosters where they have prices, and passes; one pass at least."""
    costs = list(np.linspace(0.6, 0.3, 12))
    cost, asked = search(
        *[made(c, price=price) for c in costs], share=share, may_be_plain=may_be_plain
    )
    n_plain = int(may_be_plain)
    counted = int(may_be_plain and price > 0)
    most = max(int((BUDGET - 1.0) // max(share, 1.0)) - counted, 1)
    assert kinds(asked) == [False] * n_plain + [True] * most
    assert cost == costs[len(asked) - 1]


def test_further_passes_start_where_the_one_before_ended():
    _, asked = search(made(0.6), made(0.4, end=0.5), made(0.3, end=0.25), made(0.105))
    starts = [of["start"][0] for of in asked[1:]]
    assert starts == pytest.approx([START * 0.1, 0.5, 0.25])
    assert all(of["fixed"] is None and of["log_odds"] == 0.0 for of in asked[2:])


def test_what_the_scores_of_any_pass_allow_counts():
    """A pass is affordable next to what any scores so far would have needed."""
    cost, asked = search(made(0.13, needed=0.115), made(0.12, needed=np.nan))
    assert (cost, len(asked)) == (0.12, 2)
    passes = [made(0.14, needed=0.05), made(0.054, needed=0.053)]
    cost, asked = search(made(0.13, needed=0.115), *passes)
    assert (cost, len(asked)) == (0.054, 3)


def test_the_first_of_equals_is_taken():
    plain, others = made(0.3), [made(0.3) for _ in range(12)]
    found = search_passes(Grow(plain, *others), describe, lambda: True, lambda plain: False)
    assert found[0] is plain[0]


def test_a_pass_that_ended_before_its_time_is_not_taken():
    cost, asked = search(made(0.6), made(0.2, rounds=18), made(0.1))
    assert (cost, len(asked)) == (0.6, 2)


def test_passes_are_made_while_there_is_time():
    for most in range(4):
        left = iter([True] * most + [False])
        costs = [0.6, 0.5, 0.4, 0.3]
        cost, asked = search(*map(made, costs), has_time=lambda left=left: next(left))
        assert (cost, len(asked)) == (costs[most], most + 1)


# --- constraints on labels beside comparisons of groups -----------------------------------------

MIXED = {"of_labels": (True, False)}


def test_mixed_constraints_leave_those_of_labels_to_the_threshold():
    """The shift that they need is added to the log-odds, more in each pass."""
    cost, asked = search(
        made(0.6, is_broken=True, shift=0.8, **MIXED),
        made(0.5, shift=0.3, **MIXED),
        made(0.4, shift=-0.1, **MIXED),
        made(0.3, **MIXED),
        made(0.105, **MIXED),
    )
    assert cost == 0.105
    assert kinds(asked) == [False, True, True, True, True]
    weighed = asked[1:]
    assert [of["log_odds"] for of in weighed] == pytest.approx([0.8, 1.1, 1.0, 1.0])
    for of in weighed:
        np.testing.assert_array_equal(of["fixed"], [True, False])
    # Comparisons start at their prices; the labels have the weights alone.
    np.testing.assert_allclose(weighed[0]["start"], [0.0, START * 0.1])


@pytest.mark.parametrize(
    "fields",
    [
        {"is_broken": False, "shift": 0.8, "of_labels": (True, False)},
        {"is_broken": True, "shift": 0.8, "of_labels": (True, True)},
        {"is_broken": True, "shift": 0.8, "of_labels": (False, False)},
    ],
    ids=["met by the plain model", "labels alone", "groups alone"],
)
def test_other_constraints_have_multipliers_throughout(fields):
    _, asked = search(*[made(c, **fields) for c in np.linspace(0.6, 0.3, 12)])
    assert len(asked) > 3
    assert all(of["fixed"] is None and of["log_odds"] == 0.0 for of in asked[2:])


def test_multipliers_that_were_asked_for_are_never_left_out():
    fields = {"is_broken": True, "shift": 1.0, **MIXED}
    passes = [made(c, **fields) for c in np.linspace(0.6, 0.3, 12)]
    _, asked = search(*passes, may_be_plain=False)
    assert len(asked) == int(BUDGET) - 1
    assert all(kinds(asked))
    assert all(of.get("fixed") is None for of in asked)
