r"""Constraints as text: of files of settings, command lines and saved models.

Nothing is ever evaluated. Each word, number and quoted text is masked by underscores of the same
length, so that ``ast.parse`` reads the structure alone: words may be those that Python reserves,
and the columns of the nodes are places in the text.

The nodes are of these types::

    constraint = Compare (sum "<=" sum, sum ">=" sum) | a preset | Call (priority)
    sum        = BinOp (+, -, *, /) | UnaryOp (-) | Name (number, rate) | Call (rate)
    value      = Name (word, text, number) | UnaryOp (- number)
    argument   = sum | value | List, Tuple (of values) | selector | Dict (bounds of classes)
    selector   = Call (label, dataset) | Dict (columns) | Tuple (of selectors)

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

import ast
import difflib
import inspect
import math
import operator
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

from gbm_constrained.constraints import presets, rates
from gbm_constrained.constraints.base import Constraint, name_positive_class
from gbm_constrained.constraints.comparisons import overall
from gbm_constrained.constraints.selectors import dataset, label
from gbm_constrained.constraints.writing import NotTextError

__all__ = ["format_constraint", "parse_constraint", "parse_constraints"]


MAX_DEPTH = 30  # Most levels of brackets and signs.
ATOMS = ("number", "name", "text")
BRACKETS = {")": "(", "]": "[", "}": "{"}
_ESCAPE = r"\\(?:[\\\"'ntr]|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"
_TOKENS = re.compile(
    rf"""(?P<space>[^\S\n]+)
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\\n]|{_ESCAPE})*"|'(?:[^'\\\n]|{_ESCAPE})*')
    |(?P<symbol><=|>=|[-+*/()\[\]{{}}:,=.])
    |(?P<separator>[;\n])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# Two operands of a masked text without an operator between them, and too many signs in a row.
_TWO_OPERANDS = re.compile(r"_ *(?=[\[{])|_ +(?=_)|[)\]}] *(?=[_(\[{])")
_MANY_SIGNS = re.compile(rf"(?:- *){{{MAX_DEPTH}}}(?=-)")
_TOO_DEEP = f"more than {MAX_DEPTH} levels of brackets or signs: write it flatter"
NO_BOUND = "expected `<=` or `>=` and a bound, such as <= 0.05; found {}"
_UNQUOTED = "this text has no closing quote, or a backslash in it that is not written \\\\"
# Remedies for characters that the language does not have.
_INSTEAD = {
    "<": "a bound is never strict: write <=",
    ">": "a bound is never strict: write >=",
    "≤": "write <=",
    "≥": "write >=",
    "%": "write 5% as 0.05",
    '"': _UNQUOTED,
    "'": _UNQUOTED,
    "&": "separate constraints by ;",
    "|": "all constraints must hold: separate them by ;",
}
Node: TypeAlias = ast.expr | ast.keyword


def make_error(text: str, start: int, end: int, message: str) -> ValueError:
    """Make an error that shows the line of the text with a mark below."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    first = max(begin, min(start, stop) - 50)
    last = min(stop, first + 100)  # So many characters of a long line are shown.
    shown = "".join(c if c.isprintable() else " " for c in text[first:last])
    before, after = "..." * (first > begin), "..." * (last < stop)
    width = max(1, min(end, last) - start)
    mark = " " * (len(before) + start - first) + "^" * width
    return ValueError(f"{message}\n  {before}{shown}{after}\n  {mark}")


def _mask(text: str) -> str:
    """Replace words, numbers and quoted texts by underscores, and ends of constraints by ``;``."""
    masked: list[str] = []
    brackets: list[re.Match[str]] = []
    for token in _TOKENS.finditer(text):
        kind, piece, (start, end) = token.lastgroup, token.group(), token.span()
        if kind == "other":
            remedy = _INSTEAD.get(piece, "quote names and labels that hold it")
            if piece == "%" and (share := re.search(r"(\d+\.?\d*|\.\d+)\s*$", text[:start])):
                remedy = f"write {share.group().strip()}% as {float(share.group()) / 100:g}"
            raise make_error(text, start, end, f"unexpected {piece!r}: {remedy}")
        if kind in ATOMS and re.match(r"[\w'\".]", text[end : end + 1]):
            message = f"a {kind} runs into a word: quote names and labels that are no single words"
            raise make_error(text, start, end + 1, message)
        if piece in BRACKETS.values():
            brackets.append(token)
        elif piece in BRACKETS and not (brackets and brackets.pop().group() == BRACKETS[piece]):
            raise make_error(text, start, end, f"`{piece}` closes no `{BRACKETS[piece]}`")
        elif piece == ";" and brackets:
            break
        if len(brackets) > MAX_DEPTH:
            raise make_error(text, start, end, _TOO_DEEP)
        if kind == "separator":
            piece = " " if brackets else ";"
        elif kind != "symbol":
            piece = ("_" if kind in ATOMS else " ") * len(piece)
        masked.append(piece)
    if brackets:
        raise make_error(text, *brackets[-1].span(), "this bracket is never closed")
    return "".join(masked)


NOTHING = ("none", "None")
CONSTANTS = {"true": True, "True": True, "false": False, "False": False, **dict.fromkeys(NOTHING)}
LABELS = ("label", "k", "i", "j", "default")
NUMBERS = (
    "bound", "difference_bound", "ratio_bound", "ratio_bound_slack", "slack", "upper_bound",
    "within", "beta", "cap", "threshold", "delta", "alpha", "p",
)  # fmt: skip
ROWS = ("on", "positives", "negatives")  # Parameters that take selectors of rows.
PRIORITY = "with_priority"  # Method that gives a constraint its priority.
PRIORITY_ARGUMENTS = (["priority"], ["priority", "weight"])
GROUP_OPTIONS = ("missing", "min_group_size", "small_groups")
OPERATORS: dict[type[ast.operator] | type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.LtE: operator.le, ast.GtE: operator.ge,
}  # fmt: skip
_SYNONYMS = {
    "false_positive_rate": "fpr", "false_alarm_rate": "fpr", "true_positive_rate": "tpr",
    "sensitivity": "tpr", "false_negative_rate": "fnr", "miss_rate": "fnr",
    "true_negative_rate": "tnr", "specificity": "tnr", "positive_rate": "selection_rate",
    "roc_auc": "auc", "roc_auc_score": "auc", "xauc": "cross_auc",
    "error": "error_rate", "loss": "log_loss", "ece": "calibration_error",
    "expected_calibration_error": "calibration_error",
    "cross_entropy": "log_loss", "f1_score": "f1", "difference": "gap", "mean_difference": "gap",
    "mean_squared_error": "mean_loss", "mse": "mean_loss", "mean_absolute_error": "mean_loss",
    "mae": "mean_loss", "bias": "mean_residual",
}  # fmt: skip
Read: TypeAlias = Callable[[ast.expr], Any]


class Function:
    """A rate, a comparison or a preset, and the parameters that it takes."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.parameters = dict(inspect.signature(make).parameters)
        if self.parameters.pop("options", None):  # Comparisons of groups have options.
            for name in GROUP_OPTIONS:
                option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
                self.parameters[name] = option
        given = self.parameters.items()
        self.required = [name for name, p in given if p.default is p.empty]
        self.positional = [name for name, p in given if p.kind is p.POSITIONAL_OR_KEYWORD]

    def __str__(self) -> str:
        shown = [p if p in self.required else f"{p}=..." for p in self.parameters]
        return f"{self.make.__name__}({', '.join(shown)})"


RATES = {name: Function(getattr(rates, name)) for name in rates.__all__}
PRESETS = {name: Function(getattr(presets, name)) for name in presets.__all__}
FUNCTIONS = {**RATES, **PRESETS}
SELECTORS = {"label": label, "dataset": dataset}


def _suggest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name nearest to a misspelt one; empty where none is near."""
    plain = {re.sub(r"[\W_]", "", k).lower(): k for k in known}
    short = re.sub(r"[\W_]", "", name).lower()
    near = [short] if short in plain else difflib.get_close_matches(short[:50], list(plain), n=1)
    return f"did you mean {plain[near[0]]}?" if near else ""


class ConstraintReader:
    """Walk over the syntax trees of a text; the arguments are those of `parse_constraint`."""

    functions: ClassVar = FUNCTIONS
    meant_otherwise: ClassVar[dict[str, str]] = {}  # Names of other kinds, and what to do.
    kind: ClassVar[str] = "rate"  # As messages call what the functions make.
    others: ClassVar[str] = f"one of {', '.join(RATES)}, or a preset"

    def __init__(
        self, text: str, labels: Mapping[Any, Hashable] | None, positive: Hashable | None = None
    ) -> None:
        if not isinstance(text, str):
            raise TypeError(
                f"text must be a string such as 'fpr <= 0.05', got {text!r}: constraints that are "
                f"objects already need no reading."
            )
        self.text, self.labels, self.positive = text, labels, positive
        self.start = 0  # Place of the constraint that is being read.

    # Nodes and their places.

    def parse_trees(self) -> Iterator[ast.expr]:
        """Parse one constraint after the other."""
        for masked in re.finditer(r"[^; ][^;]*", _mask(self.text)):
            self.start = masked.start()
            yield self._parse_tree(masked.group())

    def text_of(self, node: Node) -> str:
        """Return the text of a node."""
        return self.text[self.start + node.col_offset : self.start + (node.end_col_offset or 0)]

    def kind_of(self, node: ast.expr) -> str | None:
        """Return whether a node is one "number", "name" or "text"; None of any other."""
        token = _TOKENS.match(self.text, self.start + node.col_offset)
        return token.lastgroup if token and isinstance(node, ast.Name) else None

    def fail(self, message: str, node: Node) -> NoReturn:
        """Refuse a node."""
        start, end = self.start + node.col_offset, self.start + (node.end_col_offset or 0)
        raise make_error(self.text, start, end, message) from None

    def fail_at(self, place: int, message: str) -> NoReturn:
        """Refuse the token after a place of the constraint, which a message may name as ``{}``."""
        for token in _TOKENS.finditer(self.text, self.start + place):
            if token.lastgroup != "space":
                found = "the end" if token.lastgroup == "separator" else f"`{token.group()}`"
                raise make_error(self.text, *token.span(), message.replace("{}", found)) from None
        end = len(self.text)
        raise make_error(self.text, end, end, message.replace("{}", "the end")) from None

    def _parse_tree(self, masked: str) -> ast.expr:
        """Parse the masked text of one constraint."""
        if signs := _MANY_SIGNS.search(masked):
            self.fail_at(signs.end(), _TOO_DEEP)
        if found := _TWO_OPERANDS.search(masked):
            before, message = masked[: found.end()], NO_BOUND
            if any(before.count(a) > before.count(b) for b, a in BRACKETS.items()):
                message = "unexpected {}: quote names and labels that are not single words"
            elif "<=" in before or ">=" in before:
                message = "separate constraints by `;`: expected it or the end, found {}"
            self.fail_at(found.end(), message)
        try:
            return ast.parse(masked, mode="eval").body
        except SyntaxError as refused:
            place = refused.offset - 1 if refused.offset else len(masked)
            message = f"{refused.msg}: expected a rate or a number, such as fpr or 0.05; found "
            self.fail_at(place, NO_BOUND if masked[place:][:1] == "=" else message + "{}")
        except (RecursionError, MemoryError):
            self.fail_at(0, "this sum is too long: write several constraints")

    def make(self, node: ast.expr, build: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Build the value of a node, and show the place of the node in errors of Python."""
        try:
            value = build(*args, **kwargs)
        except (TypeError, ValueError, ArithmeticError) as refused:
            self.fail(str(refused), node)
        if isinstance(value, float) and not math.isfinite(value):
            self.fail("this number is too large", node)
        return value

    # Constraints.

    def read_constraints(self) -> list[Constraint]:
        """Read all constraints of the text."""
        found: list[Constraint] = []
        for tree in self.parse_trees():
            found += self.read_constraint(tree)
        if not found:
            self.fail_at(len(self.text), "there is no constraint: write one such as fpr <= 0.05")
        if self.positive is None:
            return found
        self.start = 0
        positive = self.find_label(self.positive, ast.Name("_", col_offset=0, end_col_offset=1))
        return [name_positive_class(constraint, positive) for constraint in found]

    def read_constraint(self, node: ast.expr) -> tuple[Constraint, ...]:
        """Read a constraint, or the constraints of a preset."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self.read_priority(node, node.func)
        if self.name_of(node) in PRESETS:
            found = self.read_call(node)
            return found if isinstance(found, tuple) else (found,)
        if not isinstance(node, ast.Compare):
            self.read_sum(node)  # The call refuses a node that is no rate.
            self.fail_at(node.end_col_offset or 0, NO_BOUND)
        compare = OPERATORS.get(type(node.ops[0]))
        if compare is None:
            self.fail("expected `<=` or `>=`: rates are bounded on one side", node)
        if len(node.ops) > 1:
            self.fail(
                "one bound to a constraint: for a rate between two bounds write two constraints, "
                "rate >= 0.01; rate <= 0.05",
                node,
            )
        left, right = self.read_sum(node.left), self.read_sum(node.comparators[0])
        if isinstance(left, float) and isinstance(right, float):
            self.fail("nothing is bounded here: name a rate, such as fpr <= 0.05", node)
        return (self.make(node, compare, left, right),)

    def read_priority(self, node: ast.Call, method: ast.Attribute) -> tuple[Constraint, ...]:
        """Read ``(constraint).with_priority(2, weight=0.5)``."""
        given = [("priority", value) for value in node.args]
        given += [(re.split(r"\s*=", self.text_of(n))[0], n.value) for n in node.keywords]
        is_known = self.text_of(method).endswith(PRIORITY) and len(method.attr) == len(PRIORITY)
        if not is_known or [name for name, _ in given] not in PRIORITY_ARGUMENTS:
            message = f"what follows a constraint is .{PRIORITY}(2) or .{PRIORITY}(2, weight=0.5)"
            self.fail(message, node)
        found = self.read_constraint(method.value)
        arguments = {name: self.read_value(value) for name, value in given}
        return tuple(self.make(node, one.with_priority, **arguments) for one in found)

    # Sums and rates.

    def read_sum(self, node: ast.expr) -> Any:
        """Read a sum, product or quotient of rates and numbers."""
        chain: list[ast.BinOp] = []  # Long sums are nested to the left.
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        value = self.read_operand(node)
        for parent in reversed(chain):
            operate = OPERATORS.get(type(parent.op))
            if operate is None:
                self.fail("expected a sum, product or quotient of rates and numbers", parent)
            value = self.make(parent, operate, value, self.read_sum(parent.right))
        return value

    def read_operand(self, node: ast.expr) -> Any:
        """Read a number, a rate, or either with a sign."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.make(node, operator.mul, self.read_sum(node.operand), -1.0)
        if isinstance(node, ast.Compare):
            message = "the bound comes after the closing bracket: each(fpr, by=sex) <= 0.05"
            self.fail(message, node)
        name, kind = self.name_of(node), self.kind_of(node)
        if kind == "number":
            return self.make(node, float, self.text_of(node))
        if name in PRESETS:
            self.fail("a preset is a constraint by itself: it bounds no rate, and is none", node)
        if name is None:
            remedy = "put rates in no quotes" if kind == "text" else "such as fpr or 0.05"
            self.fail(f"expected a rate or a number: {remedy}", node)
        return self.read_call(node)

    def name_of(self, node: ast.expr) -> str | None:
        """Return the name of a rate, comparison or preset, with or without arguments."""
        name = node.func if isinstance(node, ast.Call) else node
        return self.text_of(name) if self.kind_of(name) == "name" else None

    def read_call(self, node: ast.expr) -> Any:
        """Make a rate, or the constraints of a preset."""
        name = self.name_of(node) or ""
        positional, named = (node.args, node.keywords) if isinstance(node, ast.Call) else ([], [])
        if name in SELECTORS:
            message = f"{name}(...) selects rows and is no rate: write on={name}(...) inside one"
            self.fail(message, node)
        if name not in self.functions:
            node = node.func if isinstance(node, ast.Call) else node
            if why := self.meant_otherwise.get(name.lower()):
                self.fail(f"{name}: {why}. A {self.kind} {self.others}", node)
            meant = _SYNONYMS.get(name.lower())
            remedy = f"did you mean {meant}?" if meant else _suggest(name, self.functions)
            self.fail(f"unknown {self.kind} {name}: {remedy or self.others}", node)
        function = self.functions[name]
        if len(positional) > len(function.positional):
            message = f"{name} takes what follows by name only: {function}"
            self.fail(message, positional[len(function.positional)])
        given = {
            parameter: self.read_argument(parameter, argument)
            for parameter, argument in zip(function.positional, positional, strict=False)
        }
        for argument in named:
            parameter = re.split(r"\s*=", self.text_of(argument))[0]
            if parameter not in function.parameters:
                remedy = _suggest(parameter, function.parameters)
                remedy = remedy or f"one of {', '.join(function.parameters)}"
                self.fail(f"{name} has no {parameter}=: {remedy}", argument)
            if parameter in given:
                self.fail(f"{parameter} is given twice", argument)
            given[parameter] = self.read_argument(parameter, argument.value)
        missing = [parameter for parameter in function.required if parameter not in given]
        if missing:
            self.fail(f"{name} needs {', '.join(missing)}: {function}", node)
        return self.make(node, function.make, **given)

    # Arguments.

    def read_argument(self, parameter: str, node: ast.expr) -> Any:
        """Read the argument of a parameter; its rate refuses unsuitable values."""
        elements: dict[str, Read] = {
            "matrix": self.read_matrix_row, "to": self.read_number, "range": self.read_number,
            "by": self.read_value, "rates": self.read_sum,
        }  # fmt: skip
        if parameter in LABELS:
            return self.read_label(node)
        if parameter in ROWS:
            return self.read_selectors(node)
        if parameter in elements and isinstance(node, (ast.List, ast.Tuple)):
            return self.read_all(node.elts, node, elements[parameter])
        if parameter in ("levels", "to") and isinstance(node, ast.Dict):
            return self.read_dict(node, self.read_label, self.read_number)
        if parameter == "reference" and isinstance(node, ast.Tuple):
            return self.read_all(node.elts, node, self.read_value)
        if parameter == "reference" and self.text_of(node) == "overall":
            return overall
        if parameter == "rate":
            return self.read_sum(node)
        if parameter == "p" and self.text_of(node) in ("inf", "float('inf')"):
            return math.inf
        return self.read_number(node) if parameter in NUMBERS else self.read_value(node)

    def read_matrix_row(self, node: ast.expr) -> tuple[Any, ...]:
        """Read a row of numbers."""
        if not isinstance(node, (ast.List, ast.Tuple)):
            self.fail("expected a row of the matrix, such as [0, 1]", node)
        return self.read_all(node.elts, node, self.read_number)

    def read_number(self, node: ast.expr) -> float | None:
        """Read a bound: a sum of numbers, or none."""
        value = None if self.text_of(node) in NOTHING else self.read_sum(node)
        if not isinstance(value, float | None):
            self.fail("expected a number", node)
        return value

    def read_value(self, node: ast.expr) -> Any:
        """Read a word, a quoted text, a number, or a constant."""
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and self.kind_of(node.operand) == "number"
        ):
            return -self.read_value(node.operand)
        kind, text = self.kind_of(node), self.text_of(node)
        if kind == "name":
            return CONSTANTS.get(text, text)
        if kind == "text":
            return text[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
        if kind is None:
            message = "quote names and labels that are not single words"
            self.fail(f"expected a word, a quoted text or a number: {message}", node)
        if text.isdigit() and text[0] == "0" and text != "0":
            bare = text.lstrip("0") or "0"
            self.fail(f'write the number {bare} or the text "{text}"', node)
        return self.make(node, int if text.isdigit() else float, text)

    def read_label(self, node: ast.expr) -> Any:
        """Read the label of a class."""
        return self.find_label(self.read_value(node), node)

    def find_label(self, value: Hashable, node: ast.expr) -> Hashable:
        """Look a label up among those that the text may name."""
        if self.labels is None or value is None:
            return value
        if value not in self.labels:
            known = list(map(repr, self.labels))
            remedy = _suggest(repr(value), known) or f"the labels are {', '.join(known)}"
            self.fail(f"no class is labelled {value!r}: {remedy}", node)
        return self.labels[value]

    def read_all(self, nodes: Sequence[ast.expr], node: ast.expr, read: Read) -> tuple[Any, ...]:
        """Read the elements of brackets, at least one."""
        if not nodes:
            self.fail("these brackets are empty", node)
        return tuple(map(read, nodes))

    def read_dict(self, node: ast.Dict, key: Read, read: Read) -> dict[Any, Any]:
        """Read a dict whose keys differ."""
        if None in node.keys:
            self.fail("expected a name, found `**`", node)
        names = self.read_all([name for name in node.keys if name is not None], node, key)
        for i, name in enumerate(names):
            if name in names[:i]:
                self.fail(f"{name!r} is given twice", node)
        return dict(zip(names, map(read, node.values), strict=True))

    def read_selectors(self, node: ast.expr) -> Any:
        """Read the selectors of the rows that a rate is taken over."""
        if isinstance(node, ast.Dict):
            return self.read_dict(node, self.read_value, self.read_value)
        if isinstance(node, ast.Tuple):
            return self.read_all(node.elts, node, self.read_selectors)
        if self.text_of(node) in NOTHING:
            return None
        name = self.name_of(node)
        if isinstance(node, ast.Call) and name in SELECTORS and len(node.args) == 1:
            read = self.read_label if name == "label" else self.read_value
            return self.make(node, SELECTORS[name], read(node.args[0]))
        message = "label(1), dataset(monitor), {sex: F}, or several of these in round brackets"
        self.fail(f"expected rows: {message}", node)


def parse_constraint(
    text: str, *, labels: Mapping[Any, Hashable] | None = None, positive: Hashable | None = None
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
    found = ConstraintReader(text, labels, positive).read_constraints()
    if len(found) != 1:
        message = f"this makes {len(found)} constraints: parse_constraints reads several"
        raise make_error(text, 0, len(text), message)
    return found[0]


def parse_constraints(
    text: str, *, labels: Mapping[Any, Hashable] | None = None, positive: Hashable | None = None
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
    return ConstraintReader(text, labels, positive).read_constraints()


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
    return format_checked(constraint, parse_constraint, "gbm_constrained.constraints.rates")


def format_checked(value: Any, parse: Callable[[str], Any], where: str) -> str:
    """Write a value as text, and refuse one that does not read as the same value."""
    try:
        text: str = value.to_python()
        if parse(text) != value:
            raise NotTextError(f"it was not made by the functions of {where} alone")
    except ValueError as reason:
        raise ValueError(f"{value} cannot be written as text: {reason}.") from None
    return text
