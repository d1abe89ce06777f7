"""The file that an interrupted fit is resumed from.

A fit with a checkpoint saves what a finished stage has made: the boosters of the folds, after each
pass over them. A fit that is called again with the same arguments takes them from the file and
goes on with the next stage. The file is an archive of NumPy arrays; nothing in it is pickled, and
reading it runs nothing that it contains.
"""

from __future__ import annotations

import json
import os
import platform
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import lightgbm
import numpy as np
import scipy
import sklearn
import xgboost
from scipy.special import expit

from gbm_constrained._findings import issue_warning
from gbm_constrained._version import __version__
from gbm_constrained.data.validation import untouched_random_state
from gbm_constrained.solvers.base import SolverMethod

# Nested dicts with str keys, and lists (which tuples become), of None, bool, int, float, str,
# bytes, NumPy arrays and NumPy scalars.
State: TypeAlias = dict[str, Any]
FORMAT = 5
ARRAY, SCALAR, BYTES = "__array__", "__scalar__", "__bytes__"
PRINTED = ("verbose", "verbosity", "silent")  # Parameters that do not change the model.
MAX_SHOWN = 60  # Characters of a value beyond which a message does not show the value.


class CheckpointFile:
    """The checkpoint of a running fit.

    Parameters
    ----------
    path : str or path-like
        The file. Its folder must exist. ``<path>.partial`` belongs to it.
    fingerprint : mapping from str to str
        Description of the fit, by :func:`describe_fit`. A file with another one is refused.

    Attributes
    ----------
    passes : list of dict
        Stages that were found in the file; empty without a file.

    Raises
    ------
    TypeError
        If `path` is not a path.
    ValueError
        If the file is of another fit or cannot be read, or if its folder does not exist.
    """

    def __init__(self, path: Any, fingerprint: Mapping[str, str]) -> None:
        if isinstance(path, bytes) or not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be the path of a file, got {path!r}.")
        self.path = Path(path)
        self._fingerprint, self._machine = dict(fingerprint), _describe_machine()
        self._check_folder()
        self.passes: list[State] = self._read() if self.path.exists() else []

    @property
    def _partial(self) -> Path:
        return self.path.with_name(self.path.name + ".partial")

    def save(self, state: State) -> None:
        """Add a finished stage to the file, which is replaced in one step.

        Warns
        -----
        CheckpointWarning
            If the file cannot be written; the fit goes on without.
        """
        self.passes.append(state)
        document = {
            "format": FORMAT,
            "fingerprint": self._fingerprint,
            "machine": self._machine,
            "passes": self.passes,
        }
        try:
            with self._partial.open("wb") as file:
                arrays: list[Any] = []
                text = json.dumps(_pack(document, arrays)).encode()
                named = {f"array_{i}": array for i, array in enumerate(arrays)}
                np.savez(file, document=np.frombuffer(text, dtype=np.uint8), **named)
                file.flush()
                os.fsync(file.fileno())
            self._partial.replace(self.path)
        except OSError as error:
            issue_warning(
                f"The checkpoint {str(self.path)!r} could not be written, and the fit goes on "
                f"without: {error}.",
                "GC301",
            )

    def finish(self) -> None:
        """Remove the file of a fit that is done."""
        for path in (self.path, self._partial):
            path.unlink(missing_ok=True)

    def _check_folder(self) -> None:
        folder = self.path.parent
        if self.path.is_dir() or not folder.is_dir():
            what = "is a folder" if self.path.is_dir() else "is in a folder that is not there"
            raise ValueError(
                f"checkpoint={str(self.path)!r} {what}: give the path of a file in a folder that "
                f"exists."
            )
        if not os.access(folder, os.W_OK):
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be written: {str(folder)!r} does not "
                f"permit it. Give another path."
            )

    def _read(self) -> list[State]:
        reason = "is not a checkpoint"
        document: State | None = None
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                text = arrays["document"].tobytes().decode()
                document = _unpack(json.loads(text), lambda i: arrays[f"array_{i}"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass  # which the message below says
        if document is not None and document.get("format") != FORMAT:
            reason = f"has format {document.get('format')}, and this version reads {FORMAT}"
            document = None
        if document is None:
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be resumed from: the file {reason}, or is "
                f"damaged. Delete the file to start anew, or give another path."
            )
        self._refuse_another(document)
        passes: list[State] = document["passes"]
        return passes

    def _refuse_another(self, document: State) -> None:
        before, now = document["fingerprint"], self._fingerprint
        differing = [
            _describe_difference(name, before.get(name), now.get(name))
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if differing:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of another fit: {'; '.join(differing)}. "
                f"Resume with what that fit was given, or delete the file to start anew, or give "
                f"another path."
            )
        if document["machine"] != self._machine:
            names = [n for n, v in self._machine.items() if document["machine"].get(n) != v]
            issue_warning(
                f"The checkpoint {str(self.path)!r} was written elsewhere ({', '.join(names)} "
                f"differs): the fit is resumed, but its model may differ in the last digits from "
                f"that of an uninterrupted fit.",
                "GC302",
            )


def refuse_without_constraints(checkpoint: Any) -> None:
    """Refuse a checkpoint of a fit that is left to the library."""
    if checkpoint is not None:
        raise ValueError(
            f"checkpoint={checkpoint!r} saves fits under constraints, and there are none: give "
            f"constraints, or leave checkpoint out."
        )


def describe_fit(
    estimator: Any, arguments: Mapping[str, Any], compiled: Mapping[str, Any]
) -> dict[str, str]:
    """Describe a fit, one entry for each thing that can be different.

    Parameters
    ----------
    estimator : classifier
        The classifier, whose parameters count.
    arguments : mapping
        Arguments of ``fit``; None stands for those that were not given.
    compiled : mapping
        The constraints, and what they compile to on these rows.

    Returns
    -------
    dict from str to str
        Values as they print, or their hash by :func:`joblib.hash`.
    """
    found = {
        "gbm_constrained": __version__,
        "xgboost": xgboost.__version__,
        "lightgbm": lightgbm.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    with untouched_random_state(estimator):
        params = estimator.get_params(deep=False)
    for name, value in params.items():
        if name not in PRINTED and name != "constraints":
            text = repr(value)
            is_plain = value is None or isinstance(value, (bool, int, float, str))
            found[name] = text if is_plain and len(text) <= MAX_SHOWN else _hash(value)
    found["constraints"] = "[" + ", ".join(map(str, compiled["constraints"])) + "]"
    found["rows of the constraints"] = _hash(
        [value for name, value in compiled.items() if name != "constraints"]
    )
    found.update((name, _hash(v)) for name, v in arguments.items() if v is not None)
    return found


def _hash(value: Any) -> str:
    """Hash data or a parameter; what cannot be pickled is described by its type."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, SolverMethod):
        return f"{type(value).__name__}({_hash(value.get_params())})"
    if isinstance(value, (list, tuple)) and any(map(callable, value)):
        return "[" + ", ".join(map(_hash, value)) + "]"
    try:
        return f"hash:{joblib.hash(value)}"
    except Exception:  # of whichever library the value is
        return f"{type(value).__module__}.{type(value).__qualname__}"


def _describe_machine() -> dict[str, str]:
    """Describe what the last digits may depend on: the processor and the number of threads."""
    # NumPy takes the vector instructions that it finds, and rounds as they do.
    x = np.linspace(-20.0, 20.0, 4001)
    narrow = x.astype(np.float32)
    computed = [np.exp(x), np.exp(narrow), expit(x), expit(narrow), np.log1p(x * x)]
    return {
        "the processor": f"{platform.machine()} {joblib.hash(computed)}",
        "the number of threads": f"{os.cpu_count()} {os.environ.get('OMP_NUM_THREADS')}",
    }


def _describe_difference(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name} was {'not given' if before is None else 'given, and is not now'}"
    if before.startswith("hash:") or now.startswith("hash:"):
        return f"{name} differs"
    return f"{name} was {before} and is {now}"


def _pack(value: Any, arrays: list[Any]) -> Any:
    """Replace arrays by their positions in a list."""
    kind = None
    if isinstance(value, np.generic):  # a float is not rounded as one of NumPy may be
        kind, array = SCALAR, np.asarray(value)
    elif isinstance(value, np.ndarray):
        kind, array = ARRAY, value
    elif isinstance(value, (bytes, bytearray)):
        kind, array = BYTES, np.frombuffer(value, dtype=np.uint8)
    if kind is not None:
        arrays.append(array)
        return {kind: len(arrays) - 1}
    if isinstance(value, dict):
        return {name: _pack(item, arrays) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(item, arrays) for item in value]
    return value


def _unpack(value: Any, array: Callable[[int], Any]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, array) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return array(value[ARRAY])
    if SCALAR in value:
        return array(value[SCALAR])[()]
    if BYTES in value:
        return array(value[BYTES]).tobytes()
    return {name: _unpack(item, array) for name, item in value.items()}
