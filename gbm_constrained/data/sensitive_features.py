"""Columns of sensitive features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._dataframes import (
    as_column,
    is_frame,
    names_of,
    native_column_at,
    order_of,
    repeated_names,
)
from gbm_constrained.data.validation import refuse_lazy


def columns_of(
    sensitive_features: Any, n_samples: int, argument: str = "sensitive_features"
) -> dict[Hashable, NDArray[Any]]:
    """Split sensitive features into columns by name; `argument` names them in messages."""
    columns = {}
    # The tools of scikit-learn do not split the columns of a dict.
    remedy = ", in cross-validation a Series or DataFrame" * isinstance(
        sensitive_features, Mapping
    )
    for name, column in _as_table(sensitive_features, argument).items():
        values = as_column(column)
        if values.shape != (n_samples,):
            raise ValueError(
                f"{argument}: column {name!r} has shape {values.shape}, but there are "
                f"{n_samples} rows: give one value per row{remedy}."
            )
        columns[name] = values
    return columns


def order_of_column(name: str, sensitive_features: Any, X: Any) -> pd.Index[Any] | None:
    """Find the order of the values of a column, if it is an ordered categorical one."""
    columns, names = _as_table(sensitive_features, "sensitive_features"), names_of(X)
    if name in columns:
        return order_of(columns[name])
    return order_of(native_column_at(X, names.index(name))) if name in names else None


def _as_table(sensitive_features: Any, argument: str) -> dict[Hashable, Any]:
    """Split sensitive features into columns without checks of the values.

    Unnamed columns are called ``sensitive_feature_0`` and so on, as in fairlearn.
    """
    if sensitive_features is None:
        return {}
    refuse_lazy(sensitive_features, argument)
    if is_frame(sensitive_features):
        names = names_of(sensitive_features)
        if repeated := repeated_names(sensitive_features):
            raise ValueError(
                f"{argument} has several columns called {repeated[0]!r}: rename them."
            )
        return {name: native_column_at(sensitive_features, j) for j, name in enumerate(names)}
    if isinstance(sensitive_features, Mapping):
        return dict(sensitive_features)
    if hasattr(sensitive_features, "name"):  # The name of a series of polars may be "".
        name = sensitive_features.name
        return {"sensitive_feature_0" if name in (None, "") else name: sensitive_features}
    values = as_column(sensitive_features)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise ValueError(f"{argument} must have one or two dimensions, got shape {values.shape}.")
    return {f"sensitive_feature_{j}": values[:, j] for j in range(values.shape[1])}
