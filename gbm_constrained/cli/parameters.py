"""Parameters of the estimator that ``fit`` trains."""

from __future__ import annotations

import argparse
import difflib
import json
import warnings
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from gbm_constrained.cli.arguments import LIBRARIES
from gbm_constrained.data.validation import check_integer
from gbm_constrained.training.options import METHODS

# XGBoost knows parameters such as quantile_alpha under their own objectives only.
REGRESSION = ("reg:", "count:")
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


def read_parameters(options: argparse.Namespace, estimator: Any) -> dict[str, Any]:
    """Read the parameters that are given by name, and those that have options.

    `estimator` is the class of the library's estimator that takes them.
    """
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
    _check_known(options.library, estimator, given)
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


def _check_known(library: str, estimator: Any, given: dict[str, Any]) -> None:
    """Refuse parameters that neither the estimator nor its library knows."""
    known = set(estimator().get_params())
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
        unknown = _find_unknown_to_xgboost(others, given.get("objective"))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else "see the library's documentation."
        raise ValueError(f"--param: {LIBRARIES[library]} has no parameter {unknown[0]}: {remedy}")


def _find_unknown_to_xgboost(others: dict[str, Any], objective: Any) -> list[str]:
    """Find the parameters that XGBoost warns it does not use, under a regressor's objective."""
    settings = {**others, "validate_parameters": True, "verbosity": 1}
    if str(objective).startswith(REGRESSION):
        settings["objective"] = objective
    rows = xgb.DMatrix(np.zeros((2, 1)), label=[1, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xgb.train(settings, rows, 1)
    unused = [str(w.message) for w in caught if "are not used" in str(w.message)]
    return [name for name in others if any(f'"{name}"' in text for text in unused)]
