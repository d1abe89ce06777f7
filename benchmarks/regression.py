"""Regression under constraints, beside fairlearn's reductions and shifts of the plain model.

``losses``: ``each(mean_loss("squared"), by=group) <= b`` with b a share of the largest group loss
of the plain model on held-out rows. Ours, fairlearn's ``ExponentiatedGradient`` and ``GridSearch``
with ``BoundedGroupLoss(SquareLoss)`` over the same booster (the predictor of ``GridSearch`` of
least mean loss whose largest group loss is within the bound on the training rows, or of the least
largest one), and plain. Predictions of ``ExponentiatedGradient`` are the mean of its mixture,
which loses less than a draw from it.

``gaps``: ``gap(mean_prediction(), by=group) <= b`` with b half of the gap of the plain model on
held-out rows. Ours, without the group among the features, and the plain model with its
predictions shifted by group, which needs the group: all groups move to within the bound of each
other at the least mean squared shift.

``shifts``: the same bound, where the group is a feature and predictions may use it. Ours with
``group_shifts=True``, and the plain model shifted by group, with and without the group among its
features.

    python benchmarks/regression.py [losses] [gaps] [shifts] [--splits 5]
        [--library lightgbm xgboost] [--output FOLDER]

Each fit is a row of the CSV, and is not repeated while that is there. Bounds come from
cross-fitted predictions of the plain model on the training rows, and all figures from test rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from data_sets import read
from libraries import CONSTRAINED_REGRESSORS, LIBRARIES, PLAIN_REGRESSORS, QUIET
from numpy.typing import NDArray
from result_file import Table, at_least, make_parser, run_tables
from scipy.optimize import minimize_scalar
from sklearn.model_selection import cross_val_predict, train_test_split

from gbm_constrained import each, gap, mean_loss, mean_prediction

SHARES = (0.95, 0.9, 0.8)  # Bounds on group losses, as shares of the plain model's largest one.


class Rows(NamedTuple):
    """Features, targets and groups."""

    X: pd.DataFrame
    y: NDArray[np.float64]
    group: NDArray[Any]

    def take(self, index: NDArray[np.intp]) -> Rows:
        return Rows(self.X.iloc[index], self.y[index], self.group[index])


def load_crime() -> Rows:
    """Communities and Crime: crimes per head, by whether shares of two groups are high."""
    table = read("communities_crime.parquet")
    table = table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    X = table[:, 5:-1]  # The first columns name the community.
    black, hispanic = X[:, 2] > np.median(X[:, 2]), X[:, 5] > np.median(X[:, 5])
    group = np.char.add(np.where(black, "B", "b"), np.where(hispanic, "H", "h"))
    features = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    return Rows(features, table[:, -1], group)


def load_law() -> Rows:
    """Law school: grade of the first year, by race."""
    table = read("law_school.parquet").dropna(subset=["zfygpa", "race"])
    names = ["lsat", "ugpa", "fulltime", "fam_inc", "male", "tier"]
    return Rows(
        table[names].reset_index(drop=True),
        table["zfygpa"].to_numpy(np.float64),
        table["race"].astype(str).to_numpy(),
    )


def load_adult() -> Rows:
    """Adult: hours of work per week, by sex."""
    table = read("adult.parquet").sample(20_000, random_state=0)
    left_out = ["hours-per-week", "sex", "income", "split", "fnlwgt"]
    hours = next(c for c in table.columns if c.replace("_", "-") == "hours-per-week")
    X = table.drop(columns=[c for c in table.columns if c.replace("_", "-") in left_out])
    X = X.assign(
        **{c: X[c].astype("category").cat.codes for c in X.select_dtypes(exclude="number")}
    )
    return Rows(
        X.reset_index(drop=True),
        table[hours].to_numpy(np.float64),
        table["sex"].astype(str).to_numpy(),
    )


DATA: dict[str, Callable[[], Rows]] = {"crime": load_crime, "law": load_law, "adult": load_adult}


def largest_loss(rows: Rows, f: NDArray[Any]) -> tuple[float, float]:
    """Compute the largest group loss, and its standard error."""
    losses = pd.Series((rows.y - f) ** 2).groupby(rows.group)
    worst = losses.mean().idxmax()
    return float(losses.mean()[worst]), float(losses.sem()[worst])


def gap_of_means(rows: Rows, f: NDArray[Any]) -> tuple[float, float]:
    """Compute the gap of mean predictions, and its standard error."""
    means = pd.Series(f).groupby(rows.group)
    low, high = means.mean().idxmin(), means.mean().idxmax()
    error = np.hypot(means.sem()[low], means.sem()[high])
    return float(means.mean()[high] - means.mean()[low]), float(error)


def parameters(library: str) -> dict[str, Any]:
    """Give the parameters of both the plain and the constrained model."""
    size = {"max_depth": 4} if library == "xgboost" else {"num_leaves": 15}
    return {**QUIET[library], "n_estimators": 150, "learning_rate": 0.05, "n_jobs": 1, **size}


@lru_cache(maxsize=2)
def prepare(
    data: str, library: str, split: int, *, with_group: bool = False
) -> tuple[Rows, Rows, Any, NDArray[Any]]:
    """Split rows, and fit a plain model, with its cross-fitted predictions.

    The group can be a number in a column of the features.
    """
    rows = DATA[data]()
    if with_group:
        codes = np.unique(rows.group, return_inverse=True)[1]
        rows = rows._replace(X=rows.X.assign(group=codes))
    halves = train_test_split(
        np.arange(len(rows.y)), test_size=0.4, random_state=split, stratify=rows.group
    )
    train, test = map(rows.take, halves)
    plain = PLAIN_REGRESSORS[library](**parameters(library))
    held_out = cross_val_predict(plain, train.X, train.y, cv=4)
    return train, test, plain.fit(train.X, train.y), held_out


def reduce_exponentially(plain: Any, train: Rows, test: Rows, bound: float) -> NDArray[Any]:
    """Predict test rows by the mean of fairlearn's mixture."""
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, SquareLoss

    y = pd.Series(train.y)
    loss = BoundedGroupLoss(SquareLoss(float(y.min()), float(y.max())), upper_bound=bound)
    model = ExponentiatedGradient(plain, loss, max_iter=20)
    model.fit(train.X.reset_index(drop=True), y, sensitive_features=train.group)
    used = [t for t, weight in model.weights_.items() if weight > 0]
    return np.sum([model.weights_[t] * model.predictors_[t].predict(test.X) for t in used], axis=0)


def search_grid(plain: Any, train: Rows, test: Rows, bound: float) -> NDArray[Any]:
    """Predict test rows by the best predictor of fairlearn's grid on the training rows."""
    from fairlearn.reductions import BoundedGroupLoss, GridSearch, SquareLoss

    X, y = train.X.reset_index(drop=True), pd.Series(train.y)
    loss = BoundedGroupLoss(SquareLoss(float(y.min()), float(y.max())))
    grid = GridSearch(plain, loss, grid_size=20)
    grid.fit(X, y, sensitive_features=train.group)
    found = [(one, one.predict(X)) for one in grid.predictors_]
    worst = np.array([largest_loss(train, f)[0] for _, f in found])
    means = np.array([np.mean((train.y - f) ** 2) for _, f in found])
    within = worst <= bound
    chosen = np.where(within, means, np.inf).argmin() if within.any() else worst.argmin()
    return found[chosen][0].predict(test.X)


def shifted(rows: Rows, f: NDArray[Any], bound: float) -> dict[Any, float]:
    """Find the shift of each group that brings all means to within a bound of each other."""
    means = pd.Series(f).groupby(rows.group).mean()
    sizes = pd.Series(f).groupby(rows.group).size()

    def moved(low: float) -> pd.Series:
        return means.clip(low, low + bound) - means

    ends = float(means.min()) - bound, float(means.max())
    found = minimize_scalar(
        lambda low: float(sizes @ moved(low) ** 2), bounds=ends, method="bounded"
    )
    return moved(found.x).to_dict()


def shift_plain(
    plain: Any, train: Rows, test: Rows, held_out: NDArray[Any], bound: float
) -> NDArray[Any]:
    """Shift the predictions of the plain model by group."""
    shift = shifted(train, held_out, bound)
    return plain.predict(test.X) + np.array([shift[group] for group in test.group])


def measure(
    part: str, data: str, library: str, split: int, share: float, method: str
) -> dict[str, Any]:
    """Predict test rows by a method, and measure its loss and what is bounded."""
    train, test, plain, held_out = prepare(data, library, split)
    is_loss = part == "losses"
    value = largest_loss if is_loss else gap_of_means
    bound = share * value(train, held_out)[0]
    verdict, begun = "", time.perf_counter()
    if method == "plain":
        predicted = plain.predict(test.X)
    elif method.startswith("shift by group"):
        if method.endswith("a feature"):
            train, test, plain, held_out = prepare(data, library, split, with_group=True)
        predicted = shift_plain(plain, train, test, held_out, bound)
    elif method == "ours":
        kept = {"group_shifts": True} if part == "shifts" else {}
        groups = {"sensitive_features": {"group": train.group}}
        if part == "shifts":
            train, test, *_ = prepare(data, library, split, with_group=True)
            groups = {}
        rate = each(mean_loss("squared"), by="group") if is_loss else gap(
            mean_prediction(), by="group"
        )  # fmt: skip
        kind = CONSTRAINED_REGRESSORS[library]
        model = kind(constraints=[rate <= bound], **kept, **parameters(library))
        predicted = model.fit(train.X, train.y, **groups).predict(test.X)
        verdict = model.constraint_report_["verdict"][0]
    else:
        reduce = reduce_exponentially if method == "ExponentiatedGradient" else search_grid
        predicted = reduce(plain, train, test, bound)
    seconds = time.perf_counter() - begun
    found, error = value(test, predicted)
    return {
        "bound": bound,
        "loss": float(np.mean((test.y - predicted) ** 2)),
        "value": found,
        "error": error,
        "verdict": verdict,
        "seconds": seconds,
    }


def summarise(table: pd.DataFrame) -> str:
    """Average over splits."""
    table = table.assign(beyond=(table["value"] - table["bound"]) / table["error"])
    by = ["part", "data", "library", "share", "method"]
    means = table.groupby(by, sort=False)[["bound", "value", "loss", "beyond", "seconds"]].mean()
    means["se of loss"] = table.groupby(by, sort=False)["loss"].sem()
    return means.round(4).to_string()


def table_of(part: str, data: tuple[str, ...], shares: tuple[float, ...], *methods: str) -> Table:
    """Make the table of a part."""
    names = {
        "part": (part,),
        "data": data,
        "library": LIBRARIES,
        "split": range(5),
        "share": shares,
        "method": methods,
    }
    return Table(measure, names, summary=summarise, file="regression")


TABLES = {
    "losses": table_of(
        "losses", ("crime", "law"), SHARES, "plain", "ours", "ExponentiatedGradient", "GridSearch"
    ),
    "gaps": table_of("gaps", tuple(DATA), (0.5,), "plain", "shift by group", "ours"),
    "shifts": table_of(
        "shifts", tuple(DATA), (0.5,), "shift by group", "shift by group, a feature", "ours"
    ),
}


if __name__ == "__main__":
    run_tables(TABLES, "", make_parser(__doc__), library=LIBRARIES, split=at_least(1))
