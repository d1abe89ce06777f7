r"""Calibration errors: how far probabilities are from shares of labels, bin by bin.

Probabilities of the positive class of two are put into bins of equal width. The mean residual of
bin b over rows of weights w is

.. math:: r_b = \sum_i w_i \, 1[p_i \in b] \, (y_i - p_i) \Big/ \sum_i w_i ,

and the expected calibration error is :math:`\sum_b |r_b|` (Naeini, Cooper and Hauskrecht,
"Obtaining Well Calibrated Probabilities Using Bayesian Binning", 2015). Mean residuals are
functionals as rates are, so that an error is a curved function of them.

>>> from gbm_constrained import each, gap
>>> calibration_error() <= 0.05
calibration_error() <= 0.05
>>> each(calibration_error(bins=5), by="sex") <= 0.05
each(calibration_error(bins=5), by='sex') <= 0.05
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import Constraint, Expression, Sense
from gbm_constrained.constraints.curves import CurvedRow, LinearRow
from gbm_constrained.constraints.events import Event, Term
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.grouped import Grouped, Paired
from gbm_constrained.constraints.rate_parts import document_rate
from gbm_constrained.constraints.selectors import Levels, Selector, as_selectors

__all__ = ["calibration_error"]

MOST_BINS = 100  # Bins of one error: each is a functional, and has rows of its own.


def find_edges(bins: int) -> Float:
    """Find the ends of bins of equal width, shape (bins + 1,)."""
    return np.linspace(0.0, 1.0, bins + 1)


@dataclass(frozen=True)
class BinResidual(Event):
    """Label minus probability of the positive class, where the probability is in one bin.

    Parameters
    ----------
    bins : Number of bins.
    position : Position of the bin, from zero.
    """

    needs_labels: ClassVar[bool] = True
    is_residual: ClassVar[bool] = True

    bins: int
    position: int

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the bin, of which the upper one is inside."""
        low, high = find_edges(self.bins)[self.position : self.position + 2].tolist()
        return low, high

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of a row."""
        low, high = self.ends
        return -high, 1.0 - low

    def __str__(self) -> str:
        low, high = self.ends
        return f"{'(' if self.position else '['}{low:g}, {high:g}]"

    def cost(self, levels: Levels) -> Bool:
        """Return a table without events: a residual depends on scores, not on decisions."""
        return np.zeros((levels.of_cells["label"].size, levels.classes.size), dtype=bool)


@dataclass(frozen=True)
class AbsoluteSums:
    """Sum of the absolute values of functionals, less that of the functionals of another group.

    Parameters
    ----------
    n_bins : int
        Number of functionals of a group.
    is_difference : bool, default=False
        Whether there is another group.
    """

    n_bins: int
    is_difference: bool = False

    @property
    def signs(self) -> tuple[int, ...]:
        """Sign of the derivative in each functional, which is that of the functional."""
        return (0,) * (self.n_bins * (2 if self.is_difference else 1))

    @property
    def denominators(self) -> tuple[int, ...]:
        """Positions of functionals by which others are divided: there are none."""
        return ()

    def values(self, functionals: Float) -> Float:
        """Compute the sums of several choices of functionals."""
        sizes = np.abs(functionals)
        return np.asarray(sizes[: self.n_bins].sum(axis=0) - sizes[self.n_bins :].sum(axis=0))

    def gradient(self, functionals: Float) -> Float:
        """Compute a subgradient, which is zero in functionals that are zero."""
        found = np.sign(functionals)
        found[self.n_bins :] *= -1.0
        return found

    def opposite(self, at: tuple[int, ...]) -> tuple[int, ...] | None:
        """Exchange the groups; None where there is one."""
        return (*at[self.n_bins :], *at[: self.n_bins]) if self.is_difference else None


class CalibrationErrors(Expression):
    """Base of calibration errors, and of comparisons of them between groups."""

    senses: ClassVar[tuple[Sense, ...]] = ("<=",)
    is_curved: bool = True

    @abstractmethod
    def errors(self, functionals: Float) -> Float:
        """Compute the error of each group from its mean residuals, shape (n_groups,)."""

    @property
    def reason_and_remedy(self) -> str:
        """Why the expression has no arithmetic, and what is written instead."""
        return "calibration errors have no sums and multiples. Bound each by itself."

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value over all probabilities."""
        return 0.0, 1.0

    def rows(
        self, sense: Sense, bound: float, at: Sequence[int], names: Sequence[str]
    ) -> list[LinearRow]:
        """Return no linear rows: a bound of the expression is curved."""
        return []

    def __ge__(self, bound: Any) -> Constraint:
        raise TypeError(
            f"{self} >= {bound}: a calibration error can only be bounded from above, as no model "
            f"is asked for wrong probabilities."
        )


@dataclass(frozen=True, repr=False)
class CalibrationError(CalibrationErrors):
    """Expected calibration error of the probability of the positive class.

    Parameters
    ----------
    bins : int, default=10
        Number of bins.
    on : tuple of Selector, default=()
        Restriction of the rows.
    """

    bins: int = 10
    on: tuple[Selector, ...] = ()

    def __post_init__(self) -> None:
        is_integer = isinstance(self.bins, Integral) and not isinstance(self.bins, bool)
        if not is_integer or not 1 <= self.bins <= MOST_BINS:
            raise ValueError(
                f"bins must be an integer from 1 to {MOST_BINS}, got {self.bins!r}: 10 is usual, "
                f"and each bin needs rows."
            )
        object.__setattr__(self, "bins", int(self.bins))

    @cached_property
    def rates(self) -> tuple[Rate, ...]:
        """Mean residuals of the bins."""
        events = [BinResidual(self.bins, k) for k in range(self.bins)]
        return tuple(Rate(((1.0, Term(f"residual in {e}", e, on=self.on)),)) for e in events)

    def branches(self, sense: Sense, bound: float, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a row of the error."""
        return [CurvedRow(tuple(at), AbsoluteSums(self.bins), bound)]

    def errors(self, functionals: Float) -> Float:
        """Compute the error of each group from its mean residuals, shape (n_groups,)."""
        return np.asarray(np.abs(functionals.reshape(-1, self.bins)).sum(axis=1))

    def value(self, functionals: Float, sense: Sense) -> float:
        """Compute the error, NaN where it is undefined."""
        return float(self.errors(functionals)[0])

    def __str__(self) -> str:
        bins = "" if self.bins == CalibrationError.bins else f"(bins={self.bins})"
        on = f"[{', '.join(map(str, self.on))}]" if self.on else ""
        return f"calibration_error{bins}{on}"


@dataclass(frozen=True, repr=False, kw_only=True)
class CalibrationErrorsOfGroups(CalibrationErrors):
    """Calibration errors of several groups.

    Parameters
    ----------
    of : CalibrationError
        The error of a group.
    """

    of: CalibrationError

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Mean residuals of the bins."""
        return self.of.rates

    def errors(self, functionals: Float) -> Float:
        """Compute the error of each group from its mean residuals, shape (n_groups,)."""
        return self.of.errors(functionals)


@dataclass(frozen=True, repr=False, kw_only=True)
class EachCalibrationError(CalibrationErrorsOfGroups, Grouped):
    """The largest calibration error of a group.

    Parameters
    ----------
    of : CalibrationError
        The error of a group.
    """

    def n_comparisons(self, n_functionals: int) -> int:
        """Count the groups."""
        return n_functionals // self.of.bins

    def branches(self, sense: Sense, bound: float, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a row for each group."""
        n = self.of.bins
        return [
            CurvedRow(tuple(at[i : i + n]), AbsoluteSums(n), bound) for i in range(0, len(at), n)
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest error, NaN where none is defined."""
        found = self.errors(functionals)
        return float(np.nanmax(found)) if not np.isnan(found).all() else np.nan

    def __str__(self) -> str:
        return f"each({self.of}{self.options})"


@dataclass(frozen=True, repr=False, kw_only=True)
class CalibrationGap(CalibrationErrorsOfGroups, Paired):
    """The largest difference of calibration errors between groups.

    Parameters
    ----------
    of : CalibrationError
        The error of a group.
    """

    def branches(self, sense: Sense, bound: float, at: Sequence[int]) -> list[CurvedRow]:
        """Write a bound as a row for each ordered pair of groups."""
        n = self.of.bins
        groups = [tuple(at[i : i + n]) for i in range(0, len(at), n)]
        difference = AbsoluteSums(n, is_difference=True)
        return [
            CurvedRow(groups[g] + groups[h], difference, bound) for g, h in self.pairs(len(groups))
        ]

    def value(self, functionals: Float, sense: Sense) -> float:
        """Find the largest difference."""
        return self.find_gap(self.errors(functionals))

    def __str__(self) -> str:
        return f"gap({self.of}{self.options})"


@document_rate
def calibration_error(bins: int = 10, *, on: Any = None) -> CalibrationError:
    r"""Make the expected calibration error of probabilities, :math:`\sum_b |r_b|`.

    Probabilities of the positive class are put into bins of equal width, and :math:`r_b` is the
    share of a bin's rows times the difference between their share of positives and their mean
    probability ([1]_, eq. (3), for the predicted class). The bins are those of
    ``sklearn.calibration.calibration_curve`` with ``strategy="uniform"``: a probability on an edge
    is in the lower bin. There is an error of two classes only, which is the same for both.

    The error of a sample is larger than that of the population by chance. With n rows and well
    calibrated probabilities it is about :math:`0.8 \sum_b \sqrt{s_b v_b / n}`, where a bin has the
    share :math:`s_b` of the rows, and its labels the variance :math:`v_b`. Intervals allow for
    that (:mod:`gbm_constrained.statistics.calibration_intervals`).

    A bound moves the probabilities of the model, and is refused with ``probabilities="shifted"``.

    Parameters
    ----------
    bins : int, default=10
        Number of bins, from 1 to 100.

    Raises
    ------
    ValueError
        If `bins` is something else.

    References
    ----------
    .. [1] Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", 2017.
    """
    return CalibrationError(bins, as_selectors(on))
