"""Parts that the drop-in estimators of both libraries share."""

from __future__ import annotations

import copy
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from types import ModuleType
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.utils import check_random_state

from gbm_constrained._dataframes import names_of, take_rows
from gbm_constrained._docstrings import document_parameters
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.exact_sums import Communicator, Machine
from gbm_constrained.data.fit_data import CombinedRows, FitArguments, check_targets
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import check_scores
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.regression import Affine
from gbm_constrained.decision.rules import Margins, MarginShift, Mixture
from gbm_constrained.fit.black_box_fit import (
    AdjustableModel,
    BlackBoxMixin,
    refuse_arguments,
)
from gbm_constrained.fit.callbacks import (
    Progress,
    TimeLimit,
    refuse_without_constraints,
)
from gbm_constrained.fit.checkpoint import State, open_checkpoint
from gbm_constrained.fit.cross_fit import FoldBooster, FoldBoosterFactory
from gbm_constrained.fit.finalize import (
    FinalModel,
    TrainedModel,
    finalize,
    finalize_regression,
    report,
    report_regressor,
    warn,
)
from gbm_constrained.fit.fit import (
    ConstrainedFit,
    EvaluationArguments,
    RegressionFit,
    check_pairs,
    tabulate_shifts,
    take_evaluation_sets,
)
from gbm_constrained.fit.fitted_report import (
    ConstrainedFitAttributes,
    remove_report,
    with_constraints,
)
from gbm_constrained.fit.metric_fit import MetricMixin
from gbm_constrained.fit.model_note import PackedState, unchanged_on_error
from gbm_constrained.fit.native_models import (
    EvaluationRows,
    IsOver,
    NativeAdapter,
    PartRows,
    clone_plain,
    multiply_weight,
)
from gbm_constrained.fit.options import (
    SOLVER_PARAMETERS,
    SolverOptions,
    StoppingByConstraints,
    check_number,
    refuse_moved_parameters,
    set_solver_options,
)
from gbm_constrained.fit.problem import LibrarySettings, TreeLimits
from gbm_constrained.metrics.reading import read_black_box
from gbm_constrained.problem.losses import ObjectiveName, RegressionObjective, check_parameter
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.scorers.trained_models import LeafValues, TreeWeights
from gbm_constrained.solvers.base import Solver

Fit = TypeVar("Fit", bound=ConstrainedFit)
Documented = TypeVar("Documented", bound=Callable[..., Any])


@dataclass(frozen=True)
class FurtherArguments:
    """Arguments that ``fit`` of a constrained estimator has beside those of its parent.

    Parameters
    ----------
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        Columns, one value per training row, that constraints may group by. Columns of X are found
        there when X is a DataFrame. Prediction never needs them.
    datasets : dict from name to X or (X, y), default=None
        Further rows that a constraint or a metric may be taken over, with ``on=dataset(name)``.
        The objective leaves them out. Their X is prepared as the training X is, for no step of a
        ``Pipeline`` transforms it; their groups are columns of X.
    sensitive_features_eval_set : list, default=None
        Sensitive features of each evaluation set. Groups without training rows take part in the
        values of an evaluation set, and a warning names them; ``measure_on="holdout"`` refuses an
        evaluation set with such groups.
    groups : array-like of shape (n_samples,), default=None
        Rows of one group are kept together where rows are split to measure constraints. A splitter
        given as `measure_on` gets them.
    validation : tuple (X, y) or (X, y, sensitive_features), default=None
        Rows that an objective which is only a function to call
        (:class:`~gbm_constrained.metrics.BlackBox`) is called with, and that choose the model.
        Weights of the rows may be a fourth element. By default a quarter of the training rows
        is held out, or the share of ``measure_on=Holdout(...)``.
    evaluation : tuple (X, y) or (X, y, sensitive_features), default=None
        Further rows for ``blackbox_report_``, which choose nothing. By default a third of the
        validation rows is kept for it.
    time : str or array-like of shape (n_samples,), default=None
        With ``measure_on="forward"``, the time of each row: numbers, dates, an ordered
        categorical, or texts that sort as time does. It may be the name of a column of X or of
        `sensitive_features`.
    constraint_callbacks : sequence of callable, default=None
        Called in each outer iteration with a
        :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, training
        ends with that iteration. With a metric, called before each call of the oracle; when one
        returns True, the search for decisions ends with the best so far.
    checkpoint : str or path-like, default=None
        File that the boosters of the folds are saved to after each pass, and with a metric each of
        them when it is trained. An interrupted fit that is called again with the same arguments
        resumes from there and gives the model of an uninterrupted fit. The file is removed when
        the fit is done.
    time_limit : float, default=None
        Seconds after which measuring and training end, at the next outer iteration, and with a
        metric the search for decisions. Part of them is kept for training the model for as many
        rounds as were measured, and for the reports; ``stopping_message_`` and a warning say what
        was given up. A resumed fit has the whole limit again.
    max_cost : float, default=None
        Plain fits that the boosters of the fit may take together, counted by the rows of their
        trees at 1.2 each, for gradients and measuring. Sets of boosters that would take more are
        left out, the same ones on any machine; ``stopping_message_`` and a warning name them. The
        model and one set of boosters of two folds take 2.4. None bounds nothing.
    """

    sensitive_features: Any = None
    datasets: Any = None
    sensitive_features_eval_set: Any = None
    groups: Any = None
    validation: Any = None
    evaluation: Any = None
    time: Any = None
    constraint_callbacks: Any = None
    checkpoint: Any = None
    time_limit: float | None = None
    max_cost: float | None = None


def sections_of(documented: Any) -> dict[str, str]:
    """Split the docstring of a class or function into its sections, by title."""
    _, *sections = re.split(r"\n\n(?=\w+\n-+\n)", inspect.cleandoc(documented.__doc__ or ""))
    return {section.partition("\n")[0]: section.split("\n", 2)[2] for section in sections}


def document_from(source: Any) -> Callable[[Documented], Documented]:
    """Make a decorator that adds the descriptions of parameters that `source` documents."""
    parameters = re.split(r"\n(?=\S)", sections_of(source)["Parameters"])
    shared = {entry.partition(" : ")[0]: entry for entry in parameters}
    return functools.partial(document_parameters, shared=shared)


def document_estimator(estimator: Documented) -> Documented:
    """Put the parameters and attributes of its task into the docstring of an estimator."""
    texts = sections_of(SolverOptions) | sections_of(ConstrainedFitAttributes)
    if issubclass(estimator, ConstrainedRegressorMixin):  # type: ignore[arg-type]
        texts = sections_of(ConstrainedRegressorMixin)
    doc = inspect.cleandoc(estimator.__doc__ or "")
    for title, text in texts.items():
        doc = doc.replace(f"{{{title.lower()}}}", text)
    estimator.__doc__ = doc
    return estimator


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


def check_params(params: Any, library: str, elsewhere: Mapping[str, str]) -> None:
    """Refuse parameters that the library would ignore.

    `elsewhere` says of names that belong to other calls where they are given.
    """
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params must be a dict of parameters of {library}, got a {type(params).__name__}."
        )
    of_train = {name: f"{name}= of train" for name in SOLVER_PARAMETERS}
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
    _check_machines: Callable[..., None]  # Refuses what the library trains on one machine only.
    _fit_parent: Callable[..., Any]  # Calls the parent's own ``fit`` for the rows of all machines.

    def _bind_rows(self, adapter: Any, rows: FitArguments) -> FitArguments:
        """Refuse what needs rows of one machine, and fit together with the other machines."""
        for name in ("maximize", "minimize"):
            if (metric := getattr(self, name)) is not None:
                raise ValueError(
                    f"{name}={metric!r} is searched by the scores of all rows, which are on "
                    f"several machines: train on one machine, or bound rates by constraints=[...]."
                )
        adapter.communicator = self.machine.communicator
        adapter.native = functools.partial(self._fit_parent, adapter.native)
        has_constraints = bool(SolverOptions.of(self).constraints)
        self._check_machines(adapter, has_constraints=has_constraints)
        if has_constraints and (booster := adapter.without_gradients()) is not None:
            raise ValueError(
                f"{booster} takes no gradients of constraints, which decisions must meet then by "
                f"the scores of all rows, and these are on several machines: take trees grown by "
                f"gradients, or train on one machine."
            )
        return replace(rows, machine=self.machine)

    def to_local(self) -> Any:
        """Return the fitted classifier of one machine."""
        local = self._local_class(**self.get_params())  # type: ignore[attr-defined]
        kept = {name: value for name, value in vars(self).items() if name not in self._of_shard}
        vars(local).update(kept)
        return local


# Trees of few rows take most of their time for the bins of histograms. Fold boosters, whose scores
# say where multipliers and thresholds come to rest, split by bins that hold at least so many rows
# on average, and by so many bins at least.
ROWS_OF_A_BIN, FEWEST_BINS = 320, 63
BINS_OF_LIBRARIES = 255  # LightGBM's default; XGBoost's is one more.


class LibraryFoldBooster(FoldBooster):
    """A booster of a library on some of the rows, and its scores by the name of rows.

    Parameters
    ----------
    fold : Fold
        Rows that the booster is grown on ("training"), and those that it is measured on ("held").
    solver : Solver or None
        Solver that gives the gradients; None stands for the library's own objective.
    """

    _margin: Callable[[str, int | None], Array]

    def __init__(self, fold: Fold, solver: Solver | None) -> None:
        self.solver, self.rows = solver, {"training": fold.training, "held": fold.held}
        self._final: dict[str, Array] = {}  # Scores of rows after all rounds, once known.

    def held_margin(self, rounds: int | None = None) -> Array:
        """Scores of the held-out rows after the given number of rounds, by default all."""
        return self._margin("held", rounds)

    def own_margin(self, rounds: int) -> Array:
        """Scores of the rows that the booster is grown on, after the given number of rounds."""
        return self._margin("training", rounds)


class ConstraintStopping:
    """Early stopping on the constraints; see :mod:`gbm_constrained.fit.options`.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose last evaluation set has been measured before each call.
    by_metric : callable
        The library's own early stopping, which has the patience and compares the metric.

    Attributes
    ----------
    is_alone : bool
        Whether constraints alone, and not the metric as well, decide which round is best.
    """

    def __init__(self, fit: ConstrainedFit, by_metric: Any) -> None:
        self.fit, self.by_metric, self.by_constraints = fit, by_metric, StoppingByConstraints()
        self.is_alone = fit.options.early_stopping_on == "constraints"

    @property
    def compares_constraints(self) -> bool:
        """Whether rounds are compared by the constraints so far, and not by the metric."""
        return self.is_alone or not self.by_constraints.has_met


@dataclass(frozen=True, eq=False)
class TrainedPart:
    """A classifier that the library has trained by its own means on some of the rows.

    Attributes
    ----------
    model : estimator
        The classifier, which reads and writes its booster.
    start : array-like or None
        Scores of all training rows that ``predict`` starts from, where there are any.
    """

    model: Any
    start: Any = None

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X, whose positions among the training rows are `rows`."""
        start = None if self.start is None else take_rows(self.start, rows)
        with warnings.catch_warnings():  # Training has said what there is to say.
            warnings.simplefilter("ignore")
            return np.asarray(self.model._raw_margin(X, start))

    def to_bytes(self) -> bytes:
        """Write the booster as its library does."""
        written: bytes = self.model._write_booster()
        return written

    def state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        found: State = self.model._booster_state()
        return found


class BoosterAdapter(NativeAdapter, TrainedModel):
    """Drives a library through one ``fit``, and changes the booster that it has trained.

    A constrained fit calls :meth:`check_parameters`, :meth:`settings`, :meth:`progress`,
    :meth:`bind`, :meth:`prepare`, :meth:`make_factory` and :meth:`train` in this order, once each.
    The adapter then stands for the trained booster.

    Parameters
    ----------
    model : estimator
        The estimator that is fitted.
    native : callable
        The parent's own ``fit``.
    rows : FitArguments
        The training rows.
    arguments : mapping
        All arguments of the parent's ``fit`` beside X and y, by name.
    is_observed : bool
        Whether callbacks or a time limit may end training, which early stopping then must see.

    Attributes
    ----------
    is_divisible : bool
        Whether boosters can be grown on part of the rows.
    has_offset : bool
        Whether training starts from scores of the user that ``predict`` does not add.
    pairs : sequence of (X_i, y_i)
        The evaluation sets.
    start : ndarray or None
        Scores of the user that training starts from.
    own_objective : dict
        The library's own objective, with its parameters.
    starts : list
        Scores of the user that each evaluation set starts from.
    callbacks : sequence
        Callbacks of the library's own training.
    held : dict from EvaluationSet to table or matrix
        Held-out rows that the trained booster is asked to score.
    rounds : int
        Boosting rounds of the trained booster; fewer than were grown after early stopping.
    train_margin : ndarray or None
        Scores of the training rows after these rounds, if they are known.
    """

    continuation: ClassVar[str]  # Argument of ``fit`` with a model that training goes on with.
    starting: ClassVar[str]  # Argument with the scores that training starts from.
    # Arguments with weights and such scores of evaluation sets.
    of_sets: ClassVar[tuple[str, str]]
    of_bins: ClassVar[tuple[str, ...]]  # Parameters that say how features are binned.
    records: ClassVar[str]  # Attribute with the values of metrics on evaluation sets.
    order_of_scores: ClassVar[Literal["C", "F"]]  # Order of scores of several classes.
    compares_names: ClassVar[bool]  # Whether the library compares the names of columns.
    predict_takes_start: ClassVar[bool]  # Whether ``predict`` can be given such scores.
    patience: ClassVar[str]  # Parameter with the number of rounds of early stopping.
    editing: ClassVar[ModuleType]  # Functions that read and change trained boosters.
    reading: ClassVar[ModuleType]  # Functions that read and check parameters.

    # What a library does, in the order of a fit.
    check_parameters: Callable[[], None]  # Refuses what has no meaning under constraints.
    settings_of_task: Callable[[], dict[str, Any]]  # Gives settings about classes or numbers.
    progress: Callable[[], Progress | None]  # Makes a display, if the verbosity asks for one.
    check_labels: Callable[[], None]  # Refuses labels that the parent does not take.
    # Lists the entry of each evaluation set in an argument; None where there is none.
    list_for_each: Callable[[str], Sequence[Any]]
    # Checks evaluation sets and metrics, given weights, and says whether metrics are evaluated.
    check_sets: Callable[[Sequence[Any]], bool]
    # Takes over the evaluation sets that are not the training rows, by their positions.
    prepare: Callable[[list[int]], None]
    make_factory: Callable[[], FoldBoosterFactory]  # Makes the factory of the fold boosters.
    train: Callable[[], None]  # Runs the parent's ``fit`` with the solver as its objective.
    # Counts the rounds of the booster, as the library does, after some rounds of the fit.
    grown_after: Callable[[int], int]
    # Sets up a clone that is trained on some rows, and lists arguments of its ``fit``.
    prepare_part: Callable[[Any, PartRows], dict[str, Any]]
    # Reads rows with their starting scores for the next function, which scores them by the first
    # rounds of the trained booster.
    read_rows: Callable[[Any, Any], Any]
    score_rows: Callable[[Any, int], Array]
    # Lets the training of a model, with arguments of ``fit``, end where a function says so.
    limited_rounds: Callable[[Any, dict[str, Any], IsOver | None], AbstractContextManager[None]]

    # Makes the context in which fold boosters are made and grown.
    measuring: Callable[[], AbstractContextManager[Any]] = staticmethod(nullcontext)
    takes_offsets = True
    objective: RegressionObjective  # of a regressor

    def __init__(
        self,
        model: Any,
        native: Callable[..., Any],
        rows: FitArguments,
        arguments: Mapping[str, Any],
        *,
        is_observed: bool,
    ) -> None:
        self.model, self.native, self.X, self.y = model, native, rows.X, rows.y
        self.arguments, self.is_observed = dict(arguments), is_observed
        self.own_objective: dict[str, Any] = {}
        self.communicator: Communicator = Communicator()
        self.is_divisible = arguments[self.continuation] is None
        self.has_offset = False
        self.fit: ConstrainedFit
        self.pairs: Sequence[tuple[Any, Any]] = ()
        self.start: Any = None
        self.starts: list[Any] = []
        self.callbacks = arguments.get("callbacks", getattr(model, "callbacks", None)) or ()
        self.held: dict[EvaluationSet, Any] = {}
        self.rounds: int
        self.train_margin: Array | None = None

    def parameter(self, name: str, default: Any = None) -> Any:
        """Find a parameter of the library by any of its names."""
        return self.reading.find_parameter(self.model, name, default)

    def has_patience(self) -> bool:
        """Whether a parameter or a callback stops early."""
        return bool(self.reading.has_early_stopping(self.model, self.callbacks))

    def fold_bins(self) -> int | None:
        """Count the bins of a feature that trees of fold boosters split by.

        None stands for those of the model: where the user set them, and where there would be no
        fewer.
        """
        bins = max(FEWEST_BINS, self.fit.problem.cells.n_rows // ROWS_OF_A_BIN)
        is_given = any(self.parameter(name) is not None for name in self.of_bins)
        return None if is_given or bins >= BINS_OF_LIBRARIES else bins

    def without_gradients(self) -> str | None:
        """Name the parameter by which the booster takes no gradients of others, if any."""
        found: str | None = self.reading.find_without_gradients(self.model)
        return found

    def read_objective(
        self,
        given: Any,
        name: Any,
        objectives: Mapping[str, ObjectiveName],
        parameter: Mapping[str, Any],
        max_delta_step: float,
    ) -> None:
        """Read the objective of a regressor, and check its targets and its booster.

        Parameters
        ----------
        given, name : str or callable
            The objective as it was given, and by the name that the library prefers.
        objectives : mapping
            Objectives that constraints can be added to, by these names.
        parameter : mapping
            Name and value of the objective's parameter; empty if it has none.
        max_delta_step : float
            Parameter of the Poisson objective.

        Raises
        ------
        ValueError
            If constraints cannot be added to the objective, or the parameter is out of its range.
        """
        if not isinstance(name, str) or name not in objectives:
            raise ValueError(
                f"objective={given!r} cannot be trained under constraints: use one of "
                f"{[*objectives]}."
            )
        kind, value, self.own_objective = objectives[name], np.nan, {"objective": name}
        for key, asked in parameter.items():
            value = self.own_objective[key] = check_number(key, asked)
            check_parameter(kind, key, value)
        self.objective = RegressionObjective(kind, value, float(max_delta_step))
        check_targets(self.y)
        if (booster := self.reading.find_own_booster(self.model)) is not None:
            raise ValueError(
                f"{booster} takes no gradients but its own, and cannot be trained under "
                f"constraints: leave it out."
            )

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""
        return LibrarySettings(
            check_number("learning_rate", self.parameter("learning_rate", 0.1)),
            self.parameter("num_iterations"),
            random_state=self.model.random_state,
            tree_limits=self.tree_limits,
            **self.settings_of_task(),
        )

    def tree_limits(self, names: Sequence[Hashable]) -> TreeLimits:
        """Read the limits that parameters set to the splits of trees, by the names of columns."""
        asked = ("monotone_constraints", "interaction_constraints")
        monotone, together = map(self.parameter, asked)
        return TreeLimits.read(names, monotone, together, self.parameter("missing", np.nan))

    def list_pairs(self) -> Any:
        """List the evaluation sets as pairs (X_i, y_i)."""
        return self.arguments["eval_set"]

    def moves_multipliers(self, held: EvaluationSet) -> bool:
        """Whether the rates of an evaluation set move the multipliers while a model is trained."""
        return self.fit.measured.boosters is None and held is self.fit.measured.rows

    def measure_round(self, held: EvaluationSet, rounds: int, margin: Array) -> None:
        """Measure an evaluation set by its scores after some rounds."""
        self.fit.measure_round(held, rounds, margin)
        if self.fit.is_iteration_end(rounds) and self.moves_multipliers(held):
            self.fit.measured.observe(margin)

    def read_sets(self) -> list[Sequence[Any]]:
        """Check the evaluation sets, and list their weights and their starting scores."""
        self.pairs = check_pairs(self.list_pairs(), self.X, by_name=self.compares_names)
        if self.arguments["eval_set"] is not None:
            self.arguments["eval_set"] = self.pairs  # An iterator is exhausted by now.
        return [self.list_for_each(name) for name in self.of_sets]

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check the arguments that depend on the rows, and list the evaluation sets."""
        self.fit, data, name = fit, fit.data, self.starting
        given = {name: self.arguments[name]}
        if data.targets is None:
            self.check_labels()
        data.combined.refuse_with(**given)
        data.alignment.check({"X": self.X, "y": self.y, **given})

        def check(scores: Any, n_rows: int, name: str) -> Any:
            return check_scores(scores, n_rows, data.columns, name, self.order_of_scores)

        self.start = check(given[name], data.whole.sizes[0], name)
        weights, starts = self.read_sets()
        self.starts = [
            check(start, len(y_i), f"{self.of_sets[1]}[{i}]")
            for i, ((_, y_i), start) in enumerate(zip(self.pairs, starts, strict=True))
        ]
        return EvaluationArguments(
            self.pairs,
            weights,
            self.starts,
            has_patience=self.has_patience(),
            parameter=self.patience,
            is_evaluated=self.check_sets(weights),
        )

    def find_without_stages(self) -> str | None:
        """Find what keeps a model from being grown in stages, each of which goes on with the last.

        These are boosters that take no gradients, and what counts rounds from the beginning of
        each stage. LightGBM also puts the scores of a model that it goes on with in the place of
        others.
        """
        asked = {
            "early stopping": self.has_patience(),
            "callbacks": bool(self.callbacks),
            self.starting: not self.predict_takes_start
            and self.arguments[self.starting] is not None,
        }
        return self.without_gradients() or next(
            (name for name, is_in in asked.items() if is_in), None
        )

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        """Score held-out rows by the first rounds of the trained booster."""
        if rows not in self.held:  # Certification rows are no evaluation set of the user.
            certification = self.fit.data.certification
            assert certification is not None
            X = take_rows(self.fit.data.whole.X, certification)
            start = None if self.start is None else take_rows(self.start, certification)
            self.held[rows] = self.read_rows(X, start)
        return self.score_rows(self.held[rows], rounds)

    def make_fit(
        self, kind: type[Fit], options: SolverOptions, rows: FitArguments, own: FurtherArguments,
        **watched: Any,
    ) -> Fit:  # fmt: skip
        """Make a fit, and attach the evaluation sets and the checkpoint.

        `watched` are the time limit of the fit, its display, and callbacks that are notified.
        """
        fit, sensitive = (
            kind(options, rows, self.settings(), **watched),
            own.sensitive_features_eval_set,
        )
        held_out = take_evaluation_sets(fit, self.bind(fit), sensitive)
        fit.data.alignment.warn()
        arguments = {**self.given(), **rows.by_name(), "sensitive_features_eval_set": sensitive}
        compiled, cells = fit.problem.compiled, fit.problem.cells
        fit.checkpoint = open_checkpoint(
            own.checkpoint, self.model, arguments, fit.data, compiled, cells
        )
        self.prepare(held_out)
        return fit

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""
        return self.arguments

    def starting_scores(self) -> Any:
        """Scores that the training rows start from, if ``predict`` can be given such scores."""
        return self.arguments[self.starting] if self.predict_takes_start else None

    def evaluation_rows(self) -> list[EvaluationRows]:
        """Check and list the evaluation sets, with starting scores that ``predict`` adds."""
        weights, starts = self.read_sets()
        starts = starts if self.predict_takes_start else [None] * len(starts)
        return [
            (f"eval_set[{i}]", *pair, weight, start)
            for i, (pair, weight, start) in enumerate(
                zip(self.pairs, weights, starts, strict=True)
            )
        ]

    def check_rows(self, combined: CombinedRows) -> None:
        """Refuse starting scores, which rows of further data sets lack."""
        combined.refuse_with(**{self.starting: self.arguments[self.starting]})

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""
        weight = multiply_weight(self.arguments["sample_weight"], factor)
        given = {**self.arguments, "sample_weight": weight}
        with self.limited_rounds(self.model, given, is_over):
            self.native(self.X, self.y, **given)

    def fit_part(self, part: PartRows) -> TrainedPart:
        """Train a clone of the classifier on some of the rows."""
        name = self.continuation
        if self.arguments[name] is not None:
            raise ValueError(
                f"{name} continues a model that has seen all rows, and a metric is optimised on "
                f"rows that boosters have not seen: leave {name} out."
            )
        plain = clone_plain(self.model)
        given = self.prepare_part(plain, part)
        given["sample_weight"] = part.take_weight(self.arguments["sample_weight"])
        if given.get(self.starting) is not None:
            given[self.starting] = take_rows(given[self.starting], part.rows)
        before = given[name] = None if part.start is None else part.start.model
        with self.limited_rounds(plain, given, part.is_over):
            plain.fit(part.take_features(), part.take_labels(self.y), **given)
        if before is not None and self.records in vars(before):
            first, then = vars(before)[self.records], vars(plain)[self.records]
            joined = {
                data: {name: [*first[data][name], *values] for name, values in metrics.items()}
                for data, metrics in then.items()
            }
            setattr(plain, self.records, joined)
        return TrainedPart(plain, None if part.is_joint else self.starting_scores())

    def merge(self, models: Sequence[Any]) -> TrainedPart:
        """Merge models of :meth:`fit_part` into one whose raw score is the mean of theirs."""
        merged = copy.copy(models[0].model)
        merged._merge_boosters([one.model for one in models])
        return TrainedPart(merged, models[0].start)

    def add_to_groups(self, offsets: GroupOffsets) -> None:
        """Append a tree that adds offsets to the scores of groups."""
        data = self.fit.data
        groups = offsets.groups_of(data.rows)
        self.adjustable("trees").append_offsets(data.combined.X, offsets, groups)

    def adjustable(self, space: str) -> AdjustableModel:
        """Give access to the parameters of the trained booster."""
        return {"trees": TreeWeights, "leaves": LeafValues}[space](self.editing, self.model)

    def add_to_margin(self, shift: Array) -> None:
        """Add to the scores of each class, in all prefixes."""
        self.model._Booster = self.editing.shift_intercept(self.model._Booster, shift)

    def rescale(self, affine: Affine) -> None:
        """Map the scores of the trained booster."""
        self.model._Booster = self.editing.rescale(self.model._Booster, affine)

    def check_adjustable(self, space: str) -> None:
        """Refuse constraints on the shape of trees, which their other values would not keep."""
        names = names_of(self.X) or [f"f{j}" for j in range(np.shape(self.X)[1])]
        if bound := self.tree_limits(names).monotone:
            raise ValueError(
                f"space={space!r} gives trees other values, which need not be monotone in "
                f"{min(map(str, bound))!r}, as monotone_constraints asks: leave these out, "
                f"or bound rates by constraints=[...] without a black-box metric."
            )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        self.X, self.y = take_rows(self.X, rows), take_rows(self.y, rows)
        if (weight := self.arguments["sample_weight"]) is not None:
            self.arguments["sample_weight"] = take_rows(weight, rows)

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        given = {name: value for name, value in self.arguments.items() if value is not None}
        own = {"sensitive_features": rows.sensitive_features, "groups": rows.groups}
        model.fit(self.X, self.y, **given, **own)


class ConstrainedMixin(PackedState, ConstrainedFitAttributes):
    """A classifier or regressor of a library that is trained under constraints."""

    constraints: Any

    _adapter_class: ClassVar[type[BoosterAdapter]]
    # Checks the arguments of the parent's ``fit``, and the spelling of parameters.
    _check_fit: Callable[[dict[str, Any]], None]
    _fit_class: ClassVar[type[ConstrainedFit]]
    # Fits another objective than the library's own, if there is one, or gives the options.
    _fit_other_objective: Callable[
        [BoosterAdapter, FitArguments, FurtherArguments], SolverOptions | None
    ]
    # Trains the returned model by the measured multipliers, and reports on it.
    _train_and_report: Callable[[Any, BoosterAdapter], Any]
    _repr_html_inner = html_of

    def _construct(self, given: dict[str, Any]) -> None:
        """Set the parameters of a constructor, given its local variables, as its parent does."""
        given = {name: value for name, value in given.items() if name not in ("self", "__class__")}
        kwargs = given.pop("kwargs")
        refuse_moved_parameters(self, kwargs)
        own = {name: given.pop(name) for name in SOLVER_PARAMETERS if name in given}
        super().__init__(**given, **kwargs)
        for name, value in own.items():
            setattr(self, name, value)

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``solver__tau``."""
        return super().set_params(**set_solver_options(self, params))  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        return with_constraints(tags, self.constraints, getattr(self, "positive", None))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _bind_rows(self, adapter: BoosterAdapter, rows: FitArguments) -> FitArguments:
        """Change the rows of a fit before anything looks at them, and what drives the library."""
        return rows

    def _fit_by_name(self, native: Callable[..., Any], given: dict[str, Any]) -> Self:
        """Fit, given the parent's own ``fit`` and the local variables of the public one.

        Without constraints the fit is left to the parent.
        """
        given = {name: value for name, value in given.items() if name not in ("self", "__class__")}
        names = [field.name for field in fields(FurtherArguments)]
        own = FurtherArguments(**{name: given.pop(name) for name in names if name in given})
        self._check_fit(given)
        of_rows = ("sensitive_features", "datasets", "groups", "validation", "evaluation", "time")
        further = [getattr(own, name) for name in of_rows]
        rows = FitArguments(given.pop("X"), given.pop("y"), given["sample_weight"], *further)
        is_observed = bool(own.constraint_callbacks) or own.time_limit is not None
        adapter = self._adapter_class(self, native, rows, given, is_observed=is_observed)
        rows = self._bind_rows(adapter, rows)
        options = self._fit_other_objective(adapter, rows, own)
        if options is None:
            return self
        if not options.constraints:
            limits = {"time_limit": own.time_limit, "max_cost": own.max_cost}
            refuse_without_constraints(checkpoint=own.checkpoint, **limits)
            adapter.fit_plain()
            remove_report(self)
            return self
        adapter.check_parameters()
        fit = adapter.make_fit(
            self._fit_class,
            options,
            rows,
            own,
            progress=adapter.progress(),
            constraint_callbacks=own.constraint_callbacks,
            limit=TimeLimit(own.time_limit, own.max_cost),
        )
        with adapter.measuring():
            fit.measure(
                adapter.make_factory,
                is_divisible=adapter.is_divisible,
                has_offset=adapter.has_offset,
            )
        self._train_and_report(fit, adapter)
        return self


class ConstrainedBoosterMixin(BlackBoxMixin, MetricMixin, ConstrainedMixin):
    """A classifier of a library that is trained under constraints."""

    classes_: Any
    _fit_class = ConstrainedFit

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

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            Source of each row's prefix with ``iterate="randomized"``, and of each row's rule in a
            mixture (``mixture_``). Any other classifier draws nothing, and decides the same with
            every value.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns that make the groups of a black-box metric, where their offsets are kept beside
            the model. All other classifiers need none.
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

    def _fit_other_objective(
        self, adapter: BoosterAdapter, rows: FitArguments, own: FurtherArguments
    ) -> SolverOptions | None:
        """Fit for a black box or a metric, if there is one, or give the options."""
        if (black_box := read_black_box(self.maximize, self.minimize)) is not None:
            names = ("datasets", "sensitive_features_eval_set", "constraint_callbacks",
                     "checkpoint", "time_limit", "max_cost")  # fmt: skip
            refuse_arguments(black_box, **{name: getattr(own, name) for name in names})
            self._fit_black_box(adapter, rows, black_box)
            return None
        refuse_arguments(None, validation=rows.validation, evaluation=rows.evaluation)
        options = SolverOptions.of(self)
        has_metric = options.metric is not None
        if options.constraints and not has_metric and (booster := adapter.without_gradients()):
            options, has_metric = options.without_multipliers(booster), True
        if has_metric:

            def make_fit(limit: TimeLimit) -> ConstrainedFit:
                adapter.check_parameters()
                without = options.without_metric()
                return adapter.make_fit(ConstrainedFit, without, rows, own, limit=limit)

            self._fit_metric(
                adapter,
                rows,
                options,
                sensitive_features_eval_set=own.sensitive_features_eval_set,
                make_fit=make_fit,
                constraint_callbacks=own.constraint_callbacks,
                time_limit=own.time_limit,
                max_cost=own.max_cost,
                checkpoint=own.checkpoint,
            )
            return None
        if options.constraints and options.iterate == "ergodic":
            raise ValueError(
                "iterate='ergodic' averages the iterates of an exact learner, and boosters have "
                "none: use iterate='last' or 'best', or ConstrainedLogisticRegression."
            )
        return options

    def _train_and_report(self, fit: ConstrainedFit, adapter: BoosterAdapter) -> FinalModel:
        """Train the returned model by the measured multipliers, and report on it."""
        with unchanged_on_error(self):
            adapter.train()
            remove_report(self)
            model = finalize(fit, adapter, adapter.rounds, adapter.train_margin)
            if (prefixes := model.prefixes) is not None:
                rounds = prefixes["rounds"].map(adapter.grown_after)
                self.prefixes_ = prefixes.assign(rounds=rounds)
            # Mapped scores decide by this shift as scores do by their own.
            self.shift_ = shift = model.affine.scale * model.shift - model.affine.shift
            is_beside = fit.options.probabilities == "calibrated"
            if shift.any() and is_beside:
                self._threshold = shift
            if any("residual" in constraint.kinds for constraint in fit.options.constraints):
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


class ConstrainedRegressorMixin(ConstrainedMixin):
    """A regressor of a library that is trained under constraints.

    Parameters
    ----------
    constraints : Constraint, str or sequence of these, default=None
        Constraints such as ``[each(mean_loss("squared"), by="race") <= 0.02]``: bounds on means
        over targets and predictions (:mod:`gbm_constrained.constraints.rates`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The outer loop, as for classifiers: a name, or an object with its own options such as
        ``ABPP(rounds_per_iteration=1)`` of :mod:`gbm_constrained.solvers`.
    measure_on : {"auto", "train", "holdout", "crossfit", "forward"}, object or splitter, \
            default="auto"
        The rows whose means move the multipliers, and by which scale and shift are chosen, as for
        classifiers: "auto" takes a holdout of half of the rows if every mean is taken over 25,000
        rows, and two folds if not; "train" in continued training. "forward" needs `time` in
        ``fit``.
        ``CrossFit(n_folds=3)``, ``Holdout(0.25)`` and ``Forward(n_folds=3)`` have options, and a
        splitter of scikit-learn makes the folds of "crossfit".
    guarantee : {None, "high_probability", "margin"} or object, default=None
        Guarantee for new rows, by a fifth of the rows that is set aside for it: all constraints
        hold in the population with probability 0.95. ``HighProbability(delta=0.01, fraction=0.3)``
        has others. Values of a row need a range, as in ``mean_loss("squared", range=(0, 25))``.
        ``"margin"`` and ``Margin(2.0)`` are those of classifiers.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        Criterion of early stopping: the parent's metric; the mean loss plus the price of the
        violation on the last evaluation set; or the metric among the rounds that meet the
        constraints there.
    group_shifts : bool, default=False
        Whether predictions use the group, by a shift of the scores of each group of the columns
        that constraints group by. These must be columns of X. The shifts are one more tree of the
        model (``group_shifts_``), and chosen on held-out rows. A warning says once that decisions
        by group are unlawful in places; see :mod:`gbm_constrained.decision.regression`.

    Attributes
    ----------
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

    _fit_class = RegressionFit

    def _fit_other_objective(self, *_: Any) -> SolverOptions:
        """Give the options; regressors have no objective but the library's own."""
        if not (constraints := check_constraints(self.constraints)):
            return SolverOptions(constraints)
        options = SolverOptions.of(self)
        if options.solver == "threshold":
            raise ValueError(
                "solver='threshold' moves a threshold between classes, and a regressor predicts "
                "numbers: use 'auto', 'abpp' or 'cbpr'."
            )
        return options

    def _train_and_report(self, fit: RegressionFit, adapter: BoosterAdapter) -> None:
        """Train the returned model by the measured multipliers, and report on it."""
        with unchanged_on_error(self):
            adapter.train()
            remove_report(self)
            model = finalize_regression(fit, adapter, adapter.rounds, adapter.train_margin)
            if not model.affine.is_identity:
                adapter.rescale(model.affine)
            if model.offsets is not None and model.offsets.values.any():
                adapter.add_to_groups(model.offsets)
            feasibility = report_regressor(self, fit, model)
            adapter.finish()
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        fit.notifier.warn()
        feasibility.warn(raises=False)
