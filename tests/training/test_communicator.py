"""Rows on two machines: tables of cells are added, and multipliers move as on one machine."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.communicator import Machine, SingleMachine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.solvers import ABPP, CBPR
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import LibrarySettings

ROUNDS = 40
N_ROWS = 900
FIRST = 400  # Rows of the first machine; the second has the others.

RATES = [
    gc.fnr() <= 0.1,
    gc.gap(gc.selection_rate(), by="g") <= 0.03,
    gc.each(gc.fpr(), by="g") <= 0.2,
]
SEVERAL = [gc.class_error(2) <= 0.1, gc.gap(gc.error_rate(), by="g") <= 0.02]
LOSSES = [gc.gap(gc.log_loss(), by="g") <= 0.01]
# The two rows of a gap are opposite: they leave the matrix of a Newton step singular up to its
# ridge, which amplifies rounding a thousandfold. Differences of one sign do not.
DIFFERENCES = [gc.log_loss(on={"g": g}) - gc.log_loss(on={"g": "b"}) <= 0.005 for g in ("a", "c")]
# (solver, constraints, number of classes, weights or not, boosting or an exact learner)
CASES = {
    "abpp": (ABPP(), RATES, 2, False, True),
    "abpp of several classes": (ABPP(proxy="sigmoid"), SEVERAL, 3, True, True),
    "abpp of an exact learner": (ABPP(), RATES, 2, True, False),
    "cbpr": (CBPR(), RATES + LOSSES, 2, True, True),
    "cbpr of several classes": (CBPR(), LOSSES, 3, False, True),
    "cbpr of an exact learner": (CBPR(), DIFFERENCES, 2, True, False),
}


def draw(n_classes):
    """Labels, groups, weights and directions of scores; groups differ in their labels."""
    rng = np.random.default_rng(0)
    group = rng.choice(list("abc"), N_ROWS, p=[0.5, 0.3, 0.2])
    score = rng.normal(size=N_ROWS) + 0.7 * (group == "a")
    y = np.digitize(score + 0.5 * rng.normal(size=N_ROWS), [0.6, 1.2][: n_classes - 1])
    shape = (N_ROWS,) if n_classes == 2 else (N_ROWS, n_classes)
    return y, group, rng.gamma(2.0, size=N_ROWS), rng.uniform(0.02, 0.4, size=shape)


def follow(rows, communicator, name):
    """Train on some of the rows, and return the multipliers of all iterations and the scores.

    Each row takes a Newton step of a length of its own.
    """
    solver, constraints, n_classes, is_weighted, is_lazy = CASES[name]
    y, group, weight, length = draw(n_classes)
    model = gc.ConstrainedXGBClassifier(
        constraints=constraints, solver=solver, measure_on="train", iterate="last"
    )
    arguments = FitArguments(
        np.zeros((N_ROWS, 1))[rows],
        y[rows],
        sample_weight=weight[rows] if is_weighted else None,
        sensitive_features={"g": group[rows]},
        machine=Machine(communicator),
    )
    library = LibrarySettings(0.3, ROUNDS, is_lazy=is_lazy)
    fit = ConstrainedFit(SolverOptions.of(model), arguments, library)
    fit.measure()
    margin = np.zeros_like(length[rows])
    for _ in range(ROUNDS):
        gradient, hessian = fit.solver(margin)
        margin = margin - length[rows] * gradient / hessian
    return np.array([record.multipliers for record in fit.solver.history]), margin


def follow_part(communicator, name):
    """Train on the rows of one machine; give also the shapes of the tables that it sent."""
    rows = [slice(FIRST), slice(FIRST, N_ROWS)][communicator.rank]
    return *follow(rows, communicator, name), communicator.shapes


@pytest.fixture(scope="module")
def on_two():
    """What both machines came to, by case."""
    return {name: run_on_machines(functools.partial(follow_part, name=name), 2) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_two_machines_move_multipliers_as_one(name, on_two):
    multipliers, margin = follow(slice(None), SingleMachine(), name)
    (first, its_margin, _), (second, other_margin, _) = on_two[name]
    assert multipliers.max() > 0.01, "no multiplier moves, so that nothing is proved"
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, multipliers, rtol=0, atol=1e-12)
    joined = np.concatenate([its_margin, other_margin])
    np.testing.assert_allclose(joined, margin, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_only_tables_of_cells_travel(name, on_two):
    """No table has as many entries as a machine has rows."""
    for _, _, shapes in on_two[name]:
        assert max(map(np.prod, shapes)) < FIRST / 4


def test_half_the_rows_alone_move_other_multipliers():
    """Otherwise equal multipliers would prove nothing."""
    whole, half = (
        follow(rows, SingleMachine(), "abpp")[0] for rows in (slice(None), slice(FIRST))
    )
    assert np.abs(whole - half).max() > 0.01
