"""What every solver does: protocol, state, schedules, and optima of convex problems."""

import copy

import numpy as np
import pytest
from scipy.optimize import minimize

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import LinearLearner
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPP, CBPR, AutoSolver
from gbm_constrained.solvers.base import columns_of_records

METHODS = [ABPP, CBPR, AutoSolver]
KINDS = [(method, n_classes) for method in METHODS for n_classes in (2, 3)]
everywhere = pytest.mark.parametrize(("method", "n_classes"), KINDS)
PROGRESS = 1.0 - 0.7**2


def problem(n_classes, *, weighted=True, **options):
    """Lagrangian of rows in two groups, and the scores that a booster could begin at."""
    rng = np.random.default_rng(n_classes)
    y = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=118)])
    weight = rng.uniform(0.5, 2.0, size=y.size) if weighted else None
    groups = {"g": np.arange(y.size) % 2}
    rules = [
        gc.class_error(1) <= 0.2,
        gc.gap(gc.error_rate(), by="g", min_group_size=1) <= 0.05,
        gc.log_loss(on=gc.label(0)) <= 0.4,
    ]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(n_classes), weight, groups))
    margin = rng.normal(size=(y.size, n_classes) if n_classes > 2 else y.size)
    return Lagrangian(y, cells, compiled, weight=weight, **options), margin


def begin(method, lagrangian, **running):
    options = {"lazy": True, "progress": PROGRESS, **running}
    return method(rounds_per_iteration=2).begin(lagrangian, **options)


def boost(solver, margin, n_rounds):
    """Let a booster with one leaf for each row take steps; return what it was answered."""
    answers = []
    for _ in range(n_rounds):
        gradient, hessian = solver(margin)
        answers.append([gradient.copy(), hessian.copy()])
        margin = margin - 0.3 * gradient / hessian
    return np.array(answers), margin


@everywhere
def test_multipliers_are_those_of_violated_constraints(method, n_classes):
    lagrangian, margin = problem(n_classes)
    solver = begin(method, lagrangian)
    boost(solver, margin, 12)
    assert solver.rounds == 12
    assert [record.rounds for record in solver.history] == [0, 2, 4, 6, 8, 10]
    multipliers = np.array([record.multipliers for record in solver.history])
    assert (multipliers >= 0.0).all()
    assert multipliers.any()
    first = solver.history[0]
    assert not multipliers[0][first.rates < first.bounds].any()


@everywhere
def test_the_gradient_is_that_of_the_subproblem(method, n_classes):
    lagrangian, margin = problem(n_classes)
    solver = begin(method, lagrangian)
    boost(solver, margin, 5)
    point = lagrangian.at(margin)
    given = solver.subproblem
    expected = point.gradient(given.multipliers, given.centre, given.proximal_weight)[0].copy()
    np.testing.assert_allclose(solver.gradient(point)[0], expected, rtol=1e-12)
    assert given.multipliers is solver.multipliers


@everywhere
@pytest.mark.parametrize("n_rounds", [4, 5])
def test_a_restored_solver_has_the_history_and_counts_on_to_the_last_bit(
    method, n_classes, n_rounds
):
    lagrangian, margin = problem(n_classes)
    solver = begin(method, lagrangian)
    _, margin = boost(solver, margin, n_rounds)
    called = []
    other = begin(method, problem(n_classes)[0], callback=called.append)
    other.restore(copy.deepcopy(solver.state()))  # which holds buffers of the solver
    assert [record.iteration for record in called] == [0, 1, 2][: len(solver.history)]
    assert other.elapsed >= solver.history[-1].seconds
    points = [each.lagrangian.at(margin) for each in (solver, other)]
    np.testing.assert_array_equal(*(point.statistics().predicted for point in points))
    histories = [columns_of_records(each.history) for each in (solver, other)]
    for name in histories[0]:
        if name != "seconds":
            np.testing.assert_array_equal(*(history[name] for history in histories))


@everywhere
def test_a_schedule_replaces_dual_steps(method, n_classes):
    lagrangian, margin = problem(n_classes)
    m = len(lagrangian.constraints)
    schedule = [k * np.linspace(0.1, 0.2, m) for k in range(3)]
    solver = begin(method, lagrangian, schedule=schedule)
    boost(solver, margin, 10)
    found = [record.multipliers for record in solver.history]
    np.testing.assert_array_equal(found, [schedule[min(k, 2)] for k in range(5)])


@everywhere
def test_a_multiplier_may_stay_as_it_was_started(method, n_classes):
    lagrangian, margin = problem(n_classes)
    fixed = np.zeros(len(lagrangian.constraints), dtype=bool)
    fixed[0] = True
    solver = begin(method, lagrangian, initial_multipliers=np.full(fixed.size, 0.7), fixed=fixed)
    boost(solver, margin, 8)
    multipliers = np.array([record.multipliers for record in solver.history])
    assert (multipliers[:, 0] == 0.7).all()
    assert np.ptp(multipliers[:, 1:], axis=0).any()


@everywhere
def test_a_weight_is_so_many_rows(method, n_classes):
    lagrangian, margin = problem(n_classes, weighted=False)
    y, k = lagrangian.rows.label_of_row, 3
    rules = lagrangian.constraints.constraints
    tripled = []
    for weight, rows in (
        (np.full(y.size, 3.0), np.arange(y.size)),
        (None, np.tile(np.arange(y.size), k)),
    ):
        groups = {"g": np.arange(y.size)[rows] % 2}
        cells, compiled = compile_constraints(
            rules, Rows(y[rows], np.arange(n_classes), weight, groups)
        )
        solver = begin(method, Lagrangian(y[rows], cells, compiled, weight=weight))
        boost(solver, margin[rows], 8)
        tripled.append([record.multipliers for record in solver.history])
    np.testing.assert_allclose(*tripled, rtol=1e-9, atol=1e-12)


@everywhere
def test_rounds_that_need_no_answer_are_counted(method, n_classes):
    _, margin = problem(n_classes)
    solver, other = (begin(method, problem(n_classes)[0]) for _ in range(2))
    for _ in range(5):
        solver(margin)
        other.count_round(lambda: margin)
    assert other.rounds == solver.rounds
    for one, two in zip(solver.history, other.history, strict=True):
        np.testing.assert_array_equal(one.multipliers, two.multipliers)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_optimum_of_a_convex_problem(method, n_classes):
    """Against SLSQP on the same objective and mean-loss constraints."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 2))
    y = np.digitize(X[:, 0] + rng.normal(size=120), [0.0] if n_classes == 2 else [-0.4, 0.4])
    rules = [gc.log_loss(on=gc.label(n_classes - 1)) <= 0.45]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(n_classes)))
    learner = LinearLearner(Lagrangian(y, cells, compiled), X, l2=0.1, metric="scores")
    kind = type(method().begin(learner.lagrangian))
    start = np.zeros(learner.shape)
    start.T[-1 if n_classes > 2 else ..., -1] = 3.0  # CBPR starts where the constraint is met
    solution = learner.solve(3000, tol=1e-6, start=start, solver=learner.solver(kind))
    assert solution.converged
    shape = solution.weights.shape
    best = minimize(
        lambda x: learner.objective(x.reshape(shape)),
        solution.weights.ravel() + 0.1,
        constraints={"type": "ineq", "fun": lambda x: -learner.violations(x.reshape(shape))},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert best.success
    assert learner.violations(solution.weights).max() <= 1e-5
    assert learner.objective(solution.weights) == pytest.approx(best.fun, abs=1e-5)
    assert solution.multipliers.max() > 0.01
