"""Features of all rows of a fit, from which the matrices of the folds are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import xgboost as xgb

from gbm_constrained._dataframes import take_rows, with_rows
from gbm_constrained._typing import Array, Bool, Codes

MakeMatrix: TypeAlias = Callable[[Bool], xgb.DMatrix]
"""Function that makes the matrix of some rows, given a boolean for each row."""

BATCH = 1 << 19  # Rows that are taken to a graphics card together.


SCORED = 1 << 16  # Rows of which a matrix of values is made to score them.


def read_rows(parent: xgb.XGBClassifier, X: Any, base_margin: Any, rows: Codes) -> xgb.DMatrix:
    """Make the matrix of some rows of a table, to score them."""
    return xgb.DMatrix(
        take_rows(X, rows),
        base_margin=None if base_margin is None else take_rows(base_margin, rows),
        missing=parent.missing,
        enable_categorical=parent.enable_categorical,
        feature_types=parent.feature_types,
        nthread=parent.n_jobs,
    )


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows of a table once more, in parts, for scores that are seldom asked for."""

    parent: xgb.XGBClassifier
    X: Any
    base_margin: Any

    def matrices(self, rows: Codes) -> Iterator[xgb.DMatrix]:
        """Make one matrix after the other."""
        X = with_rows(self.X)
        for start in range(0, max(rows.size, 1), SCORED):
            yield read_rows(self.parent, X, self.base_margin, rows[start : start + SCORED])


class FoldFeatures(Protocol):
    """Features of all rows of a fit, from which matrices of some rows are made."""

    @property
    def reader(self) -> RowReader | None:
        """Reader of rows that makes it needless to keep a matrix; None where it takes long."""

    def training(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given.

        Labels, weights and weights of features are further arguments.
        """

    def keep_bins(self, training: Any) -> Any:
        """Make the smallest matrix that has the bins of a training matrix."""

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, given a matrix whose bins the trees split at."""


class HostFeatures:
    """Features in main memory, read once.

    XGBoost takes longer to read a table of pandas than to bin its numbers. Arrays need no reading.
    """

    def __init__(self, parent: xgb.XGBClassifier, X: Any, base_margin: Any) -> None:
        self.parent, self.base_margin = parent, base_margin
        self.reader = RowReader(parent, X, base_margin)
        self.described = {"enable_categorical": parent.enable_categorical}
        if type(X) is np.ndarray:
            self.values = X
            self.described |= {"feature_types": parent.feature_types, "missing": parent.missing}
            return
        read = xgb.DMatrix(
            with_rows(X),
            missing=parent.missing,
            enable_categorical=parent.enable_categorical,
            feature_types=parent.feature_types,
            nthread=parent.n_jobs,
        )
        self.values = read.get_data()
        self.described |= {
            "feature_names": read.feature_names,
            "feature_types": read.feature_types,
        }

    def _of_rows(self, rows: Codes) -> dict[str, Any]:
        """List the arguments of a matrix of some rows, as the parent's own ``fit`` gives them."""
        margin = self.base_margin
        return {
            "data": self.values[rows],
            "base_margin": None if margin is None else take_rows(margin, rows),
            **self.described,
        }

    def training(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given."""
        return xgb.XGBClassifier._create_dmatrix(
            self.parent, bins, **self._of_rows(rows), **of_rows
        )

    def keep_bins(self, training: Any) -> Any:
        """Make a matrix of one row with the bins of a training matrix."""
        one_row = {"data": self.values[:1], **self.described}
        return xgb.XGBClassifier._create_dmatrix(self.parent, training, **one_row)

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, of values, which are scored faster than bins."""
        return xgb.DMatrix(**self._of_rows(rows), nthread=self.parent.n_jobs)


class CardFeatures:
    """An array of features whose rows are binned on a graphics card, batch by batch.

    XGBoost bins an array in main memory on the processor, which takes longer than to grow the
    trees. The matrix of the returned model is made so, as its parent makes it.
    """

    reader = None

    def __init__(
        self, parent: xgb.XGBClassifier, X: Array, base_margin: Any, array_module: Any
    ) -> None:
        self.parent, self.X, self.base_margin = parent, X, base_margin
        self.array_module = array_module

    def _matrix(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        parent, margin = self.parent, self.base_margin
        if margin is not None:
            of_rows["base_margin"] = take_rows(margin, rows)
        given = {"feature_types": parent.feature_types, **of_rows}
        return xgb.QuantileDMatrix(
            _Batches(self.X, rows, given, self.array_module),
            ref=bins,
            missing=parent.missing,
            enable_categorical=parent.enable_categorical,
            nthread=parent.n_jobs,
            max_bin=parent.max_bin,
        )

    def training(
        self, rows: Codes, bins: Any, *, feature_weights: Any = None, **of_rows: Any
    ) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given."""
        matrix = self._matrix(rows, bins, **of_rows)
        if feature_weights is not None:
            matrix.set_info(feature_weights=feature_weights)
        return matrix

    def keep_bins(self, training: Any) -> Any:
        """Keep the training matrix, which has the bins."""
        return training

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, binned as the trees split."""
        return self._matrix(rows, bins)


class _Batches(xgb.DataIter):
    """Some of the rows of an array, taken to the memory of a module batch by batch.

    Parameters
    ----------
    given : Arguments of each batch; arrays have an entry for each of the rows.
    """

    def __init__(self, X: Array, rows: Codes, given: dict[str, Any], array_module: Any) -> None:
        super().__init__()
        self.X, self.rows, self.given, self.array_module = X, rows, given, array_module
        self.start = 0

    def next(self, input_data: Any) -> bool:
        """Hand over the next batch; false after the last one."""
        part = slice(self.start, self.start + BATCH)
        rows = self.rows[part]
        if not rows.size:
            return False
        given = {
            name: value[part] if isinstance(value, np.ndarray) else value
            for name, value in self.given.items()
        }
        input_data(data=self.array_module.asarray(self.X[rows]), **given)
        self.start += BATCH
        return True

    def reset(self) -> None:
        """Begin anew, as XGBoost asks for several times."""
        self.start = 0


class MatrixFeatures:
    """Features of which the user makes the matrix of some rows."""

    reader = None

    def __init__(self, make_matrix: MakeMatrix, n_rows: int) -> None:
        self.make_matrix, self.n_rows = make_matrix, n_rows

    def training(
        self, rows: Codes, bins: Any, *, feature_weights: Any = None, **of_rows: Any
    ) -> Any:
        """Make the matrix of some rows, with the labels and weights of all rows."""
        is_inside = np.zeros(self.n_rows, dtype=bool)
        is_inside[rows] = True
        matrix = self.make_matrix(is_inside)
        if not isinstance(matrix, xgb.DMatrix):
            raise TypeError(
                f"make_matrix= has made a {type(matrix).__name__}: it must return an "
                f"xgboost.DMatrix of the rows where its argument is true."
            )
        if matrix.num_row() != rows.size:
            raise ValueError(
                f"make_matrix= has made a matrix of {matrix.num_row()} rows, and was asked for "
                f"the {rows.size} rows of {self.n_rows} where its argument is true."
            )
        matrix.set_info(feature_weights=feature_weights, **of_rows)
        return matrix

    def keep_bins(self, training: Any) -> Any:
        """Keep nothing: the user's function decides about bins."""

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows."""
        return self.training(rows, bins)


def read_features(
    parent: xgb.XGBClassifier, X: Any, base_margin: Any, array_module: Any
) -> FoldFeatures:
    """Read the features of a fit whose kernels have the given module of arrays."""
    is_binned = parent.tree_method in ("hist", None, "auto") and parent.booster != "gblinear"
    if array_module is np or type(X) is not np.ndarray or X.dtype == object or not is_binned:
        return HostFeatures(parent, X, base_margin)
    return CardFeatures(parent, X, base_margin, array_module)
