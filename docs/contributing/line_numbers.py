"""Keep the line numbers of the page about one fit true.

``python docs/contributing/line_numbers.py`` rewrites each ``path.py:line`` that follows a name in
``one_fit.md``. A test compares the page with what this script would write.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parent / "one_fit.md"
PACKAGE = Path(__file__).resolve().parents[2] / "gbm_constrained"
PLACE = re.compile(r"`([\w.]+)`(\s+)\(`([\w/]+\.py):(\d+)`\)")


def find_line(path: str, name: str) -> int:
    """Find the line on which a class, a function or a method ``Class.method`` is defined."""
    nodes: list[ast.stmt] = ast.parse((PACKAGE / path).read_text()).body
    line = 0
    for part in name.split("."):
        found = [node for node in nodes if getattr(node, "name", None) == part]
        if not found:
            raise ValueError(f"{path} defines no {name}: bring {PAGE.name} up to date.")
        nodes, line = getattr(found[0], "body", []), found[0].lineno
    return line


def with_lines(text: str) -> str:
    """Write the page with the lines on which the names are defined today."""

    def place(match: re.Match[str]) -> str:
        name, space, path, _ = match.groups()
        return f"`{name}`{space}(`{path}:{find_line(path, name)}`)"

    return PLACE.sub(place, text)


if __name__ == "__main__":
    PAGE.write_text(with_lines(PAGE.read_text()))
