"""Formulas of what rates count, and of the conditions that select rows, in MathML."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import singledispatch
from typing import Any

from gbm_constrained.constraints.calibration import BinResidual
from gbm_constrained.constraints.costs import DecisionCost
from gbm_constrained.constraints.events import (
    Correct,
    CrossEntropy,
    Differs,
    Misclassified,
    Predicted,
)
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.row_means import Above, Covered, Prediction, Residual, RowLoss
from gbm_constrained.constraints.selectors import ClassifiedBy, ClassPosition, Column, Label
from gbm_constrained.reporting.mathml_parts import (
    MINUS,
    write_number,
    write_operator,
    write_text,
)

Classes = Sequence[Hashable] | None
DECISION = '<mover accent="true"><mi>y</mi><mo>^</mo></mover>'
PROBABILITY = '<mover accent="true"><mi>p</mi><mo>^</mo></mover>'
LABEL = "<mi>y</mi>"
BIN = "<mi>b</mi>"
PREDICTION = "<mi>f</mi>"  # A number.
RESIDUAL = f"{LABEL}<mo>\N{MINUS SIGN}</mo>{PREDICTION}"
HUBER, PINBALL, POISSON = "<mi>H</mi>", "<mi>\N{GREEK SMALL LETTER RHO}</mi>", "<mi>D</mi>"
ROW = "<mi>x</mi>"
NOT_EQUAL, IN = "\N{NOT EQUAL TO}", "\N{ELEMENT OF}"
SENSES = {"<=": "\N{LESS-THAN OR EQUAL TO}", ">=": "\N{GREATER-THAN OR EQUAL TO}"}
SIGNS = (MINUS, "+")  # Signs of the negative and the positive class, where no name is known.
EVENTS = {
    Misclassified: f"{DECISION}<mo>{NOT_EQUAL}</mo>{LABEL}",
    Correct: f"{DECISION}<mo>=</mo>{LABEL}",
    CrossEntropy: f"<mo>{MINUS}</mo><mi>log</mi>{PROBABILITY}<mo>(</mo>{LABEL}<mo>)</mo>",
}


@singledispatch
def write_event(event: Any, classes: Classes) -> str:
    """Write what a rate counts."""
    return EVENTS[type(event)]


@write_event.register
def _(event: Predicted, classes: Classes) -> str:
    return DECISION + _equals_class(event.target, classes)


@write_event.register
def _(event: BinResidual, classes: Classes) -> str:
    inside = f"<msub><mn>1</mn><mrow>{PROBABILITY}{write_operator(IN)}{BIN}</mrow></msub>"
    difference = f"{LABEL}{write_operator(MINUS)}{PROBABILITY}"
    return f"{inside}<mrow><mo>(</mo>{difference}<mo>)</mo></mrow>"


@write_event.register
def _(event: Differs, classes: Classes) -> str:
    return DECISION + write_operator(NOT_EQUAL) + _decision_of(event.reference_model)


@write_event.register
def _(event: DecisionCost, classes: Classes) -> str:
    rows = ["".join(f"<mtd>{write_number(entry)}</mtd>" for entry in row) for row in event.matrix]
    table = f"<mtable>{''.join(f'<mtr>{row}</mtr>' for row in rows)}</mtable>"
    return f"<msub><mrow><mo>(</mo>{table}<mo>)</mo></mrow><mrow>{LABEL}{DECISION}</mrow></msub>"


@write_event.register
def _(event: RowLoss, classes: Classes) -> str:
    if event.loss == "poisson":
        return f"{POISSON}<mo>(</mo>{LABEL}<mo>,</mo>{PREDICTION}<mo>)</mo>"
    bracketed = f"<mrow><mo>(</mo>{RESIDUAL}<mo>)</mo></mrow>"
    if event.loss == "squared":
        return f"<msup>{bracketed}<mn>2</mn></msup>"
    if event.loss == "absolute":
        return f"<mrow><mo>|</mo>{RESIDUAL}<mo>|</mo></mrow>"
    assert event.parameter is not None
    sign = HUBER if event.loss == "huber" else PINBALL
    return f"<msub>{sign}{write_number(event.parameter)}</msub>{bracketed}"


@write_event.register
def _(event: Prediction, classes: Classes) -> str:
    return PREDICTION


@write_event.register
def _(event: Residual, classes: Classes) -> str:
    return RESIDUAL


@write_event.register
def _(event: Above, classes: Classes) -> str:
    return f"{PREDICTION}{write_operator('&gt;')}{write_number(event.threshold)}"


@write_event.register
def _(event: Covered, classes: Classes) -> str:
    return f"{LABEL}{write_operator(SENSES['<='])}{PREDICTION}"


@singledispatch
def write_selector(selector: Any, classes: Classes) -> str:
    """Write the condition that selects rows."""
    return f"{ROW}{write_operator(IN)}{write_text(selector)}"


@write_selector.register(Label)
@write_selector.register(ClassPosition)
def _(selector: Label | ClassPosition, classes: Classes) -> str:
    return LABEL + _equals_class(selector, classes)


@write_selector.register
def _(selector: Column, classes: Classes) -> str:
    return write_text(selector.name) + write_operator("=") + write_text(selector.value)


@write_selector.register
def _(selector: ClassifiedBy, classes: Classes) -> str:
    sign = write_operator("=" if selector.is_correct else NOT_EQUAL)
    return _decision_of(selector.reference_model) + sign + LABEL


@singledispatch
def _equals_class(target: Any, classes: Classes) -> str:
    """Write that something is a class, or any other one."""
    raise TypeError(f"There is no formula of a {type(target).__name__}.")


@_equals_class.register
def _(target: Label, classes: Classes) -> str:
    return write_operator(NOT_EQUAL if target.excluded else "=") + write_text(target.value)


@_equals_class.register
def _(target: ClassPosition, classes: Classes) -> str:
    if classes is not None and len(classes) == 2:
        return write_operator("=") + write_text(classes[target.index])
    return write_operator("=") + write_class_sign(target.index)


def write_class_sign(index: int) -> str:
    """Write the negative or the positive class while its name is unknown."""
    return f"<mo form='infix' lspace='0' rspace='0'>{SIGNS[index]}</mo>"


def _decision_of(model: ReferenceModel) -> str:
    """Write the decision of another model."""
    return f"<msub>{DECISION}{write_text(str(model).strip(chr(39)))}</msub>"
