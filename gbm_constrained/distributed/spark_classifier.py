"""Spark estimator of XGBoost under constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasPredictionCol, HasProbabilityCol, HasWeightCol
from pyspark.sql import DataFrame, functions
from pyspark.sql.pandas.functions import pandas_udf

from gbm_constrained.boosters.xgboost import classifier as of_xgboost
from gbm_constrained.data.validation import check_integer
from gbm_constrained.distributed.rank import Plan
from gbm_constrained.distributed.spark import train
from gbm_constrained.distributed.spark_rows import FeatureColumns, SparkRows


class _ColumnParams(HasLabelCol, HasWeightCol, HasPredictionCol, HasProbabilityCol):
    """Parameters of the estimator and of its model that name columns."""

    featuresCol: Param[Any] = Param(
        Params._dummy(), "featuresCol", "column of vectors or arrays, or list of numeric columns"
    )
    sensitiveCols: Param[list[str]] = Param(
        Params._dummy(),
        "sensitiveCols",
        "columns that constraints may group by",
        typeConverter=TypeConverters.toListString,
    )
    idCol: Param[str] = Param(
        Params._dummy(),
        "idCol",
        "column of integers, different for each row",
        typeConverter=TypeConverters.toString,
    )
    numWorkers: Param[int] = Param(
        Params._dummy(),
        "numWorkers",
        "number of tasks that train together",
        typeConverter=TypeConverters.toInt,
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
        features = FeatureColumns.of(dataset, self.getOrDefault("featuresCol"))
        local = self._local

        def predict(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                X = features.read(frame)
                yield pd.DataFrame(
                    {
                        "prediction": np.asarray(local.predict(X), dtype=float),
                        "probability": list(local.predict_proba(X).astype(float)),
                    }
                )

        of_rows = pandas_udf(predict, "prediction double, probability array<double>")  # type: ignore[call-overload]
        name = f"predicted-{uuid4()}"
        predicted = dataset.withColumn(name, of_rows(functions.struct(*features.select(dataset))))
        return predicted.withColumns(
            {
                self.getPredictionCol(): predicted[name]["prediction"],
                self.getProbabilityCol(): array_to_vector(predicted[name]["probability"]),
            }
        ).drop(name)


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
        for name in self._names:
            doc = "parameter of gbm_constrained.ConstrainedXGBClassifier"
            setattr(self, name, Param(self, name, doc))
        if numWorkers is not None:
            check_integer("numWorkers", numWorkers, least=1)
        self._set(
            featuresCol=featuresCol,
            labelCol=labelCol,
            weightCol=weightCol,
            sensitiveCols=None if sensitiveCols is None else list(sensitiveCols),
            idCol=idCol,
            predictionCol=predictionCol,
            probabilityCol=probabilityCol,
            numWorkers=numWorkers,
            **params,
        )

    def _fit(self, dataset: DataFrame) -> ConstrainedXGBClassificationModel:
        """Train on a DataFrame, each partition in the task that holds the partition."""
        rows = SparkRows(
            FeatureColumns.of(dataset, self.getOrDefault("featuresCol")),
            self.getLabelCol(),
            self._optional(self.weightCol),
            tuple(self._optional(self.sensitiveCols, ())),
            self._optional(self.idCol),
        )
        params = {name: self.getOrDefault(name) for name in self._names if self.isSet(name)}
        plan = Plan("xgboost", params)
        result = train(dataset, rows, plan, self._optional(self.numWorkers))
        return self._copyValues(ConstrainedXGBClassificationModel(result.load()))
