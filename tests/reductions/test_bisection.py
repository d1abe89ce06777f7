"""Bisection: brackets, the corrected update on separable data, and ratios that have no minimum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, paper_synthetic, recalls, shares
from reference_losses import Ratio, micro_f1

from gbm_constrained.reductions.base import Programme
from gbm_constrained.reductions.bisection import solve_by_bisection

SYNTHETIC = paper_synthetic()
PRIORS = SYNTHETIC.priors
EFFECT = np.concatenate([recalls(SYNTHETIC.W), shares(SYNTHETIC.W)])
CONSTRAINTS = {
    "free": ((np.zeros((0, 6)), np.zeros(0)), 0.7798311358),
    "coverage": (coverage_rows(3, 3, PRIORS, 0.01), 0.803947),
}


@pytest.mark.parametrize("levels", ["dinkelbach", "halves"])
@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_both_ways_to_choose_levels_reach_the_optimum(levels, constraints):
    rows, reference = CONSTRAINTS[constraints]
    programme = Programme(micro_f1(PRIORS), *rows)
    found = solve_by_bisection(programme, AtomOracle(EFFECT), levels=levels)
    assert found.status == "optimal"
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(reference, abs=2e-6)
    assert found.value - found.bound <= 1e-7


def test_every_call_encloses_the_optimum_and_halves_the_bracket():
    rows, reference = CONSTRAINTS["free"]
    programme = Programme(micro_f1(PRIORS), *rows)
    found = solve_by_bisection(programme, AtomOracle(EFFECT), levels="halves")
    known = [step for step in found.history if np.isfinite(step.bound)]
    width = [step.value - step.bound for step in known]
    assert all(step.bound - 2e-6 <= reference <= step.value + 2e-6 for step in known)
    # Without constraints one call decides one level.
    assert all(after <= before / 2 + 1e-7 for before, after in pairwise(width))


@pytest.mark.parametrize("levels", ["dinkelbach", "halves"])
@pytest.mark.parametrize("within", [None, 0.05])
def test_separable_data_are_separated_exactly(levels, within):
    """The printed Algorithm 8 would return its first rule, as no level is below zero."""
    W = np.repeat(np.diag([0.5, 0.3, 0.2]), 2, axis=0) / 2
    effect = np.concatenate([recalls(W), shares(W)])
    rows = CONSTRAINTS["free"][0]
    if within is not None:
        rows = coverage_rows(3, 3, W.sum(axis=0), within)
    programme = Programme(micro_f1(W.sum(axis=0)), *rows)
    found = solve_by_bisection(programme, AtomOracle(effect), levels=levels)
    assert found.value == pytest.approx(0, abs=1e-15)
    assert len(found.rules) == 1


@pytest.mark.parametrize("max_calls", range(3, 16, 3))
@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_few_calls_return_the_best_mixture_seen(max_calls, constraints):
    """The value of the result is the bracket's upper end, however few the calls are (E1, E27)."""
    rows, reference = CONSTRAINTS[constraints]
    programme = Programme(micro_f1(PRIORS), *rows)
    found = solve_by_bisection(programme, AtomOracle(EFFECT), max_calls, levels="halves")
    feasible = [step.value for step in found.history if step.violation <= 1e-9]
    if found.violation <= 1e-9:
        assert found.value <= min(feasible, default=np.inf) + 1e-12
        assert found.bound - 2e-6 <= reference <= found.value + 2e-6
    assert len(found.history) <= max_calls


def test_infeasible_constraints_are_said():
    rows = coverage_rows(3, 3, np.array([0.6, 0.6, 0.0]), 0.01)
    found = solve_by_bisection(Programme(micro_f1(PRIORS), *rows), AtomOracle(EFFECT))
    assert found.status == "infeasible"
    assert found.violation == pytest.approx(0.09, abs=1e-8)


def test_a_denominator_that_vanishes_is_refused():
    """The share of class 0 in the predictions of class 1 has no value where nothing is class 1."""
    empty = Ratio(np.eye(6)[4], 0.0, np.eye(6)[4], 0.0)
    with pytest.raises(ValueError, match=r"denominator of the ratio is 0.0.*choose another"):
        solve_by_bisection(Programme(empty, np.zeros((0, 6)), np.zeros(0)), AtomOracle(EFFECT))


def test_negative_ratios():
    """A gain as a ratio, to be maximised: the optimum is below zero."""
    loss = micro_f1(PRIORS)
    a, a0, b, b0 = loss.ratio()
    gain = Ratio(a - b, a0 - b0, b, b0)
    for levels in ("dinkelbach", "halves"):
        programme = Programme(gain, np.zeros((0, 6)), np.zeros(0))
        found = solve_by_bisection(programme, AtomOracle(EFFECT), levels=levels)
        assert found.value == pytest.approx(0.7798311358 - 1, abs=2e-6)
        assert found.status == "optimal"
