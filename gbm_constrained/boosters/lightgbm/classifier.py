"""LightGBM: the drop-in classifier, and how its own fit is driven by a solver.

LightGBM refuses custom gradients while it has an objective, and without one it forgets the
intercept, evaluates its metrics on raw scores and writes a model that predicts raw scores. So the
intercept is given as a constant ``init_score``, metrics of probabilities are given as callables,
and after training both intercept and objective are put into the model's text, which is then equal
to what LightGBM itself would have written (:mod:`gbm_constrained.boosters.lightgbm.model_text`),
but for the names of those metrics.
"""

from __future__ import annotations

import functools
import itertools
import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from gbm_constrained._dataframes import foreign_categories, take_rows
from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.callbacks import Observer, RulesStopping, stops_early
from gbm_constrained.boosters.lightgbm.folds import make_fold_booster_factory
from gbm_constrained.boosters.lightgbm.metrics import (
    EPSILON,
    METRICS,
    NO_METRIC,
    OF_SEVERAL_CLASSES,
    RANK_METRICS,
    builtin_metric,
    canonical,
    check_arguments,
    on_probabilities,
)
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    add_note,
    check_complete,
    classifier_of,
    count_trees,
    restore_objective,
    shift_intercept,
    take_note,
)
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_integer, check_scores
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.rule import MarginShift, Mixture, refuse_random_state
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.callbacks import ConstraintCallback, check_booster_callbacks
from gbm_constrained.training.checkpoint import refuse_without_constraints
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.evaluation_sets import check_pairs, take_evaluation_sets
from gbm_constrained.training.finalize import finalize
from gbm_constrained.training.fit import ConstrainedFit, weight_of_rows
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report, report
from gbm_constrained.training.fitted_report import warn as warn_of_constraints
from gbm_constrained.training.fold_boosters import FoldBoosterFactory
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

NATIVE_OBJECTIVES = (None, "binary", "multiclass", "softmax")
# Of a fit, and not in the library's own file.
LIBRARY_ATTRIBUTES = {
    "_objective": str,
    "_fitted_with_feature_names": bool,
    "_evals_result": dict,
    "_best_iteration": int,
    "_best_score": dict,
}
OF_ANY_PART = ("_objective", "_fitted_with_feature_names")  # hold of any part of a model, too
# Other names of the parameters that are looked at here, as LightGBM takes them one before another.
ALIASES = {
    "objective": ("application", "app", "loss", "objective_type"),
    "boosting": ("boost", "boosting_type"),
    "num_class": ("num_classes",),
    "learning_rate": ("eta", "shrinkage_rate"),
    "num_iterations": (
        "num_iteration", "num_boost_round", "num_round", "num_rounds", "nrounds", "num_tree",
        "num_trees", "n_iter", "max_iter", "n_estimators",
    ),
    "verbosity": ("verbose",),
    "metric": ("metrics", "metric_types"),
    "is_unbalance": ("unbalance", "unbalanced_sets"),
    "pos_bagging_fraction": ("pos_bagging", "pos_sub_row", "pos_subsample"),
    "neg_bagging_fraction": ("neg_bagging", "neg_sub_row", "neg_subsample"),
    "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    "num_machines": ("num_machine",),
    "machines": ("workers", "nodes"),
    "linear_tree": ("linear_trees",),
}  # fmt: skip


class ConstrainedLGBMClassifier(lgb.LGBMClassifier, ConstrainedFitAttributes):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""LightGBM classifier trained under constraints on its error rates.

    A real :class:`lightgbm.LGBMClassifier`: every parameter, method and attribute of the parent
    is there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own
    fit.

    Parameters
    ----------{SOLVER_PARAMETERS_DOC}{UNSEEN_PARAMETERS_DOC}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMClassifier`.

    Attributes
    ----------{FITTED_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier, class_error
    >>> rules = [class_error(0) <= 0.01, class_error(3) <= 0.03]
    >>> clf = ConstrainedLGBMClassifier(constraints=rules)
    """

    objective: Any
    _objective: Any
    _Booster: Any
    _other_params: dict[str, Any]

    # scikit-learn's splitters of groups ask for them by the same name, and mean the same rows.
    __metadata_request__fit: ClassVar = {"groups": True}

    def __init__(
        self,
        *,
        boosting_type: str = "gbdt",
        num_leaves: int = 31,
        max_depth: int = -1,
        learning_rate: float = 0.1,
        n_estimators: int = 100,
        subsample_for_bin: int = 200000,
        objective: Any = None,
        class_weight: Any = None,
        min_split_gain: float = 0.0,
        min_child_weight: float = 1e-3,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        subsample_freq: int = 0,
        colsample_bytree: float = 1.0,
        reg_alpha: float = 0.0,
        reg_lambda: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        importance_type: str = "split",
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
        **kwargs: Any,
    ) -> None:
        refuse_moved_parameters(self, kwargs)
        super().__init__(
            boosting_type=boosting_type,
            num_leaves=num_leaves,
            max_depth=max_depth,
            learning_rate=learning_rate,
            n_estimators=n_estimators,
            subsample_for_bin=subsample_for_bin,
            objective=objective,
            class_weight=class_weight,
            min_split_gain=min_split_gain,
            min_child_weight=min_child_weight,
            min_child_samples=min_child_samples,
            subsample=subsample,
            subsample_freq=subsample_freq,
            colsample_bytree=colsample_bytree,
            reg_alpha=reg_alpha,
            reg_lambda=reg_lambda,
            random_state=random_state,
            n_jobs=n_jobs,
            importance_type=importance_type,
            **kwargs,
        )
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

    # Not public in LightGBM. If it stops being called, LightGBM warns of unknown parameters and
    # evaluates some metrics on raw scores; the tests would notice.
    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        drop_solver_parameters(params)
        if stage == "fit":
            params.update(self.__dict__.get("_fit_params", {}))
        return params

    def _parameter(self, name: str, default: Any) -> Any:
        """Value of a parameter of LightGBM, which may have been given under another name.

        A text is read as a value of the kind that `default` is of.
        """
        given = {**vars(self), **self._other_params}  # which get_params takes long to collect
        names = (name, *ALIASES.get(name, ()))
        found = [given[name] for name in names if given.get(name) is not None]
        return _as_read(name, found[0], default) if found else default

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: list[str] | None = None,
        eval_sample_weight: list[Any] | None = None,
        eval_class_weight: list[Any] | None = None,
        eval_init_score: list[Any] | None = None,
        eval_metric: Any = None,
        feature_name: Any = "auto",
        categorical_feature: Any = "auto",
        callbacks: list[Callable[..., Any]] | None = None,
        init_model: Any = None,
        *,
        eval_X: Any = None,
        eval_y: Any = None,
        sensitive_features: Any = None,
        datasets: Any = None,
        sensitive_features_eval_set: list[Any] | None = None,
        groups: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedLGBMClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.fit`. Constraints are
        measured as `measure_on` says; their values on each evaluation set are recorded, the last
        one being the held-out set of the report. Constraints are measured on what ``predict``
        decides, which adds no `init_score`. A fit of more than a few seconds shows its progress
        unless ``verbose`` (``verbosity``) is below 1; beside ``log_evaluation``, in
        lines.

        Parameters
        ----------
        eval_X, eval_y : array-like or tuple of array-like, default=None
            Evaluation sets as LightGBM 4.7 takes them, in the place of `eval_set`.
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
            would have given. It is removed when the fit is done. With bagging, column samples or
            `extra_trees` the random streams are begun anew in each round, which makes another
            model than without a checkpoint.
        time_limit : float, default=None
            Seconds after which measuring and training end, at the next outer iteration. Part of
            them is kept for training the model for as many rounds as were measured, and for the
            reports; what was given up is in ``stopping_message_`` and in a warning. A resumed
            fit has the whole limit again.

        Raises
        ------
        TypeError, ValueError
            If constraints, labels or weights do not fit together; before training starts.
        """
        given = {
            "init_score": init_score,
            "eval_set": eval_set,
            "eval_names": eval_names,
            "eval_sample_weight": eval_sample_weight,
            "eval_class_weight": eval_class_weight,
            "eval_init_score": eval_init_score,
            "eval_metric": eval_metric,
            "feature_name": feature_name,
            "categorical_feature": categorical_feature,
            "callbacks": callbacks,
            "init_model": init_model,
        }
        if eval_X is not None or eval_y is not None:  # new in LightGBM 4.7
            given.update(eval_X=eval_X, eval_y=eval_y)
        _check_categories(X, "X")
        known = {"early_stopping_round", *ALIASES["early_stopping_round"]}
        check_spelling(self, self._other_params, known)
        options = SolverOptions.of(self)
        if not options.constraints:
            refuse_without_constraints(checkpoint)
            refuse_time_limit_without_constraints(time_limit)
            super().fit(X, y, sample_weight, **given)
            remove_report(self)
            return self
        self._check_supported(options, callbacks)
        limit = TimeLimit(time_limit)
        n_rounds = self._parameter("num_iterations", None)  # in Python, LightGBM takes no text
        check_integer("n_estimators", n_rounds, 1)
        saving.refuse_threshold(init_model, _note_of(init_model), "init_model")
        sample_weight = weight_of_rows(sample_weight, y)
        fit = ConstrainedFit(
            options,
            FitArguments(X, y, sample_weight, sensitive_features, datasets, groups),
            LibrarySettings(
                check_number("learning_rate", self._parameter("learning_rate", 0.1)),
                n_rounds,
                library_factor=self._class_weight_factor,
                objective_factor=self._label_factor,
                softmax_hessian=lambda k: k / (k - 1),
                random_state=self.random_state,
                kernel={"dtype": np.float64, "gradient_dtype": np.float32, "order": "F"},
            ),
            progress=self._progress(callbacks),
            constraint_callbacks=constraint_callbacks,
            limit=limit,
        )
        self._check_classes(fit.data.classes.size)
        stack = fit.data.combined
        with warnings.catch_warnings():  # the parent gives them
            warnings.simplefilter("ignore")
            check_classification_targets(stack.y)
        stack.refuse_with(init_score=init_score)
        fit.data.alignment.check({"X": X, "y": y, "init_score": init_score})
        init_score = check_scores(
            init_score, fit.data.whole.sizes[0], fit.data.columns, "init_score", "F"
        )
        pairs = check_pairs(_evaluation_pairs(eval_set, eval_X, eval_y), X, by_name=False)
        if eval_set is not None:
            given["eval_set"] = pairs  # what can be gone through once has been
        _check_evaluated(pairs, X, y)
        weights = _of_each(eval_sample_weight, len(pairs), "eval_sample_weight")
        starts = [
            check_scores(start, len(y_i), fit.data.columns, f"eval_init_score[{i}]", "F")
            for i, ((_, y_i), start) in enumerate(
                zip(pairs, _of_each(eval_init_score, len(pairs), "eval_init_score"), strict=True)
            )
        ]
        _check_class_weights(eval_class_weight, len(pairs), fit.data.classes)
        native_metrics, functions = self._split_metrics(eval_metric, fit.data.classes.size)
        if pairs:
            check_arguments(functions)
        dart = self._parameter("boosting", "gbdt") == "dart"
        held_out = take_evaluation_sets(
            fit,
            pairs,
            X,
            y,
            weights,
            starts,
            sensitive_features_eval_set,
            patience=self._stops_early(callbacks),
            parameter="callbacks=[lightgbm.early_stopping(...)] or early_stopping_round",
            evaluated=bool(pairs) and bool(native_metrics or functions),
            dart=dart,
        )
        fit.data.alignment.warn()
        more = {
            "X": X,
            "y": y,
            "sample_weight": sample_weight,
            "sensitive_features": sensitive_features,
            "datasets": datasets,
            "sensitive_features_eval_set": sensitive_features_eval_set,
            "groups": groups,
        }
        fit.save_to(checkpoint, self, {**given, **more})
        own_score = given["init_score"] = fit.data.take(init_score)
        if init_model is not None:  # whose scores LightGBM puts in the place of these
            own_score = None
            starts = [None] * len(starts)
        intercept = np.zeros(fit.data.columns)
        starts_anew = init_score is None and init_model is None
        from_average = starts_anew and self._parameter("boost_from_average", True)
        if from_average:
            intercept = _intercept(fit)

        def make_factory() -> FoldBoosterFactory:
            start = _constant(intercept, stack.codes.size) if own_score is None else own_score
            with self._driven_by(fit, {"metric": ["None"]}):
                return make_fold_booster_factory(
                    self, fit, start, feature_name, categorical_feature, callbacks
                )

        fit.measure(
            make_factory,
            is_divisible=not dart and init_model is None,
            has_offset=own_score is not None,
        )
        if from_average:
            given["init_score"] = _constant(intercept, stack.codes.size)
            given["eval_init_score"] = [
                _added(_constant(intercept, len(y_i)), start_i)
                for (_, y_i), start_i in zip(pairs, starts, strict=True)
            ] or None
        given["eval_metric"] = functions
        # DART may drop the first tree and with it the intercept that LightGBM has put there, so
        # that it must be there from the first round on; all others get it after training, linear
        # trees too: LightGBM sets the values of their leaves, and not the constants.
        grows_with = dart and not self._parameter("linear_tree", False)
        early, late = (intercept, np.zeros(0)) if grows_with else (0.0 * intercept, intercept)
        # LightGBM knows its training rows in eval_set, and reads those of eval_X once more.
        by_pair = eval_set is not None
        own = [by_pair and X_i is stack.X and y_i is stack.y for X_i, y_i in pairs]
        if dart and any(own):
            raise ValueError(
                "eval_set holds the training rows, which boosting_type='dart' does not stand "
                "under constraints: LightGBM drops trees whenever a metric reads the training "
                "scores. Leave them out; history_ and constraint_report_ have their values."
            )
        measured = dict(zip(held_out, fit.evaluation_sets, strict=True))
        sets = [
            (measured[i], starts[i]) if i in measured else None
            for i, is_own in enumerate(own)
            if not is_own
        ]
        native_params: dict[str, Any] = {"metric": native_metrics or ["None"]}
        stopping = [c for c in callbacks or () if stops_early(c)]
        callbacks = [c for c in callbacks or () if not stops_early(c)]
        on = options.early_stopping_on
        if on != "metric" or constraint_callbacks or time_limit is not None:
            stopping += self._own_early_stopping()
            native_params["early_stopping_round"] = 0
        if on != "metric":
            stopping = [RulesStopping(fit, by_metric, on) for by_metric in stopping]
        observer = Observer(fit, early if dart else None, sets, stopping)
        given["callbacks"] = [
            *callbacks, *observer.callbacks(), *stopping,
        ]  # fmt: skip
        with saving.unchanged_on_error(self):
            with self._driven_by(fit, native_params):
                super().fit(stack.X, stack.y, stack.sample_weight, **given)
            remove_report(self)
            self._make_native(fit, late)
            best = self._Booster.best_iteration
            rounds = fit.solver.rounds
            if best > 0:
                rounds = best - observer.begin
                self._Booster.best_iteration = self._best_iteration = observer.grown_after(rounds)
            margin = observer.train_margin
            if rounds != fit.solver.rounds:
                margin = None
            held = {rows: pairs[i][0] for i, rows in measured.items()}
            trained = _Trained(self, fit, observer, held)
            model = finalize(fit, trained, rounds, margin)
            if (prefixes := model.prefixes) is not None:
                self.prefixes_ = prefixes.assign(
                    rounds=prefixes["rounds"].map(observer.grown_after)
                )
            feasibility = report(self, fit, model)
        fit.notifier.warn()
        warn_of_constraints(fit, model, feasibility)
        return self

    def _progress(self, callbacks: Any) -> Progress | None:
        if self._parameter("verbosity", 1) <= 0:
            return None
        prints = any(isinstance(c, type(lgb.log_evaluation())) for c in callbacks or ())
        return Progress("round", lines=prints)

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def save_model(
        self,
        fname: Any,
        *,
        num_iteration: int | None = None,
        start_iteration: int = 0,
        importance_type: str = "split",
    ) -> None:
        """Save the model, its constraints and reports; plain LightGBM reads the same file.

        Parameters
        ----------
        fname : str or path
            Where to.
        num_iteration : int, default=None
            Boosting rounds to save; all up to the best one by default. A part of the model is
            saved without reports and threshold, which are those of the whole.
        start_iteration : int, default=0
            The first of them.
        importance_type : {"split", "gain"}, default="split"
            Importance of the features that LightGBM writes into its file.

        Raises
        ------
        TypeError
            If a constraint or a label holds a value that no file can hold.
        ValueError
            If the objective is a function, without which the file would be read as raw scores.
        """
        booster = self.booster_
        if callable(self._objective):
            raise ValueError(
                f"objective={self._objective!r} cannot be saved: what a file of LightGBM predicts "
                f"under an objective of one's own are raw scores. Pickle the estimator."
            )
        text = booster.model_to_string(num_iteration, start_iteration, importance_type)
        end = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
        upto = num_iteration if num_iteration is not None and num_iteration > 0 else end
        whole = start_iteration <= 0 and upto >= end
        kept = LIBRARY_ATTRIBUTES if whole else OF_ANY_PART
        library = {name: vars(self)[name] for name in kept if name in vars(self)}
        rounds = count_trees(text) // booster.num_model_per_iteration()
        note = saving.write_note(self, rounds, library, whole, text)
        text = add_note(text, saving.NAME, note)
        Path(fname).write_text(text, encoding="utf-8", newline="\n")

    def load_model(self, fname: Any) -> ConstrainedLGBMClassifier:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none: parameters stay as they are, classes are numbered
        from 0, and what is known of an earlier model is forgotten, with the rules of an earlier
        file.

        Parameters
        ----------
        fname : str or path
            Written by :meth:`save_model` or by LightGBM.

        Raises
        ------
        ValueError
            If the file is damaged, holds no classifier, or is of a newer version; the estimator
            is left as it was.
        """
        source = f"The file {fname}"
        try:
            with Path(fname).open("rb") as file:
                if file.read(1) == b"{":
                    raise ValueError(
                        "it is a model of XGBoost, which ConstrainedXGBClassifier().load_model "
                        "reads"
                    )
            text, written = take_note(Path(fname).read_text(encoding="utf-8"), saving.NAME)
            check_complete(text)
            saving.check_unchanged(written, text)
            objective, n_classes = classifier_of(text)
            booster = lgb.Booster(model_str=text)
        except (ValueError, lgb.basic.LightGBMError) as error:
            raise ValueError(f"{source} cannot be loaded: {error}.") from error
        note = saving.read_note(
            written,
            self,
            LIBRARY_ATTRIBUTES,
            rounds=booster.current_iteration(),
            n_classes=n_classes,
            source=source,
        )
        with saving.unchanged_on_error(self):
            remove_report(self)
            saving.forget_rules(self)
            own = {
                "_objective": objective,
                "_fitted_with_feature_names": booster.feature_name()
                != [f"Column_{j}" for j in range(booster.num_feature())],
                "_evals_result": {},
                "_best_iteration": booster.best_iteration,
                "_best_score": booster.best_score,
            }
            encoder = LabelEncoder()
            encoder.classes_ = np.arange(n_classes)
            if note is not None:
                note.restore(self)
                encoder.classes_ = note.classes
                own.update({name: note.library[name] for name in own if name in note.library})
            # LightGBM 4.6 does not know all of them.
            self.__dict__.update({name: own[name] for name in own if name in vars(self)})
            booster.best_iteration, booster.best_score = self._best_iteration, self._best_score
            self._Booster, self.fitted_ = booster, True
            self._n_features = self._n_features_in = booster.num_feature()
            self._le, self._class_weight = encoder, None
            self._classes, self._n_classes = encoder.classes_, n_classes
            codes = encoder.transform(encoder.classes_)
            self._class_map = dict(zip(encoder.classes_, codes, strict=True))
        return self

    def _truncate(self, n_trees: int, rounds: int) -> None:
        """Keep the first trees of each class, which are those of so many rounds.

        All that LightGBM tells of the best iteration is then about these rounds.
        """
        whole = self._Booster
        kept = lgb.Booster(model_str=whole.model_to_string(num_iteration=n_trees))
        kept.best_iteration = n_trees if whole.best_iteration > 0 else whole.best_iteration
        kept.best_score = defaultdict(OrderedDict)
        for data, metrics in self._evals_result.items():
            for metric, values in metrics.items():
                kept.best_score[data][metric] = values[rounds - 1]
        kept.params = whole.params
        self._Booster = kept
        self._best_iteration, self._best_score = kept.best_iteration, kept.best_score

    def predict(
        self,
        X: Any,
        raw_score: bool = False,
        start_iteration: int = 0,
        num_iteration: int | None = None,
        pred_leaf: bool = False,
        pred_contrib: bool = False,
        validate_features: bool = False,
        *,
        random_state: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Predict classes.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.predict`.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            With ``iterate="randomized"``, the source of each row's prefix.
        """
        given = {
            "raw_score": raw_score,
            "start_iteration": start_iteration,
            "pred_leaf": pred_leaf,
            "pred_contrib": pred_contrib,
            "validate_features": validate_features,
            **kwargs,
        }
        plain = not (raw_score or pred_leaf or pred_contrib)
        whole = plain and num_iteration is None and not start_iteration
        if whole and hasattr(self, "prefixes_"):
            of_prefix = functools.partial(super().predict, X, **{**given, "raw_score": True})
            answered = itertools.count()

            def margins(rounds: int) -> Array:
                with warnings.catch_warnings():
                    if next(answered):  # the first prefix has said it
                        warnings.filterwarnings("ignore", "X does not have valid feature names")
                    return np.asarray(of_prefix(num_iteration=rounds))

            mixture = Mixture.of_prefixes(self.prefixes_, len(self.classes_), random_state)
            return self.classes_[mixture.decide(margins)]
        refuse_random_state(random_state)
        if plain and hasattr(self, "_threshold"):
            margin = super().predict(
                X, num_iteration=num_iteration, **{**given, "raw_score": True}
            )
            return self.classes_[MarginShift(self._threshold).decide(lambda _: margin)]
        return super().predict(X, num_iteration=num_iteration, **given)

    @property
    def _asked_objective(self) -> Any:
        """The objective as it was given, of which LightGBM takes other names first."""
        given = self.get_params()
        names = (*ALIASES["objective"], "objective")
        return next((given[name] for name in names if given.get(name) is not None), None)

    def _check_classes(self, n_classes: int) -> None:
        """Refuse parameters of the objective that the number of classes leaves no sense to."""
        asked = self._asked_objective
        objective = _as_read("objective", asked, "")
        if n_classes > 2 and objective == "binary":
            raise lgb.basic.LightGBMError(
                f"objective='binary' is for two classes, and y has {n_classes}: leave it at None, "
                f"which is then 'multiclass'."
            )
        num_class = self._parameter("num_class", 1)
        if n_classes == 2 and num_class != 1:
            raise ValueError(
                f"num_class={num_class!r} cannot be trained under constraints where y has two "
                f"classes, which have one score: leave it out, and objective at None."
            )
        if n_classes == 2 and objective not in (None, "binary"):
            raise lgb.basic.LightGBMError(
                f"objective={asked!r} is for more than two classes, and y has two: leave it at "
                f"None, which is then 'binary'."
            )
        factor = self._parameter("scale_pos_weight", 1.0)
        if n_classes == 2 and factor != 1.0 and self._parameter("is_unbalance", False):
            raise ValueError(
                f"is_unbalance=True and scale_pos_weight={factor!r} cannot be set at the same "
                f"time, as in LightGBM: both weigh the positive class. Leave one of them out."
            )

    def _check_supported(self, options: SolverOptions, callbacks: Any) -> None:
        check_booster_callbacks(
            callbacks,
            lambda c: callable(c) and not isinstance(c, type),
            "functions of one CallbackEnv",
        )
        objective = self._asked_objective
        if _as_read("objective", objective, "") not in NATIVE_OBJECTIVES:
            raise ValueError(
                f"objective={objective!r} cannot be trained under constraints: leave it at None, "
                f"which is 'binary' or 'multiclass' as y says."
            )
        boosting = self._parameter("boosting", "gbdt")
        if boosting in ("rf", "random_forest"):
            raise ValueError(
                f"boosting_type={boosting!r} cannot be trained under constraints: LightGBM's "
                f"random forest takes no custom gradients. Use 'gbdt', 'dart' or 'goss'."
            )
        if options.iterate in ("best", "randomized") and boosting == "dart":
            raise ValueError(
                f"iterate={options.iterate!r} needs prefixes of the ensemble, which "
                f"boosting_type='dart' rescales as it grows: use iterate='last'."
            )
        for name, only in (
            ("sigmoid", 1.0),
            ("pos_bagging_fraction", 1.0),
            ("neg_bagging_fraction", 1.0),
        ):
            value = self._parameter(name, only)
            if value != only:
                raise ValueError(
                    f"{name}={value!r} belongs to LightGBM's own objective and has no effect "
                    f"under constraints: leave it at {only:g}."
                )
        machines = self._parameter("num_machines", 1)
        if machines != 1 or self._parameter("machines", None):
            raise ValueError(
                f"num_machines={machines!r} (or machines) cannot be trained under constraints: "
                f"each machine would measure the constraints on its own rows, and the multipliers "
                f"would go apart. Train on one machine."
            )
        if options.iterate == "ergodic" and self._stops_early(callbacks):
            raise ValueError(
                "iterate='ergodic' averages all iterations, so early stopping has no meaning: use "
                "iterate='last', or no early stopping."
            )

    def _stops_early(self, callbacks: Any) -> bool:
        own = self._own_early_stopping()
        return bool(own) or any(stops_early(callback) for callback in callbacks or ())

    def _own_early_stopping(self) -> list[Any]:
        """Early stopping that a constructor parameter asks for, as LightGBM makes it of it."""
        patience = self._parameter("early_stopping_round", None)
        if patience is None or (isinstance(patience, int) and patience <= 0):
            return []
        stopping = lgb.early_stopping(  # which refuses what is no int
            patience,
            first_metric_only=self._parameter("first_metric_only", False),
            verbose=self._parameter("verbosity", 1) > 0,
            min_delta=self._parameter("early_stopping_min_delta", 0.0),
        )
        return [stopping]

    def _class_weight_factor(self, classes: Array, y: Array) -> Array:
        return np.asarray(compute_class_weight(self.class_weight, classes=classes, y=classes[y]))

    def _label_factor(self, classes: Array, y: Array) -> Array:
        """``is_unbalance`` and ``scale_pos_weight`` of LightGBM's binary objective."""
        factor = np.ones(classes.size)
        if classes.size == 2:
            if self._parameter("is_unbalance", False):
                count = np.bincount(y)
                factor[count.argmin()] = count.max() / count.min()
            factor[1] *= self._parameter("scale_pos_weight", 1.0)
        return factor

    # Not `_metrics`: LightGBM sets that to the parameter `metrics` where there is one.
    def _split_metrics(self, eval_metric: Any, n_classes: int) -> tuple[list[str], list[Any]]:
        """Split metrics into those LightGBM gets right without an objective, and callables.

        Ranking metrics do not mind raw scores. All others are given as functions that see
        probabilities. LightGBM evaluates functions last: a ranking metric asked for after one of
        the others joins them, so that the order, which early stopping may depend on, stays.
        """
        asked = eval_metric if isinstance(eval_metric, (list, tuple)) else [eval_metric]
        own = [m for m in asked if callable(m)]
        default = "binary_logloss" if n_classes == 2 else "multi_logloss"
        is_given = not self.get_params().keys().isdisjoint({"metric", *ALIASES["metric"]})
        fixed = self._parameter("metric", []) if is_given else default
        fixed = [fixed] if isinstance(fixed, str) else [m for m in fixed if m is not None]
        # As in the parent, a name that `metric` has as well stands where it stands there.
        first = [m for m in asked if isinstance(m, str) and not (is_given and m in fixed)]
        names = [*first, *fixed]
        names = [m.strip() for name in names for m in name.split(",") if m.strip()]
        names = names or [default]  # as LightGBM takes a metric without a name
        names = list(dict.fromkeys(canonical(m, n_classes) for m in names))
        names = [m for m in names if m not in NO_METRIC]
        known = sorted(m for m in METRICS if (m in OF_SEVERAL_CLASSES) == (n_classes > 2))
        unknown = [m for m in names if m not in known]
        if unknown:
            raise ValueError(
                f"metric {unknown[0]!r} cannot be evaluated on {n_classes} classes under "
                f"constraints, where LightGBM gives metrics raw scores: use one of {known}, or a "
                f"callable eval_metric, which is given probabilities."
            )
        n_own = next((i for i, m in enumerate(names) if m not in RANK_METRICS), len(names))
        top_k = self._parameter("multi_error_top_k", 1)
        costs = self._parameter("auc_mu_weights", None)
        builtin = [builtin_metric(m, top_k, costs) for m in names[n_own:]]
        return names[:n_own], [*builtin, *map(on_probabilities, own)]

    @contextmanager
    def _driven_by(self, fit: ConstrainedFit, params: dict[str, Any]) -> Iterator[None]:
        """Let the solver be the parent's objective, and leave no trace of it afterwards."""

        # A plain function: LightGBM deep-copies its parameters, and would copy a solver.
        def objective(y_true: Array, margin: Array) -> Any:
            return fit.solver(margin)

        own, found, others = self.objective, self._objective, self._other_params
        self._fit_params = params
        self.objective = self._objective = objective
        # Under another name it would be taken before the solver.
        self._other_params = {
            name: value for name, value in others.items() if name not in ALIASES["objective"]
        }
        try:
            yield
        finally:
            fit.run.hide_progress()
            self.objective, self._objective, self._other_params = own, found, others
            del self._fit_params

    def _make_native(self, fit: ConstrainedFit, intercept: Array) -> None:
        """Replace the booster by the one that LightGBM would have written."""
        trained = self._Booster
        text = trained.model_to_string(num_iteration=-1)
        k = fit.data.classes.size
        objective = "binary sigmoid:1" if k == 2 else f"multiclass num_class:{k}"
        native = lgb.Booster(
            model_str=restore_objective(add_intercept(text, list(intercept)), objective)
        )
        native.best_iteration = trained.best_iteration
        native.best_score = trained.best_score
        name = objective.partition(" ")[0]
        native.params = {**trained.params, "objective": name}
        self._Booster, self._objective = native, self._asked_objective or name


def _note_of(model: Any) -> str | None:
    """Read the note of a file that training continues from."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    return take_note(Path(model).read_text(encoding="utf-8"), saving.NAME)[1]


def _as_read(name: str, value: Any, default: Any) -> Any:
    """Value of a parameter as LightGBM reads it, of a text as well: ``"false"`` is not true."""
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return value.lower() in ("true", "+")
    if isinstance(default, (int, float)):
        return type(default)(check_number(name, value))
    return value.lower() if isinstance(default, str) else value


class _Trained:
    """The booster of a finished fit.

    Parameters
    ----------
    parent : ConstrainedLGBMClassifier
        Whose booster it is.
    fit : ConstrainedFit
        The fit.
    observer : Observer
        Which knows the rounds that grew a tree.
    held : dict from EvaluationSet to X
        The evaluation sets.
    """

    def __init__(
        self,
        parent: ConstrainedLGBMClassifier,
        fit: ConstrainedFit,
        observer: Observer,
        held: dict[EvaluationSet, Any],
    ) -> None:
        self.parent, self.fit, self.observer, self.held = parent, fit, observer, held

    def margin(self, rounds: int) -> Array:
        return self._margin(self.fit.data.combined.X, rounds)

    def held_margin(self, rows: EvaluationSet, rounds: int) -> Array:
        if rows not in self.held:  # those of certificates
            self.held[rows] = take_rows(self.fit.data.whole.X, self.fit.data.certification)
        return self._margin(self.held[rows], rounds)

    def _margin(self, X: Any, rounds: int) -> Array:
        """Scores of rows under a prefix, as ``predict`` has them: without the user's own."""
        grown = self.observer.grown_after(rounds)
        with warnings.catch_warnings():  # of kinds of tables that training took without a word
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            warnings.filterwarnings("ignore", "Converting data to scipy sparse matrix")
            raw = lgb.LGBMClassifier.predict(self.parent, X, raw_score=True, num_iteration=grown)
        return np.asarray(raw)

    def truncate(self, rounds: int) -> None:
        self.parent._truncate(self.observer.grown_after(rounds), rounds)

    def add_to_margin(self, shift: Array) -> None:
        self.parent._Booster = shift_intercept(self.parent._Booster, shift)


def _check_categories(X: Any, name: str) -> None:
    """Refuse categories that make LightGBM end the whole process."""
    categories = foreign_categories(X)
    if categories:
        raise TypeError(
            f"{name} has categories in {categories}, a "
            f"{type(X).__module__.partition('.')[0]} table: LightGBM reads categories of pandas "
            f"and ends the process on others. Give X.to_pandas()."
        )


def _evaluation_pairs(eval_set: Any, eval_X: Any, eval_y: Any) -> Any:
    """Bring the evaluation sets into one form, from either form of LightGBM's arguments."""
    if eval_X is None and eval_y is None:
        alone = isinstance(eval_set, tuple) and not all(isinstance(e, tuple) for e in eval_set)
        return [eval_set] if alone else eval_set
    if eval_set is not None:
        raise ValueError("Specify either 'eval_set' or 'eval_X' and 'eval_y', but not both.")
    if eval_X is None or eval_y is None:
        raise ValueError("You must specify eval_X and eval_y, not just one of them.")
    several = isinstance(eval_X, tuple)
    if several != isinstance(eval_y, tuple) or (several and len(eval_X) != len(eval_y)):
        raise ValueError(
            "eval_X and eval_y must be tuples of the same length, or neither of them a tuple."
        )
    return zip(eval_X, eval_y, strict=True) if several else [(eval_X, eval_y)]


def _check_evaluated(pairs: Sequence[tuple[Any, Any]], X: Any, y: Any) -> None:
    """Refuse tables that LightGBM does not take as an evaluation set."""
    for i, (X_i, y_i) in enumerate(pairs):
        is_training = X_i is X and y_i is y  # which LightGBM does not read again
        if isinstance(X_i, list) and not is_training:
            raise TypeError(
                f"X of eval_set[{i}] is a list, which LightGBM takes of training rows only: give "
                f"an array."
            )
        if len(y_i) == 0:
            raise ValueError(f"eval_set[{i}] has no rows: leave it out.")
        _check_categories(X_i, f"X of eval_set[{i}]")


def _of_each(values: Any, n_sets: int, name: str) -> list[Any]:
    """List what is given for each evaluation set; None where a list or dict has no entry."""
    if values is None:
        return [None] * n_sets
    if isinstance(values, dict):
        return [values.get(i) for i in range(n_sets)]
    if not isinstance(values, list):
        raise TypeError(
            f"{name} must be a list or dict with an entry for each evaluation set, got a "
            f"{type(values).__name__}: put it into a list."
        )
    return [*values, *[None] * n_sets][:n_sets]


def _check_class_weights(given: Any, n_sets: int, classes: Array) -> None:
    """Refuse weights of classes in evaluation sets that LightGBM fails on."""
    for i, weights in enumerate(_of_each(given, n_sets, "eval_class_weight")):
        if isinstance(weights, dict):
            unknown = [label for label in weights if label not in classes.tolist()]
            if unknown:
                raise ValueError(
                    f"eval_class_weight[{i}] holds label {unknown[0]!r}, which is not among the "
                    f"classes of y: {classes.tolist()}."
                )
        elif weights is not None and not (isinstance(weights, str) and weights == "balanced"):
            raise ValueError(
                f"eval_class_weight[{i}] must be a dict from label to weight, 'balanced' or None, "
                f"got {weights!r}."
            )


def _intercept(fit: ConstrainedFit) -> Array:
    """``boost_from_average`` of LightGBM: log-odds, or the log share of each class."""
    share = np.bincount(fit.data.y, fit.problem.weights.library, fit.data.classes.size)
    share = share / share.sum()
    if share.size == 2:
        p = min(max(share[1], EPSILON), 1.0 - EPSILON)
        return np.array([np.log(p / (1.0 - p))])
    return np.asarray(np.log(np.maximum(share, EPSILON)))


def _constant(intercept: Array, n_samples: int) -> Array:
    if intercept.size == 1:
        return np.full(n_samples, intercept[0])
    return np.tile(intercept, (n_samples, 1))


def _added(score: Array, more: Any) -> Array:
    """Add scores that the user starts from."""
    return score if more is None else np.asarray(score + np.asarray(more, dtype=np.float64))
