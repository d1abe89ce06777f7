"""Values, intervals and verdicts of any classifier on given rows."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import as_column
from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.constraints.rates import accuracy
from gbm_constrained.data.alignment import check_alignment, row_labels_of
from gbm_constrained.data.cells import Cells, CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import as_labels, check_no_scores, check_share, check_weight
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.sample_size import TooFewRows, find_too_few_rows
from gbm_constrained.evaluation.verdicts import KINDS, Verdict, rows_of_constraint
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.grouping import SmallGroupWarning
from gbm_constrained.problem.linear_constraints import CompiledConstraints
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.statistics.intervals import constraint_intervals, functional_intervals
from gbm_constrained.statistics.loss_intervals import LossIntervals

# An audit knows the decisions of a model, and not those that the model might have made.
VERDICTS = tuple(kind for kind in KINDS if kind != "cannot be met")
FRAME_COLUMNS = (
    "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
    "detail",
)  # fmt: skip
GROUP_COLUMNS = ("constraint", "group", "rows", "rate", "low", "high")
MODEL_COLUMNS = ("model", "accuracy", "low", "high", "violation", *VERDICTS)


@dataclass(frozen=True, eq=False, repr=False)
class AuditTables:
    """What a classifier did on given rows.

    Parameters
    ----------
    model : str
        Class of the model.
    n_rows : int
        Rows that it was asked about.
    level : float
        Level of each interval.
    weighted : bool
        Whether rows had weights.
    classes : tuple
        The labels, sorted. Rates that name no class take the last of two as positive.
    accuracy : Estimate
        Accuracy and its interval.
    frame : DataFrame
        One row per constraint: ``constraint``, ``sense``, ``bound``, ``value``, the interval
        ``low`` to ``high``, the ``rows`` that it is taken over, whether the value is on the right
        side (``satisfied``, missing where there is no value), the ``verdict`` and the verdict as
        a sentence (``detail``).
    groups : DataFrame
        One row per group of each constraint that compares groups: ``constraint``, ``group``,
        the ``rows`` that the rate is taken over (of a sum of rates, those of the one that has
        fewest), ``rate``, ``low``, ``high``.
    models : DataFrame
        One row per model, the audited one first: ``model``, ``accuracy`` and its interval ``low``
        to ``high``, the largest ``violation`` of a bound by a value (zero if there is none), the
        number of rules by verdict, and ``value[...]`` of each.
    history : DataFrame or None
        How values and multipliers moved while the model was trained under constraints.
    """

    model: str
    n_rows: int
    level: float
    weighted: bool
    classes: tuple[Any, ...]
    accuracy: Estimate
    frame: pd.DataFrame
    groups: pd.DataFrame
    models: pd.DataFrame
    history: pd.DataFrame | None = None


def measure_classifier(
    model: Any,
    X: Any,
    y: Any,
    constraints: Any,
    *,
    positive: Hashable | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
    others: Mapping[str, Any] | None = None,
) -> AuditTables:
    """Measure constraints on the decisions of any fitted classifier.

    The parameters, errors and warnings are those of :func:`gbm_constrained.audit`.

    Returns
    -------
    AuditTables
        Tables of constraints, groups and models.
    """
    rules = check_constraints(constraints)
    check_share("level", level)
    labels = as_labels(y)
    n = labels.size
    if n == 0 or _length(X) not in (n, None):
        raise ValueError(
            f"X has {_length(X)} rows and y {n} labels: give at least one row, and one label for "
            f"each."
        )
    weight = check_weight(sample_weight, n)
    columns = columns_of(sensitive_features, n)
    _check_rows(rules, n)
    given = {"sample_weight": sample_weight, "sensitive_features": sensitive_features}
    check_alignment({"X": X, "y": y, **given, **row_labels_of(rules)})
    models = {type(model).__name__: model, **_check_others(others, type(model).__name__)}
    answers = {name: _decisions(each, name, X, n) for name, each in models.items()}
    classes = _classes(model, labels, answers)
    known = "the classes of the model" if _has_classes(model) else "the classes of y"
    if positive is None:
        positive = positive_of(model)
    rules = resolve_positive_class(rules, classes, positive)
    codes = _encode(labels, classes, "y holds", f"{known}: drop those rows, or rename the labels")
    rows = Rows(codes, classes, weight, columns, [X])
    # Accuracy is one more rule, so that its interval is made as theirs are.
    stated = (*rules, accuracy() >= 0.0)
    cells, compiled = compile_constraints(
        stated, rows, warning=SmallGroupWarning("audited rows, ")
    )
    needs_loss = [str(c) for c in rules if c.has_loss]
    measured: list[_Measured] = []
    for name, each in models.items():
        remedy = f"{known}: predict must return labels, not scores, and all models the same ones"
        decided = _encode(answers[name], classes, f"{name}.predict returned", remedy)
        loss = _losses(each, name, X, codes, classes, needs_loss[0]) if needs_loss else None
        measured.append(_measure(cells, compiled, decided, loss, level))
    first = measured[0]
    frame, groups = _frame(cells, compiled, first), _group_frame(compiled, first)
    accuracies = [Estimate(m.values[-1], *m.intervals[-1]) for m in measured]
    return AuditTables(
        model=type(model).__name__,
        n_rows=n,
        level=float(level),
        weighted=weight is not None,
        classes=tuple(classes.tolist()),
        accuracy=accuracies[0],
        frame=frame,
        groups=groups,
        models=_model_frame(cells, compiled, list(models), measured, accuracies),
        history=_history(model),
    )


def _history(model: Any) -> pd.DataFrame | None:
    """Find the history of a constrained fit."""
    history = getattr(_innermost(model), "history_", None)
    if not isinstance(history, pd.DataFrame) or "rounds" not in history:
        return None  # other libraries have a history of their own
    has_multipliers = any(str(name).startswith("multiplier[") for name in history)
    return history.copy() if has_multipliers else None


def _length(X: Any) -> int | None:
    """Rows of a table, or None of what does not tell."""
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else None


def _check_rows(rules: Sequence[Constraint], n: int) -> None:
    """Refuse rules that speak of rows other than the audited ones."""
    for rule in rules:
        for length in rule.n_rows_held:
            if length != n:
                raise ValueError(
                    f"constraints: {rule} holds a mask or decisions of {length} rows, but "
                    f"{n} rows are audited: give one for each of these, or name a column or "
                    f"a model instead."
                )
        if rule.data_sets:
            raise ValueError(
                f"constraints: {rule} speaks of a named data set, which an audit has none "
                f"of: audit its rows by themselves, with the rule without on=dataset(...)."
            )


def _check_others(others: Any, name: str) -> Mapping[str, Any]:
    if others is None:
        return {}
    if not isinstance(others, Mapping) or not all(isinstance(key, str) for key in others):
        raise TypeError(
            f'others must map names to models, as in {{"plain": model}}, got {others!r}.'
        )
    if name in others:
        raise ValueError(f"others has a model called {name!r}, as the audited one: rename it.")
    return others


def _decisions(model: Any, name: str, X: Any, n: int) -> NDArray[Any]:
    """Labels that a model predicts, one for each row."""
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        raise TypeError(
            f"model must be a fitted classifier with predict, got {reprlib.repr(model)}: wrap "
            f"what it is in an object whose predict(X) returns labels."
        )
    decided = as_column(repeatable_decisions(model, X))
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


def _has_classes(model: Any) -> bool:
    return getattr(model, "classes_", None) is not None


def _classes(
    model: Any, labels: NDArray[Any], answers: Mapping[str, NDArray[Any]]
) -> NDArray[np.generic]:
    """Sorted classes: the model's, or those that occur."""
    if _has_classes(model):
        classes = np.asarray(model.classes_)
        if classes.ndim != 1:
            raise ValueError(
                f"model has classes_ of shape {classes.shape}: classifiers of several outputs "
                f"are not supported, audit each output by itself."
            )
        return np.unique(classes)
    for name, decided in answers.items():
        remedy = "wrap the model in an object whose predict(X) returns labels"
        check_no_scores(decided, f"{name}.predict returned", remedy)
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


def _encode(labels: NDArray[Any], classes: NDArray[Any], what: str, remedy: str) -> Codes:
    """Class index of each label."""
    known = {value: i for i, value in enumerate(classes.tolist())}
    positions, found = pd.factorize(labels)
    values: list[Hashable] = [v.item() if isinstance(v, np.generic) else v for v in found]
    strange = [value for value in values if value not in known]
    if strange:
        raise ValueError(f"{what} {strange[0]!r}, which is not among {list(known)}, {remedy}.")
    return np.array([known[value] for value in values], dtype=np.intp)[positions]


def _losses(
    model: Any, name: str, X: Any, codes: Codes, classes: NDArray[Any], rule: str
) -> Float:
    """Cross-entropy of each row, in nats."""
    if not callable(getattr(model, "predict_proba", None)):
        raise TypeError(
            f"{rule} needs probabilities, and {name} has no predict_proba: wrap it in "
            f"sklearn.calibration.CalibratedClassifierCV, or bound error_rate() instead."
        )
    probability = np.asarray(model.predict_proba(X))
    if probability.shape != (codes.size, classes.size):
        raise ValueError(
            f"{name}.predict_proba returned an array of shape {probability.shape}: for "
            f"{codes.size} rows of classes {classes.tolist()} it must be "
            f"{(codes.size, classes.size)}."
        )
    # Columns are in the order of the model's own classes, which need not be sorted.
    own = np.asarray(model.classes_) if _has_classes(model) else classes
    order = np.argsort(own)
    given = probability[np.arange(codes.size), order[codes]]
    floating = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
    # As in sklearn.metrics.log_loss: a probability of zero is one that was rounded.
    return -np.log(np.clip(given.astype(np.float64), np.finfo(floating).eps, 1.0))


@dataclass(frozen=True)
class _Measured:
    """One model's functionals and values (the last is accuracy), their intervals, few rows."""

    functionals: Float
    functional_intervals: Float
    values: Float
    intervals: Float
    too_few_rows: list[TooFewRows]


def _measure(
    cells: Cells, compiled: CompiledConstraints, decided: Codes, loss: Float | None, level: float
) -> _Measured:
    counts = CellCounts.of(cells, decided, cells.rows.weight)
    mean_loss = np.zeros(len(cells))
    if loss is not None:
        weighted = loss if cells.rows.weight is None else loss * cells.rows.weight
        np.divide(cells.total(weighted), cells.weight, out=mean_loss, where=cells.weight > 0)
    predicted = np.zeros((len(cells), cells.classes.size))
    np.divide(counts.weight, cells.weight[:, None], out=predicted, where=cells.weight[:, None] > 0)
    functionals = compiled.functionals(CellStatistics(predicted, mean_loss, mean_loss))
    intervals = constraint_intervals(compiled, counts, level)
    at = functional_intervals(compiled, counts, level)
    if loss is not None:
        of_losses = LossIntervals(cells, compiled, decided, loss, level)
        intervals, at = of_losses.complete(functionals, intervals, at)
    few = find_too_few_rows(cells, compiled, counts, functionals, intervals, at)
    return _Measured(functionals, at, compiled.values(functionals), intervals, few)


def _verdicts(cells: Cells, compiled: CompiledConstraints, of: _Measured) -> list[Verdict]:
    """Judge each rule by its value and the interval, but for the last one, the accuracy."""
    few = {rate.constraint: rate.reason for rate in reversed(of.too_few_rows)}
    return [
        Verdict.of(
            rule,
            of.values[j],
            of.intervals[j],
            rows_of_constraint(cells, compiled, j),
            doubt=few.get(rule, ""),
        )
        for j, rule in enumerate(compiled.constraints[:-1])
    ]


def _frame(cells: Cells, compiled: CompiledConstraints, of: _Measured) -> pd.DataFrame:
    rules = compiled.constraints[:-1]
    satisfied = pd.array(compiled.satisfied(of.values)[:-1], dtype="boolean")
    satisfied[np.isnan(of.values[:-1])] = pd.NA
    verdicts = _verdicts(cells, compiled, of)
    table = pd.DataFrame(
        {
            "constraint": compiled.names[:-1],
            "sense": [c.sense for c in rules],
            "bound": compiled.bounds[:-1],
            "value": of.values[:-1],
            "low": of.intervals[:-1, 0],
            "high": of.intervals[:-1, 1],
            "rows": [verdict.rows for verdict in verdicts],
            "satisfied": satisfied,
            "verdict": [verdict.kind for verdict in verdicts],
            "detail": [str(verdict) for verdict in verdicts],
        },
        columns=list(FRAME_COLUMNS),
    )
    return typed(table)


def _group_frame(compiled: CompiledConstraints, of: _Measured) -> pd.DataFrame:
    records = [
        (name, str(group), group.size, of.functionals[k], *of.functional_intervals[k])
        for name, span, groups in zip(compiled.names, compiled.spans, compiled.groups, strict=True)
        for k, group in zip(range(span.start, span.stop), groups, strict=False)
    ]
    return typed(pd.DataFrame(records, columns=list(GROUP_COLUMNS)))


def _model_frame(
    cells: Cells,
    compiled: CompiledConstraints,
    names: Sequence[str],
    measured: Sequence[_Measured],
    accuracies: Sequence[Estimate],
) -> pd.DataFrame:
    rules = compiled.constraints[:-1]
    sign = np.array([c.sign for c in rules])
    records = []
    for name, of, (value, low, high) in zip(names, measured, accuracies, strict=True):
        excess = np.maximum(sign * (of.values[:-1] - compiled.bounds[:-1]), 0.0)
        excess[excess <= ROUNDING] = 0.0
        worst = np.nan if np.isnan(excess).all() else np.nanmax(excess)
        kinds = [verdict.kind for verdict in _verdicts(cells, compiled, of)]
        counts = [kinds.count(kind) for kind in VERDICTS]
        records.append((name, value, low, high, worst, *counts, *of.values[:-1]))
    columns = [*MODEL_COLUMNS, *(f"value[{name}]" for name in compiled.names[:-1])]
    return pd.DataFrame(records, columns=columns)


def repeatable_decisions(model: Any, X: Any) -> Any:
    """Let a fitted classifier decide, the same way each time.

    One that draws its decisions (``iterate="randomized"``) gets ``random_state=0``, also inside a
    search, whose own ``predict`` does not take it, or a Pipeline, which may not pass it on.

    Parameters
    ----------
    model : fitted classifier
        Anything with ``predict``.
    X : array-like of shape (n_samples, n_features)
        Features.
    """
    if hasattr(model, "prefixes_"):
        return model.predict(X, random_state=0)
    if not hasattr(_innermost(model), "prefixes_"):
        return model.predict(X)
    if hasattr(model, "best_estimator_"):
        return repeatable_decisions(model.best_estimator_, X)
    before = model[:-1]
    return repeatable_decisions(model[-1], before.transform(X) if len(before) else X)


def positive_of(model: Any) -> Any:
    """Find the positive class that a classifier under constraints was told, if it was."""
    inner = _innermost(model)
    return getattr(inner, "positive", None) if hasattr(inner, "constraints") else None


def _innermost(model: Any) -> Any:
    """Find the classifier inside searches and Pipelines."""
    for _ in range(4):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif isinstance(getattr(model, "steps", None), list) and model.steps:
            model = model.steps[-1][1]
    return model


def as_number(value: Any) -> float:
    """Read a number of a table, NaN for None."""
    return math.nan if value is None else float(value)


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of a table the types that they have whatever its rows hold, or without."""
    texts = ("constraint", "sense", "verdict", "detail", "group", "model")
    for name in frame.columns:
        if name == "satisfied":
            frame[name] = frame[name].astype("boolean")
        elif name in ("rows", *VERDICTS):
            frame[name] = frame[name].astype(np.int64)
        elif name in texts:
            frame[name] = frame[name].astype(str)
        else:
            frame[name] = [as_number(value) for value in frame[name]]
    return frame
