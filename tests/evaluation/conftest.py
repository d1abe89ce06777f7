"""Models and rows that audits are tested on."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

MODELS = {
    "logistic": lambda: LogisticRegression(),
    "lightgbm": lambda: LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1),
    "xgboost": lambda: XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1),
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
}


@pytest.fixture(scope="module")
def groups():
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {"sex": rng.choice(["F", "M"], 1500), "site": rng.choice(["a", "b", "c"], 1500)}
    )


@pytest.fixture(scope="module", params=MODELS)
def fitted(request, binary):
    X, y = binary
    return MODELS[request.param]().fit(X[:500], y[:500])


@pytest.fixture(scope="module")
def unseen(binary, groups):
    X, y = binary
    weight = np.random.default_rng(6).uniform(0.5, 2.0, 1000)
    return X[500:], y[500:], groups.iloc[500:], weight
