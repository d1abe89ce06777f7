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
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder

from gbm_constrained._typing import Array
from gbm_constrained.boosters.base import ConstrainedBoosterMixin, ConstraintArguments
from gbm_constrained.boosters.lightgbm.adapter import LightGBMAdapter
from gbm_constrained.boosters.lightgbm.checks import check_categories
from gbm_constrained.boosters.lightgbm.model_text import (
    add_note,
    check_complete,
    classifier_of,
    count_trees,
    take_note,
)
from gbm_constrained.boosters.lightgbm.parameters import ALIASES
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.rule import MarginShift, Mixture, refuse_random_state
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.callbacks import ConstraintCallback
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.options import (
    Iterate,
    MeasureOn,
    OnInfeasible,
    OracleName,
    Probabilities,
    SolverName,
    check_spelling,
    drop_solver_parameters,
    refuse_moved_parameters,
)
from gbm_constrained.training.parameter_docs import (
    FITTED_ATTRIBUTES_DOC,
    SOLVER_PARAMETERS_DOC,
    UNSEEN_PARAMETERS_DOC,
)

# Of a fit, and not in the library's own file.
LIBRARY_ATTRIBUTES = {
    "_objective": str,
    "_fitted_with_feature_names": bool,
    "_evals_result": dict,
    "_best_iteration": int,
    "_best_score": dict,
}
OF_ANY_PART = ("_objective", "_fitted_with_feature_names")  # hold of any part of a model, too


class ConstrainedLGBMClassifier(ConstrainedBoosterMixin, lgb.LGBMClassifier):  # noqa: D101 - the docstring is an f-string
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
        maximize: Any = None,
        minimize: Any = None,
        deterministic: bool | None = None,
        oracle: OracleName = "auto",
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
        self.maximize = maximize
        self.minimize = minimize
        self.deterministic = deterministic
        self.oracle = oracle
        self.solver = solver

    # Not public in LightGBM. If it stops being called, LightGBM warns of unknown parameters and
    # evaluates some metrics on raw scores; the tests would notice.
    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        drop_solver_parameters(params)
        if stage == "fit":
            params.update(self.__dict__.get("_fit_params", {}))
        return params

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
        checkpoint : str or path-like, default=None
            File that the boosters of the folds are saved to after each pass. An interrupted fit
            that is called again with the same arguments resumes from there and gives the model of
            an uninterrupted fit. The file is removed when the fit is done.
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
        check_categories(X, "X")
        known = {"early_stopping_round", *ALIASES["early_stopping_round"]}
        check_spelling(self, self._other_params, known)
        sample_weight = weight_of_rows(sample_weight, y)
        is_observed = bool(constraint_callbacks) or time_limit is not None
        self._fit_constrained(
            LightGBMAdapter(self, super().fit, (X, y, sample_weight), given, is_observed),
            ConstraintArguments(
                FitArguments(X, y, sample_weight, sensitive_features, datasets, groups),
                sensitive_features_eval_set,
                constraint_callbacks,
                checkpoint,
                time_limit,
            ),
        )
        return self

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
        note = saving.write_note(self, rounds, library, is_whole=whole, model=text)
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
            saving.forget_constraints(self)
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

    def _raw_margin(self, X: Any) -> Any:
        return super().predict(X, raw_score=True)

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        return lgb.Booster(model_str=model.decode()).predict(X, raw_score=True)

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
        if whole and hasattr(self, "_rules"):
            return self.classes_[self._decide_by_rules(X, random_state)]
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
