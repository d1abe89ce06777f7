"""Values of audits agree with scikit-learn and with counting."""

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH, CLASSIFIERS
from lightgbm import LGBMClassifier
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import gbm_constrained as gc
from gbm_constrained.cli.model_files import open_model, save_estimator
from gbm_constrained.constraints.presets import DemographicParity, EqualizedOdds, NeymanPearson


def value_by_hand(y, decided, sensitive, probability, weight):
    """Each rule of RULES, with scikit-learn or by counting."""

    def mean(event, inside=True):
        inside = np.broadcast_to(inside, y.shape)
        return np.average(event[inside], weights=weight[inside])

    sex, site = sensitive["sex"].to_numpy(), sensitive["site"].to_numpy()
    selected = {s: mean(decided == 1, sex == s) for s in "FM"}
    false_alarms = {s: mean(decided == 1, (site == s) & (y == 0)) for s in "abc"}
    given = {"sample_weight": weight}
    return [
        1 - metrics.recall_score(y, decided, **given),
        1 - metrics.recall_score(y, decided, pos_label=0, **given),
        metrics.precision_score(y, decided, **given),
        metrics.f1_score(y, decided, **given),
        metrics.accuracy_score(y, decided, **given),
        abs(selected["F"] - selected["M"]),
        min(selected.values()) / max(selected.values()),
        max(false_alarms.values()),
        max(false_alarms.values()) - min(false_alarms.values()),
        max(abs(v - mean(decided == 1, y == 0)) for v in false_alarms.values()),
        metrics.log_loss(y, probability, **given),
        mean(-np.log(probability[:, 1].astype(float)), y == 1),
        mean(decided == 1, sex == "F") - 0.5 * mean(decided == 1),
    ]


RULES = [
    gc.fnr() <= 0.3,
    gc.fpr() <= 0.1,
    gc.precision() >= 0.6,
    gc.f1() >= 0.4,
    gc.accuracy() >= 0.7,
    gc.gap(gc.selection_rate(), by="sex") <= 0.05,
    gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
    gc.each(gc.fpr(), by="site") <= 0.2,
    gc.gap(gc.fpr(), by="site") <= 0.05,
    gc.gap(gc.fpr(), by="site", reference=gc.overall) <= 0.05,
    gc.log_loss() <= 0.5,
    gc.log_loss(on=gc.label(1)) <= 0.9,
    gc.selection_rate(on={"sex": "F"}) - 0.5 * gc.selection_rate() <= 0.2,
]


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_scikit_learn(fitted, unseen, weighted):
    X, y, sensitive, weight = unseen
    weight = weight if weighted else np.ones(y.size)
    of = gc.audit(
        fitted, X, y, RULES,
        sensitive_features=sensitive, sample_weight=weight if weighted else None,
    )  # fmt: skip
    probability = fitted.predict_proba(X)
    expected = value_by_hand(y, fitted.predict(X), sensitive, probability, weight)
    # XGBoost's probabilities are in single precision, and so is scikit-learn's loss of them.
    np.testing.assert_allclose(of.frame["value"], expected, rtol=1e-6)
    assert of.accuracy.value == pytest.approx(expected[4])
    assert (of.frame["low"] <= of.frame["value"]).all()
    assert (of.frame["value"] <= of.frame["high"]).all()
    assert of.model == type(fitted).__name__
    assert of.weighted is weighted
    n, negatives, positives = y.size, int((y == 0).sum()), int((y == 1).sum())
    over = [positives, negatives, n, n, n, n, n, negatives, negatives, negatives, n, positives, n]
    assert of.frame["rows"].tolist() == over
    assert of.groups.columns.tolist() == ["constraint", "group", "rows", "rate", "low", "high"]
    assert len(of.groups) == 2 + 2 + 3 + 3 + 3


def test_weights_are_repetitions_in_values(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    times = np.random.default_rng(7).integers(1, 4, y.size)
    weighted = gc.audit(model, X, y, RULES, sensitive_features=sensitive, sample_weight=times)
    again = np.repeat(np.arange(y.size), times)
    repeated = gc.audit(model, X[again], y[again], RULES, sensitive_features=sensitive.iloc[again])
    np.testing.assert_allclose(weighted.frame["value"], repeated.frame["value"])
    np.testing.assert_allclose(weighted.groups["rate"], repeated.groups["rate"])
    # Repeated rows are not more rows: weights make intervals longer than counting twice does.
    widths = [a.frame["high"] - a.frame["low"] for a in (weighted, repeated)]
    assert (widths[0] > widths[1]).all()


def test_rows_of_weight_zero_are_left_out(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    kept = np.arange(y.size) % 3 > 0
    weighted = gc.audit(model, X, y, RULES, sensitive_features=sensitive, sample_weight=kept)
    part = gc.audit(model, X[kept], y[kept], RULES, sensitive_features=sensitive[kept])
    for name in ("frame", "groups"):
        pd.testing.assert_frame_equal(getattr(weighted, name), getattr(part, name))


def test_several_classes(several):
    X, y = several
    names = np.array(["w", "x", "y", "z"])
    model = LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1).fit(X[:800], names[y[:800]])
    X, y = X[800:], names[y[800:]]
    rules = [
        *NeymanPearson({"w": 0.2, "z": 0.5}),
        gc.confusion("w", "x") <= 0.2,
        gc.log_loss() <= 1.0,
    ]
    rules += [gc.tnr("w") >= 0.5]
    of = gc.audit(model, X, y, rules)
    decided = model.predict(X)
    table = metrics.confusion_matrix(y, decided, normalize="true")
    expected = [1 - table[0, 0], 1 - table[3, 3], table[0, 1],
                metrics.log_loss(y, model.predict_proba(X)),
                (decided[y != "w"] != "w").mean()]  # fmt: skip
    np.testing.assert_allclose(of.frame["value"], expected)
    assert of.classes == ("w", "x", "y", "z")
    w, z = ((y == name).sum() for name in "wz")
    assert of.frame["rows"].tolist() == [w, z, w, y.size, y.size - w]


def test_presets_and_fairlearn_s_constraints(unseen, binary):
    fairlearn = pytest.importorskip("fairlearn.reductions")
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    sex = {"sensitive_features": sensitive[["sex"]]}
    ours = gc.audit(model, X, y, DemographicParity(difference_bound=0.02), **sex)
    theirs = gc.audit(model, X, y, fairlearn.DemographicParity(difference_bound=0.02), **sex)
    pd.testing.assert_frame_equal(ours.frame, theirs.frame)
    assert len(gc.audit(model, X, y, [EqualizedOdds(), gc.fnr() <= 0.1], **sex).frame) == 3


def test_other_models_decisions(unseen, binary):
    X, y, _, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    old = LogisticRegression(C=1e-3).fit(binary[0][:500], binary[1][:500])
    rules = [gc.churn(to=old) <= 0.1, gc.churn(to=old.predict(X)) <= 0.1,
             gc.wins(over=old) / gc.losses(to=old) >= 1.0]  # fmt: skip
    of = gc.audit(model, X, y, rules)
    new, before = model.predict(X), old.predict(X)
    changed = np.mean(new != before)
    won, lost = ((new == y) & (before != y)).sum(), ((new != y) & (before == y)).sum()
    assert of.frame["value"].tolist() == pytest.approx([changed, changed, won / lost])


@pytest.fixture(scope="module")
def constrained(binary):
    X, y = binary
    model = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fnr() <= 0.2, gc.fpr() <= 0.3], n_estimators=20, verbose=-1, n_jobs=1
    )
    return model.fit(X[:500], y[:500])


def test_history_is_taken_along(constrained, unseen, binary):
    X, y, _, _ = unseen
    of = gc.audit(constrained, X, y, constrained.constraints)
    pd.testing.assert_frame_equal(of.history, constrained.history_)
    piped = make_pipeline(StandardScaler(), constrained).fit(binary[0][:500], binary[1][:500])
    assert gc.audit(piped, X, y, gc.fnr() <= 0.2).history is not None
    plain = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    plain.history_ = [1, 2]  # others have histories, too
    assert gc.audit(plain, X, y, gc.fnr() <= 0.2).history is None
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)
    assert gc.audit(search, X, y, gc.fnr() <= 0.2).history is None


@BOTH
def test_drawn_decisions_are_drawn_alike(library, unseen, binary, tmp_path):
    """Wherever the classifier that draws them is: by itself, wrapped, in a file."""
    X, y = pd.DataFrame(unseen[0]).add_prefix("x"), unseen[1]
    model = CLASSIFIERS[library](
        constraints=[gc.fnr() <= 0.1], iterate="randomized", n_estimators=20, n_jobs=1,
        **({"verbose": -1} if library == "lightgbm" else {}),
    ).fit(pd.DataFrame(binary[0][:500]).add_prefix("x"), binary[1][:500])  # fmt: skip
    model.prefixes_ = pd.DataFrame({"rounds": [1, 20], "probability": [0.5, 0.5]})
    assert (model.predict(X, random_state=0) != model.predict(X, random_state=1)).any()
    piped = make_pipeline(FunctionTransformer().fit(X), model)
    search = GridSearchCV(piped, {})
    search.best_estimator_ = piped
    save_estimator(model, tmp_path / "model.json", X)
    file = open_model(tmp_path / "model.json").name_classes([0, 1])
    for way in (model, piped, Pipeline([("only", model)]), search, file):
        first, second = (gc.audit(way, X, y, gc.fnr() <= 0.1).frame for _ in range(2))
        pd.testing.assert_frame_equal(first, second)


def test_other_models_are_compared(constrained, unseen, binary):
    X, y, _, _ = unseen
    plain = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    of = gc.audit(constrained, X, y, constrained.constraints, others={"plain": plain})
    alone = gc.audit(plain, X, y, constrained.constraints)
    assert of.models["model"].tolist() == ["ConstrainedLGBMClassifier", "plain"]
    pd.testing.assert_series_equal(of.models.iloc[1, 1:], alone.models.iloc[0, 1:],
                                   check_names=False)  # fmt: skip
    excess = np.maximum(alone.frame["value"] - alone.frame["bound"], 0).max()
    assert of.models["violation"][1] == pytest.approx(excess)
    assert of.models["accuracy"][1] == pytest.approx(plain.score(X, y))


def test_no_rules_leave_the_accuracy(unseen, binary):
    X, y, _, _ = unseen
    of = gc.audit(LogisticRegression().fit(X, y), X, y, [])
    assert of.frame.empty
    assert of.headline.startswith("No constraint was given; accuracy is 0.")
    again = gc.Audit.from_json(of.to_json())
    assert again.to_json() == of.to_json()
    one = gc.audit(LogisticRegression().fit(X, y), X, y, gc.gap(gc.fnr(), by="g") <= 0.5,
                sensitive_features={"g": np.arange(len(y)) % 2})  # fmt: skip
    for name in ("frame", "groups"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(of, name))
        # An empty table has the types of others.
        pd.testing.assert_series_equal(getattr(of, name).dtypes, getattr(one, name).dtypes)
    assert str(of)
    assert "No constraint was given" in of.to_html()
