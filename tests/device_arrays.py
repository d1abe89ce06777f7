"""Stand-in of CuPy: arrays that mix with nothing else, as those on a graphics card do.

The functions of this module make them, and those of numpy accept them and nothing beside them but
Python's numbers and numpy's scalars.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

NO_MODE = ("axis", "out")


def _inside(x: Any) -> Any:
    """Open an argument, and refuse arrays of numpy."""
    if isinstance(x, DeviceArray):
        return x.values
    if isinstance(x, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, (list, tuple)):
        return type(x)(map(_inside, x))
    return x


def _outside(x: Any) -> Any:
    return DeviceArray(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x


class DeviceArray(NDArrayOperatorsMixin):
    """Array on a pretended card."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        assert method == "__call__", method
        out = options.pop("out", None)
        given = {name: _inside(value) for name, value in options.items()}
        if out is not None:
            given["out"] = _inside(out)
        found = ufunc(*map(_inside, inputs), **given)
        return out[0] if out is not None else _outside(found)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.take:
            assert set(kwargs) <= set(NO_MODE), kwargs
        given = {name: _inside(value) for name, value in kwargs.items()}
        return _outside(function(*map(_inside, args), **given))

    def __getitem__(self, key: Any) -> Any:
        return _outside(self.values[_inside(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[_inside(key)] = _inside(value)

    def take(self, indices: Any, axis: int | None = None, out: Any = None) -> Any:
        """Take entries; there is no mode."""
        found = self.values.take(_inside(indices), axis, None if out is None else out.values)
        return _outside(found) if out is None else out

    def get(self) -> np.ndarray:
        """Copy the values to main memory."""
        return self.values.copy()

    @property
    def data(self) -> Any:
        """Memory of the values."""
        return SimpleNamespace(ptr=self.values.__array_interface__["data"][0])

    def __len__(self) -> int:
        return len(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.values, name)
        if not callable(found) or isinstance(found, np.dtype):
            return _outside(found) if isinstance(found, np.ndarray) else found

        def method(*args: Any, **kwargs: Any) -> Any:
            given = {key: _inside(value) for key, value in kwargs.items()}
            return _outside(found(*map(_inside, args), **given))

        return method


def asarray(x: Any, dtype: Any = None) -> DeviceArray:
    """Copy an array to the card, unless it is there."""
    if isinstance(x, DeviceArray):
        return x if dtype is None else DeviceArray(x.values.astype(dtype))
    return DeviceArray(np.array(x, dtype))


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> DeviceArray:
    """Make an array of undefined entries."""
    return DeviceArray(np.full(shape, 7, dtype, order))


def zeros(shape: Any, dtype: Any = float) -> DeviceArray:
    """Make an array of zeros."""
    return DeviceArray(np.zeros(shape, dtype))


def arange(n: int) -> DeviceArray:
    """Count from zero."""
    return DeviceArray(np.arange(n))
