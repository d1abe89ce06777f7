"""What ``maximize=`` and ``minimize=`` accept: metrics, rates, quotients and texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Expression, Factory, Quotient, Rate
from gbm_constrained.metrics.base import BoundMetric, Metric, bind_expression
from gbm_constrained.metrics.black_box import BlackBox
from gbm_constrained.metrics.callables import FunctionMetric
from gbm_constrained.metrics.text import parse_metric


@dataclass(frozen=True, repr=False)
class RateMetric(Metric):
    """A rate or a quotient of rates as the objective.

    Parameters
    ----------
    expression : Rate or Quotient
        What is maximised or minimised.
    greater_is_better : bool
        Whether the expression is maximised.
    """

    expression: Rate | Quotient
    greater_is_better: bool = True

    def bind(self, classes: NDArray[np.generic], shares: Float) -> BoundMetric:
        """Take the rate, or the two rates of the quotient."""
        return bind_expression(self, self.expression)

    def __str__(self) -> str:
        return str(self.expression)


def read_objective(maximize: Any, minimize: Any) -> Metric | None:
    """Read the objective of a classifier.

    Parameters
    ----------
    maximize, minimize : Metric, Rate, Quotient, str or None
        What is maximised, or minimised; at most one of them. A text is read by
        :func:`~gbm_constrained.metrics.text.parse_metric`.

    Returns
    -------
    Metric or None
        The metric, which knows its direction; None without an objective.

    Raises
    ------
    TypeError
        If the objective is neither a metric, a rate, a quotient nor a text.
    ValueError
        If both are given, a text is no metric, or the metric has the other direction.
    """
    if maximize is None and minimize is None:
        return None
    name, given = _take_one(maximize, minimize)
    found = read_metric(name, given)
    _check_direction(name, found, greater_is_better=found.greater_is_better)
    return found


def read_black_box(maximize: Any, minimize: Any) -> BlackBox | None:
    """Read the objective of a classifier where it is only a function to call.

    Parameters
    ----------
    maximize, minimize : object or None
        As in :func:`read_objective`.

    Returns
    -------
    BlackBox or None
        The metric; None for any other objective, and without one.

    Raises
    ------
    ValueError
        If both are given, or the metric has the other direction.
    """
    if not isinstance(maximize, BlackBox) and not isinstance(minimize, BlackBox):
        return None
    name, found = _take_one(maximize, minimize)
    has_direction = ", or BlackBox(..., maximize=True)" if name == "maximize" else ""
    is_maximized = found.called.is_maximized
    _check_direction(name, found, greater_is_better=is_maximized, remedy=has_direction)
    return found  # type: ignore[no-any-return]


def _check_direction(name: str, found: Any, *, greater_is_better: bool, remedy: str = "") -> None:
    """Refuse a metric that the parameter `name` would optimise in the wrong direction."""
    if greater_is_better != (name == "maximize"):
        size = "larger" if greater_is_better else "smaller"
        other = "maximize=" if greater_is_better else "minimize="
        raise ValueError(
            f"{name}={found}: {size} values of it are better, so use {other}{remedy}."
        )


def _take_one(maximize: Any, minimize: Any) -> tuple[str, Any]:
    """Name the one of two parameters that is given, and refuse both."""
    if maximize is not None and minimize is not None:
        raise ValueError(
            f"maximize={maximize!r} and minimize={minimize!r} cannot both be given: leave one "
            f"out, or bound the other as a constraint."
        )
    return ("maximize", maximize) if minimize is None else ("minimize", minimize)


def read_metric(name: str, given: Any) -> Metric:
    """Read a metric, a rate, a quotient or a text; `name` is that of the parameter.

    Raises
    ------
    TypeError, ValueError
        If it is something else.
    """
    if isinstance(given, str):
        try:
            given = parse_metric(given)
        except ValueError as error:
            raise ValueError(f"{name}={given!r}: {error}") from None
    if isinstance(given, BlackBox):
        raise TypeError(
            f"{name}={given} is a function to call, and no function of the confusion matrix: call "
            f"it with the labels and scores of the rows, or give a metric such as "
            f"metric(function, kind='other')."
        )
    if isinstance(given, (Rate, Quotient)):
        if any(term.event.kind == "pair" for rate in given.rates for _, term in rate.terms):
            raise ValueError(
                f"{name}={given} is about the order of scores, and no function of the confusion "
                f"matrix: bound it as a constraint, such as auc() >= 0.9."
            )
        if any(term.event.kind == "loss" for rate in given.rates for _, term in rate.terms):
            raise ValueError(
                f"{name}={given} is a mean loss of probabilities, and the classifier trains for "
                f"its own: leave it out, or bound it as a constraint."
            )
        return RateMetric(given, name == "maximize")
    if isinstance(given, FunctionMetric) and given.kind in ("linear", "smooth", "other"):
        return replace(given, greater_is_better=name == "maximize")
    if isinstance(given, Metric):
        return given
    remedy = ""
    if isinstance(given, Factory):
        remedy = f" Write {given.call}."
    elif callable(given) and name != "metrics":
        remedy = f" Write {name}=BlackBox(...) for a function or a scorer to call."
    raise TypeError(
        f"{name} must be a metric such as g_mean(), a rate, a quotient or a name, got "
        f"{given!r}.{remedy}"
    )


def read_metrics(metrics: Any) -> tuple[Metric, ...]:
    """Read ``metrics=`` of an audit: None, one metric, or a sequence of them."""
    if metrics is None:
        return ()
    if isinstance(metrics, (str, Metric, Expression)) or not isinstance(metrics, Iterable):
        metrics = (metrics,)
    return tuple(read_metric("metrics", given) for given in metrics)
