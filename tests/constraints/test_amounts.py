"""Rates that count amounts: how they are made, combined, printed, read and written."""

import numpy as np
import pandas as pd
import pytest
from pasted import paste

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import Amount
from gbm_constrained.fit.model_note import dumps, loads

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


@pytest.mark.parametrize(
    "text",
    [
        "fnr(weight=amount) <= 0.1",
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
    assert rule.amounts[0].column in ("amount", "Amount in EUR")


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
