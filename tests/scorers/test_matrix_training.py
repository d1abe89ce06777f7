"""``gbm_constrained.xgboost.train`` on matrices, against the classifier on the same rows."""

import warnings

import numpy as np
import pytest
import xgboost as xgb

from gbm_constrained import (
    ConstrainedXGBClassifier,
    CrossFit,
    Holdout,
    churn,
    error_rate,
    fnr,
    fpr,
    gap,
)
from gbm_constrained.exceptions import InfeasibleConstraintsWarning, MissedConstraintsWarning
from gbm_constrained.xgboost import train

PARAMS = {"max_depth": 3, "eta": 0.2, "nthread": 1, "verbosity": 0}
RULES = [fpr() <= 0.1, gap(fnr(), by="g") <= 0.05]
ROUNDS = 20
TRAINING, HELD = slice(0, 2000), slice(2000, 3000)
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def rows():
    """Features, labels, groups and weights."""
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(3000, 5)).astype(np.float32), rng.integers(0, 2, 3000)
    y = (X[:, 0] + 0.5 * g + rng.normal(size=3000) > 0.5).astype(int)
    return X, y, g, rng.gamma(2.0, size=3000).astype(np.float32)


def matrix(rows, part, ref=None, kind=xgb.QuantileDMatrix, weighted=False):
    X, y, _, weight = rows
    more = {"ref": ref} if kind is xgb.QuantileDMatrix else {}
    return kind(X[part], label=y[part], weight=weight[part] if weighted else None, **more)


def margin(booster, X):
    return booster.inplace_predict(X, predict_type="margin")


def classifier(**given):
    return ConstrainedXGBClassifier(
        constraints=RULES, n_estimators=ROUNDS, max_depth=3, learning_rate=0.2, n_jobs=1,
        verbosity=0, **given,
    )  # fmt: skip


@quiet
@pytest.mark.parametrize("weighted", [False, True])
def test_training_rows_give_the_model_of_the_classifier(rows, weighted):
    X, y, g, weight = rows
    given = {"sample_weight": weight[TRAINING]} if weighted else {}
    expected = classifier(measure_on="train").fit(
        X[TRAINING], y[TRAINING], sensitive_features={"g": g[TRAINING]}, verbose=False, **given
    )
    dtrain = matrix(rows, TRAINING, weighted=weighted)
    found = train(PARAMS, dtrain, ROUNDS, constraints=RULES, sensitive_features={"g": g[TRAINING]})
    assert type(found) is xgb.Booster
    assert not {"get_label", "get_weight"} & set(vars(dtrain))
    np.testing.assert_array_equal(margin(found, X[HELD]), margin(expected.get_booster(), X[HELD]))
    assert found.constraint_report_.equals(expected.constraint_report_)
    assert found.multipliers_.any()


@quiet
def test_an_evaluation_set_moves_the_multipliers(rows):
    """As that of the classifier does, with names, early stopping and what callbacks see."""
    X, y, g, _ = rows
    parts, groups = (TRAINING, HELD), [{"g": g[TRAINING]}, {"g": g[HELD]}]
    expected = classifier(
        measure_on="holdout", early_stopping_rounds=15, eval_metric="logloss"
    ).fit(
        X[TRAINING], y[TRAINING], sensitive_features=groups[0], verbose=False,
        eval_set=[(X[part], y[part]) for part in parts], sensitive_features_eval_set=groups,
    )  # fmt: skip
    seen = []

    class Watch(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append(sorted(evals_log))
            return False

    dtrain, results = matrix(rows, TRAINING), {}
    held = matrix(rows, HELD, dtrain)
    stopping = xgb.callback.EarlyStopping(rounds=15, data_name="new rows")
    found = train(
        {**PARAMS, "eval_metric": "logloss"}, dtrain, ROUNDS, constraints=RULES,
        sensitive_features=groups[0], evals=[(dtrain, "old rows"), (held, "new rows")],
        sensitive_features_evals=groups, evals_result=results, verbose_eval=False,
        callbacks=[Watch(), stopping],
    )  # fmt: skip
    np.testing.assert_array_equal(margin(found, X[HELD]), margin(expected.get_booster(), X[HELD]))
    assert results["new rows"] == expected.evals_result_["validation_1"]
    assert seen[-1] == ["new rows", "old rows"]
    assert stopping.data == "new rows"
    assert found.constraint_report_["rows"].str.startswith("eval_set[1]").all()


@quiet
def test_folds_are_made_by_a_function(rows):
    """Which is asked for each fold and for the rows that the fold holds out."""
    X, y, g, _ = rows
    dtrain, asked = matrix(rows, TRAINING), []

    def make_matrix(mask):
        asked.append(mask)
        return xgb.QuantileDMatrix(X[TRAINING][mask], label=y[TRAINING][mask], ref=dtrain)

    found = train(
        PARAMS, dtrain, ROUNDS, constraints=RULES, sensitive_features={"g": g[TRAINING]},
        make_matrix=make_matrix, measure_on=CrossFit(2),
    )  # fmt: skip
    assert all((first ^ second).all() for first, second in zip(*[iter(asked)] * 2, strict=True))
    report = found.constraint_report_
    assert (report["rows"] == "out of fold").all()
    assert (report["held_out"] <= report["bound"] + 0.03).all()


@quiet
def test_a_matrix_in_memory_is_divided_as_the_rows_of_the_classifier(rows):
    """With or without evaluation sets, with weights and scores to start from."""
    X, y, g, weight = (values[:600] for values in rows)
    start = 0.1 * X[:, 1]
    info = {"label": y, "weight": weight, "base_margin": start}
    dtrain = xgb.DMatrix(X, **info)
    given = {"constraints": RULES, "sensitive_features": {"g": g}, "measure_on": CrossFit(2)}
    found = train(PARAMS, dtrain, 4, **given)
    by_function = train(
        PARAMS, dtrain, 4, **given,
        make_matrix=lambda mask: xgb.DMatrix(X[mask], **{k: v[mask] for k, v in info.items()}),
    )  # fmt: skip
    assert set(found.constraint_report_["rows"]) == {"out of fold, with base_margin"}
    assert found.constraint_report_.equals(by_function.constraint_report_)
    assert found.save_raw() == by_function.save_raw()
    held = [(matrix(rows, HELD, kind=xgb.DMatrix), "v")]
    groups = [{"g": rows[2][HELD]}]
    evaluated = train(
        PARAMS, dtrain, 4, **given, evals=held, sensitive_features_evals=groups,
        verbose_eval=False,
    )  # fmt: skip
    assert evaluated.multipliers_.equals(found.multipliers_)


def test_rows_that_cannot_be_divided_are_named(rows):
    """Training rows then measure the constraints, and no verdict is "met"."""
    rules = [fnr() <= 0.9]
    with pytest.warns(UserWarning, match="this QuantileDMatrix cannot be divided.*make_matrix="):
        found = train(PARAMS, matrix(rows, TRAINING), 2, constraints=rules)
    assert found.constraint_report_["verdict"].tolist() == ["met on training rows"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(PARAMS, matrix(rows, TRAINING), 2, constraints=rules, measure_on="train")


class Files(xgb.DataIter):
    """Rows in files, read one after the other."""

    def __init__(self, paths, cache):
        super().__init__(cache_prefix=str(cache))
        self.paths, self.position = paths, 0

    def next(self, input_data):
        if self.position == len(self.paths):
            return False
        part = np.load(self.paths[self.position])
        input_data(data=part["X"], label=part["y"])
        self.position += 1
        return True

    def reset(self):
        self.position = 0


@quiet
def test_rows_on_disk_give_the_model_of_rows_in_memory(rows, tmp_path):
    """With few distinct values, of which a stream has the same bins."""
    X, y, g, _ = rows
    X = np.round(4 * X).clip(-10, 10)
    paths = [tmp_path / f"{i}.npz" for i in range(4)]
    for i, path in enumerate(paths):
        np.savez(path, X=X[500 * i : 500 * (i + 1)], y=y[500 * i : 500 * (i + 1)])
    given = {"constraints": RULES, "sensitive_features": {"g": g[TRAINING]}}
    memory = train(PARAMS, matrix((X, *rows[1:]), TRAINING), ROUNDS, **given)
    stream = xgb.ExtMemQuantileDMatrix(Files(paths, tmp_path / "cache"), max_bin=256, nthread=1)
    disk = train(PARAMS, stream, ROUNDS, **given)
    np.testing.assert_allclose(margin(disk, X[HELD]), margin(memory, X[HELD]), rtol=0, atol=1e-6)
    np.testing.assert_allclose(disk.multipliers_, memory.multipliers_, rtol=1e-6)


def test_no_constraints_is_the_library_itself(rows):
    """Byte for byte."""
    boosters = [
        function(PARAMS, matrix(rows, TRAINING), ROUNDS, **given)
        for function, given in ((train, {"constraints": []}), (xgb.train, {}))
    ]
    assert boosters[0].save_raw() == boosters[1].save_raw()


@quiet
def test_a_constraint_that_never_binds_leaves_the_trees(rows):
    """And the callback of constraints is told of each iteration."""
    states = []
    found = train(
        PARAMS, matrix(rows, TRAINING), ROUNDS, constraints=[error_rate() <= 0.99],
        constraint_callbacks=[lambda state: states.append(state.rounds)],
    )  # fmt: skip
    plain = xgb.train({**PARAMS, "objective": "binary:logistic"}, matrix(rows, TRAINING), ROUNDS)
    X = rows[0]
    np.testing.assert_allclose(margin(found, X), margin(plain, X), rtol=0, atol=1e-6)
    assert states


@quiet
def test_groups_may_be_a_field_of_the_matrix(rows):
    X, _, g, _ = rows
    dtrain = matrix(rows, TRAINING, kind=xgb.DMatrix)
    dtrain.set_float_info("label_lower_bound", g[TRAINING].astype(np.float32))
    rules = [gap(fnr(), by="label_lower_bound") <= 0.05]
    by_field = train(PARAMS, dtrain, 5, constraints=rules, sensitive_features="label_lower_bound")
    by_table = train(
        PARAMS, matrix(rows, TRAINING, kind=xgb.DMatrix), 5, constraints=rules,
        sensitive_features={"label_lower_bound": g[TRAINING].astype(float)},
    )  # fmt: skip
    np.testing.assert_array_equal(margin(by_field, X), margin(by_table, X))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"obj": lambda a, b: a}, TypeError, "obj= has no meaning.*objective in params"),
        ({"custom_metric": lambda a, b: a}, TypeError, "custom_metric= has no meaning"),
        ({"measure_on": "crossfit"}, ValueError, "this QuantileDMatrix cannot.*make_matrix="),
        ({"measure_on": "holdout"}, ValueError, "a matrix of them in evals"),
        ({"measure_on": Holdout(0.2)}, ValueError, "fraction=0.2.* grows.*make_matrix="),
        ({"guarantee": "expected"}, ValueError, "guarantee='expected' sets rows aside"),
        ({"maximize": "g_mean"}, ValueError, "maximize='g_mean'.*ConstrainedXGBClassifier"),
        ({"iterat": "best"}, TypeError, "Did you mean iterate="),
        ({"make_matrix": lambda mask: None}, Exception, "make_matrix= has made a NoneType"),
        ({"xgb_model": "file"}, ValueError, "xgb_model= has trees that split elsewhere"),
    ],
)
def test_bad_arguments_are_named(rows, given, error, message):
    with pytest.raises(error, match=message):
        train(PARAMS, matrix(rows, TRAINING), 2, constraints=[fpr() <= 0.1], **given)


def test_bad_matrices_are_named(rows):
    X, y, *_ = rows
    rules = [fpr() <= 0.1]
    with pytest.raises(TypeError, match=r"dtrain must be an xgboost\.DMatrix, got ndarray"):
        train(PARAMS, X, 2, constraints=rules)
    with pytest.raises(ValueError, match="3000 rows and 0 labels"):
        train(PARAMS, xgb.DMatrix(X), 2, constraints=rules)
    with pytest.raises(ValueError, match="labels of dtrain must number the classes"):
        train(PARAMS, xgb.DMatrix(X, label=y - 0.5), 2, constraints=rules)
    with pytest.raises(ValueError, match=r"booster='dart'.*ConstrainedXGBClassifier"):
        train({**PARAMS, "booster": "dart"}, xgb.DMatrix(X, label=y), 2, constraints=rules)
    model = xgb.XGBClassifier(n_estimators=1, n_jobs=1).fit(X, y)
    with pytest.raises(ValueError, match="asks another model about features"):
        train(PARAMS, xgb.DMatrix(X, label=y), 2, constraints=[churn(to=model) <= 0.1])


@pytest.mark.parametrize("kind", [xgb.DMatrix, xgb.QuantileDMatrix])
def test_the_classifier_names_the_function_for_a_matrix(rows, kind, tmp_path):
    X, y, *_ = rows
    model = ConstrainedXGBClassifier(constraints=[fpr() <= 0.1])
    with pytest.raises(
        TypeError, match=r"DMatrix of XGBoost: take gbm_constrained\.xgboost\.train"
    ):
        model.fit(kind(X, label=y), y)
    with pytest.raises(TypeError, match=r"is the path '.*rows.parquet': read the file"):
        model.fit(tmp_path / "rows.parquet", y)


def test_warnings_point_at_the_caller(rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(PARAMS, matrix(rows, TRAINING), 2, constraints=[fpr() <= 0.0001, fnr() <= 0.0001])
    kinds = (InfeasibleConstraintsWarning, MissedConstraintsWarning)
    ours = [w for w in caught if issubclass(w.category, kinds)]
    assert ours
    assert all(w.filename == __file__ for w in ours)
