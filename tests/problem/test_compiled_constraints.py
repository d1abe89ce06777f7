"""Constraints bound to rows: linear rows, views, and what the data do not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from references import (
    EXACT,
    Problem,
    counted,
    over,
    random,
    seeds,
)
from sklearn.base import BaseEstimator, clone

import gbm_constrained as gc
from gbm_constrained.data.cells import VIEW_CELLS
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

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


@random(30)
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


def test_many_ratios_as_linear_rows():
    """Goh et al. (2016), Appendix B: on 2,000 random predictions, by direct evaluation."""
    p = Problem(0, n=40, weighted=False)
    old, y = p.other, p.codes
    k = {"precision": 0.6, "f1": 0.55, "win_loss": 1.2, "win_change": 0.5}
    w, lost = gc.wins(over=old), gc.losses(to=old)
    rates = [gc.precision(), gc.f1(), w / lost, w / (w + lost)]
    constraints = [rate >= bound for rate, bound in zip(rates, k.values(), strict=True)]
    cells, compiled = compile_constraints(constraints, p.rows)
    lagrangian = Lagrangian(p.codes, cells, compiled)
    rng = np.random.default_rng(1)
    met = np.zeros(4)
    for _ in range(2000):
        predicted = rng.random(40) < rng.choice([0.02, 0.3, 0.5, 0.9])
        if rng.random() < 0.5:  # nearer the truth
            predicted = np.where(rng.random(40) < 0.4, y == 1, predicted)
        statistics = lagrangian.at(np.where(predicted, 1.0, -1.0)).statistics()
        g = compiled.violations(statistics)
        right, old_right = predicted == y, old == y
        tp, fp = (predicted & (y == 1)).sum(), (predicted & (y == 0)).sum()
        fn = (~predicted & (y == 1)).sum()
        won, gone = (right & ~old_right).sum(), (~right & old_right).sum()
        direct = [
            tp - k["precision"] * (tp + fp),
            2 * tp - k["f1"] * (2 * tp + fp + fn),
            won - k["win_loss"] * gone,
            won - k["win_change"] * (won + gone),
        ]
        np.testing.assert_allclose(-40 * g, direct, atol=1e-12)
        fractions = [over(tp, tp + fp), over(2 * tp, 2 * tp + fp + fn), over(won, gone)]
        fractions.append(over(won, won + gone))
        values = compiled.values(compiled.functionals(statistics))
        np.testing.assert_allclose(values, fractions, **EXACT)
        met += g <= 1e-12
    assert ((met > 100) & (met < 1900)).all()


@random(2)
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


@random(40)
@given(seed=seeds, a=st.floats(-3, 3), b=st.floats(0.1, 3))
def test_the_value_of_a_combination_is_the_combination_of_values(seed, a, b):
    p = Problem(seed, n=60)
    x, y, z = gc.tpr(on={"sex": "F"}), gc.fpr(), gc.log_loss()
    vx, vy, vz = p.value(x), p.value(y), p.value(z)
    for rate, expected in {
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
    }.items():
        low, high = rate.range
        bound = min(max(0.3, low), high)
        np.testing.assert_allclose(p.measured(rate <= bound)[0][0], expected, **EXACT)


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


def test_rows_without_weight_are_refused():
    p = Problem(0)
    p.weight[p.sex == "F"] = 0.0
    with pytest.raises(ValueError, match="is taken over rows whose total weight is zero"):
        p.measured(gc.fpr(on={"sex": "F"}) <= 0.1)


@pytest.mark.parametrize(
    "rate", [gc.fpr, gc.fnr, gc.tpr, gc.tnr, gc.recall, gc.selection_rate, gc.precision, gc.f1]
)
def test_binary_rates_need_a_label_for_three_classes(rate):
    p = Problem(0, (0, 1, 2))
    with pytest.raises(ValueError, match="rate of binary classifiers, but y has 3 classes"):
        p.measured(rate() <= 0.1)
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
