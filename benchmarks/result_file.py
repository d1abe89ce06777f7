"""A CSV that grows by a row with each result, so that a killed benchmark goes on where it was."""

from __future__ import annotations

import csv
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ResultFile:
    """Rows of a CSV, appended from any thread.

    Parameters
    ----------
    path : Path
        Made when it does not exist. A last line without an end is what a killed run left, and is
        dropped.
    columns : sequence of str
        Its columns.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self._columns = path, list(columns)
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        path.write_text(text[: text.rfind("\n") + 1] or ",".join(columns) + "\n")

    def rows(self) -> list[dict[str, str]]:
        """Read what is there."""
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; columns that it lacks stay empty."""
        with self._lock, self.path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerow(row)
