"""Fold boosters split by fewer bins than the model, unless the user says how rows are binned."""

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, EITHER

import gbm_constrained as gc
from gbm_constrained.scorers.base import FEWEST_BINS, ROWS_OF_A_BIN

QUIET = {"xgboost": {"verbosity": 0}, "lightgbm": {"verbose": -1}}


def rows(n=4000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + rng.normal(size=n) > 0.5).astype(int)


def thresholds(library, booster):
    """Distinct thresholds of the first feature in the trees of a booster."""
    if library == "xgboost":
        booster.feature_names = None
        frame = booster.trees_to_dataframe()
        return frame.loc[frame["Feature"] == "f0", "Split"].nunique()
    frame = booster.trees_to_dataframe()
    return frame.loc[frame["split_feature"] == "Column_0", "threshold"].nunique()


def fitted(library, X, y, conclusions, **options):
    model = CLASSIFIERS[library](
        constraints=[gc.fpr() <= 0.1], solver="threshold", n_estimators=60, n_jobs=1,
        learning_rate=0.1, **QUIET[library], **options,
    )  # fmt: skip
    model.fit(X, y)
    return model, conclusions[-1].fit.measured.boosters.members[0].booster


@EITHER
def test_folds_have_few_bins_and_the_model_has_all(library, conclusions):
    X, y = rows()
    model, member = fitted(library, X, y, conclusions)
    whole = model.get_booster() if library == "xgboost" else model.booster_
    assert thresholds(library, member) <= FEWEST_BINS
    assert thresholds(library, whole) > FEWEST_BINS
    _, member = fitted(library, X, y, conclusions, max_bin=255)
    assert thresholds(library, member) > FEWEST_BINS


def test_bins_grow_with_the_rows(conclusions):
    X, y = rows(100 * ROWS_OF_A_BIN)
    _, member = fitted("lightgbm", X, y, conclusions)
    assert FEWEST_BINS < thresholds("lightgbm", member) <= 100


@pytest.mark.parametrize("name", ["max_bin", "max_bins", "max_bin_by_feature"])
def test_bins_that_were_asked_for_are_kept(name, conclusions):
    X, y = rows()
    asked = [255, 3] if name == "max_bin_by_feature" else 200
    _, member = fitted("lightgbm", X, y, conclusions, **{name: asked})
    assert thresholds("lightgbm", member) > FEWEST_BINS


@EITHER
def test_no_category_is_lost(library, conclusions):
    """LightGBM has a bin for each category, and labels are those of the category alone."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 90, 9000)
    X = pd.DataFrame({"c": pd.Categorical.from_codes(code, [f"k{i}" for i in range(90)])})
    y = (rng.random(90) > 0.5).astype(int)[code]
    deep = {"min_child_samples": 1, "cat_smooth": 0.0, "min_data_per_group": 1}
    deep |= {"max_cat_threshold": 90, "cat_l2": 0.0}
    options = deep if library == "lightgbm" else {"enable_categorical": True}
    fitted(library, X.assign(x=rng.normal(size=9000)), y, conclusions, **options)
    boosters = conclusions[-1].fit.measured.boosters
    of_category = pd.Series(boosters.held_margin()).groupby(code).mean()
    of_label = pd.Series(y).groupby(code).mean()
    assert ((of_category > 0.0) == (of_label == 1)).all()
