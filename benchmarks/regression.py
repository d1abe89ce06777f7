"""Regression under rules, beside fairlearn's reductions and shifts of the plain model by group.

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
        [--libraries lightgbm xgboost] [--csv FILE]

Each fit is a row of the CSV, and is not repeated while that is there. Bounds come from
cross-fitted predictions of the plain model on the training rows, and all figures from test rows.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from arguments import at_least
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from result_file import ResultFile
from scipy.optimize import minimize_scalar
from sklearn.model_selection import cross_val_predict, train_test_split
from xgboost import XGBRegressor

from gbm_constrained import (
    ConstrainedLGBMRegressor,
    ConstrainedXGBRegressor,
    each,
    gap,
    mean_loss,
    mean_prediction,
)

COLUMNS = (
    "part", "data", "library", "split", "share", "method", "bound", "loss", "value", "error",
    "verdict", "seconds",
)  # fmt: skip
FOLDER = Path(os.environ.get("GBM_CONSTRAINED_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results" / "regression.csv"
SHARES = (0.95, 0.9, 0.8)  # Bounds on group losses, as shares of the plain model's largest one.
BOOSTERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lightgbm": (
        ConstrainedLGBMRegressor,
        LGBMRegressor,
        {"n_estimators": 150, "num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1},
    ),
    "xgboost": (
        ConstrainedXGBRegressor,
        XGBRegressor,
        {"n_estimators": 150, "max_depth": 4, "learning_rate": 0.05, "n_jobs": 1},
    ),
}


class Rows(NamedTuple):
    """Features, targets and groups."""

    X: pd.DataFrame
    y: NDArray[np.float64]
    group: NDArray[Any]

    def take(self, index: NDArray[np.intp]) -> Rows:
        return Rows(self.X.iloc[index], self.y[index], self.group[index])


def load_crime() -> Rows:
    """Communities and Crime: crimes per head, by whether shares of two groups are high."""
    table = pd.read_parquet(FOLDER / "communities_crime.parquet")
    table = table.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    X = table[:, 5:-1]  # The first columns name the community.
    black, hispanic = X[:, 2] > np.median(X[:, 2]), X[:, 5] > np.median(X[:, 5])
    group = np.char.add(np.where(black, "B", "b"), np.where(hispanic, "H", "h"))
    features = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    return Rows(features, table[:, -1], group)


def load_law() -> Rows:
    """Law school: grade of the first year, by race."""
    table = pd.read_parquet(FOLDER / "law_school.parquet").dropna(subset=["zfygpa", "race"])
    names = ["lsat", "ugpa", "fulltime", "fam_inc", "male", "tier"]
    return Rows(
        table[names].reset_index(drop=True),
        table["zfygpa"].to_numpy(np.float64),
        table["race"].astype(str).to_numpy(),
    )


def load_adult() -> Rows:
    """Adult: hours of work per week, by sex."""
    table = pd.read_parquet(FOLDER / "adult.parquet").sample(20_000, random_state=0)
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


def group_losses(rows: Rows, f: NDArray[Any]) -> pd.Series:
    return pd.Series((rows.y - f) ** 2).groupby(rows.group).mean()


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


def with_mixture(model: Any, X: pd.DataFrame) -> NDArray[Any]:
    """Average the predictions of fairlearn's mixture."""
    used = [t for t, weight in model.weights_.items() if weight > 0]
    return np.sum([model.weights_[t] * model.predictors_[t].predict(X) for t in used], axis=0)


def reductions(
    plain: Any, train: Rows, test: Rows, bound: float
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Predict test rows by fairlearn's two reductions."""
    from fairlearn.reductions import (
        BoundedGroupLoss,
        ExponentiatedGradient,
        GridSearch,
        SquareLoss,
    )

    y = pd.Series(train.y)
    X = train.X.reset_index(drop=True)
    loss = SquareLoss(float(y.min()), float(y.max()))
    mixture = ExponentiatedGradient(plain, BoundedGroupLoss(loss, upper_bound=bound), max_iter=20)
    mixture.fit(X, y, sensitive_features=train.group)
    yield "ExponentiatedGradient", with_mixture(mixture, test.X)
    grid = GridSearch(plain, BoundedGroupLoss(loss), grid_size=20)
    grid.fit(X, y, sensitive_features=train.group)
    found = [(one, one.predict(X)) for one in grid.predictors_]
    worst = np.array([largest_loss(train, f)[0] for _, f in found])
    means = np.array([np.mean((train.y - f) ** 2) for _, f in found])
    within = worst <= bound
    chosen = np.where(within, means, np.inf).argmin() if within.any() else worst.argmin()
    yield "GridSearch", found[chosen][0].predict(test.X)


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


def measure_losses(data: str, library: str, split: int) -> Iterator[dict[str, Any]]:
    train, test, plain, held_out = prepare(data, library, split)
    own, _, parameters = BOOSTERS[library]
    worst = largest_loss(train, held_out)[0]
    f = plain.fit(train.X, train.y).predict(test.X)
    for share in SHARES:
        bound = share * worst
        at = {"share": share, "bound": bound}
        yield {**at, "method": "plain", **score(test, f, largest_loss)}
        begun = time.perf_counter()
        rule = each(mean_loss("squared"), by="group") <= bound
        model = own(constraints=[rule], **parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train.X, train.y, sensitive_features={"group": train.group})
        seconds = time.perf_counter() - begun
        yield {
            **at, "method": "ours", **score(test, model.predict(test.X), largest_loss),
            "verdict": model.constraint_report_["verdict"][0], "seconds": seconds,
        }  # fmt: skip
        begun = time.perf_counter()
        for name, predicted in reductions(plain, train, test, bound):
            seconds = time.perf_counter() - begun
            yield {
                **at,
                "method": name,
                **score(test, predicted, largest_loss),
                "seconds": seconds,
            }
            begun = time.perf_counter()


def measure_gaps(data: str, library: str, split: int) -> Iterator[dict[str, Any]]:
    train, test, plain, held_out = prepare(data, library, split)
    own, _, parameters = BOOSTERS[library]
    bound = gap_of_means(train, held_out)[0] / 2.0
    at = {"share": 0.5, "bound": bound}
    f = plain.fit(train.X, train.y).predict(test.X)
    yield {**at, "method": "plain", **score(test, f, gap_of_means)}
    yield {**at, "method": "shift by group", **shift_plain(plain, train, test, held_out, bound)}
    begun = time.perf_counter()
    model = own(constraints=[gap(mean_prediction(), by="group") <= bound], **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y, sensitive_features={"group": train.group})
    yield {
        **at, "method": "ours", **score(test, model.predict(test.X), gap_of_means),
        "verdict": model.constraint_report_["verdict"][0],
        "seconds": time.perf_counter() - begun,
    }  # fmt: skip


def measure_shifts(data: str, library: str, split: int) -> Iterator[dict[str, Any]]:
    train, test, plain, held_out = prepare(data, library, split)
    own, _, parameters = BOOSTERS[library]
    bound = gap_of_means(train, held_out)[0] / 2.0
    at = {"share": 0.5, "bound": bound}
    yield {**at, "method": "shift by group", **shift_plain(plain, train, test, held_out, bound)}
    train, test = with_group(train), with_group(test)
    held_out = cross_val_predict(plain, train.X, train.y, cv=4)
    moved = shift_plain(plain, train, test, held_out, bound)
    yield {**at, "method": "shift by group, a feature", **moved}
    begun = time.perf_counter()
    rule = gap(mean_prediction(), by="group") <= bound
    model = own(constraints=[rule], group_shifts=True, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y)
    yield {
        **at, "method": "ours", **score(test, model.predict(test.X), gap_of_means),
        "verdict": model.constraint_report_["verdict"][0],
        "seconds": time.perf_counter() - begun,
    }  # fmt: skip


def with_group(rows: Rows) -> Rows:
    """Give each group a number, in a column of the features."""
    return rows._replace(X=rows.X.assign(group=np.unique(rows.group, return_inverse=True)[1]))


def shift_plain(
    plain: Any, train: Rows, test: Rows, held_out: NDArray[Any], bound: float
) -> dict[str, Any]:
    """Shift the predictions of the plain model by group, and measure them."""
    f = plain.fit(train.X, train.y).predict(test.X)
    shift = shifted(train, held_out, bound)
    moved = f + np.array([shift[group] for group in test.group])
    return score(test, moved, gap_of_means)


def prepare(data: str, library: str, split: int) -> tuple[Rows, Rows, Any, NDArray[Any]]:
    """Split rows, and make a plain model with its cross-fitted predictions."""
    rows = DATA[data]()
    halves = train_test_split(
        np.arange(len(rows.y)), test_size=0.4, random_state=split, stratify=rows.group
    )
    train, test = map(rows.take, halves)
    _, kind, parameters = BOOSTERS[library]
    plain = kind(**parameters)
    return train, test, plain, cross_val_predict(plain, train.X, train.y, cv=4)


def score(
    test: Rows, f: NDArray[Any], value: Callable[..., tuple[float, float]]
) -> dict[str, Any]:
    found, error = value(test, f)
    loss = float(np.mean((test.y - f) ** 2))
    return {"loss": loss, "value": found, "error": error, "verdict": "", "seconds": np.nan}


PARTS = {
    "losses": (("crime", "law"), measure_losses),
    "gaps": (("crime", "law", "adult"), measure_gaps),
    "shifts": (("crime", "law", "adult"), measure_shifts),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--splits", type=at_least(1), default=5)
    parser.add_argument("--libraries", nargs="+", choices=[*BOOSTERS], default=["lightgbm"])
    parser.add_argument("--csv", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    file = ResultFile(arguments.csv, COLUMNS)
    done = {tuple(row[c] for c in ("part", "data", "library", "split")) for row in file.rows()}
    for part in arguments.parts:
        names, measure = PARTS[part]
        for library in arguments.libraries:
            for data in names:
                for split in range(arguments.splits):
                    if (part, data, library, str(split)) in done:
                        continue
                    at = {"part": part, "data": data, "library": library, "split": split}
                    for row in [*measure(data, library, split)]:
                        file.append({**at, **row})
    print(summary(pd.read_csv(arguments.csv)))


def summary(table: pd.DataFrame) -> str:
    """Average over splits."""
    table = table.assign(beyond=(table["value"] - table["bound"]) / table["error"])
    by = ["part", "data", "library", "share", "method"]
    means = table.groupby(by, sort=False)[["bound", "value", "loss", "beyond", "seconds"]].mean()
    means["se of loss"] = table.groupby(by, sort=False)["loss"].sem()
    return means.round(4).to_string()


if __name__ == "__main__":
    main()
