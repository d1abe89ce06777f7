"""One audit of everything that a report can hold."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc

CONSTRAINTS = [
    gc.fnr() <= 0.3,
    gc.fpr() <= 0.1,
    gc.precision() >= 0.6,
    gc.f1() >= 0.4,
    gc.accuracy() >= 0.7,
    gc.gap(gc.selection_rate(), by="sex") <= 0.001,
    gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
    gc.each(gc.fpr(), by="x<y") <= 0.2,
    gc.gap(gc.fpr(), by="x<y") <= 0.5,
    gc.log_loss() <= 0.6,
]


@pytest.fixture(scope="module")
def held_out(binary):
    """Features, labels and groups of rows that no model was trained on."""
    rng = np.random.default_rng(5)
    groups = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], 1500),
            "x<y": rng.choice(["<b>&\"'", "</table>", "\N{SNOWMAN}"], 1500),
        }
    )
    X, y = binary
    return X[500:], y[500:], groups.iloc[500:]


@pytest.fixture(scope="module")
def constrained(binary):
    X, y = binary
    model = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fnr() <= 0.2, gc.fpr() <= 0.3], n_estimators=20, verbose=-1, n_jobs=1
    )
    return model.fit(X[:500], y[:500])


@pytest.fixture(scope="module")
def full(constrained, held_out, binary):
    """Constraints of every kind, names that must be escaped, a comparison and a history."""
    X, y, groups = held_out
    plain = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    wins = gc.wins(over=y) / gc.losses(to=y) >= 2.0
    return gc.audit(
        constrained, X, y, [*CONSTRAINTS, wins], others={"<script>alert('&')</script>": plain},
        sensitive_features=groups,
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(full):
    """The page of the audit."""
    return full.to_html()
