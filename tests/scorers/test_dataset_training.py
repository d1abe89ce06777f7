"""``gbm_constrained.lightgbm.train`` on a Dataset, against the classifier on the same rows."""

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from gbm_constrained import ConstrainedLGBMClassifier, fnr, fpr, gap
from gbm_constrained.lightgbm import train

# Names of the native parameters, for which the classifier has names of its own.
PARAMS = {
    "num_leaves": 7, "eta": 0.2, "num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5,
    "lambda": 1.0, "metric": "binary_logloss",
}  # fmt: skip
OWN = {
    "num_leaves": 7, "learning_rate": 0.2, "n_jobs": 1, "verbosity": -1, "min_child_samples": 5,
    "reg_lambda": 1.0,
}  # fmt: skip
RULES = [fpr() <= 0.1, gap(fnr(), by="g") <= 0.05]
ROUNDS = 20
TRAINING, HELD = slice(0, 2000), slice(2000, 3000)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def rows():
    """A table with a category, labels, groups and weights."""
    rng = np.random.default_rng(0)
    X, g = pd.DataFrame(rng.normal(size=(3000, 4)), columns=[*"abcd"]), rng.integers(0, 2, 3000)
    X["e"] = pd.Categorical(rng.integers(0, 4, 3000))
    y = (X["a"] + 0.5 * g + rng.normal(size=3000) > 0.5).astype(int).to_numpy()
    return X, y, g, rng.gamma(2.0, size=3000).astype(np.float32)


def dataset(rows, part, **given):
    X, y, *_ = rows
    return lgb.Dataset(X[part], label=y[part], **{"free_raw_data": False, **given})


def raw(booster, X):
    return booster.predict(X, raw_score=True)


@pytest.mark.parametrize(
    ("measure_on", "solver"), [("train", "auto"), ("crossfit", "auto"), ("crossfit", "abpp")]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_gives_the_model_of_the_classifier(rows, weighted, measure_on, solver):
    """Out of fold "auto" may find a threshold enough; "abpp" has multipliers in any case."""
    X, y, g, weight = rows
    weight = weight[TRAINING] if weighted else None
    groups = {"g": g[TRAINING]}
    expected = ConstrainedLGBMClassifier(
        constraints=RULES, n_estimators=ROUNDS, measure_on=measure_on, solver=solver, **OWN
    ).fit(X[TRAINING], y[TRAINING], sample_weight=weight, sensitive_features=groups)
    found = train(
        PARAMS, dataset(rows, TRAINING, weight=weight), ROUNDS, constraints=RULES,
        sensitive_features=groups, measure_on=measure_on, solver=solver,
    )  # fmt: skip
    assert type(found) is lgb.Booster
    np.testing.assert_array_equal(raw(found, X[HELD]), raw(expected.booster_, X[HELD]))
    assert found.constraint_report_.equals(expected.constraint_report_)
    pd.testing.assert_series_equal(found.multipliers_, expected.multipliers_)
    np.testing.assert_array_equal(found.shift_, expected.shift_)
    assert found.multipliers_.any() or found.shift_.any()
    assert found.multipliers_.any() or (measure_on, solver) == ("crossfit", "auto")


@pytest.mark.filterwarnings("error:The argument 'eval_set' is deprecated")
def test_evaluation_sets_have_their_names(rows):
    """One of them holds the training rows; the other one reports."""
    _, _, g, _ = rows
    training = dataset(rows, TRAINING)
    held = dataset(rows, HELD, reference=training)
    found = train(
        PARAMS, training, ROUNDS, constraints=RULES, sensitive_features={"g": g[TRAINING]},
        valid_sets=[training, held], valid_names=["old", "new"],
        sensitive_features_valid=[{"g": g[TRAINING]}, {"g": g[HELD]}], measure_on="holdout",
    )  # fmt: skip
    assert sorted(found.best_score) == ["new", "old"]
    assert found.constraint_report_["rows"].str.startswith("eval_set[1]").all()


def test_no_constraints_is_the_library_itself(rows):
    """Byte for byte, also of a Dataset that frees its features."""
    texts = [
        function(
            dict(PARAMS), dataset(rows, TRAINING, free_raw_data=True), ROUNDS, **given
        ).model_to_string()
        for function, given in ((train, {"constraints": []}), (lgb.train, {}))
    ]
    assert texts[0] == texts[1]


def test_bad_arguments_are_named(rows):
    X, y, *_ = rows
    rules = [fpr() <= 0.1]
    with pytest.raises(TypeError, match=r"train_set must be a lightgbm.Dataset, got DataFrame"):
        train(PARAMS, X, 2, constraints=rules)
    freed = dataset(rows, TRAINING, free_raw_data=True).construct()
    with pytest.raises(ValueError, match=r"freed its features.*free_raw_data=False"):
        train(PARAMS, freed, 2, constraints=rules)
    with pytest.raises(ValueError, match="labels of train_set must number the classes"):
        train(PARAMS, lgb.Dataset(X, label=y - 0.5, free_raw_data=False), 2, constraints=rules)
    with pytest.raises(TypeError, match=r"feval= has no meaning.*metric in params"):
        train(PARAMS, dataset(rows, TRAINING), 2, constraints=rules, feval=lambda a, b: a)
    model = ConstrainedLGBMClassifier(constraints=rules, verbosity=-1)
    with pytest.raises(TypeError, match=r"Dataset of LightGBM: take gbm_constrained\.lightgbm"):
        model.fit(dataset(rows, TRAINING), y)


class Parts(lgb.Sequence):
    """Rows that LightGBM reads in parts."""

    batch_size = 100

    def __init__(self, X):
        self.X = X

    def __getitem__(self, index):
        return self.X[index]

    def __len__(self):
        return len(self.X)


def test_rows_read_in_parts_are_refused(rows):
    X, y, *_ = rows
    parts = Parts(X[[*"abcd"]].to_numpy())
    with pytest.raises(TypeError, match="holds a Parts, which is read in parts"):
        train(
            PARAMS, lgb.Dataset(parts, label=y, free_raw_data=False), 2,
            constraints=[fpr() <= 0.1],
        )  # fmt: skip


@pytest.mark.parametrize("boosting", ["gbdt", "dart"])
def test_evaluation_sets_without_names_of_columns_are_measured_silently(rows, boosting):
    X, y = rows[0][["a", "b"]].to_numpy(), rows[1]
    sets = [lgb.Dataset(X[part], y[part], free_raw_data=False) for part in (TRAINING, HELD)]
    params = {**PARAMS, "boosting": boosting, "objective": "binary"}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "X does not have valid feature names")
        found = train(params, sets[0], 2, constraints=[fnr() <= 0.5], valid_sets=[sets[1]])
    assert found.constraint_report_["held_out"].notna().all()
