"""XGBoost's own fit, driven by a solver: callbacks, folds and the trained model.

XGBoost's own ``fit`` makes matrices, parameters and a booster. The overridden methods hand the
solver what it needs of them, and put the note of this package into model files.

XGBoost moves the leaves of its absolute and quantile losses to medians and quantiles, whatever the
gradients were. Such a model is therefore trained as one of the squared error, by gradients of the
solver, and takes the name of its own objective at the end.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
import xgboost as xgb
from xgboost.core import require_keyword_args

from gbm_constrained._dataframes import take_rows, with_rows
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.exact_sums import Communicator, SingleMachine
from gbm_constrained.data.fit_data import CombinedRows, TargetData, check_targets
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import (
    check_features,
    check_integer,
    check_labels,
    check_scores,
    check_weight,
    preserve_random_state,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.decision.regression import Affine
from gbm_constrained.fit import model_note
from gbm_constrained.fit import model_note as saving
from gbm_constrained.fit.callbacks import Progress
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.cross_fit import FoldBoosterFactory
from gbm_constrained.fit.fit import ConstrainedFit, EvaluationArguments, check_pairs
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.metric_report import EvaluationRows, clone_plain, take_fit
from gbm_constrained.fit.native_models import IsOver, PartRows, multiply_weight
from gbm_constrained.fit.options import (
    EarlyStoppingOn,
    StoppingByConstraints,
    check_number,
    drop_solver_parameters,
)
from gbm_constrained.fit.problem import LibrarySettings, TreeLimits
from gbm_constrained.problem.losses import (
    MAX_DELTA_STEP,
    ObjectiveName,
    RegressionObjective,
    check_parameter,
)
from gbm_constrained.scorers.base import Trained, compute_probabilities, join_records
from gbm_constrained.scorers.trained_models import BoosterBlackBoxAdapter, GroupTree
from gbm_constrained.scorers.xgboost.models import (
    XGBLeafValues,
    XGBTreeWeights,
    append_group_tree,
    as_scores,
    best_rounds,
    has_dropped_trees,
    keep_first_rounds,
    merge_boosters,
    rescale,
    shift_intercept,
)
from gbm_constrained.scorers.xgboost.parameters import (
    check_classes,
    check_complete,
    check_metric,
    check_parameters,
    check_stoppers,
    check_supported,
    choose_array_module,
    factors_of_labels,
    find_classes,
    find_intercept,
    find_own_booster,
    find_without_gradients,
    find_without_stages,
    has_early_stopping,
    kernel_options,
    list_for_each,
    list_stoppers,
    map_metrics,
    native_objective,
    open_booster,
    refuse_dart_model,
    warn_of_base_margin,
    warn_of_cut_names,
)
from gbm_constrained.solvers.base import Solver


class Observer(xgb.callback.TrainingCallback):
    """Callback that measures the evaluation sets after every outer iteration.

    XGBoost keeps the margins of matrices and adds the new trees only. The booster that its ``fit``
    returns is a copy without these margins, hence the last ones of the training rows are kept.
    """

    def __init__(self, fit: ConstrainedFit, matrices: list[Any]) -> None:
        super().__init__()
        self.fit = fit
        self.matrices = matrices
        self.grown_before = 0  # rounds of the model that is continued
        self.grown_after = 0  # rounds of the model that gave the last margins
        self.train_margin: Array | None = None

    def before_training(self, model: Any) -> Any:
        """Count the rounds of a continued model, and observe its scores."""
        self.grown_before = model.num_boosted_rounds()
        if self._is_moved_by(self.fit.evaluation_sets[-1:]):
            self.fit.measured.observe(self._score(model, self.matrices[-1]))
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether a callback of the user or the time limit ends training."""
        # After an iteration, the callbacks that follow would not see its round.
        if self.fit.notifier.is_training_over(epoch):
            return True
        if not self.fit.measured.has_multipliers:
            self.fit.solver.count_round(lambda: self._training_margin(model))
        return False

    def after_training(self, model: Any) -> Any:
        """Take the last margins of the training rows."""
        self.grown_after = model.num_boosted_rounds()
        if self.matrices:
            self.train_margin = self._training_margin(model)
        return model

    def _training_margin(self, model: Any) -> Array:
        return self._score(model, self.matrices[0])

    def _score(self, model: Any, matrix: Any) -> Array:
        scores = model.predict(matrix, output_margin=True)
        return as_scores(scores, self.fit.data.columns)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Measure the evaluation sets."""
        rounds = self.fit.solver.rounds
        if self.fit.is_measured_after(rounds):
            for held, matrix in zip(self.fit.evaluation_sets, self.matrices[1:], strict=True):
                margin = self._score(model, matrix)
                self.fit.measure_round(held, rounds, margin)
                if self.fit.is_iteration_end(rounds) and self._is_moved_by([held]):
                    self.fit.measured.observe(margin)
        return False

    def _is_moved_by(self, held: Sequence[EvaluationSet]) -> bool:
        """Whether an evaluation set moves the multipliers."""
        measured = self.fit.measured
        return measured.boosters is None and any(rows is measured.rows for rows in held)


class RoundLimit(xgb.callback.TrainingCallback):
    """Callback that ends training after the number of rounds for which it is over."""

    def __init__(self, is_over: Callable[[int], bool]) -> None:
        super().__init__()
        self.is_over = is_over

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether training is over."""
        return self.is_over(epoch)


class ConstraintStopping(xgb.callback.TrainingCallback):
    """Early stopping on the constraints; see :mod:`gbm_constrained.fit.options`.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose last evaluation set has been measured before each call.
    by_metric : EarlyStopping
        XGBoost's own early stopping, which has the patience and compares the metric.
    on : {"constraints", "both"}
        Whether constraints alone, or the metric as well, decide which round is best.
    """

    def __init__(
        self, fit: ConstrainedFit, by_metric: xgb.callback.EarlyStopping, on: EarlyStoppingOn
    ) -> None:
        super().__init__()
        self.fit, self.by_metric, self.on = fit, by_metric, on
        self.by_constraints = StoppingByConstraints()

    @property
    def has_decided_alone(self) -> bool:
        """Whether the constraints alone decided which round is best."""
        return self.on == "constraints" or not self.by_constraints.has_met

    def before_training(self, model: Any) -> Any:
        """Begin XGBoost's own early stopping."""
        return self.by_metric.before_training(model)

    def after_training(self, model: Any) -> Any:
        """End XGBoost's own early stopping."""
        return self.by_metric.after_training(model)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Compare the round with the best one; true ends training."""
        round_ = self.by_metric.starting_round + epoch
        holds = self.by_constraints.update(round_, self.fit.merits[epoch + 1])
        if self.on == "both" and self.by_constraints.has_met:
            # Rounds that break the constraints are not counted, whatever their criterion is.
            return holds and bool(self.by_metric.after_iteration(model, epoch, evals_log))
        if self.by_constraints.best == round_:
            model.set_attr(
                best_iteration=str(round_), best_score=str(self.by_constraints.criterion)
            )
        stops = round_ - self.by_constraints.best >= self.by_metric.rounds
        return bool(self.on == "constraints" and stops)


def score_after_rounds(model: Any, fit: ConstrainedFit) -> Callable[[int], float | None]:
    """Make the function of rounds that early stopping compared, while the fit is driven."""
    by_constraints = [c for c in model.callbacks if isinstance(c, ConstraintStopping)]
    if by_constraints and by_constraints[-1].has_decided_alone:
        return lambda rounds: fit.merits[rounds].criterion
    data = metric = None
    if model.early_stopping_rounds is None:  # XGBoost calls its own early stopping last.
        stopping = [c.by_metric for c in by_constraints] or list_stoppers(model)
        if not stopping:  # A callback of the user has stopped.
            return lambda rounds: None
        data, metric = stopping[-1].data, stopping[-1].metric_name

    def score(rounds: int) -> float | None:
        results = model.evals_result_[data or list(model.evals_result_)[-1]]
        return float(results[metric or list(results)[-1]][rounds - 1])

    return score


MakeMatrix: TypeAlias = Callable[[Bool], xgb.DMatrix]
"""Function that makes the matrix of some rows, given a boolean for each row."""

BATCH = 1 << 19  # Rows that are taken to a graphics card together.


SCORED = 1 << 16  # Rows of which a matrix of values is made to score them.


def read_rows(parent: xgb.XGBClassifier, X: Any, base_margin: Any, rows: Codes) -> xgb.DMatrix:
    """Make the matrix of some rows of a table, to score them."""
    return xgb.DMatrix(
        take_rows(X, rows),
        base_margin=None if base_margin is None else take_rows(base_margin, rows),
        missing=parent.missing,
        enable_categorical=parent.enable_categorical,
        feature_types=parent.feature_types,
        nthread=parent.n_jobs,
    )


@dataclass(frozen=True, eq=False)
class RowReader:
    """Reads rows of a table once more, in parts, for scores that are seldom asked for."""

    parent: xgb.XGBClassifier
    X: Any
    base_margin: Any

    def matrices(self, rows: Codes) -> Iterator[xgb.DMatrix]:
        """Make one matrix after the other."""
        X = with_rows(self.X)
        for start in range(0, max(rows.size, 1), SCORED):
            yield read_rows(self.parent, X, self.base_margin, rows[start : start + SCORED])


class FoldFeatures(Protocol):
    """Features of all rows of a fit, from which matrices of some rows are made."""

    @property
    def reader(self) -> RowReader | None:
        """Reader of rows that makes it needless to keep a matrix; None where it takes long."""

    def training(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given.

        Labels, weights and weights of features are further arguments.
        """

    def keep_bins(self, training: Any) -> Any:
        """Make the smallest matrix that has the bins of a training matrix."""

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, given a matrix whose bins the trees split at."""


class HostFeatures:
    """Features in main memory, read once.

    XGBoost takes longer to read a table of pandas than to bin its numbers. Arrays need no reading.
    """

    def __init__(self, parent: xgb.XGBClassifier, X: Any, base_margin: Any) -> None:
        self.parent, self.base_margin = parent, base_margin
        self.reader = RowReader(parent, X, base_margin)
        self.described = {"enable_categorical": parent.enable_categorical}
        if type(X) is np.ndarray:
            self.values = X
            self.described |= {"feature_types": parent.feature_types, "missing": parent.missing}
            return
        read = xgb.DMatrix(
            with_rows(X),
            missing=parent.missing,
            enable_categorical=parent.enable_categorical,
            feature_types=parent.feature_types,
            nthread=parent.n_jobs,
        )
        self.values = read.get_data()
        self.described |= {
            "feature_names": read.feature_names,
            "feature_types": read.feature_types,
        }

    def _of_rows(self, rows: Codes) -> dict[str, Any]:
        """List the arguments of a matrix of some rows, as the parent's own ``fit`` gives them."""
        margin = self.base_margin
        return {
            "data": self.values[rows],
            "base_margin": None if margin is None else take_rows(margin, rows),
            **self.described,
        }

    def training(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given."""
        return xgb.XGBClassifier._create_dmatrix(
            self.parent, bins, **self._of_rows(rows), **of_rows
        )

    def keep_bins(self, training: Any) -> Any:
        """Make a matrix of one row with the bins of a training matrix."""
        one_row = {"data": self.values[:1], **self.described}
        return xgb.XGBClassifier._create_dmatrix(self.parent, training, **one_row)

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, of values, which are scored faster than bins."""
        return xgb.DMatrix(**self._of_rows(rows), nthread=self.parent.n_jobs)


class CardFeatures:
    """An array of features whose rows are binned on a graphics card, batch by batch.

    XGBoost bins an array in main memory on the processor, which takes longer than to grow the
    trees. The matrix of the returned model is made so, as its parent makes it.
    """

    reader = None

    def __init__(
        self, parent: xgb.XGBClassifier, X: Array, base_margin: Any, array_module: Any
    ) -> None:
        self.parent, self.X, self.base_margin = parent, X, base_margin
        self.array_module = array_module

    def _matrix(self, rows: Codes, bins: Any, **of_rows: Any) -> Any:
        parent, margin = self.parent, self.base_margin
        if margin is not None:
            of_rows["base_margin"] = take_rows(margin, rows)
        given = {"feature_types": parent.feature_types, **of_rows}
        return xgb.QuantileDMatrix(
            _Batches(self.X, rows, given, self.array_module),
            ref=bins,
            missing=parent.missing,
            enable_categorical=parent.enable_categorical,
            nthread=parent.n_jobs,
            max_bin=parent.max_bin,
        )

    def training(
        self, rows: Codes, bins: Any, *, feature_weights: Any = None, **of_rows: Any
    ) -> Any:
        """Make the matrix that trees are grown on, with the `bins` of another if given."""
        matrix = self._matrix(rows, bins, **of_rows)
        if feature_weights is not None:
            matrix.set_info(feature_weights=feature_weights)
        return matrix

    def keep_bins(self, training: Any) -> Any:
        """Keep the training matrix, which has the bins."""
        return training

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows, binned as the trees split."""
        return self._matrix(rows, bins)


class _Batches(xgb.DataIter):
    """Some of the rows of an array, taken to the memory of a module batch by batch.

    Parameters
    ----------
    given : Arguments of each batch; arrays have an entry for each of the rows.
    """

    def __init__(self, X: Array, rows: Codes, given: dict[str, Any], array_module: Any) -> None:
        super().__init__()
        self.X, self.rows, self.given, self.array_module = X, rows, given, array_module
        self.start = 0

    def next(self, input_data: Any) -> bool:
        """Hand over the next batch; false after the last one."""
        part = slice(self.start, self.start + BATCH)
        rows = self.rows[part]
        if not rows.size:
            return False
        given = {
            name: value[part] if isinstance(value, np.ndarray) else value
            for name, value in self.given.items()
        }
        input_data(data=self.array_module.asarray(self.X[rows]), **given)
        self.start += BATCH
        return True

    def reset(self) -> None:
        """Begin anew, as XGBoost asks for several times."""
        self.start = 0


class MatrixFeatures:
    """Features of which the user makes the matrix of some rows."""

    reader = None

    def __init__(self, make_matrix: MakeMatrix, n_rows: int) -> None:
        self.make_matrix, self.n_rows = make_matrix, n_rows

    def training(
        self, rows: Codes, bins: Any, *, feature_weights: Any = None, **of_rows: Any
    ) -> Any:
        """Make the matrix of some rows, with the labels and weights of all rows."""
        is_inside = np.zeros(self.n_rows, dtype=bool)
        is_inside[rows] = True
        matrix = self.make_matrix(is_inside)
        if not isinstance(matrix, xgb.DMatrix):
            raise TypeError(
                f"make_matrix= has made a {type(matrix).__name__}: it must return an "
                f"xgboost.DMatrix of the rows where its argument is true."
            )
        if matrix.num_row() != rows.size:
            raise ValueError(
                f"make_matrix= has made a matrix of {matrix.num_row()} rows, and was asked for "
                f"the {rows.size} rows of {self.n_rows} where its argument is true."
            )
        matrix.set_info(feature_weights=feature_weights, **of_rows)
        return matrix

    def keep_bins(self, training: Any) -> Any:
        """Keep nothing: the user's function decides about bins."""

    def held(self, rows: Codes, bins: Any) -> Any:
        """Make the matrix of held-out rows."""
        return self.training(rows, bins)


def read_features(
    parent: xgb.XGBClassifier, X: Any, base_margin: Any, array_module: Any
) -> FoldFeatures:
    """Read the features of a fit whose kernels have the given module of arrays."""
    is_binned = parent.tree_method in ("hist", None, "auto") and parent.booster != "gblinear"
    if array_module is np or type(X) is not np.ndarray or X.dtype == object or not is_binned:
        return HostFeatures(parent, X, base_margin)
    return CardFeatures(parent, X, base_margin, array_module)


# Attributes of a fit that the library's own file leaves out.
LIBRARY_ATTRIBUTES = {"evals_result_": dict}
Method = TypeVar("Method", bound=Callable[..., Any])


def by_keyword(method: Method) -> Method:
    """Make a method take keyword arguments by position as the parent does: with a warning."""
    wrapped: Method = require_keyword_args(error=False)(method)
    return wrapped


@dataclass(eq=False)
class DrivenFit:
    """State of a fit that the classifier's overridden methods read while a solver drives it.

    Attributes
    ----------
    params : dict
        Parameters of the native learner beside the user's.
    sets : iterator of (X_i, y_i, bool)
        Evaluation sets, and whether each is held out.
    is_continued : bool
        Whether training goes on from another model.
    keeps_objective : bool, default=False
        Whether the library's objective stays beside gradients of a solver, where the parent's fit
        would put the squared error.
    matrices : list
        Matrices that the parent's fit has made: training rows, and held-out evaluation sets.
    """

    params: dict[str, Any]
    sets: Iterator[tuple[Any, Any, bool]]
    is_continued: bool
    keeps_objective: bool = False
    matrices: list[Any] = field(default_factory=list)


class KeptObjective(dict[str, Any]):
    """Parameters whose objective stays when the parent's fit sets another one."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "objective":
            super().__setitem__(name, value)


def _copied_to_one_place(values: Array) -> Callable[[], Array]:
    """Make the function that gives a copy of values, which the next call writes anew.

    To touch new memory takes several times as long as to copy.
    """
    copy = np.empty_like(values)

    def read() -> Array:
        np.copyto(copy, values)
        return copy

    return read


# The parent comes next to the mixin, and XGBoost looks for parameters in the first two bases.
_Parent: Any = xgb.XGBModel if TYPE_CHECKING else object


class DrivenXGBMixin(_Parent):
    """Methods of an estimator of XGBoost that a solver drives."""

    n_jobs: Any
    _doc_link_module = "gbm_constrained"
    _driven: DrivenFit
    _class_labels: Any  # labels of the classes in the note of a file, if there is a note

    @property
    def _doc_link_template(self) -> str:
        """Page of the parent, to which scikit-learn's view of an estimator links."""
        parents = (c for c in type(self).__mro__ if c.__module__.partition(".")[0] == "xgboost")
        template: str = next(parents)()._doc_link_template
        return template

    def get_xgb_params(self) -> dict[str, Any]:
        """Get the parameters of the native learner, without those of the solver."""
        params = super().get_xgb_params()
        drop_solver_parameters(params)
        is_softmax = params.get("objective") in ("multi:softprob", "multi:softmax")
        if is_softmax and getattr(self, "n_classes_", 0) == 2 and "num_class" not in params:
            params["objective"] = "binary:logistic"  # An earlier fit to more classes set it.
        if (driven := self.__dict__.get("_driven")) is not None:
            params.update(driven.params)
            if driven.keeps_objective:
                return KeptObjective(params)
        return dict(params)

    def save_model(self, fname: Any) -> None:
        """Save the model, its constraints and reports; plain XGBoost reads the same file.

        Parameters
        ----------
        fname : str or path
            File to write, in the form of its extension, ``json`` or ``ubj``.

        Raises
        ------
        TypeError
            If a constraint holds a value that no file can hold.
        """
        booster, known = self.get_booster(), vars(self)
        library = {name: known[name] for name in LIBRARY_ATTRIBUTES if name in known}
        note = saving.write_note(self, booster.num_boosted_rounds(), library)
        booster.set_attr(**{saving.NAME: note})
        try:
            super().save_model(fname)
        finally:
            booster.set_attr(**{saving.NAME: None})

    def load_model(self, fname: Any) -> Any:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none of these. Then parameters stay as they are, apart
        from those that the parent reads from the file. All knowledge of an earlier model is
        removed, with the constraints of an earlier file.

        Parameters
        ----------
        fname : str, path or bytearray
            Written by :meth:`save_model` or by XGBoost.

        Raises
        ------
        ValueError
            If the file is damaged, or of a newer version; the estimator is left as it was.
        """
        source = "The model in memory" if isinstance(fname, bytearray) else f"The file {fname}"
        with saving.unchanged_on_error(self):
            self.__dict__.pop("_Booster", None)  # The parent would load into this booster.
            try:
                check_complete(fname)
                super().load_model(fname)
                booster = self.get_booster()
                text = booster.attr(saving.NAME)
            # XGBoost raises ValueErrors, and an AssertionError for an empty attribute.
            except (ValueError, AssertionError) as error:
                reason = str(error).partition("\nStack trace:")[0] or "an attribute is empty"
                raise xgb.core.XGBoostError(f"{source} cannot be loaded: {reason}") from error
            note = saving.read_note(
                text,
                self,
                LIBRARY_ATTRIBUTES,
                rounds=booster.num_boosted_rounds(),
                n_classes=getattr(self, "n_classes_", 0),
                source=source,
            )
            remove_report(self)
            booster.set_attr(**{saving.NAME: None})
            self.__dict__.pop("evals_result_", None)
            self._class_labels = None if note is None else note.classes
            saving.forget_constraints(self)
            if note is not None:
                note.restore(self)
                self.__dict__.update(note.library)
                booster.set_param({"nthread": self.n_jobs or 0})
        return self

    # Private in XGBoost, and the only way to its cached margins of training and evaluation rows.
    # Should XGBoost stop calling this method, the adapter finds no matrix and raises an error.
    def _create_dmatrix(self, ref: Any, **kwargs: Any) -> Any:
        matrix = super()._create_dmatrix(ref, **kwargs)
        driven = self.__dict__.get("_driven")
        if driven is not None:
            if ref is None:
                driven.matrices.append(self._scored(matrix, kwargs))
                # XGBoost reads both in every round, by JSON, for an objective that uses neither.
                # A copy takes a fraction of that time.
                for name in ("get_label", "get_weight"):
                    setattr(matrix, name, _copied_to_one_place(getattr(matrix, name)()))
            else:
                X, y = kwargs["data"], kwargs["label"]
                # XGBoost may make no matrix for sets that are the training rows.
                if next(held for X_i, y_i, held in driven.sets if X_i is X and y_i is y):
                    driven.matrices.append(self._scored(matrix, kwargs))
        return matrix

    def _scored(self, matrix: Any, given: Mapping[str, Any]) -> Any:
        """Give a matrix of the same rows on which scores are those of ``predict``."""
        if not self._driven.is_continued:
            return matrix
        # Trees of the continued model split elsewhere than at the bins of these rows.
        names = ("data", "base_margin", "missing", "enable_categorical", "feature_types")
        return xgb.DMatrix(**{name: given[name] for name in names}, nthread=self.n_jobs)


def make_fold_booster_factory(
    parent: xgb.XGBClassifier,
    fit: ConstrainedFit,
    params: dict[str, Any],
    features: FoldFeatures,
    feature_weights: Any,
) -> FoldBoosterFactory:
    """Make the factory of a fit, all of whose boosters share the bins of the first."""
    combined = fit.data.combined
    label, weight = combined.classes_of_rows, combined.sample_weight
    if weight is not None:
        weight = np.asarray(weight)
    with preserve_random_state(parent):
        native = {**parent.get_xgb_params(), **params}
    native.pop("n_estimators", None)
    native.pop("eval_metric", None)  # Metrics are about the returned model.
    native["verbosity"] = 0  # The fit of the returned model gives the same warnings.
    bins = None

    def make(fold: Fold, solver: Solver | None) -> _FoldBooster:
        nonlocal bins
        rows = fold.training
        training = features.training(
            rows,
            bins,
            label=label[rows],
            weight=None if weight is None else weight[rows],
            feature_weights=feature_weights,
        )
        bins = features.keep_bins(training) if bins is None else bins
        matrices = {"training": training, "held": features.held(fold.held, bins)}
        return _FoldBooster(parent, native, matrices, solver, _again(features.reader, fold))

    return make


def _again(reader: RowReader | None, fold: Fold) -> dict[str, Callable[[], Iterator[Any]]]:
    """List functions that make the matrices of a fold again; none without a reader."""
    if reader is None:
        return {}
    rows = {"training": fold.training, "held": fold.held}
    return {name: functools.partial(reader.matrices, part) for name, part in rows.items()}


class _FoldBooster:
    """A booster on some of the rows, grown as the parent's own ``fit`` would.

    `again` makes the training matrix and that of held-out rows once more, in parts, after they
    have been freed. They are kept if it is empty.
    """

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        native: dict[str, Any],
        matrices: dict[str, Any],
        solver: Solver | None,
        again: Mapping[str, Callable[[], Iterator[Any]]],
    ) -> None:
        self.solver, self.matrices, self.again = solver, matrices, again
        self.native, self.names = native, matrices["training"].feature_names
        self.columns = native.get("num_class", 1)
        self.booster = self._make_booster()
        self._final: dict[str, Array] = {}
        # All other callbacks are about the model that is returned.
        schedulers = xgb.callback.LearningRateScheduler
        self.schedulers = [c for c in parent.callbacks or () if isinstance(c, schedulers)]

    def _make_booster(self, forest: xgb.Booster | None = None) -> xgb.Booster:
        """Make the booster, or one that goes on from saved trees.

        Parameters may refer to names of features. The names are removed afterwards, for XGBoost
        would compare them in every round.
        """
        matrices = [*self.matrices.values()]
        for nameless in matrices if forest is None else (*matrices, forest):
            nameless.feature_names = self.names
        booster = xgb.Booster(self.native, matrices, model_file=forest)
        for named in (*matrices, booster):
            named.feature_names = None
        return booster

    def grow(self, rounds: int) -> None:
        matrix = self.matrices["training"]
        if self.solver is None:
            self.booster.update(matrix, rounds)
        else:
            # ``update`` with an objective does the same, and checks features and labels besides.
            grad, hess = self.solver(self._predict(matrix, training=True))
            self.booster.boost(matrix, rounds, grad=grad, hess=hess)
        for scheduler in self.schedulers:
            scheduler.after_iteration(self.booster, rounds, {})

    def held_margin(self, rounds: int | None = None) -> Array:
        return self._margin("held", rounds or 0)

    def own_margin(self, rounds: int) -> Array:
        return self._margin("training", rounds)

    def _margin(self, name: str, rounds: int) -> Array:
        """Score the rows of a matrix, which is read again once it has been freed."""
        if name in self.matrices:
            return self._predict(self.matrices[name], rounds)
        if rounds in (0, self.booster.num_boosted_rounds()):
            return self._final[name]
        return np.concatenate([self._predict(part, rounds) for part in self.again[name]()])

    def _predict(self, matrix: Any, rounds: int = 0, *, training: bool = False) -> Array:
        scores = self.booster.predict(
            matrix,
            output_margin=True,
            iteration_range=(0, rounds),
            validate_features=False,
            training=training,
        )
        return as_scores(scores, self.columns)

    def state(self) -> State:
        return {"model": np.frombuffer(self.booster.save_raw("ubj"), np.uint8)}

    def restore(self, state: State) -> None:
        self.booster = self._make_booster(xgb.Booster(model_file=bytearray(state["model"])))

    def release(self) -> None:
        self.solver = None
        if self.again:
            self._final = {name: self._predict(one) for name, one in self.matrices.items()}
            self.matrices = {}
            self.booster.reset()


class TrainedXGBModel:
    """The booster of a finished fit, as a ``TrainedModel`` of the training.

    Parameters
    ----------
    parent : ConstrainedXGBClassifier
        The classifier that has the booster.
    fit : ConstrainedFit
        The fit.
    matrices : list
        Training rows, and each of the fit's evaluation sets.
    grown_before : int
        Rounds of the model that was continued.
    base_margin : array-like or None
        Scores that all rows given to ``fit`` start from.
    score_after : callable
        The value that early stopping compared after some rounds.
    """

    def __init__(
        self,
        parent: xgb.XGBClassifier,
        fit: ConstrainedFit,
        matrices: list[Any],
        grown_before: int,
        base_margin: Any,
        score_after: Callable[[int], float | None],
    ) -> None:
        self.parent, self.fit, self.grown_before = parent, fit, grown_before
        self.base_margin, self.score_after = base_margin, score_after
        self.booster = parent.get_booster()
        self.training = matrices[0]
        self.matrices = dict(zip(fit.evaluation_sets, matrices[1:], strict=True))

    def margin(self, rounds: int) -> Array:
        return self._predict(self.training, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.matrices:  # Certification rows are no evaluation set of the user.
            data = self.fit.data
            assert data.certification is not None
            self.matrices[rows] = read_rows(
                self.parent, data.whole.X, self.base_margin, data.certification
            )
        return self._predict(self.matrices[rows], rounds)

    def _predict(self, matrix: Any, rounds: int) -> Array:
        span = (0, self.grown_before + rounds)
        scores = self.booster.predict(matrix, output_margin=True, iteration_range=span)
        return as_scores(scores, self.fit.data.columns)

    def truncate(self, rounds: int) -> None:
        end = self.grown_before + rounds
        stopped = self.booster.attr("best_iteration") is not None
        self.booster = self.parent._Booster = keep_first_rounds(self.booster, end)
        if stopped:  # ``predict`` uses the rounds up to the best iteration.
            score = self.score_after(rounds)
            best_score = None if score is None else str(score)
            self.booster.set_attr(best_iteration=str(end - 1), best_score=best_score)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.booster, shift)

    def rescale(self, affine: Affine) -> None:
        rescale(self.booster, affine)

    def add_to_groups(self, offsets: GroupOffsets) -> None:
        data = self.fit.data
        tree = GroupTree.of(data.combined.X, offsets, offsets.groups_of(data.rows))
        self.booster = self.parent._Booster = append_group_tree(self.booster, tree)


OF_EVALUATION = ("eval_set", "sample_weight_eval_set", "base_margin_eval_set")


@dataclass(frozen=True, eq=False)
class NativeXGBModel:
    """A trained classifier, and the scores that its training started from, if any were given."""

    model: Any
    base_margin: Any

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X, whose positions among the training rows are `rows`."""
        start = None if self.base_margin is None else take_rows(self.base_margin, rows)
        return np.asarray(self.model.predict(X, output_margin=True, base_margin=start))

    def to_bytes(self) -> bytes:
        """Write the booster as UBJSON."""
        return bytes(self.model.get_booster().save_raw("ubj"))

    def state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        return {
            "model": np.frombuffer(self.to_bytes(), np.uint8),
            "config": self.model.get_booster().save_config(),
            "records": getattr(self.model, "evals_result_", None),
        }


def fit_part(model: Any, y: Any, arguments: Mapping[str, Any], part: PartRows) -> NativeXGBModel:
    """Train a clone of a classifier on some of the rows."""
    if arguments["xgb_model"] is not None:
        raise ValueError(
            "xgb_model continues a model that has seen all rows, and a metric is optimised on "
            "rows that boosters have not seen: leave xgb_model out."
        )
    plain = clone_plain(model)
    given = {**arguments, "verbose": False}
    if part.is_joint:
        plain.set_params(
            objective="multi:softprob", scale_pos_weight=None, eval_metric=None,
            early_stopping_rounds=None, callbacks=None,
        )  # fmt: skip
        given.update(dict.fromkeys((*OF_EVALUATION, "base_margin")))
    given["sample_weight"] = part.take_weight(given["sample_weight"])
    if given["base_margin"] is not None:
        given["base_margin"] = take_rows(given["base_margin"], part.rows)
    if part.rounds is not None:
        # XGBoost seeds no training that goes on: rows that it draws would depend on the trainings
        # before this one.
        plain.set_params(n_estimators=part.rounds, seed_per_iteration=True)
    before = given["xgb_model"] = None if part.start is None else part.start.model
    with limited_rounds(plain, part.is_over):
        plain.fit(part.take_features(), part.take_labels(y), **given)
    if before is not None and hasattr(before, "evals_result_"):
        plain.evals_result_ = join_records(before.evals_result_, plain.evals_result_)
    return NativeXGBModel(plain, None if part.is_joint else arguments["base_margin"])


@contextmanager
def limited_rounds(model: Any, is_over: IsOver | None) -> Iterator[None]:
    """Let the training of a classifier end where `is_over` says so."""
    if is_over is None:
        yield
        return
    own = model.callbacks
    model.callbacks = [*(own or ()), RoundLimit(is_over)]
    try:
        yield
    finally:
        model.callbacks = own


def restore(model: Any, state: State, base_margin: Any) -> NativeXGBModel:
    """Make the classifier that :func:`fit_part` has trained."""
    plain = clone_plain(model)
    xgb.XGBClassifier.load_model(plain, bytearray(state["model"]))
    plain.get_booster().load_config(state["config"])
    if state["records"] is not None:
        plain.evals_result_ = state["records"]
    return NativeXGBModel(plain, base_margin)


def merge(models: Sequence[NativeXGBModel]) -> NativeXGBModel:
    """Merge models into one whose raw score is the mean of theirs."""
    model = copy.copy(models[0].model)
    model._Booster = merge_boosters([one.model.get_booster() for one in models])
    model.__dict__.pop("evals_result_", None)  # of one of them alone
    return NativeXGBModel(model, models[0].base_margin)


def takes_weights(model: Any) -> bool:
    """Whether the objective takes weights of rows, which XGBoost gives by this name."""
    objective = model.objective
    return not callable(objective) or "sample_weight" in inspect.signature(objective).parameters


def can_fold(model: Any) -> bool:
    """Whether a shift of scores can be added to the trained model."""
    is_forest = model.booster in (None, "gbtree") and not has_dropped_trees(model.get_booster())
    return is_forest and not callable(model.objective)


class XGBoostBlackBoxAdapter(BoosterBlackBoxAdapter):
    """``AdjustableAdapter`` of one ``fit`` of XGBoost.

    See :class:`~gbm_constrained.scorers.trained_models.BoosterBlackBoxAdapter`.
    """

    models: ClassVar = {"trees": XGBTreeWeights, "leaves": XGBLeafValues}

    def check_adjustable(self, space: str) -> None:
        """Refuse boosters that are no sum of trees, and scores that training starts from."""
        super().check_adjustable(space)
        if self.adapter.arguments["base_margin"] is not None:
            raise ValueError(
                "base_margin= starts training from scores that are no part of the model, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if (booster := find_without_gradients(self.model)) is not None:
            raise ValueError(
                f"space={space!r} changes a sum of trees whose scores are log odds, which "
                f"{booster} does not make: use objective='binary:logistic' and booster='gbtree'."
            )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        adapter, weight = self.adapter, self.adapter.arguments["sample_weight"]
        adapter.X, adapter.y = take_rows(adapter.X, rows), take_rows(adapter.y, rows)
        if weight is not None:
            adapter.arguments["sample_weight"] = take_rows(weight, rows)


DEFAULT_LEARNING_RATE = 0.3  # XGBoost's own default, which no call of XGBoost returns


class XGBoostAdapter:
    """``BoosterAdapter`` of one ``fit`` of XGBoost.

    Parameters
    ----------
    model : XGBClassifier
        The classifier.
    native : callable
        The parent's own ``fit``.
    X, y
        The training rows.
    arguments : mapping
        All other arguments of the parent's ``fit``, by name.
    """

    def __init__(
        self, model: Any, native: Callable[..., Any], X: Any, y: Any, arguments: Mapping[str, Any]
    ) -> None:
        self.model, self.native, self.X, self.y = model, native, X, y
        self.arguments = dict(arguments)
        self.communicator: Communicator = SingleMachine()
        self.is_divisible = arguments["xgb_model"] is None
        self.has_offset = False
        self.fit: ConstrainedFit
        self.params: dict[str, Any] = {}
        self.base_margin: Any = None
        self.pairs: Sequence[tuple[Any, Any]] = ()
        self.has_margins = False
        self.sets: list[tuple[Any, Any, bool]] = []

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        weight = multiply_weight(self.arguments["sample_weight"], factor)
        with limited_rounds(self.model, is_over):
            self.native(self.X, self.y, **{**self.arguments, "sample_weight": weight})
        self._forget_note()

    def leave_out_rounds(self) -> None:
        if can_fold(self.model):
            # Readers of the booster that do not know the best iteration would take all rounds.
            self.model._Booster = best_rounds(self.model.get_booster())

    def evaluation_rows(self) -> list[EvaluationRows]:
        given, eval_set = self.arguments, self.arguments["eval_set"]
        pairs = check_pairs(eval_set, self.X, by_name=True)
        if eval_set is not None:
            given["eval_set"] = pairs  # An iterator is exhausted by now.
        weights, starts = (
            list_for_each(given[name], given["eval_set"], name)
            for name in ("sample_weight_eval_set", "base_margin_eval_set")
        )
        self.has_margins = self.starting_scores() is not None
        return [
            EvaluationRows(f"eval_set[{i}]", *pair, weight, start)
            for i, (pair, weight, start) in enumerate(zip(pairs, weights, starts, strict=True))
        ]

    def starting_scores(self) -> Any:
        return self.arguments["base_margin"]

    def check_rows(self, combined: CombinedRows) -> None:
        combined.refuse_with(base_margin=self.arguments["base_margin"])

    def without_gradients(self) -> str | None:
        return find_without_gradients(self.model)

    def fit_part(self, part: PartRows) -> NativeXGBModel:
        return fit_part(self.model, self.y, self.arguments, part)

    def merge(self, models: Sequence[Any]) -> NativeXGBModel:
        return merge(models)

    def restore(self, state: State, part: PartRows) -> NativeXGBModel:
        return restore(self.model, state, self.arguments["base_margin"])

    def take(self, model: Any) -> None:
        take_fit(self.model, model.model)
        if not callable(self.model.objective):
            self.model.objective = model.model.objective  # which fit sets by the number of classes

    def can_fold(self) -> bool:
        return can_fold(self.model)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.model.get_booster(), shift)

    def for_black_box(self) -> XGBoostBlackBoxAdapter:
        return XGBoostBlackBoxAdapter(self)

    def check_parameters(self) -> None:
        check_supported(self.model)
        check_features(self.X)
        warn_of_cut_names(self.X)
        check_integer("n_estimators", self.model.get_num_boosting_rounds(), 1)
        continued = self.arguments["xgb_model"]
        if (booster := open_booster(continued)) is not None:
            refuse_dart_model(booster)
            model_note.refuse_threshold(continued, booster.attr(model_note.NAME), "xgb_model")

    def settings(self) -> LibrarySettings:
        model = self.model
        with preserve_random_state(model):
            native = model.get_xgb_params()
        rate = native.get("eta", model.learning_rate)
        return LibrarySettings(
            check_number("learning_rate", DEFAULT_LEARNING_RATE if rate is None else rate),
            model.get_num_boosting_rounds(),
            objective_factor=lambda classes, _: factors_of_labels(model, classes),
            softmax_hessian=lambda k: 2.0,
            random_state=model.random_state,
            takes_weights=takes_weights(model),
            without_stages=find_without_stages(model),
            kernel=kernel_options(native, model.verbosity),
            tree_limits=self.tree_limits,
        )

    def tree_limits(self, names: Sequence[Hashable]) -> TreeLimits:
        model = self.model
        asked = model.monotone_constraints, model.interaction_constraints
        return TreeLimits.read(names, *asked, missing=model.missing)

    def progress(self) -> Progress | None:
        if not self.arguments["verbose"] or self.model.verbosity == 0 or self.communicator.rank:
            return None
        monitors = xgb.callback.EvaluationMonitor
        is_printing = any(isinstance(c, monitors) for c in self.model.callbacks or ())
        return Progress("round", lines=bool(self.arguments["eval_set"]) or is_printing)

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        self.fit, given, data = fit, self.arguments, fit.data
        self.check_labels()
        data.combined.refuse_with(base_margin=given["base_margin"])
        aligned = {"X": self.X, "y": self.y, "base_margin": given["base_margin"]}
        data.alignment.check(aligned)
        self.base_margin = check_scores(
            given["base_margin"], data.whole.sizes[0], data.columns, "base_margin", "C"
        )
        self._set_intercept()
        eval_set = given["eval_set"]
        self.pairs = check_pairs(eval_set, self.X, by_name=True)
        weights = list_for_each(
            given["sample_weight_eval_set"], eval_set, "sample_weight_eval_set"
        )
        has_weights = any(weight is not None for weight in weights)
        native = self.native_objective()
        check_metric(self.model, native, is_evaluated=bool(self.pairs), is_weighted=has_weights)
        starts = list_for_each(given["base_margin_eval_set"], eval_set, "base_margin_eval_set")
        for i, (_, y_i) in enumerate(self.pairs):
            name = f"sample_weight_eval_set[{i}]"
            check_weight(weights[i], len(y_i), name, self.communicator)
            check_scores(starts[i], len(y_i), data.columns, f"base_margin_eval_set[{i}]", "C")
        self.has_margins = self.base_margin is not None or any(s is not None for s in starts)
        return EvaluationArguments(
            self.pairs,
            weights,
            starts,
            has_patience=has_early_stopping(self.model),
            parameter="early_stopping_rounds",
            is_evaluated=bool(self.pairs),
        )

    def check_labels(self) -> None:
        """Refuse labels that the parent does not take."""
        # The classes of the data may be the labels that these positions stand for.
        check_classes(self.model, check_labels(self.y, communicator=self.communicator)[0])

    def labels_of_rows(self) -> Array:
        """List the label of each row, as the parent takes it.

        Rows of further data sets without a label are in no objective: any class will do.
        """
        return self.fit.data.combined.classes_of_rows

    def native_objective(self) -> dict[str, Any]:
        """Give the library's own objective, with its parameters."""
        return native_objective(self.fit.data.classes.size)

    def driven_objective(self) -> dict[str, Any]:
        """Give the library's objective that stands beside gradients of a solver."""
        return self.native_objective()

    def given(self) -> Mapping[str, Any]:
        names = ("verbose", "xgb_model")
        return {name: value for name, value in self.arguments.items() if name not in names}

    def prepare(self, fit: ConstrainedFit, held_out: list[int]) -> None:
        if self.pairs:
            check_stoppers(self.model, self.native_objective(), len(self.pairs))
        self.sets = [(*pair, i in held_out) for i, pair in enumerate(self.pairs)]

    def make_factory(self) -> FoldBoosterFactory:
        weights = self.arguments["feature_weights"]
        if weights is None:
            weights = self.model.feature_weights
        native = {**self.params, **self.driven_objective()}
        return make_fold_booster_factory(
            self.model, self.fit, native, self.read_features(), weights
        )

    def read_features(self) -> FoldFeatures:
        """Read the features that the matrices of the folds are made from."""
        data, array_module = self.fit.data, self.fit.problem.kernel.get("array_module", np)
        margin = data.take(self.base_margin)
        return read_features(self.model, data.combined.X, margin, array_module)

    def measuring(self) -> AbstractContextManager[Any]:
        # Boosters set their verbosity for the whole process.
        context: AbstractContextManager[Any] = xgb.config_context(verbosity=0)
        return context

    def train(self) -> Trained:
        combined, labels = self.fit.data.combined, self.labels_of_rows()
        given = {
            **self.arguments,
            "sample_weight": combined.sample_weight,
            "base_margin": self.fit.data.take(self.base_margin),
        }
        self._share_training_rows(given, combined.X, labels)
        with self._driven() as observer:
            self.native(combined.X, labels, **given)
            self._forget_note()
            return self._trained(observer)

    def _share_training_rows(self, given: dict[str, Any], X: Any, labels: Any) -> None:
        """Let XGBoost recognise evaluation sets that are the training rows: by the very objects.

        It then makes one matrix of both, and predicts it once.
        """
        names = {"sample_weight_eval_set": "sample_weight", "base_margin_eval_set": "base_margin"}
        own = self.X, self.y, *(self.arguments[name] for name in names.values())
        for i, pair in enumerate(self.pairs):
            further = [None if given[each] is None else given[each][i] for each in names]
            if X is self.X and all(map(operator.is_, (*pair, *further), own)):
                given["eval_set"] = [*given["eval_set"]]
                given["eval_set"][i] = X, labels
                for each, name in names.items():
                    if given[each] is not None:
                        given[each] = [*given[each]]
                        given[each][i] = given[name]

    def finish(self) -> None:
        if self.has_margins:
            report, name = self.model.constraint_report_, "{}, with base_margin"
            report["rows"] = report["rows"].map(name.format, "ignore")
            warn_of_base_margin()

    def _forget_note(self) -> None:
        """Remove the note that a continued model has brought from its file."""
        self.model.get_booster().set_attr(**{model_note.NAME: None})

    def _set_intercept(self) -> None:
        """Set the intercept that XGBoost would fit under its own objective."""
        model, data = self.model, self.fit.data
        if model.base_score is not None or self.arguments["xgb_model"] is not None:
            return
        native = {"nthread": model.n_jobs, **self.native_objective()}
        if data.classes.size == 2 and model.scale_pos_weight is not None:
            native["scale_pos_weight"] = model.scale_pos_weight
        self.params["base_score"] = self.find_intercept(native)

    def find_intercept(self, native: dict[str, Any]) -> Any:
        """Find the intercept that XGBoost would fit to the training rows."""
        return find_intercept(self.fit.data.y, self.fit.data.sample_weight, native)

    @contextmanager
    def _driven(self) -> Iterator[Observer]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards.

        Without multipliers the objective is the parent's own, and the solver keeps its history.
        """
        model, fit = self.model, self.fit

        def objective(y_true: Array, margin: Array, sample_weight: Any = None) -> Any:
            return fit.solver(as_scores(margin, fit.data.columns))

        names = ("objective", "eval_metric", "callbacks", "early_stopping_rounds")
        own = {name: getattr(model, name) for name in names}
        driven = DrivenFit(self.params, iter(self.sets), self.arguments["xgb_model"] is not None)
        model._driven = driven
        native = self.driven_objective()["objective"]
        link = self.metric_link()
        model.objective = native
        if fit.measured.has_multipliers:
            model.objective = objective
            model.eval_metric = map_metrics(model.eval_metric, link or compute_probabilities)
        elif link is not None:
            model.eval_metric = map_metrics(model.eval_metric, link)
        observer = Observer(fit, driven.matrices)
        callbacks, stopping, on = model.callbacks or [], [], fit.options.early_stopping_on
        if on != "metric":
            stopping = list_stoppers(model)
            callbacks = [c for c in callbacks if c not in stopping]
            if model.early_stopping_rounds is not None:
                stopping.append(xgb.callback.EarlyStopping(rounds=model.early_stopping_rounds))
            model.early_stopping_rounds = None
        by_constraints = [ConstraintStopping(fit, c, on) for c in stopping]
        model.callbacks = [*callbacks, observer, *by_constraints]
        try:
            yield observer
        finally:
            fit.hide_progress()
            for name, value in own.items():
                setattr(model, name, value)
            del model._driven
        self.restore_objective(native)

    def metric_link(self) -> Callable[[Array], Array] | None:
        """Find what the parent hands to functions as metrics, where that is no probability."""
        is_softmax = self.model.objective == "multi:softmax" and self.fit.data.classes.size > 2
        return find_classes if is_softmax else None

    def restore_objective(self, native: str) -> None:
        """Set the objective that the parent's fit sets: softmax for several classes."""
        if self.model.objective != native:
            self.model.objective = native

    def _trained(self, observer: Observer) -> Trained:
        """Describe the trained booster, without the rounds that early stopping leaves out."""
        matrices, model = observer.matrices, self.model
        if not matrices:
            raise RuntimeError(
                f"xgboost {xgb.__version__} does not build its matrices through _create_dmatrix: "
                f"this version of gbm_constrained does not support it."
            )
        booster = model.get_booster()
        before, end = observer.grown_before, booster.num_boosted_rounds()
        best = booster.attr("best_iteration")  # ``predict`` uses the rounds up to this one.
        if best is not None and int(best) < before:
            # The attribute is of the continued model, and would leave the new trees out.
            booster.set_attr(best_iteration=None, best_score=None)
            best = None
        if best is not None and int(best) + 1 < end:
            # Readers of the booster that do not know the best iteration would take all rounds.
            end = int(best) + 1
            booster = model._Booster = keep_first_rounds(booster, end)
        margin = observer.train_margin if end == observer.grown_after else None
        score_after = score_after_rounds(model, self.fit)
        trained = TrainedXGBModel(model, self.fit, matrices, before, self.base_margin, score_after)
        return Trained(trained, end - before, margin, lambda rounds: rounds + before)


SQUARED = "reg:squarederror"
NAMES: dict[str, ObjectiveName] = {
    "reg:squarederror": "squared",
    "reg:pseudohubererror": "pseudo_huber",
    "reg:absoluteerror": "absolute",
    "reg:quantileerror": "quantile",
    "count:poisson": "poisson",
    "reg:tweedie": "tweedie",
    "reg:gamma": "gamma",
}
# Objectives whose leaves XGBoost moves after it has grown them.
MOVES_LEAVES = ("reg:absoluteerror", "reg:quantileerror")
# Names and defaults of the parameters of objectives.
PARAMETERS: dict[str, tuple[str, float | None]] = {
    "reg:pseudohubererror": ("huber_slope", 1.0),
    "reg:quantileerror": ("quantile_alpha", None),
    "reg:tweedie": ("tweedie_variance_power", 1.5),
}
METRICS = {"reg:absoluteerror": "mae", "reg:quantileerror": "quantile"}  # by default


def read_objective(model: Any) -> tuple[RegressionObjective, dict[str, Any]]:
    """Read the objective of a regressor, and its name and parameters as XGBoost takes them.

    Raises
    ------
    ValueError
        If constraints cannot be added to the objective, or its parameter is missing.
    """
    name = SQUARED if model.objective is None else model.objective
    if not isinstance(name, str) or name not in NAMES:
        raise ValueError(
            f"objective={name!r} cannot be trained under constraints: use one of {[*NAMES]}."
        )
    more = getattr(model, "kwargs", None) or {}
    native: dict[str, Any] = {"objective": name}
    parameter = np.nan
    if name in PARAMETERS:
        key, default = PARAMETERS[name]
        given = more.get(key, getattr(model, key, None))
        given = default if given is None else given
        values = np.ravel(given) if given is not None else np.zeros(0)
        if values.size != 1:
            raise ValueError(
                f"objective={name!r} needs {key}= with one number under constraints, got "
                f"{given!r}: a fit under constraints has one prediction for each row."
            )
        parameter = native[key] = check_number(key, values[0])
        check_parameter(NAMES[name], key, parameter)
    if (outputs := more.get("num_target", 1)) != 1:
        raise ValueError(
            f"num_target={outputs!r} asks for several predictions of each row, and a fit under "
            f"constraints has one: leave it out."
        )
    step = getattr(model, "max_delta_step", None)
    step = MAX_DELTA_STEP if step is None else check_number("max_delta_step", step)
    return RegressionObjective(NAMES[name], parameter, step), native


class XGBoostRegressionAdapter(XGBoostAdapter):
    """``RegressionAdapter`` of one ``fit`` of XGBoost.

    Attributes
    ----------
    objective : RegressionObjective
        The objective.
    own_objective : dict
        Its name and parameters, as XGBoost takes them.
    """

    objective: RegressionObjective
    own_objective: dict[str, Any]

    def check_parameters(self) -> None:
        model = self.model
        self.objective, self.own_objective = read_objective(model)
        check_parameters(model)
        check_features(self.X)
        warn_of_cut_names(self.X)
        check_targets(self.y)
        check_integer("n_estimators", model.get_num_boosting_rounds(), 1)
        if (booster := find_own_booster(model)) is not None:
            raise ValueError(
                f"{booster} cannot be trained under constraints: use booster='gbtree', without "
                f"dropped trees."
            )
        if (continued := open_booster(self.arguments["xgb_model"])) is not None:
            refuse_dart_model(continued)

    def settings(self) -> LibrarySettings:
        model = self.model
        with preserve_random_state(model):
            native = model.get_xgb_params()
        choose_array_module(native.get("device"), model.verbosity)
        rate = native.get("eta", model.learning_rate)
        return LibrarySettings(
            check_number("learning_rate", 0.3 if rate is None else rate),
            model.get_num_boosting_rounds(),
            random_state=model.random_state,
            kernel={"dtype": np.float32, "objective": self.objective},
            # Leaves cannot scale the starting scores that are part of a row's score.
            has_scale=self.arguments["base_margin"] is None
            and self.arguments["base_margin_eval_set"] is None,
            tree_limits=self.tree_limits,
        )

    def check_labels(self) -> None:
        """Accept all targets, which are numbers."""

    def labels_of_rows(self) -> Array:
        data = self.fit.data
        assert isinstance(data, TargetData)
        return data.targets

    def native_objective(self) -> dict[str, Any]:
        return self.own_objective

    def driven_objective(self) -> dict[str, Any]:
        native = self.native_objective()
        return {"objective": SQUARED} if native["objective"] in MOVES_LEAVES else native

    def find_intercept(self, native: dict[str, Any]) -> Any:
        data = self.fit.data
        n = data.combined.sizes[0]
        return find_intercept(self.labels_of_rows()[:n], data.sample_weight, native)

    def metric_link(self) -> Callable[[Array], Array]:
        return self.objective.predict

    def restore_objective(self, native: str) -> None:
        """Leave the objective as the user gave it."""

    @contextmanager
    def _driven(self) -> Iterator[Observer]:
        native = self.native_objective()
        metric = self.model.eval_metric
        if native["objective"] in MOVES_LEAVES and metric is None:
            self.model.eval_metric = {"reg:absoluteerror": "mae"}.get(
                native["objective"], "quantile"
            )
        self.params = {**self.params, **native, **self.driven_objective()}
        try:
            with super()._driven() as observer:
                self.model._driven.keeps_objective = True
                yield observer
        finally:
            self.model.eval_metric = metric

    def _trained(self, observer: Observer) -> Trained:
        trained = super()._trained(observer)
        native = self.native_objective()
        if native["objective"] in MOVES_LEAVES:
            with xgb.config_context(verbosity=0):  # It says that trees do not need the level.
                self.model.get_booster().set_param(native)
        return trained

    def rescale(self, affine: Affine) -> None:
        rescale(self.model.get_booster(), affine)
