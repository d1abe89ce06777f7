"""Whether a file in UBJSON, the binary form of XGBoost's models, is whole.

XGBoost (3.2 to 3.4) reads past the end of a file that was cut, which ends the process. A cut is
seen by walking from value to value without reading them: each is a marker, followed by as many
bytes as the marker or the length after it says (https://ubjson.org).
"""

from __future__ import annotations

INTEGERS = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8}  # bytes after the marker
FIXED = {**INTEGERS, b"d": 4, b"D": 8, b"C": 1, b"Z": 0, b"T": 0, b"F": 0}
DEEPEST = 64  # XGBoost nests its models about ten deep


def is_ubjson(data: bytes) -> bool:
    """Whether a model is in UBJSON, and not in JSON, by its first two bytes."""
    return data[:1] == b"{" and data[1:2] not in (b'"', b" ", b"\n", b"\r", b"\t")


def check_complete(data: bytes) -> None:
    """Check that an object in UBJSON ends where its bytes do.

    Raises
    ------
    ValueError
        If bytes are missing, left over, or no UBJSON.
    """
    end = _skip(data, 0, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow its end")


def _skip(data: bytes, at: int, depth: int) -> int:
    """Position after the value that begins at `at`."""
    marker = _take(data, at, 1)
    if depth > DEEPEST:
        raise ValueError(f"it is nested too deeply at byte {at}")
    if marker == b"{":
        return _skip_object(data, at + 1, depth)
    if marker == b"[":
        return _skip_array(data, at + 1, depth)
    if marker in (b"S", b"H"):
        return _skip_sized(data, at + 1)
    return _skip_bytes(data, at + 1, _size_of(marker, at))


def _skip_object(data: bytes, at: int, depth: int) -> int:
    while _take(data, at, 1) != b"}":
        at = _skip(data, _skip_sized(data, at), depth + 1)
    return at + 1


def _skip_array(data: bytes, at: int, depth: int) -> int:
    size = None
    if _take(data, at, 1) == b"$":  # numbers of one type
        size = _size_of(_take(data, at + 1, 1), at + 1)
        at += 2
    if _take(data, at, 1) == b"#":
        count, at = _integer(data, at + 1)
        if size is not None:
            return _skip_bytes(data, at, size * count)
        for _ in range(count):
            at = _skip(data, at, depth + 1)
        return at
    while _take(data, at, 1) != b"]":
        at = _skip(data, at, depth + 1)
    return at + 1


def _skip_sized(data: bytes, at: int) -> int:
    length, at = _integer(data, at)
    return _skip_bytes(data, at, length)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Read a length; also the position after it."""
    marker = _take(data, at, 1)
    if marker not in INTEGERS:
        raise ValueError(f"there should be a length at byte {at}")
    value = int.from_bytes(_take(data, at + 1, INTEGERS[marker]), "big", signed=marker != b"U")
    if value < 0:
        raise ValueError(f"there is a negative length at byte {at}")
    return value, at + 1 + INTEGERS[marker]


def _size_of(marker: bytes, at: int) -> int:
    if marker not in FIXED:
        raise ValueError(f"there is no value at byte {at}")
    return FIXED[marker]


def _skip_bytes(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError(f"it ends after {len(data)} bytes, too early")
    return at + size


def _take(data: bytes, at: int, size: int) -> bytes:
    return data[at : _skip_bytes(data, at, size)]
