"""Boosters of the labels and of the joint cells, which hold out the same rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import folds_of
from gbm_constrained.decision.rules import OTHER_DATA, calibrate_scores
from gbm_constrained.fit.callbacks import SearchNotifier
from gbm_constrained.fit.metric_problem import MetricProblem
from gbm_constrained.fit.native_models import HeldOutBoosters, NativeGrowth
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics import g_mean, h_mean

N = 600
GAP = gc.gap(gc.tpr(), by="g") <= 0.03


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=N) < 0.3).astype(int)
    group = np.where(rng.uniform(size=N) < 0.4, "b", "a")
    X = rng.normal(size=(N, 3)) + 0.9 * y[:, None] + 0.5 * (group == "b")[:, None]
    return X, y, group


class _Scores:
    """A model of fixed scores, one of them for the labels, and one for each cell."""

    def __init__(self, part):
        self.model = part

    def margin(self, X, rows):
        if not self.model.is_joint:
            return np.asarray(X)[:, 1]
        return score_cells(X, np.unique(self.model.target[self.model.rows]).size)

    def to_bytes(self):
        return b""


def score_cells(X, n_cells):
    return np.asarray(X) @ np.random.default_rng(5).normal(size=(3, n_cells))


def make_boosters(parameters, given, trained, *, n_rounds=6, are_log_odds=True):
    """Make boosters of two folds, each of which remembers what it was trained on."""
    options = SolverOptions.of(CLASSIFIERS["lightgbm"](**parameters))
    problem = MetricProblem.of(options, given, LibrarySettings(0.1, n_rounds))

    def fit_part(part):
        trained.append(part)
        return _Scores(part)

    n = len(problem.data.rows)
    folds = folds_of([np.arange(0, n, 2), np.arange(1, n, 2)], n)
    adapter = SimpleNamespace(fit_part=fit_part)
    growth = NativeGrowth(adapter, SearchNotifier([], n_rounds, 1), None)
    return HeldOutBoosters(problem, growth, folds, are_log_odds=are_log_odds)


def hold_out(data, trained, *, datasets=None, constraint=GAP, **options):
    X, y, group = data
    given = FitArguments(X, y, sensitive_features={"g": group}, datasets=datasets)
    parameters = {"maximize": g_mean(), "constraints": [constraint]}
    return make_boosters(parameters, given, trained, **options)


def code_cells(y, group):
    return 2 * y + (group == "b")


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def join(P, Q):
    """Compute P(label) Q(group | label) for the cells of two labels and two groups."""
    Q = Q.reshape(-1, 2, 2)
    return (P[:, :, None] * Q / Q.sum(axis=2, keepdims=True)).reshape(-1, 4)


def test_probabilities_are_of_the_label_times_the_group_given_the_label(data):
    X, _, _ = data
    trained = []
    boosters = hold_out(data, trained)
    found = boosters.grow()
    assert [part.is_joint for part in trained] == [False, False, True, True]
    P = softmax(np.column_stack([np.zeros(N), X[:, 1]]))
    Q = softmax(score_cells(X, 4))
    np.testing.assert_allclose(found, join(P, Q), rtol=1e-12)
    assert boosters.grow() is not None
    assert len(trained) == 4  # Boosters are grown once.


def test_both_boosters_are_calibrated_where_scores_are_no_log_odds(data):
    X, y, group = data
    boosters = hold_out(data, [], are_log_odds=False)
    scores = score_cells(X, 4)
    label_factors, label_scale = calibrate_scores(X[:, 1], y, 2, None)
    cell_factors, cell_scale = calibrate_scores(scores, code_cells(y, group), 4, None)
    P = softmax(np.column_stack([np.zeros(N), label_scale * X[:, 1]]) - np.log(label_factors))
    Q = softmax(cell_scale * scores - np.log(cell_factors))
    np.testing.assert_allclose(boosters.grow(), join(P, Q), rtol=1e-9)


def test_labels_have_the_mean_weight_of_their_cells(data):
    X, y, group = data
    weights, trained = np.array([0.5, 1.0, 2.0, 4.0]), []
    boosters = hold_out(data, trained)
    found = boosters.grow(weights)
    of_row = weights[code_cells(y, group)]
    mean = np.array([of_row[y == k].mean() for k in (0, 1)])
    for part in trained:
        np.testing.assert_allclose(part.factor, of_row if part.is_joint else mean[y], rtol=1e-12)
    np.testing.assert_allclose(boosters.row_factor(weights), mean[y], rtol=1e-12)
    P = softmax(np.column_stack([np.zeros(N), X[:, 1]]) - np.log(mean))
    Q = softmax(score_cells(X, 4) - np.log(weights))
    np.testing.assert_allclose(found, join(P, Q), rtol=1e-12)


def test_both_boosters_grow_in_step(data):
    X, y, group = data
    trained, seen = [], []
    boosters = hold_out(data, trained)

    def move(weights, probabilities):
        seen.append(probabilities)
        return weights * [1.0, 1.0, 1.0, 3.0]

    path, last = boosters.grow_in_step(3, move)
    assert [part.is_joint for part in trained] == [False, False, True, True] * 3
    assert {part.rounds for part in trained} == {2}
    for i, part in enumerate(trained):
        of_row = path[i // 4][code_cells(y, group)]
        mean = np.array([of_row[y == k].mean() for k in (0, 1)])
        np.testing.assert_allclose(part.factor, of_row if part.is_joint else mean[y], rtol=1e-12)
        if i >= 4:
            assert part.start.model is trained[i - 4]
    np.testing.assert_array_equal(boosters.grow(path), last)
    assert len(trained) == 12
    factors, scale, cells = boosters.link(path)
    assert ((factors == 1.0).all(), scale) == (True, 1.0)
    label_factors, label_scale = calibrate_scores(X[:, 1], y, 2, None)
    np.testing.assert_array_equal(cells.label_factors, label_factors)
    assert cells.label_scale == label_scale
    boosters.label_model(path)
    boosters.cell_model(path)
    assert [part.rounds for part in trained[12:]] == [2] * 6
    assert [part.is_joint for part in trained[12:]] == [False] * 3 + [True] * 3


def test_rows_of_further_data_are_no_labels(data):
    X, y, _ = data
    later = np.random.default_rng(1).normal(size=(60, 3))
    constraint = gc.selection_rate(on=gc.dataset("later")) <= 0.3
    trained = []
    boosters = hold_out(
        data, trained, datasets={"later": later}, constraint=constraint, are_log_odds=False
    )
    _, _, cells = boosters.link()
    assert (np.sort(cells.labels) == [OTHER_DATA, 0, 1]).all()
    np.testing.assert_array_equal(cells.label_factors, calibrate_scores(X[:, 1], y, 2, None)[0])
    for part in trained:
        assert (part.rows >= N).any() == part.is_joint
    found = boosters.grow()
    assert found.shape == (N + 60, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


# -- boosters of the labels alone, which grow in step --------------------------------------------


def test_boosters_of_the_folds_grow_in_step_and_move_by_calibrated_probabilities():
    rng = np.random.default_rng(0)
    y = np.tile([0, 0, 0, 1], 50)
    X = np.tile((rng.normal(size=200) + y)[:, None], 2)
    trained, seen = [], []
    boosters = make_boosters({"maximize": h_mean()}, FitArguments(X, y), trained, n_rounds=5)

    def move(weights, probabilities):
        seen.append((weights, probabilities))
        return weights * [1.0, 2.0]

    path, last = boosters.grow_in_step(3, move)
    np.testing.assert_array_equal(path, [[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    assert [part.rounds for part in trained] == [2, 2, 2, 2, 1, 1]
    for i, part in enumerate(trained):
        np.testing.assert_array_equal(part.rows, np.arange(1 - i % 2, 200, 2))
        np.testing.assert_array_equal(part.factor, path[i // 2][y])
        assert (part.start is None) == (i < 2)
        if i >= 2:
            assert part.start.model is trained[i - 2]
    # Scores are made probabilities by likelihood, whatever the weights were.
    factors, scale = calibrate_scores(X[:, 0], y, 2, None)
    odds = np.exp(scale * X[:, 0]) * factors[0] / factors[1]
    for probabilities in (*(p for _, p in seen), last):
        np.testing.assert_allclose(probabilities[:, 1], odds / (1 + odds), rtol=1e-9)
    assert last[:, 1].mean() == pytest.approx(0.25, abs=1e-4)
    # The same path is not grown again.
    np.testing.assert_array_equal(boosters.grow(path), last)
    assert len(trained) == 6


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_stages_are_no_more_than_rounds(n_rounds):
    y = np.tile([0, 0, 0, 1], 20)
    trained = []
    given = FitArguments(np.tile(y[:, None] * 1.0, 2), y)
    boosters = make_boosters({"maximize": h_mean()}, given, trained, n_rounds=n_rounds)
    path, _ = boosters.grow_in_step(3, lambda weights, _: weights)
    assert len(path) == n_rounds
    assert [part.rounds for part in trained] == [1] * 2 * n_rounds
