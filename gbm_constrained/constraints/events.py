"""Events that rates count, and their weighted means over rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.amounts import Amount
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

ClassSelector: TypeAlias = Label | ClassPosition


class Event(ABC):
    """Event that a rate counts, such as an error; or the cross-entropy of a row."""

    needs_labels: ClassVar[bool] = False
    is_loss: ClassVar[bool] = False  # Whether the event is a mean loss, with no bound from above.
    is_pair: ClassVar[bool] = False  # Whether the scores of two rows are compared.
    is_residual: ClassVar[bool] = False  # Whether labels are compared with probabilities.
    is_row_function: ClassVar[bool] = False  # Whether targets are numbers, as in regression.
    is_cost: ClassVar[bool] = False  # Whether decisions have costs, in the unit of the amounts.
    target: ClassSelector | None = None  # Class that predictions are compared with.
    reference_model: ReferenceModel | None = None  # Model that predictions are compared with.
    first: tuple[Selector, ...] = ()  # Further restriction of the rows that are counted.
    others: tuple[Selector, ...] = ()  # Class of the rows that these are compared with.
    second: tuple[Selector, ...] = ()  # Further restriction of the latter.
    needs_group: bool = False  # Whether the rate has a value in groups only.
    background: str = "all"  # Rows that a group is compared with: "all" or "others".
    sides: tuple[str, ...] = ()  # What tells the rate apart beside its name and `on`, as printed.

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        return 0.0, math.inf if self.is_loss else 1.0

    @abstractmethod
    def cost(self, levels: Levels) -> Bool | Float:
        """Find the decisions at which the event happens, or what each of them costs.

        The shape is (n_cells, n_classes).
        """

    def map_classes(self, replace_class: Callable[[Any], Any]) -> Event:
        """Replace the classes that the event names, where there are any."""
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

    target: ClassSelector = field()

    def map_classes(self, replace_class: Callable[[Any], Any]) -> Predicted:
        """Replace the class that a prediction is compared with."""
        return Predicted(replace_class(self.target))

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
class RankedAbove(Event):
    """Score above that of a random other row, half of a tie; its mean is a pair rate.

    The mean over rows U of the probability that a random row of V has the lower score is
    ``Pr(score of U > score of V) + Pr(tie) / 2``: with U the positives and V the negatives, the
    AUC.

    Parameters
    ----------
    target : Class whose score, or probability, is compared.
    first : Further restriction of U.
    others : Class of V.
    second : Further restriction of V.
    group : {"both", "first", "second"}. Side that a group restricts.
    background : {"others", "all"}. What the other side is where a group restricts one side: the
        rows outside the group, or all rows.
    """

    is_pair: ClassVar[bool] = True

    target: ClassSelector = field()
    first: tuple[Selector, ...] = ()
    others: tuple[Selector, ...] = ()
    second: tuple[Selector, ...] = ()
    group: Literal["both", "first", "second"] = "both"
    background: Literal["others", "all"] = "all"

    @property
    def needs_group(self) -> bool:  # type: ignore[override]
        """Whether the rate compares a group with other rows, and has no value without one."""
        return self.group != "both"

    @property
    def sides(self) -> tuple[str, ...]:  # type: ignore[override]
        """Restrictions of one side, and the sides of ``cross_auc`` that are not the usual ones."""
        is_of_all = self.background == "all" and self.needs_group and bool(self.others)
        return (
            *(f"positives {part}" for part in self.first),
            *(f"negatives {part}" for part in self.second),
            *(["group negatives"] if self.group == "second" else []),
            *(["background all"] if is_of_all else []),
        )

    def map_classes(self, replace_class: Callable[[Any], Any]) -> RankedAbove:
        """Replace the classes of the score and of the rows that are compared."""
        target = replace_class(self.target)
        return replace(self, target=target, others=tuple(map(replace_class, self.others)))

    def cost(self, levels: Levels) -> Bool:
        """Return a table without events: a rank depends on scores, not on decisions."""
        return np.zeros((levels.of_cells["label"].size, levels.classes.size), dtype=bool)


@dataclass(frozen=True)
class Term:
    """Weighted mean of an event over rows."""

    name: str  # Printed name, without `on`.
    event: Event
    rows: tuple[Selector, ...] = ()  # Rows of the rate itself: y = 0 of a false positive rate.
    on: tuple[Selector, ...] = ()  # The user's restriction.
    where: tuple[Selector, ...] = ()  # Rows among these on which the event counts.
    amount: Amount | None = None  # What each row counts for, beside its weight.

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all predictions."""
        low, high = self.event.range
        if self.amount is None or not self.event.is_cost:
            return low, high
        largest = self.amount.largest  # It may be infinite, and an amount may be zero.
        return low * largest if low < 0.0 else 0.0, high * largest if high > 0.0 else 0.0

    @property
    def base(self) -> tuple[Selector, ...]:
        """Selectors of the rows that the mean is taken over."""
        return (*self.rows, *self.on, *self.event.first)

    @property
    def other_base(self) -> tuple[Selector, ...]:
        """Selectors of the rows that a pair rate compares them with."""
        return (*self.event.others, *self.on, *self.event.second)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Selectors of all rows that the term depends on."""
        return (*self.base, *self.where, *self.event.others, *self.event.second)

    @property
    def reference_models(self) -> tuple[ReferenceModel, ...]:
        """Other models whose decisions the term uses."""
        models = [selector.reference_model for selector in self.selectors]
        return tuple(m for m in (*models, self.event.reference_model) if m is not None)

    @property
    def keys(self) -> tuple[Key | Amount, ...]:
        """Keys of the attributes and amounts that the term uses, beside the labels of all rows."""
        model = self.event.reference_model
        keys = (*(selector.key for selector in self.selectors), model, self.amount)
        return tuple(key for key in keys if key is not None)

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
        restrictions = [*map(str, self.on), *self.event.sides]
        if self.amount is not None:
            restrictions.append(f"weight={self.amount}")
        return f"{self.name}[{', '.join(restrictions)}]" if restrictions else self.name


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
    def is_pair(self) -> bool:
        """Whether the rate is made of nothing but pair rates."""
        return bool(self.terms) and all(term.event.is_pair for _, term in self.terms)

    @property
    def amounts(self) -> tuple[Amount | None, ...]:
        """What rows count for in the terms; None where they count as one."""
        return tuple(dict.fromkeys(term.amount for _, term in self.terms))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Coefficients of the terms."""
        return tuple(a for a, _ in self.terms)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all predictions."""
        ends = [[a * end if end else 0.0 for end in term.range] for a, term in self.terms]
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
