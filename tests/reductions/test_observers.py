"""Searches that are observed: each call is shown what was reached, and may be the last one."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, recalls, shares, solve_exactly
from reference_losses import GMean, MinMax, QMean, micro_f1

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
    found = mix_rules(MixtureProgramme(objective, A, b), oracle, list(rules), points)
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
