"""What the compiler refuses."""

from __future__ import annotations

import numpy as np
import pytest
from random_rows import draw, measure

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints


def test_classes_are_found_by_their_label_in_y():
    """Strings, integers and booleans, whatever their order among the classes."""
    y, margin, weight, _ = draw(3, seed=10)
    by_index = measure([gc.class_error(k) <= 0.1 for k in range(3)], y, margin, weight)
    names = np.array(["BOMBAY", "CALI", "SIRA"])
    by_name = measure([gc.class_error(k) <= 0.1 for k in names], y, margin, weight, names)
    assert by_name.tolist() == by_index.tolist()
    numbers = np.array([-5, 3, 40])
    by_number = measure(
        [gc.error_rate(on=gc.label(k)) <= 0.1 for k in (-5, 3, 40)], y, margin, weight, numbers
    )
    assert by_number.tolist() == by_index.tolist()


def refuse(constraint, y, classes=None, weight=None):
    rows = Rows(y, np.unique(y) if classes is None else classes, weight)
    with pytest.raises(ValueError, match=r"drop the constraint|not in y|binary") as error:
        compile_constraints([constraint], rows)
    return str(error.value)


def test_an_unknown_class_is_named_with_the_known_ones():
    names = np.array(["BOMBAY", "CALI", "SIRA"])
    message = refuse(gc.class_error("SIRRA") <= 0.1, np.array([0, 1, 2]), names)
    assert message.startswith(
        "class_error('SIRRA') <= 0.1: it names class 'SIRRA', which is not in y"
    )
    assert "['BOMBAY', 'CALI', 'SIRA']" in message
    message = refuse(gc.log_loss(on=gc.label(7)) <= 1, np.array([0, 1]))
    assert message.startswith("log_loss[y=7] <= 1: it names class 7")


@pytest.mark.parametrize("rate", [gc.fpr, gc.fnr])
def test_binary_rates_of_three_classes_point_to_class_error(rate):
    message = refuse(rate() <= 0.1, np.array([0, 1, 2]))
    assert message.startswith(
        f"{rate.__name__} <= 0.1: it is a rate of binary classifiers, but y has 3 classes"
    )
    assert (
        "name one of them as label= of the rate, as in tpr(label=k), or as "
        "positive= of all rates, or use class_error(k)" in message
    )


def test_a_constraint_on_no_row():
    y = np.array([0, 1, 1])
    for constraint in (gc.error_rate(on=np.zeros(3, bool)) <= 0.1, gc.fpr(on=y == 1) <= 0.1):
        message = refuse(constraint, y)
        assert message.startswith(f"{constraint} is taken over no rows at all")
        assert "drop the constraint" in message


def test_a_constraint_on_rows_without_weight():
    message = refuse(gc.fnr() <= 0.1, np.array([0, 1, 1]), weight=np.array([1.0, 0.0, 0.0]))
    assert message.startswith("fnr <= 0.1 is taken over rows whose total weight is zero")
    assert "positive sample_weight" in message


def test_a_mask_of_another_length():
    constraint = gc.error_rate(on=np.ones(4, bool)) <= 0.1
    with pytest.raises(ValueError, match="a mask of 4 rows, but the training data have 3 rows"):
        compile_constraints([constraint], Rows(np.array([0, 1, 1]), np.arange(2)))
