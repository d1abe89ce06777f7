"""Boosters that the library trains one after the other, within a time limit and a checkpoint.

The first booster is trained while there is time to train all the others for as many rounds, by
the seconds that its own rounds took. The others, and the model of all rows, then have these rounds
in any case: decisions are found on scores after as many. Boosters at other weights are trained
only where there is time for all of them.

Each booster is a stage of its checkpoint: its scores on the held-out rows are saved, and the
booster itself where it is merged with others. A fit that is called again restores these stages in
their order, and trains what follows.
"""

from __future__ import annotations

import time

import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes
from gbm_constrained.training.checkpoint import CheckpointFile, State
from gbm_constrained.training.native_models import FitPart, IsOver, Merger, NativeModel, PartRows
from gbm_constrained.training.search_notifier import SearchNotifier
from gbm_constrained.training.time_limit import MeasuringClock

SEARCH_SHARE = 0.2
"""Time of the search for decisions, as a share of the boosters' own: at most 0.15 on the data sets
of the evidence page."""


class NativeGrowth:
    """Trains boosters on parts of the rows, or takes them from a checkpoint.

    Parameters
    ----------
    fit_part : callable
        Trains the library's own model on some of the rows.
    merger : Merger or None
        Restores the boosters that are to be merged; None where none are.
    notifier : SearchNotifier
        The time limit, and the number of rounds.
    file : CheckpointFile or None
        The checkpoint.

    Attributes
    ----------
    planned : float
        Work of all boosters that will be trained, the model of all rows among them; see
        :attr:`PartRows.work`.
    """

    def __init__(
        self,
        fit_part: FitPart,
        merger: Merger | None,
        notifier: SearchNotifier,
        file: CheckpointFile | None,
    ) -> None:
        self.fit_part, self.merger, self.notifier, self.file = fit_part, merger, notifier, file
        self.planned = 0.0
        self._n_stages = 0
        self._done = self._seconds = 0.0  # Work and seconds of all boosters so far.
        self._is_paced = False

    def score(self, part: PartRows, held: Codes) -> tuple[Array, NativeModel | None]:
        """Train a booster and score the held-out rows; the booster is kept if it is merged.

        Parameters
        ----------
        part : PartRows
            The rows that the booster is trained on.
        held : ndarray of int
            Positions of the rows to score.
        """
        merger = self.merger
        if (state := self._restore(part)) is not None:
            model = None
            if merger is not None:
                model = merger.restore(state["model"], part)
            return np.asarray(state["margin"]), model
        begun = time.perf_counter()
        trained = self.fit_part(part.until(self._pace(part)))
        margin = trained.margin(take_rows(part.combined.X, held), held)
        state = {"margin": margin}
        if merger is not None and self.file is not None:
            state["model"] = trained.state()  # type: ignore[attr-defined]
        self._save(part, state, time.perf_counter() - begun)
        return margin, None if merger is None else trained

    def train(self, part: PartRows) -> bytes:
        """Train a booster that decides, as the library writes it."""
        if (state := self._restore(part)) is not None:
            return bytes(state["bytes"])
        begun = time.perf_counter()
        data = self.fit_part(part.until(self._pace(part))).to_bytes()
        self._save(part, {"bytes": np.frombuffer(data, np.uint8)}, time.perf_counter() - begun)
        return data

    def has_time_for(self, work: float) -> bool:
        """Whether there is time for boosters of so much work beside the model of all rows."""
        notifier = self.notifier
        has_time = not notifier.is_stopped and notifier.limit.has_time_for(self._seconds_of(work))
        notifier.limit.has_fewer_passes |= not has_time
        return has_time

    @property
    def reserved(self) -> float:
        """Seconds that the planned boosters still to come will take."""
        return self._seconds_of(0.0)

    def _seconds_of(self, work: float) -> float:
        """Estimate the seconds of so much work, and of the planned boosters to come."""
        left = work + max(self.planned - self._done, 0.0)
        return left * self._seconds / max(self._done, 1.0)

    def _restore(self, part: PartRows) -> State | None:
        """Take the next stage from the checkpoint, if the file has it."""
        if self.file is None or self._n_stages >= len(self.file.passes):
            return None
        state = self.file.passes[self._n_stages]
        self.notifier.restore(state["notifier"])
        self._count(part, state["seconds"])
        return state

    def _save(self, part: PartRows, state: State, seconds: float) -> None:
        """Count a booster that has been trained, and save its stage."""
        self._count(part, seconds)
        if self.file is not None:
            self.file.save({**state, "notifier": self.notifier.state(), "seconds": seconds})

    def _count(self, part: PartRows, seconds: float) -> None:
        self._n_stages += 1
        self.notifier.begin_pass(1)
        self._done += part.work
        self._seconds += seconds

    def _pace(self, part: PartRows) -> IsOver | None:
        """Make the function that ends the training of a booster in time."""
        notifier = self.notifier
        if notifier.limit.seconds is None:
            return None
        if self._is_paced:
            return notifier.is_over
        self._is_paced = True
        others = max((1.0 + SEARCH_SHARE) * self.planned - self._done - part.work, 0.0)
        clock = MeasuringClock(notifier.limit, others / part.work, 1)

        def is_over(rounds: int) -> bool:
            if clock.is_over(rounds) and rounds < notifier.n_rounds:
                notifier.end_for_time(rounds, "measuring")
            return notifier.is_over(rounds)

        return is_over
