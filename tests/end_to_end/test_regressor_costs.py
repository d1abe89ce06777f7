"""What constraints on groups cost regressors on American communities, beside plain models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER

import gbm_constrained as gc
from gbm_constrained.datasets import load_communities_crime

PARAMETERS = {"n_estimators": 40, "learning_rate": 0.1, "n_jobs": 1, "random_state": 0}
BOOSTERS = {
    "lightgbm": (gc.ConstrainedLGBMRegressor, {**PARAMETERS, "num_leaves": 8, "verbose": -1}),
    "xgboost": (gc.ConstrainedXGBRegressor, {**PARAMETERS, "max_depth": 3}),
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def crime():
    """Features without missing values, targets, groups, and rows to train and to test on."""
    data = load_communities_crime()
    order = np.random.default_rng(0).permutation(len(data.target))
    X = data.data.fillna(data.data.median())
    return X, data.target.to_numpy(), data.sensitive_features, order[:1200], order[1200:]


def bands(feature, n):
    """Groups of communities with about as many rows each, by a feature."""
    ranks = feature.rank(method="first")
    return pd.DataFrame({"band": pd.qcut(ranks, n, labels=False)})


def determination(model, X, y, rows):
    """R^2 on some rows."""
    return 1.0 - np.mean((y[rows] - model.predict(X.iloc[rows])) ** 2) / np.var(y[rows])


@EITHER
def test_a_gap_of_forty_small_groups_leaves_the_booster_its_use(crime, library):
    """With 30 rows in each group R^2 once fell from .66 to .56."""
    X, y, _, train, test = crime
    groups, (booster, parameters) = bands(X.iloc[:, 11], 40), BOOSTERS[library]
    rule = gc.gap(gc.mean_prediction(), by="band") <= 0.1
    plain = booster(constraints=[], **parameters).fit(X.iloc[train], y[train])
    model = booster(constraints=[rule], **parameters)
    model.fit(X.iloc[train], y[train], sensitive_features=groups.iloc[train])
    free = determination(plain, X, y, test)
    assert free > 0.6
    assert determination(model, X, y, test) > free - 0.03


@pytest.mark.parametrize("column", [11, 20, 44])
def test_ridge_does_not_extrapolate_to_meet_mean_residuals(crime, column):
    """Where three features cannot balance eight groups, R^2 once fell from .47 to -3.07."""
    X, y, _, train, test = crime
    groups = bands(X.iloc[:, column], 8)
    Z = X.drop(columns=X.columns[column]).iloc[:, :3]
    rate = gc.each(gc.mean_residual(), by="band")
    model = gc.ConstrainedRidge(constraints=[rate <= 0.01, rate >= -0.01])
    model.fit(Z.iloc[train], y[train], sensitive_features=groups.iloc[train])
    plain = gc.ConstrainedRidge(constraints=[]).fit(Z.iloc[train], y[train])
    assert determination(model, Z, y, test) > determination(plain, Z, y, test) - 0.03
    residuals = (
        pd.Series(y[train] - m.predict(Z.iloc[train])).groupby(groups["band"].to_numpy()[train])
        for m in (model, plain)
    )
    of_model, of_plain = (np.abs(part.mean()).max() for part in residuals)
    assert of_model <= of_plain + 1e-9
    loss = model.cost_report_["loss"]
    assert loss["returned"] >= loss["plain"] > 0.0


@pytest.mark.parametrize("library", [*BOOSTERS, "linear"])
def test_the_choice_does_not_depend_on_the_unit_of_the_targets(crime, library):
    """Targets in units of a millionth once had no multipliers to start from."""
    X, y, groups, train, test = crime
    booster, parameters = BOOSTERS.get(library, (gc.ConstrainedRidge, {}))
    found = []
    for unit in (1.0, 2.0**20):  # Powers of two change no rounding.
        rules = [
            gc.gap(gc.mean_prediction(), by="black") <= 0.1 * unit,
            gc.each(gc.mean_loss("squared"), by="black") <= 0.025 * unit**2,
        ]
        model = booster(constraints=rules, **parameters)
        model.fit(X.iloc[train], unit * y[train], sensitive_features=groups.iloc[train])
        found.append(model.predict(X.iloc[test]) / unit)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
