"""Evaluation sets as they are given to ``fit``, checked before any tree is grown.

The libraries read evaluation sets when their own training starts, which is after the fold boosters
have been grown, and some of their messages name no argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from gbm_constrained._dataframes import categories_of, is_frame, names_of
from gbm_constrained.data.validation import (
    as_labels,
    check_features,
    check_sensitive_sets,
    refuse_strange,
)
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.fit import ConstrainedFit


def check_pairs(eval_set: Any, X: Any, *, by_name: bool) -> list[tuple[Any, Any]]:
    """Check evaluation sets against the training rows `X`, and list them as pairs (X_i, y_i).

    `by_name` says whether the library compares the names of columns.
    """
    if eval_set is None:
        return []
    pairs = list(eval_set) if isinstance(eval_set, Iterable) else [eval_set]
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            length = f" of {len(pair)}" if isinstance(pair, (list, tuple)) else ""
            raise TypeError(
                f"eval_set must be a list of pairs (X, y), got a {type(eval_set).__name__} whose "
                f"entry {i} is a {type(pair).__name__}{length}: give "
                f"eval_set=[(X_valid, y_valid)]."
            )
        X_i, y_i = pair
        check_pair(f"eval_set[{i}]", X_i, y_i, X, by_name=by_name)
    return pairs


def check_pair(name: str, X_i: Any, y_i: Any, X: Any, *, by_name: bool) -> None:
    """Check further rows of a name against the training rows `X`.

    `by_name` says whether the names of columns are compared.
    """
    n_values = as_labels(y_i, f"y of {name}").size
    shape, training = _shape(X_i), _shape(X)
    if len(shape) != 2:
        raise ValueError(
            f"X of {name} must have two dimensions, one row for each label and the columns of X; "
            f"got shape {shape}."
        )
    if shape[0] != n_values:
        raise ValueError(
            f"{name} has {shape[0]} rows of X and {n_values} values of y: give one for each row."
        )
    if shape[1:] != training[1:] and len(training) == 2:
        raise ValueError(
            f"X of {name} has {shape[1]} columns, and the training rows have {training[1]}: give "
            f"the same columns."
        )
    check_features(X_i, f"X of {name}")
    found, expected = _names(X_i), _names(X)
    if by_name and found is not None and expected is not None and found != expected:
        raise ValueError(
            f"X of {name} has the columns {found or 'without names'}, and the training rows have "
            f"{expected or 'columns without names'}: give tables of the same columns, in the "
            f"same order."
        )
    if not isinstance(X_i, pd.DataFrame):
        return  # Tables of other libraries have categories of their own kind.
    theirs = categories_of(X_i)
    for j, categories in categories_of(X).items():
        column = X.columns[j]
        if j not in theirs:
            raise TypeError(
                f"X of {name} has no categories in column {column!r}, where X has some: give the "
                f"column as a category."
            )
        refuse_strange(column, categories, theirs[j], f"X of {name}")


def _shape(table: Any) -> tuple[int, ...]:
    shape = tuple(table.shape if hasattr(table, "shape") else np.shape(table))
    return (*shape, 1) if hasattr(table, "to_frame") and len(shape) == 1 else shape


def _names(table: Any) -> list[str] | None:
    """List the names of columns as XGBoost compares them; None for tables of unknown kinds."""
    if is_frame(table) or isinstance(table, (np.ndarray, list)) or sparse.issparse(table):
        return list(map(str, names_of(table)))
    return None


@dataclass(frozen=True)
class EvaluationArguments:
    """Evaluation sets as they were given, and how they end training early.

    Attributes
    ----------
    pairs : sequence of (X_i, y_i)
        All evaluation sets.
    weights : sequence
        Sample weights of each evaluation set, or None.
    initial_scores : sequence
        Scores that the booster starts from in each evaluation set, or None.
    has_patience : bool
        Whether the parent has a number of rounds after which to stop early.
    parameter : str
        Parameter that gives this number.
    is_evaluated : bool
        Whether there is an evaluation set, and a metric of it.
    """

    pairs: Sequence[tuple[Any, Any]]
    weights: Sequence[Any]
    initial_scores: Sequence[Any]
    has_patience: bool
    parameter: str
    is_evaluated: bool

    def check_early_stopping(self, on: EarlyStoppingOn, *, has_held_out: bool) -> None:
        """Refuse early stopping that lacks a patience, a metric or rows to look at."""
        if on == "metric":
            if self.has_patience and not self.is_evaluated:
                raise ValueError(
                    f"Early stopping ({self.parameter}) looks at a metric of an evaluation set, "
                    f"and there is none: give eval_set=[(X_valid, y_valid)], or evals= and "
                    f"valid_sets= of train, or leave early stopping out."
                )
            return
        asked = f"early_stopping_on={on!r}"
        if not self.has_patience:
            raise ValueError(
                f"{asked} does not say after how many rounds without improvement to stop: give "
                f"{self.parameter}, or leave early_stopping_on at 'metric'."
            )
        if not has_held_out:
            raise ValueError(
                f"{asked} measures the constraints on the last evaluation set, and there is none "
                f"besides the training rows: give eval_set=[(X_valid, y_valid)]."
            )


def take_evaluation_sets(
    fit: ConstrainedFit, given: EvaluationArguments, sensitive_features: Any
) -> list[int]:
    """Attach to a fit the evaluation sets that are not its training rows; list their positions."""
    pairs = given.pairs
    check_sensitive_sets(sensitive_features, len(pairs))
    sensitive = [None] * len(pairs) if sensitive_features is None else sensitive_features
    for i, (X_i, y_i) in enumerate(pairs):
        name = f"eval_set[{i}]"
        fit.data.alignment.check(
            {
                f"X of {name}": X_i,
                f"y of {name}": y_i,
                f"sample weight of {name}": given.weights[i],
                f"initial scores of {name}": given.initial_scores[i],
                f"sensitive features of {name}": sensitive[i],
            }
        )
    held_out = fit.find_held_out(pairs)
    on = fit.options.early_stopping_on
    given.check_early_stopping(on, has_held_out=bool(held_out))
    for i in held_out:
        fit.add_evaluation_set(f"eval_set[{i}]", *pairs[i], given.weights[i], sensitive[i])
    fit.warn_of_further_groups()
    if on != "metric":
        fit.check_stopping_set()
    return held_out
