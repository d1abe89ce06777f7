"""Tables of a benchmark: each is a CSV whose rows are measured once, with a line for each case.

A CSV grows by a row with each result, so that a killed benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import subprocess
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

HERE = Path(__file__).parent
COMMIT = "commit"
# Names of the repetitions of a case. They come last among the names of a row.
REPETITIONS = ("split", "seed", "repetition")
Number = TypeVar("Number", int, float)
Figures = dict[str, float]  # What is measured of a row, by name.


@cache
def commit(folder: Path = HERE) -> str:
    """Short hash of what is checked out, with a + if files differ; empty without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return found.stdout.strip()


class ResultFile:
    """Rows of a CSV, appended from any thread, each with the commit that made it.

    Parameters
    ----------
    path : Path
        Made with its first row when it does not exist. A last line without an end is what a killed
        run left, and is dropped.
    columns : sequence of str, default=()
        Its columns, to which "commit" is added. By default those of the file or of the first row.

    Raises
    ------
    ValueError
        If the file has other columns.
    """

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self.path, self._lock = path, threading.Lock()
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self._columns = whole.partition("\n")[0].split(",") if whole else []
        if columns:
            self._begin(columns)
        if whole != text:
            path.write_text(whole)

    def _begin(self, columns: Sequence[str]) -> None:
        """Write the header of a new file, or compare it with that of a file."""
        wanted = [*columns, COMMIT]
        if not self._columns:
            self._columns = wanted
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(",".join(wanted) + "\n")
        elif sorted(wanted) != sorted(self._columns):
            found, asked = ",".join(self._columns), ",".join(wanted)
            raise ValueError(f"{self.path} has columns {found}, not {asked}: give another file.")

    def rows(self) -> list[dict[str, str]]:
        """Read what is there."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def keys(self, *names: str) -> set[tuple[str, ...]]:
        """Read what some columns say of the rows that are there."""
        return {tuple(row[name] for name in names) for row in self.rows()}

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
        Columns that name a row. All others are its figures.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        super().__init__(path)
        self.names, self._done = tuple(names), {}
        made_by = set()
        for row in self.rows():
            key = tuple(row.pop(name) for name in names)
            made_by.add(row.pop(COMMIT))
            self._done[key] = {figure: _read(text) for figure, text in row.items()}
        if commits := sorted(made_by - {commit()}):
            print(f"{path}: keeps its rows of {', '.join(commits)}", flush=True)

    def once(self, measure: Callable[..., Mapping[str, Any]], *named: Any) -> Mapping[str, Any]:
        """Give the figures of a row; measure them if it is not there.

        Parameters
        ----------
        measure : callable
            Given what the row is called, its figures by name.
        *named : object
            What the row is called, in the order of the names.
        """
        key = tuple(map(str, named))
        if key not in self._done:
            self._done[key] = found = dict(measure(*named))
            self._begin([*self.names, *found])
            self.append(dict(zip(self.names, key, strict=True)) | found)
        return self._done[key]


def _read(text: str) -> Any:
    with suppress(ValueError):
        return float(text or "nan")
    return text


@dataclass(frozen=True)
class Table:
    """A table of a benchmark: what its rows measure, and the lines that are printed of them.

    Parameters
    ----------
    measure : callable
        Given what a row is called, its figures by name.
    names : dict of str to iterable
        Columns that name a row, each with its values. There is a row for each combination. Of
        several columns, with spaces between them, the values are tuples. A last column "split",
        "seed" or "repetition" has the repetitions of a case.
    line : str, default=""
        Format of the line of a case: of its names, and of the means of its figures over the
        repetitions. ``{figure sem}`` has what that method of a series gives in the place of the
        mean, and ``{figure each}`` all values. By default nothing is printed.
    more : callable, default=None
        Given the repetitions of a case and what it is called, further figures of its line.
    summary : callable, default=None
        Given all rows, what is printed at the end.
    heading : str, default=""
        The first line.
    file : str, default=""
        Name of the CSV without its suffix; by default that of the table.
    """

    measure: Callable[..., Mapping[str, Any]]
    names: Mapping[str, Iterable[Any]]
    line: str = ""
    more: Callable[..., Mapping[str, Any]] | None = None
    summary: Callable[[pd.DataFrame], object] | None = None
    heading: str = ""
    file: str = ""

    def cases(self, given: Mapping[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
        """List the rows of each case, where some names have the values that are given."""
        axes = []
        for name, values in self.names.items():
            rows = [v if isinstance(v, tuple) else (v,) for v in given.get(name) or values]
            asked = [given.get(column) for column in name.split()]
            axes.append([
                row for row in rows
                if all(not some or v in some for some, v in zip(asked, row, strict=True))
            ])  # fmt: skip
        repetitions = axes.pop() if [*self.names][-1] in REPETITIONS else [()]
        for parts in itertools.product(*axes):
            case = sum(parts, start=())
            yield [(*case, *repetition) for repetition in repetitions]

    def run(self, path: Path, given: Mapping[str, Any]) -> None:
        """Measure what is missing of the table in a file, and print its lines."""
        results = Measurements(path, " ".join(self.names).split())
        rows = []
        if self.heading:
            print(self.heading)
        for case in self.cases(given):
            found = pd.DataFrame([results.once(self.measure, *named) for named in case])
            named = pd.DataFrame(case, columns=results.names)
            rows.append(pd.concat([named, found], axis=1))
            if self.line:
                shown = dict(zip(results.names, case[0], strict=True))
                if self.more is not None:
                    shown |= self.more(found, *case[0])
                print(self.line.format_map(_Line(found, shown)), flush=True)
        if self.summary is not None:
            print(self.summary(pd.concat(rows, ignore_index=True)), flush=True)


class _Line(dict[str, Any]):
    """What a line may show: names, and what the methods of a series give of figures."""

    def __init__(self, found: pd.DataFrame, named: Mapping[str, Any]) -> None:
        super().__init__(named)
        self._found = found

    def __missing__(self, key: str) -> Any:
        figure, _, how = key.rpartition(" ") if key not in self._found else (key, "", "mean")
        if how == "each":
            return self._found[figure].round(4).tolist()
        return getattr(self._found[figure], how)()


def at_least(least: Number, most: float = math.inf) -> Callable[[str], Number]:
    """Make the type of a number within limits; a whole number where `least` is one."""
    kind = type(least)
    limits = f"{least:,g} or more" if math.isinf(most) else f"between {least:,g} and {most:,g}"

    def number(text: str) -> Number:
        if not least <= (value := kind(text)) <= most:
            raise argparse.ArgumentTypeError(f"must be {limits}, got {text}")
        return value

    number.__name__ = kind.__name__  # Messages of argparse contain this name.
    return number


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Make the parser of a benchmark, which shows its whole text."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_parts(parser: argparse.ArgumentParser, name: str, parts: Collection[str]) -> None:
    """Add the argument that names the parts of a benchmark to run, all of them by default."""

    def part(text: str) -> str:
        if text not in parts:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(parts)}")
        return text

    # Given as choices, argparse would look for the list of defaults among them.
    names = f"some of {', '.join(parts)}; all by default"
    parser.add_argument(name, nargs="*", type=part, default=list(parts), help=names)


def run_tables(
    tables: Mapping[str, Table],
    folder: str,
    parser: argparse.ArgumentParser,
    prepare: Callable[[argparse.Namespace], object] | None = None,
    **names: Collection[str] | Callable[[str], Any],
) -> None:
    """Run the tables that the command line names, all of them by default.

    Parameters
    ----------
    tables : mapping of str to Table
        The tables by name.
    folder : str
        Folder of their CSVs in ``results``.
    parser : ArgumentParser
        Has further options of the benchmark.
    prepare : callable, default=None
        Called with the command line before anything is measured.
    **names : collection of str or type
        Names of rows that have an option each, in the plural if they have a type: the choices or
        the type. Repetitions have one for their number.
    """
    add_parts(parser, "tables", tables)
    for name, kind in names.items():
        if callable(kind):
            count = {} if name in REPETITIONS else {"nargs": "+"}
            parser.add_argument(f"--{name}s", dest=name, type=kind, **count)
        else:
            parser.add_argument(f"--{name}", nargs="+", choices=kind)
    parser.add_argument("--output", type=Path, default=HERE / "results" / folder)
    args = parser.parse_args()
    if prepare is not None:
        prepare(args)
    given = {name: getattr(args, name) for name in names}
    given |= {name: range(given[name]) for name in REPETITIONS if given.get(name)}
    warnings.simplefilter("ignore")  # Constraints that are missed are counted.
    for name in args.tables:
        table = tables[name]
        print(f"== {name}", flush=True)
        table.run(args.output / f"{table.file or name}.csv", given)
