"""Rows and losses of `benchmarks/blackbox.py`."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from gbm_constrained.datasets import load_adult, load_compas

NOISY = "Private"  # Class of work whose labels are wrong in training.
FLIPPED = 0.5  # Share of its positives that are called negative.
N_SIMULATED = 5_000
MOST_LEVELS = 2  # Of a feature that noise flips.
FLIP = 0.9  # Probability that a binary feature of a noisy row is flipped.


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


def loss_of(name: str, part: Part, scores) -> float:
    """Compute a loss of some rows by its name."""
    if name == "f1":
        return f1_loss(part.y, scores, part.group.to_numpy())
    return {"g_mean": g_mean_loss, "error": error}[name](part.y, scores)


@cache
def load(name: str) -> Part:
    """Load a table, whose group is sex; women are group 0."""
    if name == "default":
        path = Path(os.environ["GBM_CONSTRAINED_DATA"]) / "default_credit.parquet"
        table = pd.read_parquet(path)
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
    """Split Adult, and flip positives of the private sector in training unless told otherwise."""
    adult = load("adult")
    private = (adult.X["workclass"].astype(str) == NOISY).astype(int).rename("group")
    whole = Part(adult.X, adult.y, private)
    rows, held = train_test_split(
        np.arange(whole.y.size), test_size=1 / 3, random_state=seed, stratify=whole.y
    )
    rng = np.random.default_rng(seed)
    rows = rng.permutation(rows)
    validation, training = take(whole, rows[:n_validation]), take(whole, rows[n_validation:])
    if not is_noisy:
        return Split(training, validation, take(whole, held))
    noisy = (training.group.to_numpy() == 1) & (rng.random(training.y.size) < FLIPPED)
    return Split(
        training._replace(y=np.where(noisy, 0, training.y)), validation, take(whole, held)
    )


def split_clean(name: str, seed: int) -> Split:
    """Split a table 4/9 : 2/9 : 1/3, as the paper does."""
    whole = load(name)
    rows, test = train_test_split(
        np.arange(whole.y.size), test_size=1 / 3, random_state=seed, stratify=whole.y
    )
    training, validation = train_test_split(
        rows, test_size=1 / 3, random_state=seed, stratify=whole.y[rows]
    )
    return Split(*(take(whole, part) for part in (training, validation, test)))


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
        if levels.size <= MOST_LEVELS:
            flips = noisy & (rng.random(values.size) < FLIP)
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
    X = adult.X.drop(columns=["sex", "relationship"])
    whole = Part(encode(X), 1 - adult.group.to_numpy(), adult.group)
    rows, test = train_test_split(np.arange(wife.size), test_size=1 / 3, random_state=seed)
    training, validation = train_test_split(rows, test_size=1 / 3, random_state=seed)
    split = Split(*(take(whole, part) for part in (training, validation, test)))
    return split._replace(training=split.training._replace(y=wife[training]))


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
