"""Linear models for the G-mean of section 6.1 of Jiang et al. (ICML 2020), from black-box calls.

The positive rows lie between two clouds of negative rows, so that the likelihood knows no good
direction. The best of all lines has a loss of 0.3151.
"""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import BlackBox, surrogate
from gbm_constrained.solvers.black_box import (
    AdaptiveSurrogates,
    BlackBoxProblem,
    LinearSpace,
    find_shift,
    minimize_black_box,
)

CLASSES = np.array([0, 1])


def draw(rng, n):
    y = (rng.random(n) < 0.1).astype(int)
    centre = np.where(y == 1, 0.0, rng.choice([-1.0, 1.0], size=n))
    noise = rng.normal(size=(n, 2)) * np.sqrt(np.where(y == 1, 0.2, 0.1))[:, None]
    return np.column_stack([centre[:, None] + noise, np.ones(n)]), y


def g_mean_loss(y, scores):
    decided = scores > 0
    return 1.0 - float(np.sqrt(decided[y == 1].mean() * (~decided[y == 0]).mean()))


def set_up(seed):
    rng = np.random.default_rng(seed)
    (X, y), (V, v), test = draw(rng, 2222), draw(rng, 1111), draw(rng, 20_000)
    hinges = [surrogate("hinge", on=label(c)) for c in CLASSES]
    box = BlackBox(g_mean_loss, surrogates=hinges)
    model = LogisticRegression(fit_intercept=False).fit(X, y)
    metric = box.bind(Rows(v, CLASSES), v)
    surrogates = box.bind_surrogates(Rows(y, CLASSES))
    problem = BlackBoxProblem(LinearSpace(X, V), surrogates, metric)
    return problem, model.coef_[0], (X, y), V, test


def minimize(problem, start, seed):
    options = AdaptiveSurrogates(
        n_iterations=40, n_perturbations=20, sigma=1.0, step_size=1.0, proximal_weight=1e-6
    )
    return minimize_black_box(problem, start, [], options, np.random.RandomState(seed))


def best_weighted_hinge(X, y, T, t):
    """The best loss on test rows of lines that minimise a weighted sum of both hinges exactly."""
    signed, found = (2 * y - 1)[:, None] * X, []
    constraints = sparse.csr_matrix(np.hstack([-signed, signed, -np.eye(y.size)]))
    for weight in (0.49, 0.5, 0.51, 0.52):
        shares = np.where(y == 1, weight / y.sum(), (1 - weight) / (1 - y).sum())
        costs = np.concatenate([np.zeros(6), shares])
        line = linprog(costs, constraints, -np.ones(y.size), bounds=(0, None)).x[:6]
        found.append(g_mean_loss(t, T @ (line[:3] - line[3:])))
    return min(found)


def test_lines_are_as_good_as_the_best_weights_of_the_surrogates():
    """All weights, tried by a linear programme, leave no line that is better by a hundredth.

    Hinges of both classes are equal for all directions of short lines, so that the training rows
    decide which of them are found at all.
    """
    problem, start, (X, y), V, (T, t) = set_up(1)
    start[-1] += find_shift(problem.metric, V @ start, 1200)[0]
    found = minimize(problem, start, 1)
    assert found.loss <= found.iterates[0].loss
    ours, shifted = (g_mean_loss(t, T @ line) for line in (found.parameters, start))
    assert ours < best_weighted_hinge(X, y, T, t) + 0.01
    assert ours < shifted - 0.05


def test_a_model_that_predicts_no_positive_is_on_a_plateau():
    problem, start, _, _, _ = set_up(0)
    with pytest.warns(UserWarning, match=r"No perturbation .* changes the black-box metric"):
        found = minimize_black_box(
            problem, start, [], AdaptiveSurrogates(), np.random.RandomState(0)
        )
    assert found.loss == 1.0
    assert found.ended == "plateau"
