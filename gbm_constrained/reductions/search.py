"""The calls of an oracle: the rules that were found, and a record of each call."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.base import (
    KnowingOracle,
    Observe,
    Oracle,
    Programme,
    Solution,
    Status,
    Step,
)
from gbm_constrained.reductions.master import Cut

# Weights of a vertex of a linear programme are zero or far above this.
MIN_PROBABILITY = 1e-12
# Two rules whose functionals agree in this many digits are one rule.
DIGITS = 12


class Search:
    """Calls the oracle of one programme, and keeps the pool of rules.

    Parameters
    ----------
    programme : Programme
        What is minimised.
    oracle : Oracle
        Where rules come from. Cheap rules that a :class:`KnowingOracle` knows join the pool.
    max_calls : int
        Calls after which :attr:`is_exhausted` is true.
    observe : callable, default=None
        Sees the current mixture before each call, and may end the search.
    """

    def __init__(
        self,
        programme: Programme,
        oracle: Oracle,
        max_calls: int,
        observe: Observe | None = None,
    ) -> None:
        self.programme = programme
        self.max_calls = max_calls
        self.rules: list[Any] = []
        self.bound = -np.inf
        self.constraint_cuts: list[Cut] = []
        self.history: list[Step] = []
        self._oracle, self._observe = oracle, observe
        self._u: Float | None = None  # of the current mixture
        self._step = Step(np.inf, -np.inf, np.inf, 0.0)
        self._points: list[Float] = []
        self._index: dict[bytes, int] = {}
        self._start = time.perf_counter()
        if isinstance(oracle, KnowingOracle):
            for rule, u in oracle.start:
                self.add(rule, u)

    @property
    def points(self) -> Float:
        """Functionals of the rules found, of shape (n, d)."""
        return np.array(self._points).reshape(len(self._points), self.programme.size)

    @property
    def n_left(self) -> int:
        """Number of calls that are left."""
        return max(self.max_calls - len(self.history), 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether no call is left."""
        return self.n_left == 0

    def call(self, cost: Float) -> tuple[int, Float]:
        """Find the rule of smallest cost; give its position in the pool and its functionals."""
        cost = np.asarray(cost, dtype=float)
        if np.isnan(cost).any():
            raise ValueError(
                f"the gradient of the objective or of a constraint is {cost}, which holds NaN; "
                "return finite numbers for every u between low and high"
            )
        largest = np.abs(cost).max(initial=0.0)
        if np.isinf(largest):
            cost = np.where(np.isinf(cost), np.sign(cost), 0.0)
        elif largest > 0:
            cost = cost / largest  # Only the direction counts.
        if self._is_last_call():
            self.max_calls = min(self.max_calls, len(self.history) + 1)
        rule, u = self._oracle.minimise(cost)
        u = np.asarray(u, dtype=float)
        position = self.add(rule, u)
        if isinstance(self._oracle, KnowingOracle):
            for known, of_known in self._oracle.list_cheapest(cost):
                self.add(known, of_known)
        self._step = replace(self._step, seconds=time.perf_counter() - self._start)
        self.history.append(self._step)
        return position, u

    def _is_last_call(self) -> bool:
        """Show the current mixture, if there is one, and ask whether the search is over."""
        if self._observe is None or self._u is None:
            return False
        return self._observe(self._step, self._u)

    def add(self, rule: Any, u: Float) -> int:
        """Add a rule to the pool unless the pool has it, and give its position."""
        # Adding zero makes -0.0 and 0.0 the same bytes.
        key = (np.round(u, DIGITS) + 0.0).tobytes()
        if key not in self._index:
            self._index[key] = len(self._points)
            self.rules.append(rule)
            self._points.append(u)
        return self._index[key]

    def note(self, u: Float, bound: float = -np.inf) -> None:
        """Write into the last step, if there is one, what the mixture and the bound are worth."""
        self._u = u
        self.bound = max(self.bound, bound)
        self._step = Step(
            self.programme.objective.value(u),
            self.bound,
            self.programme.violation(u),
            time.perf_counter() - self._start,
        )
        if self.history:
            self.history[-1] = self._step

    def finish(self, weight: Float, status: Status) -> Solution:
        """Make the solution of a mixture of the pool, `weight` of shape (n,) or shorter."""
        chosen = np.flatnonzero(weight > MIN_PROBABILITY)
        probability = weight[chosen] / weight[chosen].sum()
        points = self.points
        u = probability @ points[chosen]
        return Solution(
            rules=tuple(self.rules[i] for i in chosen),
            probability=probability,
            u=u,
            value=self.programme.objective.value(u),
            bound=self.bound,
            violation=self.programme.violation(u),
            status=status,
            history=tuple(self.history),
            pool=points,
        )
