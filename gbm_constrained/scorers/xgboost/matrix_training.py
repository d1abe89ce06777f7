"""``xgboost.train`` under constraints: rows in a matrix, in memory or on disk.

The labels, weights and starting scores of a matrix, one number for each row each, are read into
memory. Features stay where they are: trees are grown on the matrix that the user has made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._findings import issue_warning
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.validation import check_integer, check_sensitive_sets
from gbm_constrained.fit.callbacks import ConstraintCallback
from gbm_constrained.fit.fitted_report import hand_over_report
from gbm_constrained.fit.options import read_guarantee, read_measurement
from gbm_constrained.scorers.base import check_classes, check_names, check_params, read_labels
from gbm_constrained.scorers.xgboost.estimators import ConstrainedXGBClassifier
from gbm_constrained.scorers.xgboost.fits import MakeMatrix
from gbm_constrained.scorers.xgboost.parameters import find_without_gradients


def show_names(callback: Any, names: Sequence[str]) -> Any:
    """Let a callback of the user see evaluation sets by their own names.

    One that looks at no evaluation set, and early stopping, stay what they are: see
    :func:`stopping_by_name`. What is no callback stays for the classifier to refuse.
    """
    kind = xgb.callback.TrainingCallback
    known = (xgb.callback.EarlyStopping, xgb.callback.LearningRateScheduler)
    if not isinstance(callback, kind) or isinstance(callback, known):
        return callback
    given = {f"validation_{i}": name for i, name in enumerate(names)}

    def by_name(method: Callable[..., Any]) -> Callable[..., bool]:
        def call(model: Any, epoch: int, log: Any) -> bool:
            return bool(method(model, epoch, {given.get(k, k): v for k, v in log.items()}))

        return call

    shown = kind()
    shown.before_training, shown.after_training = callback.before_training, callback.after_training
    shown.before_iteration = by_name(callback.before_iteration)
    shown.after_iteration = by_name(callback.after_iteration)
    return shown


@contextmanager
def stopping_by_name(callbacks: Sequence[Any], names: Sequence[str]) -> Iterator[None]:
    """Let early stopping find the evaluation sets that it names, while a classifier is fitted.

    Raises
    ------
    ValueError
        If there is no evaluation set of the name.
    """
    stoppers = [c for c in callbacks if isinstance(c, xgb.callback.EarlyStopping)]
    asked = [stopper.data for stopper in stoppers]
    if unknown := [name for name in asked if name and name not in names]:
        raise ValueError(
            f"EarlyStopping has data_name={unknown[0]!r}, and the evaluation sets are called "
            f"{list(names)}: give one of these, or None for the last."
        )
    for stopper, name in zip(stoppers, asked, strict=True):
        if name:
            stopper.data = f"validation_{list(names).index(name)}"
    try:
        yield
    finally:
        for stopper, name in zip(stoppers, asked, strict=True):
            stopper.data = name


REFUSED = {
    "obj": "the gradients are those of the constraints: choose objective in params",
    "custom_metric": "name a metric by eval_metric in params, or compute it in a callback",
    "maximize": "which way a metric is better, a callback EarlyStopping(maximize=...) says",
}

# Parameters of XGBoost's classifiers that are no parameters of a booster.
ELSEWHERE = {
    "n_estimators": "num_boost_round= of train",
    "early_stopping_rounds": "early_stopping_rounds= of train",
    "callbacks": "callbacks= of train",
    **dict.fromkeys(
        ("missing", "enable_categorical", "feature_types", "feature_weights"), "it to the matrix"
    ),
}

NEED_FEATURES = {
    "guarantee": "sets rows aside, and trees are grown on the whole matrix: audit the model on "
    "other rows, or take ConstrainedXGBClassifier",
    "maximize": "grows boosters on parts of the rows: take ConstrainedXGBClassifier",
    "minimize": "grows boosters on parts of the rows: take ConstrainedXGBClassifier",
}


class MatrixRows:
    """A matrix, with what ``fit`` of a classifier takes in its place.

    Parameters
    ----------
    position : A different number for each matrix.
    """

    def __init__(self, matrix: Any, name: str, position: int) -> None:
        if not isinstance(matrix, xgb.DMatrix):
            raise TypeError(
                f"{name} must be an xgboost.DMatrix, got {type(matrix).__name__}: for arrays and "
                f"tables take ConstrainedXGBClassifier."
            )
        self.matrix, n, labels = matrix, matrix.num_row(), matrix.get_label()
        if labels.size != n:
            raise ValueError(
                f"{name} has {n} rows and {labels.size} labels: make it with label=, one number "
                f"for each row."
            )
        self.y = read_labels(labels, name)
        # It takes the place of the features, and no memory.
        self.X = np.broadcast_to(np.float32(position), (n, 1))
        weight, margin = matrix.get_weight(), matrix.get_base_margin()
        self.weight = weight if weight.size else None
        self.margin = None
        if margin.size:
            self.margin = margin if margin.size == n else margin.reshape(n, -1)

    def find_columns(self, given: Any) -> Any:
        """Read columns that are named as info fields of the matrix; leave tables as they are."""
        names = [given] if isinstance(given, str) else given
        is_list = isinstance(names, (list, tuple)) and bool(names)
        if not (is_list and all(isinstance(name, str) for name in names)):
            return given
        columns = {}
        for name in names:
            try:
                columns[name] = self.matrix.get_float_info(name)
            except xgb.core.XGBoostError:  # It does not know the name.
                columns[name] = np.empty(0)
            if columns[name].size != self.matrix.num_row():
                raise ValueError(
                    f"sensitive_features names {name!r}, and the matrix has no field of this name "
                    f"with one number for each row, such as 'label_lower_bound'; features are "
                    f"none: give a table with this column."
                )
        return columns


class XGBMatrixClassifier(ConstrainedXGBClassifier):
    """A classifier under constraints on matrices that were made before.

    Attributes
    ----------
    matrices : mapping
        The matrices, by the identity of what ``fit`` takes in their place.
    make_matrix : callable or None
        Function that makes the matrix of some training rows; None if they cannot be divided.
    """

    matrices: Mapping[int, Any]
    make_matrix: MakeMatrix | None = None

    def _make_matrix(self, ref: Any, **given: Any) -> Any:
        return self.matrices[id(given["data"])]

    def _scored(self, matrix: Any, given: Mapping[str, Any]) -> Any:
        return matrix


def find_divider(dtrain: xgb.DMatrix, make_matrix: MakeMatrix | None) -> MakeMatrix | None:
    """Find the function that makes the matrix of some training rows; None if there is none."""
    if make_matrix is not None:
        if not callable(make_matrix):
            raise TypeError(
                f"make_matrix must be a function of a boolean for each row, got a "
                f"{type(make_matrix).__name__}."
            )
        return make_matrix
    try:
        dtrain.slice(np.arange(min(dtrain.num_row(), 1)))
    except xgb.core.XGBoostError:
        return None
    return lambda is_inside: dtrain.slice(np.flatnonzero(is_inside))


def make_classifier(
    params: Mapping[str, Any],
    rows: MatrixRows,
    sets: Sequence[MatrixRows],
    make_matrix: MakeMatrix | None,
    **given: Any,
) -> XGBMatrixClassifier:
    """Make the classifier that grows trees on matrices, one of which holds the training rows."""
    native = dict(params)
    if "seed" in native:  # XGBoost prefers this name.
        native["random_state"] = native.pop("seed")
    check_classes(rows.y, "dtrain", params.get("num_class"))
    model = XGBMatrixClassifier(**given, **native)
    if (booster := find_without_gradients(model)) is not None:
        raise ValueError(
            f"{booster} takes no gradients of constraints, which decisions must meet then: "
            f"take ConstrainedXGBClassifier on arrays or tables."
        )
    for constraint in check_constraints(given["constraints"]):
        if any(reference.model is not None for reference in constraint.reference_models):
            raise ValueError(
                f"{constraint} asks another model about features, which a matrix does not "
                f"give back: give its decisions, or the name of a column that holds them."
            )
    model.matrices = {id(one.X): one.matrix for one in (rows, *sets)}
    model.make_matrix = make_matrix
    return model


def choose_measurement(
    asked: Any, dtrain: xgb.DMatrix, *, is_divisible: bool, is_held_out: bool, is_continued: bool
) -> Any:
    """Choose the rows by which constraints are measured.

    Parameters
    ----------
    asked : object
        The parameter `measure_on`; None if there was none.
    dtrain : DMatrix
        The training rows.
    is_divisible, is_held_out, is_continued : bool
        Whether these can be divided, whether there is an evaluation set of other rows, and whether
        training goes on with a model.
    """
    indivisible = (
        f"this {type(dtrain).__name__} cannot be divided (QuantileDMatrix, external memory "
        f"and groups of rows): give a DMatrix in memory, make_matrix=, a function that makes "
        f"the matrix of some of the rows, "
    )
    read = {} if asked is None else read_measurement(asked)
    kind, fraction = read.get("measure_on"), read.get("holdout_fraction")
    divides = kind in ("auto", "crossfit", "forward") or fraction is not None
    if divides and not is_divisible:
        raise ValueError(
            f"measure_on={asked!r} grows boosters on parts of the rows, and "
            f"{indivisible}or an evaluation set with measure_on='holdout'."
        )
    if kind == "holdout" and not (is_divisible or is_held_out):
        raise ValueError(
            f"measure_on='holdout' needs rows that trees are not grown on, and "
            f"{indivisible}or a matrix of them in evals."
        )
    if asked is not None:
        return asked
    if is_held_out and (is_continued or not is_divisible):
        return "holdout"
    if is_divisible:
        return "auto"
    issue_warning(
        f"Constraints are measured on training rows, which are optimistic, since "
        f"{indivisible}or a matrix of other rows in evals; or ask for measure_on='train'.",
        "GC118",
    )
    return "train"


def _take_native(others: dict[str, Any]) -> dict[str, Any]:
    """Take out what :func:`xgboost.train` alone gives a meaning, and check the rest."""
    is_native = {name: name in others for name in REFUSED}
    is_native["maximize"] = isinstance(others.get("maximize"), bool)  # Else it is a metric.
    native = {name: others.pop(name) for name in REFUSED if is_native[name]}
    check_names(others, "XGBoost")
    for name, remedy in NEED_FEATURES.items():
        value = others.get(name)
        if value is not None and not (name == "guarantee" and read_guarantee(value)[name] is None):
            raise ValueError(f"{name}={others[name]!r} {remedy}.")
    return native


def train(
    params: Mapping[str, Any],
    dtrain: xgb.DMatrix,
    num_boost_round: int = 10,
    *,
    constraints: Any,
    sensitive_features: Any = None,
    evals: Sequence[tuple[xgb.DMatrix, str]] | None = None,
    sensitive_features_evals: Sequence[Any] | None = None,
    make_matrix: MakeMatrix | None = None,
    early_stopping_rounds: int | None = None,
    evals_result: dict[str, Any] | None = None,
    verbose_eval: bool | int | None = True,
    xgb_model: Any = None,
    callbacks: Sequence[Any] | None = None,
    constraint_callbacks: Sequence[ConstraintCallback] | None = None,
    time_limit: float | None = None,
    max_cost: float | None = None,
    time: Any = None,
    **others: Any,
) -> xgb.Booster:
    """Train a booster on a matrix under constraints on its error rates.

    A matrix may be a ``DMatrix``, a ``QuantileDMatrix`` or an ``ExtMemQuantileDMatrix``, whose
    features are on disk. ``constraints=[]`` is :func:`xgboost.train` itself.

    Parameters
    ----------
    params : mapping
        Parameters of XGBoost. The objective is ``"binary:logistic"`` by default, and
        ``"multi:softprob"`` for three or more classes; ``"multi:softmax"`` differs in what the
        booster predicts alone.
    dtrain : xgboost.DMatrix
        Training rows. Labels number the classes: 0, 1 and so on.
    num_boost_round : int, default=10
        Boosting rounds.
    constraints : list
        Constraints as of :class:`gbm_constrained.ConstrainedXGBClassifier`.
    sensitive_features : table, str or list of str, default=None
        Columns that constraints group by, one value for each row of `dtrain`; or names of fields
        of the matrix, such as ``"label_lower_bound"``.
    evals : sequence of (DMatrix, str), default=None
        Evaluation sets with their names. Where rows of `dtrain` cannot be divided, the last one
        that is not `dtrain` moves the multipliers.
    sensitive_features_evals : sequence, default=None
        Columns of each evaluation set, as `sensitive_features`.
    make_matrix : callable, default=None
        Makes the matrix of some of the training rows, given a boolean for each row. Boosters on
        parts of the rows measure the constraints. A ``DMatrix`` in memory needs no such function:
        XGBoost slices it. A stream may skip rows for it.
    early_stopping_rounds, evals_result, verbose_eval, xgb_model, callbacks : optional
        As of :func:`xgboost.train`.
    constraint_callbacks, time_limit, max_cost, time : optional
        As of :meth:`gbm_constrained.ConstrainedXGBClassifier.fit`. Times order the rows of
        ``measure_on="forward"``, which divides the rows.
    **others
        Parameters of :class:`gbm_constrained.ConstrainedXGBClassifier` about constraints, such as
        ``measure_on`` or ``on_infeasible``. By default `measure_on` is "auto" where rows can be
        divided. Elsewhere, and with `xgb_model`, it is "holdout" with an evaluation set that is
        not `dtrain`. Otherwise training rows measure the constraints, with a warning.

    Returns
    -------
    xgboost.Booster
        The plain booster. The fitted attributes of the classifier, such as
        ``constraint_report_``, ``history_`` and ``feasibility_``, are attributes of it. Rounds
        after the one that was chosen, by early stopping too, are cut off.

    Raises
    ------
    TypeError
        If a matrix is none, an argument has no meaning under constraints, or `params` holds an
        argument of this function.
    ValueError
        If labels do not number classes, or rows cannot be divided as `measure_on` asks.
    """
    native = _take_native(others)
    evals = list(evals or ())
    if not check_constraints(constraints):
        return xgb.train(
            dict(params),
            dtrain,
            num_boost_round,
            evals=evals,
            early_stopping_rounds=early_stopping_rounds,
            evals_result=evals_result,
            verbose_eval=verbose_eval,
            xgb_model=xgb_model,
            callbacks=callbacks,
            **native,
        )
    for name, value in native.items():
        if value is not None:
            raise TypeError(f"{name}= has no meaning under constraints: {REFUSED[name]}.")
    check_params(params, "XGBoost", ELSEWHERE)
    check_integer("num_boost_round", num_boost_round, 1)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in evals):
        raise TypeError(
            f"evals must be a list of matrices and their names, such as [(dvalid, 'valid')], "
            f"got {evals}."
        )
    rows, names = MatrixRows(dtrain, "dtrain", 0), [name for _, name in evals]
    make_matrix = find_divider(dtrain, make_matrix)
    sets = [
        rows if matrix is dtrain else MatrixRows(matrix, f"evals[{i}], {name!r},", i + 1)
        for i, (matrix, name) in enumerate(evals)
    ]
    if xgb_model is not None and isinstance(dtrain, xgb.QuantileDMatrix):
        raise ValueError(
            "xgb_model= has trees that split elsewhere than at the bins of this QuantileDMatrix, "
            "and scores on bins are not its own: give a DMatrix."
        )
    callbacks = list(callbacks or ())
    if verbose_eval:
        callbacks.append(xgb.callback.EvaluationMonitor(period=max(int(verbose_eval), 1)))
    others["measure_on"] = choose_measurement(
        others.get("measure_on"),
        dtrain,
        is_divisible=make_matrix is not None,
        is_held_out=any(one is not rows for one in sets),
        is_continued=xgb_model is not None,
    )
    model = make_classifier(
        params,
        rows,
        sets,
        make_matrix,
        constraints=constraints,
        n_estimators=num_boost_round,
        early_stopping_rounds=early_stopping_rounds,
        callbacks=[show_names(callback, names) for callback in callbacks],
        **others,
    )
    of_sets = sensitive_features_evals
    check_sensitive_sets(of_sets, len(sets), "sensitive_features_evals")
    columns = [one.find_columns(c) for one, c in zip(sets, of_sets or (), strict=False)]
    with stopping_by_name(callbacks, names):
        model.fit(
            rows.X,
            rows.y,
            sample_weight=rows.weight,
            base_margin=rows.margin,
            eval_set=[(one.X, one.y) for one in sets] or None,
            sample_weight_eval_set=[one.weight for one in sets] or None,
            base_margin_eval_set=[one.margin for one in sets] or None,
            verbose=False,
            sensitive_features=rows.find_columns(sensitive_features),
            sensitive_features_eval_set=None if of_sets is None else columns,
            xgb_model=xgb_model,
            constraint_callbacks=constraint_callbacks,
            time_limit=time_limit,
            max_cost=max_cost,
            time=time,
        )
    if evals_result is not None:
        evals_result.update(
            {name: model.evals_result_[f"validation_{i}"] for i, name in enumerate(names)}
        )
    booster = model.get_booster()
    if params.get("objective") == "multi:softmax" and model.n_classes_ > 2:
        booster.set_param({"objective": "multi:softmax"})  # It answers with classes, as asked.
    hand_over_report(model, booster)
    return booster
