"""What a command does with a target: labels of a classifier, or numbers of a regressor."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.lightgbm.regressor import ConstrainedLGBMRegressor
from gbm_constrained.boosters.xgboost.regressor import ConstrainedXGBRegressor
from gbm_constrained.cli.classifiers import LabelledXGBClassifier
from gbm_constrained.cli.tables import Label, LabelledRows, as_labels, as_targets, as_values
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.row_means import refuse_rates, row_functions_of

# Options that are about classes.
OF_CLASSES = ("positive", "metric", "maximize", "minimize")


class Task(Protocol):
    """What is learnt from a target.

    Attributes
    ----------
    estimators : mapping from library to class
        Estimators that learn it.
    """

    estimators: ClassVar[Mapping[str, Any]]

    def check_options(self, options: argparse.Namespace, reason: str) -> None:
        """Refuse options that have no meaning here; `reason` says why it is this task."""

    def read_target(
        self, column: pd.Series, texts: pd.Series | None, *, keeps_texts: bool
    ) -> NDArray[Any]:
        """Convert the column of the target; `texts` are those of numbers in CSV."""

    def find_labels(self, options: argparse.Namespace, y: NDArray[Any]) -> list[Label]:
        """Find the labels to train on, sorted; none of numbers."""

    def describe(self, options: argparse.Namespace, y: NDArray[Any]) -> str:
        """Say what there is to learn."""

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """Find the strata in which rows are held out."""

    def as_classes(
        self, rows: LabelledRows, constraints: Sequence[Constraint]
    ) -> tuple[LabelledRows, NDArray[Any]]:
        """Make rows, and their sorted classes, to which constraints can be compiled."""

    def arguments(self, positive: Label | None) -> dict[str, Any]:
        """Make the arguments of the estimator that are about its classes."""


class Classification:
    """Labels are learnt, under rates."""

    estimators: ClassVar[Mapping[str, Any]] = {
        "xgboost": LabelledXGBClassifier,
        "lightgbm": ConstrainedLGBMClassifier,
    }

    def check_options(self, options: argparse.Namespace, reason: str) -> None:
        """Refuse nothing."""

    def read_target(
        self, column: pd.Series, texts: pd.Series | None, *, keeps_texts: bool
    ) -> NDArray[Any]:
        """Read labels: texts, whole numbers or bools."""
        return as_labels(as_values(column, texts, keeps_texts=keeps_texts), str(column.name))

    def find_labels(self, options: argparse.Namespace, y: NDArray[Any]) -> list[Label]:
        """Find the labels, of which a classifier needs two."""
        labels: list[Label] = np.unique(y).tolist()
        if len(labels) < 2:
            raise ValueError(f"--target {options.target} holds one label only, {labels[0]!r}.")
        return labels

    def describe(self, options: argparse.Namespace, y: NDArray[Any]) -> str:
        """Name the labels, and the positive one of two."""
        labels = np.unique(y).tolist()
        positive = f"\npositive: {options.positive or labels[-1]}" if len(labels) == 2 else ""
        return f"labels {labels}{positive}"

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """Hold out rows of each label."""
        return y

    def as_classes(
        self, rows: LabelledRows, constraints: Sequence[Constraint]
    ) -> tuple[LabelledRows, NDArray[Any]]:
        """Take the labels as they are."""
        return rows, np.unique(rows.y)

    def arguments(self, positive: Label | None) -> dict[str, Any]:
        """Name the positive class."""
        return {"positive": positive}


class Regression:
    """Numbers are learnt, under means over predicted numbers."""

    estimators: ClassVar[Mapping[str, Any]] = {
        "xgboost": ConstrainedXGBRegressor,
        "lightgbm": ConstrainedLGBMRegressor,
    }

    def check_options(self, options: argparse.Namespace, reason: str) -> None:
        """Refuse options about classes."""
        for name in OF_CLASSES:
            if getattr(options, name, None) not in (None, []):
                raise ValueError(f"--{name} is about classes, and {reason}: leave it out.")

    def read_target(
        self, column: pd.Series, texts: pd.Series | None, *, keeps_texts: bool
    ) -> NDArray[Any]:
        """Read finite numbers."""
        return as_targets(column)

    def find_labels(self, options: argparse.Namespace, y: NDArray[Any]) -> list[Label]:
        """Find none, and refuse a target from which nothing can be learnt."""
        if (y == y[0]).all():
            raise ValueError(f"--target {options.target} holds one number only, {y[0]:g}.")
        return []

    def describe(self, options: argparse.Namespace, y: NDArray[Any]) -> str:
        """Say where the targets lie."""
        return f"targets from {y.min():g} to {y.max():g}, {y.mean():g} on average"

    def strata(self, y: NDArray[Any]) -> NDArray[Any]:
        """Hold out rows whatever their targets."""
        return np.zeros(y.size, dtype=np.intp)

    def as_classes(
        self, rows: LabelledRows, constraints: Sequence[Constraint]
    ) -> tuple[LabelledRows, NDArray[Any]]:
        """Put the row functions in the place of classes, and all rows into the first one."""
        classes = np.array([function.key for function in row_functions_of(constraints)])
        return replace(rows, y=np.repeat(classes[:1], rows.y.size)), classes

    def arguments(self, positive: Label | None) -> dict[str, Any]:
        """Give none."""
        return {}


def find_task(constraints: Sequence[Constraint], options: argparse.Namespace) -> Task:
    """Find the task of a fit: regression under means over numbers, and classification else."""
    means = [constraint for constraint in constraints if row_functions_of([constraint])]
    if not means:
        return Classification()
    try:
        refuse_rates(constraints)
    except ValueError as error:
        raise ValueError(
            f"--constraint: {error} A model is trained under constraints of one kind, and "
            f"{means[0]} makes it a regressor."
        ) from None
    task = Regression()
    task.check_options(options, f"--constraint {means[0]} is about predicted numbers")
    return task
