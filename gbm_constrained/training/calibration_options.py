"""Check of the options of a fit whose constraints bound calibration errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbm_constrained.constraints.base import Constraint


def check_calibration(constraints: Sequence[Constraint], own: Mapping[str, Any]) -> None:
    """Refuse to move calibrated probabilities by the shift of the threshold.

    `own` holds the options that the estimator has. A linear model has no shift, and no such
    option.

    Raises
    ------
    ValueError
        If a calibration error is bounded and the shift is folded into the model.
    """
    for constraint in constraints:
        if constraint.is_calibration and own.get("probabilities") == "shifted":
            raise ValueError(
                f"{constraint} bounds probabilities, and probabilities='shifted' moves them by "
                f"the shift of the threshold: use probabilities='calibrated', which keeps the "
                f"shift beside the model, or leave the constraint out."
            )
