"""Scores of largest AUC under constraints on pair rates, by the level-set method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.combined_rows import encode
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.data.validation import check_labels, check_weight, copy_random_state
from gbm_constrained.linear_model.auc_scorer_checks import (
    check_feasible,
    check_parameters,
    check_split,
    check_two_classes,
)
from gbm_constrained.linear_model.held_rows import HeldRows
from gbm_constrained.linear_model.level_choice import (
    LevelTable,
    LogOdds,
    measure,
    report_frame,
    surrogate_columns,
    warn_of_choice,
)
from gbm_constrained.linear_model.level_path import (
    follow_path,
    make_problem,
    make_search,
    unit_of,
    warn_of_no_progress,
)
from gbm_constrained.linear_model.pair_sets import PairSample, PairSets
from gbm_constrained.linear_model.row_stream import (
    MAX_VALIDATION_ROWS,
    Reservoir,
    RowStream,
    share_of_positives,
)
from gbm_constrained.linear_model.score_functions import LinearScore
from gbm_constrained.solvers.pair_rules import POSITIVES, density_ratios
from gbm_constrained.solvers.stochastic_mirror_descent import ScoreFunction
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.options import with_known_parameters

ACCEPTED: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}


class ConstrainedAUCScorer(ClassifierMixin, BaseEstimator):
    r"""Linear score, or a small network, of largest AUC under constraints on pair rates.

    The stochastic feasible level-set method of [1]_, as corrected in
    :mod:`gbm_constrained.solvers.square_surrogate`. Every pair rate is replaced by the square
    surrogate :math:`c_1 (u - c_2)^2` of differences u of scores, and the surrogate problem is
    solved by steps on a few rows each, or on single rows as they arrive (:meth:`partial_fit`).
    Of all levels the one is returned whose AUC on validation rows is largest among those that meet
    the constraints *themselves* there. What satisfies the surrogate may violate the constraints:
    see the page "The level-set method".

    Scores say nothing of a threshold. ``predict_proba`` and ``predict`` come from a logistic
    regression on the scores of the validation rows, which keeps their order. Where these are of
    one class alone, all rows get about the base rate of the training rows, with a warning.

    Parameters
    ----------
    constraints : Constraint or sequence of Constraint, default=None
        Constraints on pair rates, such as ``gap(auc(), by="sex") <= 0.05``. Without any, the AUC
        alone is optimised.
    hidden : int, default=0
        Number of sigmoid units of a hidden layer; 0 is a linear score. A network is trained by the
        proximal method of [1]_, Algorithm 3.
    c1, c2 : float, default=0.5, 1.0
        Scale and margin of the surrogate. Some scores meet a surrogate bound kappa on the absolute
        difference of two pair rates if and only if ``2 * c1 * c2**2 <= 1 + kappa``. Only
        ``c1 * c2**2`` matters: a factor of c2 alone is one of all scores.
    theta : float, default=2.0
        A level moves by its upper bound over ``2 * theta``.
    batch_size : int, default=100
        Rows of a step.
    n_steps : int, default=2000
        Steps of a level. In :meth:`partial_fit` a level takes ``n_steps * batch_size`` rows.
    max_levels : int, default=40
        Most levels, of each proximal problem of a network.
    tol : float, default=0.005
        The search ends where the upper bound of the level's violation is above ``-tol``, in units
        of ``2 * c1 * c2**2``.
    relative_tol : float, default=None
        In the place of `tol`, the share of the first upper bound at which the search ends:
        ``relative_tol * upper_bound[0] / theta`` ([1]_, Proposition 1).
    first_level : float, default=None
        Level that the search begins at, by default the objective of equal scores, ``c1 * c2**2``.
        It must be above the optimum, which a floor such as ``auc() >= 0.8`` may raise.
    learning_rate : float, default=0.5
        First step size, for features whose standardised rows have a mean squared norm of one.
        Features are standardised by the training rows, or by the first rows of a stream.
    dual_learning_rate : float, default=2.0
        First step size of the dual variables, in units of the coefficient of their entropy.
    interval : float, default=3.0
        Largest absolute value of the auxiliary scalars, among them the mean scores of sets, in
        units of c2.
    slack : float, default=0.0
        Number that is added to the bounds in the surrogate problem. The constraints, by which a
        level is chosen, keep their own.
    solver : {"level_set", "exact"}, default="level_set"
        The method of [1]_, or the exact optimum of the same surrogate problem, for linear scores.
    proximal_weight : float, default=1e-5
        Weight of the proximal term of a network.
    n_proximal_points : int, default=2
        Number of proximal problems of a network.
    validation_fraction : float, default=0.1
        Share of the rows that choose the level, and are not trained on.
    random_state : int, RandomState or None, default=None
        Source of the split, the order of rows and a network's first weights. None is the same
        as 0.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels; scores of the second are to be larger.
    coef_, intercept_ : ndarray of shape (1, n_features) and (1,)
        Log-odds of a linear score. Not for a network.
    level_ : int or None
        Level of the returned score, by its number in ``history_``. None in :meth:`partial_fit`
        until the first level has ended, where the score is the average of the iterates so far.
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on training and on validation rows
        (`held_out`), its multiplier in the surrogate problem, and whether it is satisfied on
        validation rows, ``<NA>`` where a group has no value there.
    history_ : DataFrame
        One row per level: its level r, the upper bound, AUC and constraints on validation rows,
        and in :meth:`fit` the surrogate's objective and largest violation on training rows. The
        distance is that of the point from the centre of the proximal term. At the last level of a
        proximal problem it is the residual of a nearly stationary point ([1]_, Definition 5).

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from gbm_constrained import auc, gap
    >>> from gbm_constrained.linear_model import ConstrainedAUCScorer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = ConstrainedAUCScorer(gap(auc(), by="site") <= 0.05, n_steps=200)
    >>> clf = clf.fit(scale(X), y, sensitive_features={"site": X[:, 0] > 14})
    """

    @with_known_parameters
    def __init__(
        self,
        constraints: Any = None,
        *,
        hidden: int = 0,
        c1: float = 0.5,
        c2: float = 1.0,
        theta: float = 2.0,
        batch_size: int = 100,
        n_steps: int = 2000,
        max_levels: int = 40,
        tol: float = 5e-3,
        relative_tol: float | None = None,
        first_level: float | None = None,
        learning_rate: float = 0.5,
        dual_learning_rate: float = 2.0,
        interval: float = 3.0,
        slack: float = 0.0,
        solver: Literal["level_set", "exact"] = "level_set",
        proximal_weight: float = 1e-5,
        n_proximal_points: int = 2,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.constraints = constraints
        self.hidden = hidden
        self.c1 = c1
        self.c2 = c2
        self.theta = theta
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.max_levels = max_levels
        self.tol = tol
        self.relative_tol = relative_tol
        self.first_level = first_level
        self.learning_rate = learning_rate
        self.dual_learning_rate = dual_learning_rate
        self.interval = interval
        self.slack = slack
        self.solver = solver
        self.proximal_weight = proximal_weight
        self.n_proximal_points = n_proximal_points
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    @with_known_parameters
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> ConstrainedAUCScorer:
        """Fit the score.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels of two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights, in the objective and in the pair rates.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns, one value per row, that constraints may group by. Columns of X are found there
            when X is a DataFrame. Prediction never needs them.

        Raises
        ------
        TypeError, ValueError
            If a parameter or a constraint is not supported, or no score meets the surrogate
            bounds; before training starts.
        FloatingPointError
            If the steps are too long.
        """
        constraints = check_parameters(self)
        values = validate_data(self, X, **ACCEPTED)
        y = y if y is None else column_or_1d(y, warn=True)
        self.classes_, _ = check_labels(y)
        self._first_rows: Rows | None = None
        table = self._read_rows(X, y, sample_weight, sensitive_features)
        sets, rows = self._compile(constraints, values, table)
        random_state = copy_random_state(self.random_state)
        training, validation = (
            rows.take(part) for part in self._split(sets, len(rows), random_state)
        )
        check_split(len(training), len(validation), self.validation_fraction)
        ratios = density_ratios(sets.members(training))
        problem, start = make_problem(self, sets, training, random_state)
        on_training = training.X, ratios
        levels = list(follow_path(self, problem, start, on_training, random_state))
        self._score: ScoreFunction = problem.score
        found = LevelTable.of(levels, self._score, sets, validation, unit_of(self))
        base_rate = share_of_positives(sets.members(training).sum(axis=0))
        self._report(sets, found, validation, training, base_rate)
        columns = surrogate_columns(levels, problem, on_training, unit_of(self))
        for name, values in columns.items():
            self.history_[name] = values
        warn_of_choice(sets, found, validation)
        warn_of_no_progress(self, problem, levels, on_training)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        classes: Any = None,
        groups: Any = None,
        sensitive_features: Any = None,
    ) -> ConstrainedAUCScorer:
        """Take steps on rows that have arrived, one row or many.

        The first call must have rows of both classes and of all groups that the constraints
        compare, or name them. Rows are then held until there are `min_group_size` rows of each
        class, and of each class in each group. Features are standardised by the rows that the
        search begins with. A share `validation_fraction` of all rows is for validation, of which a
        random sample of bounded size is kept. Each time a level has ended, the best of all levels
        by these rows becomes the score. The search has no end. After :meth:`fit` it begins anew.

        Parameters
        ----------
        X, y, sample_weight, sensitive_features : array-like
            As in :meth:`fit`.
        classes : array-like of shape (2,), default=None
            Labels, in the first call. Those of its rows by default.
        groups : dict from column to sequence of values, default=None
            Groups of the columns that constraints read, in the first call, such as
            ``{"sex": ["F", "M"]}``. Those of its rows by default.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`fit`, and where a row of a later call has an unknown label or group.
        """
        rows: PairSample | None
        if hasattr(self, "_stream"):
            values = validate_data(self, X, reset=False, **ACCEPTED)
            table = self._read_rows(X, y, sample_weight, sensitive_features)
            rows, validation = self._stream.sets.sample(values, table), None
        else:
            given = X, y, sample_weight, sensitive_features
            rows, validation = self._open_stream(*given, classes, groups)
            if rows is None:
                return self
        stream, search = self._stream, self._stream.search
        if stream.read(rows, validation):
            kept = stream.validation.rows
            found = LevelTable.of(search.levels, self._score, stream.sets, kept, unit_of(self))
            self._report(stream.sets, found, kept, None, stream.base_rate)
            if not stream.is_doubtful:  # Each new level would repeat the warning.
                warn_of_choice(stream.sets, found, kept)
            stream.is_doubtful = found.is_doubtful
        elif search.n_rows and not search.levels:
            self._parameters = search.oracle.average.parameters
            self._log_odds = LogOdds(1.0, float(logit(stream.base_rate)))
            self._fold_log_odds()
            self.level_: int | None = None
        return self

    def decision_function(self, X: Any) -> Float:
        """Compute the log-odds of the second class, in the order of the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if hasattr(self, "_held"):
            raise NotFittedError(self._held.describe())
        check_is_fitted(self, "_parameters")
        X = validate_data(self, X, reset=False, **ACCEPTED)
        scores = self._score.scores(self._parameters, X)
        return np.asarray(self._log_odds.slope * scores + self._log_odds.intercept)

    def predict_proba(self, X: Any) -> Float:
        """Compute the probability of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        positive = LogOdds().probability(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: Any) -> Array:
        """Predict the more probable class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        is_positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[is_positive.astype(int)])

    def _compile(
        self, constraints: Sequence[Constraint], values: Any, rows: Rows
    ) -> tuple[PairSets, PairSample]:
        """Compile the constraints against the rows that a search begins with."""
        check_two_classes(self.classes_, rows.y, rows.weight)
        sets = PairSets.of(resolve_positive_class(constraints, self.classes_, None), rows)
        check_feasible(sets.rules(self.slack), self.c1, self.c2)
        of_earlier_fit = "history_", "constraint_report_", "coef_", "intercept_", "_parameters"
        for name in ("_stream", "_held", *of_earlier_fit):
            self.__dict__.pop(name, None)
        return sets, sets.sample(values, rows)

    def _read_rows(self, X: Any, y: Any, sample_weight: Any, sensitive_features: Any) -> Rows:
        """Encode rows, with the groups of the rows of the first call if there was one."""
        check_consistent_length(X, y)
        codes = encode(y, self.classes_, "y")
        weight = check_weight(weight_of_rows(sample_weight, y), codes.size)
        columns = columns_of(sensitive_features, codes.size)
        return Rows(codes, self.classes_, weight, columns, [X], like=self._first_rows)

    def _split(
        self, sets: PairSets, n_samples: int, random_state: np.random.RandomState
    ) -> list[Codes]:
        """Split the rows of a compilation into training and validation rows, cell by cell."""
        shares = [1 - self.validation_fraction, self.validation_fraction]
        return parts_by_cell(np.arange(n_samples), sets.cells, shares, random_state)

    def _open_stream(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        sensitive_features: Any,
        classes: Any,
        groups: Any,
    ) -> tuple[PairSample | None, Codes | None]:
        """Begin a search at the first rows; return them, and those for validation.

        Rows are None where they are held until there are some of each class and group.
        """
        constraints = check_parameters(self)
        held: HeldRows | None = getattr(self, "_held", None)
        values = validate_data(self, X, reset=held is None, **ACCEPTED)
        y = y if y is None else column_or_1d(y, warn=True)
        if held is None:
            self.classes_, _ = check_labels(y if classes is None else classes)
            self._first_rows = None
        table = self._read_rows(X, y, sample_weight, sensitive_features)
        if held is None and (classes is not None or groups is not None):
            held = HeldRows(constraints, self.classes_, groups or {})
        if held is not None:
            held.add(values, table)
            self._held = held
            if not held.is_complete:
                return None, None
            values, table = held.take()
        sets, rows = self._compile(constraints, values, table)
        self._first_rows = sets.cells.rows
        random_state = copy_random_state(self.random_state)
        problem, start = make_problem(self, sets, rows, random_state)
        self._score = problem.score
        validation = Reservoir(MAX_VALIDATION_ROWS, random_state)
        search = make_search(self, problem, start)
        self._stream = RowStream(sets, search, validation, self.validation_fraction)
        return rows, self._split(sets, len(rows), random_state)[1]

    def _report(
        self,
        sets: PairSets,
        table: LevelTable,
        validation: PairSample,
        training: PairSample | None,
        base_rate: float,
    ) -> None:
        """Set the fitted attributes of the chosen level."""
        level = table.levels[table.chosen]
        self._parameters, self.level_ = level.point.parameters, level.number
        scores = self._score.scores(self._parameters, validation.X)
        is_positive = sets.inside(validation)[:, POSITIVES]
        self._log_odds = LogOdds.fit(scores, is_positive, validation.weight, base_rate)
        self._fold_log_odds()
        self.history_ = table.history(sets.compiled.names)
        on_training = None
        if training is not None:
            scores = self._score.scores(self._parameters, training.X)
            on_training = measure(sets, training, scores)
        self.constraint_report_ = report_frame(
            sets, level.multipliers, on_training, table.on_validation[table.chosen]
        )

    def _fold_log_odds(self) -> None:
        """Write the log-odds of a linear score as one linear function of features."""
        if isinstance(self._score, LinearScore):
            slope, intercept = self._log_odds
            features = self._score.features
            self.coef_ = slope * (self._parameters / features.scale)[None, :]
            self.intercept_ = np.array([intercept]) - self.coef_ @ features.centre
