"""Values, intervals and verdicts of any classifier or regressor on given rows.

A constraint drifts if its value in the last period is outside of the interval that the periods
before it, all together, leave for a period of so many rows. The interval has the level for all
constraints together (Bonferroni), so that one of them drifts by chance as rarely as one alone.
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import reprlib
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier, is_regressor

from gbm_constrained._dataframes import as_column
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_task,
    resolve_positive_class,
)
from gbm_constrained.constraints.rates import accuracy, mean_loss, row_functions_of
from gbm_constrained.data import validation
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.data.fit_data import check_targets
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Period, Times
from gbm_constrained.decision.evaluation_set import Estimate, Outcome, PlainModel
from gbm_constrained.decision.regression import PredictedRows
from gbm_constrained.evaluation import verdicts
from gbm_constrained.evaluation.disparities import (
    DISPARITY_COLUMNS,
    find_groupings,
    list_base_rates,
    list_disparities,
)
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.reading import read_metrics
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.problem.functionals import NoRowsError
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.losses import RegressionObjective
from gbm_constrained.problem.pairs import PairRows
from gbm_constrained.problem.rows import ResidualRows
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.counts import CellCounts, functionals_of, functionals_of_weights
from gbm_constrained.statistics.influence import RowGroups
from gbm_constrained.statistics.intervals import functional_intervals
from gbm_constrained.statistics.sampled_intervals import Sampled, ScoredDecisions


class MetricOnRows:
    """A metric bound to rows.

    Parameters
    ----------
    metric : Metric
        The metric.
    rows : Rows
        The rows.
    positive : hashable, default=None
        Label of the positive class.

    Raises
    ------
    ValueError
        If a class or a group that the metric looks at has no rows, or the metric is about a named
        data set, which only fits have.
    """

    def __init__(self, metric: Metric, rows: Rows, positive: Any = None) -> None:
        classes = rows.classes
        of_classes = np.bincount(rows.y, rows.weight, classes.size)
        bound = metric.bind(classes, of_classes / of_classes.sum())
        bound = bound.with_positive_class(classes, positive)
        if names := sorted({name for c in bound.constraints for name in c.data_sets}):
            raise ValueError(
                f"{metric} speaks of the data set {names[0]!r}, which was given to a fit and is "
                f"no part of these rows: measure a metric without on=dataset(...) on its rows."
            )
        warning = f"{metric}, ", ""
        try:
            cells, compiled = compile_constraints(bound.constraints, rows, warning=warning)
        except NoRowsError:
            missing = ", ".join(map(repr, classes[of_classes == 0.0].tolist()))
            reason = f"is of class {missing}" if missing else "is among those of one of its rates"
            raise ValueError(
                f"{metric} has no value on these rows: none of them with positive weight "
                f"{reason}. Give rows of every class, {classes.tolist()}, or measure the accuracy."
            ) from None
        self.bound, self.joint = metric.with_groups(bound, compiled.groups), JointCells.of(cells)
        self.cells, self.compiled = cells, compiled

    def value(self, shares: Float) -> float:
        """Compute the metric of (randomised) decisions.

        Parameters
        ----------
        shares : ndarray of shape (n_samples, n_classes)
            Probability of each decision on each row.
        """
        counts = self.joint.count_shares(shares, self.cells.rows.weight)
        found = self.joint.coefficients(self.cells, self.compiled).functionals(counts)
        return float(self.bound.function(found))

    def estimate(self, decisions: Codes, level: float) -> Estimate:
        """Estimate the metric of decisions, with an interval by the bootstrap of rows.

        The worst rate has an interval of its own: each replicate has another worst one.

        Parameters
        ----------
        decisions : ndarray of shape (n_samples,), intp
            Class index that each row is decided as.
        level : float
            Level of the interval.
        """
        joint, n_classes = self.joint, self.joint.n_classes
        if self.bound.metric.form == "worst":
            everyone, decided = slice(None), np.eye(n_classes)[decisions]
            counted = CellCounts.of_probabilities(self.cells, decided)
            interval = worst_rate_interval(self.compiled, counted, everyone, level)
            return Estimate(self.value(decided), *map(float, interval))
        weight = self.cells.rows.weight
        groups = RowGroups(joint.codes, decisions[None], weight, joint.amounts())
        weights = np.vstack([groups.weight, groups.resample()])
        shares = np.eye(n_classes)[groups.decisions[0]]
        counts = groups.tables(weights, shares, len(joint))
        tables, as_ones = (joint.spread(counts, len(self.cells), as_ones=a) for a in (False, True))
        u = functionals_of_weights(self.compiled, tables, as_ones)
        value, *resampled = (self.bound.function(one) for one in u)
        tail = 50.0 * (1.0 - level)
        return Estimate(value, *map(float, np.nanpercentile(resampled, [tail, 100.0 - tail])))


def worst_rate_interval(
    compiled: LinearConstraints, counts: CellCounts, at: slice, level: float = 0.95
) -> Float:
    """Find the interval of the smallest rate of decisions that the rows did not choose.

    It is that of :func:`~gbm_constrained.statistics.intervals.worst_interval`.

    Parameters
    ----------
    compiled : LinearConstraints
        The functionals.
    counts : CellCounts
        The decisions.
    at : slice
        Positions of the rates among the functionals.
    level : float, default=0.95
        Level of the interval.
    """
    of_each = functional_intervals(compiled, counts, level)[at]
    of_all = 1.0 - (1.0 - level) / len(of_each)
    strict = functional_intervals(compiled, counts, of_all)[at]
    return np.array([of_each[:, 0].min(), strict[:, 1].min()])


class MeasuredRows(NamedTuple):
    """Values and intervals of what constraints bound, and of their functionals.

    Parameters
    ----------
    functionals : ndarray of shape (n_functionals,)
        Rates, mean losses, pair rates and mean residuals.
    values : ndarray of shape (n_constraints,)
        What the constraints bound.
    sampled : Sampled
        Intervals of both.
    counts : CellCounts, default=None
        Counts of the decisions; None of a regressor.
    """

    functionals: Float
    values: Float
    sampled: Sampled
    counts: CellCounts | None = None


def measure_rows(
    cells: Cells, compiled: LinearConstraints, scored: ScoredDecisions, level: float = 0.95
) -> MeasuredRows:
    """Measure decisions, and losses and scores of rows where constraints need them."""
    counts, loss = CellCounts.of(cells, scored.decided), scored.loss
    weight, mean_loss = cells.rows.weight, np.zeros(len(cells))
    pairs = residuals = None
    if loss is not None:
        weighted = loss if weight is None else loss * weight
        (total,) = sum_over_machines(cells.total, [weighted], cells.communicator)
        np.divide(total, cells.weight, out=mean_loss, where=cells.weight > 0)
    whole = compiled, cells, weight, float(cells.weight.sum())
    if scored.margin is not None:
        pairs = PairRows(*whole).tables(scored.margin)
    if scored.probability is not None:
        residuals = ResidualRows(*whole).tables(scored.probability)
    statistics = CellStatistics(counts.shares, mean_loss, mean_loss, pairs, residuals)
    functionals = compiled.functionals(statistics)
    sampled = Sampled.of(compiled, counts, level)
    sampled = sampled.complete(cells, compiled, functionals, scored, level)
    return MeasuredRows(functionals, compiled.values(functionals), sampled, counts)


PERIOD_COLUMNS = (
    "constraint", "sense", "bound", "period", "first", "last", "rows", "value", "low", "high",
    "expected_low", "expected_high", "drifts",
)  # fmt: skip

Measure: TypeAlias = Callable[[Codes, Cells, LinearConstraints, float], MeasuredRows]
"""Measures constraints on rows at some positions, given their cells, the constraints on them and
the level of intervals."""


def measure_decisions(scored: ScoredDecisions) -> Measure:
    """Make what measures decisions about some of the rows."""
    return lambda index, cells, compiled, level: measure_rows(
        cells, compiled, scored.take(index), level
    )


def measure_shares(shares: Float) -> Measure:
    """Make what measures randomised decisions, (n_samples, n_classes), about some of the rows."""

    def measure(
        index: Codes, cells: Cells, compiled: LinearConstraints, level: float
    ) -> MeasuredRows:
        counts = CellCounts.of_probabilities(cells, shares[index])
        functionals, sampled = (
            functionals_of(compiled, counts),
            Sampled.of(compiled, counts, level),
        )
        return MeasuredRows(functionals, compiled.values(functionals), sampled, counts)

    return measure


def measure_predictions(rows: PredictedRows, score: Array) -> Measure:
    """Make what measures predictions of numbers for some of the rows, given their scores."""

    def measure(
        index: Codes, cells: Cells, compiled: LinearConstraints, level: float
    ) -> MeasuredRows:
        part = PredictedRows(cells, compiled, rows.source, rows.targets[index], rows.objective)
        functionals, *intervals = part.intervals(score[index], level)
        return MeasuredRows(functionals, compiled.values(functionals), Sampled(*intervals))

    return measure


def period_frame(
    rows: Rows,
    compiled: LinearConstraints,
    measure: Measure,
    periods: Sequence[Period],
    level: float = 0.95,
) -> pd.DataFrame:
    """Tabulate the values of constraints in each period.

    Parameters
    ----------
    rows : Rows
        The rows of all periods.
    compiled : LinearConstraints
        The constraints, on these or on training rows, whose groups are kept.
    measure : callable
        Measures decisions or predictions (:func:`measure_decisions`, :func:`measure_predictions`).
    periods : sequence of Period
        Positions of the rows of each period, in the order of time.
    level : float, default=0.95
        Level of each interval, and of all that are expected together.

    Returns
    -------
    DataFrame
        One row per constraint and period, with PERIOD_COLUMNS. The last period has the interval
        that the earlier ones leave for its value, and whether the value is outside (``drifts``).
    """
    constraints, records = compiled.constraints, []

    def measure_part(index: Codes, level: float) -> tuple[Float, Float, list[int]]:
        """Find the values of constraints, their intervals, and numbers of rows."""
        cells, own = compile_constraints(constraints, rows.take(index), compiled, warning=None)
        sizes = [verdicts.rows_of_constraint(cells, own, j) for j in range(len(constraints))]
        found = measure(index, cells, own, level)
        return found.values, found.sampled.constraints, sizes

    found = [measure_part(period.rows, level) for period in periods]
    joint = 1.0 - (1.0 - level) / max(len(constraints), 1)
    before = np.sort(np.concatenate([period.rows for period in periods[:-1]]))
    value, earlier, _ = measure_part(before, joint)
    now, last, _ = measure_part(periods[-1].rows, joint)
    # The difference of two values varies as both of them do.
    low = value - np.hypot(value - earlier[:, 0], last[:, 1] - now)
    high = value + np.hypot(earlier[:, 1] - value, now - last[:, 0])
    low, high = (np.clip(end, *compiled.ranges.T) for end in (low, high))
    is_outside = np.asarray((now < low) | (now > high))
    is_known = np.asarray(np.isfinite([low, high, now]).all(axis=0))
    for j, constraint in enumerate(constraints):
        stated = str(constraint), constraint.sense, constraint.bound
        expected = low[j], high[j], bool(is_outside[j]) if is_known[j] else None
        for k, (period, (values, intervals, sizes)) in enumerate(zip(periods, found, strict=True)):
            records.append((
                *stated, k + 1, plain_time(period.first), plain_time(period.last), sizes[j],
                values[j], *intervals[j],
                *(expected if k == len(periods) - 1 else (np.nan, np.nan, None)),
            ))  # fmt: skip
    return tabulate(records, PERIOD_COLUMNS)


def drifting(frame: pd.DataFrame) -> list[str]:
    """List the constraints that drift, by a table of periods."""
    return frame.loc[frame["drifts"].fillna(value=False).astype(bool), "constraint"].tolist()


def plain_time(value: Any) -> Any:
    """Convert a time to what every table and file can hold: a number, or a text."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(pd.Series([value]).iloc[0])
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (int, float)) else str(value)


def constraints_frame(
    compiled: LinearConstraints,
    functionals: Float,
    multipliers: Float,
    outcome: Outcome | None,
    of_each: Sequence[verdicts.Verdict],
) -> pd.DataFrame:
    """Tabulate each constraint: values on training and held-out rows, multiplier and verdict.

    Where constraints have priorities, these and what each is given up for are columns as well.
    """
    train = compiled.values(functionals)
    held_out = np.full(len(train), np.nan)
    interval = np.full((len(train), 2), np.nan)
    if outcome is not None:
        held_out, interval = compiled.values(outcome.functionals), outcome.intervals
    report = pd.DataFrame(
        {
            "constraint": compiled.names,
            "bound": compiled.bounds,
            "train": train,
            "held_out": held_out,
            "low": interval[:, 0],
            "high": interval[:, 1],
            "rows": [verdict.source for verdict in of_each],
            "multiplier": compiled.totals(multipliers),
            "train_satisfied": compiled.is_satisfied(train),
            "satisfied": tabulate_satisfied(compiled, held_out),
            "verdict": [verdict.kind for verdict in of_each],
        }
    )
    priorities = [constraint.priority for constraint in compiled.constraints]
    if len(set(priorities)) > 1:
        report.insert(1, "priority", priorities)
        report["given_up_for"] = [" and ".join(verdict.given_up_for) for verdict in of_each]
    return report


def costs_frame(
    names: Sequence[str],
    objective: str,
    returned: PlainModel,
    plain: PlainModel | None,
    source: str,
) -> pd.DataFrame:
    """Tabulate the objective and each constraint of the plain model and of the one returned.

    Values on training rows are named so; others are of unseen rows.
    """
    rows = {"plain": plain, "returned": returned}
    missing = PlainModel(np.nan, np.full(len(names), np.nan))
    measured = [missing if row is None else row for row in rows.values()]
    values = [[row.objective, *row.values] for row in measured]
    index = pd.Index(
        list(rows), name=verdicts.TRAINING_ROWS if source == verdicts.TRAINING_ROWS else None
    )
    return pd.DataFrame(values, index=index, columns=[objective, *names])


def tabulate_satisfied(compiled: LinearConstraints, values: Float) -> Any:
    """Tabulate whether each constraint is satisfied, missing where there is no value."""
    satisfied = pd.array(compiled.is_satisfied(values), dtype="boolean")
    satisfied[np.isnan(values)] = pd.NA
    return satisfied


def list_groups(compiled: LinearConstraints, values: Float) -> list[tuple[Any, ...]]:
    """List each group of a constraint, its size and its rows of the values, (n_functionals, k).

    Constraints on several rates are named with the rate.
    """
    records: list[tuple[Any, ...]] = []
    for j, name in enumerate(compiled.names):
        rates = compiled.constraints[j].rates
        names = [name] if len(rates) == 1 else [f"{rate} in {name}" for rate in rates]
        of_groups = itertools.product(compiled.groups[j], names)
        for k, (group, own) in enumerate(of_groups, compiled.spans[j].start):
            records.append((own, str(group), group.size, *values[k]))
    return records


def groups_frame(
    compiled: LinearConstraints, functionals: Float, outcome: Outcome | None
) -> pd.DataFrame:
    """Tabulate the size and the rate of each group of each constraint."""
    held_out = np.full((functionals.size, 3), np.nan)
    if outcome is not None:
        held_out = np.column_stack([outcome.functionals, outcome.of_functionals])
    records = list_groups(compiled, np.column_stack([functionals, held_out]))
    columns = ["constraint", "group", "rows", "train", "held_out", "low", "high"]
    return pd.DataFrame(records, columns=columns)


def small_groups_frame(compiled: LinearConstraints) -> pd.DataFrame:
    """Tabulate the groups of few training rows: constraint, size and treatment."""
    columns = ["constraint", "group", "rows", "treatment"]
    names = dict(zip(compiled.constraints, compiled.names, strict=True))
    records = [
        (names[found.constraint], str(found.group), found.rows, found.treatment)
        for found in compiled.small
    ]
    return pd.DataFrame(records, columns=columns)


def history_frame(
    records: Sequence[Record], compiled: LinearConstraints, held_out: Float | None = None
) -> pd.DataFrame:
    """Tabulate the history of a solver, one row per record, with held-out values if any."""
    names = ("iteration", "rounds", "objective", "error", "bregman", "fritz_john", "seconds")
    columns: dict[str, Any] = {name: [getattr(r, name) for r in records] for name in names}
    values = np.array([compiled.values(r.functionals) for r in records])
    multipliers = np.array([compiled.totals(r.multipliers) for r in records])
    for j, name in enumerate(compiled.names):
        columns[f"value[{name}]"] = values[:, j]
        columns[f"bound[{name}]"] = np.full(len(records), compiled.bounds[j])
        columns[f"multiplier[{name}]"] = multipliers[:, j]
        if held_out is not None:
            columns[f"held_out[{name}]"] = held_out[:, j]
    return pd.DataFrame(columns)


SCORES = ("decision_function", "predict_proba")  # Methods that rank rows, the first one first.


def _check_predicts(model: Any, kind: str, answers: str) -> None:
    """Refuse what is no fitted model."""
    if isinstance(model, type) or not _has_method(model, "predict"):
        raise TypeError(
            f"model must be a fitted {kind} with predict, got {reprlib.repr(model)}: wrap what it "
            f"is in an object whose predict(X) returns {answers}."
        )


def predict_labels(
    model: Any, name: str, X: Any, n: int, sensitive_features: Any = None
) -> NDArray[Any]:
    """Predict the label of each row, and check the labels."""
    _check_predicts(model, "classifier", "labels")
    decided = as_column(repeatable_decisions(model, X, sensitive_features))
    if decided.ndim == 2 and decided.shape[1] == 1:
        decided = decided[:, 0]
    if decided.shape != (n,):
        raise ValueError(
            f"{name}.predict returned an array of shape {decided.shape} for {n} rows: it must "
            f"return one label for each, not probabilities."
        )
    if pd.isna(decided).any():
        raise ValueError(f"{name}.predict returned missing labels: a row without one is no row.")
    return decided


def has_classes(model: Any) -> bool:
    """Whether a classifier lists its classes."""
    return getattr(model, "classes_", None) is not None


def find_classes(
    model: Any, labels: NDArray[Any], answers: Mapping[str, NDArray[Any]]
) -> NDArray[np.generic]:
    """Find the sorted classes: the model's, or those that occur."""
    if has_classes(model):
        classes = np.asarray(model.classes_)
        if classes.ndim != 1:
            raise ValueError(
                f"model has classes_ of shape {classes.shape}: classifiers of several outputs "
                f"are not supported, audit each output by itself."
            )
        return np.unique(classes)
    for name, decided in answers.items():
        remedy = "wrap the model in an object whose predict(X) returns labels"
        validation.check_no_scores(decided, f"{name}.predict returned", remedy)
    try:
        found = [np.unique(values) for values in (labels, *answers.values())]
        # Numbers beside texts are refused here; put together, numpy makes texts of them.
        sorted(itertools.chain.from_iterable(values.tolist() for values in found))
        classes = np.unique(np.concatenate(found))
    except TypeError:
        raise ValueError(
            "y and the decisions are of types that cannot be compared: give y as the model "
            "predicts it."
        ) from None
    if classes.size < 2:
        raise ValueError(
            f"y and the decisions hold one class only ({classes.tolist()}), and the model has no "
            f"classes_: give rows of at least two."
        )
    return classes


def encode_labels(labels: NDArray[Any], classes: NDArray[Any], what: str, remedy: str) -> Codes:
    """Encode labels as class indices."""
    known = {value: i for i, value in enumerate(classes.tolist())}
    positions, found = pd.factorize(labels)
    values: list[Hashable] = [v.item() if isinstance(v, np.generic) else v for v in found]
    strange = [value for value in values if value not in known]
    if strange:
        raise ValueError(f"{what} {strange[0]!r}, which is not among {list(known)}, {remedy}.")
    return np.array([known[value] for value in values], dtype=np.intp)[positions]


def check_scored(models: Mapping[str, Any], constraints: Sequence[Constraint]) -> None:
    """Refuse classifiers without scores or probabilities where constraints are about these."""
    wrap = "wrap it in sklearn.calibration.CalibratedClassifierCV, or bound"
    rate = "a rate of decisions, such as fpr()."
    for constraint, (name, model) in itertools.product(constraints, models.items()):
        has_decisions, has_probabilities = (_has_method(model, method) for method in SCORES)
        missing = ""
        if "loss" in constraint.kinds and not has_probabilities:
            missing = f"needs probabilities, and {name} has no predict_proba: {wrap} error_rate() "
            missing += "instead."
        elif "pair" in constraint.kinds and not (has_decisions or has_probabilities):
            missing = (
                f"compares scores, and {name} has neither decision_function nor predict_proba: "
                f"give a classifier with one of them, or bound {rate}"
            )
        elif "residual" in constraint.kinds and not has_probabilities:
            missing = f"is about probabilities, and {name} has no predict_proba: {wrap} {rate}"
        if missing:
            raise TypeError(f"{constraint} {missing}")


def _score_decisions(
    model: Any, name: str, X: Any, decided: Codes, rows: Rows, compiled: LinearConstraints
) -> ScoredDecisions:
    """Collect what constraints need of a classifier beside its decisions.

    These are cross-entropies in nats, probabilities of the positive class, and the scores by which
    it ranks rows. Scores of two classes, (n_samples,), rise with the second one:
    ``decision_function``, else the probability. Several classes, (n_samples, n_classes), have
    log-probabilities, and values of ``decision_function`` where there are no probabilities.
    """
    classes, n = rows.classes, decided.size

    def columns(method: str) -> Array:
        return scores_of_classes(model, name, method, X, classes, n)

    def refuse_missing(scores: Array, why: str) -> Array:
        if np.isnan(scores).any():
            raise ValueError(
                f"{name} returned NaN as the score of {np.isnan(scores).sum()} of "
                f"{scores.size} rows: {why}. Remove these rows, or give them scores."
            )
        return scores

    loss = margin = probability = None
    if compiled.V.nnz:
        given = columns("predict_proba")[np.arange(n), rows.y]
        floating = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
        # As in sklearn.metrics.log_loss: a probability of zero is one that was rounded.
        loss = -np.log(np.clip(given.astype(np.float64), np.finfo(floating).eps, 1.0))
    if compiled.residual_blocks:
        positive = refuse_missing(columns("predict_proba")[:, 1], "they are in no bin")
        probability = positive.astype(np.float64)
    if compiled.pair_blocks:
        has_decisions, has_probabilities = (_has_method(model, method) for method in SCORES)
        if classes.size > 2 and has_probabilities:
            with np.errstate(divide="ignore"):
                margin = np.log(columns("predict_proba"))
        elif classes.size > 2:
            margin = columns("decision_function")
        elif has_decisions:
            margin = margin_of_second(model, name, X, classes, n)
        else:
            margin = columns("predict_proba")[:, 1]
        margin = refuse_missing(margin, "pairs with them have no order")
    return ScoredDecisions(decided, loss, margin, probability)


def scores_of_classes(
    model: Any, name: str, method: str, X: Any, classes: NDArray[Any], n: int
) -> Array:
    """Find the scores or probabilities of the sorted classes, (n_samples, n_classes)."""
    found = np.asarray(getattr(model, method)(X))
    if found.shape != (n, classes.size):
        raise ValueError(
            f"{name}.{method} returned an array of shape {found.shape}: for {n} rows of "
            f"classes {classes.tolist()} it must be {(n, classes.size)}."
        )
    # Columns are in the order of the model's own classes, which need not be sorted.
    return found[:, np.argsort(np.asarray(model.classes_ if has_classes(model) else classes))]


def margin_of_second(model: Any, name: str, X: Any, classes: NDArray[Any], n: int) -> Array:
    """Find the values of ``decision_function`` of two classes, which rise with the second one."""
    margin = np.asarray(model.decision_function(X))
    if margin.size != n:
        raise ValueError(
            f"{name}.decision_function returned an array of shape {margin.shape}: "
            f"for {n} rows of two classes it must be {(n,)}."
        )
    is_sorted = not has_classes(model) or model.classes_[1] == classes[1]
    return margin.ravel() if is_sorted else -margin.ravel()


def score_of_selection(
    model: Any, name: str, X: Any, classes: NDArray[Any], n: int, selected: Hashable
) -> Float | None:
    """Find the probability of a class on each row, else its score; None without either."""
    k = classes.tolist().index(selected)
    if _has_method(model, "predict_proba"):
        found = scores_of_classes(model, name, "predict_proba", X, classes, n)[:, k]
    elif not _has_method(model, "decision_function"):
        return None
    elif classes.size == 2:
        found = margin_of_second(model, name, X, classes, n) * (1.0 if k else -1.0)
    else:
        found = scores_of_classes(model, name, "decision_function", X, classes, n)[:, k]
    return found.astype(np.float64)


def _has_method(model: Any, method: str) -> bool:
    return callable(getattr(model, method, None))


def repeatable_decisions(model: Any, X: Any, sensitive_features: Any = None) -> Any:
    """Let a fitted classifier decide, the same way each time.

    A classifier that draws its decisions (``iterate="randomized"``, or a mixture of rules) gets
    ``random_state=0``, also inside a search, whose own ``predict`` does not take it, or a
    Pipeline, which may not pass it on. So does one whose offsets of groups are kept beside its
    trees with the sensitive features.
    """
    if given := _arguments_of(model, sensitive_features):
        return model.predict(X, **given)
    if not _arguments_of(innermost(model), sensitive_features):
        return model.predict(X)
    if hasattr(model, "best_estimator_"):
        return repeatable_decisions(model.best_estimator_, X, sensitive_features)
    before = model[:-1]
    X = before.transform(X) if len(before) else X
    return repeatable_decisions(model[-1], X, sensitive_features)


def _arguments_of(model: Any, sensitive_features: Any) -> dict[str, Any]:
    """Find the arguments that ``predict`` of a classifier needs beside the rows."""
    if hasattr(model, "prefixes_") or hasattr(model, "_rules"):
        return {"random_state": 0}
    if hasattr(model, "_group_offsets"):
        return {"sensitive_features": sensitive_features}
    return {}


def positive_of(model: Any) -> Any:
    """Find the positive class that a constrained classifier was given, if any."""
    inner = innermost(model)
    return getattr(inner, "positive", None) if hasattr(inner, "constraints") else None


def innermost(model: Any) -> Any:
    """Find the classifier inside searches and Pipelines."""
    for _ in range(4):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(getattr(model, "steps", None), list) and model.steps:
            model = model.steps[-1][1]
    return model


def describe_model(model: Any, file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Describe where the numbers of an audit come from.

    Parameters
    ----------
    model : object
        The model.
    file : path, default=None
        File that the model was read from.

    Returns
    -------
    dict
        The ``file``, the ``date``, the ``versions`` of the libraries by name, and the texts of the
        ``parameters`` that differ from the defaults, and of the ``defaults`` that stay.
    """
    inner = innermost(model)
    roots = {cls.__module__.partition(".")[0] for cls in type(inner).__mro__}
    versions = {
        {"sklearn": "scikit-learn"}.get(root, root): sys.modules[root].__version__
        for root in sorted(roots | {"gbm_constrained", "sklearn"})
        if hasattr(sys.modules.get(root), "__version__")
    }
    described: dict[str, Any] = {
        "file": None if file is None else os.fspath(file),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": versions | {"Python": platform.python_version()},
        "parameters": {},
        "defaults": {},
    }
    if not _has_method(inner, "get_params"):
        return described
    try:
        usual = type(inner)().get_params(deep=False)
    except TypeError:  # A parameter has no default.
        usual = {}
    for name, value in sorted(inner.get_params(deep=False).items()):
        is_usual = name in usual and repr(value) == repr(usual[name])
        described["defaults" if is_usual else "parameters"][name] = _shorten_repr(value)
    return described


def _shorten_repr(value: Any) -> str:
    """Write a parameter in at most 200 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else text[:199] + "\N{HORIZONTAL ELLIPSIS}"


def find_history(model: Any) -> pd.DataFrame | None:
    """Find the history of a constrained fit."""
    history = getattr(innermost(model), "history_", None)
    if not isinstance(history, pd.DataFrame) or "rounds" not in history:
        return None  # Other libraries have a history of their own.
    has_multipliers = any(str(name).startswith("multiplier[") for name in history)
    return history.copy() if has_multipliers else None


# An audit knows the decisions of a model, and not those that the model might have made.
VERDICTS = tuple(k for k in verdicts.KINDS if k not in ("met on training rows", "cannot be met"))
FRAME_COLUMNS = (
    "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
    "detail",
)  # fmt: skip
GROUP_COLUMNS = ("constraint", "group", "rows", "rate", "low", "high")
METRIC_COLUMNS = ("model", "metric", "value", "low", "high")
SEGMENT_COLUMNS = (
    "segment", "expression", "rows", "share", "value", "rest", "low", "high", "p_value", "overlap",
)  # fmt: skip
PART_COLUMNS = ("comparison", "model", "feature", "part", "low", "high")
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
        default_factory=lambda: tabulate([], METRIC_COLUMNS)
    )
    periods: pd.DataFrame = field(  # One row per constraint and period, with PERIOD_COLUMNS.
        default_factory=lambda: tabulate([], PERIOD_COLUMNS)
    )
    quality: str = "accuracy"  # What `accuracy` is: of a regressor, "R^2" of its predictions.
    # Shares of the classes, or means of targets, of all rows and of each group.
    base_rates: pd.DataFrame = field(default_factory=lambda: tabulate([], ("group", "rows")))
    disparities: pd.DataFrame = field(  # One row per group, with DISPARITY_COLUMNS.
        default_factory=lambda: tabulate([], DISPARITY_COLUMNS)
    )
    provenance: Mapping[str, Any] = field(default_factory=dict)  # See `describe_model`.
    segments: pd.DataFrame = field(  # One row per segment, with SEGMENT_COLUMNS.
        default_factory=lambda: tabulate([], SEGMENT_COLUMNS)
    )
    gap_parts: pd.DataFrame = field(  # One row per model and feature, with PART_COLUMNS.
        default_factory=lambda: tabulate([], PART_COLUMNS)
    )


@dataclass(frozen=True, eq=False)
class AuditRows:
    """Rows that classifiers are audited on, as a user gives them."""

    X: Any
    y: Any
    sensitive_features: Any = None  # Groups, as in ``fit``.
    sample_weight: Any = None  # Weights of the rows in all rates.
    time: Any = None  # Time of each row, or the name of a column of times.
    n_periods: int = 5  # Periods that the rows are divided into by time.
    grouping: Literal["model", "rows"] = "model"  # What says which groups are small.

    def check(self, constraints: Sequence[Constraint]) -> NDArray[Any]:
        """Check lengths and row labels, and return the labels."""
        labels = validation.as_labels(self.y)
        n_rows = None  # Objects without a length are not counted.
        n, shape = labels.size, getattr(self.X, "shape", None)
        if shape is not None and len(shape):
            n_rows = int(shape[0])
        elif hasattr(self.X, "__len__"):
            n_rows = len(self.X)
        if n == 0 or n_rows not in (n, None):
            raise ValueError(
                f"X has {n_rows} rows and y {n} values: give at least one row, and one value for "
                f"each."
            )
        validation.check_weight(self.sample_weight, n)
        validation.columns_of(self.sensitive_features, n)
        for constraint in constraints:
            for length in constraint.n_rows_held:
                if length != n:
                    raise ValueError(
                        f"constraints: {constraint} holds a mask or decisions of {length} rows, "
                        f"but {n} rows are audited: give one for each of these, or name a column "
                        f"or a model instead."
                    )
            if constraint.data_sets:
                raise ValueError(
                    f"constraints: {constraint} speaks of a named data set, which an audit has "
                    f"none of: audit its rows by themselves, with the constraint without "
                    f"on=dataset(...)."
                )
        of_rows = ("X", "y", "sensitive_features", "sample_weight")
        by_row = {name: getattr(self, name) for name in of_rows}
        if not isinstance(self.time, str):
            by_row["time"] = self.time
        validation.check_alignment({**by_row, **validation.row_labels_of(constraints)})
        validation.check_integer("n_periods", self.n_periods, 2)
        validation.check_choice("grouping", self.grouping, ("model", "rows"))
        return labels

    def find_small_groups(self, model: Any) -> dict[tuple[str, str], bool]:
        """Find which groups the fit of a model took for small, by constraint and group."""
        known = getattr(innermost(model), "__dict__", {})
        if self.grouping == "rows" or "group_report_" not in known:
            return {}
        kept, small = known["group_report_"], known.get("small_groups_", pd.DataFrame())
        found = dict.fromkeys(zip(kept["constraint"], kept["group"], strict=True), False)
        for row in small.itertuples():
            found[row.constraint, row.group] = row.treatment in ("merged", "left out")
        return found

    def divide(self, rows: Rows) -> list[Period]:
        """Divide the rows into periods; none without times."""
        if self.time is None:
            return []
        n = self.n_periods
        remedy = f"n_periods={n} asks for them; give finer times, or a smaller n_periods"
        times = Times.of(self.time, rows, self.sensitive_features)
        return times.cut([1.0 / n] * n, remedy)


def is_of_numbers(model: Any, constraints: Any) -> bool:
    """Whether an audit is one of predicted numbers: by the kind of the model, or its constraints.

    Constraints that do not go with the kind of the model are refused.
    """
    checked = check_constraints(constraints)
    is_known = isinstance(model, BaseEstimator) and (is_classifier(model) or is_regressor(model))
    if not is_known:
        return bool(row_functions_of(checked))
    predicts_numbers = bool(is_regressor(model))
    check_task(checked, predicts_numbers=predicts_numbers)
    return predicts_numbers


def measure_model(
    model: Any,
    given: AuditRows,
    constraints: Any,
    *,
    positive: Hashable | None = None,
    level: float = 0.95,
    others: Mapping[str, Any] | None = None,
    metrics: Any = None,
) -> AuditTables:
    """Measure constraints on the answers of any fitted classifier or regressor.

    Arguments, errors and warnings are those of :func:`gbm_constrained.audit`.
    """
    predicts_numbers = is_of_numbers(model, constraints)
    if predicts_numbers and (metrics is not None or positive is not None):
        raise ValueError(
            "metrics= and positive= are about classes, and these are predictions of numbers: "
            "leave them out, and bound a mean such as mean_loss('absolute')."
        )
    checked: Sequence[Constraint] = check_constraints(constraints)
    stated_metrics = read_metrics(metrics)
    if predicts_numbers:
        check_task(checked, predicts_numbers=True)
    validation.check_share("level", level)
    models = {type(model).__name__: model}
    if others is not None:
        if not isinstance(others, Mapping) or not all(isinstance(key, str) for key in others):
            raise TypeError(
                f'others must map names to models, as in {{"plain": model}}, got {others!r}.'
            )
        if name := next(iter(models.keys() & others.keys()), None):
            raise ValueError(f"others has a model called {name!r}, as the audited one: rename it.")
        models.update(others)
    if predicts_numbers:
        tables, rows, checked, measure = _measure_numbers(models, given, checked, level)
    else:
        positive = positive_of(model) if positive is None else positive
        tables, rows, checked, measure = _measure_classes(
            models, given, checked, positive, level, stated_metrics
        )
    if periods := given.divide(rows):
        stated = compile_constraints(checked, rows, warning=None)[1]
        by_period = period_frame(rows, stated, measure, periods, level)
        tables = replace(tables, periods=by_period)
    return replace(tables, history=find_history(model), provenance=describe_model(model))


_Measured: TypeAlias = tuple[AuditTables, Rows, Sequence[Constraint], Measure]
"""Tables of an audit, with rows, constraints and the measure that its periods are measured by."""


class ScoredClasses(NamedTuple):
    """Rows under constraints, and what the constraints need of each classifier."""

    constraints: Sequence[Constraint]
    cells: Cells
    compiled: LinearConstraints
    scored: dict[str, ScoredDecisions]


def score_classes(
    models: Mapping[str, Any],
    given: AuditRows,
    checked: Sequence[Constraint],
    positive: Hashable | None,
) -> ScoredClasses:
    """Ask classifiers about the rows, under constraints and a last one on the accuracy."""
    check_scored(models, checked)
    labels, model = given.check(checked), next(iter(models.values()))
    X, n = given.X, labels.size
    answers = {
        name: predict_labels(each, name, X, n, given.sensitive_features)
        for name, each in models.items()
    }
    classes = find_classes(model, labels, answers)
    known = "the classes of the model" if has_classes(model) else "the classes of y"
    checked = resolve_positive_class(checked, classes, positive)
    remedy = f"{known}: drop those rows, or rename the labels"
    codes = encode_labels(labels, classes, "y holds", remedy)
    weight = validation.check_weight(given.sample_weight, n)
    columns = validation.columns_of(given.sensitive_features, n)
    small_groups = given.find_small_groups(model)
    rows = Rows(codes, classes, weight, columns, [X], small_groups=small_groups)
    stated = (*checked, accuracy() >= 0.0)
    cells, compiled = compile_constraints(stated, rows, warning=("audited rows, ", ""))
    remedy = f"{known}: predict must return labels, not scores, and all models the same ones"
    decided = {
        name: encode_labels(answers[name], classes, f"{name}.predict returned", remedy)
        for name in models
    }
    scored = {
        name: _score_decisions(each, name, X, decided[name], rows, compiled)
        for name, each in models.items()
    }
    return ScoredClasses(checked, cells, compiled, scored)


def _measure_classes(
    models: Mapping[str, Any],
    given: AuditRows,
    checked: Sequence[Constraint],
    positive: Hashable | None,
    level: float,
    metrics: Sequence[Metric],
) -> _Measured:
    """Measure the decisions of classifiers.

    Accuracy is one more constraint, the last one, so that its interval is computed alike.
    """
    checked, cells, compiled, scored = score_classes(models, given, checked, positive)
    rows, classes, model = cells.rows, cells.classes, next(iter(models.values()))
    decided = {name: of_model.decided for name, of_model in scored.items()}
    of_metrics = _measure_metrics(metrics, rows, decided, positive, level)
    measures = {name: measure_decisions(of_model) for name, of_model in scored.items()}
    tables = _tabulate(cells, compiled, measures, level)
    measure = next(iter(measures.values()))
    disparities = tables.disparities
    selected = positive if positive is not None or classes.size > 2 else classes[1]
    if selected is not None and find_groupings(compiled):
        score = score_of_selection(model, tables.model, given.X, classes, len(rows), selected)
        found = list_disparities(rows, compiled, decided[tables.model], selected, score, level)
        disparities = tabulate(found, DISPARITY_COLUMNS)
    tables = replace(
        tables,
        metrics=of_metrics,
        base_rates=set_column_types(pd.DataFrame(list_base_rates(rows, compiled))),
        disparities=disparities,
    )
    return tables, rows, checked, measure


def predict_numbers(
    models: Mapping[str, Any], given: AuditRows, checked: Sequence[Constraint]
) -> tuple[PredictedRows, dict[str, Float]]:
    """Ask regressors about the rows, under constraints and a last one that gives R^2."""
    targets = check_targets(given.check(checked))
    predictions = {}
    for name, each in models.items():
        _check_predicts(each, "regressor", "numbers")
        found = check_targets(each.predict(given.X), f"The predictions of {name}")
        if found.size != targets.size:
            raise ValueError(
                f"{name}.predict returned {found.size} predictions for {targets.size} rows."
            )
        predictions[name] = found
    stated = (*checked, mean_loss("squared") >= 0.0)
    rows = _encode_numbers(given, stated, targets.size, next(iter(models.values())))
    cells, compiled = compile_constraints(stated, rows, warning=("audited rows, ", ""))
    return PredictedRows(cells, compiled, "", targets, RegressionObjective("squared")), predictions


def _encode_numbers(
    given: AuditRows, constraints: Sequence[Constraint], n: int, model: Any
) -> Rows:
    """Encode the rows; row functions of the constraints stand in the place of classes."""
    functions = np.array([function.key for function in row_functions_of(constraints)])
    weight = validation.check_weight(given.sample_weight, n)
    columns = validation.columns_of(given.sensitive_features, n)
    small_groups, codes = given.find_small_groups(model), np.zeros(n, dtype=np.intp)
    return Rows(codes, functions, weight, columns, [given.X], small_groups=small_groups)


def _measure_numbers(
    models: Mapping[str, Any], given: AuditRows, checked: Sequence[Constraint], level: float
) -> _Measured:
    """Measure the predictions of regressors."""
    rows, predictions = predict_numbers(models, given, checked)
    cells, compiled, targets = rows.cells, rows.compiled, rows.targets
    measures = {name: measure_predictions(rows, score) for name, score in predictions.items()}
    tables = _tabulate(cells, compiled, measures, level, rows.lagrangian.rows.scale)
    base_rates = pd.DataFrame(list_base_rates(cells.rows, compiled, targets))
    tables = replace(tables, classes=(), quality="R^2", base_rates=set_column_types(base_rates))
    of_checked = _encode_numbers(given, checked, targets.size, next(iter(models.values())))
    return tables, of_checked, checked, next(iter(measures.values()))


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
            bound = MetricOnRows(metric, rows, positive)
        except ValueError as error:
            is_named = str(error).startswith((f"{metric} has", f"{metric} speaks"))
            named = "" if is_named else f"{metric}: "
            raise type(error)(f"metrics: {named}{error}") from None
        records += [
            (name, str(metric), *bound.estimate(decisions, level))
            for name, decisions in decided.items()
        ]
    return tabulate(records, METRIC_COLUMNS)


def _assess(
    cells: Cells, compiled: LinearConstraints, measured: MeasuredRows, scale: float | None
) -> tuple[list[verdicts.ConstraintResult], Estimate]:
    """Assess one model by what its rows measure: the constraints, and its quality.

    The quality is the accuracy of a classifier, and the coefficient of determination of a
    regressor: that of the last constraint, which has no verdict. `scale` is the standard deviation
    of the targets of a regressor.
    """
    few, counts = dict[Constraint, str](), measured.counts
    if counts is not None:
        found = verdicts.find_too_few_rows(
            cells, compiled, counts, measured.functionals, *measured.sampled
        )
        few = {rate.constraint: rate.reason for rate in reversed(found)}
    *estimates, quality = (
        Estimate(float(value), *map(float, ends))
        for value, ends in zip(measured.values, measured.sampled.constraints, strict=True)
    )
    stated = zip(compiled.constraints, estimates, strict=False)
    results = [
        verdicts.assess_constraint((cells, compiled), j, estimate, doubt=few.get(constraint, ""))
        for j, (constraint, estimate) in enumerate(stated)
    ]
    if scale is not None:
        quality = determination(quality, scale)
    return results, quality


def _tabulate(
    cells: Cells,
    compiled: LinearConstraints,
    measures: Mapping[str, Measure],
    level: float,
    scale: float | None = None,
) -> AuditTables:
    """Tabulate each constraint and group of the first model, and each model."""
    whole = np.arange(cells.n_rows)
    measured = {name: measure(whole, cells, compiled, level) for name, measure in measures.items()}
    assessed = [_assess(cells, compiled, of_model, scale) for of_model in measured.values()]
    model, first = next(iter(measured.items()))
    satisfied = tabulate_satisfied(compiled, np.append(first.values[:-1], 1.0))
    of_constraints = []
    for name, is_satisfied, result in zip(compiled.names, satisfied, assessed[0][0], strict=False):
        stated, verdict = result.constraint, result.verdict
        row = name, stated.sense, stated.bound, result.value, result.low, result.high
        text = verdict.kind, str(verdict)
        of_constraints.append((*row, verdict.rows, is_satisfied, *text))
    of_groups = np.column_stack([first.functionals, first.sampled.functionals])
    bounds, sign = compiled.bounds[:-1], np.array([c.sign for c in compiled.constraints[:-1]])
    of_models = []
    for (name, of_model), (results, quality) in zip(measured.items(), assessed, strict=True):
        own = of_model.values[:-1]
        violation = np.maximum(sign * (own - bounds), 0.0)
        violation[violation <= ROUNDING] = 0.0
        largest = np.nan if np.isnan(violation).all() else np.nanmax(violation)
        kinds = [result.verdict.kind for result in results]
        of_models.append((name, *quality, largest, *map(kinds.count, VERDICTS), *own))
    columns = [*MODEL_COLUMNS, *(f"value[{name}]" for name in compiled.names[:-1])]
    return AuditTables(
        model=model,
        n_rows=cells.n_rows,
        level=float(level),
        weighted=cells.rows.weight is not None,
        classes=tuple(cells.classes.tolist()),
        accuracy=assessed[0][1],
        frame=tabulate(of_constraints, FRAME_COLUMNS),
        groups=tabulate(list_groups(compiled, of_groups), GROUP_COLUMNS),
        models=pd.DataFrame(of_models, columns=columns),
    )


def to_float(value: Any) -> float:
    """Read a number of a table, NaN for None."""
    return math.nan if value is None else float(value)


def tabulate(records: Sequence[Any], columns: Sequence[str]) -> pd.DataFrame:
    """Make a table with columns of the types that these always have."""
    return set_column_types(pd.DataFrame(records, columns=list(columns)))


def set_column_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Set the types of the columns of a table, which do not depend on its rows."""
    texts = (
        "constraint", "sense", "verdict", "detail", "group", "model", "metric", "reference",
        "segment", "expression", "comparison", "feature",
    )  # fmt: skip
    for name in frame.columns:
        if name in ("satisfied", "drifts"):
            frame[name] = frame[name].astype("boolean")
        elif name in ("rows", "period", *VERDICTS):
            frame[name] = frame[name].astype(np.int64)
        elif name in texts:
            frame[name] = frame[name].astype(str)
        elif name not in ("first", "last"):  # Times are of any type.
            frame[name] = np.array([to_float(value) for value in frame[name]], dtype=np.float64)
    return frame


def determination(loss: Estimate, scale: float) -> Estimate:
    """Compute the coefficient of determination from a mean squared loss.

    Parameters
    ----------
    loss : Estimate
        Mean squared loss, and its interval.
    scale : float
        Standard deviation of the targets.

    Returns
    -------
    Estimate
        ``1 - loss / variance``; its interval takes the variance of these rows as known.
    """
    value, low, high = loss
    return Estimate(*(1.0 - end / scale**2 for end in (value, high, low)))
