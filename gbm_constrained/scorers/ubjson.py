"""Read and write UBJSON, the binary form of XGBoost's models (https://ubjson.org).

A value is a marker, followed by as many bytes as the marker, or a length after it, gives. Numbers
of one type become numpy arrays on the bytes, which can be edited in place. The JSON form of a
model takes half as long as a fit of some ten thousand rows.

XGBoost (3.2 to 3.4) reads past the end of a file that was cut, which ends the process. Files are
therefore read here first.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

INTEGERS = {b"i": ">i1", b"U": "u1", b"I": ">i2", b"l": ">i4", b"L": ">i8"}
NUMBERS = {name: np.dtype(of) for name, of in {**INTEGERS, b"d": ">f4", b"D": ">f8"}.items()}
CONSTANTS = {b"Z": None, b"T": True, b"F": False}
MARKERS = {of: name for name, of in NUMBERS.items()}


def is_ubjson(data: bytes) -> bool:
    """Whether the first two bytes are those of a model in UBJSON, and not in JSON."""
    return data[:1] == b"{" and data[1:2] not in (b'"', b" ", b"\n", b"\r", b"\t")


def read(data: bytes | bytearray) -> Any:
    """Read a value in UBJSON, which :func:`write` turns into the same bytes.

    Arrays of numbers of one type are views of the bytes. A ``ValueError`` says where bytes are
    missing, left over, or no UBJSON.
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow its end")
    return value


class _Reader:
    """Reads one value after another from bytes; `at` is the position of the next."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data, self.at = data, 0

    def value(self, depth: int) -> Any:
        marker = self._take(1)
        if depth > 64:  # XGBoost nests its models about ten deep.
            raise ValueError(f"it is nested too deeply at byte {self.at - 1}")
        if marker == b"{":
            members = {}
            while self._take(1) != b"}":
                self.at -= 1
                name = self._text()
                members[name] = self.value(depth + 1)
            return members
        if marker == b"[":
            of_type, marker = None, self._take(1)
            if marker == b"$":  # numbers of one type
                of_type, marker = self._take(1), self._take(1)
            if marker != b"#":
                raise ValueError(f"there should be a length at byte {self.at - 1}")
            count = self._length()
            if of_type is not None:
                return self._numbers(of_type, count)
            return [self.value(depth + 1) for _ in range(count)]
        if marker == b"S":
            return self._text()
        if marker in CONSTANTS:
            return CONSTANTS[marker]
        number = self._numbers(marker, 1)[0]
        return number if number.dtype.kind == "f" else int(number)

    def _text(self) -> str:
        return self._take(self._length()).decode("utf-8", "surrogateescape")

    def _length(self) -> int:
        begin, marker = self.at, self._take(1)
        if marker not in INTEGERS:
            raise ValueError(f"there should be a length at byte {begin}")
        value = int(self._numbers(marker, 1)[0])
        if value < 0:
            raise ValueError(f"there is a negative length at byte {begin}")
        return value

    def _numbers(self, marker: bytes, count: int) -> np.ndarray[Any, Any]:
        """Read numbers of one type as a view of the bytes."""
        if marker not in NUMBERS:
            raise ValueError(f"there is no value at byte {self.at - 1}")
        begin, kind = self.at, NUMBERS[marker]
        self.at += count * kind.itemsize
        if self.at > len(self.data):
            raise ValueError(f"it ends after {len(self.data)} bytes, too early")
        return np.frombuffer(self.data, kind, count, begin)

    def _take(self, size: int) -> bytes:
        return self._numbers(b"U", size).tobytes()


def write(value: Any) -> bytearray:
    """Write a value in UBJSON as XGBoost does: lengths in eight bytes, integers in fewer."""
    data = bytearray()
    _append(value, data)
    return data


def _append(value: Any, data: bytearray) -> None:
    if isinstance(value, dict):
        data += b"{"
        for name, member in value.items():
            _append_text(name, data)
            _append(member, data)
        data += b"}"
    elif isinstance(value, np.ndarray):
        data += b"[$" + MARKERS[value.dtype] + b"#" + _length_of(value) + value.tobytes()
    elif isinstance(value, list):
        data += b"[#" + _length_of(value)
        for member in value:
            _append(member, data)
    elif isinstance(value, str):
        data += b"S"
        _append_text(value, data)
    elif value is None or isinstance(value, bool):
        data += {None: b"Z", True: b"T", False: b"F"}[value]
    elif isinstance(value, int):
        # XGBoost writes an integer in the first type whose range has it inside, without its ends.
        ranges = ((name, np.iinfo(NUMBERS[name])) for name in (b"i", b"I", b"l", b"L"))
        kind = next(name for name, of in ranges if of.min < value < of.max)
        data += kind + np.array(value, NUMBERS[kind]).tobytes()
    else:
        big = value.dtype.newbyteorder(">")
        data += MARKERS[big] + np.array(value, big).tobytes()


def _append_text(text: str, data: bytearray) -> None:
    encoded = text.encode("utf-8", "surrogateescape")
    data += _length_of(encoded) + encoded


def _length_of(sized: Any) -> bytes:
    return b"L" + struct.pack(">q", len(sized))
