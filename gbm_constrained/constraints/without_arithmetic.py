"""Operators of values that have no sums and multiples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn


class WithoutArithmetic(ABC):
    """Abstract base of values whose sums, differences, multiples and quotients are refused."""

    __array_ufunc__ = None  # Numbers of numpy on the left leave the operation to this class.

    @property
    @abstractmethod
    def reason_and_remedy(self) -> str:
        """Why the value has no arithmetic, and what is written instead."""

    def _refuse(self, other: Any) -> NoReturn:
        raise TypeError(f"{self} and {other} cannot be combined: {self.reason_and_remedy}")

    __add__: Any = _refuse
    __radd__: Any = _refuse
    __sub__: Any = _refuse
    __rsub__: Any = _refuse
    __mul__: Any = _refuse
    __rmul__: Any = _refuse
    __truediv__: Any = _refuse
    __rtruediv__: Any = _refuse
