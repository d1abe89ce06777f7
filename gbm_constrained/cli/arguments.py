"""Arguments of the commands, and parameters of the estimator that ``fit`` trains."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from gbm_constrained._version import __version__
from gbm_constrained.data.validation import check_integer
from gbm_constrained.fit.options import GUARANTEES, MEASUREMENTS, METHODS, MeasurementName
from gbm_constrained.solvers.base import SEARCH_OPTIONS, Reduction, ReductionName

PROGRAM = "gbm-constrained"
LIBRARIES = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Train XGBoost and LightGBM models under constraints, and audit models.",
        epilog="exit codes: 0 all constraints are met, 1 a constraint is not met, 2 bad usage or "
        "input",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{fit,audit}")
    fit = commands.add_parser("fit", help="train a model under constraints")
    _add_common(fit)
    _add_fit(fit)
    audit = commands.add_parser(
        "audit", help="measure constraints on rows that a model has not seen"
    )
    audit.add_argument("model", type=Path, help="a model of XGBoost or LightGBM")
    audit.add_argument(
        "--segments",
        metavar="RATE",
        help="find groups that nobody named, where a rate such as fpr differs from the rest or a "
        'constraint such as "fpr <= 0.1" is violated',
    )
    audit.add_argument(
        "--explain",
        metavar="GAP",
        help='splits a gap over the features of the model, such as "gap(tpr, by=sex)"',
    )
    _add_common(audit)
    return parser


def say(options: argparse.Namespace, text: str) -> None:
    """Print a text, unless the command is to be quiet."""
    if not options.quiet:
        print(text)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    # fmt: off
    add("data", type=Path, help="table of rows: .parquet or .csv")
    add("--target", required=True, metavar="COLUMN", help="the labels, or numbers to predict")
    add("--constraint", **several, metavar="CONSTRAINT",
        help='such as "fpr <= 0.05" or "gap(tpr, by=sex) <= 0.02"; under means such as '
        '"each(mean_loss(squared), by=sex) <= 1" the model is a regressor; may be repeated')
    add("--metric", **several, metavar="METRIC",
        help='what the audit measures besides, such as g_mean or "f_beta(2, label=fraud)"; may be '
        "repeated")
    add("--sensitive", **several, metavar="COLUMN",
        help="a column that constraints use and the model does not; may be repeated")
    add("--small-groups", choices=("keep", "hold", "merge", "drop"),
        help="what becomes of groups of fewer than min_group_size rows in constraints that do "
        "not say (default: keep)")
    add("--weight", metavar="COLUMN", help="sample weights")
    add("--time", metavar="COLUMN",
        help="time of each row, which is no feature: the audit has the constraints by period, and "
        "fit holds the latest rows out")
    add("--positive", metavar="LABEL",
        help="the label that fpr, recall ... take as positive; by default the last of the sorted "
        "labels")
    add("--level", type=float, default=0.95,
        help="level of each interval of the audit (default: 0.95)")
    add("--html", type=Path, metavar="FILE", help="write the audit as a page")
    add("--json", type=Path, metavar="FILE", help="write the audit as JSON")
    add("--quiet", action="store_true", help="print nothing but warnings and errors")


def _add_fit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    # fmt: off
    add("--out", type=Path, required=True, metavar="FILE", help="the model, as its library has it")
    add("--library", choices=list(LIBRARIES), default="xgboost", help="default: xgboost")
    add("--maximize", metavar="METRIC",
        help="the objective in the place of the error: a metric such as g_mean, h_mean, "
        "min_recall or f1_macro, or a rate such as recall")
    add("--minimize", metavar="METRIC",
        help='likewise, where smaller values are better, such as "cost([[0, 1], [5, 0]])"')
    add("--drop", **several, metavar="COLUMN", help="a column to leave out; may be repeated")
    add("--test-fraction", type=float, default=0.2, metavar="SHARE",
        help="rows that are held out for an audit after the fit, stratified by the target or "
        "the latest by --time; 0 for none (default: 0.2)")
    add("--measure-on", choices=get_args(MeasurementName),
        help="rows whose rates train the model; forward is for --time, and its default")
    add("--guarantee", choices=list(GUARANTEES),
        help="what is promised of new rows; margin aims at bounds from a standard error inside")
    add("--delta", type=float, help="probability that the guarantee fails (default: 0.05)")
    add("--seed", type=int, default=0, help="of splits and of the booster (default: 0)")
    add("--param", **several, metavar="NAME=VALUE",
        help="a parameter of the estimator, such as n_estimators=300; may be repeated")


# Parameters that have options of their own.
OPTION_OF = {"constraints": "--constraint", "random_state": "--seed"} | {
    name: f"--{name.replace('_', '-')}"
    for name in ("positive", "maximize", "minimize", "measure_on", "guarantee", "delta", "seed")
}
# Parameters that are options of others.
MOVED = {
    "n_folds": "measure_on__n_folds=...",
    "holdout_fraction": "measure_on__fraction=...",
    "calibration_fraction": "guarantee__fraction=...",
    "oracle": "solver__oracle=...",
    "ensemble": "solver__ensemble=...",
    "deterministic": "solver__deterministic=...",
}


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
            given[name] = {"True": True, "False": False, "None": None}.get(value, value)
    if isinstance(given.get("monotone_constraints"), list):  # XGBoost takes tuples only.
        given["monotone_constraints"] = tuple(given["monotone_constraints"])
    if options.time is not None and options.measure_on is None:
        options.measure_on = "forward"
    objects = {
        name: _make_option(name, getattr(options, name), kinds, _take_nested(given, name), options)
        for name, kinds in (("measure_on", MEASUREMENTS), ("guarantee", GUARANTEES))
    }
    _make_solver(given)
    _check_known(options.library, estimator, given)
    given |= {name: value for name, value in objects.items() if value is not None}
    if "n_estimators" in given:
        check_integer("--param n_estimators", given["n_estimators"], 1)
    if options.measure_on == "forward" and options.time is None:
        raise ValueError(
            "--measure-on forward trains on earlier and measures on later rows: give --time, the "
            "column of their times."
        )
    quiet = {} if "verbosity" in given else {"verbose": -1}
    own = {"enable_categorical": True} if options.library == "xgboost" else quiet
    return {**own, **given, "random_state": options.seed}


def _take_nested(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Take out the options that are given as NAME__OPTION."""
    prefix = f"{name}__"
    return {key.removeprefix(prefix): given.pop(key) for key in [*given] if key.startswith(prefix)}


def _make_option(
    name: str,
    asked: str | None,
    kinds: Mapping[Any, Any],
    nested: dict[str, Any],
    options: argparse.Namespace,
) -> Any:
    """Make the object of a name, if it is given options."""
    texts = [f"--param {name}__{option}" for option in nested]
    if name == "guarantee" and options.delta is not None:
        nested["delta"] = options.delta
        texts.append("--delta")
    if not nested:
        return asked
    flag, said = OPTION_OF[name], ", ".join(texts)
    holders = [kind for kind in kinds if nested.keys() <= kinds[kind]().get_params().keys()]
    if not holders:
        known = [f"{option} of {kind}" for kind in kinds for option in kinds[kind]().get_params()]
        raise ValueError(f"{said}: {flag} takes {', '.join(known)}.")
    if name == "measure_on" and asked is None:
        asked = holders[0]
    if asked not in holders:
        given = "it is not given" if asked is None else f"got {asked}"
        raise ValueError(f"{said}: the option is of {flag} {' or '.join(holders)}, and {given}.")
    return kinds[asked](**nested)


def _make_solver(given: dict[str, Any]) -> None:
    """Make the solver whose options are given as solver__NAME, in their place."""
    options = _take_nested(given, "solver")
    if not options:
        return
    name = given.get("solver", "auto")
    reductions = get_args(ReductionName)[1:]
    is_search = name in reductions or not options.keys().isdisjoint(SEARCH_OPTIONS)
    if not is_search and name not in METHODS:
        raise ValueError(
            f"--param solver__{next(iter(options))}: options are of solver=auto, abpp or cbpr, or "
            f"of a reduction of a metric, got solver={name}."
        )
    kind: Any = partial(Reduction, name) if is_search else METHODS[name]
    known = [field.name for field in dataclasses.fields(kind()) if field.name != "name"]
    if unknown := [option for option in options if option not in known]:
        names = ", ".join(f"solver__{option}" for option in known)
        raise ValueError(
            f"--param: solver={name} has no option solver__{unknown[0]}: use one of {names}."
        )
    given["solver"] = kind(**options)
    try:
        given["solver"].check()
    except ValueError as error:  # It begins with the name of the option.
        raise ValueError(f"--param solver__{error}") from error


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
        settings = {**others, "validate_parameters": True, "verbosity": 1}
        # XGBoost knows parameters such as quantile_alpha under their own objectives only.
        if str(given.get("objective")).startswith(("reg:", "count:")):
            settings["objective"] = given["objective"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            xgb.train(settings, xgb.DMatrix(np.zeros((2, 1)), label=[1, 1]), 1)
        unused = [str(w.message) for w in caught if "are not used" in str(w.message)]
        unknown = [name for name in others if any(f'"{name}"' in text for text in unused)]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        remedy = f"did you mean {near[0]}?" if near else "see the library's documentation."
        if unknown[0] in MOVED:
            remedy = f"give {MOVED[unknown[0]]}."
        raise ValueError(f"--param: {LIBRARIES[library]} has no parameter {unknown[0]}: {remedy}")
