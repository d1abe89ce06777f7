"""Boosters of the folds, grown in step under shared multipliers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.refit_transfer import FoldScores, estimate_optimism
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.training.checkpoint import State
from gbm_constrained.training.dual_controller import DualController


class FoldBooster(Protocol):
    """A booster that is grown on part of the rows and measured on the others.

    Attributes
    ----------
    solver : Solver or None
        Solver that gives the gradients; None stands for the library's own objective.
    """

    solver: Solver | None

    def grow(self, rounds: int) -> None:
        """Grow the boosting round that follows the given number of rounds."""

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of the held-out rows after the given number of rounds, by default all."""

    def own_margin(self, rounds: int) -> Array:
        """Scores of the rows that the booster is grown on, after the given number of rounds."""

    def state(self) -> State:
        """Trees and scores of a booster that is fully grown."""

    def restore(self, state: State) -> None:
        """Take over the trees and scores of an equal booster."""

    def release(self) -> None:
        """Free what growing alone needs; the scores after all rounds are kept."""


FoldBoosterFactory: TypeAlias = Callable[[Fold, Solver | None], FoldBooster]


@dataclass
class FoldBoosters:
    """Boosters grown in step that share the multipliers of a :class:`DualController`.

    Parameters
    ----------
    controller : DualController
        Controller of the rows that the boosters hold out, all together.
    folds : sequence of Fold
        Rows of each booster.
    members : sequence of FoldBooster
        The boosters.
    n_rows : int
        Number of rows that the model is trained on.
    kept_rounds : collection of int, default=()
        Rounds of the prefixes that a choice may look at, whose held-out scores are kept.
    log_odds : float, default=0
        Log-odds that the weights of the objective add to the second of two classes.

    Attributes
    ----------
    positions : list of ndarray of int
        Positions of each booster's held-out rows among those of the controller.
    compared : list of ndarray of int
        Positions of those training rows of each booster that others hold out, if some rows are
        never held out: rates on these differ by optimism alone. Empty otherwise.
    rounds : int
        Number of rounds that have been grown.
    remaining_optimism : float
        Share of the boosters' optimism that a model of all rows has.
    """

    controller: DualController
    folds: Sequence[Fold]
    members: Sequence[FoldBooster]
    n_rows: int
    kept_rounds: Collection[int] = ()
    log_odds: float = 0.0
    positions: list[Codes] = field(init=False)
    compared: list[Codes] = field(init=False)
    rounds: int = field(default=0, init=False)
    remaining_optimism: float = field(init=False)
    _histories: list[list[Record]] = field(init=False, repr=False)
    _held: dict[int, Array] = field(default_factory=dict, init=False, repr=False)
    _own: tuple[int, list[Array]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        rows = self.controller.rows
        assert rows is not None
        self.positions = [np.searchsorted(rows, fold.held) for fold in self.folds]
        cells = self.controller.solver.lagrangian.cells
        is_whole = not cells.communicator.holds_all_rows  # Several machines divide all rows.
        self.compared = [] if is_whole else _find_compared(self.folds, rows)
        sizes = np.array([fold.training.size for fold in self.folds], dtype=np.float64)
        sizes = cells.reduce_sum(sizes)
        if self.compared:
            sizes = sizes[[part.size > 0 for part in self.compared]]
        self.remaining_optimism = float(1.0 / np.mean(self.n_rows / sizes))
        self._histories = [solver.history for solver in self._solvers]

    def grow(
        self, n_rounds: int, rounds_per_iteration: int, is_over: Callable[[int], bool]
    ) -> None:
        """Grow all boosters in step, until an iteration at which training is over."""
        while self.rounds < n_rounds:
            if self.rounds % rounds_per_iteration == 0:
                if is_over(self.rounds):
                    break
                margin = self.held_margin()
                self.controller.observe(margin)
                if self.rounds in self.kept_rounds:  # Scoring rows again takes much longer.
                    self._held[self.rounds] = margin
            for member in self.members:
                member.grow(self.rounds)
            self.rounds += 1

    def optimism(self, iteration: int) -> tuple[Float, Float]:
        """Estimate by how much rates of a model of all rows are higher on new rows.

        Returns the difference for each row of constraints, and the bounds that were aimed at. The
        last iteration stands for all that follow.
        """
        history = self.controller.solver.history
        k = min(iteration, len(history) - 1)
        own = [records[k].rates for records in self._histories]
        return estimate_optimism(history[k].rates, own, self.remaining_optimism), history[k].bounds

    @property
    def has_multipliers(self) -> bool:
        """Whether these boosters are grown under multipliers that move."""
        return self.controller.solver.schedule is None

    def state(self) -> State:
        """Give the state of boosters that are fully grown."""
        return {
            "rounds": self.rounds,
            "controller": self.controller.solver.state(),
            "members": [member.state() for member in self.members],
            "solvers": [solver.state() for solver in self._solvers],
            "held": {str(rounds): margin for rounds, margin in self._held.items()},
        }

    def restore(self, state: State) -> None:
        """Take over the state of equal boosters."""
        self.rounds = state["rounds"]
        self.controller.restore(state["controller"])
        for member, of_member in zip(self.members, state["members"], strict=True):
            member.restore(of_member)
        for solver, of_solver in zip(self._solvers, state["solvers"], strict=True):
            solver.restore(of_solver)
        self._held = {int(rounds): margin for rounds, margin in state["held"].items()}

    def release(self) -> None:
        """Free what growing alone needs, such as bins, gradients and buffers of the solvers."""
        for member in self.members:
            member.release()

    @property
    def _solvers(self) -> list[Solver]:
        """Solvers of boosters that grow; none if these have the library's own objective."""
        return [member.solver for member in self.members if member.solver is not None]

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of all held-out rows, each by the booster that has not seen the row."""
        if rounds is not None and rounds in self._held:
            return self._held[rounds]
        parts = [member.held_margin(rounds) for member in self.members]
        shape = (sum(map(len, parts)), *parts[0].shape[1:])
        pooled = np.empty(shape, parts[0].dtype, order="F" if len(shape) > 1 else "C")
        for positions, part in zip(self.positions, parts, strict=True):
            pooled[positions] = part
        if rounds is not None:  # Choices look at the same prefixes several times.
            self._held[rounds] = pooled
        return pooled

    def scores(self, rounds: int) -> FoldScores:
        """Scores after some rounds, out of fold and of each booster's training rows."""
        held, margin = self.controller.rows, self.held_margin(rounds)
        assert held is not None
        training = [fold.training for fold in self.folds]
        own = list(zip(training, self.own_margins(rounds), strict=True))
        if not self.compared:
            return FoldScores(
                (held, margin), own, self.remaining_optimism, has_multipliers=self.has_multipliers
            )
        both = [
            (part, scores[np.searchsorted(rows, part)])
            for part, (rows, scores) in zip(self.compared, own, strict=True)
            if part.size
        ]
        unseen = [(part, margin[np.searchsorted(held, part)]) for part, _ in both]
        return FoldScores(
            (held, margin), both, self.remaining_optimism, unseen, self.has_multipliers
        )

    def own_margins(self, rounds: int) -> list[Array]:
        """Scores of the rows that each booster is grown on; the last asked for are kept."""
        if self._own is None or self._own[0] != rounds:
            self._own = rounds, [member.own_margin(rounds) for member in self.members]
        return self._own[1]


def _find_compared(folds: Sequence[Fold], held: Codes) -> list[Codes]:
    """Find the training rows of each fold that others hold out, if some rows are never held out.

    The result is empty as well if no training row is held out, as of a single fold.
    """
    found = [np.intersect1d(fold.training, held, assume_unique=True) for fold in folds]
    is_whole = all(part.size == f.training.size for part, f in zip(found, folds, strict=True))
    return [] if is_whole or not any(part.size for part in found) else found
