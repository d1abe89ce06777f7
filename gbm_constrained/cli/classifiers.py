"""Classifiers that ``fit`` trains, and their parameters."""

from __future__ import annotations

import argparse
import difflib
import json
import warnings
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from gbm_constrained.boosters.base import BoosterAdapter
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.cli.arguments import LIBRARIES
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_integer
from gbm_constrained.training.options import METHODS


class LabelledXGBClassifier(ConstrainedXGBClassifier):
    """Train XGBoost on class positions, and the constraints on the labels of these classes.

    XGBoost takes the labels 0, 1, 2 ... only. Constraints, reports and the note of the saved file
    hold the labels themselves, and predictions are labels.
    """

    _class_labels: Any = None

    @property
    def classes_(self) -> Any:
        """Sorted labels; 0, 1 ... of a file that does not name its classes."""
        return super().classes_ if self._class_labels is None else self._class_labels

    def fit(self, X: Any, y: Any, **given: Any) -> LabelledXGBClassifier:
        """Fit the classifier to labels of any kind."""
        self._training_labels, positions = np.unique(y, return_inverse=True)
        self._class_labels = None  # XGBoost checks the positions against classes_.
        super().fit(X, positions, **given)
        self._class_labels = self._training_labels
        return self

    def _fit_constrained(self, adapter: BoosterAdapter, rows: FitArguments, *given: Any) -> None:
        rows = replace(rows, y=self._training_labels[rows.y])
        super()._fit_constrained(adapter, rows, *given)

    def predict(self, X: Any, **given: Any) -> Any:
        """Predict labels, or scores where these are asked for."""
        found = super().predict(X, **given)
        return found if given.get("output_margin") else self.classes_[found]


CLASSIFIERS: dict[str, Any] = {
    "xgboost": LabelledXGBClassifier,
    "lightgbm": ConstrainedLGBMClassifier,
}
# Parameters that have options of their own.
OPTION_OF = {
    "constraints": "--constraint",
    "positive": "--positive",
    "maximize": "--maximize",
    "minimize": "--minimize",
    "measure_on": "--measure-on",
    "guarantee": "--guarantee",
    "delta": "--delta",
    "random_state": "--seed",
    "seed": "--seed",
}
PYTHON_CONSTANTS = {"True": True, "False": False, "None": None}


def read_parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Read the parameters that are given by name, and those that have options."""
    given: dict[str, Any] = {}
    for pair in options.param:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--param {pair!r} must be NAME=VALUE, such as n_estimators=300.")
        if name in OPTION_OF:
            raise ValueError(f"--param {pair!r}: use {OPTION_OF[name]}.")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = PYTHON_CONSTANTS.get(value, value)
    if isinstance(given.get("monotone_constraints"), list):  # XGBoost takes tuples only.
        given["monotone_constraints"] = tuple(given["monotone_constraints"])
    _make_solver(given)
    _check_known(options.library, given)
    if "n_estimators" in given:
        check_integer("--param n_estimators", given["n_estimators"], 1)
    for name in ("measure_on", "guarantee", "delta"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name)
    if options.time is not None:
        given.setdefault("measure_on", "forward")
    elif given.get("measure_on") == "forward":
        raise ValueError(
            "--measure-on forward trains on earlier and measures on later rows: give --time, the "
            "column of their times."
        )
    if options.library == "xgboost":
        own: dict[str, Any] = {"enable_categorical": True}
    else:
        own = {} if "verbosity" in given else {"verbose": -1}
    return {**own, **given, "random_state": options.seed}


def _make_solver(given: dict[str, Any]) -> None:
    """Make the solver whose options are given as solver__NAME, in their place."""
    prefix = "solver__"
    options = {name: given.pop(name) for name in [*given] if name.startswith(prefix)}
    if not options:
        return
    name = given.get("solver", "auto")
    if name not in METHODS:
        raise ValueError(
            f"--param {next(iter(options))}: options are of solver=auto, abpp or cbpr, got "
            f"solver={name}."
        )
    known = [prefix + option for option in METHODS[name]().get_params()]
    if unknown := [option for option in options if option not in known]:
        raise ValueError(
            f"--param: solver={name} has no option {unknown[0]}: use one of {', '.join(known)}."
        )
    values = {option.removeprefix(prefix): value for option, value in options.items()}
    given["solver"] = METHODS[name](**values)
    try:
        given["solver"].check()
    except ValueError as error:  # It begins with the name of the option.
        raise ValueError(f"--param {prefix}{error}") from error


def _check_known(library: str, given: dict[str, Any]) -> None:
    """Refuse parameters that neither the classifier nor its library knows."""
    known = set(CLASSIFIERS[library]().get_params())
    others = {name: value for name, value in given.items() if name not in known}
    if library == "lightgbm":
        # LightGBM lists its parameters here only, and the list is not public. Without it,
        # LightGBM warns of unknown parameters in training.
        aliases = getattr(lgb.basic, "_ConfigAliases", None)
        groups = {} if aliases is None else aliases._get_all_param_aliases()
        names = set(groups).union(*groups.values())
        unknown = [name for name in others if names and name not in names]
        known |= names
    else:
        unknown = [name for name, value in others.items() if _is_unknown_to_xgboost(name, value)]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else "see the library's documentation."
        raise ValueError(f"--param: {LIBRARIES[library]} has no parameter {unknown[0]}: {remedy}")


def _is_unknown_to_xgboost(name: str, value: Any) -> bool:
    """Whether XGBoost warns that it does not use a parameter."""
    rows = xgb.DMatrix(np.zeros((2, 1)), label=[0, 1])
    settings = {name: value, "validate_parameters": True, "verbosity": 1}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xgb.train(settings, rows, 1)
    return any("are not used" in str(warning.message) for warning in caught)
