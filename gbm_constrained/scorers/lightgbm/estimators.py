"""The drop-in classifier and regressor of LightGBM.

LightGBM takes custom gradients only without an objective of its own. LightGBM then drops the
intercept, evaluates its metrics on raw scores and writes a model that predicts raw scores. Hence
the intercept is given as a constant ``init_score``, and metrics of probabilities as callables.
After training, intercept and objective are put into the model's text
(:mod:`gbm_constrained.scorers.lightgbm.models`). The text is then equal to what LightGBM
itself would have written, but for the names of those metrics.

LightGBM's own network joins the histograms of the machines, so that each of them grows the same
trees. It has no call of Python for sums: these take another way.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder

from gbm_constrained._typing import Array
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_labels
from gbm_constrained.decision.choose import Criterion
from gbm_constrained.fit import model_note as saving
from gbm_constrained.fit.callbacks import ConstraintCallback
from gbm_constrained.fit.fit import ConstrainedFit, EvaluationArguments, weight_of_rows
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.options import (
    EarlyStoppingOn,
    GuaranteeOption,
    Iterate,
    MeasureOn,
    OnInfeasible,
    Probabilities,
    SolverName,
    check_spelling,
    drop_solver_parameters,
    refuse_moved_parameters,
    with_known_parameters,
)
from gbm_constrained.fit.parameter_docs import (
    FITTED_ATTRIBUTES_DOC,
    METRIC_PARAMETERS_DOC,
    SOLVER_PARAMETERS_DOC,
    UNSEEN_PARAMETERS_DOC,
)
from gbm_constrained.scorers.base import (
    REGRESSOR_ATTRIBUTES_DOC,
    REGRESSOR_FIT_DOC,
    REGRESSOR_PARAMETERS_DOC,
    ConstrainedBoosterMixin,
    ConstrainedRegressorMixin,
    ShardMixin,
    complete_doc,
    document_fit,
    document_predict,
)
from gbm_constrained.scorers.lightgbm.fits import (
    LIBRARY_ATTRIBUTES,
    LightGBMAdapter,
    LightGBMRegressionAdapter,
    adopt_booster,
    adopt_file,
    average_scores,
    write_text,
)
from gbm_constrained.scorers.lightgbm.models import classifier_of, read_file, regressor_of
from gbm_constrained.scorers.lightgbm.parameters import (
    ALIASES,
    check_categories,
    check_evaluation_sets,
    find_class_weights,
    find_parameter,
    find_reported_name,
    has_early_stopping,
)
from gbm_constrained.solvers.base import SolverMethod

_Parent: Any = lgb.LGBMModel if TYPE_CHECKING else object


class DrivenLGBMMixin(_Parent):
    """Methods of an estimator of LightGBM that a solver drives."""

    _other_params: dict[str, Any]

    # Parameters of LightGBM that are called as options of ours once were.
    _names_of_library: ClassVar = ("deterministic",)

    @abstractmethod
    def _read_kind(self, text: str) -> tuple[str, int]:
        """Find objective and number of classes, zero of a regressor, or refuse the text."""

    @abstractmethod
    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        """Take over the booster of a file, and its note, if there is one."""

    # Private in LightGBM. Should LightGBM stop calling this method, LightGBM would warn of unknown
    # parameters and evaluate some metrics on raw scores, which tests notice.
    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        drop_solver_parameters(params)
        if stage == "fit":
            params.update(self.__dict__.get("_fit_params", {}))
        return params

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
            File to write.
        num_iteration : int, default=None
            Boosting rounds to save; all up to the best one by default. A part of the model is
            saved without reports and threshold, which are those of the whole.
        start_iteration : int, default=0
            First boosting round to save.
        importance_type : {"split", "gain"}, default="split"
            Importance of the features that LightGBM writes into its file.

        Raises
        ------
        TypeError
            If a constraint or a label holds a value that no file can hold.
        ValueError
            If the objective is a function, without which the file would be read as raw scores.
        """
        text = write_text(self, num_iteration, start_iteration, importance_type)
        Path(fname).write_text(text, encoding="utf-8", newline="\n")

    def load_model(self, fname: Any) -> Any:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none of these. Then parameters stay as they are, classes
        of a classifier are numbered from 0, and all knowledge of an earlier model is removed, with
        the constraints of an earlier file.

        Parameters
        ----------
        fname : str or path
            Written by :meth:`save_model` or by LightGBM.

        Raises
        ------
        ValueError
            If the file is damaged, holds another kind of model, or is of a newer version; the
            estimator is left as it was.
        """
        source = f"The file {fname}"
        try:
            text, written = read_file(fname, saving.NAME)
            saving.check_unchanged(written, text)
            objective, n_classes = self._read_kind(text)
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
            self._adopt(booster, objective, n_classes, note)
        return self


class _DrivenClassifierMixin(DrivenLGBMMixin, ConstrainedBoosterMixin):
    """All that a constrained classifier adds: LightGBM looks at two bases for parameters."""


class ConstrainedLGBMClassifier(_DrivenClassifierMixin, lgb.LGBMClassifier):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""LightGBM classifier trained under constraints on its error rates.

    A real :class:`lightgbm.LGBMClassifier`: every parameter, method and attribute of the parent
    is there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own
    fit.

    Parameters
    ----------{SOLVER_PARAMETERS_DOC}{UNSEEN_PARAMETERS_DOC}\
{METRIC_PARAMETERS_DOC}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMClassifier`.

    Attributes
    ----------{FITTED_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier, class_error
    >>> constraints = [class_error(0) <= 0.01, class_error(3) <= 0.03]
    >>> clf = ConstrainedLGBMClassifier(constraints=constraints)
    """

    objective: Any
    _objective: Any
    _Booster: Any

    _adapter_class: ClassVar[type[LightGBMAdapter]] = LightGBMAdapter

    # Splitters of scikit-learn request groups by the same name and with the same meaning.
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
        guarantee: GuaranteeOption = None,
        probabilities: Probabilities = "shifted",
        on_infeasible: OnInfeasible = "warn",
        early_stopping_on: EarlyStoppingOn = "metric",
        select: Criterion = "error",
        group_thresholds: bool = False,
        maximize: Any = None,
        minimize: Any = None,
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
        self.guarantee = guarantee
        self.probabilities = probabilities
        self.on_infeasible = on_infeasible
        self.early_stopping_on = early_stopping_on
        self.select = select
        self.group_thresholds = group_thresholds
        self.maximize = maximize
        self.minimize = minimize
        self.solver = solver

    @with_known_parameters
    @document_fit
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
        validation: Any = None,
        evaluation: Any = None,
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedLGBMClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.fit`. Constraints are
        measured as `measure_on` says. Their values on each evaluation set are recorded, and the
        last one is the held-out set of the report. Constraints are measured on the decisions of
        ``predict``, which adds no `init_score`. A fit of more than a few seconds shows its
        progress, as lines of text beside ``log_evaluation``, unless ``verbose``
        (``verbosity``) is below 1.

        Parameters
        ----------
        eval_X, eval_y : array-like or tuple of array-like, default=None
            Evaluation sets as LightGBM 4.7 takes them, in the place of `eval_set`.
        {fit_arguments}
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
        others = groups, validation, evaluation, time
        self._fit_constrained(
            self._adapter_class(
                self, super().fit, (X, y, sample_weight), given, is_observed=is_observed
            ),
            FitArguments(X, y, sample_weight, sensitive_features, datasets, *others),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self

    def _read_kind(self, text: str) -> tuple[str, int]:
        return classifier_of(text)

    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        adopt_file(self, booster, objective, note, n_classes)

    def _raw_margin(self, X: Any, start: Any = None) -> Any:
        return average_scores(self, self.booster_, super().predict(X, raw_score=True))

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        booster = lgb.Booster(model_str=model.decode())
        return average_scores(self, booster, booster.predict(X, raw_score=True))

    @document_predict
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
        sensitive_features: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Predict classes.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.predict`.

        Parameters
        ----------
        {predict_arguments}
        """
        given = {
            "start_iteration": start_iteration,
            "pred_leaf": pred_leaf,
            "pred_contrib": pred_contrib,
            "validate_features": validate_features,
            **kwargs,
        }
        of_parent = functools.partial(super().predict, X, **given)
        answered = itertools.count()

        def margins(rounds: int) -> Array:
            with warnings.catch_warnings():
                if next(answered):  # The first prefix has given the warning.
                    warnings.filterwarnings("ignore", "X does not have valid feature names")
                scores = of_parent(raw_score=True, num_iteration=rounds or num_iteration)
            return average_scores(self, self.booster_, np.asarray(scores), rounds or num_iteration)

        decided = self._decide(
            X,
            None if raw_score or pred_leaf or pred_contrib else margins,
            random_state,
            sensitive_features,
            is_whole=num_iteration is None and not start_iteration,
        )
        if decided is not None:
            return self.classes_[decided]
        return of_parent(raw_score=raw_score, num_iteration=num_iteration)


class _DrivenRegressorMixin(DrivenLGBMMixin, ConstrainedRegressorMixin):
    """All that a constrained regressor adds: LightGBM looks at two bases for parameters."""


class ConstrainedLGBMRegressor(_DrivenRegressorMixin, lgb.LGBMRegressor):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""LightGBM regressor trained under constraints on means of losses and predictions.

    A real :class:`lightgbm.LGBMRegressor`: every parameter, method and attribute of the parent is
    there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own fit.
    Constraints can be added to the objectives "regression", "regression_l1", "huber", "fair",
    "quantile", "poisson", "tweedie" and "gamma", also by their other names.

    Parameters
    ----------{REGRESSOR_PARAMETERS_DOC}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMRegressor`.

    Attributes
    ----------{REGRESSOR_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMRegressor, gap, mean_prediction
    >>> constraints = [gap(mean_prediction(), by="sex") <= 0.1]
    >>> model = ConstrainedLGBMRegressor(constraints=constraints)
    """

    objective: Any
    _objective: Any
    _Booster: Any

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
        measure_on: MeasureOn = "auto",
        guarantee: GuaranteeOption = None,
        early_stopping_on: EarlyStoppingOn = "metric",
        group_shifts: bool = False,
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
        self.measure_on = measure_on
        self.guarantee = guarantee
        self.early_stopping_on = early_stopping_on
        self.group_shifts = group_shifts
        self.solver = solver

    @with_known_parameters
    @functools.partial(complete_doc, placeholder="{fit_arguments}", arguments=REGRESSOR_FIT_DOC)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: list[str] | None = None,
        eval_sample_weight: list[Any] | None = None,
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
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedLGBMRegressor:
        """Fit the regressor under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMRegressor.fit`. Constraints are
        measured as `measure_on` says. Their values on each evaluation set are recorded, and the
        last one is the held-out set of the report.

        Parameters
        ----------
        eval_X, eval_y : array-like or tuple of array-like, default=None
            Evaluation sets as LightGBM 4.7 takes them, in the place of `eval_set`.
        {fit_arguments}
        """
        given = {
            "init_score": init_score,
            "eval_set": eval_set,
            "eval_names": eval_names,
            "eval_sample_weight": eval_sample_weight,
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
        known = {"deterministic", "early_stopping_round", *ALIASES["early_stopping_round"]}
        check_spelling(self, self._other_params, known)
        weight = weight_of_rows(sample_weight, y)
        is_observed = bool(constraint_callbacks) or time_limit is not None
        native = super().fit
        self._fit_constrained(
            lambda: LightGBMRegressionAdapter(
                self, native, (X, y, weight), given, is_observed=is_observed
            ),
            FitArguments(X, y, weight, sensitive_features, datasets, groups, time=time),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self

    def _read_kind(self, text: str) -> tuple[str, int]:
        return regressor_of(text)

    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        adopt_booster(self, booster, objective, note)


MIN_ROWS = 2  # Fewest rows of a machine that LightGBM takes.
VOTING = ("voting", "voting_parallel")
TREE_LEARNERS = ("data", "data_parallel", "serial")  # "serial" is the default of one machine.


@contextmanager
def join_network(network: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Join the network of LightGBM in this thread, for all boosters that are made inside.

    Parameters
    ----------
    network : mapping
        LightGBM's parameters ``machines``, ``num_machines``, ``local_listen_port`` and
        ``time_out``; empty for one machine.

    Yields
    ------
    dict
        Parameters of boosters that are grown by all machines together.
    """
    if not network:
        yield {}
        return
    # Each booster with the parameter ``machines`` would open a network of its own.
    X = np.arange(4.0)[:, None]
    quiet = {"verbosity": -1, "num_threads": 1}
    tiny = lgb.train(quiet, lgb.Dataset(X, X[:, 0], params=quiet), 1)
    n_machines = network["num_machines"]
    tiny.set_network(
        network["machines"], network["local_listen_port"], network["time_out"], n_machines
    )
    try:
        yield {"num_machines": n_machines, "tree_learner": "data", "pre_partition": True}
    finally:
        tiny.free_network()


class _ShardAdapter(LightGBMAdapter):
    """``BoosterAdapter`` of a machine that may lack classes and groups."""

    def __init__(self, model: Any, *given: Any, **options: Any) -> None:
        super().__init__(model, *given, **options)
        self.communicator = model.machine.communicator

    def check_machines(self, *, has_constraints: bool) -> None:
        """Refuse rows and parameters that LightGBM cannot train with on several machines."""
        learner = find_parameter(self.model, "tree_learner", "data")
        allowed = TREE_LEARNERS if has_constraints else (*TREE_LEARNERS, *VOTING)
        if learner not in allowed:
            reason = ", and constraints are sums over all of them" if has_constraints else ""
            raise ValueError(
                f"tree_learner must be one of {list(allowed)} where rows are on several machines"
                f"{reason}, got {learner!r}: leave it out, which is 'data' here."
            )
        if not has_constraints and has_early_stopping(self.model, self.arguments["callbacks"]):
            raise ValueError(
                "Early stopping compares values that LightGBM computes from the rows of one "
                "machine, so that machines would stop at different rounds: leave it out, or fit "
                "gbm_constrained.ConstrainedLGBMClassifier on one machine."
            )
        if len(self.y) < MIN_ROWS:
            raise ValueError(
                f"A machine has {len(self.y)} rows, and LightGBM needs {MIN_ROWS} on each: divide "
                f"the rows among fewer machines."
            )
        check_evaluation_sets(self.arguments["eval_set"] or (), self.X, self.y)

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check the arguments that depend on the rows, and list the evaluation sets."""
        bound = super().bind(fit)
        if bound.has_patience and fit.options.early_stopping_on == "metric":
            raise ValueError(
                "early_stopping_on='metric' compares values that LightGBM computes from the rows "
                "of one machine, so that machines would stop at different rounds: give "
                "early_stopping_on='constraints', whose values are of the rows of all machines."
            )
        self.metrics = [], []  # They would be of the rows of one machine.
        return bound


class _ShardParent(lgb.LGBMClassifier):
    """LightGBM's classifier, whose labels on a machine need not be of all classes."""

    machine: Machine
    network: Mapping[str, Any]

    def fit(self, X: Any, y: Any, *given: Any, **others: Any) -> Any:
        """Train with the other machines on the rows of all of them.

        The parent finds its classes among the labels of this machine, and is left out.
        """
        classes, codes = check_labels(y, communicator=self.machine.communicator)
        self._le = LabelEncoder().fit(classes)
        self._classes, self._n_classes = classes, classes.size
        self._class_map = {label: i for i, label in enumerate(classes.tolist())}
        if self.class_weight is not None:
            factor = find_class_weights(
                self.class_weight, classes, codes, self.machine.communicator
            )
            self._class_weight = dict(enumerate(factor))
        if self.objective is None:
            self._objective = None
        if others.get("eval_set") is not None:
            others["eval_set"] = [
                (X_i, self._le.transform(y_i)) for X_i, y_i in others["eval_set"]
            ]
        metric = others.get("eval_metric")
        if isinstance(metric, (str, list)):
            others["eval_metric"] = _name_metrics(metric, classes.size)
        return lgb.LGBMModel.fit(self, X, codes, *given, **others)

    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        if stage != "fit":
            return params
        params.update(self.network)
        if self.network and find_parameter(self, "tree_learner", "data") in VOTING:
            params["tree_learner"] = "voting"
        return params


def _name_metrics(metric: str | list[Any], n_classes: int) -> list[Any]:
    """Name errors and log losses by the number of classes, as the parent's own ``fit`` does."""
    kinds = "error", "logloss"
    names = {*kinds, *(f"{prefix}_{kind}" for prefix in ("binary", "multi") for kind in kinds)}
    return [
        find_reported_name(one, n_classes) if one in names else one
        for one in (metric if isinstance(metric, list) else [metric])
    ]


class ShardLGBMClassifier(ShardMixin, ConstrainedLGBMClassifier, _ShardParent):
    """A classifier of LightGBM whose training rows are on several machines.

    Attributes
    ----------
    network : mapping
        Parameters that :func:`join_network` gives.
    """

    _adapter_class = _ShardAdapter
    _local_class = ConstrainedLGBMClassifier
    _of_shard = ("machine", "network")
