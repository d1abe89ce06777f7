"""Arguments of ``fit`` that all machines are given alike."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

# Arguments with a value for each row, or with rows of their own, that machines do not share.
OF_ONE_MACHINE = (
    "base_margin",
    "base_margin_eval_set",
    "datasets",
    "eval_X",
    "eval_init_score",
    "eval_y",
    "evaluation",
    "groups",
    "init_score",
    "validation",
)


def check_fit_arguments(local_class: type, fit: Mapping[str, Any]) -> None:
    """Refuse further arguments of ``fit`` that are unknown, or about rows.

    Parameters
    ----------
    local_class : type
        Classifier of one machine.
    fit : mapping
        Arguments of its ``fit``, by name.

    Raises
    ------
    TypeError
        If the method has no such argument.
    ValueError
        If an argument is about the rows of one machine.
    """
    known = list(inspect.signature(local_class.fit).parameters)[1:]  # type: ignore[attr-defined]
    for name, value in fit.items():
        if name not in known:
            raise TypeError(f"fit() has no argument {name!r}: it takes {', '.join(known)}.")
        if name in OF_ONE_MACHINE and value is not None:
            raise ValueError(
                f"{name}= is not supported where rows are on several machines: leave it out, or "
                f"fit gbm_constrained.{local_class.__name__} on one machine."
            )
