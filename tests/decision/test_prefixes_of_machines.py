"""Prefixes and their shifts, chosen by rows on many machines."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from machines import run_on_machines
from tabled_rows import Dealt

import gbm_constrained as gc
from gbm_constrained.data.splits import hash_numbers
from gbm_constrained.decision.choose import (
    Prefixes,
    choose_prefix,
    choose_with_room,
    cross_fitted_decisions,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.groups import GroupThresholds

GROUPS = list("abcdef")  # With two labels, 12 cells.
RULES = [gc.fpr() <= 0.1, gc.gap(gc.fnr(), by="group") <= 0.05]
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
        rows = EvaluationSet(*self.compiled(RULES, index, communicator), "test", folds)

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


@pytest.mark.parametrize("criterion", ["error", "auc"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("has_free_choice", [False, True])
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


def test_cross_fitted_decisions_are_nearly_those_of_a_sort():
    problem = Ensemble(2, 5000)
    scored = problem.scored()
    margin, choice = scored.margins(100), choose_prefix(scored, Prefixes(100, 1))
    expected = cross_fitted_decisions(scored.rows, margin, choice)

    def work(communicator, index):
        rows = problem.scored(index, communicator).rows
        return index, cross_fitted_decisions(rows, margin[index], choice)

    for of_ranks in problem.on_machines(work):
        for index, decisions in of_ranks:
            assert (decisions != expected[index]).sum() <= 0.005 * problem.n


@pytest.mark.parametrize("criterion", ["error", "auc"])
def test_a_whole_choice_sends_at_most_two_mebibytes(criterion):
    """With group-wise thresholds for the report; it does not grow with the rows."""
    n_bytes = []
    for n in (20_000, 200_000):
        problem = Ensemble(0, n)

        def work(communicator, problem=problem):
            counting = CountingCommunicator(communicator)
            scored = problem.scored(np.arange(problem.n), counting)
            assert len(scored.rows.cells) == 12
            counting.n_bytes = 0
            choice = choose_prefix(scored, Prefixes(100, 1, True, criterion))
            margin = scored.margins(choice.rounds)
            choose_with_room(scored.rows, margin, choice)
            GroupThresholds(scored.rows.cells, scored.rows.compiled, margin, choice.shift)
            return counting.n_bytes

        n_bytes += run_on_machines(work, 1)
    assert max(n_bytes) <= 2 * MEBIBYTE
    assert n_bytes[1] <= 1.2 * n_bytes[0]
