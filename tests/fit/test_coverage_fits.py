"""Fits with Coverage and Quantification: by multipliers, and beside an objective."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import EITHER
from scipy import stats
from small_fits import make

import gbm_constrained as gc
from gbm_constrained.metrics import f1_micro, h_mean
from gbm_constrained.presets import Coverage, Quantification
from gbm_constrained.reporting.mathml import formula_of, legend_of

TARGETS = [0.4, 0.3, 0.3]


def draw(n=1500):
    rng = np.random.default_rng(0)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return rng.normal(size=(n, 3)) + 0.8 * y[:, None], y


def fit(library, constraint, **options):
    options = {"n_estimators": 15, "measure_on": gc.CrossFit(2), **options}
    return make(library, [constraint], **options).fit(*draw())


def shares_of(codes):
    return np.bincount(codes, minlength=3) / codes.size


@EITHER
@pytest.mark.parametrize("solver", ["abpp", "threshold"])
def test_coverage_is_met_by_multipliers_and_by_biases(library, solver):
    X, _ = draw()
    plain = fit(library, gc.error_rate() <= 1.0)
    model = fit(library, Coverage(within=0.02, to=TARGETS), solver=solver)
    off = np.abs(shares_of(model.predict(X)) - TARGETS).max()
    assert off < 0.06 < np.abs(shares_of(plain.predict(X)) - TARGETS).max()
    report = model.constraint_report_.iloc[0]
    assert report["train"] == pytest.approx(off, abs=1e-12)
    assert report["low"] <= report["held_out"] <= report["high"]
    assert report["held_out"] <= 0.02 + 0.04  # sampling error of a share of 1500 rows: 0.013


@pytest.mark.parametrize(
    ("library", "objective", "to"),
    [
        ("xgboost", h_mean(), TARGETS),
        ("lightgbm", f1_micro(), TARGETS),
        ("lightgbm", "balanced_accuracy", None),
    ],
    ids=str,
)
def test_coverage_is_met_beside_an_objective(library, objective, to):
    X, y = draw()
    model = fit(library, Coverage(within=0.02, to=to), maximize=objective)
    target = shares_of(y) if to is None else np.array(to)
    report = model.constraint_report_.iloc[0]
    assert report["held_out"] <= 0.02 + 0.03
    on_training = model.decision_probabilities(X).mean(axis=0)
    assert report["train"] == pytest.approx(np.abs(on_training - target).max(), abs=1e-12)


@pytest.mark.parametrize(("library", "to"), [("xgboost", None), ("lightgbm", TARGETS)], ids=str)
def test_quantification_is_met_beside_an_objective(library, to):
    X, y = draw()
    model = fit(library, Quantification(within=0.005, to=to), maximize=h_mean())
    target = shares_of(y) if to is None else np.array(to)
    report = model.constraint_report_.iloc[0]
    assert report["held_out"] <= 0.01
    on_training = model.decision_probabilities(X).mean(axis=0)
    assert report["train"] == pytest.approx(stats.entropy(target, on_training), abs=1e-12)
    assert model.feasibility_.status in ("met", "missed")


def test_classes_that_the_objective_would_never_predict_are_predicted():
    """The recall of one class is largest where the divergence is infinite."""
    X, _ = draw()
    model = fit("lightgbm", Quantification(within=0.05), maximize=gc.recall(0))
    report = model.constraint_report_.iloc[0]
    assert np.isfinite(report["held_out"])
    assert set(np.unique(model.predict(X, random_state=0))) == {0, 1, 2}


@pytest.mark.parametrize("preset", [Coverage, Quantification])
@pytest.mark.parametrize("to", [None, TARGETS], ids=str)
def test_formulas_name_the_target(preset, to):
    formula = formula_of(preset(within=0.02, to=to))
    assert formula.count("<math") == formula.count("</math>") == 1
    assert ("the target of a class" in legend_of([formula])) == (to is not None)
    assert ("<mi>log</mi>" in formula) == (preset is Quantification)


@pytest.mark.parametrize("preset", [Coverage, Quantification])
def test_audits_measure_shares_of_any_model(preset):
    X, y = draw()
    model = fit("lightgbm", gc.error_rate() <= 1.0)
    report = gc.audit(model, X, y, [preset(within=0.02)])
    q, tau = shares_of(model.predict(X)), shares_of(y)
    expected = np.abs(q - tau).max() if preset is Coverage else stats.entropy(tau, q)
    assert report.frame["value"][0] == pytest.approx(expected, abs=1e-12)
    assert report.frame["constraint"][0] == f"{preset.__name__}(within=0.02)"
    assert preset.__name__ in report.to_html()
