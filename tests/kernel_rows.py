"""Rows of random cells, and references of their kernels."""

import numpy as np
from scipy.special import logsumexp, softmax

from gbm_constrained.problem.kernels import (
    END,
    BinaryKernel,
    KernelBlock,
    KernelTables,
    RampKernel,
    SoftmaxKernel,
    logistic_targets,
)

CLASS_COUNTS = [2, 3, 7]
KERNELS = [*((n_classes, False) for n_classes in CLASS_COUNTS), (2, True)]  # True: of the ramp
DTYPES = [np.float32, np.float64]
PARTS = ["target", "cost", "clipped", "all"]
CAP = 1.3
N = 60


class Rows:
    """Rows of random cells, at scores that stay away from kinks of their values."""

    def __init__(self, n_classes, parts="all", seed=0, dtype=np.float64, factor=1.0, ramp=False):
        rng = np.random.default_rng(seed)
        n_cells = 2 * n_classes
        on = {part: parts in (part, "all") for part in PARTS}
        self.tables = KernelTables(
            rng.gamma(1.0, size=(n_cells, n_classes)) * on["target"],
            3.0 * rng.normal(size=(n_cells, n_classes)) * on["cost"],
            rng.gamma(1.0, size=n_cells) * on["clipped"],
            np.repeat(np.arange(n_classes), 2),
            np.dtype(dtype),
        )
        self.n_classes = n_classes
        of_two = RampKernel if ramp else BinaryKernel
        self.kernel = of_two() if n_classes == 2 else SoftmaxKernel(factor)
        self.codes = rng.integers(0, n_cells, N)
        self.y = self.tables.cell_labels[self.codes]
        self.labels = self.kernel.encode(self.y, np.dtype(dtype))
        self.margin = 2 * rng.normal(size=N if n_classes == 2 else (N, n_classes)).astype(dtype)
        near = np.abs(reference_loss(self.margin, self.y) - CAP) < 1e-2
        if ramp:
            near |= np.abs(np.abs(self.margin) - END) < 1e-2
        self.margin[near] = 0.0

    def probability(self, margin):
        p = np.empty_like(margin)
        with np.errstate(over="ignore"):
            self.kernel.link(margin, self.labels, p)
        return p

    def block(self, margin):
        p = self.probability(margin)
        return KernelBlock(p, margin, self.labels, self.codes, self.tables, CAP)

    def value(self, margin):
        return self.kernel.value(self.block(margin))

    def gradient(self, margin):
        grad, hess = np.empty_like(margin), np.empty_like(margin)
        self.kernel.gradient(self.block(margin), grad, hess)
        return grad, hess

    def product(self, margin, u):
        return self.kernel.hessian_product(self.block(margin), u)

    def directions(self):
        """Unit steps of each score of every row at once: rows do not interact."""
        if self.n_classes == 2:
            return [np.ones(N)]
        return [np.tile(e, (N, 1)) for e in np.eye(self.n_classes)]

    def hessians(self):
        """Exact Hessian of each row, (n, K, K), or (n,) for a binary margin."""
        columns = [self.product(self.margin, u) for u in self.directions()]
        return columns[0] if self.n_classes == 2 else np.stack(columns, axis=2)


def full(margin):
    """Scores (0, m) of a binary margin; scores as they are otherwise."""
    return np.stack([np.zeros_like(margin), margin], 1) if margin.ndim == 1 else margin


def chosen(margin, ramp=False):
    """What stands for the decision: the ramp, or mean softmax of scores and of half of them."""
    if ramp:
        positive = np.clip(0.5 + margin.astype(np.float64) / 4, 0, 1)
        return np.stack([1 - positive, positive], axis=1)
    scores = full(np.asarray(margin, dtype=np.float64))
    return (softmax(scores, axis=1) + softmax(scores / 2, axis=1)) / 2


def proxy_tables(cost, proxy):
    """Soft targets and expected costs of a 0-1 rate."""
    if proxy == "logistic":
        return logistic_targets(cost), np.zeros_like(cost)
    return np.zeros_like(cost), cost


def reference_loss(margin, y):
    scores = full(np.asarray(margin, dtype=np.float64))
    return logsumexp(scores - scores[np.arange(y.size), y][:, None], axis=1)
