"""The reimplementation of NPMC in the benchmarks: the R package's printed example, exact duals.

``npcs`` prints the errors of its first example on test rows. Its rows are drawn anew here: R's
generator L'Ecuyer-CMRG, its normal numbers by inversion and its sampling with probabilities.
"""

from __future__ import annotations

import numpy as np
import pytest
from npmc import NPMC, cx_multipliers, er_multipliers, hooke_jeeves
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import ndtri
from sklearn.linear_model import LogisticRegression


class RStream:
    """R's ``set.seed(seed, kind = "L'Ecuyer-CMRG")``."""

    MODULI = (4294967087, 4294944443)

    def __init__(self, seed):
        def scrambled(value):
            return (69069 * value + 1) % 2**32

        for _ in range(50):
            seed = scrambled(seed)
        self.state = []
        for _ in range(6):
            seed = scrambled(seed)
            while seed >= self.MODULI[1]:
                seed = scrambled(seed)
            self.state.append(seed)

    def uniform(self):
        a, s = self.MODULI[0], self.state
        first = (1403580 * s[1] - 810728 * s[0]) % a
        second = (527612 * s[5] - 1370589 * s[3]) % self.MODULI[1]
        self.state = [s[1], s[2], first, s[4], s[5], second]
        return ((first - second) % a or a) * 2.328306549295727688e-10

    def normal(self, size):
        fine = 134217728
        drawn = [int(fine * self.uniform()) + self.uniform() for _ in range(size)]
        return ndtri(np.array(drawn) / fine)

    def case_1(self, n):
        """Case 1 of Tian and Feng (2021), as generate_data of the package draws it."""
        X = self.normal(5 * n).reshape(5, n).T
        centres = np.array([[-1, 2, 1, 1, 1], [1, 1, 0, 2, 0], [2, -1, -1, 0, 0]])
        # R looks through the classes from the likeliest on; of equal ones the later comes first.
        y = np.array([2, 1, 0])[np.digitize([self.uniform() for _ in range(n)], [0.4, 0.7])]
        return X + centres[y], y


@pytest.fixture(scope="module")
def example():
    stream = RStream(123)
    return stream.case_1(1000), stream.case_1(1000)


@pytest.fixture
def logistic():
    return LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)


def errors(y, decided):
    return [np.mean(decided[y == k] != k) for k in range(3)]


def test_the_example_of_the_r_package_comes_out_as_printed(example, logistic):
    (X, y), (X_test, y_test) = example
    plain = logistic.fit(X, y)
    assert errors(y_test, plain.predict(X_test)) == pytest.approx(
        [0.08904110, 0.13953488, 0.05405405], abs=5e-9
    )
    ours = NPMC(logistic, {0: 0.05, 2: 0.01}, weights=[0, 1, 0]).fit(X, y)
    assert errors(y_test, ours.predict(X_test)) == pytest.approx(
        [0.06849315, 0.29235880, 0.01228501], abs=5e-9
    )
    assert ours.multipliers_.feasible


def exact_cx(P, y, levels, weights):
    """The same dual as a linear programme: one variable for each row's best class."""
    n, K = P.shape
    priors = np.bincount(y, minlength=K) / n
    bounded = sorted(levels)
    cost = np.r_[np.full(n, 1 / n), [levels[k] - 1 for k in bounded]]
    above = [
        sparse.hstack([-sparse.eye(n), np.outer(P[:, k] / priors[k], [k == j for j in bounded])])
        for k in range(K)
    ]
    right = np.concatenate([-weights[k] * P[:, k] / priors[k] for k in range(K)])
    bounds = [(None, None)] * n + [(0, 200)] * len(bounded)
    found = linprog(cost, A_ub=sparse.vstack(above), b_ub=right, bounds=bounds)
    return found.x[n:], 1 - found.fun


def test_cx_solves_the_linear_programme(example, logistic):
    (X, y), _ = example
    P = logistic.fit(X, y).predict_proba(X)
    levels, weights = {0: 0.05, 2: 0.01}, np.array([0.0, 1.0, 0.0])
    found = cx_multipliers(P, y, levels, weights)
    multipliers, dual = exact_cx(P, y, levels, weights)
    assert found.values[[0, 2]] == pytest.approx(multipliers, abs=1e-5)
    assert found.dual == pytest.approx(dual, abs=1e-9)
    priors = np.bincount(y) / y.size
    assert found.costs == pytest.approx((weights + found.values) / priors)


def test_units_of_the_weights_are_those_of_the_multipliers(example, logistic):
    (X, y), _ = example
    P = logistic.fit(X, y).predict_proba(X)
    one, three = (cx_multipliers(P, y, {0: 0.05}, w * np.ones(3)) for w in (1 / 3, 1))
    assert three.values == pytest.approx(3 * one.values)
    assert three.costs == pytest.approx(one.costs)


def test_er_counts_errors_and_finds_what_a_grid_finds(example, logistic):
    (X, y), (X_new, y_new) = example
    P = logistic.fit(X, y).predict_proba(X_new)
    priors = np.bincount(y) / y.size
    weights = np.array([0.0, 1.0, 0.0])

    def counted(multiplier):
        costs = (weights + np.array([multiplier, 0, 0])) / priors
        wrong = errors(y_new, (P * costs).argmax(axis=1))
        # The Lagrangian of the problem, as Tian and Feng write it: errors and what they may be.
        return weights @ wrong + multiplier * (wrong[0] - 0.05)

    found = er_multipliers(P, y_new, {0: 0.05}, weights, priors)
    assert found.dual == pytest.approx(counted(found.values[0]), abs=1e-9)
    best = max(counted(value) for value in np.linspace(0, 5, 2001))
    assert found.dual >= best - 2e-3  # a pattern search of a function with steps


def test_bounds_that_cannot_be_met_are_known_by_the_dual():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    found = cx_multipliers(np.full((300, 3), 1 / 3), y, {0: 0.05, 1: 0.05})
    assert not found.feasible


def test_the_pattern_search_climbs_a_concave_function_within_its_box():
    peak = np.array([3.3, 250.0])
    found = hooke_jeeves(lambda x: -float(((x - peak) ** 2).sum()), np.zeros(2), 0.0, 200.0)
    assert found == pytest.approx([3.3, 200.0], abs=1e-5)


@pytest.mark.parametrize("refit", [True, False])
def test_er_keeps_half_of_each_class_for_the_costs(example, logistic, refit):
    (X, y), _ = example
    seen = []

    class Watched(LogisticRegression):
        def fit(self, X, y):
            seen.append(np.bincount(y))
            return super().fit(X, y)

    model = NPMC(Watched(), {"a": 0.05}, "ER", refit=refit, random_state=0)
    model.fit(X, np.array(["a", "b", "c"])[y])
    assert np.abs(seen[0] - np.bincount(y) / 2).max() <= 0.5
    assert len(seen) == 1 + refit
    assert set(model.predict(X)) == {"a", "b", "c"}
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


def test_wrong_arguments_are_named(example, logistic):
    (X, y), _ = example
    with pytest.raises(ValueError, match="method must be 'CX' or 'ER', got 'XC'"):
        NPMC(logistic, {0: 0.1}, "XC").fit(X, y)
    with pytest.raises(ValueError, match=r"levels names \[7\]"):
        NPMC(logistic, {7: 0.1}).fit(X, y)
