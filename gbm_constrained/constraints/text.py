r"""Constraints as text: of files of settings, command lines and saved models.

The text is Python with these freedoms: a rate without arguments needs no parentheses, columns and
labels that are single words need no quotes, even words that Python reserves, ``True`` may be
written ``true``, and constraints are separated by ``;`` or new lines. Arguments with names come
last, and only a comma makes a tuple of one, as in Python. Quoted texts know few escapes: those of
quotes and backslashes, ``\n``, ``\t``, ``\r``, ``\uXXXX`` and ``\UXXXXXXXX``.

>>> from gbm_constrained import format_constraint, gap, parse_constraint, tpr
>>> parse_constraint("gap(tpr, by=sex) <= 0.02") == (gap(tpr(), by="sex") <= 0.02)
True
>>> format_constraint(gap(tpr("yes"), by=["sex", "race"]) <= 0.02)
"gap(tpr('yes'), by=['sex', 'race']) <= 0.02"
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.base import (
    Constraint,
    NotTextError,
    Sense,
    write_bound,
    write_expression,
    write_number,
)
from gbm_constrained.constraints.calibration import (
    CalibrationError,
    CalibrationGap,
    EachCalibrationError,
)
from gbm_constrained.constraints.costs import DecisionCost
from gbm_constrained.constraints.coverage import OfShares
from gbm_constrained.constraints.events import Event, RankedAbove, Term
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.gaps import Gap, GapNorm, Ratio
from gbm_constrained.constraints.grouped import Each, Grouped, Paired, overall
from gbm_constrained.constraints.priorities import write_priority
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.row_means import Above, RowFunction, RowLoss
from gbm_constrained.constraints.selectors import (
    MISSING,
    Column,
    DataSet,
    Label,
    Selector,
)
from gbm_constrained.constraints.text_mask import make_error
from gbm_constrained.constraints.text_reader import (
    GROUP_OPTIONS,
    RATES,
    Reader,
)
from gbm_constrained.constraints.text_values import (
    write_call,
    write_value,
)

__all__ = ["format_constraint", "parse_constraint", "parse_constraints"]


def parse_constraint(
    text: str,
    *,
    labels: Mapping[Any, Hashable] | None = None,
    positive: Hashable | None = None,
) -> Constraint:
    """Read one constraint, such as ``"gap(tpr, by=sex) <= 0.02"``.

    Parameters
    ----------
    text : str
        The constraint, as it would be written in Python: rates without arguments need no
        parentheses, and columns and labels that are single words no quotes. ``5`` is a number,
        ``"5"`` a text.
    labels : mapping, default=None
        Labels that the text may name, and the label of each in the constraint. By default any
        label is taken as it stands.
    positive : hashable, default=None
        Label, as it stands in the text, of the positive class of rates that name none. The
        default is the last of two sorted labels, as in Python.

    Returns
    -------
    Constraint

    Raises
    ------
    TypeError
        If `text` is not a string.
    ValueError
        If `text` is not one constraint; the message shows the place and a remedy.

    See Also
    --------
    parse_constraints : For several constraints, and presets that make several.
    format_constraint : The way back.

    Examples
    --------
    >>> from gbm_constrained import parse_constraint
    >>> parse_constraint("fpr(on={sex: F}) - fpr(on={sex: M}) <= 0.02")
    fpr(on={'sex': 'F'}) - fpr(on={'sex': 'M'}) <= 0.02
    """
    found = Reader(text, labels, positive).read_constraints()
    if len(found) != 1:
        message = f"this makes {len(found)} constraints: parse_constraints reads several"
        raise make_error(text, 0, len(text), message)
    return found[0]


def parse_constraints(
    text: str,
    *,
    labels: Mapping[Any, Hashable] | None = None,
    positive: Hashable | None = None,
) -> list[Constraint]:
    """Read constraints that are separated by semicolons or stand on lines of their own.

    Parameters
    ----------
    text : str
        The constraints; see :func:`parse_constraint`. Presets such as ``EqualizedOdds(by=sex)``
        may make several.
    labels, positive : default=None
        As in :func:`parse_constraint`.

    Returns
    -------
    list of Constraint
        At least one.

    Raises
    ------
    TypeError
        If `text` is not a string.
    ValueError
        If `text` is not made of constraints; the message shows the place and a remedy.
    """
    return Reader(text, labels, positive).read_constraints()


def format_constraint(constraint: Constraint) -> str:
    """Write a constraint as text that :func:`parse_constraint` reads as the same constraint.

    Parameters
    ----------
    constraint : Constraint
        The constraint.

    Returns
    -------
    str
        One line. Numbers have all their digits.

    Raises
    ------
    TypeError
        If `constraint` is something else.
    ValueError
        If the constraint has no text: it holds a mask of rows, a model, decisions, or a label
        that is neither text, number nor bool.
    """
    if not isinstance(constraint, Constraint):
        raise TypeError(f"constraint must be a constraint such as fpr() <= 0.05: {constraint!r}.")
    try:
        bound = write_bound(constraint.expression, constraint.sense, constraint.bound)
        text = write_priority(constraint, bound, write_number(constraint.violation_weight))
        if parse_constraint(text) != constraint:
            raise NotTextError(
                "it was not made by the functions of gbm_constrained.constraints.rates alone"
            )
    except ValueError as reason:
        raise ValueError(f"{constraint} cannot be written as text: {reason}.") from None
    return text


@write_bound.register
def _(shares: OfShares, sense: Sense, bound: float) -> str:
    named = [target for target in shares.to or () if isinstance(target, tuple)]
    pairs = ", ".join(f"{write_value(k)}: {write_number(share)}" for k, share in named)
    numbers = ", ".join(write_number(t) for t in shares.to or () if isinstance(t, float))
    to = f"{{{pairs}}}" if named else f"[{numbers}]" if numbers else None
    return write_call(shares.preset, within=write_number(bound), to=to)


@write_expression.register
def _(rate: Rate) -> str:
    text, constant = "", rate.constant
    if constant > 0 and rate.terms and rate.terms[0][0] < 0:  # Write 1 - fpr, not -fpr + 1.
        text, constant = write_number(constant), 0.0
    for a, term in rate.terms:
        factor = "" if abs(a) == 1.0 else f"{write_number(abs(a))} * "
        sign = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
        text += f"{sign}{factor}{_write_term(term)}"
    if constant:
        text += f"{' - ' if constant < 0 else ' + '}{write_number(abs(constant))}"
    return text or "0"


@write_expression.register
def _(quotient: Quotient) -> str:
    if not quotient.is_written_out:
        name = re.split(r"[(\[]", quotient.name)[0]
        term = quotient.numerator.terms[0][1]
        normalize = write_value("pred") if name == "confusion" else None
        return write_call(
            name,
            *_write_labels(name, term),
            normalize=normalize,
            on=write_selectors(term.on),
            **_write_amount(term.amount),
        )
    return " / ".join(map(_write_in_brackets, (quotient.numerator, quotient.denominator)))


def _write_in_brackets(rate: Rate) -> str:
    text = write_expression(rate)
    return text if rate.is_term else f"({text})"


def _write_term(term: Term) -> str:
    """Write a term as the call that makes it."""
    name = term.name.partition("(")[0]
    if name not in RATES:
        raise NotTextError(f"{name} is a part of a quotient, which has no text by itself")
    models = [_write_model(model) for model in term.reference_models]
    given = {"over" if name == "wins" else "to": models[0]} if models else {}
    normalize = write_value("all") if name == "confusion" and term.where else None
    event, labels = term.event, _write_labels(name, term)
    function, options = _write_function(event)
    return write_call(
        name,
        *([_write_matrix(event.matrix)] if isinstance(event, DecisionCost) else labels),
        *function,
        **given,
        **options,
        normalize=normalize,
        on=write_selectors(term.on),
        **_write_amount(term.amount),
        **_write_sides(event),
    )


def _write_matrix(matrix: Sequence[Sequence[float]]) -> str:
    """Write the costs of decisions."""
    rows = (f"[{', '.join(map(write_number, row))}]" for row in matrix)
    return f"[{', '.join(rows)}]"


def _write_function(event: Event) -> tuple[list[str], dict[str, str | None]]:
    """Write what tells a mean over numbers from others: its loss, or its threshold."""
    if isinstance(event, Above):
        return [write_number(event.threshold)], {}
    if not isinstance(event, RowFunction):
        return [], {}
    limits = event.limits
    stated = None if limits is None else f"[{', '.join(map(write_number, limits))}]"
    if not isinstance(event, RowLoss):
        return [], {"range": stated}
    name = "delta" if event.loss == "huber" else "alpha"
    value = None if event.parameter is None else write_number(event.parameter)
    return [write_value(event.loss)], {name: value, "range": stated}


def _write_amount(amount: Amount | None) -> dict[str, str | None]:
    """Write the arguments that say what rows count for; nothing where they count as one."""
    if amount is None:
        return {}
    if amount.is_array:
        raise NotTextError(
            "it holds an amount for each row: put them into a column, and name that"
        )
    cap = None if amount.cap is None else write_number(amount.cap)
    return {"weight": write_value(amount.column), "cap": cap}


def _write_sides(event: Event) -> dict[str, str | None]:
    """Write the arguments that choose the sides of a pair rate; nothing for other events."""
    if not isinstance(event, RankedAbove):
        return {}
    is_of_negatives = event.group == "second"
    is_of_all = event.background == "all" and event.others and event.needs_group
    return {
        "positives": write_selectors(event.first),
        "negatives": write_selectors(event.second),
        "group": write_value("negatives") if is_of_negatives else None,
        "background": write_value("all") if is_of_all else None,
    }


def _write_labels(name: str, term: Term) -> list[str]:
    """Write the labels that a rate names: the true and the predicted one, or its only one."""
    rows, target = term.where or term.rows, getattr(term.event, "target", None)
    parts = [*rows, target] if name == "confusion" else [target or (*rows, None)[0]]
    return [write_value(part.value) for part in parts if isinstance(part, Label)]


def _write_model(deployed: ReferenceModel) -> str:
    if isinstance(deployed.column, str):
        return write_value(deployed.column)
    held = "decisions of single rows" if deployed.decisions is not None else str(deployed)
    raise NotTextError(
        f"it compares with {held}: put the other model's decisions into a column, and name that"
    )


def write_selectors(selectors: Sequence[Selector]) -> str | None:
    """Write selectors; adjacent columns share one ``{...}``, which names a column once."""
    parts: list[str] = []
    columns: dict[Hashable, str] = {}
    for selector in selectors:
        if isinstance(selector, Column):
            if columns and selector.name not in columns:
                parts.pop()
            else:
                columns = {}
            columns[selector.name] = f"{write_value(selector.name)}: {write_value(selector.value)}"
            parts.append(f"{{{', '.join(columns.values())}}}")
            continue
        columns = {}
        if isinstance(selector, Label) and not selector.excluded:
            parts.append(f"label({write_value(selector.value)})")
        elif isinstance(selector, DataSet):
            parts.append(f"dataset({write_value(selector.name)})")
        else:
            raise NotTextError(
                f"it is about a {selector}: put it into a column, and write on={{column: true}}"
            )
    return f"({', '.join(parts)})" if len(parts) > 1 else "".join(parts) or None


@write_expression.register(Each)
@write_expression.register(Gap)
def _(grouped: Each | Gap) -> str:
    given = _write_options(grouped)
    return write_call(type(grouped).__name__.lower(), write_expression(grouped.rate), **given)


@write_expression.register
def _(error: CalibrationError) -> str:
    bins = None if error.bins == CalibrationError.bins else write_number(error.bins)
    return write_call("calibration_error", bins=bins, on=write_selectors(error.on))


@write_expression.register(EachCalibrationError)
@write_expression.register(CalibrationGap)
def _(compared: EachCalibrationError | CalibrationGap) -> str:
    name = "gap" if isinstance(compared, CalibrationGap) else "each"
    return write_call(name, write_expression(compared.of), **_write_options(compared))


@write_expression.register
def _(norm: GapNorm) -> str:
    given = _write_options(norm)
    if norm.p == 1.0:
        return " + ".join(
            ("" if weight == 1.0 else f"{write_number(weight)} * ")
            + write_call("gap", write_expression(of), **given)
            for weight, of in norm.parts
        )
    weight = norm.parts[0][0]  # That of all: a norm is multiplied as a whole.
    factor = "" if weight == 1.0 else f"{write_number(weight)} * "
    rates = ", ".join(write_expression(of) for _, of in norm.parts)
    p = "float('inf')" if norm.p == math.inf else write_number(norm.p)
    return factor + write_call("gap_norm", f"[{rates}]", **given, p=p)


def _write_options(grouped: Grouped) -> dict[str, str]:
    """Write the options of a comparison of groups that differ from the defaults."""
    by, given = grouped.by, {}
    if by is not None:
        is_single = len(by) == 1 and by[0] is not None
        given["by"] = write_value(by[0]) if is_single else f"[{', '.join(map(write_value, by))}]"
    if isinstance(grouped, Paired) and grouped.reference is not None:
        given["reference"] = _write_reference(grouped.reference)
    if isinstance(grouped, Ratio) and grouped.slack:
        given["slack"] = write_number(grouped.slack)
    for name in GROUP_OPTIONS:
        value = getattr(grouped, name)
        if value != getattr(Grouped, name):
            given[name] = write_value(value)
    return given


def _write_reference(reference: Any) -> str:
    if reference == MISSING:
        raise NotTextError("None as a reference is none: name the rows without a value")
    if isinstance(reference, tuple):
        values = ", ".join(map(write_value, reference))
        return f"({values},)" if len(reference) == 1 else f"({values})"
    return "overall" if reference == overall else write_value(reference)
