"""XGBoost: the drop-in classifier, and how its own fit is driven by a solver.

With a callable objective ``XGBClassifier.fit`` still puts ``binary:logistic`` or
``multi:softprob`` into the booster, so that the trained model is a native one. What it leaves out
is the intercept: XGBoost fits ``base_score`` only under its own objective, hence it is set here
as XGBoost would have set it. Callable metrics are given margins instead of probabilities under a
callable objective; they are wrapped to get probabilities, as they would from the parent.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import xgboost as xgb
from scipy.special import expit, softmax
from xgboost.core import require_keyword_args

from gbm_constrained._dataframes import categories_beyond_ascii
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array
from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.xgboost.callbacks import Observer, RulesStopping
from gbm_constrained.boosters.xgboost.folds import held_matrix, make_fold_booster_factory
from gbm_constrained.boosters.xgboost.model import first_rounds, shift_intercept
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import (
    check_features,
    check_integer,
    check_scores,
    check_weight,
    untouched_random_state,
)
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.rule import MarginShift, Mixture, refuse_random_state
from gbm_constrained.evaluation.feasibility import Feasibility
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.callbacks import ConstraintCallback, check_booster_callbacks
from gbm_constrained.training.checkpoint import refuse_without_constraints
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.evaluation_sets import check_pairs, take_evaluation_sets
from gbm_constrained.training.finalize import FinalModel, finalize
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report, report
from gbm_constrained.training.fitted_report import warn as warn_of_constraints
from gbm_constrained.training.options import (
    Iterate,
    MeasureOn,
    OnInfeasible,
    Probabilities,
    SolverName,
    SolverOptions,
    check_number,
    check_spelling,
    drop_solver_parameters,
    refuse_moved_parameters,
    set_solver_options,
    with_constraints,
)
from gbm_constrained.training.parameter_docs import (
    FITTED_ATTRIBUTES_DOC,
    SOLVER_PARAMETERS_DOC,
    UNSEEN_PARAMETERS_DOC,
)
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.time_limit import TimeLimit, refuse_time_limit_without_constraints

KEEPS_NAMES = (3, 4)  # The first version that does not cut names of categories.
NATIVE_OBJECTIVES = (None, "binary:logistic", "multi:softprob", "multi:softmax")
LIBRARY_ATTRIBUTES = {"evals_result_": dict}  # of a fit, and not in the library's own file
EXACT_COUNTS = 2**24  # Rows of which sums in single precision are exact.
DEFAULT_LEARNING_RATE = 0.3  # XGBoost's own, which it does not tell
Method = TypeVar("Method", bound=Callable[..., Any])


def _by_keyword(method: Method) -> Method:
    """Take keyword arguments by position as the parent does: with a warning."""
    taken: Method = require_keyword_args(error=False)(method)
    return taken


class ConstrainedXGBClassifier(xgb.XGBClassifier, ConstrainedFitAttributes):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""XGBoost classifier trained under constraints on its error rates.

    A real :class:`xgboost.XGBClassifier`: every parameter, method and attribute of the parent is
    there, the booster is a plain XGBoost model, and ``constraints=[]`` is the parent's own fit.

    Parameters
    ----------{SOLVER_PARAMETERS_DOC}{UNSEEN_PARAMETERS_DOC}
    objective : str, default="binary:logistic"
        As in the parent. Constraints need the logistic or softmax objective.
    **kwargs
        Every other parameter of :class:`xgboost.XGBClassifier`.

    Attributes
    ----------{FITTED_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBClassifier, fnr
    >>> clf = ConstrainedXGBClassifier(constraints=[fnr() <= 0.05], n_estimators=300)
    """

    objective: Any
    eval_metric: Any
    callbacks: Any
    early_stopping_rounds: Any
    feature_weights: Any

    # scikit-learn's splitters of groups ask for them by the same name, and mean the same rows.
    __metadata_request__fit: ClassVar = {"groups": True}

    def __init__(
        self,
        *,
        constraints: Any = None,
        positive: Any = None,
        iterate: Iterate = "last",
        measure_on: MeasureOn = "auto",
        n_folds: int = 4,
        holdout_fraction: float | None = None,
        guarantee: Guarantee = None,
        delta: float = 0.05,
        calibration_fraction: float = 0.2,
        probabilities: Probabilities = "shifted",
        on_infeasible: OnInfeasible = "warn",
        early_stopping_on: EarlyStoppingOn = "metric",
        solver: SolverName | SolverMethod = "auto",
        objective: Any = "binary:logistic",
        **kwargs: Any,
    ) -> None:
        refuse_moved_parameters(self, kwargs)
        super().__init__(objective=objective, **kwargs)
        self.constraints = constraints
        self.positive = positive
        self.iterate = iterate
        self.measure_on = measure_on
        self.n_folds = n_folds
        self.holdout_fraction = holdout_fraction
        self.guarantee = guarantee
        self.delta = delta
        self.calibration_fraction = calibration_fraction
        self.probabilities = probabilities
        self.on_infeasible = on_infeasible
        self.early_stopping_on = early_stopping_on
        self.solver = solver

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``solver__tau``."""
        return super().set_params(**set_solver_options(self, params))

    def __sklearn_tags__(self) -> Any:
        return with_constraints(super().__sklearn_tags__(), self.constraints, self.positive)

    def get_xgb_params(self) -> dict[str, Any]:
        """Parameters of the native learner, without those of the solver."""
        params = super().get_xgb_params()
        drop_solver_parameters(params)
        params.update(self.__dict__.get("_fit_params", {}))
        return dict(params)

    @_by_keyword
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        verbose: bool | int | None = True,
        xgb_model: Any = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        feature_weights: Any = None,
        sensitive_features: Any = None,
        datasets: Any = None,
        sensitive_features_eval_set: Sequence[Any] | None = None,
        groups: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedXGBClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`xgboost.XGBClassifier.fit`. Constraints are
        measured as `measure_on` says; their values on each `eval_set` are recorded, the last one
        being the held-out set of the report. Where `base_margin` or `base_margin_eval_set` is
        given, constraints are measured on the decisions of ``predict(X, base_margin=...)``. A fit
        of more than a few seconds shows its progress unless `verbose` is false; beside the lines
        that `verbose` has XGBoost print, in lines.

        Parameters
        ----------
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns, one value per training row, that constraints may group by. Columns of X are
            found there when X is a DataFrame. Prediction never needs them.
        datasets : dict from name to X or (X, y), default=None
            Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are
            not in the objective. Prepared as X is, for no step of a ``Pipeline`` transforms them;
            their groups are columns of X.
        sensitive_features_eval_set : list, default=None
            Sensitive features of each evaluation set. Groups that no training row is of take part
            in the values of an evaluation set, and a warning names them;
            ``measure_on="holdout"`` refuses an evaluation set with such groups.
        groups : array-like of shape (n_samples,), default=None
            Rows of one group are kept together where rows are split to measure constraints.
        constraint_callbacks : sequence of callable, default=None
            Called in each outer iteration with a
            :class:`~gbm_constrained.training.callbacks.ConstraintState`; when one returns True,
            training ends with that iteration.
        checkpoint : str, path-like or Checkpoint, default=None
            A file that the state of the fit is saved to while it goes on. An interrupted fit that
            is called again with the same arguments goes on from there, and gives the model that it
            would have given. It is removed when the fit is done. With samples of rows or columns
            (`subsample`, `colsample_bytree`...) their random streams are begun anew in each round,
            which makes another model than without a checkpoint.
        time_limit : float, default=None
            Seconds after which measuring and training end, at the next outer iteration. Part of
            them is kept for training the model for as many rounds as were measured, and for the
            reports; what was given up is in ``stopping_message_`` and in a warning. A resumed
            fit has the whole limit again.

        Raises
        ------
        TypeError, ValueError
            If constraints, labels or weights do not fit together; before training starts.

        Warns
        -----
        UserWarning
            If X has names of categories that this version of XGBoost cuts, or if the report
            holds only for predictions that are given a ``base_margin``.
        """
        native = functools.partial(
            super().fit,
            eval_set=eval_set,
            verbose=verbose,
            sample_weight_eval_set=sample_weight_eval_set,
            base_margin_eval_set=base_margin_eval_set,
            feature_weights=feature_weights,
        )
        check_spelling(self, getattr(self, "kwargs", None) or {})
        options = SolverOptions.of(self)
        if not options.constraints:
            refuse_without_constraints(checkpoint)
            refuse_time_limit_without_constraints(time_limit)
            native(X, y, sample_weight=sample_weight, base_margin=base_margin, xgb_model=xgb_model)
            self._forget()
            return self
        self._check_supported(options)
        limit = TimeLimit(time_limit)
        check_features(X)
        _warn_of_cut_names(X)
        check_integer("n_estimators", self.get_num_boosting_rounds(), 1)
        saving.refuse_threshold(xgb_model, _note_of(xgb_model), "xgb_model")
        with untouched_random_state(self):
            given_params = self.get_xgb_params()
        learning_rate = given_params.get("eta", self.learning_rate)
        fit = ConstrainedFit(
            options,
            FitArguments(X, y, sample_weight, sensitive_features, datasets, groups),
            LibrarySettings(
                check_number(
                    "learning_rate",
                    DEFAULT_LEARNING_RATE if learning_rate is None else learning_rate,
                ),
                self.get_num_boosting_rounds(),
                objective_factor=self._label_factor,
                softmax_hessian=lambda k: 2.0,
                random_state=self.random_state,
                kernel={"dtype": np.float32, "hessian_floor": 1e-16},
            ),
            progress=self._progress(verbose, eval_set),
            constraint_callbacks=constraint_callbacks,
            limit=limit,
        )
        self._check_classes(fit.data.classes)
        stack = fit.data.combined
        stack.refuse_with(base_margin=base_margin)
        fit.data.alignment.check({"X": X, "y": y, "base_margin": base_margin})
        base_margin = check_scores(
            base_margin, fit.data.whole.sizes[0], fit.data.columns, "base_margin", "C"
        )
        params, objective = {}, _native_objective(fit.data.classes.size)
        if self.base_score is None and xgb_model is None:
            native_params = {"nthread": self.n_jobs, **objective}
            if fit.data.classes.size == 2 and self.scale_pos_weight is not None:
                native_params["scale_pos_weight"] = self.scale_pos_weight
            params["base_score"] = _intercept(fit.data.y, fit.data.sample_weight, native_params)
        own_margin = fit.data.take(base_margin)
        pairs = check_pairs(eval_set, X, by_name=True)
        weights = _of_each(sample_weight_eval_set, eval_set, "sample_weight_eval_set")
        self._check_metric(
            fit.data.classes.size,
            bool(pairs),
            weighted=any(weight is not None for weight in weights),
        )
        starts = _of_each(base_margin_eval_set, eval_set, "base_margin_eval_set")
        for i, (_, y_i) in enumerate(pairs):
            check_weight(weights[i], len(y_i), f"sample_weight_eval_set[{i}]")
            check_scores(starts[i], len(y_i), fit.data.columns, f"base_margin_eval_set[{i}]", "C")
        held_out = take_evaluation_sets(
            fit,
            pairs,
            X,
            y,
            weights,
            starts,
            sensitive_features_eval_set,
            patience=self._stops_early(),
            parameter="early_stopping_rounds",
            evaluated=bool(pairs),
            dart=self.booster == "dart",
        )
        if pairs:
            self._check_judged(fit.data.classes.size, len(pairs))
        fit.data.alignment.warn()
        fit.save_to(
            checkpoint,
            self,
            {
                "X": X,
                "y": y,
                "sample_weight": sample_weight,
                "base_margin": base_margin,
                "eval_set": eval_set,
                "sample_weight_eval_set": sample_weight_eval_set,
                "base_margin_eval_set": base_margin_eval_set,
                "feature_weights": feature_weights,
                "sensitive_features": sensitive_features,
                "datasets": datasets,
                "sensitive_features_eval_set": sensitive_features_eval_set,
                "groups": groups,
            },
        )
        if feature_weights is None:
            feature_weights = self.feature_weights
        with xgb.config_context(verbosity=0):
            fit.measure(
                functools.partial(
                    make_fold_booster_factory,
                    self,
                    fit,
                    {**params, **objective},
                    own_margin,
                    feature_weights,
                ),
                is_divisible=self.booster != "dart" and xgb_model is None,
            )
        sets = [(*pair, i in held_out) for i, pair in enumerate(pairs)]
        driven = self._driven_by(fit, params, sets, continues=xgb_model is not None)
        with saving.unchanged_on_error(self), driven as observer:
            native(
                stack.X,
                stack.y,
                sample_weight=stack.sample_weight,
                base_margin=own_margin,
                xgb_model=xgb_model,
            )
            self._forget()
            model, feasibility = self._conclude(fit, observer, base_margin)
            with_margin = base_margin is not None or any(start is not None for start in starts)
            if with_margin:
                report = self.constraint_report_
                report["rows"] = report["rows"].map("{}, with base_margin".format, "ignore")
        if with_margin:
            _warn_of_base_margin()
        fit.notifier.warn()
        warn_of_constraints(fit, model, feasibility)
        return self

    def _progress(self, verbose: Any, eval_set: Any) -> Progress | None:
        if not verbose or self.verbosity == 0:
            return None
        monitors = xgb.callback.EvaluationMonitor
        prints = bool(eval_set) or any(isinstance(c, monitors) for c in self.callbacks or ())
        return Progress("round", lines=prints)

    def _forget(self) -> None:
        """Forget an earlier fit, and what the file of a model that was continued knows of it."""
        remove_report(self)
        self.get_booster().set_attr(**{saving.NAME: None})

    def save_model(self, fname: Any) -> None:
        """Save the model, its constraints and reports; plain XGBoost reads the same file.

        Parameters
        ----------
        fname : str or path
            Where to; the extension, ``json`` or ``ubj``, says in which form.

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

    def load_model(self, fname: Any) -> ConstrainedXGBClassifier:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none: parameters stay as they are, apart from those that
        the parent reads from it, and what is known of an earlier model is forgotten, with the
        rules of an earlier file.

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
            self.__dict__.pop("_Booster", None)  # the parent would load into it
            try:
                _check_complete(fname)
                super().load_model(fname)
                booster = self.get_booster()
                text = booster.attr(saving.NAME)
            # XGBoost's own errors are of the first kind; of an empty attribute, of the second.
            except (ValueError, AssertionError) as error:
                told = str(error).partition("\nStack trace:")[0] or "an attribute is empty"
                raise xgb.core.XGBoostError(f"{source} cannot be loaded: {told}") from error
            note = saving.read_note(
                text,
                self,
                LIBRARY_ATTRIBUTES,
                rounds=booster.num_boosted_rounds(),
                n_classes=self.n_classes_,
                source=source,
            )
            self._forget()
            self.__dict__.pop("evals_result_", None)
            saving.forget_rules(self)
            if note is not None:
                note.restore(self)
                self.__dict__.update(note.library)
                booster.set_param({"nthread": self.n_jobs or 0})
        return self

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _check_supported(self, options: SolverOptions) -> None:
        if self.objective not in NATIVE_OBJECTIVES:
            raise ValueError(
                f"objective={self.objective!r} cannot be trained under constraints: leave it at "
                f"'binary:logistic' (softmax is chosen for several classes)."
            )
        check_booster_callbacks(
            self.callbacks,
            lambda c: isinstance(c, xgb.callback.TrainingCallback),
            "xgboost.callback.TrainingCallback",
        )
        for name, rounds in [
            ("early_stopping_rounds", self.early_stopping_rounds),
            *(("rounds of EarlyStopping", callback.rounds) for callback in self._stoppers()),
        ]:
            if rounds is not None and not isinstance(rounds, Real):
                raise TypeError(f"{name} must be a number, got {rounds!r}: give an integer.")
        if (
            sum(map(callable, self._metrics())) > 1
        ):  # which the parent, too, says only while it trains
            raise NotImplementedError(
                "eval_metric holds several functions. Using multiple custom metrics is not yet "
                "supported by XGBoost: leave one, beside names of its own metrics."
            )
        if self.booster == "gblinear":
            raise ValueError(
                "booster='gblinear' cannot be trained under constraints: use 'gbtree' or 'dart', "
                "or ConstrainedLogisticRegression for a linear model."
            )
        if options.iterate in ("best", "randomized") and self.booster == "dart":
            raise ValueError(
                f"iterate={options.iterate!r} needs prefixes of the ensemble, which "
                f"booster='dart' rescales as it grows: use iterate='last'."
            )
        if options.iterate == "ergodic" and self._stops_early():
            raise ValueError(
                "iterate='ergodic' averages all iterations, so that early stopping "
                "(early_stopping_rounds, or a callback) has no meaning: use iterate='last', or "
                "none of it."
            )

    def _check_classes(self, classes: Array) -> None:
        """Refuse labels that the parent does not take, and softmax scores of two classes."""
        expected = np.arange(classes.size)
        if not np.array_equal(classes, expected):
            raise ValueError(
                f"Invalid classes inferred from unique values of `y`.  Expected: {expected}, got "
                f"{classes}. Encode y first, as scikit-learn's LabelEncoder does."
            )
        # Not from get_params, which draws from a random_state that can be drawn from.
        num_class = (getattr(self, "kwargs", None) or {}).get("num_class")
        if classes.size == 2 and num_class not in (None, 0, 1):
            raise ValueError(
                f"num_class={num_class!r} cannot be trained under constraints where y has two "
                f"classes, which have one score: leave it out, and objective at 'binary:logistic'."
            )

    def _check_metric(self, n_classes: int, evaluates: bool, weighted: bool) -> None:
        """Refuse metrics that XGBoost does not know, or does not take of so many classes.

        XGBoost itself is asked, with one row of each class. Where evaluation sets are `weighted`
        it gives functions the weights.
        """
        given, metrics = self.eval_metric, self._metrics()
        if isinstance(given, (list, tuple)) and given and all(map(callable, given)):
            raise ValueError(
                f"eval_metric={given!r} holds a function and no name of a metric, which XGBoost "
                f"does not read: give the function itself."
            )
        for metric in metrics:
            if callable(metric):
                if evaluates and not hasattr(metric, "__name__"):
                    raise TypeError(
                        f"eval_metric holds {metric!r}, which has no __name__ that XGBoost could "
                        f"record its values under: give a function."
                    )
                if evaluates:
                    _check_arguments(metric, weighted)
                continue
            if not isinstance(metric, str):
                raise TypeError(
                    f"eval_metric must be a name, a function, or a list of them, got {given!r}."
                )
            try:
                self._evaluated(n_classes, [metric], evaluates)
            except xgb.core.XGBoostError as error:
                told = str(error).partition("\nStack trace:")[0]
                told = re.sub(r"^\[[\d:]+\] \S+: ", "", told).rstrip(": ")  # a line of its source
                raise ValueError(
                    f"eval_metric {metric!r} cannot be evaluated with {n_classes} classes: "
                    f"XGBoost says {told!r}. Give another of its metrics, or a function."
                ) from None

    def _evaluated(self, n_classes: int, metrics: list[str], evaluates: bool = True) -> list[str]:
        """Names that XGBoost records its own metrics by: those asked for, or its default."""
        rows = xgb.DMatrix(np.zeros((n_classes, 1)), label=np.arange(n_classes))
        params = {**(getattr(self, "kwargs", None) or {}), **_native_objective(n_classes)}
        if metrics:
            params["eval_metric"] = metrics
        with xgb.config_context(verbosity=0):
            booster = xgb.Booster({**params, "nthread": 1}, [rows])
            if not evaluates:
                booster.save_config()  # which reads the metrics
                return []
            told = booster.eval(rows, name="").split()[1:]
        return [one.removeprefix("-").rpartition(":")[0] for one in told]

    def _check_judged(self, n_classes: int, n_sets: int) -> None:
        """Refuse to stop early by an evaluation set or a metric that is not there."""
        given = self._metrics()
        sets = [f"validation_{i}" for i in range(n_sets)]
        for callback in self._stoppers():
            if callback.data and callback.data not in sets:
                raise ValueError(
                    f"EarlyStopping has data_name={callback.data!r}, and the evaluation sets are "
                    f"called {sets}: give one of these, or None for the last."
                )
            if not callback.metric_name:
                continue
            known = self._evaluated(n_classes, [m for m in given if isinstance(m, str)])
            known += [m.__name__ for m in given if callable(m)]
            if callback.metric_name not in known:
                raise ValueError(
                    f"EarlyStopping has metric_name={callback.metric_name!r}, which is not "
                    f"evaluated: the metrics are {known}. Give one of these, or ask for it by "
                    f"eval_metric."
                )

    def _metrics(self) -> list[Any]:
        given = self.eval_metric
        if isinstance(given, (list, tuple)):
            return list(given)
        return [] if given is None else [given]

    def _stoppers(self) -> list[Any]:
        stopping = xgb.callback.EarlyStopping
        return [callback for callback in self.callbacks or () if isinstance(callback, stopping)]

    def _stops_early(self) -> bool:
        return self.early_stopping_rounds is not None or bool(self._stoppers())

    def _label_factor(self, classes: Array, y: Array) -> Array:
        factor = np.ones(classes.size)
        if classes.size == 2 and self.scale_pos_weight is not None:
            factor[1] = self.scale_pos_weight
        return factor

    @contextmanager
    def _driven_by(
        self,
        fit: ConstrainedFit,
        params: dict[str, Any],
        sets: Sequence[tuple[Any, Any, bool]],
        continues: bool,
    ) -> Iterator[Observer]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards.

        Without multipliers it looks on, and the objective is the parent's own.
        """

        def objective(y_true: Array, margin: Array, sample_weight: Any = None) -> Any:
            return fit.solver(margin)

        names = ("objective", "eval_metric", "callbacks", "early_stopping_rounds")
        own = {name: getattr(self, name) for name in names}
        self._matrices: list[Any] = []
        self._sets = iter(sets)
        self._continues = continues
        self._fit_params = params
        native = _native_objective(fit.data.classes.size)["objective"]
        self.objective = native
        if fit.measured.has_multipliers:
            self.objective = objective
            self.eval_metric = _on_probabilities(self.eval_metric)
        observer = Observer(fit, self._matrices)
        callbacks, stopping = self.callbacks or [], []
        if (on := fit.options.early_stopping_on) != "metric":
            stopping = self._stoppers()
            callbacks = [c for c in callbacks if c not in stopping]
            if self.early_stopping_rounds is not None:
                stopping.append(xgb.callback.EarlyStopping(rounds=self.early_stopping_rounds))
            self.early_stopping_rounds = None
        rules = [RulesStopping(fit, c, on) for c in stopping]
        self.callbacks = [*callbacks, observer, *rules]
        try:
            yield observer
        finally:
            fit.run.hide_progress()
            for name, value in own.items():
                setattr(self, name, value)
            del self._matrices, self._sets, self._continues, self._fit_params
        self.objective = native  # as the parent's fit leaves it

    # Not public in XGBoost, and the only way to its cached margins of the training and evaluation
    # rows. If it stops being called, no matrix is seen and _conclude says so.
    def _create_dmatrix(self, ref: Any, **kwargs: Any) -> Any:
        matrix = super()._create_dmatrix(ref, **kwargs)
        if "_sets" in self.__dict__:
            if ref is None:
                self._matrices.append(self._scored(matrix, kwargs))
                # XGBoost reads both in every round for an objective that looks at neither; its
                # own way through JSON takes several times as long as a copy.
                matrix.get_label = matrix.get_label().copy
                matrix.get_weight = matrix.get_weight().copy
            else:
                X, y = kwargs["data"], kwargs["label"]
                # There may be none for sets that are the training rows.
                if next(held for X_i, y_i, held in self._sets if X_i is X and y_i is y):
                    self._matrices.append(self._scored(matrix, kwargs))
        return matrix

    def _scored(self, matrix: Any, given: Mapping[str, Any]) -> Any:
        """Matrix of the same rows by which the model's scores are those that it predicts."""
        if not self._continues:
            return matrix
        # Its old trees split elsewhere than the bins of these rows.
        names = ("data", "base_margin", "missing", "enable_categorical", "feature_types")
        return xgb.DMatrix(**{name: given[name] for name in names}, nthread=self.n_jobs)

    def _conclude(
        self, fit: ConstrainedFit, observer: Observer, base_margin: Any
    ) -> tuple[FinalModel, Feasibility]:
        matrices = observer.matrices
        if not matrices:
            raise RuntimeError(
                f"xgboost {xgb.__version__} does not build its matrices through _create_dmatrix: "
                f"this version of gbm_constrained does not support it."
            )
        booster = self.get_booster()
        grown_before, end = observer.grown_before, booster.num_boosted_rounds()
        best = booster.attr("best_iteration")  # which predict goes by
        if best is not None and int(best) < grown_before:
            # Of the model that was continued, which would predict without the new trees.
            booster.set_attr(best_iteration=None, best_score=None)
            best = None
        if best is not None and int(best) + 1 < end:
            # Readers of the booster that do not know the best iteration would take all rounds.
            end = int(best) + 1
            booster = self._Booster = first_rounds(booster, end)
        margin = observer.train_margin
        if end != observer.grown_after:
            margin = None
        score_after = functools.partial(self._score_after, fit)
        trained = _Trained(self, fit, matrices, grown_before, base_margin, score_after)
        model = finalize(fit, trained, end - grown_before, margin)
        if (prefixes := model.prefixes) is not None:
            self.prefixes_ = prefixes.assign(rounds=prefixes["rounds"] + grown_before)
        return model, report(self, fit, model)

    def _score_after(self, fit: ConstrainedFit, rounds: int) -> float | None:
        """Give what early stopping judged the model by after some rounds, while it is driven."""
        rules = [c for c in self.callbacks if isinstance(c, RulesStopping)]
        if rules and rules[-1].decides:
            return fit.violation(rounds)
        data = metric = None
        if self.early_stopping_rounds is None:  # which XGBoost lets look last
            stopping = [c.by_metric for c in rules] or self._stoppers()
            if not stopping:  # a callback of the user's own
                return None
            data, metric = stopping[-1].data, stopping[-1].metric_name
        results = self.evals_result_[data or list(self.evals_result_)[-1]]
        return float(results[metric or list(results)[-1]][rounds - 1])

    # Not public in XGBoost, which adds `base_margin` once for each tree of DART on its way past
    # matrices. If it stops being called, scores of DART that start from some are wrong again.
    def _can_use_inplace_predict(self) -> bool:
        return self.booster != "dart" and bool(super()._can_use_inplace_predict())

    @_by_keyword
    def predict(
        self,
        X: Any,
        *,
        output_margin: bool = False,
        validate_features: bool = True,
        base_margin: Any = None,
        iteration_range: tuple[int, int] | None = None,
        random_state: Any = None,
    ) -> Any:
        """Predict classes.

        All other arguments are those of :meth:`xgboost.XGBClassifier.predict`.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            With ``iterate="randomized"``, the source of each row's prefix.
        """
        given = {
            "output_margin": output_margin,
            "validate_features": validate_features,
            "base_margin": base_margin,
        }
        whole = iteration_range is None and not output_margin
        if whole and hasattr(self, "prefixes_"):
            of_prefix = functools.partial(super().predict, X, **{**given, "output_margin": True})
            mixture = Mixture.of_prefixes(self.prefixes_, len(self.classes_), random_state)
            return mixture.decide(lambda rounds: of_prefix(iteration_range=(0, rounds)))
        refuse_random_state(random_state)
        if hasattr(self, "_threshold") and not output_margin:
            margin = super().predict(
                X, iteration_range=iteration_range, **{**given, "output_margin": True}
            )
            return MarginShift(self._threshold).decide(lambda _: margin)
        return super().predict(X, iteration_range=iteration_range, **given)


def _native_objective(n_classes: int) -> dict[str, Any]:
    if n_classes == 2:
        return {"objective": "binary:logistic"}
    return {"objective": "multi:softprob", "num_class": n_classes}


def _of_each(values: Sequence[Any] | None, eval_set: Any, name: str) -> Sequence[Any]:
    """List what is given for each evaluation set, which must be one entry each."""
    n_sets = 0 if eval_set is None else len(eval_set)
    if values is None:
        return [None] * n_sets
    if eval_set is None or len(values) != n_sets:
        raise ValueError(
            f"{name} must hold one entry for each of the {n_sets} evaluation sets, got "
            f"{len(values)}: give eval_set as well, and None for sets that have none."
        )
    return values


def _check_arguments(metric: Callable[..., Any], weighted: bool) -> None:
    """Refuse a metric that does not take what XGBoost calls it with."""
    weights = {"sample_weight": None} if weighted else {}
    try:
        takes = inspect.signature(metric, follow_wrapped=False)
    except ValueError:  # of functions that are not written in Python it is not known
        return
    try:
        takes.bind(None, None, **weights)
    except TypeError as error:
        called = f"(y_true, y_score{', sample_weight=...' * weighted})"
        raise TypeError(
            f"eval_metric {metric.__name__!r} cannot be called with {called}, as XGBoost does: "
            f"{error}. Give a function of these."
        ) from None


def _check_complete(fname: Any) -> None:
    """Refuse a binary model that was cut, on which XGBoost would crash, and one of LightGBM."""
    if isinstance(fname, bytearray):
        data = bytes(fname)
    else:
        path = Path(fname).expanduser()
        data = path.read_bytes() if path.is_file() else b""  # XGBoost tells of a missing one
    if data.startswith(b"tree\n"):
        raise ValueError(
            "it is a model of LightGBM, which ConstrainedLGBMClassifier().load_model reads"
        )
    if ubjson.is_ubjson(data):
        ubjson.read(data)


class _Trained:
    """The booster of a finished fit.

    Parameters
    ----------
    parent : ConstrainedXGBClassifier
        Whose booster it is.
    fit : ConstrainedFit
        The fit.
    matrices : list
        Training rows, and each of the fit's evaluation sets.
    grown_before : int
        Rounds of the model that was continued.
    base_margin : array-like or None
        Where the scores of all rows given to ``fit`` begin.
    score_after : callable
        What early stopping judged the model by after some rounds.
    """

    def __init__(
        self,
        parent: ConstrainedXGBClassifier,
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
        if rows not in self.matrices:  # those of certificates
            self.matrices[rows] = held_matrix(
                self.parent, self.fit.data.whole.X, self.fit.data.certification, self.base_margin
            )
        return self._predict(self.matrices[rows], rounds)

    def _predict(self, matrix: Any, rounds: int) -> Array:
        span = (0, self.grown_before + rounds)
        return np.asarray(self.booster.predict(matrix, output_margin=True, iteration_range=span))

    def truncate(self, rounds: int) -> None:
        end = self.grown_before + rounds
        stopped = self.booster.attr("best_iteration") is not None
        self.booster = self.parent._Booster = first_rounds(self.booster, end)
        if stopped:  # predict goes by it
            score = self.score_after(rounds)
            best_score = None if score is None else str(score)
            self.booster.set_attr(best_iteration=str(end - 1), best_score=best_score)

    def add_to_margin(self, shift: Array) -> None:
        shift_intercept(self.booster, shift)


def _warn_of_base_margin() -> None:
    """Say which decisions a report is about: XGBoost's ``predict`` knows no margins of its own."""
    issue_warning(
        "The report holds for predict(X, base_margin=...): the rules were measured with the "
        "base_margin that was given to fit. Decisions of predict(X) without it, which audit() and "
        "the tools of scikit-learn ask for, are others.",
        "GC207",
    )


def _warn_of_cut_names(X: Any) -> None:
    names = categories_beyond_ascii(X)
    if names and tuple(map(int, xgb.__version__.split(".")[:2])) < KEEPS_NAMES:
        issue_warning(
            f"xgboost {xgb.__version__} cuts the names of categories that are not in ASCII, as "
            f"columns {names} have: its models may take one for another, in a table with other "
            f"lists of categories and even in this one, so that rules are not what is reported. "
            f"Use XGBoost 3.4 or newer, or rename the categories.",
            "GC206",
        )


def _intercept(y: Array, weight: Array | None, params: dict[str, Any]) -> Any:
    """``base_score`` as XGBoost fits it under its own objective, to its last digit.

    It depends on labels and weights only: XGBoost is asked, with one stump on a constant feature.
    """
    if weight is None and y.size < EXACT_COUNTS:
        count = np.bincount(y)
        y = np.flatnonzero(count)
        weight = count[y]
    rows = xgb.DMatrix(np.zeros((y.size, 1), dtype=np.float32), label=y, weight=weight)
    with xgb.config_context(verbosity=0):
        booster = xgb.train({**params, "max_depth": 1}, rows, 1)
    config = json.loads(booster.save_config())
    base_score = json.loads(config["learner"]["learner_model_param"]["base_score"])
    return base_score if isinstance(base_score, float) or len(base_score) > 1 else base_score[0]


def _note_of(model: Any) -> str | None:
    """Read the note of a booster or a file that training continues from."""
    if model is None:
        return None
    if isinstance(model, (str, os.PathLike)):
        model = xgb.Booster(model_file=model)
    return model.attr(saving.NAME) if isinstance(model, xgb.Booster) else None


def _on_probabilities(metric: Any) -> Any:
    """Let metrics of probabilities, one or a list, work on margins; leave names as they are."""
    if isinstance(metric, (list, tuple)):
        return [_on_probabilities(m) for m in metric]
    if not callable(metric):
        return metric

    @functools.wraps(metric)
    def on_margins(y_true: Array, margin: Array, *args: Any, **kwargs: Any) -> Any:
        p = expit(margin) if margin.ndim == 1 else softmax(margin, axis=1)
        return metric(y_true, p, *args, **kwargs)

    return on_margins
