"""The dispatch of reductions, and inputs that are refused before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle

from gbm_constrained.reductions.methods import check_reduction, solve
from gbm_constrained.reductions.mixtures import LinearFunction, MixtureProgramme, Search

FREE = np.zeros((0, 2)), np.zeros(0)
LINEAR = LinearFunction(np.array([-1.0, -0.5]), 1.0)
ORACLE = AtomOracle([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])


ALLOWED = {
    "columns": {"linear", "smooth", "convex"},
    "gda": {"linear", "smooth", "convex"},
    "ellipsoid": {"linear", "smooth", "convex"},
    "frank_wolfe": {"linear", "smooth", "other"},
    "bisection": {"ratio"},
}


@pytest.mark.parametrize("solver", ALLOWED)
@pytest.mark.parametrize("kind", ["linear", "smooth", "convex", "ratio", "other"])
def test_a_solver_that_cannot_is_refused_with_the_one_that_can(kind, solver):
    if kind in ALLOWED[solver]:
        assert check_reduction(kind, solver) == solver
    else:
        with pytest.raises(ValueError, match=f"solver='{solver}'.*'{kind}'") as refused:
            check_reduction(kind, solver)
        assert f"take solver='{check_reduction(kind, 'auto')}'" in str(refused.value)


def test_auto_takes_the_solver_of_the_kind():
    first = {"linear": "columns", "ratio": "bisection", "other": "frank_wolfe"}
    for kind, solver in {**first, "smooth": "columns", "convex": "columns"}.items():
        assert check_reduction(kind, "auto") == solver


def test_unknown_names():
    with pytest.raises(ValueError, match=r"solver='simplex'.*columns, gda"):
        check_reduction("linear", "simplex")
    with pytest.raises(ValueError, match=r"kind='concave'.*take one of linear"):
        check_reduction("concave", "auto")


def test_a_refusal_costs_no_call():
    oracle = AtomOracle(ORACLE.effect)
    with pytest.raises(ValueError, match="bisection"):
        solve(MixtureProgramme(LINEAR, *FREE), oracle, "bisection")
    with pytest.raises(ValueError, match="max_calls=1"):
        solve(MixtureProgramme(LINEAR, *FREE), oracle, max_calls=1)
    assert oracle.calls == 0


@pytest.mark.parametrize("solver", ["columns", "frank_wolfe", "gda", "ellipsoid"])
def test_a_linear_objective_takes_the_best_rule(solver):
    found = solve(MixtureProgramme(LINEAR, *FREE), ORACLE, solver, 50)
    np.testing.assert_allclose(found.u, [1.0, 1.0])
    assert found.value == pytest.approx(-0.5)
    assert found.bound == pytest.approx(-0.5)
    assert found.status == "optimal"
    assert len(found.rules) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"A": np.zeros(2), "b": np.zeros(1)}, r"A has shape \(2,\).*shape \(0, d\)"),
        ({"A": np.zeros((2, 2)), "b": np.zeros(1)}, "one row of d coefficients"),
        ({"b": np.array([np.inf]), "A": np.zeros((1, 2))}, "drop rows without a bound"),
        ({"low": 1.0, "high": 0.0}, "low <= high"),
        ({"high": np.inf}, "finite numbers"),
    ],
)
def test_programmes_that_are_none(arguments, words):
    with pytest.raises(ValueError, match=words):
        MixtureProgramme(LINEAR, **{"A": FREE[0], "b": FREE[1], **arguments})


class Broken:
    kind = "smooth"

    def value(self, u):
        return float(u.sum())

    def gradient(self, u):
        return np.array([np.nan, 1.0])


@pytest.mark.parametrize("solver", ["columns", "frank_wolfe", "gda", "ellipsoid"])
def test_a_gradient_that_holds_nan_is_an_error(solver):
    with pytest.raises(ValueError, match=r"gradient.*NaN.*return finite numbers"):
        solve(MixtureProgramme(Broken(), *FREE), ORACLE, solver, 50)


def test_an_objective_without_a_value_is_an_error():
    class Infinite(Broken):
        def value(self, u):
            return np.inf

        def gradient(self, u):
            return np.zeros(2)

    with pytest.raises(ValueError, match="no finite value"):
        solve(MixtureProgramme(Infinite(), *FREE), ORACLE)


def test_rules_with_the_same_functionals_are_one():
    search = Search(MixtureProgramme(LINEAR, *FREE), ORACLE, 3)
    first, u = search.call(np.array([-1.0, -1.0]))
    second, _ = search.call(np.array([-2.0, -3.0]))
    assert first == second == 0
    np.testing.assert_array_equal(u, [1, 1])
    assert len(search.rules) == 1
    third, _ = search.call(np.array([-np.inf, -np.inf]))  # an infinite gradient has a direction
    assert third == 0
    assert search.is_exhausted
