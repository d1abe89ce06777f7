"""Constraints to linear maps of cell statistics.

Every rate is a *functional* of cell statistics, ``U . predicted + V . clipped_loss + constant``.
A constraint is one functional (a rate), two (a quotient), or one for each group, and compiles to
linear rows over them, ``R functionals <= b``: a gap of G groups to G (G - 1) of these, a quotient
bounded by k to ``numerator - k denominator`` (multiplying through). The solver sees the rows,
``g = A . predicted + B . clipped_loss - b``; reports show the value that the user bounded.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained.cells import (
    MOST_CELLS,
    Cells,
    CellStatistics,
    ReduceSum,
    View,
    local_sum,
)
from gbm_constrained.checks import level_of_the_user, some_of
from gbm_constrained.losses import over_classes
from gbm_constrained.rates import (
    ABOUT_LABELS,
    MISSING,
    Column,
    Constraint,
    DataSet,
    Differs,
    Each,
    Gap,
    Grouped,
    Judged,
    Overall,
    Predicted,
    Quotient,
    Rate,
    Ratio,
    Term,
)
from gbm_constrained.rows import (
    Bool,
    Codes,
    Columns,
    Float,
    Key,
    Rows,
    UnavailableError,
    key_of,
    normalize_text,
)

SMALL = "small groups"
FEW_NAMED = 5  # Small groups, and constraints that compare them, that a warning names.
MOST_GROUPS = 500  # Each is compared with every other one.
SMALL_MATRIX = (
    10_000  # Entries up to which scipy's checks of a product cost more than the product.
)
ROUNDING = 1e-12  # Rates closer to each other are equal, and smaller ones zero.


@dataclass(frozen=True)
class Group:
    """Rows with one of some levels of a grouping attribute.

    Parameters
    ----------
    by : tuple of column names
        The attribute.
    levels : frozenset of int
        Positions of its levels.
    name : tuple
        One value for each column.
    size : int
        Rows that the rate is taken over, without those of weight zero; of a sum of rates, those
        of the one that has fewest.
    quote : callable, default=None
        Writes its texts where another group prints alike: ``repr``, or ``ascii`` where their
        quoted forms look alike as well.
    """

    by: Columns
    levels: frozenset[int]
    name: tuple[Any, ...]
    size: int = 0
    quote: Callable[[object], str] | None = None

    @property
    def selectors(self) -> tuple[Column, ...]:
        """How the group prints in a rate."""
        return tuple(
            Column(c, self.quote(v) if self.quote is not None and isinstance(v, str) else v)
            for c, v in zip(self.by, self.name, strict=True)
        )

    def __str__(self) -> str:
        return ", ".join(map(str, self.selectors))


@dataclass(frozen=True)
class SmallGroup:
    """A group in which a rate is taken over fewer rows than `min_group_size`.

    Parameters
    ----------
    constraint : Constraint
        The constraint that compares groups.
    group : Group
        The group.
    rows : int
        Rows that the rate is taken over in the group.
    treatment : {"kept", "merged", "left out"}
        What became of the group.
    """

    constraint: Constraint
    group: Group
    rows: int
    treatment: str


def told_apart(groups: Sequence[Group]) -> list[Group]:
    """Quote the texts of groups that look alike, such as the number 0 and the text "0"."""
    looks = [normalize_text(str(group)) for group in groups]
    times = Counter(looks)
    quoted = [
        replace(group, quote=repr) if times[look] > 1 else group
        for group, look in zip(groups, looks, strict=True)
    ]
    # Two forms of one letter look alike in quotes, too.
    again = Counter(unicodedata.normalize("NFC", str(group)) for group in quoted)
    return [
        replace(group, quote=ascii)
        if again[unicodedata.normalize("NFC", str(group))] > 1
        else group
        for group in quoted
    ]


@dataclass(frozen=True, eq=False)
class Part:
    """One fraction in a rate: ``coefficient * weight with event / weight inside``.

    Given which rows are inside, the event is a Bernoulli variable of each: what exact intervals
    and tests rest on.

    Parameters
    ----------
    coefficient : float
        Its factor.
    cells : ndarray of int
        The cells that it is taken over, counted over all views.
    event : ndarray of shape (len(cells), n_classes), bool
        Whether it counts a row of a cell that is predicted as a class.
    """

    coefficient: float
    cells: np.ndarray[Any, np.dtype[np.intp]]
    event: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class MeanLoss:
    """One mean loss in a rate: ``coefficient * weighted mean of the cross-entropy inside``.

    Parameters
    ----------
    coefficient : float
        Its factor.
    cells : ndarray of int
        The cells that it is taken over, counted over all views.
    """

    coefficient: float
    cells: np.ndarray[Any, np.dtype[np.intp]]


def columns_by(expression: Grouped, rows: Rows) -> Columns:
    """Columns that make the groups of an expression: all sensitive features by default."""
    if expression.by is not None:
        return expression.by
    return tuple((rows.like or rows).columns)


def needs_of(constraint: Constraint, rows: Rows) -> list[Key]:
    """Attributes that a constraint looks at."""
    keys: list[Key] = []
    for term in constraint.terms:
        keys += [key_of(s) for s in term.selectors]
        if isinstance(term.event, Differs):
            keys.append(term.event.deployed)
    if isinstance(constraint.expression, Grouped):
        keys.append(columns_by(constraint.expression, rows))
    for key in keys:
        try:
            rows.attribute(key)
        except UnavailableError as error:
            raise UnavailableError(f"{constraint}: {error}") from None
    if isinstance(constraint.expression, Grouped):
        # Labels divide each group into cells.
        by = columns_by(constraint.expression, rows)
        _check_few(constraint, by, len(rows.attribute(by).levels), MOST_CELLS // 4)
    _check_columns_of_data_sets(constraint, rows)
    return list(dict.fromkeys(keys))


def _check_few(constraint: Constraint, by: Columns, n_groups: int, most: int) -> None:
    """Refuse to compare next to every row with every other."""
    if n_groups > most:
        raise ValueError(
            f"{constraint} compares {n_groups} groups by {', '.join(map(str, by))}, more than "
            f"{most}: cut numbers into bands, as pandas.cut does, or put groups of few "
            f"rows together with small_groups='merge'."
        )


def _check_columns_of_data_sets(constraint: Constraint, rows: Rows) -> None:
    """Refuse groups of rows that none of them could be in."""
    expression = constraint.expression
    by = columns_by(expression, rows) if isinstance(expression, Grouped) else ()
    for term in constraint.terms:
        columns = [*by, *(s.name for s in term.on if isinstance(s, Column))]
        for source in (s.name for s in term.on if isinstance(s, DataSet)):
            for name in columns:
                if source in rows.sources and not rows.has_column(source, name):
                    raise ValueError(
                        f"{constraint}: column {name!r} is not known of the rows of data set "
                        f"{source!r}. Rows of data sets have groups only from columns of X, as "
                        f"sensitive_features are of the training rows: make it a column of X."
                    )


def unique_names(things: Iterable[Any]) -> list[str]:
    """Tell how things print, with " #2" and so on after those that print as one before them.

    Two masks of as many rows, or two deployed models, print alike.
    """
    names, times = [], Counter[str]()
    for name in map(str, things):
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name} #{times[name]}")
    return names


@dataclass(frozen=True)
class CompiledConstraints:
    """Linear rows that a solver holds at most zero, and the values that users bounded.

    Parameters
    ----------
    constraints : tuple of Constraint
        What was compiled, in order.
    U : csr_array of shape (n_functionals, n_cells * n_classes)
        Coefficients of the predicted fractions in each functional.
    V : csr_array of shape (n_functionals, n_cells)
        Coefficients of the mean losses.
    constant : ndarray of shape (n_functionals,)
        Constant parts.
    R : csr_array of shape (m, n_functionals)
        The rows' coefficients of the functionals.
    b : ndarray of shape (m,)
        Right-hand sides of the rows, with the constants moved there.
    rows, all_rows : tuple of str
        How each row prints, no two alike; `all_rows` with those of idle constraints, which are
        left out of everything else about rows.
    owner : ndarray of shape (m,), intp
        The constraint that each row belongs to.
    spans : tuple of slice
        The functionals of each constraint.
    groups : tuple
        The groups of each constraint, in the order of its functionals; empty without groups.
    spread : csr_array of shape (m, n_cells)
        Largest difference of a row's coefficients between two predicted classes of a cell.
    rewards_errors : ndarray of shape (m,), bool
        Whether a row would rather have some rows wrong, or looks at rows without a label:
        selection rates, gaps. The convex proxy serves these badly: it pulls hardest at the rows
        furthest from the decision, and a weight above that of their label flips them all. To
        decide as another model does (churn) is no such wish: its decisions can be learned.
    rewards_all_errors : ndarray of shape (m,), bool
        Whether a row would rather have rows of several labels wrong that differ in nothing else
        that it looks at, and no one decision does that, as in a gap of error rates: which of them
        are wrong is then learned by heart.
    splits_targets : ndarray of shape (m,), bool
        Whether some rows may be decided as any of several classes, but not as all: of three or
        more, a cost of predicting one. The convex proxy pulls them to all of those at once.
    terms : tuple
        The fractions and mean losses that each functional adds up, next to its constant; None
        where it is undefined.
    small : tuple of SmallGroup, default=()
        Groups of few rows.
    """

    constraints: tuple[Constraint, ...]
    U: Any
    V: Any
    constant: Float
    R: Any
    b: Float
    rows: tuple[str, ...]
    all_rows: tuple[str, ...]
    owner: np.ndarray[Any, np.dtype[np.intp]]
    spans: tuple[slice, ...]
    groups: tuple[tuple[Group, ...], ...]
    spread: Any
    rewards_errors: np.ndarray[Any, np.dtype[np.bool_]]
    rewards_all_errors: np.ndarray[Any, np.dtype[np.bool_]]
    splits_targets: np.ndarray[Any, np.dtype[np.bool_]]
    terms: tuple[tuple[Part | MeanLoss, ...] | None, ...]
    small: tuple[SmallGroup, ...] = ()

    def __len__(self) -> int:
        return self.b.size

    @cached_property
    def parts(self) -> tuple[tuple[Part, ...] | None, ...]:
        """The terms of functionals of nothing but fractions; None for the others."""
        return tuple(map(_fractions, self.terms))

    @cached_property
    def names(self) -> list[str]:
        """How each constraint prints, no two alike."""
        return unique_names(self.constraints)

    @cached_property
    def A(self) -> Any:  # noqa: N802 - mathematics
        """Coefficients of the predicted fractions in each row, (m, n_cells * n_classes)."""
        return self.R @ self.U

    @cached_property
    def B(self) -> Any:  # noqa: N802
        """Coefficients of the mean losses in each row, (m, n_cells)."""
        return self.R @ self.V

    @cached_property
    def opposites(self) -> tuple[Codes, Codes]:
        """Pairs of rows of R that are each other's negatives, no row in two of them.

        Both rows of a gap between two groups, for instance: their positions, shape (p,) each.
        """
        pairs, alone = [], dict[tuple[bytes, bytes], int]()
        R = self.R.sorted_indices()
        for j, (start, end) in enumerate(pairwise(R.indptr)):
            at, value = R.indices[start:end].tobytes(), R.data[start:end]
            i = alone.pop((at, (-value).tobytes()), None)
            if i is None:
                alone[at, value.tobytes()] = j
            else:
                pairs.append((i, j))
        first, second = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        return first, second

    def costs(self, multipliers: Float) -> Float:
        """Rows of A weighed by multipliers and added up, (n_cells * n_classes,)."""
        return self._products["A.T"](multipliers)

    def loss_costs(self, multipliers: Float) -> Float:
        """Rows of B weighed by multipliers and added up, (n_cells,)."""
        return self._products["B.T"](multipliers)

    def functionals(self, statistics: CellStatistics) -> Float:
        """Value of each functional."""
        hard = self._products["U"](statistics.predicted.ravel())
        return hard + self._products["V"](statistics.clipped_loss) + self.constant

    def rows_of(self, functionals: Float) -> Float:
        """Left-hand side of each row, shape (m,), from the functionals."""
        return self._products["R"](functionals - self._finite_constant)

    @cached_property
    def _products(self) -> dict[str, Callable[[Float], Float]]:
        """Products of the matrices with vectors, of which each boosting round takes several."""
        return {
            "U": _product_with(self.U),
            "V": _product_with(self.V),
            "R": _product_with(self.R),
            "A.T": _product_with(self.A, transposed=True),
            "B.T": _product_with(self.B, transposed=True),
        }

    @cached_property
    def _finite_constant(self) -> Float:
        return np.nan_to_num(self.constant)

    def rates(self, statistics: CellStatistics) -> Float:
        """Left-hand side of each row, shape (m,)."""
        return self.rows_of(self.functionals(statistics))

    def violations(self, statistics: CellStatistics) -> Float:
        """``g``: left-hand side minus right-hand side of each row, shape (m,)."""
        return self.rates(statistics) - self.b

    def values(self, functionals: Float) -> Float:
        """Value of what each constraint bounds, shape (n_constraints,); NaN where undefined."""
        single, start = self._single_rates
        values = np.empty(len(self.constraints))
        values[single] = functionals[start]
        for j in np.flatnonzero(~single):
            values[j] = value_of(self.constraints[j], functionals[self.spans[j]])
        return values

    @cached_property
    def _single_rates(self) -> tuple[Bool, Codes]:
        """Constraints that are about one rate, and where it is among the functionals."""
        single = np.array([isinstance(c.expression, Rate) for c in self.constraints], dtype=bool)
        start = [span.start for span in compress(self.spans, single)]
        return single, np.array(start, dtype=np.intp)

    @property
    def bounds(self) -> Float:
        """Bound of each constraint, shape (n_constraints,)."""
        return np.array([c.bound for c in self.constraints], dtype=np.float64)

    @property
    def ranges(self) -> Float:
        """Smallest and largest value of what each constraint bounds, (n_constraints, 2)."""
        return np.array([c.range for c in self.constraints], dtype=np.float64).reshape(-1, 2)

    @property
    def ranges_of_rates(self) -> Float:
        """Smallest and largest value of each functional, (n_functionals, 2)."""
        ranges = np.empty((self.constant.size, 2))
        for constraint, span in zip(self.constraints, self.spans, strict=True):
            ranges[span] = np.resize([rate.range for rate in constraint.rates], ranges[span].shape)
        return ranges

    @property
    def is_told(self) -> Bool:
        """Whether the rows tell of each row of constraints, shape (m,); see :meth:`on`."""
        return np.asarray(np.diff(self.R.indptr) > 0)

    def bounds_at(self, right: Float) -> Float:
        """Bound of each constraint if rows have other right-hand sides, those of rates alone.

        Parameters
        ----------
        right : ndarray of shape (m,)
            Right-hand sides; of other constraints than single rates they are those of the bound.
        """
        bounds = self.bounds
        for r, j in enumerate(self.owner):
            constraint, constant = self.constraints[j], self.constant[self.spans[j].start]
            if isinstance(constraint.expression, Rate) and not np.isnan(constant):
                bounds[j] = constraint.sign * right[r] + constant
        return bounds

    def satisfied(self, values: Float) -> Any:
        """Whether values are on the right side of the bounds; missing where they are undefined."""
        sign = np.array([c.sign for c in self.constraints])
        with np.errstate(invalid="ignore"):
            return sign * (values - self.bounds) <= ROUNDING

    def further_groups(self, training: CompiledConstraints) -> list[Group]:
        """List the groups that the same constraints on training rows do not have."""
        return [
            group
            for own, known in zip(self.groups, training.groups, strict=True)
            for group in own
            if group.name not in {other.name for other in known}
        ]

    def with_groups_of(self, other: CompiledConstraints) -> CompiledConstraints:
        """Lay out functionals as other rows do, which may have further groups.

        Parameters
        ----------
        other : CompiledConstraints
            The same constraints on an evaluation set.

        Returns
        -------
        CompiledConstraints
            Constraints whose values and groups can be taken from functionals of `other`.
        """
        return replace(self, spans=other.spans, groups=other.groups)

    def positions_in(self, other: CompiledConstraints) -> Codes:
        """Find the functionals among those of the same constraints on an evaluation set."""
        found = [np.zeros(0, dtype=np.intp)]
        for constraint, own, theirs in zip(self.constraints, self.spans, other.spans, strict=True):
            at = theirs.start + np.arange(own.stop - own.start)
            if isinstance(constraint.expression, Gap) and (
                constraint.expression.reference is not None
            ):
                at[-1] = theirs.stop - 1  # the reference comes last
            found.append(at)
        return np.concatenate(found)

    def totals(self, of_rows: Float) -> Float:
        """Sum a quantity of rows, such as multipliers, by constraint."""
        return np.bincount(self.owner, of_rows, len(self.constraints)).astype(np.float64)

    def without_rows_of(self, idle: Collection[int]) -> CompiledConstraints:
        """Leave out the rows of some constraints, which are then reported and bind nothing."""
        kept = ~np.isin(self.owner, list(idle))
        if kept.all():
            return self
        return replace(
            self,
            R=self.R[kept],
            b=self.b[kept],
            rows=tuple(compress(self.rows, kept)),
            owner=self.owner[kept],
            spread=self.spread[kept],
            rewards_errors=self.rewards_errors[kept],
            rewards_all_errors=self.rewards_all_errors[kept],
            splits_targets=self.splits_targets[kept],
        )

    def on(self, cells: Cells) -> CompiledConstraints:
        """Leave out what part of the rows does not tell: cells that they leave empty.

        The other cells of a rate stand for these, in their shares of the whole. A rate with no
        other cells is undefined, and so are the rows of constraints with it: they bind nothing.

        Parameters
        ----------
        cells : Cells
            From :meth:`Cells.take`, of the rows that were compiled against or of a part of them.
        """
        whole = cells.whole_weight
        left = np.where(cells.weight > 0, whole, 0.0)
        if (left == whole).all():
            return self
        constant, terms = self.constant.copy(), list(self.terms)
        rows_of_U, rows_of_V = [], []
        for k, of_rate in enumerate(self.terms):
            hard, soft = self.U[[k]], self.V[[k]]
            bases = [term.cells for term in of_rate or ()]
            if any(left[base].sum() == 0 for base in bases):
                constant[k], terms[k] = np.nan, None
            elif of_rate and any((left[base] < whole[base]).any() for base in bases):
                hard, soft = self._coefficients(of_rate, left)
            rows_of_U.append(hard)
            rows_of_V.append(soft)
        is_told = abs(self.R) @ np.isnan(constant) == 0
        return replace(
            self,
            U=sparse.csr_array(sparse.vstack(rows_of_U)),
            V=sparse.csr_array(sparse.vstack(rows_of_V)),
            constant=constant,
            R=_rows_kept(self.R, is_told),
            b=np.where(is_told, self.b, 0.0),
            spread=_rows_kept(self.spread, is_told),
            terms=tuple(terms),
        )

    def _coefficients(self, terms: Sequence[Part | MeanLoss], weight: Float) -> tuple[Any, Any]:
        """Rows of U and V of a rate, cells weighing so much."""
        hard = np.zeros((weight.size, self.U.shape[1] // weight.size))
        soft = np.zeros((1, weight.size))
        for term in terms:
            share = term.coefficient * weight[term.cells] / weight[term.cells].sum()
            if isinstance(term, Part):
                hard[term.cells] += share[:, None] * term.event
            else:
                soft[0, term.cells] += share
        return sparse.csr_array(hard.reshape(1, -1)), sparse.csr_array(soft)

    @property
    def has_rates(self) -> Bool:
        """Rows that hold 0-1 rates, and not mean losses alone; (m,)."""
        return np.asarray(np.diff(self.spread.indptr) > 0)

    @property
    def is_convex(self) -> bool:
        """Whether no row has a mean loss with a negative coefficient, which is concave."""
        return self.B.nnz == 0 or bool(self.B.data.min() >= 0.0)


def _product_with(matrix: Any, *, transposed: bool = False) -> Callable[[Float], Float]:
    """Make the product of a sparse matrix, or of its transpose, with vectors.

    The checks of scipy take ten times as long as the product of a small matrix. The additions are
    the same in the same order.
    """
    if matrix.nnz > SMALL_MATRIX:
        large = matrix.T if transposed else matrix
        return lambda vector: np.asarray(large @ vector)
    n_rows = matrix.shape[transposed]
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    # Copies, for scipy may sort the entries of a matrix in place.
    columns, values = matrix.indices.astype(np.intp), matrix.data.copy()
    if transposed:
        rows, columns = columns, rows
    return lambda vector: np.asarray(
        np.bincount(rows, values * vector[columns], n_rows), dtype=np.float64
    )


def _fractions(terms: Sequence[Part | MeanLoss] | None) -> tuple[Part, ...] | None:
    parts = tuple(term for term in terms or () if isinstance(term, Part))
    return None if terms is None or len(parts) < len(terms) else parts


def _rows_kept(table: Any, is_kept: Bool) -> Any:
    """Sparse matrix with the other rows empty: they store no zero, which NaN would survive."""
    kept = sparse.csr_array(table.multiply(is_kept[:, None]))
    kept.eliminate_zeros()
    return kept


def value_of(constraint: Constraint, f: Float) -> float:
    """Value of what a constraint bounds, from its functionals."""
    expression = constraint.expression
    if isinstance(expression, Quotient):
        if np.isnan(f).any():
            return np.nan
        if f[1] > ROUNDING:
            return float(f[0] / f[1])
        return float(np.copysign(np.inf, f[0])) if abs(f[0]) > ROUNDING else np.nan
    if np.isnan(f).all():
        return np.nan
    if isinstance(expression, Each):
        return float(np.nanmax(f) if constraint.sense == "<=" else np.nanmin(f))
    if not isinstance(expression, Gap):
        return float(f[0])
    others, reference = f, None
    if expression.reference is not None:
        others, reference = f[:-1], f[-1]
        if np.isnan(others).all() or np.isnan(reference):
            return np.nan
    elif np.count_nonzero(~np.isnan(f)) < 2:  # nothing is compared
        return np.nan
    if isinstance(expression, Ratio):
        pairs = [(np.nanmin(others), np.nanmax(others))]
        if reference is not None:
            pairs = [(pairs[0][0], reference), (reference, pairs[0][1])]
        # With a slack s, the largest k that the rule holds for. Nothing is below zero.
        ratios = [
            (low + expression.slack) / high if high > ROUNDING else 1.0 for low, high in pairs
        ]
        return float(min(1.0, *ratios))
    if reference is not None:
        return float(np.nanmax(np.abs(others - reference)))
    return float(np.nanmax(f) - np.nanmin(f))


class _Compiler:
    """Functionals and rows of constraints, one constraint after the other."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.views: list[View] = []
        self.hard: list[Float] = []
        self.imitation: list[Float] = []  # the part of it that is about another model's decisions
        self.soft: list[Float] = []
        self.constants: list[float] = []
        self.terms: list[tuple[Part | MeanLoss, ...] | None] = []
        self.entries: list[dict[int, float]] = []
        self.right: list[float] = []
        self.names: list[str] = []
        self.small: list[SmallGroup] = []

    def functional(
        self, rate: Rate, view: View, group: Group | None, undefined: Callable[[str], float]
    ) -> int:
        """Add a rate (in a group) as a functional; its position."""
        cells = self.cells
        weight, count = cells.weight[view.cells], cells.count[view.cells]
        hard = np.zeros((weight.size, cells.classes.size))
        imitation = np.zeros_like(hard)
        soft = np.zeros(weight.size)
        constant = rate.constant
        terms: list[Part | MeanLoss] = []
        for a, term in rate.terms:
            inside = self.inside(term, view, group)
            share = np.where(inside, weight, 0.0)
            if not share.sum() > 0:
                counted = count[inside].any()
                constant = undefined("whose total weight is zero" if counted else "at all")
                break
            at = np.flatnonzero(inside)
            share *= a / share.sum()
            where = cells.select(view, term.where)
            share[~where] = 0.0
            if term.event == "log_loss":
                soft += share
                terms.append(MeanLoss(a, at + view.cells.start))
                continue
            event = self.cost(term, view) & where[:, None]
            cost = share[:, None] * event
            hard += cost
            terms.append(Part(a, at + view.cells.start, event[at]))
            if isinstance(term.event, Differs):
                imitation += cost
        self.views.append(view)
        self.hard.append(hard)
        self.imitation.append(imitation)
        self.soft.append(soft)
        self.constants.append(constant)
        self.terms.append(None if np.isnan(constant) else tuple(terms))
        return len(self.constants) - 1

    def inside(self, term: Term, view: View, group: Group | None) -> Any:
        """Cells of a view that a term is taken over."""
        cells = self.cells
        count, labels = cells.count[view.cells], cells.labels[view.cells]
        taken = (*term.rows, *term.on)
        about_labels = [s for s in taken if isinstance(s, ABOUT_LABELS)]
        inside = cells.select(view, [s for s in taken if s not in about_labels])
        if cells.rows.sources and not any(isinstance(s, DataSet) for s in term.on):
            inside &= cells.in_objective[view.cells]
        if group is not None:
            inside &= np.isin(view.levels[group.by], list(group.levels))
        judged = about_labels or term.where or term.event in ("error", "correct", "log_loss")
        if judged and count[inside & (labels < 0)].any():
            raise ValueError(
                f"{term} needs labels, which rows of a data set do not have: give it as "
                f"(X, y), or bound selection_rate or churn on it."
            )
        asked = [s.deployed for s in term.where if isinstance(s, Judged)]
        asked += [term.event.deployed] if isinstance(term.event, Differs) else []
        for deployed in asked if cells.rows.like is None else ():
            unknown = view.levels[deployed] == cells.classes.size
            if count[inside & unknown].any():
                raise ValueError(
                    f"{term} needs the other model's decisions, each a class of y, which rows of "
                    f"a data set do not have: give the model itself, or a column of them."
                )
        return inside & cells.select(view, about_labels)

    def cost(self, term: Term, view: View) -> Any:
        """Whether a term's event happens in a cell when a class is predicted."""
        cells = self.cells
        classes = np.arange(cells.classes.size)
        if isinstance(term.event, Predicted):
            return cells.is_class(term.event.target)
        if isinstance(term.event, Differs):
            return classes != view.levels[term.event.deployed][:, None]
        wrong = classes != cells.labels[view.cells][:, None]
        return wrong if term.event == "error" else ~wrong

    def add_row(self, name: str, entries: dict[int, float], right: float) -> None:
        """Add ``sum entries * functionals <= right``."""
        defined = {k: a for k, a in entries.items() if a != 0.0}
        if any(np.isnan(self.constants[k]) for k in defined):
            return
        self.entries.append(defined)
        self.right.append(right - sum(a * self.constants[k] for k, a in defined.items()))
        self.names.append(name)


def _group_rows(
    compiler: _Compiler, constraint: Constraint, groups: Sequence[Group], at: Sequence[int]
) -> None:
    """Rows of a comparison between groups."""
    e, b = constraint.expression, constraint.bound
    assert isinstance(e, Grouped)
    rate = [str(e.rate.restricted(*group.selectors)) for group in groups]
    if isinstance(e, Each):
        sign = constraint.sign
        for name, k in zip(rate, at, strict=True):
            compiler.add_row(f"{name} {constraint.sense} {b:g}", {k: sign}, sign * b)
        return
    assert isinstance(e, Gap)
    pairs = [(i, j) for i in range(len(groups)) for j in range(len(groups)) if i != j]
    if e.reference is not None:
        if isinstance(e.reference, Overall):
            rate.append(str(e.rate))
        last = len(at) - 1
        pairs = [pair for i in range(last) for pair in ((i, last), (last, i))]
    for i, j in pairs:
        if isinstance(e, Ratio):
            slack = f" - {e.slack:g}" if e.slack else ""
            name = f"{rate[i]} >= {b:g} * ({rate[j]}){slack}"
            compiler.add_row(name, {at[i]: -1.0, at[j]: b}, e.slack)
        else:
            name = f"{rate[i]} - {rate[j]} <= {b:g}"
            if len(e.rate.terms) > 1 or e.rate.constant:
                name = f"{rate[i]} - ({rate[j]}) <= {b:g}"
            compiler.add_row(name, {at[i]: 1.0, at[j]: -1.0}, b)


def find_groups(
    constraint: Constraint, view: View, compiler: _Compiler, known: Sequence[Group] | None = None
) -> list[Group]:
    """Find the groups of a comparison, and treat small groups as the constraint asks.

    Parameters
    ----------
    constraint : Constraint
        A comparison of groups.
    view : View
        The partition that the constraint lives in.
    compiler : _Compiler
        The rows, and the small groups found so far.
    known : sequence of Group, default=None
        Groups of the training rows, where these are other rows. The known groups are kept as
        they are, and groups that the training rows do not have follow with a size of zero.

    Returns
    -------
    list of Group
        The groups; the reference is the last one where it is a group.

    Raises
    ------
    ValueError
        If values are missing and `missing` is ``"raise"``, if the reference is no group, or if
        there are too few or too many groups.
    """
    cells, e = compiler.cells, constraint.expression
    assert isinstance(e, Grouped)
    by = columns_by(e, cells.rows)
    levels = cells.rows.attribute(by).levels
    count, weighted = cells.count[view.cells], cells.weighted_count[view.cells]
    covered = frozenset[int]().union(*(group.levels for group in known or ()))
    if known is not None and e.small_groups == "drop" and cells.rows.like is not None:
        covered |= frozenset(range(len(cells.rows.like.attribute(by).levels)))

    def rows_in_rate(group: Group) -> int:
        taken_over = [compiler.inside(t, view, group) for _, t in e.rate.terms]
        return int(min((weighted[inside].sum() for inside in taken_over), default=0))

    groups, sizes = [], []
    for i, level in enumerate(levels):
        if i in covered:
            continue
        group = Group(by, frozenset([i]), level)
        in_rate = rows_in_rate(group)
        in_group = view.levels[by] == i
        if not (count[in_group & cells.in_objective[view.cells]].any() or in_rate):
            continue  # a value of rows of other data sets
        if e.missing == "raise" and MISSING in level:
            raise ValueError(
                f"{constraint}: {', '.join(map(str, by))} has missing values: fill them in, drop "
                f"these rows, or make them a group with missing='group'."
            )
        sizes.append(in_rate)
        groups.append(replace(group, size=sizes[-1]))
    together = told_apart([*(known or ()), *groups])
    taken_over, groups = together[: len(known or ())], together[len(known or ()) :]
    small = [i for i, size in enumerate(sizes) if size < e.min_group_size]
    if small:
        nothing = [i for i in small if sizes[i] == 0]
        merged: list[Group] = []
        if e.small_groups == "merge":
            levels_of_all = frozenset[int]().union(*(groups[i].levels for i in small))
            name = (SMALL,) * len(by)
            before = [group for group in taken_over if group.name == name and group.size]
            if before:
                at = taken_over.index(before[0])
                taken_over[at] = replace(before[0], levels=before[0].levels | levels_of_all)
            else:
                joined = Group(by, levels_of_all, name)
                if size := rows_in_rate(joined):
                    merged = [replace(joined, size=size)]
        done = {"keep": "kept", "merge": "merged", "drop": "left out"}[e.small_groups]
        compiler.small += [
            SmallGroup(constraint, groups[i], sizes[i], done if sizes[i] or merged else "left out")
            for i in small
        ]
        if e.small_groups == "keep":
            small = nothing
        groups = [g for i, g in enumerate(groups) if i not in small] + merged
    if known is not None:
        further = [replace(group, size=0) for group in groups]
        has_reference = isinstance(e, Gap) and not isinstance(e.reference, Overall | None)
        at = len(taken_over) - has_reference
        groups = [*taken_over[:at], *further, *taken_over[at:]]
        _check_few(constraint, by, len(groups), MOST_GROUPS)
        return groups
    if isinstance(e, Gap) and e.reference is not None and not isinstance(e.reference, Overall):
        wanted = e.reference if isinstance(e.reference, tuple) else (e.reference,)
        reference = [g for g in groups if g.name == wanted]
        if not reference:
            missing = " reference=numpy.nan is the group of the rows without a value."
            raise ValueError(
                f"{constraint}: reference={e.reference!r} is not among the groups "
                f"{[g.name if len(by) > 1 else g.name[0] for g in groups]}."
                f"{missing * any(g.name == (MISSING,) for g in groups)}"
            )
        groups = [g for g in groups if g is not reference[0]] + reference
    _check_few(constraint, by, len(groups), MOST_GROUPS)
    fewest = 2 if isinstance(e, Gap) and not isinstance(e.reference, Overall) else 1
    if len(groups) < fewest:
        raise ValueError(
            f"{constraint} compares groups by {', '.join(map(str, by))}, of which "
            f"{len(groups)} {'is' if len(groups) == 1 else 'are'} left "
            f"({', '.join(map(str, groups)) or 'none'}): at least {fewest} are needed."
        )
    return groups


def compile_constraints(
    constraints: Sequence[Constraint],
    rows: Rows,
    reduce_sum: ReduceSum = local_sum,
    like: CompiledConstraints | None = None,
    idle: Collection[int] = (),
    where: str = "",
    listed_in: str = "",
) -> tuple[Cells, CompiledConstraints]:
    """Partition rows into cells and compile constraints against them.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    rows : Rows
        The rows.
    reduce_sum : callable, default=identity
        Sums a table over machines.
    like : CompiledConstraints, default=None
        The same constraints on training rows. Their groups are kept, and groups that these rows
        have besides follow them. What these rows do not have (a mask, a data set, a column, a
        group) then has the value NaN; without `like`, that is an error.
    idle : collection of int, default=()
        Positions of constraints that are only reported, as they are met whatever is decided: they
        have no rows, and the others are compiled as without them.
    where : str, default=""
        What the rows are called in a warning of small groups.
    listed_in : str, default=""
        What lists all small groups, for the warning.

    Raises
    ------
    ValueError
        If a constraint names an unknown class, value or data set, is binary on multiclass data,
        or is taken over no row or over rows of zero total weight.
    """
    needs: list[list[Key] | None] = []
    for constraint in constraints:
        try:
            needs.append(needs_of(constraint, rows))
        except UnavailableError:
            if like is None:
                raise
            needs.append(None)
    cells = Cells(rows, [keys or [] for keys in needs], reduce_sum, idle)
    compiler = _Compiler(cells)
    spans, owner, all_groups = [], [], []
    try:
        for j, constraint in enumerate(constraints):
            start, first_row = len(compiler.constants), len(compiler.names)
            view = cells.views[cells.view_of[j]]
            groups: Sequence[Group] = like.groups[j] if like is not None else ()
            if like is not None and needs[j] is None:
                for _ in like.constant[like.spans[j]]:
                    compiler.functional(Rate((), np.nan), view, None, lambda what: np.nan)
            else:
                try:
                    groups = _compile_one(constraint, compiler, view, groups, like is not None)
                except ValueError as error:
                    message = str(error)
                    if str(constraint) not in message:
                        message = f"{constraint}: {message}"
                    raise type(error)(message) from None
            spans.append(slice(start, len(compiler.constants)))
            owner += [j] * (len(compiler.names) - first_row)
            all_groups.append(tuple(groups))
    finally:  # an error may be about what small groups leave
        _warn_of_small_groups(compiler.small, where, listed_in)
    compiled = _assemble(constraints, compiler, spans, owner, all_groups)
    return cells, compiled.without_rows_of(idle)


def _compile_one(
    constraint: Constraint,
    compiler: _Compiler,
    view: View,
    groups: Sequence[Group],
    lenient: bool,
) -> Sequence[Group]:
    expression, bound = constraint.expression, constraint.bound

    def undefined(what: str) -> float:
        if lenient:
            return np.nan
        remedy = "it rows with positive weight" if what == "at all" else (
            "those rows positive sample_weight"
        )  # fmt: skip
        taken = "no rows at all" if what == "at all" else f"rows {what} (a class without weight?)"
        raise ValueError(
            f"{constraint} is taken over {taken}: drop the constraint, or give {remedy}."
        )

    if isinstance(expression, Grouped):
        groups = find_groups(constraint, view, compiler, groups if lenient else None)
        at = [compiler.functional(expression.rate, view, g, undefined) for g in groups]
        if isinstance(expression, Gap) and isinstance(expression.reference, Overall):
            at.append(compiler.functional(expression.rate, view, None, undefined))
        _group_rows(compiler, constraint, groups, at)
        return groups
    at = [compiler.functional(rate, view, None, undefined) for rate in constraint.rates]
    sign = constraint.sign
    if isinstance(expression, Quotient):
        compiler.add_row(str(constraint), {at[0]: sign, at[1]: -sign * bound}, 0.0)
    else:
        compiler.add_row(str(constraint), {at[0]: sign}, sign * bound)
    return ()


def _assemble(
    constraints: Sequence[Constraint],
    compiler: _Compiler,
    spans: Sequence[slice],
    owner: Sequence[int],
    groups: Sequence[tuple[Group, ...]],
) -> CompiledConstraints:
    cells = compiler.cells
    n_cells, n_classes = len(cells), cells.classes.size
    n, m = len(compiler.constants), len(compiler.names)
    starts = [view.cells.start for view in compiler.views]
    U = _stacked(compiler.hard, [start * n_classes for start in starts], n_cells * n_classes)
    V = _stacked(compiler.soft, starts, n_cells)
    counts = [len(entries) for entries in compiler.entries]
    columns = [k for entries in compiler.entries for k in entries]
    values = [a for entries in compiler.entries for a in entries.values()]
    R = sparse.csr_array(
        (np.array(values), np.array(columns, dtype=np.intp), np.cumsum([0, *counts])),
        shape=(m, n),
    )
    spread, rewards, rewards_all, splits, touched = [], [], [], [], []
    nothing = np.zeros(0, dtype=np.intp)
    reached = [
        _cells_reached(view, hard, imitation)
        for view, hard, imitation in zip(
            compiler.views, compiler.hard, compiler.imitation, strict=True
        )
    ]
    for entries in compiler.entries:
        view = compiler.views[next(iter(entries), 0)]  # all of a row's functionals are of one
        # Of many groups, a row is about few; all labels of a group come together.
        parts = [reached[k] for k in entries] or [nothing]
        at = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        combined = np.zeros((at.size, n_classes))
        imitation = np.zeros_like(combined)
        for k, a in entries.items():
            combined += a * compiler.hard[k][at]
            imitation += a * compiler.imitation[k][at]
        own = combined - imitation if (imitation >= 0).all() else combined
        labels = cells.labels[view.cells][at]
        rewarded = _rewarded(own, labels)
        rewards.append(rewarded.any())
        least = over_classes(np.minimum, own)
        suits: Any = (own <= least[:, None]) | ~rewarded[:, None]
        by_label = suits.reshape(_n_labels(view), at.size // _n_labels(view), n_classes)
        rewards_all.append(not by_label.all(axis=0).any(axis=1).all())
        largest = over_classes(np.maximum, combined)
        splits.append(((combined < largest[:, None]).sum(axis=1) > 1).any())
        width = largest - over_classes(np.minimum, combined)
        differs = np.flatnonzero(width)
        spread.append(width[differs])
        touched.append(at[differs] + view.cells.start)
    names = tuple(unique_names(compiler.names))
    return CompiledConstraints(
        tuple(constraints),
        U,
        V,
        np.array(compiler.constants),
        R,
        np.array(compiler.right),
        names,
        names,
        np.array(owner, dtype=np.intp),
        tuple(spans),
        tuple(groups),
        _sparse_rows(spread, touched, n_cells),
        np.array(rewards, dtype=bool),
        np.array(rewards_all, dtype=bool),
        np.array(splits, dtype=bool),
        tuple(compiler.terms),
        tuple(compiler.small),
    )


def _warn_of_small_groups(small: Sequence[SmallGroup], where: str, listed_in: str) -> None:
    """Warn once of all groups of few rows, and name the first of them."""
    alike: dict[tuple[Columns, int, str], list[SmallGroup]] = {}
    for found in small:
        e = found.constraint.expression
        assert isinstance(e, Grouped)
        alike.setdefault((found.group.by, e.min_group_size, e.small_groups), []).append(found)
    lines = []
    for (_, size, treatment), members in alike.items():
        fewest: dict[str, int] = {}
        for found in members:
            name = str(found.group)
            fewest[name] = min(found.rows, fewest.get(name, found.rows))
        named = [f"{name} ({rows})" for name, rows in fewest.items()]
        rules = list(dict.fromkeys(str(found.constraint) for found in members))
        done = {"keep": "kept", "merge": "merged into one group", "drop": "left out"}[treatment]
        has_empty = any(f.rows == 0 and f.treatment == "left out" for f in members)
        empty = " Groups without any such row are left out." if has_empty else ""
        several = f", {len(named)} groups in all" if len(named) > FEW_NAMED else ""
        lines.append(
            f"{where}{some_of(rules, FEW_NAMED)}: some groups have fewer than "
            f"min_group_size={size} rows that the rate is taken over: "
            f"{some_of(named, FEW_NAMED)}{several}. They are {done} "
            f"(small_groups={treatment!r}).{empty}"
        )
    if lines:
        has_more = any("groups in all" in line for line in lines)
        listed = f" {listed_in} lists all of them." if has_more and listed_in else ""
        warnings.warn("\n".join(lines) + listed, UserWarning, stacklevel=level_of_the_user())


def _n_labels(view: View) -> int:
    """Levels of the label, the first attribute of every view."""
    return int(view.levels["label"][-1]) + 1


def _cells_reached(view: View, *tables: Float) -> Codes:
    """Cells of a view that tables have entries in, with those that differ by the label alone."""
    others = len(view) // _n_labels(view)
    has_entry = np.any([table.any(axis=1) for table in tables], axis=0)
    columns = np.flatnonzero(has_entry.reshape(-1, others).any(axis=0))
    return np.ravel(np.arange(_n_labels(view))[:, None] * others + columns)


def _stacked(tables: Sequence[Float], starts: Sequence[int], width: int) -> Any:
    """Sparse matrix with the entries of a table in each row, from a column on."""
    flat = [np.ravel(table) for table in tables]
    columns = [np.flatnonzero(row) for row in flat]
    values = [row[at] for row, at in zip(flat, columns, strict=True)]
    return _sparse_rows(
        values, [at + start for at, start in zip(columns, starts, strict=True)], width
    )


def _sparse_rows(values: Sequence[Float], columns: Sequence[Codes], width: int) -> Any:
    """Sparse matrix of the values of each row, given their columns."""
    ends = np.cumsum([0, *(at.size for at in columns)])
    empty: list[Any] = [np.zeros(0)]
    return sparse.csr_array(
        (np.concatenate(values or empty), np.concatenate(columns or empty).astype(np.intp), ends),
        shape=(len(columns), width),
    )


def _rewarded(cost: Float, labels: Any) -> Bool:
    """Cells whose errors a row of constraints asks for, or of which no error is known."""
    own = cost[np.arange(labels.size), np.maximum(labels, 0)]
    largest, least = over_classes(np.maximum, cost), over_classes(np.minimum, cost)
    return np.asarray((largest > least) & ((labels < 0) | (own >= largest)))


def _as_loss(term: Part | MeanLoss) -> MeanLoss:
    return MeanLoss(term.coefficient, term.cells)


def as_losses(compiled: CompiledConstraints, n_classes: int) -> tuple[CompiledConstraints, Float]:
    """Replace 0-1 error bounds e by mean-loss bounds, the paper's heuristic (section 6).

    The mean cross-entropy of a cell set is bounded by ``e log(n_classes)``: e times the loss of a
    model that knows nothing.

    Returns
    -------
    compiled : CompiledConstraints
        With every error rate turned into a mean loss.
    factors : ndarray of shape (m,)
        e for those, NaN for the others: what ABPP re-estimates bounds with. Of a multiple of an
        error rate it is the bound of the rate alone.

    Raises
    ------
    ValueError
        If a constraint is not an upper bound of a single error rate.
    """
    for constraint in compiled.constraints:
        terms = constraint.rates[0].terms
        single = isinstance(constraint.expression, Rate) and constraint.sense == "<="
        single &= len(terms) == 1 and terms[0][0] > 0.0 and is_error(terms[0][1], n_classes)
        if not constraint.is_loss and not single:
            raise ValueError(
                f"error_form='log_loss' is for upper bounds of error rates, and {constraint} is "
                f"not one: use error_form='rate'."
            )
    is_rate = compiled.has_rates
    factors = np.full(len(compiled), np.nan)
    for r in np.flatnonzero(is_rate):
        ((multiple, _),) = compiled.constraints[compiled.owner[r]].rates[0].terms
        factors[r] = compiled.b[r] / multiple
    losses = replace(
        compiled,
        U=sparse.csr_array(compiled.U.shape),
        V=sparse.csr_array(compiled.V + compiled.R.T @ compiled.spread),
        spread=sparse.csr_array(compiled.spread.shape),
        rewards_errors=np.zeros(len(compiled), dtype=bool),
        rewards_all_errors=np.zeros(len(compiled), dtype=bool),
        splits_targets=np.zeros(len(compiled), dtype=bool),
        terms=tuple(terms and tuple(map(_as_loss, terms)) for terms in compiled.terms),
        b=np.where(is_rate, compiled.b * np.log(n_classes), compiled.b),
    )
    return losses, factors


def is_error(term: Term, n_classes: int) -> bool:
    """Whether a term counts misclassified rows and nothing else."""
    if isinstance(term.event, Predicted):  # a false positive rate of two classes
        return n_classes == 2 and term.name.partition("(")[0] == "fpr" and not term.where
    return term.event == "error" and not term.where
