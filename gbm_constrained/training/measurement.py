"""Where constraints are measured: on rows that the trees have not seen.

Boosted trees drive training rates to whatever is asked, by heart if need be, and a multiplier that
looks there goes to sleep while the rule is broken on every new row. So the multipliers may be
moved by rates of other rows:

- ``"crossfit"``: K boosters are grown in step, each on all but one of K folds, and share one set
  of multipliers, driven by the rates of the pooled out-of-fold scores. The model itself is then
  trained on all rows with the multipliers that they passed through. Costs K - 1 further fits and
  the scoring of the folds.
- ``"holdout"``: the same with one booster only and the rows of one part; costs less than one
  further fit. With rows that the user holds out anyway (`eval_set`) it costs nothing.
- ``"train"``: on the training rows.

``"auto"`` takes the holdout where it is large enough to tell: where every rate is taken over
:data:`PLENTY` rows and more, and cross-fitting where one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.refit_transfer import FoldScores, estimate_optimism
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Record
from gbm_constrained.training.checkpoint import State

MeasureOn: TypeAlias = Literal["auto", "train", "holdout", "crossfit"]
MEASURE_ON: tuple[MeasureOn, ...] = ("auto", "train", "holdout", "crossfit")
Aim: TypeAlias = Callable[[Float], Float]
# A quarter of these measure a rate of 0.05 with a standard error of 0.002.
PLENTY = 50_000
# Standard error of what a rule bounds up to which the model of all rows is corrected by it.
TELLING = 0.01


class Scout(Protocol):
    """A booster grown on part of the rows, to see what the constraints do on the others.

    Parameters
    ----------
    solver : ABPP or None
        What it is trained for. Its history has the rates on the rows that it is grown on, where
        something asks for them. None for the library's own objective.
    """

    solver: ABPP | None

    def grow(self, rounds: int) -> None:
        """Grow the boosting round that comes after so many."""

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of the rows it is measured on, after all rounds or after some."""

    def own_margin(self, rounds: int) -> Array:
        """Scores of the rows it is grown on, after some rounds."""

    def state(self) -> State:
        """Trees and scores: :meth:`restore` takes them over."""

    def restore(self, state: State, rounds: int) -> None:
        """Take over the state that a booster on the same rows had after so many rounds."""


@dataclass
class Measurement:
    """Unseen rows, and the solver whose multipliers move by their rates.

    Parameters
    ----------
    solver : ABPP
        Its Lagrangian is that of the unseen rows. It is never asked for gradients.
    rows : ndarray of int, default=None
        These rows among all rows of the fit; None where they are not among them.
    aim : callable, default=None
        Given the rates, the bounds that the multipliers aim at; the constraints' own by default.

    Attributes
    ----------
    schedule : list of ndarray
        Multipliers of each outer iteration: what the boosters follow.
    """

    solver: ABPP
    rows: Codes | None = None
    aim: Aim | None = None
    schedule: list[Float] = field(default_factory=list)

    def observe(self, margin: Array) -> None:
        """Begin an outer iteration: a dual step at the scores that the unseen rows now have."""
        self.solver.begin_iteration(self.solver.lagrangian.at(margin))
        self.schedule.append(self.solver.multipliers)
        self.solver.bounds = self.bounds_after(self.solver.history[-1])

    def bounds_after(self, record: Record) -> Float:
        """Bounds that the outer iteration of a record aims at, which the next one finds."""
        return self.solver.bounds if self.aim is None else self.aim(record.functionals)

    def restore(self, state: State) -> None:
        """Take over the state of the solver, and with it the schedule."""
        self.solver.restore(state)
        self.schedule[:] = [record.multipliers for record in self.solver.history]


@dataclass
class Scouts:
    """Boosters grown in step that share the multipliers of a :class:`Measurement`.

    Parameters
    ----------
    measurement : Measurement
        Of the rows that the boosters hold out, all together.
    folds : sequence of Fold
        The rows of each booster.
    members : sequence of Scout
        The boosters.
    kept_rounds : collection of int, default=()
        Rounds whose scores of the unseen rows are kept: those of prefixes to choose from.
    log_odds : float, default=0
        What the weights of their objective add to the log-odds of the second of two classes.

    Attributes
    ----------
    positions : list of ndarray of int
        Of the rows that each booster holds out, among those of the measurement.
    rounds : int
        Rounds that have been grown.
    """

    measurement: Measurement
    folds: Sequence[Fold]
    members: Sequence[Scout]
    kept_rounds: Collection[int] = ()
    log_odds: float = 0.0
    positions: list[Codes] = field(init=False)
    rounds: int = field(default=0, init=False)
    _held: dict[int, Array] = field(default_factory=dict, init=False, repr=False)
    _own: tuple[int, list[Array]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the rows of each booster, once."""
        rows = self.measurement.rows
        assert rows is not None
        self.positions = [np.searchsorted(rows, fold.held) for fold in self.folds]

    def grow(
        self,
        n_rounds: int,
        rounds_per_iteration: int,
        is_over: Callable[[int], bool],
        save: Callable[[], None] | None = None,
    ) -> None:
        """Grow all boosters in step, until an iteration after which training `is_over`.

        Their state may be saved after each round.
        """
        while self.rounds < n_rounds:
            if self.rounds % rounds_per_iteration == 0:
                if is_over(self.rounds):
                    break
                margin = self.held_margin()
                self.measurement.observe(margin)
                if self.rounds in self.kept_rounds:  # to score them again takes much longer
                    self._held[self.rounds] = margin
            for member in self.members:
                member.grow(self.rounds)
            self.rounds += 1
            if save is not None:
                save()

    def optimism(self, iteration: int) -> tuple[Float, Float]:
        """How much higher rates of a model of all rows are on unseen rows than on its own.

        For each row of constraints in an outer iteration, with the bounds that were aimed at; the
        last ones hold beyond the end. See :mod:`gbm_constrained.decision.refit_transfer`.
        """
        history = self.measurement.solver.history
        k = min(iteration, len(history) - 1)
        own = [solver.history[k].rates for solver in self._solvers]
        return estimate_optimism(history[k].rates, own, self.kept_optimism), history[k].bounds

    @property
    def kept_optimism(self) -> float:
        """Share of what these boosters lose on unseen rows that a model of all rows loses."""
        shares = [f.training.size / (f.training.size + f.held.size) for f in self.folds]
        return float(np.mean(shares))

    @property
    def is_unweighed(self) -> bool:
        """Whether these boosters are grown without multipliers."""
        return self.measurement.solver.schedule is not None

    def state(self) -> State:
        """State of the measurement and of all boosters, between two rounds."""
        return {
            "rounds": self.rounds,
            "leader": self.measurement.solver.state(),
            "members": [member.state() for member in self.members],
            "solvers": [solver.state() for solver in self._solvers],
        }

    def restore(self, state: State) -> None:
        """Go on from a state of boosters on the same rows."""
        self.rounds = state["rounds"]
        self.measurement.restore(state["leader"])
        for member, of_member in zip(self.members, state["members"], strict=True):
            member.restore(of_member, self.rounds)
        for solver, of_solver in zip(self._solvers, state["solvers"], strict=True):
            solver.restore(of_solver)

    @property
    def _solvers(self) -> list[ABPP]:
        """Solvers of the boosters; none where these have the library's own objective."""
        return [member.solver for member in self.members if member.solver is not None]

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of all unseen rows, each by the booster that has not seen it."""
        if rounds is not None and rounds in self._held:
            return self._held[rounds]
        parts = [member.held_margin(rounds) for member in self.members]
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        pooled = np.empty(shape, parts[0].dtype, order="F" if len(shape) > 1 else "C")
        for positions, part in zip(self.positions, parts, strict=True):
            pooled[positions] = part
        if rounds is not None:  # choices look at the same prefixes
            self._held[rounds] = pooled
        return pooled

    def scores(self, rounds: int) -> FoldScores:
        """Scores after some rounds, out of fold and of each booster's training rows."""
        assert self.measurement.rows is not None
        own = [fold.training for fold in self.folds]
        return FoldScores(
            (self.measurement.rows, self.held_margin(rounds)),
            list(zip(own, self.own_margins(rounds), strict=True)),
            self.kept_optimism,
        )

    def own_margins(self, rounds: int) -> list[Array]:
        """Scores of the rows that each booster is grown on, by that booster after some rounds.

        The last ones are kept: a choice that is made is looked at several times.
        """
        if self._own is None or self._own[0] != rounds:
            self._own = rounds, [member.own_margin(rounds) for member in self.members]
        return self._own[1]


MakeScout: TypeAlias = Callable[[Fold, ABPP | None], Scout]
