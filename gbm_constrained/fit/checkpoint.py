"""Checkpoints: the file that an interrupted fit is resumed from.

A fit with a checkpoint saves the boosters of the folds after each pass. A fit that is called again
with the same arguments restores these passes and grows what follows. The file is an archive of
NumPy arrays without pickles, so that reading a file runs no code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import joblib
import numpy as np
import pandas as pd
from scipy.sparse import issparse
from scipy.special import expit

from gbm_constrained._findings import issue_warning
from gbm_constrained._version import __version__
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitData
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.metrics.base import Metric
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.base import SolverMethod

# Nested dicts and lists of what JSON holds, of NumPy arrays and of NumPy scalars.
State: TypeAlias = dict[str, Any]
FORMAT = 7
ARRAY = "__array__"
LIBRARIES = ("xgboost", "lightgbm", "numpy", "scipy", "sklearn")  # Their versions must agree.


class CheckpointFile:
    """The checkpoint of a running fit, with the states of its finished passes.

    Parameters
    ----------
    path : str or path-like
        The file, in a folder that exists. ``<path>.partial`` is written first and replaces it.
    fingerprint : mapping from str to str
        Description of the fit by :func:`describe_fit`, which a file must share to be resumed.
    """

    def __init__(self, path: Any, fingerprint: Mapping[str, str]) -> None:
        if isinstance(path, bytes) or not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be the path of a file, got {path!r}.")
        self.path = Path(path)
        self._fingerprint, self._machine = dict(fingerprint), _describe_machine()
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
        self._partial = self.path.with_name(self.path.name + ".partial")
        self.passes: list[State] = self._read() if self.path.exists() else []

    def save(self, state: State) -> None:
        """Add the state of a finished pass; warn if the file cannot be written, and go on."""
        self.passes.append(state)
        document = {"format": FORMAT, "fingerprint": self._fingerprint, "machine": self._machine}
        try:
            with self._partial.open("wb") as file:
                _write_archive(file, document | {"passes": self.passes})
                file.flush()
                os.fsync(file.fileno())
            self._partial.replace(self.path)
        except OSError as error:
            issue_warning(
                f"The checkpoint {str(self.path)!r} could not be written, and the fit goes on "
                f"without: {error}.",
                "GC301",
            )

    def remove(self) -> None:
        """Remove the file of a fit that is done."""
        for path in (self.path, self._partial):
            with contextlib.suppress(OSError):  # A file that stays does no harm.
                path.unlink()

    def _read(self) -> list[State]:
        try:
            document = _read_archive(self.path)
            reason = ""
            if (found := document["format"]) != FORMAT:
                reason = f"has format {found}, and this version reads {FORMAT}"
        except OSError as error:
            reason = f"cannot be read ({error})"
        except Exception:  # Damaged bytes provoke errors of any kind.
            reason = "is not a checkpoint, or is damaged"
        if reason:
            raise ValueError(
                f"checkpoint={str(self.path)!r} cannot be resumed from: the file {reason}. "
                f"Delete the file to start anew, or give another path."
            )
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
        passes: list[State] = document["passes"]
        return passes


def open_checkpoint(
    path: Any,
    estimator: Any,
    arguments: Mapping[str, Any],
    data: FitData,
    compiled: LinearConstraints,
    cells: Cells,
) -> CheckpointFile | None:
    """Open the checkpoint of a fit; None without a path.

    Parameters of the `estimator`, `arguments` of its ``fit``, its given folds (for a splitter may
    draw others each time), and what its constraints compile to must be those of the fit in the
    file. Each of several machines has a file of its own.
    """
    if path is None:
        return None
    if data.given_folds is not None:
        folds = [(fold.training, fold.held) for fold in data.given_folds.folds]
        arguments = {**arguments, "folds": folds}
    tables = {
        "constraints": compiled.constraints,
        "rows": compiled.rows,
        "tables": [
            *(compiled.U, compiled.V, compiled.tables["pairs"], compiled.R),
            *(compiled.constant, compiled.b),
        ],
        "cells": [view.codes for view in cells.views],
        "weight": cells.weight,
    }
    communicator = cells.communicator
    if not communicator.holds_all_rows:
        path = f"{os.fspath(path)}.{communicator.rank + 1}-of-{communicator.size}"
    file = CheckpointFile(path, describe_fit(estimator, arguments, tables))
    if not communicator.holds_all_rows:
        # The fit may have ended while some of the machines had saved a pass.
        del file.passes[min(communicator.gather(len(file.passes))) :]
    return file


def describe_fit(
    estimator: Any, arguments: Mapping[str, Any], compiled: Mapping[str, Any]
) -> dict[str, str]:
    """Describe a fit, one entry for each thing that can be different.

    `arguments` are those of ``fit``, None if they were not given. `compiled` has the constraints,
    and what they compile to on these rows. Entries are values as they print, or their hash.
    """
    found = {name: importlib.import_module(name).__version__ for name in LIBRARIES}
    found["gbm_constrained"] = __version__
    with preserve_random_state(estimator):
        params = estimator.get_params(deep=False)
    for name, value in params.items():
        # What is printed does not change the model.
        if name not in ("constraints", "verbose", "verbosity", "silent"):
            text = repr(value)
            is_plain = value is None or isinstance(value, (bool, int, float, str, Metric))
            found[name] = text if is_plain and len(text) <= 60 else _hash(value)
    found["constraints"] = "[" + ", ".join(map(repr, compiled["constraints"])) + "]"
    rows = [value for name, value in compiled.items() if name != "constraints"]
    found["rows of the constraints"] = _hash(rows)
    found.update((name, _hash(v)) for name, v in arguments.items() if v is not None)
    callbacks = params.get("callbacks") or arguments.get("callbacks")
    if callbacks is not None:  # Calls change their attributes.
        found["callbacks"] = "[" + ", ".join(map(_name_of, callbacks)) + "]"
    return found


def _hash(value: Any) -> str:
    """Hash data or a parameter; functions and what cannot be pickled are described by names."""
    if callable(value):
        return _name_of(value)
    if isinstance(value, SolverMethod):
        return f"{type(value).__name__}({_hash(value.get_params())})"
    if isinstance(value, (list, tuple)) and any(map(callable, value)):
        return "[" + ", ".join(map(_hash, value)) + "]"
    values = _without_layout(value)
    try:
        return f"hash:{joblib.hash(values)}"
    except Exception:  # The value may be of any library.
        return _name_of(value)


def _name_of(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _without_layout(value: Any) -> Any:
    """Replace data by their values, whose hash no copy, order of memory or cache changes."""
    if isinstance(value, Mapping):
        return {name: _without_layout(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_layout(item) for item in value]
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    if issparse(value):
        matrix: Any = value
        rows = matrix.tocsr()
        return rows.shape, rows.data, rows.indices, rows.indptr
    if isinstance(value, (pd.DataFrame, pd.Series)):
        table = pd.DataFrame(value)
        kinds = [(str(kind), list(getattr(kind, "categories", ()))) for kind in table.dtypes]
        columns = [table.iloc[:, j] for j in range(len(kinds))]
        hashes = [pd.util.hash_pandas_object(c, index=False).to_numpy() for c in columns]
        return list(table.columns), kinds, hashes
    return value


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


def _write_archive(file: IO[bytes], document: State) -> None:
    """Write a document as JSON, beside the arrays that the JSON refers to."""
    arrays: dict[str, Any] = {}

    def refer(value: Any) -> dict[str, str]:
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject:
            raise TypeError(f"a checkpoint cannot hold {_name_of(value)}")
        name = f"array_{len(arrays)}"
        arrays[name] = value
        return {ARRAY: name}

    text = json.dumps(document, default=refer).encode()
    np.savez(file, document=np.frombuffer(text, dtype=np.uint8), **arrays)


def _read_archive(path: Path) -> State:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:

        def resolve(item: dict[str, Any]) -> Any:
            return arrays[item[ARRAY]][()] if ARRAY in item else item

        found: State = json.loads(arrays["document"].tobytes(), object_hook=resolve)
    return found
