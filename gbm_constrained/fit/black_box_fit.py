r"""A fit whose objective is only a function to call, its report, and classifiers that have one.

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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import clone

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING, refuse_priorities
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_task,
    resolve_positive_class,
)
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell
from gbm_constrained.data.validation import as_labels, columns_of, preserve_random_state
from gbm_constrained.decision.groups import GroupOffsets, take_offsets
from gbm_constrained.decision.histograms import RESOLUTION
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.fit.fit import check_pair
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.native_models import NativeAdapter, take_fit
from gbm_constrained.fit.options import read_measurement, solver_parameter
from gbm_constrained.fit.problem import HOLDOUT_FRACTION
from gbm_constrained.metrics.black_box import BlackBox, CallBudget
from gbm_constrained.metrics.surrogates import warn_of_few_rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.black_box import (
    N_PASSES,
    AdaptiveResult,
    AdaptiveSurrogates,
    BlackBoxProblem,
    LinearSpace,
    find_group_shifts,
    find_shift,
    minimize_black_box,
)
from gbm_constrained.statistics.counts import CellCounts, functionals_of

PENALTY = 5.0
"""Price of a violation in the search, in units of the loss: a multiplier of that size is larger
than those of bounds that a threshold can meet."""
RETURNED = "this model"  # Its name in the report.


def largest_violation(cells: Cells, compiled: LinearConstraints, scores: Float) -> float:
    """Find by how much the decisions of scores of two classes exceed a bound at most.

    It is zero if they do not. Rates of groups without rows count as within their bounds.
    """
    counts = CellCounts.of(cells, (scores > 0.0).astype(np.intp))
    excess = compiled.rows_of(functionals_of(compiled, counts)) - compiled.b
    largest = float(np.nan_to_num(excess).max(initial=0.0))
    return largest if largest > ROUNDING else 0.0


REMEDIES = {
    "datasets": "give the rows as validation=(X, y, sensitive_features)",
    "sensitive_features_eval_set": "give the rows as validation=(X, y, sensitive_features)",
    "constraint_callbacks": "end the search by BlackBox(..., max_calls=...)",
    "time_limit": "end the search by BlackBox(..., max_calls=...)",
    "max_cost": "take fewer refits in solver=AdaptiveSurrogates(...)",
    "checkpoint": "leave it out",
}


def refuse_arguments(metric: BlackBox | None, **given: Any) -> None:
    """Refuse arguments of ``fit`` without a meaning for a black-box metric, or for others.

    Parameters
    ----------
    metric : BlackBox or None
        The metric; None where the objective is no black-box metric.
    **given
        The arguments that only other objectives take, or that only such metrics take.

    Raises
    ------
    ValueError
        If one of them was given.
    """
    for name in (name for name, value in given.items() if value is not None):
        if metric is None:
            raise ValueError(
                f"{name}= is for objectives that are only a function to call, such as "
                f"minimize=BlackBox(loss): leave it out, or give eval_set=."
            )
        raise ValueError(f"{name}= has no meaning for {metric}: {REMEDIES[name]}.")


AdjustableModel: TypeAlias = Any
"""A trained model whose scores are linear in parameters.

``names`` are those of its parameters, ``start`` are the ones that leave the model as it is, and
``base`` is the score that all rows start from. ``score_columns(X, beside)`` computes the columns
whose weighted sum scores rows, and puts further ones beside them;
``set_parameters(parameters, intercept)`` changes the parameters, and adds to all scores; and
``append_offsets(X, offsets, groups)`` adds offsets to the scores of groups of training rows inside
of the model."""


def read_rows(name: str, given: Any, X: Any) -> FitArguments:
    """Read a tuple (X, y), with sensitive features third and sample weights fourth.

    Raises
    ------
    TypeError, ValueError
        If there is no such tuple, or its columns are not those of the training rows `X`.
    """
    if not isinstance(given, (tuple, list)) or not 2 <= len(given) <= 4:
        length = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        raise TypeError(
            f"{name} must be (X, y) or (X, y, sensitive_features), with sample_weight as a "
            f"fourth element where it matters; got a {type(given).__name__}{length}."
        )
    check_pair(name, given[0], given[1], X, by_name=True)
    names = ("X", "y", "sensitive_features", "sample_weight")
    return FitArguments(**dict(zip(names, given, strict=False)))


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
    estimator : classifier
        The classifier whose parameters are read.
    black_box : BlackBox
        The metric.
    arguments : FitArguments
        Arguments of ``fit`` about rows.
    adapter : NativeAdapter
        Says which parameters of the trained model may be searched.

    Attributes
    ----------
    search : AdaptiveSurrogates
        Options of the search.
    constraints : tuple of Constraint
        Constraints on the decisions.
    data : FitData
        Training rows.
    kept : ndarray of int or None
        Positions of the training rows among those that were given; None if all are kept.
    validation, evaluation : FitArguments
        Rows that gradients are estimated on and that choose the model, and rows of the report.
    validation_rows, evaluation_rows : Rows
        The same, encoded like the training rows.
    levels : tuple of tuple
        Groups of the metric among the training rows.
    metric, reported : MeasuredBlackBox
        The metric on validation rows and on evaluation rows.

    Raises
    ------
    TypeError, ValueError
        If a parameter has no meaning for a black-box metric, or is out of its range, or the rows
        are no rows for it.
    """

    def __init__(
        self, estimator: Any, black_box: BlackBox, arguments: FitArguments, adapter: NativeAdapter
    ) -> None:
        self.black_box = black_box
        self._read_options(estimator)
        search = self.search
        adapter.check_adjustable(search.space)
        self._divide(arguments, estimator)
        data, validation, evaluation = self.data, self.validation_rows, self.evaluation_rows
        columns = black_box.columns
        self.levels = () if columns is None else data.rows.attribute(columns).levels
        self.n_offsets = len(self.levels) if adapter.takes_offsets and search.offsets else 0
        # The surrogates have rows with a share of each label in each group. The mean of 10,000
        # rows has a standard error of a hundredth of the standard deviation of a loss, and
        # projections take a time proportional to the rows.
        self._sample = np.arange(len(data.rows))
        if len(data.rows) > 10_000:
            share, cells = 10_000 / len(data.rows), self.partition(data.rows)
            shares = [share, 1.0 - share]
            self._sample = parts_by_cell(self._sample, cells, shares, data.random_state)[0]
        sampled = data.rows.take(self._sample)
        self.surrogates = black_box.bind_surrogates(sampled)
        warn_of_few_rows(len(self.surrogates), len(validation))
        needs_cells = black_box.called.takes_sensitive or search.estimator != "interpolation"
        self._of_validation = (
            black_box.bind_surrogates(validation, data.rows, "validation") if needs_cells else None
        )
        self._plan_calls()
        budget = CallBudget(black_box.max_calls)
        self.metric, self.reported = (
            black_box.bind(rows, as_labels(given.y, name), budget)
            for name, given, rows in (
                ("validation", self.validation, validation),
                ("evaluation", self.evaluation, evaluation),
            )
        )
        self._choice = self._searched = self.metric
        self.evaluated_constraints: tuple[Cells, LinearConstraints] | None = None
        if self.constraints:
            named = resolve_positive_class(self.constraints, data.classes, estimator.positive)
            self.evaluated_constraints = compile_constraints(named, evaluation)
            cells, compiled = compile_constraints(named, validation)
            # Credible rates of groups choose the model. A search needs a loss that changes little
            # with the scores.
            violation = partial(largest_violation, cells, compiled.make_credible(cells))
            self._choice = self.metric.under(violation, np.inf)
            self._searched = self.metric.under(violation, PENALTY)
        n_candidates = 1 + bool(self.n_offsets)
        left = self._of_search - self._shifts - self._refinement
        search.check_effort(len(self.surrogates), left, n_candidates)
        for measured, rows in ((self.metric, validation), (self.reported, evaluation)):
            # Decisions of both classes, as those of a model: what fails here fails later.
            scores = np.random.RandomState(0).standard_normal(len(rows))
            first, again = (measured.measure(scores) for _ in range(2))
            if first != again:
                issue_warning(
                    f"{black_box} is random: it has the values {first:g} and {again:g} for equal "
                    f"predictions. Fix the random state of the function.",
                    "GC310",
                )
        data.alignment.warn()

    def _read_options(self, estimator: Any) -> None:
        """Read the parameters of a classifier, and refuse those without a meaning.

        Constraints must be about decisions on any rows.
        """
        constraints = check_constraints(estimator.constraints)
        check_task(constraints, predicts_numbers=False)
        refuse_priorities(
            constraints,
            "a black-box metric is searched under constraints that all hold: leave with_priority "
            "out",
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
                    f"validation rows, and is about scores, a named data set or given training "
                    f"rows: bound a rate of decisions in groups, such as gap(fpr(), by=...)."
                )
        unused = {
            "iterate": "last", "guarantee": None, "probabilities": "shifted",
            "early_stopping_on": "metric", "select": "error",
        }  # fmt: skip
        for name, default in unused.items():
            if (value := getattr(estimator, name, default)) != default:
                raise ValueError(
                    f"{name}={value!r} has no meaning for {self.black_box}, which is minimised "
                    f"over the parameters of a trained model: leave it out."
                )
        name = solver_parameter(estimator)
        solver = getattr(estimator, name)
        if solver == "auto":
            solver = AdaptiveSurrogates()
        if not isinstance(solver, AdaptiveSurrogates):
            raise ValueError(
                f"{name} must be 'auto', or AdaptiveSurrogates(...) of gbm_constrained.solvers, "
                f"for {self.black_box}; got {solver!r}."
            )
        asked = getattr(estimator, "measure_on", "auto")
        measured = read_measurement(asked)
        if measured["measure_on"] not in ("auto", "holdout"):
            raise ValueError(
                f"measure_on={asked!r} has no meaning for {self.black_box}, which holds one part "
                f"of the rows out: use Holdout(fraction=...), or leave it out."
            )
        fraction = measured.get("holdout_fraction")
        self._holdout_fraction = HOLDOUT_FRACTION if fraction is None else fraction
        if constraints and solver.refits:
            raise ValueError(
                f"refits={solver.refits} grows a model without multipliers, and constraints= "
                f"needs them: leave refits out."
            )
        self.search, self.constraints = solver, constraints

    def _plan_calls(self) -> None:
        """Plan the numbers of calls for the parts of the fit.

        One call in 15 looks for the best threshold, one for thresholds of groups, and one is for
        the intervals of the report. More than 50 thresholds follow the validation rows too
        closely, as do more than ten of a group in a pass; a standard error from 50 replicates of
        the bootstrap is known to a tenth.
        """
        search, max_calls = self.search, self.black_box.max_calls
        n_reported = 4  # Models in the report.
        share, most = max_calls // 15, 50
        least = 4  # A search for a threshold takes as many calls.
        self._thresholds = max(min(share, most), least)
        n_passes = N_PASSES * len(self.levels)
        self._group_thresholds = n_passes * max(min(share // max(n_passes, 1), 10), least)
        self.replicates = min(share // n_reported, most)
        # All thresholds, and a comparison of the best one with none.
        self._shifts = self._thresholds + 1 + self._group_thresholds
        # After a search its best parameters are compared with a mean, that with a shift and with
        # offsets, and both starts; and what is returned is measured again.
        n_compared = 7 + (search.n_iterations + 1 if self.constraints else 0)
        self._refinement = n_compared + n_reported + self._shifts
        self._of_report = n_reported * (1 + self.replicates)
        self._n_left = 1 + search.refits  # Searches still to come.
        # Before training, the validation rows and those of evidence are tried twice each.
        self._of_search = (max_calls - 4 - self._of_report) // self._n_left

    def _divide(self, arguments: FitArguments, estimator: Any) -> None:
        """Divide the rows that were given into rows of training, of choice and of evidence."""
        self.data, self.kept = FitData.of(arguments, (), estimator.random_state), None
        classes, positive = self.data.classes, estimator.positive
        if positive is not None and positive != classes[-1]:
            raise ValueError(
                f"positive={positive!r}, and scores of {self.black_box} are those of "
                f"{classes[-1].item()!r}, the last of the sorted labels: leave positive= out."
            )
        remedies = {
            name: f"in {name}=(X, y, sensitive_features)" for name in ("validation", "evaluation")
        }

        def encode(name: str, given: FitArguments) -> Rows:
            """Encode rows like the training rows; messages say how a missing column is given."""
            weight, sensitive = given.sample_weight, given.sensitive_features
            rows = self.data.evaluation_rows(
                name, given.X, given.y, weight, sensitive, remedies[name]
            )
            parts = {"X": given.X, "y": given.y, "sensitive_features": sensitive}
            parts["sample_weight"] = weight
            self.data.alignment.check(
                {f"{part} of {name}": values for part, values in parts.items()}
            )
            return rows

        if arguments.validation is None:
            cells = self.partition(self.data.rows)
            everyone = np.arange(len(self.data.rows))
            held, self.kept = self.data.split(everyone, cells, self._holdout_fraction)
            validation = arguments.take(held)
            remedies["validation"] = self.data.rows.remedy
            self.data = FitData.of(arguments.take(self.kept), (), self.data.random_state)
        else:
            validation = read_rows("validation", arguments.validation, arguments.X)
        if arguments.evaluation is None:
            remedies["evaluation"] = remedies["validation"]
            rows = encode("validation", validation)
            parts = parts_by_cell(
                np.arange(len(rows)), self.partition(rows), [1.0 / 3.0, 2.0 / 3.0],
                self.data.random_state,
            )  # fmt: skip
            self.evaluation, self.validation = (validation.take(part) for part in parts)
        else:
            self.validation = validation
            self.evaluation = read_rows("evaluation", arguments.evaluation, arguments.X)
        self.validation_rows = encode("validation", self.validation)
        self.evaluation_rows = encode("evaluation", self.evaluation)
        for name, rows in (
            ("validation", self.validation_rows), ("evaluation", self.evaluation_rows)
        ):  # fmt: skip
            if not len(rows):
                raise ValueError(
                    f"There are no {name} rows: give {name}=(X, y) with rows of both labels, or "
                    f"more of the rows that they are taken from."
                )

    def partition(self, rows: Rows) -> Cells:
        """Divide rows by label, and by the groups of the metric."""
        columns = self.black_box.columns
        return Cells(rows, [[] if columns is None else [columns]])

    def groups_of(self, rows: Rows) -> Codes:
        """Find the group of each row, counted from zero; one group without groups."""
        columns = self.black_box.columns
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
        kept_back = self._n_left * self._of_search + self._of_report
        self.metric.budget.reserve(kept_back + self._refinement)
        plain = np.append(model.start, np.zeros(self.n_offsets + 1))
        sampled = self.data.rows.take(self._sample)
        training = self._columns(model, take_rows(self.data.combined.X, self._sample), sampled)
        validation = self._columns(model, self.validation.X, self.validation_rows)
        base = model.base
        space = LinearSpace(training, validation, base, sampled.weight)
        (threshold, *with_offsets), shifts = self._post_shift(space, plain)
        candidates = [plain, *with_offsets]
        problem = BlackBoxProblem(space, self.surrogates, self._searched, self._of_validation)
        found = minimize_black_box(
            problem, threshold, candidates, self.search, self.data.random_state
        )
        self.metric.budget.reserve(kept_back)
        # The mean of the last iterates and its shifts are candidates beside what was searched.
        tail = found.iterates[len(found.iterates) // 2 :]
        mean = np.mean([one.parameters for one in tail], axis=0)
        tried: list[Float] = [found.parameters, mean, *self._post_shift(space, mean)[0]]
        if self.constraints:  # The search has compared models by another loss.
            tried += [*candidates, *(one.parameters for one in found.iterates)]
        losses = [self._choice(space.validation_scores(parameters)) for parameters in tried]
        best = tried[int(np.argmin(losses))]
        columns = self._columns(model, self.evaluation.X, self.evaluation_rows)
        evidence = LinearSpace(columns, columns, base)

        def score(of_rows: LinearSpace, rows: Rows) -> dict[str, Float]:
            of_threshold = of_rows.validation_scores(threshold)
            scores = {"plain": of_rows.validation_scores(plain), "threshold": of_threshold}
            if self.levels:
                offsets = take_offsets(shifts, self.groups_of(rows))
                scores["threshold per group"] = of_threshold + offsets
            return {**scores, RETURNED: of_rows.validation_scores(best)}

        chosen = score(space, self.validation_rows)
        of_models = {name: self.metric(given) for name, given in chosen.items()}
        loss = self._choice(chosen[RETURNED])
        evaluated = score(evidence, self.evaluation_rows)
        return BlackBoxResult(best, found, of_models, evaluated, loss)

    def row_factors(self, result: BlackBoxResult) -> Float:
        """Weigh the training rows as the last projections weigh their surrogates.

        The gradient of a projection is that of a weighted loss, whose weights are the excess of
        each surrogate over its target.
        """
        iterates = result.search.iterates[1:]
        tail = iterates[len(iterates) // 2 :]
        excess = [np.maximum(one.profile - one.target, 0.0) for one in tail]
        weights = np.mean(excess, axis=0) if tail else np.zeros(len(self.surrogates))
        if not weights.any():  # All targets were reached, or no step was made.
            weights = np.ones(len(self.surrogates))
        return self.black_box.bind_surrogates(self.data.rows).row_factors(weights)

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
        shift, value = find_shift(self._choice, scores, self._thresholds)
        if (unshifted := self._choice(scores)) <= value:  # Not all thresholds are tried.
            shift, value = 0.0, unshifted
        shifted[-1] += shift
        if not self.levels:
            return [shifted], np.zeros(0)
        groups, n_groups = self.groups_of(self.validation_rows), len(self.levels)
        shifts, _ = find_group_shifts(
            self._choice, scores + shift, groups, n_groups, self._group_thresholds, value
        )
        if not self.n_offsets:
            return [shifted], shifts
        moved = shifted.copy()
        moved[-1 - self.n_offsets : -1] += shifts
        return [shifted, moved], shifts

    def _columns(self, model: AdjustableModel, X: Any, rows: Rows) -> Any:
        """Score rows by each parameter of a model, by the offset of each group, and by ones."""
        beside = np.ones((len(rows), self.n_offsets + 1), dtype=np.float32)
        if self.n_offsets:  # Rows of groups that training lacks have no offset.
            beside[:, :-1] = self.groups_of(rows)[:, None] == np.arange(self.n_offsets)
        return model.score_columns(X, beside)


def report_black_box(
    estimator: Any, fit: BlackBoxFit, result: BlackBoxResult, before: pd.Series[Any], scores: Float
) -> None:
    """Set the fitted attributes.

    Parameters
    ----------
    estimator : classifier
        The classifier that is given the attributes.
    fit : BlackBoxFit
        The fit.
    result : BlackBoxResult
        What was found.
    before : Series
        Parameters of the library's own model, by name.
    scores : ndarray of shape (n_evaluation,)
        Scores of the evaluation rows by the returned model.
    """
    of_models = {**result.evaluated, RETURNED: scores}
    estimator.blackbox_report_ = _tabulate_models(fit, of_models, result.losses)
    # The start and each iteration: the metric, and surrogates against their targets.
    iterates = result.search.iterates
    columns: dict[str, Any] = {
        "iteration": np.arange(len(iterates)),
        "metric": [fit.metric.from_loss(one.loss) for one in iterates],
        "redrawn": [one.redrawn for one in iterates],
        "excess": [one.excess for one in iterates],
    }
    for name in ("profile", "target", "gradient"):
        values = np.array([getattr(one, name) for one in iterates])
        shown = "surrogate" if name == "profile" else name
        for k, surrogate in enumerate(fit.surrogates.names):
            described = surrogate.removeprefix("surrogate(").removesuffix(")").replace("'", "")
            columns[f"{shown}[{described}]"] = values[:, k]
    estimator.history_ = pd.DataFrame(columns)
    # The parameters of both models, the offsets of groups and what all scores get.
    levels = fit.levels if fit.n_offsets else ()
    groups = [f"offset[{', '.join(map(str, level))}]" for level in levels]
    after = pd.Series(result.parameters, [*before.index, *groups, "intercept"])
    estimator.blackbox_parameters_ = pd.DataFrame(
        {"before": before.reindex(after.index, fill_value=0.0), "after": after}
    )
    reasons = {
        "calls": f"too few calls were left of max_calls={fit.black_box.max_calls}",
        "plateau": "no perturbation of the parameters changed the metric",
    }
    estimator.stopping_message_ = None
    if (ended := result.search.ended) != "iterations":
        estimator.stopping_message_ = (
            f"The search ended after {len(iterates) - 1} of {fit.search.n_iterations} "
            f"iterations: {reasons[ended]}."
        )


def _tabulate_models(
    fit: BlackBoxFit, scores: dict[str, Float], losses: dict[str, float]
) -> pd.DataFrame:
    """Tabulate the metric of each model on the rows of evidence, and on those that chose."""
    measured = fit.reported
    measured.budget.reserve(0)
    measured.budget.place = "the report"
    direction = 1.0 if measured.called.is_maximized else -1.0
    # Rows are drawn with replacement, as many of each label in each group as there are. A single
    # row is the same in all draws, as if it did not vary: no draws are made then.
    codes, random = fit.partition(fit.evaluation_rows).codes, np.random.RandomState(0)
    strata = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    n_draws = 0 if min(rows.size for rows in strata) < 2 else fit.replicates
    draws = [
        np.sort(np.concatenate([random.choice(rows, rows.size) for rows in strata]))
        for _ in range(n_draws)
    ]
    values = np.array(
        [
            [measured.measure(one), *(measured.take(at).measure(one[at]) for at in draws)]
            for one in scores.values()
        ]
    )
    names, constraints = list(scores), fit.evaluated_constraints
    is_returned = np.array([name == RETURNED for name in names])
    gains = direction * (values[is_returned] - values)
    low, high = np.clip(_intervals(values), *measured.bounds)
    gain_low, gain_high = _intervals(gains)
    verdicts = ["returned", "better", "worse"]
    cases = [is_returned, gain_low > 0.0, gain_high < 0.0]
    violations = [np.nan] * len(names)
    if constraints is not None:
        violations = [largest_violation(*constraints, one) for one in scores.values()]
    table = pd.DataFrame(
        {
            "model": names,
            "evaluation": values[:, 0],
            "low": low,
            "high": high,
            "gain": gains[:, 0],
            "gain_low": gain_low,
            "gain_high": gain_high,
            "verdict": np.select(cases, verdicts, "cannot be told").tolist(),
            "validation": [fit.metric.from_loss(losses[name]) for name in names],
            "violation": violations,
            "n_evaluation": len(fit.evaluation_rows),
            "n_validation": len(fit.validation_rows),
            "calls": measured.budget.calls,
        }
    )
    table.loc[is_returned, ["gain", "gain_low", "gain_high"]] = np.nan
    return table


def _intervals(values: Float) -> Float:
    """Make 95% intervals from values and their replicates, which stand beside them.

    They are NaN with fewer than two replicates.
    """
    if values.shape[1] < 3:
        return np.full((2, len(values)), np.nan)
    width = float(norm.ppf(0.975)) * np.std(values[:, 1:], axis=1, ddof=1)
    return np.array([values[:, 0] - width, values[:, 0] + width])


class BlackBoxMixin:
    """What a classifier with ``minimize=BlackBox(...)`` does."""

    classes_: Any
    maximize: Any
    minimize: Any
    random_state: Any

    # Scores of the model, given a table of rows and, if ``predict`` takes any, where they begin.
    _raw_margin: Callable[..., Array]

    def _fit_black_box(self, adapter: NativeAdapter, rows: FitArguments, metric: BlackBox) -> None:
        """Train the library's own model, and minimise the metric over its parameters."""
        fit = BlackBoxFit(self, metric, rows, adapter)
        space = fit.search.space
        with unchanged_on_error(self):
            if fit.kept is not None:
                adapter.restrict(fit.kept)
            if fit.constraints:  # By multipliers, as without the black-box metric.
                with preserve_random_state(self):
                    other = clone(self)
                other.set_params(maximize=None, minimize=None, **{solver_parameter(self): "auto"})
                adapter.fit_constrained(other, fit.data.arguments)
                take_fit(self, other)
            else:
                adapter.fit_plain()
            remove_report(self)
            model = adapter.adjustable(space)
            result = fit.run(model)
            for _ in range(fit.search.refits):  # The better one of both models is kept.
                known = dict(vars(self))
                adapter.fit_plain(fit.row_factors(result))
                anew = adapter.adjustable(space)
                found = fit.run(anew)
                if found.loss < result.loss:
                    losses = {**result.losses, RETURNED: found.losses[RETURNED]}
                    result = replace(found, losses=losses, evaluated=result.evaluated)
                    model = anew
                else:
                    vars(self).clear()
                    vars(self).update(known)
            before = pd.Series(model.start, model.names)
            end = -1 - fit.n_offsets
            model.set_parameters(result.parameters[:end], float(result.parameters[-1]))
            self._keep_offsets(fit, model, result.parameters[end:-1])
            evidence = fit.evaluation
            scores = self.decision_scores(evidence.X, evidence.sensitive_features)
            report_black_box(self, fit, result, before, scores)

    def _keep_offsets(self, fit: BlackBoxFit, model: AdjustableModel, values: Float) -> None:
        """Put the offsets of groups into the model, or beside it."""
        if not values.any():
            return
        columns, rows = fit.black_box.columns, fit.data.rows
        assert columns is not None
        offsets = GroupOffsets(columns, fit.levels, values)
        X, groups = fit.data.combined.X, fit.groups_of(rows)
        if _are_of_features(X, rows, offsets, groups):
            _, first = np.unique(groups, return_index=True)
            table = take_rows(X, first)
            expected = self._raw_margin(table) + offsets.values[groups[first]]
            before = dict(vars(self))
            model.append_offsets(X, offsets, groups)
            if np.abs(self._raw_margin(table) - expected).max() < RESOLUTION:
                return
            vars(self).update(before)
        self._group_offsets = offsets.as_attribute()

    def decision_scores(self, X: Any, sensitive_features: Any = None) -> Float:
        """Compute the scores that decide, which are log odds of the last class.

        They are those of the library's own model, and offsets of groups where these are kept
        beside the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns that make the groups, where offsets are kept beside the model.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)

        Raises
        ------
        ValueError
            If the columns that make the groups are missing.
        """
        margin = np.asarray(self._raw_margin(X), dtype=np.float64)
        if not hasattr(self, "_group_offsets"):
            return margin
        return margin + self._find_offsets(X, sensitive_features)

    def _find_offsets(self, X: Any, sensitive_features: Any) -> Float:
        """Find the offset of each row's group; zero for groups that training did not have."""
        kept: dict[str, Any] = self._group_offsets
        n = number_of_rows(X)
        none = np.zeros(n, dtype=np.intp)
        rows = Rows(none, self.classes_, None, columns_of(sensitive_features, n), [X])
        try:
            found = rows.attribute(tuple(kept["columns"]))
        except UnavailableError as error:
            raise ValueError(
                f"The groups of {kept['columns']} have offsets that are kept beside the model: "
                f"give sensitive_features with these columns, or train a model without "
                f"offsets beside the model. {error}"
            ) from None
        known = {level: i for i, level in enumerate(kept["levels"])}
        position = np.array([known.get(level, len(known)) for level in found.levels], np.intp)
        offsets: Float = kept["offsets"]
        groups = position[np.asarray(found.codes)]
        if n_without := int((groups >= offsets.size).sum()):
            lacking = [level for level in found.levels if level not in known]
            issue_warning(
                f"{n_without} of {n} rows have groups of {kept['columns']} that training lacks, "
                f"{join_truncated(lacking)}: their scores get no offset, as none was chosen for "
                f"them. Give such rows in training, or the group of each row.",
                "GC208",
            )
        return take_offsets(offsets, groups)


def _are_of_features(X: Any, rows: Rows, offsets: GroupOffsets, groups: Codes) -> bool:
    """Whether values of features make all groups that have offsets."""
    if not isinstance(X, pd.DataFrame) or not {*offsets.columns} <= {*X.columns}:
        return False
    moved = [offsets.levels[g] for g in np.flatnonzero(offsets.values)]
    if any(value is MISSING for level in moved for value in level):
        return False
    if rows.columns.keys().isdisjoint(offsets.columns):
        return True
    # A named column beside the features may hold other values.
    found = Rows(rows.y, rows.classes, None, {}, [X]).attribute(offsets.columns)
    own = [found.levels[code] for code in found.codes]
    return own == [offsets.levels[code] for code in groups]
