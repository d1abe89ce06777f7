"""The weighted support vector machine of a9a: Newton steps beside compiled dual coordinate ascent.

The source paper solves each of its problems by stochastic dual coordinate ascent, which holds the
intercept. Here it is given that of the optimum, is compiled with `cc -O3`, and its gap is computed
outside of the clock after each ten passes. Newton steps find the intercept.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/dataset_constraints_ascent.py

C is 1. Each line has the gap of primal and dual that was asked for, passes or steps, and seconds
of CPU, the least of three runs.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import dataset_constraints_data as data
import numpy as np

from gbm_constrained.linear_model.hinge import HingeCosts, WeightedSVM

GAPS = (1e-3, 1e-4, 1e-5)
SOURCE = """
void ascend(int n, const int *starts, const int *columns, const double *values,
            const double *squares, const double *a, const double *b, double intercept,
            double l2, const int *order, double *xi, double *w)
{
    for (int k = 0; k < n; k++) {
        int i = order[k];
        double z = intercept;
        for (int j = starts[i]; j < starts[i + 1]; j++)
            z += w[columns[j]] * values[j];
        double q = l2 / squares[i], kink = b[i] - a[i];
        double low = xi[i] + q * (0.5 - z), high = xi[i] - q * (0.5 + z);
        double next = low < kink ? low : high > kink ? high : kink;
        next = next < -a[i] ? -a[i] : next > b[i] ? b[i] : next;
        double step = (next - xi[i]) / l2;
        if (step != 0.0)
            for (int j = starts[i]; j < starts[i + 1]; j++)
                w[columns[j]] += step * values[j];
        xi[i] = next;
    }
}
"""


def compile_ascent(folder: str) -> Any:
    """Compile one pass of the ascent."""
    source, library = Path(folder) / "ascent.c", Path(folder) / "ascent.so"
    source.write_text(SOURCE)
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).ascend


def ascend(
    one_pass: Any, svm: WeightedSVM, costs: HingeCosts, intercept: float, gap: float
) -> Any:
    """Take passes until the gap of the problem with a fixed intercept is reached."""
    X, n = svm.X, svm.n_samples
    rng, xi, w = np.random.default_rng(0), np.zeros(n), np.zeros(svm.n_features)
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    indices = [X.indptr.astype(np.int32), X.indices.astype(np.int32)]
    fixed = [*indices, X.data, squares, costs.positive, costs.negative]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in fixed]
    changing = [array.ctypes.data_as(ctypes.c_void_p) for array in (xi, w)]
    seconds, n_passes, reached = 0.0, 0, np.inf
    while reached > gap:
        for _ in range(10):
            order = rng.permutation(n).astype(np.int32)
            began = time.process_time()
            one_pass(n, *pointers, ctypes.c_double(intercept), ctypes.c_double(svm.l2),
                     order.ctypes.data_as(ctypes.c_void_p), *changing)  # fmt: skip
            seconds += time.process_time() - began
        n_passes += 10
        primal = costs.value(X @ w + intercept) + svm.l2 / 2 * w @ w
        dual = costs.conjugate_value(xi) - intercept * xi.sum() - svm.l2 / 2 * w @ w
        reached = primal - dual
    return n_passes, seconds


def main() -> None:
    X, y = data.load_a9a("a9a")
    n = y.size
    svm, costs = WeightedSVM(X, 2 / n), HingeCosts(~y / n, y / n)
    optimum = svm.minimize(costs.positive, costs.negative, 1e-6)
    print(f"optimum between {optimum.dual:.6f} and {optimum.primal:.6f}")
    with tempfile.TemporaryDirectory() as folder:
        one_pass = compile_ascent(folder)
        for gap in GAPS:
            runs = []
            for _ in range(3):
                began = time.process_time()
                n_steps = svm.minimize(costs.positive, costs.negative, gap).n_steps
                seconds = time.process_time() - began
                passes = ascend(one_pass, svm, costs, optimum.coefficients[-1], gap)
                runs.append((n_steps, seconds, *passes))
            steps, newton, n_passes, ascent = np.min(runs, axis=0)
            print(f"gap {gap:.0e}: {steps:.0f} Newton steps, {newton:.2f} s;", end=" ")
            print(f"{n_passes:.0f} passes, {ascent:.2f} s", flush=True)


if __name__ == "__main__":
    main()
