"""Sums and norms of gaps, and gaps of quotients: values, rows, texts and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained.constraints.base import CurveFunction

RATES = {"fpr": gc.fpr(), "tpr": gc.tpr(), "accuracy": gc.accuracy()}
QUOTIENTS = {"precision": gc.precision(), "f1": gc.f1(), "odds": gc.tpr() / gc.accuracy()}
VALUES = st.sampled_from([*RATES.values(), *QUOTIENTS.values()])
FRACTION = st.floats(0.01, 1.0)


def norm_of(values, p=1.0, weights=None, **options):
    """Combine gaps by the operators, or by the function."""
    weights = [1.0] * len(values) if weights is None else weights
    if p == 1.0:
        first, *others = (
            w * gc.gap(v, by="g", **options) for w, v in zip(weights, values, strict=True)
        )
        for other in others:
            first = first + other
        return first
    return gc.gap_norm([*values], p=p, by="g", **options)


def value_by_hand(expression, functionals, n_groups):
    """Compute the norm from the functionals of each group, without the package."""
    table, gaps = np.reshape(functionals, (n_groups, -1)), []
    for weight, of in expression.parts:
        own = table[:, : len(of.rates)]
        table = table[:, len(of.rates) :]
        known = own[:, 0] if own.shape[1] == 1 else own[:, 0] / own[:, 1]
        pairs = [(i, j) for i in range(n_groups) for j in range(n_groups)]
        if expression.reference is not None:
            pairs = [(i, n_groups - 1) for i in range(n_groups)]
        gaps.append(weight * max(abs(known[i] - known[j]) for i, j in pairs))
    if expression.p == math.inf:
        return max(gaps)
    return sum(gap**expression.p for gap in gaps) ** (1.0 / expression.p)


@st.composite
def norms(draw):
    """Draw an expression with the functionals of its groups."""
    values = draw(st.lists(VALUES, min_size=1, max_size=2))
    p = draw(st.sampled_from([1.0, 1.5, 2.0, math.inf]))
    weights = draw(st.lists(st.floats(0.1, 3.0), min_size=len(values), max_size=len(values)))
    reference = draw(st.sampled_from([None, "a", gc.overall]))
    expression = norm_of(values, p, weights, reference=reference)
    if not hasattr(expression, "parts"):
        expression = expression * 1.0
    n_groups = draw(st.integers(2, 3))
    size = n_groups * len(expression.rates)
    functionals = np.array(draw(st.lists(FRACTION, min_size=size, max_size=size)))
    return expression, functionals, n_groups


@given(norms())
@settings(max_examples=40, deadline=None)
def test_the_value_is_that_of_the_definition_and_of_the_worst_row(drawn):
    expression, functionals, n_groups = drawn
    constraint = expression <= 0.1
    expected = value_by_hand(expression, functionals, n_groups)
    assert constraint.value(functionals) == pytest.approx(expected, abs=1e-12)
    at = range(functionals.size)
    worst = max(
        row.function.values(functionals[list(row.at), None])[0]
        for row in expression.branches(constraint, at)
    )
    assert worst == pytest.approx(expected, abs=1e-12)
    rows = expression.rows(constraint, at, [f"f{k}" for k in at])
    if expression.is_curved:
        assert not rows
    else:
        found = [sum(a * functionals[k] for k, a in row.coefficients.items()) for row in rows]
        assert max(found) == pytest.approx(expected, abs=1e-12)


def differences_of(function, own):
    """Compute the differences, at zeros of which norms of an order above one have a kink."""
    found, at = [], 0
    for _, of in function.parts:
        part = own[at : at + 2 * len(of.rates)]
        at += part.size
        found.append(
            part[0] / part[1] - part[2] / part[3] if of.is_quotient else part[0] - part[1]
        )
    return np.array(found)


@given(norms())
@settings(max_examples=40, deadline=None)
def test_derivatives_are_finite_differences(drawn):
    expression, functionals, _ = drawn
    for row in expression.branches(expression <= 0.1, range(functionals.size)):
        own = functionals[list(row.at)]

        def value(f, function=row.function):
            return function.values(f[:, None])[0]

        step = 1e-7
        central = np.array(
            [
                (value(own + step * e) - value(own - step * e)) / (2 * step)
                for e in np.eye(own.size)
            ]
        )
        scale = max(np.abs(central).max(), 1.0)
        if row.function.p == 1.0 or np.abs(differences_of(row.function, own)).min() > 0.01:
            assert row.function.gradient(own) == pytest.approx(central, abs=1e-6 * scale)


@given(norms())
@settings(max_examples=40, deadline=None)
def test_texts_are_read_as_the_same_constraint(drawn):
    expression, _, _ = drawn
    constraint = expression <= 0.05
    if expression.p == 1.0 or all(weight == 1.0 for weight, _ in expression.parts):
        assert gc.parse_constraint(gc.format_constraint(constraint)) == constraint


def test_an_undefined_quotient_holds_and_has_no_value():
    constraint = gc.gap(gc.precision(), by="g") <= 0.05
    functionals = np.array([0.2, 0.4, 0.0, 0.0])
    assert np.isnan(constraint.value(functionals))
    function = constraint.expression.branches(constraint, range(4))[0].function
    assert function.values(functionals[:, None])[0] == 0.0
    assert not function.gradient(functionals).any()


def test_unknown_functionals_stay_unknown():
    function = CurveFunction(((1.0, gc.precision()),))
    assert np.isnan(function.values(np.array([[0.1], [0.2], [np.nan], [0.3]]))[0])


def test_average_odds_prints_and_is_read():
    found = gc.parse_constraint("(gap(fpr, by=sex) + gap(tpr, by=sex)) / 2 <= 0.05")
    assert found == ((gc.gap(gc.fpr(), by="sex") + gc.gap(gc.tpr(), by="sex")) / 2 <= 0.05)
    assert str(found) == "0.5 * gap(fpr, by='sex') + 0.5 * gap(tpr, by='sex') <= 0.05"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: gc.gap_norm([gc.fpr()], p=0.5), ValueError, "p must be a number >= 1"),
        (lambda: gc.gap_norm([], by="g"), ValueError, "rates= is empty"),
        (lambda: gc.gap(gc.fpr()) * -1, ValueError, "only positive finite numbers multiply gaps"),
        (lambda: gc.gap(gc.fpr()) / 0, TypeError, "multiples by positive numbers"),
        (lambda: gc.gap_norm([gc.fpr()]) + gc.gap(gc.tpr()), TypeError, "gaps have sums with"),
        (lambda: gc.gap(gc.precision(), by="g") >= 0.1, TypeError, "only be bounded from above"),
        (lambda: gc.gap(gc.precision(), by="g") <= 1.5, ValueError, "The bound of gap(precision"),
    ],
)
def test_what_is_no_norm_of_gaps_is_refused(make, error, message):
    with pytest.raises(error) as refused:
        make()
    assert message in str(refused.value)


def test_many_groups_and_gaps_are_refused_with_a_remedy():
    constraint = gc.gap(gc.fpr(), by="g") + gc.gap(gc.tpr(), by="g") <= 0.1
    with pytest.raises(ValueError, match="more than 5000: put groups of few rows together"):
        constraint.expression.rows(constraint, range(40), [f"f{k}" for k in range(40)])
