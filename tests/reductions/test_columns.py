"""Columns on the paper's distribution and on two groups, and where nothing is feasible."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, paper_fairness, paper_synthetic, recalls, shares
from reference_losses import GMean, HMean, KullbackLeibler, MinMax, QMean, micro_f1
from scipy.stats import norm

from gbm_constrained.reductions.methods import solve
from gbm_constrained.reductions.mixtures import FEASIBLE, LinearFunction, MixtureProgramme

SYNTHETIC = paper_synthetic()
PRIORS = SYNTHETIC.priors
EFFECT = np.concatenate([recalls(SYNTHETIC.W), shares(SYNTHETIC.W)])
FREE = np.zeros((0, 6)), np.zeros(0)
COVERAGE = coverage_rows(3, 3, PRIORS, 0.01)
ZERO_ONE = LinearFunction(np.append(-PRIORS, np.zeros(3)), 1.0)
FAIR = paper_fairness(4000)


def find_calls_to(found, gap):
    """Calls after which a feasible mixture and the bound are closer than `gap`."""
    return next(
        i + 1
        for i, step in enumerate(found.history)
        if step.violation <= FEASIBLE and step.value - step.bound <= gap
    )


@pytest.mark.parametrize(
    ("objective", "constraints", "within", "reference"),
    [
        (QMean(3, 6), FREE, None, 0.5219926226),
        (HMean(3, 6), FREE, None, 0.5229337372),
        (GMean(3, 6), FREE, None, 0.5221664010),
        (MinMax(3, 6), FREE, None, 0.5239125183),
        (micro_f1(PRIORS), FREE, None, 0.7798311358),
        (ZERO_ONE, FREE, None, 0.1495205630),
        (QMean(3, 6), COVERAGE, None, 0.6429039857),
        (HMean(3, 6), COVERAGE, None, 0.7206380274),
        (GMean(3, 6), COVERAGE, None, 0.659694),
        (MinMax(3, 6), COVERAGE, None, 0.806805),
        (micro_f1(PRIORS), COVERAGE, None, 0.803947),
        (ZERO_ONE, COVERAGE, None, 0.213782),
        (QMean(3, 6), FREE, 0.05, 0.573404),
        (QMean(3, 6), FREE, 0.01, 0.614441),
    ],
)
def test_the_papers_synthetic_distribution(objective, constraints, within, reference):
    convex = [] if within is None else [KullbackLeibler(PRIORS, within, 3)]
    oracle = AtomOracle(EFFECT)
    found = solve(MixtureProgramme(objective, *constraints, convex=convex), oracle, max_calls=50)
    assert find_calls_to(found, 1e-5) <= 50
    assert found.status == "optimal"
    assert found.violation <= FEASIBLE
    assert found.bound - 2e-6 <= reference <= found.value + 2e-6
    assert found.value == pytest.approx(reference, abs=2e-6)
    assert len(found.history) == oracle.calls
    assert len(found.rules) <= 7
    assert len(found.pool) <= oracle.calls
    seconds = [step.seconds for step in found.history]
    assert seconds == sorted(seconds)
    assert found.history[-1].value == pytest.approx(found.value, abs=1e-8)


def positives(mass):
    """Effect on the share of some mass that is decided positive."""
    effect = np.zeros((len(mass), 2))
    effect[:, 1] = mass / mass.sum()
    return effect


def gap_to_all(statistics, within):
    """Effects of statistics of groups and of all rows, and rows that bound the differences."""
    first = FAIR.group == 0
    effect, rows = list(recalls(FAIR.W)), []
    for mass in statistics:
        at = len(effect)
        effect += [positives(mass * first), positives(mass * ~first), positives(mass)]
        rows += [(at, at + 2), (at + 1, at + 2)]
    A = np.zeros((2 * len(rows), len(effect)))
    for k, (i, j) in enumerate(rows):
        A[2 * k, [i, j]], A[2 * k + 1, [i, j]] = (1, -1), (-1, 1)
    return np.array(effect), A, np.full(len(A), within)


POSITIVE, NEGATIVE, EVERY = FAIR.W[:, 1], FAIR.W[:, 0], FAIR.W.sum(axis=1)


@pytest.mark.parametrize(
    ("statistics", "within", "reference"),
    [
        ((POSITIVE,), 0.05, 0.209538),
        ((POSITIVE,), 0.01, 0.216882),
        ((EVERY,), 0.05, 0.196937),
        ((EVERY,), 0.01, 0.202479),
        ((POSITIVE, NEGATIVE), 0.05, 1 - norm.cdf(0.5) - 0.05),
        ((POSITIVE, NEGATIVE), 0.01, 1 - norm.cdf(0.5) - 0.01),
    ],
    ids=["opportunity_05", "opportunity_01", "parity_05", "parity_01", "odds_05", "odds_01"],
)
def test_fairness_of_two_groups(statistics, within, reference):
    effect, A, b = gap_to_all(statistics, within)
    found = solve(MixtureProgramme(GMean(2, len(effect)), A, b), AtomOracle(effect), max_calls=50)
    assert find_calls_to(found, 1e-5) <= 50
    assert found.violation <= FEASIBLE
    assert found.value == pytest.approx(reference, abs=1e-5)
    assert found.bound - 2e-6 <= found.value


def test_equalised_odds_needs_a_mixture():
    """Every single rule of the pool that meets the constraints is worse than their mixture."""
    effect, A, b = gap_to_all((POSITIVE, NEGATIVE), 0.05)
    programme = MixtureProgramme(GMean(2, len(effect)), A, b)
    found = solve(programme, AtomOracle(effect))
    assert len(found.rules) >= 2
    single = [programme.objective.value(u) for u in found.pool if programme.violation(u) <= 1e-9]
    assert min(single, default=1.0) > 0.36  # 0.3625 by an exhaustive search of thresholds


def test_without_constraints_two_groups_reach_the_exact_thresholds():
    effect = recalls(FAIR.W)
    found = solve(MixtureProgramme(GMean(2), np.zeros((0, 2)), np.zeros(0)), AtomOracle(effect))
    assert found.value == pytest.approx(0.186635, abs=2e-6)


@pytest.mark.parametrize(
    ("target", "miss"), [((0.5, 0.5, 0.3), 0.1), ((0.6, 0.6, 0.0), 0.1), ((1.2, -0.1, -0.1), 0.2)]
)
def test_infeasible_coverage_gives_the_least_violation(target, miss):
    """Shares are not negative and sum to one: the targets miss that by what they miss at least."""
    A, b = coverage_rows(3, 3, np.array(target), 0.01)
    found = solve(MixtureProgramme(QMean(3, 6), A, b), AtomOracle(EFFECT))
    assert found.status == "infeasible"
    assert found.violation == pytest.approx(miss - 0.01, abs=1e-8)
    assert found.probability.sum() == pytest.approx(1)


def test_a_convex_constraint_that_nothing_meets():
    """KL divergence is at least zero, reached where shares are the priors."""
    phi = KullbackLeibler(PRIORS, -0.02, 3)
    found = solve(MixtureProgramme(QMean(3, 6), *FREE, convex=[phi]), AtomOracle(EFFECT))
    assert found.status == "infeasible"
    assert found.violation == pytest.approx(0.02, abs=1e-7)


def test_too_few_calls_say_so():
    found = solve(MixtureProgramme(QMean(3, 6), *COVERAGE), AtomOracle(EFFECT), max_calls=3)
    assert found.status == "limit"
    assert len(found.history) == 3
    found = solve(MixtureProgramme(QMean(3, 6), *FREE), AtomOracle(EFFECT), max_calls=4)
    assert found.status == "limit"
    assert found.bound <= 0.5219926226 <= found.value


def test_a_tighter_constraint_costs_more():
    values = [
        solve(
            MixtureProgramme(QMean(3, 6), *coverage_rows(3, 3, PRIORS, within)), AtomOracle(EFFECT)
        ).value
        for within in (0.2, 0.1, 0.05, 0.01)
    ]
    assert values == sorted(values)
    assert values[0] < values[-1] - 0.05


def test_an_idle_constraint_and_the_order_of_functionals_change_nothing():
    plain = solve(MixtureProgramme(HMean(3, 6), *FREE), AtomOracle(EFFECT))
    idle = MixtureProgramme(HMean(3, 6), np.eye(6), np.full(6, 2.0))
    assert solve(idle, AtomOracle(EFFECT)).value == pytest.approx(plain.value, abs=1e-9)
    turned = EFFECT[[2, 1, 0, 5, 4, 3]][:, ::-1]
    again = solve(MixtureProgramme(HMean(3, 6), *FREE), AtomOracle(turned))
    assert again.value == pytest.approx(plain.value, abs=2e-7)


def test_no_gradient_at_a_recall_of_zero_does_no_harm():
    """The gradient of the G-mean has no use where a recall is zero: no cut is taken there."""

    class Flat(GMean):
        def slope(self, u):
            return np.zeros(3) if u.min() <= 0 else super().slope(u)

    found = solve(MixtureProgramme(Flat(3, 6), *COVERAGE), AtomOracle(EFFECT))
    assert found.value == pytest.approx(0.659694, abs=2e-6)
    assert found.bound <= 0.659694 + 2e-6


@pytest.mark.parametrize(
    ("make", "has_coverage", "calls"),
    [(HMean, False, 60), (GMean, False, 60), (HMean, True, 150), (MinMax, True, 200)],
)
def test_twelve_classes(make, has_coverage, calls):
    """The multipliers of 48 rows are averaged with the best ones, or 200 calls would not do."""
    rng = np.random.default_rng(0)
    priors = rng.dirichlet(np.full(12, 3.0))
    W = rng.dirichlet(6 * priors, 2000) / 2000
    effect = np.concatenate([recalls(W), shares(W)])
    A, b = coverage_rows(12, 12, W.sum(axis=0), 0.01)
    rows = (A, b) if has_coverage else (np.zeros((0, 24)), np.zeros(0))
    found = solve(MixtureProgramme(make(12, 24), *rows), AtomOracle(effect), max_calls=calls)
    assert found.status == "optimal"
    assert found.violation <= FEASIBLE
    assert abs(found.value - found.bound) <= 1e-7
    assert len(found.rules) <= 25
