r"""Export of a fitted booster, with its decisions, to ONNX.

A booster holds the trees. Labels, a threshold of ``probabilities="calibrated"`` and the link of a
regressor are beside them, so that a converted booster may decide otherwise than ``predict``.
:func:`to_onnx` lets onnxmltools convert the trees to one operator, which adds up the raw scores of
the classes, and adds the operators of the decision:

.. math:: h(x) = y_{\arg\max_k s_k(x) + b_k}, \qquad P(k \mid x) \propto \exp s_k(x)

with the raw scores :math:`s_k` of the trees and the decision shift :math:`b_k`. Two classes have
one score, and the decision is :math:`s(x) + b > 0`.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gbm_constrained._optional import explain_missing

# Objectives by their names in model files: those that predict the score, exp(score), and the
# logistic or softmax probabilities of scores.
IDENTITY_LINKS = (
    "regression", "regression_l1", "huber", "fair", "quantile", "mape", "reg:squarederror",
    "reg:absoluteerror", "reg:quantileerror", "reg:pseudohubererror",
)  # fmt: skip
LOG_LINKS = ("poisson", "gamma", "tweedie", "count:poisson", "reg:gamma", "reg:tweedie")
LOGISTIC_LINKS = (
    "binary sigmoid:1", "multiclass", "binary:logistic", "multi:softprob", "multi:softmax"
)  # fmt: skip


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Export a fitted booster to ONNX, so that onnxruntime decides as ``predict`` does.

    Parameters
    ----------
    model : ConstrainedXGBClassifier, ConstrainedLGBMClassifier, or a regressor of these
        A fitted model. Thresholds of groups that the trees hold are exported, and so is the
        threshold of ``probabilities="calibrated"``.
    path : str or path-like, default=None
        File to write. Nothing is written by default.

    Returns
    -------
    onnx.ModelProto
        The input ``X`` is float32 of shape (n_samples, n_features), with NaN for missing values
        and the code of each category in the order of the training categories. Outputs of a
        classifier are ``label`` (n_samples,) and ``probabilities`` (n_samples, n_classes) in the
        order of ``classes_``; a regressor's is ``prediction`` (n_samples,).

    Raises
    ------
    ImportError
        If onnxmltools is missing, which the extra ``onnx`` installs.
    TypeError
        If `model` is no booster of this package, XGBoost or LightGBM.
    ValueError
        If `model` decides by a mixture, by several decision rules, or by offsets of groups that
        are kept beside the trees; if its leaves are linear, or its objective has another link
        than those of classes, counts and numbers.

    Notes
    -----
    The trees of ONNX compare in single precision. LightGBM's thresholds are rounded down to it,
    so that every float32 value goes the way that it goes in LightGBM.

    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBClassifier, fpr, to_onnx
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = ConstrainedXGBClassifier(constraints=[fpr() <= 0.1], n_estimators=5).fit(X, y)
    >>> [output.name for output in to_onnx(model).graph.output]  # doctest: +SKIP
    ['label', 'probabilities']
    """
    is_xgboost = hasattr(model, "get_booster")
    if not is_xgboost and not hasattr(type(model), "booster_"):
        raise TypeError(
            f"to_onnx exports boosters of XGBoost and LightGBM, got a {type(model).__name__}."
        )
    check_is_fitted(model)
    _refuse_what_is_beside_the_trees(model)
    with explain_missing("Models in ONNX", "onnx"):
        from onnx import TensorProto, checker, helper, numpy_helper

    classes = getattr(model, "classes_", None)
    known = (*IDENTITY_LINKS, *LOG_LINKS) if classes is None else LOGISTIC_LINKS
    booster = model.get_booster() if is_xgboost else model.booster_
    objective = _objective_of(booster, is_xgboost=is_xgboost)
    if not objective.startswith(known) or "sqrt" in objective:
        raise ValueError(
            f"This {type(model).__name__} has no form in ONNX, for to_onnx does not know the link "
            f"of its objective {objective!r}: train it with one of {list(known)}."
        )
    trees, n_features = (_convert_xgboost if is_xgboost else _convert_lightgbm)(booster)
    n_scores = 1 if classes is None or len(classes) == 2 else len(classes)
    has_log_link = objective.startswith(LOG_LINKS)
    nodes = [_make_regressor(trees, n_scores)]
    if has_log_link and is_xgboost:  # onnxmltools multiplies means by the base score.
        learned = json.loads(booster.save_config())["learner"]["learner_model_param"]
        base = np.log(np.ravel(json.loads(learned["base_score"])))
        nodes[0].attribute.append(helper.make_attribute("base_values", base.tolist()))
    constants: dict[str, Any] = {"all": np.array([-1])}

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))

    if classes is None:
        if has_log_link:
            add("Exp", ["scores"], "means")
        add("Reshape", ["means" if has_log_link else "scores", "all"], "prediction")
        outputs: list[Any] = [("prediction", TensorProto.FLOAT, [None])]
    else:
        shift = getattr(model, "_threshold", np.zeros(n_scores))
        constants["shift"] = shift.astype(np.float32)
        add("Add", ["scores", "shift"], "shifted")
        if n_scores == 1:
            constants["zero"], constants["one"] = np.zeros(1, np.float32), np.ones(1, np.float32)
            add("Greater", ["shifted", "zero"], "is_second")
            add("Cast", ["is_second"], "decided", to=TensorProto.INT64)
            add("Sigmoid", ["scores"], "second")
            add("Sub", ["one", "second"], "first")
            add("Concat", ["first", "second"], "probabilities", axis=1)
        else:
            add("ArgMax", ["shifted"], "decided", axis=1)
            add("Softmax", ["scores"], "probabilities", axis=1)
        add("Reshape", ["decided", "all"], "codes")
        constants["classes"] = labels = _labels_of(classes)
        add("Gather", ["classes", "codes"], "label")
        kind = helper.np_dtype_to_tensor_dtype(labels.dtype)
        outputs = [
            ("label", kind, [None]),
            ("probabilities", TensorProto.FLOAT, [None, len(classes)]),
        ]
    graph = helper.make_graph(
        nodes,
        type(model).__name__,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, n_features])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    found = helper.make_model(graph, opset_imports=versions, producer_name="gbm_constrained")
    found.ir_version = 8  # That of operator set 13 and later, which runtimes since 2021 read.
    checker.check_model(found)
    if path is not None:
        with open(path, "wb") as file:
            file.write(found.SerializeToString())
    return found


def _refuse_what_is_beside_the_trees(model: Any) -> None:
    """Refuse decisions that one shift of the scores does not make."""
    kept = vars(model)
    if "prefixes_" in kept:
        what = "iterate='randomized' draws a prefix of the trees for each row"
        remedy = "train it with iterate='last' or 'best'"
    elif "_rules" in kept:
        what = "its metric is optimised by a mixture, or by rules of joint cells (mixture_)"
        remedy = "train it with solver=Reduction(deterministic=True), and without group metrics"
    elif "_group_offsets" in kept:
        what = "the offsets of its groups are kept beside the trees"
        remedy = "train it with probabilities='shifted', which puts them into the trees"
    else:
        return
    raise ValueError(f"This {type(model).__name__} has no form in ONNX, for {what}: {remedy}.")


def _convert_xgboost(booster: Any) -> tuple[Any, int]:
    """Convert a booster of XGBoost: its operator, and the number of its features."""
    with explain_missing("Models in ONNX", "onnx"):
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    n, best = booster.num_features(), booster.attr("best_iteration")
    # Early stopping of the library itself keeps later rounds.
    bare = booster.copy() if best is None else booster[: int(best) + 1]
    bare.feature_names = None  # onnxmltools reads names of columns as numbers.
    return convert_xgboost(bare, initial_types=[("X", FloatTensorType([None, n]))]), n


def _convert_lightgbm(booster: Any) -> tuple[Any, int]:
    """Convert a booster of LightGBM, whose thresholds are rounded down to single precision."""
    with explain_missing("Models in ONNX", "onnx"):
        from lightgbm import Booster
        from onnxmltools import convert_lightgbm
        from onnxmltools.convert.common.data_types import FloatTensorType
    n = booster.num_feature()

    def round_down(line: re.Match[str]) -> str:
        exact = np.array(line[1].split(" "), dtype=np.float64)
        near = exact.astype(np.float32)
        below = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near)
        return "threshold=" + " ".join(repr(float(value)) for value in below)

    text = booster.model_to_string()
    if "\nis_linear=1\n" in text:
        raise ValueError(
            "Trees of ONNX have constant leaves, and linear_tree=True makes linear ones: train "
            "the model without it."
        )
    text = re.sub(r"(?<=\n)threshold=(.+)", round_down, text)
    text = re.sub(r"(?<=\n)tree_sizes=.*\n", "", text)  # The bytes of each tree have changed.
    given = {"initial_types": [("X", FloatTensorType([None, n]))], "zipmap": False}
    return convert_lightgbm(Booster(model_str=text), **given), n


def _make_regressor(converted: Any, n_scores: int) -> Any:
    """Make the operator that adds up the trees of a converted model, without a link."""
    from onnx import helper

    (trees,) = (n for n in converted.graph.node if n.op_type.startswith("TreeEnsemble"))
    given = {a.name: helper.get_attribute_value(a) for a in trees.attribute}
    given = {name: value for name, value in given.items() if "classlabels" not in name}
    of_targets = {re.sub("^class_", "target_", name): value for name, value in given.items()}
    if n_scores == 1:
        of_targets["target_ids"] = [0] * len(of_targets["target_ids"])
        if "base_values" in of_targets:
            of_targets["base_values"] = of_targets["base_values"][-1:]
    of_targets |= {"n_targets": n_scores, "post_transform": "NONE"}
    name, domain = "TreeEnsembleRegressor", "ai.onnx.ml"
    return helper.make_node(name, ["X"], ["scores"], domain=domain, **of_targets)


def _objective_of(booster: Any, *, is_xgboost: bool) -> str:
    """Name the objective of a booster, with the parameters that its file gives beside it."""
    if is_xgboost:
        return str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    found = re.search(r"(?<=\n)objective=(.+)", booster.model_to_string(num_iteration=1))
    return "" if found is None else found[1]


def _labels_of(classes: Any) -> Any:
    """Give the labels of the classes a type that ONNX has."""
    labels = np.asarray(classes)
    if labels.dtype.kind in "iu":
        return labels.astype(np.int64)
    if labels.dtype.kind in "fb":
        return labels
    return labels.astype(str).astype(object)
