"""What reductions share: the programme, the oracle, and what a reduction returns.

A reduction minimises a function of the confusion matrix over randomised decision rules. Every
reduction calls an oracle that minimises linear functions, Definition 11 of Narasimhan et al.,
"Consistent Multiclass Algorithms for Complex Metrics and Constraints", here called the paper. The
vector u holds d linear functionals of the confusion matrix, such as recalls and predicted shares
(the generalised confusion vectors of Definition 24). The set of achievable u is convex
(Proposition 7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from gbm_constrained._typing import Float

Kind: TypeAlias = Literal["linear", "smooth", "convex", "ratio", "other"]
Status: TypeAlias = Literal["optimal", "local", "limit", "infeasible"]

# A violation below this is rounding: ten times what the linear programmes are solved to.
FEASIBLE = 1e-9
# Value minus bound below which an objective counts as minimised: far below any sampling error.
TOLERANCE = 1e-7


class ConvexFunction(Protocol):
    """A convex function of u."""

    def value(self, u: Float) -> float:
        """Value at u; infinite where the function is not defined."""

    def gradient(self, u: Float) -> Float:
        """Subgradient at u; where the value is infinite, the negative of any descent direction."""


class Objective(Protocol):
    """A function of u, as a loss to be minimised.

    Attributes
    ----------
    kind : {"linear", "smooth", "convex", "ratio", "other"}
        ``"smooth"`` is convex and differentiable; ``"convex"`` may have kinks; ``"ratio"`` is a
        ratio of linear functions; nothing is known of ``"other"``.
    """

    @property
    def kind(self) -> Kind:
        """What is known of the function."""

    def value(self, u: Float) -> float:
        """Value at u."""

    def gradient(self, u: Float) -> Float:
        """Gradient at u, or a subgradient where the function is not differentiable."""


@runtime_checkable
class RatioObjective(Protocol):
    """An objective of kind ``"ratio"``."""

    def ratio(self) -> tuple[Float, float, Float, float]:
        r"""Coefficients :math:`a, a_0, b, b_0` of :math:`(a^T u + a_0) / (b^T u + b_0)`."""


class Oracle(Protocol):
    """Minimises linear functions over decision rules ("linear minimisation oracle")."""

    def minimise(self, cost: Float) -> tuple[Any, Float]:
        """Find the decision rule of smallest :math:`cost^T u`, and its u.

        Parameters
        ----------
        cost : ndarray of shape (d,)
            Cost of each functional.

        Returns
        -------
        rule : object
            The deterministic rule. Ties go to the larger class.
        u : ndarray of shape (d,)
            Functionals of the rule.
        """


@runtime_checkable
class KnowingOracle(Oracle, Protocol):
    """An oracle that knows rules from earlier searches.

    Attributes
    ----------
    start : sequence of (object, ndarray of shape (d,))
        Rules that a search starts with, and their u.
    """

    @property
    def start(self) -> Sequence[tuple[Any, Float]]:
        """Rules that a search starts with, and their u."""

    def list_cheapest(self, cost: Float) -> list[tuple[Any, Float]]:
        """List known rules of small :math:`cost^T u`, and their u."""


@dataclass(frozen=True)
class LinearObjective:
    r"""The objective :math:`a^T u + a_0`.

    Parameters
    ----------
    slope : ndarray of shape (d,)
        Coefficients a.
    offset : float, default=0
        Constant :math:`a_0`.
    """

    slope: Float
    offset: float = 0.0

    @property
    def kind(self) -> Kind:
        """What is known of the function."""
        return "linear"

    def value(self, u: Float) -> float:
        """Value at u."""
        return float(self.slope @ u) + self.offset

    def gradient(self, u: Float) -> Float:
        """Gradient, the same everywhere."""
        return self.slope


@dataclass(frozen=True, eq=False)
class Programme:
    r"""A function of u to be minimised under constraints.

    .. math:: \min_u \psi(u) \quad \text{s.t.} \quad A u \le b, \; \phi_k(u) \le 0, \;
        u \text{ achievable} .

    The constraint of a largest value, such as coverage, is stated by its linear rows: one row for
    the maximum would make mixtures of rules look infeasible.

    Parameters
    ----------
    objective : Objective
        The function psi.
    A : ndarray of shape (m, d)
        Coefficients of the linear constraints; shape (0, d) where there are none.
    b : ndarray of shape (m,)
        Bounds of the linear constraints.
    convex : sequence of ConvexFunction, default=()
        The functions phi.
    low, high : float or ndarray of shape (d,), default=0 and 1
        A box that contains all achievable u, on which psi and phi are defined.
    """

    objective: Objective
    A: Float
    b: Float
    convex: Sequence[ConvexFunction] = ()
    low: float | Float = 0.0
    high: float | Float = 1.0

    def __post_init__(self) -> None:
        A, b = np.asarray(self.A, dtype=float), np.asarray(self.b, dtype=float)
        if A.ndim != 2 or b.shape != A.shape[:1]:
            raise ValueError(
                f"A has shape {A.shape} and b has shape {b.shape}; give A one row of d "
                "coefficients for each entry of b, and shape (0, d) if no constraint is linear"
            )
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ValueError("A and b hold numbers that are not finite; drop rows without a bound")
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=float), A.shape[1:]).copy()
            for end in (self.low, self.high)
        )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise ValueError(
                f"low={low} and high={high} are no box; give finite numbers with low <= high"
            )
        for name, value in (("A", A), ("b", b), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """Number d of functionals."""
        return int(self.A.shape[1])

    @property
    def n_constraints(self) -> int:
        """Number of linear rows and convex functions."""
        return len(self.b) + len(self.convex)

    @property
    def box(self) -> Float:
        """Lower and upper ends, of shape (d, 2)."""
        return np.column_stack([self.low, self.high])

    @property
    def middle(self) -> Float:
        """Centre of the box."""
        return np.asarray((self.low + self.high) / 2, dtype=float)

    def constraints(self, u: Float) -> Float:
        """Left-hand minus right-hand side of each linear row, then of each convex function."""
        return np.append(self.A @ u - self.b, [phi.value(u) for phi in self.convex])

    def slopes(self, u: Float) -> Float:
        """Gradient of each linear row, then of each convex function, of shape (m, d)."""
        return np.vstack([self.A, *(np.asarray(phi.gradient(u))[None] for phi in self.convex)])

    def violation(self, u: Float) -> float:
        """Largest violation of a constraint at u, zero where all constraints hold."""
        return float(np.max(self.constraints(u), initial=0.0))

    def with_objective(self, objective: Objective) -> Programme:
        """Make the programme of another objective under the same constraints."""
        return replace(self, objective=objective)

    def without_constraints(self) -> Programme:
        """Make the programme of the same objective over all achievable u."""
        return replace(self, A=self.A[:0], b=self.b[:0], convex=())


@dataclass(frozen=True)
class Step:
    """What was reached after one call of the oracle.

    Parameters
    ----------
    value : float
        Objective at the current mixture.
    bound : float
        Largest lower bound of the optimum so far.
    violation : float
        Largest violation at the current mixture.
    seconds : float
        Time since the start.
    """

    value: float
    bound: float
    violation: float
    seconds: float


Observe: TypeAlias = Callable[[Step, Float], bool]
"""Is called before each call of the oracle, once there is a mixture, with the last step and the u
of the mixture. The search ends after that call if the answer is True."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A randomised decision rule, and what is known of it.

    Parameters
    ----------
    rules : tuple of length k
        Rules with positive probability.
    probability : ndarray of shape (k,)
        Probability of each rule.
    u : ndarray of shape (d,)
        Functionals of the mixture.
    value : float
        Objective at u.
    bound : float
        Lower bound of the optimum if the oracle is exact; -inf where the method has none.
    violation : float
        Largest violation of a constraint at u; zero where all constraints hold.
    status : {"optimal", "local", "limit", "infeasible"}
        ``"optimal"``: value and bound meet. ``"local"``: a stationary point of an objective that
        is not convex. ``"limit"``: the calls ended before. ``"infeasible"``: no mixture meets the
        constraints, and this one violates them least.
    history : tuple of Step
        One step for each call of the oracle.
    pool : ndarray of shape (n, d)
        Functionals of all rules found.
    """

    rules: tuple[Any, ...]
    probability: Float
    u: Float
    value: float
    bound: float
    violation: float
    status: Status
    history: tuple[Step, ...]
    pool: Float
