"""The file that an interrupted fit is resumed from.

A checkpoint holds the state of one fit: trees, scores, and what the solver knows. Its format is
plain: a header, a JSON document, and arrays in NumPy's own format, none of them pickled. Reading a
file runs nothing that it contains.

The file is replaced in one step, and the one before stays as ``<path>.previous``. The header has
the length and the SHA-256 of all that follows, so that a file that was cut short or has changed is
noticed, and the previous one is used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import numbers
import os
import secrets
import struct
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from gbm_constrained.exceptions import CheckpointWarning

# Nested dicts with str keys, and lists (which tuples become), of None, bool, int, float, str,
# bytes, NumPy arrays and NumPy scalars.
State: TypeAlias = dict[str, Any]
MAGIC = b"gbmckpt\n"
FORMAT = 4
HEADER = struct.Struct("<8sI16sQ32s")  # magic, format, writer, length, SHA-256
SHARE = 20  # A write waits for so many times as long as the last one took: at most 5% of the time.
ARRAY, SCALAR, BYTES = "__array__", "__scalar__", "__bytes__"


class _UnreadableError(Exception):
    """A file that is not a whole checkpoint, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """A file that a fit saves its state to, and how often.

    Parameters
    ----------
    path : str or path-like
        The file. Its folder must exist. ``<path>.previous`` and ``<path>.partial`` belong to it.
    seconds : float, default=10
        Least time between two writes. A write also waits until 20 times as long has passed as the
        last one took, so that saving costs at most 5% of the time. 0 writes after every boosting
        round, whatever it costs.

    Raises
    ------
    ValueError
        If `seconds` is negative or not finite.
    """

    path: str | os.PathLike[str]
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if isinstance(self.path, bytes) or not isinstance(self.path, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be a path or a Checkpoint, got {self.path!r}.")
        known = isinstance(self.seconds, numbers.Real)
        if not (known and np.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(
                f"seconds of a checkpoint must be a finite number >= 0, got {self.seconds!r}."
            )

    @classmethod
    def of(cls, checkpoint: Any) -> Checkpoint | None:
        """Make one of what users give as ``checkpoint=``.

        Parameters
        ----------
        checkpoint : str, path-like, Checkpoint or None
            None stays None.
        """
        return checkpoint if checkpoint is None or isinstance(checkpoint, cls) else cls(checkpoint)


class CheckpointFile:
    """The checkpoint of a running fit.

    Parameters
    ----------
    checkpoint : Checkpoint
        The file, and how often it is written.
    fingerprint : mapping from str to str
        What the fit is of: a file with another one is refused.
    machine : mapping from str to str, default=empty
        What the last digits may depend on: a file with another one gives a warning.

    Attributes
    ----------
    state : dict or None
        What was found in the file; None where there is none.

    Raises
    ------
    ValueError
        If the file is of another fit, or is no checkpoint; or its folder does not exist.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        fingerprint: Mapping[str, str],
        machine: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(checkpoint.path)
        self.seconds = checkpoint.seconds
        self._fingerprint, self._machine = dict(fingerprint), dict(machine or {})
        self._last, self._cost = time.monotonic(), 0.0
        self._writer: bytes | None = None
        self._check_folder()
        self.state: State | None = self._found()

    @property
    def previous(self) -> Path:
        """Where the file before the last one is kept."""
        return self.path.with_name(self.path.name + ".previous")

    @property
    def _partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")

    def offer(self, make_state: Callable[[], State]) -> None:
        """Write the state of the fit, if it is time to; `make_state` is called only then."""
        started = time.monotonic()
        if self.seconds > 0 and started - self._last < max(self.seconds, SHARE * self._cost):
            return
        document = {
            "fingerprint": self._fingerprint,
            "machine": self._machine,
            "state": make_state(),
        }
        try:
            self._write(document)
        except OSError as error:
            warnings.warn(
                f"The checkpoint {str(self.path)!r} could not be written, and the fit goes on "
                f"without: {error}.",
                CheckpointWarning,
                stacklevel=2,
            )
        self._last = time.monotonic()
        self._cost = self._last - started

    def finish(self) -> None:
        """Remove the files: the fit is done, and the next one starts anew."""
        if _writer_of(self.path) not in (None, self._writer):
            return  # another fit's
        for path in (self.path, self.previous, self._partial):
            path.unlink(missing_ok=True)

    def _check_folder(self) -> None:
        folder = self.path.parent
        if self.path.is_dir() or not folder.is_dir():
            what = "is a folder" if self.path.is_dir() else "is in a folder that is not there"
            raise ValueError(
                f"checkpoint={str(self.path)!r} {what}: give the path of a file in a folder that "
                f"exists."
            )
        if not os.access(folder, os.W_OK):
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be written: {str(folder)!r} does not "
                f"permit it. Give another path."
            )

    def _write(self, document: State) -> None:
        found = _writer_of(self.path)
        if found is not None and found != self._writer:
            raise RuntimeError(
                f"checkpoint={str(self.path)!r} has been written by another fit that is running: "
                f"give each fit a file of its own."
            )
        writer = secrets.token_bytes(16)
        with self._partial.open("wb") as file:
            file.write(bytes(HEADER.size))
            body = _Hashed(file)
            _dump(document, body)
            file.seek(0)
            body.hash.update(_Header(writer, body.length, b"").fields)
            file.write(HEADER.pack(MAGIC, FORMAT, writer, body.length, body.hash.digest()))
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self.previous)
        self._partial.replace(self.path)
        self._writer = writer
        _sync_folder(self.path.parent)

    def _found(self) -> State | None:
        """Read the file, or the previous one where it is torn; None where there is neither."""
        paths = [path for path in (self.path, self.previous) if path.exists()]
        complaints = []
        for path in paths:
            try:
                document = _read(path)
            except _UnreadableError as error:
                complaints.append(f"{str(path)!r} {error}")
                continue
            self._refuse_another(document)
            self._writer = _writer_of(self.path)
            if complaints:
                warnings.warn(
                    f"The checkpoint {complaints[0]}: the previous one is used.",
                    CheckpointWarning,
                    stacklevel=2,
                )
                # It must not become the previous one.
                self.path.unlink()
                self._writer = None
            state: State = document["state"]
            return state
        if complaints:
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be resumed from: "
                f"{'; '.join(complaints)}. Delete "
                f"{' and '.join(str(path) for path in paths)} to start anew, or give another path."
            )
        return None

    def _refuse_another(self, document: State) -> None:
        before, now = document["fingerprint"], self._fingerprint
        differing = [
            _difference(name, before.get(name), now.get(name))
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if differing:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of another fit: {'; '.join(differing)}. "
                f"Resume with what that fit was given, or delete the file (and "
                f"{self.previous.name!r}) to start anew, or give another path."
            )
        if document["machine"] != self._machine:
            names = [n for n, v in self._machine.items() if document["machine"].get(n) != v]
            warnings.warn(
                f"The checkpoint {str(self.path)!r} was written elsewhere ({', '.join(names)} "
                f"differs): the fit is resumed, but its model may differ in the last digits from "
                f"that of an uninterrupted fit.",
                CheckpointWarning,
                stacklevel=2,
            )


class _Header(NamedTuple):
    writer: bytes
    length: int
    digest: bytes

    @property
    def fields(self) -> bytes:
        """All but the digest, which they are part of."""
        return HEADER.pack(MAGIC, FORMAT, self.writer, self.length, b"")


def refuse_without_constraints(checkpoint: Any) -> None:
    """Refuse a checkpoint of a fit that is left to the library."""
    if checkpoint is not None:
        raise ValueError(
            f"checkpoint={checkpoint!r} saves fits under constraints, and there are none: give "
            f"constraints, or leave checkpoint out."
        )


class _Hashed:
    """A file that knows the hash and the length of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash, self.length = file, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.length += len(data)
        return self.file.write(data)


def _difference(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name} was {'not given' if before is None else 'given, and is not now'}"
    if before.startswith("sha256:"):
        return f"{name} differs"
    return f"{name} was {before} and is {now}"


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder written to disk, where the system knows how."""
    with contextlib.suppress(OSError):  # folders cannot be opened on Windows
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _header(data: bytes) -> _Header:
    if len(data) < HEADER.size:
        raise _UnreadableError("is too short")
    magic, version, writer, length, digest = HEADER.unpack(data[: HEADER.size])
    if magic != MAGIC:
        raise _UnreadableError("is not a checkpoint")
    if version != FORMAT:
        raise _UnreadableError(f"has format {version}, and this version reads format {FORMAT}")
    return _Header(writer, length, digest)


def _writer_of(path: Path) -> bytes | None:
    """Mark of the process that wrote a file; None where there is none, or none that is whole."""
    try:
        with path.open("rb") as file:
            return _header(file.read(HEADER.size)).writer
    except (FileNotFoundError, _UnreadableError):
        return None


def _read(path: Path) -> State:
    data = path.read_bytes()
    header = _header(data)
    body = memoryview(data)[HEADER.size :]
    if len(body) != header.length:
        raise _UnreadableError(f"has {len(body)} of {header.length} bytes")
    found = hashlib.sha256(body)
    found.update(header.fields)
    if found.digest() != header.digest:
        raise _UnreadableError("has changed since it was written")
    return _load(io.BytesIO(body))


def _dump(state: State, file: Any) -> None:
    """Write a state: the length of a JSON document, the document, and its arrays."""
    arrays: list[Any] = []
    text = json.dumps(_packed(state, arrays)).encode()
    file.write(struct.pack("<Q", len(text)))
    file.write(text)
    for array in arrays:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _load(file: BinaryIO) -> State:
    (length,) = struct.unpack("<Q", file.read(8))
    document = json.loads(file.read(length))
    read = functools.partial(np.lib.format.read_array, file, allow_pickle=False)
    state: State = _unpacked(document, read)
    return state


def _packed(value: Any, arrays: list[Any]) -> Any:
    """Replace arrays by marks, in the order in which :func:`_unpacked` will read them."""
    if isinstance(value, np.generic):  # for a float is not rounded to as one of NumPy is
        arrays.append(np.asarray(value))
        return {SCALAR: True}
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {ARRAY: True}
    if isinstance(value, (bytes, bytearray)):
        arrays.append(np.frombuffer(value, dtype=np.uint8))
        return {BYTES: True}
    if isinstance(value, dict):
        return {name: _packed(item, arrays) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item, arrays) for item in value]
    return value


def _unpacked(value: Any, read: Callable[[], Any]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, read) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return read()
    if SCALAR in value:
        return read()[()]
    if BYTES in value:
        return read().tobytes()
    return {name: _unpacked(item, read) for name, item in value.items()}


class Resumed:
    """What a checkpoint knows of the parent's own fit, whose rounds pass once more.

    A resumed fit passes through the rounds of the file: the library's own loop and all callbacks
    see them, with the metrics that were recorded, while ``update`` does nothing. So early
    stopping, schedules and the recorded metrics are where they were.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, and its checkpoint if it has one.

    Attributes
    ----------
    file : Checkpoint or None
        The checkpoint.
    saved : dict or None
        State of the booster in it.
    rounds : int
        Rounds of the file.
    metrics : list
        Metrics of each round, as the library gave them; those to come are appended.
    """

    def __init__(self, fit: Any) -> None:
        self.fit, self.file = fit, fit.checkpoint
        state = {} if self.file is None else self.file.state or {}
        self.saved: State | None = state.get("ensemble")
        self.rounds: int = 0 if self.saved is None else self.saved["rounds"]
        self.metrics: list[Any] = [] if self.saved is None else self.saved["metrics"]

    def restore(self) -> None:
        """Take over the state of the fit; once its measurement is there."""
        assert self.file is not None
        assert self.file.state is not None
        self.fit.restore(self.file.state)
        self.file.state = self.saved = None  # they may be large

    def state(self, rounds: int, booster: State) -> State:
        """State of the fit after so many rounds, with that of its booster."""
        ensemble = {"rounds": rounds, "metrics": self.metrics, **booster}
        return {**self.fit.state(), "ensemble": ensemble}

    def passes(self, number: int) -> bool:
        """Whether a round, counted from zero, is one of the file."""
        return number < self.rounds
