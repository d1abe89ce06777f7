"""``lightgbm.train`` under constraints: rows in a ``Dataset`` that keeps its features.

LightGBM scores rows by their features alone once trees are left out or a model is read from its
text, and a constrained fit does both. A ``Dataset`` whose features were freed is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.basic import _ConfigAliases

from gbm_constrained._dataframes import is_frame
from gbm_constrained._typing import Codes
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.validation import check_integer, check_sensitive_sets
from gbm_constrained.fit.callbacks import ConstraintCallback
from gbm_constrained.fit.fitted_report import hand_over_report
from gbm_constrained.scorers.base import check_classes, check_names, check_params, read_labels
from gbm_constrained.scorers.lightgbm.estimators import ConstrainedLGBMClassifier
from gbm_constrained.scorers.lightgbm.parameters import find_parameter

REFUSED = {
    "feval": (
        "name a metric by metric in params, or take eval_metric of ConstrainedLGBMClassifier"
    ),
    "keep_training_booster": "to go on with training, give the booster as init_model",
}


def read_rows(data: Any, name: str) -> tuple[Any, Codes, Any, Any]:
    """Read features, labels, weights and starting scores of a ``Dataset``."""
    if not isinstance(data, lgb.Dataset):
        raise TypeError(
            f"{name} must be a lightgbm.Dataset, got {type(data).__name__}: for arrays and "
            f"tables take ConstrainedLGBMClassifier."
        )
    if data.label is None and data.used_indices is None:  # LightGBM reads zeros then.
        raise ValueError(f"{name} has no labels: make it with label=, one for each row.")
    try:
        X = data.construct().get_data()
    except lgb.basic.LightGBMError as error:
        raise ValueError(
            f"{name} has freed its features, by which a constrained fit scores its rows: "
            f"make it with free_raw_data=False."
        ) from error
    if not (isinstance(X, np.ndarray) or is_frame(X) or hasattr(X, "tocsr")):
        raise TypeError(
            f"{name} holds a {type(X).__name__}, which is read in parts: give an array or a "
            f"table, or stream it into a matrix for gbm_constrained.xgboost.train."
        )
    return X, read_labels(data.get_label(), name), data.get_weight(), data.get_init_score()


def _read_parameters(params: Any, train_set: lgb.Dataset, num_boost_round: int) -> dict[str, Any]:
    """Give parameters the names that the classifier has for them."""
    check_params(params, "LightGBM", {})
    own = set(ConstrainedLGBMClassifier._get_param_names()) - {"objective"}
    names = {alias: name for name in own for alias in _ConfigAliases.get_by_alias(name)}
    given = {**(train_set.get_params() or {}), **params}
    mains = _ConfigAliases._get_all_param_aliases()
    # LightGBM prefers its main name, and short names to long ones: those come last, and stay.
    order = sorted(given, key=lambda name: (name not in mains, len(name), name), reverse=True)
    named = {names.get(name, name): given[name] for name in order}
    named.setdefault("n_estimators", num_boost_round)  # LightGBM takes that of params as well.
    check_integer("num_boost_round", named["n_estimators"], 1)
    return named


def train(
    params: Mapping[str, Any],
    train_set: lgb.Dataset,
    num_boost_round: int = 100,
    *,
    constraints: Any,
    sensitive_features: Any = None,
    valid_sets: lgb.Dataset | Sequence[lgb.Dataset] | None = None,
    valid_names: str | Sequence[str] | None = None,
    sensitive_features_valid: list[Any] | None = None,
    init_model: Any = None,
    callbacks: Sequence[Callable[..., Any]] | None = None,
    constraint_callbacks: Sequence[ConstraintCallback] | None = None,
    time_limit: float | None = None,
    max_cost: float | None = None,
    time: Any = None,
    **others: Any,
) -> lgb.Booster:
    """Train a booster on a ``Dataset`` under constraints on its error rates.

    ``constraints=[]`` is :func:`lightgbm.train` itself.

    Parameters
    ----------
    params : mapping
        Parameters of LightGBM, by any of their names.
    train_set : lightgbm.Dataset
        Training rows, made with ``free_raw_data=False``. Labels number the classes: 0, 1 and so
        on. The rows are binned anew, with the parameters of the ``Dataset``; bins of another one
        that it refers to, or is a subset of, are not kept.
    num_boost_round : int, default=100
        Boosting rounds, where `params` has none.
    constraints : list
        Constraints as of :class:`gbm_constrained.ConstrainedLGBMClassifier`.
    sensitive_features : table, default=None
        Columns that constraints group by, one value for each row of `train_set`.
    valid_sets, valid_names : sequence, Dataset or str, default=None
        Evaluation sets and their names, as of :func:`lightgbm.train`.
    sensitive_features_valid : list, default=None
        Columns of each evaluation set, as `sensitive_features`.
    init_model, callbacks : optional
        As of :func:`lightgbm.train`.
    constraint_callbacks, time_limit, max_cost, time : optional
        As of :meth:`gbm_constrained.ConstrainedLGBMClassifier.fit`.
    **others
        Parameters of :class:`gbm_constrained.ConstrainedLGBMClassifier` about constraints, such as
        ``measure_on`` or ``on_infeasible``.

    Returns
    -------
    lightgbm.Booster
        The plain booster. The fitted attributes of the classifier, such as
        ``constraint_report_``, ``history_`` and ``feasibility_``, are attributes of it. Rounds
        after the one that was chosen are cut off.

    Raises
    ------
    TypeError
        If a set is no ``Dataset``, or is read in parts; if an argument has no meaning under
        constraints, or `params` holds an argument of this function.
    ValueError
        If a ``Dataset`` has freed its features, or its labels do not number classes.
    """
    native = {name: others.pop(name) for name in REFUSED if name in others}
    check_names(others, "LightGBM")
    sets = [valid_sets] if isinstance(valid_sets, lgb.Dataset) else list(valid_sets or ())
    valid_names = [valid_names] if isinstance(valid_names, str) else valid_names
    callbacks = list(callbacks or ())
    has_metric = any(others.get(name) is not None for name in ("maximize", "minimize"))
    if not (check_constraints(constraints) or has_metric):
        return lgb.train(
            dict(params),
            train_set,
            num_boost_round,
            valid_sets=sets,
            valid_names=valid_names,
            init_model=init_model,
            callbacks=callbacks,
            **native,
        )
    for name, value in native.items():
        if value:
            raise TypeError(f"{name}= has no meaning under constraints: {REFUSED[name]}.")
    check_sensitive_sets(sensitive_features_valid, len(sets), "sensitive_features_valid")
    rows = X, y, weight, start = read_rows(train_set, "train_set")
    evaluated = [
        rows if one is train_set else read_rows(one, f"valid_sets[{i}]")
        for i, one in enumerate(sets)
    ]
    named = _read_parameters(params, train_set, num_boost_round)
    model = ConstrainedLGBMClassifier(**named, constraints=constraints, **others)
    check_classes(y, "train_set", find_parameter(model, "num_class", None))
    with warnings.catch_warnings():  # LightGBM 4.7 recognises training rows by this argument.
        warnings.filterwarnings("ignore", "The argument 'eval_set' is deprecated")
        model.fit(
            X,
            y,
            sample_weight=weight,
            init_score=start,
            eval_set=[one[:2] for one in evaluated] or None,
            eval_names=None if valid_names is None else [*valid_names],
            eval_sample_weight=[one[2] for one in evaluated] or None,
            eval_init_score=[one[3] for one in evaluated] or None,
            feature_name=train_set.feature_name or "auto",
            categorical_feature=train_set.categorical_feature,
            callbacks=callbacks or None,
            init_model=init_model,
            sensitive_features=sensitive_features,
            sensitive_features_eval_set=sensitive_features_valid,
            constraint_callbacks=constraint_callbacks,
            time_limit=time_limit,
            max_cost=max_cost,
            time=time,
        )
    booster = model.booster_
    hand_over_report(model, booster)
    return booster
