"""Checks of the arguments of ``train``, which the calls of both libraries share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.training.options import SOLVER_PARAMETERS

# LightGBM has a parameter of this name as well.
SHARED = ("deterministic",)


def check_params(params: Any, library: str, elsewhere: Mapping[str, str]) -> None:
    """Refuse parameters that the library would ignore.

    `elsewhere` says of names that belong to other calls where they are given.
    """
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params must be a dict of parameters of {library}, got a {type(params).__name__}."
        )
    of_train = {name: f"{name}= of train" for name in SOLVER_PARAMETERS if name not in SHARED}
    for name, place in {**of_train, **elsewhere}.items():
        if params.get(name) is not None:
            raise TypeError(
                f"params holds {name}={params[name]!r}, which is no parameter of {library}: give "
                f"{place} instead."
            )


def check_names(others: Iterable[str], library: str) -> None:
    """Refuse arguments of ``train`` that are neither its own nor about constraints."""
    for name in others:
        if name not in SOLVER_PARAMETERS:
            near = get_close_matches(name, SOLVER_PARAMETERS, 1)
            hint = f" Did you mean {near[0]}=?" if near else ""
            raise TypeError(
                f"train() has no argument {name!r}: parameters of {library} go in params.{hint}"
            )


def read_labels(labels: Array, name: str) -> Array:
    """Read the classes of the rows of a matrix or ``Dataset``, which are numbers."""
    y = np.asarray(labels).astype(np.intp)
    if not (y == labels).all() or y.min(initial=0) < 0:
        raise ValueError(f"the labels of {name} must number the classes: 0, 1 and so on.")
    return y


def check_classes(y: Array, name: str, num_class: Any) -> None:
    """Refuse training labels that leave out a class, or number others than were announced."""
    found = np.unique(y)
    if not np.array_equal(found, np.arange(found.size)):
        raise ValueError(
            f"the labels of {name} must number the classes 0, 1 and so on without a gap, got "
            f"{found}: number them anew, or add rows of the class that has none."
        )
    if found.size > 2 and num_class is not None and int(num_class) != found.size:
        raise ValueError(
            f"num_class={num_class!r}, and the labels of {name} are of {found.size} classes: "
            f"leave it out, or add rows of the other classes."
        )
