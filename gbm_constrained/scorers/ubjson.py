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
DEEPEST = 64  # levels; XGBoost nests its models about ten deep


def is_ubjson(data: bytes) -> bool:
    """Whether the first two bytes are those of a model in UBJSON, and not in JSON."""
    return data[:1] == b"{" and data[1:2] not in (b'"', b" ", b"\n", b"\r", b"\t")


def read(data: bytes | bytearray) -> Any:
    """Read a value in UBJSON, which :func:`write` turns into the same bytes.

    Arrays of numbers of one type are views of the bytes. A ``ValueError`` says where bytes are
    missing, left over, or no UBJSON.
    """
    value, end = _Reader(data).value(0, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow its end")
    return value


class _Reader:
    """Reader of values at given positions; each method also returns the position after."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        marker = self._take(at, 1)
        if depth > DEEPEST:
            raise ValueError(f"it is nested too deeply at byte {at}")
        if marker == b"{":
            return self._object(at + 1, depth)
        if marker == b"[":
            return self._array(at + 1, depth)
        if marker == b"S":
            return self._text(at + 1)
        if marker in CONSTANTS:
            return CONSTANTS[marker], at + 1
        of_type = _type_of(marker, at)
        number = self._numbers(at + 1, of_type, 1)[0]
        is_integer = of_type.kind != "f"
        return int(number) if is_integer else number, at + 1 + of_type.itemsize

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members = {}
        while self._take(at, 1) != b"}":
            name, at = self._text(at)
            members[name], at = self.value(at, depth + 1)
        return members, at + 1

    def _array(self, at: int, depth: int) -> tuple[Any, int]:
        of_type = None
        if self._take(at, 1) == b"$":  # numbers of one type
            of_type = _type_of(self._take(at + 1, 1), at + 1)
            at += 2
        if self._take(at, 1) != b"#":
            raise ValueError(f"there should be a length at byte {at}")
        count, at = self._length(at + 1)
        if of_type is not None:
            return self._numbers(at, of_type, count), at + count * of_type.itemsize
        values = []
        for _ in range(count):
            value, at = self.value(at, depth + 1)
            values.append(value)
        return values, at

    def _text(self, at: int) -> tuple[str, int]:
        length, at = self._length(at)
        return self._take(at, length).decode("utf-8", "surrogateescape"), at + length

    def _length(self, at: int) -> tuple[int, int]:
        marker = self._take(at, 1)
        if marker not in INTEGERS:
            raise ValueError(f"there should be a length at byte {at}")
        size = NUMBERS[marker].itemsize
        value = int.from_bytes(self._take(at + 1, size), "big", signed=marker != b"U")
        if value < 0:
            raise ValueError(f"there is a negative length at byte {at}")
        return value, at + 1 + size

    def _numbers(self, at: int, of_type: np.dtype[Any], count: int) -> np.ndarray[Any, Any]:
        self._check_reach(at + count * of_type.itemsize)
        return np.frombuffer(self.data, of_type, count, at)

    def _take(self, at: int, size: int) -> bytes:
        self._check_reach(at + size)
        return bytes(self.data[at : at + size])

    def _check_reach(self, end: int) -> None:
        if end > len(self.data):
            raise ValueError(f"it ends after {len(self.data)} bytes, too early")


def _type_of(marker: bytes, at: int) -> np.dtype[Any]:
    if marker not in NUMBERS:
        raise ValueError(f"there is no value at byte {at}")
    return NUMBERS[marker]


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
        kinds = [kind for kind in (b"i", b"I", b"l", b"L") if _fits(value, NUMBERS[kind])]
        data += kinds[0] + np.array(value, NUMBERS[kinds[0]]).tobytes()
    else:
        big = value.dtype.newbyteorder(">")
        data += MARKERS[big] + np.array(value, big).tobytes()


def _append_text(text: str, data: bytearray) -> None:
    encoded = text.encode("utf-8", "surrogateescape")
    data += _length_of(encoded) + encoded


def _length_of(sized: Any) -> bytes:
    return b"L" + struct.pack(">q", len(sized))


def _fits(value: int, kind: np.dtype[Any]) -> bool:
    """Whether XGBoost writes an integer in a type, which excludes both ends of its range."""
    return bool(np.iinfo(kind).min < value < np.iinfo(kind).max)
