"""What a fit for a black-box metric must not depend on: the library, weights or repeated rows."""

import numpy as np
import pandas as pd
from black_box_fits import LIBRARIES, mean_g_mean_loss
from helpers import CLASSIFIERS, EITHER

from gbm_constrained.metrics import BlackBox
from gbm_constrained.solvers import AdaptiveSurrogates

N = 600
# Stumps on binary features without regularisation are the same in both libraries.
OWN = {
    "xgboost": {"max_depth": 1, "reg_lambda": 0.0, "base_score": 0.5, "min_child_weight": 0.0},
    "lightgbm": {
        "num_leaves": 2, "boost_from_average": False, "min_child_samples": 1, "verbose": -1,
        "min_child_weight": 0.0,
    },
}  # fmt: skip
ITERATIONS = 4


def draw(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.integers(0, 2, size=(N, 6)), columns=list("abcdef")).astype(float)
    score = X.to_numpy() @ [1.5, -1.0, 0.8, 0.4, -0.3, 0.2]
    group = pd.Series(rng.integers(0, 2, N), name="group")
    y = (score + 0.5 * group + rng.logistic(size=N) > 1.0).to_numpy().astype(int)
    return X, y, group


TRAINING, VALIDATION = draw(0), draw(1)


def fit(library, rows=TRAINING, weight=None):
    X, y, group = rows
    search = AdaptiveSurrogates(n_iterations=ITERATIONS)
    metric = BlackBox(mean_g_mean_loss, by="group", max_calls=1000)
    model = CLASSIFIERS[library](
        minimize=metric, solver=search, n_estimators=6, learning_rate=0.3, n_jobs=1, **OWN[library]
    )
    return model.fit(X, y, sample_weight=weight, sensitive_features=group, validation=VALIDATION)


def assert_alike(first, second):
    """Scores are in single precision, whose rounding the steps of a projection amplify."""
    first, second = (model.history_.drop(columns="excess") for model in (first, second))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-4)


def take(rows, index):
    X, y, group = rows
    return X.iloc[index].reset_index(drop=True), y[index], group.iloc[index].reset_index(drop=True)


def test_both_libraries_find_the_same_surrogates_targets_and_gradients():
    ours, others = map(fit, LIBRARIES)
    assert len(ours.history_) == len(others.history_) == ITERATIONS + 1
    assert_alike(ours, others)
    assert ours.history_.filter(like="gradient").iloc[1:].abs().to_numpy().max() > 0.01


@EITHER
def test_weights_are_repetitions(library):
    weight = np.random.default_rng(2).integers(1, 4, N)
    weighed = fit(library, weight=weight.astype(float))
    repeated = fit(library, take(TRAINING, np.repeat(np.arange(N), weight)))
    assert_alike(weighed, repeated)


@EITHER
def test_the_order_of_training_rows_does_not_matter(library):
    order = np.random.default_rng(3).permutation(N)
    model, permuted = fit(library), fit(library, take(TRAINING, order))
    assert_alike(permuted, model)
    again = fit(library)
    pd.testing.assert_frame_equal(again.history_, model.history_)
    pd.testing.assert_frame_equal(again.blackbox_parameters_, model.blackbox_parameters_)
