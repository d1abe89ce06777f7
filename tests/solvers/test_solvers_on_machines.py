"""Rows on several machines: multipliers and scores do not depend on where a row is, to the bit."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import pytest
from lagrangians import build
from machines import run_on_machines

import gbm_constrained as gc
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.solvers import ABPP, CBPR

ROUNDS = 40
N_ROWS = 900
MOST_BYTES = 2048  # of tables in a round

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
# Columns of so many values that each constraint is in a view of its own.
VIEWS = [gc.fnr() <= 0.1, *(gc.error_rate(on={f"v{j}": 0}) <= 0.1 for j in range(3))]


@dataclass(frozen=True)
class Case:
    solver: object
    constraints: list
    n_classes: int
    is_weighted: bool = False
    is_lazy: bool = True
    kernel: dict = field(default_factory=dict)


CASES = {
    "abpp": Case(ABPP(), RATES, 2),
    "abpp of weighted rows": Case(ABPP(), RATES, 2, is_weighted=True),
    "abpp of several classes": Case(ABPP(proxy="sigmoid"), SEVERAL, 3, is_weighted=True),
    "abpp of an exact learner": Case(ABPP(), RATES, 2, is_weighted=True, is_lazy=False),
    "abpp in single precision": Case(
        ABPP(outlier_clip=2.0), RATES + LOSSES, 2, is_weighted=True,
        kernel={"gradient_dtype": np.float32},
    ),
    "abpp of several views": Case(ABPP(), VIEWS, 2, is_weighted=True),
    "abpp of several views and classes": Case(ABPP(), VIEWS[1:], 3, is_weighted=True),
    "cbpr": Case(CBPR(), RATES + LOSSES, 2, is_weighted=True),
    "cbpr of several classes": Case(CBPR(), LOSSES, 3),
    "cbpr of an exact learner": Case(CBPR(), DIFFERENCES, 2, is_weighted=True, is_lazy=False),
}  # fmt: skip


def draw(n_classes, copies=1):
    """Labels, columns, weights and lengths of steps, some times over; groups differ in labels."""
    rng, n = np.random.default_rng(0), N_ROWS
    group = rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2])
    score = rng.normal(size=n) + 0.7 * (group == "a")
    y = np.digitize(score + 0.5 * rng.normal(size=n), [0.6, 1.2][: n_classes - 1])
    shape = (n,) if n_classes == 2 else (n, n_classes)
    weight, length = rng.gamma(2.0, size=n), rng.uniform(0.02, 0.4, size=shape)
    others = {f"v{j}": rng.integers(0, 20, n) * rng.integers(0, 2, n) for j in range(3)}
    index = np.tile(np.arange(n), copies)
    columns = {name: column[index] for name, column in {"g": group, **others}.items()}
    return y[index], columns, weight[index], length[index]


def follow(machine, name, copies=1):
    """Train on the rows of a machine, and return the multipliers of all iterations and the scores.

    Each row takes a Newton step of a length of its own. The last value is the number of tables
    that were sent before the first round.
    """
    case, rows = CASES[name], machine.numbers
    y, columns, weight, length = draw(case.n_classes, copies)
    lagrangian = build(
        y[rows], case.constraints, case.n_classes, weight[rows] if case.is_weighted else None,
        machine=machine, columns={key: column[rows] for key, column in columns.items()},
        proxy=case.solver.proxy, outlier_clip=case.solver.outlier_clip, **case.kernel,
    )  # fmt: skip
    progress = 0.5 if case.is_lazy else 1.0
    solver = case.solver.begin(lagrangian, lazy=case.is_lazy, progress=progress)
    n_before = len(getattr(machine.communicator, "shapes", ()))
    margin = np.zeros_like(length[rows])
    for _ in range(ROUNDS):
        gradient, hessian = solver(margin)
        margin = margin - length[rows] * gradient / hessian
    return np.array([record.multipliers for record in solver.history]), margin, n_before


@dataclass
class Followed:
    """What the machines came to: multipliers and calls of each, and scores of all rows."""

    multipliers: list
    scores: np.ndarray
    shapes: list
    gathered: list


def follow_on(deal, name, copies=1):
    """Train on machines, given the numbers of the rows of each."""

    def work(communicator):
        machine = Machine(communicator, deal[communicator.rank])
        multipliers, margin, n_before = follow(machine, name, copies)
        sent = communicator.shapes[:n_before], communicator.shapes[n_before:]
        return multipliers, margin, sent, communicator.n_gathered

    multipliers, margins, shapes, gathered = zip(*run_on_machines(work, len(deal)), strict=True)
    joined = np.concatenate(margins)
    scores = np.empty_like(joined)
    scores[np.concatenate(deal)] = joined
    return Followed(list(multipliers), scores, list(shapes), list(gathered))


def deal_at_random(n_machines, seed):
    """Deal rows to machines at random, in random order; parts differ much in size."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(n_machines, 0.7))
    owner = rng.choice(n_machines, N_ROWS, p=share)
    return [rng.permutation(np.flatnonzero(owner == i)) for i in range(n_machines)]


def deals():
    """Rows on two and four machines; one has no rows, one class or one group."""
    y, columns, _, _ = draw(2)
    group, every = columns["g"], np.arange(N_ROWS)
    nothing = every[:0]
    return {
        "one": [every[::-1]],
        "two": deal_at_random(2, 1),
        "four": deal_at_random(4, 2),
        "an empty machine": [*deal_at_random(3, 3), nothing],
        "the first machine is empty": [nothing, *deal_at_random(1, 4)],
        "one group on each": [np.flatnonzero(group == g) for g in "abc"],
        "one class on each": [np.flatnonzero(y == k) for k in (1, 0)],
    }


@functools.cache
def reference(name):
    """What one machine of the distributed path comes to."""
    return follow_on([np.arange(N_ROWS)], name)


# Every case on four machines, and every deal with some case.
PAIRS = [
    *((name, "four") for name in CASES),
    *zip(CASES, [name for name in deals() if name != "four"], strict=False),
]


@pytest.mark.parametrize(("name", "deal"), PAIRS)
def test_no_bit_depends_on_the_machines(name, deal):
    expected = reference(name)
    found = follow_on(deals()[deal], name)
    assert expected.multipliers[0].max() > 0.01, "no multiplier moves, so that nothing is proved"
    for multipliers in found.multipliers:
        np.testing.assert_array_equal(multipliers, expected.multipliers[0])
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert all(shapes == expected.shapes[0] for shapes in found.shapes)
    assert set(found.gathered) == set(expected.gathered)


@pytest.mark.parametrize("name", CASES)
def test_rounded_sums_move_multipliers_as_those_of_one_machine_do(name):
    """A machine that holds all rows does not round what it adds."""
    multipliers, scores, _ = follow(Machine(numbers=np.arange(N_ROWS)), name)
    found = reference(name)
    # In single precision, one machine adds losses with errors of 1e-7.
    tolerance = 1e-9 if "gradient_dtype" not in CASES[name].kernel else 1e-5
    np.testing.assert_allclose(found.multipliers[0], multipliers, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.scores, scores, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("name", ["abpp of several classes", "abpp of several views", "cbpr"])
def test_tables_do_not_grow_with_the_rows(name):
    copies = 3
    found = follow_on([np.arange(copies * N_ROWS)], name, copies)
    assert set(found.shapes[0][1]) == set(reference(name).shapes[0][1])


@pytest.mark.parametrize("is_lazy", [True, False])
def test_twelve_cells_take_two_kibibytes_a_round(is_lazy):
    """Six groups of two classes: all that is sent in a round, with every statistic."""
    y, columns, weight, length = draw(2)
    columns = {"g": np.char.add(columns["g"], (columns["v0"] > 4).astype(int).astype(str))}
    losses = [gc.log_loss(on={"g": "a0"}) - gc.log_loss(on={"g": "b0"}) <= 0.005]
    solver = ABPP(outlier_clip=2.0) if is_lazy else CBPR()

    def work(communicator):
        lagrangian = build(
            y, [*RATES, *LOSSES] if is_lazy else losses, 2, weight, columns=columns,
            machine=Machine(communicator, np.arange(N_ROWS)), outlier_clip=solver.outlier_clip,
        )  # fmt: skip
        assert len(lagrangian.cells) == 12
        running = solver.begin(lagrangian, lazy=is_lazy)
        n_before, margin = len(communicator.shapes), np.zeros(N_ROWS)
        collected = communicator.n_gathered
        for _ in range(ROUNDS):
            gradient, hessian = running(margin)
            margin = margin - length * gradient / hessian
        values = sum(map(np.prod, communicator.shapes[n_before:]))
        return 8 * (values + communicator.n_gathered - collected) / ROUNDS

    (n_bytes,) = run_on_machines(work, 1)
    assert 0 < n_bytes <= MOST_BYTES


def test_half_the_rows_alone_move_other_multipliers():
    """Otherwise equal multipliers would prove nothing."""
    whole, half = (follow_on([np.arange(n)], "abpp").multipliers[0] for n in (N_ROWS, 400))
    assert np.abs(whole - half).max() > 0.01
