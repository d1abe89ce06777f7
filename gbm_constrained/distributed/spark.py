"""Spark estimator of XGBoost under constraints.

The tasks of a barrier stage start together, one for each partition, and train on the rows of their
partitions.
"""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext, keyword_only
from pyspark.errors import PySparkException
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasPredictionCol, HasProbabilityCol, HasWeightCol
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import ArrayType, BooleanType, DecimalType, NumericType

from gbm_constrained.data.validation import check_integer
from gbm_constrained.distributed import networks
from gbm_constrained.distributed.ranks import Plan, RankResult, Shard, join_shards, train_rank
from gbm_constrained.exceptions import MachineError
from gbm_constrained.scorers.xgboost import estimators as of_xgboost


@dataclass(frozen=True)
class FeatureColumns:
    """Columns of features: one of vectors or arrays, or several of numbers.

    Parameters
    ----------
    names : tuple of str
        Names of the columns.
    size : int, default=None
        Length of the values if there is one column of vectors or arrays.
    """

    names: tuple[str, ...]
    size: int | None = None

    @classmethod
    def from_dataset(cls, dataset: DataFrame, given: str | Sequence[str]) -> FeatureColumns:
        """Check the columns of features.

        Raises
        ------
        TypeError
            If a column has no numbers; names the column and a remedy.
        """
        names = (given,) if isinstance(given, str) else tuple(given)
        check_columns(dataset, "featuresCol", names)
        types = [dataset.schema[name].dataType for name in names]
        if len(names) == 1 and isinstance(types[0], VectorUDT | ArrayType):
            (column,) = cls(names).select(dataset)
            first = dataset.select(functions.size(column)).first()
            if first is None:
                raise ValueError("The DataFrame has no rows.")
            return cls(names, first[0])
        for name, kind in zip(names, types, strict=True):
            if not isinstance(kind, NumericType | BooleanType):
                raise TypeError(
                    f"featuresCol: column {name!r} is of type {kind.simpleString()}, and features "
                    f"are numbers: encode the column with StringIndexer, or assemble vectors with "
                    f"VectorAssembler and give their column alone."
                )
        return cls(names)

    def select(self, dataset: DataFrame) -> list[Column]:
        """List expressions of the features, called by their position.

        They have types that pandas reads as numbers, missing values among them.
        """
        columns = []
        for j, name in enumerate(self.names):
            column, kind = dataset[name], dataset.schema[name].dataType
            if isinstance(kind, VectorUDT):
                column = vector_to_array(column)
            elif isinstance(kind, BooleanType | DecimalType):
                column = column.cast("double")
            columns.append(column.alias(f"x{j}"))
        return columns

    def read(self, frame: pd.DataFrame) -> Any:
        """Read the features of some rows from the columns that `select` has made."""
        columns = frame[[f"x{j}" for j in range(len(self.names))]]
        if self.size is None:
            return columns.set_axis(list(self.names), axis=1)
        return np.array(columns["x0"].tolist(), dtype=float).reshape(-1, self.size)


def check_columns(dataset: DataFrame, parameter: str, names: Sequence[str]) -> None:
    """Refuse columns that a DataFrame does not have."""
    missing = [name for name in names if name not in dataset.columns]
    if missing or not names:
        raise ValueError(
            f"{parameter}={list(names)}: the DataFrame has no column {missing}; its columns are "
            f"{dataset.columns}."
        )


@dataclass(frozen=True)
class SparkRows:
    """Columns of a DataFrame that are the rows of a fit.

    Parameters
    ----------
    features : FeatureColumns
        Features.
    label : str
        Column of labels.
    weight : str, default=None
        Column of weights.
    sensitive : tuple of str, default=()
        Columns that constraints group by.
    id : str, default=None
        Column of integers that number the rows. By default rows are numbered by their partition
        and place.
    """

    features: FeatureColumns
    label: str
    weight: str | None = None
    sensitive: tuple[str, ...] = ()
    id: str | None = None

    def select(self, dataset: DataFrame) -> DataFrame:
        """Select the columns, under names by which `read` finds them.

        Raises
        ------
        ValueError
            If the DataFrame lacks a column.
        """
        given = {"labelCol": self.label, "weightCol": self.weight, "idCol": self.id}
        for parameter, name in given.items():
            if name:
                check_columns(dataset, parameter, [name])
        if self.sensitive:
            check_columns(dataset, "sensitiveCols", self.sensitive)
        columns = [*self.features.select(dataset), dataset[self.label].alias("y")]
        if self.weight:
            columns.append(dataset[self.weight].cast("double").alias("weight"))
        columns += [dataset[name].alias(f"s{j}") for j, name in enumerate(self.sensitive)]
        number = functions.monotonically_increasing_id() if self.id is None else dataset[self.id]
        return dataset.select(*columns, number.cast("long").alias("number"))

    def read(self, frame: pd.DataFrame) -> Shard:
        """Read some rows that `select` has selected."""
        if frame["number"].isna().any():
            raise ValueError(f"idCol={self.id!r} has missing values: give each row a number.")
        columns = {name: frame[f"s{j}"].to_numpy() for j, name in enumerate(self.sensitive)}
        return Shard(
            self.features.read(frame),
            frame["y"].to_numpy(),
            frame["number"].to_numpy(dtype=np.int64),
            frame["weight"].to_numpy() if self.weight else None,
            columns or None,
        )


def train(
    dataset: DataFrame,
    rows: SparkRows,
    plan: Plan,
    n_tasks: int | None = None,
    function: networks.RankFunction = train_rank,
) -> RankResult:
    """Train on the rows of a DataFrame, each row in the task of its partition.

    Parameters
    ----------
    dataset : DataFrame
        Training rows.
    rows : SparkRows
        Their columns.
    plan : Plan
        The same for all tasks.
    n_tasks : int, default=None
        Number of tasks, each of which needs a free slot of the cluster. By default there is one
        for each partition, and no row moves. Spark deals the rows to another number of partitions.
    function : callable, default=train_rank
        Trains on the rows of one task.

    Returns
    -------
    RankResult
        Result of the first task.

    Raises
    ------
    MachineError
        If the function raises in a task, or a task is lost; names the task.
    """
    selected = rows.select(dataset)
    n_partitions = selected.rdd.getNumPartitions()
    n_tasks = n_partitions if n_tasks is None else n_tasks
    if n_tasks != n_partitions:
        selected = selected.repartition(n_tasks)
    none = rows.read(selected.limit(0).toPandas())
    host = dataset.sparkSession.conf.get("spark.driver.host")
    assert host is not None
    with networks.xgboost_network(n_tasks, host) as tracker:
        tasks = [
            networks.RankTask(rank, n_tasks, tracker, plan, function) for rank in range(n_tasks)
        ]

        def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            """Train on the rows of one partition, in its task."""
            context = BarrierTaskContext.get()
            rank = context.partitionId()

            def read() -> Shard:
                return join_shards([rows.read(frame) for frame in frames] or [none])

            outcome = tasks[rank].run(read, context.cpus())
            yield pd.DataFrame({"rank": [rank], "outcome": [pickle.dumps(outcome)]})

        found = selected.mapInPandas(work, "rank long, outcome binary", barrier=True)
        try:
            collected = found.collect()
        except (Py4JError, PySparkException) as error:
            # A task that is lost, or cannot start, ends the stage.
            lost = re.search(r"barrier task \w+\(\d+, (\d+)\) finished unsuccessfully", str(error))
            if lost is None:
                raise
            # The error of the Python process of the task, unless that was killed.
            raised = re.search(
                r"Traceback \(most recent call last\):\n(?: .*\n)+(\w.*)", str(error)
            )
            reason = "this task of Spark was lost: its process was killed, or ran out of memory"
            if raised is not None and not raised[1].startswith("EOFError"):
                reason = f"{raised[1]} (before training, in the Python of the executor)"
            where = int(lost[1]), n_tasks, "an executor of Spark"
            raise MachineError(*where, reason) from error
    outcomes = [pickle.loads(row["outcome"]) for row in sorted(collected)]
    result: RankResult = networks.results_of(outcomes)[0]
    return result


_column = functools.partial(Param, Params._dummy())


class _ColumnParams(HasLabelCol, HasWeightCol, HasPredictionCol, HasProbabilityCol):
    """Parameters of the estimator and of its model that name columns."""

    featuresCol: Param[Any] = _column(
        "featuresCol", "column of vectors or arrays, or list of numeric columns"
    )
    sensitiveCols: Param[list[str]] = _column(
        "sensitiveCols", "columns that constraints may group by", TypeConverters.toListString
    )
    idCol: Param[str] = _column(
        "idCol", "column of integers, different for each row", TypeConverters.toString
    )
    numWorkers: Param[int] = _column(
        "numWorkers", "number of tasks that train together", TypeConverters.toInt
    )

    def _optional(self, param: Param[Any], default: Any = None) -> Any:
        return self.getOrDefault(param) if self.isDefined(param) else default


class ConstrainedXGBClassificationModel(Model, _ColumnParams):
    """XGBoost classifier under constraints that was trained on a Spark cluster.

    Parameters
    ----------
    local : gbm_constrained.ConstrainedXGBClassifier
        Fitted classifier of one machine.
    """

    def __init__(self, local: Any) -> None:
        super().__init__()
        self._local = local

    def to_local(self) -> Any:
        """Return the fitted classifier of one machine, which has the reports and saves files."""
        return self._local

    def _transform(self, dataset: DataFrame) -> DataFrame:
        """Add columns of predicted classes and of vectors of probabilities."""
        features = FeatureColumns.from_dataset(dataset, self.getOrDefault("featuresCol"))
        local = self._local

        def predict(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                X = features.read(frame)
                classes, probability = local.predict(X), local.predict_proba(X).astype(float)
                found = {"prediction": classes.astype(float), "probability": list(probability)}
                yield pd.DataFrame(found)

        of_rows = pandas_udf(predict, "prediction double, probability array<double>")  # type: ignore[call-overload]
        name = f"predicted-{uuid4()}"
        predicted = dataset.withColumn(name, of_rows(functions.struct(*features.select(dataset))))
        added = {
            self.getPredictionCol(): predicted[name]["prediction"],
            self.getProbabilityCol(): array_to_vector(predicted[name]["probability"]),
        }
        return predicted.withColumns(added).drop(name)


class ConstrainedXGBClassifier(Estimator[ConstrainedXGBClassificationModel], _ColumnParams):
    """XGBoost classifier under constraints as an estimator of PySpark.

    The executors train together in a barrier stage. Parameters, reports and saved files are those
    of :class:`gbm_constrained.ConstrainedXGBClassifier`, which ``fit(dataset).to_local()`` is.

    Parameters
    ----------
    featuresCol : str or list of str, default="features"
        Column of vectors or arrays, or columns of numbers.
    labelCol : str, default="label"
        Column of labels 0, 1, ...
    weightCol : str, default=None
        Column of weights.
    sensitiveCols : list of str, default=None
        Columns that constraints may group by.
    idCol : str, default=None
        Column of integers, different for each row. They alone decide how rows are divided to
        measure constraints. By default rows are numbered by partition and place.
    predictionCol : str, default="prediction"
        Column of classes that the model adds.
    probabilityCol : str, default="probability"
        Column of vectors of probabilities that the model adds.
    numWorkers : int, default=None
        Number of tasks that train together, each of which needs a free slot of the cluster. By
        default there is one for each partition.
    **params
        Parameters of :class:`gbm_constrained.ConstrainedXGBClassifier`. Each is a ``Param`` of the
        estimator as well. ``n_jobs`` is by default the number of cores of a task.

    Examples
    --------
    >>> from gbm_constrained import fpr, gap
    >>> from gbm_constrained.spark import ConstrainedXGBClassifier
    >>> constraints = [fpr() <= 0.05, gap(fpr(), by="sex") <= 0.02]
    >>> clf = ConstrainedXGBClassifier(constraints=constraints, sensitiveCols=["sex"])
    """

    _input_kwargs: dict[str, Any]  # What was given, as PySpark keeps it.

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str | Sequence[str] = "features",
        labelCol: str = "label",
        weightCol: str | None = None,
        sensitiveCols: Sequence[str] | None = None,
        idCol: str | None = None,
        predictionCol: str = "prediction",
        probabilityCol: str = "probability",
        numWorkers: int | None = None,
        **params: Any,
    ) -> None:
        super().__init__()
        local = of_xgboost.ConstrainedXGBClassifier(**params)  # refuses what it has moved
        self._names = sorted({*local.get_params(deep=False), *params})
        doc = "parameter of gbm_constrained.ConstrainedXGBClassifier"
        for name in self._names:
            setattr(self, name, Param(self, name, doc))
        if numWorkers is not None:
            check_integer("numWorkers", numWorkers, least=1)
        self._setDefault(featuresCol="features")
        self._set(**self._input_kwargs)

    def _fit(self, dataset: DataFrame) -> ConstrainedXGBClassificationModel:
        """Train on a DataFrame, each partition in the task that holds the partition."""
        rows = SparkRows(
            FeatureColumns.from_dataset(dataset, self.getOrDefault("featuresCol")),
            self.getLabelCol(),
            self._optional(self.weightCol),
            tuple(self._optional(self.sensitiveCols, ())),
            self._optional(self.idCol),
        )
        params = {name: self.getOrDefault(name) for name in self._names if self.isSet(name)}
        plan = Plan("xgboost", params)
        result = train(dataset, rows, plan, self._optional(self.numWorkers))
        return self._copyValues(ConstrainedXGBClassificationModel(result.load()))
