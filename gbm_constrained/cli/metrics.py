"""Metrics of a command: parsed, and checked against the columns of a table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gbm_constrained.cli.constraints import list_columns
from gbm_constrained.cli.tables import Label, describe_missing_column
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.expressions import Quotient, Rate
from gbm_constrained.constraints.rates import error_rate
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.metrics.text import parse_metric


def read_objectives(
    options: argparse.Namespace, labels: Sequence[Label] | None = None
) -> dict[str, Any]:
    """Parse the objective of a fit: the arguments ``maximize`` and ``minimize``."""
    given = {name: getattr(options, name, None) for name in ("maximize", "minimize")}
    found = {
        name: _read(f"--{name}", text, labels) for name, text in given.items() if text is not None
    }
    read_objective(found.get("maximize"), found.get("minimize"))
    return found


def read_metrics(options: argparse.Namespace, labels: Sequence[Label] | None = None) -> list[Any]:
    """Parse the metrics that an audit measures; given labels, other labels are refused."""
    return [_read("--metric", text, labels) for text in options.metric]


def _read(option: str, text: str, labels: Sequence[Label] | None) -> Any:
    known = None if labels is None else {label: label for label in labels}
    try:
        return parse_metric(text, labels=known)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


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


def check_metrics(
    metrics: Sequence[Any], options: argparse.Namespace, table: pd.DataFrame
) -> None:
    """Refuse metrics on columns that the table does not hold, or that have another role."""
    kept_out = {options.target: "target", options.weight: "weight"}
    kept_out |= dict.fromkeys(getattr(options, "drop", []), "drop")
    for metric, bound in zip(metrics, bound_metrics(metrics), strict=True):
        for name in list_columns([bound])[0]:
            if name not in table:
                missing = describe_missing_column(options.data, table, name)
                raise ValueError(f"metric {metric}: {missing}")
            if name in kept_out:
                raise ValueError(
                    f"metric {metric}: column {name!r} is --{kept_out[name]}, and metrics use "
                    f"features and --sensitive columns only."
                )
