"""Scores by which searches choose models that meet their constraints."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gbm_constrained as gc
from gbm_constrained.reporting.scoring import violations_in_errors

TINY = {"n_estimators": 4, "n_jobs": 1}
SMALL = {"n_estimators": 8, "n_jobs": 1, "verbose": -1, "measure_on": "train"}
Z = norm.ppf(0.975)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 4)), columns=list("abcd"))
    y = (X["a"] + X["b"] + rng.normal(size=3000) > 0).astype(int)
    return X, y, pd.DataFrame({"g": np.where(X["c"] > 0, "x", "y")})


@pytest.fixture(scope="module")
def model(rows):
    return LogisticRegression().fit(rows[0][:1000], rows[1][:1000])


def test_a_model_that_meets_its_constraints_scores_its_objective(rows, model):
    X, y = rows[0][1000:], rows[1][1000:]
    assert gc.constraint_scorer(gc.fpr() <= 0.5)(model, X, y) == model.score(X, y)
    auc = sklearn.metrics.roc_auc_score(y, model.predict_proba(X)[:, 1])
    assert gc.constraint_scorer(gc.fpr() <= 0.5, "roc_auc")(model, X, y) == pytest.approx(auc)
    loss = gc.constraint_scorer(gc.fpr() <= 0.5, "neg_log_loss", worst=-5.0)(model, X, y)
    assert -1.0 < loss < -0.3


@pytest.mark.parametrize("sense", ["<=", ">="])
def test_others_score_less_by_their_standard_errors(rows, model, sense):
    X, y = rows[0][1000:], rows[1][1000:]
    negatives = y == 0
    wrong = (model.predict(X) == 1)[negatives]
    rate, error = wrong.mean(), wrong.std() / np.sqrt(wrong.size)
    scores = []
    for z in (-3, -0.1, 0.5, 4):
        bound = rate - z * error
        rule = gc.fpr() <= bound if sense == "<=" else gc.tnr() >= 1 - bound
        scores.append(gc.constraint_scorer(rule)(model, X, y))
        if z > 0:
            assert scores[-1] == pytest.approx(-z, rel=0.1)
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == scores[1] == model.score(X, y)
    assert gc.constraint_scorer(gc.fpr() <= 0, worst=-7.0)(model, X, y) < -7.0
    assert gc.constraint_scorer(gc.fpr() <= rate)(model, X, y) == model.score(X, y)


def test_a_value_that_cannot_be_told_is_missed_and_one_without_error_is_exact():
    table = pd.DataFrame(
        {
            "sense": ["<=", "<=", ">=", ">="],
            "bound": [0.1, 0.1, 0.3, 0.3],
            "value": [np.nan, 0.2, 0.1 + 0.2 - 1e-16, 0.2],
            "low": [np.nan, 0.2, 0.3, 0.1],
            "high": [np.nan, 0.2, 0.3, 0.2 + 0.05 * Z],
        }
    )
    np.testing.assert_allclose(violations_in_errors(table), [np.inf, np.inf, 0.0, 2.0])


def test_constraints_are_those_of_the_model_unless_others_are_given(rows):
    X, y, _ = rows
    fitted = gc.ConstrainedLGBMClassifier(constraints=[gc.fpr() <= 0.3], **SMALL).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), fitted)
    pipeline.steps[0][1].fit(X)
    assert gc.constraint_scorer()(fitted, X, y) == fitted.score(X, y)
    assert gc.constraint_scorer()(pipeline, X, y) == gc.constraint_scorer(gc.fpr() <= 0.3)(
        pipeline, X, y
    )
    with pytest.raises(ValueError, match=r"constraint_scorer\(\[fpr\(\) <= 0.05\]\)"):
        gc.constraint_scorer()(LogisticRegression().fit(X, y), X, y)


def test_a_search_hands_groups_to_the_scorer(rows):
    X, y, groups = rows
    rule = gc.gap(gc.selection_rate(), by="g") <= 0.06
    with sklearn.config_context(enable_metadata_routing=True):
        model = gc.ConstrainedLGBMClassifier(**SMALL).set_fit_request(sensitive_features=True)
        scorer = gc.constraint_scorer(rule).set_score_request(sensitive_features=True)
        grid = {"constraints": [[gc.gap(gc.selection_rate(), by="g") <= b] for b in (0.01, 0.5)]}
        found = GridSearchCV(model, grid, scoring=scorer, cv=2)
        found.fit(X, y, sensitive_features=groups)
    for j in range(2):
        fold = found.cv_results_[f"split{j}_test_score"]
        assert np.isfinite(fold).all()
    assert found.best_score_ == found.cv_results_["mean_test_score"].max()


def test_violations_are_held_out_values_beyond_their_bounds(rows):
    X, y, _ = rows
    rules = [gc.fpr() <= 0.01, gc.recall() >= 0.2]
    fitted = gc.ConstrainedLGBMClassifier(constraints=rules, **{**SMALL, "measure_on": "auto"})
    found = gc.violations_of(make_pipeline(fitted.fit(X, y)))
    report = fitted.constraint_report_
    sign = np.array([1.0, -1.0])
    np.testing.assert_allclose(found, sign * (report["held_out"] - report["bound"]))
    assert found.index.tolist() == report["constraint"].tolist()
    with pytest.raises(sklearn.exceptions.NotFittedError):
        gc.violations_of(gc.ConstrainedLGBMClassifier(constraints=rules))


def test_trials_of_optuna_state_their_violations(rows):
    """The block of the page, on few rows and with few trials."""
    optuna = pytest.importorskip("optuna", reason="the page has a search by Optuna")
    page = Path(__file__).resolve().parents[2] / "docs" / "searches.md"
    if not page.exists():
        pytest.skip("the documentation is not here")
    block = page.read_text().split("```python no-run\nimport optuna")[1].partition("```")[0]
    X, y, groups = rows
    known = {
        "optuna": optuna, "X": X, "y": y, "groups": groups, "train": slice(0, 300),
        "asked": gc.gap(gc.selection_rate(), by="g") <= 0.05,
        "ConstrainedLGBMClassifier": partial(gc.ConstrainedLGBMClassifier, **TINY),
    }  # fmt: skip
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    exec(block.replace("n_trials=30", "n_trials=6"), known)
    trials = known["study"].trials
    stated = [trial.constraints["gap(selection_rate, by='g') <= 0.05"] for trial in trials]
    met = [trial.value for trial, violation in zip(trials, stated, strict=True) if violation <= 0]
    assert len(trials) == 6
    assert max(stated) > 0.0
    assert known["study"].best_value == max(met)
