"""Thresholds under rates of amounts, and certificates of these."""

import numpy as np
import pytest
from amount_rows import compile_rows, draw, rules
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.decision.search import ShiftSearch, threshold_curve
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.p_values import constraint_p_values, hoeffding_bentkus_p_value


def decision_rules(weight):
    return [rule for rule in rules(2, weight) if "loss" not in rule.kinds]


@given(seed=st.integers(0, 2**16))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_thresholds_of_whole_amounts_are_those_of_repeated_rows(seed):
    """Errors are of rows in one and of copies in the other, so that functionals are compared."""
    y, margin, amount, group = draw(seed=seed, n=50)
    cells, compiled = compile_rows(decision_rules("amount"), y, {"amount": amount, "group": group})
    found = threshold_curve(margin, cells, compiled)
    copies, repeated = compile_rows(
        decision_rules(None), np.repeat(y, amount), {"group": np.repeat(group, amount)}
    )
    expected = threshold_curve(np.repeat(margin, amount), copies, repeated)
    for shift, functionals in zip(expected.shift[1:-1], expected.functionals[1:-1], strict=True):
        decided = (margin + shift > 0).astype(int)
        counts = CellCounts.of(cells, decided).weight
        at = CellCounts.of(copies, np.repeat(decided, amount)).weight
        np.testing.assert_allclose(functionals, _functionals(repeated, at), atol=1e-12)
        np.testing.assert_allclose(functionals, _functionals(compiled, counts), atol=1e-12)
    nearest = np.abs(found.shift[:, None] - expected.shift).argmin(axis=0)
    same = np.abs(found.shift[nearest] - expected.shift) < 1e-12
    np.testing.assert_allclose(
        found.functionals[nearest[same]], expected.functionals[same], atol=1e-12
    )


def _functionals(compiled, weight):
    share = weight / np.maximum(weight.sum(axis=-1, keepdims=True), 1e-300)
    share[weight.sum(axis=-1) == 0] = [1.0, 0.0]
    return compiled.U @ share.ravel() + compiled.constant


@given(seed=st.integers(0, 2**16), bound=st.sampled_from([0.05, 0.1, 0.3]))
@settings(derandomize=True, deadline=None, max_examples=30)
def test_the_threshold_has_the_fewest_errors_of_all_that_miss_so_little(seed, bound):
    """Every threshold is tried by hand."""
    y, margin, _, _ = draw(seed=seed)
    amount = np.random.default_rng(seed).gamma(0.5, size=y.size)
    cells, compiled = compile_rows([gc.fnr(weight="amount") <= bound], y, {"amount": amount})
    found = ShiftSearch(margin, cells, compiled).find()
    errors = []
    for threshold in [-np.inf, *np.sort(margin)]:
        decided = margin > threshold
        missed = amount[(y == 1) & ~decided].sum() / amount[y == 1].sum()
        errors += [np.mean(decided != y)] if missed <= bound else []
    assert found.is_feasible
    assert found.error == pytest.approx(min(errors), abs=1e-12)
    missed = amount[(y == 1) & (margin + found.value[0] <= 0)].sum() / amount[y == 1].sum()
    np.testing.assert_allclose(found.functionals, [missed], atol=1e-12)


def certify(y, amount, decided, **options):
    rule = gc.fnr(weight="amount", **options) <= 0.2
    cells, compiled = compile_rows([rule], y, {"amount": amount})
    return constraint_p_values(compiled, CellCounts.of(cells, decided))[0]


def test_a_certificate_is_that_of_the_bounded_excess_of_each_row():
    """The excess a (miss - b) lies in [-b C, (1 - b) C], and becomes a variable in [0, 1]."""
    rng = np.random.default_rng(0)
    y, amount = np.ones(400, dtype=int), rng.uniform(0.5, 10.0, 400)
    y[:5] = 0
    decided = (rng.random(400) > 0.05).astype(int)
    inside = y == 1
    excess = amount[inside] * ((decided[inside] == 0) - 0.2)
    scaled = 0.2 + excess.mean() / 10.0
    expected = hoeffding_bentkus_p_value(scaled, inside.sum(), 0.2)
    assert certify(y, amount, decided, cap=10) == pytest.approx(expected, rel=1e-9)
    assert certify(y, amount, decided, cap=100) > certify(y, amount, decided, cap=10)
    assert certify(y, amount, decided) == 1.0


def test_certificates_are_seldom_false():
    """Of samples whose population is at the bound, a share of delta at most is certified."""
    rng = np.random.default_rng(1)
    n, false = 150, 0
    for _ in range(400):
        amount = rng.choice([1.0, 10.0], n)
        # Large amounts are missed less often: E[a miss] / E[a] = 0.2.
        missed = rng.random(n) < np.where(amount == 1.0, 0.7, 0.15)
        y = np.ones(n, dtype=int)
        y[0] = 0
        false += certify(y, amount, (~missed).astype(int), cap=10) <= 0.1
    assert false <= 400 * 0.1 + 3 * np.sqrt(400 * 0.1 * 0.9)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (gc.fnr(weight="amount") <= 0.5, {}, "give a cap that no row exceeds"),
        (gc.fnr(weight="amount", cap=9) <= 0.5, {"guarantee": "expected"}, "counts rows"),
        (gc.gap(gc.fnr(weight="amount", cap=9), by="group") <= 0.5, {}, "Bound the rate of each"),
    ],
)
def test_a_guarantee_of_amounts_needs_a_cap_and_a_known_test(rule, options, message):
    y, margin, amount, group = draw(n=400)
    table = {"amount": np.minimum(amount, 9), "group": group}
    asked = {"guarantee": "high_probability", **options}
    model = gc.ConstrainedXGBClassifier(constraints=[rule], n_estimators=2, **asked)
    with pytest.raises(ValueError, match=message):
        model.fit(margin[:, None], y, sensitive_features=table)
