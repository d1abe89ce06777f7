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
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import xgboost as xgb
from xgboost.core import require_keyword_args

from gbm_constrained._dataframes import take_rows, with_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import (
    check_features,
    check_integer,
    check_labels,
    check_weight,
    preserve_random_state,
)
from gbm_constrained.fit import model_note
from gbm_constrained.fit.callbacks import Progress
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.cross_fit import FoldBoosterFactory
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.native_models import IsOver, PartRows, clone_plain
from gbm_constrained.fit.options import check_number, check_spelling, drop_solver_parameters
from gbm_constrained.problem.losses import MAX_DELTA_STEP, ObjectiveName
from gbm_constrained.problem.rows import count_threads
from gbm_constrained.scorers.base import (
    BoosterAdapter,
    ConstraintStopping,
    LibraryFoldBooster,
    TrainedPart,
    compute_probabilities,
    map_scores,
)
from gbm_constrained.scorers.xgboost import models, parameters
from gbm_constrained.solvers.base import Solver


class XGBConstraintStopping(ConstraintStopping, xgb.callback.TrainingCallback):
    """Early stopping on the constraints, given an ``EarlyStopping`` of XGBoost."""

    def __init__(self, fit: ConstrainedFit, by_metric: xgb.callback.EarlyStopping) -> None:
        super().__init__(fit, by_metric)
        self.before_training = by_metric.before_training
        self.after_training = by_metric.after_training

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Compare the round with the best one; true ends training."""
        round_, best = self.by_metric.starting_round + epoch, self.by_constraints
        holds = best.update(round_, self.fit.merits[epoch + 1])
        if not self.compares_constraints:
            # Rounds that break the constraints are not counted, whatever their criterion is.
            return holds and bool(self.by_metric.after_iteration(model, epoch, evals_log))
        if best.best == round_:
            model.set_attr(best_iteration=str(round_), best_score=str(best.criterion))
        return self.is_alone and bool(round_ - best.best >= self.by_metric.rounds)


MakeMatrix: TypeAlias = Callable[[Bool], xgb.DMatrix]
"""Function that makes the matrix of some rows, given a boolean for each row."""


def read_matrix(parent: xgb.XGBClassifier, X: Any, base_margin: Any = None) -> xgb.DMatrix:
    """Make the matrix of a table as its parent does, to score the rows."""
    return xgb.DMatrix(
        X,
        base_margin=base_margin,
        missing=parent.missing,
        enable_categorical=parent.enable_categorical,
        feature_types=parent.feature_types,
        nthread=parent.n_jobs,
    )


def take_start(base_margin: Any, rows: Codes) -> Any:
    """Take the scores that some rows start from, if there are any."""
    return None if base_margin is None else take_rows(base_margin, rows)


def read_in_parts(
    parent: xgb.XGBClassifier, X: Any, base_margin: Any, rows: Codes
) -> Iterator[xgb.DMatrix]:
    """Read rows of a table once more, in parts, for scores that are seldom asked for."""
    X, n_together = with_rows(X), 1 << 16
    for start in range(0, max(rows.size, 1), n_together):
        part = rows[start : start + n_together]
        yield read_matrix(parent, take_rows(X, part), take_start(base_margin, part))


class HostFeatures:
    """Features in main memory, read once, from which matrices of some rows are made.

    XGBoost takes longer to read a table of pandas than to bin its numbers. Arrays need no reading.
    Held-out rows are scored by their values, which is faster than by bins.

    Parameters
    ----------
    parent : XGBClassifier
        The classifier, whose parameters say how features are read.
    X : table or array
        Features of all rows.
    base_margin : array-like or None
        Scores that all rows start from.
    """

    def __init__(self, parent: xgb.XGBClassifier, X: Any, base_margin: Any) -> None:
        self.parent, self.base_margin, self.bins = parent, base_margin, None
        # Boosters keep this function, and not the features.
        self.read_again = functools.partial(read_in_parts, parent, X, base_margin)
        self.described = {"enable_categorical": parent.enable_categorical}
        if type(X) is np.ndarray:
            self.values = X
            self.described |= {"feature_types": parent.feature_types, "missing": parent.missing}
            return
        read = read_matrix(parent, with_rows(X))
        self.values = read.get_data()
        self.described |= {
            name: getattr(read, name) for name in ("feature_names", "feature_types")
        }

    def training(self, rows: Codes, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the bins of the first one."""
        make = functools.partial(xgb.XGBClassifier._create_dmatrix, self.parent, **self.described)
        start = take_start(self.base_margin, rows)
        matrix = make(self.bins, data=self.values[rows], base_margin=start, **of_rows)
        if self.bins is None:  # One row is enough to keep them.
            self.bins = make(matrix, data=self.values[:1])
        return matrix

    def held(self, rows: Codes) -> Any:
        """Make the matrix of held-out rows."""
        start = take_start(self.base_margin, rows)
        values, n_threads = self.values[rows], self.parent.n_jobs
        return xgb.DMatrix(values, base_margin=start, nthread=n_threads, **self.described)


class CardFeatures:
    """An array of features whose rows are binned on a graphics card, batch by batch.

    XGBoost bins an array in main memory on the processor, which takes longer than to grow the
    trees. The matrix of the returned model is made so, as its parent makes it.
    """

    def __init__(
        self, parent: xgb.XGBClassifier, X: Array, base_margin: Any, array_module: Any
    ) -> None:
        self.parent, self.X, self.base_margin = parent, X, base_margin
        self.array_module, self.bins = array_module, None

    def training(self, rows: Codes, *, feature_weights: Any = None, **of_rows: Any) -> Any:
        """Make the matrix that trees are grown on, with the bins of the first one."""
        matrix = self.held(rows, **of_rows)
        if feature_weights is not None:
            matrix.set_info(feature_weights=feature_weights)
        self.bins = matrix if self.bins is None else self.bins
        return matrix

    def held(self, rows: Codes, **of_rows: Any) -> Any:
        """Make the matrix of held-out rows, binned as the trees split."""
        parent = self.parent
        if self.base_margin is not None:
            of_rows["base_margin"] = take_rows(self.base_margin, rows)
        given = {"feature_types": parent.feature_types, **of_rows}
        return xgb.QuantileDMatrix(
            _Batches(self.X, rows, given, self.array_module),
            ref=self.bins,
            missing=parent.missing,
            enable_categorical=parent.enable_categorical,
            nthread=parent.n_jobs,
            max_bin=parent.max_bin,
        )


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
        part = slice(self.start, self.start + (1 << 19))
        rows = self.rows[part]
        if not rows.size:
            return False
        given = {
            name: value[part] if isinstance(value, np.ndarray) else value
            for name, value in self.given.items()
        }
        input_data(data=self.array_module.asarray(self.X[rows]), **given)
        self.start = part.stop
        return True

    def reset(self) -> None:
        """Begin anew, as XGBoost asks for several times."""
        self.start = 0


class MatrixFeatures:
    """Features of which the user makes the matrix of some rows, with the scores they start from.

    Parameters
    ----------
    parent : XGBClassifier
        The classifier, whose `make_matrix` is the function of the user.
    n_rows : int
        Number of all rows.
    """

    def __init__(self, parent: xgb.XGBClassifier, n_rows: int) -> None:
        self.parent, self.n_rows = parent, n_rows

    def training(self, rows: Codes, *, feature_weights: Any = None, **of_rows: Any) -> Any:
        """Make the matrix of some rows, with the labels and weights of all rows."""
        is_inside = np.zeros(self.n_rows, dtype=bool)
        is_inside[rows] = True
        matrix = self.parent.make_matrix(is_inside)
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

    held = training  # without labels


FoldFeatures: TypeAlias = HostFeatures | CardFeatures | MatrixFeatures
"""Makes matrices of some of the rows of a fit, to grow trees on and to measure constraints by."""


def read_features(
    parent: xgb.XGBClassifier, X: Any, base_margin: Any, array_module: Any
) -> FoldFeatures:
    """Read the features of a fit whose kernels have the given module of arrays."""
    if getattr(parent, "make_matrix", None) is not None:
        return MatrixFeatures(parent, len(X))
    is_binned = parent.tree_method in ("hist", None, "auto") and parent.booster != "gblinear"
    if array_module is np or type(X) is not np.ndarray or X.dtype == object or not is_binned:
        return HostFeatures(parent, X, base_margin)
    return CardFeatures(parent, X, base_margin, array_module)


# Attributes of a fit that the library's own file leaves out.
LIBRARY_ATTRIBUTES = {"evals_result_": dict}
Method = TypeVar("Method", bound=Callable[..., Any])


# Makes a method take keyword arguments by position as the parent does: with a warning.
by_keyword: Callable[[Method], Method] = require_keyword_args(error=False)


class KeptObjective(dict[str, Any]):
    """Parameters whose objective stays when the parent's fit sets another one."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "objective":
            super().__setitem__(name, value)


# The parent comes next to the mixin, and XGBoost looks for parameters in the first two bases.
_Parent: Any = xgb.XGBModel if TYPE_CHECKING else object


class DrivenXGBMixin(_Parent):
    """Methods of an estimator of XGBoost that a solver drives."""

    n_jobs: Any
    objective: Any
    eval_metric: Any
    callbacks: Any
    early_stopping_rounds: Any
    feature_weights: Any
    _doc_link_module = "gbm_constrained"
    _driven: XGBoostAdapter  # while a solver drives the parent's ``fit``
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
        note = model_note.write_note(self, booster.num_boosted_rounds(), library)
        booster.set_attr(**{model_note.NAME: note})
        try:
            super().save_model(fname)
        finally:
            booster.set_attr(**{model_note.NAME: None})

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
        with model_note.unchanged_on_error(self):
            self.__dict__.pop("_Booster", None)  # The parent would load into this booster.
            try:
                parameters.check_complete(fname)
                super().load_model(fname)
                booster = self.get_booster()
                text = booster.attr(model_note.NAME)
            # XGBoost raises ValueErrors, and an AssertionError for an empty attribute.
            except (ValueError, AssertionError) as error:
                reason = str(error).partition("\nStack trace:")[0] or "an attribute is empty"
                raise xgb.core.XGBoostError(f"{source} cannot be loaded: {reason}") from error
            note = model_note.read_note(
                text,
                self,
                LIBRARY_ATTRIBUTES,
                rounds=booster.num_boosted_rounds(),
                n_classes=getattr(self, "n_classes_", 0),
                source=source,
            )
            remove_report(self)
            booster.set_attr(**{model_note.NAME: None})
            self.__dict__.pop("evals_result_", None)
            self._class_labels = None if note is None else note.classes
            model_note.forget_constraints(self)
            if note is not None:
                note.restore(self)
                self.__dict__.update(note.library)
                booster.set_param({"nthread": self.n_jobs or 0})
        return self

    def _check_fit(self, given: dict[str, Any]) -> None:
        check_spelling(self, getattr(self, "kwargs", None) or {})

    def _write_booster(self) -> bytes:
        return bytes(self.get_booster().save_raw("ubj"))

    def _booster_state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        return {
            "model": np.frombuffer(self._write_booster(), np.uint8),
            "config": self.get_booster().save_config(),
            "records": getattr(self, "evals_result_", None),
        }

    def _merge_boosters(self, members: Sequence[Any]) -> None:
        """Take the booster whose raw score is the mean of those of several models."""
        self._Booster = models.merge_boosters([model.get_booster() for model in members])
        self.__dict__.pop("evals_result_", None)  # of one of them alone

    def _make_matrix(self, ref: Any, **given: Any) -> Any:
        """Make a matrix as the parent does."""
        return super()._create_dmatrix(ref, **given)

    # Private in XGBoost, and the only way to its cached margins of training and evaluation rows.
    # Should XGBoost stop calling this method, the adapter finds no matrix and raises an error.
    def _create_dmatrix(self, ref: Any, **kwargs: Any) -> Any:
        matrix = self._make_matrix(ref, **kwargs)
        driven = self.__dict__.get("_driven")
        if driven is not None:
            if ref is None:
                driven.matrices.append(self._scored(matrix, kwargs))
                # XGBoost reads both in every round, by JSON, for an objective that uses neither.
                # A copy to the same place takes a fraction of that time.
                for name in ("get_label", "get_weight"):
                    values = getattr(matrix, name)()
                    copy = functools.partial(np.positive, values, np.empty_like(values))
                    setattr(matrix, name, copy)
            else:
                X, y = kwargs["data"], kwargs["label"]
                # XGBoost may make no matrix for sets that are the training rows.
                if next(held for X_i, y_i, held in driven.remaining if X_i is X and y_i is y):
                    driven.matrices.append(self._scored(matrix, kwargs))
        return matrix

    def _scored(self, matrix: Any, given: Mapping[str, Any]) -> Any:
        """Give a matrix of the same rows on which scores are those of ``predict``."""
        if self._driven.is_divisible:
            return matrix
        # Trees of the continued model split elsewhere than at the bins of these rows.
        names = ("data", "base_margin", "missing", "enable_categorical", "feature_types")
        return xgb.DMatrix(**{name: given[name] for name in names}, nthread=self.n_jobs)


class XGBFoldBooster(LibraryFoldBooster):
    """A booster of XGBoost on some of the rows, grown as the parent's own ``fit`` would.

    Parameters
    ----------
    features : FoldFeatures
        Makes the matrices of the rows, which are freed after growth where they can be read again.
    native : dict
        Parameters of the native learner.
    fold, solver
        As of :class:`LibraryFoldBooster`.
    **of_rows
        Labels, weights and weights of features of the rows that the booster is grown on.
    """

    def __init__(
        self,
        features: FoldFeatures,
        native: dict[str, Any],
        fold: Fold,
        solver: Solver | None,
        **of_rows: Any,
    ) -> None:
        super().__init__(fold, solver)
        training = features.training(fold.training, **of_rows)
        self.matrices = {"training": training, "held": features.held(fold.held)}
        # The features themselves are freed with the factory of the boosters.
        self.read_again, self.native = getattr(features, "read_again", None), native
        self.names = training.feature_names
        self.booster = self._make_booster()
        # All other callbacks are about the model that is returned.
        scheduler, callbacks = xgb.callback.LearningRateScheduler, features.parent.callbacks or ()
        self.schedulers = [c for c in callbacks if isinstance(c, scheduler)]

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

    def _margin(self, name: str, rounds: int | None) -> Array:
        """Score the rows of a matrix, which is read again once it has been freed."""
        rounds = rounds or 0
        if name in self.matrices:
            return self._predict(self.matrices[name], rounds)
        if rounds in (0, self.booster.num_boosted_rounds()):
            return self._final[name]
        assert self.read_again is not None
        parts = self.read_again(self.rows[name])
        return np.concatenate([self._predict(part, rounds) for part in parts])

    def _predict(self, matrix: Any, rounds: int = 0, *, training: bool = False) -> Array:
        scores = self.booster.predict(
            matrix,
            output_margin=True,
            iteration_range=(0, rounds),
            validate_features=False,
            training=training,
        )
        return models.as_scores(scores, self.native.get("num_class", 1))

    def state(self) -> State:
        return {"model": np.frombuffer(self.booster.save_raw("ubj"), np.uint8)}

    def restore(self, state: State) -> None:
        self.booster = self._make_booster(xgb.Booster(model_file=bytearray(state["model"])))

    def release(self) -> None:
        self.solver = None
        if self.read_again is not None:
            self._final = {name: self._predict(one) for name, one in self.matrices.items()}
            self.matrices = {}
            self.booster.reset()


class XGBoostAdapter(BoosterAdapter, xgb.callback.TrainingCallback):
    """Drives XGBoost through one ``fit`` of a classifier, and is a callback of it.

    XGBoost keeps the margins of matrices and adds the new trees only. The booster that its ``fit``
    returns is a copy without these margins, hence the last ones of the training rows are kept.

    Attributes
    ----------
    params : dict
        Parameters of the native learner beside the user's.
    matrices : list
        Matrices that the parent's fit has made: training rows, and held-out evaluation sets.
    grown_before : int
        Rounds of the model that was continued.
    stopping : list of XGBConstraintStopping
        Callbacks that take the place of early stopping, if constraints decide when to stop.
    """

    continuation = "xgb_model"
    starting = "base_margin"
    of_sets = ("sample_weight_eval_set", "base_margin_eval_set")
    of_bins = ("max_bin", "make_matrix")
    records = "evals_result_"
    order_of_scores = "C"
    compares_names = True
    predict_takes_start = True
    patience = "early_stopping_rounds"
    editing: ClassVar = models
    reading: ClassVar = parameters
    # Whether the library's objective stays beside gradients of a solver, where the parent's fit
    # would put the squared error.
    keeps_objective: ClassVar[bool] = False
    # Boosters set their verbosity for the whole process.
    measuring = staticmethod(functools.partial(xgb.config_context, verbosity=0))

    def __init__(self, *given: Any, is_observed: bool) -> None:
        super().__init__(*given, is_observed=is_observed)
        self.params: dict[str, Any] = {}
        self.sets: list[tuple[Any, Any, bool]] = []  # X_i, y_i, and whether they are held out.
        self.remaining = iter(self.sets)
        self.matrices: list[Any] = []
        self.grown_before = 0
        self.stopping: list[XGBConstraintStopping] = []

    def before_training(self, model: Any) -> Any:
        """Count the rounds of a continued model, and observe its scores."""
        self.grown_before = model.num_boosted_rounds()
        if any(map(self.moves_multipliers, self.fit.evaluation_sets[-1:])):
            self.fit.measured.observe(self._score(model, self.matrices[-1]))
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Return whether a callback of the user or the time limit ends training."""
        # After an iteration, the callbacks that follow would not see its round.
        if self.fit.notifier.is_training_over(epoch):
            return True
        if not self.fit.measured.has_multipliers:
            self.fit.solver.count_round(lambda: self._score(model, self.matrices[0]))
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Measure the evaluation sets."""
        rounds = self.fit.solver.rounds
        if self.fit.is_measured_after(rounds):
            for held, matrix in zip(self.fit.evaluation_sets, self.matrices[1:], strict=True):
                self.measure_round(held, rounds, self._score(model, matrix))
        return False

    def after_training(self, model: Any) -> Any:
        """Take the last margins of the training rows, and the rounds that they are of."""
        self.rounds = model.num_boosted_rounds() - self.grown_before
        if self.matrices:
            self.train_margin = self._score(model, self.matrices[0])
        return model

    def grown_after(self, rounds: int) -> int:
        return self.grown_before + rounds

    def _score(self, booster: Any, matrix: Any, end: int = 0) -> Array:
        """Score rows by the rounds of a booster up to one, by default all."""
        scores = booster.predict(matrix, output_margin=True, iteration_range=(0, end))
        return models.as_scores(scores, self.fit.data.columns)

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        super().fit_plain(factor, is_over)
        self.model.get_booster().set_attr(**{model_note.NAME: None})  # of a continued model

    def leave_out_rounds(self) -> None:
        if self.can_fold():
            # Readers of the booster that do not know the best iteration would take all rounds.
            self.model._Booster = models.best_rounds(self.model.get_booster())

    def list_for_each(self, name: str) -> Sequence[Any]:
        values, n_sets = self.arguments[name], len(self.pairs)
        if values is None:
            return [None] * n_sets
        if self.arguments["eval_set"] is None or len(values) != n_sets:
            raise ValueError(
                f"{name} must hold one entry for each of the {n_sets} evaluation sets, got "
                f"{len(values)}: give eval_set as well, and None for sets that have none."
            )
        return list(values)

    def prepare_part(self, plain: Any, part: PartRows) -> dict[str, Any]:
        given = {**self.arguments, "verbose": False}
        if part.is_joint:
            plain.set_params(
                objective="multi:softprob", scale_pos_weight=None, eval_metric=None,
                early_stopping_rounds=None, callbacks=None,
            )  # fmt: skip
            given.update(dict.fromkeys(("eval_set", *self.of_sets, "base_margin")))
        if part.rounds is not None:
            # XGBoost seeds no training that goes on: rows that it draws would depend on the
            # trainings before this one.
            plain.set_params(n_estimators=part.rounds, seed_per_iteration=True)
        return given

    @contextmanager
    def limited_rounds(
        self, model: Any, given: dict[str, Any], is_over: IsOver | None
    ) -> Iterator[None]:
        own = model.callbacks
        if is_over is not None:
            limit = xgb.callback.TrainingCallback()
            limit.before_iteration = lambda model, epoch, evals_log: is_over(epoch)
            model.callbacks = [*(own or ()), limit]
        try:
            yield
        finally:
            model.callbacks = own

    def restore(self, state: State, part: PartRows) -> TrainedPart:
        plain = clone_plain(self.model)
        xgb.XGBClassifier.load_model(plain, bytearray(state["model"]))
        plain.get_booster().load_config(state["config"])
        if state["records"] is not None:
            plain.evals_result_ = state["records"]
        return TrainedPart(plain, self.starting_scores())

    def take(self, model: Any) -> None:
        super().take(model)
        if not callable(self.model.objective):
            self.model.objective = model.model.objective  # which fit sets by the number of classes

    def can_fold(self) -> bool:
        model = self.model
        is_forest = model.booster in (None, "gbtree") and not callable(model.objective)
        return is_forest and models.find_kind(model.get_booster()) == "gbtree"

    def check_adjustable(self, space: str) -> None:
        super().check_adjustable(space)
        if self.starting_scores() is not None:
            raise ValueError(
                "base_margin= starts training from scores that are no part of the model, and a "
                "black-box metric is called with scores of the model alone: leave it out."
            )
        if (booster := self.without_gradients()) is not None:
            raise ValueError(
                f"space={space!r} changes a sum of trees whose scores are log odds, which "
                f"{booster} does not make: use objective='binary:logistic' and booster='gbtree'."
            )

    def check_parameters(self) -> None:
        model, continued = self.model, self.arguments["xgb_model"]
        self.check_objective()
        parameters.check_parameters(model)
        check_features(self.X)
        parameters.warn_of_cut_names(self.X)
        check_integer("n_estimators", self.parameter("num_iterations"), 1)
        booster = continued
        if isinstance(continued, (str, os.PathLike)):
            booster = xgb.Booster(model_file=continued)
        elif isinstance(continued, xgb.XGBModel):
            booster = continued.get_booster()
        if isinstance(booster, xgb.Booster):
            if models.find_kind(booster) == "dart":  # XGBoost would take its booster over.
                raise ValueError(
                    "xgb_model is a model of DART, which cannot be continued under constraints: "
                    "training would rescale its trees. Continue a model of booster='gbtree'."
                )
            model_note.refuse_threshold(continued, booster.attr(model_note.NAME), "xgb_model")

    def check_objective(self) -> None:
        """Refuse objectives that constraints cannot be added to."""
        if self.model.objective not in parameters.NATIVE_OBJECTIVES:
            raise ValueError(
                f"objective={self.model.objective!r} cannot be trained under constraints: leave "
                f"it at 'binary:logistic' (softmax is chosen for several classes)."
            )

    def settings_of_task(self) -> dict[str, Any]:
        """Give the settings about classes."""
        model, weight = self.model, self.model.scale_pos_weight
        array_module = parameters.choose_array_module(self.parameter("device"), model.verbosity)

        def factor_of(classes: Array, _: Any) -> Array:
            is_weighted = classes.size == 2 and weight is not None
            return np.array([1.0, weight]) if is_weighted else np.ones(classes.size)

        # XGBoost gives functions the weights of rows by this name.
        takes_weights = not callable(model.objective) or (
            "sample_weight" in inspect.signature(model.objective).parameters
        )
        return {
            "objective_factor": factor_of,
            "softmax_hessian": lambda k: 2.0,
            "takes_weights": takes_weights,
            "without_stages": self.find_without_stages(),
            "kernel": {
                "dtype": np.float32,
                "hessian_floor": 1e-16,
                "array_module": array_module,
                "n_threads": count_threads(self.parameter("num_threads")),
            },
        }

    def progress(self) -> Progress | None:
        if not self.arguments["verbose"] or self.model.verbosity == 0 or self.communicator.rank:
            return None
        monitors = xgb.callback.EvaluationMonitor
        is_printing = any(isinstance(c, monitors) for c in self.callbacks)
        return Progress("round", lines=bool(self.arguments["eval_set"]) or is_printing)

    def check_labels(self) -> None:
        # The classes of the data may be the labels that these positions stand for.
        classes, _ = check_labels(self.y, communicator=self.communicator)
        expected = np.arange(classes.size)
        if not np.array_equal(classes, expected):
            raise ValueError(
                f"Invalid classes inferred from unique values of `y`.  Expected: {expected}, got "
                f"{classes}. Encode y first, as scikit-learn's LabelEncoder does."
            )
        num_class = self.parameter("num_class")
        if classes.size == 2 and num_class not in (None, 0, 1):
            raise ValueError(
                f"num_class={num_class!r} cannot be trained under constraints where y has two "
                f"classes, which have one score: leave it out, and objective at 'binary:logistic'."
            )
        n_classes = self.fit.data.classes.size
        self.own_objective = {"objective": "binary:logistic"}
        if n_classes > 2:
            self.own_objective = {"objective": "multi:softprob", "num_class": n_classes}

    def check_sets(self, weights: Sequence[Any]) -> bool:
        model, data, native = self.model, self.fit.data, self.own_objective
        if model.base_score is None and self.is_divisible:
            learner = {"nthread": model.n_jobs, **native}
            if data.classes.size == 2 and model.scale_pos_weight is not None:
                learner["scale_pos_weight"] = model.scale_pos_weight
            self.params["base_score"] = self.find_intercept(learner)
        is_weighted = any(weight is not None for weight in weights)
        parameters.check_metric(
            model, native, is_evaluated=bool(self.pairs), is_weighted=is_weighted
        )
        for i, (_, y_i) in enumerate(self.pairs):
            name = f"sample_weight_eval_set[{i}]"
            check_weight(weights[i], len(y_i), name, self.communicator)
        return bool(self.pairs)

    def find_intercept(self, native: dict[str, Any]) -> Any:
        """Find the intercept that XGBoost would fit to the training rows of all machines."""
        data, cells = self.fit.data, self.fit.problem.cells
        if self.communicator.holds_all_rows:
            y = data.y if data.targets is None else data.targets[: data.combined.sizes[0]]
            return parameters.find_intercept(y, data.sample_weight, native)
        first, k = cells.views[0].cells, cells.classes.size
        of_class = np.bincount(cells.labels[first], cells.weight[first], k)
        n = k if self.communicator.rank == 0 else 0  # The first machine stands for all rows.
        return parameters.find_intercept(np.arange(k)[:n], of_class[:n], native)

    @property
    def driven_objective(self) -> dict[str, Any]:
        """The library's objective that stands beside gradients of a solver."""
        moves = self.own_objective["objective"] in MOVES_LEAVES
        return {"objective": SQUARED} if moves else self.own_objective

    def given(self) -> Mapping[str, Any]:
        names = ("verbose", "xgb_model")
        return {name: value for name, value in self.arguments.items() if name not in names}

    def prepare(self, held_out: list[int]) -> None:
        if self.pairs:
            parameters.check_stoppers(self.model, self.own_objective, len(self.pairs))
        self.sets = [(*pair, i in held_out) for i, pair in enumerate(self.pairs)]

    def make_factory(self) -> FoldBoosterFactory:
        """Make the factory of the fold boosters, all of which share the bins of the first."""
        model, combined, data = self.model, self.fit.data.combined, self.fit.data
        array_module = self.fit.problem.kernel.get("array_module", np)
        if (bins := self.fold_bins()) is not None:
            model = copy.copy(model)
            model.max_bin = bins
        features = read_features(model, combined.X, data.take(self.start), array_module)
        of_features = self.arguments["feature_weights"]
        of_features = model.feature_weights if of_features is None else of_features
        label, weight = combined.classes_of_rows, combined.sample_weight
        weight = None if weight is None else np.asarray(weight)
        with preserve_random_state(model):
            native = {**model.get_xgb_params(), **self.params, **self.driven_objective}
        native.pop("n_estimators", None)
        native.pop("eval_metric", None)  # Metrics are about the returned model.
        native["verbosity"] = 0  # The fit of the returned model gives the same warnings.

        def make(fold: Fold, solver: Solver | None) -> XGBFoldBooster:
            rows = fold.training
            of_rows = {"label": label[rows], "weight": None if weight is None else weight[rows]}
            given = {**of_rows, "feature_weights": of_features}
            return XGBFoldBooster(features, native, fold, solver, **given)

        return make

    def train(self) -> None:
        data = self.fit.data
        # Rows of further data sets without a label are in no objective: any class will do.
        combined = data.combined
        labels = combined.classes_of_rows if data.targets is None else data.targets
        given = {
            **self.arguments,
            "sample_weight": combined.sample_weight,
            "base_margin": self.fit.data.take(self.start),
        }
        # XGBoost recognises evaluation sets that are the training rows by the very objects. It
        # then makes one matrix of both, and predicts it once.
        names = {"sample_weight_eval_set": "sample_weight", "base_margin_eval_set": "base_margin"}
        own = self.X, self.y, *(self.arguments[name] for name in names.values())
        for i, pair in enumerate(self.pairs):
            further = [None if given[each] is None else given[each][i] for each in names]
            if combined.X is self.X and all(map(operator.is_, (*pair, *further), own)):
                given["eval_set"] = [*given["eval_set"]]
                given["eval_set"][i] = combined.X, labels
                for each, name in names.items():
                    if given[each] is not None:
                        given[each] = [*given[each]]
                        given[each][i] = given[name]
        with self._driven():
            self.native(combined.X, labels, **given)
            self.model.get_booster().set_attr(**{model_note.NAME: None})  # of a continued model
            self._leave_out_worse_rounds()

    def finish(self) -> None:
        if any(start is not None for start in (self.starting_scores(), *self.starts)):
            report, name = self.model.constraint_report_, "{}, with base_margin"
            report["rows"] = report["rows"].map(name.format, "ignore")
            issue_warning(
                "The report holds for predict(X, base_margin=...): the constraints were measured "
                "with the base_margin that was given to fit. Results of predict(X) without it, "
                "which audit() and the tools of scikit-learn ask for, are others.",
                "GC207",
            )

    @contextmanager
    def _driven(self) -> Iterator[None]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards.

        Without multipliers the objective is the parent's own, and the solver keeps its history.
        """
        model, fit = self.model, self.fit

        def objective(y_true: Array, margin: Array, sample_weight: Any = None) -> Any:
            return fit.solver(models.as_scores(margin, fit.data.columns))

        names = ("objective", "eval_metric", "callbacks", "early_stopping_rounds")
        own = {name: getattr(model, name) for name in names}
        if self.keeps_objective:
            self.params = {**self.params, **self.own_objective, **self.driven_objective}
            if model.eval_metric is None:
                model.eval_metric = MOVES_LEAVES.get(self.own_objective["objective"])
        self.remaining, self.matrices, model._driven = iter(self.sets), [], self
        native = self.driven_objective["objective"]
        link: Any = compute_probabilities if fit.measured.has_multipliers else None
        if self.keeps_objective:
            link = self.objective.predict
        elif model.objective == "multi:softmax" and fit.data.classes.size > 2:
            link = parameters.find_classes
        model.objective = objective if fit.measured.has_multipliers else native
        if link is not None:  # The parent hands its metrics no scores.
            change = functools.partial(map_scores, function=link)
            model.eval_metric = parameters.map_metrics(model.eval_metric, change)
        self._stop_by_constraints()
        try:
            yield
        finally:
            fit.hide_progress()
            for name, value in own.items():
                setattr(model, name, value)
            del model._driven
            for matrix in self.matrices[:1]:  # It may be the user's.
                for name in ("get_label", "get_weight"):
                    vars(matrix).pop(name, None)
        if not self.keeps_objective and model.objective != native:
            model.objective = native  # as the parent's fit does for several classes
        elif native != self.own_objective["objective"]:
            with xgb.config_context(verbosity=0):  # It says that trees do not need the level.
                model.get_booster().set_param(self.own_objective)

    def _stop_by_constraints(self) -> None:
        """Let early stopping come last, and look at the constraints if the user asks for it."""
        model, others, stopping = self.model, self.model.callbacks or [], []
        if self.fit.options.early_stopping_on != "metric":
            stopping = parameters.list_stoppers(model)
            others = [c for c in others if c not in stopping]
            if model.early_stopping_rounds is not None:
                stopping.append(xgb.callback.EarlyStopping(rounds=model.early_stopping_rounds))
            model.early_stopping_rounds = None
        self.stopping = [XGBConstraintStopping(self.fit, c) for c in stopping]
        model.callbacks = [*others, self, *self.stopping]

    def _leave_out_worse_rounds(self) -> None:
        """Leave out the rounds of the trained booster that follow the best one."""
        model = self.model
        if not self.matrices:
            raise RuntimeError(
                f"xgboost {xgb.__version__} does not build its matrices through _create_dmatrix: "
                f"this version of gbm_constrained does not support it."
            )
        booster = model.get_booster()
        end = booster.num_boosted_rounds()
        best = booster.attr("best_iteration")  # ``predict`` uses the rounds up to this one.
        if best is not None and int(best) < self.grown_before:
            # The attribute is of the continued model, and would leave the new trees out.
            booster.set_attr(best_iteration=None, best_score=None)
            best = None
        if best is not None and int(best) + 1 < end:
            # Readers of the booster that do not know the best iteration would take all rounds.
            end = int(best) + 1
            model._Booster = models.keep_first_rounds(booster, end)
        if end != self.grown_after(self.rounds):
            self.rounds, self.train_margin = end - self.grown_before, None
        self.held = dict(zip(self.fit.evaluation_sets, self.matrices[1:], strict=True))

    def margin(self, rounds: int) -> Array:
        return self.score_rows(self.matrices[0], rounds)

    def read_rows(self, X: Any, start: Any) -> xgb.DMatrix:
        return read_matrix(self.model, X, start)

    def score_rows(self, rows: xgb.DMatrix, rounds: int) -> Array:
        return self._score(self.model.get_booster(), rows, self.grown_after(rounds))

    def truncate(self, rounds: int) -> None:
        model, end = self.model, self.grown_after(rounds)
        stopped = model.get_booster().attr("best_iteration") is not None
        model._Booster = models.keep_first_rounds(model.get_booster(), end)
        if stopped:  # ``predict`` uses the rounds up to the best iteration.
            score = self._find_criterion(rounds)
            best_score = None if score is None else str(score)
            model._Booster.set_attr(best_iteration=str(end - 1), best_score=best_score)

    def _find_criterion(self, rounds: int) -> float | None:
        """Find what early stopping compared after some rounds; None if a callback has stopped."""
        model, data, metric = self.model, None, None
        if self.stopping and self.stopping[-1].compares_constraints:
            return self.fit.merits[rounds].criterion
        if self.stopping or model.early_stopping_rounds is None:  # XGBoost calls its own last.
            stopping = [c.by_metric for c in self.stopping] or parameters.list_stoppers(model)
            if not stopping:
                return None
            data, metric = stopping[-1].data, stopping[-1].metric_name
        results = model.evals_result_[data or list(model.evals_result_)[-1]]
        return float(results[metric or list(results)[-1]][rounds - 1])


SQUARED = "reg:squarederror"
OBJECTIVES: dict[str, ObjectiveName] = {
    "reg:squarederror": "squared",
    "reg:pseudohubererror": "pseudo_huber",
    "reg:absoluteerror": "absolute",
    "reg:quantileerror": "quantile",
    "count:poisson": "poisson",
    "reg:tweedie": "tweedie",
    "reg:gamma": "gamma",
}
# Objectives whose leaves XGBoost moves after it has grown them, and their metrics.
MOVES_LEAVES = {"reg:absoluteerror": "mae", "reg:quantileerror": "quantile"}
# Names and defaults of the parameters of objectives.
PARAMETERS: dict[str, tuple[str, float | None]] = {
    "reg:pseudohubererror": ("huber_slope", 1.0),
    "reg:quantileerror": ("quantile_alpha", None),
    "reg:tweedie": ("tweedie_variance_power", 1.5),
}


class XGBoostRegressionAdapter(XGBoostAdapter):
    """Drives XGBoost through one ``fit`` of a regressor."""

    keeps_objective = True

    def check_objective(self) -> None:
        model, parameter = self.model, {}
        name = SQUARED if model.objective is None else model.objective
        if str(name) in PARAMETERS:
            key, default = PARAMETERS[name]
            given = self.parameter(key, default)
            values = np.ravel(given) if given is not None else np.zeros(0)
            if values.size != 1:
                raise ValueError(
                    f"objective={name!r} needs {key}= with one number under constraints, got "
                    f"{given!r}: a fit under constraints has one prediction for each row."
                )
            parameter = {key: values[0]}
        if (outputs := self.parameter("num_target", 1)) != 1:
            raise ValueError(
                f"num_target={outputs!r} asks for several predictions of each row, and a fit "
                f"under constraints has one: leave it out."
            )
        step = self.parameter("max_delta_step", MAX_DELTA_STEP)
        step = check_number("max_delta_step", step)
        self.read_objective(name, name, OBJECTIVES, parameter, step)

    def settings_of_task(self) -> dict[str, Any]:
        parameters.choose_array_module(self.parameter("device"), self.model.verbosity)
        names = ("base_margin", "base_margin_eval_set")
        return {
            "kernel": {"dtype": np.float32, "objective": self.objective},
            # Leaves cannot scale the starting scores that are part of a row's score.
            "has_scale": all(self.arguments[name] is None for name in names),
        }
