"""Costs and rates of amounts: how they are made, added up, printed, read and written."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasted import paste

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import Amount
from gbm_constrained.fit.model_note import dumps, loads
from gbm_constrained.reporting.mathml import formula_of

MISSED, ALARM = [[0, 0], [1, 0]], [[0, 3], [0, 3]]


def test_costs_of_amounts_and_of_rows_are_added():
    total = gc.cost(MISSED, weight="Amount", cap=100) + 2 * gc.cost(ALARM, on={"sex": "F"})
    assert str(total) == (
        "cost([[0, 0], [1, 0]])[weight=Amount, cap=100] + 2 * cost([[0, 3], [0, 3]])[sex=F]"
    )
    assert total.range == (0.0, 106.0)
    rule = total <= 5
    assert rule.amounts == (Amount("Amount", cap=100.0),)
    assert rule.has_costs_of_amounts
    assert not (gc.cost(ALARM) <= 1).has_costs_of_amounts
    assert copy.deepcopy(rule) == rule == pickle.loads(pickle.dumps(rule))


def test_costs_go_with_rates_and_are_compared_between_groups():
    total = gc.cost(MISSED, weight="Amount") + 10 * gc.fpr()
    assert len(total.terms) == 2
    assert str(gc.gap(gc.cost(ALARM), by="sex") <= 1).startswith("gap(cost([[0, 3], [0, 3]])")
    with pytest.raises(TypeError, match="Give both the same weight="):
        gc.fnr(weight="Amount") + gc.cost(ALARM) + gc.fpr()


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (gc.cost([[-2, 1], [4, 0]]), (-2.0, 4.0)),
        (gc.cost([[-2, 1], [4, 0]], weight="a", cap=10), (-20.0, 40.0)),
        (gc.cost([[2, 1], [4, 3]], weight="a", cap=10), (0.0, 40.0)),
        (gc.cost(MISSED, weight="a"), (0.0, np.inf)),
        (-1 * gc.cost(MISSED, weight="a"), (-np.inf, 0.0)),
    ],
)
def test_the_range_is_that_of_amounts_up_to_the_cap(rate, expected):
    assert rate.range == expected


@pytest.mark.parametrize(
    "text",
    [
        "cost([[0, 1], [5, 0]]) <= 0.5",
        "cost([[0, -0.25], [1e-07, 0]], on={sex: F}) <= -0.1",
        "cost([[0, 0], [1, 0]], weight=Amount, cap=3000) + cost([[0, 3], [0, 3]]) <= 2.5",
        "gap(cost([[0, 0], [1, 0]], weight=Amount), by=sex) <= 1",
        "each(cost([[0, 1, 2], [3, 0, 1], [1, 1, 0]]), by=[sex, race]) <= 1",
        "fnr(yes, on={sex: F}, weight=amount, cap=1000) <= 0.1",
        'gap(tpr(weight="Amount in EUR"), by=sex) <= 0.02',
        "precision(weight=amount) >= 0.9",
        "confusion(0, 1, normalize=pred, weight=amount) <= 0.9",
        "log_loss(on=label(1), weight=amount) <= 0.5",
        "churn(to=deployed, weight=amount) <= 0.05",
        "fnr(weight=amount) + fpr(weight=amount) <= 0.3",
    ],
)
def test_text_is_read_and_written_alike(text):
    rule = gc.parse_constraint(text)
    assert gc.parse_constraint(gc.format_constraint(rule)) == paste(rule) == rule
    assert loads(dumps([rule])) == [rule]
    columns = [amount.column for amount in rule.amounts]
    assert all(f"weight={c}" in text or f'weight="{c}"' in text for c in columns)


NUMBERS = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)


@given(st.integers(2, 4).flatmap(lambda k: st.lists(st.lists(NUMBERS, min_size=k, max_size=k),
                                                    min_size=k, max_size=k)))  # fmt: skip
@settings(derandomize=True, deadline=None, max_examples=30)
def test_every_matrix_survives_its_text(matrix):
    if not np.any(matrix):
        return
    rule = gc.cost(matrix, weight="Amount") <= 0.0
    assert gc.parse_constraint(gc.format_constraint(rule)) == rule


def test_an_array_of_amounts_has_no_text_and_is_written_by_its_fields():
    rule = gc.cost(MISSED, weight=[1.0, 2.0]) <= 1
    with pytest.raises(ValueError, match="put them into a column"):
        gc.format_constraint(rule)
    assert loads(dumps([rule])) == [rule]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0, 1]], "square matrix"),
        ([1, 2], "square matrix"),
        ([[0, 0], [0, 0]], "not all zero"),
        ([[0, np.inf], [0, 0]], "finite entries"),
    ],
)
def test_what_is_no_matrix_of_costs_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        gc.cost(matrix)


@pytest.mark.parametrize("text", ["cost([0, 1]) <= 1", "cost(matrix) <= 1", "cost <= 1"])
def test_texts_without_a_matrix_are_refused(text):
    with pytest.raises(ValueError, match="matrix"):
        gc.parse_constraint(text)


def test_the_formula_has_the_matrix_and_the_amount():
    formula = formula_of(gc.cost(MISSED, weight="Amount <b>") <= 1)
    assert formula.count("<mtr>") == 2
    assert "<mi>E</mi>" in formula
    assert "<mtext>Amount &lt;b&gt;</mtext><mo>\N{DOT OPERATOR}</mo>" in formula


RATES = [
    gc.error_rate, gc.accuracy, gc.selection_rate, gc.tpr, gc.recall, gc.fnr, gc.fpr, gc.tnr,
    gc.precision, gc.f1,
]  # fmt: skip


@pytest.mark.parametrize("rate", RATES)
def test_every_rate_takes_a_column_and_a_cap(rate):
    found = rate(on={"sex": "F"}, weight="amount", cap=100)
    assert {term.amount for part in found.rates for _, term in part.terms} == {
        Amount("amount", cap=100.0)
    }
    assert str(found) == f"{rate.__name__}[sex=F, weight=amount, cap=100]"


def test_an_array_has_no_text_and_is_written_by_its_numbers():
    rule = gc.fnr(weight=pd.Series([1.0, 2.5, 0.0])) <= 0.1
    assert str(rule) == "fnr[weight=3 amounts] <= 0.1"
    assert rule.n_rows_held == (3,)
    np.testing.assert_array_equal(rule.amounts[0].to_array(), [1.0, 2.5, 0.0])
    with pytest.raises(ValueError, match="put them into a column"):
        gc.format_constraint(rule)
    assert loads(dumps([rule])) == [rule]


def test_naming_the_positive_class_keeps_the_amounts():
    rule = gc.parse_constraint("fnr(weight=amount) <= 0.1", positive="fraud")
    assert rule == (gc.fnr("fraud", weight="amount") <= 0.1)


def test_rates_of_other_amounts_are_not_combined():
    with pytest.raises(TypeError, match="a row counts for amount in one rate and for one in the"):
        gc.fnr(weight="amount") + gc.fpr()
    with pytest.raises(TypeError, match="Give both the same weight="):
        gc.fnr(weight="amount") / gc.fnr(weight="value")
    assert len((gc.fnr(weight="amount") - gc.fpr(weight="amount")).terms) == 2
    assert gc.fnr(weight="amount") != gc.fnr()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weight": np.ones((2, 2))}, TypeError, "one number for each training row"),
        ({"weight": ["a", "b"]}, TypeError, "one number for each training row"),
        ({"cap": 5}, ValueError, "give weight="),
        ({"weight": "amount", "cap": 0}, ValueError, "above 0; got 0"),
        ({"weight": "amount", "cap": "5"}, TypeError, "a number; got '5'"),
    ],
)
def test_what_is_no_amount_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        gc.fnr(**options)


def test_pair_rates_count_pairs_of_rows():
    with pytest.raises(TypeError, match="weight"):
        gc.auc(weight="amount")
    with pytest.raises(ValueError, match="auc has no weight="):
        gc.parse_constraint("auc(weight=amount) >= 0.8")
