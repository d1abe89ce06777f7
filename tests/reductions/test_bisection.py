"""Bisection: brackets, the corrected update on separable data, and ratios that have no minimum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, paper_synthetic, recalls, shares
from reference_losses import Ratio, micro_f1

from gbm_constrained.reductions.methods import ZeroDenominatorError, solve
from gbm_constrained.reductions.mixtures import MixtureProgramme

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
    programme = MixtureProgramme(micro_f1(PRIORS), *rows)
    found = solve(programme, AtomOracle(EFFECT), "bisection", levels=levels)
    assert found.status == "optimal"
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(reference, abs=2e-6)
    assert found.value - found.bound <= 1e-7


def test_every_call_encloses_the_optimum_and_halves_the_bracket():
    rows, reference = CONSTRAINTS["free"]
    programme = MixtureProgramme(micro_f1(PRIORS), *rows)
    found = solve(programme, AtomOracle(EFFECT), "bisection", levels="halves")
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
    programme = MixtureProgramme(micro_f1(W.sum(axis=0)), *rows)
    found = solve(programme, AtomOracle(effect), "bisection", levels=levels)
    assert found.value == pytest.approx(0, abs=1e-15)
    assert len(found.rules) == 1


@pytest.mark.parametrize("max_calls", range(3, 16, 3))
@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_few_calls_return_the_best_mixture_seen(max_calls, constraints):
    """The value of the result is the bracket's upper end, however few the calls are (E1, E27)."""
    rows, reference = CONSTRAINTS[constraints]
    programme = MixtureProgramme(micro_f1(PRIORS), *rows)
    found = solve(programme, AtomOracle(EFFECT), "bisection", max_calls, levels="halves")
    feasible = [step.value for step in found.history if step.violation <= 1e-9]
    if found.violation <= 1e-9:
        assert found.value <= min(feasible, default=np.inf) + 1e-12
        assert found.bound - 2e-6 <= reference <= found.value + 2e-6
    assert len(found.history) <= max_calls


def test_infeasible_constraints_are_said():
    rows = coverage_rows(3, 3, np.array([0.6, 0.6, 0.0]), 0.01)
    found = solve(MixtureProgramme(micro_f1(PRIORS), *rows), AtomOracle(EFFECT), "bisection")
    assert found.status == "infeasible"
    assert found.violation == pytest.approx(0.09, abs=1e-8)


def test_a_denominator_that_vanishes_is_refused():
    """The share of class 0 in the predictions of class 1 has no value where nothing is class 1."""
    empty = Ratio(np.eye(6)[4], 0.0, np.eye(6)[4], 0.0)
    with pytest.raises(ValueError, match=r"denominator of the ratio is 0.0.*choose another"):
        solve(
            MixtureProgramme(empty, np.zeros((0, 6)), np.zeros(0)), AtomOracle(EFFECT), "bisection"
        )


class _Precision(Ratio):
    """One minus the precision of class 1, which is zero where nothing is predicted so."""

    def __init__(self):
        of_share, of_recall = np.eye(6)[4], PRIORS[1] * np.eye(6)[1]
        super().__init__(of_share - of_recall, 0.0, of_share, 0.0)

    def value(self, u):
        return super().value(u) if u[4] > 0 else 1.0

    @staticmethod
    def least(recall):
        """Loss of the likeliest atoms that have so much of class 1, the last one in part."""
        W = SYNTHETIC.W[SYNTHETIC.W.sum(axis=1) > 0]
        likely = W[np.argsort(-W[:, 1] / W.sum(axis=1))]
        of_class, of_all = (
            np.append(0, one.cumsum()) for one in (likely[:, 1], likely.sum(axis=1))
        )
        right = recall * PRIORS[1]
        return 1.0 - right / np.interp(right, of_class, of_all)


@pytest.mark.parametrize("levels", ["dinkelbach", "halves"])
@pytest.mark.parametrize("recall", [0.02, 0.3, 0.8])
def test_constraints_keep_the_denominator_above_zero(levels, recall):
    rows = -np.eye(6)[1:2], np.array([-recall])
    programme = MixtureProgramme(_Precision(), *rows)
    found = solve(programme, AtomOracle(EFFECT), "bisection", levels=levels)
    assert found.status == "optimal"
    assert found.violation <= 1e-9
    reference = _Precision.least(recall)
    assert found.value == pytest.approx(reference, abs=1e-6)
    assert found.bound - 1e-6 <= reference <= found.value + 1e-6


def test_constraints_that_allow_a_denominator_of_zero_are_refused():
    rows = -np.eye(6)[:1], np.array([-0.3])
    with pytest.raises(ZeroDenominatorError, match=r"ratio is .*add a constraint that keeps"):
        solve(MixtureProgramme(_Precision(), *rows), AtomOracle(EFFECT), "bisection")


@pytest.mark.parametrize("max_calls", range(2, 8))
def test_few_calls_that_tell_no_denominator_end_with_a_limit(max_calls):
    rows = -np.eye(6)[1:2], np.array([-0.3])
    programme = MixtureProgramme(_Precision(), *rows)
    found = solve(programme, AtomOracle(EFFECT), "bisection", max_calls)
    assert found.status == "limit"
    assert len(found.history) <= max_calls
    if found.violation <= 1e-9:
        assert found.value >= _Precision.least(0.3) - 1e-6


def test_negative_ratios():
    """A gain as a ratio, to be maximised: the optimum is below zero."""
    loss = micro_f1(PRIORS)
    a, a0, b, b0 = loss.ratio()
    gain = Ratio(a - b, a0 - b0, b, b0)
    for levels in ("dinkelbach", "halves"):
        programme = MixtureProgramme(gain, np.zeros((0, 6)), np.zeros(0))
        found = solve(programme, AtomOracle(EFFECT), "bisection", levels=levels)
        assert found.value == pytest.approx(0.7798311358 - 1, abs=2e-6)
        assert found.status == "optimal"
