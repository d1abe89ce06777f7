r"""Edits of XGBoost's models in their binary form.

.. math:: s(x) = \frac{1}{K} \sum_k \Big( b_k + \sum_t f_{kt}(x) \Big)

The trees of all boosters stand one after another, their leaves are divided by :math:`K`, and the
intercept is the mean of the intercepts :math:`b_k`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import xgboost as xgb
from scipy.special import expit, logit

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.regression import Affine
from gbm_constrained.scorers import ubjson
from gbm_constrained.scorers.trained_models import Node, check_number


def read_model(booster: xgb.Booster) -> dict[str, Any]:
    """Read a model in its binary form; arrays of numbers can be written to."""
    model: dict[str, Any] = ubjson.read(booster.save_raw("ubj"))
    return model


def forest_of(model: dict[str, Any]) -> dict[str, Any]:
    """Give the forest of a model of ``gbtree`` that has been read."""
    forest: dict[str, Any] = model["learner"]["gradient_booster"]["model"]
    return forest


def replace_model(booster: xgb.Booster, model: dict[str, Any], source: xgb.Booster) -> None:
    """Give a booster a model that was made of that of `source`, which it is in all else."""
    config = json.loads(source.save_config())
    learner = config["learner"]
    learner["learner_model_param"] = model["learner"]["learner_model_param"]
    if "gbtree_model_param" in learner["gradient_booster"]:
        n_trees = forest_of(model)["gbtree_model_param"]
        learner["gradient_booster"]["gbtree_model_param"] = n_trees
    booster.load_model(ubjson.write(model))
    booster.load_config(json.dumps(config))


@contextmanager
def edited_model(booster: xgb.Booster) -> Iterator[dict[str, Any]]:
    """Read the model of a booster, which has it as it was changed afterwards."""
    model = read_model(booster)
    yield model
    replace_model(booster, model, booster)


def keep_first_rounds(booster: xgb.Booster, end: int) -> xgb.Booster:
    """Cut a booster to its first rounds, with its categories and attributes.

    XGBoost's own slice loses the best iteration of early stopping, and the categories: it would
    read the codes of any table as those of the training rows.
    """
    kept = booster[:end]
    kept.set_attr(**booster.attributes())
    for name in vars(booster).keys() - vars(kept).keys():  # as callbacks have set them
        setattr(kept, name, getattr(booster, name))
    if "c" not in (booster.feature_types or ()):
        return kept
    with edited_model(kept) as model:
        forest_of(model)["cats"] = forest_of(read_model(booster))["cats"]
    return kept


def best_rounds(booster: xgb.Booster) -> xgb.Booster:
    """Cut a booster to the rounds that ``predict`` takes."""
    best = booster.attr("best_iteration")
    if best is None or int(best) + 1 == booster.num_boosted_rounds():
        return booster
    return keep_first_rounds(booster, int(best) + 1)


def find_kind(booster: xgb.Booster) -> str:
    """Find the kind of a booster: "dart" wherever trees have weights of their own."""
    found = read_model(booster)["learner"]["gradient_booster"]
    if found["name"] != "gbtree":
        return str(found["name"])
    weights = found["model"].get("weight_drop", ())  # XGBoost 3.4 writes these.
    return "dart" if np.any(np.asarray(weights) != 1.0) else "gbtree"


def shift_intercept(booster: xgb.Booster, shift: Array) -> xgb.Booster:
    """Add ``shift[k]`` to all margins of class k that a booster of trees predicts, in place.

    The shift goes into the leaves of one tree of each class in the first round, and so into all
    prefixes. ``base_score`` takes the shift only where there is no tree: for two classes it is a
    probability in float32, which has no room for large margins.
    """
    with edited_model(booster) as model:
        trees, info = (forest_of(model)[name] for name in ("trees", "tree_info"))
        if not trees:
            parameters = model["learner"]["learner_model_param"]
            given = np.ravel(json.loads(parameters["base_score"]))
            base_score = np.broadcast_to(given, shift.shape) + shift
            if shift.size == 1:
                # The largest probability below one in float32 is 1 - 2^-24.
                base_score = np.clip(expit(logit(given) + shift), 1e-30, 1.0 - 2.0**-24)
            parameters |= {
                "base_score": json.dumps(base_score.tolist()),
                "boost_from_average": "0",
            }
        elif int(trees[0]["tree_param"]["size_leaf_vector"]) > 1:  # all classes in one tree
            for name in ("leaf_weights", "base_weights"):
                trees[0][name].reshape(-1, shift.size)[...] += shift
        else:
            for k in range(shift.size):
                tree, add = trees[list(info).index(k)], shift[k : k + 1]
                tree["split_conditions"][tree["left_children"] == -1] += add
                tree["base_weights"] += add
    return booster


def as_scores(predicted: Any, columns: int) -> Array:
    """Give scores their shape, (n_samples,) or (n_samples, n_classes), without rows as well."""
    scores = np.asarray(predicted)
    return scores.reshape(0, columns) if not scores.size and columns > 1 else scores


def merge_boosters(boosters: Sequence[xgb.Booster]) -> xgb.Booster:
    """Merge boosters into one whose raw score is the mean of their raw scores.

    Parameters
    ----------
    boosters : sequence of Booster
        Boosters of ``gbtree`` for the same columns and classes; of each, the rounds up to its
        best iteration are taken.

    Raises
    ------
    ValueError
        If the boosters have no trees whose leaves could be divided, or number the categories of
        a column differently.
    """
    boosters = [best_rounds(booster) for booster in boosters]
    for name in map(find_kind, boosters):
        if name != "gbtree":
            raise ValueError(
                f"Reduction(ensemble='folds') divides the leaves of trees, and booster={name!r} "
                f"has its own weights beside them: use booster='gbtree', or "
                f"Reduction(ensemble=None)."
            )
    models = [read_model(booster) for booster in boosters]
    first, forests = models[0], [forest_of(model) for model in models]
    if len({bytes(ubjson.write(forest.get("cats"))) for forest in forests}) > 1:
        raise ValueError(
            "Reduction(ensemble='folds') merges boosters that number categories alike, and the "
            "rows of the folds have other lists of categories: give each column one fixed list "
            "of categories (pandas Categorical, polars Enum), or Reduction(ensemble=None)."
        )
    for forest in forests:
        for tree in forest["trees"]:
            _scale_leaves(tree, np.float32(1.0 / len(forests)))
    _concatenate(forests)
    intercept = np.mean([intercept_of(model) for model in models], axis=0)
    objectives = ("binary:logistic", "binary:logitraw", "reg:logistic")
    is_probability = first["learner"]["objective"]["name"] in objectives
    parameters = first["learner"]["learner_model_param"]
    base_score = expit(intercept) if is_probability else intercept
    parameters |= {"base_score": json.dumps(base_score.tolist()), "boost_from_average": "0"}
    rounding = intercept - intercept_of(first)  # by single precision
    merged = xgb.Booster()
    replace_model(merged, first, boosters[0])
    merged.set_attr(best_iteration=None, best_score=None)  # of the first booster
    if np.abs(rounding).max() > 1e-6 and merged.num_boosted_rounds():  # Others are its last digit.
        shift_intercept(merged, rounding)
    return merged


def _concatenate(forests: list[dict[str, Any]]) -> None:
    """Put the trees of all forests into the first one."""
    trees, info, sizes = [], [], [0]
    for forest in forests:
        trees += forest["trees"]
        info += list(forest["tree_info"])
        sizes += np.diff(forest["iteration_indptr"]).tolist()
    for i, tree in enumerate(trees):
        tree["id"] = i
    first = forests[0]
    if "weight_drop" in first:  # There from XGBoost 3.4 on, and ones for all but DART.
        first["weight_drop"] = np.concatenate([forest["weight_drop"] for forest in forests])
    first.update(trees=trees, tree_info=info, iteration_indptr=np.cumsum(sizes).tolist())
    first["gbtree_model_param"]["num_trees"] = str(len(trees))


def _scale_leaves(tree: dict[str, Any], scale: Any) -> None:
    """Multiply the leaves of a tree of a model that has been read."""
    tree["base_weights"] *= scale
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:  # all classes in one tree
        tree["leaf_weights"] *= scale
    else:
        tree["split_conditions"][tree["left_children"] == -1] *= scale


def intercept_of(model: dict[str, Any]) -> Array:
    """Scores that the trees are added to, of shape (1,) or (n_classes,), as XGBoost computes."""
    learner, forest = model["learner"], forest_of(model)
    empty = {
        **forest, "trees": [], "tree_info": [], "iteration_indptr": [0],
        "gbtree_model_param": {**forest["gbtree_model_param"], "num_trees": "0"},
    }  # fmt: skip
    without_trees = {
        **learner,
        "gradient_booster": {"name": "gbtree", "model": empty},
        # Without trees XGBoost would find the intercept anew.
        "learner_model_param": {**learner["learner_model_param"], "boost_from_average": "0"},
    }
    booster = xgb.Booster()
    booster.load_model(ubjson.write({**model, "learner": without_trees}))
    row = xgb.DMatrix(np.zeros((1, booster.num_features())))
    found = booster.predict(row, output_margin=True, validate_features=False)
    return np.ravel(found).astype(np.float64)


def rescale(booster: xgb.Booster, affine: Affine) -> xgb.Booster:
    """Map the scores of a booster by its leaves, in place."""
    with edited_model(booster) as model:
        for tree in forest_of(model)["trees"]:
            _scale_leaves(tree, np.float32(affine.scale))
        start = float(intercept_of(model)[0])
    return shift_intercept(booster, np.array([affine.shift + (affine.scale - 1.0) * start]))


def append_group_tree(booster: xgb.Booster, tree: Sequence[Node]) -> xgb.Booster:
    """Append a tree of offsets of groups, after the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster with one score for each row.
    tree : sequence of Node
        The offsets.

    Returns
    -------
    Booster
        Its file is read by XGBoost alone.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    describe_sum(booster)
    written = _write(tree, booster.num_features())
    forest = {
        "trees": [written], "tree_info": [0], "iteration_indptr": [0, 1],
        "weight_drop": np.ones(1, dtype=">f4"),
    }  # fmt: skip
    appended = best_rounds(booster).copy()
    with edited_model(appended) as model:
        _concatenate([forest_of(model), forest])
    if booster.attr("best_iteration") is not None:  # ``predict`` takes the rounds up to it.
        appended.set_attr(best_iteration=str(appended.num_boosted_rounds() - 1))
    return appended


def _write(nodes: Sequence[Node], n_features: int) -> dict[str, Any]:
    """Write a tree as XGBoost does in its binary form."""
    is_leaf = np.array([node.feature is None for node in nodes])
    category = np.array([-1 if node.category is None else node.category for node in nodes])
    value = np.array([node.value for node in nodes])
    parents = np.full(len(nodes), 2147483647)  # As XGBoost writes it of the root.
    for i, node in enumerate(nodes):
        parents[[j for j in (node.left, node.right) if j >= 0]] = i
    at = np.flatnonzero(category >= 0)
    # XGBoost goes left below a threshold: this is the least number of single precision above it.
    threshold = np.array([node.threshold for node in nodes])
    single = threshold.astype(np.float32)
    above = np.where(single > threshold, single, np.nextafter(single, np.float32(np.inf)))
    numbers: dict[str, tuple[str, Any]] = {
        "base_weights": (">f4", value),
        "categories": (">i4", category[at]),
        "categories_nodes": (">i4", at),
        "categories_segments": (">i8", np.arange(at.size)),
        "categories_sizes": (">i8", np.ones(at.size)),
        "default_left": ("u1", ~is_leaf),
        "left_children": (">i4", [node.left for node in nodes]),
        "loss_changes": (">f4", np.zeros(len(nodes))),
        "parents": (">i4", parents),
        "right_children": (">i4", [node.right for node in nodes]),
        "split_conditions": (">f4", np.where(is_leaf, value, above)),
        "split_indices": (">i4", [node.feature or 0 for node in nodes]),
        "split_type": ("u1", category >= 0),
        "sum_hessian": (">f4", [node.weight for node in nodes]),
    }
    written = {name: np.asarray(array).astype(kind) for name, (kind, array) in numbers.items()}
    size = {
        "num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(len(nodes)),
        "size_leaf_vector": "1",
    }  # fmt: skip
    return dict(sorted({**written, "id": 0, "tree_param": size}.items()))


def weight_rounds(booster: xgb.Booster, weights: Float, intercept: float) -> xgb.Booster:
    """Make a booster whose rounds have weights, up to its best iteration.

    Parameters
    ----------
    booster : Booster
        A booster of two classes.
    weights : ndarray of shape (n_rounds,)
        Weight of each round up to the best iteration.
    intercept : float
        What is added to all scores.

    Returns
    -------
    Booster
        Its file is read by XGBoost alone.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    describe_sum(booster)
    weighted = best_rounds(booster).copy()
    with edited_model(weighted) as model:
        forest = forest_of(model)
        sizes = np.diff(forest["iteration_indptr"])
        check_number(weights, sizes.size)
        for tree, weight in zip(forest["trees"], np.repeat(weights, sizes), strict=True):
            _scale_leaves(tree, np.float32(weight))
    return shift_intercept(weighted, np.array([intercept]))


def describe_sum(booster: xgb.Booster) -> tuple[float, int]:
    """Find the intercept and the rounds of a booster that is a sum of trees for two classes.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """
    if (name := find_kind(booster)) != "gbtree":
        raise ValueError(
            f"space='trees' gives trees their weights, and booster={name!r} has weights of its "
            f"own: use booster='gbtree'."
        )
    intercept = intercept_of(read_model(booster))
    if intercept.size > 1:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has scores of several "
            "classes."
        )
    return float(intercept[0]), best_rounds(booster).num_boosted_rounds()


def score_round(model: xgb.XGBClassifier, X: Any, t: int) -> Array:
    """Score rows by the tree of one round."""
    # A base margin takes the place of the intercept, so that none is rounded away.
    start = np.zeros(number_of_rows(X), dtype=np.float32)
    found = xgb.XGBClassifier.predict(
        model, X, output_margin=True, base_margin=start, iteration_range=(t, t + 1)
    )
    return np.asarray(found)


def _leaves_of(tree: dict[str, Any]) -> Codes:
    """Find the positions of the leaves among the nodes of a tree that has been read."""
    return np.flatnonzero(np.asarray(tree["left_children"]) == -1)


def contributions(model: xgb.XGBModel, X: Any, *, tree_shap: bool) -> tuple[Float, Array]:
    """Compute the contributions of the features to the score of each row, and the score.

    Contributions have shape (n_samples, n_features + 1), with a constant as the last one.
    """
    rows = xgb.DMatrix(X, missing=model.missing, enable_categorical=True, nthread=model.n_jobs)
    booster = best_rounds(model.get_booster())
    found = booster.predict(rows, pred_contribs=True, approx_contribs=not tree_shap)
    return np.asarray(found, dtype=np.float64), booster.predict(rows, output_margin=True)


def read_leaves(booster: xgb.Booster) -> list[Array]:
    """Read the values of the leaves of each tree, up to the best iteration."""
    trees = forest_of(read_model(best_rounds(booster)))["trees"]
    return [tree["split_conditions"][_leaves_of(tree)] for tree in trees]


def find_leaves(model: xgb.XGBClassifier, X: Any) -> Codes:
    """Find the leaf of each row in each tree, counted from zero within the tree."""
    trees = forest_of(read_model(best_rounds(model.get_booster())))["trees"]
    nodes = xgb.XGBClassifier.apply(model, X).reshape(-1, len(trees))
    leaves = [np.searchsorted(_leaves_of(tree), nodes[:, t]) for t, tree in enumerate(trees)]
    return np.stack(leaves, axis=1)


def set_leaves(booster: xgb.Booster, values: Sequence[Float], intercept: float) -> xgb.Booster:
    """Make a booster whose leaves have other values, and add to all scores."""
    changed = best_rounds(booster).copy()
    with edited_model(changed) as model:
        for tree, of_tree in zip(forest_of(model)["trees"], values, strict=True):
            leaves = _leaves_of(tree)
            for name in ("split_conditions", "base_weights"):
                tree[name][leaves] = of_tree.astype(np.float32)
    return shift_intercept(changed, np.array([intercept]))
