"""The ramp as a proxy: a gap on Adult, rows that nothing pulls, and what is refused."""

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.solvers import ABPP

ROUNDS = {
    "n_estimators": 50, "learning_rate": 0.2, "measure_on": gc.CrossFit(3),
    "random_state": 0, "n_jobs": 1,
}  # fmt: skip


@pytest.fixture(scope="module", params=[0, 1])
def split(request):
    """Adult with its texts as codes: features, labels and sexes of training and test rows."""
    data = load_adult(download=False)
    X = data.data.copy()
    for name in X.select_dtypes(exclude="number"):
        X[name] = X[name].cat.codes
    y, sex = data.target.to_numpy(), data.sensitive_features["sex"].to_numpy()
    return train_test_split(X, y, sex, test_size=0.3, stratify=y, random_state=request.param)


@BOTH
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


@BOTH
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
