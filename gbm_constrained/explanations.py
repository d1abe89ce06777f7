r"""Why two groups differ: a gap split over the features.

A model of raw scores :math:`s = b + \sum_j \phi_j` gives each feature j of a row its contribution
:math:`\phi_j`: those along the path of a row in each tree or of TreeSHAP [1]_, or a linear model's
coefficients times its features. The
gap of a rate or mean between groups A and B is

.. math:: \Delta = E_{i \in A}\, h(s_i) - E_{k \in B}\, h(s_k) ,

where h is a step for decisions, a sigmoid for probabilities, and the identity for raw scores. Let
a row of B become a row of A, all its contributions at the same pace. Its score goes along
:math:`s_k + t (s_i - s_k)`, and each feature has moved h by the Aumann-Shapley value [2]_ (that of
integrated gradients [3]_)

.. math:: (\phi_{ij} - \phi_{kj}) \int_0^1 h'(s_k + t (s_i - s_k))\, dt
    = (\phi_{ij} - \phi_{kj}) \frac{h(s_i) - h(s_k)}{s_i - s_k} .

The part of a feature is the mean of this over pairs of rows. Parts add up to the gap, since the
contributions add up to the score. A feature that the model does not use has none. Of raw scores
the part is the difference of the mean contributions.

Rates that depend on labels are split among rows of one label, and the parts of the labels are
weighted by the mean of their shares in both groups. What the different shares of the labels make
of the gap is a part of its own, "labels". Each row of B meets :data:`N_PAIRINGS` rows of A, one in
each of as many strata of the scores. So time grows with the number of rows, and each row counts as
often as any other.

Standard errors are those of the mean of parts of :data:`N_BLOCKS` random blocks of the rows.

References
----------
.. [1] Lundberg et al., "From local explanations to global understanding with explainable AI for
   trees", Nature Machine Intelligence, 2020.
.. [2] Aumann and Shapley, "Values of Non-Atomic Games", 1974.
.. [3] Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", 2017, equation 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from scipy import special, stats

from gbm_constrained._dataframes import names_of
from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import ROUNDING, Constraint
from gbm_constrained.constraints.checking import resolve_positive_class
from gbm_constrained.constraints.rates import Above, Prediction, Residual, row_functions_of
from gbm_constrained.data import validation
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation.audit import (
    PART_COLUMNS,
    encode_labels,
    find_classes,
    innermost,
    is_of_numbers,
    positive_of,
    predict_labels,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.reporting.explanation import GapExplanation
from gbm_constrained.reporting.plotting.groups import comparison_of
from gbm_constrained.scorers.lightgbm import models as lightgbm_models
from gbm_constrained.scorers.xgboost import models as xgboost_models

__all__ = ["explain_gap"]

N_PAIRINGS, N_BLOCKS, MIN_ROWS = 64, 20, 50
Quantity: TypeAlias = Literal["rate", "probability", "score"]
LABELS = "labels"


class _Scored(NamedTuple):
    """Contributions (n, d) of features, raw scores (n,), and what is averaged, h (n,)."""

    names: list[str]
    contributions: Float
    score: Float
    value: Float
    slope: Float  # Derivative of h at the scores, for pairs of equal ones.


class _Base(NamedTuple):
    """Rows of a group, and their share in its value ``constant + sum(share * h)``."""

    rows: Codes
    share: Float
    stratum: Codes
    constant: float

    def mean(self, value: Float) -> float:
        """Compute the value of the group, given h of all rows."""
        return self.constant + float(self.share @ value[self.rows])


def explain_gap(
    model: Any,
    X: Any,
    constraint: Any,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    of: Quantity = "rate",
    groups: tuple[Hashable, Hashable] | None = None,
    others: Mapping[str, Any] | None = None,
    tree_shap: bool = False,
    level: float = 0.95,
    random_state: int = 0,
) -> GapExplanation:
    """Split the gap of a rate or mean between two groups over the features of a model.

    Parameters
    ----------
    model : fitted classifier of two classes or regressor
        XGBoost's or LightGBM's, under constraints or not, a linear model, or a Pipeline that ends
        with one.
    X : array-like of shape (n_samples, n_features)
        Features.
    constraint : Constraint or comparison of groups
        What is compared, as ``gap(tpr(), by="sex")``: a rate of decisions, or a regressor's
        ``mean_prediction()``, ``mean_residual()`` or ``share_above(c)``.
    y : array-like of shape (n_samples,), default=None
        Labels or targets. Rates without labels, such as ``selection_rate()``, need none.
    sensitive_features : table of shape (n_samples, ...), default=None
        Groups, if they are no columns of `X`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    of : {"rate", "probability", "score"}, default="rate"
        What is split: the rate itself, or the mean probability or raw score of the rows that the
        rate is taken over.
    groups : tuple of two names, default=None
        Groups A and B; by default those of the largest and of the smallest value of `model`.
    others : mapping from str to model, default=None
        Models to split the same gap of, as ``{"plain": plain}``.
    tree_shap : bool, default=False
        Whether contributions of trees are those of TreeSHAP, and not those along the path of each
        row [1]_. Both add up to the score. TreeSHAP takes twenty times as long.
    level : float, default=0.95
        Level of the intervals.
    random_state : int, default=0
        Seed of the blocks of rows that standard errors come from.

    Returns
    -------
    GapExplanation
        Parts and gaps, which print as a table and draw themselves.

    Raises
    ------
    TypeError
        If the constraint compares no groups, or a model has no contributions.
    ValueError
        If the rate is none of those above, or needs labels that are not given; if a group is not
        among the rows; or if the decisions of a model do not follow its raw scores, as those of
        several classes, mixtures and thresholds of groups do not.

    References
    ----------
    .. [1] Saabas, "Interpreting random forests", 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from lightgbm import LGBMClassifier
    >>> from gbm_constrained import explain_gap, gap, selection_rate
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.integers(0, 2, 500)
    >>> X = np.column_stack([rng.normal(size=500) + sex, rng.normal(size=500)])
    >>> model = LGBMClassifier(n_estimators=10, verbose=-1).fit(X, (X.sum(axis=1) > 1).astype(int))
    >>> found = explain_gap(
    ...     model, X, gap(selection_rate(), by="sex"), sensitive_features={"sex": sex}
    ... )
    >>> bool(np.isclose(found.parts["part"].sum(), found.gaps["gap"][0]))
    True
    """
    validation.check_choice("of", of, ("rate", "probability", "score"))
    validation.check_share("level", level)
    stated = comparison_of(constraint)
    is_number = is_of_numbers(model, [stated])
    n = int(X.shape[0]) if hasattr(X, "shape") else len(X)
    if y is None and is_of_labels(stated):
        raise ValueError(f"y is None, and {stated} is about labels: give y=.")
    name, others = type(model).__name__, others or {}
    if name in others:
        raise ValueError(f"others has a model called {name!r}, as the explained one: rename it.")
    models = {name: model, **others}
    weight = validation.check_weight(sample_weight, n)
    columns = validation.columns_of(sensitive_features, n)
    labels = None if y is None else validation.as_labels(y)
    bases: _Bases | None = None
    parts, gaps = [], []
    for name, each in models.items():
        if is_number:
            (function,) = row_functions_of([stated])
            targets = np.zeros(n) if labels is None else labels.astype(np.float64)
            rows = Rows(np.zeros(n, np.intp), np.array([function.key]), weight, columns, [X])
            scored = _score_numbers(each, X, function, of, tree_shap=tree_shap)
        else:
            targets, decided = None, predict_labels(each, name, X, n, sensitive_features)
            classes = find_classes(each, decided if labels is None else labels, {name: decided})
            if classes.size != 2:
                raise ValueError(
                    f"{name} has {classes.size} classes, and a gap is split of two: explain a "
                    f"classifier of one class against the rest."
                )
            (stated,) = resolve_positive_class([stated], classes, positive_of(each))
            given = decided if labels is None else labels
            codes = encode_labels(given, classes, "y holds", "the classes of the model")
            rows = Rows(codes, classes, weight, columns, [X])
            scored = _score_classes(each, X, decided == classes[1], of, tree_shap=tree_shap)
        if bases is None:
            bases = _Bases(stated, rows, of, targets, scored.value, groups)
        found, errors = bases.split(scored, level, random_state)
        names = [*scored.names, LABELS] if abs(found[-1]) > ROUNDING else scored.names
        found, errors = found[: len(names) + 1], errors[: len(names) + 1]
        low, high = found - errors, found + errors
        order = np.argsort(-abs(found[1:]), kind="stable") + 1
        parts += [(name, names[j - 1], found[j], low[j], high[j]) for j in order]
        values = [base.mean(scored.value) for base in bases.pair]
        gaps.append((name, *values, found[0], low[0], high[0]))
    assert bases is not None
    mean = "" if of == "rate" else f"mean {of} of the rows of "
    comparison = f"{mean}{stated.expression.rates[0]}: {bases.names[0]} less {bases.names[1]}"
    table = pd.DataFrame(parts, columns=PART_COLUMNS[1:])
    table.insert(0, PART_COLUMNS[0], comparison)
    named = pd.DataFrame(gaps, columns=["model", *bases.names, "gap", "low", "high"])
    return GapExplanation(table, named, comparison)


def is_of_labels(stated: Constraint) -> bool:
    """Whether the rates that a constraint compares depend on labels."""
    parts = (part for term in stated.terms for part in (*term.selectors, term.event))
    return any(getattr(part, "needs_labels", False) for part in parts)


class _Bases:
    """The two groups that are compared, and how their values are means over rows."""

    def __init__(
        self,
        stated: Constraint,
        rows: Rows,
        of: Quantity,
        targets: Float | None,
        value: Float,
        groups: tuple[Hashable, Hashable] | None,
    ) -> None:
        self.stated, self.rows, self.of, self.targets = stated, rows, of, targets
        self.is_of_labels = is_of_labels(stated)
        self.names: tuple[str, ...] = ()
        found = self.read(np.arange(len(rows)))
        if groups is None:
            values = {name: base.mean(value) for name, base in found.items() if base.rows.size}
            self.names = max(values, key=values.__getitem__), min(values, key=values.__getitem__)
        else:
            self.names = tuple(map(str, groups))
        for name in self.names:
            if name not in found or not found[name].rows.size:
                raise ValueError(
                    f"groups has {name!r}, which is not among the groups of {stated} with rows: "
                    f"{[name for name, base in found.items() if base.rows.size]}."
                )
        self.pair = tuple(found[name] for name in self.names)

    def read(self, index: Codes) -> dict[str, _Base]:
        """Read the groups among some of the rows from the rows' coefficients."""
        rows = self.rows.take(index)
        cells, compiled = compile_constraints([self.stated], rows, warning=None)
        others = (compiled.tables[name].nnz for name in ("loss", "pairs", "residuals"))
        if any(others) or compiled.curves.is_curved.any():
            raise ValueError(
                f"constraint={self.stated} is no mean of decisions or predictions: rates such as "
                f"tpr() and selection_rate() can be split, and mean_prediction(), mean_residual() "
                f"and share_above(c) of regressors."
            )
        table = compiled.tables["predicted"].toarray()
        table = table.reshape(len(table), len(cells), -1)
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        found = {}
        groups = zip(compiled.groups[0], table, compiled.constant, strict=False)
        for group, of_cells, constant in groups:
            above = of_cells[:, -1] - (of_cells[:, 0] if self.targets is None else 0.0)
            share = np.zeros(len(rows))
            for view in cells.views:
                per_weight = above / np.where(cells.weight > 0, cells.weight, 1.0)
                amount = 1.0 if view.amount is None else view.amount
                share += per_weight[view.codes] * weight * amount
            start = float(np.nan_to_num(constant))
            if self.targets is None:
                start += float(of_cells[:, 0].sum())
            stratum = 2 * rows.y * self.is_of_labels + (share < 0.0)
            if self.of != "rate":
                share, start = np.where(share, weight, 0.0), 0.0
                share, stratum = share / max(share.sum(), 1e-300), np.zeros_like(rows.y)
            elif self.targets is not None and self.is_of_labels:  # A residual falls with h.
                start, share = start + float(share @ self.targets[index]), -share
            own = np.flatnonzero(share)
            found[str(group)] = _Base(index[own], share[own], stratum[own], start)
        return found

    def split(self, scored: _Scored, level: float, seed: int) -> tuple[Float, Float]:
        """Split the gap: itself and its parts, and half of the intervals' widths."""
        whole = _split(scored, *self.pair)
        n_blocks = min(N_BLOCKS, min(base.rows.size for base in self.pair) // MIN_ROWS)
        half = np.full(whole.size, np.nan)
        if n_blocks > 1:
            everyone = np.random.default_rng(seed).permutation(len(self.rows))
            # Groups have equal shares of the blocks, so that none lacks rows of one.
            first, second = (np.isin(everyone, base.rows) for base in self.pair)
            everyone = everyone[np.argsort(2 * first + second, kind="stable")]
            blocks = []
            for b in range(n_blocks):
                of_block = self.read(np.sort(everyone[b::n_blocks]))
                blocks.append(_split(scored, *(of_block[name] for name in self.names)))
            error = np.std(blocks, axis=0, ddof=1) / np.sqrt(n_blocks)
            half = stats.t.isf((1.0 - level) / 2.0, n_blocks - 1) * error
        return whole, half


def _split(scored: _Scored, a: _Base, b: _Base) -> Float:
    """Split a gap: itself, the parts of the features, and that of the labels."""
    parts = np.zeros(len(scored.names))
    of_labels = a.constant - b.constant
    for stratum in np.union1d(a.stratum, b.stratum):
        sides = []
        for base in (a, b):
            own = base.stratum == stratum
            share, rows = base.share[own], base.rows[own]
            total = float(share.sum())
            sides.append((total, rows, share / total if own.any() else share))
        (of_a, rows_a, share_a), (of_b, rows_b, share_b) = sides
        means = [share @ scored.value[rows] for _, rows, share in sides]
        if not rows_a.size or not rows_b.size:
            of_labels += of_a * means[0] - of_b * means[1]
            continue
        of_labels += (of_a - of_b) * (means[0] + means[1]) / 2.0
        weight_a, weight_b = _pair(scored, rows_a, share_a, rows_b, share_b)
        moved = weight_a @ scored.contributions[rows_a] - weight_b @ scored.contributions[rows_b]
        parts += (of_a + of_b) / 2.0 * moved
    gap = a.mean(scored.value) - b.mean(scored.value)
    return np.concatenate([[gap], parts, [of_labels]])


def _pair(
    scored: _Scored, rows_a: Codes, share_a: Float, rows_b: Codes, share_b: Float
) -> tuple[Float, Float]:
    """Pair the rows of two groups, and add up what a unit of contribution moves h by.

    Rows are pieces of [0, 1] in the order of their scores, as long as their shares. Each pairing
    lays one group over the other, turned by another part of the circle.
    """
    sides = []
    for rows, share in ((rows_a, share_a), (rows_b, share_b)):
        order = np.argsort(scored.score[rows], kind="stable")
        ends = np.cumsum(share[order])
        ends[-1] = 1.0
        sides.append((order, ends, rows[order], np.zeros(rows.size)))
    (order_a, ends_a, rows_a, sum_a), (order_b, ends_b, rows_b, sum_b) = sides
    for turn in (np.arange(N_PAIRINGS) + 0.5) / N_PAIRINGS:
        ends = np.sort(np.concatenate([ends_a, (ends_b + turn) % 1.0]))
        length = np.diff(ends, prepend=0.0)
        middle = ends - length / 2.0
        i = np.minimum(np.searchsorted(ends_a, middle), rows_a.size - 1)
        k = np.minimum(np.searchsorted(ends_b, (middle - turn) % 1.0), rows_b.size - 1)
        one, two = rows_a[i], rows_b[k]
        ratio = scored.slope[one]
        apart = scored.score[one] - scored.score[two]
        np.divide(scored.value[one] - scored.value[two], apart, out=ratio, where=apart != 0.0)
        sum_a += np.bincount(i, length * ratio, rows_a.size)
        sum_b += np.bincount(k, length * ratio, rows_b.size)
    weight_a, weight_b = np.empty_like(sum_a), np.empty_like(sum_b)
    weight_a[order_a], weight_b[order_b] = sum_a / N_PAIRINGS, sum_b / N_PAIRINGS
    return weight_a, weight_b


def _score_classes(model: Any, X: Any, selected: Any, of: Quantity, *, tree_shap: bool) -> _Scored:
    """Score rows of two classes, whose decisions are a threshold on the scores."""
    names, contributions, score = _contribute(model, X, tree_shap=tree_shap)
    if of != "rate":
        if of == "probability":
            probability = special.expit(score)
            slope = probability * (1.0 - probability)
            return _Scored(names, contributions, score, probability, slope)
        return _Scored(names, contributions, score, score, np.ones_like(score))
    if score[selected].min(initial=np.inf) <= score[~selected].max(initial=-np.inf):
        raise ValueError(
            f"{type(model).__name__} decides otherwise than by a threshold of its raw scores, as "
            f"mixtures and thresholds of groups do: explain of='score', or a model without them."
        )
    return _Scored(names, contributions, score, selected * 1.0, np.zeros_like(score))


def _score_numbers(model: Any, X: Any, function: Any, of: Quantity, *, tree_shap: bool) -> _Scored:
    """Score rows of a regressor."""
    names, contributions, score = _contribute(model, X, tree_shap=tree_shap)
    found: Float = np.asarray(model.predict(X), dtype=np.float64)
    slope: Float = found  # Of predictions exp(score), as those of counts are.
    if of != "rate" or np.allclose(found, score, rtol=1e-4, atol=1e-6):
        found, slope = score, np.ones(score.size)  # To the last digit of the contributions.
    if of == "rate":
        is_mean = isinstance(function, Prediction) or (
            isinstance(function, Residual) and function.limits is None
        )
        if isinstance(function, Above):
            found, slope = (found > function.threshold).astype(np.float64), np.zeros(score.size)
        elif not is_mean:
            raise ValueError(
                f"constraint is about {function.key}, which is no function of the prediction: "
                f"mean_prediction(), mean_residual() and share_above(c) can be split."
            )
        elif function.limits is not None:
            inside = np.clip(found, *function.limits)
            found, slope = inside, np.where(inside == found, slope, 0.0)
    return _Scored(names, contributions, score, found, slope)


def _contribute(model: Any, X: Any, *, tree_shap: bool) -> tuple[list[str], Float, Float]:
    """Find names, contributions and raw scores of a model's features."""
    if isinstance(getattr(model, "steps", None), list):
        before = model[:-1]
        names, given, score = _contribute(model[-1], before.transform(X), tree_shap=tree_shap)
        if hasattr(before, "get_feature_names_out"):
            names = list(map(str, before.get_feature_names_out()))
        return names, given, score
    model = innermost(getattr(model, "estimator", model))  # Of a file, or frozen.
    coefficients = np.ravel(getattr(model, "coef_", ()))
    if isinstance(model, lgb.LGBMModel):
        table, score = lightgbm_models.contributions(model.booster_, X, tree_shap=tree_shap)
    elif isinstance(model, xgb.XGBModel):
        table, score = xgboost_models.contributions(model, X, tree_shap=tree_shap)
    elif coefficients.size and coefficients.size == np.shape(X)[1]:
        rows = np.asarray(X, dtype=np.float64) * coefficients
        start = np.full(len(rows), float(np.ravel(model.intercept_)[0]))
        table, score = np.column_stack([rows, start]), rows.sum(axis=1) + start
    else:
        raise TypeError(
            f"{type(model).__name__} has no contributions of features: give a booster of XGBoost "
            f"or LightGBM, a linear model of two classes or of numbers, or a Pipeline with one."
        )
    whole = table.sum(axis=1)
    if whole.shape != score.shape or not np.allclose(whole, score, rtol=1e-3, atol=1e-3):
        raise ValueError(
            f"{type(model).__name__} has no scores that are sums of constant leaves, one for each "
            f"row: give a model without linear_tree=True, and of one score."
        )
    known = map(str, names_of(X) or [f"x{j}" for j in range(table.shape[1] - 1)])
    return list(known), table[:, :-1], whole
