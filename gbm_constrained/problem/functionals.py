"""Rates as linear maps of the statistics of cells.

A rate in a group is a *functional*, ``U . predicted + V . loss + Q . pairs + S . residuals +
constant``.
Constraints are functions of functionals, and so are metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.calibration import BinResidual
from gbm_constrained.constraints.events import LinearCombination, RankedAbove, Term
from gbm_constrained.constraints.selectors import Selector
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.groups import Group


@dataclass(frozen=True, eq=False)
class WeightedFraction:
    """One fraction in a rate: ``coefficient * weight with event / weight inside``.

    Given the rows inside, the event is a Bernoulli variable of each row: the base of exact
    intervals and tests.

    Parameters
    ----------
    coefficient : Factor of the fraction.
    cells : Cells that the fraction is taken over, counted over all views.
    event : (len(cells), n_classes). Whether the event happens to rows of a cell that are predicted
        as a class; of a cost, its share of the largest one.
    largest_amount : Cap of the amounts that rows count for, infinite without a cap; None where
        rows count as one.
    mean_amount : Mean amount of the rows of a cost, which is a factor of the coefficient; None of
        what is no cost in amounts.
    """

    coefficient: float
    cells: Codes
    event: Bool | Float
    largest_amount: float | None = None
    mean_amount: float | None = None

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the fraction is taken over."""
        return (self.cells,)


@dataclass(frozen=True, eq=False)
class MeanLoss:
    """One mean loss in a rate: ``coefficient * weighted mean of the cross-entropy inside``.

    Parameters
    ----------
    coefficient : Factor of the mean loss.
    cells : Cells that the mean is taken over, counted over all views.
    """

    coefficient: float
    cells: Codes

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the mean is taken over."""
        return (self.cells,)


@dataclass(frozen=True, eq=False)
class WeightedPairs:
    """One pair rate: ``coefficient * weighted fraction of pairs whose first row scores higher``.

    Parameters
    ----------
    coefficient : Factor of the pair rate.
    first, second : Cells of either side, counted over all views.
    target : Index of the class whose scores are compared.
    """

    coefficient: float
    first: Codes
    second: Codes
    target: int

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the two sides are taken over."""
        return self.first, self.second


@dataclass(frozen=True, eq=False)
class MeanResidual:
    """One mean residual of a bin in a rate: ``coefficient * mean of 1[p in bin] (y - p) inside``.

    Parameters
    ----------
    coefficient : Factor of the mean.
    cells : Cells that the mean is taken over, counted over all views.
    bins : Number of bins of the probability of the positive class.
    position : Position of the bin.
    """

    coefficient: float
    cells: Codes
    bins: int
    position: int

    @property
    def bases(self) -> tuple[Codes, ...]:
        """Sets of cells that the mean is taken over."""
        return (self.cells,)


RatePart: TypeAlias = WeightedFraction | MeanLoss | WeightedPairs | MeanResidual


def fractions_of(terms: Sequence[RatePart] | None) -> tuple[WeightedFraction, ...] | None:
    """Find the terms of a sum of fractions; None for other terms."""
    parts = tuple(term for term in terms or () if isinstance(term, WeightedFraction))
    return None if terms is None or len(parts) < len(terms) else parts


@dataclass(frozen=True, eq=False)
class FunctionalInView:
    """A linear map of the statistics of a view's cells.

    Parameters
    ----------
    predicted : (n_cells of the view, n_classes). Coefficients of the predicted fractions.
    imitation : (n_cells of the view, n_classes). Part of `predicted` that comes from decisions
        of other models.
    loss : (n_cells of the view,). Coefficients of the mean losses.
    """

    view: View
    predicted: Float
    imitation: Float
    loss: Float

    @classmethod
    def of(cls, view: View, n_classes: int) -> Self:
        """Make a map to zero."""
        shape = len(view), n_classes
        return cls(view, np.zeros(shape), np.zeros(shape), np.zeros(len(view)))


@dataclass(frozen=True, eq=False)
class Functional:
    """A rate in a group, as a sum of linear maps of the statistics of cells, one for each amount.

    Parameters
    ----------
    in_views : Maps, at least one.
    constant : Constant part; NaN where the rate is undefined.
    terms : Fractions, mean losses, pair rates and mean residuals that the rate adds up, None
        where the rate is undefined.
    """

    in_views: tuple[FunctionalInView, ...]
    constant: float
    terms: tuple[RatePart, ...] | None

    @property
    def width(self) -> float:
        """Largest difference between the values of two decisions."""
        return sum(float(np.ptp(one.predicted, axis=1).sum()) for one in self.in_views)


class FunctionalCompiler:
    """Compiler of rates to functionals of the cells of a partition."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells

    def compile(
        self,
        rate: LinearCombination,
        views: Mapping[Amount | None, View],
        group: Group | None,
        undefined: Callable[[str], float],
    ) -> Functional:
        """Compile a rate, in a group if one is given.

        `views` are those of the amounts that rows count for. `undefined` gives the constant of a
        rate over no rows, or raises, given words for why.
        """
        cells = self.cells
        maps = {a: FunctionalInView.of(view, cells.classes.size) for a, view in views.items()}
        terms: list[RatePart] = []
        for a, term in rate.terms:
            view = views[term.amount]
            weight, count = cells.weight[view.cells], cells.count[view.cells]
            bases = self.base_sets(term, view, group)
            empty = [base for base in bases if not weight[base].sum() > 0]
            if empty:
                is_counted = count[empty[0]].any()
                constant = undefined("whose total weight is zero" if is_counted else "at all")
                nothing = [FunctionalInView.of(v, cells.classes.size) for v in views.values()]
                return Functional(tuple(nothing), constant, None)
            if isinstance(term.event, RankedAbove):
                terms.append(self._pairs(a, term.event, bases, view))
                continue
            if isinstance(term.event, BinResidual):
                terms.append(self._residual(a, term.event, bases[0], view))
                continue
            terms.append(self._add_mean(maps[term.amount], a, term, bases[0]))
        return Functional(tuple(maps.values()), rate.constant, tuple(terms))

    def _add_mean(
        self, found: FunctionalInView, coefficient: float, term: Term, inside: Bool
    ) -> RatePart:
        """Add a multiple of the mean of a term over some cells, and describe it."""
        cells, view = self.cells, found.view
        event = term.event.cost(cells.levels_of(view))
        largest = None if term.amount is None else term.amount.largest
        mean = None
        if term.event.is_cost:
            unit = max(map(abs, term.event.range))
            mean = None if term.amount is None else self._mean_amount(view, inside)
            event, coefficient = event / unit, coefficient * unit * (1.0 if mean is None else mean)
            largest = None if term.amount is None else math.inf  # The mean has no test of rates.
        at = np.flatnonzero(inside)
        share = np.where(inside, cells.weight[view.cells], 0.0)
        share *= coefficient / share.sum()
        where = cells.select(view, term.where)
        share[~where] = 0.0
        if term.event.is_loss:
            found.loss[:] += share
            return MeanLoss(coefficient, at + view.cells.start)
        event = event * where[:, None]
        found.predicted[:] += share[:, None] * event
        if term.event.reference_model is not None:
            found.imitation[:] += share[:, None] * event
        return WeightedFraction(coefficient, at + view.cells.start, event[at], largest, mean)

    def _mean_amount(self, view: View, inside: Bool) -> float:
        """Compute the mean amount of the rows of some cells: costs are divided by rows."""
        plain = np.bincount(view.small_codes, self.cells.rows.weight, len(view))
        return float(self.cells.weight[view.cells][inside].sum() / plain[inside].sum())

    def _pairs(
        self, coefficient: float, event: RankedAbove, bases: Sequence[Bool], view: View
    ) -> WeightedPairs:
        """Describe a pair rate; of two classes, scores of the first are those of the second."""
        first, second = (np.flatnonzero(base) + view.cells.start for base in bases)
        target = int(event.target.is_class(self.cells.classes).argmax())
        if self.cells.classes.size == 2 and target == 0:
            first, second, target = second, first, 1
        return WeightedPairs(coefficient, first, second, target)

    def _residual(
        self, coefficient: float, event: BinResidual, base: Bool, view: View
    ) -> MeanResidual:
        """Describe the mean residual of a bin, which is that of one of two classes."""
        if self.cells.classes.size != 2:
            raise ValueError(
                f"a calibration error is that of the positive class of two, and y has "
                f"{self.cells.classes.size} classes: bound log_loss(), or train a classifier of "
                f"two classes for each."
            )
        at = np.flatnonzero(base) + view.cells.start
        return MeanResidual(coefficient, at, event.bins, event.position)

    def base_sets(self, term: Term, view: View, group: Group | None) -> tuple[Bool, ...]:
        """Find the cells of a view that a term is taken over: both sides of a pair rate."""
        everything = np.ones(len(view), dtype=bool)
        inside = everything if group is None else group.holds(view)
        event = term.event
        if not isinstance(event, RankedAbove):
            return (self._base_set(term, term.base, view, inside),)
        outside = everything if event.background == "all" else ~inside
        sides = {
            "both": (inside, inside),
            "first": (inside, outside),
            "second": (outside, inside),
        }[event.group]
        return (
            self._base_set(term, term.base, view, sides[0]),
            self._base_set(term, term.other_base, view, sides[1]),
        )

    def _base_set(
        self, term: Term, selectors: Sequence[Selector], view: View, inside: Bool
    ) -> Bool:
        """Find the selected cells among some cells of a view."""
        cells = self.cells
        count, labels = cells.count[view.cells], cells.labels[view.cells]
        about_labels = [s for s in selectors if s.needs_labels]
        inside = inside & cells.select(view, [s for s in selectors if not s.needs_labels])
        if cells.rows.sources and not term.data_sets:
            inside &= cells.in_objective[view.cells]
        needs_labels = about_labels or term.where or term.event.needs_labels
        if needs_labels and count[inside & (labels < 0)].any():
            is_mean = term.event.is_row_function
            other = "mean_prediction or share_above" if is_mean else "selection_rate or churn"
            raise ValueError(
                f"{term} needs labels, which rows of a data set do not have: give it as "
                f"(X, y), or bound {other} on it."
            )
        for model in term.reference_models if cells.rows.like is None else ():
            unknown = view.levels[model] == cells.classes.size
            if count[inside & unknown].any():
                raise ValueError(
                    f"{term} needs the other model's decisions, each a class of y, which rows of "
                    f"a data set do not have: give the model itself, or a column of them."
                )
        return inside & cells.select(view, about_labels)
