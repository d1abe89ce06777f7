"""Expected costs: how they are made, added up, printed, read and written."""

import copy
import pickle

import numpy as np
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
    ],
)
def test_text_is_read_and_written_alike(text):
    rule = gc.parse_constraint(text)
    assert gc.parse_constraint(gc.format_constraint(rule)) == paste(rule) == rule
    assert loads(dumps([rule])) == [rule]


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
