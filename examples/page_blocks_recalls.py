"""
Recalls of five unequal classes
===============================

Nine of ten blocks on a scanned page are text, and one in two hundred is a graphic. A classifier
of fewest errors finds the text and misses rare blocks. ``maximize=h_mean()`` asks for a large
harmonic mean of the recalls, which is zero as soon as one class is never found.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.datasets import fetch_openml, make_classification
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.metrics import h_mean
from gbm_constrained.plotting import ClassRecallsDisplay, MetricHistoryDisplay

# %%
# Data
# ----
# Page Blocks of UCI, or without a network a table with the same shares of classes.
names = ["text", "horizontal line", "graphic", "vertical line", "picture"]
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page_blocks = fetch_openml(data_id=30, as_frame=False, n_retries=1, delay=0.01)
    X, y = page_blocks.data, page_blocks.target.astype(int) - 1
except OSError:
    shares = [0.898, 0.06, 0.005, 0.016, 0.021]
    X, y = make_classification(
        5473, 10, n_informative=6, n_classes=5, weights=shares, class_sep=1.3, random_state=0
    )
y = np.array(names)[y]
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)

# %%
# Train
# -----
# The report has the H-mean of four decisions on rows that the trees have not seen, with intervals.
# Those of the largest probability, and of the probability divided by the class share, need no
# search. The optimised ones are returned if they are better by more than a standard error.
parameters = {"num_leaves": 15, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1}
plain = LGBMClassifier(**parameters).fit(X_train, y_train)
fitted = gc.ConstrainedLGBMClassifier(maximize=h_mean(), **parameters).fit(X_train, y_train)
columns = ["decisions", "held_out", "low", "high", "bound", "is_returned"]
print(fitted.metric_report_[columns].round(3).to_string(index=False))

# %%
# Recalls before and after
# ------------------------
# Test rows that no model has seen.
models = {"before": plain, "after": fitted}
table = pd.DataFrame(
    {
        name: recall_score(y_test, model.predict(X_test), labels=names, average=None)
        for name, model in models.items()
    },
    index=names,
)
table.insert(0, "rows", pd.Series(y_test).value_counts())
print(table.round(3))
print(f"H-mean after: {fitted.score(X_test, y_test):.3f}")

# %%
# Figure
# ------
# On the left the recalls with 95% intervals, on the right the search: the value after each call of
# the oracle, first by the model's probabilities, which give a bound, then by the labels.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
decided = {name: model.predict(X_test) for name, model in models.items()}
ClassRecallsDisplay.from_predictions(y_test, decided, ax=axes[0])
MetricHistoryDisplay.from_estimator(fitted, ax=axes[1])
figure.savefig("page_blocks_recalls.png", dpi=150)
