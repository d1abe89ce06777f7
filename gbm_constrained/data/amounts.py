"""Checks of amounts that rows count for."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.constraints.amounts import Amount


def check_amounts(amount: Amount, numbers: Float) -> Float:
    """Refuse amounts that are missing, infinite, negative or above the cap.

    Parameters
    ----------
    amount : Amount
        Where the amounts are from, and their cap.
    numbers : ndarray of shape (n_samples,)
        The amount of each row, NaN where it is missing.

    Returns
    -------
    ndarray of shape (n_samples,)
        The amounts, as they are.

    Raises
    ------
    ValueError
        If there are such amounts, which are counted.
    """
    limit = np.inf if amount.cap is None else amount.cap
    for is_wrong, what, remedy in (
        (np.isnan(numbers), "missing or no numbers", "Fill them in, or drop these rows"),
        (np.isinf(numbers), "infinite", "Give finite ones"),
        (numbers < 0.0, "negative", "Rows count for 0 or more: clip them, or drop these rows"),
        (numbers > limit, f"above cap={limit:g}", "Raise cap=, or clip the amounts"),
    ):
        if is_wrong.any():
            raise ValueError(
                f"weight={amount}: the amounts of {int(is_wrong.sum())} of {numbers.size} rows "
                f"are {what}, the first in row {int(is_wrong.argmax())} "
                f"({numbers[is_wrong.argmax()]:g}). {remedy}."
            )
    return numbers
