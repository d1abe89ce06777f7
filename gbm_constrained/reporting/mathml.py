"""Constraints as formulas in MathML, which browsers draw without scripts and without fonts.

Every text that a user chose is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from functools import singledispatch
from html import escape
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.coverage import CoverageDifference, CoverageDivergence, OfShares
from gbm_constrained.constraints.events import (
    Correct,
    CrossEntropy,
    Differs,
    Misclassified,
    Predicted,
    RankedAbove,
    Term,
)
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.gaps import Gap, GapNorm, Ratio
from gbm_constrained.constraints.grouped import Each, Grouped, Paired
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import (
    ClassifiedBy,
    ClassPosition,
    Column,
    Label,
)
from gbm_constrained.metrics.values import MetricValue

Classes = Sequence[Hashable] | None
Member = tuple[str, str]  # Columns of groups and the group, as written.
DECISION = '<mover accent="true"><mi>y</mi><mo>^</mo></mover>'
PROBABILITY = '<mover accent="true"><mi>p</mi><mo>^</mo></mover>'
LABEL = "<mi>y</mi>"
ROW, OTHER_ROW = "<mi>x</mi>", "<msup><mi>x</mi><mo>\N{PRIME}</mo></msup>"
SCORE = "<mi>s</mi>"
GROUP, OTHER_GROUP = "<mi>g</mi>", "<mi>h</mi>"
CLASS = "<mi>k</mi>"
TARGET = "<msub><mi>\N{GREEK SMALL LETTER TAU}</mi><mi>k</mi></msub>"
MINUS, NOT_EQUAL, IN = "\N{MINUS SIGN}", "\N{NOT EQUAL TO}", "\N{ELEMENT OF}"
SUM = "\N{N-ARY SUMMATION}"
SENSES = {"<=": "\N{LESS-THAN OR EQUAL TO}", ">=": "\N{GREATER-THAN OR EQUAL TO}"}
SIGNS = (MINUS, "+")  # Signs of the negative and the positive class, where no name is known.
EVENTS = {
    Misclassified: f"{DECISION}<mo>{NOT_EQUAL}</mo>{LABEL}",
    Correct: f"{DECISION}<mo>=</mo>{LABEL}",
    CrossEntropy: f"<mo>{MINUS}</mo><mi>log</mi>{PROBABILITY}<mo>(</mo>{LABEL}<mo>)</mo>",
}


def legend_of(formulas: Sequence[str]) -> str:
    """Write the meanings of the signs of formulas as HTML."""
    meanings = {
        DECISION: "the decision",
        PROBABILITY: "the probability of a class",
        LABEL: "the label",
        _class_sign(1): "the positive class",
        _class_sign(0): "the negative class",
        GROUP: "a group",
        OTHER_GROUP: "another group",
        TARGET: "the target of a class",
        SCORE: "the score",
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
    whole = left + _operator(SENSES[constraint.sense]) + _number(constraint.bound)
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
    return _over("max" if sense == "<=" else "min", GROUP) + _value(
        e.rate, classes, _member(e, GROUP)
    )


@_expression.register
def _(e: Gap, sense: str, classes: Classes) -> str:
    return _gap(e, e.rate, classes)


@_expression.register
def _(e: GapNorm, sense: str, classes: Classes) -> str:
    gaps = [
        ("" if weight == 1.0 else _number(weight) + "<mo>\N{DOT OPERATOR}</mo>")
        + _gap(e, of, classes)
        for weight, of in e.parts
    ]
    if e.p == 1.0:
        return _operator("+").join(gaps)
    order = "<mi>\N{INFINITY}</mi>" if math.isinf(e.p) else _number(e.p)
    bar = "<mo>\N{DOUBLE VERTICAL LINE}</mo>"
    return f"<msub><mrow>{bar}{_list(gaps)}{bar}</mrow>{order}</msub>"


def _gap(e: Paired, of: Rate | Quotient, classes: Classes) -> str:
    """Write the largest difference of a rate or a quotient between groups."""
    over, other = _reference(e, of, classes)
    if isinstance(of, Rate) and (len(of.terms) > 1 or of.constant):
        other = f"<mrow><mo>(</mo>{other}<mo>)</mo></mrow>"
    difference = _value(of, classes, _member(e, GROUP)) + _operator(MINUS) + other
    return f"{_over('max', over)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


@_expression.register
def _(e: Ratio, sense: str, classes: Classes) -> str:
    over, other = _reference(e, e.rate, classes)
    of_g = _value(e.rate, classes, _member(e, GROUP))
    slack = _operator("+") + _number(e.slack) if e.slack else ""
    first, second = _fraction(of_g + slack, other), _fraction(other + slack, of_g)
    if e.reference is None:
        return _over("min", over) + first
    return f"{_over('min', over)}<mrow><mo>{{</mo>{first}<mo>,</mo>{second}<mo>}}</mo></mrow>"


@_expression.register
def _(e: MetricValue, sense: str, classes: Classes) -> str:
    return _text(e)


@_expression.register
def _(e: CoverageDifference, sense: str, classes: Classes) -> str:
    difference = _share_of_predictions() + _operator(MINUS) + _target(e)
    return f"{_over('max', CLASS)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


@_expression.register
def _(e: CoverageDivergence, sense: str, classes: Classes) -> str:
    ratio = _fraction(_target(e), _share_of_predictions())
    return f"{_over(SUM, CLASS)}{_target(e)}<mi>log</mi>{ratio}"


def _share_of_predictions() -> str:
    """Write the probability that a class is predicted."""
    return f"<mi>P</mi><mrow><mo>(</mo>{DECISION}{_operator('=')}{CLASS}<mo>)</mo></mrow>"


def _target(e: OfShares) -> str:
    """Write the target of a class: a number, or the probability of its label."""
    if e.to is not None:
        return TARGET
    return f"<mi>P</mi><mrow><mo>(</mo>{LABEL}{_operator('=')}{CLASS}<mo>)</mo></mrow>"


def _reference(e: Paired, of: Rate | Quotient, classes: Classes) -> tuple[str, str]:
    """Write the groups that a comparison goes over, and the rate that groups are compared with."""
    if e.compares_with_overall:
        return GROUP, _value(of, classes)
    if e.reference_group is None:
        over = f"{GROUP}<mo>,</mo>{OTHER_GROUP}"
        return over, _value(of, classes, _member(e, OTHER_GROUP))
    return GROUP, _value(of, classes, _member(e, _tuple(map(_text, e.reference_group))))


def _member(e: Grouped, group: str) -> Member:
    """Write the columns of the groups, and the name of one group."""
    names: Iterable[Hashable] = ("sensitive features",) if e.by is None else e.by
    return _tuple(map(_text, names)), group


def _value(of: Rate | Quotient, classes: Classes, member: Member | None = None) -> str:
    """Write a rate or a quotient of rates, of one group if it is given."""
    if isinstance(of, Quotient):
        return _fraction(*(_rate(rate, classes, member) for rate in of.rates))
    return _rate(of, classes, member)


def _rate(rate: Rate, classes: Classes, member: Member | None = None) -> str:
    """Write a sum of probabilities, all of them of one group if it is given."""
    written = ""
    for a, term in rate.terms:
        sign = MINUS if a < 0 else "+" if written else ""
        written += _operator(sign) if sign else ""
        written += "" if abs(a) == 1.0 else _number(abs(a)) + "<mo>\N{DOT OPERATOR}</mo>"
        written += _term(term, classes, member)
    if rate.constant or not written:
        if written:
            written += _operator(MINUS if rate.constant < 0 else "+")
        written += _number(abs(rate.constant) if written else rate.constant)
    return written


def _term(term: Term, classes: Classes, member: Member | None) -> str:
    """Write a probability, or the mean of a cross-entropy."""
    if isinstance(term.event, RankedAbove):
        return _pair_rate(term, term.event, classes, member)
    given = [_selector(s, classes) for s in (*term.rows, *term.on)]
    if member is not None:
        given.append(_operator("=").join(member))
    name, ends = ("E", "[]") if term.event.is_loss else ("P", "()")
    sign = f"<mi>{name}</mi>"
    if term.amount is not None:
        sign = f"<msub>{sign}{_text(term.amount)}</msub>"
    inside = [_event(term.event, classes), *(_selector(s, classes) for s in term.where)]
    condition = f'<mo fence="false" stretchy="false">|</mo>{_list(given)}' if given else ""
    return f"{sign}<mrow><mo>{ends[0]}</mo>{_list(inside)}{condition}<mo>{ends[1]}</mo></mrow>"


def _pair_rate(term: Term, event: RankedAbove, classes: Classes, member: Member | None) -> str:
    """Write the probability that the score of a row is above that of another."""
    first, second = (
        [_selector(s, classes) for s in base] for base in (term.base, term.other_base)
    )
    if member is not None:
        outside = [_operator(NOT_EQUAL).join(member)] if event.background == "others" else []
        inside = [_operator("=").join(member)]
        first += outside if event.group == "second" else inside
        second += outside if event.group == "first" else inside
    # Selectors of masks name the row.
    sides = (ROW, first), (OTHER_ROW, [s.replace(ROW, OTHER_ROW) for s in second])
    given = [_operator(":").join((row, _list(found))) for row, found in sides if found]
    score = SCORE
    if isinstance(event.target, Label):
        score = f"<msub>{SCORE}{_text(event.target.value)}</msub>"
    scores = [f"{score}<mo>(</mo>{row}<mo>)</mo>" for row in (ROW, OTHER_ROW)]
    condition = _operator(";").join(given)
    bar = '<mo fence="false" stretchy="false">|</mo>' if given else ""
    above = _operator("&gt;").join(scores)
    return f"<mi>P</mi><mrow><mo>(</mo>{above}{bar}{condition}<mo>)</mo></mrow>"


@singledispatch
def _event(event: Any, classes: Classes) -> str:
    """Write what a rate counts."""
    return EVENTS[type(event)]


@_event.register
def _(event: Predicted, classes: Classes) -> str:
    return DECISION + _equals_class(event.target, classes)


@_event.register
def _(event: Differs, classes: Classes) -> str:
    return DECISION + _operator(NOT_EQUAL) + _decision_of(event.reference_model)


@singledispatch
def _selector(selector: Any, classes: Classes) -> str:
    """Write the condition that selects rows."""
    return f"{ROW}{_operator(IN)}{_text(selector)}"


@_selector.register(Label)
@_selector.register(ClassPosition)
def _(selector: Label | ClassPosition, classes: Classes) -> str:
    return LABEL + _equals_class(selector, classes)


@_selector.register
def _(selector: Column, classes: Classes) -> str:
    return _text(selector.name) + _operator("=") + _text(selector.value)


@_selector.register
def _(selector: ClassifiedBy, classes: Classes) -> str:
    sign = _operator("=" if selector.is_correct else NOT_EQUAL)
    return _decision_of(selector.reference_model) + sign + LABEL


@singledispatch
def _equals_class(target: Any, classes: Classes) -> str:
    """Write that something is a class, or any other one."""
    raise TypeError(f"There is no formula of a {type(target).__name__}.")


@_equals_class.register
def _(target: Label, classes: Classes) -> str:
    return _operator(NOT_EQUAL if target.excluded else "=") + _text(target.value)


@_equals_class.register
def _(target: ClassPosition, classes: Classes) -> str:
    if classes is not None and len(classes) == 2:
        return _operator("=") + _text(classes[target.index])
    return _operator("=") + _class_sign(target.index)


def _class_sign(index: int) -> str:
    """Write the negative or the positive class while its name is unknown."""
    return f"<mo form='infix' lspace='0' rspace='0'>{SIGNS[index]}</mo>"


def _decision_of(model: ReferenceModel) -> str:
    """Write the decision of another model."""
    return f"<msub>{DECISION}{_text(str(model).strip(chr(39)))}</msub>"


def _over(name: str, index: str) -> str:
    return f"<munder><mo movablelimits='false'>{name}</mo><mrow>{index}</mrow></munder>"


def _fraction(above: str, below: str) -> str:
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def _list(parts: Sequence[str]) -> str:
    return "<mo>,</mo>".join(f"<mrow>{part}</mrow>" for part in parts)


def _tuple(parts: Iterable[str]) -> str:
    written = list(parts)
    return written[0] if len(written) == 1 else f"<mo>(</mo>{_list(written)}<mo>)</mo>"


def _operator(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def _number(value: float) -> str:
    return f"<mn>{value:g}</mn>".replace("-", MINUS)


def _text(value: Any) -> str:
    return f"<mtext>{escape(str(value))}</mtext>"
