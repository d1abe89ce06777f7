"""Trees of groups, leaves and weights of rounds of a trained booster, as either library has them.

The tree splits by the columns that make the groups. Rows reach a leaf of their own only if each of
these columns has the very value of the group. All other rows, those of other or missing values,
reach leaves of zero.

In both libraries a row goes left at a number that is missing or at most the threshold, and at a
category that is missing or not the one of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._dataframes import categories_of, names_of
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.groups import GroupOffsets, number_of
from gbm_constrained.fit.black_box_fit import AdjustableModel

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


def indicate_leaves(leaves: Codes, sizes: Codes, beside: Array) -> Any:
    """Make a column for each leaf, which is one for its rows, and put further columns beside them.

    Parameters
    ----------
    leaves : ndarray of int of shape (n_samples, n_trees)
        Leaf of each row in each tree, counted from zero within the tree.
    sizes : ndarray of int of shape (n_trees,)
        Number of leaves of each tree.
    beside : ndarray of shape (n_samples, k)
        Further columns.

    Returns
    -------
    sparse array of float32 of shape (n_samples, n_leaves + k)
    """
    n_samples, n_trees = leaves.shape
    columns = leaves + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ones = np.ones(n_samples * n_trees, dtype=np.float32)
    ends = np.arange(n_samples + 1) * n_trees
    shape = n_samples, int(sizes.sum())
    indicators = sparse.csr_array((ones, columns.ravel(), ends), shape=shape)
    return sparse.hstack([indicators, sparse.csr_array(beside)], format="csr")


def name_leaves(sizes: Codes) -> list[str]:
    """Name the leaves of all trees, as in ``leaf[3, 0]`` for the first leaf of tree 3."""
    return [f"leaf[{t}, {i}]" for t, size in enumerate(sizes.tolist()) for i in range(size)]


def collect_rounds(score: Callable[[int], Array], n_rounds: int, beside: Array) -> Array:
    """Score rows by each round, and put further columns beside the scores.

    Parameters
    ----------
    score : callable
        Computes the scores of a round.
    n_rounds : int
        Number of rounds.
    beside : ndarray of shape (n_samples, k)
        Further columns.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
        The only array of that size that is made.
    """
    matrix = np.empty((len(beside), n_rounds + beside.shape[1]), dtype=np.float32, order="F")
    for t in range(n_rounds):
        matrix[:, t] = score(t)
    matrix[:, n_rounds:] = beside
    return matrix


def check_number(weights: Float, n_rounds: int) -> None:
    """Refuse weights that are not one for each round."""
    if weights.shape != (n_rounds,):
        raise ValueError(
            f"weights must hold one number for each of the {n_rounds} rounds, got shape "
            f"{weights.shape}."
        )


class BoosterBlackBoxAdapter:
    """Base of the ``AdjustableAdapter`` of one ``fit`` of a library.

    Parameters
    ----------
    adapter : BoosterAdapter
        The adapter of the fit.

    Attributes
    ----------
    models : mapping
        Access to the parameters of a booster, by the name of their space.
    """

    takes_offsets = True
    models: ClassVar[Mapping[str, Any]]

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.model = adapter, adapter.model

    def check_adjustable(self, space: str) -> None:
        """Refuse constraints on the shape of trees, which their other values would not keep."""
        X = self.adapter.X
        names = names_of(X) or [f"f{j}" for j in range(getattr(X, "shape", np.shape(X))[1])]
        if bound := self.adapter.tree_limits(names).monotone:
            raise ValueError(
                f"space={space!r} gives trees other values, which need not be monotone in "
                f"{min(map(str, bound))!r}, as monotone_constraints asks: leave these out, "
                f"or bound rates by constraints=[...] without a black-box metric."
            )

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the parent's ``fit`` beside the rows."""
        return dict(self.adapter.arguments)

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""
        self.adapter.fit_plain(factor)

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        given = {name: value for name, value in self.arguments.items() if value is not None}
        model.fit(
            self.adapter.X,
            self.adapter.y,
            sensitive_features=rows.sensitive_features,
            groups=rows.groups,
            **given,
        )

    def adjustable(self, space: str) -> AdjustableModel:
        """Give access to the parameters of the trained booster."""
        found: AdjustableModel = self.models[space](self.model)
        return found
