"""Trade-off between a bound and the accuracy, or the AUC: one fit for each of several bounds.

Multipliers grow as a bound tightens, so that each fit starts from the multipliers of the one
before.
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
from sklearn.dummy import DummyClassifier, DummyRegressor

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.rates import auc
from gbm_constrained.data.validation import as_labels, check_share, check_weight
from gbm_constrained.evaluation.audit import AuditRows, AuditTables, is_of_numbers, measure_model
from gbm_constrained.fit.callbacks import ConstraintState
from gbm_constrained.fit.options import start_from
from gbm_constrained.metrics.reading import read_black_box

__all__ = ["tradeoff_curve"]


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
    """Train under one bound after the other, and measure each model on held-out rows.

    Bounds are taken from the loosest to the tightest, and each fit starts from the multipliers of
    the one before. The first rounds, in which a multiplier would still be on its way, are then not
    spent on a constraint that is violated.

    Parameters
    ----------
    estimator : constrained classifier or regressor
        Model to train; it is cloned for each bound and stays as it is.
    X, y : array-like
        Training rows.
    bounds : sequence of float
        Bounds, in any order.
    constraint : callable, default=None
        Maps a bound to a constraint or several, such as ``lambda b: fnr() <= b``. By default the
        estimator's own constraint, which must be one, with its bound replaced. Of several
        constraints, the first one whose bound changes decides what is loose and what is tight.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        As in the estimator's ``fit``.
    X_test, y_test, sensitive_features_test, sample_weight_test : default=None
        Held-out rows that the models are measured on, and their weights in all rates. By default
        these are the rows that the fit itself holds out: certification rows, an ``eval_set`` in
        `fit_params`, or the rows that moved its multipliers, out of fold.
    level : float, default=0.95
        Level of the intervals on test rows; those of a fit's own rows are at 0.95.
    **fit_params
        Other arguments of ``fit``.

    Returns
    -------
    DataFrame
        One row for each bound, from the loosest to the tightest; where `constraint` makes several
        constraints, one for each of these as well.

        - ``constraint``, ``bound``: the constraint.
        - ``value``, ``value_low``, ``value_high``: on the held-out rows, and the interval.
        - ``accuracy``, ``accuracy_low``, ``accuracy_high``: likewise; of a regressor ``r2``,
          ``r2_low``, ``r2_high``, the coefficient of determination.
        - ``auc``, ``auc_low``, ``auc_high``: likewise, where a constraint is on pair rates, such
          as ``gap(auc(), by=...)``, and there are two classes.
        - ``rows``: which rows these are, ``"test"`` or as in ``constraint_report_``.
        - ``satisfied``: whether the value is on the right side; missing where there is none.
        - ``verdict``: the verdict on these rows, as in ``constraint_report_`` or an audit.
        - ``train``, ``multiplier``: the value on the training rows, and the multiplier.
        - ``rounds``, ``shift``: boosting rounds of the model and the shift of its scores; of
          several classes, the largest. Rounds are missing and multipliers zero where decisions
          are optimised after training, as with ``maximize=`` and with DART.
        - ``all_met``: whether the verdict on each of the fit's constraints is "met".
        - ``seconds``: the fit's time.

    Raises
    ------
    TypeError, ValueError
        If there is no constraint to bound, if the objective is a black-box metric, if arguments of
        test rows lack the rows, if test rows are given and a constraint holds a mask or decisions
        of the training rows, or for something that ``fit`` refuses.

    See Also
    --------
    gbm_constrained.plotting.plot_tradeoff : The figure.

    Notes
    -----
    A fit's own rows chose its threshold, and are a little more favourable than new ones where rows
    are few (out of fold, each row is decided by a threshold that the other folds chose). To choose
    a bound by this table, and then report the model's rate, needs rows used for neither.
    """
    objectives = (getattr(estimator, name, None) for name in ("maximize", "minimize"))
    if (black_box := read_black_box(*objectives)) is not None:
        raise ValueError(
            f"{black_box} measures its models on rows that chose nothing, and constraints have no "
            f"report: fit one classifier for each bound, and compare audits of them."
        )
    try:
        values = sorted(float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be a sequence of numbers, got {bounds!r}: give a list of them, such as "
            f"[0.1, 0.05], also of a single one."
        ) from None
    if not values:
        raise ValueError("bounds is empty: give at least one.")
    check_share("level", level)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test belong together: give both, or neither.")
    test = AuditRows(X_test, y_test, sensitive_features_test, sample_weight_test)
    if sensitive_features is not None:
        fit_params["sensitive_features"] = sensitive_features
    made = _make_constraints(estimator, constraint, values)
    _check_test_rows(test, (X, y), made[0], getattr(estimator, "positive", None))
    if _is_looser_last(made[0], made[-1]):
        made.reverse()
    if getattr(estimator, "guarantee", None) is not None:
        _check_trainable(clone(estimator).set_params(constraints=list(made[-1])), X, y, fit_params)
    tables: list[pd.DataFrame] = []
    is_ranked = any("pair" in c.kinds for c in made[0]) and np.unique(as_labels(y)).size == 2
    # This always holds, so that the fit reports the AUC and nothing else changes.
    start, more = None, [auc() >= 0.0] if is_ranked else []
    for constraints in made:
        model = clone(estimator).set_params(constraints=[*constraints, *more])
        if start is not None and start.any():
            start_from(model, start)
        began = time.perf_counter()
        model.fit(X, y, **fit_params)
        seconds = time.perf_counter() - began
        # Decisions that are optimised after training have no multipliers.
        start = model.multipliers_.to_numpy() if hasattr(model, "multipliers_") else None
        found = None
        if X_test is not None:
            found = measure_model(model, test, [*constraints, *more], level=level)
        tables.append(_tabulate(model, found, seconds, len(constraints)))
    return pd.concat(tables, ignore_index=True)


def _check_trainable(model: Any, X: Any, y: Any, fit_params: dict[str, Any]) -> None:
    """Refuse what the fit would refuse, without a boosting round.

    Rows that can certify a loose bound may be too few for the tightest one, which comes last.
    """

    class BeforeFirstRoundError(Exception):
        """End of a fit that refuses nothing before its first round."""

    def end(state: ConstraintState) -> None:
        raise BeforeFirstRoundError

    others = {name: value for name, value in fit_params.items() if name != "checkpoint"}
    with suppress(BeforeFirstRoundError):
        model.fit(X, y, **others | {"constraint_callbacks": [end]})


def _check_test_rows(
    test: AuditRows, training: tuple[Any, Any], constraints: Sequence[Constraint], positive: Any
) -> None:
    """Find before training what an audit would refuse, by auditing a classifier of no features."""
    if test.X is None:
        for name in ("sensitive_features", "sample_weight"):
            if getattr(test, name) is not None:
                raise ValueError(
                    f"{name}_test is of test rows, and there are none: give X_test and y_test as "
                    f"well, or leave it out."
                )
        return
    shape, test_shape = np.shape(training[0]), np.shape(test.X)
    if len(shape) == len(test_shape) == 2 and shape[1] != test_shape[1]:
        raise ValueError(
            f"X_test has {test_shape[1]} features and X has {shape[1]}: give the same ones, in "
            f"the same order."
        )
    check_weight(test.sample_weight, as_labels(test.y, "y_test").size, "sample_weight_test")
    for constraint in constraints:
        if constraint.n_rows_held:
            raise ValueError(
                f"{constraint} holds a mask or decisions of the training rows, and has no value "
                f"on X_test: name a column or a model instead, or leave X_test out."
            )
    labels = as_labels(training[1])
    features = np.zeros((labels.size, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if is_of_numbers(None, constraints):
                measure_model(DummyRegressor().fit(features, labels), test, constraints)
            else:
                constant = DummyClassifier(strategy="prior").fit(features, labels)
                measure_model(constant, test, constraints, positive=positive)
        except ValueError as error:
            raise ValueError(
                f"The models cannot be measured on X_test, y_test and sensitive_features_test: "
                f"{error}"
            ) from None


def _is_looser_last(first: Sequence[Constraint], last: Sequence[Constraint]) -> bool:
    """Whether constraints allow more at the largest value than at the smallest.

    The first constraint whose bound changes decides, else the sense of the first constraint.
    """
    for before, after in zip(first, last, strict=True):
        if before.bound != after.bound:
            return after.sign * (after.bound - before.bound) > 0.0
    return first[0].sense == "<="


def _make_constraints(
    estimator: Any, constraint: Callable[[float], Any] | None, bounds: Sequence[float]
) -> list[tuple[Constraint, ...]]:
    """Make the constraints of each fit: by a function of the bound, or the estimator's own one."""
    if constraint is not None:
        if not callable(constraint):
            raise TypeError(
                f"constraint must map a bound to constraints, as in lambda b: fnr() <= b, got "
                f"{constraint!r}."
            )
        made = [check_constraints(constraint(bound)) for bound in bounds]
        if not all(made):
            raise ValueError("constraint made no constraint of a bound: return one at least.")
        if len(set(map(len, made))) > 1:
            raise ValueError(
                "constraint makes different numbers of constraints of these bounds: let it return "
                "the same constraints for each, with other bounds."
            )
        return made
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
    return [(replace(own[0], bound=bound),) for bound in bounds]


def _tabulate(
    model: Any, found: AuditTables | None, seconds: float, n_constraints: int
) -> pd.DataFrame:
    """List the rows of a curve for one fit, measured by itself or on test rows.

    A constraint behind the first `n_constraints` is the AUC.
    """
    report = model.constraint_report_
    name = "r2" if hasattr(model, "unseen_r2_") else "accuracy"
    table, merit = (
        (report.rename(columns={"held_out": "value"}), getattr(model, f"unseen_{name}_"))
        if found is None
        else (found.frame.assign(rows="test"), found.accuracy)
    )
    shift, rounds = getattr(model, "shift_", np.zeros(1)), model.history_.get("rounds")
    ends = {"": "value", "_low": "low", "_high": "high"}
    merits = {f"{name}{end}": getattr(merit, part) for end, part in ends.items()}
    for _, measured in table.iloc[n_constraints:].iterrows():
        merits |= {f"auc{end}": measured[part] for end, part in ends.items()}
    table, report = table.iloc[:n_constraints], report.iloc[:n_constraints]
    columns = {
        "constraint": report["constraint"],
        "bound": report["bound"],
        "value": table["value"],
        "value_low": table["low"],
        "value_high": table["high"],
        **merits,
        "rows": table["rows"],
        "satisfied": table["satisfied"],
        "verdict": table["verdict"],
        "train": report["train"],
        "multiplier": report["multiplier"],
        "rounds": np.nan if rounds is None else int(rounds.iloc[-1]),
        "shift": float(shift[0]) if shift.size == 1 else float(np.abs(shift).max()),
        "all_met": bool((table["verdict"] == "met").all()),
        "seconds": seconds,
    }
    return pd.DataFrame(columns)
