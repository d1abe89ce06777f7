"""Ramp rates on a9a, as the source paper measures them, and the ramp as a proxy in boosters."""

from __future__ import annotations

import time

import numpy as np
import pytest
from a9a import FEMALE, MALE, load_a9a
from dataset_rate_problems import ramp_values
from helpers import CLASSIFIERS, EITHER
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.linear_model import ConstrainedLogisticRegression, WeightedSVM
from gbm_constrained.solvers import ABPP
from gbm_constrained.solvers.dataset_rates import (
    MajorizationMinimization,
    RateProblem,
    find_start,
    ramp,
)


class Linear:
    """Decisions of coefficients on rows of another table."""

    def __init__(self, X, coefficients):
        self.z = X @ coefficients[:-1] + coefficients[-1]
        self.decided = self.z >= 0

    def error(self, y):
        return (self.decided != y).mean()


def problem_of(members, costs, bounds, names):
    """Data sets as rows of indicators, each divided by its size."""
    members = np.array(members, dtype=float)
    shares = sparse.csr_array(members / members.sum(axis=1, keepdims=True))
    return RateProblem.of(shares, costs, np.array(bounds), names)


def test_without_a_rule():
    """Errors and the ratio of men to women that are selected, of a support vector machine."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    costs = ~y / y.size, y / y.size
    test = Linear(test_X, WeightedSVM(X, 2 / y.size).minimize(*costs, 1e-5).coefficients)
    is_male, is_female = (test_X[:, [sex]].toarray().ravel() == 1 for sex in (MALE, FEMALE))
    ratio = test.decided[is_male].mean() / test.decided[is_female].mean()
    assert test.error(test_y) == pytest.approx(0.150, abs=0.001)
    assert ratio == pytest.approx(3.46, abs=0.1)


@pytest.mark.parametrize(("u", "error"), [(2.0, 0.1565), (1.25, 0.164), (1.0, 0.17)])
def test_ratio_of_selection_rates_by_sex(u, error):
    """Men are selected at most u times as often as women; 20 s are allowed on one core."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    is_male = X[:, [MALE]].toarray().ravel() == 1
    costs = np.zeros((2, 4, 2))
    costs[0, 0, 0], costs[0, 1, 1] = y.mean(), 1 - y.mean()
    costs[1, 2, 1], costs[1, 3, 0] = 1 / u, 1.0
    problem = problem_of([y, ~y, is_male, ~is_male], costs, [1.0], ("ratio",))
    model, method = WeightedSVM(X, 2 / y.size), MajorizationMinimization()
    began = time.process_time()
    steps = method.solve(problem, model, find_start(problem, model, method)[0])
    assert time.process_time() - began <= 20.0
    assert max(step.violation for step in steps) <= 1e-9
    assert (np.diff([step.objective for step in steps]) <= 1e-9).all()
    z = model.scores(steps[-1].coefficients)
    assert ramp(z)[is_male].mean() / ramp(z)[~is_male].mean() <= u + 1e-6
    assert (z >= 0)[is_male].mean() / (z >= 0)[~is_male].mean() == pytest.approx(u, abs=0.05)
    test = Linear(test_X, steps[-1].coefficients)
    is_male = test_X[:, [MALE]].toarray().ravel() == 1
    is_female = test_X[:, [FEMALE]].toarray().ravel() == 1
    assert test.decided[is_male].mean() / test.decided[is_female].mean() <= u + 0.05
    assert test.error(test_y) <= error


def test_churn_and_recall_against_a_deployed_model():
    """Errors on labelled rows, churn on unlabelled ones, and recall no worse than deployed."""
    X, y = load_a9a()
    test_X, test_y = load_a9a("a9a.t")
    rows = np.random.default_rng(0).permutation(y.size)
    old, labelled, unlabelled = rows[:3000], rows[3000:13_000], rows[13_000:23_000]
    deployed = WeightedSVM(X[old], 2 / 3000).minimize(~y[old] / 3000, y[old] / 3000, 1e-5)
    deployed = deployed.coefficients
    on_labelled, on_unlabelled = Linear(X[labelled], deployed), Linear(X[unlabelled], deployed)
    none, positive = np.zeros(10_000), y[labelled]
    recall = on_labelled.decided[positive].mean()
    selected = on_unlabelled.decided
    members = [
        np.append(positive, none),
        np.append(~positive, none),
        np.append(none, selected),
        np.append(none, ~selected),
    ]
    costs = np.zeros((3, 4, 2))
    costs[0, 0, 0], costs[0, 1, 1] = positive.mean(), 1 - positive.mean()
    costs[1, 2, 0], costs[1, 3, 1] = selected.mean(), 1 - selected.mean()
    costs[2, 0, 0] = 1.0
    problem = problem_of(members, costs, [0.02, 1 - recall], ("churn", "recall"))
    model = WeightedSVM(sparse.csr_array(sparse.vstack([X[labelled], X[unlabelled]])), 2 / 10_000)
    method = MajorizationMinimization()
    began = time.process_time()
    start, _ = find_start(problem, model, method, deployed)
    steps = method.solve(problem, model, start)
    assert time.process_time() - began <= 20.0
    z = model.scores(steps[-1].coefficients)
    assert 0.8 * 0.02 <= ramp_values(problem, z)[1] <= 0.02 + 1e-6
    assert problem.hard_values(z)[1] <= 0.02
    test, before = Linear(test_X, steps[-1].coefficients), Linear(test_X, deployed)
    assert test.error(test_y) <= min(0.151, before.error(test_y))
    assert (test.decided != before.decided).mean() <= 0.02
    assert test.decided[test_y].mean() >= before.decided[test_y].mean() - 0.005


ROUNDS = {
    "n_estimators": 50, "learning_rate": 0.2, "measure_on": gc.CrossFit(3),
    "random_state": 0, "n_jobs": 1,
}  # fmt: skip


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.slow)])
def split(request):
    """Adult with its texts as codes: features, labels and sexes of training and test rows."""
    data = load_adult(download=False)
    X = data.data.copy()
    for name in X.select_dtypes(exclude="number"):
        X[name] = X[name].cat.codes
    y, sex = data.target.to_numpy(), data.sensitive_features["sex"].to_numpy()
    return train_test_split(X, y, sex, test_size=0.3, stratify=y, random_state=request.param)


@EITHER
def test_a_gap_on_adult_is_met_at_the_accuracy_of_the_sigmoid(library, split):
    """Out of fold; on the test rows within two standard errors of a difference of two rates."""
    X, X_test, y, y_test, sex, sex_test = split
    accuracy = {}
    for proxy in ("sigmoid", "ramp"):
        clf = CLASSIFIERS[library](
            constraints=[gc.gap(gc.selection_rate(), by="sex") <= 0.01],
            solver=ABPP(proxy=proxy), **ROUNDS,
        )  # fmt: skip
        clf.fit(X, y, sensitive_features={"sex": sex})
        decided = clf.predict(X_test)
        accuracy[proxy] = np.mean(decided == y_test)
        rows = [decided[sex_test == of] for of in ("Female", "Male")]
        error = np.sqrt(sum(of_sex.var() / of_sex.size for of_sex in rows))
        assert clf.constraint_report_["held_out"][0] <= 0.01
        assert np.ptp([of_sex.mean() for of_sex in rows]) <= 0.01 + 2 * error
        assert clf.multipliers_.max() > 0.1
    assert accuracy["ramp"] >= accuracy["sigmoid"] - 0.003


# No weight is needed in a leaf, and none is added to its Hessian.
BARE = {
    "xgboost": {"min_child_weight": 0, "reg_lambda": 0},
    "lightgbm": {"min_sum_hessian_in_leaf": 0, "min_child_samples": 1, "reg_lambda": 0},
}


@EITHER
def test_rows_that_nothing_pulls_leave_scores_finite(library):
    """Unlabelled rows beyond the end of the ramp have neither gradient nor Hessian."""
    rng = np.random.default_rng(0)
    X, recent = rng.normal(size=(1500, 4)), rng.normal(size=(800, 4))
    y = (X[:, 0] + 0.7 * rng.normal(size=1500) > 0.5).astype(int)
    deployed = DecisionTreeClassifier(max_depth=1).fit(recent, recent[:, 1] > 0)
    clf = CLASSIFIERS[library](
        constraints=[gc.churn(to=deployed, on=gc.dataset("recent")) <= 0.15],
        solver=ABPP(proxy="ramp"), measure_on="train", n_estimators=60, n_jobs=1,
        **BARE[library],
    )  # fmt: skip
    clf.fit(X, y, datasets={"recent": recent})
    scores = clf.predict_proba(recent)
    assert np.isfinite(np.log(scores)).all()
    assert np.mean(clf.predict(recent) != deployed.predict(recent)) <= 0.15
    assert clf.multipliers_.max() > 0


@pytest.mark.parametrize("kind", [*CLASSIFIERS.values(), ConstrainedLogisticRegression])
def test_several_classes_are_refused_before_training(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), np.repeat([0, 1, 2], 30)
    name = "constraint_solver" if kind is ConstrainedLogisticRegression else "solver"
    clf = kind(constraints=[gc.class_error(0) <= 0.1], **{name: ABPP(proxy="ramp")})
    with pytest.raises(ValueError, match="margin of two classes, and y has 3: use proxy='sigm"):
        clf.fit(X, y)
    assert not hasattr(clf, "constraint_report_")
