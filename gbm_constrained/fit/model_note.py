"""The note that a library's own model file holds beside the trees.

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
>>> from gbm_constrained.fit.model_note import dumps, loads
>>> dumps([fnr() <= 0.05])
'[{"$":"Constraint","text":"fnr() <= 0.05"}]'
>>> loads(dumps([fnr() <= 0.05]))
[fnr() <= 0.05]

A model file of XGBoost or LightGBM holds trees. The *note* is one JSON object under the name
``gbm_constrained`` with the rest of a fitted estimator: parameters, constraints, classes and
reports. Libraries that do not know the note leave it alone. ``docs/saving.md`` has its entries,
:mod:`gbm_constrained.scorers.xgboost.estimators` and
:mod:`gbm_constrained.scorers.lightgbm.estimators` have its place in a file.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from gbm_constrained._findings import issue_warning
from gbm_constrained._version import __version__
from gbm_constrained.constraints import base, comparisons, presets, rates, selectors
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints, resolve_positive_class
from gbm_constrained.constraints.presets import from_fairlearn, is_fairlearn
from gbm_constrained.constraints.selectors import ReferenceModel
from gbm_constrained.constraints.text import format_constraint, parse_constraint
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.decision.evaluation_set import Estimate, PlainModel
from gbm_constrained.decision.rules import OTHER_DATA, CellScores
from gbm_constrained.evaluation.assessment import Feasibility
from gbm_constrained.evaluation.verdicts import ConstraintResult, Cost, TooFewRows, Verdict
from gbm_constrained.fit.fitted_report import FITTED_ATTRIBUTES
from gbm_constrained.fit.options import (
    SOLVER_PARAMETERS,
    CrossFit,
    Expected,
    Forward,
    HighProbability,
    Holdout,
    Margin,
    solver_parameter,
)
from gbm_constrained.metrics import callables
from gbm_constrained.metrics.base import MetricValue
from gbm_constrained.metrics.reading import RateMetric
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import SEARCH_OPTIONS, Reduction
from gbm_constrained.solvers.black_box import AdaptiveSurrogates
from gbm_constrained.solvers.cbpr import CBPR, AutoSolver

__all__ = ["dumps", "loads"]


# Parts of the language that no note holds by themselves, or that have a form of their own below.
NO_VALUES = (
    base.CalibrationError, base.Constraint, base.CurvedRow, base.CurveFunction, base.LinearRow,
    selectors.BinResidual, selectors.ReferenceModel, callables.FunctionMetric,
    callables.NamedMetric,
)  # fmt: skip
# Classes that are written by the arguments of their constructors: all of some modules, and others.
CLASSES: tuple[type, ...] = (
    *(
        cls
        for module in (selectors, base, comparisons, rates, presets, callables)
        for cls in vars(module).values()
        if inspect.isclass(cls) and is_dataclass(cls) and cls.__module__ == module.__name__
        if cls not in NO_VALUES
    ),
    Cost, Estimate, Feasibility, ConstraintResult, PlainModel, TooFewRows, Verdict,
    ABPP, AdaptiveSurrogates, AutoSolver, CBPR, Reduction,
    CrossFit, Expected, Forward, HighProbability, Holdout, Margin,
    MetricValue, RateMetric,
)  # fmt: skip
TAG = "$"
ARRAY_KINDS = "biufUSMmO"  # as in numpy.dtype.kind
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
    if kind not in NAMES and kind is not pd.MultiIndex:
        families = (np.generic, dict, pd.Index, ExtensionArray)  # Their subclasses share a form.
        kind = next((family for family in families if isinstance(value, family)), kind)
    if kind not in NAMES:
        raise TypeError(f"{value!r} of type {kind.__name__} cannot be written as JSON.")
    parts = FORMS[NAMES[kind]].parts(value)
    return {TAG: NAMES[kind], **{key: _encode(part) for key, part in parts.items()}}


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

    @cache  # Annotations are read with the first value of a class, for they would slow the import.
    def hints() -> dict[str, Any]:
        annotations, names = get_type_hints(cls), inspect.signature(cls).parameters
        return {name: annotations[name] for name in names if name not in left_out}

    def build(**parts: Any) -> Any:
        for name, part in parts.items():
            if name not in hints():
                raise ValueError(f"{cls.__name__} has no field {name!r}.")
            if not _fits(part, hints()[name]):
                raise ValueError(f"{part!r} cannot be the {name} of a {cls.__name__}.")
        return cls(**parts)

    return Form(cls, lambda value: {name: getattr(value, name) for name in hints()}, build)


def _form_of_text(kind: type, read: Callable[[str], Any]) -> Form:
    """Make the form of a type whose values are read from how they print."""
    return Form(kind, lambda value: {"value": str(value)}, lambda value: read(value))


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


def _parts_of_array(array: Any) -> dict[str, Any]:
    kind = array.dtype.kind
    if kind not in ARRAY_KINDS or (kind == "f" and array.dtype.itemsize > 8):
        raise TypeError(f"An array of dtype {array.dtype} cannot be written as JSON.")
    values = array.astype(np.int64) if kind in "Mm" else array
    shape = list(array.shape)
    return {"dtype": array.dtype.str, "shape": shape, "values": values.ravel().tolist()}


def _build_array(dtype: str, shape: list[int], values: list[Any]) -> Any:
    found = np.dtype(dtype)
    # A dtype in a file may claim strings of any number of bytes.
    if found.kind not in ARRAY_KINDS or found.itemsize > 2**20:
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


def _build_series(values: Any, index: Any, name: Any = None) -> Any:
    return pd.Series(values, dtype=values.dtype, index=index, name=name)


def _build_frame(index: Any, columns: Any, values: list[Any]) -> Any:
    found = {j: _build_series(column, index) for j, column in enumerate(values)}
    frame = pd.DataFrame(found, index=index)
    frame.columns = columns
    return frame


CONSTRAINT_BY_FIELDS = _form_of_class(Constraint)
# Models are left out, and row labels, which are those of the table that was given to ``fit``.
REFERENCE_MODEL = _form_of_class(ReferenceModel, "model", "index")
FORMS: dict[str, Form] = {
    **{cls.__name__: _form_of_class(cls) for cls in CLASSES},
    "Mask": _form_of_class(selectors.Mask, "index"),
    "ReferenceModel": REFERENCE_MODEL._replace(
        parts=lambda given: {  # Of a model in a constraint the name of its class is kept.
            **REFERENCE_MODEL.parts(given),
            "forgotten": given.forgotten if given.model is None else type(given.model).__name__,
        }
    ),
    "Constraint": Form(Constraint, _parts_of_constraint, _build_constraint),
    # The sign of a NaN is not in what prints.
    "float": Form(
        float,
        lambda x: {"value": "-" * (math.copysign(1.0, x) < 0) + repr(abs(x))},
        lambda value: NOT_FINITE[value],
    ),
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
    **{
        kind.__name__: Form(
            kind,
            lambda time: {"value": time.isoformat(), "unit": time.unit},
            lambda value, unit, kind=kind: kind(value).as_unit(unit),
        )
        for kind in (pd.Timestamp, pd.Timedelta)
    },
    "Interval": _form_of_attributes(pd.Interval, "left", "right", "closed"),
    "Categorical": _form_of_attributes(
        pd.Categorical,
        "categories",
        "codes",
        "ordered",
        build=lambda categories, codes, ordered: pd.Categorical.from_codes(
            codes, categories, ordered=ordered
        ),
    ),
    "extension": Form(ExtensionArray, _parts_of_extension, _build_extension),
    "RangeIndex": _form_of_attributes(pd.RangeIndex, "start", "stop", "step", "name"),
    "Index": Form(
        pd.Index,
        lambda v: {"values": _values_of(v), "name": v.name},
        lambda values, name: pd.Index(values, dtype=values.dtype, name=name),
    ),
    "Series": Form(
        pd.Series,
        lambda v: {"values": _values_of(v), "index": v.index, "name": v.name},
        _build_series,
    ),
    "DataFrame": Form(
        pd.DataFrame,
        lambda v: {
            "index": v.index,
            "columns": v.columns,
            "values": [_values_of(v.iloc[:, j]) for j in range(v.shape[1])],
        },
        _build_frame,
    ),
}
NAMES = {form.kind: name for name, form in FORMS.items()}


NAME = "gbm_constrained"
SHA256 = "sha256"
FORMAT = 4  # Raised where one version of this package would misread the note of another.


@dataclass(frozen=True)
class Note:
    """Entries of a note that an estimator is restored from."""

    classes: Any  # Sorted labels, an array of shape (n_classes,).
    parameters: dict[str, Any]  # Constructor parameters.
    left_out: list[str]  # Names of parameters that could not be written.
    fitted: dict[str, Any]  # Fitted attributes that report on the constraints.
    library: dict[str, Any]  # Fitted attributes of the parent that its own file does not hold.

    def restore(self, estimator: Any) -> None:
        """Set the parameters and reports of an estimator; its adapter sets all else."""
        known = vars(estimator)
        own = {name: value for name, value in known.items() if name in self.left_out}
        known.pop("kwargs", None)  # XGBoost keeps parameters there that it has no name for.
        parameters = _place_moved({**own, **self.parameters}, solver_parameter(estimator))
        known |= vars(type(estimator)(**parameters)) | self.fitted
        known["_constraints_of_file"] = estimator.constraints


def _place_moved(parameters: dict[str, Any], solver: str) -> dict[str, Any]:
    """Put options that files of version 0.1 hold as parameters into their objects."""
    taken = {name: parameters.pop(name, None) for name in ("n_folds", "cv", "holdout_fraction")}
    kind, n_folds = parameters.get("measure_on"), taken["n_folds"]
    if taken["cv"] is not None:
        parameters["measure_on"] = taken["cv"]
    elif kind == "holdout" and taken["holdout_fraction"] is not None:
        parameters["measure_on"] = Holdout(taken["holdout_fraction"])
    elif n_folds not in (None, 4) and kind in ("auto", "crossfit", "forward"):
        parameters["measure_on"] = Forward(n_folds) if kind == "forward" else CrossFit(n_folds)
    delta, fraction = parameters.pop("delta", 0.05), parameters.pop("calibration_fraction", 0.2)
    if parameters.get("guarantee") == "high_probability" and (delta, fraction) != (0.05, 0.2):
        parameters["guarantee"] = HighProbability(delta, fraction)
    elif parameters.get("guarantee") == "expected" and fraction != 0.2:
        parameters["guarantee"] = Expected(fraction)
    if "oracle" not in parameters:  # Elsewhere, deterministic is LightGBM's own.
        return parameters
    search = {name: parameters.pop(name, None) for name in SEARCH_OPTIONS}
    is_of_metric = any(parameters.get(name) is not None for name in ("maximize", "minimize"))
    if is_of_metric and search != {name: getattr(Reduction, name) for name in SEARCH_OPTIONS}:
        asked: Any = parameters.get(solver, "auto")
        if isinstance(asked, str):
            parameters[solver] = Reduction(**{"name": asked, **search})
        elif isinstance(asked, Reduction):
            parameters[solver] = replace(asked, **search)
    return parameters


def forget_constraints(estimator: Any) -> None:
    """Forget constraints that came with an earlier file; those that a user gave stay."""
    of_file = vars(estimator).pop("_constraints_of_file", None)
    if of_file is not None and estimator.constraints is of_file:
        estimator.constraints = None


def constraints_of(estimator: Any) -> tuple[Constraint, ...]:
    """List the constraints of a fitted estimator, whose rates name their class as reports do."""
    found = check_constraints(estimator.constraints)
    if not hasattr(estimator, "classes_"):  # A regressor predicts numbers.
        return found
    return resolve_positive_class(found, estimator.classes_, estimator.positive)


def write_note(
    estimator: Any,
    rounds: int,
    library: Mapping[str, Any],
    *,
    is_whole: bool = True,
    model: str | None = None,
) -> str:
    """Write the note of a fitted estimator whose file holds some boosting rounds.

    A file that is not of the whole model has no reports. No file has the seconds of ``history_``:
    equal fits write equal files. `model` is the rest of a file whose checksum is noted: that of a
    library that does not carry the note on to another model.
    """
    known = vars(estimator)
    fitted = {name: known[name] for name in FITTED_ATTRIBUTES if is_whole and name in known}
    if "history_" in fitted:
        fitted["history_"] = fitted["history_"].drop(columns="seconds", errors="ignore")
    classes = np.asarray(getattr(estimator, "classes_", ()))
    shift = fitted.get("_threshold", np.zeros(1 if classes.size == 2 else classes.size))
    parameters, left_out = _split_parameters(estimator)
    if left_out:
        issue_warning(
            f"{type(estimator).__name__}.save_model does not keep {', '.join(left_out)}: a file "
            f"holds numbers, strings and containers of these, no functions and no objects. Give "
            f"them again after load_model where they matter to another fit.",
            "GC401",
        )
    content = {
        "format": FORMAT,
        "version": __version__,
        "rounds": rounds,
        "constraints": list(map(str, constraints_of(estimator))),
        "decision_shift": shift.tolist(),
        "classes": classes,
        "parameters": parameters,
        "left_out": left_out,
        "fitted": fitted,
        "library": dict(library),
    }
    if model is not None:
        content[SHA256] = _hash(model)
    return dumps(content)


def _split_parameters(estimator: Any) -> tuple[dict[str, Any], list[str]]:
    """Find the parameters that a note can hold, and the names of all others."""
    found, left_out = {}, []
    with preserve_random_state(estimator):
        given = estimator.get_params(deep=False)
    for name, value in given.items():
        value = getattr(estimator, name, value)  # XGBoost gives a draw of a RandomState.
        try:
            dumps(value)
        except TypeError as error:
            if name == "constraints":
                raise TypeError(f"The constraints cannot be saved: {error}") from error
            left_out.append(name)
        else:
            found[name] = value
    return found, left_out


def check_unchanged(note: str | None, model: str) -> None:
    """Refuse a model other than the one that a note was written with.

    A note that cannot be read is left to :func:`read_note`.
    """
    if _peek(note, SHA256) not in (None, _hash(model)):
        raise ValueError(
            f"its model has changed since gbm_constrained wrote it: delete the line that begins "
            f"with '{NAME}:' if the change was meant, and it is loaded as a plain model"
        )


def _peek(note: str | None, name: str) -> Any:
    """Read one plain entry of a note; None where there is none, or no note that can be read."""
    try:
        return json.loads(note or "")[name]
    except (ValueError, KeyError, TypeError):
        return None


def _hash(model: str) -> str:
    return hashlib.sha256(model.encode()).hexdigest()


def read_note(
    text: str | None,
    estimator: Any,
    library: Mapping[str, type],
    *,
    rounds: int,
    n_classes: int,
    source: str,
) -> Note | None:
    """Read the note of a file, and check that it can be that of the model in the file.

    `library` has the types of the parent's attributes that a note may hold, `rounds` and
    `n_classes` are those of the model, `source` names the file. A plain model, and (with a
    warning) one that was changed since, has no note. A note that is damaged, forged or of another
    format raises a ValueError.
    """
    if text is None:
        return None
    try:
        plain = json.loads(
            text
        )  # Objects of another format may have fields that are unknown here.
        version, format_, noted = (plain[name] for name in ("version", "format", "rounds"))
        if type(format_) is not int or type(noted) is not int:
            raise ValueError(f"it says format {format_!r} and {noted!r} rounds.")
        if format_ == FORMAT:
            note = _check(loads(text), type(estimator), n_classes)
            _check_types("library", note.library, library)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{source} holds a note of gbm_constrained that cannot be read, so that the file must "
            f"be damaged: {error}"
        ) from error
    if format_ != FORMAT:
        remedy = "update the package" if format_ > FORMAT else f"load it by {version}"
        raise ValueError(
            f"{source} was saved by gbm_constrained {version}, in format {format_}, and this "
            f"is {__version__}, which reads format {FORMAT}: {remedy}, or load "
            f"the file as a plain model by the library itself."
        )
    if noted == rounds:
        return note
    issue_warning(
        f"{source} holds {rounds} boosting rounds, and what gbm_constrained noted in it speaks of "
        f"{noted}: another program continued or cut the model. It is loaded as a plain model, "
        f"without its constraints and reports.",
        "GC402",
    )
    return None


def _check(content: dict[str, Any], cls: type, n_classes: int) -> Note:
    """Check that entries can be those of an estimator of some class."""
    note = Note(**{field.name: content[field.name] for field in fields(Note)})
    named = (note.parameters, note.fitted, note.library)
    if not all(isinstance(each, dict) for each in named) or not isinstance(note.left_out, list):
        raise ValueError("parameters and attributes must have names.")
    if not isinstance(note.classes, np.ndarray) or note.classes.shape != (n_classes,):
        raise ValueError(f"its classes are not the {n_classes} of the model.")
    for name in note.parameters:
        if not isinstance(name, str) or hasattr(cls, name):  # It would take a method's place.
            raise ValueError(f"{name!r} is no parameter.")
    check_constraints(note.parameters.get("constraints"))
    tables = {"constraint_report_": pd.DataFrame, "prefixes_": pd.DataFrame,
              "group_shifts_": pd.DataFrame}  # fmt: skip
    _check_types("fitted", note.fitted, {**dict.fromkeys(FITTED_ATTRIBUTES, object), **tables})
    columns = 1 if n_classes == 2 else n_classes
    for name in ("shift_", "_threshold"):
        shift = note.fitted.get(name, np.zeros(columns))
        if not isinstance(shift, np.ndarray) or shift.shape != (columns,):
            raise ValueError(f"{name} must hold {columns} numbers, got {shift!r}.")
    if "_group_offsets" in note.fitted:
        _check_offsets(note.fitted["_group_offsets"], n_classes)
    if "_rules" in note.fitted:
        _check_rules(note.fitted["_rules"], n_classes)
    return note


def _check_offsets(kept: Any, n_classes: int) -> None:
    """Check that an entry can be the offsets of groups."""
    if not isinstance(kept, dict) or set(kept) != {"columns", "levels", "offsets"}:
        raise ValueError("_group_offsets must hold columns, levels and offsets.")
    columns, levels, offsets = kept["columns"], kept["levels"], kept["offsets"]
    if not isinstance(columns, tuple) or not isinstance(levels, list) or n_classes != 2:
        raise ValueError("_group_offsets must hold a tuple of columns and a list of levels.")
    if any(not isinstance(level, tuple) or len(level) != len(columns) for level in levels):
        raise ValueError(f"the levels of _group_offsets must have {len(columns)} values each.")
    is_array = isinstance(offsets, np.ndarray) and offsets.dtype.kind == "f"
    if not is_array or offsets.shape != (len(levels),) or not np.isfinite(offsets).all():
        raise ValueError(f"_group_offsets must hold {len(levels)} offsets, got {offsets!r}.")


def _check_rules(rules: Any, n_classes: int) -> None:
    """Check that an entry can be the decision rules of a classifier, with their probabilities."""
    arrays = ("costs", "probability", "factors")
    names = (*arrays, "scale", "cell_model", "cell_scores")
    if not isinstance(rules, dict) or set(rules) != set(names):
        raise ValueError(f"_rules must hold {', '.join(names)}.")
    _check_scale("scale", rules["scale"])
    costs, probability, factors = (np.asarray(rules[name], dtype=np.float64) for name in arrays)
    shape = (*probability.shape, *factors.shape, n_classes)
    if costs.ndim != 3 or costs.shape != shape or not np.isclose(probability.sum(), 1.0):
        raise ValueError(f"_rules must hold costs of shape {shape}, got {costs.shape}.")
    if not isinstance(rules["cell_model"], bytes | None):
        raise ValueError("the cell_model of _rules must be the bytes of a booster.")
    if (rules["cell_model"] is None) != (rules["cell_scores"] is None):
        raise ValueError("the cell_scores of _rules must come with a cell_model.")
    if rules["cell_scores"] is not None:
        _check_cell_scores(rules["cell_scores"], factors.size, n_classes)


def _check_cell_scores(scores: Any, n_cells: int, n_classes: int) -> None:
    """Check that an entry can say how scores of labels and of joint cells are combined."""
    names = {field.name for field in fields(CellScores)}
    if not isinstance(scores, dict) or set(scores) != names:
        raise ValueError(f"cell_scores must hold {', '.join(sorted(names))}.")
    for name in ("label_scale", "cell_scale"):
        _check_scale(name, scores[name])
    sizes = {"labels": n_cells, "cell_factors": n_cells, "label_factors": n_classes}
    for name, size in sizes.items():
        if np.shape(scores[name]) != (size,):
            raise ValueError(f"{name} must hold {size} numbers, got {scores[name]!r}.")
    known = np.unique(scores["labels"])
    if not np.array_equal(known[known != OTHER_DATA], np.arange(n_classes)):
        raise ValueError(f"labels must name all {n_classes} classes, got {scores['labels']!r}.")


def _check_scale(name: str, scale: Any) -> None:
    if not isinstance(scale, float) or not 0.0 < scale < np.inf:
        raise ValueError(f"_rules must hold a positive {name}, got {scale!r}.")


def _check_types(what: str, given: dict[str, Any], known: Mapping[str, type]) -> None:
    for name, value in given.items():
        if name not in known or not isinstance(value, known[name]):
            raise ValueError(f"{what} cannot hold {name!r}, or not as {type(value).__name__}.")


def refuse_threshold(given: Any, note: str | None, parameter: str) -> None:
    """Refuse to continue from the trees of a model whose threshold is kept beside them.

    A `parameter` gives the model, or the file that has the `note`.
    """
    fitted = _peek(note, "fitted") or {}
    lost = "training that continues from the trees would lose"
    if hasattr(given, "_rules") or "_rules" in fitted:
        raise ValueError(
            f"{parameter} is a model whose decision rules are kept beside its trees, as those of "
            f"a mixture or of groups are: {lost} them. Continue from a model without maximize= "
            f"and minimize=."
        )
    if hasattr(given, "_group_offsets") or "_group_offsets" in fitted:
        raise ValueError(
            f"{parameter} is a model whose offsets of groups are kept beside its trees: {lost} "
            f"them. Train that model with AdaptiveSurrogates(offsets=False), or with "
            f"probabilities='shifted'."
        )
    shift = getattr(given, "_threshold", None)
    shift = _peek(note, "decision_shift") if shift is None else shift
    if shift is not None and np.any(shift):
        raise ValueError(
            f"{parameter} is a model of probabilities='calibrated', whose threshold is kept "
            f"beside its trees (shift {np.round(shift, 4).tolist()}): {lost} the threshold. Train "
            f"that model with probabilities='shifted', or continue from a model without "
            f"constraints."
        )


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Restore all attributes of an estimator if a fit, or loading a file, fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class PackedState:
    """State of an estimator for pickle, joblib and skops, whose reports are texts.

    skops dumps no tables of pandas, and asks to trust every class that a state holds. Constraints
    and fitted attributes are therefore written as in the note of a file. What a note would forget,
    such as another model in a constraint, stays an object.
    """

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        packed = {}
        for name in (*FITTED_ATTRIBUTES, *SOLVER_PARAMETERS):
            if name in state and (text := _pack(state[name])) is not None:
                packed[name] = text
                del state[name]
        return {**state, PACKED: packed} if packed else state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        state = dict(state)
        packed = state.pop(PACKED, {})
        super().__setstate__(state)  # type: ignore[misc]
        vars(self).update({name: loads(text) for name, text in packed.items()})

    def __copy__(self) -> Self:
        """Copy the estimator, which shares parameters and reports with the copy."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made


PACKED = "_packed"
FORGOTTEN = ('"$":"Mask"', '"$":"ReferenceModel"')  # Forms that keep less than the object.


def _pack(value: Any) -> str | None:
    """Write a value as text, unless it is a plain one or the text would lose a part of it."""
    if value is None or isinstance(value, np.ndarray | str | float | int):
        return None
    try:
        text = dumps(value)
    except TypeError:
        return None
    return None if any(form in text for form in FORGOTTEN) else text
