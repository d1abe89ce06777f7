"""Fitted attributes of a fit for a black-box metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from gbm_constrained._typing import Codes, Float
from gbm_constrained.metrics.measured_black_box import MeasuredBlackBox
from gbm_constrained.training.black_box_fit import RETURNED, BlackBoxFit, BlackBoxResult
from gbm_constrained.training.black_box_rows import partition

HALF_WIDTH = float(norm.ppf(0.975))  # Of an interval of 95%, in standard errors.


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
    measured.begin_report()
    direction = 1.0 if measured.called.is_maximized else -1.0
    draws = _draw(fit)
    values = {name: _measure(measured, of_model, draws) for name, of_model in scores.items()}
    records = []
    for name, found in values.items():
        low, high = np.clip(_interval(found), *measured.bounds)
        gain = direction * (values[RETURNED] - found)
        gain_low, gain_high = _interval(gain)
        is_compared = name != RETURNED
        records.append(
            {
                "model": name,
                "evaluation": found[0],
                "low": low,
                "high": high,
                "gain": gain[0] if is_compared else np.nan,
                "gain_low": gain_low if is_compared else np.nan,
                "gain_high": gain_high if is_compared else np.nan,
                "verdict": _judge(gain_low, gain_high) if is_compared else "returned",
                "validation": fit.metric.from_loss(losses[name]),
                "violation": _violation(fit, scores[name]),
            }
        )
    table = pd.DataFrame(records)
    table["n_evaluation"] = len(fit.rows.evaluation)
    table["n_validation"] = len(fit.rows.validation)
    return table.assign(calls=measured.calls)


def _violation(fit: BlackBoxFit, scores: Float) -> float:
    """Find the largest violation of a constraint on the rows of evidence; NaN without any."""
    rules = fit.rules_of_evidence
    return np.nan if rules is None else rules.violation(scores)


def _draw(fit: BlackBoxFit) -> list[Codes]:
    """Draw rows of evidence with replacement, as many of each label in each group as there are.

    A single row is the same in all draws, as if it did not vary: no draws are made then.
    """
    rows, random = fit.rows.evaluation.rows, np.random.RandomState(0)
    codes = partition(rows, fit.options).codes
    strata = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    if min(rows.size for rows in strata) < 2:
        return []
    return [
        np.sort(np.concatenate([random.choice(rows, rows.size) for rows in strata]))
        for _ in range(fit.plan.replicates)
    ]


def _measure(measured: MeasuredBlackBox, scores: Float, draws: list[Codes]) -> Float:
    """Call the function on all rows of evidence, and on each draw of them."""
    replicates = [measured.take(index).measure(scores[index]) for index in draws]
    return np.array([measured.measure(scores), *replicates])


def _interval(values: Float) -> Float:
    """Make an interval from a value and its replicates; NaN with fewer than two of these."""
    if values.size < 3:
        return np.full(2, np.nan)
    width = HALF_WIDTH * float(np.std(values[1:], ddof=1))
    return np.array([values[0] - width, values[0] + width])


def _judge(gain_low: float, gain_high: float) -> str:
    """Say whether the returned model is better than another one on the rows of evidence."""
    if gain_low > 0.0:
        return "better"
    return "worse" if gain_high < 0.0 else "cannot be told"


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
        for k, surrogate in enumerate(fit.surrogate_names):
            described = surrogate.removeprefix("surrogate(").removesuffix(")").replace("'", "")
            columns[f"{shown}[{described}]"] = values[:, k]
    return pd.DataFrame(columns)


def _tabulate_parameters(
    fit: BlackBoxFit, result: BlackBoxResult, before: pd.Series[Any]
) -> pd.DataFrame:
    """Tabulate the parameters of both models, the offsets of groups and what all scores get."""
    levels = fit.levels if fit.n_offsets else ()
    groups = [f"offset[{', '.join(map(str, level))}]" for level in levels]
    after = pd.Series(result.parameters.vector, [*before.index, *groups, "intercept"])
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
