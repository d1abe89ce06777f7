"""JSON for constraints, reports and parameters: exact, and safe to read from anybody's file.

A value that JSON lacks becomes an object whose key ``"$"`` names an entry of :data:`FORMS`, beside
the parts that the value is built from. Reading builds the values of this table and nothing else:
no name in a file is ever imported, and each field of a class is checked against its annotation.

A constraint is written as its text if :func:`~gbm_constrained.constraints.text.parse_constraint`
reads the text as the same constraint. Constraints that have no text are written by their fields:
those with masks, with decisions of another model, or with dates, tuples and bytes as labels.
Columns of tables are written with their dtype, since the JSON of pandas rounds numbers.

Numbers survive to the last bit (the shortest decimal form that is read as the same number), and so
do NaN and infinity, types of numpy, missing values, categories, and the order of dicts. The text
is ASCII.

>>> from gbm_constrained import fnr
>>> from gbm_constrained.training.note_json import dumps, loads
>>> dumps([fnr() <= 0.05])
'[{"$":"Constraint","text":"fnr() <= 0.05"}]'
>>> loads(dumps([fnr() <= 0.05]))
[fnr() <= 0.05]
"""

from __future__ import annotations

import base64
import inspect
import json
import math
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from gbm_constrained.constraints import (
    amounts,
    costs,
    coverage,
    events,
    expressions,
    gaps,
    grouped,
    row_means,
    selectors,
)
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.fairlearn import from_fairlearn
from gbm_constrained.constraints.presets import is_fairlearn
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.text import format_constraint, parse_constraint
from gbm_constrained.decision.evaluation_set import Estimate, PlainModel
from gbm_constrained.evaluation.constraint_result import ConstraintResult
from gbm_constrained.evaluation.costs import Cost
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.evaluation.sample_size import TooFewRows
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.metrics.f_measures import FBeta, MacroF1, MicroF1
from gbm_constrained.metrics.reading import RateMetric
from gbm_constrained.metrics.recalls import BalancedAccuracy, MeanOfRecalls
from gbm_constrained.metrics.values import MetricValue
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveSurrogates
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.cbpr import CBPR
from gbm_constrained.solvers.reduction import Reduction

__all__ = ["dumps", "loads"]

# Classes that are written by the arguments of their constructors. A new one is added here.
CLASSES: tuple[type, ...] = (
    *(
        cls
        for module in (
            amounts, costs, coverage, events, expressions, gaps, grouped, row_means, selectors
        )
        for cls in vars(module).values()
        if inspect.isclass(cls) and is_dataclass(cls) and cls.__module__ == module.__name__
    ),
    Cost, Estimate, Feasibility, ConstraintResult, PlainModel, TooFewRows, Verdict,
    ABPP, AdaptiveSurrogates, AutoSolver, CBPR, Reduction,
    BalancedAccuracy, FBeta, MacroF1, MeanOfRecalls, MetricValue, MicroF1, RateMetric,
)  # fmt: skip
TAG = "$"
ARRAY_KINDS = "biufUSMmO"  # as in numpy.dtype.kind
LARGEST_ITEM = 2**20  # Bytes of one string in an array; a dtype in a file may claim any number.
EXTENSION_DTYPES = (
    "boolean", "string", "str", "Float32", "Float64",
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
)  # fmt: skip
# NaN is the object of NumPy, since NaN equals itself only by identity.
NOT_FINITE = {"nan": np.nan, "-nan": -np.nan, "inf": math.inf, "-inf": -math.inf}


def dumps(value: Any) -> str:
    """Write a value as JSON text.

    The value is made of None, bool, int, float, str, bytes, list, tuple, dict, dates, numpy's
    scalars and arrays, pandas' tables, and :data:`CLASSES`. Another model inside a constraint is
    written by the name of its class alone. Raises a TypeError for anything else.
    """
    return json.dumps(_encode(value), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Read what :func:`dumps` has written, and raise a ValueError for anything else."""
    try:
        with np.errstate(over="raise", invalid="raise"):  # numbers that a dtype cannot hold
            return json.loads(text, object_hook=_build)
    except RecursionError:
        raise ValueError("It is nested too deeply.") from None
    except (
        TypeError, KeyError, AttributeError, ArithmeticError, MemoryError,
        SyntaxError,  # numpy reads the text of a dtype with a comma as Python's
    ) as error:  # fmt: skip
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _encode(value: Any) -> Any:
    """Replace all that JSON lacks by objects with a tag."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [_encode(item) for item in value]
    if isinstance(value, dict) and all(type(key) is str and key != TAG for key in value):
        return {key: _encode(item) for key, item in value.items()}
    if is_fairlearn(value):
        return _encode(from_fairlearn(value))
    name = _name_of_form(value)
    return {TAG: name, **{key: _encode(part) for key, part in FORMS[name].parts(value).items()}}


def _name_of_form(value: Any) -> str:
    """Find the form of a value by its type, or by the family of types that it belongs to."""
    kind = type(value)
    if kind not in NAMES and kind is not pd.MultiIndex:
        families = (np.generic, dict, pd.Index, ExtensionArray)  # Their subclasses share a form.
        kind = next((family for family in families if isinstance(value, family)), kind)
    if kind not in NAMES:
        raise TypeError(f"{value!r} of type {kind.__name__} cannot be written as JSON.")
    return NAMES[kind]


def _build(content: dict[str, Any]) -> Any:
    """Build what an object of the JSON stands for; its parts are built already."""
    if TAG not in content:
        return content
    name = content.pop(TAG)
    if not isinstance(name, str) or name not in FORMS:
        raise ValueError(f"There is no {name!r} that could be read.")
    return FORMS[name].build(**content)


class Form(NamedTuple):
    """How values of a type are taken apart, and built from the parts."""

    kind: type
    parts: Callable[[Any], dict[str, Any]]
    build: Callable[..., Any]


def _form_of_attributes(kind: type, *names: str, build: Callable[..., Any] | None = None) -> Form:
    """Make the form of a type whose parts are attributes and arguments of its constructor."""
    return Form(kind, lambda value: {name: getattr(value, name) for name in names}, build or kind)


def _form_of_class(cls: type, *left_out: str) -> Form:
    """Make the form of a class whose parts are checked against its annotations."""
    return Form(
        cls,
        lambda value: {name: getattr(value, name) for name in _hints_of(cls, *left_out)},
        lambda **parts: _build_instance(cls, _hints_of(cls, *left_out), **parts),
    )


@cache  # Annotations are read with the first value of a class, for they would slow the import.
def _hints_of(cls: type, *left_out: str) -> dict[str, Any]:
    """Read the annotations of a constructor's parameters, but for those that are left out."""
    hints, names = get_type_hints(cls), inspect.signature(cls).parameters
    return {name: hints[name] for name in names if name not in left_out}


def _form_of_text(kind: type, read: Callable[[str], Any]) -> Form:
    """Make the form of a type whose values are read from how they print."""
    return Form(kind, lambda value: {"value": str(value)}, lambda value: read(value))


def _form_of_time(kind: Any) -> Form:
    """Make the form of a time of pandas."""
    return Form(
        kind,
        lambda time: {"value": time.isoformat(), "unit": time.unit},
        lambda value, unit: kind(value).as_unit(unit),
    )


def _build_instance(cls: type, hints: dict[str, Any], /, **parts: Any) -> Any:
    for name, part in parts.items():
        if name not in hints:
            raise ValueError(f"{cls.__name__} has no field {name!r}.")
        if not _fits(part, hints[name]):
            raise ValueError(f"{part!r} cannot be the {name} of a {cls.__name__}.")
    return cls(**parts)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        if type(value) is tuple and parts[-1] is Ellipsis:
            parts = parts[:1] * len(value)
        return type(value) is tuple and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint in (int, float):
        numbers = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, numbers) and not isinstance(value, bool)
    return hint is Any or isinstance(value, origin or hint)  # arrays by their type alone


def _parts_of_constraint(constraint: Constraint) -> dict[str, Any]:
    try:
        return {"text": format_constraint(constraint)}
    except ValueError:
        return CONSTRAINT_BY_FIELDS.parts(constraint)


def _build_constraint(text: str | None = None, **parts: Any) -> Any:
    built = CONSTRAINT_BY_FIELDS.build(**parts) if text is None else parse_constraint(text)
    hash(built)  # A tuple is hashable by its type, and is not if it holds a list.
    return built


def _parts_of_reference_model(reference: ReferenceModel) -> dict[str, Any]:
    """Keep the name of a model, in the place of the model."""
    parts = REFERENCE_MODEL.parts(reference)
    if reference.model is not None:
        parts["forgotten"] = type(reference.model).__name__
    return parts


def _parts_of_float(value: float) -> dict[str, Any]:
    """Write a number that JSON lacks, with the sign of a NaN, which repr leaves out."""
    return {"value": "-" * (math.copysign(1.0, value) < 0) + repr(abs(value))}


def _parts_of_array(array: Any) -> dict[str, Any]:
    kind = array.dtype.kind
    if kind not in ARRAY_KINDS or (kind == "f" and array.dtype.itemsize > 8):
        raise TypeError(f"An array of dtype {array.dtype} cannot be written as JSON.")
    values = array.astype(np.int64) if kind in "Mm" else array
    shape = list(array.shape)
    return {"dtype": array.dtype.str, "shape": shape, "values": values.ravel().tolist()}


def _build_array(dtype: str, shape: list[int], values: list[Any]) -> Any:
    found = np.dtype(dtype)
    if found.kind not in ARRAY_KINDS or found.itemsize > LARGEST_ITEM:
        raise ValueError(f"dtype {dtype!r} cannot be read.")
    return np.fromiter(values, dtype=found).reshape(shape)


def _parts_of_extension(array: Any) -> dict[str, Any]:
    if str(array.dtype) not in EXTENSION_DTYPES:
        raise TypeError(f"A column of dtype {array.dtype} cannot be written as JSON.")
    values = array.astype(object)
    values[array.isna()] = None
    return {"dtype": str(array.dtype), "values": values.tolist()}


def _build_extension(dtype: Any, values: list[Any]) -> Any:
    if dtype not in EXTENSION_DTYPES:
        raise ValueError(f"A column of dtype {dtype!r} cannot be read.")
    if dtype == "str" and not isinstance(pd.Series(["a"]).dtype, pd.StringDtype):
        dtype = "object"  # what strings are before pandas 3
    return pd.array(values, dtype=dtype)


def _values_of(column: Any) -> Any:
    """Values of a Series or an Index as an array that has a form."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def _build_index(values: Any, name: Any) -> Any:
    return pd.Index(values, dtype=values.dtype, name=name)


def _parts_of_series(series: Any) -> dict[str, Any]:
    return {"values": _values_of(series), "index": series.index, "name": series.name}


def _build_series(values: Any, index: Any, name: Any = None) -> Any:
    return pd.Series(values, dtype=values.dtype, index=index, name=name)


def _parts_of_frame(frame: pd.DataFrame) -> dict[str, Any]:
    columns = [_values_of(frame.iloc[:, j]) for j in range(frame.shape[1])]
    return {"index": frame.index, "columns": frame.columns, "values": columns}


def _build_frame(index: Any, columns: Any, values: list[Any]) -> Any:
    found = {j: _build_series(column, index) for j, column in enumerate(values)}
    frame = pd.DataFrame(found, index=index)
    frame.columns = columns
    return frame


def _build_categorical(categories: Any, codes: Any, *, ordered: bool) -> Any:
    return pd.Categorical.from_codes(codes, categories, ordered=ordered)


CONSTRAINT_BY_FIELDS = _form_of_class(Constraint)
# Models are left out, and row labels, which are those of the table that was given to ``fit``.
REFERENCE_MODEL = _form_of_class(ReferenceModel, "model", "index")
FORMS: dict[str, Form] = {
    **{cls.__name__: _form_of_class(cls) for cls in CLASSES},
    "Mask": _form_of_class(selectors.Mask, "index"),
    "ReferenceModel": REFERENCE_MODEL._replace(parts=_parts_of_reference_model),
    "Constraint": Form(Constraint, _parts_of_constraint, _build_constraint),
    "float": Form(float, _parts_of_float, lambda value: NOT_FINITE[value]),
    "tuple": Form(tuple, lambda v: {"items": list(v)}, lambda items: tuple(items)),
    "dict": Form(dict, lambda v: {"items": list(map(list, v.items()))}, lambda items: dict(items)),
    "bytes": Form(
        bytes,
        lambda v: {"value": base64.b64encode(v).decode("ascii")},
        lambda value: base64.b64decode(value, validate=True),
    ),
    "date": _form_of_text(date, date.fromisoformat),
    "datetime": _form_of_text(datetime, datetime.fromisoformat),
    "timedelta": _form_of_attributes(timedelta, "days", "seconds", "microseconds"),
    "Decimal": _form_of_text(Decimal, Decimal),
    "scalar": Form(np.generic, lambda v: {"array": np.asarray(v)}, lambda array: array[()]),
    "ndarray": Form(np.ndarray, _parts_of_array, _build_array),
    "NA": _form_of_attributes(type(pd.NA), build=lambda: pd.NA),
    "NaT": _form_of_attributes(type(pd.NaT), build=lambda: pd.NaT),
    "Timestamp": _form_of_time(pd.Timestamp),
    "Timedelta": _form_of_time(pd.Timedelta),
    "Interval": _form_of_attributes(pd.Interval, "left", "right", "closed"),
    "Categorical": _form_of_attributes(
        pd.Categorical, "categories", "codes", "ordered", build=_build_categorical
    ),
    "extension": Form(ExtensionArray, _parts_of_extension, _build_extension),
    "RangeIndex": _form_of_attributes(pd.RangeIndex, "start", "stop", "step", "name"),
    "Index": Form(pd.Index, lambda v: {"values": _values_of(v), "name": v.name}, _build_index),
    "Series": Form(pd.Series, _parts_of_series, _build_series),
    "DataFrame": Form(pd.DataFrame, _parts_of_frame, _build_frame),
}
NAMES = {form.kind: name for name, form in FORMS.items()}
