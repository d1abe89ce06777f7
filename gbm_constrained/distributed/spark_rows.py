"""Rows of a fit as columns of a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, BooleanType, DataType, DecimalType, NumericType

from gbm_constrained.distributed.rank import Shard


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
    def of(cls, dataset: DataFrame, given: str | Sequence[str]) -> FeatureColumns:
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
            first = dataset.select(functions.size(_as_number(dataset[names[0]], types[0]))).first()
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
        """List expressions of the features, called by their position."""
        return [
            _as_number(dataset[name], dataset.schema[name].dataType).alias(f"x{j}")
            for j, name in enumerate(self.names)
        ]

    def read(self, frame: pd.DataFrame) -> Any:
        """Read the features of some rows from the columns that `select` has made."""
        columns = frame[[f"x{j}" for j in range(len(self.names))]]
        if self.size is None:
            return columns.set_axis(list(self.names), axis=1)
        return np.array(columns["x0"].tolist(), dtype=float).reshape(-1, self.size)


def _as_number(column: Column, kind: DataType) -> Column:
    """Express a column by types that pandas reads as numbers, missing values among them."""
    if isinstance(kind, VectorUDT):
        return vector_to_array(column)
    if isinstance(kind, BooleanType | DecimalType):
        return column.cast("double")
    return column


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
        given = {"labelCol": (self.label,), "sensitiveCols": self.sensitive}
        given |= {"weightCol": (self.weight,)} if self.weight else {}
        given |= {"idCol": (self.id,)} if self.id else {}
        for parameter, names in given.items():
            if names:
                check_columns(dataset, parameter, names)
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
