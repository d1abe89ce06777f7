"""Rows that ``on=`` takes, and what is refused there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import Mask

MASK = np.array([True, False, True, True, False])


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
