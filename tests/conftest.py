import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS

from gbm_constrained.datasets import load_adult, load_dry_bean

ROUNDS_PER_ITERATION = 2  # The default of all solvers.


@pytest.fixture(autouse=True)
def closed_figures():
    """Close the figures of a test, of which matplotlib warns after the twentieth."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def adult():
    """Adult with its original split: X_train, y_train, X_test, y_test."""
    data = load_adult(download=False)
    train = (data.split == "train").to_numpy()
    y = data.target.to_numpy()
    return data.data[train], y[train], data.data[~train], y[~train]


@pytest.fixture(scope="session")
def dry_bean():
    """Dry Bean by the paper's protocol: 15 features, sorted classes; X, y."""
    try:
        data = load_dry_bean(download=False)
    except OSError as missing:
        pytest.skip(f"Dry Bean is not committed and was not found: {missing}"[:200])
    return data.data.iloc[:, :-1], pd.Categorical(data.target).codes.astype(int)


@pytest.fixture(scope="session")
def binary():
    """A small binary problem with an imbalanced positive class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 6))
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * rng.normal(size=1500)
    return X, (score > 0.8).astype(int)


@pytest.fixture(scope="session")
def several():
    """A small problem of four classes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1600, 6))
    score = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * rng.normal(size=1600)
    return X, np.digitize(score, np.quantile(score, [0.4, 0.7, 0.9]))


def _replace_classifiers(monkeypatch, change):
    """Let tests make classifiers of a subclass, which keeps its parent's name."""
    for library, parent in CLASSIFIERS.items():
        changed = change(parent)
        changed.__name__ = changed.__qualname__ = parent.__name__
        monkeypatch.setitem(CLASSIFIERS, library, changed)


@pytest.fixture
def conclusions(monkeypatch):
    """What each constrained fit came to: the fit, and the model that was returned."""
    seen = []

    def record(parent):
        class Recording(parent):
            def _train_and_report(self, fit, adapter):
                model = super()._train_and_report(fit, adapter)
                seen.append(SimpleNamespace(fit=fit, model=model, choice=model.choice))
                return model

        return Recording

    _replace_classifiers(monkeypatch, record)
    return seen


def _add_callback(monkeypatch, callback):
    """Notify a callback of each outer iteration of all constrained fits."""

    def add(parent):
        class Notifying(parent):
            def fit(self, *args, constraint_callbacks=(), **given):
                callbacks = [*constraint_callbacks, callback]
                return super().fit(*args, constraint_callbacks=callbacks, **given)

        return Notifying

    _replace_classifiers(monkeypatch, add)


@pytest.fixture
def one_pass(monkeypatch):
    """Boosters of the folds are grown under multipliers once, whatever the constraints cost.

    A callback that ends measuring with the last iteration asks for no further pass.
    """

    def end(state):
        has_multipliers = "without multipliers" not in state.rows
        is_last = state.rounds + ROUNDS_PER_ITERATION >= state.n_rounds
        return state.phase == "measuring" and has_multipliers and is_last

    _add_callback(monkeypatch, end)


@pytest.fixture
def grown(monkeypatch):
    """Whether each set of boosters that is grown on the folds has multipliers."""
    seen = []

    def record(state):
        if state.phase == "measuring" and state.rounds == 0:
            seen.append("without multipliers" not in state.rows)

    _add_callback(monkeypatch, record)
    return seen


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock that replaces the one of the process."""
    found = Clock()
    monkeypatch.setattr(time, "perf_counter", found)
    return found
