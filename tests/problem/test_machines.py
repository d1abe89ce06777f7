"""Rows on several machines, which add tables of cells without error."""

from fractions import Fraction

import device_arrays
import numpy as np
import pytest
from lagrangians import CLASS_COUNTS, CLIP, build, draw, kinds, state
from machines import run_on_machines
from scipy.special import expit

import gbm_constrained as gc
from gbm_constrained.data.cells import to_host
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.problem.lagrangian import LARGEST_LOSS, SAMPLED

N = 150
EVERY = np.arange(N)
# Rows of each machine: one machine, two, and four of which two have no rows or a single one.
DEALS = {
    "one": [EVERY],
    "two": [EVERY[:60], EVERY[:59:-1]],
    "four": [EVERY[:0], EVERY[::2], EVERY[1:2], EVERY[3::2]],
}


def problem(n_classes, weighted):
    """Labels, scores, weights, columns, and constraints of every kind on them."""
    y, margin, weight, masks = draw(n_classes, n=N)
    columns = {"m0": masks[0].astype(int), "m1": masks[1].astype(int)}
    rules = kinds(n_classes, [{"m0": 1}, {"m1": 1}])["several"]
    return y, margin, weight if weighted else None, columns, rules


def on_machines(data, deal, work, **options):
    """Call ``work(lagrangian, rows, communicator)`` on the machine that has each part of rows."""
    y, _, weight, columns, rules = data

    def run(communicator):
        rows = deal[communicator.rank]
        lag = build(
            y[rows], rules, n_classes=int(y.max()) + 1,
            weight=None if weight is None else weight[rows],
            columns={name: column[rows] for name, column in columns.items()},
            machine=Machine(communicator, rows), **options,
        )  # fmt: skip
        return work(lag, rows, communicator)

    return run_on_machines(run, len(deal))


def joined(parts, deal):
    """Put values of the rows of all machines in the order of the rows."""
    found = np.concatenate(parts)
    found[np.concatenate(deal)] = found.copy()
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_no_number_depends_on_the_machines(n_classes, weighted, dtype):
    """Statistics, values, distances, slopes, gradients: to the bit, in memory and on a card."""
    data = problem(n_classes, weighted)
    margin = data[1].astype(dtype)
    anchor = np.cos(margin)
    n_rows = len(build(data[0], data[4], columns=data[3]).constraints)
    multipliers = np.linspace(0.5, 1, n_rows)

    def work(lag, rows, communicator):
        put = lag.rows.array_module.asarray
        point, centre = lag.at(put(margin[rows])), put(anchor[rows])
        numbers = [
            lag.objective(point.statistics()),
            lag.error(point.statistics()),
            lag.bregman(point.margin, centre),
            *lag.constraints.rates(point.statistics()),
            *lag.constants.lipschitz()[0],
            *lag.constants.slopes(),
        ]
        gradients = point.gradient(multipliers, centre, 0.4)
        return numbers, *map(to_host, gradients), communicator.shapes, communicator.n_gathered

    def run(deal, module=np):
        options = {"outlier_clip": CLIP, "dtype": dtype, "array_module": module}
        return list(zip(*on_machines(data, deal, work, **options), strict=True))

    expected = run(DEALS["one"])
    n_cells = 4 * n_classes
    assert set(expected[3][0]) == {(1,), (n_cells,), (2 * n_cells,), (n_cells * (n_classes + 1),)}
    for name, deal in DEALS.items():
        for module in (np, device_arrays):
            found = run(deal, module)
            for i in (0, 3, 4):  # numbers, shapes of tables, collected values
                assert all(of_machine == expected[i][0] for of_machine in found[i]), name
            for i in (1, 2):
                np.testing.assert_array_equal(joined(found[i], deal), expected[i][0])


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_values_and_products_do_not_depend_on_the_machines(n_classes):
    data = problem(n_classes, weighted=True)
    multipliers = np.linspace(0.5, 1, len(build(data[0], data[4], columns=data[3]).constraints))
    vectors = np.random.default_rng(0).normal(size=(3, data[1].size))

    def work(lag, rows, communicator):
        mine = vectors.reshape(3, N, -1)[:, rows].reshape(3, -1)
        return lag.at(data[1][rows]).value(multipliers), lag.rows.gram(mine)

    ((value, gram),) = on_machines(data, DEALS["one"], work)
    # A thousand products are each off by half a step of 2^-38 at most.
    np.testing.assert_allclose(gram, vectors @ vectors.T, rtol=0, atol=2e-9)
    for deal in DEALS.values():
        for of_machine, products in on_machines(data, deal, work):
            assert of_machine == value
            np.testing.assert_array_equal(products, gram)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_numbers_are_those_of_one_machine_up_to_the_rounding(n_classes, weighted):
    data = problem(n_classes, weighted)
    y, margin, weight, columns, rules = data
    whole = build(y, rules, weight=weight, columns=columns, outlier_clip=CLIP)
    multipliers = np.linspace(0.5, 1, len(whole.constraints))
    expected = state(whole, margin, multipliers, np.cos(margin))

    def work(lag, rows, communicator):
        return state(lag, margin[rows], multipliers, np.cos(margin[rows]))

    for numbers, *_ in on_machines(data, DEALS["two"], work, outlier_clip=CLIP):
        np.testing.assert_allclose(numbers, expected[0], rtol=1e-11)


def test_weights_are_added_without_error():
    """Weights of cells and of predictions, against sums of fractions."""
    data = problem(2, True)
    margin, deal = data[1], DEALS["four"]

    def work(lag, rows, communicator):
        predicted = lag.at(margin[rows]).statistics().predicted
        return lag.cells.codes, lag.rows.weight, lag.cells.weight, lag.cell_weight, predicted

    codes, weights, *tables = zip(*on_machines(data, deal, work), strict=True)
    codes, weights = joined(codes, deal), joined(weights, deal)
    assert (weights != data[2]).any()
    assert np.abs(weights - data[2]).max() <= N * data[2].max() * 2.0**-52
    for cell, (of_cell, of_objective, predicted) in enumerate(
        zip(*(table[0] for table in tables), strict=True)
    ):
        inside = [Fraction(w) for w in weights[codes == cell].tolist()]
        positive = [Fraction(w) for w in weights[(codes == cell) & (margin > 0)].tolist()]
        assert Fraction(float(of_cell)) == Fraction(float(of_objective)) == sum(inside)
        if inside:
            assert predicted[1] == float(sum(positive)) / float(sum(inside))


def test_losses_are_added_up_to_a_step():
    """Against sums of fractions of the rows' losses; one beyond the largest counts as that."""
    data = (*problem(2, True)[:4], [gc.log_loss(on={"m0": 1}) <= 0.5])
    margin, deal = data[1].copy(), DEALS["four"]
    margin[::7] *= 100.0

    def work(lag, rows, communicator):
        point = lag.at(margin[rows])
        step = lag.rows.sums.step(LARGEST_LOSS * lag.rows.largest_weight)
        return point.losses(), lag.rows.weight, lag.cells.codes, point.statistics().loss, step

    losses, weights, codes, tables, steps = zip(*on_machines(data, deal, work), strict=True)
    losses, weights, codes = (joined(parts, deal) for parts in (losses, weights, codes))
    assert losses.max() > LARGEST_LOSS
    clipped = np.minimum(losses, LARGEST_LOSS)
    for cell in np.unique(codes):
        inside = codes == cell
        pairs = zip(weights[inside].tolist(), clipped[inside].tolist(), strict=True)
        total = sum(Fraction(w) * Fraction(v) for w, v in pairs)
        whole = Fraction(float(weights[inside].sum()))
        error = abs(Fraction(float(tables[0][cell])) - total / whole)
        rounding = Fraction(1, 2**50) * total  # of the products and of the division
        assert error * whole <= int(inside.sum()) * Fraction(steps[0]) / 2 + rounding


def test_a_sample_has_the_same_rows_on_any_machines():
    """About as many rows of each cell as are wanted; slopes are near those of all rows."""
    n, wanted = 3 * SAMPLED, SAMPLED // 2
    y, margin, weight, _ = draw(2, n=n)
    data = (y, margin, weight, {}, [gc.fpr() <= 0.1])
    every = np.arange(n)
    deal = [every[:0], every[:5000], every[:4999:-1]]

    def work(lag, rows, communicator):
        lag.at(margin[rows])
        return rows[lag.constants._sample[0]], lag.constants.slopes()

    (one, slopes), *_ = on_machines(data, [every], work)
    parts, others = zip(*on_machines(data, deal, work), strict=True)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), one)
    np.testing.assert_array_equal(others, [slopes] * 3)
    for label in (0, 1):
        assert np.bincount(y[one])[label] == pytest.approx(wanted, abs=5 * np.sqrt(wanted))
    p = expit(margin)
    of_all = [
        np.sqrt(np.average((p * (1 - p))[y == k] ** 2, weights=weight[y == k])) for k in (0, 1)
    ]
    np.testing.assert_allclose(slopes, of_all, rtol=0.03)
    assert (slopes != of_all).all()


def test_joint_cells_have_the_same_numbers_on_all_machines():
    data = problem(3, False)
    deal = DEALS["four"]

    def work(lag, rows, communicator):
        joint = JointCells.of(lag.cells)
        return joint.codes, joint.of_views, joint.labels

    (expected,) = on_machines(data, DEALS["one"], work)
    codes, *tables = zip(*on_machines(data, deal, work), strict=True)
    np.testing.assert_array_equal(joined(codes, deal), expected[0])
    for table, whole in zip(tables, expected[1:], strict=True):
        for of_machine in table:
            np.testing.assert_array_equal(of_machine, whole)


def test_levels_of_rows_without_one_are_counted_on_all_machines():
    """Rows without a label, on one machine only, make a level more on each."""
    y = np.array([0, 1, 0, 1, -1])
    deal = [np.arange(3), np.arange(3, 5)]

    def work(communicator):
        rows = deal[communicator.rank]
        lag = build(
            y[rows], [gc.selection_rate() <= 0.5], n_classes=2,
            machine=Machine(communicator, rows),
        )  # fmt: skip
        return lag.cells.count

    for count in run_on_machines(work, 2):
        np.testing.assert_array_equal(count, [2, 2, 1])


def test_curved_constraints_of_many_machines_are_refused():
    y, groups = np.array([0, 1] * 40), np.array(["a"] * 40 + ["b"] * 40)

    def work(communicator):
        machine = Machine(communicator, np.arange(80))
        rows = Rows(y, np.arange(2), columns={"g": groups}, machine=machine)
        compile_constraints([gc.gap(gc.precision(), by="g") <= 0.1], rows)

    with pytest.raises(ValueError, match="train on one, or bound the rates themselves"):
        run_on_machines(work, 1)
