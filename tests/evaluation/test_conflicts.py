"""The smallest set of constraints that no decision meets together."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from references import best_shift

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import SIGNIFICANCE, Prefixes, choose_prefix
from gbm_constrained.decision.evaluation_set import EvaluationSet, Outcome, ScoredRows
from gbm_constrained.decision.rules import Choice, Scores
from gbm_constrained.decision.search import BiasSearch, ShiftSearch
from gbm_constrained.evaluation.assessment import (
    DecisionPool,
    ReturnedModel,
    _smallest_cover,
    assess,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import find_violated_rows


def unseen(rules, y, sensitive=None, classes=None, weight=None):
    columns = {name: np.asarray(v) for name, v in (sensitive or {}).items()}
    classes = np.unique(y) if classes is None else classes
    rows = Rows(y, classes, weight, columns)
    return EvaluationSet(*compile_constraints(rules, rows), "test")


def test_conflicts_are_minimal_among_all_decisions():
    """Against trying out every threshold and every subset of the rules."""
    rng = np.random.default_rng(5)
    seen = set()
    for trial in range(25):
        y = rng.integers(0, 2, 800)
        margin = y + rng.normal(size=800) * rng.uniform(0.5, 3.0)
        bounds = rng.uniform(0.02, 0.5, 4)
        rules = [gc.fpr() <= bounds[0], gc.fnr() <= bounds[1], gc.selection_rate() >= bounds[2],
                 gc.error_rate() <= bounds[3]]  # fmt: skip
        rows = unseen(rules, y)

        scored = ScoredRows(rows, lambda rounds, margin=margin: margin)
        found = choose_prefix(scored, Prefixes(1, 1))
        conflict = DecisionPool(scored, [1], found).conflict()
        seen.add(len(conflict))
        everywhere = CellCounts.at_thresholds(rows.cells, margin, np.unique([*margin, -99.0]))
        reached = ~find_violated_rows(rows.compiled, everywhere, 0.025)

        def can_meet(subset, reached=reached):
            return bool(reached[:, list(subset)].all(axis=1).any())

        assert can_meet(range(4)) == (conflict == ()), trial
        if conflict:
            assert not can_meet(conflict)
            assert all(can_meet(set(conflict) - {j}) for j in conflict)
    assert seen >= {0, 1, 2}


class _Listed(DecisionPool):
    """A pool that knows the first of some decisions, and whose search looks through them all."""

    def __init__(self, decisions, known):
        self.decisions, self.n_constraints, self.left = decisions, decisions.shape[1], 1000
        self.reached, self.is_proved = decisions[:known], True

    def _can_meet(self, subset):
        met = self.decisions[:, list(subset)].all(axis=1)
        self.reached = np.concatenate([self.reached, self.decisions[met][:1]])
        return bool(met.any())


def smallest_unmet(decisions):
    """Size of the smallest set of rules that no decision meets, by trying all; 0 without one."""
    columns = range(decisions.shape[1])
    for size in columns:
        for subset in combinations(columns, size + 1):
            if not decisions[:, list(subset)].all(axis=1).any():
                return size + 1
    return 0


def test_the_smallest_conflict_is_found_among_many_rules():
    """Against trying out all subsets, up to conflicts of five rules."""
    rng = np.random.default_rng(3)
    sizes = set()
    for share in np.repeat([0.05, 0.3, 0.5, 0.7, 0.85, 0.95], 25):
        decisions = rng.random((60, 8)) < share
        if rng.random() < 0.2:
            decisions[-1] = True
        smallest = smallest_unmet(decisions)
        conflict = _Listed(decisions, known=5).conflict()
        assert len(conflict) == smallest
        assert smallest == 0 or not decisions[:, list(conflict)].all(axis=1).any()
        # The cover alone: the fewest rules of which each of these decisions misses one.
        if smallest:
            assert len(_smallest_cover(~decisions)) == smallest
        sizes.add(smallest)
    assert sizes >= {0, 1, 2, 3, 4, 5}


def test_a_conflict_that_takes_too_long_to_shrink_is_not_proved():
    """Out of steps, rules are dropped one by one; out of searches, further decisions may exist."""
    decisions = np.random.default_rng(4).random((300, 20)) < 0.8
    decisions = decisions[~decisions.all(axis=1)]
    cover = _smallest_cover(~decisions, most_steps=3)
    assert not decisions[:, list(cover)].all(axis=1).any()
    for j in cover:
        assert decisions[:, [i for i in cover if i != j]].all(axis=1).any()
    pool = _Listed(decisions, known=5)
    pool.left = 0
    assert pool.conflict() == _smallest_cover(~decisions[:5])
    assert not pool.is_proved


def test_opponents_are_the_fewest_of_the_rules_above():
    """Against trying out all subsets of the rules that come first."""
    rng = np.random.default_rng(6)
    sizes = set()
    for share in np.repeat([0.3, 0.5, 0.7, 0.85], 30):
        decisions = rng.random((40, 6)) < share
        above = [0, 1, 3, 4]
        pool = _Listed(decisions, known=4)
        found = pool.find_opponents(5, above)

        def can_meet(subset, decisions=decisions):
            return bool(decisions[:, [*subset, 5]].all(axis=1).any())

        unmet = [
            subset
            for size in range(5)
            for subset in combinations(above, size)
            if not can_meet(subset)
        ]
        assert (found is None) == (not unmet)
        if unmet:
            assert not can_meet(found)
            assert len(found) == len(unmet[0])
            sizes.add(len(found))
    assert sizes >= {1, 2, 3}


def test_opponents_that_are_not_proved_are_not_claimed():
    """Out of searches, a rule may be met, and after the first one, no rule is spared."""
    decisions = np.array([[True, False, True], [False, True, True], [True, True, False]])
    pool = _Listed(decisions, known=3)
    assert pool.find_opponents(2, [0, 1]) == (0, 1)
    pool = _Listed(decisions, known=3)
    assert pool.find_opponents(2, [0]) is None


def test_what_decisions_reach_at_a_price_is_no_conflict():
    """Biases that meet both rules to within sampling error exist, and cost too many errors.

    Random biases hardly ever find them, and a search finds them at once.
    """
    rng = np.random.default_rng(1)
    y = rng.choice(3, 4000, p=[0.3, 0.6, 0.1])
    margin = rng.normal(size=(4000, 3)) * 0.5 + np.eye(3)[y] * 0.8 + [0.0, 2.0, 0.0]
    rows = unseen([gc.class_error(0) <= 0.137, gc.class_error(2) <= 0.092], y)

    scored = ScoredRows(rows, lambda rounds: margin)
    choice = choose_prefix(scored, Prefixes(1, 1))
    at_a_price = best_shift(margin, rows.cells, rows.compiled)
    decisions = [(margin + shift).argmax(axis=1) for shift in (choice.shift, at_a_price.value)]
    beyond = [find_violated_rows(rows.compiled, rows.counts(d), SIGNIFICANCE) for d in decisions]
    assert beyond[0].any()
    assert not beyond[1].any()
    assert at_a_price.violation > 0.0, "no price was to be paid"
    assert DecisionPool(scored, [1], choice).conflict() == ()
    outcome = Outcome.of(rows, Scores.of(margin, choice.shift, beside=False))
    found = assess(scored, Prefixes(1, 1), ReturnedModel(choice, rows, decisions[0], outcome))
    assert found.status == "missed"
    assert [rule.constraint for rule in found.left] == [
        rows.compiled.constraints[j] for j in np.flatnonzero(beyond[0])
    ]
    assert "Violations are left that cost more errors to mend than they are worth" in found.message


def test_a_gap_of_many_groups_is_refuted_at_a_share_of_the_level():
    """Any of its 30 rows refutes it: each is doubted at a thirtieth of the level."""
    rng = np.random.default_rng(2)
    y, g = rng.integers(0, 2, 900), rng.integers(0, 6, 900).astype(str)
    rows = unseen([gc.gap(gc.selection_rate(), by="g") <= 0.02, gc.fnr() <= 0.4], y, {"g": g})
    margin = rng.normal(size=900) + 0.5 * (g == "0")
    scored = ScoredRows(rows, lambda rounds: margin)
    pool = DecisionPool(scored, [1], choose_prefix(scored, Prefixes(1, 1)))
    counts = CellCounts.at_thresholds(rows.cells, margin, np.linspace(-2.0, 2.0, 81))
    pool._add(counts)
    of_gap = rows.compiled.owner == 0
    assert of_gap.sum() == 30
    expected, too_easily = (
        ~find_violated_rows(rows.compiled, counts, level)[:, of_gap].any(axis=1)
        for level in (0.025 / 30, 0.025)
    )
    assert (expected != too_easily).any()
    np.testing.assert_array_equal(pool.reached[-81:, 0], expected)
    of_rate = ~find_violated_rows(rows.compiled, counts, 0.025)[:, ~of_gap][:, 0]
    np.testing.assert_array_equal(pool.reached[-81:, 1], of_rate)


def of_normal_classes(rules, k=20, n=3000, groups=False):
    """Scores of normal classes that overlap, and the decisions that a choice would return."""
    rng = np.random.default_rng(0)
    y, centre = rng.integers(0, k, n), rng.normal(size=(k, 10))
    x = 0.5 * centre[y] + rng.normal(size=(n, 10))
    margin = -((x[:, None] - 0.5 * centre) ** 2).sum(axis=2) / 2
    rows = unseen(rules, y, {"g": rng.integers(0, 2, n)} if groups else None)
    scored = ScoredRows(rows, lambda rounds: margin)
    choice = Choice(1, np.zeros(k), 0.5, 1.0)
    return scored, choice


def test_a_conflict_of_many_classes_is_proved_without_a_search(monkeypatch):
    """None of the constraints can be left out, and no search for biases is needed."""
    rules = [gc.class_error(k) <= 0.3 for k in range(20)]
    scored, choice = of_normal_classes(rules)
    searched = []
    monkeypatch.setattr(BiasSearch, "run", lambda search: searched.append(search))
    pool = DecisionPool(scored, [1], choice)
    conflict = pool.conflict()
    assert pool.is_proved
    assert 1 < len(conflict) < 20
    assert not searched
    assert not pool.reached[:, conflict].all(axis=1).any()
    monkeypatch.undo()
    compiled, cells = scored.rows.compiled, scored.rows.cells
    bounds = np.where(np.isin(compiled.owner, conflict), compiled.b, np.inf)
    assert not ShiftSearch(scored.margins(1), cells, compiled).find(bounds=bounds).is_feasible


def test_a_conflict_without_a_bound_is_worded_as_not_found():
    """Rates of groups have no bound: the verdict is that of the value, and searches are few."""
    rules = [gc.each(gc.class_error(k), by="g") <= 0.02 for k in range(3)]
    scored, choice = of_normal_classes(rules, k=3, n=600, groups=True)
    rows = scored.rows
    pool = DecisionPool(scored, [1], choice)
    assert pool.conflict()
    assert not pool.is_proved
    assert pool.left >= 0
    decided = rows.decisions(scored.margins(1))
    outcome = Outcome.of(rows, Scores.of(scored.margins(1), choice.shift, beside=False))
    found = assess(scored, Prefixes(1, 1), ReturnedModel(choice, rows, decided, outcome))
    assert found.conflict
    assert not found.is_proved
    assert found.status == "missed"
    assert "no decision of this model was found" in found.message
    assert "annot be met" not in found.message
    assert next(finding.code for finding in found.findings) == "GC101"
