"""Imports of packages that an extra of this package installs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def explain_missing(user: str, extra: str) -> Iterator[None]:
    """Name the extra that installs a package where its import fails.

    Parameters
    ----------
    user : str
        First words of the message, in the plural: "Plots" need matplotlib.
    extra : str
        Extra of this package that installs the missing package.

    Raises
    ------
    ImportError
        If an import in the block fails.
    """
    try:
        yield
    except ImportError as error:
        missing = (error.name or "another package").partition(".")[0]
        raise ImportError(
            f'{user} need {missing}: pip install "gbm_constrained[{extra}]".'
        ) from error


def import_optional(module: str, user: str, extra: str) -> Any:
    """Import a module that is an optional dependency, or name the extra that installs it."""
    with explain_missing(user, extra):
        return importlib.import_module(module)
