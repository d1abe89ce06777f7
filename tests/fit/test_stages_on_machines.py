"""Fits on several machines: stages, time limit, and multipliers wherever a row is."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from counted_data import Data
from dealt_rows import measure_deals, take_rows
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Communicator, Machine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold
from gbm_constrained.fit.callbacks import MeasuringClock, TimeLimit
from gbm_constrained.fit.cross_fit import FoldBoosters
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import ABPP, CBPR

N_ROUNDS = 20


def begin(communicator, **given):
    """Begin a fit whose rows are dealt to all machines in turn, one round an iteration."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100)
    at = np.arange(communicator.rank, 100, communicator.size)
    solver = gc.solvers.ABPP(rounds_per_iteration=1)
    model = gc.ConstrainedXGBClassifier(
        constraints=[gc.fnr() <= 0.1], measure_on="train", solver=solver
    )
    arguments = FitArguments(np.zeros((at.size, 1)), y[at], machine=Machine(communicator, at))
    options = SolverOptions.of(model)
    fit = ConstrainedFit(options, arguments, LibrarySettings(0.3, N_ROUNDS), **given)
    fit.measure()
    return fit, np.zeros(at.size)


def train(fit, margin, after_round=lambda rounds: None):
    """Ask for gradients until training is over; return the rounds."""
    rounds = 0
    while rounds < N_ROUNDS and not fit.notifier.is_training_over(rounds):
        fit.solver(margin)
        rounds += 1
        after_round(rounds)
    return rounds


@pytest.mark.parametrize("asking", [0, 2])
def test_a_callback_on_one_machine_ends_training_on_all(asking):
    def work(communicator):
        callbacks = [lambda state: state.rounds == 6] if communicator.rank == asking else None
        fit, margin = begin(communicator, constraint_callbacks=callbacks)
        return train(fit, margin), fit.notifier.message, communicator.n_gathered

    first, *others = run_on_machines(work, 3)
    assert others == [first] * 2
    assert first[0] == 7
    assert first[1] == "A constraint callback ended training after 7 of 20 rounds."


def test_a_machine_that_is_late_ends_training_on_all(clock):
    clock.now = 0.0

    def work(communicator):
        limit = TimeLimit(100.0)
        fit, margin = begin(communicator, limit=limit)

        def delay(rounds):
            limit.started -= 200.0 * (communicator.rank == 1 and rounds == 6)

        return train(fit, margin, delay), fit.notifier.message, communicator.n_gathered

    first, *others = run_on_machines(work, 3)
    assert others == [first] * 2
    assert first[0] == 6
    assert first[1] == "time_limit=100 ended training after 6 of 20 rounds."


def test_a_machine_that_is_late_from_the_start_is_an_error_on_all(clock):
    """One round is hardly a model, and no machine waits for the others in vain."""
    clock.now = 0.0

    def work(communicator):
        limit = TimeLimit(100.0)
        limit.started -= 200.0 * (communicator.rank == 1)
        fit, margin = begin(communicator, limit=limit)
        with pytest.raises(ValueError, match=r"time_limit=100 leaves time for 1 of 20 rounds"):
            train(fit, margin)
        return communicator.n_gathered

    first, *others = run_on_machines(work, 3)
    assert others == [first] * 2


def test_a_machine_that_is_late_ends_measuring_on_all(clock):
    clock.now = 0.0

    def work(communicator):
        limit = TimeLimit(100.0)
        limit.communicator = communicator
        measuring = MeasuringClock(limit, 0.5, 2)
        before = measuring.is_over(0), measuring.is_over(2), measuring.has_time_again()
        limit.started -= 200.0 * (communicator.rank == 1)
        return before, measuring.is_over(4), measuring.has_time_again()

    assert run_on_machines(work, 2) == [((False, False, True), True, False)] * 2


def test_a_fit_without_limit_and_callbacks_asks_nobody():
    def work(communicator):
        fit, _ = begin(communicator)
        before = communicator.n_gathered
        is_over = [fit.notifier.is_training_over(rounds) for rounds in range(N_ROUNDS)]
        return any(is_over), communicator.n_gathered - before

    assert run_on_machines(work, 2) == [(False, 0)] * 2


def test_optimism_that_remains_is_that_of_the_sizes_of_folds_of_all_machines():
    data = Data(0)
    part_of = np.random.default_rng(0).choice(3, 200, p=[0.6, 0.3, 0.1])

    def measure(at, communicator):
        cells, _ = compile_constraints([gc.fnr() <= 0.1], take_rows(data, at, communicator))
        everyone = np.arange(at.size)
        held = [np.flatnonzero(part_of[at] == i) for i in range(2)]
        folds = [Fold(np.setdiff1d(everyone, part), part) for part in held]
        solver = SimpleNamespace(lagrangian=SimpleNamespace(cells=cells))
        controller = SimpleNamespace(rows=np.sort(np.concatenate(held)), solver=solver)
        return [FoldBoosters(controller, folds, [], cells.n_rows).remaining_optimism]

    sizes = np.bincount(part_of)[:2]
    expected = 1.0 / np.mean(200 / (200 - sizes))
    assert measure_deals(measure, 200, group=data.sex)[0] == expected


ROUNDS = 40
N_ROWS = 900
FIRST = 400  # Rows of the first of two machines.
EVERY = np.arange(N_ROWS)

RATES = [
    gc.fnr() <= 0.1,
    gc.gap(gc.selection_rate(), by="g") <= 0.03,
    gc.each(gc.fpr(), by="g") <= 0.2,
]
LOSSES = [gc.gap(gc.log_loss(), by="g", small_groups="hold") <= 0.01]
# (solver, constraints, number of classes, weights or not)
CASES = {
    "abpp": (ABPP(), RATES, 2, False),
    "abpp of weighted rows": (ABPP(), RATES, 2, True),
    "cbpr": (CBPR(), RATES + LOSSES, 2, True),
    "cbpr of several classes": (CBPR(), LOSSES, 3, False),
}
DEALS = {
    "one": [EVERY],
    "two": [EVERY[:FIRST], EVERY[: FIRST - 1 : -1]],
    "four": [EVERY[i::4] for i in range(4)],
}


def draw(n_classes):
    """Labels, groups, weights and lengths of steps; groups differ in their labels."""
    rng = np.random.default_rng(0)
    group = rng.choice(list("abc"), N_ROWS, p=[0.5, 0.3, 0.2])
    score = rng.normal(size=N_ROWS) + 0.7 * (group == "a")
    y = np.digitize(score + 0.5 * rng.normal(size=N_ROWS), [0.6, 1.2][: n_classes - 1])
    shape = (N_ROWS,) if n_classes == 2 else (N_ROWS, n_classes)
    return y, group, rng.gamma(2.0, size=N_ROWS), rng.uniform(0.02, 0.4, size=shape)


def follow(machine, name):
    """Train on the rows of a machine, and return the multipliers of all iterations and the scores.

    Each row takes a Newton step of a length of its own.
    """
    solver, constraints, n_classes, is_weighted = CASES[name]
    rows = machine.numbers
    y, group, weight, length = draw(n_classes)
    model = gc.ConstrainedXGBClassifier(
        constraints=constraints, solver=solver, measure_on="train", iterate="last"
    )
    arguments = FitArguments(
        np.zeros((N_ROWS, 1))[rows],
        y[rows],
        sample_weight=weight[rows] if is_weighted else None,
        sensitive_features={"g": group[rows]},
        machine=machine,
    )
    library = LibrarySettings(0.3, ROUNDS)
    fit = ConstrainedFit(SolverOptions.of(model), arguments, library)
    fit.measure()
    margin = np.zeros_like(length[rows])
    for _ in range(ROUNDS):
        gradient, hessian = fit.solver(margin)
        margin = margin - length[rows] * gradient / hessian
    return np.array([record.multipliers for record in fit.solver.history]), margin


@functools.cache
def follow_on(name, deal):
    """Train on machines; return the multipliers of each, and the scores of all rows in order."""
    parts = DEALS[deal]
    work = run_on_machines(
        lambda communicator: follow(Machine(communicator, parts[communicator.rank]), name),
        len(parts),
    )
    multipliers, margins = zip(*work, strict=True)
    scores = np.concatenate(margins)
    scores[np.concatenate(parts)] = scores.copy()
    return multipliers, scores


@pytest.mark.parametrize("deal", ["two", "four"])
@pytest.mark.parametrize("name", CASES)
def test_machines_move_multipliers_as_one(name, deal):
    (expected,), scores = follow_on(name, "one")
    multipliers, found = follow_on(name, deal)
    assert expected.max() > 0.01, "no multiplier moves, so that nothing is proved"
    for of_machine in multipliers:
        np.testing.assert_array_equal(of_machine, expected)
    np.testing.assert_array_equal(found, scores)


@pytest.mark.parametrize("name", CASES)
def test_rounding_changes_little(name):
    """The machine that holds all rows does not round what it adds."""
    multipliers, margin = follow(Machine(Communicator(), EVERY), name)
    (found,), scores = follow_on(name, "one")
    np.testing.assert_allclose(found, multipliers, rtol=0, atol=1e-9)
    np.testing.assert_allclose(scores, margin, rtol=0, atol=1e-8)
