"""Evaluation sets of a fit whose objective is a metric: the value of the returned decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import OF_EVALUATION_SETS
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import as_labels, check_sensitive_sets, check_weight
from gbm_constrained.evaluation.classifiers import encode_labels
from gbm_constrained.training.metric_fit import MetricResult
from gbm_constrained.training.metric_problem import HeldOutProblem, MetricProblem
from gbm_constrained.training.metric_search import Decisions, MetricSearch

MetricMargin = Callable[[Any, Any], Array]
"""Scores rows of a table, given the scores that the user has them start from, or None."""


@dataclass(frozen=True, eq=False)
class EvaluationRows:
    """An evaluation set as it was given to ``fit``.

    Parameters
    ----------
    name : str
        Name in errors and reports.
    X : table
        Features.
    y : array-like of shape (n_rows,)
        Labels.
    weight : array-like of shape (n_rows,), default=None
        Weight of each row.
    start : array-like, default=None
        Scores of the user that ``predict`` adds, of XGBoost.
    """

    name: str
    X: Any
    y: Any
    weight: Any = None
    start: Any = None


@dataclass(frozen=True, eq=False)
class EvaluationProblem:
    """The metric and the constraints on an evaluation set, bound before training.

    There is no problem where a class has no rows in the set, or the metric is one of a further
    data set or of amounts of the training rows: the metric then has no value.
    """

    given: EvaluationRows
    held: HeldOutProblem | None

    def assess(self, result: MetricResult, margin: MetricMargin) -> Decisions:
        """Measure the returned decisions, with an interval by the bootstrap of rows."""
        chosen, held = result.chosen, self.held
        shares = result.shares(margin(self.given.X, self.given.start))
        decisions = Decisions(chosen.name, chosen.costs, chosen.probability, shares)
        if held is None or np.isnan(held.compiled.constant[held.problem.loss.at]).any():
            return decisions  # A class or a group that the metric looks at has no rows.
        nothing = held.oracle(np.empty((0, len(held.problem.joint))))
        (found,), _ = MetricSearch(held, nothing).assess([decisions])
        return found


def bind_sets(
    problem: MetricProblem, sets: Sequence[EvaluationRows], sensitive_features: Any
) -> list[EvaluationProblem]:
    """Bind the metric and the constraints to evaluation sets.

    Parameters
    ----------
    problem : MetricProblem
        The problem of the training rows.
    sets : sequence of EvaluationRows
        The evaluation sets.
    sensitive_features : list, default=None
        Sensitive features of each set.

    Raises
    ------
    TypeError, ValueError
        If labels are unknown, or columns that a constraint groups by are missing.
    """
    check_sensitive_sets(sensitive_features, len(sets))
    columns = [None] * len(sets) if sensitive_features is None else sensitive_features
    classes = problem.data.classes
    of_fit = [one.data_sets or one.n_rows_held for one in problem.metric.constraints]
    is_of_rows = not any(of_fit)
    found = []
    for given, of_set in zip(sets, columns, strict=True):
        codes: Codes = encode_labels(
            as_labels(given.y, f"y of {given.name}"),
            classes,
            f"{given.name} holds the label",
            "the labels of the training rows",
        )
        weight: Float | None = check_weight(
            given.weight, codes.size, f"sample weight of {given.name}"
        )
        rows = Rows(
            codes,
            classes,
            weight,
            columns_of(of_set, codes.size, f"sensitive features of {given.name}"),
            [given.X],
            remedy=OF_EVALUATION_SETS,
        )
        has_value = is_of_rows and np.bincount(codes, weight, classes.size).all()
        found.append(EvaluationProblem(given, problem.elsewhere(rows) if has_value else None))
    return found


def tabulate_sets(
    report: pd.DataFrame,
    result: MetricResult,
    problems: Sequence[EvaluationProblem],
    margin: MetricMargin,
) -> pd.DataFrame:
    """Add to the report on a metric one row for each evaluation set."""
    records = []
    for problem in problems:
        found = problem.assess(result, margin)
        records.append(
            {
                "metric": report["metric"].iloc[0],
                "oracle": result.chosen.oracle,
                "decisions": found.name,
                "held_out": found.value,
                "low": found.low,
                "high": found.high,
                "violation": found.violation,
                "n_rules": len(found.costs),
                "rows": problem.given.name,
                "is_returned": True,
            }
        )
    more = pd.DataFrame(records, columns=report.columns)
    return pd.concat([report, more.astype(report.dtypes)], ignore_index=True)
