"""Parts that the drop-in estimators of both libraries share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils import check_random_state

from gbm_constrained._typing import Array, Codes
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.regression import Affine
from gbm_constrained.decision.rules import Margins, MarginShift, Mixture
from gbm_constrained.fit.black_box_classifier import AdjustableAdapter, BlackBoxMixin
from gbm_constrained.fit.black_box_fit import refuse_arguments, refuse_rows
from gbm_constrained.fit.callbacks import (
    Progress,
    TimeLimit,
    refuse_time_limit_without_constraints,
)
from gbm_constrained.fit.checkpoint import refuse_without_constraints
from gbm_constrained.fit.cross_fit import FoldBoosterFactory
from gbm_constrained.fit.finalize import FinalModel, TrainedModel, finalize
from gbm_constrained.fit.fit import (
    ConstrainedFit,
    EvaluationArguments,
    tabulate_shifts,
    take_evaluation_sets,
)
from gbm_constrained.fit.fitted_report import (
    ConstrainedFitAttributes,
    remove_report,
    report,
    warn,
    with_constraints,
)
from gbm_constrained.fit.metric_report import MetricMixin, NativeAdapter
from gbm_constrained.fit.metric_search import ConstrainedBoosters
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.native_models import Merger
from gbm_constrained.fit.options import SOLVER_PARAMETERS, SolverOptions, set_solver_options
from gbm_constrained.fit.regression import RegressionFit, finalize_regression, report_regressor
from gbm_constrained.metrics.reading import read_black_box
from gbm_constrained.reporting.notebook import html_of, mime_bundle

Method = TypeVar("Method", bound=Callable[..., Any])

FIT_ARGUMENTS_DOC = """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint or a metric may be taken over, with ``on=dataset(name)``. The
    objective leaves them out. Their X is prepared as the training X is, for no step of a
    ``Pipeline`` transforms it; their groups are columns of X.
sensitive_features_eval_set : list, default=None
    Sensitive features of each evaluation set. Groups without training rows take part in the
    values of an evaluation set, and a warning names them; ``measure_on="holdout"`` refuses an
    evaluation set with such groups.
groups : array-like of shape (n_samples,), default=None
    Rows of one group are kept together where rows are split to measure constraints. A splitter
    given as `cv` gets them.
validation : tuple (X, y) or (X, y, sensitive_features), default=None
    Rows that an objective which is only a function to call
    (:class:`~gbm_constrained.metrics.BlackBox`) is called with, and that choose the model. Weights
    of the rows may be a fourth element. By default a share `holdout_fraction` of the training rows
    is held out.
evaluation : tuple (X, y) or (X, y, sensitive_features), default=None
    Further rows for ``blackbox_report_``, which choose nothing. By default a third of the
    validation rows is kept for it.
time : str or array-like of shape (n_samples,), default=None
    With ``measure_on="forward"``, the time of each row: numbers, dates, an ordered categorical, or
    texts that sort as time does. It may be the name of a column of X or of `sensitive_features`.
constraint_callbacks : sequence of callable, default=None
    Called in each outer iteration with a
    :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, training
    ends with that iteration. With a metric, called before each call of the oracle; when one
    returns True, the search for decisions ends with the best so far.
checkpoint : str or path-like, default=None
    File that the boosters of the folds are saved to after each pass, and with a metric each of
    them when it is trained. An interrupted fit that is
    called again with the same arguments resumes from there and gives the model of an
    uninterrupted fit. The file is removed when the fit is done.
time_limit : float, default=None
    Seconds after which measuring and training end, at the next outer iteration, and with a metric
    the search for decisions. Part of them is
    kept for training the model for as many rounds as were measured, and for the reports;
    ``stopping_message_`` and a warning say what was given up. A resumed fit has the whole limit
    again.

Raises
------
TypeError, ValueError
    If constraints, labels or weights do not fit together; before training starts."""

PREDICT_ARGUMENTS_DOC = """\
random_state : int, RandomState or None, default=None
    Source of each row's prefix with ``iterate="randomized"``, and of each row's rule in a mixture
    (``mixture_``). Any other classifier draws nothing, and decides the same with every value.
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns that make the groups of a black-box metric, where their offsets are kept beside the
    model. All other classifiers need none.

Raises
------
ValueError
    If offsets of groups are kept beside the model, and the columns are missing."""


def document_fit(method: Method) -> Method:
    """Complete the docstring of a ``fit``, which has ``{fit_arguments}`` in their place."""
    return complete_doc(method, "{fit_arguments}", FIT_ARGUMENTS_DOC)


def document_predict(method: Method) -> Method:
    """Complete the docstring of a ``predict``, which has ``{predict_arguments}``."""
    return complete_doc(method, "{predict_arguments}", PREDICT_ARGUMENTS_DOC)


def complete_doc(method: Method, placeholder: str, arguments: str) -> Method:
    """Put the documentation of arguments in the place of a placeholder in a docstring."""
    doc = inspect.cleandoc(method.__doc__ or "")  # Python 3.13 has removed the indentation already
    method.__doc__ = doc.replace(placeholder, arguments)
    return method


def compute_probabilities(margin: Array) -> Array:
    """Compute probabilities from scores: logistic in one dimension, softmax in two."""
    return np.asarray(expit(margin) if margin.ndim == 1 else softmax(margin, axis=1))


def map_scores(
    metric: Callable[..., Any], function: Callable[[Array], Array]
) -> Callable[..., Any]:
    """Make a metric that is handed scores from one that is handed a function of them."""

    @functools.wraps(metric)
    def on_scores(y_true: Array, scores: Array, *args: Any, **kwargs: Any) -> Any:
        return metric(y_true, function(scores), *args, **kwargs)

    return on_scores


# LightGBM has a parameter of this name as well.
SHARED = ("deterministic",)


def check_params(params: Any, library: str, elsewhere: Mapping[str, str]) -> None:
    """Refuse parameters that the library would ignore.

    `elsewhere` says of names that belong to other calls where they are given.
    """
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params must be a dict of parameters of {library}, got a {type(params).__name__}."
        )
    of_train = {name: f"{name}= of train" for name in SOLVER_PARAMETERS if name not in SHARED}
    for name, place in {**of_train, **elsewhere}.items():
        if params.get(name) is not None:
            raise TypeError(
                f"params holds {name}={params[name]!r}, which is no parameter of {library}: give "
                f"{place} instead."
            )


def check_names(others: Iterable[str], library: str) -> None:
    """Refuse arguments of ``train`` that are neither its own nor about constraints."""
    for name in others:
        if name not in SOLVER_PARAMETERS:
            near = get_close_matches(name, SOLVER_PARAMETERS, 1)
            hint = f" Did you mean {near[0]}=?" if near else ""
            raise TypeError(
                f"train() has no argument {name!r}: parameters of {library} go in params.{hint}"
            )


def read_labels(labels: Array, name: str) -> Array:
    """Read the classes of the rows of a matrix or ``Dataset``, which are numbers."""
    y = np.asarray(labels).astype(np.intp)
    if not (y == labels).all() or y.min(initial=0) < 0:
        raise ValueError(f"the labels of {name} must number the classes: 0, 1 and so on.")
    return y


def check_classes(y: Array, name: str, num_class: Any) -> None:
    """Refuse training labels that leave out a class, or number others than were announced."""
    found = np.unique(y)
    if not np.array_equal(found, np.arange(found.size)):
        raise ValueError(
            f"the labels of {name} must number the classes 0, 1 and so on without a gap, got "
            f"{found}: number them anew, or add rows of the class that has none."
        )
    if found.size > 2 and num_class is not None and int(num_class) != found.size:
        raise ValueError(
            f"num_class={num_class!r}, and the labels of {name} are of {found.size} classes: "
            f"leave it out, or add rows of the other classes."
        )


class ShardMixin:
    """A classifier under constraints whose training rows are on several machines.

    Attributes
    ----------
    machine : Machine
        The machine, with the numbers of its rows; it is set before ``fit``.
    """

    machine: Machine
    maximize: Any
    minimize: Any

    _local_class: ClassVar[type]
    _of_shard: ClassVar[tuple[str, ...]]  # Attributes that the classifier of one machine lacks.

    def _fit_constrained(self, adapter: Any, rows: FitArguments, /, *others: Any) -> None:
        """Refuse what needs rows of one machine, and fit together with the other machines."""
        for name in ("maximize", "minimize"):
            if (metric := getattr(self, name)) is not None:
                raise ValueError(
                    f"{name}={metric!r} is searched by the scores of all rows, which are on "
                    f"several machines: train on one machine, or bound rates by constraints=[...]."
                )
        has_constraints = bool(SolverOptions.of(self).constraints)
        adapter.check_machines(has_constraints=has_constraints)
        if has_constraints and (booster := adapter.without_gradients()) is not None:
            raise ValueError(
                f"{booster} takes no gradients of constraints, which decisions must meet then by "
                f"the scores of all rows, and these are on several machines: take trees grown by "
                f"gradients, or train on one machine."
            )
        rows = replace(rows, machine=self.machine)
        super()._fit_constrained(adapter, rows, *others)  # type: ignore[misc]

    def to_local(self) -> Any:
        """Return the fitted classifier of one machine."""
        local = self._local_class(**self.get_params())  # type: ignore[attr-defined]
        kept = {name: value for name, value in vars(self).items() if name not in self._of_shard}
        vars(local).update(kept)
        return local


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

            def make_boosters(limit: TimeLimit) -> ConstrainedBoosters:
                adapter.check_parameters()
                fit = ConstrainedFit(
                    options.without_metric(), rows, adapter.settings(), limit=limit
                )
                attach_rows(self, fit, adapter, rows, checkpoint, sensitive_features_eval_set)
                return ConstrainedBoosters(fit, adapter)

            self._fit_metric(
                adapter, rows, options, sensitive_features_eval_set=sensitive_features_eval_set,
                merger=adapter, make_boosters=make_boosters,
                constraint_callbacks=constraint_callbacks, time_limit=time_limit,
                checkpoint=checkpoint,
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


REGRESSOR_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        Constraints such as ``[each(mean_loss("squared"), by="race") <= 0.02]``: bounds on means
        over targets and predictions (:mod:`gbm_constrained.constraints.rates`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The outer loop, as for classifiers: a name, or an object with its own options such as
        ``ABPP(rounds_per_iteration=1)`` of :mod:`gbm_constrained.solvers`.
    measure_on : {"auto", "train", "holdout", "crossfit", "forward"}, default="auto"
        The rows whose means move the multipliers, and by which scale and shift are chosen:
        "crossfit" grows `n_folds` boosters in step, "holdout" one, and the model is then trained
        on all rows with the multipliers found. "auto" takes "holdout" if every mean is taken over
        50,000 rows, and "crossfit" if not; "train" in continued training. "forward" needs `time`
        in ``fit``.
    n_folds : int, default=4
        Folds of "crossfit".
    cv : splitter or sequence of (train, test), default=None
        Folds that take the place of those of "crossfit".
    holdout_fraction : float, default=None
        Share of the rows of "holdout". By default the last evaluation set given to ``fit``; a
        quarter of the rows without one.
    guarantee : {None, "high_probability"}, default=None
        Guarantee for new rows, by rows that are set aside for it: all constraints hold in the
        population with probability ``1 - delta``. Values of a row need a range, as in
        ``mean_loss("squared", range=(0, 25))``.
    delta : float, default=0.05
        Probability that the constraints are violated in spite of the guarantee.
    calibration_fraction : float, default=0.2
        Share of the rows that are set aside for a guarantee.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        Criterion of early stopping: the parent's metric; the mean loss plus the price of the
        violation on the last evaluation set; or the metric among the rounds that meet the
        constraints there.
    group_shifts : bool, default=False
        Whether predictions use the group, by a shift of the scores of each group of the columns
        that constraints group by. These must be columns of X. The shifts are one more tree of the
        model (``group_shifts_``), and chosen on held-out rows. A warning says once that decisions
        by group are unlawful in places; see :mod:`gbm_constrained.decision.regression`."""
REGRESSOR_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows (``train``), its value on
        held-out rows (``held_out``) with a 95% interval (``low``, ``high``), the rows that the
        verdict is by (``rows``), its multiplier, and the ``verdict``.
    cost_report_ : DataFrame
        What the constraints cost: the mean loss on held-out rows and the value of each constraint
        there, of the plain model (row ``plain``, NaN where none was grown) and of the one returned
        (row ``returned``).
    group_report_ : DataFrame
        One row per mean of each group that a constraint looks at.
    small_groups_ : DataFrame
        One row per group of few rows.
    period_report_ : DataFrame
        With ``measure_on="forward"``: one row per constraint and held-out period, as of
        classifiers.
    unseen_r2_ : Estimate
        R^2 on the held-out rows, with its interval.
    adjustment_ : Series
        Scale and shift of the scores, which held-out rows chose and the model holds: one and zero
        where the model itself meets the constraints.
    group_shifts_ : DataFrame
        With `group_shifts`: one row per group, with its values of the columns, the ``shift`` of
        its scores, and its training ``rows``. Groups that have too few rows or a missing value
        have the common shift, as have values that training lacks.
    history_ : DataFrame
        One row per outer iteration, and a last one for the returned model.
    multipliers_ : Series
        Multipliers of the returned model, by linear row of the constraints.
    feasibility_ : Feasibility
        The verdicts as an object.
    stopping_message_ : str or None
        Why the fit ended early; None for a whole fit.
"""
REGRESSOR_FIT_DOC = """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint may be taken over, with ``on=dataset(name)``. The objective
    leaves them out.
sensitive_features_eval_set : list, default=None
    Sensitive features of each evaluation set.
groups : array-like of shape (n_samples,), default=None
    Rows of one group are kept together where rows are split to measure constraints.
time : str or array-like of shape (n_samples,), default=None
    With ``measure_on="forward"``, the time of each row.
constraint_callbacks : sequence of callable, default=None
    Called in each outer iteration with a
    :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, training
    ends with that iteration.
checkpoint : str or path-like, default=None
    File that the boosters of the folds are saved to after each pass.
time_limit : float, default=None
    Seconds after which measuring and training end, at the next outer iteration.

Raises
------
TypeError, ValueError
    If constraints, targets or weights do not fit together, or the objective has no gradients that
    constraints could be added to; before training starts."""


class RegressionAdapter(BoosterAdapter, Protocol):
    """Interface by which a regressor's fit drives a library."""

    def rescale(self, affine: Affine) -> None:
        """Map the scores of the trained booster, in the booster itself."""


class ConstrainedRegressorMixin(ConstrainedFitAttributes):
    """A regressor of a library that is trained under constraints."""

    constraints: Any

    def __sklearn_tags__(self) -> Any:
        return with_constraints(super().__sklearn_tags__(), self.constraints)  # type: ignore[misc]

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``solver__tau``."""
        return super().set_params(**set_solver_options(self, params))  # type: ignore[misc]

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _fit_constrained(
        self,
        make_adapter: Callable[[], RegressionAdapter],
        rows: FitArguments,
        sensitive_features_eval_set: Any,
        constraint_callbacks: Any,
        checkpoint: Any,
        time_limit: float | None,
        /,
    ) -> None:
        """Fit under constraints, or leave the fit to the parent if there are none."""
        adapter = make_adapter()
        if not check_constraints(self.constraints):
            refuse_without_constraints(checkpoint)
            refuse_time_limit_without_constraints(time_limit)
            adapter.fit_plain()
            remove_report(self)
            return
        options = SolverOptions.of(self)
        if options.solver == "threshold":
            raise ValueError(
                "solver='threshold' moves a threshold between classes, and a regressor predicts "
                "numbers: use 'auto', 'abpp' or 'cbpr'."
            )
        adapter.check_parameters()
        fit = RegressionFit(
            options,
            rows,
            adapter.settings(),
            progress=adapter.progress(),
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        attach_rows(self, fit, adapter, rows, checkpoint, sensitive_features_eval_set)
        measure_fit(fit, adapter)
        with unchanged_on_error(self):
            trained = adapter.train()
            remove_report(self)
            model = finalize_regression(fit, trained.model, trained.rounds, trained.margin)
            if not model.affine.is_identity:
                adapter.rescale(model.affine)
            if model.offsets is not None and model.offsets.values.any():
                trained.model.add_to_groups(model.offsets)
            feasibility = report_regressor(self, fit, model)
            adapter.finish()
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        fit.notifier.warn()
        feasibility.warn(raises=False)
