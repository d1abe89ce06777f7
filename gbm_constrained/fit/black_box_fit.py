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
from dataclasses import dataclass
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
from gbm_constrained.data.validation import as_labels
from gbm_constrained.decision.groups import GroupOffsets, take_offsets
from gbm_constrained.fit.fit import check_pair
from gbm_constrained.fit.options import read_measurement, solver_parameter
from gbm_constrained.fit.problem import HOLDOUT_FRACTION
from gbm_constrained.metrics.black_box import BlackBox, CallBudget, MeasuredBlackBox
from gbm_constrained.problem.compiler import compile_constraints
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

N_REPORTED = 4  # Models in the report.


class CallPlan:
    """Numbers of calls for the parts of a fit.

    One call in 15 looks for the best threshold, one for thresholds of groups, and one is for the
    intervals of the report. More than 50 thresholds follow the validation rows too closely, as do
    more than ten of a group in a pass; a standard error from 50 replicates of the bootstrap is
    known to a tenth.

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

    Attributes
    ----------
    thresholds, group_thresholds : int
        Calls that look for the best threshold, and for those of all groups.
    replicates : int
        Replicates of the bootstrap for each reported model.
    shifts : int
        Calls that look for all thresholds, and compare the best one with none.
    refinement : int
        Calls after a search: shifts of the mean of its last iterates, and comparisons.
    of_report : int
        Calls on the rows of evidence.
    of_search : int
        Calls of a search, with its thresholds and its refinement.
    """

    def __init__(self, max_calls: int, n_groups: int, n_searches: int, n_compared: int) -> None:
        share, most = max_calls // 15, 50
        least = 4  # A search for a threshold takes as many calls.
        self.thresholds = max(min(share, most), least)
        n_passes = N_PASSES * n_groups
        self.group_thresholds = n_passes * max(min(share // max(n_passes, 1), 10), least)
        self.replicates = min(share // N_REPORTED, most)
        self.shifts = self.thresholds + 1 + self.group_thresholds
        self.refinement = n_compared + N_REPORTED + self.shifts
        self.of_report = N_REPORTED * (1 + self.replicates)
        # Before training, the validation rows and those of evidence are tried twice each.
        self.of_search = (max_calls - 4 - self.of_report) // n_searches


PENALTY = 5.0
"""Price of a violation in the search, in units of the loss: a multiplier of that size is larger
than those of bounds that a threshold can meet."""


def _check_constraints(constraints: Sequence[Constraint]) -> None:
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


class DecisionConstraints:
    """Constraints on decisions about some rows of two classes.

    Credible rates of groups (:mod:`gbm_constrained.problem.linear_constraints`) choose the model.

    Parameters
    ----------
    constraints : sequence of Constraint
        The constraints.
    rows : Rows
        The rows.
    """

    def __init__(self, constraints: Sequence[Constraint], rows: Rows) -> None:
        self._cells, self._compiled = compile_constraints(constraints, rows)
        self._credible = self._compiled.make_credible(self._cells)

    def violation(self, scores: Float, *, is_credible: bool = False) -> float:
        """Find by how much the decisions of scores exceed a bound at most; zero if they do not.

        Rates of groups without rows count as within their bounds.
        """
        compiled = self._credible if is_credible else self._compiled
        counts = CellCounts.of(self._cells, (scores > 0.0).astype(np.intp))
        excess = compiled.rows_of(functionals_of(compiled, counts)) - compiled.b
        largest = float(np.nan_to_num(excess).max(initial=0.0))
        return largest if largest > ROUNDING else 0.0


class ConstrainedLoss:
    """A black-box loss of models that must keep constraints.

    Parameters
    ----------
    metric : MeasuredBlackBox
        The metric on some rows.
    constraints : DecisionConstraints
        Constraints on the same rows.
    is_choice : bool
        Whether a model that violates a constraint is worse than any that keeps all. A search needs
        a loss that changes little with the scores, and has a price of the violation in its place.
    """

    def __init__(
        self, metric: MeasuredBlackBox, constraints: DecisionConstraints, *, is_choice: bool
    ) -> None:
        self._metric, self._constraints, self._is_choice = metric, constraints, is_choice
        self.begin_iteration = metric.begin_iteration

    @property
    def calls_left(self) -> int:
        """Number of calls that are left."""
        return self._metric.calls_left

    def __call__(self, scores: Float) -> float:
        """Compute the loss of scores."""
        violation = self._constraints.violation(scores, is_credible=True)
        if not violation:
            return self._metric(scores)
        if self._is_choice:  # No call is needed to know that a threshold violates one.
            return 1.0 + violation
        return self._metric(scores) + PENALTY * violation


UNUSED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("iterate", ("last",)),
    ("guarantee", (None,)),
    ("probabilities", ("shifted",)),
    ("early_stopping_on", ("metric",)),
    ("select", ("error",)),
)
"""Parameters without a meaning for a black-box metric, and the values that they may have."""


class BlackBoxOptions:
    """Parameters of a fit for a black-box metric, checked.

    Parameters
    ----------
    estimator : classifier
        The classifier whose parameters are read.
    metric : BlackBox
        The metric.

    Attributes
    ----------
    search : AdaptiveSurrogates
        Options of the search.
    holdout_fraction : float
        Share of the training rows that are held out where no validation rows are given.
    positive : label or None
        Positive class that the user named.
    constraints : tuple of Constraint
        Constraints on the decisions.

    Raises
    ------
    TypeError, ValueError
        If a parameter has no meaning for a black-box metric, or is out of its range.
    """

    def __init__(self, estimator: Any, metric: BlackBox) -> None:
        constraints = check_constraints(estimator.constraints)
        check_task(constraints, predicts_numbers=False)
        _check_constraints(constraints)
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
        asked = getattr(estimator, "measure_on", "auto")
        measured = read_measurement(asked)
        if measured["measure_on"] not in ("auto", "holdout"):
            raise ValueError(
                f"measure_on={asked!r} has no meaning for {metric}, which holds one part of the "
                f"rows out: use Holdout(fraction=...), or leave it out."
            )
        fraction = measured.get("holdout_fraction")
        fraction = HOLDOUT_FRACTION if fraction is None else fraction
        if constraints and solver.refits:
            raise ValueError(
                f"refits={solver.refits} grows a model without multipliers, and constraints= "
                f"needs them: leave refits out."
            )
        self.metric, self.search, self.holdout_fraction = metric, solver, fraction
        self.positive, self.constraints = estimator.positive, constraints

    def constraints_on(self, rows: Rows) -> DecisionConstraints | None:
        """Compile the constraints on some rows; None without constraints."""
        if not self.constraints:
            return None
        return DecisionConstraints(
            resolve_positive_class(self.constraints, rows.classes, self.positive), rows
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


PARTS = ("X", "y", "sensitive_features", "sample_weight")


def read_rows(name: str, given: Any, X: Any) -> tuple[Any, ...]:
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
    return *given, *[None] * (len(PARTS) - len(given))


@dataclass(frozen=True, eq=False)
class RowsBeside:
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

    @classmethod
    def encode(cls, name: str, given: tuple[Any, ...], data: FitData, remedy: str) -> RowsBeside:
        """Encode rows that were read like the training rows.

        Where a column is missing, the message says by `remedy` how it can be given.
        """
        X, y, sensitive_features, weight = given
        rows = data.evaluation_rows(name, X, y, weight, sensitive_features, remedy)
        data.alignment.check(
            {f"{part} of {name}": values for part, values in zip(PARTS, given, strict=True)}
        )
        return cls(X, as_labels(y, name), sensitive_features, rows)


def partition(rows: Rows, options: BlackBoxOptions) -> Cells:
    """Divide rows by label, and by the groups of the metric."""
    columns = options.metric.columns
    return Cells(rows, [[] if columns is None else [columns]])


RETURNED = "this model"  # Its name in the report.


@dataclass(frozen=True, eq=False)
class BlackBoxResult:
    """What a fit for a black-box metric has found.

    Parameters
    ----------
    parameters : ndarray of shape (n_parameters + n_offsets + 1,)
        Parameters of the returned model, offsets of groups, and what all scores get.
    search : AdaptiveResult
        The search on the validation rows.
    losses : dict from str to float
        Loss of each reported model on the validation rows.
    evaluated : dict from str to ndarray of shape (n_evaluation,)
        Scores of the evaluation rows by each reported model.
    loss : float
        Loss of the returned model on the validation rows, with the constraints.
    """

    parameters: Float
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
    data : FitData
        Training rows.
    kept : ndarray of int or None
        Positions of the training rows among those that were given; None if all are kept.
    validation, evaluation : RowsBeside
        Rows that gradients are estimated on and that choose the model, and rows of the report.
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
        self._divide(arguments, random_state)
        data, validation, evaluation = self.data, self.validation, self.evaluation
        columns = metric.columns
        self.levels = () if columns is None else data.rows.attribute(columns).levels
        self.n_offsets = len(self.levels) if takes_offsets and search.offsets else 0
        self._sample = self._sample_rows()
        self.surrogates = metric.bind_surrogates(
            data.rows.take(self._sample), len(validation.rows)
        )
        needs_cells = metric.called.takes_sensitive or search.estimator != "interpolation"
        self._of_validation = (
            metric.bind_validation(validation.rows, data.rows) if needs_cells else None
        )
        # After a search its best parameters are compared with a mean, that with a shift and with
        # offsets, and both starts; and what is returned is measured again.
        n_compared = 7 + (search.n_iterations + 1 if options.constraints else 0)
        self.plan = CallPlan(metric.max_calls, len(self.levels), 1 + search.refits, n_compared)
        self._n_left = 1 + search.refits  # Searches still to come.
        budget = CallBudget(metric.max_calls)
        self.metric = metric.bind(validation.rows, validation.y, budget)
        self.reported = metric.bind(evaluation.rows, evaluation.y, budget)
        self.evaluated_constraints = options.constraints_on(evaluation.rows)
        self._choice: CountedMetric = self.metric
        self._searched: CountedMetric = self.metric
        if (constraints := options.constraints_on(validation.rows)) is not None:
            self._choice = ConstrainedLoss(self.metric, constraints, is_choice=True)
            self._searched = ConstrainedLoss(self.metric, constraints, is_choice=False)
        n_candidates = 1 + bool(self.n_offsets)
        left = self.plan.of_search - self.plan.shifts - self.plan.refinement
        search.check_effort(len(self.surrogates), left, n_candidates)
        for measured, rows in ((self.metric, validation), (self.reported, evaluation)):
            # Decisions of both classes, as those of a model: what fails here fails later.
            scores = np.random.RandomState(0).standard_normal(len(rows.rows))
            first, again = (measured.measure(scores) for _ in range(2))
            if first != again:
                issue_warning(
                    f"{metric} is random: it has the values {first:g} and {again:g} for equal "
                    f"predictions. Fix the random state of the function.",
                    "GC310",
                )
        data.alignment.warn()

    def _divide(self, arguments: FitArguments, random_state: Any) -> None:
        """Divide the rows that were given into rows of training, of choice and of evidence."""
        options = self.options
        self.data, self.kept = FitData.of(arguments, (), random_state), None
        classes, remedies = self.data.classes, dict[str, str]()
        for name in ("validation", "evaluation"):
            remedies[name] = f"in {name}=(X, y, sensitive_features)"
        if options.positive is not None and options.positive != classes[-1]:
            raise ValueError(
                f"positive={options.positive!r}, and scores of {options.metric} are those of "
                f"{classes[-1].item()!r}, the last of the sorted labels: leave positive= out."
            )
        if arguments.validation is None:
            cells = partition(self.data.rows, options)
            everyone = np.arange(len(self.data.rows))
            held, self.kept = self.data.split(everyone, cells, options.holdout_fraction)
            out = arguments.take(held)
            given = tuple(getattr(out, part) for part in PARTS)
            remedies["validation"] = self.data.rows.remedy
            self.data = FitData.of(arguments.take(self.kept), (), self.data.random_state)
        else:
            given = read_rows("validation", arguments.validation, arguments.X)
        if arguments.evaluation is None:
            remedies["evaluation"] = remedies["validation"]
            rows = RowsBeside.encode("validation", given, self.data, remedies["validation"]).rows
            parts = parts_by_cell(
                np.arange(len(rows)), partition(rows, options), [1.0 / 3.0, 2.0 / 3.0],
                self.data.random_state,
            )  # fmt: skip
            further, given = (
                tuple(None if values is None else take_values(values, part) for values in given)
                for part in parts
            )
        else:
            further = read_rows("evaluation", arguments.evaluation, arguments.X)
        self.validation, self.evaluation = (
            RowsBeside.encode(name, part, self.data, remedies[name])
            for name, part in (("validation", given), ("evaluation", further))
        )
        for name, part in (("validation", self.validation), ("evaluation", self.evaluation)):
            if not len(part.rows):
                raise ValueError(
                    f"There are no {name} rows: give {name}=(X, y) with rows of both labels, or "
                    f"more of the rows that they are taken from."
                )

    def _sample_rows(self) -> Codes:
        """Take rows for the surrogates, with a share of each label in each group.

        The mean of 10,000 rows has a standard error of a hundredth of the standard deviation of a
        loss, and projections take a time proportional to the rows.
        """
        rows, n_sampled = self.data.rows, 10_000
        everyone = np.arange(len(rows))
        if len(rows) <= n_sampled:
            return everyone
        share, cells = n_sampled / len(rows), partition(rows, self.options)
        return parts_by_cell(everyone, cells, [share, 1.0 - share], self.data.random_state)[0]

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
        self._n_left -= 1
        kept_back = self._n_left * self.plan.of_search + self.plan.of_report
        self.metric.budget.reserve(kept_back + self.plan.refinement)
        plain = np.append(model.start, np.zeros(self.n_offsets + 1))
        data, held = self.data, self.validation
        sampled = data.rows.take(self._sample)
        training = self._columns(model, take_rows(data.combined.X, self._sample), sampled)
        validation = self._columns(model, held.X, held.rows)
        space = LinearSpace(
            training.matrix, validation.matrix, training.base, validation.base, sampled.weight
        )
        (threshold, *with_offsets), shifts = self._post_shift(space, plain)
        candidates = [plain, *with_offsets]
        problem = BlackBoxProblem(space, self.surrogates, self._searched, self._of_validation)
        found = minimize_black_box(
            problem, threshold, candidates, self.options.search, self.data.random_state
        )
        self.metric.budget.reserve(kept_back)
        best = self._refine(space, found, candidates)
        columns = self._columns(model, self.evaluation.X, self.evaluation.rows)
        evidence = LinearSpace(columns.matrix, columns.matrix, columns.base, columns.base)

        def score(of_rows: LinearSpace, rows: Rows) -> dict[str, Float]:
            of_threshold = of_rows.validation_scores(threshold)
            scores = {"plain": of_rows.validation_scores(plain), "threshold": of_threshold}
            if self.levels:
                offsets = take_offsets(shifts, self.groups_of(rows))
                scores["threshold per group"] = of_threshold + offsets
            return {**scores, RETURNED: of_rows.validation_scores(best)}

        chosen = score(space, self.validation.rows)
        losses = {name: self.metric(given) for name, given in chosen.items()}
        loss = self._choice(chosen[RETURNED])
        evaluated = score(evidence, self.evaluation.rows)
        return BlackBoxResult(best, found, losses, evaluated, loss)

    def row_factors(self, result: BlackBoxResult) -> Float:
        """Weigh the training rows as the last projections weigh their surrogates.

        The gradient of a projection is that of a weighted loss, whose weights are the excess of
        each surrogate over its target.
        """
        iterates = result.search.iterates[1:]
        tail = iterates[len(iterates) // 2 :]
        excess = [np.maximum(one.profile - one.target, 0.0) for one in tail]
        rows, metric = self.data.rows, self.options.metric
        weights = np.mean(excess, axis=0) if tail else np.zeros(len(self.surrogates))
        if not weights.any():  # All targets were reached, or no step was made.
            weights = np.ones(len(self.surrogates))
        return metric.bind_surrogates(rows, None).row_factors(weights)

    def _post_shift(self, space: LinearSpace, parameters: Float) -> tuple[list[Float], Float]:
        """Find the best threshold, and shifts of groups from there.

        Returns
        -------
        list of ndarray
            Parameters with the threshold, and those with offsets of groups where models have them.
        ndarray of shape (n_groups,)
            The shifts.
        """
        shifted = parameters.copy()
        scores = space.validation_scores(parameters)
        shift, value = find_shift(self._choice, scores, self.plan.thresholds)
        if (unshifted := self._choice(scores)) <= value:  # Not all thresholds are tried.
            shift, value = 0.0, unshifted
        shifted[-1] += shift
        if not self.levels:
            return [shifted], np.zeros(0)
        groups, n_groups = self.groups_of(self.validation.rows), len(self.levels)
        shifts, _ = find_group_shifts(
            self._choice, scores + shift, groups, n_groups, self.plan.group_thresholds, value
        )
        if not self.n_offsets:
            return [shifted], shifts
        moved = shifted.copy()
        moved[-1 - self.n_offsets : -1] += shifts
        return [shifted, moved], shifts

    def _refine(
        self, space: LinearSpace, found: AdaptiveResult, candidates: Sequence[Float]
    ) -> Float:
        """Choose among what was searched, the mean of the last iterates, and its shifts."""
        tail = found.iterates[len(found.iterates) // 2 :]
        mean = np.mean([one.parameters for one in tail], axis=0)
        tried: list[Float] = [found.parameters, mean, *self._post_shift(space, mean)[0]]
        if self.options.constraints:  # The search has compared models by another loss.
            tried += [*candidates, *(one.parameters for one in found.iterates)]
        losses = [self._choice(space.validation_scores(parameters)) for parameters in tried]
        return tried[int(np.argmin(losses))]

    def _columns(self, model: AdjustableModel, X: Any, rows: Rows) -> ScoreColumns:
        groups = self.groups_of(rows) if self.n_offsets else None
        return model.score_columns(X, columns_beside(groups, self.n_offsets, len(rows)))
