"""Parameters of a fit for a black-box metric, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.checking import check_constraints, check_task
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import check_share
from gbm_constrained.metrics.black_box import BlackBox
from gbm_constrained.solvers.adaptive_surrogates import AdaptiveSurrogates
from gbm_constrained.training.black_box_rules import Rules, check_rules
from gbm_constrained.training.options import solver_parameter
from gbm_constrained.training.problem import HOLDOUT_FRACTION

UNUSED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("iterate", ("last",)),
    ("measure_on", ("auto", "holdout")),
    ("cv", (None,)),
    ("guarantee", (None,)),
    ("probabilities", ("shifted",)),
    ("early_stopping_on", ("metric",)),
    ("select", ("error",)),
    ("ensemble", (None,)),
    ("oracle", ("plug_in",)),
    ("deterministic", (None, True)),
)
"""Parameters without a meaning for a black-box metric, and the values that they may have."""


@dataclass(frozen=True)
class BlackBoxOptions:
    """Parameters of a fit for a black-box metric.

    Parameters
    ----------
    metric : BlackBox
        The metric.
    search : AdaptiveSurrogates
        Options of the search.
    holdout_fraction : float
        Share of the training rows that are held out where no validation rows are given.
    positive : label or None
        Positive class that the user named.
    constraints : tuple of Constraint
        Constraints on the decisions.
    """

    metric: BlackBox
    search: AdaptiveSurrogates
    holdout_fraction: float
    positive: Any
    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, estimator: Any, metric: BlackBox) -> BlackBoxOptions:
        """Read and check the parameters of an estimator.

        Raises
        ------
        TypeError, ValueError
            If a parameter has no meaning for a black-box metric, or is out of its range.
        """
        constraints = check_constraints(estimator.constraints)
        check_task(constraints, predicts_numbers=False)
        check_rules(constraints)
        for name, fits in UNUSED:
            if (value := getattr(estimator, name, fits[0])) not in fits:
                raise ValueError(
                    f"{name}={value!r} has no meaning for {metric}, which is minimised over the "
                    f"parameters of a trained model: leave it out."
                )
        name = solver_parameter(estimator)
        solver = getattr(estimator, name)
        if solver == "auto":
            solver = AdaptiveSurrogates()
        if not isinstance(solver, AdaptiveSurrogates):
            raise ValueError(
                f"{name} must be 'auto', or AdaptiveSurrogates(...) of gbm_constrained.solvers, "
                f"for {metric}; got {solver!r}."
            )
        fraction = getattr(estimator, "holdout_fraction", None)
        fraction = HOLDOUT_FRACTION if fraction is None else fraction
        check_share("holdout_fraction", fraction)
        if constraints and solver.refits:
            raise ValueError(
                f"refits={solver.refits} grows a model without multipliers, and constraints= "
                f"needs them: leave refits out."
            )
        return cls(metric, solver, fraction, estimator.positive, constraints)

    def rules_on(self, rows: Rows) -> Rules | None:
        """Compile the constraints on some rows; None without constraints."""
        if not self.constraints:
            return None
        return Rules.of(
            resolve_positive_class(self.constraints, rows.classes, self.positive), rows
        )

    def check_classes(self, classes: NDArray[np.generic]) -> None:
        """Refuse a positive class whose scores the function is not called with."""
        if self.positive is not None and self.positive != classes[-1]:
            raise ValueError(
                f"positive={self.positive!r}, and scores of {self.metric} are those of "
                f"{classes[-1].item()!r}, the last of the sorted labels: leave positive= out."
            )


def refuse_arguments(metric: BlackBox, **given: Any) -> None:
    """Refuse arguments of ``fit`` without a meaning for a black-box metric.

    Parameters
    ----------
    metric : BlackBox
        The metric.
    **given
        The arguments.

    Raises
    ------
    ValueError
        If one of them was given.
    """
    remedies = {
        "datasets": "give the rows as validation=(X, y, sensitive_features)",
        "sensitive_features_eval_set": "give the rows as validation=(X, y, sensitive_features)",
        "constraint_callbacks": "end the search by BlackBox(..., max_calls=...)",
        "time_limit": "end the search by BlackBox(..., max_calls=...)",
        "checkpoint": "leave it out",
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name}= has no meaning for {metric}: {remedies[name]}.")


def refuse_rows(validation: Any, evaluation: Any) -> None:
    """Refuse rows to choose and to report on where the objective is no black-box metric.

    Raises
    ------
    ValueError
        If one of them was given.
    """
    for name, value in (("validation", validation), ("evaluation", evaluation)):
        if value is not None:
            raise ValueError(
                f"{name}= is for objectives that are only a function to call, such as "
                f"minimize=BlackBox(loss): leave it out, or give eval_set=."
            )
