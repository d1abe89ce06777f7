"""Proxies of 0-1 rates in boosters: what each costs at the same held-out rates.

- gaps: gaps between the sexes of Adult and between the races of COMPAS.
- churn: on Default of credit, few changes of a deployed booster's decisions, with its recall.

Proxies are the sigmoid, the logistic function and the ramp. "bounds" are the convex bounds of the
ramp in the source paper's Algorithm 1, renewed in every tenth round. Renewed in every round they
have the gradient and the Hessian of the ramp. All else of the fits is equal: constraints are
measured out of fold, and the decision is the one of fewest errors that meets them there. The five
splits are the same for all. Test rows choose nothing.

    python benchmarks/proxies.py [gaps churn] [--library xgboost] [--splits 5] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there. Default of
credit is looked for in the folder that GBM_CONSTRAINED_DATA names.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from arguments import at_least
from peer_runs.booster import plain
from peer_runs.data import DATA, encoded
from rates import LIBRARIES, gap_of, make
from result_file import Measurements, Part, add_parts, column
from sklearn.model_selection import train_test_split

from gbm_constrained import CrossFit, churn, error_rate, fpr, gap, recall, selection_rate
from gbm_constrained.problem.kernels import END, KINK, SLOPE
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.solvers import ABPP
from gbm_constrained.solvers.abpp import ABPPSolver

RESULTS = Path(__file__).parent / "results" / "proxies"
ROUNDS = {
    "n_estimators": 100,
    "learning_rate": 0.1,
    "measure_on": CrossFit(4),
    "n_jobs": 1,
    "random_state": 0,
}
# Of each table and rate, the bound of the gap.
GAPS = {
    ("adult", "selection_rate"): 0.01,
    ("adult", "fpr"): 0.01,
    ("adult", "error_rate"): 0.01,
    ("compas", "selection_rate"): 0.05,
    ("compas", "fpr"): 0.05,
}
RATES = {"selection_rate": selection_rate, "fpr": fpr, "error_rate": error_rate}
DEPLOYED_ROWS, CHURN = 3000, 0.05
RENEWED = 10
NAMES = ("library", "data", "rule", "proxy", "split")
FIGURES = ("accuracy", "held_out_violation", "test_violation", "seconds")


@dataclass
class BoundsSolver(ABPPSolver):
    """ABPP with the convex bounds of the ramp at the scores of an earlier round.

    A bound is constant where the ramp's upper end freed the row, and a hinge elsewhere. It differs
    from the ramp for rows that have passed that end since.

    Parameters
    ----------
    renewed : int
        Rounds from one renewal of the bounds to the next.
    """

    renewed: int = RENEWED
    _reference: Any = field(default=None, init=False)
    _renewal: int = field(default=-1, init=False)

    def gradient(self, point: Point) -> tuple[Any, Any]:
        """Compute gradient and Hessian of the current subproblem at a point, multiplied by W."""
        gradient, hessian = super().gradient(point)
        renewal, margin = (self.rounds - 1) // self.renewed, point.margin
        if renewal != self._renewal:
            self._reference, self._renewal = margin.copy(), renewal
        elif self.multipliers.any():
            tables = point.coefficients.tables(self.multipliers)
            codes = point.coefficients.codes(slice(None))
            cost = tables.rows(tables.margin_cost, codes) * np.ones_like(margin)
            cost = point.problem.apply_weights(cost, slice(None))
            ahead = np.sign(cost) * margin
            is_hinge = np.sign(cost) * self._reference < END
            passed = is_hinge.astype(margin.dtype) - (ahead < END)
            distance = np.maximum(np.abs(ahead + END), KINK)
            gradient += passed * SLOPE * cost * (ahead > -END)
            hessian += passed * np.abs(cost) / (2.0 * END**2 * distance)
        return gradient, hessian


@dataclass(eq=False, repr=False, kw_only=True)
class Bounds(ABPP):
    """Options of :class:`BoundsSolver`."""

    renewed: int = RENEWED

    def begin(self, lagrangian: Lagrangian, **running: Any) -> BoundsSolver:
        """Make the solver of a problem."""
        return BoundsSolver(lagrangian, **self.solver_options(), **running)


SOLVERS: Mapping[str, Callable[[], ABPP]] = {
    **{name: partial(ABPP, proxy=name) for name in ("sigmoid", "logistic", "ramp")},
    "bounds": partial(Bounds, proxy="ramp"),
}


class Split(NamedTuple):
    """Training and test rows with their labels and groups."""

    X: Any
    X_test: Any
    y: Any
    y_test: Any
    groups: Any
    groups_test: Any


@cache
def load(name: str) -> tuple[Any, Any, Any]:
    """Read a table once: features, labels and groups."""
    features, target, second = DATA[name].load()
    assert second is not None
    return encoded(features), target.to_numpy().astype(int), second.to_numpy().astype(int)


def split_of(name: str, seed: int) -> Split:
    """Take 70 % of the rows for training, with equal shares of labels and groups."""
    X, y, groups = load(name)
    parts = train_test_split(
        X, y, groups, train_size=0.7, stratify=2 * y + groups, random_state=seed
    )
    return Split(*parts)


def violation_out_of_fold(model: Any) -> float:
    """Largest violation of a constraint on the held-out rows; negative where all have slack."""
    report = model.constraint_report_
    sign = np.array([1.0 if c.sense == "<=" else -1.0 for c in model.constraints])
    return float((sign * (report["held_out"] - report["bound"])).max())


def fit_gap(library: str, data: str, rate: str, proxy: str, seed: int) -> dict[str, float]:
    """Fit a gap between two groups."""
    split, bound = split_of(data, seed), GAPS[data, rate]
    rules = [gap(RATES[rate](), by="group") <= bound]
    started = time.perf_counter()
    model = make(library, rules, solver=SOLVERS[proxy](),
                 **ROUNDS, **DATA[data].tree)  # fmt: skip
    model.fit(split.X, split.y, sensitive_features={"group": split.groups})
    test = model.predict(split.X_test)
    return {
        "accuracy": float(np.mean(test == split.y_test)),
        "held_out_violation": violation_out_of_fold(model),
        "test_violation": gap_of(rate, split.y_test, test, split.groups_test) - bound,
        "seconds": time.perf_counter() - started,
    }


def fit_churn(library: str, proxy: str, seed: int) -> dict[str, float]:
    """Fit a successor of a deployed booster, with few changes and no smaller recall."""
    split = split_of("default", seed)
    deployed = plain({"n_estimators": 40, "learning_rate": 0.1, **DATA["default"].tree})
    deployed.fit(split.X[:DEPLOYED_ROWS], split.y[:DEPLOYED_ROWS])
    X, y = split.X[DEPLOYED_ROWS:], split.y[DEPLOYED_ROWS:]
    least = float(np.mean(deployed.predict(X)[y == 1]))
    started = time.perf_counter()
    model = make(library, [churn(to=deployed) <= CHURN, recall() >= least],
                 solver=SOLVERS[proxy](),
                 **ROUNDS, **DATA["default"].tree)  # fmt: skip
    model.fit(X, y)
    test, positive = model.predict(split.X_test), split.y_test == 1
    of_deployed = deployed.predict(split.X_test)
    changed = float(np.mean(test != of_deployed)) - CHURN
    missed = float(np.mean(of_deployed[positive]) - np.mean(test[positive]))
    return {
        "accuracy": float(np.mean(test == split.y_test)),
        "held_out_violation": violation_out_of_fold(model),
        "test_violation": max(changed, missed),
        "seconds": time.perf_counter() - started,
    }


def mean_and_error(x: Any) -> str:
    """Mean and standard error of figures of several splits."""
    return f"{x.mean():+.4f} ({x.std(ddof=1) / x.size**0.5:.4f})"


def show(cell: str, auto: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print a line for each proxy of a cell, with its accuracy less that of `auto`."""
    reference = column(found[auto], "accuracy")
    for proxy, rows in found.items():
        accuracy = column(rows, "accuracy")
        print(
            f"{cell:31s} {proxy:8s} accuracy {mean_and_error(accuracy)}, less {auto} "
            f"{mean_and_error(accuracy - reference)}; violation held out "
            f"{mean_and_error(column(rows, 'held_out_violation'))}, test "
            f"{mean_and_error(column(rows, 'test_violation'))}; "
            f"{column(rows, 'seconds').mean():.1f} s",
            flush=True,
        )


def measure_cell(
    results: Measurements, fit: Callable[..., Any], cell: tuple[str, str, str], splits: int
) -> None:
    """Fit all proxies on all splits of a library, data set and rule, and print them."""
    of_splits: Mapping[str, list[Any]] = {proxy: [] for proxy in SOLVERS}
    for seed, proxy in itertools.product(range(splits), SOLVERS):
        found = results.once(partial(fit, proxy=proxy, seed=seed), *cell, proxy, seed)
        of_splits[proxy].append(found)
    show(" ".join(cell), "logistic" if cell[-1] == "churn" else "sigmoid", of_splits)


def gaps(results: Measurements, libraries: Sequence[str], splits: int) -> None:
    """Gaps between groups."""
    for library, (data, rate) in itertools.product(libraries, GAPS):
        cell = library, data, rate
        measure_cell(results, partial(fit_gap, *cell), cell, splits)


def few_changes(results: Measurements, libraries: Sequence[str], splits: int) -> None:
    """Churn with recall."""
    for library in libraries:
        cell = library, "default", "churn"
        measure_cell(results, partial(fit_churn, library), cell, splits)


PARTS = {"gaps": Part(gaps, NAMES, FIGURES), "churn": Part(few_changes, NAMES, FIGURES)}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--library", choices=LIBRARIES, nargs="+", default=LIBRARIES)
    parser.add_argument("--splits", type=at_least(2), default=5)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the tables")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.parts:
        part = PARTS[name]
        print(f"== {name}", flush=True)
        results = Measurements(given.output / f"{name}.csv", part.names, part.figures)
        part.run(results, given.library, given.splits)


if __name__ == "__main__":
    main()
