"""What a classifier does on rows it has not seen: values of rules, intervals, verdicts.

Any fitted classifier will do, constrained or not, from any library: it is asked for its decisions
and nothing else. The verdicts are those of fits (:mod:`gbm_constrained.verdicts`): a rule is *met*
when its value is on the right side of the bound, *missed within sampling error* when its interval
still reaches the bound, and *missed* when it does not.

>>> from sklearn.datasets import make_classification
>>> from sklearn.linear_model import LogisticRegression
>>> from gbm_constrained import audit, fnr
>>> X, y = make_classification(2000, class_sep=1.5, random_state=0)
>>> model = LogisticRegression().fit(X[:1000], y[:1000])
>>> report = audit(model, X[1000:], y[1000:], [fnr() <= 0.2])
>>> report.frame["verdict"].tolist()
['met']
"""

from __future__ import annotations

import itertools
import json
import math
import os
import reprlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.alignment import check_alignment, row_labels_of
from gbm_constrained.cells import Cells, CellStatistics
from gbm_constrained.checks import as_labels, check_no_scores, check_share, check_weight
from gbm_constrained.compiler import ROUNDING, CompiledConstraints, compile_constraints
from gbm_constrained.counts import CellCounts
from gbm_constrained.decision import Estimate
from gbm_constrained.intervals import constraint_intervals, functional_intervals
from gbm_constrained.loss_intervals import add_loss_intervals
from gbm_constrained.options import check_constraints
from gbm_constrained.rates import (
    Constraint,
    DataSet,
    Differs,
    Judged,
    Mask,
    accuracy,
    resolve_positive_class,
)
from gbm_constrained.rows import Codes, Float, Rows, columns_of
from gbm_constrained.tables import as_column
from gbm_constrained.verdicts import (
    KINDS,
    TooFewRows,
    Verdict,
    find_too_few_rows,
    rows_of_constraint,
)

__all__ = ["Audit", "audit"]

# An audit knows the decisions of a model, and not those that the model might have made.
VERDICTS = tuple(kind for kind in KINDS if kind != "cannot be met")
FORMAT = "gbm_constrained.audit/2"
INTEGERS = ("iteration", "rounds")  # columns of a history

FRAME_COLUMNS = (
    "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
    "detail",
)  # fmt: skip
GROUP_COLUMNS = ("constraint", "group", "rows", "rate", "low", "high")
MODEL_COLUMNS = ("model", "accuracy", "low", "high", "violation", *VERDICTS)


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What a classifier did on rows it had not seen; see :func:`audit`.

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

    @property
    def headline(self) -> str:
        """The verdicts in words: ``2 of 3 rules are met on 9,769 unseen rows; 1 missed.``"""  # noqa: D400
        on = f"on {self.n_rows:,} unseen rows"
        counts = {v: int((self.frame["verdict"] == v).sum()) for v in VERDICTS}
        total = len(self.frame)
        if total == 0:
            return f"No rule was given; accuracy is {self.accuracy.value:.4f} {on}."
        if total == 1:
            (verdict,) = self.frame["verdict"]
            if verdict == "cannot be told":
                return f"Whether the rule is met cannot be told {on}."
            return f"The rule is {verdict} {on}."
        if counts["met"] == total:
            return f"{'Both' if total == 2 else f'All {total}'} rules are met {on}."
        rest = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if v != "met" and counts[v])
        verb = "is" if counts["met"] == 1 else "are"
        return f"{counts['met']} of {total} rules {verb} met {on}; {rest}."

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write everything as JSON; missing values become null, infinite ones strings.

        Parameters
        ----------
        indent : int, default=2
            As in :func:`json.dumps`.
        """
        content = {
            "format": FORMAT,
            "model": self.model,
            "headline": self.headline,
            "n_rows": self.n_rows,
            "level": self.level,
            "weighted": self.weighted,
            "classes": list(self.classes),
            "accuracy": self.accuracy._asdict(),
            "constraints": self.frame.to_dict("records"),
            "groups": self.groups.to_dict("records"),
            "models": self.models.to_dict("records"),
            "history": None if self.history is None else self.history.to_dict("list"),
        }
        return json.dumps(_to_plain(content), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Audit:
        """Read what :meth:`to_json` wrote.

        Parameters
        ----------
        text : str
            The JSON.

        Raises
        ------
        ValueError
            If it is something else.
        """
        content = json.loads(text)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise ValueError(
                f"text must be what Audit.to_json wrote, of format {FORMAT!r}, and its format is "
                f"{found!r}: audit the model again with this version of the package."
            )
        values = [name for name in (content["models"] or [{}])[0] if name.startswith("value[")]
        history = content["history"]
        return cls(
            content["model"],
            content["n_rows"],
            content["level"],
            content["weighted"],
            tuple(content["classes"]),
            Estimate(**{k: _number(v) for k, v in content["accuracy"].items()}),
            _typed(pd.DataFrame(content["constraints"], columns=list(FRAME_COLUMNS))),
            _typed(pd.DataFrame(content["groups"], columns=list(GROUP_COLUMNS))),
            _typed(pd.DataFrame(content["models"], columns=[*MODEL_COLUMNS, *values])),
            None if history is None else pd.DataFrame(
                {
                    name: column if name in INTEGERS else [_number(v) for v in column]
                    for name, column in history.items()
                }
            ),
        )  # fmt: skip

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write a page of its own, without scripts or links: rules, intervals, groups, trade-off.

        Parameters
        ----------
        path : path, default=None
            Where to write it as well.

        Returns
        -------
        str
            The page.
        """
        from gbm_constrained.page import page  # here: a page is not always asked for

        written = page(self)
        if path is not None:
            Path(path).write_text(written, encoding="utf-8")
        return written

    def _repr_html_(self) -> str:
        from gbm_constrained.page import section

        return section(self)

    def __str__(self) -> str:
        a = self.accuracy
        lines = [
            f"Audit of {self.model}. {self.headline}",
            f"accuracy {a.value:.4f} ({a.low:.4f} to {a.high:.4f}), intervals at level "
            f"{self.level:g}{', weighted' if self.weighted else ''}",
        ]
        if len(self.frame):
            shown = self.frame[["constraint", "value", "low", "high", "rows", "verdict"]]
            lines += ["", shown.to_string(index=False, float_format="{:.4f}".format)]
        if len(self.groups):
            lines += ["", self.groups.to_string(index=False, float_format="{:.4f}".format)]
        return "\n".join(lines)

    __repr__ = __str__


def audit(
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
) -> Audit:
    """Measure rules on the decisions of any fitted classifier, on rows it has not seen.

    Parameters
    ----------
    model : fitted classifier
        Anything with ``predict`` that returns labels: constrained or not, of any library, a
        Pipeline or a search. Rules about ``log_loss`` need ``predict_proba`` as well. A
        classifier fitted with ``iterate="randomized"`` is asked with ``random_state=0``, in a
        Pipeline or a search as well.
    X : array-like of shape (n_samples, n_features)
        Features, as the model takes them. It must not have been trained on these rows, nor its
        threshold or parameters chosen on them: otherwise the intervals mean nothing.
    y : array-like of shape (n_samples,)
        Labels.
    constraints : Constraint or sequence of them
        The rules (see :mod:`gbm_constrained.rates`), presets or fairlearn's objects. Masks and
        decisions in them are those of these rows.
    positive : label, default=None
        The positive class of all rates that name none. By default the one that `model` was
        trained with (its parameter ``positive``), else the last of two sorted labels.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        Columns that rules look at, next to those of `X` when it is a DataFrame.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in all rates.
    level : float, default=0.95
        Level of each interval, by itself.
    others : mapping from str to fitted classifier, default=None
        Other models, by the name to show, that are compared with this one on the same rows.

    Returns
    -------
    Audit
        Tables of constraints, groups and models, that print, and write JSON and HTML.

    Raises
    ------
    TypeError, ValueError
        If something does not fit; the message names the parameter and what to do.

    Warns
    -----
    UserWarning
        If a rule compares groups of few rows.

    See Also
    --------
    gbm_constrained.intervals : How the intervals of rates are made.

    Notes
    -----
    The classes are ``model.classes_`` where there is one, else those of `y` and the decisions.
    Intervals of rules about ``log_loss`` are those of means of many rows, which are normal; they
    are too short where few rows have most of the loss.
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
    cells, compiled = compile_constraints(stated, rows, where="audited rows, ")
    needs_loss = [str(c) for c in rules if any(t.event == "log_loss" for t in c.terms)]
    measured: list[_Measured] = []
    for name, each in models.items():
        remedy = f"{known}: predict must return labels, not scores, and all models the same ones"
        decided = _encode(answers[name], classes, f"{name}.predict returned", remedy)
        loss = _losses(each, name, X, codes, classes, needs_loss[0]) if needs_loss else None
        measured.append(_measure(cells, compiled, decided, loss, level))
    first = measured[0]
    frame, groups = _frame(cells, compiled, first), _group_frame(compiled, first)
    accuracies = [Estimate(m.values[-1], *m.intervals[-1]) for m in measured]
    return Audit(
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


# --- what was given ---------------------------------------------------------------------------


def _length(X: Any) -> int | None:
    """Rows of a table, or None of what does not tell."""
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else None


def rows_held_by(rule: Constraint) -> list[int]:
    """Lengths of the masks, and of the decisions given one by one, that a rule holds."""
    lengths = []
    for term in rule.terms:
        deployed = [s.deployed for s in term.selectors if isinstance(s, Judged)]
        deployed += [term.event.deployed] if isinstance(term.event, Differs) else []
        lengths += [s.n_samples for s in term.selectors if isinstance(s, Mask)]
        lengths += [len(d.decisions) for d in deployed if d.decisions is not None]
    return lengths


def _check_rows(rules: Sequence[Constraint], n: int) -> None:
    """Refuse rules that speak of rows other than the audited ones."""
    for rule in rules:
        for length in rows_held_by(rule):
            if length != n:
                raise ValueError(
                    f"constraints: {rule} holds a mask or decisions of {length} rows, but "
                    f"{n} rows are audited: give one for each of these, or name a column or "
                    f"a model instead."
                )
        if any(isinstance(s, DataSet) for term in rule.terms for s in term.selectors):
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


# --- what is measured -------------------------------------------------------------------------


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
        intervals, at = add_loss_intervals(
            cells, compiled, functionals, decided, loss, intervals, at, level
        )
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
    return _typed(table)


def _group_frame(compiled: CompiledConstraints, of: _Measured) -> pd.DataFrame:
    records = [
        (name, str(group), group.size, of.functionals[k], *of.functional_intervals[k])
        for name, span, groups in zip(compiled.names, compiled.spans, compiled.groups, strict=True)
        for k, group in zip(range(span.start, span.stop), groups, strict=False)
    ]
    return _typed(pd.DataFrame(records, columns=list(GROUP_COLUMNS)))


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


def _history(model: Any) -> pd.DataFrame | None:
    """Find the history of a constrained fit."""
    history = getattr(_innermost(model), "history_", None)
    if not isinstance(history, pd.DataFrame) or "rounds" not in history:
        return None  # other libraries have a history of their own
    has_multipliers = any(str(name).startswith("multiplier[") for name in history)
    return history.copy() if has_multipliers else None


# --- JSON -------------------------------------------------------------------------------------


def _to_plain(value: Any) -> Any:
    """Python's own types, with null for what is missing."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if value is pd.NA or value is None:
        return None
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
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
            frame[name] = [_number(value) for value in frame[name]]
    return frame
