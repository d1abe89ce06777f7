r"""Bisection for ratios of linear functions (Algorithms 4 and 8 of the paper).

.. math:: \min_u \frac{a^T u + a_0}{b^T u + b_0} \ge \gamma \iff
    \min_u (a - \gamma b)^T u + a_0 - \gamma b_0 \ge 0 .

Each level gamma is a linear programme over the rules, solved by columns on one pool for all
levels. The mixture of the smallest loss so far is kept. Algorithm 8 as printed assigns it in the
wrong branch: the update is that of Algorithm 4 and of the proof (Lemma 47).

The paper's denominators are positive for all rules. Here they need only be so for all mixtures
that meet the constraints: a rule that never predicts a class has no precision, and a bound on the
recall excludes it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import (
    TOLERANCE,
    LinearObjective,
    Observe,
    Oracle,
    Programme,
    RatioObjective,
    Solution,
)
from gbm_constrained.reductions.columns import (
    find_feasible,
    find_mixture,
    finish_early,
    minimise_over_columns,
)
from gbm_constrained.reductions.pruning import make_level
from gbm_constrained.reductions.search import Search

Levels: TypeAlias = Literal["dinkelbach", "halves"]


def solve_by_bisection(
    programme: Programme,
    oracle: Oracle,
    max_calls: int = 300,
    tolerance: float = TOLERANCE,
    levels: Levels = "dinkelbach",
    observe: Observe | None = None,
) -> Solution:
    """Minimise a ratio of linear functions.

    Parameters
    ----------
    programme : Programme
        Objective of kind ``"ratio"``, and constraints.
    oracle : Oracle
        Where rules come from.
    max_calls : int, default=300
        Calls of the oracle.
    tolerance : float, default=1e-7
        Width of the bracket of the optimum at which the method ends.
    levels : {"dinkelbach", "halves"}, default="dinkelbach"
        The next level: the best value so far, or the middle of the bracket (the paper's).
    observe : callable, default=None
        As in :class:`~gbm_constrained.reductions.search.Search`.

    Returns
    -------
    Solution
        The mixture; one rule where there are no constraints. Its bound is the bracket's lower end.
    """
    search = Search(programme, oracle, max_calls, observe)
    least_denominator = find_least_denominator(search)
    if failure := find_feasible(search):
        return finish_early(search, failure)
    if least_denominator <= 0.0:
        least_denominator = find_least_feasible_denominator(search)
        if search.is_exhausted:
            return finish_early(search, "limit")
    bracket = _Bracket(search, find_mixture(search), least_denominator)
    while bracket.width > tolerance and not search.is_exhausted:
        before = bracket.low, bracket.high
        bracket.test_level(bracket.high if levels == "dinkelbach" else bracket.middle, tolerance)
        if levels == "dinkelbach" and before == (bracket.low, bracket.high):
            break
    weight = find_mixture(search)
    if programme.objective.value(weight @ search.points) > bracket.high:
        weight = bracket.weight
    return search.finish(weight, "optimal" if bracket.width <= tolerance else "limit")


class ZeroDenominatorError(ValueError):
    """A ratio has no value for a decision rule that the constraints allow."""

    def __init__(self, least: float) -> None:
        super().__init__(
            f"the denominator of the ratio is {least} for a decision rule; a ratio needs a "
            "denominator above zero for every rule: choose another default class, weight rows "
            "so that more than one class occurs, or add a constraint that keeps the denominator "
            "above zero, as a bound on the recall keeps that of the precision"
        )


def find_least_denominator(search: Search) -> float:
    """Find the smallest denominator of the ratio over all rules.

    Raises
    ------
    ZeroDenominatorError
        If it is not positive, and no constraint can exclude the rule.
    """
    denominator = _denominator_of(search.programme)
    _, u = search.call(denominator.slope)
    least = denominator.value(u)
    if least <= 0 and not search.programme.n_constraints:
        raise ZeroDenominatorError(least)
    search.note(u)
    return least


def find_least_feasible_denominator(search: Search) -> float:
    """Find a positive number below the denominators of all mixtures that meet the constraints.

    Where the calls end before, the number need not be positive.

    Raises
    ------
    ZeroDenominatorError
        If there is none.
    """
    level = search.programme.with_objective(_denominator_of(search.programme))
    found = minimise_over_columns(level, search)
    if found.bound <= TOLERANCE and not search.is_exhausted:
        raise ZeroDenominatorError(found.value)
    return found.bound


def _denominator_of(programme: Programme) -> LinearObjective:
    objective = programme.objective
    assert isinstance(objective, RatioObjective)
    _, _, b, b0 = objective.ratio()
    return LinearObjective(np.asarray(b, dtype=float), float(b0))


class _Bracket:
    """An interval that holds the optimum, and the mixture of its upper end."""

    def __init__(self, search: Search, weight: Float, least_denominator: float) -> None:
        self.search = search
        self.weight = weight
        self.low = -np.inf
        self._denominator = least_denominator
        u = weight @ search.points[: len(weight)]
        self.high = search.programme.objective.value(u)
        search.note(u)

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.high - self.low

    @property
    def middle(self) -> float:
        """Middle of the interval, with zero as lower end until one is known (losses)."""
        return (self.high + (self.low if np.isfinite(self.low) else min(0.0, self.high))) / 2

    def test_level(self, gamma: float, tolerance: float) -> None:
        """Move the upper end to a mixture of value at most gamma, or the lower end upwards."""
        level = self.search.programme.with_objective(
            make_level(self.search.programme.objective, gamma)
        )
        enough = self._denominator * tolerance / 4
        at_top = gamma >= self.high

        def is_known(value: float, bound: float) -> bool:
            """Say whether the sign is known; at the upper end only an improvement is news."""
            return value < -enough if at_top else (value <= 0 or bound > 0)

        def note(u: Float, bound: float) -> None:
            self._rise(gamma, bound)
            self.search.note(self.weight @ self.search.points[: len(self.weight)], self.low)

        found = minimise_over_columns(level, self.search, enough, is_known, note)
        self._rise(gamma, found.bound)
        value = self.search.programme.objective.value(found.u)
        if value < self.high:
            self.high, self.weight = value, found.weight
        self.search.note(self.weight @ self.search.points[: len(self.weight)], self.low)

    def _rise(self, gamma: float, bound: float) -> None:
        """Raise the lower end: psi(u) - gamma is at least bound / (b^T u + b_0)."""
        if bound >= 0:
            self.low = max(self.low, gamma)
        elif np.isfinite(bound):
            self.low = max(self.low, gamma + bound / self._denominator)
