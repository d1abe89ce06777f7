"""Rows of a regression: targets that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.row_means import row_functions_of
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.data.fit_data import OF_EVALUATION_SETS, FitArguments, FitData
from gbm_constrained.data.given_folds import GivenFolds
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import as_labels, check_features, check_weight


def check_targets(y: Any, name: str = "y") -> Float:
    """Convert targets to float64, one finite number for each row.

    Raises
    ------
    ValueError
        If there are several targets for a row, or some are missing, infinite or no numbers.
    """
    given = as_labels(y, name)
    try:
        targets = given.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} holds {to_python_scalar(given[0])!r}, which is no number: a regressor needs "
            f"numbers."
        ) from None
    infinite = np.flatnonzero(~np.isfinite(targets))
    if infinite.size:
        raise ValueError(
            f"{name} is {targets[infinite[0]]} in row {infinite[0]}: drop those rows, or clip "
            f"them."
        )
    return targets


@dataclass(frozen=True, eq=False)
class TargetData(FitData):
    """Rows of a regression, encoded once.

    The columns of a table of cell statistics are the row functions of the constraints, whose keys
    stand in the place of classes. All rows have the first "class"; rows without a target have
    none.

    Parameters
    ----------
    targets : (n_rows,). Target of each row of `combined`; zero for rows without one.
    certification_targets : Targets of the rows that are set aside.
    """

    targets: Float = field(default_factory=lambda: np.zeros(0))
    certification_targets: Float = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls, arguments: FitArguments, constraints: Sequence[Constraint], random_state: Any = None
    ) -> TargetData:
        """Check and encode the rows; no random state is the same as 0."""
        check_features(arguments.X)
        targets = check_targets(arguments.y)
        check_consistent_length(arguments.X, targets)
        keys = [function.key for function in row_functions_of(constraints)]
        classes = np.array(keys or ["none"])
        codes = np.zeros(targets.size, dtype=np.intp)
        weight = check_weight(arguments.sample_weight, targets.size)
        features, of_sets = _split_targets(arguments.datasets)
        combined = CombinedRows.of(
            arguments.X, targets, arguments.sample_weight, codes, classes, features
        )
        known = np.concatenate([~np.isnan(part) for part in (targets, *of_sets)])
        every = np.nan_to_num(np.concatenate([targets, *of_sets]))
        # Libraries recognise evaluation sets that are the training rows by the object.
        y = every if of_sets else arguments.y
        combined = replace(combined, y=y, codes=np.where(known, 0, -1))
        made = cls.assemble(arguments, constraints, combined, classes, weight, random_state)
        return replace(made, targets=every)

    @property
    def columns(self) -> int:
        """Number of scores of a row."""
        return 1

    def check_folds(self, given: GivenFolds) -> None:
        """Refuse folds without training rows."""
        given.check_classes(self.y, self.classes[:1])

    def without_certification_rows(self, cells: Cells, share: float) -> TargetData:
        """Set a share of the rows of each cell, or the latest rows, aside for certificates."""
        found = super().without_certification_rows(cells, share)
        assert isinstance(found, TargetData)
        return replace(
            found,
            targets=self.targets[found.training],
            certification_targets=self.targets[found.certification],
        )

    def evaluation_rows(
        self,
        name: str,
        X: Any,
        y: Any,
        weight: Any = None,
        sensitive_features: Any = None,
        remedy: str = OF_EVALUATION_SETS,
    ) -> Rows:
        """Encode the rows of an evaluation set; `remedy` says how columns of it are given."""
        codes: Codes = np.zeros(check_targets(y, f"y of {name}").size, dtype=np.intp)
        return Rows(
            codes,
            self.classes,
            check_weight(weight, codes.size, f"sample weight of {name}"),
            columns_of(sensitive_features, codes.size, f"sensitive features of {name}"),
            [X],
            like=self.rows,
            remedy=remedy,
        )


def _split_targets(datasets: Any) -> tuple[Any, list[Float]]:
    """Split further data sets into features, and targets, which are NaN where there are none."""
    if not isinstance(datasets, dict):
        return datasets, []
    features, targets = {}, []
    for name, given in datasets.items():
        X, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        features[name] = X
        n = len(X) if not hasattr(X, "shape") else X.shape[0]
        found = np.full(n, np.nan)
        if y is not None:
            found = check_targets(y, f"y of datasets[{name!r}]")
            if found.size != n:
                raise ValueError(
                    f"datasets[{name!r}] has {n} rows of features and {found.size} targets."
                )
        targets.append(found)
    return features, targets
