"""Classifiers of Dask collections are those of one machine, trained elsewhere."""

import pickle

import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from engine_ranks import table
from networks import run_on_collective
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gbm_constrained
from gbm_constrained import CrossFit, MissedConstraintsWarning, fpr, gap
from gbm_constrained.dask import ConstrainedLGBMClassifier, ConstrainedXGBClassifier
from gbm_constrained.distributed.ranks import Plan, Shard, train_rank
from gbm_constrained.exceptions import MachineError

ROWS = table(2000)
X, Y = ROWS[["a", "b"]], ROWS["y"].to_numpy()
FRAME = dd.from_pandas(ROWS, npartitions=3)
PARAMETERS = {
    "constraints": [fpr() <= 0.2, gap(fpr(), by="group") <= 0.1],
    "measure_on": "train",
    "n_estimators": 12,
    "max_depth": 3,
}
BOTH = pytest.mark.parametrize("cls", [ConstrainedXGBClassifier, ConstrainedLGBMClassifier])


def make(cls, **others):
    return cls(**{**PARAMETERS, **others})


def fit(model, frame=FRAME, **others):
    given = {"sensitive_features": frame[["group"]], **others}
    return model.fit(frame[["a", "b"]], frame["y"], **given)


@pytest.fixture(scope="module")
def fitted(client):
    """A fitted classifier of each library."""
    return {cls: fit(make(cls)) for cls in (ConstrainedXGBClassifier, ConstrainedLGBMClassifier)}


def fit_in_one_process(params):
    """Fit on one machine of the distributed path, without an engine."""
    columns = {"group": ROWS["group"].to_numpy()}
    shard = Shard(X, Y, np.arange(len(Y)), None, columns)
    (result,) = run_on_collective(
        lambda ranks: train_rank(shard, Plan("xgboost", params), ranks), 1
    )
    return pickle.loads(result.model)


def test_a_fit_without_a_cluster_says_what_to_do(monkeypatch):
    def find_none():
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.get_client", find_none)
    with pytest.raises(ValueError, match=r"there is no Dask client\. Make one with dask"):
        fit(make(ConstrainedXGBClassifier))


@pytest.mark.parametrize(
    ("measure_on", "n_partitions"), [("train", 1), ("holdout", 5), ("crossfit", 5)]
)
def test_workers_find_the_model_of_one_machine(client, measure_on, n_partitions):
    options = {"measure_on": measure_on, "solver": "abpp"}
    alone = fit_in_one_process({**PARAMETERS, **options, "n_jobs": 1})
    frame = dd.from_pandas(ROWS, npartitions=n_partitions)
    together = fit(make(ConstrainedXGBClassifier, **options), frame)
    assert (together.multipliers_ == alone.multipliers_).all()
    assert alone.multipliers_.any()
    assert (together.predict(X) == alone.predict(X)).all()
    pd.testing.assert_frame_equal(together.constraint_report_, alone.constraint_report_)


@BOTH
def test_predictions_of_collections_are_those_of_tables(fitted, cls):
    model = fitted[cls]
    named = "predict", "predict_proba", "apply", "decision_function", "decision_probabilities"
    for method in [name for name in named if hasattr(model, name)]:
        expected = getattr(model.to_local(), method)(X)
        found = getattr(model, method)(FRAME[["a", "b"]])
        assert isinstance(found, da.Array)
        assert found.dtype == expected.dtype
        assert np.array_equal(found.compute(), expected)
        assert np.array_equal(getattr(model, method)(X), expected)


def test_predictions_of_arrays_know_their_shape(fitted):
    model = fitted[ConstrainedXGBClassifier]
    given = da.from_array(X.to_numpy(dtype=float), chunks=(300, 1))
    found = model.predict_proba(given)
    assert found.shape == (2000, 2)
    assert np.array_equal(found.compute(), model.predict_proba(X.to_numpy(dtype=float)))
    margins = model.predict(given, output_margin=True)
    assert margins.dtype == np.float32
    assert np.array_equal(margins.compute(), model.to_local().predict(X, output_margin=True))


@BOTH
def test_partitions_without_rows_are_predicted(fitted, cls):
    few = FRAME.map_partitions(lambda part: part[part.index < 10])
    found = fitted[cls].predict_proba(few[["a", "b"]]).compute()
    assert np.array_equal(found, fitted[cls].predict_proba(X[:10]))


@BOTH
def test_the_accuracy_is_that_of_all_rows(fitted, cls):
    model = fitted[cls]
    found = model.score(FRAME[["a", "b"]], FRAME["y"], FRAME["weight"])
    expected = model.score(X, Y, ROWS["weight"])
    assert found == pytest.approx(expected, abs=1e-12)
    assert found != pytest.approx(model.score(FRAME[["a", "b"]], FRAME["y"]), abs=1e-12)


@BOTH
def test_a_fitted_classifier_is_one_of_one_machine(fitted, cls, tmp_path):
    model = fitted[cls]
    local = model.to_local()
    assert type(local) is getattr(gbm_constrained, cls.__name__)
    assert local.get_params() == model.get_params()
    assert (local.multipliers_ == model.multipliers_).all()
    path = tmp_path / "model.json"
    model.save_model(path)
    again = cls().load_model(path)
    assert np.array_equal(again.predict(X), local.predict(X))
    pd.testing.assert_frame_equal(again.constraint_report_, model.constraint_report_)
    if cls is ConstrainedXGBClassifier:
        plain = xgb.XGBClassifier()
        plain.load_model(path)
        decided = plain.predict(X)
    else:
        decided = lgb.Booster(model_file=path).predict(X) > 0.5
    assert np.array_equal(decided, local.predict(X))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), local.predict(X))


@BOTH
def test_parameters_are_those_of_one_machine(cls):
    measure_on = CrossFit(7)
    model = make(cls, measure_on=measure_on)
    local = make(getattr(gbm_constrained, cls.__name__), measure_on=measure_on)
    assert model.get_params() == local.get_params()
    assert repr(clone(model).get_params()) == repr(model.get_params())
    assert model.set_params(measure_on__n_folds=3).measure_on.n_folds == 3


@BOTH
def test_the_client_may_be_an_attribute(client, cls):
    """As of both libraries' own classifiers; copies and files leave it out."""
    model = make(cls, n_estimators=2)
    model.client = client
    if cls is ConstrainedLGBMClassifier:
        model = make(cls, n_estimators=2, client=client)
    fit(model)
    assert model.client is client
    assert "client" not in {**model.get_params(), **vars(model.to_local())}
    assert pickle.loads(pickle.dumps(model)).client is clone(model).client is None


def count_rounds(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().num_boosted_rounds()
    return model.booster_.current_iteration()


@BOTH
def test_fits_may_be_tasks_of_the_cluster(client, cls):
    """A task that waits for tasks of its own leaves its thread to them."""
    futures = [client.submit(fit, make(cls, n_estimators=n), pure=False) for n in (1, 2)]
    assert [count_rounds(model) for model in client.gather(futures)] == [1, 2]


def logistic(y, score):
    """Gradients and Hessians of the log loss."""
    p = 1 / (1 + np.exp(-score))
    return p - y, p * (1 - p)


WITHOUT_GRADIENTS = [
    (ConstrainedXGBClassifier, {"booster": "dart", "rate_drop": 0.5}),
    (ConstrainedXGBClassifier, {"objective": logistic}),
    (ConstrainedLGBMClassifier, {"boosting_type": "dart"}),
    (ConstrainedLGBMClassifier, {"boosting_type": "rf", "subsample_freq": 1, "subsample": 0.9}),
    (ConstrainedLGBMClassifier, {"objective": logistic}),
]


@pytest.mark.parametrize(("cls", "params"), WITHOUT_GRADIENTS)
def test_without_constraints_any_trees_are_grown(client, cls, params):
    """Their scores need not meet anything, whatever the gradients are."""
    raw = {"output_margin" if cls is ConstrainedXGBClassifier else "raw_score": True}
    model = fit(make(cls, constraints=[], n_estimators=5, **params))
    parent = xgb.XGBClassifier if cls is ConstrainedXGBClassifier else lgb.LGBMClassifier
    alone = parent(n_estimators=5, max_depth=3, **params).fit(X, Y)
    assert count_rounds(model) == 5
    found, expected = model.predict(X, **raw), alone.predict(X, **raw)
    assert np.corrcoef(found, expected)[0, 1] > 0.95
    with pytest.raises(MachineError, match="takes no gradients of constraints"):
        fit(make(cls, **params))


def test_without_constraints_lightgbm_votes_on_trees(client):
    model = fit(make(ConstrainedLGBMClassifier, constraints=[], tree_learner="voting_parallel"))
    assert "[tree_learner: voting]" in model.booster_.model_to_string()


REFUSED_WITHOUT_CONSTRAINTS = {
    "features": (ConstrainedLGBMClassifier, {"tree_learner": "feature"}, "'feature': leave it"),
    "unknown": (ConstrainedLGBMClassifier, {"tree_learner": "nonsense"}, "'nonsense': leave it"),
    "stopping": (
        ConstrainedLGBMClassifier,
        {"early_stopping_round": 2},
        "Early stopping compares",
    ),
    "linear": (ConstrainedXGBClassifier, {"booster": "gblinear"}, "booster='gblinear' is not"),
}


@pytest.mark.parametrize("case", REFUSED_WITHOUT_CONSTRAINTS)
def test_what_the_libraries_train_on_one_machine_alone_is_refused(client, case):
    """Without constraints as with them: the machines would grow other trees, or wait for ever."""
    cls, params, message = REFUSED_WITHOUT_CONSTRAINTS[case]
    frame = FRAME[["a", "b"]], FRAME["y"]
    with pytest.raises(MachineError, match=message):
        fit(make(cls, constraints=[], **params), eval_set=[frame])


@pytest.mark.parametrize("constraints", [[], PARAMETERS["constraints"]])
def test_lightgbm_refuses_evaluation_sets_that_a_machine_has_no_rows_of(client, constraints):
    """LightGBM fails on this machine, and would wait for it on the other ones."""
    few = dd.from_pandas(ROWS[:10], npartitions=1)
    with pytest.raises(MachineError, match=r"eval_set\[0\] has no rows: leave it out"):
        fit(
            make(ConstrainedLGBMClassifier, constraints=constraints),
            eval_set=[(few[["a", "b"]], few["y"])],
        )


@pytest.mark.parametrize(
    ("n_classes", "metric"), [(2, ["binary_logloss", "multi_error"]), (3, "error")]
)
def test_metrics_of_lightgbm_are_named_by_the_number_of_classes(client, n_classes, metric):
    y = FRAME["y"] if n_classes == 2 else (FRAME["a"] > 0).astype(int) + FRAME["y"]
    model = make(ConstrainedLGBMClassifier, constraints=[], n_estimators=2)
    X = FRAME[["a", "b"]]
    model.fit(X, y, eval_set=[(X, y)], eval_metric=metric)
    alone = lgb.LGBMClassifier(n_estimators=1)
    pair = X.compute(), y.compute()
    alone.fit(*pair, eval_set=[pair], eval_metric=metric)
    assert model.evals_result_["valid_0"].keys() == alone.evals_result_["training"].keys()


@BOTH
def test_functions_of_a_notebook_come_back(client, cls):
    """No worker can look them up by their names."""

    def own(y, score):
        return logistic(y, score)

    model = fit(make(cls, constraints=[], n_estimators=2, objective=own))
    assert count_rounds(model) == 2
    assert model.objective is own


def half_wrong(y_true, y_score, sample_weight=None):
    if not len(y_true):
        raise ValueError("a metric of no rows")
    return float(np.average((y_score > 0.5) != y_true, weights=sample_weight))


@pytest.mark.parametrize(("constraints", "n_partitions"), [([], 1), ([fpr() <= 0.4], 3)])
def test_a_function_as_metric_is_that_of_all_rows(client, constraints, n_partitions):
    """Of workers without rows, and of workers with more rows than others."""
    frame = dd.from_pandas(ROWS[:500], npartitions=n_partitions)
    model = make(
        ConstrainedXGBClassifier, constraints=constraints, n_estimators=2, eval_metric=half_wrong
    )
    X, y, weight = frame[["a", "b"]], frame["y"], frame["weight"]
    sets = {"eval_set": [(X, y), (X, y)], "sample_weight_eval_set": [None, weight]}
    model.fit(X, y, **sets, verbose=False)
    p = model.predict_proba(ROWS[["a", "b"]][:500])[:, 1]
    for name, own in (("validation_0", None), ("validation_1", ROWS["weight"][:500])):
        found = model.evals_result()[name]["half_wrong"][-1]
        assert found == pytest.approx(half_wrong(Y[:500], p, own), abs=1e-6)


def test_a_second_fit_forgets_the_first(client):
    model = fit(make(ConstrainedXGBClassifier))
    first = model.constraint_report_
    model.set_params(constraints=[fpr() <= 0.5])
    fit(model)
    assert len(model.constraint_report_) == 1
    assert len(first) == 2


def test_warnings_of_the_fit_reach_the_user_once(client):
    with pytest.warns(MissedConstraintsWarning) as issued:
        fit(make(ConstrainedXGBClassifier, constraints=[fpr() <= 0.001], n_estimators=1))
    missed = [one for one in issued if one.category is MissedConstraintsWarning]
    assert len(missed) == 1


def test_evaluation_sets_are_recorded(client):
    further = dd.from_pandas(table(500, seed=1), npartitions=2)
    model = fit(
        make(ConstrainedXGBClassifier),
        eval_set=[(further[["a", "b"]], further["y"])],
        sensitive_features_eval_set=[further[["group"]]],
        verbose=False,
    )
    assert len(model.evals_result()["validation_0"]["logloss"]) == 12
    assert model.constraint_report_["held_out"].notna().all()


REFUSED = {
    "base_margin": (FRAME["b"], ValueError, "base_margin= is not supported where rows are on sev"),
    "groups": (FRAME["b"], ValueError, "groups= is not supported where rows are on several mach"),
    "datasets": ({"new": FRAME[["a"]]}, ValueError, "datasets= .* one machine"),
    "sampel_weight": (
        FRAME["b"],
        TypeError,
        "fit\\(\\) has no argument 'sampel_weight': it takes",
    ),
    "sample_weight": (ROWS["weight"], TypeError, "sample_weight is a Series, and no Dask array"),
    "eval_set": ([(X, Y)], TypeError, r"X of eval_set\[0\] is a DataFrame, and no Dask array"),
    "sample_weight_eval_set": ([None], ValueError, "eval_set has 0 sets, and weights are given"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_arguments_are_refused_before_training(client, name):
    value, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        fit(make(ConstrainedXGBClassifier), **{name: value})


def test_parameters_of_one_network_are_refused(client):
    with pytest.raises(ValueError, match="time_out=5 is about LightGBM's own network"):
        fit(make(ConstrainedLGBMClassifier, time_out=5))
    with pytest.raises(ValueError, match="machines='here:9,there:9' is about LightGBM's"):
        fit(make(ConstrainedLGBMClassifier, constraints=[], machines="here:9,there:9"))
    with pytest.raises(ValueError, match="local_port=12400 is about LightGBM's own network"):
        fit(make(ConstrainedLGBMClassifier, constraints=[], local_port=12400))
    with pytest.raises(TypeError, match="client= is no parameter of XGBoost's classifiers"):
        fit(make(ConstrainedXGBClassifier, client=client))


def test_lightgbm_refuses_scores_to_start_from(client):
    with pytest.raises(ValueError, match="init_score= is not supported where rows are on several"):
        fit(make(ConstrainedLGBMClassifier), init_score=FRAME["b"])


def test_a_collection_beside_x_is_refused_by_predictions(fitted):
    with pytest.raises(TypeError, match="base_margin is a Dask collection, and predict takes no"):
        fitted[ConstrainedXGBClassifier].predict(FRAME[["a", "b"]], base_margin=FRAME["b"])


def test_tables_in_memory_are_not_trained_on(client):
    with pytest.raises(TypeError, match=r"X is a DataFrame, and no Dask array.*from_pandas"):
        make(ConstrainedXGBClassifier).fit(X, Y)


def test_bad_parameters_are_named_with_the_rank_that_found_them(client):
    with pytest.raises(
        MachineError, match=r"^rank \d of 2 .*ValueError: n_folds of CrossFit must be"
    ):
        fit(make(ConstrainedXGBClassifier, measure_on=CrossFit(1)))


@pytest.mark.parametrize(("form", "n_classes"), [(sparse.csr_matrix, 2), (sparse.csc_matrix, 3)])
def test_contributions_of_sparse_rows_are_sparse(client, form, n_classes):
    """With several classes they are a list, as LightGBM's own are."""
    y = Y if n_classes == 2 else Y + (ROWS["a"].to_numpy() > 0)
    numbers = X.to_numpy(dtype=float)
    given = da.from_array(numbers, chunks=(700, 2)).map_blocks(form)
    model = make(ConstrainedLGBMClassifier, constraints=[], n_estimators=2)
    model.fit(given, da.from_array(y, chunks=700))
    found = model.predict(given, pred_contrib=True)
    expected = model.predict(form(numbers), pred_contrib=True)
    if n_classes == 2:
        found, expected = [found], [expected]
    assert len(found) == len(expected)
    for one, local in zip(found, expected, strict=True):
        computed = one.compute()
        assert type(one._meta) is type(computed) is type(local)
        assert one.shape == computed.shape
        np.testing.assert_array_equal(computed.toarray(), local.toarray())


def test_the_client_of_a_fitted_lightgbm_classifier_is_known(client):
    """As of LightGBM's own classifier of Dask."""
    model = make(ConstrainedLGBMClassifier, n_estimators=1)
    with pytest.raises(NotFittedError, match="client_ before calling fit"):
        _ = model.client_
    fit(model)
    assert model.client is None
    assert model.client_ is client
    assert not hasattr(model.to_local(), "client_")
