"""What the rest of the package asks of each library, over classifiers and regressors of both."""

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.regression import Affine
from gbm_constrained.scorers.base import BoosterAdapter

ROUNDS = 6
CONSTRAINTS = {
    "binary": gc.fnr() <= 0.1,
    "several": gc.class_error(2) <= 0.3,
    "regressor": gc.mean_loss("absolute") <= 0.8,
}


@pytest.fixture
def targets(binary, several):
    return {"binary": binary, "several": several, "regressor": (several[0], several[0][:, 0])}


def fit(library, kind, targets, **options):
    task = "Regressor" if kind == "regressor" else "Classifier"
    make = getattr(gc, f"Constrained{'XGB' if library == 'xgboost' else 'LGBM'}{task}")
    quiet = {} if library == "xgboost" else {"verbose": -1}
    constraints, measure_on = [CONSTRAINTS[kind]], gc.CrossFit(2)
    given = {"n_estimators": ROUNDS, "n_jobs": 1, **quiet, **options}
    return make(constraints=constraints, measure_on=measure_on, **given).fit(*targets[kind])


def observe(monkeypatch, name, look):
    """Call a function with each adapter, after its method with what that was given and gave."""
    method = getattr(BoosterAdapter, name)

    def observed(adapter, *given, **named):
        found = method(adapter, *given, **named)
        look(adapter, found, *given)
        return found

    monkeypatch.setattr(BoosterAdapter, name, observed)


BOTH = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
KINDS = pytest.mark.parametrize("kind", list(CONSTRAINTS))


@BOTH
@KINDS
def test_a_fold_booster_scores_alike_before_and_after_its_state_is_saved(
    library, kind, targets, monkeypatch
):
    seen = []

    def grow(adapter, *given):
        n = len(targets[kind][1])
        fold, make = Fold(np.arange(0, n, 2), np.arange(1, n, 2)), adapter.make_factory()
        with adapter.measuring():
            one, other = make(fold, None), make(fold, None)
            for rounds in range(3):
                one.grow(rounds)
            held, own, prefix = one.held_margin(), one.own_margin(3), one.held_margin(2)
            other.restore(one.state())
            one.release()
            for again in (one, other):
                np.testing.assert_array_equal(again.held_margin(), held)
                np.testing.assert_array_equal(again.own_margin(3), own)
                np.testing.assert_allclose(again.held_margin(2), prefix, rtol=1e-6, atol=1e-6)
        assert len(held) == n // 2
        assert np.abs(held - prefix).max() > 1e-4
        seen.append(adapter)

    observe(monkeypatch, "make_fit", grow)
    fit(library, kind, targets)
    assert len(seen) == 1


@BOTH
@KINDS
def test_scores_are_those_of_the_model_and_are_shifted_scaled_and_cut(
    library, kind, targets, monkeypatch
):
    seen = []
    observe(monkeypatch, "make_fit", lambda adapter, *given: seen.append(adapter))
    model = fit(library, kind, targets)
    (adapter,), X = seen, targets[kind][0]
    name = "output_margin" if library == "xgboost" else "raw_score"

    def check(rounds, expected):
        np.testing.assert_allclose(adapter.margin(rounds), expected, rtol=1e-5, atol=1e-5)

    assert adapter.grown_after(adapter.rounds) == ROUNDS
    check(ROUNDS, model.predict(X, **{name: True}))
    whole, part = adapter.margin(ROUNDS), adapter.margin(2)
    shift = np.linspace(0.5, 1.0, whole.shape[1] if whole.ndim > 1 else 1)
    adapter.add_to_margin(shift)
    whole, part = whole + shift, part + shift
    check(ROUNDS, whole)
    if whole.ndim == 1:
        adapter.rescale(Affine(2.0, 0.25))
        whole, part = 2.0 * whole + 0.25, 2.0 * part + 0.25
        check(ROUNDS, whole)
    check(2, part)
    adapter.truncate(2)
    check(2, part)
    check(2, model.predict(X, **{name: True}))


@BOTH
@pytest.mark.parametrize("kind", ["binary", "several"])
def test_a_model_of_part_of_the_rows_comes_back_from_its_state(
    library, kind, targets, monkeypatch
):
    """DART takes no gradients, so that the library trains it by its own means."""
    X, seen = targets[kind][0], []

    def restore(adapter, trained, part):
        rows, again = np.arange(len(X)), [adapter.restore(trained.state(), part)]
        if library == "lightgbm":  # DART of XGBoost has weights beside its leaves.
            again.append(adapter.merge([trained, trained]))
        for one in again:
            scores = one.margin(X, rows), trained.margin(X, rows)
            np.testing.assert_allclose(*scores, rtol=1e-6, atol=1e-6)
        seen.append(trained)

    observe(monkeypatch, "fit_part", restore)
    dart = {"booster": "dart"} if library == "xgboost" else {"boosting_type": "dart"}
    fit(library, kind, targets, **dart)
    assert seen
