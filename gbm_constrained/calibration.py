r"""Move the decisions of a trained model until the rules hold on rows it has not seen.

A shift is added to the scores: a number to the margin of two classes, which moves the threshold,
or one bias to each class's score. The error and every 0-1 rate are step functions of it,

.. math:: \min_v e(v) \quad \text{s.t.} \quad A \, \text{predicted}(v) \le b,

and as a shift grows along a line each row changes its decision once: sorted by where they do,
rows give all values on the line as running sums. Two classes have one line, and its best shift is
found exactly. Several classes are searched line by line, raising one class or two against the
others. Shifts that decide alike are one candidate, put midway between its neighbours' scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from gbm_constrained.cells import Cells
from gbm_constrained.compiler import CompiledConstraints
from gbm_constrained.rows import Bool, Codes, Float
from gbm_constrained.selection import MET

# Scores closer to each other than this, relative to their size (at least one), count as equal: a
# threshold between them would not survive the rounding of a booster's float32 sums, up to 1e-6 of
# the scores after some hundred trees. Beyond MANY rows the few that are rounded to the other side
# no longer count, while all gaps are small.
RESOLUTION, MANY = 1e-5, 1_000_000
BEYOND = 1.0  # How far past the outermost score a shift goes that decides all rows alike.
BLOCK = 4096  # Rows of one running sum: few enough for its rounding to stay below MET.
ROWS_AT_ONCE = 64  # Of constraints, with so many candidates: what fits into a cache.
DENSE = 1 << 24  # Entries of a table of coefficients beyond which it stays sparse.
PENALTIES = (0.1, 0.5, 2.5, 12.0, 60.0)  # Of violations against errors, several classes.
VISITS = 10_000_000  # Rows times lines that a search over several classes may take, about.
MANY_CONSTRAINTS = 100  # Rows of constraints beyond which a line takes as many times longer.
FEWEST_LINES, MOST_LINES = 60, 1500
RESTARTS = 4  # That may find nothing better.
PAIRS_UP_TO = 8  # Classes that are also raised two by two.
# Standard errors by which biases of classes that no rule tells apart have to pay; those found for
# probabilities, where there is nothing to gain, reach 3.6 by chance.
SURELY = 4.0


@dataclass(frozen=True)
class Shift:
    """What to add to the scores, and what comes of it.

    Parameters
    ----------
    value : ndarray of shape (1,) or (n_classes,)
        Added to the margin of two classes, or to the scores of several, where it sums to zero.
    error : float
        Weighted 0-1 error after it, of labelled rows that are in the objective.
    functionals : ndarray of shape (n_functionals,)
        Value of each functional after it; NaN for those with a mean loss.
    excess : float
        Largest violation of a row of constraints after it; 0 if all hold.
    loss : float
        What was made smallest where no shift is feasible: the excess, or the error plus a price of
        violations.
    uncalibrated : tuple of int, default=()
        Rows of constraints with a mean loss, which decisions do not determine, or with a rate over
        none of the rows: they were left out.
    """

    value: Float
    error: float
    functionals: Float
    excess: float
    loss: float
    uncalibrated: tuple[int, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether all rows of constraints hold that were calibrated."""
        return self.excess == 0.0


@dataclass(frozen=True)
class Curve:
    """Error and functionals of two classes as the threshold moves.

    Parameters
    ----------
    shift : ndarray of shape (T,)
        Shifts of the margin, ascending: from no row decided as the second class to all.
    n_positive : ndarray of shape (T,), intp
        Rows decided as the second class at each.
    error : ndarray of shape (T,)
        Weighted 0-1 error of labelled rows that are in the objective.
    functionals : ndarray of shape (T, n_functionals)
        Value of each functional; NaN for those with a mean loss.
    """

    shift: Float
    n_positive: Codes
    error: Float
    functionals: Float
    _compiled: CompiledConstraints = field(repr=False)
    _order: Codes = field(repr=False)
    _decisions: _Decisions = field(repr=False)

    def __len__(self) -> int:
        return self.shift.size

    @cached_property
    def violations(self) -> Float:
        """Left-hand minus right-hand side of each row of constraints, shape (T, m)."""
        compiled = self._compiled
        return np.array([compiled.rows_of(f) - compiled.b for f in self.functionals])

    def counts(self, i: int) -> Float:
        """Weighted fraction of each cell predicted as each class at shift i."""
        decided = np.zeros(self._order.size, dtype=np.intp)
        decided[self._order[: self.n_positive[i]]] = 1
        return self._decisions.fractions(decided)


def best_shift(
    margin: NDArray[Any],
    cells: Cells,
    compiled: CompiledConstraints,
    weight: NDArray[Any] | None = None,
    *,
    bounds: NDArray[Any] | None = None,
    price: float | None = None,
    priced: Bool | None = None,
) -> Shift:
    """Shift of smallest error under which all constraints hold on these rows.

    Where none is found that meets them all, the largest violation is made smallest, and then the
    error; or the error plus a price of violations: of the largest for two classes, and of all for
    several. Rows of constraints may be `priced` in any case, two classes only: a shift that
    violates them is taken if meeting them costs more errors than the price of the violation. No
    shift is preferred to others as good. The search is exact for two classes, where among equals
    the shift nearest to zero is taken; several classes are searched from several starts, and the
    outcome is never worse than no shift.

    Of several classes, those that no constraint tells apart keep their scores relative to each
    other, as long as that costs no errors beyond chance. The best decisions under constraints on
    rates weigh the probability of each class by what the constraints say of it (its multipliers in
    the Lagrangian), so that such classes have equal weights, and biases between them mostly fit
    noise. Where scores are no probabilities, far from where they decide alone, biases of their own
    may spare many errors: they are taken if the rules hold under both and the errors, compared row
    by row, fall by more than :data:`SURELY` standard errors.

    Rows of constraints with a mean loss, or with a rate over none of these rows, are left out and
    listed in the result; where no others are, the scores stay.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of rows that the model was not trained on.
    cells : Cells
        The rows' partition.
    compiled : CompiledConstraints
        The constraints on them.
    weight : ndarray of shape (n_samples,), default=None
        Sample weights; those of the cells' rows by default.
    bounds : ndarray of shape (m,), default=None
        Right-hand sides instead of those of the constraints, for instance tighter ones.
    price : float, default=None
        Errors that a violation is worth where not all constraints can be met. By default any
        number, to the last digit of the largest violation.
    priced : ndarray of shape (m,), bool, default=None
        Rows of constraints whose violation has its price also where they can be met; none by
        default. Only with two classes, and with a price.

    Raises
    ------
    ValueError
        If the scores or bounds do not fit the rows or constraints.
    """
    margin = _checked(margin, cells)
    if bounds is not None and np.shape(bounds) != (len(compiled),):
        raise ValueError(
            f"bounds has shape {np.shape(bounds)}, but there are {len(compiled)} rows of "
            f"constraints: give one right-hand side for each."
        )
    right = compiled.b if bounds is None else np.asarray(bounds, dtype=np.float64)
    decisions = _Decisions(cells, weight)
    merits = _Merits(decisions, compiled, right)
    if margin.ndim == 1:
        firm = None
        if priced is not None and priced.any():
            firm = merits.under(np.where(priced, np.inf, right))
        value = np.array([_best_threshold(margin, merits, price, firm)])
        decided = (margin + value > 0).astype(np.intp)
    else:
        value = _BiasSearch(margin, merits, price).run()
        decided = (margin + value).argmax(axis=1)
    error, excess, total = merits.of(decided)
    violation = excess if margin.ndim == 1 else total
    return Shift(
        value,
        error,
        _functionals(compiled, decisions.fractions(decided)),
        excess,
        excess if price is None else error + price * violation,
        merits.uncalibrated,
    )


def threshold_curve(
    margin: NDArray[Any],
    cells: Cells,
    compiled: CompiledConstraints,
    weight: NDArray[Any] | None = None,
    *,
    most: int | None = None,
) -> Curve:
    """Error and functionals at every threshold of two classes.

    Parameters
    ----------
    margin, cells, compiled, weight
        As in :func:`best_shift`.
    most : int, default=None
        Keep at most so many thresholds, evenly spread over the rows; no shift, and one to either
        side of all rows, are always among them.

    Raises
    ------
    ValueError
        If there are more than two classes, or `most` is less than three.
    """
    margin = _checked(margin, cells)
    if margin.ndim == 2:
        raise ValueError(
            f"a threshold curve is for two classes, and there are {cells.classes.size}."
        )
    if most is not None and most < 3:
        raise ValueError(f"most={most!r}: keep at least three thresholds.")
    decisions = _Decisions(cells, weight)
    line = _threshold_line(margin)
    if most is not None and line.shift.size > most:
        line = line.thinned(most)
    measure = _Linear(decisions, compiled.U)
    values = np.concatenate([block for _, block in measure.along(line)], axis=1)
    has_loss = np.diff(compiled.V.indptr) > 0
    constant = np.where(has_loss, np.nan, compiled.constant)
    functionals = values[1:].T + constant
    return Curve(line.shift, line.flipped, values[0], functionals, compiled, line.order, decisions)


def shift_for_share(margin: NDArray[Any], share: float, weight: NDArray[Any]) -> Float:
    """Shift under which a share of the rows is decided as class 1, as nearly as scores allow.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,)
        Scores; a positive one decides for class 1.
    share : float
        Of the total weight.
    weight : ndarray of shape (n_samples,)
        Weights of the rows, not all zero.

    Returns
    -------
    ndarray of shape (1,)
    """
    line = _threshold_line(np.asarray(margin, dtype=np.float64))
    reached = np.concatenate([[0.0], np.cumsum(weight[line.order])]) / weight.sum()
    return line.shift[[np.abs(reached[line.flipped] - share).argmin()]]


def _checked(margin: NDArray[Any], cells: Cells) -> Float:
    n, k = len(cells.rows), cells.classes.size
    shape = (n,) if k == 2 else (n, k)
    margin = np.asarray(margin, dtype=np.float64)
    if margin.shape != shape:
        raise ValueError(
            f"margin has shape {margin.shape}, but there are {n} rows of {k} classes: its shape "
            f"must be {shape}."
        )
    return margin


def _functionals(compiled: CompiledConstraints, fractions: Float) -> Float:
    values = compiled.U @ fractions.ravel() + compiled.constant
    return np.where(np.diff(compiled.V.indptr) > 0, np.nan, values)


class _Decisions:
    """Rows, their weights, and sums of them by cell and decision.

    Parameters
    ----------
    cells : Cells
        The rows' partition.
    weight : ndarray of shape (n_samples,), default=None
        Weights of the rows; those of the cells' rows by default.
    """

    def __init__(self, cells: Cells, weight: NDArray[Any] | None) -> None:
        weight = cells.rows.weight if weight is None else weight
        self.cells = cells
        self.n_classes = int(cells.classes.size)
        self.weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        self.mass = cells.total(self.weight)
        with np.errstate(divide="ignore"):
            self.density = np.where(self.mass > 0, 1.0 / self.mass, 0.0)
        cost = np.where(cells.labelled, cells.class_weight[cells.labels], 0.0)
        total = cost @ self.mass
        # Of each cell: what a wrong decision adds to the error, for a weight of one.
        self.cost = cost / total if total > 0 else np.zeros_like(cost)

    def errors(self, decided: Codes) -> Float:
        """Give what each row adds to the error."""
        cells = self.cells.views[0].codes
        errors = np.where(decided != self.cells.labels[cells], self.cost[cells], 0.0)
        return errors if self.weight is None else errors * self.weight

    def fractions(self, decided: Codes) -> Float:
        """Weighted fraction of each cell decided as each class; the first one's in empty cells."""
        k, size = self.n_classes, self.mass.size * self.n_classes
        table = np.zeros(size)
        for view in self.cells.views:
            table += np.bincount(view.codes * k + decided, self.weight, size)
        table = table.reshape(-1, k) * self.density[:, None]
        table[:, 0] = 1.0 - table[:, 1:].sum(axis=1)
        return table


@dataclass(frozen=True)
class _Line:
    """Rows in the order in which they change their decision, and where shifts can stop.

    Parameters
    ----------
    order : ndarray of shape (n_samples,), intp
        The rows.
    before, after : ndarray of shape (n_samples,), or int
        Decision of each row (not ordered) at the beginning and at the end of the line.
    shift : ndarray of shape (T,)
        Candidates, ascending.
    flipped : ndarray of shape (T,), intp
        Rows that have changed at each.
    """

    order: Codes
    before: Codes | int
    after: Codes | int
    shift: Float
    flipped: Codes

    def thinned(self, most: int) -> _Line:
        """Keep some of the candidates, evenly spread over the rows."""
        wanted = np.linspace(0, self.order.size, most - 1)
        middle = np.searchsorted((self.flipped[1:] + self.flipped[:-1]) / 2, wanted)
        keep = np.unique(np.append(middle, np.flatnonzero(self.shift == 0.0)))
        return _Line(self.order, self.before, self.after, self.shift[keep], self.flipped[keep])


def are_apart(at: Float, size: Float) -> Bool:
    """Whether sorted scores are told apart from the next ones by a threshold midway.

    Parameters
    ----------
    at : ndarray of shape (n,)
        Where rows change their decision, ascending.
    size : ndarray of shape (n,)
        Magnitude of their scores.

    Returns
    -------
    ndarray of shape (n - 1,)
    """
    resolution = RESOLUTION * min(1.0, MANY / max(at.size, 1))
    larger = np.maximum(np.maximum(size[1:], size[:-1]), 1.0)
    return np.asarray(np.diff(at) > resolution * larger)


def _line(at: Float, size: Float, before: Codes | int, after: Codes | int) -> _Line:
    """Sort rows that change their decision where the shift exceeds `at`.

    Scores of magnitude `size` have to differ by more than their rounding to be told apart.
    """
    order = np.argsort(at)
    at, size = at[order], size[order]
    cut = np.flatnonzero(are_apart(at, size))
    middle = (at[cut] + at[cut + 1]) / 2
    shift = np.concatenate([[at[0] - BEYOND], middle, [at[-1] + BEYOND]])
    return _Line(order, before, after, shift, np.concatenate([[0], cut + 1, [at.size]]))


def _threshold_line(margin: Float) -> _Line:
    """All thresholds of two classes, no shift among them."""
    line = _line(-margin, np.abs(margin), 0, 1)
    positive = int(np.count_nonzero(margin > 0))
    i = int(np.searchsorted(line.flipped, positive))
    shift, flipped = line.shift, line.flipped
    if flipped[i] == positive:  # decides as no shift does
        shift[i] = 0.0
    else:
        shift, flipped = np.insert(shift, i, 0.0), np.insert(flipped, i, positive)
    return _Line(line.order, 0, 1, shift, flipped)


class _Linear:
    """The error, and linear maps of predicted fractions, along a line.

    Parameters
    ----------
    decisions : _Decisions
        The rows.
    coefficients : csr_array of shape (r, n_cells * n_classes)
        Of the predicted fractions.
    """

    def __init__(self, decisions: _Decisions, coefficients: Any) -> None:
        self.decisions = decisions
        views, k = decisions.cells.views, decisions.n_classes
        self.size = coefficients.shape[0] + 1
        per_weight: Any = coefficients.multiply(np.repeat(decisions.density, k)[None])
        per_weight = sparse.csc_array(sparse.vstack([self._error(), per_weight]))
        # Of each view: the cell of each row, which values it has a part in, their coefficients.
        self.parts: list[tuple[Codes, Codes, Any]] = []
        for view in views:
            table = per_weight[:, view.cells.start * k : view.cells.stop * k]
            members = np.unique(table.indices).astype(np.intp)
            if members.size == 0:
                continue
            table = table[members]
            if members.size * table.shape[1] <= DENSE:
                table = table.toarray()
            self.parts.append((view.codes - view.cells.start, members, table))

    def _error(self) -> Any:
        """Coefficients of the error, which is read off the first view."""
        decisions = self.decisions
        wrong = np.arange(decisions.n_classes) != decisions.cells.labels[:, None]
        return sparse.csr_array((decisions.cost[:, None] * wrong).reshape(1, -1))

    def of(self, decided: Codes) -> Float:
        """Values of some decisions, shape (1 + r,); the error comes first."""
        values = np.zeros(self.size)
        k, weight = self.decisions.n_classes, self.decisions.weight
        for codes, members, table in self.parts:
            values[members] += table @ np.bincount(codes * k + decided, weight, table.shape[1])
        return values

    def along(self, line: _Line) -> Iterator[tuple[slice, Float]]:
        """Give consecutive candidates of a line with their values, shape (1 + r, candidates)."""
        n = line.order.size
        values = self.of(np.broadcast_to(line.before, n))
        done = int(np.searchsorted(line.flipped, 0, side="right"))
        if done:
            yield slice(0, done), np.repeat(values[:, None], done, axis=1)
        for start in range(0, n, BLOCK):
            running = self._changes(line, line.order[start : start + BLOCK])
            np.cumsum(running, axis=1, out=running)
            running += values[:, None]
            values = running[:, -1].copy()
            stop = int(np.searchsorted(line.flipped, start + running.shape[1], side="right"))
            if stop > done:
                yield slice(done, stop), running[:, line.flipped[done:stop] - start - 1]
            done = stop

    def _changes(self, line: _Line, rows: Codes) -> Float:
        """Change of each value when each of the rows changes its decision."""
        changes = np.zeros((self.size, rows.size))
        before = line.before if isinstance(line.before, int) else line.before[rows]
        after = line.after if isinstance(line.after, int) else line.after[rows]
        for codes, members, table in self.parts:
            first = codes[rows] * self.decisions.n_classes
            part = _columns(table, first + after)
            part -= _columns(table, first + before)
            if members.size == self.size:
                changes = part
            else:
                changes[members] += part
        if self.decisions.weight is not None:
            changes *= self.decisions.weight[rows]
        return changes


def _columns(table: Any, at: Codes) -> Float:
    if isinstance(table, np.ndarray):
        return np.take(table, at, axis=1)
    return np.asarray(table[:, at].toarray())


class _Merits:
    """Error and violations of decisions.

    Parameters
    ----------
    decisions : _Decisions
        The rows.
    compiled : CompiledConstraints
        The constraints.
    right : ndarray of shape (m,)
        Their right-hand sides.
    """

    def __init__(self, decisions: _Decisions, compiled: CompiledConstraints, right: Float) -> None:
        of_decisions = compiled.is_told & (np.diff(compiled.B.indptr) == 0)
        self.uncalibrated = tuple(np.flatnonzero(~of_decisions).tolist())
        kept = np.flatnonzero(of_decisions)
        self._compiled, self._kept = compiled, kept
        self._rows = compiled.R[kept]
        self._used = np.unique(self._rows.indices)
        few = kept.size <= self._used.size
        self.linear = _Linear(decisions, compiled.A[kept] if few else compiled.U[self._used])
        self._bound_by(right)

    def _bound_by(self, right: Float) -> None:
        """Take right-hand sides of all rows of constraints."""
        self.right = right[self._kept]
        self.pairs = list[_Pairs]()
        if self._kept.size <= self._used.size:
            self.parts = self.others = [_Combined(None, self.right)]
            return
        combine, owner = self._rows[:, self._used], self._compiled.owner[self._kept]
        left = np.ones(self._kept.size, dtype=bool)  # gaps of many groups are pairs
        for j in np.unique(owner):
            mine = owner == j
            if pairs := _Pairs.of(combine[mine], self.right[mine]):
                self.pairs.append(pairs)
                left[mine] = False
        self.parts = _Combined.split(combine, self.right)
        self.others = _Combined.split(combine[left], self.right[left])

    def under(self, right: Float) -> _Merits:
        """Give the merits of the same decisions under other right-hand sides."""
        other = copy.copy(self)
        other._bound_by(right)
        return other

    @property
    def alike(self) -> list[tuple[int, ...]]:
        """Classes that no constraint tells apart."""
        return _alike(self._compiled.A[self._kept], self.linear.decisions.n_classes)

    @property
    def stays(self) -> bool:
        """Whether there are constraints, none of which decisions on these rows determine."""
        return self.right.size == 0 and bool(self.uncalibrated)

    def worst(self, values: Float) -> Float:
        """Largest violation, from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        worst = np.zeros(values.shape[1])
        for part in self.others:
            np.maximum(worst, part.excess(values).max(axis=0, initial=0.0), out=worst)
        for pairs in self.pairs:
            np.maximum(worst, pairs.excess(values), out=worst)
        worst[worst <= MET] = 0.0
        return worst

    def total(self, values: Float) -> Float:
        """Sum of violations, from the values of the linear map."""
        values = np.ascontiguousarray(values[1:])
        total = np.zeros(values.shape[1])
        for part in self.parts:
            excess = part.excess(values)
            np.maximum(excess, 0.0, out=excess)  # bounds of rules that are left out are infinite
            excess *= excess > MET
            excess[:1] += total
            total = excess.sum(axis=0)
        return total

    def of(self, decided: Codes) -> tuple[float, float, float]:
        """Error, largest violation, and sum of violations of some decisions."""
        values = self.linear.of(decided)[:, None]
        return float(values[0, 0]), float(self.worst(values)[0]), float(self.total(values)[0])

    def along(self, line: _Line, *measures: Callable[[Float], Float]) -> tuple[Float, ...]:
        """Error and further measures of each candidate of a line."""
        parts = [
            (values[0], *(measure(values) for measure in measures))
            for _, values in self.linear.along(line)
        ]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@dataclass(frozen=True)
class _Combined:
    """Rows of constraints as sums of values; with no `combine` they are the values."""

    combine: Any
    right: Float

    @classmethod
    def split(cls, combine: Any, right: Float) -> list[_Combined]:
        """Make parts of few rows, so that what is made of each stays in cache."""
        some = [slice(i, i + ROWS_AT_ONCE) for i in range(0, right.size, ROWS_AT_ONCE)]
        return [cls(combine[part], right[part]) for part in some]

    def excess(self, values: Float) -> Float:
        """Left-hand minus right-hand side of each row, (rows, candidates)."""
        rates = values if self.combine is None else self.combine @ values
        return np.asarray(rates - self.right[:, None])


@dataclass(frozen=True)
class _Pairs:
    """Rows ``up v_i - down v_j <= right`` for all i, j that differ, as in gaps and ratios.

    With both factors positive the largest and the smallest value decide.
    """

    values: Codes
    up: float
    down: float
    right: float

    @classmethod
    def of(cls, rows: Any, right: Float) -> _Pairs | None:
        """Recognise the rows of a constraint as all pairs of its values; None if they are not."""
        values = np.unique(rows.indices)
        n, m = values.size, right.size
        if n < 2 or m != n * (n - 1) or (np.diff(rows.indptr) != 2).any():
            return None
        if (right != right[0]).any():
            return None
        at, factor = rows.indices.reshape(m, 2), rows.data.reshape(m, 2)
        order = np.argsort(factor, axis=1)  # what is subtracted comes first
        at, factor = (np.take_along_axis(x, order, axis=1) for x in (at, factor))
        if (factor != factor[0]).any() or not factor[0, 0] < 0.0 < factor[0, 1]:
            return None
        if len(set(map(tuple, at.tolist()))) < m:
            return None
        return cls(values, float(factor[0, 1]), -float(factor[0, 0]), float(right[0]))

    def excess(self, values: Float) -> Float:
        """Violation of the pair that violates most, or holds least."""
        mine = values[self.values]
        return np.asarray(self.up * mine.max(axis=0) - self.down * mine.min(axis=0) - self.right)


def _alike(costs: Any, n_classes: int) -> list[tuple[int, ...]]:
    """Classes that no constraint tells apart, whatever the cell, as sets."""
    by_class = costs.tocsc()
    groups: list[tuple[int, ...]] = []
    for j in range(n_classes):
        mine = by_class[:, j::n_classes]
        for i, group in enumerate(groups):
            if (by_class[:, group[0] :: n_classes] != mine).nnz == 0:
                groups[i] = (*group, j)
                break
        else:
            groups.append((j,))
    return groups


def _best(error: Float, excess: Float, shift: Float, price: float | None = None) -> int:
    """Candidate of smallest violation, then error, then shift, equal up to rounding.

    With a price, of smallest error plus that of the violation where all violate.
    """
    least = excess.min()
    if least > 0.0 and price is not None:
        error, good = error + price * excess, np.ones(error.size, dtype=bool)
    else:
        good = excess <= (least + MET if least > 0.0 else 0.0)
    good &= error <= error[good].min() + MET
    return int(np.where(good, np.abs(shift), np.inf).argmin())


def _best_threshold(
    margin: Float, merits: _Merits, price: float | None, firm: _Merits | None
) -> float:
    """Best shift of two classes; `firm` are the constraints that no price is put on, if any is."""
    if merits.stays:
        return 0.0
    line = _threshold_line(margin)
    if firm is not None:
        assert price is not None
        error, excess, broken = merits.along(line, merits.worst, firm.worst)
        if (broken == 0.0).any():
            return float(line.shift[_best(error + price * excess, broken, line.shift)])
    else:
        error, excess = merits.along(line, merits.worst)
    return float(line.shift[_best(error, excess, line.shift, price)])


@dataclass(frozen=True)
class _Biases:
    """Biases and what comes of them."""

    value: Float
    error: float
    excess: float
    total: float

    def beats(self, other: _Biases) -> bool:
        """Whether the largest violation is smaller, or equal and the error smaller."""
        if abs(self.excess - other.excess) > MET:
            return self.excess < other.excess
        return self.error < other.error - MET


class _BiasSearch:
    """Search for the biases of several classes, one line after the other.

    A line raises one class, or two by the same amount, against all others; classes that no
    constraint tells apart are one here, until biases are found that are feasible. It is searched
    exactly for the smallest error plus violations times a penalty, which grows: small ones lead
    along good trade-offs to the feasible biases, where the last phase lowers the error. The best
    biases by largest violation and error are remembered on every line, whatever it was searched
    for. Where no biases found are feasible and violations have a price, the best by error plus
    that are given instead.

    Parameters
    ----------
    margin : ndarray of shape (n_samples, n_classes)
        Scores.
    merits : _Merits
        What is looked for.
    price : float, default=None
        Errors that a violation is worth where no biases are feasible.
    """

    def __init__(self, margin: Float, merits: _Merits, price: float | None = None) -> None:
        self.merits = merits
        self.price = price
        self.scores = np.ascontiguousarray(margin.T)
        self.size = np.abs(self.scores).max(axis=0)
        k, n = self.scores.shape
        visits = n * max(merits.right.size / MANY_CONSTRAINTS, 1.0)
        self.lines_left = int(np.clip(VISITS // visits, FEWEST_LINES, MOST_LINES))
        self.best = self.fair = self._at(np.zeros(k))

    def _decided(self, value: Float) -> Codes:
        return np.asarray((self.scores + value[:, None]).argmax(axis=0))

    def _at(self, value: Float) -> _Biases:
        return _Biases(value, *self.merits.of(self._decided(value)))

    def run(self) -> Float:
        """Give the best biases found."""
        alike = self.merits.alike
        if len(alike) > 1:
            self._search(alike)
            if self.best.excess == 0.0 and len(alike) < len(self.scores):
                together = self.best
                self._search([(j,) for j in range(len(self.scores))])
                if not self._surely_better(together):
                    self.best = together
        for always in self._constants():
            if always.beats(self.best):
                self.best = always
        unmet = self.best.excess > 0.0 and self.price is not None
        value = (self.fair if unmet else self.best).value
        return np.asarray(value - value.mean())

    def _constants(self) -> Iterator[_Biases]:
        """Biases that decide all rows alike, for each class."""
        far = float(np.ptp(self.scores)) + BEYOND
        for unit in np.eye(len(self.scores)):
            yield self._at(far * unit)

    def _surely_better(self, other: _Biases) -> bool:
        """Whether the best biases make fewer errors than others, beyond chance."""
        errors = self.merits.linear.decisions.errors
        fewer = errors(self._decided(other.value)) - errors(self._decided(self.best.value))
        return bool(fewer.sum() > SURELY * np.sqrt((fewer**2).sum()))

    def _search(self, single: Sequence[tuple[int, ...]]) -> None:
        """Search from the best biases, and from others near them, until it stalls."""
        every = [*single]
        if 4 <= len(single) <= PAIRS_UP_TO:  # of three, a pair is the third lowered
            every += [(*one, *other) for one, other in combinations(single, 2)]
        rng = np.random.default_rng(0)
        start, stalled = self.best, 0
        while self.lines_left and stalled < RESTARTS:
            before = self.best
            for penalty in PENALTIES:
                start = self._descend(start, penalty, every if self.best.excess else single)
            self._descend(self.best, None, every)
            if self.price is not None and self.best.excess > 0.0:
                self._descend(self.fair, self.price, every)
            stalled = 0 if self.best.beats(before) else stalled + 1
            noise = np.zeros(len(self.scores))
            for group in single:
                noise[list(group)] = rng.normal() * 2.0 * 0.5**stalled
            start = self._at(self.best.value + noise)

    def _descend(
        self, at: _Biases, penalty: float | None, directions: Sequence[tuple[int, ...]]
    ) -> _Biases:
        """Search lines in turn until none leads further."""
        stalled = 0
        for raised in cycle(directions):
            if stalled == len(directions) or not self.lines_left:
                break
            found = self._along(at, raised, penalty)
            stalled = 1 if found is not at else stalled + 1  # this line has nothing more to give
            at = found
        return at

    def _along(self, at: _Biases, raised: tuple[int, ...], penalty: float | None) -> _Biases:
        """Best biases on a line; those it starts from unless others are better."""
        self.lines_left -= 1
        scores = self.scores + at.value[:, None]
        inside = np.array(raised)
        outside = np.delete(np.arange(scores.shape[0]), inside)
        before, low = _highest(scores, outside)
        after, high = _highest(scores, inside)
        line = _line(low - high, self.size, before, after)
        merits = self.merits
        error, excess, total = merits.along(line, merits.worst, merits.total)

        def biases(i: int) -> _Biases:
            value = at.value.copy()
            value[inside] += line.shift[i]
            return _Biases(value, float(error[i]), float(excess[i]), float(total[i]))

        best = biases(_best(error, excess, line.shift))
        if best.beats(self.best):
            self.best = best
        if self.price is not None:
            fair = biases(int((error + self.price * total).argmin()))
            gained = self.fair.error - fair.error + self.price * (self.fair.total - fair.total)
            self.fair = fair if gained > MET else self.fair
        if penalty is None:
            return best if best.beats(at) else at
        merit = error + penalty * total
        i = int(merit.argmin())
        return biases(i) if merit[i] < at.error + penalty * at.total - MET else at


def _highest(scores: Float, classes: Codes) -> tuple[Codes, Float]:
    """Class of the highest score among some, and the score."""
    if classes.size == 1:
        return np.full(scores.shape[1], classes[0]), scores[classes[0]]
    some = scores[classes]
    return classes[some.argmax(axis=0)], some.max(axis=0)
