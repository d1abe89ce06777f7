"""What a benchmark is frozen by: a hash of code, settings and seeds, beside its results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def digest_of(files: Iterable[Path], settings: Any) -> str:
    """Hash the names and contents of files, and settings that JSON can hold."""
    found = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for file in sorted(files):
        found.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def freeze(results: Path, digest: str, settings: Any, *, anew: bool = False) -> None:
    """Write the hash beside results that are not there yet; of others it has to be the same.

    Parameters
    ----------
    results : Path
        The file of results; the hash and the settings are in one of its name and ".frozen.json".
    digest : str
        The hash of what is about to run.
    settings : object
        What JSON can hold of the settings, to be read beside the hash.
    anew : bool, default=False
        Whether results of another hash are deleted.

    Raises
    ------
    SystemExit
        If the results are of another hash, or of none.
    """
    beside = results.with_suffix(".frozen.json")
    there = json.loads(beside.read_text())["digest"] if beside.is_file() else "no hash"
    if results.is_file() and there != digest:
        if not anew:
            raise SystemExit(
                f"{results} is of {there[:12]}, and code, settings or seeds are now "
                f"{digest[:12]}: give another file, or --anew to delete its rows."
            )
        results.unlink()
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps({"digest": digest, "settings": settings}, indent=1) + "\n")
