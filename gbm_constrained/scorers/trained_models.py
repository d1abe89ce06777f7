"""Trees of groups, leaves and weights of rounds of a trained booster, as either library has them.

The tree splits by the columns that make the groups. Rows reach a leaf of their own only if each of
these columns has the very value of the group. All other rows, those of other or missing values,
reach leaves of zero.

In both libraries a row goes left at a number that is missing or at most the threshold, and at a
category that is missing or not the one of the node.
"""

from __future__ import annotations

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
    `left` and ``left + 1`` in the list of :func:`make_group_tree`.
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


def make_group_tree(X: Any, offsets: GroupOffsets, groups: Codes) -> list[Node]:
    """Make the tree of the offsets of groups, as a list of its nodes.

    The root comes first, and two children stand side by side after their parent: XGBoost looks for
    the right child at the position after the left one.

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
    return nodes


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
    library : module
        Functions of the library that score rows by single rounds and change trees: ``models``.
    model : estimator
        The classifier, whose booster is a sum of one tree in each round.

    Attributes
    ----------
    names : list of str
        Names of the parameters.
    start : ndarray of shape (n_parameters,)
        Parameters that leave the model as it is.
    base : float
        What the columns of scores leave out of each score.
    """

    def __init__(self, library: Any, model: Any) -> None:
        self.library, self.model = library, model
        self.base, self.n_rounds = library.describe_sum(model._Booster)
        self.names = [f"tree[{t}]" for t in range(self.n_rounds)]
        self.start: Float = np.ones(self.n_rounds)

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Score rows by each round, and put further columns beside the scores.

        The matrix of float32 of shape (n_samples, n_rounds + k) is the only array of its size.
        """
        shape = len(beside), self.n_rounds + beside.shape[1]
        matrix = np.empty(shape, dtype=np.float32, order="F")
        for t in range(self.n_rounds):
            matrix[:, t] = self.library.score_round(self.model, X, t)
        matrix[:, self.n_rounds :] = beside
        return matrix

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the parameters, and add to all scores."""
        self._take(self.library.weight_rounds(self.model._Booster, parameters, intercept))

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        tree = make_group_tree(X, offsets, groups)
        self._take(self.library.append_group_tree(self.model._Booster, tree))

    def _take(self, booster: Any) -> None:
        self.model._Booster = booster
        if "_best_iteration" in vars(self.model):  # LightGBM keeps it beside the booster as well.
            self.model._best_iteration = booster.best_iteration


class LeafValues(TreeWeights):
    """Values of the leaves of a trained classifier of two classes, up to its best iteration."""

    def __init__(self, library: Any, model: Any) -> None:
        super().__init__(library, model)
        values = library.read_leaves(model._Booster)
        sizes = [len(of_tree) for of_tree in values]
        self.ends = np.cumsum(sizes)
        self.names = [f"leaf[{t}, {i}]" for t, size in enumerate(sizes) for i in range(size)]
        self.start = np.concatenate(values).astype(np.float64)

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Make a column for each leaf, which is one for its rows, and put further ones beside."""
        leaves = self.library.find_leaves(self.model, X).reshape(len(beside), -1)
        n_samples, n_trees = leaves.shape
        columns = leaves + np.concatenate([[0], self.ends[:-1]])
        ones = np.ones(n_samples * n_trees, dtype=np.float32)
        row_ends = np.arange(n_samples + 1) * n_trees
        shape = n_samples, int(self.ends[-1])
        indicators = sparse.csr_array((ones, columns.ravel(), row_ends), shape=shape)
        return sparse.hstack([indicators, sparse.csr_array(beside)], format="csr")

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the values of the leaves, and add to all scores."""
        values = np.split(parameters, self.ends[:-1])
        self._take(self.library.set_leaves(self.model._Booster, values, intercept))
