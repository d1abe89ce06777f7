"""Linear models for the G-mean of section 6.1 of Jiang et al. (ICML 2020), from black-box calls.

The positive rows lie between two clouds of negative rows, so that the likelihood knows no good
direction. The best of all lines has a loss of 0.3151.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from gbm_constrained.constraints.selectors import label
from gbm_constrained.data.rows import Rows
from gbm_constrained.metrics import BlackBox, surrogate
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveSurrogates, minimize_black_box
from gbm_constrained.solvers.parameter_spaces import BlackBoxProblem, LinearSpace
from gbm_constrained.solvers.post_shift import find_shift

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
    surrogates = box.bind_surrogates(Rows(y, CLASSES), v.size)
    return BlackBoxProblem(LinearSpace(X, V), surrogates, metric), model.coef_[0], V, test


def minimize(problem, start, seed):
    options = AdaptiveSurrogates(
        n_iterations=40, n_perturbations=20, sigma=1.0, step_size=1.0, proximal_weight=1e-6
    )
    return minimize_black_box(problem, start, [], options, np.random.RandomState(seed))


def test_lines_beat_the_best_threshold():
    """Hinges of both classes are the same for all directions of short lines.

    The rows of a draw therefore decide whether the best direction is found.
    """
    ours, shifted = [], []
    for seed in range(5):
        problem, start, V, (T, t) = set_up(seed)
        start[-1] += find_shift(problem.metric, V @ start, 1200)[0]
        found = minimize(problem, start, seed)
        assert found.loss <= found.iterates[0].loss
        ours.append(g_mean_loss(t, T @ found.parameters))
        shifted.append(g_mean_loss(t, T @ start))
    assert np.sum(np.array(ours) <= 0.335) >= 2
    assert np.mean(ours) < np.mean(shifted) - 0.05


def test_a_model_that_predicts_no_positive_is_on_a_plateau():
    problem, start, _, _ = set_up(0)
    with pytest.warns(UserWarning, match=r"No perturbation .* changes the black-box metric"):
        found = minimize_black_box(
            problem, start, [], AdaptiveSurrogates(), np.random.RandomState(0)
        )
    assert found.loss == 1.0
    assert found.ended == "plateau"
