"""Tasks of a barrier stage of Spark that train together, and the estimator that starts them."""

import pickle
import shutil
import sys
import time
import types

import numpy as np
import pandas as pd
import pytest
from clusters import spark_session
from engine_ranks import boost, describe, table
from networks import run_on_collective

from gbm_constrained import fpr, gap
from gbm_constrained.distributed.ranks import Plan, Shard, train_rank
from gbm_constrained.exceptions import MachineError

pyspark = pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

import engine_ranks  # noqa: E402 - of use where Spark is
from pyspark import cloudpickle  # noqa: E402
from pyspark.ml.feature import VectorAssembler  # noqa: E402

from gbm_constrained.distributed.spark import (  # noqa: E402
    FeatureColumns,
    SparkRows,
    train,
)
from gbm_constrained.spark import ConstrainedXGBClassifier  # noqa: E402

ROWS = table(1000).assign(id=lambda rows: np.arange(len(rows))[::-1])
PARAMETERS = {
    "constraints": [fpr() <= 0.2, gap(fpr(), by="group") <= 0.1],
    "measure_on": "crossfit",
    "n_estimators": 10,
    "max_depth": 3,
}
COLUMNS = {"featuresCol": ["a", "b"], "labelCol": "y", "sensitiveCols": ["group"], "idCol": "id"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),  # by toPandas
]


@pytest.fixture(scope="module")
def spark():
    cloudpickle.register_pickle_by_value(engine_ranks)  # Workers do not know this folder.
    with spark_session(2) as session:
        yield session
    cloudpickle.unregister_pickle_by_value(engine_ranks)


@pytest.fixture(scope="module")
def frame(spark):
    return spark.createDataFrame(ROWS)


@pytest.fixture(scope="module")
def fitted(frame):
    return ConstrainedXGBClassifier(**PARAMETERS, **COLUMNS).fit(frame)


def described(frame, n_tasks=None, features=("a", "b"), **columns):
    rows = SparkRows(FeatureColumns.from_dataset(frame, features), "y", **columns)
    result = train(frame, rows, Plan("xgboost", {"n_jobs": None}), n_tasks, describe)
    ranks, _, plans = pickle.loads(result.model)
    assert plans == [({"n_jobs": 1}, {})] * len(ranks)
    parts = [pd.DataFrame({**rank, "X": list(map(tuple, rank["X"]))}) for rank in ranks]
    return [len(part) for part in parts], pd.concat(parts)


def test_each_row_is_in_one_task_with_its_own_number(frame):
    sizes, found = described(frame, 2, weight="weight", sensitive=("group",), id="id")
    found = found.sort_values("numbers", ignore_index=True)
    expected = ROWS.sort_values("id", ignore_index=True)
    assert sum(sizes) == len(ROWS)
    assert min(sizes) > 0
    assert found["numbers"].tolist() == expected["id"].tolist()
    assert found["X"].tolist() == list(map(tuple, expected[["a", "b"]].to_numpy()))
    for name in ("y", "weight", "group"):
        assert found[name].tolist() == expected[name].tolist()


def test_vectors_are_features_and_tasks_may_have_no_rows(frame):
    few = VectorAssembler(inputCols=["a", "b"], outputCol="v").transform(frame.limit(3))
    sizes, found = described(few.coalesce(1), 2, "v")
    assert sum(sizes) == 3
    assert found["numbers"].nunique() == 3
    assert sorted(found["X"]) == sorted(map(tuple, ROWS[["a", "b"]][:3].to_numpy(dtype=float)))


def test_an_error_of_one_task_is_what_the_user_sees(frame):
    rows = SparkRows(FeatureColumns.from_dataset(frame, ["a"]), "y")
    start = time.monotonic()
    with pytest.raises(MachineError, match=r"^rank 1 of 2 \(.+\): ValueError: the costs are nega"):
        train(frame, rows, Plan("xgboost", {}, {"failure": "raise"}), 2, boost)
    assert time.monotonic() - start < 10


def test_a_killed_task_is_named(frame):
    rows = SparkRows(FeatureColumns.from_dataset(frame, ["a"]), "y")
    start = time.monotonic()
    with pytest.raises(MachineError, match=r"^rank \d of 2 .*this task of Spark was lost"):
        train(frame, rows, Plan("xgboost", {}, {"failure": "kill"}), 2, boost)
    assert time.monotonic() - start < 30


def test_a_task_that_cannot_start_says_why(frame, monkeypatch):
    """The function is of a module that the executors do not have."""
    elsewhere = types.ModuleType("elsewhere")
    elsewhere.fit = types.FunctionType(boost.__code__, vars(elsewhere), "fit")
    elsewhere.fit.__module__, elsewhere.fit.__qualname__ = "elsewhere", "fit"
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)
    rows = SparkRows(FeatureColumns.from_dataset(frame, ["a"]), "y")
    with pytest.raises(MachineError, match="ModuleNotFoundError: No module named 'elsewhere'"):
        train(frame, rows, Plan("xgboost", {}), 2, elsewhere.fit)


def test_missing_numbers_are_refused(spark):
    frame = spark.createDataFrame(ROWS[:4].assign(id=[0.0, np.nan, 2.0, 3.0]))
    with pytest.raises(MachineError, match="idCol='id' has missing values"):
        described(frame.selectExpr("a", "b", "y", "nullif(id, double('nan')) as id"), id="id")


def test_tasks_find_the_model_of_one_machine(fitted):
    columns = {"group": ROWS["group"].to_numpy()}
    X = ROWS[["a", "b"]]
    shard = Shard(X, ROWS["y"].to_numpy(), ROWS["id"].to_numpy(), None, columns)
    plan = Plan("xgboost", {**PARAMETERS, "n_jobs": 1})
    (result,) = run_on_collective(lambda ranks: train_rank(shard, plan, ranks), 1)
    alone, together = result.load(), fitted.to_local()
    assert alone.multipliers_.any()
    assert (together.multipliers_ == alone.multipliers_).all()
    assert (together.predict(X) == alone.predict(X)).all()


def test_the_model_adds_columns_of_the_local_predictions(frame, fitted):
    found = fitted.transform(frame).toPandas()
    assert found.columns.tolist() == [*ROWS.columns, "prediction", "probability"]
    local = fitted.to_local()
    assert (found["prediction"] == local.predict(found[["a", "b"]])).all()
    expected = local.predict_proba(found[["a", "b"]])
    assert np.array_equal([row.toArray() for row in found["probability"]], expected)


def test_parameters_of_spark_are_those_of_the_classifier(frame):
    estimator = ConstrainedXGBClassifier(**PARAMETERS, **COLUMNS, numWorkers=2)
    model = estimator.fit(frame, {estimator.n_estimators: 3, estimator.constraints: []})
    assert model.to_local().get_booster().num_boosted_rounds() == 3
    assert estimator.getOrDefault("n_estimators") == 10


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"featuresCol": ["a", "c"]}, ValueError, r"featuresCol=\['a', 'c'\]: .* no column \['c'"),
        ({"featuresCol": ["a", "group"]}, TypeError, "column 'group' is of type string"),
        (
            {"weightCol": "w"},
            ValueError,
            r"weightCol=\['w'\]: the DataFrame has no column \['w'\]",
        ),
        ({"sensitiveCols": ["race"]}, ValueError, r"sensitiveCols=\['race'\]"),
        ({"numWorkers": 0}, ValueError, "numWorkers must be an integer >= 1, got 0"),
    ],
)
def test_bad_columns_are_refused_before_training(frame, given, error, message):
    with pytest.raises(error, match=message):
        ConstrainedXGBClassifier(**{**PARAMETERS, **COLUMNS, **given}).fit(frame)
