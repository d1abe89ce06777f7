"""Functions that make rates, comparisons, metrics and constraints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, NoReturn, cast

from gbm_constrained._docstrings import Function
from gbm_constrained.constraints.selectors import to_python_scalar

FACTORIES: dict[str, Factory] = {}  # By name.


def _refused(symbol: str, *, is_left: bool = True) -> Callable[[Factory, Any], NoReturn]:
    """Make an operator that names the brackets which are missing."""

    def operate(factory: Factory, other: Any) -> NoReturn:
        name, is_factory = factory.__name__, isinstance(other, Factory)
        other_name = other.__name__ if is_factory else repr(to_python_scalar(other))
        other_call = other.call if is_factory else other_name
        given = (name, other_name) if is_left else (other_name, name)
        meant = (factory.call, other_call) if is_left else (other_call, factory.call)
        never_strict = f"{symbol}=" if symbol in "<>" else symbol
        raise TypeError(
            f"{f' {symbol} '.join(given)}: {name} is a function, and what it makes has bounds and "
            f"sums: write {f' {never_strict} '.join(meant)}."
        )

    return operate


class Factory(partial[Any]):
    """A function that refuses bounds and sums of itself, as of ``fpr <= 0.02``.

    Its signature, name and docstring are those of the function that it calls.
    """

    __name__: str
    __array_ufunc__ = None  # Numbers of numpy on the left leave the operation to this class.
    __le__, __ge__, __lt__, __gt__ = map(_refused, ("<=", ">=", "<", ">"))
    __add__, __sub__, __mul__, __truediv__ = map(_refused, "+-*/")
    __radd__, __rsub__, __rmul__, __rtruediv__ = (
        _refused(symbol, is_left=False) for symbol in "+-*/"
    )

    def __init__(self, function: Callable[..., Any], /) -> None:
        update_wrapper(self, function)
        parameters = inspect.signature(function).parameters.values()
        required = [
            f"{p.name}=..."
            for p in parameters
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        self.call = f"{self.__name__}({', '.join(required)})"
        FACTORIES[self.__name__] = self

    def __neg__(self) -> NoReturn:
        raise TypeError(f"-{self.__name__}: {self.__name__} is a function: write -{self.call}.")

    def __getitem__(self, rows: Any) -> NoReturn:
        raise TypeError(
            f"{self.__name__}[{rows!r}]: reports name the rows of a rate so. In Python write "
            f"{self.__name__}(on={{'column': value}})."
        )

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def make_factory(function: Function) -> Function:
    """Let a function refuse bounds and sums of itself."""
    return cast(Function, Factory(function))


def refuse_uncalled(rate: Any, where: str) -> None:
    """Refuse a function that makes a rate, or its name, in the place of the rate."""
    is_function = isinstance(rate, Factory)
    name = rate.__name__ if is_function else rate
    if isinstance(name, str) and name in FACTORIES:
        given = "a function that makes one" if is_function else "a text"
        raise TypeError(
            f"{where} takes a rate, and {name!r} is {given}: write {FACTORIES[name].call}."
        )
