"""The command line: train under constraints, and audit models, without writing Python.

It has two commands::

    gbm-constrained fit data.parquet --target y --constraint "fpr <= 0.05" --out model.json
    gbm-constrained audit model.json new.parquet --target y --constraint "fpr <= 0.05"

Exit codes: 0 if the verdict on every constraint is "met", 1 if a verdict is another one, 2 if
something that was given does not fit. The standard error stream then says what does not fit.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.cli.arguments import LIBRARIES, PROGRAM, make_parser, read_parameters, say
from gbm_constrained.cli.constraints import (
    bound_metrics,
    check_language,
    check_measurable,
    complete_groups,
    find_labels_to_learn,
    find_positive,
    is_regression,
    read_gap,
    read_language,
    refuse_options_of_classes,
)
from gbm_constrained.cli.model_files import (
    ESTIMATORS,
    ModelFile,
    is_numbered,
    open_model,
    save_estimator,
)
from gbm_constrained.cli.tables import (
    Label,
    LabelledRows,
    check_input,
    check_outputs,
    list_columns,
    make_features,
    read_rows,
    split_rows,
)
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_task
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.evaluation.audit import describe_model
from gbm_constrained.explanations import explain_gap
from gbm_constrained.fit.options import GROUP_PARAMETERS, read_measurement
from gbm_constrained.reporting.audit import audit
from gbm_constrained.reporting.segments import find_segments

ALL_MET, NOT_MET, BAD_INPUT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments; those of the process by default.

    Returns
    -------
    int
        The exit code.
    """
    options = make_parser().parse_args(argv)
    try:
        with _print_warnings():
            return run_fit(options) if options.command == "fit" else run_audit(options)
    # So this package, pandas, XGBoost and LightGBM report bad input.
    except (ValueError, TypeError, OSError, ImportError, lgb.basic.LightGBMError) as error:
        # XGBoost puts its own place in front of the message, and a stack behind it.
        text = str(error).partition("\nStack trace")[0].strip()
        text = _name_options(re.sub(r"\[[\d:]+\] \S+:\d+: ", "", text))
        print(f"{PROGRAM} {options.command}: error: {text}", file=sys.stderr)
        return BAD_INPUT


def _name_options(text: str) -> str:
    """Name the option in the place of the argument that Python has for it."""
    text = re.sub(r"small_groups='(\w+)'", r"--small-groups \1", text)
    return text.replace(" small_groups_ lists all of them.", "")


@contextmanager
def _print_warnings() -> Iterator[None]:
    """Print each warning for users once, without empty lines."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        lines = map(str.rstrip, str(message).strip().splitlines())
        text = _name_options("\n".join(filter(None, lines)))
        if issubclass(category, UserWarning) and text not in seen:
            print(f"{PROGRAM}: warning: {text}", file=sys.stderr)
        seen.add(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def run_fit(options: argparse.Namespace) -> int:
    """Train a model, write it, and audit the written model on the rows held out."""
    # An error in the text comes before a large table is read.
    constraints, objective, metrics = read_language(options)
    predicts_numbers = is_regression(constraints, options)
    check_input("DATA", options.data)
    kind = ESTIMATORS[options.library, predicts_numbers]
    parameters = read_parameters(options, kind)
    _check_options(options)
    used = (*constraints, *bound_metrics([*objective.values(), *metrics]))
    table, rows = read_rows(options, used, predicts_numbers=predicts_numbers)
    y = rows.y
    labels = find_labels_to_learn(options, y, predicts_numbers=predicts_numbers)
    positive = find_positive(options, labels)
    constraints, objective, metrics = read_language(options, labels)
    metrics = [*objective.values(), *metrics]
    check_language(constraints, metrics, options, table, rows, labels)
    X = make_features(options, table)
    strata = np.zeros(y.size, dtype=np.intp) if predicts_numbers else y
    training, held_out = split_rows(options, strata, rows.time)
    if predicts_numbers:
        learnt = f"targets from {y.min():g} to {y.max():g}, {y.mean():g} on average"
    else:
        named = f"\npositive: {options.positive or labels[-1]}" if len(labels) == 2 else ""
        learnt = f"labels {labels}{named}"
    say(options, f"{training.size:,} rows to train on, {held_out.size:,} held out; {learnt}")
    if names := [name for name in list_columns(constraints, table)[0] if name in X]:
        listed = ", ".join(names)
        say(options, f"constraints use features: {listed} (--sensitive takes them out)")
    if held_out.size:
        parts = {"held out": held_out, "trained on": training}
        to_compile, classes = rows, np.unique(y)
        if predicts_numbers:
            # Row functions stand in the place of classes, and all rows are in the first one.
            classes = np.array([function.key for function in row_functions_of(constraints)])
            to_compile = replace(rows, y=np.repeat(classes[:1], y.size))
        check_measurable(constraints, to_compile, classes, parts, positive)
    own = {} if predicts_numbers else {"positive": positive}
    estimator = kind(constraints=list(constraints), **own, **objective, **parameters)
    trained = rows.take(training)
    groups = trained.groups
    if any(parameters.get(name) for name in GROUP_PARAMETERS):  # Trees split by features alone.
        groups = groups.drop(columns=X.columns, errors="ignore")
    measured = read_measurement(parameters.get("measure_on", "auto"))
    is_forward = measured["measure_on"] == "forward"
    estimator.fit(
        X.iloc[training],
        trained.y,
        sample_weight=trained.weight,
        sensitive_features=groups,
        **({"time": trained.time} if is_forward else {}),
        **({"verbose": not options.quiet} if options.library == "xgboost" else {}),
    )
    save_estimator(estimator, options.out, X)
    is_coded = options.library == "xgboost" and not is_numbered(labels)
    known = f" whose classes 0, 1 ... are {labels}" if is_coded else ""
    say(options, f"wrote {options.out}: a plain {LIBRARIES[options.library]} model{known}")
    if not held_out.size:
        return _report_fit(options, estimator)
    model = open_model(options.out).name_classes(labels)
    # The features are taken by position, because LightGBM writes other names of columns.
    X = X.iloc[held_out].set_axis(model.features, axis=1)
    return _report_audit(options, model, X, rows.take(held_out), constraints, metrics)


def run_audit(options: argparse.Namespace) -> int:
    """Measure constraints and metrics on the decisions of a model."""
    stated, _, asked = read_language(options)
    check_input("MODEL", options.model)
    check_input("DATA", options.data)
    _check_options(options)
    names_rates = options.constraint or options.metric or options.segments or options.explain
    if options.positive is not None and not names_rates:
        raise ValueError(
            "--positive is for --constraint, --metric, --segments and --explain: the constraints "
            "of a model name their labels."
        )
    model = open_model(options.model)
    if model.predicts_numbers:
        refuse_options_of_classes(options, f"{options.model} predicts numbers")
    try:
        check_task(stated, predicts_numbers=model.predicts_numbers)
    except ValueError as error:
        raise ValueError(f"--constraint on {options.model}: {error}") from None
    constraints = tuple(complete_groups(c, options) for c in model.constraints)
    if not asked and model.objective is not None:
        asked = [model.objective]
    explained = read_gap(options)
    used = (*(stated or constraints), *bound_metrics(asked), *explained)
    table, rows = read_rows(options, used, predicts_numbers=model.predicts_numbers, model=model)
    labels = _find_labels(options, model, rows.y)
    named, _, metrics = read_language(options, labels)
    constraints = named or constraints
    if options.constraint or options.positive is not None:
        # The positive class of the training does not matter to other constraints.
        model.positive = find_positive(options, labels)
    metrics = metrics or asked
    if not constraints and not metrics and options.segments is None and not explained:
        raise ValueError(
            f"{options.model} has no constraints with it: give at least one --constraint. "
            f"A --metric is measured without any."
        )
    check_language(constraints, metrics, options, table, rows, labels)
    X = model.take_features(table)
    return _report_audit(options, model.name_classes(labels), X, rows, constraints, metrics)


def _check_options(options: argparse.Namespace) -> None:
    """Refuse files and numbers that do not fit, before anything takes its time."""
    check_outputs(options)
    if not 0.0 < options.level < 1.0:
        raise ValueError(
            f"--level must lie strictly between 0 and 1, such as 0.95, got {options.level:g}."
        )
    if options.command != "fit":
        return
    if options.seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {options.seed}.")
    if options.library == "xgboost" and options.out.suffix not in (".json", ".ubj"):
        raise ValueError(f"--out {options.out} must end in .json or .ubj for XGBoost.")
    share = options.test_fraction
    if not 0.0 <= share < 1.0:
        raise ValueError(f"--test-fraction must be at least 0 and below 1, got {share:g}.")
    if share == 0.0 and (options.html or options.json):
        raise ValueError(
            "--html and --json write the audit of held-out rows, of which --test-fraction 0 "
            "leaves none."
        )


def _find_labels(options: argparse.Namespace, model: ModelFile, y: NDArray[Any]) -> list[Label]:
    """Find the labels of a model's classes: those of the file, else 0, 1 ..., else the data's."""
    if model.labels is not None:
        return model.labels
    found: list[Label] = np.unique(y).tolist()
    positions: list[Label] = list(range(model.n_classes))
    if set(found) <= set(positions) and bool not in map(type, found):
        return positions
    if len(found) != model.n_classes:
        raise ValueError(
            f"{options.model} has {model.n_classes} classes and does not name them, and "
            f"--target {options.target} holds {found}: give rows of all classes."
        )
    say(options, f"{options.model} does not name its classes: taken as the sorted labels, {found}")
    return found


def _report_audit(
    options: argparse.Namespace,
    model: ModelFile,
    X: pd.DataFrame,
    rows: LabelledRows,
    constraints: Sequence[Constraint],
    metrics: Sequence[Any],
) -> int:
    """Audit a model, write and print the audit, and return the exit code."""
    n_times = 0 if rows.time is None else rows.time.nunique()
    report = audit(
        model,
        X,
        rows.y,
        constraints,
        sensitive_features=rows.groups,
        sample_weight=rows.weight,
        level=options.level,
        metrics=metrics or None,
        time=rows.time if n_times > 1 else None,
        n_periods=min(5, max(n_times, 2)),
    )
    report = replace(report, provenance=describe_model(model.estimator, model.path))
    if getattr(options, "segments", None) is not None:
        beside = rows.groups.drop(columns=X.columns, errors="ignore")
        found = find_segments(
            model, X, rows.y, options.segments, sensitive_features=beside,
            sample_weight=rows.weight, level=options.level,
        )  # fmt: skip
        say(options, f"\n{str(found).splitlines()[0]}")  # The audit has their table.
        report = replace(report, segments=found.frame)
    for gap in read_gap(options):
        parts = explain_gap(
            model, X, gap, rows.y, sensitive_features=rows.groups, sample_weight=rows.weight,
            level=options.level,
        ).parts  # fmt: skip
        report = replace(report, gap_parts=parts)
    say(options, f"\n{report}")
    if options.html is not None:
        report.to_html(options.html)
    if options.json is not None:
        options.json.write_text(report.to_json(), encoding="utf-8")
    return ALL_MET if (report.frame["verdict"] == "met").all() else NOT_MET


def _report_fit(options: argparse.Namespace, estimator: Any) -> int:
    """Print the report of the fit itself, and return the exit code."""
    if hasattr(estimator, "metric_report_"):
        found = estimator.metric_report_
        columns = ["metric", "decisions", "held_out", "low", "high", "rows", "is_returned"]
        table = found[columns].to_string(index=False, float_format="{:.4f}".format)
        say(options, f"\n{table}")
    if not estimator.constraints:
        return ALL_MET
    report = estimator.constraint_report_
    shown = report[["constraint", "held_out", "low", "high", "rows", "verdict"]]
    say(options, f"\n{shown.to_string(index=False, float_format='{:.4f}'.format)}")
    say(options, f"\n{estimator.feasibility_}")
    return ALL_MET if estimator.feasibility_.status == "met" else NOT_MET
