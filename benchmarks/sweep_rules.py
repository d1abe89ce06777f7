"""The rules of the sweep, what they are worth on test rows, and the references of a fit.

All is counted with numpy and without the package, whose figures the sweep is to check.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from peer_runs.methods import RATES as SHARES
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar
from scipy.stats import rankdata

import gbm_constrained as gbc

KNOWN, LARGE_GROUP = 100, 500  # rows of a rate: a reference decides for them; figures in errors
THRESHOLDS = 120  # of each group in the reference

MEANS: dict[str, Callable[[Any, Any], Any]] = {
    "mean_prediction": lambda y, f: f,
    "mean_residual": lambda y, f: y - f,
    "squared": lambda y, f: (y - f) ** 2,
    "absolute": lambda y, f: np.abs(y - f),
}
RANKS = ("auc", "cross_auc", "mean_rank")
AT_LEAST = {"tpr", "auc"}  # rates that are bounded from below


class Case(NamedTuple):
    """Labels, what the model says of the rows, groups as codes, and amounts."""

    y: Any
    d: Any
    groups: Any
    amounts: Any = None


class Values(NamedTuple):
    """A rate in each group, its standard error, and the rows that it is about."""

    value: Any
    error: Any
    rows: Any

    def of(self, kept: Any) -> Values:
        return Values(self.value[kept], self.error[kept], self.rows[kept])


@dataclass(frozen=True)
class Rule:
    """A bounded rate.

    Parameters
    ----------
    rate : str
        A rate of decisions, a mean of a regressor, a pair rate, or "class_error:k".
    how : {"all", "gap", "ratio", "each", "within"}
        What is bounded: the rate of all rows, the largest difference of groups, the smallest
        quotient, the rate of each group, or its distance from zero in each group.
    bound : float, default=0.0
        The bound.
    amounts : bool, default=False
        Whether rows count for their amounts.
    """

    rate: str
    how: str
    bound: float = 0.0
    amounts: bool = False

    @property
    def sign(self) -> int:
        """Minus one where the bound is one from below."""
        return -1 if self.rate in AT_LEAST and self.how in ("all", "each") else 1

    @property
    def is_grouped(self) -> bool:
        return self.how != "all"

    def __str__(self) -> str:
        name = f"{self.rate}[amount]" if self.amounts else self.rate
        below = "<=" if self.sign > 0 and self.how != "ratio" else ">="
        return f"{name if self.how == 'all' else f'{self.how}({name})'} {below} {self.bound:.3g}"

    def constraints(self, by: list[str]) -> list[Any]:
        """Write the rule in the language of the package."""
        name, _, label = self.rate.partition(":")
        weight = {"weight": "amount"} if self.amounts else {}
        if name in ("squared", "absolute"):
            rate = gbc.mean_loss(name)
        else:
            rate = getattr(gbc, name)(*([int(label)] if label else []), **weight)
        if self.how == "all":
            return [rate >= self.bound if self.sign < 0 else rate <= self.bound]
        if self.how == "gap":
            return [gbc.gap(rate, by=by) <= self.bound]
        if self.how == "ratio":
            return [gbc.ratio(rate, by=by) >= self.bound]
        grouped = gbc.each(rate, by=by)
        if self.how == "within":
            return [grouped <= self.bound, grouped >= -self.bound]
        return [grouped >= self.bound if self.sign < 0 else grouped <= self.bound]

    def values(self, case: Case) -> Values:
        """Measure the rate in each group, or in all rows."""
        codes = case.groups if self.is_grouped else np.zeros(len(case.y), dtype=int)
        if self.rate in RANKS:
            return ranks(self.rate, case.y, case.d, codes)
        inside, x = averaged(self.rate, case.y, case.d)
        weights = np.where(inside, case.amounts if self.amounts else 1.0, 0.0)
        size = codes.max() + 1
        total = np.bincount(codes, weights, size)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.bincount(codes, weights * x, size) / total
            squares = np.bincount(codes, weights**2 * (x - value[codes]) ** 2, size)
            rows = np.bincount(codes, inside, size)
            # Half a row is added to each side, so that no error of a share is zero.
            error = np.sqrt(squares / total**2 + 0.25 / (rows + 1.0) ** 2)
        return Values(value, error, rows)

    def excess(self, values: Values) -> tuple[float, float]:
        """Compute by how much the bound is missed, and the most in standard errors.

        Both are minus infinity if no group has rows.
        """
        v, e, _ = values.of(values.rows > 0)
        if v.size == 0 or (v.size == 1 and self.how in ("gap", "ratio")):
            return -np.inf, -np.inf
        if self.how == "gap":
            away = v[:, None] - v - self.bound
            errors = np.hypot(e[:, None], e)
        elif self.how == "ratio":
            away, errors = self.bound * v[:, None] - v, np.hypot(self.bound * e[:, None], e)
            np.fill_diagonal(away, -np.inf)
        else:
            at = np.abs(v) if self.how == "within" else self.sign * v
            away, errors = at - self.sign * self.bound, e
        most = float(np.max(away / np.maximum(errors, 1e-12)))
        if self.how == "ratio":
            return float(self.bound - v.min() / max(v.max(), 1e-12)), most
        return float(away.max()), most


def averaged(rate: str, y: Any, d: Any) -> tuple[Any, Any]:
    """Rows that a rate is about, and what it averages over them."""
    name, _, label = rate.partition(":")
    if label:
        return y == int(label), d != y
    if name in MEANS:
        return np.ones(len(y), dtype=bool), MEANS[name](y, d)
    return SHARES[name](y, d)


def area(first: Any, second: Any) -> float:
    """Probability that a score of the first is above one of the second, ties counting half."""
    if not (first.size and second.size):
        return np.nan
    placed = rankdata(np.concatenate([first, second]))[: first.size].sum()
    return float((placed - first.size * (first.size + 1) / 2) / (first.size * second.size))


def ranks(rate: str, y: Any, scores: Any, codes: Any) -> Values:
    """Pair rates of the groups; the smaller side of the pairs counts as the rows."""
    found = []
    for g in range(codes.max() + 1):
        own = codes == g
        if rate == "mean_rank":
            sides = scores[own], scores
        else:
            others = own if rate == "auc" else ~own
            sides = scores[own & (y == 1)], scores[others & (y == 0)]
        rows = min(side.size for side in sides)
        value = area(*sides)
        error = np.sqrt(max(value * (1.0 - value), 0.01) / 3.0 / max(rows, 1))
        found.append((value, error, rows))
    return Values(*map(np.array, zip(*found, strict=True)))


class Missed(NamedTuple):
    """Largest violation of some rules.

    It is given over all groups; over those with 100 rows of the rate or more, and bounds on all
    rows; and over those with 500 or more in standard errors.
    """

    all: float
    known: float
    in_errors: float


def missed(rules: Sequence[Rule], case: Case) -> Missed:
    """Largest violations; NaN where no group is large enough."""
    found = np.full((max(len(rules), 1), 3), -np.inf)
    for row, rule in zip(found, rules, strict=False):
        values = rule.values(case)
        row[0] = rule.excess(values)[0]
        known = (values.rows >= KNOWN) | (not rule.is_grouped)
        row[1] = rule.excess(values.of(known))[0]
        row[2] = rule.excess(values.of(values.rows >= LARGE_GROUP))[1]
    return Missed(*(float(x) if np.isfinite(x) else np.nan for x in found.max(axis=0)))


def group_blind(rules: Sequence[Rule], scores: Any, case: Case) -> float:
    """Accuracy of the best threshold of all rows that meets the rules; NaN if none does."""
    at = np.append(np.unique(np.quantile(scores, np.linspace(0, 1, THRESHOLDS))), np.inf)
    best = np.nan
    for threshold in at:
        d = (scores >= threshold).astype(int)
        accuracy = float(np.mean(d == case.y))
        if not accuracy <= best and not missed(rules, case._replace(d=d)).known > 1e-9:
            best = accuracy
    return best


def group_thresholds(rules: Sequence[Rule], scores: Any, case: Case) -> float:
    """Accuracy of the best mixture of group thresholds that meets the rules; NaN if none does.

    A mixture gives each threshold of each group a probability; errors and rates are linear in
    them. Gaps and ratios have a variable each for the smallest and the largest rate. Rules are
    asked of the groups that have 100 rows of the rate or more.
    """
    groups = np.unique(case.groups)
    parts, errors = [], []
    for g in groups:
        own = np.flatnonzero(case.groups == g)
        at = np.quantile(scores[own], np.linspace(0, 1, THRESHOLDS), method="lower")
        at = np.append(np.unique(at), np.inf)
        parts.append((own, scores[own][:, None] >= at))
        errors.append((parts[-1][1] != (case.y[own] == 1)[:, None]).sum(axis=0))
    starts = np.cumsum([0, *(error.size for error in errors)])
    n = starts[-1] + 2 * len(rules)
    A, b, lows = [], [], np.full(n, 0.0)

    def row(limit: float) -> Any:
        A.append(np.zeros(n))
        b.append(limit)
        return A[-1]

    for r, rule in enumerate(rules):
        low, high = starts[-1] + 2 * r, starts[-1] + 2 * r + 1
        sums, masses, sizes = [], [], []
        for own, decisions in parts:
            inside, event = SHARES[rule.rate](case.y[own], decisions.astype(int))
            weights = np.where(inside, case.amounts[own] if rule.amounts else 1.0, 0.0)
            sums.append(weights @ event)
            masses.append(weights.sum())
            sizes.append(inside.sum())
        if rule.how == "all":
            row(rule.sign * rule.bound)[: starts[-1]] = (
                rule.sign * np.concatenate(sums) / sum(masses)
            )
            continue
        for k in range(len(groups)):
            if sizes[k] < KNOWN:
                continue
            span, rate = slice(starts[k], starts[k + 1]), sums[k] / masses[k]
            if rule.how == "each":
                row(rule.sign * rule.bound)[span] = rule.sign * rate
            else:
                above = row(0.0)
                above[span], above[high] = rate, -1.0
                below = row(0.0)
                below[span], below[low] = -rate, 1.0
        if rule.how == "gap":
            between = row(rule.bound)
            between[high], between[low] = 1.0, -1.0
        elif rule.how == "ratio":
            between = row(0.0)
            between[high], between[low] = rule.bound, -1.0
    equal = sparse.block_diag([np.ones((1, error.size)) for error in errors])
    equal = sparse.hstack([equal, sparse.csr_matrix((len(groups), 2 * len(rules)))])
    found = linprog(
        np.append(np.concatenate(errors) / len(case.y), np.zeros(2 * len(rules))),
        A_ub=np.array(A) if A else None,
        b_ub=b or None,
        A_eq=equal,
        b_eq=np.ones(len(groups)),
        bounds=np.column_stack([lows, np.full(n, 1.0)]),
        method="highs",
    )
    return float(1.0 - found.fun) if found.status == 0 else np.nan


def group_shifts(rules: Sequence[Rule], case: Case) -> float:
    """R2 of the best shifts of the groups that meet a rule on means; NaN for other rules.

    Best is what the labels of these rows say. With the shifts of least squared error the mean
    prediction of a group is that of its targets and its mean residual is zero, so that only a gap
    of mean predictions costs anything: shifted means are clipped to an interval of that length.
    """
    names = {rule.rate for rule in rules}
    if not names <= {"mean_prediction", "mean_residual"} or len(names) != 1:
        return np.nan
    size = case.groups.max() + 1
    rows = np.bincount(case.groups, minlength=size)
    with np.errstate(invalid="ignore"):
        target = np.bincount(case.groups, case.y, size) / rows
        residual = np.bincount(case.groups, case.y - case.d, size) / rows
    kept = rows >= KNOWN
    rest = case.y - case.d - np.where(kept, residual, 0.0)[case.groups]
    cost = 0.0
    if names == {"mean_prediction"}:
        bound, means, weights = rules[0].bound, target[kept], rows[kept]

        def lost(low: float) -> float:
            return float(weights @ (np.clip(means, low, low + bound) - means) ** 2)

        if np.ptp(means) > bound:
            limits = (means.min(), means.max() - bound)
            cost = lost(minimize_scalar(lost, bounds=limits, method="bounded").x)
    return 1.0 - (float(rest @ rest) + cost) / float(np.sum((case.y - case.y.mean()) ** 2))


def confusion(y: Any, d: Any, n: int) -> Any:
    """Joint shares of classes and decisions."""
    return np.bincount(n * y + d, minlength=n * n).reshape(n, n) / len(y)


def metric(name: str, C: Any) -> float:
    """Compute a metric of a confusion matrix."""
    hits, of, called = np.diag(C), C.sum(axis=1), C.sum(axis=0)
    recalls = hits / np.maximum(of, 1e-12)
    found = {
        "accuracy": hits.sum,
        "balanced_accuracy": recalls.mean,
        "q_mean": lambda: 1.0 - np.sqrt(np.mean((1.0 - recalls) ** 2)),
        "g_mean": lambda: np.prod(recalls) ** (1.0 / recalls.size),
        "h_mean": lambda: recalls.size / np.sum(1.0 / np.maximum(recalls, 1e-12)),
        "min_recall": recalls.min,
        "f1_macro": lambda: np.mean(2.0 * hits / np.maximum(of + called, 1e-12)),
    }
    return float(found[name]())


def class_prices(
    goal: str, rules: Sequence[Rule], train: tuple[Any, Case], test: tuple[Any, Case], most: float
) -> float:
    """Best objective of plain decisions and of prices of classes, at no larger violation.

    Decisions are the class of largest probability times a price of the class. Prices are chosen on
    out-of-fold probabilities of the training rows: powers of the class shares, and from the best
    of them coordinate by coordinate. The result is NaN if neither has so small a violation.

    Parameters
    ----------
    train, test : tuple of (ndarray of shape (n, n_classes), Case)
        Probabilities, and the rows.
    most : float
        Violation on the test rows that is allowed.
    """

    def measured(P: Any, case: Case, prices: Any) -> tuple[float, float]:
        d = np.argmax(P * prices, axis=1)
        over = missed(rules, case._replace(d=d)).known if rules else 0.0
        return metric(goal, confusion(case.y, d, P.shape[1])), max(np.nan_to_num(over), 0.0)

    def judged(prices: Any) -> float:
        value, over = measured(*train, prices)
        return value - 10.0 * over

    n = train[0].shape[1]
    shares = np.maximum(np.bincount(train[1].y, minlength=n) / len(train[1].y), 1e-6)
    best = max((shares**-t for t in (0.0, 0.25, 0.5, 0.75, 1.0)), key=judged)
    for step, k in itertools.product((4.0, 2.0, 1.3, 2.0, 1.3, 1.1), range(n)):
        factor = np.where(np.arange(n) == k, step, 1.0)
        best = max(best, best * factor, best / factor, key=judged)
    found = [measured(*test, prices) for prices in (np.ones(n), best)]
    return max((value for value, over in found if over <= max(most, 0.0) + 1e-9), default=np.nan)
