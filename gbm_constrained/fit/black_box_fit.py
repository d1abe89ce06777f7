r"""A fit whose objective is only a function to call.

With the columns :math:`\phi` of a model, groups g and an intercept b, a row has the score

.. math:: f(x) = f_0 + \sum_j \theta_j \phi_j(x) + o_{g(x)} + b .

The columns are the scores of each round of a booster, the indicators of its leaves, or features.
Surrogates that are convex in scores are therefore convex in these parameters (Jiang et al.,
"Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020, section 4).

1. The library trains its own model on the training rows.
2. The function is minimised over the parameters of that model, whose structure is frozen: by the
   best threshold, by the best threshold of each group, and by adaptive surrogates from the best
   threshold (Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020).
3. The best of them on the validation rows is put into the model.
4. Rows that chose nothing show what it is worth.

Iterates move with the noise of the validation rows. The mean of their second half, with its own
best thresholds, is therefore one more candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._dataframes import take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint, refuse_priorities
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_task,
    resolve_positive_class,
)
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData, take_values
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.data.validation import as_labels, check_share
from gbm_constrained.decision.groups import GroupOffsets, take_offsets
from gbm_constrained.fit.fit import check_pair
from gbm_constrained.fit.options import solver_parameter
from gbm_constrained.fit.problem import HOLDOUT_FRACTION
from gbm_constrained.metrics.black_box import BlackBox, CallBudget, MeasuredBlackBox
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.black_box import (
    N_PASSES,
    AdaptiveResult,
    AdaptiveSurrogates,
    BlackBoxProblem,
    CountedMetric,
    LinearSpace,
    find_group_shifts,
    find_shift,
    minimize_black_box,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of

# One call in so many looks for the best threshold, one for thresholds of groups, and one is for
# the intervals of the report.
SHARE = 15
# More thresholds follow the validation rows too closely. A standard error from as many replicates
# of the bootstrap is known to a tenth.
MOST_CALLS = 50
THRESHOLDS_OF_GROUP = 10  # In each pass over the groups, for the same reason.
LEAST_CALLS = 4  # A search for a threshold takes as many.
N_REPORTED = 4  # Models in the report.


@dataclass(frozen=True)
class CallPlan:
    """Numbers of calls for the parts of a fit; the search has those that are left.

    Parameters
    ----------
    max_calls : int
        Most calls.
    n_groups : int
        Number of groups of the metric.
    n_searches : int
        Number of searches that share the calls.
    n_compared : int
        Number of parameters that are compared anew after a search.
    """

    max_calls: int
    n_groups: int
    n_searches: int
    n_compared: int

    @property
    def thresholds(self) -> int:
        """Calls that look for the best threshold."""
        return max(min(self.max_calls // SHARE, MOST_CALLS), LEAST_CALLS)

    @property
    def group_thresholds(self) -> int:
        """Calls that look for the best threshold of each group."""
        n_searches = N_PASSES * self.n_groups
        if not n_searches:
            return 0
        asked = min(self.max_calls // SHARE // n_searches, THRESHOLDS_OF_GROUP)
        return n_searches * max(asked, LEAST_CALLS)

    @property
    def replicates(self) -> int:
        """Replicates of the bootstrap for each reported model."""
        return min(self.max_calls // SHARE // N_REPORTED, MOST_CALLS)

    @property
    def shifts(self) -> int:
        """Calls that look for all thresholds, and compare the best one with none."""
        return self.thresholds + 1 + self.group_thresholds

    @property
    def refinement(self) -> int:
        """Calls after a search: shifts of the mean of its last iterates, and comparisons."""
        return self.n_compared + N_REPORTED + self.shifts

    @property
    def of_report(self) -> int:
        """Calls on the rows of evidence."""
        return N_REPORTED * (1 + self.replicates)

    @property
    def of_search(self) -> int:
        """Calls of a search, with its thresholds and its refinement."""
        # Before training, the validation rows and those of evidence are tried twice each.
        return (self.max_calls - 4 - self.of_report) // self.n_searches

    def kept_back(self, n_searches: int) -> int:
        """Count the calls that are left for so many further searches, and for the report."""
        return n_searches * self.of_search + self.of_report


PENALTY = 5.0
"""Price of a violation in the search, in units of the loss: a multiplier of that size is larger
than those of bounds that a threshold can meet."""


def check_rules(constraints: Sequence[Constraint]) -> None:
    """Refuse constraints that are not about decisions on any rows.

    Raises
    ------
    ValueError
        If a constraint is about scores, about a named data set, or about given rows, or has a
        priority.
    """
    refuse_priorities(
        constraints,
        "a black-box metric is searched under constraints that all hold: leave with_priority out",
    )
    for constraint in constraints:
        if constraint.amounts:
            raise ValueError(
                f"{constraint} counts amounts, and a black-box metric is searched under rules "
                f"that count rows: leave weight= out of the rate."
            )
        if constraint.is_of_scores or constraint.data_sets or constraint.n_rows_held:
            raise ValueError(
                f"{constraint} beside a black-box metric is measured on decisions about "
                f"validation rows, and is about scores, a named data set or given training rows: "
                f"bound a rate of decisions in groups, such as gap(fpr(), by=...)."
            )


@dataclass(frozen=True, eq=False)
class Rules:
    """Constraints on decisions about some rows.

    Parameters
    ----------
    cells : Cells
        Partition of the rows.
    compiled : LinearConstraints
        The constraints on these rows.
    acting : LinearConstraints
        The same by credible rates of groups
        (:mod:`gbm_constrained.problem.linear_constraints`), which
        choose the model.
    """

    cells: Cells
    compiled: LinearConstraints
    acting: LinearConstraints

    @classmethod
    def of(cls, constraints: Sequence[Constraint], rows: Rows) -> Rules:
        """Compile constraints on rows of two classes."""
        cells, compiled = compile_constraints(constraints, rows)
        return cls(cells, compiled, compiled.make_credible(cells))

    def violation(self, scores: Float, *, acts: bool = False) -> float:
        """Find by how much the decisions of scores exceed a bound at most; zero if they do not.

        Rates of groups without rows count as within their bounds. Violations that act on a choice
        are those of credible rates.
        """
        compiled = self.acting if acts else self.compiled
        counts = CellCounts.of(self.cells, (scores > 0.0).astype(np.intp))
        excess = compiled.rows_of(functionals_of(compiled, counts)) - compiled.b
        largest = float(np.nan_to_num(excess).max(initial=0.0))
        return largest if largest > ROUNDING else 0.0


class RuledLoss:
    """A black-box loss of models that must keep rules.

    Parameters
    ----------
    metric : MeasuredBlackBox
        The metric on some rows.
    rules : Rules
        Constraints on the same rows.
    is_choice : bool
        Whether a model that breaks a rule is worse than any that keeps all. A search needs a loss
        that changes little with the scores, and has a price of the violation in its place.
    """

    def __init__(self, metric: MeasuredBlackBox, rules: Rules, *, is_choice: bool) -> None:
        self._metric, self._rules, self._is_choice = metric, rules, is_choice

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""
        return self._metric.calls_left

    def begin_iteration(self, iteration: int) -> None:
        """Note the iteration, which errors of the function name."""
        self._metric.begin_iteration(iteration)

    def __call__(self, scores: Float) -> float:
        """Compute the loss of scores."""
        violation = self._rules.violation(scores, acts=True)
        if not violation:
            return self._metric(scores)
        if self._is_choice:  # No call is needed to know that a threshold breaks a rule.
            return 1.0 + violation
        return self._metric(scores) + PENALTY * violation


UNUSED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("iterate", ("last",)),
    ("measure_on", ("auto", "holdout")),
    ("cv", (None,)),
    ("guarantee", (None,)),
    ("probabilities", ("shifted",)),
    ("early_stopping_on", ("metric",)),
    ("select", ("error",)),
    ("ensemble", (None,)),
    ("oracle", ("plug_in",)),
    ("deterministic", (None, True)),
)
"""Parameters without a meaning for a black-box metric, and the values that they may have."""


@dataclass(frozen=True)
class BlackBoxOptions:
    """Parameters of a fit for a black-box metric.

    Parameters
    ----------
    metric : BlackBox
        The metric.
    search : AdaptiveSurrogates
        Options of the search.
    holdout_fraction : float
        Share of the training rows that are held out where no validation rows are given.
    positive : label or None
        Positive class that the user named.
    constraints : tuple of Constraint
        Constraints on the decisions.
    """

    metric: BlackBox
    search: AdaptiveSurrogates
    holdout_fraction: float
    positive: Any
    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, estimator: Any, metric: BlackBox) -> BlackBoxOptions:
        """Read and check the parameters of an estimator.

        Raises
        ------
        TypeError, ValueError
            If a parameter has no meaning for a black-box metric, or is out of its range.
        """
        constraints = check_constraints(estimator.constraints)
        check_task(constraints, predicts_numbers=False)
        check_rules(constraints)
        for name, fits in UNUSED:
            if (value := getattr(estimator, name, fits[0])) not in fits:
                raise ValueError(
                    f"{name}={value!r} has no meaning for {metric}, which is minimised over the "
                    f"parameters of a trained model: leave it out."
                )
        name = solver_parameter(estimator)
        solver = getattr(estimator, name)
        if solver == "auto":
            solver = AdaptiveSurrogates()
        if not isinstance(solver, AdaptiveSurrogates):
            raise ValueError(
                f"{name} must be 'auto', or AdaptiveSurrogates(...) of gbm_constrained.solvers, "
                f"for {metric}; got {solver!r}."
            )
        fraction = getattr(estimator, "holdout_fraction", None)
        fraction = HOLDOUT_FRACTION if fraction is None else fraction
        check_share("holdout_fraction", fraction)
        if constraints and solver.refits:
            raise ValueError(
                f"refits={solver.refits} grows a model without multipliers, and constraints= "
                f"needs them: leave refits out."
            )
        return cls(metric, solver, fraction, estimator.positive, constraints)

    def rules_on(self, rows: Rows) -> Rules | None:
        """Compile the constraints on some rows; None without constraints."""
        if not self.constraints:
            return None
        return Rules.of(
            resolve_positive_class(self.constraints, rows.classes, self.positive), rows
        )

    def check_classes(self, classes: NDArray[np.generic]) -> None:
        """Refuse a positive class whose scores the function is not called with."""
        if self.positive is not None and self.positive != classes[-1]:
            raise ValueError(
                f"positive={self.positive!r}, and scores of {self.metric} are those of "
                f"{classes[-1].item()!r}, the last of the sorted labels: leave positive= out."
            )


def refuse_arguments(metric: BlackBox, **given: Any) -> None:
    """Refuse arguments of ``fit`` without a meaning for a black-box metric.

    Parameters
    ----------
    metric : BlackBox
        The metric.
    **given
        The arguments.

    Raises
    ------
    ValueError
        If one of them was given.
    """
    remedies = {
        "datasets": "give the rows as validation=(X, y, sensitive_features)",
        "sensitive_features_eval_set": "give the rows as validation=(X, y, sensitive_features)",
        "constraint_callbacks": "end the search by BlackBox(..., max_calls=...)",
        "time_limit": "end the search by BlackBox(..., max_calls=...)",
        "checkpoint": "leave it out",
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name}= has no meaning for {metric}: {remedies[name]}.")


def refuse_rows(validation: Any, evaluation: Any) -> None:
    """Refuse rows to choose and to report on where the objective is no black-box metric.

    Raises
    ------
    ValueError
        If one of them was given.
    """
    for name, value in (("validation", validation), ("evaluation", evaluation)):
        if value is not None:
            raise ValueError(
                f"{name}= is for objectives that are only a function to call, such as "
                f"minimize=BlackBox(loss): leave it out, or give eval_set=."
            )


@dataclass(frozen=True)
class ScoreColumns:
    """Columns whose weighted sum scores rows.

    Parameters
    ----------
    matrix : array or sparse array of shape (n_samples, n_parameters)
        Columns of the model, and columns beside it.
    base : float
        Score that all rows start from.
    """

    matrix: Any
    base: float


class AdjustableModel(Protocol):
    """A trained model whose scores are linear in parameters."""

    @property
    def takes_offsets(self) -> bool:
        """Whether offsets of groups may be added to the scores."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the parameters."""

    @property
    def start(self) -> Float:
        """Parameters that leave the model as it is, of shape (n_parameters,)."""

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Compute the columns of rows, and put further columns beside them."""

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the parameters, and add to all scores."""

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Add offsets to the scores of groups of training rows inside of the model."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model, and what is added to its scores.

    Parameters
    ----------
    model : ndarray of shape (n_parameters,)
        Parameters of the model.
    offsets : ndarray of shape (n_groups,)
        Offset of the scores of each group.
    intercept : float
        What is added to the scores of all rows.
    """

    model: Float
    offsets: Float
    intercept: float

    @classmethod
    def split(cls, parameters: Float, n_groups: int) -> Parameters:
        """Split a vector of all parameters."""
        end = parameters.size - 1 - n_groups
        return cls(parameters[:end], parameters[end:-1], float(parameters[-1]))

    @property
    def vector(self) -> Float:
        """All parameters in one vector."""
        return np.concatenate([self.model, self.offsets, [self.intercept]])


def columns_beside(groups: Codes | None, n_groups: int, n_rows: int) -> Array:
    """Make the indicators of groups and a column of ones, in single precision.

    Parameters
    ----------
    groups : ndarray of int of shape (n_rows,) or None
        Group of each row; rows of no group have numbers from `n_groups` on.
    n_groups : int
        Number of groups.
    n_rows : int
        Number of rows.

    Returns
    -------
    ndarray of shape (n_rows, n_groups + 1)
    """
    columns = np.ones((n_rows, n_groups + 1), dtype=np.float32)
    if groups is not None:
        columns[:, :n_groups] = groups[:, None] == np.arange(n_groups)
    return columns


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


RETURNED = "this model"  # Its name in the report.
SURROGATE_ROWS = 10_000
"""Training rows that surrogates are means of: their mean has a standard error of a hundredth of
the standard deviation of a loss, and projections take a time proportional to the rows."""


@dataclass(frozen=True, eq=False)
class BlackBoxResult:
    """What a fit for a black-box metric has found.

    Parameters
    ----------
    parameters : Parameters
        Parameters of the returned model.
    search : AdaptiveResult
        The search on the validation rows.
    losses : dict from str to float
        Loss of each reported model on the validation rows.
    evaluated : dict from str to ndarray of shape (n_evaluation,)
        Scores of the evaluation rows by each reported model.
    loss : float
        Loss of the returned model on the validation rows, with the constraints.
    """

    parameters: Parameters
    search: AdaptiveResult
    losses: dict[str, float]
    evaluated: dict[str, Float]
    loss: float


class BlackBoxFit:
    """One fit for a black-box metric; everything that can be refused is refused here.

    Parameters
    ----------
    options : BlackBoxOptions
        Parameters.
    arguments : FitArguments
        Arguments of ``fit`` about rows.
    random_state : int, RandomState or None
        Source of randomness.
    takes_offsets : bool
        Whether offsets of groups may be added to the scores of the model.

    Attributes
    ----------
    rows : BlackBoxRows
        Rows of training, of choice and of evidence.
    levels : tuple of tuple
        Groups of the metric among the training rows.
    metric, reported : MeasuredBlackBox
        The metric on validation rows and on evaluation rows.
    plan : CallPlan
        What the calls are for.
    """

    def __init__(
        self,
        options: BlackBoxOptions,
        arguments: FitArguments,
        random_state: Any,
        *,
        takes_offsets: bool,
    ) -> None:
        self.options, metric, search = options, options.metric, options.search
        self.rows = BlackBoxRows.of(options, arguments, random_state)
        data, validation, evaluation = self.rows.data, self.rows.validation, self.rows.evaluation
        columns = metric.columns
        self.levels = () if columns is None else data.rows.attribute(columns).levels
        self.n_offsets = len(self.levels) if takes_offsets and search.offsets else 0
        self._sample = self._sample_rows()
        self._surrogates = metric.bind_surrogates(data.rows.take(self._sample), len(validation))
        needs_cells = metric.called.takes_sensitive or search.estimator != "interpolation"
        self._of_validation = (
            metric.bind_validation(validation.rows, data.rows) if needs_cells else None
        )
        # After a search its best parameters are compared with a mean, that with a shift and with
        # offsets, and both starts; and what is returned is measured again.
        n_compared = 7 + (search.n_iterations + 1 if options.constraints else 0)
        self.plan = CallPlan(metric.max_calls, len(self.levels), 1 + search.refits, n_compared)
        self._n_left = search.refits  # Searches after this one.
        budget = CallBudget(metric.max_calls)
        self.metric = metric.bind(validation.rows, validation.y, budget)
        self.reported = metric.bind(evaluation.rows, evaluation.y, budget)
        self.rules_of_evidence = options.rules_on(evaluation.rows)
        self._choice: CountedMetric = self.metric
        self._searched: CountedMetric = self.metric
        if (rules := options.rules_on(validation.rows)) is not None:
            self._choice = RuledLoss(self.metric, rules, is_choice=True)
            self._searched = RuledLoss(self.metric, rules, is_choice=False)
        n_candidates = 1 + bool(self.n_offsets)
        left = self.plan.of_search - self.plan.shifts - self.plan.refinement
        search.check_effort(len(self._surrogates), left, n_candidates)
        for measured, rows in ((self.metric, validation), (self.reported, evaluation)):
            # Decisions of both classes, as those of a model: what fails here fails later.
            scores = np.random.RandomState(0).standard_normal(len(rows))
            first, again = (measured.measure(scores) for _ in range(2))
            if first != again:
                issue_warning(
                    f"{metric} is random: it has the values {first:g} and {again:g} for equal "
                    f"predictions. Fix the random state of the function.",
                    "GC310",
                )
        data.alignment.warn()

    def _sample_rows(self) -> Codes:
        """Take rows for the surrogates, with a share of each label in each group."""
        rows = self.rows.data.rows
        everyone = np.arange(len(rows))
        if len(rows) <= SURROGATE_ROWS:
            return everyone
        share, cells = SURROGATE_ROWS / len(rows), partition(rows, self.options)
        return parts_by_cell(everyone, cells, [share, 1.0 - share], self.rows.data.random_state)[0]

    @property
    def surrogate_names(self) -> tuple[str, ...]:
        """Names of the surrogates."""
        return self._surrogates.names

    def groups_of(self, rows: Rows) -> Codes:
        """Find the group of each row, counted from zero; one group without groups."""
        columns = self.options.metric.columns
        if columns is None:
            return np.zeros(len(rows), dtype=np.intp)
        return rows.attribute(columns).codes.astype(np.intp)

    def run(self, model: AdjustableModel) -> BlackBoxResult:
        """Minimise the function over the parameters of a trained model.

        Parameters
        ----------
        model : AdjustableModel
            The model.

        Returns
        -------
        BlackBoxResult
        """
        kept_back = self.plan.kept_back(self._n_left)
        self.metric.budget.reserve(kept_back + self.plan.refinement)
        plain = Parameters(model.start, np.zeros(self.n_offsets), 0.0).vector
        space, random = self._make_space(model), self.rows.data.random_state
        threshold, shifts = self._post_shift(space, plain)
        candidates = [plain]
        if self.n_offsets:
            candidates.append(self._with_offsets(threshold, shifts))
        problem = BlackBoxProblem(space, self._surrogates, self._searched, self._of_validation)
        search = self.options.search
        found = minimize_black_box(problem, threshold, candidates, search, random)
        self.metric.budget.reserve(kept_back)
        self._n_left -= 1
        best = self._refine(space, found, candidates)
        columns = self._columns(model, self.rows.evaluation.X, self.rows.evaluation.rows)
        evidence = LinearSpace(columns.matrix, columns.matrix, columns.base, columns.base)
        chosen, scores = (
            self._score_reported(of_rows, rows.rows, (plain, threshold, best), shifts)
            for of_rows, rows in (
                (space, self.rows.validation),
                (evidence, self.rows.evaluation),
            )
        )
        losses = {name: self.metric(given) for name, given in chosen.items()}
        loss = self._choice(chosen[RETURNED])
        parameters = Parameters.split(best, self.n_offsets)
        return BlackBoxResult(parameters, found, losses, scores, loss)

    def row_factors(self, result: BlackBoxResult) -> Float:
        """Weigh the training rows as the last projections weigh their surrogates.

        The gradient of a projection is that of a weighted loss, whose weights are the excess of
        each surrogate over its target.
        """
        iterates = result.search.iterates[1:]
        tail = iterates[len(iterates) // 2 :]
        excess = [np.maximum(one.profile - one.target, 0.0) for one in tail]
        rows, metric = self.rows.data.rows, self.options.metric
        weights = np.mean(excess, axis=0) if tail else np.zeros(len(self._surrogates))
        if not weights.any():  # All targets were reached, or no step was made.
            weights = np.ones(len(self._surrogates))
        return metric.bind_surrogates(rows, None).row_factors(weights)

    def _post_shift(self, space: LinearSpace, parameters: Float) -> tuple[Float, Float]:
        """Find the best threshold, and shifts of groups from there."""
        shifted = parameters.copy()
        scores = space.validation_scores(parameters)
        shift, value = find_shift(self._choice, scores, self.plan.thresholds)
        if (unshifted := self._choice(scores)) <= value:  # Not all thresholds are tried.
            shift, value = 0.0, unshifted
        shifted[-1] += shift
        if not self.levels:
            return shifted, np.zeros(0)
        groups, n_groups = self.groups_of(self.rows.validation.rows), len(self.levels)
        shifts, _ = find_group_shifts(
            self._choice, scores + shift, groups, n_groups, self.plan.group_thresholds, value
        )
        return shifted, shifts

    def _with_offsets(self, parameters: Float, shifts: Float) -> Float:
        moved = parameters.copy()
        moved[-1 - self.n_offsets : -1] += shifts
        return moved

    def _refine(
        self, space: LinearSpace, found: AdaptiveResult, candidates: Sequence[Float]
    ) -> Float:
        """Choose among what was searched, the mean of the last iterates, and its shifts."""
        tail = found.iterates[len(found.iterates) // 2 :]
        mean = np.mean([one.parameters for one in tail], axis=0)
        shifted, shifts = self._post_shift(space, mean)
        tried: list[Float] = [found.parameters, mean, shifted]
        if self.n_offsets:
            tried.append(self._with_offsets(shifted, shifts))
        if self.options.constraints:  # The search has compared models by another loss.
            tried += [*candidates, *(one.parameters for one in found.iterates)]
        losses = [self._choice(space.validation_scores(parameters)) for parameters in tried]
        return tried[int(np.argmin(losses))]

    def _score_reported(
        self, space: LinearSpace, rows: Rows, reported: tuple[Float, Float, Float], shifts: Float
    ) -> dict[str, Float]:
        """Score the rows of a space by the models of the report, the returned one last."""
        plain, threshold, best = map(space.validation_scores, reported)
        scores = {"plain": plain, "threshold": threshold}
        if self.levels:
            scores["threshold per group"] = threshold + take_offsets(shifts, self.groups_of(rows))
        return {**scores, RETURNED: best}

    def _make_space(self, model: AdjustableModel) -> LinearSpace:
        data, validation = self.rows.data, self.rows.validation
        X = take_rows(data.combined.X, self._sample)
        rows = data.rows.take(self._sample)
        training = self._columns(model, X, rows)
        held = self._columns(model, validation.X, validation.rows)
        return LinearSpace(training.matrix, held.matrix, training.base, held.base, rows.weight)

    def _columns(self, model: AdjustableModel, X: Any, rows: Rows) -> ScoreColumns:
        groups = self.groups_of(rows) if self.n_offsets else None
        return model.score_columns(X, columns_beside(groups, self.n_offsets, len(rows)))
