r"""Constraints to linear maps of cell statistics.

A rate in a group is a *functional* of cell statistics, ``U . predicted + V . loss + Q . pairs +
S . residuals + constant``. A constraint has one functional (a rate), two (a quotient), one for
each group, or one for each bin of a calibration error.

A bound compiles to linear rows, ``R functionals <= b``: a gap of G groups to G (G - 1) rows, and a
quotient bounded by k to ``numerator - k denominator``. The solver sees the rows as
``g = A . predicted + B . loss + C . pairs + D . residuals - b``; reports show the value that the
user bounded.

Views divide rows by few attributes each. A decision rule of least cost needs the cost of deciding
class j for a row of *one* cell c, which is the product of all views that have rows. With the
weight :math:`m_{cj}` of the rows of cell c that are decided as class j, every functional is

.. math:: u_k = \sum_{c, j} T_{kcj} m_{cj} + \text{constant}_k .

Where rows count for amounts, each *measure* has such weights: that of ones, and one for each
amount. Tables have the rows of all measures, one measure after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.constraints.selectors import Amount, Column, Key
from gbm_constrained.data.cells import MOST_CELLS, Cells, View
from gbm_constrained.data.rows import Rows
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.problem.blocks import (
    find_blocks,
    find_row_properties,
    make_csr,
    tabulate,
)
from gbm_constrained.problem.functionals import (
    Group,
    GroupFinder,
    RateParts,
    SmallGroup,
    WeightedFraction,
    check_number_of_groups,
    columns_by,
    compile_rate,
    unique_names,
    warn_of_small_groups,
)
from gbm_constrained.problem.linear_constraints import CurveDirections, Curves, LinearConstraints

Views: TypeAlias = Mapping[Amount | None, View]  # The view of each amount of a constraint.


def needs_of(constraint: Constraint, rows: Rows) -> list[Key | Amount | None]:
    """List the attributes that a constraint depends on, and refuse those that no row has.

    The amounts that its rows count for are among them, and None for ones beside amounts.
    """
    expression = constraint.expression
    by = columns_by(expression, rows) if isinstance(expression, Grouped) else ()
    keys: list[Key | Amount] = [key for term in constraint.terms for key in term.keys]
    keys += [by] if expression.compares_groups else []
    for key in keys:
        try:
            rows.amounts(key) if isinstance(key, Amount) else rows.attribute(key)
        except UnavailableError as error:
            raise UnavailableError(f"{constraint}: {error}") from None
    if expression.compares_groups:
        # Labels divide each group into cells.
        check_number_of_groups(constraint, by, len(rows.attribute(by).levels), MOST_CELLS // 4)
    for term in constraint.terms:
        for source in set(term.data_sets) & set(rows.sources):
            amount = [term.amount.column] if term.amount is not None else []
            columns = [part.name for part in term.selectors if isinstance(part, Column)]
            for name in (*by, *columns, *amount):
                if not rows.has_column(source, name):
                    raise ValueError(
                        f"{constraint}: column {name!r} is not known of the rows of data set "
                        f"{source!r}. Rows of data sets have groups only from columns of X, as "
                        f"sensitive_features are of the training rows: make it a column of X."
                    )
    of_ones = [None] if any(term.amount is None for term in constraint.terms) else []
    return list(dict.fromkeys([*of_ones, *keys]))


def compile_constraints(
    constraints: Sequence[Constraint],
    rows: Rows,
    like: LinearConstraints | None = None,
    idle: Collection[int] = (),
    warning: tuple[str, str] | None = ("", ""),
) -> tuple[Cells, LinearConstraints]:
    """Partition rows into cells and compile constraints against them.

    Parameters
    ----------
    like : The same constraints on training rows. Their groups are kept, and further groups follow
        them. What these rows do not have (a mask, a data set, a column, a group) has the value
        NaN; without `like`, it is an error.
    warning : Name of the rows, with a comma, and of the attribute that lists small groups, in a
        warning of these; None where a compilation of more rows has warned.
    idle : Positions of constraints that every decision satisfies. They are reported, have no rows,
        and leave the others as they would be without them.
    """
    needs: list[list[Key | Amount | None] | None] = []
    for constraint in constraints:
        if "pair" in constraint.kinds and not rows.machine.communicator.holds_all_rows:
            raise ValueError(
                f"{constraint} compares the scores of pairs of rows, which may be on different "
                f"machines: train on one machine, or leave the constraint out."
            )
        if constraint.expression.is_curved and not rows.machine.communicator.holds_all_rows:
            raise ValueError(
                f"{constraint} is no sum of rates, and its tangents are found on one machine, "
                f"while the rows are on several: train on one, or bound the rates themselves."
            )
        try:
            needs.append(needs_of(constraint, rows))
        except UnavailableError:
            if like is None:
                raise
            needs.append(None)
    cells = Cells(rows, [keys or [] for keys in needs], idle)
    found = _Compilation(cells)
    try:
        for j, constraint in enumerate(constraints):
            if like is not None and needs[j] is None:
                # All functionals are undefined on these rows.
                n_functionals = like.spans[j].stop - like.spans[j].start
                found.close([None] * n_functionals, [np.nan] * n_functionals, like.groups[j])
            else:
                known = None if like is None else like.groups[j]
                try:
                    found.add(constraint, cells.views_by_amount(j), known)
                except ValueError as error:
                    message = str(error)
                    if str(constraint) not in message:
                        message = f"{constraint}: {message}"
                    raise type(error)(message) from None
    finally:  # An error may be about what small groups leave.
        if warning is not None:
            warn_of_small_groups(found.small, *warning)
    return cells, found.assemble(constraints).without_rows_of(idle)


@dataclass
class _Compilation:
    """Functionals and linear rows of constraints, one constraint after the other."""

    cells: Cells
    terms: list[RateParts] = field(default_factory=list)
    constant: list[float] = field(default_factory=list)
    spans: list[slice] = field(default_factory=list)
    groups: list[tuple[Group, ...]] = field(default_factory=list)
    small: list[SmallGroup] = field(default_factory=list)
    # Coefficients, right-hand side, unit, name and constraint of each row.
    rows: list[tuple[Mapping[int, float], float, float, str, int]] = field(default_factory=list)
    curves: list[CurveDirections] = field(default_factory=list)

    def add(self, constraint: Constraint, views: Views, known: Sequence[Group] | None) -> None:
        """Compile a constraint; `known` are the groups of the training rows."""
        groups: Sequence[Group] = ()
        if constraint.expression.compares_groups:
            finder = GroupFinder(constraint, views, self.cells)
            try:
                groups = finder.find() if known is None else finder.find_further(known)
            finally:
                self.small += finder.small
        refused = constraint if known is None else None
        functionals = constraint.expression.functionals(groups)
        start = len(self.terms)
        terms = [
            compile_rate(self.cells, rate, views, group, refused) for rate, group in functionals
        ]
        constant = [
            np.nan if parts is None else rate.constant
            for parts, (rate, _) in zip(terms, functionals, strict=True)
        ]
        self.close(terms, constant, groups)
        names = [
            str(rate if group is None else rate.restrict(*group.selectors))
            for rate, group in functionals
        ]
        # Rows of costs are scaled as those of rates are: between 0 and 1.
        unit = 1.0
        if (
            "cost" in constraint.kinds
        ):  # The largest difference that decisions make to functionals.
            own, cells = [view.cells for view in views.values()], self.cells
            table = tabulate(terms, cells.weight, cells.classes.size, (), ())["predicted"]
            widths = np.ptp(table.toarray().reshape(len(terms), len(cells), -1), axis=2)
            unit = max(sum(float(of[at].sum()) for at in own) for of in widths) or 1.0
        at = range(start, len(self.terms))
        # A row with an undefined functional is left out.
        for row in constraint.expression.rows(constraint, at, names):
            defined = {k: a / unit for k, a in row.coefficients.items() if a != 0.0}
            right = row.bound / unit - sum(a * self.constant[k] for k, a in defined.items())
            if not np.isnan(right):
                self.rows.append((defined, right, unit, row.name, len(self.spans) - 1))
        expression = constraint.expression
        for curved in expression.branches(constraint, at) if expression.is_curved else ():
            if np.isnan([self.constant[k] for k in curved.at]).any():
                continue
            curve = CurveDirections(curved, len(self.rows))
            for i, sign in curve.directions:
                k = curved.at[i]
                name = f"{'-' if sign < 0 else ''}{names[k - start]} in {constraint}"
                self.rows.append(({k: sign}, curved.bound, 1.0, name, len(self.spans) - 1))
            self.curves.append(curve)

    def close(
        self, terms: Sequence[RateParts], constant: Sequence[float], groups: Sequence[Group]
    ) -> None:
        """Add the functionals and the groups of a constraint."""
        start = len(self.terms)
        self.terms += terms
        self.constant += constant
        self.spans.append(slice(start, len(self.terms)))
        self.groups.append(tuple(groups))

    def assemble(self, constraints: Sequence[Constraint]) -> LinearConstraints:
        """Assemble functionals and rows as matrices."""
        cells, terms = self.cells, self.terms
        rows, bounds, units, row_names, owner = (
            zip(*self.rows, strict=True) if self.rows else ((),) * 5
        )
        names = tuple(unique_names(row_names))
        blocks = find_blocks(terms, cells.views)
        curves = Curves(len(self.rows), tuple(self.curves))
        imitating = [
            tuple(
                part
                for part in parts or ()
                if isinstance(part, WeightedFraction) and part.imitates
            )
            for parts in terms
        ]
        tables, imitated = (
            tabulate(parts, cells.weight, cells.classes.size, *blocks)
            for parts in (terms, imitating)
        )
        R = make_csr(
            [(np.array([*row.values()]), np.array([*row], np.intp)) for row in rows], len(terms)
        )
        A, of_imitations = (R @ table["predicted"] for table in (tables, imitated))
        return LinearConstraints(
            constraints=tuple(constraints),
            tables=tables,
            pair_blocks=blocks[0],
            residual_blocks=blocks[1],
            constant=np.array(self.constant),
            R=R,
            b=np.array(bounds),
            unit=np.array(units),
            rows=names,
            all_rows=names,
            owner=np.array(owner, dtype=np.intp),
            spans=tuple(self.spans),
            groups=tuple(self.groups),
            **find_row_properties(cells, A, of_imitations, curves.is_curved),
            terms=tuple(terms),
            small=tuple(self.small),
            curves=curves,
        )


@dataclass(frozen=True, eq=False)
class JointCells:
    """Joint partition of the rows, without empty cells.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), intp
        The joint cell of each row.
    of_views : ndarray of shape (n_joint_cells, n_views), intp
        The cell of each view that a joint cell lies in, counted over all views.
    labels : ndarray of shape (n_joint_cells,), intp
        Class index of the rows of each joint cell.
    n_classes : int
        Number of classes.
    measures : sequence of ndarray of shape (n_samples,) or None, default=(None,)
        What each row counts for; None for ones, which are the first measure.
    of_measures : ndarray of shape (n_views,), intp, default=None
        Measure of each view; the first one of all views by default.
    """

    codes: Codes
    of_views: Codes
    labels: Codes
    n_classes: int
    measures: Sequence[Float | None] = (None,)
    of_measures: Codes | None = None

    @classmethod
    def of(cls, cells: Cells) -> JointCells:
        """Divide rows by all views.

        Raises
        ------
        ValueError
            If there are too many joint cells to estimate the probability of each.
        """
        codes = np.stack([view.codes for view in cells.views], axis=1)
        of_views, joint = np.unique(codes, axis=0, return_inverse=True)
        if not cells.communicator.holds_all_rows:  # Other machines may have other combinations.
            found = np.concatenate([*cells.communicator.gather(of_views), codes])
            of_views, joint = np.unique(found, axis=0, return_inverse=True)
            joint = joint.ravel()[len(found) - len(codes) :]
        most = 200  # No booster can be expected to estimate the probability of each of more.
        if len(of_views) > most:
            raise ValueError(
                f"the metric and its constraints divide the rows into {len(of_views)} "
                f"combinations of label and groups, more than {most}, and decisions "
                f"need the probability of each: compare fewer groups, or use "
                f"small_groups='merge'."
            )
        labels, codes = cells.labels[of_views[:, 0]], np.ravel(joint).astype(np.intp)
        measures = {id(None): None} | {id(view.amount): view.amount for view in cells.views}
        position = {key: m for m, key in enumerate(measures)}
        of_measures = np.array([position[id(view.amount)] for view in cells.views])
        amounts = tuple(measures.values())
        return cls(codes, of_views, labels, cells.classes.size, amounts, of_measures)

    @property
    def are_labels(self) -> bool:
        """Whether the joint cells are the classes themselves, in their order."""
        return np.array_equal(self.labels, np.arange(self.n_classes))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_counted(self) -> int:
        """Number of joint cells times that of measures."""
        return len(self) * len(self.measures)

    def amounts(self, rows: Codes | slice = slice(None)) -> list[Float]:
        """List the amounts of some of the rows in each measure but that of ones."""
        return [measure[rows] for measure in self.measures if measure is not None]

    def totals(self, weight: Float | None, rows: Codes | slice = slice(None)) -> Float:
        """Sum the weights of some rows by measure and joint cell, (n_measures, n_joint_cells)."""
        codes, weighed = self.codes[rows], self._weigh(weight, rows)
        return np.array([np.bincount(codes, w, len(self)) for w in weighed], dtype=np.float64)

    def mean_amounts(self, weight: Float | None, rows: Codes) -> Float:
        """Average what some rows of each joint cell count for, (n_measures, n_joint_cells)."""
        totals = self.totals(weight, rows)
        has_weight = totals[0] > 0.0
        return np.asarray(np.divide(totals, totals[0], np.ones_like(totals), where=has_weight))

    def costs_of_rows(self, costs: Float, rows: Codes | slice = slice(None)) -> Float:
        """Add up the cost of each decision about some rows, (n_rows, n_classes).

        Parameters
        ----------
        costs : ndarray of shape (n_measures * n_joint_cells, n_classes)
            Cost of each decision in each measure and cell.
        rows : ndarray of shape (n_rows,), intp, default=all
            Positions of the rows.
        """
        codes = self.codes[rows]
        ones, *others = costs.reshape(len(self.measures), len(self), -1)
        found = ones[codes]
        for of_measure, amount in zip(others, self.amounts(rows), strict=True):
            found += amount[:, None] * of_measure[codes]
        return np.asarray(found)

    def _weigh(self, weight: Float | None, rows: Codes | slice) -> list[Float | None]:
        """Multiply weights of some rows by what they count for in each measure."""
        amounts = self.amounts(rows)
        return [weight, *(one if weight is None else weight * one for one in amounts)]

    def counts(self, decisions: Codes, weight: Float | None, rows: Codes) -> Float:
        """Sum the weights of some rows by measure, joint cell and decision.

        Parameters
        ----------
        decisions : ndarray of shape (n_rows,), intp
            Class index that each of the rows is decided as.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_measures * n_joint_cells, n_classes)
        """
        size = len(self) * self.n_classes
        at = self.codes[rows] * self.n_classes + decisions
        found = [np.bincount(at, w, size) for w in self._weigh(weight, rows)]
        return np.concatenate(found).reshape(self.n_counted, -1).astype(np.float64)

    def count_shares(
        self, shares: Float, weight: Float | None, rows: Codes | slice = slice(None)
    ) -> Float:
        """Sum the weights of some rows by measure, joint cell and randomised decision.

        Parameters
        ----------
        shares : ndarray of shape (n_rows, n_classes)
            Probability of each decision on each of the rows.
        weight : ndarray of shape (n_rows,) or None
            Weight of each of the rows.
        rows : ndarray of shape (n_rows,), intp, default=all
            Positions of the rows.

        Returns
        -------
        ndarray of shape (n_measures * n_joint_cells, n_classes)
        """
        codes = self.codes[rows]
        weight = np.ones(len(shares)) if weight is None else weight
        found = [
            np.stack([np.bincount(codes, w * share, len(self)) for share in shares.T], axis=1)
            for w in self._weigh(weight, rows)
        ]
        return np.concatenate(found).astype(np.float64)

    def spread(self, counts: Float, n_cells: int, *, as_ones: bool = False) -> Float:
        """Add weights of joint cells up to those of the cells of all views.

        Parameters
        ----------
        counts : ndarray of shape (..., n_measures * n_joint_cells, n_classes)
            Weights.
        n_cells : int
            Number of cells of all views.
        as_ones : bool, default=False
            Whether rows count as one in every view, instead of for its amounts.

        Returns
        -------
        ndarray of shape (..., n_cells, n_classes)
        """
        tables = np.zeros((*counts.shape[:-2], n_cells, self.n_classes))
        by_cell = np.moveaxis(counts, -2, 0)
        for v, cells in enumerate(self.of_views.T):
            start = 0 if as_ones else self._measure_of(v) * len(self)
            for cell, of_cell in zip(cells, by_cell[start : start + len(self)], strict=True):
                tables[..., cell, :] += of_cell
        return tables

    def _measure_of(self, view: int) -> int:
        """Find the position of the measure of a view."""
        return 0 if self.of_measures is None else int(self.of_measures[view])

    def coefficients(self, cells: Cells, compiled: LinearConstraints) -> Coefficients:
        """Write functionals on (part of) the rows in weights of joint cells.

        Parameters
        ----------
        cells : Cells
            The views of these rows.
        compiled : LinearConstraints
            Functionals compiled against them.
        """
        n, k = len(cells), self.n_classes
        share = np.divide(1.0, cells.weight, out=np.zeros(n), where=cells.weight > 0)
        by_cell = compiled.U.toarray().reshape(-1, n, k) * share[:, None]
        of_view = np.array([self._measure_of(v) for v in range(self.of_views.shape[1])])
        tables = [
            by_cell[:, self.of_views[:, of_view == m], :].sum(axis=2)
            for m in range(len(self.measures))
        ]
        return Coefficients(np.concatenate(tables, axis=1), np.nan_to_num(compiled.constant))


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Functionals in weights of joint cells.

    Parameters
    ----------
    table : ndarray of shape (n_functionals, n_measures * n_joint_cells, n_classes)
        Coefficient of the weight, in a measure, of each cell's rows that are decided as each
        class.
    constant : ndarray of shape (n_functionals,)
        Constant parts; zero of functionals that the rows do not define.
    """

    table: Float
    constant: Float

    def in_units(self, units: Float) -> Coefficients:
        """Divide each functional by its unit."""
        return Coefficients(self.table / units[:, None, None], self.constant / units)

    def functionals(self, counts: Float) -> Float:
        """Compute the functionals from weights, in the shape (..., *table.shape[1:])."""
        found = np.tensordot(counts, self.table, axes=([-2, -1], [1, 2]))
        return np.asarray(found + self.constant)

    def costs(self, cost: Float) -> Float:
        """Cost of each decision in each measure and cell, given the cost of each functional."""
        return np.asarray(np.tensordot(cost, self.table, axes=1))
