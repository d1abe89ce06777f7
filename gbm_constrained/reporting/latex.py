"""Constraints as mathematics, in MathML, which browsers draw without scripts or fonts.

Every text that a user chose is escaped.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from html import escape
from typing import Any

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.events import Differs, Misclassified, Predicted, Term
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.grouped import Each, Gap, Grouped, Overall, Ratio
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import (
    ClassifiedBy,
    ClassPosition,
    Column,
    DataSet,
    Label,
    Selector,
)

Classes = Sequence[Hashable] | None
DECISION = '<mover accent="true"><mi>y</mi><mo>^</mo></mover>'
PROBABILITY = '<mover accent="true"><mi>p</mi><mo>^</mo></mover>'
LABEL = "<mi>y</mi>"
MINUS, NOT_EQUAL, IN = "\N{MINUS SIGN}", "\N{NOT EQUAL TO}", "\N{ELEMENT OF}"
SENSES = {"<=": "\N{LESS-THAN OR EQUAL TO}", ">=": "\N{GREATER-THAN OR EQUAL TO}"}
# Of the negative and the positive class, while their names are unknown.
SIGNS = (MINUS, "+")


def legend_of(formulas: Sequence[str]) -> str:
    """Write what the signs of some formulas mean, as HTML that has the very same signs.

    Parameters
    ----------
    formulas : sequence of str
        Formulas as :func:`math_of` writes them.
    """
    meanings = {
        DECISION: "the decision",
        PROBABILITY: "the probability of a class",
        LABEL: "the label",
        _sign(1): "the positive class",
        _sign(0): "the negative class",
        "<mi>g</mi>": "a group",
        "<mi>h</mi>": "another group",
    }
    # Each occurrence of a decision has the letter of the label in it.
    found = [
        sign
        for sign in meanings
        if any(sign in (f.replace(DECISION, "") if sign == LABEL else f) for f in formulas)
    ]
    parts = [f"<math>{sign}</math> is {meanings[sign]}" for sign in found]
    *others, last = parts
    return f"{', '.join(others)} and {last}." if others else f"{last}."


def math_of(constraint: Constraint, classes: Classes = None) -> str:
    """Write a constraint as a ``<math>`` element.

    Parameters
    ----------
    constraint : Constraint
        The constraint.
    classes : sequence of two labels, default=None
        Negative and positive class, where these are known.
    """
    e = constraint.expression
    if isinstance(e, Quotient):
        left = _fraction(_rate(e.numerator, classes), _rate(e.denominator, classes))
    elif isinstance(e, Grouped):
        left = _grouped(e, constraint.sense, classes)
    else:
        assert isinstance(e, Rate)
        left = _rate(e, classes)
    whole = left + _operator(SENSES[constraint.sense]) + _number(constraint.bound)
    return f'<math alttext="{escape(str(constraint))}"><mrow>{whole}</mrow></math>'


def _grouped(e: Grouped, sense: str, classes: Classes) -> str:
    """Write what a comparison of groups bounds."""
    of_g = _rate(e.rate, classes, _group_is(e, "<mi>g</mi>"))
    g, both = "<mi>g</mi>", "<mi>g</mi><mo>,</mo><mi>h</mi>"
    if isinstance(e, Each):
        return _over("max" if sense == "<=" else "min", g) + of_g
    assert isinstance(e, Gap)
    over, other = g, _rate(e.rate, classes)
    if e.reference is None:
        over, other = both, _rate(e.rate, classes, _group_is(e, "<mi>h</mi>"))
    elif not isinstance(e.reference, Overall):
        named = e.reference if isinstance(e.reference, tuple) else (e.reference,)
        other = _rate(e.rate, classes, _group_is(e, _tuple(_text(name) for name in named)))
    if isinstance(e, Ratio):
        return _ratio(e, over, of_g, other)
    several = len(e.rate.terms) > 1 or e.rate.constant
    other = f"<mrow><mo>(</mo>{other}<mo>)</mo></mrow>" if several else other
    difference = of_g + _operator(MINUS) + other
    return f"{_over('max', over)}<mrow><mo>|</mo>{difference}<mo>|</mo></mrow>"


def _ratio(e: Ratio, over: str, of_g: str, other: str) -> str:
    slack = _operator("+") + _number(e.slack) if e.slack else ""
    first, second = _fraction(of_g + slack, other), _fraction(other + slack, of_g)
    if e.reference is None:
        return _over("min", over) + first
    return f"{_over('min', over)}<mrow><mo>{{</mo>{first}<mo>,</mo>{second}<mo>}}</mo></mrow>"


def _group_is(e: Grouped, value: str) -> str:
    names: Iterable[Hashable] = ("sensitive features",) if e.by is None else e.by
    return _tuple(_text(name) for name in names) + _operator("=") + value


def _rate(rate: Rate, classes: Classes, *more: str) -> str:
    """Write a sum of probabilities, all of them given `more`."""
    written = ""
    for a, term in rate.terms:
        sign = MINUS if a < 0 else "+" if written else ""
        written += _operator(sign) if sign else ""
        written += "" if abs(a) == 1.0 else _number(abs(a)) + "<mo>\N{DOT OPERATOR}</mo>"
        written += _term(term, classes, more)
    if rate.constant or not written:
        if written:
            written += _operator(MINUS if rate.constant < 0 else "+")
        written += _number(abs(rate.constant) if written else rate.constant)
    return written


def _term(term: Term, classes: Classes, more: Sequence[str]) -> str:
    """Write a probability, or the mean of a cross-entropy."""
    given = [_selector(s, classes) for s in (*term.rows, *term.on)] + list(more)
    if term.event.is_loss:
        loss = f"{_operator(MINUS)}<mi>log</mi>{PROBABILITY}"
        name, ends, inside = "E", "[]", [f"{loss}<mo>(</mo>{LABEL}<mo>)</mo>"]
    else:
        name, ends = "P", "()"
        inside = [_event(term, classes), *(_selector(s, classes) for s in term.where)]
    condition = f'<mo fence="false" stretchy="false">|</mo>{_list(given)}' if given else ""
    return (
        f"<mi>{name}</mi><mrow><mo>{ends[0]}</mo>{_list(inside)}{condition}<mo>{ends[1]}</mo>"
        f"</mrow>"
    )


def _event(term: Term, classes: Classes) -> str:
    event = term.event
    if isinstance(event, Predicted):
        excluded = isinstance(event.target, Label) and event.target.excluded
        sign = NOT_EQUAL if excluded else "="
        return DECISION + _operator(sign) + _class(event.target, classes)
    if isinstance(event, Differs):
        return DECISION + _operator(NOT_EQUAL) + _decision_of(event.reference_model)
    return DECISION + _operator(NOT_EQUAL if isinstance(event, Misclassified) else "=") + LABEL


def _selector(selector: Selector, classes: Classes) -> str:
    """Write the condition that selects rows."""
    if isinstance(selector, Label):
        sign = NOT_EQUAL if selector.excluded else "="
        return LABEL + _operator(sign) + _class(selector, classes)
    if isinstance(selector, ClassPosition):
        return LABEL + _operator("=") + _class(selector, classes)
    if isinstance(selector, Column):
        return _text(selector.name) + _operator("=") + _text(selector.value)
    if isinstance(selector, ClassifiedBy):
        sign = "=" if selector.is_correct else NOT_EQUAL
        return _decision_of(selector.reference_model) + _operator(sign) + LABEL
    name = selector.name if isinstance(selector, DataSet) else str(selector)
    return f"<mi>x</mi>{_operator(IN)}{_text(name)}"


def _class(target: Label | ClassPosition, classes: Classes) -> str:
    if isinstance(target, Label):
        return _text(target.value)
    if classes is not None and len(classes) == 2:
        return _text(classes[target.index])
    return _sign(target.index)


def _sign(index: int) -> str:
    """Write the negative or the positive class while its name is unknown."""
    return f"<mo form='infix' lspace='0' rspace='0'>{SIGNS[index]}</mo>"


def _decision_of(deployed: ReferenceModel) -> str:
    """Write the decision of another model."""
    return f"<msub>{DECISION}{_text(str(deployed).strip(chr(39)))}</msub>"


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
