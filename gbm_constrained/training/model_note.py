"""The note that a library's own model file holds beside the trees, and how it is read.

A model file of XGBoost or LightGBM holds trees. The *note* is one JSON object under the name
``gbm_constrained`` with the rest of a fitted estimator: parameters, constraints, classes and
reports. Libraries that do not know the note leave it alone. ``docs/saving.md`` has its entries,
:mod:`gbm_constrained.boosters.xgboost.classifier` and
:mod:`gbm_constrained.boosters.lightgbm.classifier` have its place in a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._version import __version__
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.decision.cell_scores import OTHER_DATA, CellScores
from gbm_constrained.training.fitted_report import FITTED_ATTRIBUTES
from gbm_constrained.training.note_json import dumps, loads

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
        known |= vars(type(estimator)(**{**own, **self.parameters})) | self.fitted
        known["_constraints_of_file"] = estimator.constraints


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
    if hasattr(given, "_rules") or "_rules" in (_peek(note, "fitted") or {}):
        raise ValueError(
            f"{parameter} is a model whose decision rules are kept beside its trees, as those of "
            f"a mixture or of groups are: training that continues from the trees would lose them. "
            f"Continue from a model without maximize= and minimize=."
        )
    if hasattr(given, "_group_offsets") or "_group_offsets" in (_peek(note, "fitted") or {}):
        raise ValueError(
            f"{parameter} is a model whose offsets of groups are kept beside its trees: training "
            f"that continues from the trees would lose them. Train that model with "
            f"AdaptiveSurrogates(offsets=False), or with probabilities='shifted'."
        )
    shift = getattr(given, "_threshold", None)
    shift = _peek(note, "decision_shift") if shift is None else shift
    if shift is not None and np.any(shift):
        raise ValueError(
            f"{parameter} is a model of probabilities='calibrated', whose threshold is kept "
            f"beside its trees (shift {np.round(shift, 4).tolist()}): training that continues "
            f"from the trees would lose the threshold. Train that model with "
            f"probabilities='shifted', or continue from a model without constraints."
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
