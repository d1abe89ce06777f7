"""A CSV that grows by a row with each result, so that a killed benchmark goes on where it was."""

from __future__ import annotations

import csv
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

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
