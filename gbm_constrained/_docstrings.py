"""Docstrings that share the descriptions of their parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def document_parameters(function: Function, shared: Mapping[str, str], *sections: str) -> Function:
    """Add shared descriptions of parameters, and further sections, to a docstring.

    Parameters stand in the order of the signature, and the function's own descriptions win.
    """
    # From Python 3.13 on docstrings come without the indentation of the code.
    text, *own = re.split(r"\n\n(?=\w+\n-+\n)", inspect.cleandoc(function.__doc__ or ""))
    entries: dict[str, str] = {}
    if own and own[0].startswith("Parameters\n"):
        for entry in re.split(r"\n(?=\S)", own.pop(0).split("\n", 2)[2]):
            names = re.findall(r"\w+", re.split(r" : |\n", entry)[0])
            entries |= dict.fromkeys(names, entry)
    known = {**shared, **entries}
    found = [known[name] for name in inspect.signature(function).parameters if name in known]
    parameters = dict.fromkeys([*found, *entries.values()])  # Each description stands once.
    body = "\n".join(["Parameters\n----------", *parameters])
    function.__doc__ = "\n\n".join([text, body, *sections, *own])
    return function
