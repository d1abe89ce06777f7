"""Pair rates of audited classifiers: values, scores that are asked for, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc


@pytest.fixture(scope="module")
def rows():
    """Rows with a group, numbers as labels of two and of three classes, and weights."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    X["g"] = rng.integers(0, 2, 600)
    y = (X["a"] + 0.8 * X["g"] * X["b"] + rng.normal(size=600) > 0).to_numpy().astype(int)
    return X, y, y + (X["c"] > 0.3).to_numpy(), rng.gamma(2.0, size=600)


class Ranks:
    """A classifier of given scores, which may have no order, and may be of any shape."""

    classes_ = np.array([0, 1])

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def predict(self, X):
        return np.arange(len(X)) % 2

    def decision_function(self, X):
        return self.scores


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "model",
    [LinearSVC(), make_pipeline(StandardScaler(), LogisticRegression()), GaussianNB()],
    ids=["scores", "pipeline", "probabilities"],
)
def test_pair_rates_are_those_of_scikit_learn(model, weighted, rows):
    X, y, _, weight = rows
    w = weight if weighted else None
    model = model.fit(X, y)
    ask = getattr(model, "decision_function", lambda X: model.predict_proba(X)[:, 1])
    of = gc.audit(
        model,
        X,
        y,
        [gc.auc() >= 0.7, gc.gap(gc.auc(), by="g") <= 0.2, gc.fpr() <= 0.5],
        sample_weight=w,
    )
    assert of.frame["value"][0] == pytest.approx(
        roc_auc_score(y, ask(X), sample_weight=w), abs=1e-12
    )
    for k, rate in enumerate(of.groups["rate"]):
        own = (X["g"] == k).to_numpy()
        weight_of_group = None if w is None else w[own]
        expected = roc_auc_score(y[own], ask(X)[own], sample_weight=weight_of_group)
        assert rate == pytest.approx(expected, abs=1e-12)
        assert of.groups["rows"][k] == min((y[own] == 0).sum(), (y[own] == 1).sum())
    assert of.frame["value"][1] == pytest.approx(np.ptp(of.groups["rate"]), abs=1e-12)
    assert (of.frame["low"] <= of.frame["value"]).all()
    assert (of.frame["value"] <= of.frame["high"]).all()
    assert (of.groups["low"] < of.groups["rate"]).all()


@pytest.mark.parametrize(
    "model", [LogisticRegression(max_iter=500), DecisionTreeClassifier()], ids=["soft", "certain"]
)
def test_one_class_against_the_rest_is_ranked_by_its_probability(model, rows):
    X, _, y, weight = rows
    model = model.fit(X[:400], y[:400])
    rules = [gc.auc(label=k) >= 0.5 for k in range(3)]
    of = gc.audit(model, X, y, rules, sample_weight=weight)
    p = model.predict_proba(X)
    expected = [roc_auc_score(y == k, p[:, k], sample_weight=weight) for k in range(3)]
    np.testing.assert_allclose(of.frame["value"], expected, rtol=0, atol=1e-12)


def test_classes_that_are_not_sorted_turn_the_scores(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy()
    turned = Ranks(-scores)
    turned.classes_ = np.array([1, 0])
    found = [gc.audit(m, X, y, gc.auc() >= 0.5).frame["value"][0] for m in (Ranks(scores), turned)]
    assert found[0] == found[1] == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
    positive = gc.audit(Ranks(scores), X, y, gc.auc() >= 0.1, positive=0).frame["value"][0]
    assert positive == pytest.approx(roc_auc_score(y == 0, -scores), abs=1e-12)


def test_infinite_scores_are_ordered_and_constant_ones_tie(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy().copy()
    scores[:20], scores[20:40] = np.inf, -np.inf
    of = gc.audit(Ranks(scores), X, y, gc.auc() >= 0.5)
    finite = np.where(np.isinf(scores), np.sign(scores) * 1e9, scores)
    assert of.frame["value"][0] == pytest.approx(roc_auc_score(y, finite), abs=1e-12)
    of = gc.audit(DummyClassifier().fit(X, y), X, y, gc.auc() >= 0.6)
    assert of.frame[["value", "low", "high"]].to_numpy().tolist() == [[0.5, 0.5, 0.5]]
    assert of.frame["verdict"].tolist() == ["missed"]


def test_rows_of_both_sides_are_counted_and_few_of_one_side_cannot_be_told(rows):
    X, y, *_ = rows
    few = np.r_[np.flatnonzero(y == 1)[:12], np.flatnonzero(y == 0)]
    scores = X["a"].to_numpy()[few]
    of = gc.audit(Ranks(scores), X.iloc[few], y[few], gc.auc() >= 0.75)
    assert of.frame["rows"].tolist() == [few.size]
    assert of.frame["verdict"].tolist() == ["cannot be told"]
    assert "12 rows" in of.frame["detail"][0]


def test_models_without_scores_are_refused_before_anything_is_asked(rows):
    X, y, *_ = rows

    class Untouchable:
        classes_ = np.array([0, 1])

        def predict(self, X):
            raise AssertionError("asked")

    message = r"auc >= 0\.5 compares scores, and {} has neither decision_function nor"
    with pytest.raises(TypeError, match=message.format("Untouchable")):
        gc.audit(Untouchable(), X, y, gc.auc() >= 0.5)
    ranks = Ranks(X["a"])
    with pytest.raises(TypeError, match=message.format("plain")):
        gc.audit(ranks, X, y, gc.auc() >= 0.5, others={"plain": Untouchable()})
    with pytest.raises(ValueError, match="bounds a rate of predicted classes, and a regressor"):
        gc.audit(LinearRegression().fit(X, y), X, y, gc.auc() >= 0.5)
    with pytest.raises(AssertionError, match="asked"):
        gc.audit(Untouchable(), X, y, gc.fpr() <= 0.5)


def test_scores_without_order_and_of_other_shapes_are_refused(rows):
    X, y, *_ = rows
    scores = X["a"].to_numpy().copy()
    scores[:7] = np.nan
    with pytest.raises(ValueError, match="Ranks returned NaN as the score of 7 of 600 rows"):
        gc.audit(Ranks(scores), X, y, gc.auc() >= 0.5)
    with pytest.raises(ValueError, match=r"Ranks.decision_function returned an array of shape"):
        gc.audit(Ranks(np.zeros((600, 2))), X, y, gc.auc() >= 0.5)


def test_an_audit_of_pair_rates_is_written_and_read(rows, tmp_path):
    X, y, *_ = rows
    rules = [gc.gap(gc.cross_auc(), by="g") <= 0.1, gc.gap(gc.mean_rank(), by="g") <= 0.1]
    of = gc.audit(LogisticRegression().fit(X, y), X, y, rules, others={"other": Ranks(X["b"])})
    again = type(of).from_json(of.to_json())
    for name in ("frame", "groups", "models"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(of, name))
    of.groups.to_csv(tmp_path / "groups.csv", index=False)
    read = pd.read_csv(tmp_path / "groups.csv")
    np.testing.assert_allclose(read["low"], of.groups["low"], rtol=1e-12)
    assert of.models["value[gap(cross_auc, by='g') <= 0.1]"].notna().all()
    page = of.to_html()
    assert "gap(cross_auc, by=&#39;g&#39;) &lt;= 0.1" in page
    assert "<svg" in page
