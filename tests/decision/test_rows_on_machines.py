"""What is decided by rows on several machines is decided as by all rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from dealt_rows import assert_close, assert_identical, measure_deals
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision import guarantees
from gbm_constrained.decision.choose import (
    FoldScores,
    Prefixes,
    estimate_optimism_of_decisions,
    match_positive_rate,
    rows_to_match,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, Outcome
from gbm_constrained.decision.guarantees import (
    GuaranteeRequest,
    check_guarantee,
    conformal_bounds,
    count_sequences,
)
from gbm_constrained.decision.histograms import RESOLUTION
from gbm_constrained.decision.rules import Scores
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.order_statistics import expected_threshold, umbrella_threshold

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
            return [guarantees._find_limit(rows, table.margin[at], threshold).shift]

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
