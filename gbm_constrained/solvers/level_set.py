r"""The feasible level-set method under pair rules, one batch of rows at a time.

Algorithm 1 of Yao, Lin and Yang (2023) finds the root f* of

.. math:: H(r) = \min_x \max \{ f_0(x) - r, \; f_1(x) - b_1, \dots, f_m(x) - b_m \},

which is convex and does not increase. From a level above f*, the oracle
(:class:`~gbm_constrained.solvers.stochastic_mirror_descent.MirrorDescent`) gives an upper bound U
of H(r) and a point x, and the next level is :math:`r + U / (2 \theta)`. The slope of H lies in
[-1, 0], so that no level falls below f* while U bounds H(r) from above; and a level with U < 0 has
a point that is strictly feasible. Each level starts from the averages of the one before, the dual
ones too: from equal shares, as the paper has it, the last levels would be spent on finding the
shares again. The search ends at :math:`U \ge -\epsilon`, or relative to its first level as in
Proposition 1, at :math:`U \ge \epsilon H(r_0) / \theta`. Constant scores have
the objective :math:`c_1 c_2^2`, which is the first level by default.

Algorithm 3 is for scores that are not linear in their parameters: the level-set method with a
proximal term about a point, which then moves to the point that was found. Its first level is the
objective at the centre. The distance that a point moves is what Definition 5 bounds for a point
that is nearly stationary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.solvers.stochastic_mirror_descent import (
    MirrorDescent,
    Primal,
    SaddleProblem,
)


@dataclass(frozen=True)
class LevelSchedule:
    """When levels end, and where the next one lies.

    Parameters
    ----------
    rows_per_level : Rows, with repetition, of one call of the oracle.
    batch_size : Rows of one step.
    theta : Divisor of the move from one level to the next.
    tol : Distance of the upper bound from zero at which the search ends.
    max_levels : Most levels.
    relative_tol : Share of the first upper bound, over theta, at which the search ends instead.
    """

    rows_per_level: int
    batch_size: int
    theta: float
    tol: float
    max_levels: int
    relative_tol: float | None = None

    def is_close(self, first: float, last: float) -> bool:
        """Whether the last upper bound is close to zero, given the first."""
        if self.relative_tol is None:
            return last >= -self.tol
        return last >= self.relative_tol * first / self.theta


@dataclass(frozen=True, eq=False)
class Level:
    """What the oracle returned at one level.

    Parameters
    ----------
    number : Position of the level, from 0.
    level : The level r.
    upper_bound : Stochastic upper bound U of H(r).
    point : Average of the iterates.
    share : (n_functions,). Average shares of the objective and the rules.
    n_rows : Rows that were read so far, with repetition.
    distance : Distance of the point from the centre of the proximal term.
    proximal_point : Number of the proximal problem that the level is of; see
        :func:`follow_proximal_points`.
    """

    number: int
    level: float
    upper_bound: float
    point: Primal
    share: Float
    n_rows: int
    distance: float
    proximal_point: int = 0

    @property
    def multipliers(self) -> Float:
        """Multipliers of the rules, their shares over that of the objective."""
        return np.asarray(self.share[1:] / self.share[0])


class LevelSetSearch:
    """The feasible level-set method, which reads rows in any order.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes.
    schedule : LevelSchedule
        Lengths of the levels, and the stopping rule.
    start : Primal
        First iterate, and centre of the proximal term.
    level : float
        First level, above the optimum.
    """

    def __init__(
        self, problem: SaddleProblem, schedule: LevelSchedule, start: Primal, level: float
    ) -> None:
        self.problem, self.schedule, self.centre = problem, schedule, start
        self.levels: list[Level] = []
        self.n_rows = 0
        self.oracle = MirrorDescent(problem, level, start, start)
        self._left = schedule.rows_per_level

    @property
    def is_over(self) -> bool:
        """Whether the upper bound has come close to zero, or all levels are done."""
        if len(self.levels) >= self.schedule.max_levels:
            return True
        bounds = [level.upper_bound for level in self.levels]
        return bool(bounds) and self.schedule.is_close(bounds[0], bounds[-1])

    def update(self, X: Array, ratios: Float) -> Level | None:
        """Take one step on some rows; return the level that it ends, if it ends one.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Features.
        ratios : ndarray of shape (n, n_sets)
            Density ratios of the rows.

        Raises
        ------
        FloatingPointError
            If the iterates have left the range of numbers.
        """
        self.oracle.step(X, ratios)
        self.n_rows += X.shape[0]
        self._left -= X.shape[0]
        return self._finish_level() if self._left <= 0 else None

    def _finish_level(self) -> Level:
        """Record what the oracle found, and move to the next level; Algorithm 1."""
        oracle = self.oracle
        bound = oracle.upper_bound
        if not np.isfinite(bound):
            raise FloatingPointError(
                f"stochastic mirror descent diverged with learning_rate="
                f"{self.problem.steps.primal!r}: give a smaller learning_rate."
            )
        point, dual = oracle.average, oracle.average_dual
        distance = float(np.linalg.norm(np.concatenate(point) - np.concatenate(self.centre)))
        done = Level(
            len(self.levels), oracle.level, bound, point, dual.share, self.n_rows, distance
        )
        self.levels.append(done)
        level = oracle.level + bound / (2 * self.schedule.theta)
        self.oracle = MirrorDescent(self.problem, level, done.point, self.centre, dual)
        self._left = self.schedule.rows_per_level
        return done


def shuffled_batches(
    n_samples: int, batch_size: int, random_state: np.random.RandomState
) -> Iterator[Array]:
    """Yield the positions of rows in batches, without end, in a new order for each pass."""
    while True:
        order = random_state.permutation(n_samples)
        for start in range(0, n_samples, batch_size):
            yield order[start : start + batch_size]


def follow_levels(
    search: LevelSetSearch, X: Array, ratios: Float, batches: Iterator[Array]
) -> Iterator[Level]:
    """Run the level-set method on rows in memory, and yield each level.

    Parameters
    ----------
    search : LevelSetSearch
        The method.
    X : array of shape (n_samples, n_features)
        Features.
    ratios : ndarray of shape (n_samples, n_sets)
        Density ratios.
    batches : iterator of ndarray
        Positions of the rows of each step.
    """
    while not search.is_over:
        rows = next(batches)
        level = search.update(X[rows], ratios[rows])
        if level is not None:
            yield level


def follow_proximal_points(
    problem: SaddleProblem,
    schedule: LevelSchedule,
    start: Primal,
    n_points: int,
    rows: tuple[Array, Float],
    batches: Iterator[Array],
    first_level: float | None = None,
) -> Iterator[Level]:
    """Run the proximal point method about the level-set method, and yield each level; Algorithm 3.

    The returned point of the paper is drawn from the solutions of all proximal problems. Here all
    levels are candidates.

    Parameters
    ----------
    problem : SaddleProblem
        Functions, score and step sizes, with the weight of the proximal term.
    schedule : LevelSchedule
        Levels of each proximal problem.
    start : Primal
        First centre, a point that is feasible.
    n_points : int
        Number of proximal problems.
    rows : tuple of arrays
        Features and density ratios of the rows.
    batches : iterator of ndarray
        Positions of the rows of each step.
    first_level : float, default=None
        First level of the first proximal problem.
    """
    centre, number, n_rows, level = start, 0, 0, first_level
    for s in range(n_points):
        r = objective_at(problem, centre, *rows) if level is None else level
        search, level = LevelSetSearch(problem, schedule, centre, r), None
        for done in follow_levels(search, *rows, batches):
            yield replace(done, number=number, n_rows=n_rows + done.n_rows, proximal_point=s)
            number += 1
        n_rows += search.n_rows
        centre = done.point


def objective_at(problem: SaddleProblem, point: Primal, X: Array, ratios: Float) -> float:
    """Compute the objective at the scores of a point, the best scalars given."""
    scores = problem.score.scores(point.parameters, X)
    return float(problem.surrogate.values(problem.surrogate.moments(scores, ratios))[0])
