"""Classifiers whose objective is a metric of the confusion matrix."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import clone

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import as_labels, check_weight, preserve_random_state
from gbm_constrained.decision.cell_scores import CellScores
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares
from gbm_constrained.decision.rule import Margins, MarginShift, Mixture
from gbm_constrained.evaluation.classifiers import encode_labels
from gbm_constrained.evaluation.metric_value import measure_metric
from gbm_constrained.metrics.reading import read_black_box, read_objective
from gbm_constrained.training.callbacks import check_callbacks
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.metric_boosters import ConstrainedBoosters
from gbm_constrained.training.metric_fit import MetricFit, MetricResult
from gbm_constrained.training.metric_report import report_metric, warn_of_metric
from gbm_constrained.training.metric_sets import EvaluationRows, bind_sets
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.native_models import IsOver, Merger, NativeModel, PartRows
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.search_notifier import SearchNotifier
from gbm_constrained.training.time_limit import TimeLimit


class NativeAdapter(Protocol):
    """What a fit that leaves training to the library knows of the library."""

    def without_gradients(self) -> str | None:
        """Name the parameter by which the booster takes no gradients of others; None if it does.

        Such a booster is trained by the library alone, and constraints are met by decisions.
        """
        return None

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""

    def evaluation_rows(self) -> list[EvaluationRows]:
        """Check and list the evaluation sets."""
        return []

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""
        return {}

    def starting_scores(self) -> Any:
        """Scores that the training rows start from, if ``predict`` can be given such scores."""
        return None

    def check_rows(self, combined: CombinedRows) -> None:
        """Refuse arguments that have no values for the rows of further data sets."""

    def finish(self) -> None:
        """Add to the report the conditions that only the library knows, and warn of them."""

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor.

        Training ends after the number of rounds for which `is_over` is true.
        """

    def leave_out_rounds(self) -> None:
        """Remove the rounds that early stopping left in the trained model."""

    def fit_part(self, part: PartRows) -> NativeModel:
        """Train the library's own model on some of the rows."""

    def can_fold(self) -> bool:
        """Whether a shift of scores can be added to the trained model."""

    def add_to_margin(self, shift: Array) -> None:
        """Add to all scores that the trained model predicts."""


@dataclass(frozen=True)
class Interruptions:
    """Arguments of ``fit`` about what may end it, and about going on afterwards.

    Parameters
    ----------
    constraint_callbacks : sequence of callable, default=None
        Notified before each call of the oracle.
    time_limit : float, default=None
        Seconds after which training and the search end.
    checkpoint : str or path-like, default=None
        File that finished boosters are saved to.
    """

    constraint_callbacks: Any = None
    time_limit: Any = None
    checkpoint: Any = None


def clone_plain(model: Any) -> Any:
    """Clone a booster's classifier without its constraints and its metric."""
    with preserve_random_state(model):
        plain = clone(model)
    return plain.set_params(
        constraints=None,
        maximize=None,
        minimize=None,
        ensemble=None,
        oracle="plug_in",
        solver="auto",
    )


def take_fit(model: Any, other: Any) -> None:
    """Take over what the ``fit`` of another classifier has set, which has the same parameters."""
    # Not from get_params, which draws from a random_state that can be drawn from.
    makers = [vars(kind)["__init__"] for kind in type(model).__mro__ if "__init__" in vars(kind)]
    parameters = {name for make in makers[:-1] for name in inspect.signature(make).parameters}
    for name, value in vars(other).items():
        if name not in parameters and name != "_other_params":  # as LightGBM keeps more of them
            setattr(model, name, value)


class MetricMixin:
    """What a classifier with ``maximize=`` or ``minimize=`` does."""

    # Only metrics that look at groups need them in ``score``, and the user says so.
    __metadata_request__score: ClassVar = {"sensitive_features": False}

    classes_: Any
    maximize: Any
    minimize: Any
    positive: Any
    probabilities: Any
    _score_black_box: Any  # of the classifier's part for black-box metrics

    def _raw_margin(self, X: Any, start: Any = None) -> Array:
        """Scores of the booster, of shape (n_samples,) or (n_samples, n_classes).

        They begin at `start` where ``predict`` takes scores to begin at.
        """
        raise NotImplementedError

    def _cell_margin(self, X: Any, model: bytes) -> Array:
        """Scores of the booster of the joint cells, given its bytes."""
        raise NotImplementedError

    def _decision_margin(self, X: Any, start: Any = None) -> Array:
        """Scores that decisions are made by."""
        return self._with_cells(X, self._raw_margin(X, start))

    def _with_cells(self, X: Any, margin: Array) -> Array:
        """Combine scores of the labels with those of the joint cells, if decisions need them."""
        rules = self.__dict__.get("_rules")
        if rules is None or rules["cell_model"] is None:
            return margin
        scores = CellScores(**rules["cell_scores"])
        return scores.combine(margin, self._cell_margin(X, rules["cell_model"]))

    def _fit_metric(
        self,
        adapter: NativeAdapter,
        rows: FitArguments,
        options: SolverOptions,
        sensitive_features_eval_set: Any = None,
        merger: Merger | None = None,
        interruptions: Interruptions = Interruptions(),
        make_boosters: Callable[[TimeLimit], ConstrainedBoosters] | None = None,
    ) -> None:
        """Fit with a metric of the confusion matrix, or the error rate, as the objective."""
        limit = TimeLimit(interruptions.time_limit)  # Its time begins here.
        settings = adapter.settings()
        callbacks = check_callbacks(interruptions.constraint_callbacks)
        notifier = SearchNotifier(
            callbacks, settings.n_rounds, 1, limit, settings.unit,
            learning_rate=settings.learning_rate,
        )  # fmt: skip
        fit = MetricFit(
            options,
            options.metric,
            rows,
            settings,
            are_log_odds=adapter.without_gradients() is None,
            notifier=notifier,
        )
        adapter.check_rows(fit.problem.data.combined)
        sets = bind_sets(fit.problem, adapter.evaluation_rows(), sensitive_features_eval_set)
        boosters = None
        if make_boosters is not None and fit.may_have_multipliers:
            boosters = make_boosters(limit)
        else:
            fit.problem.data.alignment.warn()
            arguments = {**adapter.given(), **rows.by_name()}
            arguments["sensitive_features_eval_set"] = sensitive_features_eval_set
            fit.save_to(interruptions.checkpoint, self, arguments)
        with unchanged_on_error(self):
            result = fit.run(adapter.fit_part, merger, boosters)
            if boosters is not None:
                assert result.booster_set is not None
                boosters.train(result.booster_set)
            elif merger is None or result.label_model is None:
                is_over = notifier.is_over if notifier.is_stopped else None
                adapter.fit_plain(result.row_factor, is_over)
                adapter.leave_out_rounds()
            else:
                merger.take(result.label_model)
            remove_report(self)
            self._rules = _as_dict(result)
            start = adapter.starting_scores()
            with warnings.catch_warnings():  # Training took the same kind of table silently.
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                margin = self._decision_margin(fit.problem.data.combined.X, start)
                if boosters is not None:
                    result = result.transfer(boosters, margin)
                result = fit.keep_promise(result, margin)
                self._rules = _as_dict(result)
                feasibility = report_metric(self, fit, result, self._decision_margin, margin, sets)
            self._fold(adapter, result)
            adapter.finish()
        if fit.checkpoint is not None:
            fit.checkpoint.remove()
        notifier.warn()
        if boosters is not None:
            boosters.fit.notifier.warn()
        warn_of_metric(fit, result, feasibility)

    def _fold(self, adapter: NativeAdapter, result: MetricResult) -> None:
        """Put one rule that is a shift of the scores into the model, or beside it."""
        n_columns = 1 if len(self.classes_) == 2 else len(self.classes_)
        self.shift_ = np.zeros(n_columns)
        rules = result.rules
        shift = rules[0].as_shift() if len(rules) == 1 and result.cell_model is None else None
        if shift is None:
            return
        del self._rules
        if np.abs(shift).max() < ROUNDING:
            shift = np.zeros(n_columns)
        self.shift_ = shift
        is_calibrated = getattr(self, "probabilities", "shifted") == "calibrated"
        if not adapter.can_fold():
            self._threshold = shift  # Also of zero: LightGBM decides nothing by its own scores
        elif shift.any() and not is_calibrated:  # under a callable objective.
            adapter.add_to_margin(shift)
        elif shift.any():
            self._threshold = shift

    def _decide_by_rules(self, X: Any, margins: Margins, random_state: Any) -> Codes:
        """Decide the class index of each row by the rules of the metric."""
        margin = self._with_cells(X, margins(0))
        mixture = Mixture(self._cost_rules, self._rules["probability"], random_state)
        return mixture.decide(lambda _: margin)

    @property
    def _cost_rules(self) -> tuple[CostRule, ...]:
        factors, scale = self._rules["factors"], self._rules["scale"]
        return tuple(CostRule(costs, factors, scale=scale) for costs in self._rules["costs"])

    def decision_probabilities(self, X: Any) -> Float:
        """Probability that ``predict`` decides each class.

        These are no probabilities of the labels: ``predict_proba`` stays that of the booster, of
        mixtures and of rules that are kept beside the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Zeros and ones unless the decisions are randomised.
        """
        n_classes = len(self.classes_)
        if hasattr(self, "_rules"):
            margin = self._decision_margin(X)
            decisions = [rule.decide(lambda _: margin) for rule in self._cost_rules]
            return mixture_shares(decisions, self._rules["probability"], n_classes)
        margin = self._raw_margin(X)
        shift = getattr(self, "_threshold", np.zeros(1 if n_classes == 2 else n_classes))
        codes = MarginShift(shift).decide(lambda _: margin)
        return mixture_shares([codes], np.ones(1), n_classes)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **columns: Any) -> float:
        """Compute the metric that the classifier maximises or minimises, or the accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        **columns
            ``sensitive_features``, of a metric that looks at groups which are no columns of X.

        Returns
        -------
        float
            The larger, the better: a metric that is minimised has its sign changed. Of randomised
            decisions, the metric of their probabilities.
        """
        black_box = read_black_box(self.maximize, self.minimize)
        metric = read_objective(self.maximize, self.minimize) if black_box is None else None
        if metric is None and black_box is None:
            return float(super().score(X, y, sample_weight, **columns))  # type: ignore[misc]
        labels, classes = as_labels(y), np.asarray(self.classes_)
        sensitive = columns.get("sensitive_features")
        codes = encode_labels(labels, classes, "y holds", "the classes of the classifier")
        weight = check_weight(sample_weight, codes.size)
        rows = Rows(codes, classes, weight, columns_of(sensitive, codes.size), [X])
        if metric is None:
            return float(self._score_black_box(black_box, X, rows, labels, sensitive))
        value = measure_metric(metric, rows, self.decision_probabilities(X), self.positive)
        return value if metric.greater_is_better else -value


def _as_dict(result: MetricResult) -> dict[str, Any]:
    """Collect the rules of a fitted classifier, as its file holds them."""
    return {
        "costs": result.chosen.costs,
        "probability": result.chosen.probability,
        "factors": result.factors,
        "scale": result.scale,
        "cell_model": result.cell_model,
        "cell_scores": None if result.cell_scores is None else dict(vars(result.cell_scores)),
    }
