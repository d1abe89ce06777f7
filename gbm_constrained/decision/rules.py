r"""Decision rules: from scores to classes, by shifts, biases, costs and mixtures.

.. math:: h(x) = \arg\min_j \sum_c P(c \mid x) L_{cj}

with ties to the larger class (Narasimhan et al., "Consistent Multiclass Algorithms for Complex
Metrics and Constraints", Proposition 5 and Algorithms 9 and 10). The cells c are the labels, or
labels and groups together; groups need not be known where a booster estimates their probability.

.. math:: P(k \mid x) \propto \exp(a s_k(x) + b_k)

with one scale :math:`a > 0` and one bias of each class, of maximum likelihood on held-out rows
(Platt, "Probabilistic outputs for support vector machines", 1999; of several classes, Guo et al.,
"On calibration of modern neural networks", 2017, section 4.2). A bias is the logarithm of a factor
of the class in the objective, with its sign changed.

The joint cells divide the rows by label and groups. With the probability P of the label by the
first booster, and Q of the joint cell by the second one,

.. math:: P(c \mid x) = P(y_c \mid x) \, Q(c \mid y_c, x), \qquad
    Q(c \mid y, x) = \frac{Q(c \mid x)}{\sum_{d : y_d = y} Q(d \mid x)} .

The booster of the cells divides its trees between labels and groups, so that it ranks labels worse
than a booster of the labels alone. Here it says no more than which group a row of a label is in.

Cells of further data sets are learned by the booster of the cells alone, and keep the probability
Q. The factorisation holds for the other cells, given that a row is in one of them.

Every outer iteration leaves a prefix of the ensemble behind. Rates jump from one prefix to the
next, so that none may meet all constraints at the smallest error. A distribution over them can,
and prefixes of one ensemble cost nothing to store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax, xlogy
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import solve_linear_programme

Margins: TypeAlias = Callable[[int], Array]  # Scores of some rows under the prefix of k rounds.


def shift_scores(margin: Array, shift: Float) -> Array:
    """Add a shift to scores: one number to those of two classes, a bias to each of several."""
    return np.asarray(margin + (shift if margin.ndim > 1 else shift[0]))


@dataclass(frozen=True)
class MarginShift:
    """Decide for the class of the largest shifted score under one prefix."""

    shift: Float  # Shift of the threshold (1,), or bias of each class.
    rounds: int = 0  # Boosting rounds of the prefix.

    def decide(self, margins: Margins) -> Codes:
        """Decide the class index of each row, given its scores by the rounds of a prefix.

        Of two classes it is that of ``margin + shift > 0``, of several the largest score.
        """
        scores = shift_scores(np.asarray(margins(self.rounds)), self.shift)
        return np.asarray(scores.argmax(axis=1) if scores.ndim > 1 else scores > 0, dtype=np.intp)


@dataclass(frozen=True)
class Mixture:
    """Decide each row by a rule that is drawn for it: a randomised classifier."""

    rules: tuple[MarginShift | CostRule, ...]
    probability: Float
    random_state: Any = None

    @classmethod
    def of_prefixes(cls, prefixes: pd.DataFrame, n_classes: int, random_state: Any) -> Mixture:
        """Build the mixture of unshifted prefixes of a table of rounds and probability."""
        nothing = np.zeros(1 if n_classes == 2 else n_classes)
        rules = tuple(MarginShift(nothing, int(rounds)) for rounds in prefixes["rounds"])
        return cls(rules, prefixes["probability"].to_numpy(), random_state)

    def decide(self, margins: Margins) -> Codes:
        """Decide each row by one rule, drawn independently with the rules' probabilities."""
        decisions = np.array([rule.decide(margins) for rule in self.rules])
        uniform = check_random_state(self.random_state).random_sample(decisions.shape[1])
        which = np.searchsorted(np.cumsum(self.probability)[:-1], uniform, side="right")
        return np.asarray(decisions[which, np.arange(uniform.size)])


class Scores(NamedTuple):
    """Scores of rows under a model whose decisions may be shifted."""

    for_decisions: Array
    for_probabilities: Array  # The same object, unless the shift is kept beside the model.

    @classmethod
    def of(cls, margin: Array, shift: Float, *, beside: bool) -> Scores:
        """Shift the scores of decisions, and those of probabilities unless the shift is beside."""
        for_decisions = shift_scores(margin, shift)
        return cls(for_decisions, margin if beside and shift.any() else for_decisions)

    def statistics(self, lagrangian: Lagrangian) -> CellStatistics:
        """Compute the cell statistics of the decisions, and of losses and ranks of probabilities.

        Tables of pairs are exact.
        """
        found = lagrangian.at(self.for_decisions).statistics(is_exact=True)
        if self.for_probabilities is self.for_decisions:
            return found
        of_scores = lagrangian.at(self.for_probabilities).statistics(is_exact=True)
        return replace(of_scores, predicted=found.predicted)


@dataclass(frozen=True)
class Choice:
    """A prefix of the ensemble and a shift of its scores, with what chose them."""

    rounds: int
    shift: Float
    error: float  # 0-1 error on the rows that chose the shift.
    violation: float  # Largest violation of a row of constraints there; 0 if all hold.
    p_value: float = np.nan  # P-value of a violation, on the certification rows.
    level: float = np.nan  # Largest p-value that earns the certificate.
    bounds: Float | None = None  # Right-hand sides that chose the shift; None for the own ones.
    loss: float = np.nan  # Error, or 1 - AUC, plus the penalty of the largest violation.
    # Whether a constraint is violated that compares no groups, which is accepted only where no
    # decision meets all of these constraints.
    has_rate_violation: bool = False
    refit_violation: float = 0.0  # Largest violation of the model of all rows, beyond sampling.
    offsets: Any = None  # GroupOffsets that are added to the scores of groups, if these decide.

    @property
    def is_moved(self) -> bool:
        """Whether decisions differ from those of the scores."""
        return bool(self.shift.any()) or (
            self.offsets is not None and bool(self.offsets.values.any())
        )

    def apply(self, margin: Array, rows: Rows) -> Array:
        """Shift the scores of rows."""
        moved = shift_scores(margin, self.shift)
        return moved if self.offsets is None else moved + self.offsets.of(rows)

    @property
    def is_certified(self) -> bool:
        """Whether a certificate was asked for and is given."""
        return self.p_value <= self.level

    @property
    def is_uncertified(self) -> bool:
        """Whether a certificate was asked for and is not given."""
        return self.p_value > self.level


def probabilities_of(margin: Array, factors: Float, scale: float = 1.0) -> Float:
    """Turn scores into probabilities of the classes, as the rows are and not as weighted.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of a booster.
    factors : ndarray of shape (n_classes,)
        Factor of each class in the booster's objective.
    scale : float, default=1
        Factor by which scores become log-odds.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
    """
    scores = scale * np.asarray(margin, dtype=np.float64)
    if scores.ndim == 1:
        positive = expit(scores)
        found = np.column_stack([1.0 - positive, positive])
    else:
        found = softmax(scores, axis=1)
    if (factors != factors[0]).any():
        found = found / factors
        found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found)


def decide_by_costs(probabilities: Float, costs: Float) -> Codes:
    """Decide the class of least expected cost, the larger one of equals.

    Parameters
    ----------
    probabilities : ndarray of shape (n_samples, n_cells)
        Probability of each cell.
    costs : ndarray of shape (n_cells, n_classes)
        Cost of each decision in each cell.
    """
    expected = costs.T @ probabilities.T  # one row for each decision, for speed
    least = expected.min(axis=0) + ROUNDING * np.abs(costs).max(initial=0.0)
    found = np.zeros(len(probabilities), dtype=np.intp)
    for j in range(1, len(expected)):
        np.copyto(found, j, where=expected[j] <= least)
    return found


@dataclass(frozen=True, eq=False)
class CostRule:
    """The decision of least expected cost.

    Parameters
    ----------
    costs : ndarray of shape (n_cells, n_classes)
        Cost of each decision in each cell.
    factors : ndarray of shape (n_cells,)
        Factor of each cell in the objective of the booster that scores rows.
    rounds : int, default=0
        Boosting rounds of the prefix that scores rows.
    scale : float, default=1
        Factor by which its scores become log-odds.
    """

    costs: Float
    factors: Float = field(repr=False)
    rounds: int = 0
    scale: float = 1.0

    def decide(self, margins: Margins) -> Codes:
        """Decide the class index of each row."""
        probabilities = probabilities_of(margins(self.rounds), self.factors, self.scale)
        return decide_by_costs(probabilities, self.costs)

    @property
    def class_weights(self) -> Float | None:
        """Weights of the classes whose weighted probability the rule maximises, if it does.

        The largest weight is one.
        """
        gain = _class_weights(self.costs)
        return None if gain is None else gain / gain.max()

    def as_shift(self) -> Float | None:
        """Shift of scores that makes the same decisions, if there is one.

        Returns
        -------
        ndarray of shape (1,) or (n_classes,), or None
            Rules whose cost is a positive weight on each class have one: the class of the largest
            weighted probability is that of the largest score plus the logarithm of the weight.
        """
        gain = _class_weights(self.costs)
        if gain is None:
            return None
        bias = (np.log(gain) - np.log(self.factors)) / self.scale
        return np.array([bias[1] - bias[0]]) if bias.size == 2 else bias - bias.mean()


def _class_weights(costs: Float) -> Float | None:
    """Weight of each class whose argmax the rule is; None if it is no such rule."""
    n, k = costs.shape
    if n != k:
        return None
    # A constant on a row of the costs changes no decision.
    wrong = costs + np.diag(np.full(k, np.nan))
    base = np.nanmean(wrong, axis=1)
    gain = base - np.diag(costs)
    is_constant = np.nanmax(np.abs(wrong - base[:, None])) <= 1e-9 * np.abs(costs).max(initial=0.0)
    return np.asarray(gain) if is_constant and (gain > 0.0).all() else None


def mixture_shares(decisions: Any, probability: Float, n_classes: int) -> Float:
    """Probability that a mixture of rules decides each class, of shape (n_samples, n_classes).

    Parameters
    ----------
    decisions : ndarray of shape (n_rules, n_samples), intp
        Decisions of each rule.
    probability : ndarray of shape (n_rules,)
        Probability of each rule.
    n_classes : int
        Number of classes.
    """
    shares = np.zeros((np.shape(decisions)[1], n_classes))
    at = np.arange(len(shares))
    for of_rule, p in zip(decisions, probability, strict=True):
        shares[at, of_rule] += p
    return shares


def calibrate_scores(
    margin: Array, codes: Codes, n_classes: int, weight: Float | None
) -> tuple[Float, float]:
    """Find the factors of the classes and the scale by which scores become probabilities.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of held-out rows.
    codes : ndarray of shape (n_samples,), intp
        Class of each row.
    n_classes : int
        Number of classes.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row.

    Returns
    -------
    factors : ndarray of shape (n_classes,)
        The largest is one.
    scale : float
    """
    scores = np.asarray(margin, dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(scores.size), scores])
    # A booster that has not seen a class scores it with minus infinity: no others are below it.
    is_finite = np.isfinite(scores)
    scores = np.where(is_finite, scores, scores[is_finite].min())
    w = np.ones(codes.size) if weight is None else weight
    w = w / w.sum()
    unit = max(float(scores.std()), np.finfo(np.float64).tiny)
    rows = np.arange(codes.size)
    share = np.bincount(codes, w, n_classes)

    def loss(parameters: Float) -> tuple[float, Float]:
        scale, bias = np.exp(parameters[0]) / unit, np.append(0.0, parameters[1:])
        z = scale * scores + bias
        log_p = z - logsumexp(z, axis=1, keepdims=True)
        residual = w[:, None] * np.exp(log_p)
        residual[rows, codes] -= w
        gradient = np.append((residual * scores).sum() * scale, residual.sum(axis=0)[1:])
        return -float(w @ log_p[rows, codes]), gradient

    # Scores that separate the classes have no largest likelihood, nor does a class without rows.
    bounds = [(-30.0, 30.0)] * n_classes
    start = np.append(np.log(np.clip(unit, *np.exp(bounds[0]))), np.zeros(n_classes - 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    is_worse = found.fun > -xlogy(share, share).sum() + 1e-6  # than the shares of the classes
    parameters = start if is_worse else found.x
    bias = np.append(0.0, parameters[1:])
    return np.exp(bias.min() - bias), float(np.exp(parameters[0]) / unit)


OTHER_DATA = -1  # In place of the label of cells of a further data set.


@dataclass(frozen=True, eq=False)
class CellScores:
    """Turns scores of two boosters into those of the joint cells.

    Parameters
    ----------
    labels : ndarray of shape (n_cells,), intp
        Class index of each cell, each class with at least one; -1 for cells of further data sets.
    label_factors : ndarray of shape (n_classes,)
        Factor of each class in the objective of the booster of the labels.
    label_scale : float
        Factor by which its scores become log-odds.
    cell_factors : ndarray of shape (n_cells,)
        Factor of each cell in the objective of the booster of the cells.
    cell_scale : float
        Factor by which its scores become log-odds.
    """

    labels: Codes
    label_factors: Float
    label_scale: float
    cell_factors: Float
    cell_scale: float

    def combine(self, label_margin: Array, cell_margin: Array) -> Float:
        """Compute logarithms of the probabilities of the cells.

        Parameters
        ----------
        label_margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of the booster of the labels.
        cell_margin : ndarray of shape (n_samples,) or (n_samples, n_cells)
            Scores of the booster of the cells; minus infinity for cells that it has not seen.

        Returns
        -------
        ndarray of shape (n_samples, n_cells)
            Minus infinity for a probability of zero.
        """
        P = probabilities_of(label_margin, self.label_factors, self.label_scale)
        Q = probabilities_of(cell_margin, self.cell_factors, self.cell_scale)
        is_other = self.labels == OTHER_DATA
        inside = 1.0 - Q[:, is_other].sum(axis=1)
        for label in range(P.shape[1]):
            cells = np.flatnonzero(self.labels == label)
            total = Q[:, cells].sum(axis=1, keepdims=True)
            # Cells of a label that the booster thinks impossible are alike.
            share = np.full((len(Q), cells.size), 1.0 / cells.size)
            np.divide(Q[:, cells], total, out=share, where=total > 0.0)
            Q[:, cells] = share * (inside * P[:, label])[:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(Q, 0.0)))


def find_best_prefix(errors: Float, violations: Float) -> int:
    """Find the position of the prefix with the smallest error that satisfies all constraints.

    `violations` are left-hand minus right-hand sides, (n_prefixes, m). The last of equals is
    taken. Where no prefix meets all constraints, the one with the smallest largest violation is.
    """
    worst = violations.max(axis=1, initial=0.0)
    rank = np.where(worst <= ROUNDING, errors, np.inf) if (worst <= ROUNDING).any() else worst
    return int(rank.size - 1 - rank[::-1].argmin())


def find_last_prefix(violations: Float) -> int:
    """Find the position of the last prefix, or of the later half's that violates least."""
    worst = violations.max(axis=1, initial=0.0)
    late = np.where(worst > ROUNDING, worst, 0.0)[len(worst) // 2 :]
    least = late <= late.min() + ROUNDING
    return len(worst) - 1 - int(least[::-1].argmax())


def find_mixture(errors: Float, violations: Float) -> tuple[NDArray[np.intp], Float]:
    r"""Find the mixture of prefixes with the smallest mean error that satisfies the constraints.

    The linear programme of Cotter et al., "Two-Player Games for Efficient Non-Convex Constrained
    Optimization" (2019), Lemma 2:

    .. math:: \min_\lambda \sum_t \lambda_t e_t \quad \text{s.t.} \quad
        \sum_t \lambda_t g_j(x_t) \le 0, \; \sum_t \lambda_t = 1, \; \lambda \ge 0 .

    A vertex of the feasible set has at most m + 1 prefixes. Where no mixture is feasible, the
    largest expected violation is made smallest, and then the error. Returned are the positions of
    the prefixes with positive probability, and their probabilities.
    """
    n, m = violations.shape
    violation, sums = 0.0, {"A_eq": np.ones((1, n)), "b_eq": np.ones(1)}
    if violations.max(axis=1).min() > 0:
        # The programme finds the smallest s >= 0 with sum_t lambda_t g_j(x_t) <= s for all j.
        rows = np.hstack([violations.T, -np.ones((m, 1))])
        cost, of_slack = np.append(np.zeros(n), 1.0), np.append(np.ones(n), 0.0)[None]
        found = solve_linear_programme(
            cost, rows, np.zeros(m), (0, None), A_eq=of_slack, b_eq=np.ones(1)
        )
        # A slack would buy error with violations that count, and tiny probabilities.
        violation = float(found.fun) if found.fun > ROUNDING else 0.0
    right = np.full(m, violation)
    found = solve_linear_programme(errors, violations.T, right, (0, None), **sums)
    weight = np.maximum(found.x, 0.0)
    chosen = np.flatnonzero(weight > 1e-9)
    return chosen, weight[chosen] / weight[chosen].sum()
