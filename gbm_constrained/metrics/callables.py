r"""Costs and functions of the joint confusion matrix :math:`C_{ij} = P(y = i, \hat y = j)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import approx_fprime

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Expression
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.grouped import Each
from gbm_constrained.constraints.rate_parts import Taken, name_with_rows, read_columns
from gbm_constrained.constraints.rates import confusion
from gbm_constrained.constraints.selectors import Columns, as_selectors
from gbm_constrained.metrics.base import KINDS, BoundMetric, Kind, Metric, bind_linear
from gbm_constrained.problem.groups import Group

CONVEXITY_TOLERANCE = 1e-9  # By which a midpoint may lie above the chord, from rounding.


def _joint_rates(classes: NDArray[np.generic], on: Any) -> list[Rate]:
    """Make all entries of the joint confusion matrix, row by row."""
    labels = classes.tolist()
    return [confusion(i, j, normalize="all", on=on) for i in labels for j in labels]


@dataclass(frozen=True, repr=False)
class MeanCost(Metric):
    """The mean cost of decisions.

    Parameters
    ----------
    matrix : tuple of tuple of float
        Cost of predicting class j for rows of class i, by the sorted labels.
    on : tuple of Selector
        Rows that are counted.
    """

    greater_is_better = False
    form = "linear"

    matrix: tuple[tuple[float, ...], ...]
    on: tuple[Any, ...] = ()

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest cost of a decision."""
        return float(np.min(self.matrix)), float(np.max(self.matrix))

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the mean cost."""
        if len(self.matrix) != classes.size:
            raise ValueError(
                f"cost(matrix) has {len(self.matrix)} rows and y has {classes.size} classes, "
                f"{classes.tolist()}: give one row and one column for each class."
            )
        total = Rate(())
        costs = np.ravel(self.matrix)
        for amount, rate in zip(costs, _joint_rates(classes, self.on or None), strict=True):
            total = total + rate * amount
        return bind_linear(self, total)

    def __str__(self) -> str:
        rows = [f"[{', '.join(f'{amount:g}' for amount in row)}]" for row in self.matrix]
        return name_with_rows(f"cost([{', '.join(rows)}])", Taken(self.on or None))


@dataclass(frozen=True, repr=False)
class FunctionMetric(Metric):
    """A function of the joint confusion matrix, or of the matrix of each group.

    Parameters
    ----------
    function : callable
        Given the matrix of shape (n_classes, n_classes), or a dict of one for each group, its
        value.
    kind : str
        Kind of the function.
    gradient : callable or None
        Given the same, its gradient in the same shape.
    by : tuple of column names or None
        Columns that make the groups.
    on : tuple of Selector
        Rows that are counted.
    greater_is_better : bool
        Whether the function is maximised.
    """

    function: Callable[[Any], float]
    kind: str
    gradient: Callable[[Any], Any] | None = None
    by: Columns | None = None
    on: tuple[Any, ...] = ()
    greater_is_better: bool = True

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value, which are not known."""
        return -math.inf, math.inf

    @property
    def no_rule(self) -> str:  # type: ignore[override]
        """Why the function cannot be bounded, with the remedy."""
        reason = "its function takes the matrices of groups"
        return "" if self.by is None else f"{reason}: bound one of each, with on={{column: value}}"

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Name the entries of the confusion matrices."""
        rates: Sequence[Expression] = _joint_rates(classes, self.on or None)
        if self.by is not None:
            rates = [
                Each(rate=rate, by=self.by) for rate in _joint_rates(classes, self.on or None)
            ]
        return self._bind(tuple(rates), classes.size, None)

    def with_groups(self, bound: BoundMetric, groups: Sequence[tuple[Group, ...]]) -> BoundMetric:
        """Hand the function a dict with the matrix of each group."""
        if self.by is None:
            return bound
        n = int(np.sqrt(len(bound.expressions)))
        return self._bind(bound.expressions, n, [self._key(group) for group in groups[0]])

    def _key(self, group: Group) -> Any:
        return group.name[0] if len(group.name) == 1 else group.name

    def _bind(
        self, expressions: tuple[Expression, ...], n: int, keys: Sequence[Any] | None
    ) -> BoundMetric:
        def matrices(u: Float) -> Any:
            if keys is None:
                return u.reshape(n, n)
            return dict(zip(keys, u.reshape(n, n, -1).transpose(2, 0, 1), strict=True))

        def function(u: Float) -> float:
            value = self.function(matrices(u))
            try:
                return float(value)
            except (TypeError, ValueError):
                raise TypeError(
                    f"function of {self} must return a number, got {value!r}: return one for the "
                    f"whole confusion matrix."
                ) from None

        def derivative(u: Float) -> Float:
            found = (
                approx_fprime(u, function) if self.gradient is None else self._flat(u, matrices)
            )
            if not np.isfinite(found).all():
                raise ValueError(
                    f"the gradient of {self} is {found.tolist()} at the confusion matrix "
                    f"{np.round(u, 6).tolist()}: give metric(..., gradient=) one that is finite "
                    f"there."
                )
            return np.asarray(found)

        kind: Kind = "convex" if self.kind in ("concave", "convex") else self.kind  # type: ignore[assignment]
        return BoundMetric(self, expressions, function, derivative, kind)

    def _flat(self, u: Float, matrices: Callable[[Float], Any]) -> Float:
        assert self.gradient is not None
        found = self.gradient(matrices(u))
        if self.by is not None:
            found = np.stack([np.asarray(found[key]) for key in matrices(u)], axis=-1)
        found = np.asarray(found, dtype=np.float64)
        if found.size != u.size:
            raise ValueError(
                f"gradient= of {self} returned an array of shape {found.shape}: it must have the "
                f"shape of the confusion matrix."
            )
        return np.ravel(found)

    def __str__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        by = "" if self.by is None else f", by={list(self.by)!r}"
        return name_with_rows(f"metric({name}{by})", Taken(self.on or None))


def cost(matrix: ArrayLike, *, on: Any = None) -> MeanCost:
    r"""Mean cost of decisions, :math:`\sum_{ij} M_{ij} C_{ij}`, which is minimised.

    Parameters
    ----------
    matrix : array-like of shape (n_classes, n_classes)
        Cost of predicting class j for rows of class i, by the sorted labels; of either sign.
    on : label(...), dataset(...), dict, bool array, ..., default=None
        Rows that are counted; all rows by default.

    Returns
    -------
    MeanCost

    Raises
    ------
    ValueError
        If the matrix is not square, not finite, or zero.
    """
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"cost(matrix) must be a square matrix, got the shape {table.shape}.")
    if not np.isfinite(table).all() or not table.any():
        raise ValueError(
            f"cost(matrix) must have finite entries that are not all zero, got {table.tolist()}."
        )
    return MeanCost(tuple(map(tuple, table.tolist())), as_selectors(on))


def metric(
    function: Callable[[Any], float],
    *,
    kind: Literal["linear", "smooth", "concave", "convex", "other"],
    gradient: Callable[[Any], Any] | None = None,
    by: str | Sequence[str] | None = None,
    on: Any = None,
) -> FunctionMetric:
    """Make a metric of a function of the joint confusion matrix.

    Parameters
    ----------
    function : callable
        Given the joint confusion matrix (rows are true classes, columns predicted ones, the
        entries sum to one), returns a number. With `by`, the argument is a dict with the matrix
        of each group, whose entries sum to one within the group.
    kind : {"linear", "smooth", "concave", "convex", "other"}
        What the function is. ``"concave"`` is for functions to maximise and ``"convex"`` for those
        to minimise; ``"smooth"`` says the same of a differentiable function in either role. Of a
        function of kind ``"other"`` a local optimum is found. The kind is tested on the decision
        rules that a fit finds.
    gradient : callable, default=None
        Gradient of the function, in the shape of its argument; found by finite differences by
        default.
    by : str or list of str, default=None
        Columns that make groups.
    on : label(...), dataset(...), dict, bool array, ..., default=None
        Rows that are counted; all rows by default.

    Returns
    -------
    FunctionMetric

    Raises
    ------
    TypeError
        If `function` or `gradient` cannot be called.
    ValueError
        If `kind` is unknown.

    Examples
    --------
    >>> from gbm_constrained.metrics import metric
    >>> own = metric(lambda C: C[1, 1] / C[1].sum() - 0.3 * C[0, 1] ** 2, kind="concave")
    """
    for name, value in (("function", function), ("gradient", gradient)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable with a confusion matrix, got {value!r}.")
    known = ("concave", *(k for k in KINDS if k != "ratio"))
    if kind not in known:
        raise ValueError(f"kind must be one of {list(known)}, got {kind!r}.")
    return FunctionMetric(
        function, kind, gradient, read_columns(by), as_selectors(on), kind != "convex"
    )


def check_convexity(bound: BoundMetric, pool: Float) -> None:
    """Test the kind of a user's function on midpoints of points that a fit has found.

    Parameters
    ----------
    bound : BoundMetric
        The metric.
    pool : ndarray of shape (n_points, n_functionals)
        Functionals of decision rules.

    Raises
    ------
    ValueError
        If the function is neither linear, concave nor convex as it was said to be.
    """
    if not isinstance(bound.metric, FunctionMetric) or bound.kind == "other":
        return
    sign = -1.0 if bound.metric.greater_is_better else 1.0
    random = np.random.RandomState(0)
    weights = random.dirichlet(np.ones(len(pool)), size=(64, 2))
    for first, second in np.concatenate([weights @ pool, _pairs(pool)]):
        middle = sign * bound.function((first + second) / 2)
        chord = sign * (bound.function(first) + bound.function(second)) / 2
        gap = middle - chord
        if gap > CONVEXITY_TOLERANCE or (bound.kind == "linear" and -gap > CONVEXITY_TOLERANCE):
            raise ValueError(
                f"kind={bound.metric.kind!r} of {bound.metric} does not hold: between the entries "
                f"{np.round(first, 4).tolist()} and {np.round(second, 4).tolist()} of the "
                f"confusion matrix, the value at the midpoint is off by {abs(gap):.3g} on the "
                f"wrong side. Use kind='other', which finds a local optimum."
            )


def _pairs(pool: Float) -> Float:
    """Pairs of consecutive points of a pool, of shape (n_points, 2, n_functionals)."""
    return np.stack([pool, np.roll(pool, 1, axis=0)], axis=1)
