"""Bounds on a divergence of shares, which no linear rows state, against exact references."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, recalls, shares
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference_losses import KullbackLeibler, MacroF1, QMean, micro_f1
from scipy.optimize import linprog, minimize_scalar

from gbm_constrained.reductions.methods import solve
from gbm_constrained.reductions.mixtures import (
    FEASIBLE,
    LinearFunction,
    Master,
    MixtureProgramme,
    polish,
)

FREE = np.zeros((0, 6)), np.zeros(0)
PRIORS = np.array([0.5, 0.3, 0.2])
TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def draw_atoms(n_atoms, seed, n=3):
    W = np.random.default_rng(seed).dirichlet(np.full(n_atoms * n, 0.3)).reshape(n_atoms, n)
    return np.concatenate([recalls(W), shares(W)]), W.sum(axis=0)


def minimise_ratio_exactly(effect, ratio, phi):
    """Charnes-Cooper programme in the decisions of each atom, with cuts of the divergence."""
    d, M, n = effect.shape
    flat = effect.reshape(d, M * n)
    a, a0, c, c0 = ratio
    simplex = np.hstack([np.kron(np.eye(M), np.ones((1, n))), -np.ones((M, 1))])
    A_eq = np.vstack([simplex, np.append(c @ flat, c0)])
    rows = []
    for _ in range(2000):
        found = linprog(
            np.append(a @ flat, a0),
            A_ub=np.array(rows) if rows else None,
            b_ub=np.zeros(len(rows)) if rows else None,
            A_eq=A_eq,
            b_eq=np.append(np.zeros(M), 1.0),
            options=TIGHT,
        )
        assert found.success
        u = flat @ found.x[:-1] / found.x[-1]
        inside = u.copy()
        inside[phi.skip :] = np.maximum(u[phi.skip :], 1e-4)
        excess, slope = phi.value(inside), phi.gradient(inside)
        if phi.value(u) <= 1e-8:
            return found.fun
        rows.append(np.append(slope @ flat, excess - slope @ inside))
    raise AssertionError("the reference did not converge")


@settings(max_examples=8, deadline=None, derandomize=True)
@given(n_atoms=st.integers(2, 4), seed=st.integers(0, 99), within=st.sampled_from([0.02, 0.1]))
def test_a_ratio_under_a_divergence_of_few_atoms(n_atoms, seed, within):
    effect, priors = draw_atoms(n_atoms, seed)
    assume(priors.min() > 0.02)
    objective, phi = micro_f1(priors, 6), KullbackLeibler(priors, within, 3)
    found = solve(MixtureProgramme(objective, *FREE, convex=[phi]), AtomOracle(effect))
    reference = minimise_ratio_exactly(effect, objective.ratio(), phi)
    assert found.status == "optimal"
    assert found.violation <= FEASIBLE
    assert found.value == pytest.approx(reference, abs=1e-6)
    assert found.bound <= reference + 2e-7


def test_macro_f1_under_a_divergence():
    """A local optimum: no rule on the segments to others improves it."""
    effect, priors = draw_atoms(20, 0)
    objective, phi = MacroF1(priors), KullbackLeibler(priors, 0.001, 3)
    programme = MixtureProgramme(objective, *FREE, convex=[phi])
    oracle = AtomOracle(effect)
    found = solve(programme, oracle)
    assert found.violation <= FEASIBLE
    assert found.status == "local"
    free = solve(MixtureProgramme(objective, *FREE), AtomOracle(effect))
    assert phi.value(free.u) > 0.0  # The bound binds.
    assert found.value >= free.value - 1e-9
    linear = programme.with_objective(LinearFunction(objective.gradient(found.u)))
    best = solve(linear, oracle)
    assert linear.objective.value(found.u) - best.value <= 1e-6


def pool_of(n_atoms=5, seed=0):
    effect, priors = draw_atoms(n_atoms, seed)
    oracle = AtomOracle(effect)
    rules = np.stack(np.meshgrid(*[range(3)] * n_atoms), axis=-1).reshape(-1, n_atoms)
    return np.array([oracle.u_of(rule) for rule in rules]), priors


def test_few_cuts_find_a_feasible_mixture_and_the_optimum():
    points, priors = pool_of()
    programme = MixtureProgramme(QMean(3, 6), *FREE, convex=[KullbackLeibler(priors, 1e-4, 3)])
    cuts = []
    master = Master(programme, cuts)
    point = master.find_least_violation(points)
    assert programme.violation(point.u) <= FEASIBLE
    np.testing.assert_allclose(point.weight @ points, point.u, atol=1e-12)
    best = master.optimise(points, 1e-9)
    assert programme.violation(best.u) <= FEASIBLE
    assert programme.objective.value(best.u) - best.model <= 1e-9
    assert len(cuts) < 60


@pytest.mark.parametrize("end", [0.05, 0.2, 0.4])
def test_the_least_violation_of_two_rules(end):
    """Of shares on a segment, the smallest divergence is that of a line search."""
    points = np.zeros((2, 6))
    points[:, 3:] = [[0.1, 0.1, 0.8], [end, 0.9 - end, 0.1]]
    phi = KullbackLeibler(PRIORS, 1e-3, 3)
    point = Master(MixtureProgramme(QMean(3, 6), *FREE, convex=[phi])).find_least_violation(points)
    along = minimize_scalar(
        lambda t: phi.value((1 - t) * points[0] + t * points[1]),
        bounds=(0, 1), method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    assert along.fun > 0.0
    assert phi.value(point.u) == pytest.approx(along.fun, abs=2e-9)
    assert point.model <= along.fun + 1e-9
    assert point.model >= along.fun - 2e-9


def test_a_pool_that_never_predicts_a_class_has_no_divergence():
    points = np.zeros((4, 6))
    points[:, 3] = np.linspace(0, 1, 4)
    points[:, 4] = 1 - points[:, 3]
    cuts = []
    phi = KullbackLeibler(PRIORS, 0.1, 3)
    master = Master(MixtureProgramme(QMean(3, 6), *FREE, convex=[phi]), cuts)
    assert master.find_least_violation(points) is None
    assert cuts == []


def test_a_mixture_is_polished_within_what_it_may_violate():
    points, priors = pool_of()
    programme = MixtureProgramme(QMean(3, 6), *FREE, convex=[KullbackLeibler(priors, 0.01, 3)])
    best = Master(programme).optimise(points, 1e-9)
    even = np.full(len(points), 1 / len(points))
    found = polish(programme, points, even, 0.0)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.min() >= 0.0
    assert programme.violation(found @ points) <= FEASIBLE
    value = programme.objective.value
    assert value(best.u) - 1e-8 <= value(found @ points) <= value(even @ points)
    few = np.zeros(len(points))
    few[[0, 1, 30]] = 1 / 3
    assert set(np.flatnonzero(polish(programme, points, few, 0.0))) <= {0, 1, 30}
    again = polish(programme, points, best.weight, 0.0)
    assert value(again @ points) <= value(best.u) + 1e-12
