"""Metrics as text: what stands on a command line, in a saved model, or for ``maximize=``.

The text is that of constraints (:mod:`gbm_constrained.constraints.text`) without a bound.

>>> from gbm_constrained.metrics import f_beta, format_metric, parse_metric
>>> parse_metric("f_beta(2, label=fraud)") == f_beta(2, label="fraud")
True
>>> format_metric(f_beta(2, label="fraud"))
"f_beta(2, 'fraud')"
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

from gbm_constrained.constraints.base import Quotient, Rate
from gbm_constrained.constraints.text import (
    FUNCTIONS,
    RATES,
    ConstraintReader,
    Function,
    format_checked,
    make_error,
)
from gbm_constrained.constraints.text import format_constraint as format_constraint
from gbm_constrained.constraints.text import parse_constraint as parse_constraint
from gbm_constrained.constraints.text import parse_constraints as parse_constraints
from gbm_constrained.metrics import callables
from gbm_constrained.metrics.base import Metric

NAMES: dict[str, Callable[..., Metric]] = {
    name: getattr(callables, name) for name in callables.__all__
}
METRICS = {name: Function(make) for name, make in NAMES.items()}
FUNCTIONS.update(METRICS)  # Of constraints.


class MetricReader(ConstraintReader):
    """Walk over the syntax tree of a metric; the arguments are those of `parse_metric`."""

    functions: ClassVar = {**RATES, **METRICS}
    meant_otherwise: ClassVar = {
        **dict.fromkeys(
            ("auc", "roc_auc", "roc_auc_score", "average_precision"),
            "it is about the order of scores: bound it as a constraint, such as auc() >= 0.9",
        ),
        **dict.fromkeys(
            ("log_loss", "logloss", "neg_log_loss", "neg_brier_score", "cross_entropy"),
            "it is a mean loss of probabilities, which the classifier trains for: leave it out",
        ),
    }
    kind: ClassVar = "metric"
    others: ClassVar = f"must be one of {', '.join([*NAMES, 'cost'])}, or a rate such as recall"

    def read_metric(self) -> Metric | Rate | Quotient:
        """Read the one metric of the text."""
        trees = self.parse_trees()
        node = next(trees, None)
        if node is None:
            self.fail_at(len(self.text), "there is no metric: write one such as g_mean")
        if isinstance(node, ast.Compare):
            self.fail("a metric has no bound: a bounded rate is a constraint", node)
        found = self.read_sum(node)
        if not isinstance(found, (Metric, Rate, Quotient)):
            message = "expected a metric, a rate or a quotient of rates, such as g_mean or recall"
            self.fail(message, node)
        if next(trees, None) is not None:
            raise make_error(self.text, 0, len(self.text), "give one metric, and not several")
        return found


def parse_metric(
    text: str, *, labels: Mapping[Any, Hashable] | None = None
) -> Metric | Rate | Quotient:
    """Read a metric, a rate or a quotient of rates, such as ``"h_mean(on={region: north})"``.

    Parameters
    ----------
    text : str
        The metric, as it would be written in Python: functions without arguments need no
        parentheses, and columns and labels that are single words no quotes.
    labels : mapping, default=None
        Labels that the text may name, and what each is in the metric. By default any label is
        taken as it stands.

    Returns
    -------
    Metric, Rate or Quotient
        What ``maximize=`` and ``minimize=`` take.

    Raises
    ------
    TypeError
        If `text` is not a string.
    ValueError
        If it is not one metric; the message shows where, and what would be right.
    """
    return MetricReader(text, labels).read_metric()


def format_metric(metric: Metric | Rate | Quotient) -> str:
    """Write a metric as text that :func:`parse_metric` reads as the same metric.

    Parameters
    ----------
    metric : Metric, Rate or Quotient
        The metric.

    Returns
    -------
    str
        One line. Numbers have all their digits.

    Raises
    ------
    TypeError
        If `metric` is something else.
    ValueError
        If it holds what has no text: a function of one's own, a mask of rows, a label that is
        neither text, number nor bool.
    """
    if not isinstance(metric, (Metric, Rate, Quotient)):
        raise TypeError(f"metric must be a metric such as g_mean(), or a rate: {metric!r}.")
    return format_checked(metric, parse_metric, "gbm_constrained")
