"""Constraints given as text are those that Python makes, wherever constraints are taken."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from pandas.testing import assert_frame_equal
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.presets import EqualizedOdds

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(300, 3)), columns=list("abc"))
SEX = pd.DataFrame({"sex": RNG.choice(["F", "M"], 300)})
TARGET = X["a"] + RNG.normal(size=300)
Y = (TARGET > 0).astype(int)
TREES = {"n_estimators": 4, "n_jobs": 1, "measure_on": "train"}
LGBM = {**TREES, "verbose": -1}
TEXTS = ["fnr() <= .3; fpr <= .6", "gap(fpr(), by=sex) <= .2"]
RATES = [gc.fnr() <= 0.3, gc.fpr() <= 0.6, gc.gap(gc.fpr(), by="sex") <= 0.2]
MEAN = gc.gap(gc.mean_prediction(), by="sex") <= 0.2
AUC = gc.gap(gc.auc(), by="sex") <= 0.2
ESTIMATORS = {
    "XGBoost": (gc.ConstrainedXGBClassifier, TREES, Y, TEXTS, RATES),
    "LightGBM": (gc.ConstrainedLGBMClassifier, LGBM, Y, [TEXTS[0], RATES[2]], RATES),
    "logistic": (gc.ConstrainedLogisticRegression, {}, Y, TEXTS, RATES),
    "SVM": (gc.ConstrainedLinearSVC, {}, Y, "; ".join(TEXTS), RATES),
    "regressor": (gc.ConstrainedLGBMRegressor, LGBM, TARGET, str(MEAN), MEAN),
    "ridge": (gc.ConstrainedRidge, {}, TARGET, [str(MEAN)], MEAN),
    "AUC": (gc.ConstrainedAUCScorer, {"solver": "exact", "random_state": 0}, Y, [str(AUC)], AUC),
}


def fit(make, options, y, constraints):
    return make(constraints=constraints, **options).fit(X, y, sensitive_features=SEX)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_fit_under_texts_is_the_fit_under_their_constraints(kind):
    make, options, y, texts, constraints = ESTIMATORS[kind]
    by_text, by_object = (fit(make, options, y, given) for given in (texts, constraints))
    assert by_text.get_params()["constraints"] is texts
    assert clone(by_text).constraints == texts
    np.testing.assert_array_equal(by_text.predict(X), by_object.predict(X))
    assert_frame_equal(by_text.constraint_report_, by_object.constraint_report_)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_wrong_text_names_the_parameter_the_place_and_the_remedy(kind):
    make, options, y, _, constraints = ESTIMATORS[kind]
    first = constraints[0] if isinstance(constraints, list) else constraints
    given = [first, "gap(fpx(), by=sex) <= .02"]
    with pytest.raises(ValueError, match="constraints") as refused:
        fit(make, options, y, given)
    assert str(refused.value).splitlines() == [
        "constraints: unknown rate fpx: did you mean fpr?",
        "  gap(fpx(), by=sex) <= .02",
        "      ^^^",
    ]


def test_texts_are_read_beside_constraints_and_presets():
    found = check_constraints(
        [*TEXTS, EqualizedOdds(difference_bound=0.1, by="sex"), ["auc >= 0.6"]]
    )
    assert found == (*RATES, *EqualizedOdds(difference_bound=0.1, by="sex"), gc.auc() >= 0.6)
    assert check_constraints(np.array(TEXTS)) == tuple(RATES)
    with pytest.raises(ValueError, match="constraints: there is no constraint: write one such"):
        check_constraints([""])


def test_a_saved_model_keeps_texts_and_reports(tmp_path):
    make, options, y, *given = ESTIMATORS["XGBoost"]
    models = [fit(make, options, y, constraints) for constraints in given]
    loaded = []
    for model in models:
        model.save_model(tmp_path / "model.ubj")
        loaded.append(make())
        loaded[-1].load_model(tmp_path / "model.ubj")
    assert [one.constraints for one in loaded] == given
    assert_frame_equal(*(one.constraint_report_ for one in loaded))
    notebook = [model._repr_html_().rpartition("</style>")[2] for model in models]
    assert notebook[0].count("fnr &lt;= 0.3") == notebook[1].count("fnr &lt;= 0.3") > 0


def test_native_training_reads_texts():
    options = {"sensitive_features": SEX, "measure_on": "train"}
    params, sets = {"objective": "binary", "verbose": -1}, lgb.Dataset(X, Y, free_raw_data=False)
    models = [gc.lightgbm.train(params, sets, 3, constraints=c, **options) for c in (TEXTS, RATES)]
    np.testing.assert_array_equal(*(model.predict(X) for model in models))
    params, rows = {"objective": "binary:logistic"}, xgb.DMatrix(X, Y)
    models = [gc.xgboost.train(params, rows, 3, constraints=c, **options) for c in (TEXTS, RATES)]
    np.testing.assert_array_equal(*(model.predict(rows) for model in models))


def test_what_looks_at_models_reads_texts():
    model = fit(*ESTIMATORS["LightGBM"][:3], TEXTS)
    reports = [gc.audit(model, X, Y, c, sensitive_features=SEX).frame for c in (TEXTS, RATES)]
    assert_frame_equal(*reports)
    scores = [gc.constraint_scorer(c)(model, X, Y, SEX) for c in (None, TEXTS, RATES)]
    assert scores[0] == scores[1] == scores[2]
    assert gc.violations_of(model).index.tolist() == list(map(str, RATES))
    assert gc.as_log_loss("class_error(0) <= .25", 4) == gc.as_log_loss(
        gc.class_error(0) <= 0.25, 4
    )
    curve = gc.tradeoff_curve(
        clone(model), X, Y, [0.2], constraint=lambda b: f"fnr <= {b}", sensitive_features=SEX
    )
    assert curve.constraint.tolist() == ["fnr <= 0.2"]
