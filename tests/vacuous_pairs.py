"""Pairs of a parent and one of ours whose constraints never bind."""

import lightgbm as lgb
import numpy as np
import xgboost as xgb

import gbm_constrained as gc

ROUNDS = 20
NEVER_BINDS = [gc.error_rate() <= 1.0, gc.class_error(0) <= 1.0, gc.log_loss() <= 50.0]


def weights(n):
    return np.random.default_rng(3).exponential(size=n).round(3)


def compare(plain, constrained, X, y, fit_arguments, tolerance):
    plain.fit(X, y, **fit_arguments)
    constrained.fit(X, y, **fit_arguments)
    assert isinstance(constrained, type(plain).__mro__[0])
    np.testing.assert_allclose(
        constrained.predict_proba(X), plain.predict_proba(X), rtol=0, atol=tolerance
    )
    np.testing.assert_array_equal(constrained.predict(X), plain.predict(X))
    assert not constrained.multipliers_.any()


def xgb_pair(measure_on="train", **options):
    options = {"n_estimators": ROUNDS, "n_jobs": 1, "enable_categorical": True, **options}
    return xgb.XGBClassifier(**options), gc.ConstrainedXGBClassifier(
        constraints=NEVER_BINDS, measure_on=measure_on, **options
    )


def lgb_pair(measure_on="train", **options):
    options = {"n_estimators": ROUNDS, "n_jobs": 1, "verbose": -1, **options}
    return lgb.LGBMClassifier(**options), gc.ConstrainedLGBMClassifier(
        constraints=NEVER_BINDS, measure_on=measure_on, **options
    )
