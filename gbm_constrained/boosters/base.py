"""What the drop-in classifiers of both libraries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from gbm_constrained._typing import Array
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.training.checkpoint import refuse_without_constraints
from gbm_constrained.training.evaluation_sets import EvaluationArguments, take_evaluation_sets
from gbm_constrained.training.finalize import finalize
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report, report, warn
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.metric_classifier import MetricMixin, NativeAdapter
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.model_scores import TrainedModel
from gbm_constrained.training.options import SolverOptions, set_solver_options, with_constraints
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.time_limit import TimeLimit, refuse_time_limit_without_constraints


@dataclass(frozen=True)
class ConstraintArguments:
    """Arguments of ``fit`` that both libraries take beside their own.

    Parameters
    ----------
    rows : FitArguments
        Arguments that describe the training rows.
    sensitive_features_eval_set : list, default=None
        Sensitive features of each evaluation set.
    constraint_callbacks : sequence of callable, default=None
        Notified of each outer iteration.
    checkpoint : str or path-like, default=None
        File that finished stages are saved to.
    time_limit : float, default=None
        Seconds after which measuring and training end.
    """

    rows: FitArguments
    sensitive_features_eval_set: Any = None
    constraint_callbacks: Any = None
    checkpoint: Any = None
    time_limit: float | None = None


@dataclass(frozen=True)
class Trained:
    """A booster that the library has trained.

    Parameters
    ----------
    model : TrainedModel
        The booster.
    rounds : int
        Boosting rounds of the fit; fewer than were trained after early stopping.
    margin : ndarray or None
        Scores of the training rows after these rounds, if they are known.
    library_rounds : callable
        Given rounds of the fit, the number of rounds as the library counts them.
    """

    model: TrainedModel
    rounds: int
    margin: Array | None
    library_rounds: Callable[[int], int]


class BoosterAdapter(NativeAdapter, Protocol):
    """All that a constrained fit knows of a library.

    The methods are called in the order in which they stand here, once each.

    Attributes
    ----------
    is_divisible : bool
        Whether boosters can be grown on part of the rows, and a prefix of the booster is what the
        booster was after its rounds.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    """

    is_divisible: bool
    has_offset: bool

    def check_parameters(self, options: SolverOptions) -> None:
        """Refuse parameters that have no meaning under constraints."""

    def progress(self) -> Progress | None:
        """Make what shows the progress, as the library's own verbosity asks."""

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check what depends on the rows, and list the evaluation sets."""

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        """Take over the evaluation sets that are not the training rows."""

    def make_factory(self) -> FoldBoosterFactory:
        """Make what makes the boosters of the folds."""

    def measuring(self) -> AbstractContextManager[Any]:
        """Make the context in which the boosters of the folds are made and grown."""

    def train(self) -> Trained:
        """Run the parent's ``fit`` with the solver as its objective."""

    def finish(self) -> None:
        """Add to the report what only the library knows, and warn of it."""


class ConstrainedBoosterMixin(MetricMixin, ConstrainedFitAttributes):
    """A classifier of a library that is trained under constraints."""

    constraints: Any
    positive: Any

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``solver__tau``."""
        return super().set_params(**set_solver_options(self, params))  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        return with_constraints(tags, self.constraints, self.positive)

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _fit_constrained(self, adapter: BoosterAdapter, given: ConstraintArguments) -> None:
        """Fit under constraints, or leave the fit to the parent if there are none."""
        options = SolverOptions.of(self)
        if options.metric is not None:
            self._fit_metric(adapter, given.rows, options)
            return
        if not options.constraints:
            refuse_without_constraints(given.checkpoint)
            refuse_time_limit_without_constraints(given.time_limit)
            adapter.fit_plain()
            remove_report(self)
            return
        adapter.check_parameters(options)
        limit = TimeLimit(given.time_limit)
        settings = adapter.settings()
        fit = ConstrainedFit(
            options,
            given.rows,
            settings,
            progress=adapter.progress(),
            constraint_callbacks=given.constraint_callbacks,
            limit=limit,
        )
        evaluation = adapter.bind(fit)
        held_out = take_evaluation_sets(fit, evaluation, given.sensitive_features_eval_set)
        fit.data.alignment.warn()
        arguments = {
            **adapter.given(),
            **vars(given.rows),
            "sensitive_features_eval_set": given.sensitive_features_eval_set,
        }
        fit.save_to(given.checkpoint, self, arguments)
        adapter.prepare(fit, held_out)
        with adapter.measuring():
            fit.measure(
                adapter.make_factory,
                is_divisible=adapter.is_divisible,
                has_offset=adapter.has_offset,
            )
        with unchanged_on_error(self):
            trained = adapter.train()
            remove_report(self)
            model = finalize(fit, trained.model, trained.rounds, trained.margin)
            if (prefixes := model.prefixes) is not None:
                rounds = prefixes["rounds"].map(trained.library_rounds)
                self.prefixes_ = prefixes.assign(rounds=rounds)
            self.shift_ = model.shift
            if model.shift.any() and options.probabilities == "calibrated":
                self._threshold = model.shift
            feasibility = report(self, fit, model)
            adapter.finish()
        fit.notifier.warn()
        warn(fit, model, feasibility)
