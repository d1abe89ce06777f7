"""Metrics that are only a function to call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from gbm_constrained.constraints.rate_parts import read_columns
from gbm_constrained.constraints.selectors import Columns
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import check_integer, is_finite_number
from gbm_constrained.metrics.called_function import CalledFunction, Predict, read_function
from gbm_constrained.metrics.measured_black_box import CallBudget, MeasuredBlackBox
from gbm_constrained.metrics.surrogates import (
    Surrogate,
    SurrogateLosses,
    check_surrogates,
    default_surrogates,
    warn_of_few_rows,
)


@dataclass(frozen=True, eq=False)
class BlackBox:
    r"""A metric of labels and predictions that is only a function to call.

    The function is never differentiated. Its sensitivity to few surrogates, which are mean losses
    of the training rows, is estimated from calls on validation rows (Jiang et al., "Optimizing
    Black-box Metrics with Adaptive Surrogates", ICML 2020, sections 3 to 5). The relaxation behind
    the method is exact where the metric rises with every surrogate. Convergence is to a
    stationary point, and is shown for smooth bounded surrogates. For a function of the confusion
    matrix use ``maximize=`` with a metric of this module, whose optimum is found exactly.

    Parameters
    ----------
    function : callable or scorer
        ``function(y_true, scores)`` or ``function(y_true, scores, sensitive)``, which returns one
        finite number within `bounds`. Its arguments are read-only arrays of the validation rows;
        several sensitive features are a mapping from names to arrays. A parameter
        ``sample_weight`` gets the weights of the rows. A third parameter gets the sensitive
        features if it has no default, or is called ``sensitive``. A scorer of
        :func:`sklearn.metrics.make_scorer` is taken by its score function, its sign and its
        response method.
    surrogates : sequence of Surrogate, default=None
        Mean losses of training rows, from :func:`surrogate`, at most 32. By default the log loss
        of each label, in each level of `by`.
    by : str or list of str, default=None
        Columns of the sensitive features, or of X when it is a DataFrame, that make groups.
    predict : {"scores", "labels", "probabilities"}, default="scores"
        Predictions that the function takes: scores of the positive class, which are log odds;
        labels, which are positive where scores are above zero; or probabilities of the positive
        class. A scorer has its own.
    maximize : bool, default=False
        Whether larger values are better. A scorer has its own direction.
    bounds : tuple of two floats, default=(0, 1)
        Smallest and largest value of the function.
    max_calls : int, default=3000
        Most calls of the function in a fit.

    Raises
    ------
    TypeError, ValueError
        If the function takes other arguments or is a metric of the confusion matrix, or another
        parameter is out of its range.

    Examples
    --------
    >>> from gbm_constrained.metrics import BlackBox
    >>> def loss(y_true, scores):
    ...     return float(((scores > 0) != y_true).mean())
    >>> BlackBox(loss)
    BlackBox(loss)
    """

    function: Any
    surrogates: Any = None
    by: Any = None
    predict: Predict = "scores"
    maximize: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)
    max_calls: int = 3000
    called: CalledFunction = field(init=False, repr=False)
    columns: Columns | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_surrogates(self.surrogates)
        check_integer("max_calls", self.max_calls, 1)
        _check_bounds(self.bounds)
        called = read_function(self.function, self.predict, self.maximize)
        object.__setattr__(self, "called", called)
        object.__setattr__(self, "columns", read_columns(self.by))

    def bind_surrogates(self, rows: Rows, n_validation: int | None) -> SurrogateLosses:
        """Bind the surrogates to training rows.

        Parameters
        ----------
        rows : Rows
            Training rows.
        n_validation : int or None
            Number of validation rows, of which few give a warning; None gives none.

        Returns
        -------
        SurrogateLosses

        Raises
        ------
        ValueError
            If y has not two classes, or a surrogate has no rows.
        """
        bound = SurrogateLosses(self._surrogates_of(rows), rows)
        if n_validation is not None:
            warn_of_few_rows(len(bound), n_validation)
        return bound

    def bind_validation(self, rows: Rows, training: Rows) -> SurrogateLosses:
        """Bind the surrogates of training rows to validation rows.

        A function that looks at sensitive features needs validation rows of each surrogate, and
        estimators that shift scores need surrogates on these rows.

        Parameters
        ----------
        rows : Rows
            Validation rows.
        training : Rows
            Training rows, whose groups make the surrogates by default.

        Returns
        -------
        SurrogateLosses

        Raises
        ------
        ValueError
            If a surrogate has no validation rows.
        """
        return SurrogateLosses(self._surrogates_of(training), rows, "validation")

    def _surrogates_of(self, rows: Rows) -> tuple[Surrogate, ...]:
        given = check_surrogates(self.surrogates)
        return default_surrogates(rows, self.columns) if given is None else given

    def bind(
        self, rows: Rows, y_true: NDArray[Any], budget: CallBudget | None = None
    ) -> MeasuredBlackBox:
        """Bind the function to validation rows.

        Parameters
        ----------
        rows : Rows
            Validation rows, with their sensitive features and weights.
        y_true : ndarray of shape (n_samples,)
            Their labels, as they were given.
        budget : CallBudget, default=None
            Calls that are left; `max_calls` of them by default.

        Returns
        -------
        MeasuredBlackBox

        Raises
        ------
        ValueError
            If the function takes sensitive features, and there are none.
        """
        if self.called.takes_sensitive and not rows.columns:
            raise ValueError(
                f"There are no sensitive features, which {self} takes: give them {rows.remedy}, "
                f"one value for each row."
            )
        budget = CallBudget(self.max_calls) if budget is None else budget
        return MeasuredBlackBox(self.called, self.bounds, rows, y_true, budget)

    def __repr__(self) -> str:
        return f"BlackBox({self.called.name})"


def _check_bounds(bounds: Any) -> None:
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    if not is_pair or not all(map(is_finite_number, bounds)) or not bounds[0] < bounds[1]:
        raise ValueError(
            f"bounds must be the smallest and the largest value of the function, as in (0, 1), "
            f"got {bounds!r}."
        )
