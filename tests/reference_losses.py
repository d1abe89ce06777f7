"""Reference objectives of reductions, written from the paper's Section 2 and Table 1."""

from __future__ import annotations

import numpy as np

from gbm_constrained.reductions.mixtures import LinearFunction

TINY = 1e-12


class Recalls:
    """A loss of the first n functionals, the recalls; the others do not count."""

    kind = "smooth"

    def __init__(self, n, d=None):
        self.n, self.d = n, n if d is None else d

    def gradient(self, u):
        slope = np.zeros(self.d)
        slope[: self.n] = self.slope(np.asarray(u)[: self.n])
        return slope

    def value(self, u):
        return float(self.loss(np.asarray(u)[: self.n]))


class GMean(Recalls):
    def loss(self, u):
        return 1 - np.prod(np.maximum(u, 0)) ** (1 / self.n)

    def slope(self, u):
        u = np.maximum(u, TINY)
        return -(np.prod(u) ** (1 / self.n)) / (self.n * u)


class HMean(Recalls):
    def loss(self, u):
        return 1 - self.n / (1 / np.maximum(u, TINY)).sum()

    def slope(self, u):
        u = np.maximum(u, TINY)
        mean = self.n / (1 / u).sum()
        return -(mean**2) / (self.n * u**2)


class QMean(Recalls):
    def loss(self, u):
        return np.sqrt(((1 - u) ** 2).mean())

    def slope(self, u):
        return -(1 - u) / (self.n * max(self.loss(u), TINY))


class MinMax(Recalls):
    kind = "convex"

    def loss(self, u):
        return 1 - u.min()

    def slope(self, u):
        return -np.eye(self.n)[u.argmin()]


class Quadratic:
    """Squared distance to a point: smooth with beta = 2."""

    kind = "smooth"

    def __init__(self, centre):
        self.centre = np.asarray(centre)

    def value(self, u):
        return float(((u - self.centre) ** 2).sum())

    def gradient(self, u):
        return 2 * (u - self.centre)


class Ratio:
    """(a.u + a0) / (b.u + b0)."""

    kind = "ratio"

    def __init__(self, a, a0, b, b0):
        self.parts = np.asarray(a, dtype=float), float(a0), np.asarray(b, dtype=float), float(b0)

    def ratio(self):
        return self.parts

    def value(self, u):
        a, a0, b, b0 = self.parts
        return float((a @ u + a0) / (b @ u + b0))

    def gradient(self, u):
        a, _, b, b0 = self.parts
        return (a - self.value(u) * b) / (b @ u + b0)


def micro_f1(priors, d=None):
    """1 - 2 sum_{i > 0} C_ii / (2 - pi_0 - q_0), of recalls and then shares."""
    n = len(priors)
    size = 2 * n if d is None else d
    a, b = np.zeros(size), np.zeros(size)
    b[n] = -1.0
    a[n] = -1.0
    a[1:n] = -2 * priors[1:]
    return Ratio(a, 2 - priors[0], b, 2 - priors[0])


def balanced_error(n, d=None):
    """1 minus the mean of the recalls."""
    return LinearFunction(np.append(-np.full(n, 1 / n), np.zeros((d or n) - n)), 1.0)


class MacroF1:
    """1 - mean_i 2 pi_i u_i / (pi_i + q_i), of recalls and then shares."""

    kind = "other"

    def __init__(self, priors):
        self.priors = np.asarray(priors)
        self.n = len(priors)

    def value(self, u):
        recall, share = u[: self.n], u[self.n : 2 * self.n]
        return float(1 - (2 * self.priors * recall / (self.priors + share)).mean())

    def gradient(self, u):
        recall, share = u[: self.n], u[self.n : 2 * self.n]
        low = self.priors + share
        slope = np.append(-2 * self.priors / low, 2 * self.priors * recall / low**2) / self.n
        return np.append(slope, np.zeros(len(u) - 2 * self.n))


class KullbackLeibler:
    """sum_i pi_i log(pi_i / q_i) - within, of shares that stand behind `skip` functionals."""

    def __init__(self, priors, within, skip):
        self.priors, self.within, self.skip = np.asarray(priors), within, skip

    def value(self, u):
        share = u[self.skip : self.skip + len(self.priors)]
        if (share <= 0).any():
            return np.inf
        return float((self.priors * np.log(self.priors / share)).sum() - self.within)

    def gradient(self, u):
        slope = np.zeros(len(u))
        share = np.maximum(u[self.skip : self.skip + len(self.priors)], TINY)
        slope[self.skip : self.skip + len(self.priors)] = -self.priors / share
        return slope
