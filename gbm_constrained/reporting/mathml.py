"""Constraints as formulas in MathML, which browsers draw without scripts and without fonts.

Every text that a user chose is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from html import escape
from typing import Any

from gbm_constrained.constraints import rates, selectors
from gbm_constrained.constraints.base import CalibrationError, Constraint, Quotient, Rate
from gbm_constrained.constraints.comparisons import Each, Gap, GapNorm, Grouped, Paired, Ratio
from gbm_constrained.constraints.presets import CoverageDifference, CoverageDivergence
from gbm_constrained.metrics.base import MetricValue


def _over(name: str, index: str) -> str:
    """Write an operator with an index below it."""
    return f"<munder><mo movablelimits='false'>{name}</mo><mrow>{index}</mrow></munder>"


def _fraction(above: str, below: str) -> str:
    """Write a fraction."""
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def _between(ends: str, inside: str) -> str:
    """Write something between two brackets or bars."""
    return f"<mrow><mo>{ends[0]}</mo>{inside}<mo>{ends[1]}</mo></mrow>"


def _list(parts: Iterable[str]) -> str:
    """Write parts between commas."""
    return "<mo>,</mo>".join(f"<mrow>{part}</mrow>" for part in parts)


def _texts(values: Sequence[Any]) -> str:
    """Write texts of the user in brackets, and one text without."""
    written = [_text(value) for value in values]
    return written[0] if len(written) == 1 else f"<mo>(</mo>{_list(written)}<mo>)</mo>"


def _operator(sign: str) -> str:
    """Write an operator."""
    return f"<mo>{sign}</mo>"


def _number(value: float) -> str:
    """Write a number."""
    return f"<mn>{value:g}</mn>".replace("-", "\N{MINUS SIGN}")


def _text(value: Any) -> str:
    """Write a text of the user, escaped."""
    return f"<mtext>{escape(str(value))}</mtext>"


Member = tuple[str, str]  # Columns of groups and the group, as written.
DECISION = '<mover accent="true"><mi>y</mi><mo>^</mo></mover>'
PROBABILITY = '<mover accent="true"><mi>p</mi><mo>^</mo></mover>'
LABEL = "<mi>y</mi>"
BIN = "<mi>b</mi>"
PREDICTION = "<mi>f</mi>"  # A number.
HUBER, PINBALL, POISSON = "<mi>H</mi>", "<mi>\N{GREEK SMALL LETTER RHO}</mi>", "<mi>D</mi>"
ROW, OTHER_ROW = "<mi>x</mi>", "<msup><mi>x</mi><mo>\N{PRIME}</mo></msup>"
SCORE = "<mi>s</mi>"
GROUP, OTHER_GROUP = "<mi>g</mi>", "<mi>h</mi>"
CLASS = "<mi>k</mi>"
TARGET = "<msub><mi>\N{GREEK SMALL LETTER TAU}</mi><mi>k</mi></msub>"
SUM = "\N{N-ARY SUMMATION}"
MINUS, TIMES = _operator("\N{MINUS SIGN}"), _operator("\N{DOT OPERATOR}")
EQUAL, NOT_EQUAL = _operator("="), _operator("\N{NOT EQUAL TO}")
ABOVE, IN = _operator("&gt;"), _operator("\N{ELEMENT OF}")
GIVEN = '<mo fence="false" stretchy="false">|</mo>'
SENSES = {
    "<=": _operator("\N{LESS-THAN OR EQUAL TO}"),
    ">=": _operator("\N{GREATER-THAN OR EQUAL TO}"),
}
# The negative and the positive class, where no name is known.
CLASS_SIGNS = [f"<mo form='infix' lspace='0' rspace='0'>{sign}</mo>" for sign in "\N{MINUS SIGN}+"]
RESIDUAL = f"{LABEL}{MINUS}{PREDICTION}"
EVENTS: dict[type[selectors.Event], str] = {
    selectors.Misclassified: f"{DECISION}{NOT_EQUAL}{LABEL}",
    selectors.Correct: f"{DECISION}{EQUAL}{LABEL}",
    selectors.CrossEntropy: f"{MINUS}<mi>log</mi>{PROBABILITY}<mo>(</mo>{LABEL}<mo>)</mo>",
    selectors.BinResidual: f"<msub><mn>1</mn><mrow>{PROBABILITY}{IN}{BIN}</mrow></msub>"
    + _between("()", f"{LABEL}{MINUS}{PROBABILITY}"),
    rates.Prediction: PREDICTION,
    rates.Residual: RESIDUAL,
    rates.Covered: f"{LABEL}{SENSES['<=']}{PREDICTION}",
}
# Formula of a loss, or the sign that its parameter stands under.
LOSSES = {
    "huber": HUBER,
    "pinball": PINBALL,
    "squared": f"<msup>{_between('()', RESIDUAL)}<mn>2</mn></msup>",
    "absolute": _between("||", RESIDUAL),
    "poisson": f"{POISSON}<mo>(</mo>{LABEL}<mo>,</mo>{PREDICTION}<mo>)</mo>",
}


def legend_of(formulas: Sequence[str]) -> str:
    """Write the meanings of the signs of formulas as HTML."""
    meanings = {
        DECISION: "the decision",
        PROBABILITY: "the probability of a class",
        PREDICTION: "the prediction",
        LABEL: "the target" if any(PREDICTION in f for f in formulas) else "the label",
        CLASS_SIGNS[1]: "the positive class",
        CLASS_SIGNS[0]: "the negative class",
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


def formula_of(constraint: Constraint, classes: Sequence[Hashable] | None = None) -> str:
    """Write a constraint as a ``<math>`` element; `classes` are the two labels where known."""
    left = _write_expression(constraint.expression, constraint.sense)
    whole = left + SENSES[constraint.sense] + _number(constraint.bound)
    if classes is not None and len(classes) == 2:
        for sign, value in zip(CLASS_SIGNS, classes, strict=True):
            whole = whole.replace(sign, _text(value))
    return f'<math alttext="{escape(str(constraint))}"><mrow>{whole}</mrow></math>'


def _write_expression(e: Any, sense: str) -> str:
    """Write what a constraint bounds."""
    match e:
        case Rate() | Quotient() | CalibrationError():
            return _write_value(e)
        case Each():
            worst = _over("max" if sense == "<=" else "min", GROUP)
            return worst + _write_value(e.rate, _member(e, GROUP))
        case Ratio():
            return _write_ratio(e)
        case Gap():
            return _write_gap(e, e.rate)
        case GapNorm():
            return _write_norm(e)
        case MetricValue():
            return _text(e)
        case CoverageDifference() | CoverageDivergence():
            share = f"<mi>P</mi>{_between('()', DECISION + EQUAL + CLASS)}"
            target = f"<mi>P</mi>{_between('()', LABEL + EQUAL + CLASS)}"
            target = target if e.to is None else TARGET
            if isinstance(e, CoverageDifference):
                return _over("max", CLASS) + _between("||", share + MINUS + target)
            return f"{_over(SUM, CLASS)}{target}<mi>log</mi>{_fraction(target, share)}"
    raise TypeError(f"There is no formula of a {type(e).__name__}.")


def _write_norm(e: GapNorm) -> str:
    """Write a sum of gaps, or another norm of them."""
    gaps = [
        ("" if weight == 1.0 else _number(weight) + TIMES) + _write_gap(e, of)
        for weight, of in e.parts
    ]
    if e.p == 1.0:
        return _operator("+").join(gaps)
    order = "<mi>\N{INFINITY}</mi>" if math.isinf(e.p) else _number(e.p)
    bar = "\N{DOUBLE VERTICAL LINE}"
    return f"<msub>{_between(bar * 2, _list(gaps))}{order}</msub>"


def _write_gap(e: Paired, of: Rate | Quotient | CalibrationError) -> str:
    """Write the largest difference of a value between groups."""
    over, other = _write_reference(e, of)
    if isinstance(of, Rate) and (len(of.terms) > 1 or of.constant):
        other = _between("()", other)
    difference = _write_value(of, _member(e, GROUP)) + MINUS + other
    return _over("max", over) + _between("||", difference)


def _write_ratio(e: Ratio) -> str:
    """Write the smallest ratio of a rate between groups."""
    over, other = _write_reference(e, e.rate)
    of_g = _write_value(e.rate, _member(e, GROUP))
    slack = _operator("+") + _number(e.slack) if e.slack else ""
    first, second = _fraction(of_g + slack, other), _fraction(other + slack, of_g)
    if e.reference is None:
        return _over("min", over) + first
    return _over("min", over) + _between("{}", f"{first}<mo>,</mo>{second}")


def _write_reference(e: Paired, of: Rate | Quotient | CalibrationError) -> tuple[str, str]:
    """Write the groups that a comparison goes over, and what each is compared with."""
    if e.compares_with_overall:
        return GROUP, _write_value(of)
    if e.reference_group is None:
        over = f"{GROUP}<mo>,</mo>{OTHER_GROUP}"
        return over, _write_value(of, _member(e, OTHER_GROUP))
    return GROUP, _write_value(of, _member(e, _texts(e.reference_group)))


def _write_value(of: Rate | Quotient | CalibrationError, member: Member | None = None) -> str:
    """Write a sum of means, or a function of such, of one group if it is given."""
    if isinstance(of, Quotient):
        return _fraction(*(_write_value(rate, member) for rate in of.rates))
    if isinstance(of, CalibrationError):  # The first residual shows the form of all.
        residual = _write_term(of.rates[0].terms[0][1], member)
        return _over(SUM, BIN) + _between("||", residual)
    written = ""
    for a, term in of.terms:
        written += MINUS if a < 0 else _operator("+") if written else ""
        written += "" if abs(a) == 1.0 else _number(abs(a)) + TIMES
        written += _write_term(term, member)
    if not written:
        return _number(of.constant)
    if of.constant:
        written += (MINUS if of.constant < 0 else _operator("+")) + _number(abs(of.constant))
    return written


def _write_term(term: selectors.Term, member: Member | None) -> str:
    """Write a probability, or the mean of a cross-entropy or a cost."""
    event = term.event
    if isinstance(event, selectors.RankedAbove):
        return _write_pair_rate(term, event, member)
    given = [_write_selector(s) for s in (*term.rows, *term.on)]
    if member is not None:
        given.append(EQUAL.join(member))
    is_mean = event.kind != "decision" and not getattr(event, "is_step", False)
    name, ends = ("E", "[]") if is_mean else ("P", "()")
    sign = f"<mi>{name}</mi>"
    inside = [_write_event(event), *map(_write_selector, term.where)]
    if term.amount is not None and event.kind == "cost":
        inside[0] = f"{_text(term.amount)}{TIMES}{inside[0]}"
    elif term.amount is not None:
        sign = f"<msub>{sign}{_text(term.amount)}</msub>"
    condition = GIVEN + _list(given) if given else ""
    return sign + _between(ends, _list(inside) + condition)


def _write_pair_rate(
    term: selectors.Term, event: selectors.RankedAbove, member: Member | None
) -> str:
    """Write the probability that the score of a row is above that of another."""
    first, second = ([_write_selector(s) for s in base] for base in (term.base, term.other_base))
    if member is not None:
        outside = [NOT_EQUAL.join(member)] if event.background == "others" else []
        inside = [EQUAL.join(member)]
        first += outside if event.group == "second" else inside
        second += outside if event.group == "first" else inside
    # Selectors of masks name the row.
    sides = (ROW, first), (OTHER_ROW, [s.replace(ROW, OTHER_ROW) for s in second])
    given = [f"{row}{_operator(':')}{_list(found)}" for row, found in sides if found]
    score = SCORE
    if isinstance(event.target, selectors.Label):
        score = f"<msub>{SCORE}{_text(event.target.value)}</msub>"
    above = ABOVE.join(f"{score}<mo>(</mo>{row}<mo>)</mo>" for row in (ROW, OTHER_ROW))
    condition = GIVEN + _operator(";").join(given) if given else ""
    return "<mi>P</mi>" + _between("()", above + condition)


def _write_event(event: selectors.Event) -> str:
    """Write what a rate counts."""
    match event:
        case selectors.Predicted():
            return DECISION + _write_equals_class(event.target)
        case selectors.Differs():
            return DECISION + NOT_EQUAL + _decision_of(event.reference_model)
        case rates.Above():
            return PREDICTION + ABOVE + _number(event.threshold)
        case rates.DecisionCost():
            rows = [
                f"<mtr>{''.join(f'<mtd>{_number(entry)}</mtd>' for entry in row)}</mtr>"
                for row in event.matrix
            ]
            table = _between("()", f"<mtable>{''.join(rows)}</mtable>")
            return f"<msub>{table}<mrow>{LABEL}{DECISION}</mrow></msub>"
        case rates.RowLoss(parameter=float(parameter)):
            sign = LOSSES[event.loss] + _number(parameter)
            return f"<msub>{sign}</msub>{_between('()', RESIDUAL)}"
        case rates.RowLoss():
            return LOSSES[event.loss]
    return EVENTS[type(event)]


def _write_selector(selector: selectors.Selector) -> str:
    """Write the condition that selects rows."""
    match selector:
        case selectors.Label() | selectors.ClassPosition():
            return LABEL + _write_equals_class(selector)
        case selectors.Column():
            return _text(selector.name) + EQUAL + _text(selector.value)
        case selectors.ClassifiedBy():
            sign = EQUAL if selector.is_correct else NOT_EQUAL
            return _decision_of(selector.reference_model) + sign + LABEL
    return ROW + IN + _text(selector)


def _write_equals_class(target: selectors.Label | selectors.ClassPosition) -> str:
    """Write that something is a class, or any other one."""
    if isinstance(target, selectors.Label):
        return (NOT_EQUAL if target.excluded else EQUAL) + _text(target.value)
    return EQUAL + CLASS_SIGNS[target.index]


def _decision_of(model: selectors.ReferenceModel) -> str:
    """Write the decision of another model."""
    return f"<msub>{DECISION}{_text(str(model).strip(chr(39)))}</msub>"


def _member(e: Grouped, group: str) -> Member:
    """Write the columns of the groups, and the name of one group."""
    return _texts(("sensitive features",) if e.by is None else e.by), group
