"""A tree of offsets of groups, appended to a booster of LightGBM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import lightgbm as lgb

from gbm_constrained.boosters.group_tree import GroupTree
from gbm_constrained.boosters.lightgbm.model_text import join_trees, split_trees, with_text

WORD = 32  # Categories in a number of a bit set.
# Bits of a split: a category; missing values go left; missing values are NaN.
CATEGORICAL, MISSING_LEFT, MISSING_IS_NAN = 1, 2, 8


def append_group_tree(booster: lgb.Booster, tree: GroupTree) -> lgb.Booster:
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
        Its file is read by LightGBM alone.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    head, trees, rest = split_sum(booster.model_to_string())
    trees = [*trees, re.sub(r"\ATree=0", f"Tree={len(trees)}", _write(tree))]
    appended = with_text(booster, join_trees(head, trees, rest))
    appended.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return appended


def split_sum(text: str) -> tuple[str, list[str], str]:
    """Split the text of a booster that is the sum of one tree in each round, or refuse it."""
    head, trees, rest = split_trees(text)
    if "\naverage_output\n" in head:
        raise ValueError(
            "space='trees' weighs the trees of a sum, and boosting_type='rf' averages its trees: "
            "use another boosting_type."
        )
    if "\nnum_tree_per_iteration=1\n" not in head:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has a tree for each of "
            "several classes in a round."
        )
    return head, trees, rest


def _write(tree: GroupTree) -> str:
    """Write a tree as LightGBM does; splits and leaves are numbered apart.

    A category goes left in LightGBM where the row has it, so that its children change sides.
    """
    splits = [i for i, node in enumerate(tree.nodes) if node.feature is not None]
    leaves = [i for i, node in enumerate(tree.nodes) if node.feature is None]
    number = {i: k for k, i in enumerate(splits)} | {i: ~k for k, i in enumerate(leaves)}
    left, right, threshold, kind, bits, ends = [], [], [], [], list[int](), [0]
    for node in (tree.nodes[i] for i in splits):
        children = number[node.left], number[node.right]
        if node.category is None:
            threshold.append(format(node.threshold, ".17g"))
            kind.append(MISSING_LEFT | MISSING_IS_NAN)
        else:
            children = children[::-1]
            threshold.append(str(len(ends) - 1))
            kind.append(CATEGORICAL | MISSING_IS_NAN)
            word, bit = divmod(node.category, WORD)
            bits += [0] * word + [1 << bit]
            ends.append(len(bits))
        left.append(children[0])
        right.append(children[1])
    of_leaves = [tree.nodes[i] for i in leaves]
    of_splits = [tree.nodes[i] for i in splits]
    lines: dict[str, Any] = {
        "num_leaves": len(leaves),
        "num_cat": len(ends) - 1,
        "split_feature": [node.feature for node in of_splits],
        "split_gain": [0] * len(splits),
        "threshold": threshold,
        "decision_type": kind,
        "left_child": left,
        "right_child": right,
        "leaf_value": [format(node.value, ".17g") for node in of_leaves],
        "leaf_weight": [node.weight for node in of_leaves],
        "leaf_count": [round(node.weight) for node in of_leaves],
        "internal_value": [0] * len(splits),
        "internal_weight": [node.weight for node in of_splits],
        "internal_count": [round(node.weight) for node in of_splits],
    }
    if bits:
        lines |= {"cat_boundaries": ends, "cat_threshold": bits}
    lines |= {"is_linear": 0, "shrinkage": 1}
    text = "".join(f"{name}={_join(values)}\n" for name, values in lines.items())
    return f"Tree=0\n{text}\n\n"


def _join(values: Any) -> str:
    return " ".join(map(str, values)) if isinstance(values, Iterable) else str(values)
