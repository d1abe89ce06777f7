"""Constraints to linear maps of cell statistics.

A rate in a group is a *functional* of cell statistics, ``U . predicted + V . loss + Q . pairs +
S . residuals + constant``. A constraint has one functional (a rate), two (a quotient), one for
each group, or one for each bin of a calibration error.

A bound compiles to linear rows, ``R functionals <= b``: a gap of G groups to G (G - 1) rows, and a
quotient bounded by k to ``numerator - k denominator``. The solver sees the rows as
``g = A . predicted + B . loss + C . pairs + D . residuals - b``; reports show the value that the
user bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.curves import CurvedRow, LinearRow
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.constraints.selectors import Key
from gbm_constrained.data.cells import MOST_CELLS, Cells, View
from gbm_constrained.data.rows import Rows
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.problem.curved_rows import Curve, Curves
from gbm_constrained.problem.functionals import Functional, FunctionalCompiler, FunctionalInView
from gbm_constrained.problem.grouping import (
    GroupFinder,
    SmallGroupWarning,
    check_number_of_groups,
    columns_by,
)
from gbm_constrained.problem.groups import Group, SmallGroup
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.names import unique_names
from gbm_constrained.problem.pair_blocks import find_pair_blocks, pair_matrix
from gbm_constrained.problem.residual_blocks import find_residual_blocks, residual_matrix
from gbm_constrained.problem.row_properties import find_row_properties, make_csr

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
            for name in (*by, *(column.name for column in term.columns), *amount):
                _check_column_of_data_set(constraint, rows, source, name)
    of_ones = [None] if any(term.amount is None for term in constraint.terms) else []
    return list(dict.fromkeys([*of_ones, *keys]))


def _check_column_of_data_set(constraint: Constraint, rows: Rows, source: str, name: Any) -> None:
    """Refuse groups of rows of a data set that has no column of them."""
    if not rows.has_column(source, name):
        raise ValueError(
            f"{constraint}: column {name!r} is not known of the rows of data set "
            f"{source!r}. Rows of data sets have groups only from columns of X, as "
            f"sensitive_features are of the training rows: make it a column of X."
        )


def compile_constraints(
    constraints: Sequence[Constraint],
    rows: Rows,
    like: LinearConstraints | None = None,
    idle: Collection[int] = (),
    warning: SmallGroupWarning | None = SmallGroupWarning(),  # noqa: B008 - immutable
) -> tuple[Cells, LinearConstraints]:
    """Partition rows into cells and compile constraints against them.

    Parameters
    ----------
    like : The same constraints on training rows. Their groups are kept, and further groups follow
        them. What these rows do not have (a mask, a data set, a column, a group) has the value
        NaN; without `like`, it is an error.
    warning : Warns of small groups; None where a compilation of more rows has done so.
    idle : Positions of constraints that every decision satisfies. They are reported, have no rows,
        and leave the others as they would be without them.
    """
    needs: list[list[Key | Amount | None] | None] = []
    for constraint in constraints:
        if constraint.is_pair and not rows.machine.communicator.holds_all_rows:
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
    programme = _Programme(cells)
    try:
        for j, constraint in enumerate(constraints):
            if like is not None and needs[j] is None:
                view = cells.views[cells.view_of[j]]
                programme.add_undefined(view, like.spans[j], like.groups[j])
            else:
                views = cells.views_by_amount(j)
                programme.add(constraint, views, None if like is None else like.groups[j])
    finally:  # An error may be about what small groups leave.
        if warning is not None:
            warning.warn(programme.small)
    return cells, programme.assemble(constraints).without_rows_of(idle)


@dataclass
class _Programme:
    """Functionals and linear rows of constraints, one constraint after the other."""

    cells: Cells
    functionals: list[Functional] = field(default_factory=list)
    spans: list[slice] = field(default_factory=list)
    groups: list[tuple[Group, ...]] = field(default_factory=list)
    small: list[SmallGroup] = field(default_factory=list)
    rows: list[Mapping[int, float]] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    units: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def add(self, constraint: Constraint, views: Views, known: Sequence[Group] | None) -> None:
        """Compile a constraint; `known` are the groups of the training rows."""
        try:
            self._compile(constraint, views, known)
        except ValueError as error:
            message = str(error)
            if str(constraint) not in message:
                message = f"{constraint}: {message}"
            raise type(error)(message) from None

    def _compile(
        self, constraint: Constraint, views: Views, known: Sequence[Group] | None
    ) -> None:
        compiler = FunctionalCompiler(self.cells)
        groups: Sequence[Group] = ()
        if constraint.expression.compares_groups:
            finder = GroupFinder(constraint, views, compiler)
            try:
                groups = finder.find() if known is None else finder.find_further(known)
            finally:
                self.small += finder.small
        undefined = _refuse_undefined(constraint) if known is None else _undefined_is_nan
        functionals = constraint.expression.functionals(groups)
        start = len(self.functionals)
        found = [compiler.compile(rate, views, group, undefined) for rate, group in functionals]
        self._close(found, groups)
        names = [
            str(rate if group is None else rate.restrict(*group.selectors))
            for rate, group in functionals
        ]
        # Rows of costs are scaled as those of rates are: between 0 and 1.
        has_costs = any(term.event.is_cost for term in constraint.terms)
        unit = (max(one.width for one in found) if has_costs else 1.0) or 1.0
        at = range(start, len(self.functionals))
        for row in constraint.rows(at, names):
            self._add_row(row, unit)
        for curved in constraint.branches(at) if constraint.expression.is_curved else ():
            self._add_curve(constraint, curved, dict(zip(at, names, strict=True)))

    def add_undefined(self, view: View, span: slice, groups: tuple[Group, ...]) -> None:
        """Add a constraint whose functionals are all undefined on these rows."""
        nowhere = FunctionalInView.of(view, self.cells.classes.size)
        nothing = Functional((nowhere,), np.nan, None)
        self._close([nothing] * (span.stop - span.start), groups)

    def _close(self, functionals: Sequence[Functional], groups: Sequence[Group]) -> None:
        start = len(self.functionals)
        self.functionals += functionals
        self.spans.append(slice(start, len(self.functionals)))
        self.groups.append(tuple(groups))

    def _add_row(self, row: LinearRow, unit: float) -> None:
        """Add a linear row in a unit, unless one of its functionals is undefined."""
        defined = {k: a / unit for k, a in row.coefficients.items() if a != 0.0}
        constants = {k: self.functionals[k].constant for k in defined}
        if np.isnan(list(constants.values())).any():
            return
        self.rows.append(defined)
        self.bounds.append(row.bound / unit - sum(a * constants[k] for k, a in defined.items()))
        self.units.append(unit)
        self.names.append(row.name)
        self.owner.append(len(self.spans) - 1)

    def _add_curve(self, constraint: Constraint, row: CurvedRow, names: dict[int, str]) -> None:
        """Add the directions of a curved row, unless one of its functionals is undefined."""
        if np.isnan([self.functionals[k].constant for k in row.at]).any():
            return
        curve = Curve.of(row, len(self.rows))
        for i, sign in curve.directions:
            self.rows.append({row.at[i]: sign})
            self.bounds.append(row.bound)
            self.units.append(1.0)
            self.names.append(f"{'-' if sign < 0 else ''}{names[row.at[i]]} in {constraint}")
            self.owner.append(len(self.spans) - 1)
        self.curves.append(curve)

    def assemble(self, constraints: Sequence[Constraint]) -> LinearConstraints:
        """Assemble functionals and rows as matrices."""
        cells, functionals = self.cells, self.functionals
        n_cells, n_classes = len(cells), cells.classes.size
        names = tuple(unique_names(self.names))
        terms = [one.terms for one in functionals]
        blocks = find_pair_blocks(terms, cells.views)
        residual_blocks = find_residual_blocks(terms, cells.views)
        curves = Curves(len(self.rows), tuple(self.curves))
        return LinearConstraints(
            constraints=tuple(constraints),
            U=_stack(
                [
                    [(one.view.cells.start * n_classes, one.predicted) for one in found.in_views]
                    for found in functionals
                ],
                n_cells * n_classes,
            ),
            V=_stack(
                [
                    [(one.view.cells.start, one.loss) for one in found.in_views]
                    for found in functionals
                ],
                n_cells,
            ),
            Q=pair_matrix(blocks, terms, cells.weight),
            pair_blocks=blocks,
            S=residual_matrix(residual_blocks, terms, cells.weight),
            residual_blocks=residual_blocks,
            constant=np.array([one.constant for one in functionals]),
            R=make_csr(
                [np.array(list(row.values()), dtype=np.float64) for row in self.rows],
                [np.array(list(row), dtype=np.intp) for row in self.rows],
                len(functionals),
            ),
            b=np.array(self.bounds),
            unit=np.array(self.units),
            rows=names,
            all_rows=names,
            owner=np.array(self.owner, dtype=np.intp),
            spans=tuple(self.spans),
            groups=tuple(self.groups),
            **find_row_properties(cells, functionals, self.rows, curves.is_curved),
            terms=tuple(terms),
            small=tuple(self.small),
            curves=curves,
        )


class NoRowsError(ValueError):
    """Error of a rate that is taken over no rows."""


def _undefined_is_nan(reason: str) -> float:
    """Return NaN for a rate over no rows."""
    return np.nan


def _refuse_undefined(constraint: Constraint) -> Callable[[str], float]:
    """Make a function that refuses a rate over no rows, with its remedy."""

    def refuse(reason: str) -> float:
        is_empty = reason == "at all"
        remedy = (
            "it rows with positive weight" if is_empty else "those rows positive sample_weight"
        )
        taken = "no rows at all" if is_empty else f"rows {reason} (a class without weight?)"
        raise NoRowsError(
            f"{constraint} is taken over {taken}: drop the constraint, or give {remedy}."
        )

    return refuse


def _stack(tables: Sequence[Sequence[tuple[int, Float]]], width: int) -> Any:
    """Make a sparse matrix with the entries of some tables in each row, each from a column on."""
    values, columns = [], []
    for of_row in tables:
        flat = [(start, np.ravel(table)) for start, table in of_row]
        values.append(np.concatenate([table[table != 0.0] for _, table in flat]))
        columns.append(np.concatenate([np.flatnonzero(table) + start for start, table in flat]))
    return make_csr(values, columns, width)
