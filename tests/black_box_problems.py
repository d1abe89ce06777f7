"""Black-box problems with known functions of surrogates, and surrogates with known formulas."""

from __future__ import annotations

import numpy as np

from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import surrogate
from gbm_constrained.metrics.black_box import CallBudget
from gbm_constrained.metrics.surrogates import SurrogateLosses
from gbm_constrained.solvers.black_box import BlackBoxProblem, LinearSpace

CLASSES = np.array([0, 1])


class Loss:
    """A loss of the validation scores, with counted calls."""

    def __init__(self, function, max_calls=10**9):
        self.function, self.budget = function, CallBudget(max_calls)

    @property
    def calls(self):
        return self.budget.calls

    def __call__(self, scores):
        self.budget.calls += 1
        return float(self.function(scores))


class Quadratics:
    """Surrogates that are convex quadratic functions of the parameters themselves."""

    def __init__(self, seed, K, d):
        rng = np.random.default_rng(seed)
        roots = rng.normal(size=(K, d, d))
        self.matrices = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d)
        self.centres = rng.normal(size=(K, d))
        self.names = tuple(f"q{k}" for k in range(K))

    def __len__(self):
        return len(self.names)

    def values(self, parameters):
        off = parameters - self.centres
        return np.einsum("ki,kij,kj->k", off, self.matrices, off) / 2

    def jacobian(self, parameters):
        return np.einsum("kij,kj->ki", self.matrices, parameters - self.centres)

    def gradient(self, parameters, coefficients):
        return coefficients @ self.jacobian(parameters)


class Coordinates:
    """Surrogates that are the parameters themselves."""

    def __init__(self, K):
        self.names = tuple(f"z{k}" for k in range(K))

    def __len__(self):
        return len(self.names)

    def values(self, parameters):
        return parameters


def on_parameters(surrogates, d, function=np.sum, **options):
    """A problem whose scores are the parameters."""
    space = LinearSpace(np.eye(d), np.eye(d))
    return BlackBoxProblem(space, surrogates, Loss(function, **options))


def draw_rows(seed, n=40, weighted=True):
    """Features with an intercept, labels, weights and groups; both labels in each group."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 3)), np.ones(n)])
    y = np.arange(n) % 2
    rows = Rows(
        y,
        CLASSES,
        rng.integers(1, 4, size=n).astype(float) if weighted else None,
        {"group": np.where(np.arange(n) % 4 < 2, "a", "b")},
    )
    return X, rows


def by_label(rows, loss="log_loss"):
    return SurrogateLosses([surrogate(loss, on=label(c)) for c in CLASSES], rows)


def on_rows(seed, psi, loss="log_loss", n=40):
    """A problem whose metric is a function of the surrogates of the training rows."""
    X, rows = draw_rows(seed, n)
    surrogates = by_label(rows, loss)
    metric = Loss(lambda scores: psi(surrogates.values(scores)))
    return BlackBoxProblem(LinearSpace(X, X), surrogates, metric, surrogates)
