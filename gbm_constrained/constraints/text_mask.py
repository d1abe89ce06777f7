"""Trees of constraints in a text, and errors that show a place of the text.

Nothing is ever evaluated. Each word, number and quoted text is masked by underscores of the same
length, so that ``ast.parse`` reads the structure alone: words may be those that Python reserves,
and the columns of the nodes are places in the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

MAX_DEPTH = 30  # Most levels of brackets and signs.
SHOWN = 100  # Characters of a line that an error shows.
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
    first = max(begin, min(start, stop) - SHOWN // 2)
    last = min(stop, first + SHOWN)
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


class MaskedText:
    """A text of constraints, and the places of the nodes of their trees."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(
                f"text must be a string such as 'fpr <= 0.05', got {text!r}: constraints that are "
                f"objects already need no reading."
            )
        self.text = text
        self.start = 0  # Place of the constraint that is being read.

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
