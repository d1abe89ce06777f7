"""Passes of fold boosters: what constraints cost them, the search, and the fits that follow."""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import small_fits
from helpers import CLASSIFIERS, EITHER

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import Prefixes, choose_prefix, choose_with_room
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.violations import standard_errors
from gbm_constrained.fit.cross_fit import (
    AFFORDABLE,
    MOST_SETS,
    START,
    measure_excess,
    measure_pass,
    measure_swing,
    search_passes,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts

# --- swings -------------------------------------------------------------------------------------


def swing_of(rates):
    rows = Rows(np.arange(400) % 2, np.arange(2), columns={"g": np.arange(400) // 2 % 2})
    cells, compiled = compile_constraints(
        [gc.gap(gc.fpr(), by="g", small_groups="hold") <= 0.1], rows
    )
    halves = np.full((len(cells), 2), 0.5)
    history = [SimpleNamespace(rates=np.array([rate, -rate]), predicted=halves) for rate in rates]
    solver = SimpleNamespace(history=history)
    boosters = SimpleNamespace(controller=SimpleNamespace(solver=solver))
    noise = standard_errors(compiled, CellCounts.of_shares(cells, halves))[0]
    return measure_swing((boosters, EvaluationSet(cells, compiled, "test"))), noise


def test_what_only_rises_or_falls_does_not_swing():
    assert swing_of(np.linspace(0.9, -0.3, 40))[0] == pytest.approx(0.0, abs=1e-12)
    assert swing_of([0.3])[0] == 0.0
    early = np.r_[np.tile([-0.9, 0.9], 15), np.zeros(10)]
    assert swing_of(early)[0] == 0.0


def test_swings_count_beyond_sampling_error():
    last = np.tile([0.4, -0.4, -0.4, 0.4], 2)  # no line through them rises or falls
    found, noise = swing_of(np.r_[np.zeros(24), last])
    assert noise == pytest.approx(np.sqrt(2 * 0.25 / 100))
    assert found == pytest.approx(0.4 - noise)
    assert swing_of(np.r_[np.zeros(24), last * noise * 2])[0] == 0.0


# --- gaps that thresholds close by chance -------------------------------------------------------


def excess_of(rule, precision_of_group, seed=3):
    """Excess of scores that select both groups alike, and the choice that it is measured by.

    The third is the gap, of precision or false positive rates, at the thresholds of other folds.
    """
    rng, n = np.random.default_rng(seed), 1200
    group = np.arange(n) % 2
    y = (rng.random(n) < np.array(precision_of_group)[group]).astype(int)
    margin = rng.normal(size=n)
    rows = Rows(y, np.arange(2), columns={"g": group})
    cells, compiled = compile_constraints([rule], rows)
    held_out = EvaluationSet(cells, compiled, "test", np.array_split(rng.permutation(n), 4))
    choice = choose_prefix(ScoredRows(held_out, lambda _: margin), Prefixes(1, 1))
    boosters = SimpleNamespace(held_margin=lambda _: margin)
    _, decided = choose_with_room(held_out, margin, choice)
    of, given = (decided, y == 0) if "fpr" in str(rule) else (y, decided == 1)
    gap = np.subtract(*(of[given & (group == g)].mean() for g in (0, 1)))
    return measure_excess((boosters, held_out), choice), choice, abs(gap)


def test_a_gap_of_precision_that_one_threshold_closes_by_chance_has_a_price():
    """Precision differs by 0.2 at all thresholds, and by less at the one that was chosen."""
    rule = gc.gap(gc.precision(), by="g", small_groups="hold") <= 0.15
    excess, choice, gap = excess_of(rule, (0.4, 0.6))
    assert choice.violation == 0.0
    assert excess == pytest.approx(gap - 0.15)
    assert excess > 0.1


def test_a_gap_of_rates_that_one_threshold_closes_by_chance_has_a_price():
    excess, choice, gap = excess_of(gc.gap(gc.fpr(), by="g") <= 0.0, (0.4, 0.6))
    assert excess == pytest.approx(gap - choice.violation)
    assert excess > 0.0


def test_gaps_that_are_closed_have_none():
    assert excess_of(gc.gap(gc.precision(), by="g") <= 0.15, (0.5, 0.5))[0] == 0.0
    assert excess_of(gc.gap(gc.fpr(), by="g") <= 0.15, (0.4, 0.6))[0] == 0.0


# --- whole fits ---------------------------------------------------------------------------------


make = functools.partial(small_fits.make, n_estimators=14)


@pytest.fixture(scope="module")
def table():
    """Two groups with scores and shares of positives of their own."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 1500)
    X = np.column_stack([rng.normal(size=(1500, 5)), sex + 0.3 * rng.normal(size=1500)])
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 1.2 * sex + 0.5 * rng.normal(size=1500) > 1.2).astype(int)
    return X, y, sex


PULLING = [gc.gap(gc.fpr(), by="sex") <= 0.02, gc.fnr() <= 0.2]
PARITY = [gc.gap(gc.selection_rate(), by="sex") <= 0.1]


@EITHER
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"measure_on": "holdout"},
        {"iterate": "best"},
        {"guarantee": "expected"},
        {"guarantee": "high_probability"},
    ],
    ids=["crossfit", "holdout", "best", "expected", "high probability"],
)
def test_the_best_pass_is_followed(library, options, table, grown, conclusions):
    """Also from where it started, and of the log-odds that it was grown at."""
    X, y, sex = table
    # Tighter ones are met by no decisions to within what a guarantee takes of them.
    constraints = PARITY if "guarantee" in options else PULLING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(library, constraints, **options).fit(X, y, sensitive_features={"sex": sex})
    assert len(grown) > 1 or (library, options) == ("xgboost", {"guarantee": "expected"})
    fit = conclusions[0].fit
    solver = fit.measured.controller.solver
    if fit.measured.has_multipliers:
        first = fit.solver.history[0]
        np.testing.assert_array_equal(first.multipliers, solver.history[0].multipliers)
        found = np.array([r.multipliers for r in fit.solver.history])
        fixed = solver.fixed
        if fixed is not None:
            assert not found[:, fixed].any()
    weight = fit.solver.lagrangian.rows.weight  # what the model of all rows was trained with
    if fit.measured.boosters.log_odds:
        ratio = weight[fit.data.rows.y == 1][0] / weight[fit.data.rows.y == 0][0]
        assert np.log(ratio) == pytest.approx(fit.measured.boosters.log_odds)
        assert weight.sum(dtype=float) == pytest.approx(len(fit.data.rows))
    assert np.isfinite(model.feasibility_.cost.error)


def cost_of(conclusion):
    """What the constraints cost the boosters that a model followed."""
    fit = conclusion.fit
    grown = fit.measured.boosters, fit.measured.rows
    return measure_pass(grown, fit.options, fit.certification).cost


@EITHER
def test_passes_with_multipliers_cost_less_than_the_plain_one(library, table, grown, conclusions):
    """Where these are followed; the threshold of the plain scores is a candidate as well."""
    X, y, sex = table
    given = {"sensitive_features": {"sex": sex}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(library, PULLING).fit(X, y, **given)
        assert grown[:2] == [False, True]
        grown.clear()
        make(library, PULLING, solver="threshold").fit(X, y, **given)
        assert grown == [False]
    best, plain = map(cost_of, conclusions)
    has_multipliers = conclusions[0].fit.measured.has_multipliers
    assert best < plain if has_multipliers else best == plain
    assert has_multipliers or library == "lightgbm"


@EITHER
@pytest.mark.parametrize("options", [{"iterate": "randomized"}, {"measure_on": "train"}],
                         ids=lambda o: next(iter(o.values())))  # fmt: skip
def test_mixtures_and_training_rows_have_one_pass(library, options, table, grown):
    X, y, sex = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(library, PULLING, **options).fit(X, y, sensitive_features={"sex": sex})
    assert len(grown) <= 1


@EITHER
@pytest.mark.parametrize("rounds", [20, 30])
def test_few_rounds_on_adult_are_sensible_or_warned_of(library, rounds, adult):
    """Two constraints that pull against each other, on three draws of the rows."""
    X, y, X_test, y_test = adult
    accuracies, warned = [], []
    for seed in range(3):
        part = np.random.default_rng(seed).permutation(len(X))[:8000]
        model = CLASSIFIERS[library](
            constraints=PULLING, n_estimators=rounds, learning_rate=0.1, n_jobs=1,
            **({"verbose": -1} if library == "lightgbm" else {"enable_categorical": True}),
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X.iloc[part], y[part], sensitive_features={"sex": X["sex"].iloc[part]})
        accuracies.append(np.mean(model.predict(X_test) == y_test))
        warned.append(any(issubclass(w.category, gc.CostlyConstraintsWarning) for w in caught))
        cost = model.feasibility_.cost
        assert warned[-1] == cost.is_costly
        assert cost.error == pytest.approx(1 - accuracies[-1], abs=0.03)
        # Fewer errors than group thresholds need are at the price of a violation.
        report = model.constraint_report_
        violation = (report.held_out - report.bound).max()
        assert cost.needed_error <= cost.error + max(violation, 0.0)
    assert np.mean(accuracies) >= 0.79 or all(warned)


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
        misses=others.get("misses", False), cost=cost, needed=needed, noise=noise,
        is_open=others.get("misses", False) and np.isfinite(needed),
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


def search(*grown, has_time=lambda: True, is_enough=lambda plain: False, **options):
    """Search over fake boosters: cost of what was found, and what growing was asked for."""
    grow = Grow(*grown)
    found = search_passes(grow, describe, has_time, is_enough, **options)
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


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("price", [0.0, START * 0.1])
@pytest.mark.parametrize("may_be_plain", [False, True])
def test_a_fit_grows_no_more_sets_than_allowed(is_open, price, may_be_plain):
    """Plain boosters count, grown or not, and so do their prices; one pass at least."""
    costs = list(np.linspace(0.6, 0.3, 16))
    cost, asked = search(
        *[made(c, price=price, misses=is_open) for c in costs],
        may_be_plain=may_be_plain,
    )
    n_plain, counted = int(may_be_plain), int(may_be_plain and price > 0)
    most = (2 if is_open else 1) * MOST_SETS - 1 - counted
    assert kinds(asked) == [False] * n_plain + [True] * most
    assert cost == costs[len(asked) - 1]


def test_multipliers_that_gain_nothing_are_tried_once_more():
    """From the mean of the multipliers that the last ones ended with."""
    cost, asked = search(made(0.2), made(0.25, end=0.5), made(0.15), made(0.1))
    assert (cost, kinds(asked)) == (0.15, [False, True, True])
    assert asked[2]["start"] == pytest.approx([0.5])
    cost, asked = search(made(0.12), made(0.25), made(0.1))
    assert (cost, len(asked)) == (0.12, 2), "the plain boosters cost hardly more than they should"


def test_further_passes_start_where_the_one_before_ended():
    further = [made(0.4, end=0.5, misses=True), made(0.3, end=0.25, misses=True)]
    _, asked = search(made(0.6), *further, made(0.105))
    starts = [of["start"][0] for of in asked[1:]]
    assert starts == pytest.approx([START * 0.1, 0.5, 0.25])
    assert all(of["fixed"] is None and of["log_odds"] == 0.0 for of in asked[2:])


def test_what_the_scores_of_any_pass_allow_counts():
    """A pass is affordable next to what any scores so far would have needed."""
    cost, asked = search(made(0.13, needed=0.115), made(0.12, needed=np.nan))
    assert (cost, len(asked)) == (0.12, 2)
    passes = [made(0.14, needed=0.05), made(0.054, needed=0.053)]
    cost, asked = search(made(0.13, needed=0.115, price=0.0), *passes)
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
        passes = [made(c, misses=True) for c in costs]
        cost, asked = search(*passes, has_time=lambda left=left: next(left))
        assert (cost, len(asked)) == (costs[most], most + 1)


# --- constraints on labels beside comparisons of groups -----------------------------------------

MIXED = {"of_labels": (True, False)}


def test_mixed_constraints_leave_those_of_labels_to_the_threshold():
    """The shift that they need is added to the log-odds, more in each pass."""
    cost, asked = search(
        made(0.6, is_broken=True, shift=0.8, **MIXED),
        made(0.5, shift=0.3, misses=True, **MIXED),
        made(0.4, shift=-0.1, misses=True, **MIXED),
        made(0.3, misses=True, **MIXED),
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
    _, asked = search(*[made(c, misses=True, **fields) for c in np.linspace(0.6, 0.3, 12)])
    assert len(asked) > 3
    assert all(of["fixed"] is None and of["log_odds"] == 0.0 for of in asked[2:])


def test_multipliers_that_were_asked_for_are_never_left_out():
    fields = {"is_broken": True, "shift": 1.0, **MIXED}
    passes = [made(c, **fields) for c in np.linspace(0.6, 0.3, 12)]
    _, asked = search(*passes, may_be_plain=False)
    assert len(asked) == MOST_SETS - 1
    assert all(kinds(asked))
    assert all(of.get("fixed") is None for of in asked)
