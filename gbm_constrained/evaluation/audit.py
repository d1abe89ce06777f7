"""Values, intervals and verdicts of any classifier on given rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.constraints.rates import accuracy
from gbm_constrained.data.alignment import check_alignment, row_labels_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.times import Period, Times
from gbm_constrained.data.validation import as_labels, check_integer, check_share, check_weight
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.classifiers import (
    check_scored,
    cross_entropies,
    encode_labels,
    find_classes,
    find_history,
    has_classes,
    positive_of,
    positive_probabilities,
    predict_labels,
    ranking_scores,
)
from gbm_constrained.evaluation.measured_rows import MeasuredRows
from gbm_constrained.evaluation.metric_value import MetricOnRows
from gbm_constrained.evaluation.periods import empty_period_frame, measure_decisions, period_frame
from gbm_constrained.evaluation.report_tables import list_groups, tabulate_satisfied
from gbm_constrained.evaluation.sample_size import find_too_few_rows, rows_of_constraint
from gbm_constrained.evaluation.verdicts import KINDS, Verdict
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.reading import read_metrics
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.grouping import SmallGroupWarning
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

# An audit knows the decisions of a model, and not those that the model might have made.
VERDICTS = tuple(k for k in KINDS if k not in ("met on training rows", "cannot be met"))
FRAME_COLUMNS = (
    "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
    "detail",
)  # fmt: skip
GROUP_COLUMNS = ("constraint", "group", "rows", "rate", "low", "high")
METRIC_COLUMNS = ("model", "metric", "value", "low", "high")
MODEL_COLUMNS = ("model", "accuracy", "low", "high", "violation", *VERDICTS)


@dataclass(frozen=True, eq=False, repr=False)
class AuditTables:
    """Tables of a classifier's decisions on given rows; see :class:`gbm_constrained.Audit`."""

    model: str  # Class of the model.
    n_rows: int
    level: float  # Level of each interval.
    weighted: bool
    classes: tuple[Any, ...]  # Labels, sorted.
    accuracy: Estimate
    frame: pd.DataFrame  # One row per constraint, with FRAME_COLUMNS.
    groups: pd.DataFrame  # One row per group of a comparison, with GROUP_COLUMNS.
    models: pd.DataFrame  # One row per model, with MODEL_COLUMNS and the value of each constraint.
    history: pd.DataFrame | None = None  # History of a constrained model.
    metrics: pd.DataFrame = field(  # One row per model and metric, with METRIC_COLUMNS.
        default_factory=lambda: set_column_types(pd.DataFrame(columns=list(METRIC_COLUMNS)))
    )
    # One row per constraint and period, with PERIOD_COLUMNS.
    periods: pd.DataFrame = field(default_factory=empty_period_frame)
    quality: str = "accuracy"  # What `accuracy` is: of a regressor, "R^2" of its predictions.


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Rows that classifiers are audited on, as a user gives them."""

    X: Any
    y: Any
    sensitive_features: Any = None  # Groups, as in ``fit``.
    sample_weight: Any = None  # Weights of the rows in all rates.
    time: Any = None  # Time of each row, or the name of a column of times.
    n_periods: int = 5  # Periods that the rows are divided into by time.

    def check(self, constraints: Sequence[Constraint]) -> NDArray[Any]:
        """Check lengths and row labels, and return the labels."""
        labels, n_rows = as_labels(self.y), _count_rows(self.X)
        n = labels.size
        if n == 0 or n_rows not in (n, None):
            raise ValueError(
                f"X has {n_rows} rows and y {n} values: give at least one row, and one value for "
                f"each."
            )
        check_weight(self.sample_weight, n)
        columns_of(self.sensitive_features, n)
        _check_rows(constraints, n)
        by_row = {name: v for name, v in vars(self).items() if name not in ("time", "n_periods")}
        if not isinstance(self.time, str):
            by_row["time"] = self.time
        check_alignment({**by_row, **row_labels_of(constraints)})
        check_integer("n_periods", self.n_periods, 2)
        return labels

    def divide(self, rows: Rows) -> list[Period]:
        """Divide the rows into periods; none without times."""
        if self.time is None:
            return []
        n = self.n_periods
        remedy = f"n_periods={n} asks for them; give finer times, or a smaller n_periods"
        times = Times.of(self.time, rows, self.sensitive_features)
        return times.cut([1.0 / n] * n, remedy)


def _count_rows(X: Any) -> int | None:
    """Count the rows of a table; None for objects without a length."""
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else None


def measure_classifier(
    model: Any,
    given: AuditRows,
    constraints: Any,
    *,
    positive: Hashable | None = None,
    level: float = 0.95,
    others: Mapping[str, Any] | None = None,
    metrics: Any = None,
) -> AuditTables:
    """Measure constraints on the decisions of any fitted classifier.

    Arguments, errors and warnings are those of :func:`gbm_constrained.audit`.
    """
    checked, stated_metrics = check_constraints(constraints), read_metrics(metrics)
    check_share("level", level)
    models = {type(model).__name__: model, **check_others(others, type(model).__name__)}
    check_scored(models, checked)
    labels = given.check(checked)
    X, n = given.X, labels.size
    answers = {
        name: predict_labels(each, name, X, n, given.sensitive_features)
        for name, each in models.items()
    }
    classes = find_classes(model, labels, answers)
    known = "the classes of the model" if has_classes(model) else "the classes of y"
    if positive is None:
        positive = positive_of(model)
    checked = resolve_positive_class(checked, classes, positive)
    remedy = f"{known}: drop those rows, or rename the labels"
    codes = encode_labels(labels, classes, "y holds", remedy)
    weight = check_weight(given.sample_weight, n)
    rows = Rows(codes, classes, weight, columns_of(given.sensitive_features, n), [X])
    periods = given.divide(rows)
    cells, compiled = bind_audited(checked, rows)
    needs_loss = [str(c) for c in checked if c.has_loss]
    remedy = f"{known}: predict must return labels, not scores, and all models the same ones"
    decided = {
        name: encode_labels(answers[name], classes, f"{name}.predict returned", remedy)
        for name in models
    }
    of_metrics = _measure_metrics(stated_metrics, rows, decided, positive, level)
    scored: dict[str, ScoredDecisions] = {}
    for name, each in models.items():
        loss = margin = probability = None
        if needs_loss:
            loss = cross_entropies(each, name, X, codes, classes, needs_loss[0])
        if compiled.pair_blocks:
            margin = ranking_scores(each, name, X, n, classes)
        if compiled.residual_blocks:
            probability = positive_probabilities(each, name, X, n, classes)
        scored[name] = ScoredDecisions(decided[name], loss, margin, probability)
    tables = tabulate_decisions(cells, compiled, scored, level)
    tables = replace(tables, history=find_history(model), metrics=of_metrics)
    if not periods:
        return tables
    stated = compile_constraints(checked, rows, warning=None)[1]
    measure = measure_decisions(next(iter(scored.values())))
    return replace(tables, periods=period_frame(rows, stated, measure, periods, level))


def bind_audited(constraints: Sequence[Constraint], rows: Rows) -> tuple[Cells, LinearConstraints]:
    """Bind constraints to audited rows, of which this machine may hold a part.

    Accuracy is one more constraint, the last one, so that its interval is computed alike.
    """
    warning = SmallGroupWarning("audited rows, ")
    return compile_constraints((*constraints, accuracy() >= 0.0), rows, warning=warning)


def tabulate_decisions(
    cells: Cells,
    compiled: LinearConstraints,
    scored: Mapping[str, ScoredDecisions],
    level: float = 0.95,
) -> AuditTables:
    """Tabulate what the rows of all machines say of decisions.

    Parameters
    ----------
    cells, compiled : Cells and LinearConstraints
        The constraints on the rows of this machine, as :func:`bind_audited` gives them.
    scored : mapping of str to ScoredDecisions
        Decisions of each model on these rows, the audited model first.
    level : float, default=0.95
        Level of each interval.

    Returns
    -------
    AuditTables
        The same tables on each machine, without metrics and the history of the model.
    """
    measured = {name: _measure(cells, compiled, of, level) for name, of in scored.items()}
    model, first = next(iter(measured.items()))
    return AuditTables(
        model=model,
        n_rows=cells.n_rows,
        level=float(level),
        weighted=cells.rows.weight is not None,
        classes=tuple(cells.classes.tolist()),
        accuracy=first.merit,
        frame=frame_of(compiled, first),
        groups=group_frame_of(compiled, first),
        models=model_frame_of(compiled, measured),
    )


def _measure_metrics(
    metrics: Sequence[Metric],
    rows: Rows,
    decided: Mapping[str, Codes],
    positive: Hashable | None,
    level: float,
) -> pd.DataFrame:
    """Tabulate metrics of the decisions of models, with intervals by the bootstrap of rows."""
    records = []
    for metric in metrics:
        try:
            bound = MetricOnRows.of(metric, rows, positive)
        except ValueError as error:
            is_named = str(error).startswith((f"{metric} has", f"{metric} speaks"))
            named = "" if is_named else f"{metric}: "
            raise type(error)(f"metrics: {named}{error}") from None
        records += [
            (name, str(metric), *bound.estimate(decisions, level))
            for name, decisions in decided.items()
        ]
    return set_column_types(pd.DataFrame(records, columns=list(METRIC_COLUMNS)))


def _check_rows(constraints: Sequence[Constraint], n: int) -> None:
    """Refuse constraints that are about rows other than the audited ones."""
    for constraint in constraints:
        for length in constraint.n_rows_held:
            if length != n:
                raise ValueError(
                    f"constraints: {constraint} holds a mask or decisions of {length} rows, but "
                    f"{n} rows are audited: give one for each of these, or name a column or "
                    f"a model instead."
                )
        if constraint.data_sets:
            raise ValueError(
                f"constraints: {constraint} speaks of a named data set, which an audit has none "
                f"of: audit its rows by themselves, with the constraint without on=dataset(...)."
            )


def check_others(others: Any, name: str) -> Mapping[str, Any]:
    """Refuse other models that have no names, or the name of the audited one."""
    if others is None:
        return {}
    if not isinstance(others, Mapping) or not all(isinstance(key, str) for key in others):
        raise TypeError(
            f'others must map names to models, as in {{"plain": model}}, got {others!r}.'
        )
    if name in others:
        raise ValueError(f"others has a model called {name!r}, as the audited one: rename it.")
    return others


@dataclass(frozen=True)
class MeasuredModel:
    """Values, intervals and verdicts of one model; the last constraint is its accuracy.

    Of a regressor, that is the mean squared loss, and `quality` its coefficient of determination.
    """

    functionals: Float
    functional_intervals: Float
    estimates: list[Estimate]
    verdicts: list[Verdict]
    quality: Estimate | None = None

    @property
    def merit(self) -> Estimate:
        """Accuracy, or what takes its place."""
        return self.estimates[-1] if self.quality is None else self.quality

    @property
    def values(self) -> Float:
        """Values of the constraints, without the accuracy."""
        return np.array([estimate.value for estimate in self.estimates[:-1]])


def _measure(
    cells: Cells, compiled: LinearConstraints, scored: ScoredDecisions, level: float
) -> MeasuredModel:
    """Measure one model by its decisions, and by losses and scores of rows if needed."""
    measured = MeasuredRows.of(cells, compiled, scored, level)
    functionals, (intervals, at) = measured.functionals, measured.sampled
    found = find_too_few_rows(cells, compiled, measured.counts, functionals, intervals, at)
    few = {rate.constraint: rate.reason for rate in reversed(found)}
    estimates = [
        Estimate(value, *ends) for value, ends in zip(measured.values, intervals, strict=True)
    ]
    verdicts = [
        Verdict.of(
            constraint,
            estimates[j],
            rows_of_constraint(cells, compiled, j),
            doubt=few.get(constraint, ""),
            left_out=compiled.left_out(j),
        )
        for j, constraint in enumerate(compiled.constraints[:-1])
    ]
    return MeasuredModel(functionals, at, estimates, verdicts)


def frame_of(compiled: LinearConstraints, of: MeasuredModel) -> pd.DataFrame:
    """Tabulate each constraint: value, interval and verdict."""
    stated, values = compiled.constraints[:-1], of.values
    table = pd.DataFrame(
        {
            "constraint": compiled.names[:-1],
            "sense": [c.sense for c in stated],
            "bound": compiled.bounds[:-1],
            "value": values,
            "low": [estimate.low for estimate in of.estimates[:-1]],
            "high": [estimate.high for estimate in of.estimates[:-1]],
            "rows": [verdict.rows for verdict in of.verdicts],
            "satisfied": tabulate_satisfied(compiled, np.append(values, 1.0))[:-1],
            "verdict": [verdict.kind for verdict in of.verdicts],
            "detail": [str(verdict) for verdict in of.verdicts],
        },
        columns=list(FRAME_COLUMNS),
    )
    return set_column_types(table)


def group_frame_of(compiled: LinearConstraints, of: MeasuredModel) -> pd.DataFrame:
    """Tabulate each group of each constraint."""
    records = [
        (name, str(group), group.size, of.functionals[k], *of.functional_intervals[k])
        for name, group, k in list_groups(compiled)
    ]
    return set_column_types(pd.DataFrame(records, columns=list(GROUP_COLUMNS)))


def model_frame_of(
    compiled: LinearConstraints, measured: Mapping[str, MeasuredModel]
) -> pd.DataFrame:
    """Tabulate each model: accuracy, violation, verdicts and values."""
    sign = np.array([c.sign for c in compiled.constraints[:-1]])
    records = []
    for name, of in measured.items():
        violation = np.maximum(sign * (of.values - compiled.bounds[:-1]), 0.0)
        violation[violation <= ROUNDING] = 0.0
        largest = np.nan if np.isnan(violation).all() else np.nanmax(violation)
        kinds = [verdict.kind for verdict in of.verdicts]
        counts = [kinds.count(kind) for kind in VERDICTS]
        records.append((name, *of.merit, largest, *counts, *of.values))
    columns = [*MODEL_COLUMNS, *(f"value[{name}]" for name in compiled.names[:-1])]
    return pd.DataFrame(records, columns=columns)


def to_float(value: Any) -> float:
    """Read a number of a table, NaN for None."""
    return math.nan if value is None else float(value)


def set_column_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Set the types of the columns of a table, which do not depend on its rows."""
    texts = ("constraint", "sense", "verdict", "detail", "group", "model", "metric")
    for name in frame.columns:
        if name == "satisfied":
            frame[name] = frame[name].astype("boolean")
        elif name in ("rows", *VERDICTS):
            frame[name] = frame[name].astype(np.int64)
        elif name in texts:
            frame[name] = frame[name].astype(str)
        else:
            frame[name] = [to_float(value) for value in frame[name]]
    return frame
