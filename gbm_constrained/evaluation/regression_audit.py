"""Audits of regressors: values of constraints on predictions, with intervals and verdicts."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints, check_task
from gbm_constrained.constraints.row_means import mean_loss, refuse_rates, row_functions_of
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.targets import check_targets
from gbm_constrained.data.validation import check_share, check_weight
from gbm_constrained.decision.affine import PredictedRows
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.audit import (
    AuditRows,
    AuditTables,
    MeasuredModel,
    check_others,
    frame_of,
    group_frame_of,
    model_frame_of,
)
from gbm_constrained.evaluation.classifiers import find_history
from gbm_constrained.evaluation.periods import measure_predictions, period_frame
from gbm_constrained.evaluation.sample_size import rows_of_constraint
from gbm_constrained.evaluation.verdicts import Verdict
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.grouping import SmallGroupWarning
from gbm_constrained.problem.regression_objectives import RegressionObjective


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


def measure_regressor(
    model: Any,
    given: AuditRows,
    constraints: Any,
    *,
    level: float = 0.95,
    others: Mapping[str, Any] | None = None,
) -> AuditTables:
    """Measure constraints on the predictions of any fitted regressor.

    Arguments, errors and warnings are those of :func:`gbm_constrained.audit`.
    """
    checked = check_constraints(constraints)
    refuse_rates(checked)
    check_share("level", level)
    models = {type(model).__name__: model, **check_others(others, type(model).__name__)}
    targets = check_targets(given.check(checked))
    predictions = {
        name: _predict(each, name, given.X, targets.size) for name, each in models.items()
    }
    stated = (*checked, mean_loss("squared") >= 0.0)  # The last one gives R^2.
    encoded = _encode(stated, given, targets)
    periods = given.divide(encoded)
    warning = SmallGroupWarning("audited rows, ")
    cells, compiled = compile_constraints(stated, encoded, warning=warning)
    rows = PredictedRows(cells, compiled, "", targets, RegressionObjective("squared"))
    measured = {name: _measure(rows, f, level) for name, f in predictions.items()}
    first = next(iter(measured.values()))
    tables = AuditTables(
        model=type(model).__name__,
        n_rows=cells.n_rows,
        level=float(level),
        weighted=cells.rows.weight is not None,
        classes=(),
        accuracy=first.merit,
        frame=frame_of(compiled, first),
        groups=group_frame_of(compiled, first),
        models=model_frame_of(compiled, measured),
        history=find_history(model),
        quality="R^2",
    )
    if not periods:
        return tables
    encoded = _encode(checked, given, targets)
    alone = compile_constraints(checked, encoded, warning=None)[1]
    measure = measure_predictions(rows, next(iter(predictions.values())))
    return replace(tables, periods=period_frame(encoded, alone, measure, periods, level))


def _predict(model: Any, name: str, X: Any, n: int) -> Float:
    """Predict the number of each row, and check the numbers."""
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        raise TypeError(
            f"model must be a fitted regressor with predict, got {reprlib.repr(model)}: wrap what "
            f"it is in an object whose predict(X) returns numbers."
        )
    found = check_targets(model.predict(X), f"The predictions of {name}")
    if found.size != n:
        raise ValueError(f"{name}.predict returned {found.size} predictions for {n} rows.")
    return found


def _encode(constraints: Sequence[Constraint], given: AuditRows, targets: Float) -> Rows:
    """Encode audited rows; row functions of the constraints stand in the place of classes."""
    classes = np.array([function.key for function in row_functions_of(constraints)])
    codes = np.zeros(targets.size, dtype=np.intp)
    weight = check_weight(given.sample_weight, targets.size)
    columns = columns_of(given.sensitive_features, targets.size)
    return Rows(codes, classes, weight, columns, [given.X])


def _measure(rows: PredictedRows, f: Float, level: float) -> MeasuredModel:
    """Measure one model by its predictions."""
    functionals, intervals, at = rows.intervals(f, level)
    compiled = rows.compiled
    estimates = [
        Estimate(float(value), *map(float, ends))
        for value, ends in zip(compiled.values(functionals), intervals, strict=True)
    ]
    verdicts = [
        Verdict.of(
            constraint,
            estimates[j],
            rows_of_constraint(rows.cells, compiled, j),
            left_out=compiled.left_out(j),
        )
        for j, constraint in enumerate(compiled.constraints[:-1])
    ]
    return MeasuredModel(
        functionals,
        at,
        estimates,
        verdicts,
        determination(estimates[-1], rows.lagrangian.rows.scale),
    )


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
