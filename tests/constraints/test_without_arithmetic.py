"""Operators of quotients, comparisons and metrics, which have no sums and multiples."""

import operator

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.metrics import g_mean

SUMS = [operator.add, operator.sub]
NUMBERS = [2, 2.0, np.float64(2.0), np.array([1.0, 2.0])]
CASES = [(operate, other) for operate in SUMS for other in (*NUMBERS, gc.recall())]
CASES += [(operate, n) for operate in (operator.mul, operator.truediv) for n in NUMBERS]
REMEDIES = {
    gc.precision(): "Bound each by itself",
    gc.ratio(gc.tpr(), by="sex"): "Bound each by itself",
    g_mean(): "give a function of the confusion matrix",
}


@pytest.mark.parametrize("value", REMEDIES, ids=str)
@pytest.mark.parametrize(("operate", "other"), CASES)
def test_operators_are_refused_on_both_sides(value, operate, other):
    for left, right in ((value, other), (other, value)):
        with pytest.raises(TypeError, match=f"cannot be combined: .*{REMEDIES[value]}"):
            operate(left, right)
