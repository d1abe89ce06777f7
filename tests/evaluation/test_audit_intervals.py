"""Intervals of audits are exact where there are exact ones, and cover the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from scipy import stats
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.constraints.comparisons import Ratio


def test_intervals_of_rates_are_exact(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    of = gc.audit(model, X, y, [gc.fnr() <= 0.3, gc.gap(gc.fpr(), by="sex") <= 0.1],
               sensitive_features=sensitive, level=0.9)  # fmt: skip
    decided = model.predict(X)
    exact = stats.binomtest(int(((y == 1) & (decided == 0)).sum()), int((y == 1).sum()))
    low, high = exact.proportion_ci(0.9, method="exact")
    assert of.frame.loc[0, ["low", "high"]].tolist() == pytest.approx([low, high])
    right = stats.binomtest(int((y == decided).sum()), y.size).proportion_ci(0.9, method="exact")
    assert of.accuracy[1:] == pytest.approx(tuple(right))
    women = (y == 0) & (sensitive["sex"] == "F").to_numpy()
    of_women = stats.binomtest(int((women & (decided == 1)).sum()), int(women.sum()))
    expected = [women.sum(), of_women.statistic, *of_women.proportion_ci(0.9, method="exact")]
    shown = of.groups.set_index("group").loc["sex=F", ["rows", "rate", "low", "high"]]
    assert shown.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("expression", "rates", "truth"),
    [
        (gc.each(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.1),
        (gc.gap(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.0),
        (gc.gap(gc.fnr(), by="g"), (0.05, 0.1, 0.1, 0.15), 0.1),
        (gc.gap(gc.fnr(), by="g", reference="3"), (0.05, 0.1, 0.1, 0.15), 0.1),
        (gc.ratio(gc.fnr(), by="g"), (0.4, 0.5, 0.6, 0.8), 0.5),
        (gc.ratio(gc.fnr(), by="g"), (0.5, 0.5, 0.5, 0.5), 1.0),
    ],
)
def test_intervals_of_several_groups_cover(expression, rates, truth):
    """The true worst group or pair lies within, in at least as many samples as the level says."""
    rng = np.random.default_rng(8)
    n, covered, repeats = 150, 0, 60
    given = {"sensitive_features": {"g": [*np.repeat(list("0123"), n), "0"]}}
    y, X = np.r_[np.ones(4 * n), [0]], np.ones((4 * n + 1, 1))
    for _ in range(repeats):
        decided = np.concatenate([rng.random(n) >= rate for rate in rates])
        rule = expression >= 0.5 if isinstance(expression, Ratio) else expression <= 0.5
        of = gc.audit(Decides(np.r_[decided, [0]]), X, y, rule, level=0.9, **given)
        covered += of.frame.loc[0, "low"] <= truth <= of.frame.loc[0, "high"]
    assert covered / repeats >= 0.9 - 3 * np.sqrt(0.09 / repeats)


def test_intervals_of_losses_cover():
    """Means, gaps and ratios of mean losses: about as often as the level says."""
    rng = np.random.default_rng(9)
    n, repeats = 400, 120
    y = np.tile([0, 1], n // 2)
    group = np.repeat(["a", "b"], n // 2)

    class Gives:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return (X[:, 0] > 0.5).astype(int)

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

    rules = [
        gc.log_loss() <= 0.5,
        gc.gap(gc.log_loss(), by="g") <= 0.2,
        gc.ratio(gc.log_loss(), by="g") >= 0.2,
        gc.log_loss(on={"g": "b"}) - gc.error_rate() <= 0.5,
    ]
    # Losses are exponential with means 0.4 and 0.6; a row is an error when its loss is > log 2.
    means = {"a": 0.4, "b": 0.6}
    errors = np.mean([np.exp(-np.log(2) / m) for m in means.values()])
    truth = np.array([0.5, 0.2, 2 / 3, 0.6 - errors])
    inside = np.zeros(4)
    for _ in range(repeats):
        loss = rng.exponential([means[g] for g in group])
        right = np.exp(-loss)
        X = np.where(y == 1, right, 1 - right)[:, None]
        frame = gc.audit(Gives(), X, y, rules, sensitive_features={"g": group}, level=0.9).frame
        inside += (frame["low"] <= truth) & (truth <= frame["high"])
    assert (np.abs(inside / repeats - 0.9) <= 0.09).all(), inside / repeats


def test_intervals_of_mean_losses_do_not_go_below_zero():
    """One row has nearly all of the loss."""
    y = np.zeros(80, dtype=int)
    y[-1] = 1

    class Sure:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

        def predict_proba(self, X):
            return np.tile([0.99, 0.01], (len(X), 1))

    rules = [
        gc.log_loss() <= 1.0,
        gc.each(gc.log_loss(), by="g") >= 0.01,
        gc.ratio(gc.log_loss(), by="g") >= 0.1,
    ]
    group = {"sensitive_features": {"g": ["a"] * 40 + ["b"] * 40}}
    report = gc.audit(Sure(), np.zeros((80, 1)), y, rules, **group)
    for table, name in ((report.frame, "value"), (report.groups, "rate")):
        assert (table["low"] >= 0.0).all()
        assert ((table["low"] <= table[name]) & (table[name] <= table["high"])).all()
    assert report.frame["low"].tolist()[0] == 0.0
    assert report.groups["low"].iloc[-1] == 0.0


def test_wins_over_losses_have_an_exact_interval():
    """Two wins and no loss prove nothing, whatever resampling says; a hundred do."""
    y = np.ones(1000, dtype=int)
    y[0] = 0
    for won, lost, verdict in ((2, 0, "cannot be told"), (100, 0, "met"), (30, 30, "missed")):
        old, new = y.copy(), y.copy()
        old[1 : 1 + won] = 0
        new[500 : 500 + lost] = 0
        rule = gc.wins(over=old) / gc.losses(to=old) >= 2.0
        frame = gc.audit(Decides(new), np.ones((1000, 1)), y, rule).frame
        low, high = stats.binomtest(won, won + lost).proportion_ci(0.95, method="exact")
        expected = [low / (1 - low), np.inf if high == 1.0 else high / (1 - high)]
        assert frame.loc[0, ["low", "high"]].tolist() == pytest.approx(expected)
        assert frame["verdict"].tolist() == [verdict]


@pytest.mark.parametrize("errors", [0, 3])
def test_odds_of_errors_have_an_exact_interval(errors):
    """A part of every row is a constant: thirty right rows prove little."""
    y = np.arange(30) % 2
    new = np.where(np.arange(30) < errors, 1 - y, y)
    rules = [
        gc.error_rate() / (1 - gc.error_rate()) <= 0.01,
        gc.error_rate() / gc.accuracy() <= 0.01,
        (1 - gc.accuracy()) / (2 - gc.error_rate()) <= 0.01,
    ]
    frame = gc.audit(Decides(new), np.ones((30, 1)), y, rules).frame
    p = np.array(stats.binomtest(errors, 30).proportion_ci(0.95, method="exact"))
    expected = [*[p / (1 - p)] * 2, p / (2 - p)]
    np.testing.assert_allclose(frame[["low", "high"]], expected, atol=1e-12)
    assert (frame["verdict"] == ("missed" if errors else "met")).all()


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
