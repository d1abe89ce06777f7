r"""Edits of XGBoost's models in their binary form.

.. math:: s(x) = \frac{1}{K} \sum_k \Big( b_k + \sum_t f_{kt}(x) \Big)

The trees of all boosters stand one after another, their leaves are divided by :math:`K`, and the
intercept is the mean of the intercepts :math:`b_k`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xgboost as xgb
from scipy.special import expit, logit

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.regression import Affine
from gbm_constrained.fit.black_box_fit import ScoreColumns
from gbm_constrained.scorers import ubjson
from gbm_constrained.scorers.trained_models import (
    GroupTree,
    check_number,
    collect_rounds,
    indicate_leaves,
    name_leaves,
)


def keep_first_rounds(booster: xgb.Booster, end: int) -> xgb.Booster:
    """Cut a booster to its first rounds, with its categories and attributes.

    XGBoost's own slice loses the best iteration of early stopping, and the categories: it would
    read the codes of any table as those of the training rows.
    """
    kept = keep_attributes(booster[:end], booster)
    if "c" not in (booster.feature_types or ()):
        return kept
    config = kept.save_config()
    model = _read(kept)
    _trees_of(model)["cats"] = _trees_of(_read(booster))["cats"]
    kept.load_model(ubjson.write(model))
    kept.load_config(config)
    return kept


def keep_attributes(made: xgb.Booster, booster: xgb.Booster) -> xgb.Booster:
    """Give a booster the attributes that callbacks have set on the one that it replaces."""
    made.set_attr(**booster.attributes())
    for name in vars(booster).keys() - vars(made).keys():
        setattr(made, name, getattr(booster, name))
    return made


def _read(booster: xgb.Booster) -> dict[str, Any]:
    """Read a model in its binary form; arrays of numbers can be written to."""
    model: dict[str, Any] = ubjson.read(booster.save_raw("ubj"))
    return model


def _trees_of(model: dict[str, Any]) -> dict[str, Any]:
    """Give the forest of a model of ``gbtree`` that has been read."""
    forest: dict[str, Any] = model["learner"]["gradient_booster"]["model"]
    return forest


def has_dropped_trees(booster: xgb.Booster) -> bool:
    """Whether DART has trained a booster, whose trees then have weights of their own."""
    gradient_booster = _read(booster)["learner"]["gradient_booster"]
    if gradient_booster["name"] != "gbtree":
        return bool(gradient_booster["name"] == "dart")
    weights = gradient_booster["model"].get("weight_drop", ())  # XGBoost 3.4 writes these.
    return bool(np.any(np.asarray(weights) != 1.0))


def shift_intercept(booster: xgb.Booster, shift: Array) -> None:
    """Add ``shift[k]`` to all margins of class k that a booster of trees predicts, in place.

    The shift goes into the leaves of one tree of each class in the first round, and so into all
    prefixes. ``base_score`` takes the shift only where there is no tree: for two classes it is a
    probability in float32, which has no room for large margins.
    """
    config, data = booster.save_config(), booster.save_raw("ubj")
    model = ubjson.read(data)
    forest = _trees_of(model)
    if forest["trees"]:
        for i, add in _carriers(forest, shift):
            _add_to_leaves(forest["trees"][i], add)  # The arrays are views of the data.
    else:
        configuration = json.loads(config)
        for holder in (model, configuration):
            _add_to_base_score(holder["learner"]["learner_model_param"], shift)
        config, data = json.dumps(configuration), ubjson.write(model)
    booster.load_model(data)
    booster.load_config(config)  # The model has no parameters of training.


def _carriers(forest: dict[str, Any], shift: Array) -> list[tuple[int, Array]]:
    """List the trees of the first round that take the shift, and what their leaves add."""
    if int(forest["trees"][0]["tree_param"]["size_leaf_vector"]) > 1:  # all classes in one tree
        return [(0, shift)]
    classes = list(forest["tree_info"])
    return [(classes.index(k), shift[k : k + 1]) for k in range(shift.size)]


def _add_to_leaves(tree: dict[str, Any], add: Array) -> None:
    if add.size == 1:
        tree["split_conditions"][tree["left_children"] == -1] += add
    else:
        _of_classes(tree["leaf_weights"], add)[...] += add
    _of_classes(tree["base_weights"], add)[...] += add


def _of_classes(values: Array, add: Array) -> Array:
    """View the values of nodes with one column for each class."""
    return values.reshape(-1, add.size)


def _add_to_base_score(parameters: dict[str, str], shift: Array) -> None:
    base_score = np.broadcast_to(np.ravel(json.loads(parameters["base_score"])), shift.shape)
    if shift.size == 1:
        # The largest probability below one in float32 is 1 - 2^-24.
        base_score = np.clip(expit(logit(base_score) + shift), 1e-30, 1.0 - 2.0**-24)
    else:
        base_score = base_score + shift
    parameters["base_score"] = json.dumps(base_score.tolist())
    parameters["boost_from_average"] = "0"


def as_scores(predicted: Any, columns: int) -> Array:
    """Give scores their shape, (n_samples,) or (n_samples, n_classes), without rows as well."""
    scores = np.asarray(predicted)
    return scores.reshape(0, columns) if not scores.size and columns > 1 else scores


OF_PROBABILITIES = ("binary:logistic", "binary:logitraw", "reg:logistic")
"""Objectives whose ``base_score`` is a probability."""
MAX_ROUNDING = 1e-6  # Rounding of the intercept that single precision leaves in other scores.


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
    for booster in boosters:
        _check_trees(booster)
    models = [ubjson.read(booster.save_raw("ubj")) for booster in boosters]
    first = models[0]
    forests = [model["learner"]["gradient_booster"]["model"] for model in models]
    _check_categories(forests)
    for forest in forests:
        for tree in forest["trees"]:
            scale_leaves(tree, np.float32(1.0 / len(forests)))
    concatenate(forests)
    intercept = np.mean([intercept_of(model) for model in models], axis=0)
    rounding = _set_intercept(first, intercept)
    merged = xgb.Booster()
    merged.load_model(ubjson.write(first))
    merged.load_config(config_of(boosters[0], first))
    merged.set_attr(best_iteration=None, best_score=None)  # of the first booster
    if np.abs(rounding).max() > MAX_ROUNDING and merged.num_boosted_rounds():
        shift_intercept(merged, rounding)
    return merged


def best_rounds(booster: xgb.Booster) -> xgb.Booster:
    """Cut a booster to the rounds that ``predict`` takes."""
    best = booster.attr("best_iteration")
    if best is None or int(best) + 1 == booster.num_boosted_rounds():
        return booster
    return keep_first_rounds(booster, int(best) + 1)


def _check_trees(booster: xgb.Booster) -> None:
    """Refuse a booster that is not a plain sum of trees."""
    name = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"]
    name = "dart" if has_dropped_trees(booster) else name
    if name != "gbtree":
        raise ValueError(
            f"ensemble='folds' divides the leaves of trees, and booster={name!r} has its own "
            f"weights beside them: use booster='gbtree', or ensemble=None."
        )


def _check_categories(forests: list[dict[str, Any]]) -> None:
    """Refuse models that number the categories of a column differently."""
    if len({bytes(ubjson.write(forest.get("cats"))) for forest in forests}) > 1:
        raise ValueError(
            "ensemble='folds' merges boosters that number categories alike, and the rows of the "
            "folds have other lists of categories: give each column one fixed list of categories "
            "(pandas Categorical, polars Enum), or ensemble=None."
        )


def concatenate(forests: list[dict[str, Any]]) -> None:
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


def scale_leaves(tree: dict[str, Any], scale: Any) -> None:
    """Multiply the leaves of a tree of a model that has been read."""
    tree["base_weights"] *= scale
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:  # all classes in one tree
        tree["leaf_weights"] *= scale
    else:
        tree["split_conditions"][tree["left_children"] == -1] *= scale


def intercept_of(model: dict[str, Any]) -> Array:
    """Scores that the trees are added to, of shape (1,) or (n_classes,), as XGBoost computes."""
    learner = model["learner"]
    forest = learner["gradient_booster"]["model"]
    parameters = {**forest["gbtree_model_param"], "num_trees": "0"}
    empty = {
        **forest, "trees": [], "tree_info": [], "iteration_indptr": [0],
        "gbtree_model_param": parameters,
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


def _set_intercept(model: dict[str, Any], intercept: Array) -> Array:
    """Set the intercept of a model, and return what single precision leaves out of it."""
    learner = model["learner"]
    is_probability = learner["objective"]["name"] in OF_PROBABILITIES
    base_score = expit(intercept) if is_probability else intercept
    parameters = learner["learner_model_param"]
    parameters["base_score"] = json.dumps(base_score.tolist())
    parameters["boost_from_average"] = "0"
    return np.asarray(intercept - intercept_of(model))


def config_of(booster: xgb.Booster, model: dict[str, Any]) -> str:
    """Write the configuration of a booster as that of the model that takes its place."""
    config = json.loads(booster.save_config())
    learner, merged = config["learner"], model["learner"]
    learner["learner_model_param"] = merged["learner_model_param"]
    n_trees = merged["gradient_booster"]["model"]["gbtree_model_param"]
    if "gbtree_model_param" in learner["gradient_booster"]:
        learner["gradient_booster"]["gbtree_model_param"] = n_trees
    return json.dumps(config)


def rescale(booster: xgb.Booster, affine: Affine) -> None:
    """Map the scores of a booster by its leaves, in place."""
    config, data = booster.save_config(), booster.save_raw("ubj")
    read: dict[str, Any] = ubjson.read(data)
    for tree in read["learner"]["gradient_booster"]["model"]["trees"]:
        scale_leaves(tree, np.float32(affine.scale))  # The arrays are views of the data.
    start = float(intercept_of(read)[0])
    booster.load_model(data)
    booster.load_config(config)
    shift_intercept(booster, np.array([affine.shift + (affine.scale - 1.0) * start]))


NO_PARENT = 2147483647  # As XGBoost writes it.


def append_group_tree(booster: xgb.Booster, tree: GroupTree) -> xgb.Booster:
    """Append a tree of offsets of groups, after the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster with one score for each row.
    tree : GroupTree
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
    intercept_of_sum(booster)
    written = _write(tree, booster.num_features())
    forest = {
        "trees": [written], "tree_info": [0], "iteration_indptr": [0, 1],
        "weight_drop": np.ones(1, dtype=">f4"),
    }  # fmt: skip
    booster = best_rounds(booster)
    read = ubjson.read(booster.save_raw("ubj"))
    concatenate([read["learner"]["gradient_booster"]["model"], forest])
    appended = xgb.Booster()
    appended.load_model(ubjson.write(read))
    appended.load_config(config_of(booster, read))
    keep_attributes(appended, booster)
    if booster.attr("best_iteration") is not None:  # ``predict`` takes the rounds up to it.
        appended.set_attr(best_iteration=str(appended.num_boosted_rounds() - 1))
    return appended


def intercept_of_sum(booster: xgb.Booster) -> float:
    """Find the intercept of a booster that is a sum of trees for two classes, or refuse it."""
    read = ubjson.read(booster.save_raw("ubj"))
    name = "dart" if has_dropped_trees(booster) else read["learner"]["gradient_booster"]["name"]
    if name != "gbtree":
        raise ValueError(
            f"space='trees' gives trees their weights, and booster={name!r} has weights of its "
            f"own: use booster='gbtree'."
        )
    intercept = intercept_of(read)
    if intercept.size > 1:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has scores of several "
            "classes."
        )
    return float(intercept[0])


def _write(tree: GroupTree, n_features: int) -> dict[str, Any]:
    """Write a tree as XGBoost does in its binary form."""
    nodes = tree.nodes
    is_leaf = np.array([node.feature is None for node in nodes])
    category = np.array([-1 if node.category is None else node.category for node in nodes])
    value = np.array([node.value for node in nodes])
    parents = np.full(len(nodes), NO_PARENT)
    for i, node in enumerate(nodes):
        parents[[j for j in (node.left, node.right) if j >= 0]] = i
    at = np.flatnonzero(category >= 0)
    threshold = np.array([_next_single(node.threshold) for node in nodes])
    flags = {
        "default_left": ~is_leaf & (category < 0) | (category >= 0),
        "split_type": category >= 0,
    }
    numbers = {
        "base_weights": value,
        "loss_changes": np.zeros(len(nodes)),
        "split_conditions": np.where(is_leaf, value, threshold),
        "sum_hessian": np.array([node.weight for node in nodes]),
    }
    positions = {
        "categories": category[at],
        "categories_nodes": at,
        "left_children": np.array([node.left for node in nodes]),
        "parents": parents,
        "right_children": np.array([node.right for node in nodes]),
        "split_indices": np.array([node.feature or 0 for node in nodes]),
    }
    places = {"categories_segments": np.arange(at.size), "categories_sizes": np.ones(at.size)}
    arrays = {
        **{name: array.astype(np.uint8) for name, array in flags.items()},
        **{name: array.astype(">f4") for name, array in numbers.items()},
        **{name: array.astype(">i4") for name, array in positions.items()},
        **{name: array.astype(">i8") for name, array in places.items()},
    }
    size = {
        "num_deleted": "0", "num_feature": str(n_features), "num_nodes": str(len(nodes)),
        "size_leaf_vector": "1",
    }  # fmt: skip
    written = {**arrays, "id": 0, "tree_param": size}
    return dict(sorted(written.items()))


def _next_single(threshold: float) -> np.float32:
    """Find the least number of single precision above a threshold: XGBoost goes left below it."""
    single = np.float32(threshold)
    return single if float(single) > threshold else np.nextafter(single, np.float32(np.inf))


class XGBTreeWeights:
    """Weights of the rounds of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """

    takes_offsets = True

    def __init__(self, model: Any) -> None:
        self.model = model
        self._base = intercept_of_sum(model.get_booster())
        n_rounds = best_rounds(model.get_booster()).num_boosted_rounds()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Score rows by each round, and put further columns beside the scores."""
        return ScoreColumns(score_rounds(self.model, X, beside), self._base)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Weigh the rounds, and add to all scores."""
        self._take(weight_rounds(self.model.get_booster(), parameters, intercept))

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        self._take(append_group_tree(self.model.get_booster(), GroupTree.of(X, offsets, groups)))

    def _take(self, booster: xgb.Booster) -> None:
        self.model._Booster = booster


def score_rounds(model: xgb.XGBClassifier, X: Any, beside: Array) -> Array:
    """Score rows by each round, up to the best iteration, without the intercept.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes that is a sum of trees.
    X : array-like of shape (n_samples, n_features)
        Rows.
    beside : ndarray of shape (n_samples, k)
        Columns to put beside the scores.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
    """
    # A base margin takes the place of the intercept, so that none is rounded away.
    start = np.zeros(len(beside), dtype=np.float32)

    def score(t: int) -> Array:
        found = xgb.XGBClassifier.predict(
            model, X, output_margin=True, base_margin=start, iteration_range=(t, t + 1)
        )
        return np.asarray(found)

    return collect_rounds(score, best_rounds(model.get_booster()).num_boosted_rounds(), beside)


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
    intercept_of_sum(booster)
    booster = best_rounds(booster)
    config, data = booster.save_config(), booster.save_raw("ubj")
    forest = ubjson.read(data)["learner"]["gradient_booster"]["model"]
    sizes = np.diff(forest["iteration_indptr"])
    check_number(weights, sizes.size)
    for tree, weight in zip(forest["trees"], np.repeat(weights, sizes), strict=True):
        scale_leaves(tree, np.float32(weight))  # The arrays are views of the data.
    weighted = xgb.Booster()
    weighted.load_model(data)
    weighted.load_config(config)
    shift_intercept(weighted, np.array([intercept]))
    return keep_attributes(weighted, booster)


class XGBLeafValues(XGBTreeWeights):
    """Values of the leaves of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : XGBClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or is one of several classes.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        trees = _tree_list(ubjson.read(best_rounds(model.get_booster()).save_raw("ubj")))
        self._nodes = [_leaf_nodes(tree) for tree in trees]
        self._sizes = np.array([nodes.size for nodes in self._nodes])
        self.names = name_leaves(self._sizes)
        values = [
            tree["split_conditions"][nodes] for tree, nodes in zip(trees, self._nodes, strict=True)
        ]
        self.start = np.concatenate(values).astype(np.float64)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Make a column for each leaf, and put further columns beside them."""
        nodes = xgb.XGBClassifier.apply(self.model, X).reshape(len(beside), -1)
        leaves = [np.searchsorted(of_tree, nodes[:, t]) for t, of_tree in enumerate(self._nodes)]
        matrix = indicate_leaves(np.stack(leaves, axis=1), self._sizes, beside)
        return ScoreColumns(matrix, self._base)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the values of the leaves, and add to all scores."""
        booster = best_rounds(self.model.get_booster())
        config, data = booster.save_config(), booster.save_raw("ubj")
        values = np.split(parameters.astype(np.float32), np.cumsum(self._sizes)[:-1])
        read = ubjson.read(data)
        for tree, nodes, of_tree in zip(_tree_list(read), self._nodes, values, strict=True):
            tree["split_conditions"][nodes] = of_tree  # The arrays are views of the data.
            tree["base_weights"][nodes] = of_tree
        changed = xgb.Booster()
        changed.load_model(data)
        changed.load_config(config)
        shift_intercept(changed, np.array([intercept]))
        self._take(keep_attributes(changed, booster))


def _tree_list(model: dict[str, Any]) -> list[dict[str, Any]]:
    trees: list[dict[str, Any]] = model["learner"]["gradient_booster"]["model"]["trees"]
    return trees


def _leaf_nodes(tree: dict[str, Any]) -> Codes:
    """List the nodes of a tree that are leaves."""
    return np.flatnonzero(np.asarray(tree["left_children"]) == -1)
