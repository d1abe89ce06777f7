"""One constrained fit, in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Number
from typing import Any, ClassVar, get_args

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.validation import as_labels
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantee_checks import GuaranteeRequest, check_guarantee
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import Solver
from gbm_constrained.training.callbacks import CallbackNotifier, check_callbacks
from gbm_constrained.training.checkpoint import open_checkpoint
from gbm_constrained.training.early_stopping import RoundMerit, find_merit
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.group_decisions import begin_groups
from gbm_constrained.training.measurement import (
    Dividing,
    EvaluationRows,
    HeldOutRows,
    Measured,
    MeasurementStrategy,
    TrainingRows,
    resolve_measurement,
)
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import FitProblem, LibrarySettings
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.run import FitRun
from gbm_constrained.training.time_limit import TimeLimit


def weight_of_rows(sample_weight: Any, y: Any) -> Any:
    """Repeat a single sample weight for every row, as scikit-learn reads it."""
    if not isinstance(sample_weight, Number):
        return sample_weight
    return np.full(as_labels(y).size, sample_weight, dtype=np.float64)


def _refuse_tables(compiled: LinearConstraints) -> None:
    """Refuse pair rates and calibration errors where decisions alone are moved."""
    for constraint in compiled.constraints:
        if constraint.is_calibration:
            raise ValueError(
                f"solver='threshold' moves the threshold alone, and {constraint} is about "
                f"probabilities, which no threshold changes: use solver='auto', or leave the "
                f"constraint out."
            )
        if constraint.is_pair:
            raise ValueError(
                f"solver='threshold' moves the threshold alone, and {constraint} compares scores, "
                f"whose order no threshold changes: use solver='auto', or leave the constraint "
                f"out."
            )


class ConstrainedFit:
    """One constrained fit, whose stages take the products of those before.

    1. The rows are encoded, 2. the constraints compiled, 3. the options checked: all three when
    the object is made. 4. and 5. :meth:`measure` finds the path of the multipliers. 6. The
    library trains with :attr:`solver` as its objective. 7.
    :func:`~gbm_constrained.training.finalize.finalize` chooses the decision. 8.
    :func:`~gbm_constrained.training.fitted_report.report` sets the fitted attributes.

    Parameters
    ----------
    options : SolverOptions
        Constructor parameters.
    arguments : FitArguments
        Rows that the user gave.
    library : LibrarySettings
        Settings of the library's own fit.
    progress : Progress, default=None
        Display of the progress.
    constraint_callbacks : sequence of callable, default=None
        Notified of each outer iteration.
    limit : TimeLimit, default=None
        Time after which measuring and training end.

    Attributes
    ----------
    run : FitRun
        Options, programme and observers.
    evaluation_sets : list of EvaluationSet
        Evaluation sets of the user.
    measured : Measured
        Product of :meth:`measure`.
    merits : dict of int to RoundMerit
        What early stopping on the constraints compares, by rounds.
    is_divisible : bool
        Whether a prefix of the booster is what the booster was after its rounds.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    """

    problem_class: ClassVar[type[FitProblem]] = FitProblem
    run_class: ClassVar[type[FitRun]] = FitRun
    held_out_rows: ClassVar[type[HeldOutRows]] = HeldOutRows
    check_guarantee: ClassVar[Callable[..., None]] = staticmethod(check_guarantee)

    def __init__(
        self,
        options: SolverOptions,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        progress: Progress | None = None,
        constraint_callbacks: Any = None,
        limit: TimeLimit | None = None,
    ) -> None:
        callbacks = check_callbacks(constraint_callbacks)
        notifier = CallbackNotifier(
            callbacks if progress is None else [*callbacks, progress],
            library.n_rounds,
            options.rounds_per_iteration,
            limit,
            library.unit,
            arguments.machine.communicator,
            library.learning_rate,
        )
        options, problem = self.problem_class.of(options, arguments, library)
        options.method.check_problem(problem.compiled, options.iterate)
        if options.solver == "threshold":
            _refuse_tables(problem.compiled)
        problem.initial_multipliers(options.method.start)
        certification = problem.certification_set()
        if certification is not None:
            prefixes = options.prefixes(library.n_rounds)
            fraction, delta = options.calibration_fraction, options.delta
            asked = GuaranteeRequest(str(options.guarantee), fraction, delta, prefixes)
            self.check_guarantee(certification, problem.compiled, asked)
        parameter = options.group_parameter
        groups = None if parameter is None else begin_groups(problem, parameter, library)
        self.run = self.run_class(
            options, problem, library, notifier, certification, groups, progress=progress
        )
        self.evaluation_sets: list[EvaluationSet] = []
        self.merits: dict[int, RoundMerit] = {}
        self.measured: Measured
        self.is_divisible = self.has_offset = False

    @property
    def options(self) -> SolverOptions:
        """Constructor parameters."""
        return self.run.options

    @property
    def problem(self) -> FitProblem:
        """Constraints bound to the rows."""
        return self.run.problem

    @property
    def data(self) -> FitData:
        """Rows of the fit."""
        return self.run.problem.data

    @property
    def notifier(self) -> CallbackNotifier:
        """Notifier of callbacks, which also ends training."""
        return self.run.notifier

    @property
    def solver(self) -> Solver:
        """Solver that gives the gradients of the model."""
        return self.measured.solver

    @property
    def reporting_rows(self) -> list[EvaluationSet]:
        """Held-out rows whose rates are reported; the first that have a value count."""
        rows = self.measured.rows
        return [*self.evaluation_sets[-1:], *([] if rows is None else [rows])]

    def add_evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> EvaluationSet:
        """Attach rows that are not trained on."""
        added = self.problem.evaluation_set(name, X, y, weight, sensitive_features)
        self.evaluation_sets.append(added)
        return added

    def find_held_out(self, pairs: Sequence[tuple[Any, Any]]) -> list[int]:
        """List the positions of the evaluation sets (X_i, y_i) that are not the training rows.

        Training rows are refused there if some of them are set aside for a guarantee.
        """
        found = [i for i, pair in enumerate(pairs) if not self.data.holds(pair)]
        if len(found) < len(pairs) and self.run.certification is not None:
            raise ValueError(
                f"eval_set holds the training rows, of which guarantee={self.options.guarantee!r} "
                f"sets some aside that nothing else may look at: leave them out; history_ and "
                f"constraint_report_ have the values on training rows."
            )
        return found

    def warn_of_further_groups(self) -> None:
        """Warn of groups of the last evaluation set that constraints have no training rows of."""
        for rows in self.evaluation_sets[-1:]:
            if found := self.problem.name_further_groups(rows):
                issue_warning(
                    f"{rows.source} has groups that a constraint has no training rows of: "
                    f"{found}. Values on {rows.source} compare these groups as well, as audit "
                    f"does, and training cannot act on them. Put rows of these groups among the "
                    f"training rows, or leave them out of {rows.source}.",
                    "GC205",
                )

    def check_stopping_set(self) -> None:
        """Refuse to stop early on constraints that the last evaluation set cannot measure."""
        held, compiled = self.evaluation_sets[-1], self.problem.compiled
        compared = np.unique(compiled.R.indices)
        there = compiled.positions_in(held.compiled)[compared]
        if np.isnan(held.compiled.constant[there]).any():
            raise ValueError(
                f"early_stopping_on={self.options.early_stopping_on!r} measures the constraints "
                f"on {held.source}, where some cannot be measured (a mask, a data set, a column "
                f"or a group that is not there): give sensitive_features_eval_set, or use "
                f"'metric'."
            )

    def save_to(self, path: Any, estimator: Any, arguments: Mapping[str, Any]) -> None:
        """Save finished stages to a file from now on, and resume from its finished stages.

        Parameters of the `estimator` and `arguments` of its ``fit`` must be those of the fit in
        the file. With a `path` of None nothing is saved.
        """
        compiled, cells = self.problem.compiled, self.problem.cells
        arguments = self.data.with_folds(arguments)
        file = open_checkpoint(path, estimator, arguments, compiled, cells)
        self.run = replace(self.run, checkpoint=file)

    def measure(
        self,
        make_factory: Callable[[], FoldBoosterFactory] | None = None,
        *,
        is_divisible: bool = False,
        has_offset: bool = False,
    ) -> None:
        """Find the path of the multipliers, or the rows that will move them.

        `make_factory` makes the factory of fold boosters; None stands for a learner without any.
        The attributes of the class describe the other parameters.
        """
        self.is_divisible, self.has_offset = is_divisible, has_offset
        kind = resolve_measurement(
            self.run,
            is_divisible=is_divisible,
            has_evaluation_set=bool(self.evaluation_sets),
        )
        strategy: MeasurementStrategy = TrainingRows()
        if kind in get_args(Dividing):
            assert make_factory is not None
            n_folds = 1 if kind == "holdout" else self.options.n_folds
            strategy = self.held_out_rows(make_factory(), n_folds, has_offset)
        elif self.run.checkpoint is not None:
            raise ValueError(
                "checkpoint= saves the boosters of the folds, and this fit has none: it measures "
                "the constraints on the training rows or on an evaluation set. Leave checkpoint "
                "out, or use measure_on='crossfit'."
            )
        elif kind == "evaluation set":
            strategy = EvaluationRows(self.evaluation_sets[-1])
        self.measured = strategy.measure(self.run)

    def is_iteration_end(self, rounds: int) -> bool:
        """Whether `rounds` boosting rounds complete an outer iteration."""
        return rounds % self.options.rounds_per_iteration == 0

    def is_measured_after(self, rounds: int) -> bool:
        """Whether evaluation sets are measured after so many boosting rounds."""
        return self.options.early_stopping_on != "metric" or self.is_iteration_end(rounds)

    def measure_round(self, held: EvaluationSet, rounds: int, margin: Array) -> None:
        """Measure an evaluation set by its scores after some rounds."""
        held.measure(rounds, margin)
        if self.options.early_stopping_on != "metric" and held is self.evaluation_sets[-1]:
            self.merits[rounds] = self.find_merit(held, margin)

    def find_merit(self, held: EvaluationSet, margin: Array) -> RoundMerit:
        """Find what early stopping on the constraints compares, by the scores after a round."""
        is_shifted = self.measured.rows is not None and self.options.iterate != "randomized"
        return find_merit(held, margin, is_shifted=is_shifted)
