"""Cells: the partition, the statistics, and constraints as linear maps of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn import metrics

from gbm_constrained.constraints.rates import (
    accuracy,
    churn,
    class_error,
    confusion,
    error_rate,
    fnr,
    fpr,
    gap,
    log_loss,
    precision,
    ratio,
    recall,
    selection_rate,
)
from gbm_constrained.constraints.selectors import Mask, label
from gbm_constrained.data import cells
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 120
CLASS_COUNTS = [2, 3, 7]


def draw(n_classes, n=N, seed=0, ties=True):
    """Labels with every class present, scores with ties, positive weights and two masks."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
    if ties:
        margin[::5] = 0.0
        margin[1::7] = np.round(margin[1::7])
    weight = rng.gamma(2.0, size=n)
    masks = rng.random((2, n)) < [[0.6], [0.3]]
    masks[:, :n_classes] = True
    return y, margin, weight, masks


def measure(constraints, y, margin, weight=None, classes=None, **options):
    """Value of each bounded rate."""
    if classes is None:
        classes = np.arange(2 if margin.ndim == 1 else margin.shape[1])
    cells, compiled = compile_constraints(constraints, Rows(y, classes, weight))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight, **options)
    return compiled.rates(lagrangian.at(margin).statistics())


def log_probability(margin):
    scores = np.stack([np.zeros_like(margin), margin], axis=1) if margin.ndim == 1 else margin
    return log_softmax(scores, axis=1)


def decisions(margin):
    """Positive margins are class 1, a tie is class 0; the first of the largest scores wins."""
    return np.where(margin > 0, 1, 0) if margin.ndim == 1 else margin.argmax(axis=1)


def brute_force(constraint, y, margin, weight):
    """Weighted mean over selected rows, row by row."""
    (term,) = constraint.terms
    first = term.name
    total = value = 0.0
    log_p, predicted = log_probability(margin), decisions(margin)
    for i in range(y.size):
        inside = True
        if first.startswith("class_error"):
            inside = y[i] == int(first[len("class_error(") : -1])
        elif first in {"fpr", "fnr"}:
            inside = y[i] == (first == "fnr")
        for selector in term.on:
            if hasattr(selector, "to_array"):
                inside &= bool(selector.to_array()[i])
            elif hasattr(selector, "value"):
                inside &= bool(y[i] == selector.value)
        if inside:
            total += weight[i]
            value += weight[i] * (-log_p[i, y[i]] if first == "log_loss" else predicted[i] != y[i])
    return value / total


def some_constraints(n_classes, masks):
    binary = [fpr() <= 0.1, fnr() <= 0.1, fpr(on=masks[0]) <= 0.1, fnr(on=masks[1]) <= 0.1]
    return [
        error_rate() <= 0.1,
        error_rate(on=masks[0]) <= 0.1,
        error_rate(on=label(1)) <= 0.1,
        class_error(n_classes - 1) <= 0.1,
        class_error(0, on=masks[1]) <= 0.1,
        log_loss() <= 0.1,
        log_loss(on=masks[1]) <= 0.1,
        log_loss(on=label(1)) <= 0.1,
        *(binary if n_classes == 2 else []),
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_rates_are_what_counting_row_by_row_gives(n_classes, weighted):
    y, margin, weight, masks = draw(n_classes)
    constraints = some_constraints(n_classes, masks)
    w = weight if weighted else np.ones(N)
    found = measure(constraints, y, margin, weight if weighted else None)
    expected = [brute_force(c, y, margin, w) for c in constraints]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
@pytest.mark.parametrize("subset", [False, True])
def test_rates_are_those_of_scikit_learn(n_classes, subset):
    y, margin, weight, masks = draw(n_classes, seed=1)
    on = masks[0] if subset else np.ones(N, dtype=bool)
    mask = {"on": masks[0]} if subset else {}
    constraints = [error_rate(**mask) <= 0.1, log_loss(**mask) <= 0.1]
    constraints += [class_error(k, **mask) <= 0.1 for k in range(n_classes)]
    found = measure(constraints, y, margin, weight)
    rows = {"sample_weight": weight[on]}
    predicted, truth = decisions(margin)[on], y[on]
    probability = np.exp(log_probability(margin))[on]
    labels = np.arange(n_classes)
    recall = metrics.recall_score(truth, predicted, labels=labels, average=None, **rows)
    expected = [
        metrics.zero_one_loss(truth, predicted, **rows),
        metrics.log_loss(truth, probability, labels=labels, **rows),
        *(1 - recall),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


def test_false_positive_and_negative_rates_are_those_of_the_confusion_matrix():
    y, margin, weight, _ = draw(2, seed=2)
    confusion = metrics.confusion_matrix(y, margin > 0, sample_weight=weight, normalize="true")
    found = measure([fpr() <= 0.1, fnr() <= 0.1], y, margin, weight)
    np.testing.assert_allclose(found, [confusion[0, 1], confusion[1, 0]], rtol=1e-12)


@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_an_integer_weight_is_a_repeated_row(n_classes):
    y, margin, _, masks = draw(n_classes, seed=3)
    repeats = np.random.default_rng(3).integers(0, 4, N)
    repeats[:n_classes] = 2
    once = measure(some_constraints(n_classes, masks), y, margin, repeats.astype(float))
    masks = np.repeat(masks, repeats, axis=1)
    again = measure(
        some_constraints(n_classes, masks), np.repeat(y, repeats), np.repeat(margin, repeats, 0)
    )
    np.testing.assert_allclose(once, again, rtol=1e-12)


def test_ties():
    """Zero margin is the negative class, equal scores the first class: as in argmax."""
    y = np.array([0, 0, 1, 1])
    assert measure([fpr() <= 0.1, fnr() <= 0.1], y, np.zeros(4)).tolist() == [0.0, 1.0]
    y = np.array([0, 1, 2])
    found = measure([class_error(k) <= 0.1 for k in range(3)], y, np.zeros((3, 3)))
    assert found.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", CLASS_COUNTS)
def test_small_and_large_numbers_of_cells_are_summed_alike(n_classes, dtype, monkeypatch):
    """The two ways of summing by cell agree."""
    y, margin, weight, masks = draw(n_classes, n=3000, seed=4)
    constraints = some_constraints(n_classes, masks)
    tables = []
    for limit in (0, 10**6):
        monkeypatch.setattr(cells, "MASKED_SUM_CELLS", limit)
        tables.append(measure(constraints, y, margin.astype(dtype), weight, dtype=dtype))
    np.testing.assert_allclose(*tables, rtol=1e-6 if dtype == np.float32 else 1e-12)


def test_more_cells_than_a_byte_can_number():
    """Eight masks make 512 cells; their sums are right and add up to those of the rows."""
    rng = np.random.default_rng(5)
    y, margin, weight, _ = draw(2, n=4000, seed=5)
    masks = rng.random((8, 4000)) < 0.5
    constraints = [error_rate(on=mask) <= 0.1 for mask in masks]
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    assert len(cells) == 512
    sums = cells.sum_by_cell(margin, slice(0, 4000))
    expected = [margin[cells.codes == c].sum() for c in range(512)]
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    found = measure(constraints, y, margin, weight)
    wrong = (decisions(margin) != y) * weight
    np.testing.assert_allclose(found, masks @ wrong / (masks @ weight), rtol=1e-12)


def test_the_sum_of_a_block_is_that_of_its_rows_alone():
    y, _, weight, masks = draw(3, seed=6)
    rule = error_rate(on=masks[0]) <= 0.1
    cells, _ = compile_constraints([rule], Rows(y, np.arange(3), weight))
    parts = [cells.sum_by_cell(weight[s], s) for s in (slice(0, 17), slice(17, N))]
    np.testing.assert_allclose(sum(parts), cells.weight, rtol=1e-12)


def test_cells_are_the_rows_that_share_label_and_masks():
    """Each combination has one cell, whether a row is in it or not."""
    y, _, weight, masks = draw(3, seed=7)
    constraints = [error_rate(on=masks[0]) <= 0.1, class_error(0, on=masks[1]) <= 0.1]
    constraints.append(log_loss(on=masks[0]) <= 0.1)
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    assert len(cells) == 3 * 2 * 2
    (view,) = cells.views
    keys = [Mask.from_array(mask) for mask in masks]
    assert set(view.levels) == {"label", *keys}
    for i, c in enumerate(cells.codes):
        assert cells.labels[c] == y[i]
        assert [bool(view.levels[key][c]) for key in keys] == masks[:, i].tolist()
    attributes = {
        (cells.labels[c], *(bool(view.levels[key][c]) for key in keys)) for c in range(len(cells))
    }
    assert len(attributes) == len(cells)
    np.testing.assert_allclose(cells.weight, np.bincount(cells.codes, weight, len(cells)))
    assert cells.count.tolist() == np.bincount(cells.codes, minlength=len(cells)).tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1001])
def test_the_size_of_a_mask_is_its_number_of_rows(n):
    """Bits beyond the last row do not count."""
    rows = np.random.default_rng(n).random(n) < 0.4
    packed = bytearray(Mask.from_array(rows).packed)
    assert Mask(bytes(packed), n).size == rows.sum()
    if n % 8:
        packed[-1] |= 1
    mask = Mask(bytes(packed), n)
    assert mask.size == rows.sum()
    assert mask.to_array().tolist() == rows.tolist()


def test_a_mask_given_twice_adds_no_cells():
    y, *_, masks = draw(2)
    one = [error_rate(on=masks[0]) <= 0.1]
    two = [*one, fnr(on=masks[0].copy()) <= 0.2]
    for constraints in (one, two, [*one, *two]):
        cells, _ = compile_constraints(constraints, Rows(y, np.arange(2)))
        assert len(cells) == 4
    cells, _ = compile_constraints([error_rate(on=(masks[0], masks[0])) <= 0.1], cells.rows)
    assert len(cells) == 4


def test_cells_without_rows_change_nothing():
    """A mask that is a class leaves half of the combinations empty."""
    y, margin, weight, _ = draw(2, seed=8)
    found = measure([error_rate(on=y == 1) <= 0.1, fnr() <= 0.1], y, margin, weight)
    assert found[0] == pytest.approx(found[1], rel=1e-14)


def part_with_empty_cells():
    """Rows of which a part is taken that has nobody of class 1 in group a, nor of group c."""
    y, margin, weight, _ = draw(2, n=400)
    group = np.random.default_rng(1).choice(list("abc"), y.size, p=[0.2, 0.5, 0.3])
    group[:6], y[:6] = list("aabbcc"), [0, 1] * 3
    kept = np.flatnonzero(((y == 0) | (group != "a")) & (group != "c") & (np.arange(400) % 3 > 0))
    return y, margin, weight, group, kept


@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_part_leaves_empty_is_stood_for_by_the_other_cells(weighted):
    """Row by row: means of the cells that have rows, in their shares of the whole."""
    y, margin, weight, group, kept = part_with_empty_cells()
    own = weight if weighted else np.ones(y.size)
    rules = [
        recall() >= 0.5, fnr(on={"g": "a"}) <= 0.5, gap(recall(), by="g") <= 0.1,
        gap(fpr(), by="g") <= 0.1, fpr() + recall() <= 1.2, log_loss(on=label(1)) <= 0.5,
        log_loss(on=label(1)) - log_loss(on=label(0)) <= 0.1, log_loss(on={"g": "c"}) <= 0.5,
        error_rate() + log_loss() <= 2, log_loss() - 0.5 * log_loss(on={"g": "b"}) <= 1,
        log_loss(on={"g": "b"}) + log_loss(on={"g": "c"}) <= 2,
    ]  # fmt: skip
    rows = Rows(y, np.arange(2), weight if weighted else None, {"g": group})
    cells, compiled = compile_constraints(rules, rows)
    part = cells.take(kept)
    found = compiled.on(part)
    lagrangian = Lagrangian(y[kept], part, found, weight=own[kept])
    functionals = found.functionals(lagrangian.at(margin[kept]).statistics())
    loss = -log_probability(margin)[np.arange(y.size), y]

    def mean(values, label=None, groups="abc"):
        inside = np.isin(group, list(groups)) & ((y == label) if label is not None else True)
        total = share = 0.0
        for c in {*zip(y[inside], group[inside], strict=True)}:
            of_cell = (y == c[0]) & (group == c[1])
            at = kept[of_cell[kept]]
            if at.size:
                total += own[of_cell].sum() * np.average(values[at], weights=own[at])
                share += own[of_cell].sum()
        return total / share if share else np.nan

    positive = (margin > 0).astype(float)
    caught, alarms = mean(positive, 1), mean(positive, 0)
    expected = [
        caught, np.nan, np.nan, mean(positive, 1, "b"), np.nan, mean(positive, 0, "a"),
        mean(positive, 0, "b"), np.nan, alarms + caught, mean(loss, 1),
        mean(loss, 1) - mean(loss, 0), np.nan, mean(positive != y) + mean(loss),
        mean(loss) - 0.5 * mean(loss, None, "b"), np.nan,
    ]  # fmt: skip
    np.testing.assert_allclose(functionals, expected, atol=1e-12)
    violations = dict(zip(found.rows, found.rows_of(functionals) - found.b, strict=True))
    silent = {name for name, value in violations.items() if value == 0.0}
    told = {
        "recall >= 0.5", "fpr[g=a] - fpr[g=b] <= 0.1", "fpr[g=b] - fpr[g=a] <= 0.1",
        "fpr + recall <= 1.2", "log_loss[y=1] <= 0.5",
        "log_loss[y=1] - log_loss[y=0] <= 0.1", "error_rate + log_loss <= 2",
        "log_loss - 0.5 * log_loss[g=b] <= 1",
    }  # fmt: skip
    assert silent == set(compiled.rows) - told
    again = found.on(part)
    np.testing.assert_allclose((found.U - again.U).toarray(), 0.0, atol=1e-15)
    assert compiled.on(cells.take(np.arange(y.size)[::-1])) is compiled


def test_violations_are_rates_minus_bounds():
    y, margin, weight, _ = draw(3, seed=9)
    constraints = [class_error(1) <= 0.25, log_loss() <= 1.5]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    assert len(compiled) == 2
    statistics = Lagrangian(y, cells, compiled, weight=weight).at(margin).statistics()
    rates = measure(constraints, y, margin, weight)
    np.testing.assert_allclose(compiled.violations(statistics), rates - [0.25, 1.5], rtol=1e-12)


def test_compiled_tables_by_hand():
    """Weights 1, 1, 2 of class 0 and 4 of class 1: shares within and over cells."""
    y, weight = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 4.0])
    constraints = [class_error(0) <= 0.1, error_rate() <= 0.2, log_loss() <= 0.3]
    _, compiled = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    A = compiled.A.toarray().reshape(3, 2, 2)
    assert A.tolist() == [[[0, 1], [0, 0]], [[0, 0.5], [0.5, 0]], [[0, 0], [0, 0]]]
    assert compiled.spread.toarray().tolist() == [[1, 0], [0.5, 0.5], [0, 0]]
    assert compiled.B.toarray().tolist() == [[0, 0], [0, 0], [0.5, 0.5]]
    assert compiled.b.tolist() == [0.1, 0.2, 0.3]
    statistics = CellStatistics(
        np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([9.0, 9.0]), np.array([1.0, 3.0])
    )
    assert compiled.rates(statistics).tolist() == [0.25, 0.375, 2.0]
    functionals = compiled.functionals(statistics)
    assert compiled.values(functionals).tolist() == [0.25, 0.375, 2.0]
    assert compiled.rows == ("class_error(0) <= 0.1", "error_rate <= 0.2", "log_loss <= 0.3")
    assert compiled.owner.tolist() == [0, 1, 2]


def test_sensitivities_by_hand():
    """|share| kappa / sqrt(fraction of the weight), zero for cells without weight."""
    y, weight = np.array([0, 0, 1, 2]), np.array([1.0, 2.0, 9.0, 0.0])
    constraints = [class_error(0) <= 0.1, log_loss(on=label(1)) <= 0.1, error_rate() <= 0.1]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight)
    rates, losses = (part.toarray() for part in lagrangian.constants.reactions)
    root, kappa = np.sqrt([0.25, 0.75]), np.sqrt(2) / 4
    of_rates = kappa * np.array([[1 / root[0], 0, 0], [0, 0, 0], [*root, 0]])
    of_losses = np.array([[0, 0, 0], [0, 1 / root[1], 0], [0, 0, 0]])
    np.testing.assert_allclose(rates, of_rates, rtol=1e-14)
    np.testing.assert_allclose(losses, of_losses, rtol=1e-14)
    for slope, found in (
        (np.sqrt(2), lagrangian.constants.lipschitz()),
        (3.0, lagrangian.constants.lipschitz(3.0)),
    ):
        expected = of_rates + slope * of_losses
        own = np.linalg.norm(expected, axis=1)
        np.testing.assert_allclose(found[0], own, rtol=1e-14)
        assert found[1] == pytest.approx(np.linalg.norm(expected / own[:, None], 2), rel=1e-14)
    expected = of_rates + np.sqrt(2) * of_losses
    np.testing.assert_allclose(lagrangian.constants.sensitivities.toarray(), expected, rtol=1e-14)


def test_classes_are_found_by_their_label_in_y():
    """Strings, integers and booleans, whatever their order among the classes."""
    y, margin, weight, _ = draw(3, seed=10)
    by_index = measure([class_error(k) <= 0.1 for k in range(3)], y, margin, weight)
    names = np.array(["BOMBAY", "CALI", "SIRA"])
    by_name = measure([class_error(k) <= 0.1 for k in names], y, margin, weight, names)
    assert by_name.tolist() == by_index.tolist()
    numbers = np.array([-5, 3, 40])
    by_number = measure([error_rate(on=label(k)) <= 0.1 for k in (-5, 3, 40)], y, margin, weight,
                        numbers)  # fmt: skip
    assert by_number.tolist() == by_index.tolist()


def refuse(constraint, y, classes=None, weight=None):
    rows = Rows(y, np.unique(y) if classes is None else classes, weight)
    with pytest.raises(ValueError, match=r"drop the constraint|not in y|binary") as error:
        compile_constraints([constraint], rows)
    return str(error.value)


def test_an_unknown_class_is_named_with_the_known_ones():
    names = np.array(["BOMBAY", "CALI", "SIRA"])
    message = refuse(class_error("SIRRA") <= 0.1, np.array([0, 1, 2]), names)
    assert message.startswith(
        "class_error('SIRRA') <= 0.1: it names class 'SIRRA', which is not in y"
    )
    assert "['BOMBAY', 'CALI', 'SIRA']" in message
    message = refuse(log_loss(on=label(7)) <= 1, np.array([0, 1]))
    assert message.startswith("log_loss[y=7] <= 1: it names class 7")


@pytest.mark.parametrize("rate", [fpr, fnr])
def test_binary_rates_of_three_classes_point_to_class_error(rate):
    message = refuse(rate() <= 0.1, np.array([0, 1, 2]))
    assert message.startswith(
        f"{rate.__name__} <= 0.1: it is a rate of binary classifiers, but y has 3 classes"
    )
    assert (
        "name one of them as label= of the rate, as in tpr(label=k), or as "
        "positive= of all rates, or use class_error(k)" in message
    )


def test_a_constraint_on_no_row():
    y = np.array([0, 1, 1])
    for constraint in (error_rate(on=np.zeros(3, bool)) <= 0.1, fpr(on=y == 1) <= 0.1):
        message = refuse(constraint, y)
        assert message.startswith(f"{constraint} is taken over no rows at all")
        assert "drop the constraint" in message


def test_a_constraint_on_rows_without_weight():
    message = refuse(fnr() <= 0.1, np.array([0, 1, 1]), weight=np.array([1.0, 0.0, 0.0]))
    assert message.startswith("fnr <= 0.1 is taken over rows whose total weight is zero")
    assert "positive sample_weight" in message


def test_a_mask_of_another_length():
    constraint = error_rate(on=np.ones(4, bool)) <= 0.1
    with pytest.raises(ValueError, match="a mask of 4 rows, but the training data have 3 rows"):
        compile_constraints([constraint], Rows(np.array([0, 1, 1]), np.arange(2)))


def test_rows_that_reward_errors_of_all_labels():
    """Gaps of error rates do; those that one decision for a whole group meets do not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    columns = {"g": rng.integers(0, 2, 300), "deployed": rng.integers(0, 3, 300)}
    cases = {
        gap(error_rate(), by="g") <= 0.1: True,
        gap(accuracy(), by="g") <= 0.1: True,
        error_rate(on={"g": 0}) >= 0.3: True,
        error_rate(on=label(1)) >= 0.3: False,
        gap(class_error(0), by="g") <= 0.1: False,
        gap(class_error(0) + class_error(1), by="g") <= 0.1: False,
        gap(class_error(0) + class_error(1) + class_error(2), by="g") <= 0.1: True,
        gap(selection_rate(label=1), by="g") <= 0.1: False,
        gap(recall(label=1), by="g") <= 0.1: False,
        gap(log_loss(), by="g") <= 0.1: False,
        error_rate() <= 0.1: False,
        selection_rate(label=2) <= 0.1: False,
        churn(to="deployed") <= 0.1: False,
    }
    for rule, expected in cases.items():
        _, compiled = compile_constraints([rule], Rows(y, np.arange(3), None, columns))
        assert (compiled.rewards_all_errors == expected).all(), rule
        assert (compiled.rewards_errors >= compiled.rewards_all_errors).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rules_that_forbid_one_class_of_several_split_targets(n_classes):
    """Their rows may be decided as any other; and one class alone is the other of two."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 300)
    deployed = {"deployed": rng.integers(0, n_classes, 300)}
    cases = {
        fpr(label=1) <= 0.1: True,
        precision(label=1) >= 0.9: True,
        confusion(0, 1) <= 0.1: True,
        selection_rate(label=1) <= 0.1: True,
        selection_rate(label=1) >= 0.1: False,
        recall(label=1) >= 0.9: False,
        class_error(1) <= 0.1: False,
        error_rate() <= 0.1: False,
        accuracy() >= 0.9: False,
        churn(to="deployed") <= 0.1: False,
        log_loss() <= 0.1: False,
    }
    for rule, splits in cases.items():
        cells, compiled = compile_constraints(
            [rule], Rows(y, np.arange(n_classes), None, deployed)
        )
        assert (compiled.splits_targets == (splits and n_classes > 2)).all(), rule
        bounded = compiled.splits_targets | compiled.rewards_errors
        assert np.array_equal(Lagrangian(y, cells, compiled).rows.is_sigmoid, bounded)


def test_opposite_rows():
    """All that there are, each once; brute force."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    columns = {"two": rng.integers(0, 2, 400), "four": rng.integers(0, 4, 400)}
    cases = {
        gap(error_rate(), by="two") <= 0.1: 1,
        gap(recall(), by="four") <= 0.1: 6,
        gap(fpr(), by="four", reference=2) <= 0.1: 3,
        gap(log_loss(), by="two") <= 0.1: 1,
        ratio(selection_rate(), by="two") >= 0.8: 0,
        fnr() <= 0.1: 0,
    }
    for some in [*([rule] for rule in cases), [*cases], [*cases, *cases]]:
        _, compiled = compile_constraints(some, Rows(y, np.arange(2), None, columns))
        first, second = compiled.opposites
        table = compiled.R.toarray()
        np.testing.assert_array_equal(table[first], -table[second])
        assert np.unique([first, second]).size == 2 * first.size
        assert first.size == sum(cases[rule] for rule in some)
        left = np.delete(table, np.concatenate([first, second]), axis=0)
        assert not any((left == -row).all(axis=1).any() for row in left)
