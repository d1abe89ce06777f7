"""Decisions of a metric do not depend on weights or copies, order, names and idle constraints."""

import functools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import CLASSIFIERS
from scipy.special import log_softmax

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.fit.metric_fit import MetricFit
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics import f1_micro, g_mean, h_mean, min_recall, q_mean

N = 400
METRICS = {
    "g_mean": g_mean, "h_mean": h_mean, "q_mean": q_mean, "min_recall": min_recall,
    "f1_micro": lambda: f1_micro(default=0),
}  # fmt: skip
SOLVED = 1e-7  # Distance of value and bound at which a reduction ends.
EACH = pytest.mark.parametrize(("name", "is_constrained"), [
    ("g_mean", True), ("h_mean", False), ("q_mean", True), ("min_recall", False),
    ("min_recall", True), ("f1_micro", False), ("f1_micro", True),
])  # fmt: skip


class Scores:
    """An exact learner: the columns of X are the scores of the classes."""

    def margin(self, X, rows):
        return X

    def to_bytes(self):
        return b""


def draw():
    """Scores of three classes, labels drawn by their probabilities, and weights."""
    random = np.random.default_rng(0)
    scores = log_softmax(random.normal(size=(N, 3)) * 1.5 + [1.5, 0.0, -1.0], axis=1)
    uniform = random.random((N, 1))
    y = (uniform > np.exp(scores).cumsum(axis=1)).sum(axis=1).clip(max=2)
    return scores, y, random.integers(1, 4, N)


def find(name, X, y, weight=None, constraints=()):
    """Maximise a metric with the exact learner."""
    return find_optimum({"maximize": METRICS[name]()}, X, y, weight, constraints)


def find_optimum(objective, X, y, weight=None, constraints=()):
    """Fit with the exact learner, on rows that it has not learned in any case."""
    options = SolverOptions(tuple(constraints), measure_on="train", **objective)
    arguments = FitArguments(X, y, weight)
    fit = MetricFit(options, arguments, LibrarySettings(0.1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of training rows
        return fit.run(SimpleNamespace(fit_part=lambda part: Scores()))


@functools.cache
def find_weighted(name, is_constrained):
    """Fit the rows as they are drawn, which most tests compare with."""
    return find(name, *draw(), constraints_of(is_constrained))


def assert_equal(one, other):
    """Compare the optimum by labels, the bound, and the candidates without a search.

    The optimum by probabilities is found to `SOLVED`, and the bound is no better known.
    """
    assert one.solution.value == pytest.approx(other.solution.value, abs=1e-9)
    assert one.exact.bound == pytest.approx(other.exact.bound, abs=SOLVED)
    for of_one, of_other in zip(one.candidates[:2], other.candidates[:2], strict=True):
        assert of_one.name == of_other.name
        assert of_one.value == pytest.approx(of_other.value, abs=1e-9)
        assert of_one.violation == pytest.approx(of_other.violation, abs=1e-9)


OF_RECALLS = pytest.mark.parametrize(
    ("name", "is_constrained"), [("g_mean", True), ("q_mean", False), ("min_recall", True)]
)


def constraints_of(is_constrained, label=2):
    return [gc.selection_rate(label) <= 0.1] if is_constrained else []


@EACH
def test_weights_are_copies(name, is_constrained):
    X, y, weight = draw()
    constraints = constraints_of(is_constrained)
    weighted = find_weighted(name, is_constrained)
    copied = find(
        name, np.repeat(X, weight, axis=0), np.repeat(y, weight), constraints=constraints
    )
    assert_equal(weighted, copied)
    if name == "g_mean":
        unweighted = find(name, X, y, constraints=constraints)
        assert abs(unweighted.solution.value - weighted.solution.value) > 1e-4
        assert_equal(weighted, find(name, X, y, 7.5 * weight, constraints))


@EACH
def test_the_order_of_rows_does_not_matter(name, is_constrained):
    X, y, weight = draw()
    order = np.random.default_rng(0).permutation(N)
    constraints = constraints_of(is_constrained)
    assert_equal(
        find_weighted(name, is_constrained),
        find(name, X[order], y[order], weight[order], constraints),
    )


@OF_RECALLS
def test_names_of_classes_do_not_matter(name, is_constrained):
    X, y, weight = draw()
    names = np.array(["a", "m", "z"])
    assert_equal(
        find_weighted(name, is_constrained),
        find(name, X, names[y], weight, constraints_of(is_constrained, "z")),
    )


@OF_RECALLS
def test_the_order_of_classes_does_not_matter_to_the_optimum_by_probabilities(
    name, is_constrained
):
    """Ties go to the larger class, so that the rules themselves may be others."""
    X, y, weight = draw()
    names = np.array(["z", "m", "a"])
    one = find_weighted(name, is_constrained)
    other = find(name, X[:, ::-1], names[y], weight, constraints_of(is_constrained, "a"))
    assert one.exact.bound == pytest.approx(other.exact.bound, abs=SOLVED)
    for of_one, of_other in zip(one.candidates[:2], other.candidates[:2], strict=True):
        assert of_one.value == pytest.approx(of_other.value, abs=1e-9)


@pytest.mark.parametrize("name", list(METRICS))
def test_a_constraint_that_never_binds_does_not_matter(name):
    X, y, weight = draw()
    idle = [gc.selection_rate(1) <= 0.99, gc.error_rate() <= 0.99]
    assert_equal(find_weighted(name, False), find(name, X, y, weight, idle))


@OF_RECALLS
def test_the_same_fit_gives_the_same_mixture(name, is_constrained):
    one = find_weighted(name, is_constrained)
    two = find(name, *draw(), constraints_of(is_constrained))
    np.testing.assert_array_equal(one.chosen.costs, two.chosen.costs)
    np.testing.assert_array_equal(one.chosen.probability, two.chosen.probability)


@pytest.mark.parametrize(
    ("library", "metric"), [("xgboost", "g_mean"), ("lightgbm", "min_recall")]
)
def test_boosters_decide_alike(library, metric):
    """Names of classes, an idle constraint and weights of one change no tree."""
    X, y, _ = draw()
    names = np.array(["a", "b", "c"])
    own = {
        "n_estimators": 8,
        "n_jobs": 1,
        "maximize": metric,
        "random_state": 0,
        "measure_on": gc.CrossFit(3),
    }
    own |= {"verbose": -1} if library == "lightgbm" else {"max_depth": 3}
    make = CLASSIFIERS[library]
    first = make(**own).fit(X, y)
    expected = first.decision_probabilities(X)
    others = [
        make(**own).fit(X, y),
        make(**own).fit(X, y, sample_weight=np.ones(N)),
        make(**own, constraints=[gc.error_rate() <= 0.99]).fit(X, y),
    ]
    if library == "lightgbm":  # XGBoost takes positions of classes only.
        others.append(make(**own).fit(X, names[y]))
        assert list(others[-1].classes_) == list(names)
    for other in others:
        found, wanted = (
            model.metric_report_.set_index(["oracle", "decisions"]).held_out
            for model in (other, first)
        )
        assert set(found.index) == set(wanted.index)
        for at, value in wanted.items():
            # Values by labels move with the rules of the model, which are found so far.
            if at[1] not in ("model", "optimised"):
                assert found[at] == pytest.approx(value, abs=1e-9)
        np.testing.assert_allclose(other.decision_probabilities(X), expected, rtol=0, atol=1e-9)
    assert others[0].mixture_.equals(first.mixture_)


def test_whole_amounts_are_copies():
    """The least cost of a threshold, where a row costs as often as it counts."""
    X, y, amount = draw()
    X, y = X[:, 1:].max(axis=1) - X[:, 0], (y > 0).astype(int)
    matrix = np.array([[0.0, 1.0], [3.0, 0.5]])
    counted = find_optimum({"minimize": gc.cost(matrix, weight=amount)}, X, y)
    copies = [np.repeat(one, amount) for one in (X, y)]
    often = find_optimum({"minimize": gc.cost(matrix)}, *copies)
    found = [
        one.held.problem.loss.to_metric(one.solution.value) * len(one.held.rows)
        for one in (counted, often)
    ]
    tried = [amount @ matrix[y, (t < X).astype(int)] for t in (-np.inf, *X)]
    assert found == pytest.approx([min(tried)] * 2, rel=1e-12)
