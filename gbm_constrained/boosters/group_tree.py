"""One more tree that adds an offset to the scores of each group.

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

from gbm_constrained._dataframes import categories_of, names_of
from gbm_constrained._typing import Codes
from gbm_constrained.decision.group_shifts import GroupOffsets, number_of

FEWEST = 1.0  # Rows of a leaf as explainers read them, who divide by this number.


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


@dataclass(frozen=True)
class _Subtree:
    """A node with the subtrees of its children."""

    node: Node
    children: tuple[_Subtree, ...] = ()

    @classmethod
    def split(cls, left: _Subtree, right: _Subtree, **by: Any) -> _Subtree:
        """Join two subtrees by a split."""
        return cls(Node(left.node.weight + right.node.weight, **by), (left, right))


Members: TypeAlias = dict[tuple[float, ...], tuple[float, float]]
"""Offset and number of training rows by the values of a group."""


@dataclass(frozen=True, eq=False)
class GroupTree:
    """A tree as a list of nodes: the root first, and two children side by side after their parent.

    XGBoost looks for the right child at the position after the left one.
    """

    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, X: Any, offsets: GroupOffsets, groups: Codes) -> GroupTree:
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
        count = np.bincount(groups, minlength=len(offsets.levels)).tolist()
        members: Members = {}
        for g in np.flatnonzero(offsets.values).tolist():
            level = zip(offsets.levels[g], features, strict=True)
            key = tuple(number_of(value, categories.get(j)) for value, j in level)
            members[key] = float(offsets.values[g]), max(float(count[g]), FEWEST)
        inside = sum(weight for _, weight in members.values())
        grower = _Grower(features, set(categories), max(sum(count) - inside, FEWEST))
        return cls(_number(grower.grow(0, members)))


def _number(root: _Subtree) -> tuple[Node, ...]:
    """List the nodes of a tree level by level."""
    found = [root]
    nodes = []
    for subtree in found:  # Grows while it is read.
        left = len(found) if subtree.children else -1
        nodes.append(replace(subtree.node, left=left))
        found += subtree.children
    return tuple(nodes)


@dataclass(frozen=True)
class _Grower:
    """Grows subtrees, one column after the other."""

    features: Sequence[int]
    categorical: set[int]
    other: float  # Training rows outside of all leaves with an offset.

    def grow(self, depth: int, members: Members) -> _Subtree:
        """Grow the subtree of some groups, whose values agree in the first columns."""
        if depth == len(self.features):
            ((value, weight),) = members.values()
            return _Subtree(Node(weight, value))
        parts: dict[float, Members] = {}
        for key in sorted(members):
            parts.setdefault(key[depth], {})[key] = members[key]
        return self._chain(depth, list(parts.items()))

    def _chain(self, depth: int, parts: list[tuple[float, Members]]) -> _Subtree:
        """Test one value of a column after the other, in ascending order."""
        outside = _Subtree(Node(self.other))
        if not parts:
            return outside
        (value, members), *rest = parts
        feature, of_value = self.features[depth], self.grow(depth + 1, members)
        others = self._chain(depth, rest)
        if feature in self.categorical:
            return _Subtree.split(others, of_value, feature=feature, category=int(value))
        below, above = edges(value)
        inner = _Subtree.split(of_value, others, feature=feature, threshold=above)
        return _Subtree.split(outside, inner, feature=feature, threshold=below)


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
