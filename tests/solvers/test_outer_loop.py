"""The outer loop of all solvers: state, schedules, records, and optima of convex problems."""

import copy

import numpy as np
import pytest
from scipy.optimize import minimize
from solver_problems import HALF, NONE, build, draw, run, with_groups

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import LinearLearner
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPP, CBPR, ABPPSolver, AutoSolver
from gbm_constrained.solvers.base import columns_of_records


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_rates_a_schedule_is_followed_alike(n_classes, mu):
    """To the last bit where step sizes stay, as they do by default."""
    y, scores, weight, _ = draw(n_classes)
    rules = [gc.error_rate() <= 0.1, gc.class_error(1) <= 0.2]
    schedule = [np.array([0.0, 0.0]), np.array([0.5, 0.0]), np.array([1.0, 2.0])]
    options = {"schedule": schedule, "lazy": True, "rounds_per_iteration": 2, "mu": mu}
    full, bare = (
        ABPPSolver(build(y, rules, weight), has_rates=has_rates, **options)
        for has_rates in (True, False)
    )
    for (g, h), (g_bare, h_bare) in zip(
        run(full, 9, 0.0 * scores), run(bare, 9, 0.0 * scores), strict=True
    ):
        np.testing.assert_allclose(g_bare, g, rtol=1e-12 * (mu > 0))
        np.testing.assert_allclose(h_bare, h, rtol=1e-12 * (mu > 0))
    assert len(full.history) == len(bare.history) == 5
    assert [r.rounds for r in bare.history] == [0, 2, 4, 6, 8]
    assert all(np.isnan(r.rates).all() for r in bare.history)
    np.testing.assert_allclose(bare.ergodic_weights, full.ergodic_weights, rtol=1e-12)


def test_multipliers_and_centre_move_every_r_calls():
    """R = 3: seven calls are three iterations, begun at calls 0, 3 and 6."""
    y, scores, weight, _ = draw(2)
    solver = ABPPSolver(build(y, [gc.fnr() <= 0.01], weight), rounds_per_iteration=3)
    seen = []
    for i in range(7):
        margin = scores - 0.2 * i
        solver(margin)
        seen.append((solver.multipliers.tolist(), solver.centre.tolist()))
        assert seen[i] == seen[i - i % 3]
        assert solver.centre.tolist() == (scores - 0.2 * (i - i % 3)).tolist()
        assert solver.rounds == i + 1
    assert len({str(s) for s in seen}) == 3
    assert [r.iteration for r in solver.history] == [0, 1, 2]
    assert [r.rounds for r in solver.history] == [0, 3, 6]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_pull_to_the_centre(n_classes):
    """Within an iteration: w (F - anchor) / tau on top of f + <y, g>, and w / tau of curvature."""
    y, scores, weight, _ = draw(n_classes)
    lag = build(y, [gc.class_error(1) <= 0.01], weight)
    solver = ABPPSolver(lag, tau=0.4, rounds_per_iteration=2)
    first = [x.copy() for x in solver(scores)]
    moved = scores + np.random.default_rng(1).normal(size=scores.shape)
    second = [x.copy() for x in solver(moved)]
    w = weight if n_classes == 2 else weight[:, None]
    for margin, (grad, hess) in ((scores, first), (moved, second)):
        free_grad, free_hess = lag.at(margin).gradient(solver.multipliers)
        np.testing.assert_allclose(grad, free_grad + w * (margin - scores) / 0.4, atol=1e-10)
        np.testing.assert_allclose(hess, free_hess + w / 0.4, rtol=1e-12)
    assert solver.multipliers.any()


def test_the_centre_is_a_copy_of_the_scores():
    """A booster that overwrites its scores in place does not move the centre."""
    y, scores, *_ = draw(2)
    solver = ABPPSolver(build(y, [gc.fnr() <= 0.01]), rounds_per_iteration=2)
    buffer = scores.copy()
    solver(buffer)
    buffer += 1.0
    solver(buffer)
    assert np.array_equal(solver.centre, scores)
    buffer += 1.0
    solver(buffer)
    assert np.array_equal(solver.centre, buffer)
    assert solver.history[1].bregman == pytest.approx(2.0)  # half of 2 squared


def test_one_round_per_iteration_has_no_pull():
    """The centre is the point itself: the gradient is that of f + <y, g>."""
    y, scores, weight, _ = draw(3)
    lag = build(y, [gc.class_error(1) <= 0.01], weight)
    solver = ABPPSolver(lag)
    solver(scores)
    grad = solver(scores + 1.0)[0].copy()
    assert np.array_equal(grad, lag.at(scores + 1.0).gradient(solver.multipliers)[0])


def path_of(solver, path=(HALF, HALF, -HALF, HALF, NONE, HALF)):
    """Multipliers along scores that miss two positives of one group, or four of both."""
    for scores in path:
        margin = scores.copy()
        margin[4::2] = 1.0  # the first group is never missed
        solver(margin)
    return np.array([record.multipliers for record in solver.history])


@pytest.mark.parametrize("higher", [0.0, 0.05, -0.2])
def test_corrected_rows_take_steps_of_their_own(higher):
    """Those of rates that are so much higher, near to the schedule; others follow it."""
    bounds = np.array([0.02, 0.03, 0.1])
    schedule = [np.array([0.1, 0.3, 0.2]) * k for k in range(1, 5)]
    optimism = lambda k: (np.full(3, higher), bounds)  # noqa: E731
    corrected = np.array([True, True, False])
    options = {"schedule": schedule, "optimism": optimism, "corrected": corrected}
    found = path_of(with_groups(**options))
    given = np.array([schedule[min(k, 3)] for k in range(6)])
    np.testing.assert_array_equal(found[:, 2], given[:, 2])
    distance = np.abs(found - given)[:, :2].max(axis=1)
    assert (distance <= 0.1 * given[:, 1] * (1 + 1e-12)).all()
    assert distance.max() > 0.0
    np.testing.assert_array_equal(found[:2], given[:2])  # half of the schedule
    options["corrected"] = False
    np.testing.assert_array_equal(path_of(with_groups(**options)), given)


@pytest.mark.parametrize("higher", [0.0, 0.05, -0.2])
def test_corrected_rows_far_from_a_schedule_take_the_dual_steps_of_a_solver_without_one(higher):
    """From the second iteration on, after a schedule of the first multipliers."""
    bounds = np.array([0.02, 0.03, 0.1])
    scores = (HALF, NONE, HALF, -HALF, HALF)
    free = with_groups()
    free.bounds = bounds - higher
    expected = path_of(free, scores)
    corrected = with_groups(
        schedule=[expected[0]],
        optimism=lambda k: (np.full(3, higher), bounds),
        corrected=np.array([True, True, False]),
        max_departure=1e9,
    )
    found = path_of(corrected, scores)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], rtol=1e-12)
    np.testing.assert_array_equal(found[:, 2], expected[0, 2])
    assert np.ptp(found[1:, :2], axis=0).any()


@pytest.mark.parametrize("rounds_per_iteration", [1, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_always_satisfied_constraint_leaves_every_gradient_alone(
    n_classes, rounds_per_iteration
):
    """Its multiplier stays zero and twelve rounds are those of the problem without it."""
    y, scores, weight, mask = draw(n_classes)
    idle = [gc.class_error(1) <= 1, gc.error_rate(on=mask) <= 1, gc.log_loss() <= 50]
    options = {"lazy": True, "rounds_per_iteration": rounds_per_iteration}
    solver = ABPPSolver(build(y, idle, weight), **options)
    constrained = run(solver, 12, scores)
    assert not any(r.multipliers.any() for r in solver.history)
    free = run(lambda m: build(y, weight=weight).at(m).gradient(np.zeros(0)), 12, scores)
    assert np.array_equal(constrained, free)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_constraint_that_no_prediction_changes(lazy):
    """It has no multiplier, whether it can be met or not, and the others move as without it."""
    y, scores, weight, mask = draw(2)
    constant = gc.accuracy(on=mask) + gc.error_rate(on=mask)
    active = [gc.fnr() <= 0.02]
    alone = ABPPSolver(build(y, active, weight), lazy=lazy)
    among = ABPPSolver(build(y, [*active, constant <= 1, constant <= 0.5], weight), lazy=lazy)
    answers = run(alone, 10, scores), run(among, 10, scores)
    np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-12)
    assert among.current_lipschitz[1:].tolist() == [0.0, 0.0]
    moved = np.array([r.multipliers for r in among.history])
    assert moved[:, 0].max() > 0
    assert not moved[:, 1:].any()


def test_an_always_satisfied_constraint_beside_an_active_one():
    """The other multiplier takes the same path at the same steps."""
    y, scores, weight, mask = draw(2)
    active, idle = [gc.fnr() <= 0.02], [gc.fpr() <= 1, gc.error_rate(on=mask) <= 1]
    alone = ABPPSolver(build(y, active, weight))
    steps = {"tau": alone.tau, "sigma": alone.sigma}
    among = ABPPSolver(build(y, active + idle, weight), **steps)
    answers = run(alone, 10, scores), run(among, 10, scores)
    np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-12)
    path = np.array([r.multipliers for r in among.history])
    np.testing.assert_allclose(path[:, 0], [r.multipliers[0] for r in alone.history], rtol=1e-9)
    assert path[:, 0].any()
    assert not path[:, 1:].any()
    disjoint = ABPPSolver(build(y, [*active, gc.fpr() <= 1], weight))
    assert disjoint.sigma == pytest.approx(alone.sigma, rel=1e-12)


def test_no_constraint_at_all():
    """A plain proximal method."""
    y, scores, *_ = draw(2)
    solver = ABPPSolver(build(y))
    grad, hess = solver(scores)
    free = build(y).at(scores).gradient(np.zeros(0), None, 0.25)
    assert np.array_equal([grad, hess], free)
    assert solver.history[0].rates.shape == (0,)
    assert ABPPSolver(build(y), lazy=True).inverse_tau == 0.0


def test_records_say_what_happened():
    """Exact rates, objective, distance to the centre before, multipliers of what follows."""
    y, scores, weight, _ = draw(3)
    lag = build(y, [gc.class_error(0) <= 0.05, gc.log_loss() <= 0.5], weight)
    called = []
    solver = ABPPSolver(lag, rounds_per_iteration=2, callback=called.append)
    points, multipliers = [], []
    for i in range(6):
        margin = scores * (1 + 0.1 * i)
        solver(margin)
        if i % 2 == 0:
            points.append(margin)
            multipliers.append(solver.multipliers.copy())
    assert called == solver.history
    assert all(a is b for a, b in zip(called, solver.history, strict=True))
    for k, record in enumerate(solver.history):
        statistics = lag.at(points[k]).statistics()
        assert record.objective == pytest.approx(lag.objective(statistics), rel=1e-12)
        np.testing.assert_allclose(record.rates, lag.constraints.rates(statistics), rtol=1e-12)
        functionals = lag.constraints.functionals(statistics)
        np.testing.assert_allclose(record.functionals, functionals, rtol=1e-12)
        wrong = points[k].argmax(axis=1) != y
        assert record.error == pytest.approx(np.average(wrong, weights=weight), rel=1e-12)
        assert np.isnan(record.fritz_john)
        np.testing.assert_array_equal(record.multipliers, multipliers[k])
        assert record.bounds.tolist() == [0.05, 0.5]
        moved = lag.bregman(points[k], points[k - 1]) if k else 0.0
        assert record.bregman == pytest.approx(moved, rel=1e-12)
    seconds = [r.seconds for r in solver.history]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] <= solver.elapsed


@pytest.mark.parametrize("n_classes", [2, 3])
def test_an_outer_iteration_may_be_begun_by_hand(n_classes):
    """Exact learners start iterations themselves and get the path of the calls."""
    y, scores, weight, _ = draw(n_classes)
    called, begun = (ABPPSolver(build(y, [gc.class_error(1) <= 0.02], weight)) for _ in range(2))
    for i in range(4):
        margin = scores + 0.1 * i
        answer = [x.copy() for x in called(margin)]
        point = begun.lagrangian.at(margin)
        begun.begin_iteration(point)
        assert np.array_equal(answer, begun.gradient(point))
    assert [r.multipliers.tolist() for r in called.history] == [
        r.multipliers.tolist() for r in begun.history
    ]


def test_single_precision_takes_the_path_of_double_precision():
    y, scores, weight, _ = draw(3, n=300)
    constraints = [gc.class_error(0) <= 0.05, gc.log_loss(on=gc.label(1)) <= 0.3]
    paths = []
    for dtype in (np.float32, np.float64):
        solver = ABPPSolver(build(y, constraints, weight, dtype=dtype), rounds_per_iteration=2)
        answers = run(solver, 8, scores.astype(np.float32).astype(dtype))
        assert answers[0][0].dtype == dtype
        paths.append(np.array([r.multipliers for r in solver.history]))
    assert paths[1].any(axis=0).all()
    np.testing.assert_allclose(*paths, rtol=1e-4, atol=1e-5)


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
    expected = point.gradient(solver.multipliers, *solver.proximal_term)[0].copy()
    np.testing.assert_allclose(solver.gradient(point)[0], expected, rtol=1e-12)


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
