"""Searches that are observed, that know earlier rules, and that end at a given tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, recalls, shares, solve_exactly
from reference_losses import GMean, HMean, MinMax, QMean, micro_f1

from gbm_constrained.reductions.methods import SOLVERS, mix_rules, solve
from gbm_constrained.reductions.mixtures import FEASIBLE, MixtureProgramme

RNG = np.random.default_rng(0)
W = RNG.dirichlet(np.full(60, 0.3)).reshape(20, 3)
PRIORS = W.sum(axis=0)
EFFECT = np.concatenate([recalls(W), shares(W)])
WITHIN = coverage_rows(3, 3, PRIORS, 0.02)
FREE = np.zeros((0, 6)), np.zeros(0)


class Other(GMean):
    """The same function, of which nothing is said."""

    kind = "other"


CASES = [
    ("columns", GMean(3, 6), WITHIN),
    ("columns", MinMax(3, 6), WITHIN),
    ("bisection", micro_f1(PRIORS, 6), WITHIN),
    ("frank_wolfe", QMean(3, 6), FREE),
    ("frank_wolfe", QMean(3, 6), WITHIN),
    ("frank_wolfe", Other(3, 6), WITHIN),
    ("ellipsoid", QMean(3, 6), WITHIN),
    ("gda", QMean(3, 6), WITHIN),
]
SEARCHES = pytest.mark.parametrize(("solver", "objective", "constraints"), CASES)


@SEARCHES
def test_each_call_is_shown_the_mixture_before_it(solver, objective, constraints):
    assert {name for name, *_ in CASES} == set(SOLVERS)
    programme, oracle = MixtureProgramme(objective, *constraints), AtomOracle(EFFECT)
    seen = []

    def observe(step, u):
        assert step.value == pytest.approx(objective.value(u), abs=1e-12)
        assert step.violation == pytest.approx(programme.violation(u), abs=1e-12)
        seen.append(oracle.calls)
        return False

    found = solve(programme, oracle, solver, 40, observe)
    assert seen == list(range(1, len(found.history)))
    silent = solve(programme, AtomOracle(EFFECT), solver, 40)
    np.testing.assert_array_equal(found.u, silent.u)


@SEARCHES
@pytest.mark.parametrize("n_calls", [2, 3, 9])
def test_the_call_after_the_answer_is_the_last_one(solver, objective, constraints, n_calls):
    oracle = AtomOracle(EFFECT)

    def observe(step, u):
        return oracle.calls == n_calls - 1

    programme = MixtureProgramme(objective, *constraints)
    found = solve(programme, oracle, solver, 40, observe)
    whole = solve(programme, AtomOracle(EFFECT), solver, 40)
    assert oracle.calls == len(found.history) == min(n_calls, len(whole.history))
    assert len(found.pool) <= n_calls
    assert found.probability.sum() == pytest.approx(1.0, abs=1e-12)
    if len(whole.history) > n_calls:
        assert found.status in ("limit", "infeasible")
    assert found.violation >= whole.violation - FEASIBLE


@pytest.mark.parametrize("name", ["g_mean", "micro_f1"])
def test_known_rules_are_mixed_without_calls(name):
    """All rules of a few atoms are known: the best mixture is the optimum."""
    few = W[:5] / W[:5].sum()
    effect, priors = np.concatenate([recalls(few), shares(few)]), few.sum(axis=0)
    oracle = AtomOracle(effect)
    rules = np.stack(np.meshgrid(*[range(3)] * 5), axis=-1).reshape(-1, 5)
    points = [oracle.u_of(rule) for rule in rules]
    A, b = coverage_rows(3, 3, priors, 0.02)
    objective = GMean(3, 6) if name == "g_mean" else micro_f1(priors, 6)
    found = mix_rules(MixtureProgramme(objective, A, b), oracle, zip(rules, points, strict=True))
    assert oracle.calls == 0
    assert found.violation <= FEASIBLE
    if name == "g_mean":

        def cut(u):
            inside = np.maximum(u, 1e-4)
            slope = objective.gradient(inside)
            return objective.value(inside) + slope @ (u - inside), slope

        reference = solve_exactly(effect, A, b, cut)
    else:
        reference = solve_exactly(effect, A, b, ratio=objective.ratio())
    assert found.value == pytest.approx(reference, abs=1e-6)


LOSSES = pytest.mark.parametrize("make", [GMean, HMean, QMean, MinMax])
CONSTRAINTS = pytest.mark.parametrize("constraints", [FREE, WITHIN], ids=["free", "coverage"])


def count(rules):
    """Pair rules with their functionals."""
    oracle = AtomOracle(EFFECT)
    return [(rule, oracle.u_of(np.frombuffer(rule, np.int8))) for rule in rules]


@LOSSES
@CONSTRAINTS
def test_a_search_that_starts_at_the_optimum_needs_few_calls(make, constraints):
    programme = MixtureProgramme(make(3, 6), *constraints)
    cold = solve(programme, AtomOracle(EFFECT))
    warm = solve(programme, AtomOracle(EFFECT), start=count(cold.rules))
    assert warm.value == pytest.approx(cold.value, abs=2e-7)
    assert warm.bound <= cold.value + FEASIBLE
    assert warm.violation <= FEASIBLE
    assert len(warm.history) <= min(len(cold.history), 6)


@LOSSES
@CONSTRAINTS
def test_cheap_known_rules_join_the_pool(make, constraints):
    programme = MixtureProgramme(make(3, 6), *constraints)
    cold = solve(programme, AtomOracle(EFFECT))
    told = solve(programme, AtomOracle(EFFECT), known=count(cold.rules))
    assert told.value == pytest.approx(cold.value, abs=2e-7)
    assert told.bound <= cold.value + FEASIBLE
    assert len(told.history) < len(cold.history)


@LOSSES
@pytest.mark.parametrize("tolerance", [1e-3, 1e-5])
def test_value_and_bound_meet_within_the_tolerance(make, tolerance):
    programme = MixtureProgramme(make(3, 6), *WITHIN)
    exact = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), tolerance=tolerance)
    assert found.status == "optimal"
    assert found.value - found.bound <= tolerance
    assert found.bound <= exact.value + FEASIBLE
    assert found.value >= exact.bound - FEASIBLE
    assert len(found.history) <= len(exact.history)
