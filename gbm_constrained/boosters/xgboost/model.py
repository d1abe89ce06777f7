"""Edits of XGBoost's models in their binary form: a cut, and a shift of all scores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xgboost as xgb
from scipy.special import expit, logit

from gbm_constrained._typing import Array
from gbm_constrained.boosters import ubjson


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
