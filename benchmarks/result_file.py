"""Parts of a benchmark, and the CSV of each, which grows by a row with each result.

So a killed benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

COMMIT = "commit"


@cache
def commit() -> str:
    """Short hash of what is checked out, with a + if files differ; empty without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return ""
    return found.stdout.strip()


class ResultFile:
    """Rows of a CSV, appended from any thread, each with the commit that made it.

    Parameters
    ----------
    path : Path
        Made when it does not exist. A last line without an end is what a killed run left, and is
        dropped.
    columns : sequence of str
        Its columns, to which "commit" is added.

    Raises
    ------
    ValueError
        If the file has other columns.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self._columns = path, [*columns, COMMIT]
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        text, header = path.read_text() if path.exists() else "", ",".join(self._columns)
        text = text[: text.rfind("\n") + 1] or header + "\n"
        if (found := text.splitlines()[0]) != header:
            raise ValueError(f"{path} has columns {found}, not {header}: give another file.")
        path.write_text(text)

    def rows(self) -> list[dict[str, str]]:
        """Read what is there."""
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; columns that it lacks stay empty."""
        with self._lock, self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, self._columns, lineterminator="\n")
            writer.writerow({**row, COMMIT: commit()})


class Measurements(ResultFile):
    """Figures that are measured once: a row of a CSV for each set of them.

    Parameters
    ----------
    path : Path
        The file. Rows that are there are not measured again, whatever commit made them; the
        commits are printed.
    names : sequence of str
        Columns that name a row.
    figures : sequence of str
        Columns of its figures.
    """

    def __init__(self, path: Path, names: Sequence[str], figures: Sequence[str]) -> None:
        super().__init__(path, [*names, *figures])
        self._names, rows = names, self.rows()
        self._done = {
            tuple(row[name] for name in names): {name: float(row[name]) for name in figures}
            for row in rows
        }
        if commits := sorted({row[COMMIT] for row in rows} - {commit()}):
            print(f"{path}: keeps its rows of {', '.join(commits)}", flush=True)

    def once(self, measure: Callable[[], Mapping[str, float]], *named: Any) -> Mapping[str, float]:
        """Give the figures of a row; measure them if it is not there.

        Parameters
        ----------
        measure : callable
            Gives the figures by name.
        *named : object
            What the row is called, in the order of the names.
        """
        key = tuple(map(str, named))
        if key not in self._done:
            self._done[key] = found = measure()
            self.append(dict(zip(self._names, key, strict=True)) | dict(found))
        return self._done[key]


def column(found: Sequence[Mapping[str, float]], figure: str) -> NDArray[np.float64]:
    """One figure of several rows."""
    return np.array([row[figure] for row in found])


class Part(NamedTuple):
    """A part of a benchmark: what fills and prints its table, and the columns of that.

    Parameters
    ----------
    run : callable
        Given the :class:`Measurements` and further arguments of the benchmark.
    names, figures : tuple of str
        As in :class:`Measurements`.
    """

    run: Callable[..., None]
    names: tuple[str, ...]
    figures: tuple[str, ...]


def add_parts(parser: argparse.ArgumentParser, name: str, parts: Collection[str]) -> None:
    """Add the argument that names the parts of a benchmark to run, all of them by default.

    Parameters
    ----------
    parser : ArgumentParser
        Of the benchmark.
    name : str
        The argument.
    parts : collection of str
        The names to choose from.
    """

    def part(text: str) -> str:
        if text not in parts:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(parts)}")
        return text

    # Given as choices, argparse would look for the list of defaults among them.
    names = f"some of {', '.join(parts)}; all by default"
    parser.add_argument(name, nargs="*", type=part, default=list(parts), help=names)
