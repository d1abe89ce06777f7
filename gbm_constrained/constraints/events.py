"""Events that rates count, and their weighted means over rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from gbm_constrained._typing import Bool
from gbm_constrained.constraints.reference_models import ReferenceModel
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Column,
    DataSet,
    Key,
    Label,
    Levels,
    Mask,
    Selector,
    as_selectors,
)


class Event(ABC):
    """Event that a rate counts, such as an error; or the cross-entropy of a row."""

    needs_labels: ClassVar[bool] = False
    is_loss: ClassVar[bool] = False  # Whether the event is a mean loss, with no bound from above.
    target: Label | ClassPosition | None = None  # Class that predictions are compared with.
    reference_model: ReferenceModel | None = None  # Model that predictions are compared with.

    @abstractmethod
    def cost(self, levels: Levels) -> Bool:
        """Find the decisions at which the event happens; shape (n_cells, n_classes), bool."""

    def with_target(self, target: Label | ClassPosition) -> Event:
        """Replace the class that a prediction is compared with, where there is one."""
        return self


@dataclass(frozen=True)
class Misclassified(Event):
    """Prediction of another class than the label."""

    needs_labels: ClassVar[bool] = True

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that are wrong."""
        return ~Correct().cost(levels)


@dataclass(frozen=True)
class Correct(Event):
    """Prediction of the label."""

    needs_labels: ClassVar[bool] = True

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that are correct."""
        return np.asarray(levels.of_cells["label"][:, None] == np.arange(levels.classes.size))


@dataclass(frozen=True)
class CrossEntropy(Event):
    """The cross-entropy of a row, in nats, whose mean is the rate."""

    needs_labels: ClassVar[bool] = True
    is_loss: ClassVar[bool] = True

    def cost(self, levels: Levels) -> Bool:
        """Return a table without events: a loss depends on probabilities, not on decisions."""
        return np.zeros((levels.of_cells["label"].size, levels.classes.size), dtype=bool)


@dataclass(frozen=True)
class Predicted(Event):
    """Prediction of a class, or of any class but one."""

    target: Label | ClassPosition = field()

    def with_target(self, target: Label | ClassPosition) -> Predicted:
        """Replace the class that a prediction is compared with."""
        return Predicted(target)

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions for the class, the same in each cell."""
        is_class = self.target.is_class(levels.classes)
        return np.broadcast_to(is_class, (levels.of_cells["label"].size, is_class.size))


@dataclass(frozen=True)
class Differs(Event):
    """Prediction that differs from the decision of another model."""

    reference_model: ReferenceModel = field()

    def cost(self, levels: Levels) -> Bool:
        """Find the decisions that differ from those of the other model."""
        decisions = levels.of_cells[self.reference_model]
        return np.asarray(decisions[:, None] != np.arange(levels.classes.size))


@dataclass(frozen=True)
class Term:
    """Weighted mean of an event over rows."""

    name: str  # Printed name, without `on`.
    event: Event
    rows: tuple[Selector, ...] = ()  # Rows of the rate itself: y = 0 of a false positive rate.
    on: tuple[Selector, ...] = ()  # The user's restriction.
    where: tuple[Selector, ...] = ()  # Rows among these on which the event counts.

    @property
    def base(self) -> tuple[Selector, ...]:
        """Selectors of the rows that the mean is taken over."""
        return (*self.rows, *self.on)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Selectors of the rows that the mean is taken over, and on which the event counts."""
        return (*self.base, *self.where)

    @property
    def reference_models(self) -> tuple[ReferenceModel, ...]:
        """Other models whose decisions the term uses."""
        models = [selector.reference_model for selector in self.selectors]
        return tuple(m for m in (*models, self.event.reference_model) if m is not None)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Keys of the attributes that the term uses, beside the labels of all rows."""
        model = self.event.reference_model
        return (*(selector.key for selector in self.selectors), *((model,) if model else ()))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Selectors of the user's restriction that are values of columns."""
        return tuple(part for part in self.selectors if isinstance(part, Column))

    @property
    def masks(self) -> tuple[Mask, ...]:
        """Selectors that are masks of rows."""
        return tuple(part for part in self.selectors if isinstance(part, Mask))

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the further data sets that the term is taken over."""
        return tuple(part.name for part in self.on if isinstance(part, DataSet))

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.on))}]" if self.on else self.name


@dataclass(frozen=True, repr=False)
class LinearCombination:
    """A linear combination of weighted means over rows."""

    terms: tuple[tuple[float, Term], ...]  # Pairs of a coefficient and a mean.
    constant: float = 0.0

    @property
    def is_loss(self) -> bool:
        """Whether the rate is made of nothing but mean cross-entropies."""
        return bool(self.terms) and all(term.event.is_loss for _, term in self.terms)

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Coefficients of the terms."""
        return tuple(a for a, _ in self.terms)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all predictions."""
        ends = [
            (0.0, math.copysign(math.inf, a) if term.event.is_loss else a)
            for a, term in self.terms
        ]
        return (
            self.constant + sum(min(end) for end in ends),
            self.constant + sum(max(end) for end in ends),
        )

    def restrict(self, *selectors: Any) -> Self:
        """Return the same rate on the rows of further selectors, as ``on=`` reads them."""
        more = [selector for part in selectors for selector in as_selectors(part)]
        return replace(
            self, terms=tuple((a, replace(t, on=(*t.on, *more))) for a, t in self.terms)
        )

    def __str__(self) -> str:
        text = ""
        for a, term in self.terms:
            size = "" if abs(a) == 1.0 else f"{abs(a):g} * "
            sign = ("-" if a < 0 else "") if not text else (" - " if a < 0 else " + ")
            text += f"{sign}{size}{term}"
        if self.constant or not text:
            sign = " - " if self.constant < 0 else " + "
            text = text + f"{sign}{abs(self.constant):g}" if text else f"{self.constant:g}"
        return text
