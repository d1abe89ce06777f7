"""Classifiers whose objective is only a function to call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import clone

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of, preserve_random_state
from gbm_constrained.decision.groups import GroupOffsets, take_offsets
from gbm_constrained.decision.histograms import RESOLUTION
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.fit.black_box_fit import (
    RETURNED,
    AdjustableModel,
    BlackBoxFit,
    BlackBoxOptions,
    BlackBoxResult,
    partition,
)
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.metric_report import take_fit
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.options import solver_parameter
from gbm_constrained.metrics.black_box import BlackBox


def report_black_box(
    estimator: Any, fit: BlackBoxFit, result: BlackBoxResult, before: pd.Series[Any], scores: Float
) -> None:
    """Set the fitted attributes.

    Parameters
    ----------
    estimator : classifier
        The classifier that is given the attributes.
    fit : BlackBoxFit
        The fit.
    result : BlackBoxResult
        What was found.
    before : Series
        Parameters of the library's own model, by name.
    scores : ndarray of shape (n_evaluation,)
        Scores of the evaluation rows by the returned model.
    """
    estimator.blackbox_report_ = _tabulate_models(fit, {**result.evaluated, RETURNED: scores},
                                                  result.losses)  # fmt: skip
    estimator.history_ = _tabulate_iterations(fit, result)
    estimator.blackbox_parameters_ = _tabulate_parameters(fit, result, before)
    estimator.stopping_message_ = _explain_end(fit, result)


def _tabulate_models(
    fit: BlackBoxFit, scores: dict[str, Float], losses: dict[str, float]
) -> pd.DataFrame:
    """Tabulate the metric of each model on the rows of evidence, and on those that chose."""
    measured = fit.reported
    measured.budget.reserve(0)
    measured.place = "the report"
    direction = 1.0 if measured.called.is_maximized else -1.0
    # Rows are drawn with replacement, as many of each label in each group as there are. A single
    # row is the same in all draws, as if it did not vary: no draws are made then.
    codes, random = partition(fit.evaluation.rows, fit.options).codes, np.random.RandomState(0)
    strata = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    n_draws = 0 if min(rows.size for rows in strata) < 2 else fit.plan.replicates
    draws = [
        np.sort(np.concatenate([random.choice(rows, rows.size) for rows in strata]))
        for _ in range(n_draws)
    ]
    values = {
        name: np.array(
            [
                measured.measure(of_model),
                *(measured.take(index).measure(of_model[index]) for index in draws),
            ]
        )
        for name, of_model in scores.items()
    }
    constraints = fit.evaluated_constraints
    records = []
    for name, found in values.items():
        low, high = np.clip(_interval(found), *measured.bounds)
        gain = direction * (values[RETURNED] - found)
        gain_low, gain_high = _interval(gain)
        verdict = "cannot be told"
        if gain_low > 0.0:
            verdict = "better"
        elif gain_high < 0.0:
            verdict = "worse"
        is_compared = name != RETURNED
        violation = np.nan if constraints is None else constraints.violation(scores[name])
        records.append(
            {
                "model": name,
                "evaluation": found[0],
                "low": low,
                "high": high,
                "gain": gain[0] if is_compared else np.nan,
                "gain_low": gain_low if is_compared else np.nan,
                "gain_high": gain_high if is_compared else np.nan,
                "verdict": verdict if is_compared else "returned",
                "validation": fit.metric.from_loss(losses[name]),
                "violation": violation,
            }
        )
    table = pd.DataFrame(records)
    table["n_evaluation"] = len(fit.evaluation.rows)
    table["n_validation"] = len(fit.validation.rows)
    return table.assign(calls=measured.calls)


def _interval(values: Float) -> Float:
    """Make a 95% interval from a value and its replicates; NaN with fewer than two of these."""
    if values.size < 3:
        return np.full(2, np.nan)
    width = float(norm.ppf(0.975)) * float(np.std(values[1:], ddof=1))
    return np.array([values[0] - width, values[0] + width])


def _tabulate_iterations(fit: BlackBoxFit, result: BlackBoxResult) -> pd.DataFrame:
    """Tabulate the start and each iteration: the metric, and surrogates against their targets."""
    iterates = result.search.iterates
    columns: dict[str, Any] = {
        "iteration": np.arange(len(iterates)),
        "metric": [fit.metric.from_loss(one.loss) for one in iterates],
        "redrawn": [one.redrawn for one in iterates],
        "excess": [one.excess for one in iterates],
    }
    for name in ("profile", "target", "gradient"):
        values = np.array([getattr(one, name) for one in iterates])
        shown = "surrogate" if name == "profile" else name
        for k, surrogate in enumerate(fit.surrogates.names):
            described = surrogate.removeprefix("surrogate(").removesuffix(")").replace("'", "")
            columns[f"{shown}[{described}]"] = values[:, k]
    return pd.DataFrame(columns)


def _tabulate_parameters(
    fit: BlackBoxFit, result: BlackBoxResult, before: pd.Series[Any]
) -> pd.DataFrame:
    """Tabulate the parameters of both models, the offsets of groups and what all scores get."""
    levels = fit.levels if fit.n_offsets else ()
    groups = [f"offset[{', '.join(map(str, level))}]" for level in levels]
    after = pd.Series(result.parameters, [*before.index, *groups, "intercept"])
    return pd.DataFrame({"before": before.reindex(after.index, fill_value=0.0), "after": after})


def _explain_end(fit: BlackBoxFit, result: BlackBoxResult) -> str | None:
    """Explain why the search ended before all iterations; None if it did not."""
    done, asked = len(result.search.iterates) - 1, fit.options.search.n_iterations
    if result.search.ended == "iterations":
        return None
    reason = (
        f"too few calls were left of max_calls={fit.options.metric.max_calls}"
        if result.search.ended == "calls"
        else "no perturbation of the parameters changed the metric"
    )
    return f"The search ended after {done} of {asked} iterations: {reason}."


class AdjustableAdapter(Protocol):
    """What a fit for a black-box metric knows of a library."""

    @property
    def takes_offsets(self) -> bool:
        """Whether offsets of groups may be added to the scores of the model."""

    def check_adjustable(self, space: str) -> None:
        """Refuse models whose scores are no sum that parameters could weigh."""

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""

    def adjustable(self, space: str) -> AdjustableModel:
        """Give access to the parameters of the trained model."""


class BlackBoxMixin:
    """What a classifier with ``minimize=BlackBox(...)`` does."""

    classes_: Any
    maximize: Any
    minimize: Any
    random_state: Any

    def _raw_margin(self, X: Any, start: Any = None) -> Array:
        """Scores of the model, of shape (n_samples,)."""
        raise NotImplementedError

    def _fit_black_box(
        self, adapter: AdjustableAdapter, rows: FitArguments, metric: BlackBox
    ) -> None:
        """Train the library's own model, and minimise the metric over its parameters."""
        options = BlackBoxOptions(self, metric)
        space = options.search.space
        adapter.check_adjustable(space)
        fit = BlackBoxFit(options, rows, self.random_state, takes_offsets=adapter.takes_offsets)
        with unchanged_on_error(self):
            if fit.kept is not None:
                adapter.restrict(fit.kept)
            if options.constraints:  # By multipliers, as without the black-box metric.
                with preserve_random_state(self):
                    other = clone(self)
                other.set_params(maximize=None, minimize=None, **{solver_parameter(self): "auto"})
                adapter.fit_constrained(other, fit.data.arguments)
                take_fit(self, other)
            else:
                adapter.fit_plain()
            remove_report(self)
            model = adapter.adjustable(space)
            result = fit.run(model)
            for _ in range(options.search.refits):
                model, result = self._search_anew(adapter, fit, (model, result))
            before = pd.Series(model.start, list(model.names))
            end = -1 - fit.n_offsets
            model.set_parameters(result.parameters[:end], float(result.parameters[-1]))
            self._keep_offsets(fit, model, result.parameters[end:-1])
            evidence = fit.evaluation
            scores = self.decision_scores(evidence.X, evidence.sensitive_features)
            report_black_box(self, fit, result, before, scores)

    def _search_anew(
        self,
        adapter: AdjustableAdapter,
        fit: BlackBoxFit,
        best: tuple[AdjustableModel, BlackBoxResult],
    ) -> tuple[AdjustableModel, BlackBoxResult]:
        """Train on weighed rows, search from there, and keep the better one of both models."""
        before, (_, known) = dict(vars(self)), best
        adapter.fit_plain(fit.row_factors(known))
        model = adapter.adjustable(fit.options.search.space)
        found = fit.run(model)
        if found.loss < known.loss:
            losses = {**known.losses, RETURNED: found.losses[RETURNED]}
            return model, replace(found, losses=losses, evaluated=known.evaluated)
        vars(self).clear()
        vars(self).update(before)
        return best

    def _keep_offsets(self, fit: BlackBoxFit, model: AdjustableModel, values: Float) -> None:
        """Put the offsets of groups into the model, or beside it."""
        if not values.any():
            return
        columns, rows = fit.options.metric.columns, fit.data.rows
        assert columns is not None
        offsets = GroupOffsets(columns, fit.levels, values)
        X, groups = fit.data.combined.X, fit.groups_of(rows)
        if _are_of_features(X, rows, offsets, groups):
            _, first = np.unique(groups, return_index=True)
            table = take_rows(X, first)
            expected = self._raw_margin(table) + offsets.values[groups[first]]
            before = dict(vars(self))
            model.append_offsets(X, offsets, groups)
            if np.abs(self._raw_margin(table) - expected).max() < RESOLUTION:
                return
            vars(self).update(before)
        self._group_offsets = offsets.as_attribute()

    def decision_scores(self, X: Any, sensitive_features: Any = None) -> Float:
        """Compute the scores that decide, which are log odds of the last class.

        They are those of the library's own model, and offsets of groups where these are kept
        beside the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns that make the groups, where offsets are kept beside the model.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)

        Raises
        ------
        ValueError
            If the columns that make the groups are missing.
        """
        margin = np.asarray(self._raw_margin(X), dtype=np.float64)
        if not hasattr(self, "_group_offsets"):
            return margin
        return margin + self._find_offsets(X, sensitive_features)

    def _find_offsets(self, X: Any, sensitive_features: Any) -> Float:
        """Find the offset of each row's group; zero for groups that training did not have."""
        kept: dict[str, Any] = self._group_offsets
        n = number_of_rows(X)
        none = np.zeros(n, dtype=np.intp)
        rows = Rows(none, self.classes_, None, columns_of(sensitive_features, n), [X])
        try:
            found = rows.attribute(tuple(kept["columns"]))
        except UnavailableError as error:
            raise ValueError(
                f"The groups of {kept['columns']} have offsets that are kept beside the model: "
                f"give sensitive_features with these columns, or train a model without "
                f"offsets beside the model. {error}"
            ) from None
        known = {level: i for i, level in enumerate(kept["levels"])}
        position = np.array([known.get(level, len(known)) for level in found.levels], np.intp)
        offsets: Float = kept["offsets"]
        groups = position[np.asarray(found.codes)]
        if n_without := int((groups >= offsets.size).sum()):
            lacking = [level for level in found.levels if level not in known]
            issue_warning(
                f"{n_without} of {n} rows have groups of {kept['columns']} that training lacks, "
                f"{join_truncated(lacking)}: their scores get no offset, as none was chosen for "
                f"them. Give such rows in training, or the group of each row.",
                "GC208",
            )
        return take_offsets(offsets, groups)

    def _score_black_box(
        self, metric: BlackBox, X: Any, rows: Rows, labels: Array, sensitive_features: Any
    ) -> float:
        """Compute a black-box metric of encoded rows; the larger, the better."""
        scores = self.decision_scores(X, sensitive_features)
        value = metric.bind(rows, labels).measure(scores)
        return value if metric.called.is_maximized else -value


def _are_of_features(X: Any, rows: Rows, offsets: GroupOffsets, groups: Codes) -> bool:
    """Whether values of features make all groups that have offsets."""
    if not isinstance(X, pd.DataFrame) or not {*offsets.columns} <= {*X.columns}:
        return False
    moved = [offsets.levels[g] for g in np.flatnonzero(offsets.values)]
    if any(value is MISSING for level in moved for value in level):
        return False
    if rows.columns.keys().isdisjoint(offsets.columns):
        return True
    # A named column beside the features may hold other values.
    found = Rows(rows.y, rows.classes, None, {}, [X]).attribute(offsets.columns)
    own = [found.levels[code] for code in found.codes]
    return own == [offsets.levels[code] for code in groups]
