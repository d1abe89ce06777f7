"""A fit on several machines: multipliers and scores do not depend on where a row is."""

import functools

import numpy as np
import pytest
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Communicator, Machine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.solvers import ABPP, CBPR

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
