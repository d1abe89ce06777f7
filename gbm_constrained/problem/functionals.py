"""Rates as linear maps of cell statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.events import Differs, Predicted, Term
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.selectors import ABOUT_LABELS, DataSet, Judged
from gbm_constrained.data.cells import Cells, View
from gbm_constrained.problem.groups import Group, SmallGroup


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


class FunctionalCompiler:
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
