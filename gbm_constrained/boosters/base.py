"""Parts that the drop-in classifiers of both libraries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Codes
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.rule import Margins, MarginShift, Mixture
from gbm_constrained.metrics.reading import read_black_box
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.training.black_box_classifier import AdjustableAdapter, BlackBoxMixin
from gbm_constrained.training.black_box_options import refuse_arguments, refuse_rows
from gbm_constrained.training.checkpoint import refuse_without_constraints
from gbm_constrained.training.evaluation_sets import EvaluationArguments, take_evaluation_sets
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.finalize import finalize
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report, report, warn
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
from gbm_constrained.training.group_decisions import tabulate_shifts
from gbm_constrained.training.metric_boosters import ConstrainedBoosters
from gbm_constrained.training.metric_classifier import Interruptions, MetricMixin, NativeAdapter
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.model_scores import TrainedModel
from gbm_constrained.training.native_models import Merger
from gbm_constrained.training.options import SolverOptions, set_solver_options
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.tags import with_constraints
from gbm_constrained.training.time_limit import TimeLimit, refuse_time_limit_without_constraints

Records: TypeAlias = Mapping[str, Mapping[str, list[Any]]]
"""Values of each metric on each evaluation set, after each round."""


def join_records(first: Records, then: Records) -> Records:
    """Join the values of metrics on evaluation sets in two stages of training."""
    return {
        data: {name: [*first[data][name], *values] for name, values in metrics.items()}
        for data, metrics in then.items()
    }


@dataclass(frozen=True)
class Trained:
    """A booster that the library has trained.

    Attributes
    ----------
    model : TrainedModel
        The booster.
    rounds : int
        Boosting rounds of the fit; fewer than were trained after early stopping.
    margin : ndarray or None
        Scores of the training rows after these rounds, if they are known.
    library_rounds : callable
        Number of rounds as the library counts them, given rounds of the fit.
    """

    model: TrainedModel
    rounds: int
    margin: Array | None
    library_rounds: Callable[[int], int]


class BoosterAdapter(NativeAdapter, Merger, Protocol):
    """Interface by which a constrained fit drives a library.

    The methods are called in this order, once each.

    Attributes
    ----------
    is_divisible : bool
        Whether boosters can be grown on part of the rows.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    """

    is_divisible: bool
    has_offset: bool

    def check_parameters(self) -> None:
        """Refuse parameters that have no meaning under constraints."""

    def progress(self) -> Progress | None:
        """Make the display of progress, if the library's own verbosity asks for one."""

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check the arguments that depend on the rows, and list the evaluation sets."""

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        """Take over the evaluation sets that are not the training rows."""

    def make_factory(self) -> FoldBoosterFactory:
        """Make the factory of the fold boosters."""

    def measuring(self) -> AbstractContextManager[Any]:
        """Make the context in which fold boosters are made and grown."""

    def for_black_box(self) -> AdjustableAdapter:
        """Make the adapter of a fit for a black-box metric."""

    def train(self) -> Trained:
        """Run the parent's ``fit`` with the solver as its objective."""


def attach_rows(
    estimator: Any,
    fit: ConstrainedFit,
    adapter: BoosterAdapter,
    rows: FitArguments,
    checkpoint: Any,
    sensitive_features_eval_set: Any,
) -> None:
    """Attach evaluation sets and the checkpoint to a fit.

    Parameters
    ----------
    estimator : ConstrainedBoosterMixin or ConstrainedRegressorMixin
        The estimator, whose parameters a checkpoint must have.
    fit : ConstrainedFit
        The fit.
    adapter : BoosterAdapter
        Drives the library.
    rows : FitArguments
        Rows that the user gave.
    checkpoint : path-like or None
        File of the boosters of the folds.
    sensitive_features_eval_set : list or None
        Sensitive features of each evaluation set.
    """
    held_out = take_evaluation_sets(fit, adapter.bind(fit), sensitive_features_eval_set)
    fit.data.alignment.warn()
    arguments = {**adapter.given(), **rows.by_name()}
    arguments["sensitive_features_eval_set"] = sensitive_features_eval_set
    fit.save_to(checkpoint, estimator, arguments)
    adapter.prepare(fit, held_out)


def measure_fit(fit: ConstrainedFit, adapter: BoosterAdapter) -> None:
    """Find the multipliers of a fit that has its rows."""
    with adapter.measuring():
        fit.measure(
            adapter.make_factory,
            is_divisible=adapter.is_divisible,
            has_offset=adapter.has_offset,
        )


class ConstrainedBoosterMixin(BlackBoxMixin, MetricMixin, ConstrainedFitAttributes):
    """A classifier of a library that is trained under constraints."""

    constraints: Any
    positive: Any
    classes_: Any

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

    def _decide(
        self,
        X: Any,
        margins: Margins | None,
        random_state: Any,
        sensitive_features: Any = None,
        *,
        is_whole: bool,
    ) -> Codes | None:
        """Decide by what is kept beside the model, if anything, in class positions.

        ``margins(0)`` are the scores of the rounds that were asked for; None asks for no classes.
        Only the whole model is a mixture, or has offsets of groups.
        """
        if margins is not None and is_whole and hasattr(self, "_group_offsets"):
            scores = margins(0) + self._find_offsets(X, sensitive_features)
            shift = getattr(self, "_threshold", np.zeros(1))
            return MarginShift(shift).decide(lambda _: scores)
        if margins is not None and is_whole and hasattr(self, "prefixes_"):
            mixture = Mixture.of_prefixes(self.prefixes_, len(self.classes_), random_state)
            return mixture.decide(margins)
        if margins is not None and is_whole and hasattr(self, "_rules"):
            return self._decide_by_rules(X, margins, random_state)
        check_random_state(random_state)  # Nothing is drawn here.
        if margins is not None and hasattr(self, "_threshold"):
            return MarginShift(self._threshold).decide(margins)
        return None

    def _fit_constrained(
        self,
        adapter: BoosterAdapter,
        rows: FitArguments,
        sensitive_features_eval_set: Any,
        constraint_callbacks: Any,
        checkpoint: Any,
        time_limit: float | None,
        /,
    ) -> None:
        """Fit under constraints, or leave the fit to the parent if there are none."""
        if (black_box := read_black_box(self.maximize, self.minimize)) is not None:
            refuse_arguments(
                black_box,
                datasets=rows.datasets,
                sensitive_features_eval_set=sensitive_features_eval_set,
                constraint_callbacks=constraint_callbacks,
                checkpoint=checkpoint,
                time_limit=time_limit,
            )
            self._fit_black_box(adapter.for_black_box(), rows, black_box)
            return
        refuse_rows(rows.validation, rows.evaluation)
        options = SolverOptions.of(self)
        has_metric = options.metric is not None
        if options.constraints and not has_metric and (booster := adapter.without_gradients()):
            options, has_metric = options.without_multipliers(booster), True
        if has_metric:
            interruptions = Interruptions(constraint_callbacks, time_limit, checkpoint)

            def make_boosters(limit: TimeLimit) -> ConstrainedBoosters:
                adapter.check_parameters()
                fit = ConstrainedFit(
                    options.without_metric(), rows, adapter.settings(), limit=limit
                )
                attach_rows(self, fit, adapter, rows, checkpoint, sensitive_features_eval_set)
                return ConstrainedBoosters(fit, adapter)

            self._fit_metric(
                adapter, rows, options, sensitive_features_eval_set, adapter, interruptions,
                make_boosters,
            )  # fmt: skip
            return
        options.check_ensemble()
        if not options.constraints:
            refuse_without_constraints(checkpoint)
            refuse_time_limit_without_constraints(time_limit)
            adapter.fit_plain()
            remove_report(self)
            return
        if options.iterate == "ergodic":
            raise ValueError(
                "iterate='ergodic' averages the iterates of an exact learner, and boosters have "
                "none: use iterate='last' or 'best', or ConstrainedLogisticRegression."
            )
        adapter.check_parameters()
        limit = TimeLimit(time_limit)  # Its time begins here.
        fit = ConstrainedFit(
            options,
            rows,
            adapter.settings(),
            progress=adapter.progress(),
            constraint_callbacks=constraint_callbacks,
            limit=limit,
        )
        attach_rows(self, fit, adapter, rows, checkpoint, sensitive_features_eval_set)
        measure_fit(fit, adapter)
        self._train_and_report(fit, adapter)

    def _train_and_report(self, fit: ConstrainedFit, adapter: BoosterAdapter) -> FinalModel:
        """Train the returned model by the measured multipliers, and report on it."""
        with unchanged_on_error(self):
            trained = adapter.train()
            remove_report(self)
            model = finalize(fit, trained.model, trained.rounds, trained.margin)
            if (prefixes := model.prefixes) is not None:
                rounds = prefixes["rounds"].map(trained.library_rounds)
                self.prefixes_ = prefixes.assign(rounds=rounds)
            self.shift_ = shift = model.shift_of_mapped
            is_beside = fit.options.probabilities == "calibrated"
            if shift.any() and is_beside:
                self._threshold = shift
            if any(constraint.is_calibration for constraint in fit.options.constraints):
                self.adjustment_ = model.affine.as_series()
            if (offsets := model.offsets) is not None:
                groups = offsets.groups_of(fit.data.rows)
                self.group_shifts_ = tabulate_shifts(model.shift, offsets, groups)
                if model.has_offsets and is_beside:
                    self._group_offsets = offsets.as_attribute()
            feasibility = report(self, fit, model)
            adapter.finish()
        fit.notifier.warn()
        warn(fit, model, feasibility)
        return model
