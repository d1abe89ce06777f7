r"""Constraints on how often each class is predicted.

With the share of predictions :math:`q_i = P(\hat y = i)`, also called coverage, and a target
:math:`\tau_i` of each class,

- coverage is :math:`\max_i |q_i - \tau_i|`,
- quantification is the divergence :math:`\sum_i \tau_i \log(\tau_i / q_i)` of Kullback and Leibler

(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints",
section 3.2 and Table 1). The targets are given, or are the shares :math:`\pi_i` of labels. Then
:math:`q_i - \pi_i = P(y \ne i, \hat y = i) - P(y = i, \hat y \ne i)` is a rate itself.

The classes are known once labels are. Until then an expression has no rates.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._messages import is_finite
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import (
    Constraint,
    Expression,
    Sense,
    is_number,
)
from gbm_constrained.constraints.curves import LinearRow
from gbm_constrained.constraints.events import Correct, Misclassified, Predicted
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.rate_parts import Taken, classes_of, make_rate, name_with_label
from gbm_constrained.constraints.rates import selection_rate
from gbm_constrained.constraints.selectors import to_python_scalar

SUM_TOLERANCE = 1e-6  # By which targets may miss the sum of one, from rounding to six digits.
SMALLEST_SHARE = 1e-9
"""Smallest share of predictions at which the divergence has a gradient: less than one row of any
table, and steeper than any cut that solvers take."""
Targets: TypeAlias = tuple[tuple[Hashable, float], ...] | tuple[float, ...] | None


@dataclass(frozen=True, repr=False)
class OfShares(Expression):
    """A distance of the shares of predictions from targets.

    Parameters
    ----------
    to : tuple of (label, float), tuple of float, or None
        Target of each class, or of each of the sorted classes; the share of its labels when None.
    classes : tuple of labels, default=None
        The sorted classes; None until they are known.
    """

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    preset: ClassVar[str]

    to: Targets = None
    classes: tuple[Hashable, ...] | None = None

    @property
    def needs_classes(self) -> bool:
        """Whether the rates are unknown until the classes are known."""
        return self.classes is None

    def with_classes(self, classes: Sequence[Any] | NDArray[Any]) -> OfShares:
        """Name the classes, now that they are known.

        Raises
        ------
        ValueError
            If the targets are not those of these classes.
        """
        known = tuple(to_python_scalar(label) for label in classes)
        if self.to is None:
            return replace(self, classes=known)
        named = [target for target in self.to if isinstance(target, tuple)]
        given = dict(named) if named else dict(zip(known, self.to, strict=False))
        if len(self.to) != len(known) or set(given) != set(known):
            shown = list(given) if named else f"{len(self.to)} targets"
            raise ValueError(
                f"to= of {self.preset} has {shown}, and the classes of y are {list(known)}: give "
                f"one target for each class, zero for a class that is never to be predicted."
            )
        return replace(self, to=tuple((k, given[k]) for k in known), classes=known)

    @property
    def targets(self) -> Float | None:
        """Target of each class; None where it is the share of the labels."""
        if self.to is None:
            return None
        return np.array([target[1] if isinstance(target, tuple) else target for target in self.to])

    def __ge__(self, bound: Any) -> Constraint:
        raise TypeError(f"{self} >= {bound}: {self.preset} can only be bounded from above.")

    def write_bound(self, sense: Sense, bound: float) -> str:
        """Write a bound as the preset that makes it."""
        to = "" if self.to is None else f", to={self.written_targets}"
        return f"{self.preset}(within={bound:g}{to})"

    @property
    def written_targets(self) -> str:
        """The targets as Python."""
        assert self.to is not None
        named = [target for target in self.to if isinstance(target, tuple)]
        if not named:
            return f"[{', '.join(f'{target:g}' for target in self.to)}]"
        return f"{{{', '.join(f'{label!r}: {target:g}' for label, target in named)}}}"

    def __str__(self) -> str:
        to = "" if self.to is None else f"to={self.written_targets}"
        return f"{self.preset}({to})"


@dataclass(frozen=True, repr=False)
class CoverageDifference(OfShares):
    r"""The largest difference :math:`\max_i |q_i - \tau_i|` of a share of predictions."""

    bounds_each_rate: ClassVar[bool] = True
    preset: ClassVar[str] = "Coverage"

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The difference of each class."""
        labels = self.classes or ()
        if self.targets is None:
            return tuple(map(_difference, labels))
        pairs = zip(
            labels, self.targets.tolist(), strict=False
        )  # No labels before they are known.
        return tuple(selection_rate(label) - target for label, target in pairs)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest difference that predictions can make."""
        return 0.0, 1.0

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        return "a difference of shares in [0, 1]: 1 per cent is written 0.01"

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the classes."""
        return n_functionals

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Write the bound as two linear rows for each class."""
        found = []
        for i, (label, k) in enumerate(zip(self.classes or (), at, strict=True)):
            share = f"selection_rate({label!r})"
            target = f"share({label!r})" if self.targets is None else f"{self.targets[i]:g}"
            found += [
                LinearRow(f"{share} - {target} <= {bound:g}", {k: 1.0}, bound),
                LinearRow(f"{target} - {share} <= {bound:g}", {k: -1.0}, bound),
            ]
        return found

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest difference."""
        return float(np.abs(functionals).max())


@dataclass(frozen=True, repr=False)
class CoverageDivergence(OfShares):
    r"""The divergence :math:`\sum_i \tau_i \log(\tau_i / q_i)`, in nats.

    The functionals are the q, and after them the :math:`\pi` where these are the targets. The
    divergence is convex in both together.
    """

    has_linear_rows: ClassVar[bool] = False
    preset: ClassVar[str] = "Quantification"

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The share of predictions of each class, and the share of labels if it is the target."""
        labels = self.classes or ()
        predicted = tuple(selection_rate(label) for label in labels)
        return predicted if self.to is not None else (*predicted, *map(_share, labels))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest divergence."""
        return 0.0, math.inf

    @property
    def bounds_accepted(self) -> str:
        """Bounds that are accepted, in words."""
        return "a finite divergence in nats that is not negative"

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Return no rows: the divergence is convex, and no linear rows state its bound."""
        return []

    def _parts(self, functionals: Float) -> tuple[Float, Float]:
        """Split functionals into the shares of predictions and the targets."""
        if self.targets is not None:
            return functionals, self.targets
        n = functionals.size // 2
        return functionals[:n], functionals[n:]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the divergence, infinite where a class with a target is never predicted."""
        predicted, target = self._parts(functionals)
        if np.isnan(functionals).any():
            return np.nan
        some = target > 0.0
        if (predicted[some] <= 0.0).any():
            return np.inf
        return float(np.sum(target[some] * np.log(target[some] / predicted[some])))

    def gradient(self, functionals: Float) -> Float:
        """Compute the gradient of the divergence in the functionals.

        Where the divergence is infinite, the gradient points away from the classes that are never
        predicted.
        """
        predicted, target = self._parts(functionals)
        some = target > 0.0
        ratio = target / np.maximum(predicted, SMALLEST_SHARE)
        if self.targets is not None:
            return -ratio
        of_target = np.zeros(target.size)
        of_target[some] = np.log(ratio[some]) + 1.0
        return np.concatenate([-ratio, of_target])


def _difference(label: Hashable) -> Rate:
    """Make the share of predictions of a class less the share of its labels."""
    negative, positive = classes_of(label)
    false_positives, false_negatives = (
        name_with_label(name, label) for name in ("false_positives", "false_negatives")
    )
    more = make_rate(false_positives, Predicted(positive), Taken(), where=(negative,))
    found: Rate = more - make_rate(false_negatives, Misclassified(), Taken(), where=(positive,))
    return found


def _share(label: Hashable) -> Rate:
    """Make the share of the labels of a class, which no decision changes."""
    _, positive = classes_of(label)
    right = make_rate(
        name_with_label("true_positives", label), Correct(), Taken(), where=(positive,)
    )
    wrong = name_with_label("false_negatives", label)
    found: Rate = right + make_rate(wrong, Misclassified(), Taken(), where=(positive,))
    return found


def read_targets(preset: str, to: Any) -> Targets:
    """Read ``to=`` of a preset.

    Raises
    ------
    TypeError
        If it is neither a mapping nor an array of numbers.
    ValueError
        If a target is negative, or they do not sum to one.
    """
    if to is None:
        return None
    is_named = hasattr(to, "keys") and hasattr(to, "items")  # a dict, or a Series
    if not is_named and (isinstance(to, str) or not hasattr(to, "__len__")):
        raise TypeError(
            f"to= of {preset} must be a dict from label to share, or an array of one share for "
            f"each class, got {to!r}."
        )
    labels = [to_python_scalar(label) for label, _ in to.items()] if is_named else []
    shares = [to_python_scalar(share) for _, share in to.items()] if is_named else [*to]
    for share in shares:
        if not is_number(share) or not is_finite(share) or share < 0.0:
            raise ValueError(
                f"to= of {preset} must be shares of the classes, numbers from 0 to 1, got "
                f"{share!r}: 20 per cent is written 0.2."
            )
    total = math.fsum(shares)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"to= of {preset} must sum to one, and its {len(shares)} shares sum to {total:g}: "
            f"divide each by the sum, or leave to= out for the shares of the labels."
        )
    numbers = tuple(map(float, shares))
    return tuple(zip(labels, numbers, strict=True)) if is_named else numbers
