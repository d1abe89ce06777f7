"""Parameters of LightGBM, which has several names for most of them."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb

from gbm_constrained.training.options import check_number

# Other names of the parameters that this package reads, in LightGBM's order of precedence.
ALIASES = {
    "objective": ("application", "app", "loss", "objective_type"),
    "boosting": ("boost", "boosting_type"),
    "num_class": ("num_classes",),
    "learning_rate": ("eta", "shrinkage_rate"),
    "num_iterations": (
        "num_iteration", "num_boost_round", "num_round", "num_rounds", "nrounds", "num_tree",
        "num_trees", "n_iter", "max_iter", "n_estimators",
    ),
    "verbosity": ("verbose",),
    "metric": ("metrics", "metric_types"),
    "is_unbalance": ("unbalance", "unbalanced_sets"),
    "pos_bagging_fraction": ("pos_bagging", "pos_sub_row", "pos_subsample"),
    "neg_bagging_fraction": ("neg_bagging", "neg_sub_row", "neg_subsample"),
    "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    "monotone_constraints": ("mc", "monotone_constraint", "monotonic_cst"),
    "num_machines": ("num_machine",),
    "machines": ("workers", "nodes"),
}  # fmt: skip


def find_parameter(model: Any, name: str, default: Any) -> Any:
    """Find a parameter by any of its names; a text is read by the type of `default`."""
    given = {**vars(model), **model._other_params}  # get_params takes much longer.
    names = (name, *ALIASES.get(name, ()))
    found = [given[name] for name in names if given.get(name) is not None]
    return read_as(name, found[0], default) if found else default


def set_rounds(model: Any, rounds: int) -> None:
    """Set the number of rounds, by whichever of its names it was given."""
    names = ("num_iterations", *ALIASES["num_iterations"])
    model.set_params(**{name: rounds for name in names if name in model.get_params(deep=False)})


def find_objective(model: Any) -> Any:
    """Find the objective as it was given; LightGBM takes other names first."""
    given = model.get_params()
    names = (*ALIASES["objective"], "objective")
    return next((given[name] for name in names if given.get(name) is not None), None)


def read_as(name: str, value: Any, default: Any) -> Any:
    """Read the value of a parameter as LightGBM does, also from a text such as ``"false"``."""
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return value.lower() in ("true", "+")
    if isinstance(default, (int, float)):
        return type(default)(check_number(name, value))
    return value.lower() if isinstance(default, str) else value


def make_early_stopping(model: Any) -> list[Any]:
    """List the early stopping that a constructor parameter asks for, as LightGBM makes it."""
    patience = find_parameter(model, "early_stopping_round", None)
    if patience is None or (isinstance(patience, int) and patience <= 0):
        return []
    stopping = lgb.early_stopping(  # LightGBM refuses numbers that are no int.
        patience,
        first_metric_only=find_parameter(model, "first_metric_only", False),
        verbose=find_parameter(model, "verbosity", 1) > 0,
        min_delta=find_parameter(model, "early_stopping_min_delta", 0.0),
    )
    return [stopping]
