"""Frank-Wolfe: rates, weights, what it cannot minimise, local optima, and split constraints."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, confusion, coverage_rows, paper_synthetic, recalls, shares
from reference_losses import HMean, KullbackLeibler, MacroF1, MinMax, QMean, Quadratic, micro_f1

from gbm_constrained.reductions.methods import run_frank_wolfe, solve
from gbm_constrained.reductions.mixtures import MixtureProgramme, Search

SYNTHETIC = paper_synthetic()
PRIORS = SYNTHETIC.priors
COARSE = paper_synthetic(500)


def free(d):
    return np.zeros((0, d)), np.zeros(0)


def effects(example):
    """Effects on recalls and shares."""
    return np.concatenate([recalls(example.W), shares(example.W)])


def run(objective, effect, n_calls, step="open_loop"):
    """Run Algorithm 1 from one rule; give the search and the weights."""
    programme = MixtureProgramme(objective, *free(len(effect)))
    search = Search(programme, AtomOracle(effect), n_calls + 1)
    search.call(-np.ones(len(effect)))
    weight, _ = run_frank_wolfe(search, np.array([1.0]), n_calls, 0.0, step)
    return search, weight


def test_gaps_of_the_q_mean():
    search, _ = run(QMean(3), recalls(SYNTHETIC.W), 500)
    for calls, gap in ((10, 3.2e-3), (100, 4.1e-5), (500, 1.7e-6)):
        assert 0 < search.history[calls].value - 0.5219926226 < 3 * gap


def test_gap_of_the_h_mean():
    search, _ = run(HMean(3), recalls(SYNTHETIC.W), 500)
    assert 0 < search.history[100].value - 0.5229337372 < 3 * 3.1e-4
    assert search.history[500].value - 0.5229337372 < 1e-4


def test_theorem_12_on_a_quadratic():
    """psi(u_T) - psi* <= 8 beta / (T + 2) after every call, of a distance with beta = 2."""
    effect = confusion(COARSE.W)
    mixed = np.full((len(COARSE.W), 3), 1 / 3)
    inside = np.einsum("kxj,xj->k", effect, mixed)  # the confusion matrix of uniform decisions
    outside = inside + np.linspace(-0.4, 0.4, 9)
    for centre in (inside, outside):
        objective = Quadratic(centre)
        best = solve(MixtureProgramme(objective, *free(9), low=-1), AtomOracle(effect), "columns")
        assert best.status == "optimal"
        if centre is inside:
            assert best.value == pytest.approx(0, abs=2e-7)
        search, _ = run(objective, effect, 300)
        for t, step in enumerate(search.history[1:], start=1):
            assert step.value - best.value <= 8 * 2 / (t + 2) + 1e-12
            assert step.bound <= best.value + 1e-10


def test_weights_of_the_open_loop():
    """The s-th of T rules has weight 2 s / (T (T + 1)), and the mixture's u is theirs."""
    T, effect = 60, recalls(SYNTHETIC.W)
    search, weight = run(QMean(3), effect, T)
    answers = []

    class Recorder(AtomOracle):
        def __call__(self, cost):
            rule, u = super().__call__(cost)
            answers.append(u)
            return rule, u

    programme = MixtureProgramme(QMean(3), *free(3))
    again = Search(programme, Recorder(effect), T + 1)
    again.call(-np.ones(3))
    run_frank_wolfe(again, np.array([1.0]), T, 0.0, "open_loop")
    expected = np.zeros(len(weight))
    for s, u in enumerate(answers[1:], start=1):
        at = int(np.abs(search.points - u).sum(axis=1).argmin())
        expected[at] += 2 * s / (T * (T + 1))
    np.testing.assert_allclose(weight, expected, atol=1e-10)
    value = programme.objective.value(weight @ search.points)
    assert value == pytest.approx(search.history[-1].value, abs=1e-10)


def test_the_end_is_fully_corrective():
    """Re-weighting the pool improves on the average of 100 calls by orders of magnitude."""
    programme = MixtureProgramme(QMean(3), *free(3))
    found = solve(
        programme, AtomOracle(recalls(SYNTHETIC.W)), "frank_wolfe", 101, step="open_loop"
    )
    assert found.value - 0.5219926226 < 2e-6 < found.history[-2].value - 0.5219926226
    assert found.bound - 2e-6 <= 0.5219926226


def test_the_worst_recall_is_refused_because_the_method_fails():
    """A subgradient names one class: the limit is the uniform mixture with loss 1 - 1 / n."""
    programme = MixtureProgramme(MinMax(3), *free(3))
    oracle = AtomOracle(recalls(SYNTHETIC.W))
    with pytest.raises(ValueError, match=r"frank_wolfe.*differentiable.*'convex'.*'columns'"):
        solve(programme, oracle, "frank_wolfe")
    assert oracle.calls == 0
    search, _ = run(MinMax(3), recalls(COARSE.W), 3000)
    assert search.history[-1].value == pytest.approx(1 - 1 / 3, abs=3e-4)
    assert solve(programme, oracle).value == pytest.approx(0.5239125183, abs=2e-6)


def test_macro_f1_from_several_starts():
    found = solve(MixtureProgramme(MacroF1(PRIORS), *free(6)), AtomOracle(effects(SYNTHETIC)))
    assert found.status == "local"
    assert found.bound == -np.inf
    assert found.value == pytest.approx(0.5667147985, abs=2e-6)


@pytest.mark.parametrize("within", [0.01, 0.03])
def test_any_objective_under_constraints(within):
    """A ratio that does not say so ends where bisection proves the optimum."""
    A, b = coverage_rows(3, 3, PRIORS, within)
    oracle = AtomOracle(effects(SYNTHETIC))
    ratio = micro_f1(PRIORS)
    best = solve(MixtureProgramme(ratio, A, b), oracle)

    class Unknown:
        kind = "other"
        value, gradient = ratio.value, ratio.gradient

    found = solve(MixtureProgramme(Unknown(), A, b), oracle)
    assert found.status == "local"
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(best.value, abs=1e-6)


@pytest.mark.parametrize(("within", "calls", "gap"), [(None, 600, 1e-4), (0.05, 80, 1e-2)])
def test_split_constraints(within, calls, gap):
    """`within` is the bound of a divergence; coverage is bounded where it is None."""
    rows = coverage_rows(3, 3, PRIORS, 0.01) if within is None else free(6)
    convex = [] if within is None else [KullbackLeibler(PRIORS, within, 3)]
    programme = MixtureProgramme(QMean(3, 6), *rows, convex=convex)
    oracle = AtomOracle(effects(COARSE))
    best = solve(programme, oracle)
    found = solve(programme, oracle, "frank_wolfe", calls, step="open_loop")
    assert found.violation <= 1e-9
    assert best.bound - 1e-9 <= found.value <= best.value + gap
    assert found.bound <= best.value + 1e-9
    if within is None:  # Without the 1 / t of the printed Algorithm 5, u and f meet (E3).
        assert found.history[-2].violation < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("step", ["open_loop", "line_search"])
def test_split_constraints_in_ten_thousand_calls(step):
    A, b = coverage_rows(3, 3, PRIORS, 0.01)
    programme = MixtureProgramme(QMean(3, 6), A, b)
    found = solve(
        programme, AtomOracle(effects(SYNTHETIC)), "frank_wolfe", 10_000, tolerance=-1.0, step=step
    )
    last = found.history[-2]
    assert last.violation <= 1e-5
    assert abs(last.value - 0.6429039857) <= 1e-4
    assert found.violation <= 1e-9
    assert found.value == pytest.approx(0.6429039857, abs=2e-6)
