"""Metrics that are only a function to call, beside thresholds, the paper's figures and a search.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/blackbox.py [PART ...] [--splits 5]

Losses are of test rows, which choose nothing. "plain" is the library's own model, "threshold" its
best threshold on the validation rows, "per group" the best one of each group there, and "ours" a
fit for the black box.

- labels: LightGBM on Adult with wrong labels in one group of the training rows, by 500 and 3,000
  clean validation rows, and with few and many perturbations.
- strategy: an evolution strategy over the same parameters, with as many calls.
- simulated: the G-mean of section 6.1 of the paper, by a linear model and by LightGBM.
- clean: macro F1 of two groups without noise, beside Table 3 of the paper.
- features: the same with noisy features in one group of the training rows (Figure 4).
- proxy: error on the label that training has a proxy of (Table 5).

The paper is Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020. Each
line is a row of a CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from arguments import at_least
from blackbox_data import (
    Part,
    Split,
    add_noise,
    encode,
    error,
    f1_loss,
    g_mean_loss,
    loss_of,
    simulate,
    split_clean,
    split_noisy_labels,
    split_proxy_labels,
)
from blackbox_strategy import minimize_by_strategy
from numpy.typing import NDArray
from result_file import Measurements, add_parts, column
from result_file import Part as BenchmarkPart
from sklearn.preprocessing import StandardScaler

from gbm_constrained import ConstrainedLGBMClassifier, label
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.metrics import BlackBox, surrogate
from gbm_constrained.solvers import AdaptiveSurrogates
from gbm_constrained.solvers.black_box import find_shift

TREES = {"n_estimators": 60, "num_leaves": 7, "n_jobs": 1, "verbose": -1, "random_state": 0}
LOSSES: dict[str, Callable[..., float]] = {
    "g_mean": g_mean_loss, "f1": f1_loss, "error": error,
}  # fmt: skip
MOST_CALLS = 3_000
MODELS = ("plain", "threshold", "per_group", "ours")
ROWS = {
    "plain": "plain", "threshold": "threshold", "threshold per group": "per_group",
    "this model": "ours",
}  # fmt: skip
# Macro F1 of logistic regression, its best threshold, and the paper's method: Table 3.
TABLE_3 = {
    "compas": (0.560, 0.631, 0.629),
    "adult": (0.668, 0.664, 0.665),
    "default": (0.467, 0.536, 0.533),
}
TABLE_5 = (0.333, 0.322, 0.314, 0.314)  # Plain, threshold, hinge and sigmoid on Adult.
# Of all lines, by surrogates of a linear model, and of all rules, by the space of a booster.
LOWEST = {"hinge": 0.3151, "sigmoid": 0.3151, "trees": 0.0472, "leaves": 0.0472}
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)


def fit(model: Any, split: Split) -> dict[str, float]:
    """Fit a classifier for its black box, and tabulate losses of the test rows."""
    (X, y, group), validation, test = split
    start = time.process_time()
    model.fit(X, y, sensitive_features=group, validation=validation, evaluation=test)
    report = model.blackbox_report_.set_index("model")
    found = {ROWS[name]: value for name, value in report["evaluation"].items()}
    return found | {
        "promised": report["validation"]["this model"],
        "seconds": time.process_time() - start,
    }


def make_trees(loss: str, solver: Any = "auto", **options: Any) -> Any:
    """Make LightGBM for a black box."""
    metric = BlackBox(LOSSES[loss], by="group", max_calls=MOST_CALLS)
    return ConstrainedLGBMClassifier(minimize=metric, solver=solver, **{**TREES, **options})


def make_linear(loss: str, solver: Any = "auto", **options: Any) -> Any:
    """Make logistic regression for a black box."""
    metric = BlackBox(LOSSES[loss], max_calls=MOST_CALLS, **{"by": "group", **options})
    return ConstrainedLogisticRegression(minimize=metric, constraint_solver=solver, max_iter=2000)


def scaled(split: Split) -> Split:
    """Make indicators of categories, and divide features by their deviation in training."""
    tables = [encode(part.X) for part in split]
    scaler = StandardScaler().set_output(transform="pandas").fit(tables[0])
    return Split(
        *(
            part._replace(X=scaler.transform(X.reindex(columns=tables[0].columns, fill_value=0.0)))
            for part, X in zip(split, tables, strict=True)
        )
    )


def show(name: str, values: Any) -> None:
    """Print a mean with its standard error."""
    values = np.asarray(values)
    error_of_mean = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    print(f"  {name:24} {values.mean():.4f} ± {error_of_mean:.4f}")


def show_gains(found: list[Any], others: tuple[str, ...]) -> None:
    """Print in how many splits ours is better than other models."""
    ours = column(found, "ours")
    for name in others:
        gain = column(found, name) - ours
        print(f"  better than {name}: {(gain > 0).sum()} of {gain.size}, mean {gain.mean():+.4f}")


def measure_labels(loss: str, n_validation: int, n_perturbations: int, seed: int) -> Any:
    """Fit on wrong labels, and fit plain models on the validation rows and on clean labels."""
    split = split_noisy_labels(seed, n_validation)
    solver = AdaptiveSurrogates(n_perturbations=n_perturbations)
    found = fit(make_trees(loss, solver), split)
    clean = split_noisy_labels(seed, n_validation, is_noisy=False)
    for name, given in (("on_validation", clean.validation), ("clean", clean.training)):
        model = lgb.LGBMClassifier(**TREES).fit(given.X, given.y)
        shift = 0.0 if name == "on_validation" else _shift(model, loss, split.validation)
        found[name] = loss_of(loss, split.test, _scores(model, split.test) + shift)
    plain = lgb.LGBMClassifier(**TREES).fit(*split.training[:2])
    shift = _shift(plain, loss, split.validation)
    found["best_threshold"] = loss_of(loss, split.test, _scores(plain, split.test) + shift)
    return found


def _scores(model: Any, part: Part) -> NDArray[np.float64]:
    return np.asarray(model.predict(part.X, raw_score=True))


def _shift(model: Any, loss: str, validation: Part) -> float:
    """Try every threshold on the validation rows."""
    scores = _scores(model, validation)
    return find_shift(partial(loss_of, loss, validation), scores, scores.size + 1)[0]


LABEL_FIGURES = (*MODELS, "promised", "seconds", "on_validation", "clean", "best_threshold")


def print_labels(file: Measurements, n_splits: int) -> None:
    """Print losses with wrong labels in training."""
    for n_validation, n_perturbations in ((500, 40), (3000, 40), (500, 10), (500, 100)):
        for loss in ("g_mean", "f1"):
            names = loss, n_validation, n_perturbations
            found = [
                file.once(partial(measure_labels, *names, seed), *names, seed)
                for seed in range(n_splits)
            ]
            print(f"{loss}, {n_validation} validation rows, m = {n_perturbations}")
            for figure in LABEL_FIGURES:
                show(figure, column(found, figure))
            show_gains(found, ("threshold", "per_group", "best_threshold"))


def measure_strategy(loss: str, seed: int) -> Any:
    """Search the same parameters by an evolution strategy with 2,400 calls."""
    split = split_noisy_labels(seed, 500)
    return minimize_by_strategy(LOSSES[loss], split, TREES, seed)


def print_strategy(file: Measurements, n_splits: int) -> None:
    """Print losses of the evolution strategy."""
    for loss in ("g_mean", "f1"):
        found = [
            file.once(partial(measure_strategy, loss, seed), loss, seed)
            for seed in range(n_splits)
        ]
        print(loss)
        for figure in ("strategy", "promised"):
            show(figure, column(found, figure))


def measure_simulated(kind: str, seed: int) -> Any:
    """Fit the G-mean of the simulated rows."""
    split = simulate(seed)
    if kind in ("hinge", "sigmoid"):
        surrogates = [surrogate(kind, on=label(c)) for c in (0, 1)]
        solver = AdaptiveSurrogates(sigma=1.0, step_size=1.0, proximal_weight=1e-6)
        model = make_linear("g_mean", solver, by=None, surrogates=surrogates)
    else:
        metric = BlackBox(g_mean_loss, max_calls=MOST_CALLS)
        model = ConstrainedLGBMClassifier(
            minimize=metric, solver=AdaptiveSurrogates(space=kind), **{**TREES, "n_estimators": 50}
        )
    return fit(model, split)


def print_simulated(file: Measurements, n_splits: int) -> None:
    """Print the G-mean loss of simulated rows, and the lowest that is possible."""
    for kind in LOWEST:
        found = [
            file.once(partial(measure_simulated, kind, seed), kind, seed)
            for seed in range(n_splits)
        ]
        print(f"{kind}, lowest possible {LOWEST[kind]}")
        for figure in ("plain", "threshold", "ours"):
            show(figure, column(found, figure))
        print(f"  ours of each draw: {np.round(column(found, 'ours'), 4).tolist()}")


def measure_clean(data: str, learner: str, seed: int) -> Any:
    """Fit macro F1 without noise."""
    split = split_clean(data, seed)
    if learner == "linear":
        return fit(make_linear("f1"), scaled(split))
    return fit(make_trees("f1"), split)


def print_clean(file: Measurements, n_splits: int) -> None:
    """Print macro F1 beside the paper's."""
    for data, published in TABLE_3.items():
        for learner in ("linear", "trees"):
            found = [
                file.once(partial(measure_clean, data, learner, seed), data, learner, seed)
                for seed in range(n_splits)
            ]
            print(f"macro F1, {data}, {learner}; paper, linear: plain, threshold, its method "
                  f"{published}")  # fmt: skip
            for figure in MODELS:
                show(figure, 1.0 - column(found, figure))


def measure_features(data: str, share: float, seed: int) -> Any:
    """Fit macro F1 with noisy features in one group."""
    split = add_noise(split_clean(data, seed), share, seed)
    return fit(make_linear("f1"), scaled(split))


def print_features(file: Measurements, n_splits: int) -> None:
    """Print macro F1 by the share of noisy rows, and its mean over the shares."""
    for data in ("adult", "default"):
        means = {figure: [] for figure in ("plain", "threshold", "ours")}
        for share in SHARES:
            found = [
                file.once(partial(measure_features, data, share, seed), data, share, seed)
                for seed in range(n_splits)
            ]
            print(f"macro F1, {data}, {share:.0%} of the women noisy")
            for figure in means:
                means[figure].append(1.0 - column(found, figure).mean())
                show(figure, 1.0 - column(found, figure))
        of_all = {name: round(float(np.mean(values)), 4) for name, values in means.items()}
        print(f"macro F1, {data}, mean over shares: {of_all}")


def measure_proxy(loss: str, seed: int) -> Any:
    """Fit the error on labels that training has a proxy of."""
    surrogates = [surrogate(loss, on=label(c)) for c in (0, 1)]
    model = make_linear("error", by=None, surrogates=surrogates)
    return fit(model, scaled(split_proxy_labels(seed)))


def print_proxy(file: Measurements, n_splits: int) -> None:
    """Print errors by proxy labels beside the paper's."""
    print("error on Adult's sex; paper: plain, threshold, hinge, sigmoid", TABLE_5)
    for loss in ("log_loss", "hinge", "sigmoid"):
        found = [
            file.once(partial(measure_proxy, loss, seed), loss, seed) for seed in range(n_splits)
        ]
        print(loss)
        for figure in ("plain", "threshold", "ours"):
            show(figure, column(found, figure))
        show_gains(found, ("threshold",))


FIGURES = (*MODELS, "promised", "seconds")
PARTS = {
    "labels": BenchmarkPart(
        print_labels, ("loss", "n_validation", "n_perturbations", "seed"), LABEL_FIGURES
    ),
    "strategy": BenchmarkPart(print_strategy, ("loss", "seed"), ("strategy", "promised")),
    "simulated": BenchmarkPart(
        print_simulated, ("kind", "seed"), ("plain", "threshold", "ours", "promised", "seconds")
    ),
    "clean": BenchmarkPart(print_clean, ("data", "learner", "seed"), FIGURES),
    "features": BenchmarkPart(print_features, ("data", "share", "seed"), FIGURES),
    "proxy": BenchmarkPart(
        print_proxy, ("loss", "seed"), ("plain", "threshold", "ours", "promised", "seconds")
    ),
}


def main() -> None:
    """Print the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_parts(parser, "part", PARTS)
    parser.add_argument("--splits", type=at_least(1), default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # A search that reaches a plateau says so.
    folder = Path(__file__).parent / "results" / "blackbox"
    for name in given.part:
        run, names, figures = PARTS[name]
        print(f"== {name}", flush=True)
        run(Measurements(folder / f"{name}.csv", names, figures), given.splits)


if __name__ == "__main__":
    main()
