r"""CBPR, the constrained Bregman proximal regularised method.

Algorithm 2 (= 4) of Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained
Learning" (2023), for ``min f(x) s.t. g_j(x) - h_j(x) <= eta_j`` with f, g_j, h_j convex in the
scores and h_j smooth: the constraint is a difference of convex functions, as the difference of two
groups' mean losses is. From a feasible :math:`x^0`, outer iteration t solves

.. math::

   x^{t+1} \approx \arg\min f(x) + L D(x, x^t) \quad \text{s.t.} \quad
   g_j(x) - h_j(x) - \eta_j + L D(x, x^t) \le 0 .

With :math:`L > \rho = \max_j L_{h_j}` every function here is convex, and strongly so: ABPP solves
it with :math:`\mu = L`. In its Lagrangian the coefficient of :math:`D(x, x^t)` is
:math:`L (1 + \sum_j y_j)`.

**The choice of L.** Theorem 2 bounds the outer iterations by a multiple of
:math:`L^2 / (L - \rho)`, which is least at :math:`L = 2 \rho`: the default, with rho from the
cells' fractions of the weight.

**Dual steps.** The added :math:`L D(x, x^t)` reacts to the scores with slope :math:`L \sqrt{2 D}`.
As :math:`f \ge 0` and f never increases, no iterate worth having is further from :math:`x^t`
than :math:`\sqrt{2 f(x^0) / L}`, so that :math:`\sqrt{2 L f(x^0)}` is added to each constraint's
Lipschitz constant.

**Stationarity.** At the solution of a subproblem the gradient of f + <y, g> is
:math:`-L (1 + \sum_j y_j)(x^{t+1} - x^t)`. Divided by :math:`1 + \sum_j y_j`, which makes
multipliers of a Fritz John point of it (Definition 7), its norm is :math:`L \sqrt{2 D(x^{t+1},
x^t)}`; the residual is the larger of that and of :math:`\sqrt{y_j |g_j| / (1 + \sum_j y_j)}` (the
paper prints a derivative under that root).

**Boosters.** An ensemble has a budget of rounds, and L D on the objective, convex as it is, would
spend it on standing still. The lazy form convexifies the constraints only, each cell by as much as
its own concave part at the current multipliers needs (twice that, as above). Multipliers move on
the exact rates, without the added distance, and in one sequence: a restart would forget the change
of the rates, whose extrapolation damps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gbm_constrained.cells import CellStatistics
from gbm_constrained.lagrangian import Point
from gbm_constrained.losses import Array
from gbm_constrained.rows import Float
from gbm_constrained.solvers.abpp import ABPP

FEASIBLE = 1e-9  # Violation up to which a start counts as feasible.


@dataclass
class CBPR(ABPP):
    """The outer loop over convexified problems; each is solved by ABPP, which it extends.

    Called like :class:`ABPP`. All its parameters keep their meaning, for the inner loops; `mu` is
    set to `strength`, and the ergodic average has no meaning.

    Parameters
    ----------
    strength : float, default=None
        L, the weight of the distance to the last outer iterate. By default twice the concavity
        rho of the constraints, or the curvature of the loss at a constant model where they have
        none.
    inner_iterations : int, default=10
        Most iterations of ABPP in an outer one.
    inner_tol : float, default=0
        Residual of a subproblem at which its loop ends before that.

    Attributes
    ----------
    residuals : list of float
        Fritz John residual after each outer iteration; see the module.
    """

    strength: float | None = None
    inner_iterations: int = 10
    inner_tol: float = 0.0
    residuals: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        lag = self.lagrangian
        if self.strength is None:
            each = np.eye(len(lag.constraints))
            rho = max((float(lag.concavity(y).max()) for y in each), default=0.0)
            self.strength = 2.0 * rho if rho > 0 else lag.constant_curvature
        if not self.lazy:
            self.mu = self.strength
        self._centre: Array | None = None
        self._inner = 0

    def begin_iteration(self, point: Point) -> None:
        """Start an inner iteration at `point`, and a new outer one when the last is done."""
        statistics = point.statistics()
        residual = np.nan
        if self._centre is None:
            self._begin_outer(point, statistics)
        elif self._is_solved(point, statistics):
            residual = self._fritz_john(point, statistics)
            self.residuals.append(residual)
            self._begin_outer(point, statistics)
        self._inner += 1
        assert self.strength is not None
        assert self._centre is not None
        offset = 0.0
        if not self.lazy:
            offset = self.strength * self.lagrangian.bregman(point.margin, self._centre)
        self._dual_step(point, statistics, offset, residual)
        self._proximal = self._combined()

    def _begin_outer(self, point: Point, statistics: CellStatistics) -> None:
        assert self.strength is not None
        if self._centre is None and not self.lazy:
            g = self.lagrangian.constraints.violations(statistics)
            if g.max(initial=0.0) > FEASIBLE:
                worst = self.lagrangian.constraints.rows[int(g.argmax())]
                raise ValueError(
                    f"CBPR needs a feasible start, and {worst} is violated by {g.max():.3g}: "
                    f"start from constant scores, which make every gap zero, or from a model "
                    f"that meets the constraints."
                )
        if not self.lazy:
            if self._centre is None:
                slope = np.sqrt(2.0 * self.strength * self.lagrangian.objective(statistics))
                assert self.lipschitz is not None
                assert self.tau is not None
                self.lipschitz = self.lipschitz + slope
                self.sigma = 1.0 / (self.tau * max(len(self.lipschitz), 1))
            self._restart()
        self._centre = point.margin.copy()
        self._inner = 0

    def _is_solved(self, point: Point, statistics: CellStatistics) -> bool:
        if self._inner >= self.inner_iterations:
            return True
        if self.inner_tol <= 0.0:
            return False
        assert self._anchor is not None
        assert self._centre is not None
        assert self.strength is not None
        lag = self.lagrangian
        g = lag.constraints.violations(statistics)
        g = g + self.strength * lag.bregman(point.margin, self._centre)
        moved = np.sqrt(2.0 * lag.bregman(point.margin, self._anchor)) / self._tau
        return bool(max(moved, np.abs(np.maximum(g, -self.multipliers)).max()) <= self.inner_tol)

    def _fritz_john(self, point: Point, statistics: CellStatistics) -> float:
        assert self._centre is not None
        assert self.strength is not None
        lag, y = self.lagrangian, self.multipliers
        g = lag.constraints.violations(statistics)
        moved = self.strength * np.sqrt(2.0 * lag.bregman(point.margin, self._centre))
        slack = np.sqrt(np.abs(y * g) / (1.0 + y.sum())).max(initial=0.0)
        return float(max(moved, slack))

    def _combined(self) -> tuple[Array | None, float | Float]:
        """Proximal terms around the last inner and the last outer iterate, as one."""
        inner, weight = self._anchor, self.proximal_weight
        assert inner is not None
        assert self._centre is not None
        assert self.strength is not None
        outer: float | Float = self.strength * (1.0 + float(self.multipliers.sum()))
        if self.lazy:
            outer = 2.0 * self.lagrangian.concavity(self.multipliers)
        total = outer + weight
        if not np.any(total):
            return None, 0.0
        share = np.divide(outer, total, out=np.zeros(np.shape(total)), where=np.asarray(total) > 0)
        if np.ndim(share):
            share = self.lagrangian.per_row(share)
        moved = np.multiply(self._centre - inner, share, dtype=inner.dtype)
        return inner + moved, total

    @property
    def proximal(self) -> tuple[Array | None, float | Float]:
        """Centre and weight of the proximal term of the current subproblem."""
        return self._proximal
