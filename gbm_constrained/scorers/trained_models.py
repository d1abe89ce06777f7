"""Trees of groups, leaves and weights of rounds of a trained booster, as either library has them.

The tree splits by the columns that make the groups. Rows reach a leaf of their own only if each of
these columns has the very value of the group. All other rows, those of other or missing values,
reach leaves of zero.

In both libraries a row goes left at a number that is missing or at most the threshold, and at a
category that is missing or not the one of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._dataframes import categories_of, names_of
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.groups import GroupOffsets, number_of


@dataclass(frozen=True)
class Node:
    """A split, or a leaf where `feature` is None; `weight` is the number of training rows.

    A split is by a threshold, or by a category where it has one. The children have the positions
    `left` and ``left + 1`` in a :class:`GroupTree`.
    """

    weight: float
    value: float = 0.0
    feature: int | None = None
    threshold: float = 0.0
    category: int | None = None
    left: int = -1
    children: tuple[Node, ...] = ()

    @property
    def right(self) -> int:
        """Position of the right child; -1 of leaves."""
        return self.left if self.feature is None else self.left + 1

    @classmethod
    def split(cls, left: Node, right: Node, **by: Any) -> Node:
        """Join two subtrees by a split."""
        return cls(left.weight + right.weight, children=(left, right), **by)


Members: TypeAlias = dict[tuple[float, ...], tuple[float, float]]
"""Offset and number of training rows by the values of a group."""


@dataclass(frozen=True, eq=False)
class GroupTree:
    """A tree as a list of nodes: the root first, and two children side by side after their parent.

    XGBoost looks for the right child at the position after the left one.
    """

    nodes: tuple[Node, ...]

    @classmethod
    def from_offsets(cls, X: Any, offsets: GroupOffsets, groups: Codes) -> GroupTree:
        """Make the tree of the offsets of groups.

        Parameters
        ----------
        X : table
            Training features, with the columns that make the groups.
        offsets : GroupOffsets
            Offset of each group.
        groups : ndarray of int of shape (n_samples,)
            Group of each training row.
        """
        names, categories = names_of(X), categories_of(X)
        features = [names.index(column) for column in offsets.columns]
        fewest = 1.0  # Explainers divide by the number of rows of a leaf.
        count = np.bincount(groups, minlength=len(offsets.levels)).tolist()
        members: Members = {}
        for g in np.flatnonzero(offsets.values).tolist():
            level = zip(offsets.levels[g], features, strict=True)
            key = tuple(number_of(value, categories.get(j)) for value, j in level)
            members[key] = float(offsets.values[g]), max(float(count[g]), fewest)
        inside = sum(weight for _, weight in members.values())
        outside = Node(max(sum(count) - inside, fewest))
        nodes = [_grow(features, set(categories), outside, 0, members)]
        for i, node in enumerate(nodes):  # Grows while it is read: nodes stand level by level.
            if node.children:
                nodes[i] = replace(node, left=len(nodes))
                nodes += node.children
        return cls(tuple(nodes))


def _grow(
    features: Sequence[int], categorical: set[int], outside: Node, depth: int, members: Members
) -> Node:
    """Grow the subtree of some groups, whose values agree in the first columns.

    One value of a column after the other is tested, in ascending order.
    """
    if depth == len(features):
        ((value, weight),) = members.values()
        return Node(weight, value)
    parts: dict[float, Members] = {}
    for key in sorted(members):
        parts.setdefault(key[depth], {})[key] = members[key]
    feature, others = features[depth], outside
    for number, part in reversed(parts.items()):
        of_value = _grow(features, categorical, outside, depth + 1, part)
        if feature in categorical:
            others = Node.split(others, of_value, feature=feature, category=int(number))
            continue
        below, above = edges(number)
        inner = Node.split(of_value, others, feature=feature, threshold=above)
        others = Node.split(outside, inner, feature=feature, threshold=below)
    return others


def edges(value: float) -> tuple[float, float]:
    """Find thresholds on either side of a number that separate it in single precision.

    They lie midway to the next numbers of single precision, so that the number is on the same side
    in double precision. Around zero they are normal numbers, since the libraries may take others
    for zero.
    """
    single, at_least = np.float32(value), float(np.finfo(np.float32).tiny)
    with np.errstate(over="ignore"):  # The largest number has infinity beside it.
        neighbours = [np.nextafter(single, np.float32(end)) for end in (-np.inf, np.inf)]
    below, above = ((float(single) + float(each)) / 2.0 for each in neighbours)
    return min(below, float(single) - at_least), max(above, float(single) + at_least)


def check_number(weights: Float, n_rounds: int) -> None:
    """Refuse weights that are not one for each round."""
    if weights.shape != (n_rounds,):
        raise ValueError(
            f"weights must hold one number for each of the {n_rounds} rounds, got shape "
            f"{weights.shape}."
        )


class TreeWeights:
    """Weights of the rounds of a trained classifier of two classes, up to its best iteration.

    Parameters
    ----------
    model : estimator
        The classifier, whose booster is a sum of one tree in each round.
    n_rounds : int
        Rounds up to the best iteration.

    Attributes
    ----------
    names : list of str
        Names of the parameters.
    start : ndarray of shape (n_parameters,)
        Parameters that leave the model as it is.
    base : float
        What the columns of scores leave out of each score.
    """

    base = 0.0
    _score_round: Callable[[Any, int], Array]  # Scores rows by the tree of one round.

    def __init__(self, model: Any, n_rounds: int) -> None:
        self.model, self.n_rounds = model, n_rounds
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start: Float = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Score rows by each round, and put further columns beside the scores.

        The matrix of float32 of shape (n_samples, n_rounds + k) is the only array of its size.
        """
        shape = len(beside), self.n_rounds + beside.shape[1]
        matrix = np.empty(shape, dtype=np.float32, order="F")
        for t in range(self.n_rounds):
            matrix[:, t] = self._score_round(X, t)
        matrix[:, self.n_rounds :] = beside
        return matrix


class LeafValues(TreeWeights):
    """Values of the leaves of a trained classifier of two classes, up to its best iteration."""

    # Finds the leaf of each row of X in each tree, counted from zero within the tree.
    _find_leaves: Callable[[Any, int], Codes]

    def _set_leaves(self, values: Sequence[Any]) -> None:
        """Make the values of the leaves of each tree the parameters."""
        self.sizes = np.array([len(of_tree) for of_tree in values])
        self.names = [f"leaf[{t}, {i}]" for t, size in enumerate(self.sizes) for i in range(size)]
        self.start = np.concatenate(values).astype(np.float64)

    def split_leaves(self, parameters: Float) -> list[Float]:
        """Split parameters into the values of each tree."""
        return np.split(parameters, np.cumsum(self.sizes)[:-1])

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Make a column for each leaf, which is one for its rows, and put further ones beside."""
        leaves = self._find_leaves(X, len(beside))
        n_samples, n_trees = leaves.shape
        columns = leaves + np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        ones = np.ones(n_samples * n_trees, dtype=np.float32)
        ends = np.arange(n_samples + 1) * n_trees
        shape = n_samples, int(self.sizes.sum())
        indicators = sparse.csr_array((ones, columns.ravel(), ends), shape=shape)
        matrix = sparse.hstack([indicators, sparse.csr_array(beside)], format="csr")
        return matrix
