"""What the examples share: the classifiers, their arguments, tables and figures."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightgbm as lgb
import matplotlib.pyplot as plt
import pandas as pd
import xgboost as xgb

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
)
from gbm_constrained.cli.main import at_least

PLAIN = {"XGBoost": xgb.XGBClassifier, "LightGBM": lgb.LGBMClassifier}
CONSTRAINED = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}
QUIET: dict[str, dict[str, Any]] = {"XGBoost": {"verbosity": 0}, "LightGBM": {"verbose": -1}}
SILENT: dict[str, dict[str, Any]] = {"XGBoost": {"verbose": False}, "LightGBM": {}}  # in fit
# XGBoost wants to be told of columns that are categories; LightGBM sees it.
CATEGORIES: dict[str, dict[str, Any]] = {"XGBoost": {"enable_categorical": True}, "LightGBM": {}}

# Rules that cannot be met, cost much, or leave a model that knows little: see `print_notes`.
warnings.filterwarnings("ignore", category=CostlyConstraintsWarning)
warnings.filterwarnings("ignore", category=InfeasibleConstraintsWarning)
warnings.filterwarnings("ignore", category=FragileConstraintsWarning)
warnings.filterwarnings("ignore", category=MissedConstraintsWarning)
# The groups, and which of them are small, are printed too.
warnings.filterwarnings("ignore", message=".*fewer than min_group_size")
# The new names, eval_X and eval_y, are unknown to LightGBM 4.6.
warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")


def make_parser(
    description: str | None, *, rounds: int | None, jobs: int | None = None
) -> argparse.ArgumentParser:
    """Arguments that all examples take."""
    arguments = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    arguments.add_argument("--data-home", help="directory with the data set")
    arguments.add_argument("--output", type=Path, default=Path("output"), help="where files go")
    arguments.add_argument("--rounds", type=at_least(1), default=rounds, help="boosting rounds")
    arguments.add_argument("--jobs", type=int, default=jobs, help="threads of the libraries")
    return arguments


def parse_arguments(
    description: str | None, *, rounds: int, rows: int, least: int
) -> argparse.Namespace:
    """Arguments of the examples that draw a sample of a table, of so many rows at least.

    Of fewer, a part of the rows may lack a class or the groups that a rule compares.
    """
    arguments = make_parser(description, rounds=rounds)
    arguments.add_argument("--library", choices=[*PLAIN, "both"], default="both")
    sample = f"of a random sample to use, {least:,} or more"
    arguments.add_argument("--rows", type=at_least(least), default=rows, help=sample)
    return started(arguments.parse_args())


def started(args: argparse.Namespace) -> argparse.Namespace:
    """Make the directory for the output, or stop, and list the libraries that were asked for."""
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"--output {args.output}: {error.strerror}.")
    asked = getattr(args, "library", "both")
    args.libraries = list(PLAIN) if asked == "both" else [asked]
    return args


def parameters(library: str, args: argparse.Namespace) -> dict[str, Any]:
    """Parameters of the classifiers, plain and constrained, of the examples with a table."""
    return {
        "n_estimators": args.rounds,
        "learning_rate": 0.1,
        "n_jobs": args.jobs,
        **QUIET[library],
        **CATEGORIES[library],
    }


def load(loader: Callable[..., Any], **options: Any) -> Any:
    """Load a data set; where it is not to be had, say so and stop."""
    try:
        return loader(**options)
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))


def interval(low: float, high: float, digits: int = 2) -> str:
    """Print an interval of fractions in per cent."""
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f}"


def measured(model: Any) -> dict[str, Any]:
    """Value of a rule, of several rules the largest, out of fold and on test rows, in per cent."""
    unseen = max(model.feasibility_.rules, key=lambda rule: rule.value)
    return {
        "unseen": 100 * unseen.value,
        "interval": interval(unseen.low, unseen.high),
        "test": 100 * model.constraint_report_["held_out"].max(),
    }


def print_notes(models: Mapping[str, Any]) -> None:
    """Print what the fits found: which models, and in full about the first of a kind."""
    by_finding: dict[str, list[str]] = {}
    for name, model in models.items():
        found = model.feasibility_
        finding = "fragile" if found.is_fragile else found.status
        if found.cost.is_costly:
            finding += " and costly"
        by_finding.setdefault(finding, []).append(name)
    for finding, names in by_finding.items():
        if finding != "met":
            print(f"\nRules found {finding}: {'; '.join(names)}. Of the first it is said:")
            print(models[names[0]].feasibility_)


def print_by_library(table: pd.DataFrame, keys: list[str]) -> None:
    """Print the libraries side by side."""
    libraries = list(table["library"].unique())
    requested = table["requested"].map("{:g}".format, na_action="ignore").fillna("none")
    wide = table.assign(requested=requested).set_index([*keys, "library"])
    wide = wide.unstack("library", sort=False).swaplevel(axis=1)[libraries]
    print(wide.to_string(float_format="{:.2f}".format))


def print_groups(report: pd.DataFrame) -> None:
    """Rows of the groups, and their rates on test rows with the intervals, in per cent."""
    ends = zip(report["low"], report["high"], strict=True)
    shown = report.drop(columns="constraint").assign(
        train=100 * report["train"],
        test=100 * report["held_out"],
        interval=[interval(*each) for each in ends],
    )[["group", "rows", "train", "test", "interval"]]
    print(shown.to_string(index=False, float_format="{:.2f}".format), end="\n\n")


def save(figure: plt.Figure, path: Path) -> None:
    """Save a figure and say where. It stays open: the gallery shows it."""
    figure.savefig(path, dpi=150)
    print(f"Saved {path}")


def save_models(output: Path, constrained: Mapping[str, Any], X: Any) -> None:
    """Save the native model of each library, and compare the decisions of the plain library."""
    for library, model in constrained.items():
        if library == "XGBoost":
            path = output / "model.json"
            model.get_booster().save_model(path)
            rows = xgb.DMatrix(X, **CATEGORIES[library])
            probability = xgb.Booster(model_file=path).predict(rows)
        else:
            path = output / "model.txt"
            model.booster_.save_model(path)
            probability = lgb.Booster(model_file=path).predict(X)
        differ = int(((probability > 0.5) != model.predict(X)).sum())
        print(
            f"Saved {path}. Read by plain {library}, {differ} of {len(X):,} test decisions differ."
        )
