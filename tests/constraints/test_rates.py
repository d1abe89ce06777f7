"""Rates and bounds: how they print, compare, travel and refuse."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import BaseEstimator, clone

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.rates import class_error, error_rate, fnr, fpr, log_loss
from gbm_constrained.constraints.selectors import Mask, label
from gbm_constrained.training.note_json import dumps

MASK = np.array([True, False, True, True, False])
RATES = {
    "error_rate": error_rate(),
    "error_rate[y='SIRA']": error_rate(on=label("SIRA")),
    "error_rate[mask of 3 rows]": error_rate(on=MASK),
    "class_error('SIRA')": class_error("SIRA"),
    "class_error(3)": class_error(3),
    "class_error(3)[mask of 3 rows]": class_error(3, on=MASK),
    "fpr": fpr(),
    "fpr[mask of 3 rows]": fpr(on=MASK),
    "fnr": fnr(),
    "fnr[mask of 3 rows]": fnr(on=MASK),
    "log_loss": log_loss(),
    "log_loss[y=1]": log_loss(on=label(1)),
    "log_loss[mask of 3 rows]": log_loss(on=MASK),
}


class Holder(BaseEstimator):
    """What scikit-learn clones: an estimator that stores its constraints."""

    def __init__(self, constraints=()):
        self.constraints = constraints


def by_pickle(x):
    return pickle.loads(pickle.dumps(x))


def by_clone(x):
    return clone(Holder([x])).constraints[0]


@pytest.mark.parametrize("text", RATES)
def test_a_rate_and_its_bound_print_as_they_are_written(text):
    assert str(RATES[text]) == repr(RATES[text]) == text
    assert str(RATES[text] <= 0.05) == repr(RATES[text] <= 0.05) == f"{text} <= 0.05"


@pytest.mark.parametrize("text", RATES)
@pytest.mark.parametrize("travel", [by_pickle, copy.deepcopy, copy.copy, by_clone])
def test_a_constraint_survives_a_copy(text, travel):
    """Pickle, deepcopy and sklearn.clone return an equal constraint with an equal hash."""
    constraint = RATES[text] <= 0.25
    twin = travel(constraint)
    assert twin == constraint
    assert hash(twin) == hash(constraint)
    assert str(twin) == str(constraint)


def test_all_rates_are_different_and_hashable():
    assert len(set(RATES.values())) == len(RATES)
    assert len({r <= 0.5 for r in RATES.values()}) == len(RATES)


def test_equality_is_by_content():
    assert (fnr(on=MASK) <= 0.1) == (fnr(on=MASK.tolist()) <= 0.1)
    assert (fnr() <= 0.1) != (fnr() <= 0.2)
    assert fnr(on=MASK) != fnr(on=~MASK)
    assert fnr() != fpr()


def test_constraints_and_rates_cannot_be_changed():
    constraint = fnr() <= 0.05
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.bound = 0.5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.expression.constant = 0.5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.terms[0].name = "other"  # type: ignore[misc]


def test_a_rate_keeps_its_own_copy_of_the_mask():
    mask = MASK.copy()
    rate = error_rate(on=mask)
    mask[:] = False
    assert rate == error_rate(on=MASK)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(hnp.arrays(bool, st.integers(0, 70)))
def test_packing_a_mask_loses_nothing(rows):
    mask = Mask.from_array(rows)
    assert np.array_equal(mask.to_array(), rows)
    assert mask == Mask.from_array(rows.tolist() if rows.size else rows)
    assert mask != Mask.from_array(np.append(rows, False))


@pytest.mark.parametrize("number", [float, np.float64, np.float32])
def test_both_directions_of_the_inequality_are_the_same_constraint(number):
    """``0.25 >= fnr()`` and ``fnr() <= 0.25``, for Python and numpy numbers."""
    forward, backward = fnr() <= number(0.25), number(0.25) >= fnr()
    assert isinstance(forward, Constraint)
    assert isinstance(backward, Constraint)
    assert forward == backward == Constraint(fnr(), "<=", 0.25)
    assert type(forward.bound) is float


@pytest.mark.parametrize("bound", [0, 1, np.int64(1), 0.0, 1.0])
def test_the_ends_of_the_range_of_a_rate_are_bounds(bound):
    assert (fnr() <= bound).bound == float(bound)


@pytest.mark.parametrize("zero", [-0.0, np.float64(-0.0), np.float32(-0.0)])
def test_a_bound_of_zero_has_no_sign(zero):
    assert str(fpr() <= zero) == "fpr <= 0"
    assert dumps(fpr() <= zero) == dumps(fpr() <= 0)


@pytest.mark.parametrize("number", [float, np.float64, np.float32])
def test_both_directions_of_a_lower_bound_are_the_same_constraint(number):
    forward, backward = fnr() >= number(0.25), number(0.25) <= fnr()
    assert forward == backward == Constraint(fnr(), ">=", 0.25)
    assert forward != (fnr() <= 0.25)
    assert str(forward) == "fnr >= 0.25"
    assert type(forward.bound) is float


@pytest.mark.parametrize("compare", [operator.gt, operator.lt])
def test_strict_inequalities_are_refused(compare):
    with pytest.raises(TypeError, match="a bound is never strict"):
        compare(fnr(), 0.05)
    for sense in ("<", "==", "=<"):
        with pytest.raises(ValueError, match=f"must be one of .*, got '{sense}'"):
            Constraint(fnr(), sense, 0.05)


def test_two_bounds_in_one_comparison_are_refused():
    """Python would keep the second alone."""
    with pytest.raises(TypeError, match="takes two constraints") as error:
        _ = 0.01 <= fnr() <= 0.05
    assert str(error.value).startswith("fnr >= 0.01 is a constraint, neither true nor false")


def test_only_rates_are_bounded():
    with pytest.raises(TypeError, match=r"bounds a rate, such as fnr\(\); got 0.5"):
        Constraint(0.5, "<=", 0.05)  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [-0.01, 1.01, 5, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("text", ["fnr", "class_error(3)[mask of 3 rows]"])
def test_the_bound_of_an_error_rate_outside_its_range(text, bound):
    with pytest.raises(ValueError, match="must be a rate in") as error:
        _ = RATES[text] <= bound
    message = str(error.value)
    assert message.startswith(f"The bound of {text} ")
    assert message.endswith(f"got {float(bound)}.")
    assert "written 0.05" in message


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf])
def test_the_bound_of_a_mean_loss_outside_its_range(bound):
    with pytest.raises(ValueError, match="positive, finite mean cross-entropy") as error:
        _ = log_loss() <= bound
    assert "The bound of log_loss " in str(error.value)
    assert f"got {bound}" in str(error.value)


def test_the_bound_of_a_mean_loss_may_exceed_one():
    assert (log_loss() <= 2.5).bound == 2.5


def test_a_difference_of_mean_losses_may_be_bounded_by_zero():
    """A class may be asked to have the smaller loss; infinity bounds nothing."""
    difference = log_loss(on=label(0)) - log_loss(on=label(1))
    assert (log_loss(on=label(0)) <= log_loss(on=label(1))) == (difference <= 0)
    with pytest.raises(ValueError, match=r"must be finite and in \[-inf, inf\].*got inf"):
        _ = difference <= np.inf


@pytest.mark.parametrize("bound", ["0.05", None, True, np.True_, 1j, [0.05], np.array([0.05])])
@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("fnr", "fnr(...) <= 0.05"),
        ("class_error('SIRA')", "class_error(...) <= 0.05"),
        ("fnr[mask of 3 rows]", "fnr(...) <= 0.05"),
        ("log_loss[y=1]", "log_loss(...) <= 0.05"),
    ],
)
def test_a_bound_that_is_not_a_number(text, written, bound):
    """The message names the rate, the value and how to write it."""
    with pytest.raises(TypeError, match="must be a number") as error:
        Constraint(RATES[text], "<=", bound)
    message = str(error.value)
    assert f"The bound of {text} " in message
    assert f"got {bound!r}" in message
    assert f"`{written}`" in message


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
@pytest.mark.parametrize("rate", [error_rate, log_loss, fnr, fpr])
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
        error_rate(on=on)


def test_rows_are_a_keyword():
    with pytest.raises(TypeError, match="positional"):
        error_rate(MASK)  # type: ignore[misc]
    assert isinstance(error_rate(on=MASK), Rate)
