"""Boosters that the library trains by its own means, within a time limit and a checkpoint.

The first booster is trained while there is time to train all the others for as many rounds, by
the seconds that its own rounds took. The others, and the model of all rows, then have these rounds
in any case: decisions are found on scores after as many. Boosters that grow in stages have their
number of rounds from the seconds of the first stage. Boosters at other weights are trained only
where there is time for all of them.

A checkpoint holds what each training has given: scores on held-out rows, and the booster itself
where it is merged with others or another stage goes on with it. A fit that is called again takes
from the file what it would train on the same rows with the same weights, and trains the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import joblib
import numpy as np

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import CombinedRows
from gbm_constrained.fit.callbacks import MeasuringClock, SearchNotifier
from gbm_constrained.fit.checkpoint import CheckpointFile, State

IsOver: TypeAlias = Callable[[int], bool]
"""Whether training ends after so many boosting rounds."""


class NativeModel(Protocol):
    """A model that the library has trained by its own means."""

    @property
    def model(self) -> Any:
        """The library's classifier."""

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X; `rows` are their positions among all rows."""

    def to_bytes(self) -> bytes:
        """Write the model as the library does."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """Rows that a model is trained on, and what it is to learn.

    Parameters
    ----------
    combined : CombinedRows
        All rows; those of further data sets are learned as joint labels only.
    rows : ndarray of int
        Positions of the rows.
    target : ndarray of shape (n_rows,), intp or None
        Joint labels of all rows; None for the labels that the user gave.
    factor : ndarray of shape (n_rows,), default=None
        Factor of the weight of each of all rows.
    is_over : callable, default=None
        Whether training ends after so many boosting rounds; None if all are trained.
    start : NativeModel, default=None
        Model of the same rows that training goes on with.
    n_before : int, default=0
        Rounds of that model.
    rounds : int, default=None
        Rounds to grow; by default all that the classifier asks for.
    """

    combined: CombinedRows
    rows: Codes
    target: Codes | None
    factor: Float | None = None
    is_over: IsOver | None = None
    start: NativeModel | None = None
    n_before: int = 0
    rounds: int | None = None

    @property
    def is_joint(self) -> bool:
        """Whether the model learns joint labels, which no parameter about classes is for."""
        return self.target is not None

    @property
    def work(self) -> float:
        """Number of values that a boosting round has gradients for: rows times scores."""
        labels = self.combined.codes if self.target is None else self.target
        n_labels = np.unique(labels[self.rows]).size
        return float(self.rows.size * (1 if n_labels <= 2 else n_labels))

    def take_features(self) -> Any:
        """Take the features of these rows."""
        return take_rows(self.combined.X, self.rows)

    def take_labels(self, y: Any) -> Any:
        """Take the labels of these rows."""
        return take_rows(y, self.rows) if self.target is None else self.target[self.rows]

    def take_weight(self, weight: Any) -> Any:
        """Take the weights of these rows, given those of the training rows, times the factors."""
        weight = multiply_weight(self.combined.extend(weight, 1.0), self.factor)
        return None if weight is None else take_rows(weight, self.rows)


def multiply_weight(weight: Any, factor: Float | None) -> Any:
    """Multiply the weights of rows, ones where weight is None, by factors if there are any."""
    if factor is None:
        return weight
    return factor if weight is None else np.asarray(weight, dtype=np.float64) * factor


FitPart: TypeAlias = Callable[[PartRows], NativeModel]
"""Trains the library's own model on some of the rows."""


class Merger(Protocol):
    """Merges models that the library has trained by its own means."""

    def merge(self, models: Sequence[Any]) -> NativeModel:
        """Merge models of ``fit_part`` into one whose raw score is the mean of theirs."""

    def restore(self, state: State, part: PartRows) -> NativeModel:
        """Make the model that ``fit_part`` has trained on some rows from its state."""

    def take(self, model: Any) -> None:
        """Make a model of ``fit_part`` that of the classifier, as ``fit`` would."""


class NativeGrowth:
    """Trains boosters on parts of the rows, or takes them from a checkpoint.

    Parameters
    ----------
    fit_part : callable
        Trains the library's own model on some of the rows.
    merger : Merger or None
        Restores boosters from the checkpoint; None where none of them is needed again.
    notifier : SearchNotifier
        The time limit, and the number of rounds.
    file : CheckpointFile or None
        The checkpoint.

    Attributes
    ----------
    planned : float
        Work of a round of all boosters that will be trained, the model of all rows among them;
        see :attr:`PartRows.work`.
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
        self._done = self._seconds = 0.0  # Work and seconds of all boosters so far.
        self._is_settled = False

    @property
    def _planned_with_search(self) -> float:
        """Work of a round of all planned boosters, with a share for the search for decisions.

        The search takes at most 0.15 of the boosters' own time on the data sets of the evidence
        page.
        """
        return 1.2 * self.planned

    @property
    def n_rounds(self) -> int:
        """Boosting rounds of each booster; fewer once the time limit has settled them."""
        return self.notifier.n_rounds

    def score(
        self, part: PartRows, held: Codes, *, is_kept: bool
    ) -> tuple[Array, NativeModel | None]:
        """Train a booster and score the held-out rows.

        Parameters
        ----------
        part : PartRows
            The rows that the booster is trained on.
        held : ndarray of int
            Positions of the rows to score.
        is_kept : bool
            Whether the booster is needed again, to be merged or to go on with.
        """
        key = _key_of("margin and booster" if is_kept else "margin", [part])
        if (state := self._restore(key, part)) is not None:
            model = None
            if is_kept:
                assert self.merger is not None
                model = self.merger.restore(state["model"], part)
            return np.asarray(state["margin"]), model
        begun = time.perf_counter()
        trained = self.fit_part(replace(part, is_over=self._pace(part)))
        margin = trained.margin(take_rows(part.combined.X, held), held)
        state = {"margin": margin}
        if is_kept and self.file is not None:
            state["model"] = cast(Any, trained).state()  # which only libraries with a merger have
        self._save(key, part, state, time.perf_counter() - begun)
        return margin, trained if is_kept else None

    def train(self, stages: Sequence[PartRows]) -> NativeModel:
        """Train a booster that decides, each stage of which goes on with the one before."""
        model = None
        for part in stages:
            model = self.fit_part(replace(part, start=model, is_over=self._pace(part)))
        assert model is not None
        return model

    def write(self, stages: Sequence[PartRows]) -> bytes:
        """Train a booster that decides, and write it as the library does."""
        key, whole = _key_of("bytes", stages), replace(stages[0], rounds=None)
        if (state := self._restore(key, whole)) is not None:
            return bytes(state["bytes"])
        begun = time.perf_counter()
        data = self.train(stages).to_bytes()
        state = {"bytes": np.frombuffer(data, np.uint8)}
        self._save(key, whole, state, time.perf_counter() - begun)
        return data

    def settle(self, rounds: int) -> None:
        """Settle the number of rounds, once boosters that grow in stages have the first of them.

        Without a time limit, and where boosters have been grown before, it stays as it is.
        """
        notifier = self.notifier
        if not (self._is_settled or notifier.is_stopped or notifier.limit.seconds is None):
            per_round, pace = self._planned_with_search, self._seconds / self._done

            def has_time(n: int) -> bool:
                return notifier.limit.has_time_for((n * per_round - self._done) * pace)

            n_rounds = next((n for n in range(self.n_rounds, rounds, -1) if has_time(n)), rounds)
            if n_rounds < self.n_rounds:
                notifier.end_for_time(n_rounds, "measuring")
        self._is_settled = True

    def has_time_for(self, work: float) -> bool:
        """Whether there is time for boosters of so much work a round beside the planned ones."""
        notifier = self.notifier
        has_time = not notifier.is_stopped and notifier.limit.has_time_for(self._seconds_of(work))
        notifier.limit.has_fewer_passes |= not has_time
        return has_time

    @property
    def reserved(self) -> float:
        """Seconds that the planned boosters still to come will take."""
        return self._seconds_of(0.0)

    def _seconds_of(self, work: float) -> float:
        """Estimate the seconds of so much work a round, and of the planned boosters to come."""
        left = work * self.n_rounds + max(self.planned * self.n_rounds - self._done, 0.0)
        return left * self._seconds / max(self._done, 1.0)

    def _restore(self, key: str, part: PartRows) -> State | None:
        """Take what a training has given from the checkpoint, if the file has it."""
        passes = () if self.file is None else self.file.passes
        state: State | None = next((one for one in passes if one["key"] == key), None)
        if state is not None:
            self.notifier.restore(state["notifier"])
            self._count(part, state["seconds"])
        return state

    def _save(self, key: str, part: PartRows, state: State, seconds: float) -> None:
        """Count a booster that has been trained, and save what it has given."""
        self._count(part, seconds)
        if self.file is not None:
            ends = self.notifier.state()
            self.file.save({"key": key, **state, "notifier": ends, "seconds": seconds})

    def _count(self, part: PartRows, seconds: float) -> None:
        if not part.n_before:
            self.notifier.begin_pass(1)
        rounds = self.n_rounds if part.rounds is None else min(part.rounds, self.n_rounds)
        self._is_settled |= part.rounds is None
        self._done += part.work * rounds
        self._seconds += seconds

    def _pace(self, part: PartRows) -> IsOver | None:
        """Make the function that ends the training of a booster in time."""
        notifier = self.notifier
        if notifier.limit.seconds is None or part.n_before:
            return None
        if self._done:
            return notifier.is_over
        others = max(self._planned_with_search - part.work, 0.0)
        clock = MeasuringClock(notifier.limit, others / part.work, 1)

        def is_over(rounds: int) -> bool:
            if clock.is_over(rounds) and rounds < notifier.n_rounds:
                notifier.end_for_time(rounds, "measuring")
            return notifier.is_over(rounds)

        return is_over


def _key_of(what: str, stages: Sequence[PartRows]) -> str:
    """Name what a training gives by all that tells it from other trainings of the same fit."""
    told = [(part.rows, part.target, part.factor, part.n_before, part.rounds) for part in stages]
    return f"{what} {joblib.hash(told)}"
