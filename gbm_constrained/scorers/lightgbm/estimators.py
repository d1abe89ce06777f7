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
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import lightgbm as lgb
import numpy as np
from sklearn.base import is_regressor
from sklearn.preprocessing import LabelEncoder

from gbm_constrained._typing import Array
from gbm_constrained.data.validation import check_labels
from gbm_constrained.decision.choose import Criterion
from gbm_constrained.fit import model_note, options
from gbm_constrained.fit.callbacks import ConstraintCallback
from gbm_constrained.fit.checkpoint import State
from gbm_constrained.fit.fit import weight_of_rows
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.scorers.base import (
    ConstrainedBoosterMixin,
    ConstrainedRegressorMixin,
    FurtherArguments,
    ShardMixin,
    document_estimator,
    document_from,
)
from gbm_constrained.scorers.lightgbm import models, parameters
from gbm_constrained.scorers.lightgbm.fits import LightGBMAdapter, LightGBMRegressionAdapter
from gbm_constrained.solvers.base import SolverMethod

# Attributes of a fit that the library's own file leaves out.
LIBRARY_ATTRIBUTES = {
    "_objective": str,
    "_fitted_with_feature_names": bool,
    "_evals_result": dict,
    "_best_iteration": int,
    "_best_score": dict,
}
# Attributes that hold for any part of a model as well.
OF_ANY_PART = ("_objective", "_fitted_with_feature_names")

_Parent: Any = lgb.LGBMModel if TYPE_CHECKING else object


class DrivenLGBMMixin(_Parent):
    """Methods of an estimator of LightGBM that a solver drives."""

    _other_params: dict[str, Any]

    # Parameters of LightGBM that are called as options of ours once were.
    _names_of_library: ClassVar = ("deterministic",)

    objective: Any
    _objective: Any
    _Booster: Any
    booster_: Any
    _evals_result: Any
    _class_weight: Any

    def _check_fit(self, given: dict[str, Any]) -> None:
        if given["eval_X"] is None and given["eval_y"] is None:  # new in LightGBM 4.7
            del given["eval_X"], given["eval_y"]
        parameters.check_categories(given["X"], "X")
        known = {
            "deterministic",
            "early_stopping_round",
            *parameters.ALIASES["early_stopping_round"],
        }
        options.check_spelling(self, self._other_params, known)
        given["sample_weight"] = weight_of_rows(given["sample_weight"], given["y"])

    def _write_booster(self) -> bytes:
        return bytes(self.booster_.model_to_string().encode())

    def _booster_state(self) -> State:
        """Give all that merged boosters, and those that go on with this one, keep of it."""
        params = self.booster_.params.items()
        return {
            "model": self.booster_.model_to_string(),
            "objective": None if callable(self._objective) else self._objective,
            "params": {name: value for name, value in params if not callable(value)},
            "records": self._evals_result,
        }

    def _merge_boosters(self, members: Sequence[Any]) -> None:
        """Take the booster whose raw score is the mean of those of several models."""
        self._Booster = models.merge_boosters([model.booster_ for model in members])
        # All that one of them knows of its evaluation sets is its own.
        self._best_iteration, self._evals_result = self._Booster.best_iteration, {}
        self._best_score = self._Booster.best_score = defaultdict(OrderedDict)

    def _adopt(self, booster: lgb.Booster, objective: str, classes: Any, note: Any) -> None:
        """Take over the booster of a file, its classes, and its note, where there are any."""
        generic_names = [f"Column_{j}" for j in range(booster.num_feature())]
        own = {
            "_objective": objective,
            "_fitted_with_feature_names": booster.feature_name() != generic_names,
            "_evals_result": {},
            "_best_iteration": booster.best_iteration,
            "_best_score": booster.best_score,
        }
        if note is not None:
            note.restore(self)
            own.update({name: note.library[name] for name in own if name in note.library})
        # LightGBM 4.6 does not know all of these attributes.
        self.__dict__.update({name: own[name] for name in own if name in vars(self)})
        booster.best_iteration, booster.best_score = self._best_iteration, self._best_score
        self._Booster, self.fitted_ = booster, True
        self._n_features = self._n_features_in = booster.num_feature()
        if classes is not None:
            self._class_weight = None
            self._number_classes(np.asarray(classes))

    def _number_classes(self, classes: Array) -> None:
        """Set the sorted labels, as the parent's ``fit`` does."""
        self._le = LabelEncoder()
        self._le.classes_ = self._classes = classes
        self._n_classes = classes.size
        codes = self._le.transform(classes)
        self._class_map = dict(zip(classes, codes, strict=True))

    # Private in LightGBM. Should LightGBM stop calling this method, LightGBM would warn of unknown
    # parameters and evaluate some metrics on raw scores, which tests notice.
    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        options.drop_solver_parameters(params)
        if stage == "fit":
            params.update(self.__dict__.get("_fit_params", {}))
            if callable(params["objective"]) and "_logged_objective" in self.__dict__:
                name = self._logged_objective
                params["objective"] = parameters.LoggedObjective(params["objective"], name)
                params["metric"] = [parameters.LoggedMetric(*params["metric"])]
                params["metric"][0].asked = parameters.find_parameter(self, "metric", name)
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
        if callable(self._objective):
            raise ValueError(
                f"objective={self._objective!r} cannot be saved: what a file of LightGBM predicts "
                f"under an objective of one's own are raw scores. Pickle the estimator."
            )
        booster = self.booster_
        text = booster.model_to_string(num_iteration, start_iteration, importance_type)
        end = models.best_iteration(booster)
        stop = num_iteration if num_iteration is not None and num_iteration > 0 else end
        whole = start_iteration <= 0 and stop >= end
        kept = LIBRARY_ATTRIBUTES if whole else OF_ANY_PART
        library = {name: vars(self)[name] for name in kept if name in vars(self)}
        rounds = len(models.split_trees(text)[1]) // booster.num_model_per_iteration()
        note = model_note.write_note(self, rounds, library, is_whole=whole, model=text)
        text = models.add_note(text, model_note.NAME, note)
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
            text, written = models.read_file(fname, model_note.NAME)
            model_note.check_unchanged(written, text)
            objective, n_classes = models.read_kind(text, is_regressor=is_regressor(self))
            booster = lgb.Booster(model_str=text)
        except (ValueError, lgb.basic.LightGBMError) as error:
            raise ValueError(f"{source} cannot be loaded: {error}.") from error
        note = model_note.read_note(
            written,
            self,
            LIBRARY_ATTRIBUTES,
            rounds=booster.current_iteration(),
            n_classes=n_classes,
            source=source,
        )
        with model_note.unchanged_on_error(self):
            remove_report(self)
            model_note.forget_constraints(self)
            classes = np.arange(n_classes) if note is None else note.classes
            self._adopt(booster, objective, classes if n_classes else None, note)
        return self


class DrivenLGBMClassifierMixin(DrivenLGBMMixin, ConstrainedBoosterMixin):
    """All that a constrained classifier adds: LightGBM looks at two bases for parameters."""


@document_estimator
class ConstrainedLGBMClassifier(DrivenLGBMClassifierMixin, lgb.LGBMClassifier):
    """LightGBM classifier trained under constraints on its error rates.

    A real :class:`lightgbm.LGBMClassifier`: every parameter, method and attribute of the parent
    is there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own
    fit.

    Parameters
    ----------
    {parameters}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMClassifier`.

    Attributes
    ----------
    {attributes}

    References
    ----------
    {references}

    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier, class_error
    >>> constraints = [class_error(0) <= 0.01, class_error(3) <= 0.03]
    >>> clf = ConstrainedLGBMClassifier(constraints=constraints)
    """

    _adapter_class = LightGBMAdapter

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
        iterate: options.Iterate = "last",
        measure_on: options.MeasureOn = "auto",
        guarantee: options.GuaranteeOption = None,
        probabilities: options.Probabilities = "shifted",
        on_infeasible: options.OnInfeasible = "warn",
        early_stopping_on: options.EarlyStoppingOn = "metric",
        select: Criterion = "error",
        group_thresholds: bool = False,
        maximize: Any = None,
        minimize: Any = None,
        solver: options.SolverName | SolverMethod = "auto",
        **kwargs: Any,
    ) -> None:
        self._construct(locals())

    @options.with_known_parameters
    @document_from(FurtherArguments)
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
        max_cost: float | None = None,
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

        Raises
        ------
        TypeError, ValueError
            If constraints, labels or weights do not fit together; before training starts.
        """
        return self._fit_by_name(super().fit, locals())

    def _average(self, booster: Any, scores: Any, rounds: int | None = None) -> Array:
        """Average the scores of a random forest, which LightGBM adds up; others stay as they are.

        The scores are those of so many first rounds; up to the best iteration by default.
        """
        if parameters.find_parameter(self, "boosting", "gbdt") not in ("rf", "random_forest"):
            return np.asarray(scores)
        asked = rounds if rounds is not None and rounds > 0 else models.best_iteration(booster)
        return np.asarray(scores / min(asked, booster.current_iteration()))

    def _raw_margin(self, X: Any, start: Any = None) -> Any:
        return self._average(self.booster_, super().predict(X, raw_score=True))

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        booster = lgb.Booster(model_str=model.decode())
        return self._average(booster, booster.predict(X, raw_score=True))

    @document_from(ConstrainedBoosterMixin._decide)
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

        Raises
        ------
        ValueError
            If offsets of groups are kept beside the model, and the columns are missing.
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
            return self._average(self.booster_, np.asarray(scores), rounds or num_iteration)

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


class DrivenLGBMRegressorMixin(DrivenLGBMMixin, ConstrainedRegressorMixin):
    """All that a constrained regressor adds: LightGBM looks at two bases for parameters."""


@document_estimator
class ConstrainedLGBMRegressor(DrivenLGBMRegressorMixin, lgb.LGBMRegressor):
    """LightGBM regressor trained under constraints on means of losses and predictions.

    A real :class:`lightgbm.LGBMRegressor`: every parameter, method and attribute of the parent is
    there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own fit.
    Constraints can be added to the objectives "regression", "regression_l1", "huber", "fair",
    "quantile", "poisson", "tweedie" and "gamma", also by their other names.

    Parameters
    ----------
    {parameters}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMRegressor`.

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMRegressor, gap, mean_prediction
    >>> constraints = [gap(mean_prediction(), by="sex") <= 0.1]
    >>> model = ConstrainedLGBMRegressor(constraints=constraints)
    """

    _adapter_class = LightGBMRegressionAdapter

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
        measure_on: options.MeasureOn = "auto",
        guarantee: options.GuaranteeOption = None,
        early_stopping_on: options.EarlyStoppingOn = "metric",
        group_shifts: bool = False,
        solver: options.SolverName | SolverMethod = "auto",
        **kwargs: Any,
    ) -> None:
        self._construct(locals())

    @options.with_known_parameters
    @document_from(FurtherArguments)
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
        max_cost: float | None = None,
    ) -> ConstrainedLGBMRegressor:
        """Fit the regressor under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMRegressor.fit`. Constraints are
        measured as `measure_on` says. Their values on each evaluation set are recorded, and the
        last one is the held-out set of the report.

        Parameters
        ----------
        eval_X, eval_y : array-like or tuple of array-like, default=None
            Evaluation sets as LightGBM 4.7 takes them, in the place of `eval_set`.

        Raises
        ------
        TypeError, ValueError
            If constraints, targets or weights do not fit together, or the objective has no
            gradients that constraints could be added to; before training starts.
        """
        return self._fit_by_name(super().fit, locals())


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
    tiny = lgb.Booster(quiet, lgb.Dataset(X, X[:, 0], params=quiet))
    n_machines = network["num_machines"]
    tiny.set_network(
        network["machines"], network["local_listen_port"], network["time_out"], n_machines
    )
    try:
        yield {"num_machines": n_machines, "tree_learner": "data", "pre_partition": True}
    finally:
        tiny.free_network()


class ShardLGBMClassifier(ShardMixin, ConstrainedLGBMClassifier):
    """A classifier of LightGBM whose training rows are on several machines.

    Its labels on a machine need not be of all classes.

    Attributes
    ----------
    network : mapping
        Parameters that :func:`join_network` gives.
    """

    _local_class = ConstrainedLGBMClassifier
    _of_shard = ("machine", "network")

    network: Mapping[str, Any]

    def _check_machines(self, adapter: LightGBMAdapter, *, has_constraints: bool) -> None:
        """Refuse rows and parameters that LightGBM cannot train with on several machines."""
        learner = parameters.find_parameter(self, "tree_learner", "data")
        allowed = TREE_LEARNERS if has_constraints else (*TREE_LEARNERS, *VOTING)
        if learner not in allowed:
            reason = ", and constraints are sums over all of them" if has_constraints else ""
            raise ValueError(
                f"tree_learner must be one of {list(allowed)} where rows are on several machines"
                f"{reason}, got {learner!r}: leave it out, which is 'data' here."
            )
        if not has_constraints and parameters.has_early_stopping(
            self, adapter.arguments["callbacks"]
        ):
            raise ValueError(
                "Early stopping compares values that LightGBM computes from the rows of one "
                "machine, so that machines would stop at different rounds: leave it out, or fit "
                "gbm_constrained.ConstrainedLGBMClassifier on one machine."
            )
        if len(adapter.y) < 2:
            raise ValueError(
                f"A machine has {len(adapter.y)} rows, and LightGBM needs 2 on each: divide "
                f"the rows among fewer machines."
            )
        adapter.check_tables(adapter.arguments["eval_set"] or ())

    def _fit_parent(self, native: Callable[..., Any], X: Any, y: Any, **given: Any) -> Any:
        """Train with the other machines on the rows of all of them.

        The parent finds its classes among the labels of this machine, and is left out.
        """
        communicator = self.machine.communicator
        classes, codes = check_labels(y, communicator=communicator)
        self._number_classes(classes)
        if self.class_weight is not None:
            factor = parameters.find_class_weights(self.class_weight, classes, codes, communicator)
            self._class_weight = dict(enumerate(factor))
        if self.objective is None:
            self._objective = None
        if given.get("eval_set") is not None:
            given["eval_set"] = [(X_i, self._le.transform(y_i)) for X_i, y_i in given["eval_set"]]
        metric, kinds = given.get("eval_metric"), ("error", "logloss")
        names = {*kinds, *(f"{prefix}_{kind}" for prefix in ("binary", "multi") for kind in kinds)}
        if isinstance(metric, (str, list)):  # The parent's ``fit`` names some by the classes.
            given["eval_metric"] = [
                parameters.find_reported_name(one, classes.size) if one in names else one
                for one in (metric if isinstance(metric, list) else [metric])
            ]
        return lgb.LGBMModel.fit(self, X, codes, **given)

    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        if stage == "fit":
            params.update(self.network)
            if self.network and parameters.find_parameter(self, "tree_learner", "data") in VOTING:
                params["tree_learner"] = "voting"
        return params
