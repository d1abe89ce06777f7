r"""Rates of data sets: as decisions, as ramps, and as convex upper bounds of ramps.

Problem 1 of Goh et al. (2016) bounds non-negative combinations of rates of positive and of
negative decisions on data sets. With the ramp :math:`\sigma(z) = \max(0, \min(1, \tfrac12 + z))`
in the place of the decision :math:`z > 0` it is Problem 2, whose rates are the expected ones of
a classifier that decides positively with probability :math:`\sigma(z)`. Around scores :math:`z'`
the ramps have the convex upper bounds (4),

.. math::

   \hat\sigma_p(z; z') = \begin{cases} \max(0, \tfrac12 + z) & z' \le \tfrac12 \\
   1 & \text{otherwise,} \end{cases} \qquad
   \hat\sigma_n(z; z') = \hat\sigma_p(-z; -z'),

which equal the ramps at :math:`z = z'`. Both branches are tight at :math:`z' = \tfrac12`, and the
hinge is taken there, so that rows of such scores can move.

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, Problems 1 to 3 and equations (1) to (5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from gbm_constrained._typing import Array, Float

Loss: TypeAlias = Literal["ramp", "hinge"]


def ramp(z: Float) -> Float:
    """Compute the probability of a positive decision at scores z, equation (2)."""
    return np.clip(0.5 + z, 0.0, 1.0)


def ramp_bound(z: Float, reference: Float) -> Float:
    """Compute the convex upper bound (4) of the ramp, tight at the reference scores."""
    return np.where(reference <= 0.5, np.maximum(0.5 + z, 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class RateProblem:
    """An objective and constraints that are non-negative combinations of rates: Problem 1.

    Function j of decisions is ``constant[j]`` plus the sum over cells of ``positive[j, c]`` times
    the share of cell c that is decided positively, and of ``negative[j, c]`` times the share that
    is decided negatively. Function 0 is the objective, and function j the left-hand side of
    constraint j.

    Parameters
    ----------
    shares : sparse array of shape (n_cells, n_samples)
        Share of each row in the total weight of its cells. A row may be in several cells.
    positive, negative : ndarray of shape (1 + m, n_cells)
        Coefficients of positive and negative decisions, at least zero.
    constant : ndarray of shape (1 + m,)
        Constant parts.
    bounds : ndarray of shape (m,)
        Bounds of the constraints.
    names : tuple of str
        Names of the constraints.
    """

    shares: Any
    positive: Float
    negative: Float
    constant: Float
    bounds: Float
    names: tuple[str, ...]

    @classmethod
    def of(cls, shares: Any, costs: Float, bounds: Float, names: tuple[str, ...]) -> RateProblem:
        """Write costs of either sign as non-negative combinations and constants.

        The lesser cost of a cell is paid whatever is decided, and the difference by one decision.

        Parameters
        ----------
        shares : sparse array of shape (n_cells, n_samples)
            Share of each row in the total weight of its cells.
        costs : ndarray of shape (1 + m, n_cells, 2)
            Cost of the share of each cell that is decided negatively, and positively.
        bounds : ndarray of shape (m,)
            Bounds of the constraints.
        names : tuple of str
            Names of the constraints.
        """
        least = costs.min(axis=2)
        negative, positive = np.moveaxis(costs - least[..., None], 2, 0)
        total = np.asarray(shares.sum(axis=1)).ravel()
        bounds = np.asarray(bounds, dtype=np.float64)
        return cls(shares, positive, negative, least @ total, bounds, names)

    def __post_init__(self) -> None:
        for name in ("positive", "negative"):
            coefficients = getattr(self, name)
            if not (np.isfinite(coefficients) & (coefficients >= 0)).all():
                raise ValueError(
                    f"{name} must hold finite coefficients of at least zero, got "
                    f"{coefficients.min()}: write costs of either sign with RateProblem.of."
                )
        if not np.isfinite(self.bounds).all():
            raise ValueError(f"bounds must be finite, got {self.bounds.tolist()}.")

    def __len__(self) -> int:
        return self.bounds.size

    @cached_property
    def total(self) -> Float:
        """Sum of the shares of each cell, one of a cell with rows; (n_cells,)."""
        return np.asarray(self.shares.sum(axis=1)).ravel()

    def values(self, decided_positively: Array, decided_negatively: Array) -> Float:
        """Compute all functions from (bounds of) the decisions of rows; (1 + m,).

        Parameters
        ----------
        decided_positively, decided_negatively : ndarray of shape (n_samples,)
            Share of each row that is decided so, or an upper bound of it.
        """
        of_positive = self.positive @ (self.shares @ decided_positively)
        of_negative = self.negative @ (self.shares @ decided_negatively)
        return np.asarray(of_positive + of_negative + self.constant)

    def hard_values(self, z: Float) -> Float:
        """Compute all functions of the decisions ``z > 0``, Problem 1; (1 + m,).

        Parameters
        ----------
        z : ndarray of shape (n_samples,)
            Scores of the rows.
        """
        decided = (z > 0).astype(np.float64)
        return self.values(decided, 1 - decided)

    def ramp_values(self, z: Float) -> Float:
        """Compute all functions of the ramp of scores z, Problem 2; (1 + m,).

        Parameters
        ----------
        z : ndarray of shape (n_samples,)
            Scores of the rows.
        """
        return self.values(ramp(z), ramp(-z))

    def bound_values(self, z: Float, reference: Float) -> Float:
        """Compute the convex upper bounds of all functions at scores z, Problem 3; (1 + m,).

        Parameters
        ----------
        z : ndarray of shape (n_samples,)
            Scores of the rows.
        reference : ndarray of shape (n_samples,)
            Scores at which the bounds are tight.
        """
        return self.values(ramp_bound(z, reference), ramp_bound(-z, -reference))

    def row_costs(self, weights: Float) -> tuple[Float, Float]:
        """Add up functions as costs of both decisions of each row.

        Parameters
        ----------
        weights : ndarray of shape (1 + m,)
            Weight of each function.

        Returns
        -------
        positive, negative : ndarray of shape (n_samples,)
        """
        positive, negative = weights @ self.positive, weights @ self.negative
        return np.asarray(self.shares.T @ positive), np.asarray(self.shares.T @ negative)

    def violations(self, values: Float) -> Float:
        """Compute by how much functions are beyond the bounds; (m,).

        Parameters
        ----------
        values : ndarray of shape (1 + m,)
            Value of each function.
        """
        return values[1:] - self.bounds

    def without_objective(self) -> RateProblem:
        """Leave out the objective, and keep the constraints."""
        is_constraint = np.arange(len(self) + 1) > 0
        return RateProblem(
            self.shares,
            self.positive * is_constraint[:, None],
            self.negative * is_constraint[:, None],
            self.constant * is_constraint,
            self.bounds,
            self.names,
        )

    @cached_property
    def lines(self) -> tuple[Float, Float]:
        """Slopes and intercepts of violations in the share p of positive decisions.

        They hold where p is the same for all rows.
        """
        at_zero, at_one = self.negative @ self.total, self.positive @ self.total
        return (at_one - at_zero)[1:], self.violations(at_zero + self.constant)

    def feasible_shares(self, tolerance: float = 1e-12) -> tuple[float, float] | None:
        """Find the interval of shares p that meet all constraints; None if there is none.

        Parameters
        ----------
        tolerance : float, default=1e-12
            Violation that counts as none.
        """
        slopes, intercepts = self.lines
        if (intercepts[slopes == 0] > tolerance).any():
            return None
        ends = -np.divide(intercepts, slopes, out=np.zeros_like(slopes), where=slopes != 0)
        low = float(np.max(ends[slopes < 0], initial=0.0))
        high = float(np.min(ends[slopes > 0], initial=1.0))
        if low > high + tolerance:
            return None
        return min(low, high), high

    def least_violating_share(self) -> float:
        """Find the share p whose largest violation is least."""
        slopes, intercepts = self.lines
        crossings = [0.0, 1.0]
        for j, slope in enumerate(slopes):
            differences = slopes[j + 1 :] - slope
            of_others = intercepts[j] - intercepts[j + 1 :]
            crossings += (of_others[differences != 0] / differences[differences != 0]).tolist()
        tried = np.clip(crossings, 0.0, 1.0)
        return float(tried[(slopes[:, None] * tried + intercepts[:, None]).max(axis=0).argmin()])


@dataclass(frozen=True)
class Losses:
    """What stands for the decisions in the objective and in the constraints.

    A hinge is the bound of a ramp that is tight at scores of zero, and stays there. One row of a
    large score can then break a constraint that its decision meets.

    Parameters
    ----------
    objective, constraints : {"ramp", "hinge"}, default="ramp"
        The ramp, whose rates are those of randomised decisions, or the hinge.
    """

    objective: Loss = "ramp"
    constraints: Loss = "ramp"

    def references(self, reference: Float) -> tuple[Float, Float]:
        """Find the scores at which bounds of the objective and of the constraints are tight."""
        zeros = np.zeros_like(reference)
        of_objective, of_constraints = (
            reference if loss == "ramp" else zeros for loss in (self.objective, self.constraints)
        )
        return of_objective, of_constraints

    def bound_values(self, problem: RateProblem, z: Float, reference: Float) -> Float:
        """Compute convex upper bounds of all functions at scores z; (1 + m,)."""
        of_objective, of_constraints = self.references(reference)
        values = problem.bound_values(z, of_constraints)
        if of_objective is not of_constraints:
            values[0] = problem.bound_values(z, of_objective)[0]
        return values

    def values(self, problem: RateProblem, z: Float) -> Float:
        """Compute all functions at scores z, where their bounds are tight; (1 + m,)."""
        return self.bound_values(problem, z, z)
