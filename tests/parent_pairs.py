"""Pairs of a parent's fit and one of ours whose constraint never binds."""

import warnings

import numpy as np
import xgboost as xgb
from helpers import PARENTS

import gbm_constrained as gc

NEVER_BINDS = [gc.error_rate() <= 1.0]
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(400, 4)), RNG.integers(0, 4, 400)])
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * RNG.normal(size=400) > 0.5).astype(int)
HELD, LABELS = X[:100] + 0.1, Y[:100]
WEIGHT, START = RNG.exponential(size=400).round(2), RNG.normal(size=400)

OWN = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
ALWAYS = {
    # Leaves of few rows have splits of equal gain, which single precision decides.
    "xgboost": {"n_estimators": 4, "n_jobs": 1, "verbosity": 0, "max_depth": 3},
    "lightgbm": {"n_estimators": 4, "n_jobs": 1, "verbose": -1},
}
TOLERANCE = {"xgboost": 5e-7, "lightgbm": 1e-12}


def fitted_pair(library, options, X=X, y=Y, **arguments):
    """The parent, and ours with a constraint that never binds, measured on rows not seen."""
    options = {**ALWAYS[library], **options}
    is_continued = bool({"xgb_model", "init_model"} & arguments.keys())
    measure_on = "auto" if is_continued else gc.CrossFit(2)
    models = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")  # both by the parent
        for cls, more in (
            (PARENTS[library], {}),
            (OWN[library], {"constraints": NEVER_BINDS, "measure_on": measure_on}),
        ):
            models.append(cls(**options, **more).fit(X, y, **arguments))
    assert hasattr(models[1], "multipliers_")
    return models


def evaluated(library):
    return {
        "eval_set": [(HELD, LABELS)],
        **({"verbose": False} if library == "xgboost" else {}),
    }


def results_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return (
            {k: dict(v) for k, v in model.evals_result().items()} if model.evals_result() else {}
        )
    return {k: dict(v) for k, v in model.evals_result_.items()}


def assert_alike(library, own, parent, X=X):
    np.testing.assert_allclose(
        own.predict_proba(X), parent.predict_proba(X), rtol=0, atol=TOLERANCE[library]
    )
    np.testing.assert_array_equal(own.predict(X), parent.predict(X))


def assert_same_results(own, parent):
    assert results_of(own).keys() == results_of(parent).keys()
    for data, metrics in results_of(parent).items():
        assert list(results_of(own)[data]) == list(metrics)
        for name, values in metrics.items():
            np.testing.assert_allclose(results_of(own)[data][name], values, rtol=1e-5, atol=1e-6)
