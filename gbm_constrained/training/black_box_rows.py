"""Rows of a fit for a black-box metric: those of training, of choice and of evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Codes
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData, take_values
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.data.validation import as_labels
from gbm_constrained.training.black_box_options import BlackBoxOptions
from gbm_constrained.training.evaluation_sets import check_pair

EVALUATION_SHARE = 1.0 / 3.0  # Of the validation rows, where no rows of evidence are given.
PARTS = ("X", "y", "sensitive_features", "sample_weight")


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as they were given to ``fit``, beside the training rows.

    Parameters
    ----------
    X : table
        Features.
    y : array-like of shape (n_samples,)
        Labels.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        Columns that the function takes, or that make groups.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights, of functions that take weights.
    remedy : str, keyword
        How a column that is missing can be given, in messages.
    """

    X: Any
    y: Any
    sensitive_features: Any = None
    sample_weight: Any = None
    remedy: str = field(kw_only=True)

    @classmethod
    def read(cls, name: str, given: Any, X: Any) -> GivenRows:
        """Read a tuple (X, y), with sensitive features third and sample weights fourth.

        Raises
        ------
        TypeError, ValueError
            If there is no such tuple, or its columns are not those of the training rows `X`.
        """
        if not isinstance(given, (tuple, list)) or not 2 <= len(given) <= len(PARTS):
            length = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
            raise TypeError(
                f"{name} must be (X, y) or (X, y, sensitive_features), with sample_weight as a "
                f"fourth element where it matters; got a {type(given).__name__}{length}."
            )
        check_pair(name, given[0], given[1], X, by_name=True)
        return cls(*given, remedy=f"in {name}=(X, y, sensitive_features)")

    def take(self, index: Codes) -> GivenRows:
        """Take some of the rows."""
        given = [getattr(self, name) for name in PARTS]
        taken = (None if v is None else take_values(v, index) for v in given)
        return GivenRows(*taken, remedy=self.remedy)

    def encode(self, name: str, data: FitData) -> LabelledRows:
        """Encode the rows like the training rows."""
        rows = data.evaluation_rows(
            name, self.X, self.y, self.sample_weight, self.sensitive_features, self.remedy
        )
        aligned = {f"{part} of {name}": getattr(self, part) for part in PARTS}
        data.alignment.check(aligned)
        return LabelledRows(self.X, as_labels(self.y, name), self.sensitive_features, rows)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Encoded rows beside the training rows.

    Parameters
    ----------
    X : table
        Features.
    y : ndarray of shape (n_samples,)
        Labels, as they were given.
    sensitive_features : object
        Sensitive features, as they were given.
    rows : Rows
        The rows.
    """

    X: Any
    y: NDArray[Any]
    sensitive_features: Any
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class BlackBoxRows:
    """All rows of a fit for a black-box metric.

    Parameters
    ----------
    data : FitData
        Training rows.
    validation : LabelledRows
        Rows that gradients are estimated on, and that choose the model.
    evaluation : LabelledRows
        Rows of the report alone.
    kept : ndarray of int or None
        Positions of the training rows among those that were given; None if all are kept.
    """

    data: FitData
    validation: LabelledRows
    evaluation: LabelledRows
    kept: Codes | None

    @classmethod
    def of(
        cls, options: BlackBoxOptions, arguments: FitArguments, random_state: Any
    ) -> BlackBoxRows:
        """Split the rows that were given.

        Parameters
        ----------
        options : BlackBoxOptions
            Parameters of the fit.
        arguments : FitArguments
            Arguments of ``fit`` about rows.
        random_state : int, RandomState or None
            Source of randomness of the splits.

        Raises
        ------
        TypeError, ValueError
            If rows do not fit together.
        """
        data, kept = FitData.of(arguments, (), random_state), None
        options.check_classes(data.classes)
        if arguments.validation is None:
            cells = partition(data.rows, options)
            everyone = np.arange(len(data.rows))
            held, kept = data.split(everyone, cells, options.holdout_fraction)
            out = arguments.take(held)
            given = GivenRows(*(getattr(out, part) for part in PARTS), remedy=data.rows.remedy)
            data = FitData.of(arguments.take(kept), (), data.random_state)
        else:
            given = GivenRows.read("validation", arguments.validation, arguments.X)
        if arguments.evaluation is None:
            rows = given.encode("validation", data).rows
            shares = [EVALUATION_SHARE, 1.0 - EVALUATION_SHARE]
            parts = parts_by_cell(
                np.arange(len(rows)), partition(rows, options), shares, data.random_state
            )
            further, given = (given.take(part) for part in parts)
        else:
            further = GivenRows.read("evaluation", arguments.evaluation, arguments.X)
        validation, evaluation = (
            part.encode(name, data)
            for name, part in (("validation", given), ("evaluation", further))
        )
        for name, part in (("validation", validation), ("evaluation", evaluation)):
            if not len(part):
                raise ValueError(
                    f"There are no {name} rows: give {name}=(X, y) with rows of both labels, or "
                    f"more of the rows that they are taken from."
                )
        return cls(data, validation, evaluation, kept)


def partition(rows: Rows, options: BlackBoxOptions) -> Cells:
    """Divide rows by label, and by the groups of the metric."""
    columns = options.metric.columns
    return Cells(rows, [[] if columns is None else [columns]])
