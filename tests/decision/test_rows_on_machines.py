"""Thresholds, choices and outcomes of rows on many machines, against those of all rows."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from dealt_rows import assert_close, assert_identical, measure_deals
from hypothesis import given
from hypothesis import strategies as st
from machines import run_on_machines
from shift_problems import EXACT, random, seeds
from tabled_rows import Dealt

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import hash_numbers
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.choose import (
    FoldScores,
    Prefixes,
    choose_prefix,
    choose_with_room,
    estimate_optimism_of_decisions,
    match_positive_rate,
    rows_to_match,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, Outcome, ScoredRows
from gbm_constrained.decision.groups import GroupThresholds
from gbm_constrained.decision.guarantees import (
    GuaranteeRequest,
    check_guarantee,
    conformal_bounds,
    count_sequences,
)
from gbm_constrained.decision.histograms import RESOLUTION, list_thresholds
from gbm_constrained.decision.rules import Scores
from gbm_constrained.decision.search import (
    ShiftSearch,
    match_selection_rate,
    spread_thresholds,
    threshold_curve,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.order_statistics import expected_threshold, umbrella_threshold

pytestmark = pytest.mark.filterwarnings("ignore:.*some groups have fewer than min_group_size")
N = 240
EVERYONE = np.arange(N)
RULES = [
    gc.fnr() <= 0.2,
    gc.gap(gc.selection_rate(), by="g", min_group_size=1) <= 0.1,
    gc.each(gc.fpr(), by="g", min_group_size=1) <= 0.3,
]
ONE = [gc.fpr() <= 0.2]
WEIGHTED = pytest.mark.parametrize("weighted", [False, True])


class Table:
    """Random rows in two groups, of three folds, with scores that tell something of the labels."""

    def __init__(self, seed=0, weighted=False, n=N):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, 2, n)
        self.group = rng.choice(["a", "b"], n)
        self.margin = (rng.normal(size=n) + self.y - 0.5).astype(np.float32)
        self.weight = rng.gamma(2.0, size=n) if weighted else None
        self.fold = rng.integers(0, 3, n)

    def bind(self, rules, at=EVERYONE, communicator=None):
        """Bind rules to the rows of a machine, as an evaluation set of three folds."""
        machine = Machine() if communicator is None else Machine(communicator, at)
        weight = None if self.weight is None else self.weight[at]
        groups = columns_of({"g": self.group[at]}, at.size)
        rows = Rows(self.y[at], np.arange(2), weight, groups, machine=machine)
        found = compile_constraints(rules, rows)
        return EvaluationSet(*found, "rows", self.parts(at))

    def parts(self, at):
        return [np.flatnonzero(self.fold[at] == i) for i in range(3)]


@WEIGHTED
def test_an_outcome_is_that_of_all_rows(weighted):
    table = Table(1, weighted)

    def measure(at, communicator=None):
        rows = table.bind(RULES, at, communicator)
        rows.cells.class_weight = np.array([1.0, 2.5])
        scores = Scores.of(table.margin[at], np.array([0.3]), beside=False)
        found = Outcome.of(rows, scores)
        decided = rows.decisions(scores.for_decisions)
        return [
            rows.error(decided), found.functionals, found.intervals, found.of_functionals,
            *found.sampled, found.accuracy, found.is_unsteady, rows.violations(table.margin[at]),
        ]  # fmt: skip

    found, expected = measure_deals(measure, N, group=table.group), measure(EVERYONE)
    assert_close(found, expected, rtol=1e-9, atol=1e-9)
    if not weighted:
        assert_identical(found, expected)


@WEIGHTED
def test_what_machines_exchange_does_not_grow_with_the_rows(weighted):
    """An outcome of twelve cells takes less than 8 KiB of tables, and no more for more rows."""

    def measure(communicator, table):
        at = np.arange(communicator.rank, table.y.size, 2)
        rows = table.bind(RULES, at, communicator)
        before = len(communicator.shapes)
        Outcome.of(rows, Scores.of(table.margin[at], np.array([0.3]), beside=False))
        return communicator.shapes[before:], communicator.n_gathered

    found = []
    for n in (2 * N, 20 * N):
        table = Table(1, weighted, n)
        table.group = np.array(list("abcdef"))[np.arange(n) // 2 % 6]
        found.append(run_on_machines(partial(measure, table=table), 2))
    assert found[0] == found[1]
    assert 8 * sum(map(np.prod, found[0][0][0])) < 1 << 13


@WEIGHTED
def test_optimism_is_that_of_all_rows(weighted):
    table = Table(2, weighted)

    def measure(at, communicator=None):
        rows = table.bind(RULES, at, communicator)
        decided = (table.margin[at] > 0).astype(np.intp)
        own = [(np.setdiff1d(np.arange(at.size), part), i) for i, part in enumerate(rows.folds)]
        training = [
            (part, (table.margin[at][part] + 0.1 * i > 0).astype(np.intp)) for part, i in own
        ]
        held = rows.functionals(table.margin[at], rows.counts(decided))
        return [estimate_optimism_of_decisions(rows.compiled, rows.cells, training, held)]

    found, expected = measure_deals(measure, N, group=table.group), measure(EVERYONE)
    assert_close(found, expected, rtol=1e-9, atol=1e-12)


@WEIGHTED
def test_a_rate_that_needs_no_transfer_needs_none_on_all_machines(weighted):
    """Where all out-of-fold rows are decided alike, or a fold has no row that counts anywhere."""
    table = Table(4, weighted)
    for own, shift in (([gc.fnr() <= 0.1], np.array([50.0])), (RULES, np.array([-50.0]))):

        def measure(at, communicator=None, own=own, shift=shift):
            rows = table.bind(own, at, communicator)
            margin, everyone = table.margin[at], np.arange(at.size)
            scores = FoldScores((everyone, margin), [(p, margin[p]) for p in rows.folds], 0.5)
            inside = rows_to_match(rows.compiled, rows.cells)
            return [
                inside.sum() >= 0,
                match_positive_rate(scores, shift, margin, inside, rows.cells),
            ]

        assert measure_deals(measure, N, group=table.group)[1] == shift


@pytest.mark.parametrize("spacing", [1.0, 0.02 * RESOLUTION, 0.7 * RESOLUTION])
@pytest.mark.parametrize("weight", [None, 0.1])
def test_the_limit_of_one_rate_is_that_of_all_rows(spacing, weight):
    """Also where scores past the threshold are so near that hundreds of them form one run."""
    table = Table(5, n=900)
    rng = np.random.default_rng(5)
    table.margin = np.sort(rng.permutation(900) * spacing + 0.3 * spacing * rng.random(900))
    table.margin[860:] += 1.0
    table.weight = None if weight is None else np.full(900, weight)
    everyone = np.arange(900)
    for threshold in (expected_threshold, partial(umbrella_threshold, delta=0.05)):

        def measure(at, communicator=None, threshold=threshold):
            rows = table.bind(ONE, at, communicator)
            return [guarantees._find_limit(rows, table.margin[at], threshold)[0]]

        found = measure_deals(measure, 900)
        assert_identical(found, measure(everyone))


def test_rows_of_unequal_weights_have_no_limit_on_any_machine():
    """Weights are equal on each machine, and not among all of them."""
    table = Table(6)
    table.weight = np.where(table.group == "a", 1.0, 2.0)

    def measure(at, communicator=None):
        rows = table.bind(ONE, at, communicator)
        found = guarantees._find_limit(rows, table.margin[at], expected_threshold)
        return [found is None, count_sequences(rows, Prefixes(20, 2, has_free_choice=True))]

    found = measure_deals(measure, N, group=table.group)
    assert found[0]
    assert found[1] == measure(EVERYONE)[1] > 1


@WEIGHTED
def test_bounds_and_refusals_of_guarantees_are_those_of_all_rows(weighted):
    table = Table(7, weighted)
    whole = table.bind(RULES).compiled
    asked = GuaranteeRequest("high_probability", 0.3, 1e-9, Prefixes(20, 2))

    def measure(at, communicator=None):
        rows = table.bind(RULES, at, communicator)
        with pytest.raises(ValueError, match="of these rows") as refused:
            check_guarantee(rows, whole, asked)
        return [conformal_bounds(rows.compiled, rows.cells), str(refused.value)]

    found, expected = measure_deals(measure, N, group=table.group), measure(EVERYONE)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
    assert found[1] == expected[1]
    assert f"the {N} rows" in found[1]


GROUPS = list("abcdef")  # With two labels, 12 cells.
RATE_AND_GAP = [gc.fpr() <= 0.1, gc.gap(gc.fnr(), by="group") <= 0.05]
N_FOLDS = 5
MEBIBYTE = 2**20


class Ensemble(Dealt):
    """Rows of six groups whose scores grow with the rounds, and tell more of their labels."""

    def __init__(self, seed, n, weighted=False):
        super().__init__(seed, n, weighted=weighted)
        self.columns = {"group": self.rng.choice(GROUPS, n)}
        self.group = self.columns["group"]
        self.base, self.noise = self.rng.normal(size=(2, n))
        self.base += 0.15 * np.array([GROUPS.index(g) for g in self.group])

    def scored(self, index=None, communicator=None):
        index = np.arange(self.n) if index is None else index
        of_fold = hash_numbers(index) % N_FOLDS
        folds = [np.flatnonzero(of_fold == k) for k in range(N_FOLDS)]
        rows = EvaluationSet(*self.compiled(RATE_AND_GAP, index, communicator), "test", folds)

        def margins(rounds):
            learned = np.log1p(rounds) / 3
            scores = (self.base + 1.5 * self.y - 1.5) * learned + self.noise * learned**2 / 2
            return scores[index].astype(np.float32)

        return ScoredRows(rows, margins)


class CountingCommunicator:
    """Counts the bytes that a machine gives to another communicator."""

    holds_all_rows = False

    def __init__(self, communicator):
        self.communicator, self.n_bytes = communicator, 0
        self.rank, self.size = communicator.rank, communicator.size

    def sum(self, table):
        self.n_bytes += table.nbytes
        return self.communicator.sum(table)

    def gather(self, value):
        self.n_bytes += len(pickle.dumps(value))
        return self.communicator.gather(value)


@pytest.mark.parametrize(
    ("criterion", "weighted", "has_free_choice"),
    [("error", False, True), ("error", True, False), ("auc", True, True)],
)
def test_choices_are_the_same_on_any_machines(criterion, weighted, has_free_choice):
    """To the bit, with the decisions on each row, and nearly those of a sort."""
    problem = Ensemble(4, 3000, weighted=weighted)
    prefixes = Prefixes(100, 1, has_free_choice, criterion)

    def choose(scored):
        choice = choose_prefix(scored, prefixes)
        return choice, *choose_with_room(scored.rows, scored.margins(choice.rounds), choice)

    expected = choose(problem.scored())

    def work(communicator, index):
        choice, with_room, decisions = choose(problem.scored(index, communicator))
        return choice, with_room, index, decisions

    found = problem.on_machines(work)
    first = found[0][0]
    for of_ranks in found:
        decided = np.empty(problem.n, dtype=np.intp)
        for choice, with_room, index, decisions in of_ranks:
            decided[index] = decisions
            for one, other in zip((choice, with_room), first[:2], strict=True):
                assert one.rounds == other.rounds
                np.testing.assert_array_equal(one.shift, other.shift)
                np.testing.assert_array_equal(one.bounds, other.bounds)
                assert (one.error, one.violation, one.loss) == (
                    other.error, other.violation, other.loss,
                )  # fmt: skip
        np.testing.assert_array_equal(decided[first[2]], first[3])
    assert first[0].loss <= expected[0].loss + 0.005
    if first[0].rounds == expected[0].rounds:
        np.testing.assert_array_equal(first[0].shift, expected[0].shift)


def test_a_whole_choice_sends_at_most_two_mebibytes():
    """With group-wise thresholds for the report; it does not grow with the rows."""
    n_bytes = []
    for n in (20_000, 100_000):
        problem = Ensemble(0, n)

        def work(communicator, problem=problem):
            counting = CountingCommunicator(communicator)
            scored = problem.scored(np.arange(problem.n), counting)
            assert len(scored.rows.cells) == 12
            counting.n_bytes = 0
            choice = choose_prefix(scored, Prefixes(100, 1, True, "auc"))
            margin = scored.margins(choice.rounds)
            choose_with_room(scored.rows, margin, choice)
            GroupThresholds(scored.rows.cells, scored.rows.compiled, margin, choice.shift)
            return counting.n_bytes

        n_bytes += run_on_machines(work, 1)
    assert max(n_bytes) <= 2 * MEBIBYTE
    assert n_bytes[1] <= 1.2 * n_bytes[0]


def assert_same(found, other):
    """The same shift to the bit, and the same of all that is said of it."""
    np.testing.assert_array_equal(found.value, other.value)
    np.testing.assert_allclose(found.error, other.error, **EXACT)
    np.testing.assert_allclose(found.violation, other.violation, **EXACT)
    np.testing.assert_allclose(found.functionals, other.functionals, **EXACT)
    assert found.is_feasible == other.is_feasible
    assert found.ignored == other.ignored


CASES = {
    "seed": seeds, "weighted": st.booleans(), "penalty": st.sampled_from([None, 0.5, 10]),
    "tighter": st.sampled_from([1.0, 0.6, 0.0]), "penalised": st.booleans(),
    "class_weight": st.sampled_from([1.0, 8.0]),
}  # fmt: skip


@random(30)
@given(n=st.sampled_from([60, 700, 3000]), **CASES)
def test_thresholds_are_those_of_a_sort(**case):
    """Ties, weights, bounds that can be met and not, and penalties."""
    compare_with_sort(many=False, **case)


@random(10)
@given(n=st.just(300), **CASES)
def test_thresholds_under_rules_of_several_views(**case):
    compare_with_sort(many=True, **case)


def compare_with_sort(*, many, n, seed, weighted, penalty, tighter, penalised, class_weight):
    problem = Dealt(seed, n, weighted=weighted)
    rules = problem.rules(many)
    cells, compiled = problem.compiled(rules)
    cells.class_weight[1] = class_weight
    options = {"bounds": tighter * compiled.b, "penalty": penalty}
    if penalised and penalty is not None:
        options["is_penalised"] = problem.rng.random(len(compiled)) < 0.5
    expected = ShiftSearch(problem.margin, cells, compiled).find(**options)
    decided = problem.margin.astype(np.float64) + expected.value > 0

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        cells.class_weight[1] = class_weight
        assert len(cells.views) == 1 + many
        found = ShiftSearch(problem.margin[index], cells, compiled).find(**options)
        own = problem.margin[index].astype(np.float64) + found.value > 0
        np.testing.assert_array_equal(own, decided[index])
        return found

    for of_ranks in problem.on_machines(work):
        for found in of_ranks:
            assert_same(found, expected)


def test_an_exact_threshold_adds_less_than_three_tables_of_4096_bins():
    """Where it is hardest: near the fewest errors, many thresholds have about as many."""
    problem = Dealt(0, 200_000, weighted=False)
    problem.margin = problem.rng.normal(size=problem.n) + problem.y
    rules = [gc.fpr() <= 0.99]
    expected = ShiftSearch(problem.margin, *problem.compiled(rules)).find()

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        start = len(communicator.shapes)
        found = ShiftSearch(problem.margin[index], cells, compiled).find()
        return found, communicator.shapes[start:]

    for of_ranks in problem.on_machines(work):
        for found, shapes in of_ranks:
            assert_same(found, expected)
            assert sum(map(np.prod, shapes)) < 3 * 4096 * 2


@pytest.mark.parametrize("weighted", [False, True])
def test_a_coarse_search_is_near_and_the_same_on_any_machines(weighted):
    for seed in range(4):
        problem = Dealt(seed, 5000, weighted=weighted)
        rules = [gc.fpr() <= 0.2, gc.gap(gc.fnr(), by="group") <= 0.1]
        expected = ShiftSearch(problem.margin, *problem.compiled(rules)).find(penalty=10.0)

        def work(communicator, index, problem=problem, rules=rules):
            cells, compiled = problem.compiled(rules, index, communicator)
            search = ShiftSearch(problem.margin[index], cells, compiled, most_splits=0)
            return search.find(penalty=10.0)

        found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
        for one in found:
            assert one.value == found[0].value
            assert one.error == found[0].error
            assert expected.loss - 1e-12 <= one.loss <= expected.loss + 0.01


@random(30)
@given(
    seed=seeds, n=st.integers(40, 2000), share=st.floats(-0.1, 1.1), is_reached=st.booleans(),
    weighted=st.booleans(),
)  # fmt: skip
def test_a_share_is_reached_where_a_sort_reaches_it(seed, n, share, is_reached, weighted):
    """Also where rows without weight lie at the threshold, or many thresholds have the share."""
    problem = Dealt(seed, n, weighted=weighted)
    margin, weight = problem.margin, problem.rng.integers(0, 3, problem.n).astype(float)
    weight[0] = 1.0
    if is_reached:
        share = weight[margin > problem.rng.normal()].sum() / weight.sum()
    expected = match_selection_rate(margin, share, weight)

    def work(communicator, index):
        return match_selection_rate(margin[index], share, weight[index], communicator)

    for of_ranks in problem.on_machines(work):
        for found in of_ranks:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [200, 4000])
def test_curves_are_on_the_curve_of_a_sort(n):
    problem = Dealt(5, n)
    problem.margin = np.asarray(problem.margin, dtype=np.float64)
    rules = [gc.fpr() <= 0.2, gc.gap(gc.fnr(), by="group") <= 0.1]
    expected = threshold_curve(problem.margin, *problem.compiled(rules))
    at = {count: i for i, count in enumerate(expected.n_positive)}

    def work(communicator, index):
        return threshold_curve(
            problem.margin[index], *problem.compiled(rules, index, communicator)
        )

    curves = [curve for of_ranks in problem.on_machines(work) for curve in of_ranks]
    for curve in curves:
        positions = [at[count] for count in curve.n_positive]
        np.testing.assert_array_equal(curve.shift, expected.shift[positions])
        np.testing.assert_allclose(curve.error, expected.error[positions], **EXACT)
        np.testing.assert_allclose(curve.functionals, expected.functionals[positions], **EXACT)
        np.testing.assert_array_equal(curve.functionals, curves[0].functionals)
        assert len(positions) > min(n // 2, 300)


@pytest.mark.parametrize("k", [2, 3])
def test_group_thresholds_need_about_as_many_errors(k):
    for seed in range(2):
        problem = Dealt(seed, 3000, k)
        rules = [gc.gap(gc.selection_rate(1), by="group") <= 0.02]
        shift = np.zeros(1 if k == 2 else k)
        expected = GroupThresholds(
            *problem.compiled(rules), problem.margin, shift
        ).find_error_and_prices()[0]

        def work(communicator, index, problem=problem, rules=rules, shift=shift):
            cells, compiled = problem.compiled(rules, index, communicator)
            return GroupThresholds(
                cells, compiled, problem.margin[index], shift
            ).find_error_and_prices()[0]

        found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
        assert set(found) == {found[0]}
        assert found[0] == pytest.approx(expected, abs=0.003 if k == 2 else 1e-9)


def test_small_groups_decide_together_by_the_rows_of_all_machines():
    """Rows of a group are counted over machines, and not the entries of a table."""
    problem = Dealt(1, 2000)
    rules = [gc.each(gc.fpr(), by="u") <= 0.5]  # About 50 rows in each of 33 groups.

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        return len(GroupThresholds(cells, compiled, problem.margin[index], np.zeros(1)).errors)

    cells, compiled = problem.compiled(rules)
    expected = len(GroupThresholds(cells, compiled, problem.margin, np.zeros(1)).errors)
    assert expected == 33
    assert {n for of_ranks in problem.on_machines(work) for n in of_ranks} == {expected}


@pytest.mark.parametrize("n", [300, 5000])
def test_the_auc_is_that_of_all_pairs(n):
    """Apart from those within a bin, of which half count; to the bit the same on any machines."""
    problem = Dealt(2, n)
    rules = [gc.fpr() <= 0.2]
    expected = EvaluationSet(*problem.compiled(rules), "test").auc(problem.margin)

    def work(communicator, index):
        rows = EvaluationSet(*problem.compiled(rules, index, communicator), "test")
        return rows.auc(problem.margin[index])

    found = [auc for of_ranks in problem.on_machines(work) for auc in of_ranks]
    assert set(found) == {found[0]}
    assert found[0] == pytest.approx(expected, abs=1e-3 if n == 300 else 1e-4)


def test_thresholds_are_spread_over_quantiles_of_the_bins():
    problem = Dealt(4, 5000)
    problem.margin = problem.rng.normal(size=problem.n) + 2.0 * problem.y
    rules = [gc.fpr() <= 0.2]

    def work(communicator, index):
        cells, _ = problem.compiled(rules, index, communicator)
        return spread_thresholds(problem.margin[index], cells, 100)

    found = [at for of_ranks in problem.on_machines(work) for at in of_ranks]
    for at in found:
        np.testing.assert_array_equal(at, found[0])
    assert found[0][0] == problem.margin.min() - 1.0
    for k in (0, 1):
        shares = (
            np.searchsorted(np.sort(problem.margin[problem.y == k]), found[0])
            / (problem.y == k).sum()
        )
        assert np.diff(shares).max() < 0.025


@pytest.mark.parametrize(("k", "seed"), [(3, 1), pytest.param(4, 0, marks=pytest.mark.slow)])
def test_biases_are_the_same_on_any_machines_and_nearly_as_good(k, seed):
    problem = Dealt(seed, 200, k, weighted=bool(seed % 2))
    rules = problem.rules()
    cells, compiled = problem.compiled(rules)
    expected = ShiftSearch(problem.margin, cells, compiled).find(penalty=3.0)

    def work(communicator, index):
        cells, compiled = problem.compiled(rules, index, communicator)
        return ShiftSearch(problem.margin[index], cells, compiled).find(penalty=3.0)

    found = [one for of_ranks in problem.on_machines(work) for one in of_ranks]
    for one in found:
        np.testing.assert_array_equal(one.value, found[0].value)
        np.testing.assert_array_equal(one.functionals, found[0].functionals)
    decided = (problem.margin.astype(np.float64) + found[0].value).argmax(axis=1)
    own = ShiftSearch(problem.margin, cells, compiled).merits.measure(decided)
    np.testing.assert_allclose([found[0].error, found[0].violation], own[:2], **EXACT)
    assert found[0].loss <= expected.loss + 0.01


def test_entries_count_all_rows():
    problem = Dealt(7, 500)

    def work(communicator, index):
        cells, _ = problem.compiled([gc.fpr() <= 0.2], index, communicator)
        return list_thresholds(problem.margin[index], cells)

    for of_ranks in problem.on_machines(work):
        for table in of_ranks:
            assert table.count.sum() == problem.n
            assert table.weight.sum() == pytest.approx(problem.weight.sum())
            assert table.cells.rows.weight.sum() == table.weight.sum()
            assert (np.diff(table.scores) <= 0).all()
