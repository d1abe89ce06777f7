r"""What a bound costs: a model for each of several bounds, and what a score alone can promise.

:func:`tradeoff_curve` trains under one bound after the other and tells what each model does on
rows it has not seen. Multipliers grow as a bound tightens, so that each fit starts from those of
the one before.

:func:`np_roc_band` is about thresholds on a score. The empirical ROC curve promises nothing: a
threshold that lets 5% of some negatives through lets more than 5% through in about half of all
cases. The band answers another question, for a score and rows it was not trained on: which
threshold keeps the type I error (false positive rate) below :math:`\alpha` with probability
:math:`1 - \delta`, and between which bounds does its type II error (false negative rate) then lie?
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.validation import as_labels, check_share, check_weight
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation.audit import AuditTables, measure_classifier
from gbm_constrained.training.callbacks import ConstraintState
from gbm_constrained.training.options import start_from

__all__ = ["tradeoff_curve"]

CURVE_COLUMNS = (
    "constraint", "bound", "value", "value_low", "value_high", "accuracy", "accuracy_low",
    "accuracy_high", "rows", "satisfied", "verdict", "train", "multiplier", "rounds", "shift",
    "all_met", "seconds",
)  # fmt: skip


def tradeoff_curve(
    estimator: Any,
    X: Any,
    y: Any,
    bounds: Sequence[float],
    *,
    constraint: Callable[[float], Any] | None = None,
    sensitive_features: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    sensitive_features_test: Any = None,
    sample_weight_test: Any = None,
    level: float = 0.95,
    **fit_params: Any,
) -> pd.DataFrame:
    """Train under one bound after the other, and measure each model on rows it has not seen.

    Bounds are taken from the loosest to the tightest, and each fit starts from the multipliers of
    the one before: the first rounds, in which a multiplier would still
    be on its way, are then not spent on a rule that is broken.

    Parameters
    ----------
    estimator : constrained classifier
        As it is to be trained; it is cloned for each bound and stays as it is.
    X, y : array-like
        Training rows.
    bounds : sequence of float
        Bounds, in any order.
    constraint : callable, default=None
        Maps a bound to a constraint or several, such as ``lambda b: fnr() <= b``. By default the
        estimator's own constraint, which must be one, with its bound replaced. Of several, the
        first one whose bound changes tells what is loose and what is tight.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        As in the estimator's ``fit``.
    X_test, y_test, sensitive_features_test, sample_weight_test : default=None
        Rows held out, that the models are measured on, and their weights in all rates. By default
        these are the rows that the fit itself holds out: those of its certificates, an
        ``eval_set`` in `fit_params`, or those its multipliers were moved by, out of fold.
    level : float, default=0.95
        Level of the intervals on test rows; those of a fit's own rows are at 0.95.
    **fit_params
        Other arguments of ``fit``.

    Returns
    -------
    DataFrame
        One row for each bound, from the loosest to the tightest; where `constraint` makes several
        rules, one for each of these as well.

        - ``constraint``, ``bound``: the rule.
        - ``value``, ``value_low``, ``value_high``: on the unseen rows, and the interval.
        - ``accuracy``, ``accuracy_low``, ``accuracy_high``: likewise.
        - ``rows``: which rows these are, ``"test"`` or as in ``constraint_report_``.
        - ``satisfied``: whether the value is on the right side; missing where there is none.
        - ``verdict``: the verdict on these rows, as in ``constraint_report_`` or an audit.
        - ``train``, ``multiplier``: the value on the training rows, and the multiplier.
        - ``rounds``, ``shift``: boosting rounds of the model and the shift of its scores; of
          several classes, the largest.
        - ``all_met``: whether the fit's own verdict on each of its rules is "met".
        - ``seconds``: the fit's time.

    Raises
    ------
    TypeError, ValueError
        If there is no constraint to bound, if arguments of test rows lack the rows, if a rule
        holds a mask or decisions, which are of training rows, and test rows are given, or
        something that ``fit`` refuses.

    See Also
    --------
    gbm_constrained.plotting.plot_tradeoff : The figure.

    Notes
    -----
    A fit's own rows chose its threshold, and are a little kinder to it than new ones where rows
    are few (out of fold, each is decided by a threshold that the other folds chose). To choose a
    bound by this table, and then report the model's rate, needs rows used for neither.
    """
    rule = _rule_of(estimator, constraint)
    values = _sorted_bounds(bounds)
    check_share("level", level)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test belong together: give both, or neither.")
    of_test = {
        "sensitive_features": sensitive_features_test,
        "sample_weight": sample_weight_test,
    }
    for name, given in of_test.items():
        if X_test is None and given is not None:
            raise ValueError(
                f"{name}_test is of test rows, and there are none: give X_test and y_test as "
                f"well, or leave it out."
            )
    if sensitive_features is not None:
        fit_params["sensitive_features"] = sensitive_features
    made = [rule(value) for value in values]
    if len({len(rules) for rules in made}) > 1:
        raise ValueError(
            "constraint makes different numbers of rules of these bounds: let it return the same "
            "rules for each, with other bounds."
        )
    if X_test is not None:
        positive = getattr(estimator, "positive", None)
        _check_auditable(X, y, X_test, y_test, made[0], positive, of_test)
    if _loosens(made[0], made[-1]):
        made.reverse()
    if getattr(estimator, "guarantee", None) is not None:
        _check_trainable(clone(estimator).set_params(constraints=list(made[-1])), X, y, fit_params)
    tables: list[pd.DataFrame] = []
    start = None
    for rules in made:
        model = clone(estimator).set_params(constraints=list(rules))
        if start is not None and start.any():
            start_from(model, start)
        began = time.perf_counter()
        model.fit(X, y, **fit_params)
        seconds = time.perf_counter() - began
        start = model.multipliers_.to_numpy()
        report = model.constraint_report_
        if X_test is None:
            unseen = _measured_by_fit(report, model.unseen_accuracy_)
        else:
            found = measure_classifier(model, X_test, y_test, rules, level=level, **of_test)
            unseen = _measured_by_audit(found)
        shift = getattr(model, "shift_", np.zeros(1))
        own = {
            "train": report["train"],
            "multiplier": report["multiplier"],
            "rounds": int(model.history_["rounds"].iloc[-1]),
            "shift": float(shift[0]) if shift.size == 1 else float(np.abs(shift).max()),
            "all_met": model.feasibility_.status == "met",
            "seconds": seconds,
        }
        rows = {"constraint": report["constraint"], "bound": report["bound"], **unseen, **own}
        # Given the columns, pandas would make objects of an accuracy that is NaN.
        tables.append(pd.DataFrame(rows)[list(CURVE_COLUMNS)])
    return pd.concat(tables, ignore_index=True)


class _BeforeFirstRoundError(Exception):
    """Ends a fit that has found nothing to refuse."""


def _check_trainable(model: Any, X: Any, y: Any, fit_params: dict[str, Any]) -> None:
    """Refuse what the fit would refuse, without a boosting round.

    A guarantee that the rows can give for a loose bound may be beyond them for the tightest, whose
    turn comes last.
    """

    def end(state: ConstraintState) -> None:
        raise _BeforeFirstRoundError

    others = {name: value for name, value in fit_params.items() if name != "checkpoint"}
    with suppress(_BeforeFirstRoundError):
        model.fit(X, y, **others | {"constraint_callbacks": [end]})


def _check_auditable(
    X: Any,
    y: Any,
    X_test: Any,
    y_test: Any,
    rules: Sequence[Constraint],
    positive: Any,
    of_test: dict[str, Any],
) -> None:
    """Find before training what an audit would refuse, by auditing a classifier of no features."""
    shape, test_shape = np.shape(X), np.shape(X_test)
    if len(shape) == len(test_shape) == 2 and shape[1] != test_shape[1]:
        raise ValueError(
            f"X_test has {test_shape[1]} features and X has {shape[1]}: give the same ones, in "
            f"the same order."
        )
    check_weight(of_test["sample_weight"], as_labels(y_test, "y_test").size, "sample_weight_test")
    for rule in rules:
        if rule.n_rows_held:
            raise ValueError(
                f"{rule} holds a mask or decisions of the training rows, and has no value on "
                f"X_test: name a column or a model instead, or leave X_test out."
            )
    labels = as_labels(y)
    constant = DummyClassifier(strategy="prior").fit(np.zeros((labels.size, 1)), labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            measure_classifier(constant, X_test, y_test, rules, positive=positive, **of_test)
        except ValueError as error:
            raise ValueError(
                f"The models cannot be measured on X_test, y_test and sensitive_features_test: "
                f"{error}"
            ) from None


def _sorted_bounds(bounds: Sequence[float]) -> list[float]:
    """Bounds as numbers, from the smallest to the largest."""
    try:
        values = sorted(float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be a sequence of numbers, got {bounds!r}: give a list of them, such as "
            f"[0.1, 0.05], also of a single one."
        ) from None
    if not values:
        raise ValueError("bounds is empty: give at least one.")
    return values


def _loosens(first: Sequence[Constraint], last: Sequence[Constraint]) -> bool:
    """Whether rules allow more at the largest value than at the smallest.

    The first rule whose bound changes tells, for a rule may be bounded by the value or by one
    minus it, and others may stay as they are. Where none changes, the sense of the first rule
    does.
    """
    for before, after in zip(first, last, strict=True):
        if before.bound != after.bound:
            return after.sign * (after.bound - before.bound) > 0.0
    return first[0].sense == "<="


def _rule_of(
    estimator: Any, constraint: Callable[[float], Any] | None
) -> Callable[[float], tuple[Constraint, ...]]:
    """Map a bound to the rules of a fit."""
    if constraint is not None:
        if not callable(constraint):
            raise TypeError(
                f"constraint must map a bound to rules, as in lambda b: fnr() <= b, got "
                f"{constraint!r}."
            )
        return lambda bound: _not_empty(check_constraints(constraint(bound)))
    if not hasattr(estimator, "constraints"):
        raise TypeError(
            f"estimator must be a classifier of this package, with constraints to bound, got "
            f"{type(estimator).__name__}: use ConstrainedXGBClassifier or another one."
        )
    own = check_constraints(estimator.constraints)
    if len(own) != 1:
        raise ValueError(
            f"The estimator has {len(own)} constraints, and one is to be bounded: give "
            f"constraint=, such as lambda b: [fnr() <= b, fpr() <= 0.1]."
        )
    return lambda bound: (replace(own[0], bound=bound),)


def _not_empty(rules: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    if not rules:
        raise ValueError("constraint made no rule of a bound: return one at least.")
    return rules


def _measured_by_fit(report: pd.DataFrame, accuracy: Estimate) -> dict[str, Any]:
    """Columns of a curve from the rows that a fit held out itself."""
    return {
        "value": report["held_out"],
        "value_low": report["low"],
        "value_high": report["high"],
        **_of_accuracy(accuracy),
        "rows": report["rows"],
        "satisfied": report["satisfied"],
        "verdict": report["verdict"],
    }


def _measured_by_audit(found: AuditTables) -> dict[str, Any]:
    """Columns of a curve from test rows."""
    return {
        "value": found.frame["value"],
        "value_low": found.frame["low"],
        "value_high": found.frame["high"],
        **_of_accuracy(found.accuracy),
        "rows": "test",
        "satisfied": found.frame["satisfied"],
        "verdict": found.frame["verdict"],
    }


def _of_accuracy(accuracy: Estimate) -> dict[str, float]:
    return {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
    }
