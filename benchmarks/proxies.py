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

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from data_sets import load
from libraries import LIBRARIES
from peer_runs.catalogue import DATA
from peer_runs.methods import plain
from rates import gap_of, make
from result_file import Figures, Table, at_least, make_parser, run_tables
from sklearn.model_selection import train_test_split

from gbm_constrained import CrossFit, churn, error_rate, fpr, gap, recall, selection_rate
from gbm_constrained.problem.kernels import END, KINK, SLOPE
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.solvers import ABPP
from gbm_constrained.solvers.abpp import ABPPSolver

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

    renewed: int = 10  # Rounds.
    _reference: Any = field(default=None, init=False)
    _renewal: int = field(default=-1, init=False)

    def gradient(self, point: Point) -> tuple[Any, Any]:
        """Compute gradient and Hessian of the current subproblem at a point, multiplied by W."""
        gradient, hessian = super().gradient(point)
        renewal, margin = (self.rounds - 1) // self.renewed, point.margin
        if renewal != self._renewal:
            self._reference, self._renewal = margin.copy(), renewal
        elif self.multipliers.any():
            tables = point.lagrangian.tables(self.multipliers)
            codes = point.problem.cells.views[0].small_codes
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

    renewed: int = 10  # Rounds.

    def begin(self, lagrangian: Lagrangian, **running: Any) -> BoundsSolver:
        """Make the solver of a problem."""
        return BoundsSolver(lagrangian, **self.solver_options(), **running)


SOLVERS: Mapping[str, Callable[[], ABPP]] = {
    **{name: partial(ABPP, proxy=name) for name in ("sigmoid", "logistic", "ramp")},
    "bounds": partial(Bounds, proxy="ramp"),
}


def split_of(name: str, seed: int) -> Any:
    """Take 70 % of the rows for training, with equal shares of labels and groups.

    Features, labels and groups, of each those of training first.
    """
    X, y, groups = load(name).X, load(name).y, DATA[name].codes()
    return train_test_split(
        X, y, groups, train_size=0.7, stratify=2 * y + groups, random_state=seed
    )


def violation_out_of_fold(model: Any) -> float:
    """Largest violation of a constraint on the held-out rows; negative where all have slack."""
    report = model.constraint_report_
    sign = np.array([1.0 if c.sense == "<=" else -1.0 for c in model.constraints])
    return float((sign * (report["held_out"] - report["bound"])).max())


def fit_gap(library: str, data: str, rate: str, proxy: str, seed: int) -> Figures:
    """Fit a gap between two groups."""
    X, X_test, y, y_test, groups, groups_test = split_of(data, seed)
    bound = GAPS[data, rate]
    rules = [gap(RATES[rate](), by="group") <= bound]
    started = time.perf_counter()
    model = make(library, rules, solver=SOLVERS[proxy](), **ROUNDS, **DATA[data].tree)
    model.fit(X, y, sensitive_features={"group": groups})
    test = model.predict(X_test)
    return {
        "accuracy": float(np.mean(test == y_test)),
        "held_out_violation": violation_out_of_fold(model),
        "test_violation": gap_of(rate, y_test, test, groups_test) - bound,
        "seconds": time.perf_counter() - started,
    }


def fit_churn(library: str, data: str, rule: str, proxy: str, seed: int) -> Figures:
    """Fit a successor of a deployed booster, with few changes and no smaller recall."""
    X, X_test, y, y_test, *_ = split_of(data, seed)
    deployed = plain({"n_estimators": 40, "learning_rate": 0.1, **DATA[data].tree})
    deployed.fit(X[:3000], y[:3000])
    X, y = X[3000:], y[3000:]
    least = float(np.mean(deployed.predict(X)[y == 1]))
    rules = [churn(to=deployed) <= 0.05, recall() >= least]
    started = time.perf_counter()
    model = make(library, rules, solver=SOLVERS[proxy](), **ROUNDS, **DATA[data].tree)
    test, positive = model.fit(X, y).predict(X_test), y_test == 1
    of_deployed = deployed.predict(X_test)
    changed = float(np.mean(test != of_deployed)) - 0.05
    missed = float(np.mean(of_deployed[positive]) - np.mean(test[positive]))
    return {
        "accuracy": float(np.mean(test == y_test)),
        "held_out_violation": violation_out_of_fold(model),
        "test_violation": max(changed, missed),
        "seconds": time.perf_counter() - started,
    }


def compare_proxies(found: pd.DataFrame) -> str:
    """Write the mean accuracies, less that of the default proxy, with their standard errors."""
    by = ["library", "data", "rule"]
    cells = found.pivot(index=[*by, "split"], columns="proxy", values="accuracy")
    is_churn = cells.index.get_level_values("rule") == "churn"
    default = cells["sigmoid"].mask(is_churn, cells["logistic"])
    less = cells.sub(default, axis=0).groupby(by, sort=False)
    return f"accuracy, less that of the default\n{less.agg(['mean', 'sem']).round(4).to_string()}"


def table_of(fit: Callable[..., Figures], rules: Any) -> Table:
    """Make the table of all proxies on some tables and rules."""
    return Table(
        fit,
        {"library": LIBRARIES, "data rule": rules, "proxy": SOLVERS, "split": range(5)},
        "{library:9} {data:8} {rule:15} {proxy:8s} accuracy {accuracy:+.4f} ({accuracy sem:.4f}); "
        "violation held out {held_out_violation:+.4f} ({held_out_violation sem:.4f}), test "
        "{test_violation:+.4f} ({test_violation sem:.4f}); {seconds:.1f} s",
        summary=compare_proxies,
    )


TABLES = {"gaps": table_of(fit_gap, GAPS), "churn": table_of(fit_churn, (("default", "churn"),))}


if __name__ == "__main__":
    run_tables(TABLES, "proxies", make_parser(__doc__), library=LIBRARIES, split=at_least(2))
