"""Options of the kernels beside XGBoost: precision, threads, and the memory of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained.data.devices import find_cupy
from gbm_constrained.problem.row_threads import count_threads


def kernel_options(native: Mapping[str, Any], verbosity: int | None) -> dict[str, Any]:
    """Choose the options of the kernels, given the parameters of the native learner."""
    return {
        "dtype": np.float32,
        "hessian_floor": 1e-16,
        "array_module": choose_array_module(native.get("device"), verbosity),
        "n_threads": count_threads(native.get("nthread", native.get("n_jobs"))),
    }


def choose_array_module(device: Any, verbosity: int | None) -> Any:
    """Choose the module of the arrays of rows for XGBoost's `device`: numpy or CuPy.

    XGBoost hands scores over in main memory. They are taken to the card once a round, and
    gradients stay there. Without CuPy, gradients are computed by numpy, with a warning unless
    `verbosity` is zero.
    """
    name, _, ordinal = str(device or "cpu").lower().partition(":")
    if name not in ("cuda", "gpu"):
        return np
    cupy = find_cupy()
    if cupy is None:
        advice = "install CuPy for your version of CUDA, such as cupy-cuda13x, which finds a card"
    elif ordinal and int(ordinal) != cupy.cuda.runtime.getDevice():
        advice = f"make card {ordinal} the current one by cupy.cuda.Device({ordinal}).use()"
    else:
        return cupy
    if verbosity != 0:
        issue_warning(
            f"device={device!r} grows the trees on a graphics card, and gradients under "
            f"constraints are computed on the CPU. To compute them on the card as well, {advice}.",
            "GC308",
        )
    return np
