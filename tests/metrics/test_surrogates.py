"""Surrogates: values by hand, derivatives by differences, roots by their equation, and rows."""

import numpy as np
import pytest
from black_box_problems import CLASSES, by_label, draw_rows
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import surrogate
from gbm_constrained.metrics.surrogates import (
    LOSSES,
    MARGIN_LOSSES,
    SurrogateLosses,
    check_surrogates,
    default_surrogates,
    warn_of_few_rows,
)

FORMULAS = {
    "log_loss": lambda m: np.log(1 + np.exp(-m)),
    "hinge": lambda m: max(0.0, 1 - m),
    "sigmoid": lambda m: 1 / (1 + np.exp(m)),
    "squared": lambda m: (1 - m) ** 2,
}


def quantile_by_hand(scores, y, weight, recall):
    """The largest threshold with the recall, by trying each; then the mean over negatives."""
    positive = [(s, w) for s, t, w in zip(scores, y, weight, strict=True) if t == 1]
    total = sum(w for _, w in positive)
    reach = [q for q, _ in positive if sum(w for s, w in positive if s >= q) >= recall * total]
    off = [(max(0.0, 1 + s - max(reach)), w) for s, t, w in zip(scores, y, weight) if t == 0]  # noqa: B905
    return sum(v * w for v, w in off) / sum(w for _, w in off)


def some_surrogates():
    """Each loss on selectors of all kinds; two of them share no row."""
    mask = np.arange(40) % 3 == 0
    return [
        *(surrogate(loss, on=label(1)) for loss in FORMULAS),
        *(surrogate(loss, on=({"group": "b"}, label(0))) for loss in FORMULAS),
        surrogate("log_loss", on=mask),
        surrogate("quantile", recall=0.3),
        surrogate("quantile", on={"group": "a"}, recall=0.75),
    ]


def test_values_are_weighted_means_by_hand():
    _, rows = draw_rows(0)
    scores = np.random.default_rng(1).normal(size=40)
    found = SurrogateLosses(some_surrogates(), rows).values(scores)
    y, w, group = rows.y, rows.weight, rows.columns["group"]
    expected = [
        np.average([FORMULAS[loss](sign * s) for s in scores[chosen]], weights=w[chosen])
        for chosen, sign in ((y == 1, 1), ((group == "b") & (y == 0), -1))
        for loss in FORMULAS
    ]
    mask = np.arange(40) % 3 == 0
    signed = (2 * y - 1) * scores
    expected.append(np.average(np.log1p(np.exp(-signed[mask])), weights=w[mask]))
    expected.append(quantile_by_hand(scores, y, w, 0.3))
    a = group == "a"
    expected.append(quantile_by_hand(scores[a], y[a], w[a], 0.75))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_gradients_are_differences(seed):
    _, rows = draw_rows(seed)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=40)
    losses = SurrogateLosses(some_surrogates(), rows)
    weights = rng.normal(size=len(losses))
    distances = np.subtract.outer(scores, scores)[np.triu_indices(40, 1)]
    kinks = np.concatenate([np.abs(scores) - 1, distances, np.abs(distances) - 1])
    assume(np.abs(kinks).min() > 1e-5)
    step = 1e-6
    found = [
        weights @ (losses.values(scores + e) - losses.values(scores - e)) / (2 * step)
        for e in step * np.eye(40)
    ]
    np.testing.assert_allclose(losses.gradient(scores, weights), found, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(LOSSES), st.floats(-1.5, 1.5))
def test_moved_scores_have_the_targets(seed, loss, change):
    """Shifts reach exactly the targets in range; others are named and leave their rows alone."""
    _, rows = draw_rows(seed)
    scores = np.random.default_rng(seed).normal(size=40)
    if loss == "quantile":
        losses = SurrogateLosses([surrogate(loss, recall=0.6)], rows)
    else:
        losses = by_label(rows, loss)
    before = losses.values(scores)
    targets = before + change * np.arange(1, len(losses) + 1) / len(losses)
    moved, is_out = losses.move(scores, targets)
    np.testing.assert_allclose(
        losses.values(moved), np.where(is_out, before, targets), rtol=0, atol=1e-10
    )
    if loss != "squared":
        largest = 1.0 if loss == "sigmoid" else np.inf
        np.testing.assert_array_equal(is_out, (targets <= 0) | (targets >= largest))


def test_roots_of_the_squared_loss_stay_on_their_side():
    weights = np.full(4, 0.25)
    for centre in (-1.0, 3.0):
        margins = centre + np.array([-0.2, 0.1, 0.3, -0.2])
        squared = MARGIN_LOSSES["squared"]
        target = float(weights @ squared.value(margins))
        assert squared.find_shift(margins, weights, target) == pytest.approx(0.0, abs=1e-12)
        assert np.isnan(squared.find_shift(margins, weights, 0.04))


def test_weights_are_repetitions():
    _, rows = draw_rows(4)
    scores = np.random.default_rng(5).normal(size=40)
    again = np.repeat(np.arange(40), rows.weight.astype(int))
    repeated = Rows(rows.y[again], CLASSES, None, {"group": rows.columns["group"][again]})
    chosen = [one for one in some_surrogates() if "mask" not in str(one)]
    np.testing.assert_allclose(
        SurrogateLosses(chosen, rows).values(scores),
        SurrogateLosses(chosen, repeated).values(scores[again]),
        atol=1e-12,
    )


def test_surrogates_by_default():
    _, rows = draw_rows(0)
    assert [str(s) for s in default_surrogates(rows, None)] == [
        "surrogate('log_loss', on=y=0)",
        "surrogate('log_loss', on=y=1)",
    ]
    by_group = default_surrogates(rows, ("group",))
    assert [str(s) for s in by_group] == [
        f"surrogate('log_loss', on=y={c}, group={g})" for g in "ab" for c in (0, 1)
    ]
    SurrogateLosses(by_group, rows).check_disjoint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: surrogate("logistic"), "loss must be one of"),
        (lambda: surrogate("quantile", recall=1.0), "recall must lie strictly between 0 and 1"),
        (lambda: check_surrogates(surrogate()), "surrogates must be a list"),
        (lambda: check_surrogates(["hinge"]), "surrogates holds 'hinge'"),
        (lambda: check_surrogates([]), r"surrogates=\[\] is empty"),
        (lambda: check_surrogates([surrogate()] * 33), "makes 33 surrogates, and at most 32"),
    ],
)
def test_what_is_no_surrogate_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("surrogates", "message"),
    [
        ([surrogate(on=np.zeros(40, dtype=bool))], "mask of 0 rows.* is taken over no training"),
        ([surrogate("quantile", on=label(1))], "selects 20 positive and 0 negative"),
        ([surrogate(on={"group": "c"})], "group=c selects no row"),
    ],
)
def test_surrogates_without_rows_are_refused(surrogates, message):
    with pytest.raises(ValueError, match=message):
        SurrogateLosses(surrogates, draw_rows(0)[1])


def test_other_bad_rows_are_refused():
    _, rows = draw_rows(0)
    three = Rows(np.arange(9) % 3, np.arange(3))
    with pytest.raises(ValueError, match=r"two classes, got .*use maximize="):
        SurrogateLosses([surrogate()], three)
    few = Rows(np.array([0, 1]), CLASSES)
    with pytest.raises(ValueError, match="3 surrogates and 2 training rows"):
        SurrogateLosses([surrogate()] * 3, few)
    many = Rows(rows.y, CLASSES, None, {"person": np.arange(40)})
    with pytest.raises(ValueError, match=r"makes 80 surrogates.*columns with fewer values"):
        default_surrogates(many, ("person",))
    overlapping = SurrogateLosses([surrogate(on=label(1)), surrogate()], rows)
    with pytest.raises(ValueError, match="share rows"):
        overlapping.check_disjoint()


def test_few_validation_rows_for_many_surrogates_are_a_warning():
    warn_of_few_rows(4, 200)
    with pytest.warns(UserWarning, match=r"4 surrogates and 199 validation rows.*\[GC307\]"):
        warn_of_few_rows(4, 199)


@pytest.mark.parametrize("weight", [None, np.array([1.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 2.0])])
def test_factors_of_rows_make_one_mean_of_all_surrogates(weight):
    """The weighted log loss of all rows is a multiple of the weighted sum of the surrogates."""
    n = 8
    y, scores = np.arange(n) % 2, np.random.default_rng(0).normal(size=n)
    rows = Rows(y, np.array([0, 1]), weight)
    losses = SurrogateLosses([surrogate(on=label(0)), surrogate(on=label(1))], rows)
    coefficients = np.array([0.3, 1.7])
    factors = losses.row_factors(coefficients)
    assert factors.mean() == pytest.approx(1.0)
    w = np.ones(n) if weight is None else weight
    each = np.logaddexp(0.0, np.where(y == 1, -scores, scores))
    ratio = (w * factors * each).sum() / (coefficients @ losses.values(scores))
    other = np.random.default_rng(1).normal(size=n)
    each = np.logaddexp(0.0, np.where(y == 1, -other, other))
    again = (w * factors * each).sum() / (coefficients @ losses.values(other))
    assert again == pytest.approx(ratio, rel=1e-12)
