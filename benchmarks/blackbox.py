"""Metrics that are only a function to call, beside thresholds, the paper's figures and a search.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/blackbox.py [TABLE ...] [--seeds 5]
        [--output FOLDER]

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

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np
import pandas as pd
from data_sets import read
from numpy.typing import NDArray
from result_file import Figures, Table, at_least, make_parser, run_tables
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gbm_constrained import ConstrainedLGBMClassifier, label
from gbm_constrained.datasets import load_adult, load_compas
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.metrics import BlackBox, surrogate
from gbm_constrained.scorers.lightgbm import models
from gbm_constrained.scorers.trained_models import TreeWeights
from gbm_constrained.solvers import AdaptiveSurrogates
from gbm_constrained.solvers.black_box import LinearSpace, find_shift

N_SIMULATED = 5_000
MOST_CALLS = 3_000
TREES = {"n_estimators": 60, "num_leaves": 7, "n_jobs": 1, "verbose": -1, "random_state": 0}
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

# ------------------------------------------------------------------------------ rows and losses


class Part(NamedTuple):
    """Features, labels and groups of some rows."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: pd.Series


class Split(NamedTuple):
    """Rows to train on, to choose by, and to test on."""

    training: Part
    validation: Part
    test: Part


def g_mean_loss(y_true, scores) -> float:
    """One minus the G-mean."""
    decided = scores > 0
    return float(1.0 - np.sqrt(decided[y_true == 1].mean() * (~decided[y_true == 0]).mean()))


def f1_loss(y_true, scores, sensitive) -> float:
    """One minus the mean of the F1 of both groups."""
    found = []
    for group in (0, 1):
        decided, y = scores[sensitive == group] > 0, y_true[sensitive == group] == 1
        found.append(2.0 * (decided & y).sum() / max(decided.sum() + y.sum(), 1))
    return float(1.0 - np.mean(found))


def error(y_true, scores) -> float:
    """Share of wrong decisions."""
    return float(((scores > 0) != (y_true == 1)).mean())


LOSSES: dict[str, Callable[..., float]] = {"g_mean": g_mean_loss, "f1": f1_loss, "error": error}


def loss_of(name: str, part: Part, scores: Any) -> float:
    """Compute a loss of some rows by its name."""
    groups = [part.group.to_numpy()] if name == "f1" else []
    return LOSSES[name](part.y, scores, *groups)


@cache
def load(name: str) -> Part:
    """Load a table, whose group is sex; women are group 0."""
    if name == "default":
        table = read("default_credit.parquet")
        X, y = table.iloc[:, :-1], table.iloc[:, -1].to_numpy()
        return Part(X, y, (X["SEX"] == 1).astype(int).rename("group"))
    bunch = load_adult() if name == "adult" else load_compas()
    sex = bunch.sensitive_features["sex"]
    X, y = bunch.data, np.asarray(bunch.target).astype(np.int64)
    return Part(X, y, (sex == "Male").astype(int).rename("group"))


def encode(X: pd.DataFrame) -> pd.DataFrame:
    """Make indicators of categories, for linear models."""
    return pd.get_dummies(X, dummy_na=False).astype(float)


def take(part: Part, rows) -> Part:
    """Take some of the rows."""
    return Part(
        part.X.iloc[rows].reset_index(drop=True),
        part.y[rows],
        part.group.iloc[rows].reset_index(drop=True),
    )


def split_noisy_labels(seed: int, n_validation: int, *, is_noisy: bool = True) -> Split:
    """Split Adult, and call half of the positives of the private sector negative in training."""
    adult = load("adult")
    private = (adult.X["workclass"].astype(str) == "Private").astype(int).rename("group")
    whole = Part(adult.X, adult.y, private)
    rows, held = train_test_split(
        np.arange(whole.y.size), test_size=1 / 3, random_state=seed, stratify=whole.y
    )
    rng = np.random.default_rng(seed)
    rows = rng.permutation(rows)
    validation, training = take(whole, rows[:n_validation]), take(whole, rows[n_validation:])
    if not is_noisy:
        return Split(training, validation, take(whole, held))
    noisy = (training.group.to_numpy() == 1) & (rng.random(training.y.size) < 0.5)
    return Split(
        training._replace(y=np.where(noisy, 0, training.y)), validation, take(whole, held)
    )


def split_clean(name: str, seed: int) -> Split:
    """Split a table 4/9 : 2/9 : 1/3, as the paper does."""
    whole = load(name)
    return split_thirds(whole, seed, stratify=whole.y)


def split_thirds(whole: Part, seed: int, stratify: Any = None) -> Split:
    """Keep a third of the rows for the test, and a third of the others for validation."""
    parts, rows = [], np.arange(whole.y.size)
    for _ in range(2):
        labels = None if stratify is None else stratify[rows]
        rows, held = train_test_split(rows, test_size=1 / 3, random_state=seed, stratify=labels)
        parts.append(take(whole, held))
    return Split(take(whole, rows), parts[1], parts[0])


def add_noise(split: Split, share: float, seed: int) -> Split:
    """Disturb the features of a share of the women in training, as section 4.3 of the notes.

    Numbers get normal noise of the feature's standard deviation, and features of two values are
    flipped with probability 0.9.
    """
    rng, training = np.random.default_rng(seed), split.training
    women = training.group.to_numpy() == 0
    noisy = women & (rng.random(women.size) < share)
    X = encode(training.X)
    for name in X:
        values = X[name].to_numpy().copy()
        levels = np.unique(values)
        if levels.size <= 2:
            flips = noisy & (rng.random(values.size) < 0.9)
            values[flips] = levels.sum() - values[flips] if levels.size > 1 else values[flips]
        else:
            values[noisy] += rng.normal(0.0, values.std(), int(noisy.sum()))
        X[name] = values
    others = (part._replace(X=encode(part.X)) for part in (split.validation, split.test))
    return Split(training._replace(X=X), *others)


def split_proxy_labels(seed: int) -> Split:
    """Split Adult for the label "is a woman", of which training knows "is a wife" alone.

    A proxy of the relationship would give the label away, and so would sex itself.
    """
    adult = load("adult")
    wife = (adult.X["relationship"] == "Wife").to_numpy().astype(np.int64)
    X = encode(adult.X.drop(columns=["sex", "relationship"]))
    split = split_thirds(Part(X.assign(wife=wife), 1 - adult.group.to_numpy(), adult.group), seed)
    known = split.training.X["wife"].to_numpy().astype(np.int64)
    parts = [part._replace(X=part.X.drop(columns="wife")) for part in split]
    return Split(parts[0]._replace(y=known), *parts[1:])


def simulate(seed: int) -> Split:
    """Draw the rows of section 6.1 of the paper: positives between two groups of negatives."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> Part:
        y = (rng.random(n) < 0.1).astype(np.int64)
        centre = np.where(y == 1, 0.0, rng.choice([-1.0, 1.0], n))[:, None]
        spread = np.sqrt(np.where(y == 1, 0.2, 0.1))[:, None]
        X = centre + spread * rng.normal(size=(n, 2))
        none = pd.Series(np.zeros(n, dtype=int), name="group")
        return Part(pd.DataFrame(X, columns=["a", "b"]), y, none)

    training, validation, test = (draw(n) for n in (N_SIMULATED * 4 // 9, N_SIMULATED * 2 // 9,
                                                    10 * N_SIMULATED))  # fmt: skip
    return Split(training, validation, test)


def scaled(split: Split) -> Split:
    """Make indicators of categories, and divide features by their deviation in training."""
    tables = [encode(part.X) for part in split]
    tables = [X.reindex(columns=tables[0].columns, fill_value=0.0) for X in tables]
    scaler = StandardScaler().set_output(transform="pandas").fit(tables[0])
    parts = zip(split, tables, strict=True)
    return Split(*(part._replace(X=scaler.transform(X)) for part, X in parts))


# ------------------------------------------------------------------------------------------ fits


def fit(model: Any, split: Split) -> Figures:
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


def measure_labels(loss: str, n_validation: int, n_perturbations: int, seed: int) -> Any:
    """Fit on wrong labels, and fit plain models on the validation rows and on clean labels."""
    split = split_noisy_labels(seed, n_validation)
    solver = AdaptiveSurrogates(n_perturbations=n_perturbations)
    found = fit(make_trees(loss, solver), split)
    clean = split_noisy_labels(seed, n_validation, is_noisy=False)
    for name, given in (
        ("on_validation", clean.validation),
        ("clean", clean.training),
        ("best_threshold", split.training),
    ):
        model = lgb.LGBMClassifier(**TREES).fit(given.X, given.y)
        of_validation, of_test = (
            np.asarray(model.predict(part.X, raw_score=True)) for part in split[1:]
        )
        shift = 0.0
        if name != "on_validation":  # Every threshold is tried on the validation rows.
            value = partial(loss_of, loss, split.validation)
            shift, _ = find_shift(value, of_validation, of_validation.size + 1)
        found[name] = loss_of(loss, split.test, of_test + shift)
    return found


def minimize_by_strategy(loss: str, seed: int) -> Figures:
    """Search the same parameters from the best threshold by an evolution strategy.

    It goes on from the mean of the best children. There are 2,400 calls in all. The steps shrink
    from generation to generation, in units of perturbations that change scores by their standard
    deviation, and the best child of all is returned.
    """
    split = split_noisy_labels(seed, 500)
    model = lgb.LGBMClassifier(**TREES).fit(*split.training[:2])
    weights = TreeWeights(models, model)

    def columns(part: Part) -> Any:
        groups = part.group.to_numpy()
        beside = np.column_stack([groups == 0, groups == 1, np.ones(groups.size)])
        return weights.score_columns(part.X, beside.astype(np.float32))

    space = LinearSpace(columns(split.training), columns(split.validation))
    test = LinearSpace(*[columns(split.test)] * 2)
    value = partial(loss_of, loss, split.validation)
    centre = np.concatenate([weights.start, np.zeros(3)])
    centre[-1], best_value = find_shift(value, space.validation_scores(centre), 1000)
    best, random = centre, np.random.RandomState(seed)
    unit = space.perturbation_scale(centre)
    for step in np.geomspace(0.3, 0.03, 60):
        children = centre + unit * step * random.standard_normal((40, centre.size))
        values = [value(space.validation_scores(child)) for child in children]
        order = np.argsort(values, kind="stable")
        centre = children[order[:10]].mean(axis=0)
        if values[order[0]] < best_value:
            best, best_value = children[order[0]], values[order[0]]
    strategy = loss_of(loss, split.test, test.validation_scores(best))
    return {"strategy": strategy, "promised": best_value}


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


def measure_clean(data: str, learner: str, seed: int) -> Any:
    """Fit macro F1 without noise."""
    split = split_clean(data, seed)
    if learner == "linear":
        return fit(make_linear("f1"), scaled(split))
    return fit(make_trees("f1"), split)


def measure_features(data: str, share: float, seed: int) -> Any:
    """Fit macro F1 with noisy features in one group."""
    split = add_noise(split_clean(data, seed), share, seed)
    return fit(make_linear("f1"), scaled(split))


def measure_proxy(loss: str, seed: int) -> Any:
    """Fit the error on labels that training has a proxy of."""
    surrogates = [surrogate(loss, on=label(c)) for c in (0, 1)]
    model = make_linear("error", by=None, surrogates=surrogates)
    return fit(model, scaled(split_proxy_labels(seed)))


def compare_models(found: pd.DataFrame, *_: Any) -> dict[str, str]:
    """Write the means of all figures with their errors, and in how many splits ours is better."""
    lines = [f"  {name:24} {of.mean():.4f} ± {of.sem():.4f}" for name, of in found.items()]
    for name in ("threshold", "per_group", "best_threshold"):
        if name in found and "ours" in found:
            gain = found[name] - found["ours"]
            better = f"{(gain > 0).sum()} of {gain.size}, mean {gain.mean():+.4f}"
            lines.append(f"  ours is better than {name}: {better}")
    return {"figures": "\n".join(lines)}


def describe_clean(found: pd.DataFrame, data: str, *_: Any) -> dict[str, str]:
    """Write macro F1 of all models, and what the paper has."""
    models = 1.0 - found[["plain", "threshold", "per_group", "ours"]]
    return compare_models(models) | {"published": str(TABLE_3[data])}


def show_features(found: pd.DataFrame) -> str:
    """Write the means over the shares of noisy rows."""
    means = 1.0 - found.groupby("data", sort=False)[["plain", "threshold", "ours"]].mean()
    return f"macro F1, mean over shares\n{means.round(4).to_string()}"


TABLES = {
    "labels": Table(
        measure_labels,
        {
            "loss": ("g_mean", "f1"),
            "n_validation n_perturbations": ((500, 40), (3000, 40), (500, 10), (500, 100)),
            "seed": range(5),
        },
        "{loss}, {n_validation} validation rows, m = {n_perturbations}\n{figures}",
        compare_models,
    ),
    "strategy": Table(
        minimize_by_strategy,
        {"loss": ("g_mean", "f1"), "seed": range(5)},
        "{loss}\n{figures}",
        compare_models,
    ),
    "simulated": Table(
        measure_simulated,
        {"kind": LOWEST, "seed": range(5)},
        "{kind}, lowest possible {lowest}\n{figures}\n  ours of each draw: {ours each}",
        lambda found, kind, _: compare_models(found) | {"lowest": LOWEST[kind]},
    ),
    "clean": Table(
        measure_clean,
        {"data": TABLE_3, "learner": ("linear", "trees"), "seed": range(5)},
        "macro F1, {data}, {learner}; paper, linear: plain, threshold, its method {published}\n"
        "{figures}",
        describe_clean,
    ),
    "features": Table(
        measure_features,
        {"data": ("adult", "default"), "share": (0.0, 0.2, 0.4, 0.6, 0.8), "seed": range(5)},
        "macro F1, {data}, {share:.0%} of the women noisy\n{figures}",
        lambda found, *_: compare_models(1.0 - found[["plain", "threshold", "ours"]]),
        show_features,
    ),
    "proxy": Table(
        measure_proxy,
        {"loss": ("log_loss", "hinge", "sigmoid"), "seed": range(5)},
        "{loss}\n{figures}",
        compare_models,
        heading=f"error on Adult's sex; paper: plain, threshold, hinge, sigmoid {TABLE_5}",
    ),
}


if __name__ == "__main__":
    run_tables(TABLES, "blackbox", make_parser(__doc__), seed=at_least(1))
