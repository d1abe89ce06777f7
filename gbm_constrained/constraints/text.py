"""Rules as text: what stands in a file, on a command line or in a saved model.

The text is what Python would be, with three freedoms: a rate without arguments needs no
parentheses, names of columns and labels that are single words need no quotes, and ``True`` may be
written ``true``. It is read by a parser of its own that knows nothing but rates, presets, labels
and numbers; no text is ever evaluated as Python::

    rules      = rule { (";" | new line) rule }
    rule       = sum ("<=" | ">=") sum | preset "(" arguments ")"
    sum        = product { ("+" | "-") product }
    product    = signed { ("*" | "/") signed }
    signed     = "-" signed | number | "(" sum ")" | rate [ "(" arguments ")" ]
    arguments  = [ argument { "," argument } ]
    argument   = [ parameter "=" ] (sum | value | values | selector | levels)
    value      = word | quoted text | [ "-" ] number | "true" | "false" | "none"
    values     = ("[" | "(") value { "," value } ("]" | ")")
    selector   = "label" "(" value ")" | "dataset" "(" name ")" | "{" value ":" value ... "}"
               | "(" selector { "," selector } ")"
    levels     = "{" value ":" sum ... "}"

>>> from gbm_constrained import format_constraint, gap, parse_constraint, tpr
>>> parse_constraint("gap(tpr, by=sex) <= 0.02") == (gap(tpr(), by="sex") <= 0.02)
True
>>> format_constraint(gap(tpr("yes"), by=["sex", "race"]) <= 0.02)
'gap(tpr(yes), by=[sex, race]) <= 0.02'
"""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeAlias

import numpy as np

from gbm_constrained.constraints import presets, rates
from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.events import Differs, Predicted, Term
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.grouped import Gap, Grouped, Overall, Ratio, overall
from gbm_constrained.constraints.positive_class import name_positive_class
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import (
    MISSING,
    ClassifiedBy,
    Column,
    DataSet,
    Label,
    Selector,
    dataset,
    label,
)

__all__ = ["format_constraint", "parse_constraint", "parse_constraints"]

MAX_DEPTH = 30
SHOWN = 100  # characters of a line around an error
Side: TypeAlias = float | Expression | tuple[Constraint, ...]
CONSTANTS = {
    "true": True, "True": True, "false": False, "False": False, "none": None, "None": None
}  # fmt: skip
ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "r": "\r"}
UNICODE_ESCAPES = {"u": 4, "U": 8}  # and their hexadecimal digits
_TOKENS = re.compile(
    r"""(?P<space>[^\S\n]+)
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol><=|>=|[-+*/()\[\]{}:,=])
    |(?P<separator>[;\n])""",
    re.VERBOSE,
)
# What people write, and what it is here.
_INSTEAD = {
    "<": "a bound is never strict: write <=",
    ">": "a bound is never strict: write >=",
    "≤": "write <=",
    "≥": "write >=",
    "%": "write 5% as 0.05",
    '"': "this text has no closing quote",
    "'": "this text has no closing quote",
    "&": "separate rules by ;",
    "|": "all rules must hold: separate them by ;",
}
_SYNONYMS = {
    "false_positive_rate": "fpr",
    "false_alarm_rate": "fpr",
    "true_positive_rate": "tpr",
    "sensitivity": "tpr",
    "false_negative_rate": "fnr",
    "miss_rate": "fnr",
    "true_negative_rate": "tnr",
    "specificity": "tnr",
    "positive_rate": "selection_rate",
    "coverage": "selection_rate",
    "error": "error_rate",
    "loss": "log_loss",
    "cross_entropy": "log_loss",
    "f1_score": "f1",
    "difference": "gap",
    "mean_difference": "gap",
}


@dataclass(frozen=True)
class _Function:
    """A rate, a comparison or a preset, and what it may be given.

    Parameters
    ----------
    name : str
        Its name.
    call : callable
        What makes the rate or the constraints.
    positional : tuple of str
        Parameters that may be given without their names, in order.
    parameters : tuple of str
        All of them.
    required : tuple of str
        Those without a default.
    """

    name: str
    call: Callable[..., Any]
    positional: tuple[str, ...]
    parameters: tuple[str, ...]
    required: tuple[str, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Function:
        given = list(inspect.signature(function).parameters.values())
        more: list[str] = []
        if any(p.kind is p.VAR_KEYWORD for p in given):  # options of comparisons of groups
            more = [f.name for f in fields(Grouped) if f.name not in ("rate", "by")]
        given = [p for p in given if p.kind is not p.VAR_KEYWORD]
        return cls(
            function.__name__,
            function,
            tuple(p.name for p in given if p.kind is p.POSITIONAL_OR_KEYWORD),
            (*(p.name for p in given), *more),
            tuple(p.name for p in given if p.default is p.empty),
        )

    def __str__(self) -> str:
        shown = [name if name in self.required else f"{name}=..." for name in self.parameters]
        return f"{self.name}({', '.join(shown)})"


def _functions(module: Any, but: Sequence[str]) -> dict[str, _Function]:
    return {
        name: _Function.of(getattr(module, name)) for name in module.__all__ if name not in but
    }


SELECTORS = {"label": label, "dataset": dataset}
RATES = _functions(rates, ())
PRESETS = _functions(presets, ("from_fairlearn",))
FUNCTIONS = {**RATES, **PRESETS}


def parse_constraint(
    text: str,
    *,
    labels: Mapping[Any, Hashable] | None = None,
    positive: Hashable | None = None,
) -> Constraint:
    """Read one rule, such as ``"gap(tpr, by=sex) <= 0.02"``.

    Parameters
    ----------
    text : str
        The rule, as it would be written in Python: rates without arguments need no parentheses,
        and columns and labels that are single words no quotes. ``5`` is a number, ``"5"`` a text.
    labels : mapping, default=None
        Labels that the text may name, and what each is in the constraint; any label, as it stands,
        by default.
    positive : hashable, default=None
        Label, as it stands in the text, of the positive class of rates that name none; by default
        they speak of the last of two sorted labels, as in Python.

    Returns
    -------
    Constraint

    Raises
    ------
    TypeError
        If `text` is not a string.
    ValueError
        If it is not one rule; the message shows where, and what would be right.

    See Also
    --------
    parse_constraints : For several rules, and presets that make several constraints.
    format_constraint : The way back.

    Examples
    --------
    >>> from gbm_constrained import parse_constraint
    >>> parse_constraint("fpr(on={sex: F}) - fpr(on={sex: M}) <= 0.02")
    fpr[sex=F] - fpr[sex=M] <= 0.02
    """
    parser = _Parser(text, labels, positive)
    found = parser.rules()
    if len(found) != 1:
        message = f"this makes {len(found)} constraints: parse_constraints reads several"
        raise _error(text, 0, len(text), message)
    return found[0]


def parse_constraints(
    text: str,
    *,
    labels: Mapping[Any, Hashable] | None = None,
    positive: Hashable | None = None,
) -> list[Constraint]:
    """Read rules that are separated by semicolons or stand on lines of their own.

    Parameters
    ----------
    text : str
        The rules; see :func:`parse_constraint`. Presets such as ``EqualizedOdds(by=sex)`` may make
        several constraints of one rule.
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
        If it is not made of rules; the message shows where, and what would be right.
    """
    return _Parser(text, labels, positive).rules()


def _error(text: str, start: int, end: int, message: str) -> ValueError:
    """Error that shows the line of the text with a mark below."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    first = max(begin, min(start, stop) - SHOWN // 2)
    last = min(stop, first + SHOWN)
    shown = "".join(c if c.isprintable() else " " for c in text[first:last])
    before, after = "..." * (first > begin), "..." * (last < stop)
    width = max(1, min(end, last) - start)
    mark = " " * (len(before) + start - first) + "^" * width
    return ValueError(f"{message}\n  {before}{shown}{after}\n  {mark}")


def _closest(name: str, known: Sequence[str]) -> str | None:
    """Guess what was meant by a misspelt name."""
    plain = {re.sub(r"[\W_]", "", k).lower(): k for k in known}
    short = re.sub(r"[\W_]", "", name).lower()
    near = difflib.get_close_matches(short[:50], list(plain), n=1)
    return plain[short] if short in plain else plain[near[0]] if near else None


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    found = _closest(name, known)
    return f"one of {', '.join(known)}" if found is None else f"did you mean {found}?"


@dataclass(frozen=True)
class _Token:
    """A piece of text, of kind "name", "number", "text", "symbol", "separator" or "end"."""

    kind: str
    text: str
    start: int
    end: int

    def __str__(self) -> str:
        return {"end": "the end", "separator": "the end of the rule"}.get(
            self.kind, f"`{self.text}`"
        )


def _tokens(text: str) -> list[_Token]:
    """Split a text; new lines inside brackets are spaces."""
    found: list[_Token] = []
    position = depth = 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            wrong = text[position]
            remedy = _INSTEAD.get(wrong, "quote names and labels that hold it")
            raise _error(text, position, position + 1, f"unexpected {wrong!r}: {remedy}")
        kind, piece, end = str(match.lastgroup), match.group(), match.end()
        if kind == "number" and re.match(r"\w", text[end : end + 1]):
            message = "a number runs into a word: quote names and labels that begin with a digit"
            raise _error(text, position, end + 1, message)
        depth += (piece in ("(", "[", "{")) - (piece in (")", "]", "}"))
        if kind != "space" and not (piece == "\n" and depth > 0):
            found.append(_Token(kind, piece, position, end))
        position = end
    return [*found, _Token("end", "", len(text), len(text))]


class _Parser:
    """Recursive descent; see the grammar above.

    Parameters
    ----------
    text : str
        The rules.
    labels, positive
        As in :func:`parse_constraint`.
    """

    def __init__(
        self,
        text: str,
        labels: Mapping[Any, Hashable] | None,
        positive: Hashable | None,
    ) -> None:
        if not isinstance(text, str):
            raise TypeError(
                f"text must be a string such as 'fpr <= 0.05', got {text!r}: constraints that are "
                f"objects already need no reading."
            )
        self.text, self.labels, self.positive = text, labels, positive
        self.tokens = _tokens(text)
        self.position = self.depth = 0
        self.readers: dict[str, Callable[[], Any]] = {
            "rate": self.rate,
            "on": self.selectors,
            "by": self.columns,
            "reference": self.reference,
            "label": self.label,
            "k": self.label,
            "i": self.label,
            "j": self.label,
            "levels": self.levels,
            "to": self.name,
            "over": self.name,
            "normalize": self.name,
            "loss": self.name,
            "missing": self.name,
            "small_groups": self.name,
            "min_group_size": self.value,
            "slack": self.number,
            "bound": self.number,
            "upper_bound": self.number,
            "difference_bound": self.number,
            "ratio_bound": self.number,
            "ratio_bound_slack": self.number,
        }

    # Tokens.

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        token = self.next
        self.position += token.kind != "end"
        return token

    def at(self, *symbols: str) -> bool:
        return self.next.kind == "symbol" and self.next.text in symbols

    def accept(self, symbol: str) -> bool:
        found = self.at(symbol)
        self.position += found
        return found

    def expect(self, symbol: str, after: str) -> None:
        if not self.accept(symbol):
            self.fail(f"expected `{symbol}` after {after}, found {self.next}")

    def fail(
        self, message: str, start: _Token | None = None, end: _Token | None = None
    ) -> NoReturn:
        first = self.next if start is None else start
        last = first if end is None else end
        raise _error(self.text, first.start, last.end, message) from None

    def built(self, start: _Token, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make what was read so far since a token; what Python refuses is refused here."""
        try:
            return make(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError) as refused:
            self.fail(str(refused), start, self.tokens[self.position - 1])

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} levels of brackets or signs: write it flatter")
        yield
        self.depth -= 1

    # Rules.

    def rules(self) -> list[Constraint]:
        found: list[Constraint] = []
        while self.next.kind != "end":
            if self.next.kind == "separator":
                self.take()
                continue
            found += self.rule()
            if self.next.kind not in ("separator", "end"):
                self.fail(f"separate rules by `;`: expected it or the end, found {self.next}")
        if not found:
            self.fail("there is no rule: write one such as fpr <= 0.05")
        if self.positive is None:
            return found
        label = self.known_label(self.positive, self.tokens[0])
        return [name_positive_class(constraint, label) for constraint in found]

    def rule(self) -> tuple[Constraint, ...]:
        start = self.next
        left = self.sum()
        if isinstance(left, tuple):
            return left
        if not self.at("<=", ">="):
            wanted = "expected `<=` or `>=` and a bound"
            if self.at("="):
                self.fail(f"{wanted}: rates are bounded on one side, found {self.next}")
            self.fail(f"{wanted}, such as <= 0.05; found {self.next}")
        sense = self.take()
        right = self.sum()
        if isinstance(right, tuple):
            self.fail("a preset is a rule by itself, and bounds no other", sense)
        if self.at("<=", ">="):
            self.fail(
                "one bound to a rule: for a rate between two bounds write two rules, "
                "rate >= 0.01; rate <= 0.05"
            )
        if isinstance(left, float) and isinstance(right, float):
            self.fail("nothing is bounded here: name a rate, such as fpr <= 0.05", start, sense)
        compare = operator.le if sense.text == "<=" else operator.ge
        return (self.built(start, compare, left, right),)

    # Sums.

    def sum(self) -> Side:
        start = self.next
        value = self.product()
        while self.at("+", "-"):
            add = operator.add if self.take().text == "+" else operator.sub
            value = self.combined(start, add, value, self.product())
        return value

    def product(self) -> Side:
        start = self.next
        value = self.signed()
        while self.at("*", "/"):
            sign = self.take()
            factor = self.signed()
            if sign.text == "*":
                value = self.combined(start, operator.mul, value, factor)
                continue
            if isinstance(factor, float) and not (factor and math.isfinite(1.0 / factor)):
                self.fail("division by zero", sign, self.tokens[self.position - 1])
            value = self.combined(start, operator.truediv, value, factor)
        return value

    def combined(self, start: _Token, make: Callable[..., Any], *sides: Side) -> Side:
        if any(isinstance(side, tuple) for side in sides):
            self.fail("a preset is a rule by itself: it has no sums and multiples", start)
        value: Side = self.built(start, make, *sides)
        if isinstance(value, float) and not math.isfinite(value):
            self.fail("this number is too large", start, self.tokens[self.position - 1])
        return value

    def signed(self) -> Side:
        start = self.take()
        if start.kind == "symbol" and start.text == "-":
            with self.nested():
                value = self.signed()
            return -value if isinstance(value, float) else self.combined(
                start, operator.mul, value, -1.0
            )  # fmt: skip
        if start.kind == "number":
            value = float(start.text)
            if not math.isfinite(value):
                self.fail("this number is too large", start)
            return value
        if start.kind == "symbol" and start.text == "(":
            with self.nested():
                value = self.sum()
                self.expect(")", "what the bracket holds")
            return value
        if start.kind == "name":
            return self.called(start)
        self.position -= start.kind != "end"
        what = "put rates in no quotes" if start.kind == "text" else "such as fpr or 0.05"
        self.fail(f"expected a rate or a number, found {start}: {what}")

    # Rates, comparisons and presets.

    def called(self, name: _Token) -> Side:
        function = FUNCTIONS.get(name.text)
        if function is None:
            self.fail(self.unknown(name.text), name)
        given: dict[str, Any] = {}
        if self.accept("("):
            with self.nested():
                self.arguments(function, given)
        missing = [p for p in function.required if p not in given]
        if missing:
            self.fail(f"{function.name} needs {', '.join(missing)}: {function}", name)
        made = self.built(name, function.call, **given)
        if function.name not in PRESETS:
            value: Side = made
            return value
        constraints = made if isinstance(made, tuple) else (made,)
        if not constraints:
            self.fail(f"{function.name} bounds nothing here", name)
        return constraints

    def unknown(self, name: str) -> str:
        if name in SELECTORS:
            return f"{name}(...) selects rows and is no rate: write on={name}(...) inside one"
        meant = _SYNONYMS.get(name.lower(), _closest(name, list(FUNCTIONS)))
        if meant is not None:
            return f"unknown rate {name}: did you mean {meant}?"
        return f"unknown rate {name}: one of {', '.join(RATES)}, or a preset"

    def arguments(self, function: _Function, given: dict[str, Any]) -> None:
        positional = iter(function.positional)
        while not self.accept(")"):
            start = self.next
            following = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
            named = following.kind == "symbol" and following.text == "="
            if start.kind == "name" and named:
                parameter = start.text
                self.position += 2
                if parameter not in function.parameters:
                    known = list(function.parameters)
                    meant = _did_you_mean(parameter, known) if known else "it takes none"
                    self.fail(f"{function.name} has no {parameter}=: {meant}", start)
            else:
                found = next(positional, None)
                if found is None:
                    self.fail(
                        f"{function.name} takes what follows by name only: {function}", start
                    )
                parameter = found
            if parameter in given:
                self.fail(f"{parameter} is given twice", start)
            given[parameter] = self.readers[parameter]()
            if not self.at(")"):
                self.expect(",", f"{parameter}")

    def rate(self) -> Any:
        value = self.sum()
        if isinstance(value, tuple):
            self.fail("a preset is a rule by itself, and no rate", self.tokens[self.position - 1])
        if self.at("<=", ">="):
            self.fail("the bound comes after the closing bracket: each(fpr, by=sex) <= 0.05")
        return value

    def number(self) -> float | None:
        if self.next.kind == "name" and self.next.text in ("None", "none"):
            self.take()
            return None
        start = self.next
        value = self.sum()
        if not isinstance(value, float):
            self.fail("expected a number", start, self.tokens[self.position - 1])
        return value

    # Values.

    def value(self) -> Any:
        """Read a word, a quoted text, a number, or a constant."""
        negative = self.accept("-")
        token = self.take()
        if token.kind == "number":
            value: Any = self.numeral(token)
            value = -value if negative else value
        elif negative or token.kind not in ("name", "text"):
            self.position -= token.kind != "end"
            self.fail(f"expected a word, a quoted text or a number, found {token}")
        elif token.kind == "text":
            value = self.unquoted(token)
        else:
            value = CONSTANTS.get(token.text, token.text)
        if not self.at(",", ")", "]", "}", ":") and self.next.kind != "end":
            self.fail(
                f"unexpected {self.next} after {token}: quote names and labels that are not "
                f"single words"
            )
        return value

    def numeral(self, token: _Token) -> float:
        digits = token.text
        if digits.isdigit():
            if digits[0] == "0" and digits != "0":
                bare = digits.lstrip("0") or "0"
                self.fail(f'write the number {bare} or the text "{digits}"', token)
            return int(self.built(token, int, digits))
        value = float(digits)
        if not math.isfinite(value):
            self.fail("this number is too large", token)
        return value

    def unquoted(self, token: _Token) -> str:
        inside, parts, i = token.text[1:-1], [], 0
        while i < len(inside):
            if inside[i] != "\\":
                parts.append(inside[i])
                i += 1
                continue
            letter, width = inside[i + 1], UNICODE_ESCAPES.get(inside[i + 1], 0)
            digits = inside[i + 2 : i + 2 + width]
            if letter in ESCAPES:
                parts.append(ESCAPES[letter])
            elif width and re.fullmatch(f"[0-9a-fA-F]{{{width}}}", digits) and (
                int(digits, 16) <= 0x10FFFF
            ):  # fmt: skip
                parts.append(chr(int(digits, 16)))
            else:
                self.fail(f"unknown escape \\{letter}: a backslash is written \\\\", token)
            i += 2 + width
        return "".join(parts)

    def name(self) -> str:
        start = self.next
        name = self.value()
        if not isinstance(name, str):
            self.fail(f"expected a name, found {name!r}: quote it if it is one", start)
        return name

    def label(self) -> Any:
        start = self.next
        return self.known_label(self.value(), start)

    def known_label(self, value: Hashable, token: _Token) -> Hashable:
        if self.labels is None or value is None:
            return value
        if value not in self.labels:
            known = ", ".join(map(repr, self.labels))
            meant = _closest(str(value), [str(k) for k in self.labels])
            meant = next((repr(k) for k in self.labels if str(k) == meant), None)
            remedy = f"the labels are {known}" if meant is None else f"did you mean {meant}?"
            self.fail(f"no class is labelled {value!r}: {remedy}", token)
        return self.labels[value]

    def listed(self, close: str, read: Callable[[], Any]) -> list[Any]:
        """Read what is separated by commas up to a closing bracket; at least one."""
        found = []
        while not self.accept(close):
            found.append(read())
            if not self.at(close):
                self.expect(",", "this")
        if not found:
            self.fail("these brackets are empty", self.tokens[self.position - 1])
        return found

    def columns(self) -> Any:
        if self.accept("["):
            return self.listed("]", self.value)
        if self.accept("("):
            return self.listed(")", self.value)
        return self.value()

    def reference(self) -> Any:
        if self.next.kind == "name" and self.next.text == "overall":
            self.take()
            return overall
        if not self.accept("("):
            return self.value()
        values = self.listed(")", self.value)
        # As in Python, where only a comma makes a tuple of one.
        single = len(values) == 1 and self.tokens[self.position - 2].text != ","
        return values[0] if single else tuple(values)

    def pairs(self, key: Callable[[], Any], read: Callable[[], Any]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}

        def pair() -> None:
            start = self.next
            name = key()
            if name in found:
                self.fail(f"{name!r} is given twice", start)
            self.expect(":", f"{name!r}")
            found[name] = read()

        self.listed("}", pair)
        return found

    def levels(self) -> dict[Any, Any]:
        if not self.accept("{"):
            self.fail("expected a bound for each class, such as {0: 0.05, 2: 0.1}")
        return self.pairs(self.label, self.number)

    def selectors(self) -> Any:
        """Read the rows that a rate is taken over."""
        if self.accept("{"):
            return self.pairs(self.value, self.value)
        if self.accept("("):
            with self.nested():
                return tuple(self.listed(")", self.selectors))
        start = self.take()
        if start.kind == "name" and start.text in ("None", "none"):
            return None
        if start.kind != "name" or start.text not in SELECTORS or not self.accept("("):
            self.position -= start.kind != "end"
            self.fail(
                "expected rows: label(1), dataset(monitor), {sex: F}, or several of these in "
                "round brackets",
                start,
            )
        read = self.label if start.text == "label" else self.name
        value = read()
        self.expect(")", f"the argument of {start.text}")
        return SELECTORS[start.text](value)


class _NotTextError(ValueError):
    """Why something has no text."""


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
        If it holds what has no text: a mask of rows, a model, decisions, a label that is neither
        text, number nor bool.
    """
    if not isinstance(constraint, Constraint):
        raise TypeError(f"constraint must be a constraint such as fpr() <= 0.05: {constraint!r}.")
    try:
        text = f"{_side(constraint.expression)} {constraint.sense} {_number(constraint.bound)}"
        if parse_constraint(text) != constraint:
            raise _NotTextError(
                "it was not made by the functions of gbm_constrained.constraints.rates alone"
            )
    except ValueError as reason:
        raise ValueError(f"{constraint} cannot be written as text: {reason}.") from None
    return text


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _literal(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise _NotTextError(f"{value!r} as a value has no text")
    if value == MISSING:
        return "None"
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    if type(value) is not str:
        raise _NotTextError(
            f"{value!r} is of type {type(value).__name__}, and only texts, numbers, true and "
            f"false can be written"
        )
    if re.fullmatch(r"[^\W\d]\w*", value) and value not in (*CONSTANTS, "overall"):
        return value
    escaped = {character: f"\\{letter}" for letter, character in ESCAPES.items() if letter != "'"}
    return '"' + "".join(escaped.get(c, c if c.isprintable() else _escape(c)) for c in value) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _arguments(*positional: str, **named: str | None) -> str:
    given = [*positional, *(f"{name}={value}" for name, value in named.items() if value)]
    return f"({', '.join(given)})" if given else ""


def _side(expression: Expression) -> str:
    if isinstance(expression, Rate):
        return _sum(expression)
    if isinstance(expression, Quotient):
        return _quotient(expression)
    assert isinstance(expression, Grouped)
    return _grouped(expression)


def _sum(rate: Rate) -> str:
    text = ""
    constant = rate.constant
    if constant > 0 and rate.terms and rate.terms[0][0] < 0:  # 1 - fpr rather than -fpr + 1
        text, constant = _number(constant), 0.0
    for a, term in rate.terms:
        factor = "" if abs(a) == 1.0 else f"{_number(abs(a))} * "
        sign = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
        text += f"{sign}{factor}{_term(term)}"
    if constant:
        text += f"{' - ' if constant < 0 else ' + '}{_number(abs(constant))}"
    return text or "0"


def _term(term: Term) -> str:
    """Write a term as the call that makes it."""
    name = term.name.partition("(")[0]
    on, event = _on(term.on), term.event
    if name == "confusion" and isinstance(event, Predicted):
        (true,) = term.where or term.rows
        pair = (_literal(part.value) for part in (true, event.target) if isinstance(part, Label))
        return name + _arguments(*pair, normalize="all" if term.where else None, on=on)
    if isinstance(event, Differs):
        return name + _arguments(to=_deployed(event.reference_model), on=on)
    for part in term.where:
        if isinstance(part, ClassifiedBy):
            deployed = _deployed(part.reference_model)
            given = {"over" if name == "wins" else "to": deployed}
            return name + _arguments(**given, on=on)
    about = [event.target] if isinstance(event, Predicted) else list(term.rows[:1])
    label = [_literal(part.value) for part in about if isinstance(part, Label)]
    if name not in RATES:
        raise _NotTextError(f"{name} is a part of a quotient, which has no text by itself")
    return name + _arguments(*label, on=on)


def _deployed(deployed: ReferenceModel) -> str:
    if isinstance(deployed.column, str):
        return _literal(deployed.column)
    held = "decisions of single rows" if deployed.decisions is not None else str(deployed)
    raise _NotTextError(
        f"it compares with {held}: put the other model's decisions into a column, and name that"
    )


def _on(selectors: Sequence[Selector]) -> str | None:
    parts: list[str] = []
    columns: dict[Hashable, str] = {}  # of one {...}, which names a column once

    def close() -> None:
        if columns:
            parts.append(f"{{{', '.join(columns.values())}}}")
            columns.clear()

    for selector in selectors:
        if isinstance(selector, Column):
            if selector.name in columns:
                close()
            columns[selector.name] = f"{_literal(selector.name)}: {_literal(selector.value)}"
            continue
        close()
        if isinstance(selector, Label) and not selector.excluded:
            parts.append(f"label({_literal(selector.value)})")
        elif isinstance(selector, DataSet):
            parts.append(f"dataset({_literal(selector.name)})")
        else:
            raise _NotTextError(
                f"it is about a {selector}: put it into a column, and write on={{column: true}}"
            )
    close()
    return None if not parts else parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _quotient(quotient: Quotient) -> str:
    name = quotient.name.partition("(")[0].partition("[")[0]
    if name in RATES:
        _, first = quotient.numerator.terms[0]
        assert isinstance(first.event, Predicted)
        parts = [*first.where, first.event.target] if name == "confusion" else [first.event.target]
        labels = (_literal(part.value) for part in parts if isinstance(part, Label))
        normalize = "pred" if name == "confusion" else None
        return name + _arguments(*labels, normalize=normalize, on=_on(first.on))
    return f"{_bracketed(quotient.numerator)} / {_bracketed(quotient.denominator)}"


def _bracketed(rate: Rate) -> str:
    text = _sum(rate)
    is_call = len(rate.terms) == 1 and rate.terms[0][0] == 1.0 and not rate.constant
    return text if is_call else f"({text})"


def _grouped(grouped: Grouped) -> str:
    by, given = grouped.by, {}
    if by is not None:
        single = len(by) == 1 and by[0] is not None
        given["by"] = _literal(by[0]) if single else f"[{', '.join(map(_literal, by))}]"
    if isinstance(grouped, Gap) and grouped.reference is not None:
        given["reference"] = _reference(grouped.reference)
    if isinstance(grouped, Ratio) and grouped.slack:
        given["slack"] = _number(grouped.slack)
    for name in ("missing", "min_group_size", "small_groups"):
        value = getattr(grouped, name)
        if value != Grouped.__dataclass_fields__[name].default:
            given[name] = _literal(value)
    return type(grouped).__name__.lower() + _arguments(_sum(grouped.rate), **given)


def _reference(reference: Any) -> str:
    if isinstance(reference, Overall):
        return "overall"
    if reference == MISSING:
        raise _NotTextError("None as a reference is none: name the rows without a value")
    if not isinstance(reference, tuple):
        return _literal(reference)
    values = ", ".join(map(_literal, reference))
    return f"({values},)" if len(reference) == 1 else f"({values})"
