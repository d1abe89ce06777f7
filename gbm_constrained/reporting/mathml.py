"""Constraints as formulas in MathML, which browsers draw without scripts and without fonts.

Every text that a user chose is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import singledispatch
from html import escape
from typing import Any

from gbm_constrained.constraints.base import Constraint, Quotient, Rate
from gbm_constrained.constraints.comparisons import Each, Gap, GapNorm, Grouped, Paired, Ratio
from gbm_constrained.constraints.presets import CoverageDifference, CoverageDivergence, OfShares
from gbm_constrained.constraints.rates import (
    Above,
    BinResidual,
    CalibrationError,
    CalibrationGap,
    Covered,
    DecisionCost,
    EachCalibrationError,
    Prediction,
    Residual,
    RowFunction,
    RowLoss,
)
from gbm_constrained.constraints.selectors import (
    ClassifiedBy,
    ClassPosition,
    Column,
    Correct,
    CrossEntropy,
    Differs,
    Label,
    Misclassified,
    Predicted,
    RankedAbove,
    ReferenceModel,
    Term,
)
from gbm_constrained.metrics.base import MetricValue

MINUS = "\N{MINUS SIGN}"


def write_over(name: str, index: str) -> str:
    """Write an operator with an index below it."""
    return f"<munder><mo movablelimits='false'>{name}</mo><mrow>{index}</mrow></munder>"


def write_fraction(above: str, below: str) -> str:
    """Write a fraction."""
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def write_list(parts: Sequence[str]) -> str:
    """Write parts between commas."""
    return "<mo>,</mo>".join(f"<mrow>{part}</mrow>" for part in parts)


def write_tuple(parts: Iterable[str]) -> str:
    """Write parts in brackets, and one part without."""
    written = list(parts)
    return written[0] if len(written) == 1 else f"<mo>(</mo>{write_list(written)}<mo>)</mo>"


def write_operator(sign: str) -> str:
    """Write an operator."""
    return f"<mo>{sign}</mo>"


def write_number(value: float) -> str:
    """Write a number."""
    return f"<mn>{value:g}</mn>".replace("-", MINUS)


def write_text(value: Any) -> str:
    """Write a text of the user, escaped."""
    return f"<mtext>{escape(str(value))}</mtext>"


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


Member = tuple[str, str]  # Columns of groups and the group, as written.
OTHER_ROW = "<msup><mi>x</mi><mo>\N{PRIME}</mo></msup>"
SCORE = "<mi>s</mi>"
GROUP, OTHER_GROUP = "<mi>g</mi>", "<mi>h</mi>"
CLASS = "<mi>k</mi>"
TARGET = "<msub><mi>\N{GREEK SMALL LETTER TAU}</mi><mi>k</mi></msub>"
SUM = "\N{N-ARY SUMMATION}"


def legend_of(formulas: Sequence[str]) -> str:
    """Write the meanings of the signs of formulas as HTML."""
    meanings = {
        DECISION: "the decision",
        PROBABILITY: "the probability of a class",
        PREDICTION: "the prediction",
        LABEL: "the target" if any(PREDICTION in f for f in formulas) else "the label",
        write_class_sign(1): "the positive class",
        write_class_sign(0): "the negative class",
        GROUP: "a group",
        OTHER_GROUP: "another group",
        TARGET: "the target of a class",
        SCORE: "the score",
        BIN: "a bin of probabilities of the positive class",
        HUBER: "Huber's loss",
        PINBALL: "the pinball loss",
        POISSON: "the Poisson deviance",
        OTHER_ROW: "another row, and half of the ties of scores count",
    }
    # Each occurrence of a decision has the letter of the label in it.
    found = [
        sign
        for sign in meanings
        if any(sign in (f.replace(DECISION, "") if sign == LABEL else f) for f in formulas)
    ]
    if not found:  # The formula of a metric is its name.
        return ""
    *others, last = [f"<math>{sign}</math> is {meanings[sign]}" for sign in found]
    return f"{', '.join(others)} and {last}." if others else f"{last}."


def formula_of(constraint: Constraint, classes: Classes = None) -> str:
    """Write a constraint as a ``<math>`` element; `classes` are the two labels where known."""
    left = _expression(constraint.expression, constraint.sense, classes)
    whole = left + write_operator(SENSES[constraint.sense]) + write_number(constraint.bound)
    return f'<math alttext="{escape(str(constraint))}"><mrow>{whole}</mrow></math>'


@singledispatch
def _expression(e: Any, sense: str, classes: Classes) -> str:
    """Write what a constraint bounds."""
    raise TypeError(f"There is no formula of a {type(e).__name__}.")


@_expression.register
def _(e: Rate, sense: str, classes: Classes) -> str:
    return _rate(e, classes)


@_expression.register
def _(e: Quotient, sense: str, classes: Classes) -> str:
    return _value(e, classes)


@_expression.register
def _(e: Each, sense: str, classes: Classes) -> str:
    return write_over("max" if sense == "<=" else "min", GROUP) + _value(
        e.rate, classes, _member(e, GROUP)
    )


@_expression.register
def _(e: Gap, sense: str, classes: Classes) -> str:
    return _gap(e, e.rate, classes)


@_expression.register
def _(e: GapNorm, sense: str, classes: Classes) -> str:
    gaps = [
        ("" if weight == 1.0 else write_number(weight) + "<mo>\N{DOT OPERATOR}</mo>")
        + _gap(e, of, classes)
        for weight, of in e.parts
    ]
    if e.p == 1.0:
        return write_operator("+").join(gaps)
    order = "<mi>\N{INFINITY}</mi>" if math.isinf(e.p) else write_number(e.p)
    bar = "<mo>\N{DOUBLE VERTICAL LINE}</mo>"
    return f"<msub><mrow>{bar}{write_list(gaps)}{bar}</mrow>{order}</msub>"


def _gap(e: Paired, of: Rate | Quotient, classes: Classes) -> str:
    """Write the largest difference of a rate or a quotient between groups."""
    over, other = _reference(e, of, classes)
    if isinstance(of, Rate) and (len(of.terms) > 1 or of.constant):
        other = f"<mrow><mo>(</mo>{other}<mo>)</mo></mrow>"
    difference = _value(of, classes, _member(e, GROUP)) + write_operator(MINUS) + other
    return f"{write_over('max', over)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


@_expression.register
def _(e: Ratio, sense: str, classes: Classes) -> str:
    over, other = _reference(e, e.rate, classes)
    of_g = _value(e.rate, classes, _member(e, GROUP))
    slack = write_operator("+") + write_number(e.slack) if e.slack else ""
    first, second = write_fraction(of_g + slack, other), write_fraction(other + slack, of_g)
    if e.reference is None:
        return write_over("min", over) + first
    return f"{write_over('min', over)}<mrow><mo>{{</mo>{first}<mo>,</mo>{second}<mo>}}</mo></mrow>"


@_expression.register
def _(e: CalibrationError, sense: str, classes: Classes) -> str:
    return _calibration_error(e, classes)


@_expression.register
def _(e: EachCalibrationError, sense: str, classes: Classes) -> str:
    return write_over("max", GROUP) + _calibration_error(e.of, classes, _member(e, GROUP))


@_expression.register
def _(e: CalibrationGap, sense: str, classes: Classes) -> str:
    over, members = GROUP, [_member(e, GROUP), None]
    if e.reference_group is not None:
        members[1] = _member(e, write_tuple(map(write_text, e.reference_group)))
    elif not e.compares_with_overall:
        over, members[1] = f"{GROUP}<mo>,</mo>{OTHER_GROUP}", _member(e, OTHER_GROUP)
    errors = (_calibration_error(e.of, classes, member) for member in members)
    difference = write_operator(MINUS).join(errors)
    return f"{write_over('max', over)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


def _calibration_error(e: CalibrationError, classes: Classes, member: Member | None = None) -> str:
    """Write the sum over bins of sizes of mean residuals, the first of which shows its form."""
    residual = _term(e.rates[0].terms[0][1], classes, member)
    return f"{write_over(SUM, BIN)}<mrow><mo>|</mo>{residual}<mo>|</mo></mrow>"


@_expression.register
def _(e: MetricValue, sense: str, classes: Classes) -> str:
    return write_text(e)


@_expression.register
def _(e: CoverageDifference, sense: str, classes: Classes) -> str:
    difference = _share_of_predictions() + write_operator(MINUS) + _target(e)
    return f"{write_over('max', CLASS)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


@_expression.register
def _(e: CoverageDivergence, sense: str, classes: Classes) -> str:
    ratio = write_fraction(_target(e), _share_of_predictions())
    return f"{write_over(SUM, CLASS)}{_target(e)}<mi>log</mi>{ratio}"


def _share_of_predictions() -> str:
    """Write the probability that a class is predicted."""
    return f"<mi>P</mi><mrow><mo>(</mo>{DECISION}{write_operator('=')}{CLASS}<mo>)</mo></mrow>"


def _target(e: OfShares) -> str:
    """Write the target of a class: a number, or the probability of its label."""
    if e.to is not None:
        return TARGET
    return f"<mi>P</mi><mrow><mo>(</mo>{LABEL}{write_operator('=')}{CLASS}<mo>)</mo></mrow>"


def _reference(e: Paired, of: Rate | Quotient, classes: Classes) -> tuple[str, str]:
    """Write the groups that a comparison goes over, and the rate that groups are compared with."""
    if e.compares_with_overall:
        return GROUP, _value(of, classes)
    if e.reference_group is None:
        over = f"{GROUP}<mo>,</mo>{OTHER_GROUP}"
        return over, _value(of, classes, _member(e, OTHER_GROUP))
    return GROUP, _value(of, classes, _member(e, write_tuple(map(write_text, e.reference_group))))


def _member(e: Grouped, group: str) -> Member:
    """Write the columns of the groups, and the name of one group."""
    names: Iterable[Hashable] = ("sensitive features",) if e.by is None else e.by
    return write_tuple(map(write_text, names)), group


def _value(of: Rate | Quotient, classes: Classes, member: Member | None = None) -> str:
    """Write a rate or a quotient of rates, of one group if it is given."""
    if isinstance(of, Quotient):
        return write_fraction(*(_rate(rate, classes, member) for rate in of.rates))
    return _rate(of, classes, member)


def _rate(rate: Rate, classes: Classes, member: Member | None = None) -> str:
    """Write a sum of probabilities, all of them of one group if it is given."""
    written = ""
    for a, term in rate.terms:
        sign = MINUS if a < 0 else "+" if written else ""
        written += write_operator(sign) if sign else ""
        written += "" if abs(a) == 1.0 else write_number(abs(a)) + "<mo>\N{DOT OPERATOR}</mo>"
        written += _term(term, classes, member)
    if rate.constant or not written:
        if written:
            written += write_operator(MINUS if rate.constant < 0 else "+")
        written += write_number(abs(rate.constant) if written else rate.constant)
    return written


def _term(term: Term, classes: Classes, member: Member | None) -> str:
    """Write a probability, or the mean of a cross-entropy or a cost."""
    if isinstance(term.event, RankedAbove):
        return _pair_rate(term, term.event, classes, member)
    given = [write_selector(s, classes) for s in (*term.rows, *term.on)]
    if member is not None:
        given.append(write_operator("=").join(member))
    event = term.event
    is_mean = event.is_loss or event.is_cost or event.is_residual
    is_mean |= isinstance(event, RowFunction) and not event.is_step
    name, ends = ("E", "[]") if is_mean else ("P", "()")
    sign = f"<mi>{name}</mi>"
    inside = [write_event(event, classes), *(write_selector(s, classes) for s in term.where)]
    if term.amount is not None and event.is_cost:
        inside[0] = f"{write_text(term.amount)}<mo>\N{DOT OPERATOR}</mo>{inside[0]}"
    elif term.amount is not None:
        sign = f"<msub>{sign}{write_text(term.amount)}</msub>"
    condition = f'<mo fence="false" stretchy="false">|</mo>{write_list(given)}' if given else ""
    written = write_list(inside) + condition
    return f"{sign}<mrow><mo>{ends[0]}</mo>{written}<mo>{ends[1]}</mo></mrow>"


def _pair_rate(term: Term, event: RankedAbove, classes: Classes, member: Member | None) -> str:
    """Write the probability that the score of a row is above that of another."""
    first, second = (
        [write_selector(s, classes) for s in base] for base in (term.base, term.other_base)
    )
    if member is not None:
        outside = [write_operator(NOT_EQUAL).join(member)] if event.background == "others" else []
        inside = [write_operator("=").join(member)]
        first += outside if event.group == "second" else inside
        second += outside if event.group == "first" else inside
    # Selectors of masks name the row.
    sides = (ROW, first), (OTHER_ROW, [s.replace(ROW, OTHER_ROW) for s in second])
    given = [write_operator(":").join((row, write_list(found))) for row, found in sides if found]
    score = SCORE
    if isinstance(event.target, Label):
        score = f"<msub>{SCORE}{write_text(event.target.value)}</msub>"
    scores = [f"{score}<mo>(</mo>{row}<mo>)</mo>" for row in (ROW, OTHER_ROW)]
    condition = write_operator(";").join(given)
    bar = '<mo fence="false" stretchy="false">|</mo>' if given else ""
    above = write_operator("&gt;").join(scores)
    return f"<mi>P</mi><mrow><mo>(</mo>{above}{bar}{condition}<mo>)</mo></mrow>"
