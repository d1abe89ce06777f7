"""Classifiers whose objective is only a function to call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.decision.group_shifts import GroupOffsets, take_offsets
from gbm_constrained.decision.lines import RESOLUTION
from gbm_constrained.exceptions import UnavailableError
from gbm_constrained.metrics.black_box import BlackBox
from gbm_constrained.training.black_box_fit import (
    RETURNED,
    BlackBoxFit,
    BlackBoxResult,
)
from gbm_constrained.training.black_box_model import AdjustableModel, Parameters
from gbm_constrained.training.black_box_options import BlackBoxOptions
from gbm_constrained.training.black_box_report import report_black_box
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.metric_classifier import take_fit
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.options import solver_parameter


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
        options = BlackBoxOptions.of(self, metric)
        space = options.search.space
        adapter.check_adjustable(space)
        fit = BlackBoxFit(options, rows, self.random_state, takes_offsets=adapter.takes_offsets)
        with unchanged_on_error(self):
            if fit.rows.kept is not None:
                adapter.restrict(fit.rows.kept)
            if options.constraints:
                self._train_under_constraints(adapter, fit.rows.data.arguments)
            else:
                adapter.fit_plain()
            remove_report(self)
            model = adapter.adjustable(space)
            result = fit.run(model)
            for _ in range(options.search.refits):
                model, result = self._search_anew(adapter, fit, (model, result))
            before = pd.Series(model.start, list(model.names))
            model.set_parameters(result.parameters.model, result.parameters.intercept)
            self._keep_offsets(fit, model, result.parameters)
            evidence = fit.rows.evaluation
            scores = self.decision_scores(evidence.X, evidence.sensitive_features)
            report_black_box(self, fit, result, before, scores)

    def _train_under_constraints(self, adapter: AdjustableAdapter, rows: FitArguments) -> None:
        """Train by multipliers, as without the black-box metric."""
        with preserve_random_state(self):
            model = clone(self)
        model.set_params(maximize=None, minimize=None, **{solver_parameter(self): "auto"})
        adapter.fit_constrained(model, rows)
        take_fit(self, model)

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

    def _keep_offsets(
        self, fit: BlackBoxFit, model: AdjustableModel, parameters: Parameters
    ) -> None:
        """Put the offsets of groups into the model, or beside it."""
        if not parameters.offsets.any():
            return
        columns, rows = fit.options.metric.columns, fit.rows.data.rows
        assert columns is not None
        offsets = GroupOffsets(columns, fit.levels, parameters.offsets)
        X, groups = fit.rows.data.combined.X, fit.groups_of(rows)
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
