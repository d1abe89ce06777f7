"""What figures ask of models and of rows: scores, and groups."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._typing import Codes
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.problem.groups import Group


def groups_of(by: Any, sensitive_features: Any, X: Any, n: int) -> tuple[Codes, list[Group]]:
    """Find the group of each row, and all groups."""
    columns = columns_of(sensitive_features, n)
    by = columns if by is None else by
    names = tuple(by) if pd.api.types.is_list_like(by) else (by,)  # A name may be a number.
    no_labels = np.zeros(n, dtype=np.intp)
    attribute = Rows(no_labels, no_labels[:1], None, columns, [X]).attribute(names)
    groups = [Group(names, frozenset([i]), level) for i, level in enumerate(attribute.levels)]
    return attribute.codes.astype(np.intp), groups


def scores_of(model_or_scores: Any, X: Any, positive: Hashable | None) -> NDArray[np.float64]:
    """Read or compute the scores of the positive class, by default the last of two."""
    for method in ("decision_function", "predict_proba"):
        score = getattr(model_or_scores, method, None)
        if score is not None:
            found = np.asarray(score(X), dtype=np.float64)
            is_first = positive is not None and positive == model_or_scores.classes_[0]
            if found.ndim == 2 and found.shape[1] == 2:
                return found[:, 0 if is_first else 1]
            return -found if is_first and found.ndim == 1 else found
    if hasattr(model_or_scores, "predict"):
        raise TypeError(
            f"{type(model_or_scores).__name__} has neither decision_function nor predict_proba: "
            f"give its scores instead of the model."
        )
    return np.asarray(model_or_scores, dtype=np.float64)
