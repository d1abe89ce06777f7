"""Constraints, verdicts and multipliers of a fitted model in a run of MLflow.

``mlflow.xgboost.autolog()`` and ``mlflow.lightgbm.autolog()`` log the parameters and metrics of
the training by the library. What they cannot know is logged by :func:`log_constraints`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._optional import explain_missing

with explain_missing("Runs of MLflow", "mlflow"):
    import mlflow
    from mlflow.entities import Metric, Param, RunTag

from sklearn.utils.validation import check_is_fitted

from gbm_constrained.evaluation.audit import innermost
from gbm_constrained.reporting.audit import Audit

__all__ = ["TRUSTED_TYPES", "log_constraints"]

TRUSTED_TYPES = [
    f"gbm_constrained.scorers.{library.lower()}.estimators.Constrained{short}{task}"
    for library, short in (("XGBoost", "XGB"), ("LightGBM", "LGBM"))
    for task in ("Classifier", "Regressor")
]
"""Classes of this package that a saved model holds, for ``skops_trusted_types=`` of MLflow."""

MOST_ENTRIES = 1000  # Metrics of one request to the tracking server.


def log_constraints(
    model: Any, audit: Audit | None = None, *, run_id: str | None = None, prefix: str = ""
) -> None:
    """Log the constraints of a fitted model, and how they were met, to a run of MLflow.

    Parameters
    ----------
    model : fitted estimator of this package
        The model, or a pipeline that ends with it.
    audit : Audit, default=None
        Result of :func:`~gbm_constrained.audit` on new rows, whose page is logged as well.
    run_id : str, default=None
        Run to log to. By default the active run, or a new one.
    prefix : str, default=""
        What the names of parameters, metrics and tags begin with.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    ValueError
        If the model was fitted without constraints.

    Notes
    -----
    A constraint j = 0, 1, ... is logged as the parameter ``constraint_j``, the tag ``verdict_j``,
    the metrics ``value_j`` (with ``low_j`` and ``high_j``) on the rows of its verdict, and, by
    boosting rounds, ``multiplier_j`` and ``train_value_j``. The files are
    ``constraint_report.json``, ``group_report.json``, ``cost_report.json`` and ``history.json`` as
    records, ``feasibility.txt`` and, with an audit, ``audit.html`` and ``audit.json``, in the
    folder ``constraints``.
    """
    model = innermost(model)
    check_is_fitted(model)
    if "feasibility_" not in vars(model):
        raise ValueError(
            f"This {type(model).__name__} was fitted without constraints: there is nothing to log."
        )
    results = model.feasibility_.rules
    params, tags, metrics = [], [RunTag(f"{prefix}status", str(model.feasibility_.status))], []
    for j, result in enumerate(results):
        params.append(Param(f"{prefix}constraint_{j}", str(result.constraint)))
        tags.append(RunTag(f"{prefix}verdict_{j}", str(result.verdict)))
        now = int(time.time() * 1000)
        for name in ("value", "low", "high"):
            if np.isfinite(value := getattr(result, name)):
                metrics.append(Metric(f"{prefix}{name}_{j}", float(value), now, 0))
        for name, column in {"multiplier": "multiplier", "train_value": "value"}.items():
            path = model.history_.get(f"{column}[{result.constraint}]", pd.Series(dtype=float))
            metrics += [
                Metric(f"{prefix}{name}_{j}", float(value), now, int(step))
                for step, value in zip(model.history_.get("rounds", ()), path, strict=False)
                if np.isfinite(value)
            ]
    client = mlflow.MlflowClient()
    at = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    client.log_batch(at, params=params, tags=tags)
    for first in range(0, len(metrics), MOST_ENTRIES):
        client.log_batch(at, metrics=metrics[first : first + MOST_ENTRIES])
    files = {"feasibility.txt": str(model.feasibility_)}
    for name in ("constraint_report_", "group_report_", "cost_report_", "history_"):
        if name in vars(model):
            table = getattr(model, name)
            files[f"{name[:-1]}.json"] = table.to_json(orient="records", indent=2)
    if audit is not None:
        files |= {"audit.html": audit.to_html(), "audit.json": audit.to_json()}
    for name, text in files.items():
        client.log_text(at, text, f"constraints/{name}")
