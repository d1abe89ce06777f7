"""Constraints compiled against rows: functionals, linear rows, groups, joint cells."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rows import (
    draw,
    log_probability,
    measure,
)
from references import (
    EXACT,
    Problem,
    counted,
    random,
    seeds,
)
from sklearn import metrics
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression, Ridge

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.cells import VIEW_CELLS, CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.statistics.counts import CellCounts, functionals_of_weights


def refuse(constraint, y, classes=None, weight=None):
    rows = Rows(y, np.unique(y) if classes is None else classes, weight)
    with pytest.raises(ValueError, match=r"drop the constraint|not in y|binary") as error:
        compile_constraints([constraint], rows)
    return str(error.value)


def test_an_unknown_class_is_named_with_the_known_ones():
    names = np.array(["BOMBAY", "CALI", "SIRA"])
    message = refuse(gc.class_error("SIRRA") <= 0.1, np.array([0, 1, 2]), names)
    assert message.startswith(
        "class_error('SIRRA') <= 0.1: it names class 'SIRRA', which is not in y"
    )
    assert "['BOMBAY', 'CALI', 'SIRA']" in message
    message = refuse(gc.log_loss(on=gc.label(7)) <= 1, np.array([0, 1]))
    assert message.startswith("log_loss[y=7] <= 1: it names class 7")


def test_a_constraint_on_rows_without_weight():
    message = refuse(gc.fnr() <= 0.1, np.array([0, 1, 1]), weight=np.array([1.0, 0.0, 0.0]))
    assert message.startswith("fnr <= 0.1 is taken over rows whose total weight is zero")
    assert "positive sample_weight" in message


MASK = np.array([True, False, True, True, False])
OLD = [0, 1, 1, 0, 1]


class Holder(BaseEstimator):
    """What scikit-learn clones: an estimator that stores its constraints."""

    def __init__(self, constraints=()):
        self.constraints = constraints


def every_kind(p, rng):
    """Constraints of every kind with random bounds, both senses where there are two."""
    old = p.classes[p.other]
    F, M = {"sex": "F"}, {"sex": "M"}
    by = {"by": "region", "min_group_size": 1}
    both = [
        gc.error_rate(),
        gc.fpr(on=F),
        gc.log_loss(),
        gc.tnr(1),
        2 * gc.tpr() - 0.5 * gc.fpr() + 0.1,
        gc.precision(),
        gc.f1(on=M),
        gc.confusion(0, 1, normalize="pred"),
        gc.wins(over=old) / gc.losses(to=old),
        gc.wins(over=old) / (gc.wins(over=old) + gc.losses(to=old)),
        gc.churn(to=old, on=F),
        gc.each(gc.tpr(), **by),
        gc.each(gc.error_rate() + gc.fpr(), **by),
    ]
    for rate in both:
        bound = rng.uniform(0.02, 0.98)
        yield rate <= bound
        yield rate >= bound
    yield gc.fpr(on=F) <= gc.fpr(on=M)
    yield gc.fpr(on=F) >= 0.8 * gc.tpr(on=M)
    for reference in (None, "b", gc.overall):
        bound = rng.uniform(0, 0.5)
        yield gc.gap(gc.error_rate(), reference=reference, **by) <= bound
        yield gc.gap(gc.tpr() - gc.fpr(), reference=reference, **by) <= bound
        yield gc.gap(gc.log_loss(), reference=reference, **by) <= bound
        for slack in (0.0, 0.1):
            options = {"reference": reference, "slack": slack, **by}
            yield gc.ratio(gc.selection_rate(), **options) >= rng.uniform(0.3, 1)
            yield gc.ratio(gc.tnr(1), **options) >= rng.uniform(0.3, 1)


@random(8)
@given(seed=seeds, extreme=st.sampled_from([None, -1.0, 1.0]))
def test_the_linear_rows_mean_what_was_written(seed, extreme):
    """A constraint is satisfied where and only where all its rows are at most zero."""
    p = Problem(seed, n=120)
    if extreme:
        p.margin[p.rng.random(p.n) < 0.97] = extreme
    constraints = list(every_kind(p, np.random.default_rng(seed)))
    values, violations, satisfied, compiled = p.measured(*constraints)
    for j, constraint in enumerate(constraints):
        own = violations[compiled.owner == j]
        assert own.size
        if np.isnan(values[j]):  # 0 / 0
            assert (own <= 1e-12).all()
        elif abs(own).min() > 1e-9:  # not where rounding decides
            assert satisfied[j] == (own <= 0).all(), constraint


@random(1)
@given(seed=seeds)
def test_many_masks_are_spread_over_views(seed):
    """Forty masks would make 2^40 cells; each constraint still counts its own rows."""
    p = Problem(seed, n=400)
    masks = p.rng.random((40, p.n)) < p.rng.uniform(0.2, 0.9, (40, 1))
    masks[:, :10] = True
    everything = np.ones(p.n, dtype=bool)
    constraints = [
        rate <= 0.5
        for mask in masks
        for rate in (gc.error_rate(on=mask), gc.tpr(on=(mask, {"sex": "F"})), gc.log_loss(on=mask))
    ]
    constraints += [gc.error_rate() <= 0.5, gc.gap(gc.fpr(), by="sex", min_group_size=1) <= 0.5]
    cells, compiled = compile_constraints(constraints, p.rows)
    assert len(cells.views) > 3
    for view in cells.views:
        assert view.cells.stop - view.cells.start <= VIEW_CELLS
    lagrangian = Lagrangian(p.codes, cells, compiled, weight=p.weight)
    statistics = lagrangian.at(p.margin).statistics()
    expected = []
    for mask in masks:
        of_mask = counted(p, 1, mask)
        of_F = counted(p, 1, mask & (p.sex == "F"))
        expected += [of_mask["error_rate"], of_F["tpr"], of_mask["log_loss"]]
    in_all = counted(p, 1, everything)
    apart = [counted(p, 1, p.sex == s)["fpr"] for s in "FM"]
    expected += [in_all["error_rate"], abs(apart[0] - apart[1])]
    found = compiled.values(compiled.functionals(statistics))
    np.testing.assert_allclose(found, expected, **EXACT)
    np.testing.assert_allclose(lagrangian.objective(statistics), in_all["log_loss"], **EXACT)
    np.testing.assert_allclose(lagrangian.error(statistics), in_all["error_rate"], **EXACT)
    np.testing.assert_allclose(lagrangian.total_weight, p.weight.sum(), **EXACT)


@random(6)
@given(seed=seeds, a=st.floats(-3, 3), b=st.floats(0.1, 3))
def test_the_value_of_a_combination_is_the_combination_of_values(seed, a, b):
    p = Problem(seed, n=60)
    x, y, z = gc.tpr(on={"sex": "F"}), gc.fpr(), gc.log_loss()
    vx, vy, vz = p.value(x), p.value(y), p.value(z)
    expected = {
        x + y: vx + vy,
        x - y: vx - vy,
        -x + 1: 1 - vx,
        1 - x: 1 - vx,
        y + 0.25: vy + 0.25,
        y - 0.25: vy - 0.25,
        (x + 0.2) - (y + 0.5): vx - vy - 0.3,
        b * x + a * y: b * vx + a * vy,
        (x + y) / b: (vx + vy) / b,
        x * b + z * b: b * (vx + vz),
        sum([x, y, z]): vx + vy + vz,
        x + x - 0.5 * x: 1.5 * vx,
        0.5 * (x + (y - x)) + x: 0.5 * vy + vx,
    }
    bounds = [min(max(0.3, rate.range[0]), rate.range[1]) for rate in expected]
    stated = [rate <= bound for rate, bound in zip(expected, bounds, strict=True)]
    np.testing.assert_allclose(p.measured(*stated)[0], [*expected.values()], **EXACT)


class Counting(BaseEstimator):
    """A model that counts how often it is asked."""

    asked = 0

    def predict(self, X):
        Counting.asked += 1
        return np.zeros(len(X), dtype=int)


def test_equal_models_are_asked_once():
    p = Problem(0)
    p.features = [np.zeros((p.n, 1))]
    rules = [gc.churn(to=Counting()) <= 0.1, gc.wins(over=Counting()) <= 0.2]
    p.measured(*rules, *clone(Holder(rules)).constraints)
    assert Counting.asked == 1


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (gc.class_error(7) <= 0.1, "it names class 7, which is not in y: its classes are [0, 1]"),
        (gc.error_rate(on=gc.label("a")) <= 0.1, "it names class 'a'"),
        (gc.selection_rate(5) <= 0.1, "it names class 5"),
        (
            gc.fpr(on={"sex": "X"}) <= 0.1,
            "sex=X selects no row: the values of 'sex' are ['F', 'M']",
        ),
        (gc.fpr(on={"age": 3}) <= 0.1, "column 'age' is neither in sensitive_features nor in X"),
        (gc.gap(gc.fpr(), by="age") <= 0.1, "the columns known are ['sex', 'region', 'old']"),
        (gc.fpr(on=gc.dataset("m")) <= 0.1, "data set 'm' was not given"),
        (gc.fpr(on=gc.dataset("train")) <= 0.1, "data set 'train' was not given"),
        (gc.fpr(on=MASK) <= 0.1, "a mask of 5 rows, but the training data have 150 rows"),
        (gc.churn(to=OLD) <= 0.1, "decisions have 5 entries, but the training data have 150 rows"),
        (
            gc.churn(to=[2] * 150) <= 0.1,
            "The other model decides 2, which is not among the classes",
        ),
        (gc.churn(to=["0"] * 150) <= 0.1, "The other model decides '0'"),
        (gc.churn(to="sex") <= 0.1, "The other model decides 'F', which is not among the classes"),
        (gc.churn(to="age") <= 0.1, "column 'age' is neither"),
        (gc.fpr(on=(gc.label(1), gc.label(0))) <= 0.1, "is taken over no rows at all"),
        (gc.fpr(on=gc.label(1)) <= 0.1, "is taken over no rows at all"),
        (
            gc.gap(gc.fpr(), by="sex", reference="X") <= 0.1,
            "reference='X' is not among the groups",
        ),
        (
            gc.gap(gc.fpr(on={"sex": "F"}), by="sex") <= 0.1,
            "1 is left (sex=F): at least 2 are needed",
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*some groups have fewer:UserWarning")
def test_what_the_data_do_not_have_is_refused(constraint, reason):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the reason is compared below
        Problem(0).measured(constraint)
    assert reason in str(error.value)


def test_of_many_values_some_are_named():
    p = Problem(0)
    columns = {"id": np.arange(p.n)}
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        compile_constraints(
            [gc.fpr(on={"id": -1}) <= 0.1], Rows(p.codes, p.classes, None, columns)
        )
    first = ", ".join(map(str, range(20)))
    assert f"the values of 'id' are [{first} and {p.n - 20} more]." in str(error.value)


@pytest.mark.parametrize(
    "rate", [gc.fpr, gc.fnr, gc.tpr, gc.tnr, gc.recall, gc.selection_rate, gc.precision, gc.f1]
)
def test_binary_rates_need_a_label_for_three_classes(rate):
    p = Problem(0, (0, 1, 2))
    with pytest.raises(
        ValueError, match="rate of binary classifiers, but y has 3 classes"
    ) as error:
        p.measured(rate() <= 0.1)
    remedy = "name one of them as label= of the rate, as in tpr(label=k), or as positive= of all"
    assert remedy in str(error.value)
    assert 0 <= p.measured(rate(label=2) <= 0.1)[0][0] <= 1


def test_groups_by_nothing():
    p = Problem(0)
    rows = Rows(p.codes, p.classes)
    with pytest.raises(ValueError, match="groups are made by no column: give sensitive_features"):
        compile_constraints([gc.gap(gc.fpr()) <= 0.1], rows)


def test_an_attribute_soup_is_refused():
    """One constraint that looks at 25 masks cannot be cut into cells."""
    p = Problem(0)
    masks = tuple(p.rng.random((25, p.n)) < 0.9)
    with pytest.raises(ValueError, match=r"one constraint looks at 2[56] attributes"):
        p.measured(gc.error_rate(on=masks) <= 0.1)


def test_ties():
    """Zero margin is the negative class, equal scores the first class: as in argmax."""
    y = np.array([0, 0, 1, 1])
    assert measure([gc.fpr() <= 0.1, gc.fnr() <= 0.1], y, np.zeros(4)).tolist() == [0.0, 1.0]
    y = np.array([0, 1, 2])
    found = measure([gc.class_error(k) <= 0.1 for k in range(3)], y, np.zeros((3, 3)))
    assert found.tolist() == [0.0, 1.0, 1.0]


def test_rows_that_reward_errors_of_all_labels():
    """Gaps of error rates do; those that one decision for a whole group meets do not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    columns = {"g": rng.integers(0, 2, 300), "deployed": rng.integers(0, 3, 300)}
    cases = {
        gc.gap(gc.error_rate(), by="g") <= 0.1: True,
        gc.gap(gc.accuracy(), by="g") <= 0.1: True,
        gc.error_rate(on={"g": 0}) >= 0.3: True,
        gc.error_rate(on=gc.label(1)) >= 0.3: False,
        gc.gap(gc.class_error(0), by="g") <= 0.1: False,
        gc.gap(gc.class_error(0) + gc.class_error(1), by="g") <= 0.1: False,
        gc.gap(gc.class_error(0) + gc.class_error(1) + gc.class_error(2), by="g") <= 0.1: True,
        gc.gap(gc.selection_rate(label=1), by="g") <= 0.1: False,
        gc.gap(gc.recall(label=1), by="g") <= 0.1: False,
        gc.gap(gc.log_loss(), by="g") <= 0.1: False,
        gc.error_rate() <= 0.1: False,
        gc.selection_rate(label=2) <= 0.1: False,
        gc.churn(to="deployed") <= 0.1: False,
    }
    for rule, expected in cases.items():
        _, compiled = compile_constraints([rule], Rows(y, np.arange(3), None, columns))
        assert (compiled.must_reward_errors == expected).all(), rule
        assert (compiled.may_reward_errors >= compiled.must_reward_errors).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_constraints_that_forbid_one_class_of_several_split_targets(n_classes):
    """Their rows may be decided as any other; and one class alone is the other of two."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, 300)
    deployed = {"deployed": rng.integers(0, n_classes, 300)}
    cases = {
        gc.fpr(label=1) <= 0.1: True,
        gc.precision(label=1) >= 0.9: True,
        gc.confusion(0, 1) <= 0.1: True,
        gc.selection_rate(label=1) <= 0.1: True,
        gc.selection_rate(label=1) >= 0.1: False,
        gc.recall(label=1) >= 0.9: False,
        gc.class_error(1) <= 0.1: False,
        gc.error_rate() <= 0.1: False,
        gc.accuracy() >= 0.9: False,
        gc.churn(to="deployed") <= 0.1: False,
        gc.log_loss() <= 0.1: False,
    }
    for rule, splits in cases.items():
        cells, compiled = compile_constraints(
            [rule], Rows(y, np.arange(n_classes), None, deployed)
        )
        assert (compiled.splits_targets == (splits and n_classes > 2)).all(), rule
        bounded = compiled.splits_targets | compiled.may_reward_errors
        assert np.array_equal(Lagrangian(y, cells, compiled).rows.is_bounded, bounded)


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
        gc.recall() >= 0.5,
        gc.fnr(on={"g": "a"}) <= 0.5,
        gc.gap(gc.recall(), by="g") <= 0.1,
        gc.gap(gc.fpr(), by="g") <= 0.1,
        gc.fpr() + gc.recall() <= 1.2,
        gc.log_loss(on=gc.label(1)) <= 0.5,
        gc.log_loss(on=gc.label(1)) - gc.log_loss(on=gc.label(0)) <= 0.1,
        gc.log_loss(on={"g": "c"}) <= 0.5,
        gc.error_rate() + gc.log_loss() <= 2,
        gc.log_loss() - 0.5 * gc.log_loss(on={"g": "b"}) <= 1,
        gc.log_loss(on={"g": "b"}) + gc.log_loss(on={"g": "c"}) <= 2,
    ]
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


def test_compiled_tables_by_hand():
    """Weights 1, 1, 2 of class 0 and 4 of class 1: shares within and over cells."""
    y, weight = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 2.0, 4.0])
    constraints = [gc.class_error(0) <= 0.1, gc.error_rate() <= 0.2, gc.log_loss() <= 0.3]
    _, compiled = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    A = compiled.A.toarray().reshape(3, 2, 2)
    assert A.tolist() == [[[0, 1], [0, 0]], [[0, 0.5], [0.5, 0]], [[0, 0], [0, 0]]]
    assert compiled.cost_range.toarray().tolist() == [[1, 0], [0.5, 0.5], [0, 0]]
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
    constraints = [
        gc.class_error(0) <= 0.1,
        gc.log_loss(on=gc.label(1)) <= 0.1,
        gc.error_rate() <= 0.1,
    ]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    lagrangian = Lagrangian(y, cells, compiled, weight=weight)
    rates, losses, _ = (part.toarray() for part in lagrangian.constants.reactions)
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


def test_opposite_rows():
    """All that there are, each once; brute force."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    columns = {"two": rng.integers(0, 2, 400), "four": rng.integers(0, 4, 400)}
    cases = {
        gc.gap(gc.error_rate(), by="two") <= 0.1: 1,
        gc.gap(gc.recall(), by="four") <= 0.1: 6,
        gc.gap(gc.fpr(), by="four", reference=2) <= 0.1: 3,
        gc.gap(gc.log_loss(), by="two") <= 0.1: 1,
        gc.ratio(gc.selection_rate(), by="two") >= 0.8: 0,
        gc.fnr() <= 0.1: 0,
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


CONSTRAINTS = [
    gc.gap(gc.error_rate(), by="sex", min_group_size=1) <= 0.1,
    gc.class_error(2) <= 0.3,
    gc.gap(gc.selection_rate(1), by="age", min_group_size=1) <= 0.2,
    gc.precision(0) >= 0.5,
]
REVIEW = np.ones((3, 3)) - np.eye(3)
OF_AMOUNTS = [
    gc.class_error(1, weight="amount") <= 0.3,
    gc.cost([[0, 2, 1], [3, 0, 0], [-1, 0, 0]], weight="amount") + gc.cost(REVIEW) <= 0.5,
]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_functionals_of_joint_counts_are_those_of_the_compiler(seed, is_weighted, is_part):
    rng = np.random.default_rng(seed)
    n = 400
    y = rng.integers(3, size=n)
    columns = {"sex": rng.integers(2, size=n), "age": rng.integers(3, size=n)}
    columns["amount"] = rng.exponential(size=n).round(1)
    weight = rng.uniform(0.5, 2.0, size=n) if is_weighted else None
    constraints = [*CONSTRAINTS, *OF_AMOUNTS] if seed % 2 else CONSTRAINTS
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), weight, columns))
    joint = JointCells.of(cells)
    rows = np.sort(rng.choice(n, 200, replace=False)) if is_part else np.arange(n)
    part = cells.take(rows)
    on_part = compiled.on(part)
    decided = rng.integers(3, size=rows.size)
    w = None if weight is None else weight[rows]
    found = joint.coefficients(part, on_part).functionals(joint.counts(decided, w, rows))
    counts = CellCounts.of(part, decided).weight
    total = counts.sum(axis=1, keepdims=True)
    predicted = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    expected = on_part.U @ predicted.ravel() + on_part.constant
    assert found == pytest.approx(expected, abs=1e-12)


def test_costs_are_the_change_of_a_functional_by_a_decision():
    rng = np.random.default_rng(0)
    y, columns = rng.integers(3, size=60), {"sex": rng.integers(2, size=60)}
    constraints = CONSTRAINTS[:1]
    cells, compiled = compile_constraints(constraints, Rows(y, np.arange(3), None, columns))
    joint = JointCells.of(cells)
    coefficients = joint.coefficients(cells, compiled)
    cost = rng.normal(size=compiled.constant.size)
    everyone, decided = np.arange(60), rng.integers(3, size=60)
    before = cost @ coefficients.functionals(joint.counts(decided, None, everyone))
    changed = decided.copy()
    changed[7] = (decided[7] + 1) % 3
    after = cost @ coefficients.functionals(joint.counts(changed, None, everyone))
    table = coefficients.costs(cost)[joint.codes[7]]
    assert after - before == pytest.approx(table[changed[7]] - table[decided[7]])


def test_labels_alone_are_recognised():
    y = np.arange(3).repeat(4)
    cells, _ = compile_constraints([gc.class_error(2) <= 0.3], Rows(y, np.arange(3)))
    assert JointCells.of(cells).are_labels
    sex = {"sex": np.arange(12) % 2}
    cells, _ = compile_constraints(CONSTRAINTS[:1], Rows(y, np.arange(3), None, sex))
    assert not JointCells.of(cells).are_labels


def test_too_many_combinations_are_refused():
    rng = np.random.default_rng(0)
    y, columns = rng.integers(3, size=4000), {"zip": rng.integers(300, size=4000)}
    constraints = [gc.each(gc.error_rate(), by="zip", min_group_size=1) <= 0.9]
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(3), None, columns))
    with pytest.raises(ValueError, match="combinations of label and groups"):
        JointCells.of(cells)


def test_costs_of_resampled_rows_are_divided_by_their_number():
    rng = np.random.default_rng(2)
    y, amount, decided = (
        rng.integers(3, size=80),
        rng.exponential(size=80),
        rng.integers(3, size=80),
    )
    cells, compiled = compile_constraints(
        [OF_AMOUNTS[1]], Rows(y, np.arange(3), None, {"amount": amount})
    )
    joint, drawn = JointCells.of(cells), rng.exponential(size=80)
    counts = joint.counts(decided, drawn, np.arange(80))
    tables, as_ones = (joint.spread(counts, len(cells), as_ones=ones) for ones in (False, True))
    matrix = np.array([[0, 2, 1], [3, 0, 0], [-1, 0, 0]])
    cost = amount * matrix[y, decided] + REVIEW[y, decided]
    found = functionals_of_weights(compiled, tables, as_ones)
    assert found == pytest.approx([drawn @ cost / drawn.sum()], abs=1e-12)


BINARY_METRICS = {
    "selection_rate": gc.selection_rate(),
    "tpr": gc.tpr(),
    "fpr": gc.fpr(),
    "error_rate": gc.error_rate(),
}


@pytest.mark.parametrize("name", BINARY_METRICS)
@pytest.mark.parametrize("by", ["sex", "region", ["sex", "region"]])
@random(1)
@given(seed=seeds)
def test_comparisons_are_those_of_fairlearn(name, by, seed):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    p, rate = Problem(seed, n=300), BINARY_METRICS[name]
    p.weight += 0.01
    function = {
        "selection_rate": fairlearn.selection_rate,
        "tpr": fairlearn.true_positive_rate,
        "fpr": fairlearn.false_positive_rate,
        "error_rate": metrics.zero_one_loss,
    }[name]
    frame = fairlearn.MetricFrame(
        metrics=function,
        y_true=p.y,
        y_pred=p.predicted,
        sensitive_features=pd.DataFrame({"sex": p.sex, "region": p.region})[
            [by] if isinstance(by, str) else by
        ],
        sample_params={"sample_weight": p.weight},
    )
    options = {"by": by, "min_group_size": 1}
    to_all = {**options, "reference": gc.overall}
    found, _, _, compiled = p.measured(
        gc.gap(rate, **options) <= 0.5,
        gc.gap(rate, **to_all) <= 0.5,
        gc.ratio(rate, **options) >= 0.5,
        gc.ratio(rate, **to_all) >= 0.5,
        gc.each(rate, **options) <= 0.5,
        gc.each(rate, **options) >= 0.5,
    )
    expected = [
        frame.difference(),
        frame.difference(method="to_overall"),
        frame.ratio(),
        frame.ratio(method="to_overall"),
        frame.group_max(),
        frame.group_min(),
    ]
    np.testing.assert_allclose(found, expected, **EXACT)
    names = [g.name if len(g.name) > 1 else g.name[0] for g in compiled.groups[0]]
    assert names == frame.by_group.index.tolist()
    cells, alone = compile_constraints([gc.each(rate, **options) <= 0.5], p.rows)
    st_ = Lagrangian(p.codes, cells, alone, weight=p.weight).at(p.margin).statistics()
    np.testing.assert_allclose(alone.functionals(st_), frame.by_group.to_numpy(), **EXACT)


@random(4)
@given(seed=seeds)
def test_a_reference_group_is_compared_with_all_others(seed):
    p = Problem(seed)
    value = {g: p.value(gc.tpr(on={"region": g})) for g in "abc"}
    options = {"by": "region", "reference": "b", "min_group_size": 1}
    away = [abs(value[g] - value["b"]) for g in "ac"]
    np.testing.assert_allclose(p.value(gc.gap(gc.tpr(), **options)), max(away), **EXACT)
    low, high = min(value["a"], value["c"]), max(value["a"], value["c"])
    if min(low, value["b"]) > 0:
        expected = min(1.0, low / value["b"], value["b"] / high)
        np.testing.assert_allclose(p.value(gc.ratio(gc.tpr(), **options)), expected, **EXACT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pairs = {"by": ["sex", "region"], "reference": ("F", "a"), "min_group_size": 1}
        found = p.value(gc.gap(gc.selection_rate(), **pairs))
    rates = {
        (s, r): p.value(gc.selection_rate(on={"sex": s, "region": r})) for s in "FM" for r in "abc"
    }
    expected = max(abs(v - rates["F", "a"]) for v in rates.values())
    np.testing.assert_allclose(found, expected, **EXACT)


def test_a_reference_makes_two_rows_for_each_group():
    p = Problem(0)
    options = {"by": "region", "min_group_size": 1}
    compiled = p.measured(gc.gap(gc.tpr(), reference="b", **options) <= 0.1)[3]
    assert compiled.rows == (
        "tpr[region=a] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=a] <= 0.1",
        "tpr[region=c] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=c] <= 0.1",
    )
    compiled = p.measured(gc.ratio(gc.tpr(), by="sex", reference=gc.overall, slack=0.1) >= 0.8)[3]
    assert compiled.rows[:2] == (
        "tpr[sex=F] >= 0.8 * (tpr) - 0.1",
        "tpr >= 0.8 * (tpr[sex=F]) - 0.1",
    )
    assert len(p.measured(gc.gap(gc.tpr(), **options) <= 0.1)[3].rows) == 6


@random(4)
@given(seed=seeds)
def test_a_ratio_of_rates_that_are_zero_is_one(seed):
    """Weights leave 1e-16 of a rate that is zero, and no group is worse than another."""
    p = Problem(seed)
    p.margin[:] = 1.0
    for rate in (gc.fnr(), 1 - gc.fpr(), gc.error_rate(on=gc.label(1))):
        for reference in (None, gc.overall, "F"):
            compared = gc.ratio(rate, by="sex", reference=reference, min_group_size=1)
            values, _, satisfied, _ = p.measured(compared >= 0.8)
            assert values.tolist() == [1.0]
            assert satisfied.all()


def test_rows_of_a_compound_rate_print_with_parentheses():
    p = Problem(0)
    compiled = p.measured(gc.gap(gc.fpr() - gc.fnr(), by="sex", min_group_size=1) <= 0.1)[3]
    assert compiled.rows[0] == "fpr[sex=F] - fnr[sex=F] - (fpr[sex=M] - fnr[sex=M]) <= 0.1"


def with_small_groups():
    """Groups a (60 rows), b (30), c (3), d (2)."""
    p = Problem(1, n=95)
    p.region = np.repeat(list("abcd"), [60, 30, 3, 2])
    p.weight = None
    p.margin = np.where(np.arange(95) % 3, 1.0, -1.0)
    return p


@pytest.mark.parametrize(
    ("small_groups", "expected", "outcome"),
    [
        ("keep", ["a", "b", "c", "d"], "kept"),
        ("merge", ["a", "b", "small groups"], "merged into one group"),
        ("drop", ["a", "b"], "left out"),
    ],
)
def test_small_groups(small_groups, expected, outcome):
    """They are named with their sizes; merged, they are one group of all their rows."""
    p = with_small_groups()
    rate = gc.each(gc.selection_rate(), by="region", small_groups=small_groups)
    with pytest.warns(UserWarning, match=rf"region=c \(3\), region=d \(2\)\. They are {outcome}"):
        _, _, _, compiled = p.measured(rate <= 0.5)
    assert [g.name[0] for g in compiled.groups[0]] == expected
    sizes = {"a": 60, "b": 30, "c": 3, "d": 2, "small groups": 5}
    assert [g.size for g in compiled.groups[0]] == [sizes[name] for name in expected]
    with pytest.warns(UserWarning, match="min_group_size=30"):
        found = p.value(gc.gap(gc.selection_rate(), by="region", small_groups=small_groups))
    groups = {g: p.predicted[p.region == g].mean() for g in "abcd"}
    groups["small groups"] = p.predicted[90:].mean()
    values = [groups[name] for name in expected]
    np.testing.assert_allclose(found, max(values) - min(values), **EXACT)


def test_size_is_that_of_the_rows_of_the_rate():
    """Of a false positive rate, a group's negative rows; groups without any are left out."""
    p = with_small_groups()
    p.codes[p.region == "c"] = 1
    p.codes[p.region == "d"] = 0
    negatives = {g: int((p.codes[p.region == g] == 0).sum()) for g in "abd"}
    rate = gc.each(gc.fpr(), by="region", min_group_size=3)
    with pytest.warns(UserWarning, match=r"region=c \(0\), region=d \(2\)\..*are left out\."):
        compiled = p.measured(rate <= 0.5)[3]
    assert {g.name[0]: g.size for g in compiled.groups[0]} == negatives
    p.weight = np.where(p.region == "b", 0.0, 1.0)
    with pytest.warns(UserWarning, match=r"region=b \(0\)"):
        compiled = p.measured(gc.each(gc.error_rate(), by="region", min_group_size=1) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["a", "c", "d"]
    # A weight of zero leaves a row out.
    p.weight = np.where(p.region == "a", np.arange(p.n) < 5, 1.0)
    left = int((p.region[:5] == "a").sum())
    with pytest.warns(UserWarning, match=rf"rows that the rate is .*: region=a \({left}\)"):
        compiled = p.measured(gc.each(gc.error_rate(), by="region", min_group_size=6) <= 0.5)[3]
    assert compiled.groups[0][0].size == left


def test_rows_without_a_value():
    """They are a group of their own, or an error; other data sets' rows do not count."""
    p = Problem(0)
    p.sex = p.sex.astype(object)
    rate = {"by": "sex", "min_group_size": 1}
    full = gc.gap(gc.tpr(), missing="raise", **rate) <= 0.5
    p.measured(full)
    p.sizes, p.sources = [100, 50], ("monitor",)
    p.measured(full)
    p.sizes, p.sources = None, ()
    p.sex[::3] = None
    compiled = p.measured(gc.each(gc.tpr(), **rate) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["F", "M", MISSING]
    for nothing in (None, np.nan, pd.NA, pd.NaT):
        found = p.value(gc.selection_rate(on={"sex": nothing}))
        np.testing.assert_allclose(found, np.average(p.predicted[::3], weights=p.w[::3]), **EXACT)
    with pytest.raises(ValueError, match=r"'M', missing\]\. on=\{'sex': None\} selects the"):
        p.value(gc.selection_rate(on={"sex": "missing"}))
    with pytest.raises(ValueError, match="sex has missing values: fill them in"):
        p.measured(full)
    p.sex[::3] = "missing"  # a value like any other
    p.measured(full)
    p.sex[1::3] = None
    compared = gc.gap(gc.tpr(), by="sex", reference=np.nan, min_group_size=1) <= 0.5
    groups = p.measured(compared)[3].groups[0]
    assert [g.name[0] for g in groups] == ["F", "M", "missing", MISSING]
    values = [p.value(gc.selection_rate(on={"sex": value})) for value in ("missing", None)]
    expected = [np.average(p.predicted[i::3], weights=p.w[i::3]) for i in (0, 1)]
    np.testing.assert_allclose(values, expected, **EXACT)
    by_default = gc.gap(gc.tpr(), by="sex", min_group_size=1) <= 0.5
    assert (gc.gap(gc.tpr(), by="sex", reference=None, min_group_size=1) <= 0.5) == by_default
    unknown = gc.gap(gc.tpr(), by="sex", reference="X", min_group_size=1) <= 0.5
    with pytest.raises(ValueError, match=r"missing\]\. reference=numpy\.nan is the group of the"):
        p.measured(unknown)


@pytest.mark.parametrize(
    "constraint",
    [
        preset(difference_bound=0.02, by="s")
        for preset in (
            presets.TruePositiveRateParity, presets.FalsePositiveRateParity,
            presets.DemographicParity, presets.EqualizedOdds, presets.ErrorRateParity,
            presets.UtilityParity,
        )
    ]
    + [
        presets.DemographicParity(ratio_bound=0.9, by="s"),
        presets.AverageEqualityGap(1, by="s"),
        gc.gap(gc.tpr(), by="s") <= 0.02,
        gc.gap(gc.precision(), by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.calibration_error(), by="s", reference=gc.overall) <= 0.02,
        gc.gap_norm([gc.fpr(), gc.tpr()], by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.mean_prediction(), by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.coverage(), by="s", reference=gc.overall) <= 0.02,
    ],
    ids=str,
)  # fmt: skip
def test_one_group_equals_its_reference_and_is_refused(constraint):
    """A column with one value, as a misspelt grouping may have, would meet any bound."""
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"x": rng.normal(size=80)}), np.arange(80) % 2
    s = {"s": ["u"] * 80}
    first = constraint[0] if isinstance(constraint, tuple) else constraint
    of_numbers = bool(row_functions_of([first]))
    make = gc.ConstrainedLGBMRegressor if of_numbers else gc.ConstrainedXGBClassifier
    options = {} if of_numbers else {"probabilities": "calibrated"}
    message = r"compares groups by s, of which 1 is left \(s=u\): at least 2 are needed"
    with pytest.raises(ValueError, match=message):
        make(constraints=[constraint], **options).fit(X, y, sensitive_features=s)
    model = (Ridge() if of_numbers else LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=message):
        gc.audit(model, X, y, constraint, sensitive_features=s)
