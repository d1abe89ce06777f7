"""Priorities and weights of constraints: values, equality and text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pasted import paste

import gbm_constrained as gc
from gbm_constrained.constraints.checking import check_decisions


def test_constraints_come_first_by_default():
    budget = gc.selection_rate() <= 0.05
    assert (budget.priority, budget.violation_weight) == (1, 1.0)
    assert budget.with_priority(1) == budget
    assert str(budget) == "selection_rate <= 0.05"
    assert repr(budget) == "selection_rate() <= 0.05"


def test_a_priority_is_part_of_the_constraint_and_not_of_its_bound():
    recall = gc.recall() >= 0.3
    second = recall.with_priority(np.int64(2), weight=np.float32(0.5))
    assert (second.priority, second.violation_weight) == (2, 0.5)
    assert type(second.priority) is int
    assert (second.expression, second.sense, second.bound) == (recall.expression, ">=", 0.3)
    assert recall.priority == 1
    assert second != recall
    assert hash(second) == hash(recall.with_priority(2, weight=0.5))
    assert second.with_priority(1) == recall
    assert pickle.loads(pickle.dumps(second)) == second


@given(
    priority=st.integers(1, 9), weight=st.floats(1e-6, 1e6), bound=st.floats(0.0, 1.0),
)  # fmt: skip
def test_text_and_print_are_read_as_the_same_constraint(priority, weight, bound):
    constraint = (gc.gap(gc.tpr(), by="sex") <= bound).with_priority(priority, weight=weight)
    assert gc.parse_constraint(gc.format_constraint(constraint)) == constraint
    assert paste(constraint) == constraint


def test_presets_and_several_constraints_have_priorities_in_text():
    found = gc.parse_constraints(
        "EqualizedOdds(by=sex).with_priority(2, weight=3)\n(fpr <= 0.1) .with_priority(priority=3)"
    )
    assert [c.priority for c in found] == [2, 2, 3]
    assert [c.violation_weight for c in found] == [3.0, 3.0, 1.0]


@pytest.mark.parametrize(
    "text",
    [
        "(fpr <= 0.1).with_prio(2)",
        "(fpr <= 0.1).with_priority()",
        "(fpr <= 0.1).with_priority(2, 3)",
        "(fpr <= 0.1).with_priority(weight=3)",
        "(fpr <= 0.1).with_priority(2, weight=2, weight=3)",
        "(fpr <= 0.1).hard(2)",
    ],
)
def test_other_methods_and_arguments_are_refused_at_their_place(text):
    with pytest.raises(ValueError, match=r"\.with_priority\(2\) or .*weight=0\.5") as refused:
        gc.parse_constraint(text)
    assert "^^^" in str(refused.value)


@pytest.mark.parametrize("text", ["(fpr <= 0.1).with_priority", "fpr.with_priority(2) <= 0.1"])
def test_a_method_without_call_or_constraint_is_refused(text):
    with pytest.raises(ValueError, match=r"\^"):
        gc.parse_constraint(text)


@pytest.mark.parametrize(
    ("priority", "error", "message"),
    [
        (1.5, TypeError, "priority must be a whole number, got 1.5"),
        (True, TypeError, "priority must be a whole number, got True"),
        ("1", TypeError, "priority must be a whole number, got '1'"),
        (0, ValueError, "priority must be at least 1, which comes first; got 0"),
    ],
)
def test_priorities_are_checked(priority, error, message):
    with pytest.raises(error, match=message):
        (gc.fpr() <= 0.1).with_priority(priority)


@pytest.mark.parametrize(
    ("weight", "error"),
    [(0.0, ValueError), (-1.0, ValueError), (np.inf, ValueError), (np.nan, ValueError),
     (10**400, ValueError), (True, TypeError), ("2", TypeError), (None, TypeError)],
)  # fmt: skip
def test_weights_are_checked(weight, error):
    with pytest.raises(error, match="weight must be"):
        (gc.fpr() <= 0.1).with_priority(2, weight=weight)


@pytest.mark.parametrize(
    "constraint",
    [(gc.fpr() <= 0.1).with_priority(2), (gc.fpr() <= 0.1).with_priority(1, weight=2.0)],
)
def test_decisions_that_meet_all_alike_refuse_priorities(constraint):
    with pytest.raises(
        ValueError, match=r"\(fpr\(\) <= 0.1\).with_priority.* has a priority.*leave"
    ):
        check_decisions([gc.fnr() <= 0.1, constraint], "maximize", "of a reason")
