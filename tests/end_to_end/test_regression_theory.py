"""Regressions by ABPP against exact solutions: the rates and the multipliers of the theory."""

from dataclasses import dataclass
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from regressions import LOSS_OF_OBJECTIVE, PARAMETERS, build, loss_of

from gbm_constrained.constraints.rates import gap, mean_loss, mean_prediction
from gbm_constrained.linear_model import DictionaryLearner, LinearLearner, leaf_indicators
from gbm_constrained.problem.losses import RegressionObjective

CASES = [
    (objective, kind, l2)
    for objective in ("squared", "huber", "quantile")
    for kind in ("linear", "dictionary")
    for l2 in (0.0, 0.1)
]
NAMES = [f"{objective}-{kind}-l2={l2:g}" for objective, kind, l2 in CASES]
QUICK = ("squared-linear-l2=0", "squared-dictionary-l2=0.1", "huber-dictionary-l2=0.1")
LIKE_OTHERS = [("linear", 0.1), ("dictionary", 0.0)]
EMPHASIS = (0.3, 0.1, 0.1)  # About the multipliers of the three rules.


@dataclass
class Problem:
    """A learner, and the exact solution of its problem."""

    learner: DictionaryLearner
    optimum: float
    weights: np.ndarray
    multipliers: np.ndarray


def _rows(kind, n=200):
    """Draw targets with heavy tails, scores of weak learners, weights, a group and a mask."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(n, 3)), rng.choice(["a", "b"], n)
    noise = 0.7 * rng.standard_t(4, size=n)
    y = X[:, 0] - 0.5 * X[:, 1] * X[:, 2] + 0.8 * (group == "a") + noise
    if kind == "dictionary":
        S = leaf_indicators(np.digitize(X[:, :2], [-0.5, 0.5])).toarray()
    else:
        S = np.hstack([X, np.ones((n, 1))])
    return S, y, rng.uniform(0.5, 1.5, n), group, (X[:, 0] > 0).astype(int)


@cache
def problem(objective, kind, l2):
    """Rules on a mean loss, a gap of mean predictions and a mean absolute error.

    The bounds are the values of a fit whose rows are weighed by about the multipliers.
    """
    S, y, weight, group, mask = _rows(kind)
    loss, parameter = LOSS_OF_OBJECTIVE[objective], PARAMETERS[objective]
    a, b, m = (weight * rows for rows in (group == "a", group == "b", mask))
    a, b, m = a / a.sum(), b / b.sum(), m / m.sum()
    x = cp.Variable(S.shape[1])
    f = S @ x
    losses = loss_of(loss, parameter, y - f)
    half = 0.5 if objective == "squared" else 1.0
    penalised = x[:-1] if kind == "linear" else x
    least = half * (weight / weight.sum()) @ losses + l2 / 2 * cp.sum_squares(penalised)
    means = a @ losses, (a - b) @ f, m @ cp.abs(y - f)
    emphasised = least + sum(e * mean for e, mean in zip(EMPHASIS, means, strict=True))
    cp.Problem(cp.Minimize(emphasised)).solve("CLARABEL")
    bounds = [float(np.ceil(1e3 * mean.value) / 1e3) for mean in means]
    rows = [means[0] <= bounds[0], means[1] <= bounds[1], -means[1] <= bounds[1]]
    rows.append(means[2] <= bounds[2])
    exact = cp.Problem(cp.Minimize(least), rows)
    exact.solve("CLARABEL")
    assert exact.status == "optimal"
    given = {"huber": {"delta": parameter}, "quantile": {"alpha": parameter}}.get(objective, {})
    rules = [
        mean_loss(loss, on={"group": "a"}, **given) <= bounds[0],
        gap(mean_prediction(), by="group") <= bounds[1],
        mean_loss("absolute", on={"mask": 1}) <= bounds[2],
    ]
    found = RegressionObjective(objective, parameter)
    lagrangian = build(y, rules, found, weight, {"group": group, "mask": mask}, is_smooth=True)
    learner = (
        LinearLearner(lagrangian, S[:, :-1], l2=l2, metric="scores")
        if kind == "linear"
        else DictionaryLearner(lagrangian, S, l2=l2)
    )
    duals = np.array([float(row.dual_value) for row in rows])
    return Problem(learner, float(exact.value), x.value, duals)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_reference_satisfies_the_optimality_conditions(case):
    p = problem(*case)
    g = p.learner.violations(p.weights)
    assert g.max() <= 1e-7
    assert np.abs(p.multipliers * g).max() <= 1e-6
    assert p.multipliers.max() > 0.05
    assert p.learner.objective(p.weights) == pytest.approx(p.optimum, abs=1e-7)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] * (case[1:] in LIKE_OTHERS))
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_optimum_is_that_of_cvxpy(case):
    p = problem(*case)
    solution = p.learner.solve(2000, tol=1e-6, adaptive=True)
    assert solution.converged
    assert p.learner.objective(solution.weights) == pytest.approx(p.optimum, abs=1e-5)
    assert p.learner.violations(solution.weights).max() <= 1e-5
    if case[0] == "squared":
        np.testing.assert_allclose(solution.multipliers, p.multipliers, atol=1e-3)
        np.testing.assert_allclose(
            p.learner.margin(solution.weights), p.learner.margin(p.weights), atol=1e-3
        )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_rates_of_the_theory(case):
    """Corollary 1: O(1/k) for mu = 0 and O(1/k^2) for mu > 0 of the ergodic iterates.

    The squared error is strongly convex in the distance of scores by itself.
    """
    p = problem(*case)
    n_iterations = 1000 if case[0] == "squared" else 2000
    at = np.unique(np.geomspace(n_iterations // 10, n_iterations, 40).astype(int))
    errors = []
    for k, state in enumerate(p.learner.path(n_iterations), 1):
        if k in at:
            gap_of_objective = abs(p.learner.objective(state.average_weights) - p.optimum)
            worst = p.learner.violations(state.average_weights).max()
            errors.append(max(gap_of_objective, worst))
    assert (p.learner.mu > 0) == (case[0] == "squared" or case[1:] == ("dictionary", 0.1))
    assert errors[-1] > 1e-8  # the fitted range is free of rounding
    slope = np.polyfit(np.log(at), np.log(errors), 1)[0]
    assert slope <= (-1.8 if p.learner.mu > 0 else -0.9)
    assert errors[-1] <= 2e-4


def test_strong_convexity_accelerates():
    """The same problem with mu = 0 converges, and later."""
    p = problem("squared", "linear", 0.0)
    ends = []
    for options in ({"mu": 0.0}, {}):
        *_, state = p.learner.path(400, **options)
        ends.append(p.learner.violations(state.average_weights).max())
    assert ends[1] < ends[0] / 2


def test_multipliers_start_where_they_are_given():
    p = problem("squared", "dictionary", 0.1)
    solution = p.learner.solve(
        tol=1e-5, start=p.weights, initial_multipliers=p.multipliers, adaptive=True
    )
    assert len(solution.history) <= 2


def test_distance_of_weights_is_refused():
    lagrangian = problem("squared", "linear", 0.0).learner.lagrangian
    with pytest.raises(ValueError, match="metric='weights' needs losses whose slopes are bounded"):
        LinearLearner(lagrangian, np.zeros((200, 2)))
