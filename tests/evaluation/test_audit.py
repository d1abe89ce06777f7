"""Values of audits agree with scikit-learn and with counting."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from counted_data import Data, by
from dealt_rows import measure_deals, take_rows
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
from gbm_constrained.evaluation.audit import bind_audited, tabulate_decisions
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions


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


def decisions(wrong, n=1000):
    """All rows positive, the first so many missed; the negatives are right."""
    decided = np.ones(n)
    decided[:wrong] = 0
    return np.ones((2 * n, 1)), np.repeat([1, 0], n), Decides(np.r_[decided, np.zeros(n)])


@pytest.mark.parametrize(
    ("wrong", "rule", "verdict", "satisfied"),
    [
        (10, gc.fnr() <= 0.05, "met", True),
        (45, gc.fnr() <= 0.05, "met", True),
        (55, gc.fnr() <= 0.05, "missed within sampling error", False),
        (90, gc.fnr() <= 0.05, "missed", False),
        (10, gc.recall() >= 0.95, "met", True),
        (45, gc.recall() >= 0.95, "met", True),
        (55, gc.recall() >= 0.95, "missed within sampling error", False),
        (90, gc.recall() >= 0.95, "missed", False),
        (0, gc.fnr() <= 0.0, "met", True),
        (0, gc.fnr() <= 1.0, "met", True),
    ],
)
def test_verdicts(wrong, rule, verdict, satisfied):
    X, y, model = decisions(wrong)
    of = gc.audit(model, X, y, rule)
    assert of.frame["verdict"].tolist() == [verdict]
    assert of.frame["satisfied"].tolist() == [satisfied]
    low, high = of.frame.loc[0, ["low", "high"]]
    wrong_side = low > rule.bound if rule.sense == "<=" else high < rule.bound
    assert (verdict == "missed") == wrong_side
    beyond = high > rule.bound if rule.sense == "<=" else low < rule.bound
    (detail,) = of.frame["detail"]
    assert detail.startswith(verdict.split()[0])
    if verdict == "met":
        assert ("but the interval reaches beyond the bound" in detail) == beyond


def test_rules_that_print_alike_have_names_of_their_own():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(y), X, y, [gc.selection_rate(on=y == k) <= 0.4 for k in (0, 1)])
    names = [f"selection_rate[mask of 50 rows] <= 0.4{suffix}" for suffix in ("", " #2")]
    assert of.frame["constraint"].tolist() == names
    assert of.models[[f"value[{name}]" for name in names]].iloc[0].tolist() == [0.0, 1.0]
    pd.testing.assert_frame_equal(gc.Audit.from_json(of.to_json()).models, of.models)


def test_of_an_undefined_value_nothing_can_be_told():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(np.zeros(100)), X, y, [gc.precision() >= 0.5, gc.fnr() <= 0.1])
    assert of.frame["verdict"].tolist() == ["cannot be told", "missed"]
    assert of.frame["satisfied"].isna().tolist() == [True, False]
    assert np.isnan(of.models["value[precision >= 0.5]"][0])
    assert of.models["violation"][0] == pytest.approx(0.9)
    assert "value" in json.loads(of.to_json())["constraints"][0]
    assert json.loads(of.to_json())["constraints"][0]["value"] is None
    assert "no value" in of.to_html()


@pytest.mark.filterwarnings("ignore:.*fewer than min_group_size")
def test_a_small_group_without_an_event_is_not_certified():
    """Nine rows without an error say little: resampling them would say that none ever has one."""
    group = np.repeat(["large", "small"], [2000, 9])
    decided = np.where(np.arange(2009) < 20, 0, 1)
    y = np.r_[np.ones(2009), [0]]
    model = Decides(np.r_[decided, [0]])
    given = {"sensitive_features": {"g": np.r_[group, ["large"]]}}
    rules = [gc.each(gc.fnr(), by="g") <= 0.05, gc.each(gc.recall(), by="g") >= 0.95]
    of = gc.audit(model, np.ones((2010, 1)), y, rules, **given)
    assert of.frame["value"].tolist() == pytest.approx([0.01, 0.99])
    assert of.frame["verdict"].tolist() == ["cannot be told", "cannot be told"]
    assert of.frame["detail"].str.contains("9 rows of g=small").all()
    small = 1 - 0.025 ** (1 / 9)
    assert of.frame.loc[0, "high"] == pytest.approx(small)
    assert of.frame.loc[1, "low"] == pytest.approx(1 - small)
    of = gc.audit(model, np.ones((2010, 1)), y, gc.each(gc.fnr(), by="g") <= 0.05 + small, **given)
    assert of.frame["verdict"].tolist() == ["met"]
    # Nor is the rule missed for certain because nobody of nine was found to be wrong.
    of = gc.audit(model, np.ones((2010, 1)), y, gc.ratio(gc.fnr(), by="g") >= 0.8, **given)
    assert of.frame.loc[0, "value":"high"].tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert of.frame["verdict"].tolist() == ["cannot be told"]


N = 200
ON_MACHINES = [
    gc.fnr() <= 0.1,
    by(gc.selection_rate(), "region") <= 0.05,
    gc.precision() >= 0.7,
    by(gc.log_loss()) <= 0.2,
]


class Decided:
    """A classifier with given decisions and probabilities of its rows."""

    def __init__(self, decided, loss, y):
        self.classes_ = np.arange(2)
        self.decided = decided
        right = np.exp(-loss)
        second = np.where(y == 1, right, 1.0 - right)
        self.probability = np.column_stack([1.0 - second, second])

    def predict(self, X):
        return self.decided

    def predict_proba(self, X):
        return self.probability


@pytest.mark.parametrize("weighted", [False, True])
def test_tables_are_those_of_the_public_audit(weighted):
    data = Data(11, weighted=weighted)
    if weighted:
        data.weight = np.ceil(16.0 * data.weight) / 16.0
    loss = np.random.default_rng(11).uniform(0.01, 3.0, N)
    other = 1 - data.decided
    tables = []

    def measure(at, communicator):
        cells, compiled = bind_audited(ON_MACHINES, take_rows(data, at, communicator))
        scored = {
            "Decided": ScoredDecisions(data.decided[at], loss[at]),
            "other": ScoredDecisions(other[at], loss[at]),
        }
        found = tabulate_decisions(cells, compiled, scored)
        tables.append(found)
        frames = (found.frame, found.groups, found.models)
        numbers = [frame.select_dtypes("number").to_numpy(np.float64) for frame in frames]
        return [*numbers, found.n_rows, found.accuracy]

    measure_deals(measure, N, group=data.sex)
    models = [Decided(decided, loss, data.y) for decided in (data.decided, other)]
    given = {"sex": data.sex, "region": data.region}
    expected = gc.audit(
        models[0], np.zeros((N, 1)), data.y, ON_MACHINES, sensitive_features=given,
        sample_weight=data.weight, others={"other": models[1]},
    )  # fmt: skip
    assert expected.frame["verdict"].nunique() > 1
    for found in tables:
        assert (found.n_rows, found.weighted) == (N, weighted)
        for name in ("frame", "groups", "models"):
            pd.testing.assert_frame_equal(
                getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9
            )
