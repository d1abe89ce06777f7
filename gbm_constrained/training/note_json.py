"""JSON for constraints, reports and parameters: exact, and safe to read from anybody's file.

JSON knows lists, strings, numbers and objects. Everything else becomes an object with the key
``"$"``, which names what it is: a tuple, an array, a table, one of the classes in
:data:`CLASSES`. Reading builds these and nothing else, by this list; no name in a file is ever
imported, and every field of a class is checked against its annotation.

Numbers survive to the last bit (the shortest decimal form that is read as the same number), and so
do NaN and infinity, types of numpy, missing values, categories, and the order of dicts. The text
is ASCII.

>>> from gbm_constrained.constraints.rates import fnr
>>> from gbm_constrained.training.note_json import dumps, loads
>>> loads(dumps([fnr() <= 0.05]))
[fnr <= 0.05]
"""

from __future__ import annotations

import base64
import json
import math
import types
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from gbm_constrained.constraints.events import Differs, Predicted, Term
from gbm_constrained.constraints.expressions import Constraint, Quotient, Rate
from gbm_constrained.constraints.fairlearn import from_fairlearn
from gbm_constrained.constraints.grouped import Each, Gap, Overall, Ratio
from gbm_constrained.constraints.presets import is_fairlearn
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Column,
    DataSet,
    Deployed,
    Judged,
    Label,
    Mask,
    MissingValue,
)
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.cbpr import CBPR

__all__ = ["dumps", "loads"]

TAG = "$"
ARRAY_KINDS = "biufUSMmO"  # as in numpy.dtype.kind
LARGEST_ITEM = 2**20  # Bytes of one string in an array; a dtype in a file may claim any number.
EXTENSION_DTYPES = (
    "boolean", "string", "str", "Float32", "Float64",
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
)  # fmt: skip
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        ClassPosition, Column, Constraint, DataSet, Deployed, Differs, Each, Gap, Judged, Label,
        Mask, MissingValue, Overall, Predicted, Quotient, Rate, Ratio, Term,
        Cost, Estimate, Feasibility, ConstraintResult, TooFewRows, Verdict,
        ABPP, AutoSolver, CBPR,
    )
}  # fmt: skip
# Models, and the row labels of what was given for each training row.
NOT_WRITTEN = ((Deployed, "model"), (Deployed, "index"), (Mask, "index"))


def _fields_of(cls: Any) -> dict[str, Any]:
    """Fields of a class that are written, and what they hold."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else cls._fields
    hints = get_type_hints(cls)
    return {name: hints[name] for name in names if (cls, name) not in NOT_WRITTEN}


FIELDS = {cls: _fields_of(cls) for cls in CLASSES.values()}


def dumps(value: Any) -> str:
    """Write a value as JSON text.

    Parameters
    ----------
    value : object
        Made of None, bool, int, float, str, bytes, list, tuple, dict, dates, numpy's scalars and
        arrays, pandas' tables, and constraints. A deployed model inside a constraint is not
        written, but only what it is called.

    Raises
    ------
    TypeError
        If there is anything else in it.
    """
    return json.dumps(_encode(value), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Read what :func:`dumps` has written.

    Raises
    ------
    ValueError
        If it is not such a text: not JSON, a class that is not known here, a field that is none
        or has the wrong type.
    """
    try:
        with np.errstate(over="raise", invalid="raise"):  # numbers that a dtype cannot hold
            return _decode(json.loads(text))
    except RecursionError:
        raise ValueError("It is nested too deeply.") from None
    except (
        TypeError, KeyError, AttributeError, ArithmeticError, MemoryError,
        SyntaxError,  # numpy reads the text of a dtype with a comma as Python's
    ) as error:  # fmt: skip
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _encode(value: Any) -> Any:
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return value if math.isfinite(value) else {TAG: "float", "value": _lacking(value)}
    if cls is list:
        return [_encode(item) for item in value]
    if cls is tuple:
        return {TAG: "tuple", "items": [_encode(item) for item in value]}
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and TAG not in value:
            return {key: _encode(item) for key, item in value.items()}
        return {TAG: "dict", "items": [[_encode(k), _encode(v)] for k, v in value.items()]}
    if CLASSES.get(cls.__name__) is cls:
        return _encode_instance(value)
    if is_fairlearn(value):
        return _encode(from_fairlearn(value))
    for name, (known, write, _) in SCALARS.items():
        if cls is known:
            return {TAG: name, "value": write(value)}
    if isinstance(value, np.generic):
        array = _encode_array(np.asarray(value))
        return {TAG: "scalar", "dtype": array["dtype"], "value": array["values"][0]}
    if cls is np.ndarray:
        return _encode_array(value)
    return _encode_pandas(value)


def _lacking(value: float) -> str:
    """Write a number that JSON lacks, with the sign of a NaN, which repr leaves out."""
    return "-nan" if math.isnan(value) and math.copysign(1.0, value) < 0 else repr(value)


def _encode_instance(value: Any) -> dict[str, Any]:
    if isinstance(value, Deployed) and value.model is not None:
        value = replace(value, model=None, forgotten=type(value.model).__name__)
    content = {name: _encode(getattr(value, name)) for name in FIELDS[type(value)]}
    return {TAG: type(value).__name__, **content}


def _encode_array(array: Any) -> dict[str, Any]:
    kind, values = array.dtype.kind, array
    if kind not in ARRAY_KINDS or (kind == "f" and array.dtype.itemsize > 8):
        raise TypeError(f"An array of dtype {array.dtype} cannot be written as JSON.")
    if kind in "Mm":
        values = array.astype(np.int64)
    return {
        TAG: "ndarray",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "values": [_encode(item) for item in values.ravel().tolist()],
    }


def _encode_pandas(value: Any) -> dict[str, Any]:
    if type(value) is pd.DataFrame:
        columns = [_encode_column(value.iloc[:, j]) for j in range(value.shape[1])]
        index = {"index": _encode(value.index), "columns": _encode(value.columns)}
        return {TAG: "DataFrame", **index, "values": columns}
    if type(value) is pd.Series:
        found = {"values": _encode_column(value), "index": _encode(value.index)}
        return {TAG: "Series", **found, "name": _encode(value.name)}
    if type(value) is pd.RangeIndex:
        span = [value.start, value.stop, value.step]
        return {TAG: "RangeIndex", "span": span, "name": _encode(value.name)}
    if isinstance(value, pd.Index) and not isinstance(value, pd.MultiIndex):
        return {TAG: "Index", "values": _encode_column(value), "name": _encode(value.name)}
    if type(value) is pd.Interval:
        ends = {"left": _encode(value.left), "right": _encode(value.right)}
        return {TAG: "Interval", **ends, "closed": value.closed}
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as JSON.")


def _encode_column(column: Any) -> dict[str, Any]:
    """Values of a column or an index."""
    dtype, array = column.dtype, column.array
    if isinstance(dtype, np.dtype):
        return _encode_array(column.to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        content = {"categories": _encode(dtype.categories), "codes": _encode_array(array.codes)}
        return {TAG: "Categorical", **content, "ordered": bool(dtype.ordered)}
    if str(dtype) not in EXTENSION_DTYPES:
        raise TypeError(f"A column of dtype {dtype} cannot be written as JSON.")
    pairs = zip(array, array.isna(), strict=True)
    values = [None if missing else _encode(item) for item, missing in pairs]
    return {TAG: "extension", "dtype": str(dtype), "values": values}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _decode(item) for key, item in value.items()}
    name = value[TAG]
    content = {key: item for key, item in value.items() if key != TAG}
    if isinstance(name, str):
        if name in CLASSES:
            return _decode_instance(CLASSES[name], content)
        if name in SCALARS:
            return SCALARS[name][2](**content)
        if name in READERS:
            return READERS[name](**content)
    raise ValueError(f"There is no {name!r} that could be read.")


def _decode_instance(cls: type, content: dict[str, Any]) -> Any:
    hints = FIELDS[cls]
    decoded = {key: _decode(item) for key, item in content.items()}
    for key, item in decoded.items():
        if key not in hints:
            raise ValueError(f"{cls.__name__} has no field {key!r}.")
        if not _fits(item, hints[key]):
            raise ValueError(f"{item!r} cannot be the {key} of a {cls.__name__}.")
    return cls(**decoded)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is Hashable:
        return _is_hashable(value)
    if hint in (int, float):
        numbers = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, hint)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # a tuple that holds a list
        return False
    return True


def _float(value: str) -> float:
    if value not in ("nan", "-nan", "inf", "-inf"):
        raise ValueError(f"{value!r} is not a number that JSON lacks.")
    # The very object that most code takes for it: NaN equals itself only by identity.
    return np.nan if value == "nan" else float(value)


def _dict(items: list[Any]) -> dict[Any, Any]:
    return {_decode(key): _decode(item) for key, item in items}


def _array(dtype: str, shape: list[int], values: list[Any]) -> Any:
    found = np.dtype(dtype)
    if found.kind not in ARRAY_KINDS or found.itemsize > LARGEST_ITEM:
        raise ValueError(f"dtype {dtype!r} cannot be read.")
    items = _decode(values)
    if found.kind == "O":
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):  # at once, numpy would look into tuples
            array[i] = item
    elif found.kind in "Mm":
        array = np.array(items, dtype=np.int64).astype(found)
    else:
        array = np.array(items, dtype=found)
    return array.reshape(shape)


def _scalar(dtype: str, value: Any) -> Any:
    return _array(dtype, [1], [value])[0]


def _extension(dtype: str, values: list[Any]) -> Any:
    if dtype not in EXTENSION_DTYPES:
        raise ValueError(f"A column of dtype {dtype!r} cannot be read.")
    if dtype == "str" and not isinstance(pd.Series(["a"]).dtype, pd.StringDtype):
        dtype = "object"  # what strings are before pandas 3
    return pd.array(_decode(values), dtype=dtype)


def _categorical(categories: Any, codes: Any, ordered: bool) -> Any:
    return pd.Categorical.from_codes(_decode(codes), _decode(categories), ordered=ordered)


def _index(values: Any, name: Any) -> Any:
    array = _decode(values)
    return pd.Index(array, dtype=array.dtype, name=_decode(name))


def _series(values: Any, index: Any, name: Any = None) -> Any:
    array = _decode(values)
    return pd.Series(array, dtype=array.dtype, index=_decode(index), name=_decode(name))


def _frame(index: Any, columns: Any, values: list[Any]) -> Any:
    found = {j: _series(column, index) for j, column in enumerate(values)}
    frame = pd.DataFrame(found, index=_decode(index))
    frame.columns = _decode(columns)
    return frame


READERS: dict[str, Callable[..., Any]] = {
    "float": _float,
    "tuple": lambda items: tuple(_decode(items)),
    "dict": _dict,
    "scalar": _scalar,
    "ndarray": _array,
    "extension": _extension,
    "Categorical": _categorical,
    "RangeIndex": lambda span, name: pd.RangeIndex(range(*span), name=_decode(name)),
    "Index": _index,
    "Series": _series,
    "DataFrame": _frame,
    "Interval": lambda left, right, closed: pd.Interval(_decode(left), _decode(right), closed),
}
# Scalars that are one string or one list in JSON: their type, and how they are written and read.
SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {
    "bytes": (
        bytes,
        lambda v: base64.b64encode(v).decode("ascii"),
        lambda value: base64.b64decode(value, validate=True),
    ),
    "date": (date, date.isoformat, lambda value: date.fromisoformat(value)),
    "datetime": (datetime, datetime.isoformat, lambda value: datetime.fromisoformat(value)),
    "timedelta": (
        timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda value: timedelta(*value),
    ),
    "Decimal": (Decimal, str, lambda value: Decimal(value)),
    "Timestamp": (
        pd.Timestamp,
        lambda v: [v.isoformat(), v.unit],
        lambda value: pd.Timestamp(value[0]).as_unit(value[1]),
    ),
    "Timedelta": (
        pd.Timedelta,
        lambda v: [v.isoformat(), v.unit],
        lambda value: pd.Timedelta(value[0]).as_unit(value[1]),
    ),
    "NA": (type(pd.NA), lambda v: None, lambda value: pd.NA),
    "NaT": (type(pd.NaT), lambda v: None, lambda value: pd.NaT),
}
