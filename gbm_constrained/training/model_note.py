"""What a file of a booster is to know besides its trees, and how an estimator gets it back.

A model file of XGBoost or LightGBM holds trees. The *note* that is added to it, one JSON object
under the name ``gbm_constrained``, holds the rest of a fitted estimator: its parameters and rules,
the classes, everything that was measured. Libraries that do not know it leave it alone.
:mod:`gbm_constrained.boosters.xgboost.classifier` and
:mod:`gbm_constrained.boosters.lightgbm.classifier` say where in a file it stands,
``docs/saving.md`` what is in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._version import __version__
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.training.fitted_report import FITTED_ATTRIBUTES
from gbm_constrained.training.note_json import dumps, loads

NAME = "gbm_constrained"
SHA256 = "sha256"
FORMAT = 2  # Raised where one version of this package would misread the note of another.


@dataclass(frozen=True)
class Note:
    """What a file knows of an estimator.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    parameters : dict
        Constructor parameters.
    left_out : list of str
        Names of those that could not be written.
    fitted : dict
        Fitted attributes that tell of the constraints.
    library : dict
        Fitted attributes of the parent that its own file does not hold.
    """

    classes: Any
    parameters: dict[str, Any]
    left_out: list[str]
    fitted: dict[str, Any]
    library: dict[str, Any]

    def restore(self, estimator: Any) -> None:
        """Give an estimator its parameters and what was measured; all else is its adapter's."""
        own = {
            name: getattr(estimator, name) for name in self.left_out if hasattr(estimator, name)
        }
        anew = type(estimator)(**{**own, **self.parameters})
        vars(estimator).pop(
            "kwargs", None
        )  # where XGBoost keeps parameters that it has no name for
        vars(estimator).update(vars(anew))
        vars(estimator).update(self.fitted)
        estimator._rules_of_file = estimator.constraints


def forget_rules(estimator: Any) -> None:
    """Forget the rules of a file that was loaded before; those that a user gave stay."""
    of_file = vars(estimator).pop("_rules_of_file", None)
    if of_file is not None and estimator.constraints is of_file:
        estimator.constraints = None


def write_note(
    estimator: Any,
    rounds: int,
    library: Mapping[str, Any],
    whole: bool = True,
    model: str | None = None,
) -> str:
    """Write the note of a fitted estimator.

    Parameters
    ----------
    estimator : classifier
        Fitted.
    rounds : int
        Boosting rounds in the file.
    library : dict
        Fitted attributes of the parent that its own file does not hold.
    whole : bool, default=True
        Whether the file holds the whole model. Of a part, nothing was measured.
    model : str, default=None
        All else that the file holds, if the library does not carry a note on to another model.

    Raises
    ------
    TypeError
        If the constraints or the labels hold a value that cannot be written.
    """
    known = vars(estimator)
    fitted = {name: known[name] for name in FITTED_ATTRIBUTES if name in known} if whole else {}
    classes = np.asarray(estimator.classes_)
    shift = fitted.get("_threshold", np.zeros(1 if classes.size == 2 else classes.size))
    parameters, left_out = {}, []
    with preserve_random_state(estimator):
        names = list(estimator.get_params(deep=False).items())
    for name, value in names:
        value = getattr(estimator, name, value)  # a RandomState, of which XGBoost gives a draw
        try:
            dumps(value)
        except TypeError as error:
            if name == "constraints":
                raise TypeError(f"The constraints cannot be saved: {error}") from error
            left_out.append(name)
        else:
            parameters[name] = value
    if left_out:
        issue_warning(
            f"{type(estimator).__name__}.save_model does not keep {', '.join(left_out)}: a file "
            f"holds numbers, strings and containers of these, no functions and no objects. Give "
            f"them again after load_model where they matter to another fit.",
            "GC401",
        )
    return dumps(
        {
            "format": FORMAT,
            "version": __version__,
            "rounds": rounds,
            "rules": list(map(str, rules_of(estimator))),
            "decision_shift": shift.tolist(),
            "classes": classes,
            "parameters": parameters,
            "left_out": left_out,
            "fitted": fitted,
            "library": dict(library),
            **({} if model is None else {SHA256: _sha256(model)}),
        }
    )


def rules_of(estimator: Any) -> tuple[Constraint, ...]:
    """Rules of a fitted estimator, whose rates name their class as its reports do."""
    rules = check_constraints(estimator.constraints)
    return resolve_positive_class(rules, estimator.classes_, estimator.positive)


def check_unchanged(note: str | None, model: str) -> None:
    """Check that a model is the one that a note was written with, before the library reads it.

    Raises
    ------
    ValueError
        If it is not. Of a note that cannot be read, it is :func:`read_note` that complains.
    """
    try:
        written = json.loads(note or "")[SHA256]
    except (ValueError, KeyError, TypeError):
        return
    if written != _sha256(model):
        raise ValueError(
            f"its model has changed since gbm_constrained wrote it: delete the line that begins "
            f"with '{NAME}:' if the change was meant, and it is loaded as a plain model"
        )


def _sha256(model: str) -> str:
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

    Parameters
    ----------
    text : str or None
        The note.
    estimator : classifier
        Which loads the file.
    library : dict from str to type
        Fitted attributes of the parent that a note may hold.
    rounds, n_classes : int
        Boosting rounds and classes of the model in the file.
    source : str
        What the file is called.

    Returns
    -------
    Note or None
        None of a plain model, and (with a warning) of one that was changed since.

    Raises
    ------
    ValueError
        If it is torn or forged, or was written by another version of this package in a format
        that this one does not know.
    """
    if text is None:
        return None
    try:
        plain = json.loads(text)  # objects of another format may have fields that are unknown here
        written_by, format_, noted = (plain[name] for name in ("version", "format", "rounds"))
        if type(format_) is not int or type(noted) is not int:
            raise ValueError(f"it says format {format_!r} and {noted!r} rounds.")
        note = None
        if format_ == FORMAT:
            note = _checked(loads(text), type(estimator), n_classes)
            _check_types("library", note.library, library)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{source} holds a note of gbm_constrained that cannot be read, so that the file must "
            f"be damaged: {error}"
        ) from error
    if note is None:
        remedy = "update the package" if format_ > FORMAT else f"load it by {written_by}"
        raise ValueError(
            f"{source} was saved by gbm_constrained {written_by}, in format {format_}, and this "
            f"is {__version__}, which reads format {FORMAT}: {remedy}, or load "
            f"the file as a plain model by the library itself."
        )
    if noted != rounds:
        issue_warning(
            f"{source} holds {rounds} boosting rounds, and what gbm_constrained noted in it "
            f"speaks of {noted}: another program continued or cut the model. It is loaded as a "
            f"plain model, without its rules and reports.",
            "GC402",
        )
        return None
    return note


def _checked(content: dict[str, Any], cls: type, n_classes: int) -> Note:
    note = Note(**{name: content[name] for name in Note.__dataclass_fields__})
    if not all(isinstance(d, dict) for d in (note.parameters, note.fitted, note.library)):
        raise ValueError("parameters and attributes must have names.")
    if not isinstance(note.classes, np.ndarray) or note.classes.shape != (n_classes,):
        raise ValueError(f"its classes are not the {n_classes} of the model.")
    # Parameters of these names would stand in the place of methods.
    strange = [name for name in note.parameters if not isinstance(name, str) or hasattr(cls, name)]
    if strange:
        raise ValueError(f"{strange[0]!r} is no parameter.")
    check_constraints(note.parameters.get("constraints"))
    tables = {"constraint_report_": pd.DataFrame, "prefixes_": pd.DataFrame}
    _check_types("fitted", note.fitted, {**dict.fromkeys(FITTED_ATTRIBUTES, object), **tables})
    columns = 1 if n_classes == 2 else n_classes
    for name in ("shift_", "_threshold"):
        shift = note.fitted.get(name, np.zeros(columns))
        if not isinstance(shift, np.ndarray) or shift.shape != (columns,):
            raise ValueError(f"{name} must hold {columns} numbers, got {shift!r}.")
    return note


def _check_types(what: str, given: dict[str, Any], known: Mapping[str, type]) -> None:
    for name, value in given.items():
        if name not in known or not isinstance(value, known[name]):
            raise ValueError(f"{what} cannot hold {name!r}, or not as {type(value).__name__}.")


def refuse_threshold(given: Any, note: str | None, parameter: str) -> None:
    """Refuse to continue from the trees of a model whose threshold is kept beside them.

    Parameters
    ----------
    given : object
        The model to continue from.
    note : str or None
        The note of its file, where it is one.
    parameter : str
        Name of the parameter that gives the model.

    Raises
    ------
    ValueError
        If a fit with ``probabilities="calibrated"`` has moved the threshold of that model.
    """
    shift = getattr(given, "_threshold", None)
    if shift is None and note is not None:
        try:
            shift = json.loads(note)["decision_shift"]
        except (ValueError, KeyError, TypeError):  # a note that load_model would refuse
            return
    if shift is not None and np.any(shift):
        raise ValueError(
            f"{parameter} is a model of probabilities='calibrated', whose threshold is kept "
            f"beside its trees (shift {np.round(shift, 4).tolist()}): training that continues "
            f"from the trees would lose the threshold. Train that model with "
            f"probabilities='shifted', or continue from a model without constraints."
        )


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Give an estimator back all its attributes where a fit, or loading a file, fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
