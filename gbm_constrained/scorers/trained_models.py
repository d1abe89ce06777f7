"""Trees of groups, leaves and weights of rounds of a trained booster, as either library has them.

The tree splits by the columns that make the groups. Rows reach a leaf of their own only if each of
these columns has the very value of the group. All other rows, those of other or missing values,
reach leaves of zero.

In both libraries a row goes left at a number that is missing or at most the threshold, and at a
category that is missing or not the one of the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    `left` and ``left + 1``.
    """

    weight: float
    value: float = 0.0
    feature: int | None = None
    threshold: float = 0.0
    category: int | None = None
    left: int = -1

    @property
    def right(self) -> int:
        """Position of the right child; -1 of leaves."""
        return self.left if self.feature is None else self.left + 1


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
        outside = _Subtree(Node(max(sum(count) - inside, fewest)))
        found = [_grow(features, set(categories), outside, 0, members)]
        nodes = []
        for subtree in found:  # Grows while it is read, so that nodes stand level by level.
            left = len(found) if subtree.children else -1
            nodes.append(replace(subtree.node, left=left))
            found += subtree.children
        return cls(tuple(nodes))


@dataclass(frozen=True)
class _Subtree:
    """A node with the subtrees of its children."""

    node: Node
    children: tuple[_Subtree, ...] = ()

    @classmethod
    def split(cls, left: _Subtree, right: _Subtree, **by: Any) -> _Subtree:
        """Join two subtrees by a split."""
        return cls(Node(left.node.weight + right.node.weight, **by), (left, right))


def _grow(
    features: Sequence[int], categorical: set[int], outside: _Subtree, depth: int, members: Members
) -> _Subtree:
    """Grow the subtree of some groups, whose values agree in the first columns.

    One value of a column after the other is tested, in ascending order.
    """
    if depth == len(features):
        ((value, weight),) = members.values()
        return _Subtree(Node(weight, value))
    parts: dict[float, Members] = {}
    for key in sorted(members):
        parts.setdefault(key[depth], {})[key] = members[key]
    feature, others = features[depth], outside
    for number, part in reversed(parts.items()):
        of_value = _grow(features, categorical, outside, depth + 1, part)
        if feature in categorical:
            others = _Subtree.split(others, of_value, feature=feature, category=int(number))
            continue
        below, above = edges(number)
        inner = _Subtree.split(of_value, others, feature=feature, threshold=above)
        others = _Subtree.split(outside, inner, feature=feature, threshold=below)
    return others


def edges(value: float) -> tuple[float, float]:
    """Find thresholds on either side of a number that separate it in single precision.

    They lie midway to the next numbers of single precision, so that the number is on the same side
    in double precision. Around zero they are normal numbers, since the libraries may take others
    for zero.
    """
    single, at_least = np.float32(value), float(np.finfo(np.float32).tiny)
    neighbours = (np.nextafter(single, np.float32(end)) for end in (-np.inf, np.inf))
    below, above = ((float(single) + float(each)) / 2.0 for each in neighbours)
    return min(below, float(single) - at_least), max(above, float(single) + at_least)


def check_number(weights: Float, n_rounds: int) -> None:
    """Refuse weights that are not one for each round."""
    if weights.shape != (n_rounds,):
        raise ValueError(
            f"weights must hold one number for each of the {n_rounds} rounds, got shape "
            f"{weights.shape}."
        )


class TreeWeights(ABC):
    """Weights of the rounds of a trained classifier of two classes, up to its best iteration.

    Parameters
    ----------
    model : estimator
        The classifier, whose booster is a sum of one tree in each round.

    Attributes
    ----------
    names : list of str
        Names of the parameters.
    start : ndarray of shape (n_parameters,)
        Parameters that leave the model as it is.

    Raises
    ------
    ValueError
        If the booster is no sum of trees, or has several scores of a row.
    """

    takes_offsets = True
    base = 0.0  # What the columns of scores leave out of each score.

    def __init__(self, model: Any) -> None:
        self.model = model
        n_rounds = self._count_rounds()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start: Float = np.ones(n_rounds)

    @abstractmethod
    def _count_rounds(self) -> int:
        """Refuse boosters that cannot be weighed, and count the rounds to the best iteration."""

    @abstractmethod
    def _score_round(self, X: Any, t: int) -> Array:
        """Score rows by the tree of one round."""

    @abstractmethod
    def _change(self, parameters: Float, intercept: float) -> Any:
        """Make the booster that has other parameters, and adds to all scores."""

    @abstractmethod
    def _append(self, tree: GroupTree) -> Any:
        """Make the booster with one more tree."""

    @abstractmethod
    def _take(self, booster: Any) -> None:
        """Give the classifier another booster."""

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Score rows by each round, and put further columns beside the scores.

        The matrix of float32 of shape (n_samples, n_rounds + k) is the only array of its size.
        """
        n_rounds = len(self.names)
        shape = len(beside), n_rounds + beside.shape[1]
        matrix = np.empty(shape, dtype=np.float32, order="F")
        for t in range(n_rounds):
            matrix[:, t] = self._score_round(X, t)
        matrix[:, n_rounds:] = beside
        return matrix

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the parameters, and add to all scores."""
        self._take(self._change(parameters, intercept))

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        self._take(self._append(GroupTree.from_offsets(X, offsets, groups)))


class LeafValues(TreeWeights):
    """Values of the leaves of a trained classifier of two classes, up to its best iteration."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        values = self._read_leaves()
        self.sizes = np.array([len(of_tree) for of_tree in values])
        self.names = [f"leaf[{t}, {i}]" for t, size in enumerate(self.sizes) for i in range(size)]
        self.start = np.concatenate(values).astype(np.float64)

    @abstractmethod
    def _read_leaves(self) -> Sequence[Any]:
        """Read the values of the leaves of each tree."""

    @abstractmethod
    def _find_leaves(self, X: Any, n_samples: int) -> Codes:
        """Find the leaf of each row in each tree, counted from zero within the tree."""

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
