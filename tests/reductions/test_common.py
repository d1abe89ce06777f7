"""Every reduction on distributions of finitely many atoms, against exact references."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, recalls, shares, solve_exactly, try_all_rules
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference_losses import GMean, HMean, MinMax, QMean, balanced_error, micro_f1

from gbm_constrained.reductions.methods import solve
from gbm_constrained.reductions.mixtures import LinearFunction, MixtureProgramme

CONVEX = {
    "balanced": balanced_error,
    "q_mean": QMean,
    "h_mean": HMean,
    "g_mean": GMean,
    "min_max": MinMax,
}


@st.composite
def problems(draw, constraints=("none", "coverage", "equal_opportunity")):
    """Effects on recalls, shares and recalls of class 0 in two groups; priors, rows, bounds."""
    n = draw(st.integers(2, 4))
    M = draw(st.integers(n, {2: 7, 3: 5, 4: 4}[n]))
    W = draw(arrays(np.int64, (M, n), elements=st.integers(0, 9))) + np.eye(M, n)
    W = W / W.sum()
    group = np.arange(M) % 2
    in_group = [W[:, 0] * (group == g) for g in (0, 1)]
    assume(all(mass.sum() > 0 for mass in in_group))
    parts = [np.outer(mass / mass.sum(), np.eye(n)[0]) for mass in in_group]
    effect = np.concatenate([recalls(W), shares(W), np.array(parts)])
    d = 2 * n + 2
    A, b = np.zeros((0, d)), np.zeros(0)
    kind = draw(st.sampled_from(constraints))
    within = draw(st.sampled_from([0.02, 0.1]))
    if kind == "coverage":
        A, b = coverage_rows(n, n, W.sum(axis=0), within)
        A = np.hstack([A, np.zeros((2 * n, 2))])
    elif kind == "equal_opportunity":
        row = np.append(np.zeros(2 * n), [1.0, -1.0])
        A, b = np.array([row, -row]), np.full(2, within)
    return effect, W.sum(axis=0), A, b


def find_reference(objective, effect, A, b):
    """Optimum over all randomised rules; cuts stay away from recalls of zero."""

    def cut(u):
        inside = np.maximum(u, 1e-4)
        slope = objective.gradient(inside)
        return objective.value(inside) + slope @ (u - inside), slope

    return solve_exactly(effect, A, b, cut)


@pytest.mark.parametrize("name", CONVEX)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(problem=problems())
def test_columns_reach_the_optimum_and_enclose_it(name, problem):
    effect, priors, A, b = problem
    objective = CONVEX[name](len(priors), effect.shape[0])
    reference = find_reference(objective, effect, A, b)
    assert reference is not None  # deciding at random by priors is feasible
    found = solve(MixtureProgramme(objective, A, b), AtomOracle(effect))
    assert found.status == "optimal"
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(reference, abs=1e-6)
    assert found.bound <= reference + 2e-7
    np.testing.assert_allclose(found.probability @ rules_of(found, effect), found.u, atol=1e-12)
    assert found.probability.sum() == pytest.approx(1, abs=1e-12)


def rules_of(found, effect):
    """Functionals of the solution's rules, from their decisions."""
    oracle = AtomOracle(effect)
    return np.array([oracle.u_of(np.frombuffer(rule, dtype=np.int8)) for rule in found.rules])


@settings(max_examples=8, deadline=None, derandomize=True)
@given(problem=problems(constraints=("none",)))
def test_linear_objectives_and_ratios_by_trying_all_rules(problem):
    effect, priors, A, b = problem
    oracle = AtomOracle(effect)
    everything = try_all_rules(oracle)
    rng = np.random.default_rng(len(everything))
    linear = LinearFunction(rng.normal(size=effect.shape[0]))
    for objective in (linear, micro_f1(priors, effect.shape[0])):
        found = solve(MixtureProgramme(objective, A, b), oracle)
        best = min(objective.value(u) for u in everything)
        assert found.value == pytest.approx(best, abs=1e-9)
        assert found.bound <= best + 1e-9
        assert found.bound >= best - 2e-7
        assert len(found.rules) == 1


@settings(max_examples=8, deadline=None, derandomize=True)
@given(problem=problems(constraints=("coverage", "equal_opportunity")))
def test_constrained_ratios_by_charnes_and_cooper(problem):
    effect, priors, A, b = problem
    objective = micro_f1(priors, effect.shape[0])
    reference = solve_exactly(effect, A, b, ratio=objective.ratio())
    found = solve(MixtureProgramme(objective, A, b), AtomOracle(effect))
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(reference, abs=1e-6)
    assert found.bound <= reference + 1e-8


@pytest.mark.parametrize(
    ("solver", "names", "max_calls", "gap"),
    [
        ("frank_wolfe", ("q_mean", "h_mean"), 100, 1e-3),
        ("ellipsoid", ("q_mean", "min_max"), 100, 3e-2),
        ("gda", ("q_mean", "min_max"), 800, 2e-2),
    ],
)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data())
def test_other_solvers_come_near_and_their_bounds_hold(solver, names, max_calls, gap, data):
    effect, priors, A, b = data.draw(problems())
    for name in names:
        objective = CONVEX[name](len(priors), effect.shape[0])
        reference = find_reference(objective, effect, A, b)
        found = solve(MixtureProgramme(objective, A, b), AtomOracle(effect), solver, max_calls)
        assert found.violation <= 1e-9
        assert reference - 1e-8 <= found.value <= reference + gap
        assert found.bound <= reference + 1e-7
        assert len(found.history) <= max_calls
        bounds = [step.bound for step in found.history]
        assert bounds == sorted(bounds)
