"""Arguments of the commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from gbm_constrained._version import __version__
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.training.given_folds import MeasureOn

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
    add("--measure-on", choices=get_args(MeasureOn),
        help="rows whose rates train the model; forward is for --time, and its default")
    add("--guarantee", choices=get_args(Guarantee)[1:],
        help="what is promised of new rows")
    add("--delta", type=float, help="probability that the guarantee fails (default: 0.05)")
    add("--seed", type=int, default=0, help="of splits and of the booster (default: 0)")
    add("--param", **several, metavar="NAME=VALUE",
        help="a parameter of the estimator, such as n_estimators=300; may be repeated")
