"""Model files of plain libraries, and files that other programs read, continued or wrote anew."""

from __future__ import annotations

import re

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, margins_of, quiet
from saved_models import (
    FILES,
    assert_same_attributes,
    assert_same_model,
    fit_small,
    has_note,
    make,
    save_and_load,
    table_of,
    text_of,
    train_plain,
)

import gbm_constrained as gc
from gbm_constrained.fit.fitted_report import FITTED_ATTRIBUTES


@pytest.fixture
def problem():
    return table_of("binary", np.random.default_rng(5))


@pytest.fixture
def fitted(library, problem):
    return fit_small(library, problem)


@BOTH
def test_the_booster_itself_has_no_note(library, fitted, tmp_path):
    """Neither after saving nor after loading; what the user saves of it is a plain model."""
    before = text_of(fitted)
    fitted.save_model(tmp_path / FILES[library])
    assert text_of(fitted) == before
    assert not has_note(CLASSIFIERS[library]().load_model(tmp_path / FILES[library]))


@BOTH
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_a_plain_file_is_loaded_and_all_else_forgotten(library, kind, tmp_path):
    X, y = table_of(kind, np.random.default_rng(5))
    path = tmp_path / FILES[library]
    plain = train_plain(library, X, y, path)
    model = make(library, [gc.fnr() <= 0.1], probabilities="calibrated")
    binary = table_of("binary", np.random.default_rng(5))
    model.fit(*binary, eval_set=[binary], **quiet(library))
    ours = tmp_path / f"ours-{FILES[library]}"
    make(library, [gc.fpr() <= 0.2]).fit(*binary, **quiet(library)).save_model(ours)
    booster = model._Booster
    margins = margins_of(model, binary[0])
    assert model.load_model(path) is model
    assert not any(hasattr(model, name) for name in FITTED_ATTRIBUTES)
    assert model.constraints == [gc.fnr() <= 0.1]  # They are a parameter, as n_estimators.
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_array_equal(model.classes_, plain.classes_)
    np.testing.assert_array_equal(model.feature_names_in_, plain.feature_names_in_)
    assert model.n_features_in_ == 4
    assert not getattr(model, "evals_result_", None)
    model.load_model(ours)
    assert model.constraints == [gc.fpr() <= 0.2]
    model.load_model(path)
    assert not model.constraints  # Those of a file are not the next one's.
    model._Booster = booster  # The booster itself was not loaded into.
    if kind == "binary":
        np.testing.assert_array_equal(margins_of(model, binary[0]), margins)


@BOTH
def test_a_model_continued_from_a_file_is_a_model_of_its_own(library, problem, fitted, tmp_path):
    """Whoever continues it, the old note is not taken for that of the new model."""
    (X, y), path = problem, tmp_path / FILES[library]
    fitted.save_model(path)
    start = {"xgb_model": str(path)} if library == "xgboost" else {"init_model": path}
    for constraints in ([gc.fpr() <= 0.2], []):
        model = make(library, constraints, n_estimators=4).fit(X, y, **start)
        assert not has_note(model)
        loaded = save_and_load(model, tmp_path, f"mine-{FILES[library]}")
        assert loaded.constraints == constraints
        assert_same_model(loaded, model, X)


def test_a_note_that_plain_xgboost_carried_on_is_not_believed(problem, tmp_path):
    fitted = fit_small("xgboost", problem)
    (X, y), path = problem, tmp_path / "model.json"
    fitted.save_model(path)
    plain = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(X, y, xgb_model=str(path))
    assert plain.get_booster().attr("gbm_constrained") is not None  # The library does that itself.
    plain.save_model(path)
    rounds = fitted.get_booster().num_boosted_rounds()
    warning = rf"holds {rounds + 4} boosting rounds, and .* speaks of {rounds}"
    with pytest.warns(UserWarning, match=warning):
        loaded = gc.ConstrainedXGBClassifier().load_model(path)
    assert loaded.constraints is None
    assert not hasattr(loaded, "constraint_report_")
    np.testing.assert_array_equal(loaded.predict_proba(X), plain.predict_proba(X))
    assert loaded.get_booster().attributes() == {}


def test_a_model_in_memory_is_loaded(problem, tmp_path):
    fitted = fit_small("xgboost", problem)
    fitted.save_model(tmp_path / "model.json")
    content = bytearray((tmp_path / "model.json").read_bytes())
    loaded = gc.ConstrainedXGBClassifier().load_model(content)
    assert_same_attributes("xgboost", vars(loaded), vars(fitted))


def test_the_line_in_a_lightgbm_file_disturbs_no_reader(problem, tmp_path):
    """As file and as string; next to the text that LightGBM writes there is one line more."""
    fitted = fit_small("lightgbm", problem)
    X, path = problem[0], tmp_path / "model.txt"
    fitted.save_model(path)
    text = path.read_text()
    expected = fitted.booster_.predict(X)
    for booster in (lgb.Booster(model_file=path), lgb.Booster(model_str=text)):
        np.testing.assert_array_equal(booster.predict(X), expected)
        assert booster.model_to_string() == fitted.booster_.model_to_string()
    line = re.search(r"\ngbm_constrained:.*\n(?=\npandas_categorical:)", text)
    assert text.replace(line[0], "") == fitted.booster_.model_to_string()
    assert "=" not in line[0]  # Simple readers split lines there.


def test_treelite_reads_a_lightgbm_file(problem, tmp_path):
    fitted = fit_small("lightgbm", problem)
    treelite = pytest.importorskip("treelite", reason="treelite is not installed")
    X, path = problem[0], tmp_path / "model.txt"
    fitted.save_model(path)
    p = treelite.gtil.predict(treelite.frontend.load_lightgbm_model(path), X.to_numpy())
    np.testing.assert_allclose(np.ravel(p), fitted.booster_.predict(X), atol=1e-6)


@BOTH
def test_a_file_that_a_plain_library_wrote_anew_is_loaded(library, problem, fitted, tmp_path):
    """XGBoost carries the note on, beside what else changes; LightGBM leaves it out."""
    X, path = problem[0], tmp_path / FILES[library]
    fitted.save_model(path)
    if library == "xgboost":
        booster = xgb.Booster(model_file=path)
        booster.set_attr(mine="1")
    else:
        booster = lgb.Booster(model_file=path)
    booster.save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert loaded.constraints == (fitted.constraints if library == "xgboost" else None)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
