from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gbm_constrained.datasets import load_adult, load_dry_bean
from gbm_constrained.training import fitted_report, passes


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


@pytest.fixture
def conclusions(monkeypatch):
    """What each constrained fit came to: the fit, and the model that was returned."""
    seen = []
    make_history = fitted_report._make_history

    def keep(fit, model):
        seen.append(SimpleNamespace(fit=fit, model=model, choice=model.choice))
        return make_history(fit, model)

    monkeypatch.setattr(fitted_report, "_make_history", keep)
    return seen


@pytest.fixture
def one_pass(monkeypatch):
    """Boosters of the folds are grown under multipliers once, whatever the constraints cost."""
    monkeypatch.setattr(passes, "PASSES", 1)
