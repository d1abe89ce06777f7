r"""ABPP, the accelerated Bregman primal-dual proximal point method.

Algorithm 1 (= 3) of Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained
Learning" (2023), for ``min f(x) s.t. g(x) <= 0`` with f, g convex in the scores. Iteration k:

1. ``sigma_k = gamma_k tau_k``, ``theta_k = sigma_{k-1} / sigma_k``
2. ``z_k = g(x_k) + theta_k (g(x_k) - g(x_{k-1}))``
3. ``y_{k+1} = max(y_k + sigma_k z_k, 0)``
4. ``x_{k+1} ~ argmin f + <y_{k+1}, g> + D(., x_k) / tau_k``
5. ``gamma_{k+1} = gamma_k (1 + mu tau_k)``, ``tau_{k+1} = tau_k sqrt(gamma_k / gamma_{k+1})``

**Step sizes.** The proof needs the cross term of the dual step to be absorbed. With
:math:`\|g(x) - g(x')\| \le L_g \sqrt{2 D(x, x')}` and Young's inequality,

.. math::

   \theta_k \langle g(x_k) - g(x_{k-1}), y_{k+1} - y_k \rangle
   \le \theta_k \left( \frac{D(x_k, x_{k-1})}{\tau_{k-1}}
       + \frac{\tau_{k-1} L_g^2}{2} \|y_{k+1} - y_k\|^2 \right)

The first part is paid by the proximal term left over from iteration k-1 (its weight is
:math:`t_k \theta_k = t_{k-1}`), the second by :math:`\|y_{k+1} - y_k\|^2 / (2 \sigma_k)`, which
needs :math:`\theta_k \sigma_k \tau_{k-1} L_g^2 \le 1`, that is

.. math:: \tau_0 \sigma_0 L_g^2 \le 1,

and step 5 keeps :math:`\tau_k^2 \gamma_k = \tau_k \sigma_k` constant. Corollary 1 of the paper
prints :math:`\tau_0 \sigma_0 \le \delta / L_g`. The units decide: tau is distance over objective,
sigma is objective over squared constraint, L_g is constraint over square root of distance, so only
the square is free of units. For L_g > 1 the printed rule permits steps that diverge (tested).

**One dual step per constraint.** Constraints of small cells react far more strongly than those of
large ones. ABPP is run on ``g_j / L_j``, with L_j the constraint's own Lipschitz constant, which
is the same problem; in the units of g the dual step is ``sigma / L_j^2`` (the diagonal
preconditioning of Pock and Chambolle, 2011), and the condition reads ``tau sigma L^2 <= 1`` with L
the norm of the scaled map: 1 when no two constraints share a cell.

**Inexact subproblems.** R boosting rounds with learning rate eta go only the fraction ``p = 1 -
(1 - eta)^R`` of the way to the solution of step 4. The observed change of g is then p times the
change that the exact step would make, and step 2 divides it by p. Without that the multipliers of
a slow booster wind up while its rates lag behind. With exact subproblems p = 1.

**Shrinkage is a proximal term.** Those R rounds end where exact ones would with a further
proximal term: a Newton step of curvature h, shrunk to the fraction p, is the full step with a term
of weight h (1/p - 1) around its start. A booster's own learning rate thus can be taken as part of
D / tau, and only what it leaves of 1 / tau be added, with the curvature of the loss at the scores
of the path: nothing at rate 0.1 while most rows are in doubt, all of 1 / tau at rate one, for a
rare class, or once most rows are learnt. On Adult (100 rounds at rate 0.1; gaps of four rates and
equalized odds, both libraries) adding all of it on top of the shrinkage costs 0.3 to 0.5 points of
accuracy at the same gap: the steps of cells that rules weigh on then are a third as long.

Steps of full length also learn by heart the few rows that a rule weighs on. So on a long path the
term comes back, between 10 and 30 exact iterations (those of R rounds count p each); on validation
rows of Adult (300 rounds at rate 0.1, cross-fitted, 6 splits) that gains 0.0001 to 0.0020 of
accuracy in each of four gaps and both libraries. Where constraints are measured on the rows that
trees are grown on, without a `schedule`, what is learnt by heart is believed, and the term comes
back between 5 and 10. From the start it would be too early there: at rate 0.02, a path of 6, a gap
of error rates then is not closed in 300 rounds.

Scores of several classes are hardly curved once most rows are learnt, and a term of that weight
stops the learning itself: unseen rows stay wrong, and multipliers rise for it. But it is there for
the dual steps, :math:`1 / \tau \ge \sigma L_g^2`, and rates are then as flat. So the weight falls
with the square of the root mean square slope of the probabilities, taken as steep as in what
follows, where that is less than the slope at the constant model. Handwritten digits (1,257 rows,
80 rounds at rate 0.3, three splits, XGBoost; sigmoid proxies), accuracy out of fold with two pairs
of rules, before and with this: 0.905 and 0.918, 0.937 and 0.930. Two classes keep the weight:
frauds of Credit are learnt by heart as well, and LightGBM under ``fnr() <= 0.05`` has a test
accuracy of 0.905 with it and 0.870 without (three splits).

**Slopes on the path.** A Lipschitz constant holds for any scores; boosters (`lazy`) take the
slopes of their own. Probabilities of a cell's rows move with slope p (1 - p), in the root mean
square far below 1/4 once the model is sure of most rows, and dual steps are longer by the square
of that. The steepest rules, gaps of error rates, pull rows towards the decision and so become
steeper with their multipliers: their steps shorten again. Measured on Adult (gap <= 0.01 of four
rates, and equalized odds <= 0.02): with the slopes as they are error rates overshoot; taken 1.5
times as steep all are met in 300 rounds; constant steps leave equalized odds at 0.024.

**Longer steps where nothing moves.** Lipschitz constants bound how much a rate may react. One
whose rows pull against each other, such as a gap of error rates, reacts a hundred times less, and
its multiplier would need more iterations than there are. So the dual step of a booster's
constraint grows by a factor 1 + p in every iteration that leaves it as far beyond its bound as it
was, or as far inside while its multiplier is above zero, and is halved when it crosses the bound,
never below the step above. The growth keeps the booster's own time: a slow one, whose rates
lag behind, is waited for. (The rule is that of resilient backpropagation; Riedmiller and Braun,
1993.) Adult, gap of error rates <= 0.02, LightGBM at rate 0.02, 150 iterations, 300,000 rows drawn
again: without it the gap ends at 0.072 on the training rows, with a fourth of this growth at
0.054, with it at 0.017.

**Opposite rows.** Of the two rows of a gap, those of ``g`` and ``-g``, at most one can bind, but
a rate that swings past both bounds leaves both with a multiplier. The gradient knows their
difference only. What they have in common would still lengthen the dual steps of rows that seem
stuck, inside their bounds with a multiplier above zero, until noise is answered by a jump: a
booster's solver takes it from both. Adult, gap of error rates <= 0.01, LightGBM at rate 0.3,
cross-fitted, ten splits: without this the multipliers end at 1.7 to 17 in three of them, and the
models' test gaps are 0.024 to 0.067; with it all end at 0.85, with test gaps of 0.003 to 0.015.

**Inside out.** The solver is called with the current scores and answers with gradients and
Hessians. A booster calls it once per boosting round through its own ``fit``; the exact learners
call it in a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._typing import Array, Bool, Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.problem.kernels.base import rate_lipschitz
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.solvers.base import (
    Record,
    SolverMethod,
    columns_of_records,
    records_of_columns,
)

STEEPER = 1.5  # How much steeper than observed the rates are taken to be.
SLOPE_FLOOR = 0.15  # The least slope that a dual step trusts.
STUCK = 0.9  # Share of its distance to the bound above which a constraint has not moved.
GROWTH = 1.0  # Of its dual step then, in an iteration that solves its subproblem.
LONGEST = 50.0  # Most that a dual step grows.
TRUST = 0.1  # How far multipliers may leave their schedule, as a share of it.
SETTLED = 0.5  # Share of the schedule after which they may: before, they swing on their way.
# Violation up to which a constraint at rest stays there: mean losses are summed in single
# precision, and a weighted rate that is 1 may come out above it.
ROUNDING = 1e-6
# Exact iterations at which the proximal term begins to come back, and is whole.
COMES_BACK = (10.0, 30.0)
COMES_BACK_SOON = (5.0, 10.0)  # Where constraints are measured on the rows that trees grow on.


@dataclass(eq=False, repr=False, kw_only=True)
class ABPP(SolverMethod):
    """Options of ABPP, the method for constraints that are convex or nearly so.

    Parameters
    ----------
    tau : float, default=None
        Primal step size; by default one over the smoothness of the cross-entropy.
    sigma : float, default=None
        Dual step size for constraints scaled to Lipschitz constant one; by default the largest
        that the theory allows.
    mu : float, default=0
        Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    proxy : {"auto", "logistic", "sigmoid"}, default="auto"
        Smooth stand-in for a 0-1 rate in gradients; multipliers always move on the exact rate.
        "logistic" is convex and amounts to re-weighting rows; "sigmoid" is bounded, so that rows
        far on the wrong side pull less. "auto" takes "sigmoid" for constraints that may ask for
        errors (gaps, selection rates) and, of three or more classes, for those that forbid one of
        them (fpr or precision of a label), "logistic" for all others (error rates, recall, churn).
    rounds_per_iteration : int, default=2
        Boosting rounds in each outer iteration: how well each proximal subproblem is solved. The
        constraints are measured and the multipliers moved once in an iteration. Exact learners
        take one.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints (paper,
        Appendix G; 7 to 30 in its experiments). Reports are of all losses in full, as are rates
        that are measured on held-out rows.
    initial_multipliers : array-like of shape (n_rows,), default=None
        Warm start of the multipliers, for instance ``multipliers_`` of an earlier fit.
    """

    def begin(self, lagrangian: Lagrangian, **running: Any) -> ABPPSolver:
        """Make the solver of a problem.

        Parameters
        ----------
        lagrangian : Lagrangian
            The problem on the training rows.
        **running
            Parameters of :class:`ABPPSolver` that are no options of the method.
        """
        return ABPPSolver(lagrangian, **self.step_sizes(), **running)


@dataclass
class ABPPSolver:
    """The outer loop of ABPP: called with scores, answers with gradients and Hessians.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the training rows.
    tau : float, default=None
        Primal step size tau_0. By default one over the smoothness of the cross-entropy in the
        score, 4 for a binary margin and 2 for softmax scores: the proximal term is then as curved
        as the loss itself at most is.
    sigma : float, default=None
        Dual step size sigma_0, for constraints scaled to Lipschitz constant one. By default the
        largest that the theory allows, ``1 / (tau L^2)``.
    lipschitz : ndarray of shape (m,), default=None
        Lipschitz constant L_j of each constraint, for a learner that has its own; by default those
        of the cells. When it is given, the default of `sigma` takes ``L^2 = m``: always safe.
    mu : float, default=0
        Strong convexity of the objective relative to the Bregman distance; above zero the method
        accelerates.
    rounds_per_iteration : int, default=1
        R: calls answered in each outer iteration.
    progress : float, default=1
        Fraction p of the way to the solution of a subproblem that one outer iteration goes.
    lazy : bool, default=False
        For boosters: a constraint that never binds must leave the library's own fit untouched. A
        multiplier at zero then stays there until its constraint is violated, whatever step 2
        foresees, and there is no proximal term while every multiplier is zero: with no multiplier
        at work there is no dual step to keep in step with.
    initial_multipliers : ndarray of shape (m,), default=None
        Warm start y_0; zeros by default.
    fixed : ndarray of shape (m,), bool, default=None
        Multipliers that stay as they were started; none by default.
    schedule : sequence of ndarray of shape (m,), default=None
        Multipliers of each outer iteration, taken instead of dual steps: those of another solver,
        which measures the constraints elsewhere. It may grow as that solver goes on; the last
        ones hold beyond its end.
    optimism : callable, default=None
        Given the number of an outer iteration, how much higher each row of constraints is taken
        to be where it is measured than at the scores given, and the bounds to aim at there, both
        (m,). Beside a `schedule`, and from the middle of it: rows in `corrected` then take dual
        steps of their own, and leave the schedule by :data:`TRUST` times their constraint's
        largest multiplier there at most.
    corrected : ndarray of shape (m,), bool, default=False
        Those rows.
    callback : callable, default=None
        Called with the :class:`Record` of each outer iteration.
    has_rates : bool, default=True
        Whether the history has the rates at the scores given. Without them, which takes a
        `schedule`, records hold NaN in their place.

    Attributes
    ----------
    start : ndarray of shape (m,)
        The multipliers that it was started with.
    multipliers : ndarray of shape (m,)
        y, those of the current subproblem.
    bounds : ndarray of shape (m,)
        The bounds in force.
    history : list of Record
        One entry per outer iteration.
    ergodic_weights : list of float
        t_k = sigma_k / sigma_0: the weight of x_{k+1} in the ergodic average.
    """

    lagrangian: Lagrangian
    tau: float | None = None
    sigma: float | None = None
    lipschitz: Float | None = None
    mu: float = 0.0
    rounds_per_iteration: int = 1
    progress: float = 1.0
    lazy: bool = False
    initial_multipliers: Float | None = None
    fixed: Bool | None = None
    schedule: Sequence[Float] | None = None
    optimism: Callable[[int], tuple[Float, Float]] | None = None
    corrected: Bool | bool = False
    callback: Callable[[Record], object] | None = None
    has_rates: bool = True
    start: Float = field(init=False)
    multipliers: Float = field(init=False)
    bounds: Float = field(init=False)
    history: list[Record] = field(default_factory=list, init=False)
    ergodic_weights: list[float] = field(default_factory=list, init=False)

    # What changes from call to call, besides the history, the clock and the Lagrangian's state.
    CHANGING: ClassVar[tuple[str, ...]] = (
        "multipliers", "bounds", "lipschitz", "ergodic_weights", "_rounds", "_anchor",
        "_tau", "_sigma", "_gamma", "_previous_values", "_stride", "_previous_excess",
        "_loss_curvature",
    )  # fmt: skip

    def __post_init__(self) -> None:
        m = len(self.lagrangian.constraints)
        coupling = float(np.sqrt(max(m, 1)))  # parallel constraints: the worst
        self._observes = self.lazy and self.lipschitz is None
        if self.lipschitz is None and self.has_rates:  # without rates there are no dual steps
            # Along a booster's path losses are no steeper than rates: 0.3 in the mean, not 1.
            slope = rate_lipschitz(self.lagrangian.n_classes) if self.lazy else None
            self.lipschitz, coupling = self.lagrangian.lipschitz(slope)
        if self.tau is None:
            self.tau = 4.0 if self.lagrangian.n_classes == 2 else 2.0
        if self.sigma is None:
            self.sigma = 1.0 / (self.tau * coupling**2)
        start = self.initial_multipliers
        self.start = np.zeros(m) if start is None else np.array(start, dtype=np.float64)
        self.multipliers = self.start.copy()
        self.bounds = self.lagrangian.constraints.b.copy()
        self._sigma_0 = self.sigma
        self._rounds = 0
        self._anchor: Array | None = None
        self._slopes = np.zeros(0)  # root mean square slope of probabilities in each cell
        self._loss_curvature = (
            0.0  # the same over all rows, near to the mean curvature of the loss
        )
        self._stride = np.ones(m)
        self._previous_excess = np.zeros(m)
        self._weighed_on: tuple[Array, Array] | None = None  # multipliers at work, their cells
        self._held_with: float | Float | None = None  # the proximal weight of this iteration
        self._started = time.perf_counter()
        self._restart()

    def _restart(self) -> None:
        """Begin the sequences of step sizes anew."""
        assert self.tau is not None
        assert self.sigma is not None
        self._tau, self._sigma = self.tau, self.sigma
        self._gamma = self.sigma / self.tau
        self._previous_values: Float | None = None

    def __call__(self, margin: Array) -> tuple[Array, Array]:
        """Answer one boosting round: gradient and Hessian at `margin`, multiplied by W."""
        if self.lazy and self.multipliers.any():
            self.lagrangian.narrow()  # no longer the library's own fit, bit by bit
        point = self.lagrangian.at(margin)
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(point)
        self._rounds += 1
        return self.gradient(point)

    def look(self, margin: Callable[[], Array]) -> None:
        """Pass a boosting round that needs no answer: that of the library's own objective.

        Parameters
        ----------
        margin : callable
            Gives the scores before the round, where an outer iteration begins with it.
        """
        if self._rounds % self.rounds_per_iteration == 0:
            self.begin_iteration(self.lagrangian.at(margin()))
        self._rounds += 1

    def begin_iteration(self, point: Point) -> None:
        """Start iteration k at x_k = `point`: line 7 of iteration k-1, then lines 3 to 5.

        Parameters
        ----------
        point : Point
            The Lagrangian at the current scores, from :meth:`Lagrangian.at`.
        """
        if self.has_rates:
            self._dual_step(point, point.statistics())
        else:
            self._follow(point)

    def _follow(self, point: Point) -> None:
        """Take the multipliers of the schedule, and measure nothing."""
        scheduled = self._scheduled()
        assert scheduled is not None
        self._held_with = None
        if self.history:
            self._change_step_sizes()
        if self.lazy and (scheduled.any() or self.multipliers.any()):
            self._observe_slopes()
        self.multipliers, k = scheduled, len(self.history)
        self._move_anchor(point.margin)
        self.ergodic_weights.append(self._sigma / self._sigma_0)
        self.history.append(
            Record(
                iteration=k,
                rounds=k * self.rounds_per_iteration,
                objective=np.nan,
                error=np.nan,
                rates=np.full(scheduled.size, np.nan),
                functionals=np.full(self.lagrangian.constraints.constant.size, np.nan),
                bounds=self.bounds,
                multipliers=scheduled,
                bregman=np.nan,
                seconds=self.elapsed,
            )
        )

    def _change_step_sizes(self) -> None:
        """Accelerate, where the objective is strongly convex."""
        gamma_before = self._gamma
        self._gamma *= 1.0 + self.mu * self._tau
        self._tau *= float(np.sqrt(gamma_before / self._gamma))
        self._sigma = self._gamma * self._tau

    def _dual_step(
        self,
        point: Point,
        statistics: CellStatistics,
        offset: float | Float = 0.0,
        fritz_john: float = np.nan,
    ) -> None:
        """Move step sizes, multipliers and proximal centre; `offset` is added to g."""
        sigma_before, self._held_with = self._sigma, None
        if self._previous_values is not None:
            self._change_step_sizes()
        theta = sigma_before / self._sigma if self._sigma > 0 else 1.0
        k = len(self.history)
        rounds = k * self.rounds_per_iteration
        functionals = self.lagrangian.constraints.functionals(statistics)
        rates = self.lagrangian.constraints.rows_of(functionals)
        values = rates + offset
        if self.optimism is not None:
            higher, self.bounds = self.optimism(k)
            values = values + higher
        before = values if self._previous_values is None else self._previous_values
        g = values - self.bounds
        # With no multiplier at work, nor one that is about to be, no slope matters.
        scheduled = self._scheduled()
        comes = (g > ROUNDING).any() if scheduled is None else scheduled.any()
        if self.lazy and (comes or self.multipliers.any()):
            self._observe_slopes()
        self.multipliers = self._ascend(g, g + theta / self.progress * (values - before))
        self._previous_values = values
        self.ergodic_weights.append(self._sigma / self._sigma_0)
        record = Record(
            iteration=k,
            rounds=rounds,
            objective=self.lagrangian.objective(statistics),
            error=self.lagrangian.error(statistics),
            rates=rates,
            functionals=functionals,
            bounds=self.bounds,
            multipliers=self.multipliers,
            bregman=self._distance_moved(point.margin),
            seconds=self.elapsed,
            fritz_john=fritz_john,
        )
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def _scheduled(self) -> Float | None:
        """Multipliers that a schedule has for the iteration that begins."""
        if self.schedule is None:
            return None
        return self.schedule[min(len(self.history), len(self.schedule) - 1)]

    def _may_leave_schedule(self) -> bool:
        settled = SETTLED * len(self.schedule or ())
        return bool(np.any(self.corrected)) and len(self.history) >= settled

    def _ascend(self, g: Float, z: Float) -> Float:
        """Multipliers after a dual step along z, the extrapolated constraints g."""
        scheduled = self._scheduled()
        if scheduled is not None and not self._may_leave_schedule():
            return scheduled
        if self._observes and self.multipliers.any():
            self.lipschitz = self._observed_lipschitz()
        assert self.lipschitz is not None
        if self.lazy:
            self._lengthen(g)
            z[(self.multipliers == 0) & (g <= ROUNDING)] = 0.0
        # No multiplier for a constraint that no score moves, such as accuracy + error <= 1.
        inverse = np.divide(1.0, self.lipschitz, out=np.zeros_like(z), where=self.lipschitz > 0)
        step = self._sigma * self._stride * inverse**2
        ahead = np.maximum(self.multipliers + step * z, 0.0)
        if self.lazy:
            self._cancel(ahead)
        if self.fixed is not None:
            ahead[self.fixed] = self.start[self.fixed]
        return np.asarray(ahead) if scheduled is None else self._corrected(scheduled, ahead)

    def _cancel(self, multipliers: Float) -> None:
        """Take from opposite rows what their multipliers have in common; see the module."""
        first, second = self.lagrangian.constraints.opposites
        common = np.minimum(multipliers[first], multipliers[second])
        multipliers[first] -= common
        multipliers[second] -= common

    def _corrected(self, scheduled: Float, ahead: Float) -> Float:
        """Scheduled multipliers, and of some rows own ones near to them."""
        owner = self.lagrangian.constraints.owner
        largest = np.zeros(owner.max(initial=-1) + 1)
        np.maximum.at(largest, owner, scheduled)
        reach = TRUST * largest[owner]
        near = np.clip(ahead, np.maximum(scheduled - reach, 0.0), scheduled + reach)
        return np.where(self.corrected, near, scheduled)

    def _lengthen(self, g: Float) -> None:
        """Adapt dual steps to whether the constraints moved; see the module."""
        before, self._previous_excess = self._previous_excess, g.copy()
        stuck = (g * before > 0) & (np.abs(g) > STUCK * np.abs(before))
        stuck &= (g > 0) | (self.multipliers > 0)
        factor = np.where(stuck, 1.0 + GROWTH * self.progress, 1.0)
        factor[g * before < 0] = 0.5
        self._stride = np.clip(self._stride * factor, 1.0, LONGEST)

    def _observe_slopes(self) -> None:
        """Slopes of the probabilities at the current scores, by cell and over all rows."""
        self._slopes = self.lagrangian.slopes()
        cells = self.lagrangian.cells
        part = cells.views[0].cells  # the other views hold the same rows again
        weight = cells.weight[part]
        square = (self._slopes[part] ** 2 * weight).sum() / weight.sum()
        self._loss_curvature = float(np.sqrt(square))

    def _observed_lipschitz(self) -> Float:
        """Lipschitz constants with the slopes of the rates at the current scores."""
        lag = self.lagrangian
        steepest = rate_lipschitz(lag.n_classes)
        slopes = np.maximum(STEEPER * self._slopes, SLOPE_FLOOR) / steepest
        rates, losses = self._squared_reactions
        return np.asarray(np.sqrt(rates @ slopes**2 + losses * steepest**2))

    @cached_property
    def _squared_reactions(self) -> tuple[Any, Float]:
        rates, losses = self.lagrangian.reactions
        return rates.power(2), np.asarray(losses.power(2).sum(axis=1)).ravel()

    def _distance_moved(self, margin: Array) -> float:
        """Make x_k the proximal centre; return its distance to the centre before."""
        before = 0.0 if self._anchor is None else self.lagrangian.bregman(margin, self._anchor)
        self._move_anchor(margin)
        return before

    def _move_anchor(self, margin: Array) -> None:
        """Make x_k the proximal centre."""
        if self._anchor is not None and self._anchor.dtype == margin.dtype:
            self._anchor[...] = margin
        else:
            self._anchor = margin.copy()

    def state(self) -> dict[str, Any]:
        """Give all that :meth:`restore` needs to go on from here, to the last bit.

        For boosters (`lazy`); an exact learner's subproblem has more.
        """
        return {
            **{name: getattr(self, name) for name in self.CHANGING},
            "history": columns_of_records(self.history),
            "elapsed": self.elapsed,
            "lagrangian": self.lagrangian.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of a solver that was made with the same arguments.

        Its history is told to the callback once more.

        Parameters
        ----------
        state : mapping
            What :meth:`state` gave.
        """
        for name in self.CHANGING:
            setattr(self, name, state[name])
        self._held_with = None
        self.history[:] = records_of_columns(state["history"])
        self._started = time.perf_counter() - state["elapsed"]
        self.lagrangian.restore(state["lagrangian"])
        if self.callback is not None:
            for record in self.history:
                self.callback(record)

    @property
    def rounds(self) -> int:
        """Calls answered so far."""
        return self._rounds

    def ergodic_scale(self) -> Float:
        r"""Weight of each round's learners in the ergodic average, shape (rounds,).

        The average :math:`\bar x_K = \sum_k t_k x_{k+1} / T_K` of a growing ensemble is that same
        ensemble: a learner added in iteration j is in every x_{k+1} with k >= j, hence its weight
        is :math:`\sum_{k \ge j} t_k / T_K`.
        """
        t = np.array(self.ergodic_weights)
        remaining = np.cumsum(t[::-1])[::-1] / t.sum()
        return np.repeat(remaining, self.rounds_per_iteration)[: self._rounds]

    @property
    def elapsed(self) -> float:
        """Seconds since the solver was made."""
        return time.perf_counter() - self._started

    @property
    def proximal_weight(self) -> float | Float:
        """Weight of the proximal term in :meth:`gradient`: a number, or one for each cell.

        Lazy solvers hold the cells that a multiplier weighs on with 1 / tau, which is where the
        dual step needs it (diagonal preconditioning: the sensitivity of the other cells is zero,
        so their step may be as long as one likes). The others are held no more than the loss
        itself is curved at the constant model; with a rare class that is far less than 1 / tau,
        and the booster keeps its pace on the many rows that no rule is about. From both goes
        what shrinkage does already, as long as the path is short; and of several classes both
        fall where rates are flat. See the module.
        """
        if not self.lazy or not self.multipliers.any():
            return self.inverse_tau
        at_work = self.multipliers > 0
        if self._weighed_on is None or not np.array_equal(at_work, self._weighed_on[0]):
            self._weighed_on = (at_work, at_work @ self.lagrangian.sensitivities > 0)
        at_rest = min(self.inverse_tau, self.lagrangian.constant_curvature)
        held = np.array([at_rest, self.inverse_tau])
        if self.lagrangian.n_classes > 2:
            held *= self._steepness
        left = held - self._loss_curvature * (1.0 / self.progress - 1.0)
        begins, is_whole = COMES_BACK_SOON if self.schedule is None else COMES_BACK
        path = len(self.history) * self.progress
        back = min(max((path - begins) / (is_whole - begins), 0.0), 1.0)
        at_rest, weighed_on = np.maximum(left, held * back)
        return np.asarray(np.where(self._weighed_on[1], weighed_on, at_rest))

    @property
    def _steepness(self) -> float:
        """Square of how steep rates are, next to the constant model; at most one."""
        constant = max(self.lagrangian.constant_slope, np.finfo(float).tiny)
        return min(1.0, (STEEPER * self._loss_curvature / constant) ** 2)

    @property
    def inverse_tau(self) -> float:
        """Weight of the proximal term of the current subproblem."""
        return 0.0 if self.lazy and not self.multipliers.any() else 1.0 / self._tau

    @property
    def anchor(self) -> Array | None:
        """Proximal centre: the scores at which the current iteration began."""
        return self._anchor

    @property
    def proximal(self) -> tuple[Array | None, float | Float]:
        """Centre and weight of the proximal term of the current subproblem."""
        if self._held_with is None:
            self._held_with = self.proximal_weight
        return self._anchor, self._held_with

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """Gradient and Hessian of the current subproblem at `point`, multiplied by W.

        Parameters
        ----------
        point : Point
            The Lagrangian at the current scores, from :meth:`Lagrangian.at`.

        Returns
        -------
        gradient, hessian : ndarray like the scores
        """
        centre, weight = self.proximal
        if centre is self._anchor and (self._rounds - 1) % self.rounds_per_iteration == 0:
            centre = None  # in the first round of an iteration that is the point itself
        # With no multiplier at work a booster's fit is the library's own.
        own = not self.lazy or not self.multipliers.any()
        rate = 0.0 if own else 1.0 - (1.0 - self.progress) ** (1.0 / self.rounds_per_iteration)
        return point.gradient(self.multipliers, centre, weight, learning_rate=rate)
