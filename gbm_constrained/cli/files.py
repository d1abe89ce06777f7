"""Files of a command, checked before anything takes its time."""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
from pathlib import Path

from gbm_constrained.cli.tables import CSV, PARQUET

# Every option or argument that is a file, as messages name it.
ROLES = {"data": "DATA", "model": "MODEL", "out": "--out", "html": "--html", "json": "--json"}


def check_input(role: str, path: Path) -> None:
    """Refuse a file that cannot be read."""
    if role == "DATA" and not path.name.lower().endswith((*PARQUET, *CSV)):
        raise ValueError(f"DATA {path} must be a table that ends in .parquet or .csv.")
    if path.is_dir():
        raise ValueError(f"{role} {path} is a folder: name a file in it.")
    if not path.exists():
        others = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        remedy = f"did you mean {path.parent / near[0]}?" if near else "check its name and folder."
        raise ValueError(f"{role} {path} does not exist: {remedy}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{role} {path} cannot be read: permission is denied.")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{role} {path} is empty: give a file with content.")


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or would be written over another one."""
    given = [
        (role, getattr(options, name))
        for name, role in ROLES.items()
        if getattr(options, name, None) is not None
    ]
    for (first, one), (second, other) in itertools.combinations(given, 2):
        if second.startswith("--") and _is_same_file(one, other):
            raise ValueError(
                f"{second} {other} would be written over {first} {one}: name another file."
            )
    for role, path in given:
        if role.startswith("--"):
            _check_writable(role, path)


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, by links as well, or would if it were written."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _check_writable(role: str, path: Path) -> None:
    """Refuse a file that cannot be opened for writing; an existing file stays as it is."""
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{role} {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise ValueError(f"{role} {path} is a folder: name a file in it.")
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise ValueError(f"{role} {path} cannot be written: {error.strerror}.") from None
    if is_new:
        path.unlink()
