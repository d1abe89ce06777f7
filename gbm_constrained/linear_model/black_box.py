"""Coefficients of a logistic regression, as parameters of a black-box metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np
from scipy import sparse
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import validate_data

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.group_shifts import GroupOffsets
from gbm_constrained.training.black_box_model import ScoreColumns
from gbm_constrained.training.native_models import multiply_weight


class LinearParameters:
    r"""Coefficients in units of one over the standard deviation of their features.

    In these units a perturbation changes the scores by as much with every feature.

    Parameters
    ----------
    model : LogisticRegression
        A trained model of two classes.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Training rows.
    weight : array-like of shape (n_samples,), default=None
        Their weights, in the standard deviations.
    """

    takes_offsets: ClassVar[bool] = False

    def __init__(self, model: Any, X: Any, weight: Any = None) -> None:
        self.model = model
        table = self._read(X)
        shares = None if weight is None else np.asarray(weight, dtype=np.float64)
        if sparse.issparse(table):
            variance = mean_variance_axis(table, axis=0, weights=shares)[1]
        else:
            mean = np.average(table, axis=0, weights=shares)
            variance = np.average(np.square(table - mean), axis=0, weights=shares)
        deviation = np.sqrt(variance)
        self._deviation: Float = np.where(deviation > 0.0, deviation, 1.0)
        names = getattr(model, "feature_names_in_", range(self._deviation.size))
        self.names = [f"coef[{name}]" for name in names]
        self.start: Float = model.coef_[0] * self._deviation

    def _read(self, X: Any) -> Any:
        return validate_data(self.model, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Divide features by their standard deviations, and put further columns beside them."""
        table: Any = self._read(X)
        if sparse.issparse(table):
            scaled = cast(Any, table).multiply(1.0 / self._deviation)
            matrix = sparse.hstack([scaled, sparse.csr_array(beside)], format="csr")
        else:
            matrix = np.hstack([table / self._deviation, beside])
        return ScoreColumns(matrix, float(self.model.intercept_[0]))

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the coefficients, and add to the intercept."""
        self.model.coef_ = (parameters / self._deviation)[None]
        self.model.intercept_ = self.model.intercept_ + intercept

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Refuse offsets, which no coefficient stands for."""
        raise NotImplementedError("A linear model takes no offsets of groups.")


class LogisticBlackBoxAdapter:
    """``AdjustableAdapter`` of one ``fit`` of a logistic regression.

    Parameters
    ----------
    model : LogisticRegression
        The classifier.
    native : callable
        The parent's own ``fit``.
    rows : FitArguments
        The training rows.
    """

    takes_offsets: ClassVar[bool] = False

    def __init__(self, model: Any, native: Callable[..., Any], rows: FitArguments) -> None:
        self.model, self.native = model, native
        self.X, self.y, self.sample_weight = rows.X, rows.y, rows.sample_weight

    def check_adjustable(self, space: str) -> None:
        """Refuse spaces of a booster."""
        if space != "trees":
            raise ValueError(
                f"space={space!r} is about the trees of a booster, and the parameters of a linear "
                f"model are its coefficients: leave space= out."
            )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        self.X, self.y = take_rows(self.X, rows), take_rows(self.y, rows)
        if self.sample_weight is not None:
            self.sample_weight = take_rows(self.sample_weight, rows)

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""
        self.native(self.X, self.y, multiply_weight(self.sample_weight, factor))

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        model.fit(self.X, self.y, self.sample_weight, sensitive_features=rows.sensitive_features)

    def adjustable(self, space: str) -> LinearParameters:
        """Give access to the coefficients."""
        return LinearParameters(self.model, self.X, self.sample_weight)
