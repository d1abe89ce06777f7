"""Checks of LightGBM's parameters and arguments under constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightgbm as lgb

from gbm_constrained._dataframes import foreign_categories
from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.callbacks import is_early_stopping
from gbm_constrained.boosters.lightgbm.parameters import (
    find_objective,
    find_parameter,
    make_early_stopping,
    read_as,
)
from gbm_constrained.training.callbacks import check_booster_callbacks

NATIVE_OBJECTIVES = (None, "binary", "multiclass", "softmax")


def has_early_stopping(model: Any, callbacks: Any) -> bool:
    """Whether a parameter or a callback stops early."""
    return bool(make_early_stopping(model)) or any(map(is_early_stopping, callbacks or ()))


def check_classes(model: Any, n_classes: int) -> None:
    """Refuse parameters of the objective that contradict the number of classes."""
    asked = find_objective(model)
    objective = read_as("objective", asked, "")
    if n_classes > 2 and objective == "binary":
        raise lgb.basic.LightGBMError(
            f"objective='binary' is for two classes, and y has {n_classes}: leave it at None, "
            f"which is then 'multiclass'."
        )
    num_class = find_parameter(model, "num_class", 1)
    if n_classes == 2 and num_class != 1:
        raise ValueError(
            f"num_class={num_class!r} cannot be trained under constraints where y has two "
            f"classes, which have one score: leave it out, and objective at None."
        )
    if n_classes == 2 and objective not in (None, "binary"):
        raise lgb.basic.LightGBMError(
            f"objective={asked!r} is for more than two classes, and y has two: leave it at "
            f"None, which is then 'binary'."
        )
    factor = find_parameter(model, "scale_pos_weight", 1.0)
    if n_classes == 2 and factor != 1.0 and find_parameter(model, "is_unbalance", False):
        raise ValueError(
            f"is_unbalance=True and scale_pos_weight={factor!r} cannot be set at the same "
            f"time, as in LightGBM: both weigh the positive class. Leave one of them out."
        )


def check_supported(model: Any, callbacks: Any) -> None:
    """Refuse parameters that have no meaning under constraints."""
    check_parameters(model, callbacks)
    objective = find_objective(model)
    if read_as("objective", objective, "") not in NATIVE_OBJECTIVES:
        raise ValueError(
            f"objective={objective!r} cannot be trained under constraints: leave it at None, "
            f"which is 'binary' or 'multiclass' as y says."
        )
    for name in ("sigmoid", "pos_bagging_fraction", "neg_bagging_fraction"):
        value = find_parameter(model, name, 1.0)
        if value != 1.0:
            raise ValueError(
                f"{name}={value!r} belongs to LightGBM's own objective and has no effect "
                f"under constraints: leave it at 1."
            )


def check_parameters(model: Any, callbacks: Any) -> None:
    """Refuse callbacks and parameters beside the objective that constraints do not allow."""
    check_booster_callbacks(
        callbacks,
        lambda c: callable(c) and not isinstance(c, type),
        "functions of one CallbackEnv",
    )
    machines = find_parameter(model, "num_machines", 1)
    if machines != 1 or find_parameter(model, "machines", None):
        raise ValueError(
            f"num_machines={machines!r} (or machines) cannot be given by hand under constraints: "
            f"each machine would measure the constraints on its own rows, and the multipliers "
            f"would go apart. Take gbm_constrained.dask.ConstrainedLGBMClassifier, which adds up "
            f"the rows of all machines."
        )


def find_without_gradients(model: Any) -> str | None:
    """Find the parameter of a classifier by which its booster takes no gradients but its own."""
    objective = find_objective(model)
    if callable(objective):
        return f"objective={objective!r}"
    is_native = read_as("objective", objective, "") in NATIVE_OBJECTIVES
    return find_own_boosting(model) if is_native else None


def find_own_boosting(model: Any) -> str | None:
    """Find the parameter of a booster that takes no gradients but its own.

    DART rescales its old trees as it grows, so that multipliers found on part of the rows do not
    carry over.
    """
    boosting = find_parameter(model, "boosting", "gbdt")
    is_own = boosting in ("rf", "random_forest", "dart")
    return f"boosting_type={boosting!r}" if is_own else None


def find_without_stages(model: Any, arguments: Mapping[str, Any]) -> str | None:
    """Find what keeps a model from being grown in stages, each of which goes on with the last.

    LightGBM puts the scores of the model that it goes on with in the place of `init_score`, and
    callbacks count rounds from the beginning of each stage.
    """
    if (booster := find_without_gradients(model)) is not None:
        return booster
    if has_early_stopping(model, arguments["callbacks"]):
        return "early stopping"
    if arguments["callbacks"]:
        return "callbacks"
    return None if arguments["init_score"] is None else "init_score"


def check_categories(X: Any, name: str) -> None:
    """Refuse categories that make LightGBM end the whole process."""
    categories = foreign_categories(X)
    if categories:
        raise TypeError(
            f"{name} has categories in {categories}, a "
            f"{type(X).__module__.partition('.')[0]} table: LightGBM reads categories of pandas "
            f"and ends the process on others. Give X.to_pandas()."
        )


def list_evaluation_pairs(eval_set: Any, eval_X: Any, eval_y: Any) -> Any:
    """List the evaluation sets as pairs, from either form of LightGBM's arguments."""
    if eval_X is None and eval_y is None:
        alone = isinstance(eval_set, tuple) and not all(isinstance(e, tuple) for e in eval_set)
        return [eval_set] if alone else eval_set
    if eval_set is not None:
        raise ValueError("Specify either 'eval_set' or 'eval_X' and 'eval_y', but not both.")
    if eval_X is None or eval_y is None:
        raise ValueError("You must specify eval_X and eval_y, not just one of them.")
    several = isinstance(eval_X, tuple)
    if several != isinstance(eval_y, tuple) or (several and len(eval_X) != len(eval_y)):
        raise ValueError(
            "eval_X and eval_y must be tuples of the same length, or neither of them a tuple."
        )
    return zip(eval_X, eval_y, strict=True) if several else [(eval_X, eval_y)]


def check_evaluation_sets(pairs: Sequence[tuple[Any, Any]], X: Any, y: Any) -> None:
    """Refuse tables that LightGBM does not take as an evaluation set."""
    for i, (X_i, y_i) in enumerate(pairs):
        is_training = X_i is X and y_i is y  # LightGBM does not read these again.
        if isinstance(X_i, list) and not is_training:
            raise TypeError(
                f"X of eval_set[{i}] is a list, which LightGBM takes of training rows only: give "
                f"an array."
            )
        if len(y_i) == 0:
            raise ValueError(
                f"eval_set[{i}] has no rows: leave it out, or where rows are on several machines, "
                f"give each of them some."
            )
        check_categories(X_i, f"X of eval_set[{i}]")


def list_for_each(values: Any, n_sets: int, name: str) -> list[Any]:
    """List the entry of each evaluation set in a list or dict; None where there is none."""
    if values is None:
        return [None] * n_sets
    if isinstance(values, dict):
        return [values.get(i) for i in range(n_sets)]
    if not isinstance(values, list):
        raise TypeError(
            f"{name} must be a list or dict with an entry for each evaluation set, got a "
            f"{type(values).__name__}: put it into a list."
        )
    return [*values, *[None] * n_sets][:n_sets]


def check_class_weights(given: Any, n_sets: int, classes: Array) -> None:
    """Refuse class weights of evaluation sets that LightGBM cannot read."""
    for i, weights in enumerate(list_for_each(given, n_sets, "eval_class_weight")):
        if isinstance(weights, dict):
            unknown = [label for label in weights if label not in classes.tolist()]
            if unknown:
                raise ValueError(
                    f"eval_class_weight[{i}] holds label {unknown[0]!r}, which is not among the "
                    f"classes of y: {classes.tolist()}."
                )
        elif weights is not None and not (isinstance(weights, str) and weights == "balanced"):
            raise ValueError(
                f"eval_class_weight[{i}] must be a dict from label to weight, 'balanced' or None, "
                f"got {weights!r}."
            )
