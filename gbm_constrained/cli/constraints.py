"""Constraints and metrics of a command, checked against the columns of a table."""

from __future__ import annotations

import argparse
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._typing import Codes
from gbm_constrained.cli.tables import Label, LabelledRows, describe_missing_column, list_columns
from gbm_constrained.constraints.base import Constraint, Quotient, Rate
from gbm_constrained.constraints.checking import check_task, resolve_positive_class
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.constraints.rates import error_rate, row_functions_of
from gbm_constrained.constraints.text import (
    format_constraint,
    parse_constraint,
    parse_constraints,
)
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.metrics.text import parse_metric
from gbm_constrained.problem.compiler import compile_constraints


def read_language(
    options: argparse.Namespace, labels: Sequence[Label] | None = None
) -> tuple[tuple[Constraint, ...], dict[str, Any], list[Any]]:
    """Parse the constraints, the objective of a fit, and the metrics that an audit measures.

    The objective is one of the arguments ``maximize`` and ``minimize``, if there is any. Given
    labels, other labels are refused.
    """
    known = None if labels is None else {label: label for label in labels}

    def parse(option: str, read: Callable[..., Any]) -> list[Any]:
        given = getattr(options, option, [])
        texts = given if isinstance(given, list) else [given]
        try:
            return [read(text, labels=known) for text in texts if text is not None]
        except ValueError as error:
            raise ValueError(f"--{option}: {error}") from None

    constraints = tuple(chain.from_iterable(parse("constraint", parse_constraints)))
    found = {name: parse(name, parse_metric) for name in ("maximize", "minimize")}
    objective = {name: metric for name, metrics in found.items() for metric in metrics}
    read_objective(objective.get("maximize"), objective.get("minimize"))
    completed = tuple(complete_groups(constraint, options) for constraint in constraints)
    return completed, objective, parse("metric", parse_metric)


def read_gap(options: argparse.Namespace) -> tuple[Constraint, ...]:
    """Parse the gap that an audit explains, with a bound or without; none where none is asked."""
    text = getattr(options, "explain", None)
    if text is None:
        return ()
    bounded = text if re.search("[<>]=", text) else f"{text} <= 1"
    try:
        return (complete_groups(parse_constraint(bounded), options),)
    except ValueError as error:
        raise ValueError(f"--explain: {error}") from None


def refuse_options_of_classes(options: argparse.Namespace, reason: str) -> None:
    """Refuse options about classes where numbers are predicted; `reason` says why they are."""
    for name in ("positive", "metric", "maximize", "minimize"):
        if getattr(options, name, None) not in (None, []):
            raise ValueError(f"--{name} is about classes, and {reason}: leave it out.")


def is_regression(constraints: Sequence[Constraint], options: argparse.Namespace) -> bool:
    """Whether a fit is a regression: under means over predicted numbers, and not under rates."""
    means = [constraint for constraint in constraints if row_functions_of([constraint])]
    if not means:
        return False
    try:
        check_task(constraints, predicts_numbers=True)
    except ValueError as error:
        raise ValueError(
            f"--constraint: {error} A model is trained under constraints of one kind, and "
            f"{means[0]} makes it a regressor."
        ) from None
    refuse_options_of_classes(options, f"--constraint {means[0]} is about predicted numbers")
    return True


def complete_groups(constraint: Constraint, options: argparse.Namespace) -> Constraint:
    """Fill in the columns of the groups, and what becomes of small ones, where these lack."""
    expression = constraint.expression
    if not isinstance(expression, Grouped):
        return constraint
    if expression.by is None and options.sensitive:
        expression = replace(expression, by=tuple(options.sensitive))
    if options.small_groups and expression.small_groups == Grouped.small_groups:
        expression = replace(expression, small_groups=options.small_groups)
    return replace(constraint, expression=expression)


def find_labels_to_learn(
    options: argparse.Namespace, y: NDArray[Any], *, predicts_numbers: bool
) -> list[Label]:
    """Find the sorted labels to train on, none of numbers; one value alone is refused."""
    kind = "number" if predicts_numbers else "label"
    if (y == y[0]).all():
        value = f"{y[0]:g}" if predicts_numbers else repr(y.tolist()[0])
        raise ValueError(f"--target {options.target} holds one {kind} only, {value}.")
    labels: list[Label] = [] if predicts_numbers else np.unique(y).tolist()
    return labels


def find_positive(options: argparse.Namespace, labels: Sequence[Label]) -> Label | None:
    """Find the label that ``--positive`` names, if it is given."""
    if options.positive is None:
        return None
    known = {str(label): label for label in labels}
    if options.positive not in known:
        raise ValueError(
            f"--positive {options.positive}: the labels are {', '.join(map(repr, labels))}."
        )
    return known[options.positive]


def check_language(
    constraints: Sequence[Constraint],
    metrics: Sequence[Any],
    options: argparse.Namespace,
    table: pd.DataFrame,
    rows: LabelledRows,
    labels: Sequence[Label],
) -> None:
    """Refuse constraints and metrics on what the table does not hold."""
    for metric, bound in zip(metrics, bound_metrics(metrics), strict=True):
        _check_columns(
            list_columns([bound], table)[0], f"metric {metric}", "metrics", options, table
        )
    for constraint in constraints:
        try:
            text = format_constraint(constraint)
        except ValueError:  # A constraint of a model file may have no text.
            text = str(constraint)
        if isinstance(constraint.expression, Grouped) and constraint.expression.by is None:
            raise ValueError(
                f"--constraint {text}: name the columns of the groups, by=..., or give "
                f"--sensitive."
            )
        if constraint.data_sets:
            raise ValueError(
                f"--constraint {text} speaks of a further data set, which only Python can give."
            )
        columns, decisions = list_columns([constraint], table)
        if None in decisions:
            raise ValueError(
                f"the constraint {text} of {options.model} speaks of another model, which the "
                f"file does not hold: give the constraints anew by --constraint, and a column of "
                f"that model's decisions, as in churn(to=COLUMN)."
            )
        _check_columns(columns, f"--constraint {text}", "constraints", options, table)
        for name in decisions:
            # NA of pandas is neither equal to a label nor different from it.
            given = rows.groups[name].unique()
            unknown = [value for value in given if pd.isna(value) or value not in labels]
            if unknown:
                found = "a missing value" if pd.isna(unknown[0]) else repr(unknown[0])
                raise ValueError(
                    f"--constraint {text}: column {name!r} is to hold another model's decisions, "
                    f"and holds {found}, which is not among the labels {labels}."
                )


def _check_columns(
    columns: Sequence[Any], user: str, users: str, options: argparse.Namespace, table: pd.DataFrame
) -> None:
    """Refuse columns that the table does not hold, or that have another role."""
    roles = {options.target: "target", options.weight: "weight"}
    roles |= dict.fromkeys(getattr(options, "drop", []), "drop")
    for name in columns:
        if name not in table:
            raise ValueError(f"{user}: {describe_missing_column(options.data, table, name)}")
        if name in roles:
            raise ValueError(
                f"{user}: column {name!r} is --{roles[name]}, and {users} use features and "
                f"--sensitive columns only."
            )


def check_measurable(
    constraints: Sequence[Constraint],
    rows: LabelledRows,
    labels: NDArray[Any],
    parts: dict[str, Codes],
    positive: Label | None,
) -> None:
    """Refuse constraints that have no value on a part of the rows, before the fit.

    `labels` are the sorted classes of the rows.
    """
    constraints = resolve_positive_class(constraints, labels, positive)

    def try_to_compile(part: LabelledRows) -> None:
        codes = np.searchsorted(labels, part.y)
        columns = columns_of(part.groups[list_columns(constraints, part.groups)[0]], codes.size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The fit gives the same warnings.
            compile_constraints(constraints, Rows(codes, labels, part.weight, columns, []))

    for purpose, part in parts.items():
        try:
            try_to_compile(rows.take(part))
        except ValueError as error:
            try_to_compile(rows)  # An error on all rows is raised as it is.
            raise ValueError(
                f"{error} This is about the {part.size:,} rows that are {purpose}: give another "
                f"--seed or --test-fraction, such as 0."
            ) from None


def bound_metrics(metrics: Sequence[Any]) -> tuple[Constraint, ...]:
    """Bound the rates of metrics so that every decision meets the bounds, and columns are read."""
    found = []
    for metric in metrics:
        expression = getattr(metric, "expression", metric)
        if not isinstance(expression, (Rate, Quotient)):
            expression = error_rate(on=getattr(metric, "on", None) or None)
        low = expression.range[0]
        found.append(Constraint(expression, ">=", low if math.isfinite(low) else 0.0))
    return tuple(found)
