"""The two boosters, alike: what several test files ask of them."""

from __future__ import annotations

import zlib

import lightgbm as lgb
import pytest
import xgboost as xgb

import gbm_constrained as gc

PARENTS = {"xgboost": xgb.XGBClassifier, "lightgbm": lgb.LGBMClassifier}
CLASSIFIERS = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
BOTH = pytest.mark.parametrize("library", list(CLASSIFIERS))


def in_turn(name, values, ids=None):
    """Parametrise tests of code that all values share: the name of a test says whose turn it is.

    The other values are slow.
    """

    def decorate(test):
        turn = zlib.crc32(test.__name__.encode()) % len(values)
        slow = pytest.mark.slow
        given = [v if i == turn else pytest.param(v, marks=slow) for i, v in enumerate(values)]
        return pytest.mark.parametrize(name, given, ids=ids)(test)

    return decorate


EITHER = in_turn("library", list(CLASSIFIERS))


def alternate(name, cases):
    """Parametrise a test by cases, each with the library whose turn it is; the others are slow."""
    pairs = [
        pytest.param(library, case, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, case in enumerate(cases)
        for j, library in enumerate(CLASSIFIERS)
    ]
    return pytest.mark.parametrize(("library", name), pairs)


KINDS = pytest.mark.parametrize("kind", ["binary", "several"])
# A shift can always meet them, so that no prefix is taken instead of the whole ensemble.
RULES = {"binary": [gc.fnr() <= 0.1], "several": [gc.class_error(2) <= 0.2]}


def quiet(library):
    """Argument of fit that keeps evaluation sets from being printed."""
    return {"verbose": False} if library == "xgboost" else {}


def margins_of(model, X, rounds=None, start=None):
    """Scores of a fitted classifier, or of its first rounds."""
    if isinstance(model, xgb.XGBClassifier):
        span = None if rounds is None else (0, rounds)
        return model.predict(X, output_margin=True, iteration_range=span, base_margin=start)
    raw = model.predict(X, raw_score=True, num_iteration=rounds)
    return raw if start is None else raw + start


class Interruption(BaseException):
    """Stands for a kill: nothing that runs after it may write."""


def interrupt(fit, when, callbacks=()):
    """Interrupt a fit in the first outer iteration for whose state a condition holds."""

    def callback(state):
        if when(state):
            raise Interruption

    with pytest.raises(Interruption):
        fit(constraint_callbacks=[*callbacks, callback])


def fit_linear(X, y, *constraints, sample_weight=None, sensitive_features=None, **options):
    """Fit a constrained logistic regression."""
    model = gc.ConstrainedLogisticRegression(constraints=list(constraints), **options)
    return model.fit(X, y, sample_weight, sensitive_features=sensitive_features)
