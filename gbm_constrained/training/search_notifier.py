"""Callbacks and time limit of a fit whose decisions are searched on the scores of boosters.

A reduction calls an oracle again and again. Callbacks are notified before each call of the current
mixture of decision rules, and a callback that returns True ends the search: the best mixture of
the rules found so far is taken. The time limit ends the search in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.reductions.base import Observe, Step
from gbm_constrained.solvers.base import Record
from gbm_constrained.training.callbacks import CALLBACK, CallbackNotifier


class SearchNotifier(CallbackNotifier):
    """Notifies callbacks of each call of an oracle, and decides when the search ends.

    Its boosters are trained by the library alone, whose rounds no constraint callback sees.

    Attributes
    ----------
    is_search_over : bool
        Whether a callback or the time limit has ended the search.
    """

    is_search_over = False
    _n_calls = 0
    _end_of_search: str | None = None

    def notify_of_call(
        self, rows: str, compiled: LinearConstraints, value: float, functionals: Float
    ) -> None:
        """Notify callbacks of a mixture before a call of the oracle.

        Parameters
        ----------
        rows : str
            Name of the rows that decisions are counted on.
        compiled : LinearConstraints
            The user's constraints on these rows.
        value : float
            The metric of the mixture.
        functionals : ndarray of shape (n_functionals,)
            Its functionals.
        """
        record = Record(
            iteration=self._n_calls,
            rounds=self.n_rounds,
            objective=value,
            error=np.nan,
            rates=compiled.rows_of(functionals),
            functionals=functionals,
            bounds=compiled.b,
            multipliers=np.full(len(compiled), np.nan),
            bregman=np.nan,
            seconds=time.perf_counter() - self.limit.started,
        )
        self._n_calls += 1
        if self._notify("measuring", rows, record, compiled):
            self.end_search(CALLBACK)

    def end_search(self, cause: str) -> None:
        """End this search and all that would follow."""
        if not self.is_search_over:
            self._end_of_search = cause
        self.is_search_over = True

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time limit ended training or the search."""
        by_time = (self._end_of_search or "").startswith("time_limit")
        return by_time or super().is_out_of_time

    def _given_up(self) -> list[str]:
        """Say what was given up for want of time, and what ended the search."""
        found = []
        if self.limit.has_fewer_passes:
            found.append(
                f"{self.limit} left no time to grow boosters at the costs of the metric: the "
                f"decisions are those of oracle='plug_in'."
            )
        if self._end_of_search is not None:
            found.append(
                f"{self._end_of_search} ended the search for decisions: they are the best mixture "
                f"of the rules found until then."
            )
        return found


@dataclass(frozen=True, eq=False)
class SearchWatch:
    """Watches the searches of one fit on some rows.

    Parameters
    ----------
    notifier : SearchNotifier
        Notifies callbacks, and knows the time limit.
    rows : str
        Name of the rows in reports.
    compiled : LinearConstraints
        The user's constraints on these rows, whose functionals come first in the programme.
    to_metric : callable
        Computes the metric from the loss that the reduction minimises.
    reserved : callable
        Estimates the seconds that boosters will take after the search.
    """

    notifier: SearchNotifier
    rows: str
    compiled: LinearConstraints
    to_metric: Callable[[float], float]
    reserved: Callable[[], float]

    @property
    def is_over(self) -> bool:
        """Whether a callback or the time limit has ended the search; the limit may end it now."""
        notifier = self.notifier
        if not notifier.limit.has_time_for(self.reserved()):
            notifier.end_search(str(notifier.limit))
        return notifier.is_search_over

    def observe_decisions(
        self, value: Callable[[Float], float], *, is_shown: bool
    ) -> Callable[[Float], bool]:
        """Make the observer of a search for weights, given what computes the loss.

        Callbacks are not notified of a search on some of the rows, which assesses another.
        """
        notifier, compiled = self.notifier, self.compiled

        def observe(u: Float) -> bool:
            if is_shown and notifier.callbacks and not notifier.is_search_over:
                own, rows = u[: compiled.constant.size], f"{self.rows}, counted by labels"
                notifier.notify_of_call(rows, compiled, self.to_metric(value(u)), own)
            return self.is_over

        return observe

    def observe(self, counted_by: str | None) -> Observe:
        """Make the observer of a reduction.

        Parameters
        ----------
        counted_by : {"probabilities", "labels"} or None
            How decisions are counted. With None callbacks are not notified: the search is one on
            some of the rows, which assesses another.
        """
        notifier, compiled = self.notifier, self.compiled

        def observe(step: Step, u: Float) -> bool:
            is_shown = counted_by is not None and bool(notifier.callbacks)
            if is_shown and not notifier.is_search_over:
                own = u[: compiled.constant.size]
                rows = f"{self.rows}, counted by {counted_by}"
                notifier.notify_of_call(rows, compiled, self.to_metric(step.value), own)
            return self.is_over

        return observe
