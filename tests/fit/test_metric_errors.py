"""Objectives, constraints and rows that do not fit together are refused before any training."""

from __future__ import annotations

import itertools

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER

import gbm_constrained as gc
from gbm_constrained.metrics import BlackBox, cost, f1_micro, g_mean, h_mean, metric, min_recall
from gbm_constrained.presets import Coverage, Quantification
from gbm_constrained.solvers import Reduction

OPTIONS = {
    "xgboost": {"max_depth": 2, "n_jobs": 1},
    "lightgbm": {"num_leaves": 4, "n_jobs": 1, "verbose": -1},
}


def make(library, **options):
    return CLASSIFIERS[library](
        **{"n_estimators": 3, "measure_on": gc.CrossFit(2), **OPTIONS[library], **options}
    )


def draw(n=240):
    rng = np.random.default_rng(0)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return rng.normal(size=(n, 3)) + y[:, None], y


@pytest.fixture
def without_training(monkeypatch):
    """Any training of either library is an error of another kind."""

    def refuse(*args, **kwargs):
        raise AssertionError("a booster was trained")

    monkeypatch.setattr(lgb.LGBMClassifier, "fit", refuse)
    monkeypatch.setattr(xgb.XGBClassifier, "fit", refuse)


def trace(C):
    return float(np.trace(C))


CASES = {
    "a function to call": (
        {"minimize": BlackBox(lambda y, scores: 0.5), "measure_on": "auto"}, ValueError,
        "takes y with two classes",
    ),
    "unknown label": ({"maximize": gc.recall("z")}, ValueError,
                      r"maximize=recall\('z'\): .* its classes are \[0, 1, 2\]"),
    "rate of two classes": ({"maximize": "tpr"}, ValueError, "maximize=tpr: .* positive="),
    "unknown default": ({"maximize": f1_micro("z")}, ValueError, "default='z' is not among"),
    "matrix of other classes": ({"minimize": cost([[0, 1], [1, 0]])}, ValueError,
                                "2 rows and y has 3 classes"),
    "unknown column": ({"maximize": h_mean(on={"z": 1})}, ValueError, "column 'z' is neither"),
    "NaN gradient": (
        {"maximize": metric(trace, kind="smooth", gradient=lambda C: np.nan * C)}, ValueError,
        r"gradient of metric\(trace\) is \[nan.*gradient=\) one that is finite",
    ),
    "gradient of another shape": (
        {"maximize": metric(trace, kind="smooth", gradient=lambda C: np.ones(2))}, ValueError,
        r"array of shape \(2,\): it must have the shape of the confusion matrix",
    ),
    "NaN value": ({"maximize": metric(lambda C: np.nan, kind="smooth")}, ValueError,
                  r"value of metric\(<lambda>\) is nan at .*give metric"),
    "no number": ({"maximize": metric(lambda C: C, kind="smooth")}, TypeError,
                  "must return a number, got array"),
    "kind contradicted": (
        {"maximize": metric(lambda C: trace(C) ** 2, kind="concave")}, ValueError,
        r"kind='concave' of metric\(<lambda>\) does not hold: between .* and .*kind='other'",
    ),
    "not linear": ({"minimize": metric(lambda C: trace(C) ** 2, kind="linear")}, ValueError,
                   "kind='linear' .* does not hold"),
    "convex maximised": ({"maximize": metric(lambda C: trace(C) ** 2, kind="convex")}, ValueError,
                         "use minimize="),
    "solver without kinks": ({"maximize": min_recall(), "solver": "frank_wolfe"}, ValueError,
                             "solver='frank_wolfe' needs a differentiable.*'columns'"),
    "solver of ratios": ({"maximize": g_mean(), "solver": "bisection"}, ValueError,
                         "solver='bisection' needs a ratio.*'columns'"),
    "solver of ratios missing": ({"maximize": f1_micro(), "solver": "columns"}, ValueError,
                                 "solver='columns' needs a convex.*'bisection'"),
    "solver of losses": ({"maximize": g_mean(), "solver": "abpp"}, ValueError,
                         "solver must be one of"),
    "solver without metric": ({"solver": "columns"}, ValueError, "give maximize= or minimize="),
    "deterministic": ({"maximize": "g_mean", "solver": Reduction(deterministic=3)}, ValueError,
                      r"deterministic of Reduction must be one of \[None, True, False\], got 3"),
    "ratio without a value": ({"maximize": gc.precision(1)}, ValueError,
                              "denominator of the ratio is 0.0 for a decision rule"),
    "guarantee": ({"maximize": "g_mean", "guarantee": "expected"}, ValueError,
                  "guarantee='expected' has no meaning"),
    "targets of other classes": (
        {"maximize": "g_mean", "constraints": [Coverage(within=0.1, to=[0.5, 0.5])]}, ValueError,
        "to= of Coverage has 2 targets, and the classes of y are .*one target for each",
    ),
    "divergence without metric": ({"constraints": [Quantification(within=0.1)]}, ValueError,
                                  r"Quantification\(within=0.1\) .*give maximize= or"),
    "loss beside a metric": ({"maximize": "g_mean", "constraints": [gc.log_loss() <= 1.0]},
                             ValueError, "log_loss <= 1 bounds a mean loss .*or bound a rate"),
}  # fmt: skip


@pytest.mark.parametrize(("library", "case"), [*zip(itertools.cycle(CLASSIFIERS), CASES)])
def test_a_bad_objective_is_refused_before_training(library, case, without_training):
    options, error, words = CASES[case]
    with pytest.raises(error, match=f"(?s){words}"):
        make(library, **options).fit(*draw())


@pytest.mark.parametrize(
    ("library", "measure_on"), [("xgboost", "crossfit"), ("lightgbm", "holdout")]
)
def test_a_class_that_a_booster_would_not_know_is_refused(library, measure_on, without_training):
    X, y = draw()
    y[0] = 3
    words = r"CrossFit\(n_folds=2\) holds out the only row of class 3.*: give more rows"
    if measure_on == "holdout":
        words = "g_mean has no value on the rows held out|holds out the only row of class 3"
    given = {"measure_on": measure_on} if measure_on == "holdout" else {}
    with pytest.raises(ValueError, match=f"(?s){words}"):
        make(library, maximize="g_mean", **given).fit(X, y)


@EITHER
def test_a_class_that_is_not_held_out_is_refused_with_a_remedy_that_works(library):
    X, y = draw()
    y[:2] = 3
    model = make(library, maximize="g_mean", measure_on="holdout")
    words = r"g_mean has no value on the rows held out \(holdout\).*use measure_on='crossfit'\.$"
    with pytest.raises(ValueError, match=words):
        model.fit(X, y)
    assert model.set_params(measure_on=gc.CrossFit(2)).fit(X, y).classes_.size == 4


@EITHER
def test_rows_that_give_the_metric_no_value_are_refused(library, without_training):
    X, y = draw()
    with pytest.raises(ValueError, match="one class only"):
        make(library, maximize="g_mean").fit(X, np.zeros_like(y))
    with pytest.raises(ValueError, match=r"maximize=g_mean: .*weight is zero.*sample_weight"):
        make(library, maximize="g_mean").fit(X, y, sample_weight=(y != 2).astype(float))
    group = {"group": np.where((y < 2) & (X[:, 0] <= 0), "v", "u")}
    with pytest.raises(ValueError, match=r"maximize=h_mean\[group=v\]: .*no rows at all"):
        make(library, maximize=h_mean(on={"group": "v"})).fit(X, y, sensitive_features=group)


@EITHER
def test_a_single_row_of_a_group_and_a_class_has_no_probability_where_it_was_not_seen(library):
    X, y = draw()
    group = np.where(X[:, 1] > 0, "u", "v")
    group[np.flatnonzero(y == 2)[0]] = "w"
    rule = gc.gap(gc.recall(1), by="group", min_group_size=1, small_groups="drop") <= 0.3
    model = make(library, maximize="g_mean", constraints=[rule])
    with pytest.warns(UserWarning, match="left out"):
        model.fit(X, y, sensitive_features={"group": group})
    shares = model.decision_probabilities(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.isfinite(model.metric_report_["held_out"]).all()


@pytest.mark.parametrize("library", ["lightgbm"])
def test_probabilities_of_a_mixture_stay_those_of_the_booster(library):
    X, y = draw(360)
    options = {"maximize": "min_recall", "constraints": [Coverage(within=0.03)]}
    model = make(library, **options, solver=Reduction(deterministic=False)).fit(X, y)
    plain = make(library).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-6)
    assert len(model.mixture_) > 1
    drawn = [model.predict(X, random_state=seed) for seed in range(400)]
    shares = np.stack([np.mean(np.array(drawn) == k, axis=0) for k in range(3)], axis=1)
    np.testing.assert_allclose(shares, model.decision_probabilities(X), atol=0.11)  # 4.4 errors


def test_evaluations_of_a_metric_refuse_labels_that_the_model_does_not_know():
    X, y = draw()
    model = make("lightgbm", maximize="g_mean").fit(X, y)
    with pytest.raises(ValueError, match=r"y holds 7, which is not among"):
        model.score(X, np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="none of them with positive weight is of class 2"):
        model.score(X[y < 2], y[y < 2])


@EITHER
def test_groups_of_evaluation_sets_are_asked_for_where_they_are_given(library, without_training):
    X, y = draw()
    group, pair = np.arange(240) % 2, (X[:80], y[:80])
    model = make(library, maximize="g_mean", constraints=[gc.gap(gc.recall(1), by="group") <= 0.1])
    with pytest.raises(ValueError, match=r"'group' is neither .*sensitive_features_eval_set=\["):
        model.fit(X, y, sensitive_features={"group": group}, eval_set=[pair])
