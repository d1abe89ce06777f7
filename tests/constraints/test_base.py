"""Bounds, combinations and rows that are refused, and why; priorities."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pasted import paste
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.constraints.base import FACTORIES
from gbm_constrained.constraints.checking import check_decisions
from gbm_constrained.constraints.selectors import Mask
from gbm_constrained.fit.model_note import dumps

MASK = np.array([True, False, True, True, False])
OLD = [0, 1, 1, 0, 1]
F, M = {"sex": "F"}, {"sex": "M"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: gc.fpr() * gc.fnr(), "fpr times fnr is not linear in the predictions"),
        (lambda: gc.fpr() * gc.gap(gc.fnr()), "not linear"),
        (
            lambda: gc.gap(gc.fpr(), by="s") + gc.gap(gc.fnr(), by="r"),
            "by=('s',) and by=('r',) differ, and a sum compares the same groups in each gap",
        ),
        (lambda: gc.gap(gc.fpr()) - gc.gap(gc.fnr()), "gaps have sums with other gaps between"),
        (lambda: gc.gap(gc.fpr()) - 0.1, "gaps have sums with other gaps between"),
        (lambda: gc.fpr() + gc.gap(gc.fnr()), "gaps have sums with other gaps between"),
        (lambda: gc.gap(gc.auc()) * 2, "gap(auc) is about scores, and sums and norms are of gaps"),
        (lambda: gc.ratio(gc.fpr()) * 2, "only plain rates have sums"),
        (lambda: gc.gap_norm([gc.fpr(), 0.1]), "rates= takes rates such as [fpr(), tpr()]"),
        (lambda: gc.gap_norm([gc.fpr]), "gap_norm takes a rate, and 'fpr' is a function"),
        (lambda: gc.fpr() - gc.precision(), "a quotient is not linear"),
        (lambda: 2 * gc.precision(), "a quotient is not linear"),
        (lambda: gc.precision() / gc.f1(), "a quotient is not linear"),
        (lambda: 1 / gc.fpr(), "1 / (fpr) is not linear in the predictions: rates divide rates"),
        (lambda: "a" / gc.fpr(), "unsupported operand"),
        (
            lambda: gc.gap(gc.fpr),
            "gap takes a rate, and 'fpr' is a function that makes one: write fpr()",
        ),
        (lambda: gc.churn(to=LogisticRegression), "LogisticRegression is a class: make one of it"),
        (lambda: gc.dataset(1), "a string; got 1"),
        (lambda: gc.fpr(["a"]), "A label is one value of y: write a rate for each of several"),
        (lambda: gc.fpr(on={"g": ["a", "b"]}), "on= takes one value of column 'g', or a mask of"),
        (
            lambda: gc.gap(gc.fpr(), by=[["g"]]),
            "by= must be the name of a column, or a list of names",
        ),
        (
            lambda: gc.gap(gc.fpr(), reference=[["a"]]),
            "reference= must be a group's value, or a tuple",
        ),
        (lambda: gc.gap(gc.fpr()) >= 0.1, "a gap can only be bounded from above"),
        (lambda: gc.ratio(gc.fpr()) <= 0.8, "a ratio of groups can only be bounded from below"),
        (
            lambda: gc.ratio(gc.precision()),
            "ratio compares a plain rate between groups, got precision",
        ),
        (lambda: gc.each(gc.gap(gc.fpr())), "each compares a plain rate between groups"),
        (lambda: gc.gap("fpr"), "gap takes a rate, and 'fpr' is a text: write fpr()"),
        (lambda: gc.each("tpr", by="sex"), "each takes a rate, and 'tpr' is a text: write tpr()"),
        (lambda: gc.ratio("fpr"), "ratio takes a rate, and 'fpr' is a text: write fpr()"),
        (
            lambda: gc.gap("false alarms"),
            "gap compares a plain rate between groups, such as fpr(), got",
        ),
        (
            lambda: gc.fpr() - gc.fnr,
            "A sum with fpr takes a rate, and 'fnr' is a function that makes",
        ),
        (lambda: gc.fnr + gc.fpr(), "write fnr()"),
        (
            lambda: gc.fpr() + "fnr",
            "A sum with fpr takes a rate, and 'fnr' is a text: write fnr()",
        ),
        (lambda: gc.tpr() / gc.fpr, "A quotient of tpr takes a rate"),
        (lambda: gc.fpr() <= gc.fnr, "A bound of fpr takes a rate, and 'fnr' is a function"),
        (lambda: gc.Constraint(gc.fpr, "<=", 0.1), "A constraint takes a rate"),
        (lambda: gc.Constraint(0.5, "<=", 0.05), "bounds a rate, such as fnr(); got 0.5"),
        (
            lambda: 0.01 <= gc.fnr() <= 0.05,
            "fnr >= 0.01 is a constraint, neither true nor false",
        ),
        (lambda: 0.01 <= gc.fpr() <= 0.05, "A rate between two bounds takes two constraints"),
        (lambda: gc.fpr() <= gc.precision(), "must be a number, got precision"),
        (lambda: gc.gap(gc.fpr()) <= gc.gap(gc.fnr()), "must be a number, got gap"),
        (lambda: gc.fpr() < 0.05, "fpr and 0.05 cannot be compared by < or >: a bound is never"),
        (lambda: gc.gap(gc.fpr()) > 0.05, "a bound is never strict, write <= or >="),
        (lambda: max(gc.fpr(), gc.fnr()), "of two rates is bounded by a constraint for each"),
        (
            lambda: abs(gc.fpr() - gc.fnr()),
            "abs(fpr - fnr) is not linear in the predictions: bound it",
        ),
        (lambda: gc.fpr() + "0.1", "unsupported operand"),
        (lambda: gc.fpr() * True, "unsupported operand"),
        (lambda: gc.error_rate(MASK), "positional"),
        (lambda: gc.churn(to=3), "to= must be a fitted classifier, the name of a column"),
        (lambda: gc.wins(over=[[0, 1]]), "over= must be a fitted classifier"),
    ],
)
def test_what_is_not_linear_is_refused(make, reason):
    with pytest.raises(TypeError) as error:
        make()
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: gc.fpr() / 0, "(fpr) / 0: rates are divided by finite numbers, not by 0"),
        (lambda: gc.fpr() / np.float64(0.0), "not by 0"),
        (lambda: gc.fpr() / np.inf, "not by 0"),
        (lambda: gc.fpr() * np.nan, "(fpr) * nan: only finite numbers multiply rates"),
        (lambda: 10**400 * gc.fpr(), f"(fpr) * 1{36 * '0'}...: only finite numbers multiply"),
        (lambda: gc.fpr() + 10**400, "(fpr) + 1000000"),
        (lambda: 10**400 - gc.fpr(), "only finite numbers are added to rates"),
        (lambda: gc.fpr() - np.inf, "(fpr) - inf: only finite numbers are added to rates"),
        (
            lambda: gc.fpr() <= 10**400,
            "must be a rate in [0, 1]: 5 per cent is written 0.05; got 10",
        ),
        (lambda: gc.log_loss() <= 10**400, "finite mean cross-entropy in nats; got 1000"),
        (
            lambda: gc.ratio(gc.fpr(), slack=10**400),
            "slack must be a non-negative number, got 1000",
        ),
        (
            lambda: gc.losses(to=[0, None]),
            "to= has 1 missing decisions (NaN or None), the first in",
        ),
        (lambda: gc.wins(over=["a", np.nan]), "over= has 1 missing decisions"),
        (lambda: gc.churn(to=[np.nan] * 150), "to= has 150 missing decisions"),
        (lambda: gc.churn(to=pd.array([1, None])), "to= has 1 missing decisions"),
        (lambda: gc.churn(to=np.ma.array([1, 0], mask=[True, False])), "the first in row 0"),
        (lambda: gc.fpr() / (gc.tpr() - gc.tpr()), "divides by zero"),
        (lambda: gc.confusion(0, 1, normalize="pred") <= 10, "90 per cent is written 0.9"),
        (lambda: gc.fpr() / (gc.tpr() - gc.fnr()), "divides by a rate that can be negative"),
        (lambda: gc.fpr() / (0.5 - gc.fnr()), "divides by a rate that can be negative"),
        (lambda: gc.ratio(gc.tpr() - gc.fpr()), "divides by a rate that can be negative"),
        (lambda: gc.ratio(gc.tpr(), slack=-0.1), "slack must be a non-negative number, got -0.1"),
        (
            lambda: gc.ratio(gc.tpr(), slack="0.1"),
            "slack must be a non-negative number, got '0.1'",
        ),
        (lambda: gc.gap(gc.fpr(), by=[]), "by= is empty"),
        (lambda: gc.gap(gc.fpr(), missing="drop"), "missing must be one of ['group', 'raise']"),
        (
            lambda: gc.gap(gc.fpr(), small_groups="no"),
            "small_groups must be one of ['keep', 'hold'",
        ),
        (
            lambda: gc.gap(gc.fpr(), min_group_size=0),
            "min_group_size must be an integer >= 1, got 0",
        ),
        (lambda: gc.gap(gc.fpr(), min_group_size=1.5), "min_group_size must be an integer >= 1"),
        (lambda: gc.gap(gc.fpr(), min_group_size=True), "min_group_size must be an integer >= 1"),
        (lambda: gc.confusion(0, 1, normalize=None), "normalize must be 'true', 'pred' or 'all'"),
        (lambda: gc.fpr() - gc.fpr() <= 0, "does not depend on predictions"),
        (lambda: gc.Constraint(gc.fpr(), "<", 0.1), "must be one of ['<=', '>='], got '<'"),
        (lambda: gc.Constraint(gc.fpr(), "==", 0.1), "must be one of ['<=', '>='], got '=='"),
        (lambda: gc.Constraint(gc.fpr(), "=<", 0.1), "must be one of ['<=', '>='], got '=<'"),
        (lambda: gc.Constraint(gc.gap(gc.fpr()), ">=", 0.1), "must be one of ['<=']"),
        (lambda: gc.Constraint(gc.ratio(gc.fpr()), "<=", 0.1), "must be one of ['>=']"),
        (lambda: gc.log_loss() <= 0, "must be a positive, finite mean cross-entropy in nats"),
        (lambda: gc.log_loss() <= -1, "The bound of log_loss must be a positive, finite mean"),
        (
            lambda: gc.each(gc.log_loss()) <= 0,
            "must be a positive, finite mean cross-entropy in nats",
        ),
        (
            lambda: gc.ratio(gc.fpr()) >= 80,
            "a ratio in [0, 1]: four fifths is written 0.8; got 80.0",
        ),
        (lambda: gc.precision() >= 90, "a fraction in [0, 1]: 90 per cent is written 0.9"),
        (lambda: gc.f1() >= 1.01, "a fraction in [0, 1]"),
        (lambda: gc.fpr(on=F) - gc.fpr(on=M) <= 1.5, "must be in [-1, 1], the values it can have"),
        (lambda: 2 * gc.fpr() + 0.5 <= 0.4, "must be in [0.5, 2.5], the values it can have"),
        (lambda: gc.gap(2 * gc.fpr()) <= 2.1, "must be in [0, 2]"),
        (lambda: gc.gap(gc.tpr() - gc.fpr()) <= 2.1, "must be in [0, 2]"),
        (lambda: gc.wins(over=OLD) / gc.losses(to=OLD) >= -1, "must be not negative"),
        (lambda: (gc.tpr() - gc.fpr()) / gc.tpr() >= -np.inf, "must be finite; got -inf"),
    ],
)
def test_what_has_no_meaning_is_refused(make, reason):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the reason is compared below
        make()
    assert reason in str(error.value)


RATES = [
    gc.fnr(),
    gc.class_error(3, on=MASK),
    gc.gap(gc.fpr(), by="s"),
    gc.each(gc.recall()),
    gc.precision(),
]


@pytest.mark.parametrize("bound", [-0.01, 1.01, 5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_a_bound_outside_the_range(rate, bound):
    with pytest.raises(ValueError, match=r"must be a .* in \[0, 1\]: .* per cent") as error:
        _ = rate <= bound
    assert str(error.value).startswith(f"The bound of {rate} must be a ")
    assert str(error.value).endswith(f"got {float(bound)}.")


@pytest.mark.parametrize("bound", [np.nan, np.inf])
@pytest.mark.parametrize(
    "rate", [gc.log_loss(), gc.fpr() / gc.fnr(), gc.gap(gc.log_loss())], ids=str
)
def test_a_bound_is_finite(rate, bound):
    with pytest.raises(ValueError, match=r"The bound of .* must be"):
        _ = rate <= bound


@pytest.mark.parametrize("bound", [0, 1, np.int64(1), 0.0, 1.0])
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_ends_of_the_range_are_bounds(rate, bound):
    assert (rate <= bound).bound == float(bound)


@pytest.mark.parametrize("bound", ["0.05", None, True, np.True_, 1j, [0.05], np.array([0.05])])
@pytest.mark.parametrize("rate", [*RATES, gc.log_loss()], ids=str)
def test_a_bound_that_is_not_a_number(rate, bound):
    with pytest.raises(TypeError, match="must be a number") as error:
        gc.Constraint(rate, "<=", bound)
    assert f"The bound of {rate} " in str(error.value)
    assert f"got {bound!r}" in str(error.value)
    assert re.search(r"`\w+\(\.\.\.\) <= 0\.05`", str(error.value))


@pytest.mark.parametrize("zero", [-0.0, np.float64(-0.0), np.float32(-0.0)])
def test_a_bound_of_zero_has_no_sign(zero):
    assert str(gc.fpr() <= zero) == "fpr <= 0"
    assert dumps(gc.fpr() <= zero) == dumps(gc.fpr() <= 0)


def test_the_bound_of_a_mean_loss_may_exceed_one():
    assert (gc.log_loss() <= 2.5).bound == 2.5


def test_a_difference_of_mean_losses_may_be_bounded_by_zero():
    """A class may be asked to have the smaller loss; infinity bounds nothing."""
    first, second = gc.log_loss(on=gc.label(0)), gc.log_loss(on=gc.label(1))
    assert (first <= second) == (first - second <= 0)
    with pytest.raises(ValueError, match=r"must be finite and in \[-inf, inf\].*got inf"):
        _ = first - second <= np.inf


@pytest.mark.parametrize("name", FACTORIES)
def test_a_function_whose_brackets_are_missing_is_refused_with_them(name):
    factory = FACTORIES[name]
    assert factory.call.startswith(f"{name}(")
    written = re.escape(factory.call)
    for refuse, meant in {
        lambda: factory <= 0.02: f"{name} <= 0.02.*write {written} <= 0.02",
        lambda: np.float64(0.02) >= factory: f"write {written} <= 0.02",
        lambda: factory > 1: f"write {written} >= 1",
        lambda: factory + gc.fpr: rf"write {written} \+ fpr\(\)",
        lambda: 2 * factory: rf"write 2 \* {written}",
        lambda: -factory: f"write -{written}",
        lambda: factory["sex"]: rf"write {name}\(on=",
        lambda: gc.ConstrainedXGBClassifier(constraints=[factory]).fit([[0.0]], [0]): written,
    }.items():
        with pytest.raises(TypeError, match=meant):
            refuse()
    assert pickle.loads(pickle.dumps(factory)) is copy.deepcopy(factory) is factory
    assert inspect.signature(factory) == inspect.signature(factory.func)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(hnp.arrays(bool, st.integers(0, 70)))
def test_packing_a_mask_loses_nothing(rows):
    mask = Mask.from_array(rows)
    assert np.array_equal(mask.to_array(), rows)
    assert mask == Mask.from_array(rows.tolist() if rows.size else rows)
    assert mask != Mask.from_array(np.append(rows, False))


@pytest.mark.parametrize(
    ("on", "dtype", "shape"),
    [
        (np.array([0, 1, 1]), "int64", "(3,)"),
        (np.array([0.0, 1.0]), "float64", "(2,)"),
        (MASK[:, None], "bool", "(5, 1)"),
        ([True, 1], "int64", "(2,)"),
        ([0, 2, 3], "int64", "(3,)"),
    ],
)
@pytest.mark.parametrize("rate", [gc.error_rate, gc.log_loss, gc.fnr, gc.fpr])
def test_rows_that_are_no_mask(rate, on, dtype, shape):
    """Row numbers and 0/1 columns are refused; the message lists what ``on=`` takes."""
    with pytest.raises(
        TypeError, match=r"on= must be a label\(\.\.\.\), .* boolean mask"
    ) as error:
        rate(on=on)
    assert f"dtype {dtype} and shape {shape}" in str(error.value)


@pytest.mark.parametrize("on", ["SIRA", 1, True, ("sex", "F")])
def test_a_name_or_number_for_rows_is_refused(on):
    """Without label(...) or its column a value selects nothing; the message has it."""
    first = on[0] if isinstance(on, tuple) else on
    with pytest.raises(TypeError, match=rf"on= must be a label\(\.\.\.\), .* got {first!r}\.$"):
        gc.error_rate(on=on)


def test_a_mask_is_accepted():
    assert isinstance(gc.error_rate(on=MASK), gc.Rate)


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
