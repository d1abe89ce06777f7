"""References that several test modules share: rates by brute force, searches, drawn decisions."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import log_softmax

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N_DRAWN = 8000  # Rows of drawn decisions.


def best_shift(margin, cells, compiled, **options):
    """Find the best shift of some scores, by one search."""
    return ShiftSearch(margin, cells, compiled).find(**options)


def solve_mixture(costs, violations, *, slack=False):
    """Compute the least cost of mixtures that meet the constraints, by an interior-point method.

    With `slack`, the smallest largest expected violation instead; None where there is nothing.
    """
    n, m = violations.shape
    extra = np.full((m, 1), -1.0 if slack else 0.0)
    found = linprog(
        np.append(np.zeros(n), 1.0) if slack else np.append(costs, 0.0),
        A_ub=np.hstack([violations.T, extra]),
        b_ub=np.zeros(m),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None) if slack else (0, 0)],
        method="highs-ipm",
        # Where prefixes violate constraints about alike, errors depend on digits beyond 1e-7.
        options={"primal_feasibility_tolerance": 1e-10, "ipm_optimality_tolerance": 1e-12},
    )
    return found.fun if found.success else None


def draw_decisions_of_folds(rng, rates, weight=None, rules=None, n=N_DRAWN):
    """Decide rows of two classes and two groups, positively with a probability for each fold.

    `rates` are of shape (folds,), or (folds, 2) for the groups.
    """
    y, group = rng.integers(0, 2, n), rng.integers(0, 2, n)
    folds = np.array_split(rng.permutation(n), len(rates))
    fold = np.empty(n, dtype=int)
    for i, rows in enumerate(folds):
        fold[rows] = i
    rates = np.broadcast_to(np.reshape(rates, (len(rates), -1)), (len(rates), 2))
    decided = (rng.random(n) < rates[fold, group]).astype(int)
    weight = None if weight is None else weight(rng, n)
    rows = Rows(y, np.array([0, 1]), weight, {"g": group})
    cells, compiled = compile_constraints(rules or [gc.fpr() <= 0.5], rows)
    return compiled, cells, folds, decided


EXACT = {"rtol": 1e-10, "atol": 1e-13}
seeds = st.integers(0, 2**32 - 1)


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


class Problem:
    """Random rows: labels, scores with ties, weights (some zero), groups, another model."""

    def __init__(self, seed, classes=(0, 1), n=150, weighted=True):
        rng = np.random.default_rng(seed)
        self.rng, self.n = rng, n
        self.classes = np.array(classes)
        k = self.classes.size
        self.codes = np.concatenate([np.arange(k), np.arange(k), rng.integers(0, k, n - 2 * k)])
        self.margin = 2 * rng.normal(size=n if k == 2 else (n, k))
        self.margin[3::7] = np.round(self.margin[3::7])
        self.weight = rng.gamma(2.0, size=n) * (rng.random(n) > 0.1) if weighted else None
        if weighted:
            self.weight[:10] = 1.0
        self.sex = rng.choice(["F", "M"], n)
        self.region = rng.choice(["a", "b", "c"], n)
        self.sex[:6], self.region[:6] = list("FMFMFM"), list("abcabc")
        self.other = rng.integers(0, k, n)
        self.sizes, self.sources, self.features = None, (), ()

    @property
    def columns(self):
        table = {"sex": self.sex, "region": self.region, "old": self.classes[self.other]}
        training = self.n if self.sizes is None else self.sizes[0]
        return columns_of({name: x[:training] for name, x in table.items()}, training)

    @property
    def rows(self):
        return Rows(
            self.codes,
            self.classes,
            self.weight,
            self.columns,
            self.features,
            self.sources,
            self.sizes,
        )

    @property
    def w(self):
        return np.ones(self.n) if self.weight is None else self.weight

    @property
    def y(self):
        return self.classes[self.codes]

    @property
    def predicted(self):
        several = self.margin.ndim == 2
        return self.classes[self.margin.argmax(1) if several else (self.margin > 0).astype(int)]

    @property
    def log_probability(self):
        several = self.margin.ndim == 2
        scores = self.margin if several else np.stack([0 * self.margin, self.margin], 1)
        return log_softmax(scores, axis=1)

    def measured(self, *constraints):
        """Constraints' values, their violated rows, whether satisfied, and the compiled rows."""
        cells, compiled = compile_constraints(constraints, self.rows)
        lagrangian = Lagrangian(np.asarray(self.codes), cells, compiled, weight=self.weight)
        statistics = lagrangian.at(self.margin).statistics()
        values = compiled.values(compiled.functionals(statistics))
        return values, compiled.violations(statistics), compiled.is_satisfied(values), compiled

    def value(self, expression):
        """Value of a rate or a comparison."""
        lower = isinstance(expression, type(gc.ratio(gc.fpr())))
        constraint = gc.Constraint(expression, ">=", 0.5) if lower else expression <= 0.5
        return self.measured(constraint)[0][0]


def mean(event, w, rows):
    """Weighted mean by counting, row by row."""
    total = sum(w[i] for i in np.flatnonzero(rows))
    return sum(w[i] for i in np.flatnonzero(rows) if event[i]) / total if total > 0 else np.nan


def over(a, b):
    return a / b if b > 1e-12 else (np.inf if a > 1e-12 else np.nan)


def counted(problem, positive, rows):
    """Every rate by counting, on some rows."""
    p, w, y, n = problem.predicted, problem.w, problem.y, problem.n
    old = problem.classes[problem.other]
    everything = np.ones(n, dtype=bool) & rows
    true, chosen, wrong = y == positive, p == positive, p != y
    loss = -problem.log_probability[np.arange(n), np.maximum(problem.codes, 0)]
    tp, fp = mean(true & chosen, w, everything), mean(~true & chosen, w, everything)
    fn = mean(true & ~chosen, w, everything)
    return {
        "selection_rate": mean(chosen, w, everything),
        "error_rate": mean(wrong, w, everything),
        "accuracy": mean(~wrong, w, everything),
        "tpr": mean(chosen, w, rows & true),
        "recall": mean(chosen, w, rows & true),
        "fnr": mean(~chosen, w, rows & true),
        "fpr": mean(chosen, w, rows & ~true),
        "tnr": mean(~chosen, w, rows & ~true),
        "precision": over(tp, tp + fp),
        "f1": over(2 * tp, 2 * tp + fp + fn),
        "class_error": mean(wrong, w, rows & true),
        "log_loss": float((w * loss)[rows].sum() / w[rows].sum()),
        "churn": mean(p != old, w, everything),
        "wins": mean((p == y) & (old != y), w, everything),
        "losses": mean((p != y) & (old == y), w, everything),
        "win_loss": over(
            mean((p == y) & (old != y), w, everything), mean((p != y) & (old == y), w, everything)
        ),
    }


def written(problem, positive, on):
    """The same rates in the language."""
    k = positive if problem.classes.size > 2 else None
    old = problem.classes[problem.other]
    old = old if problem.sizes is None else "old"
    return {
        "selection_rate": gc.selection_rate(positive, on=on),
        "error_rate": gc.error_rate(on=on),
        "accuracy": gc.accuracy(on=on),
        "tpr": gc.tpr(k, on=on),
        "recall": gc.recall(positive, on=on),
        "fnr": gc.fnr(k, on=on),
        "fpr": gc.fpr(positive, on=on),
        "tnr": gc.tnr(k, on=on),
        "precision": gc.precision(k, on=on),
        "f1": gc.f1(k, on=on),
        "class_error": gc.class_error(positive, on=on),
        "log_loss": gc.log_loss(on=on),
        "churn": gc.churn(to=old, on=on),
        "wins": gc.wins(over=old, on=on),
        "losses": gc.losses(to=old, on=on),
        "win_loss": gc.wins(over=old, on=on) / gc.losses(to=old, on=on),
    }


CLASSES = [(0, 1), ("no", "yes"), (0, 1, 2), ("a", "b", "c", "d")]


class Constant:
    """Another model, which has looked at the features it is given."""

    def __init__(self, decide):
        self.predict = decide
