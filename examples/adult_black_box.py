"""
A metric that is only a function to call
========================================

Half of the high earners in the private sector are labelled wrongly in training, as in records that
one office keeps badly. 500 persons with clean labels are there besides. A function of their labels
and scores says what is wanted: one minus the mean F1 of the private sector and the others.
``minimize=BlackBox(function)`` calls it, never differentiates it, and finds weights of the trained
trees for it.
"""

import matplotlib.pyplot as plt
import numpy as np

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.metrics import BlackBox
from gbm_constrained.plotting import (
    BlackBoxHistoryDisplay,
    ModelParametersDisplay,
    SurrogateTargetsDisplay,
)

adult = load_adult()
rng = np.random.default_rng(1)
order = rng.permutation(len(adult.target))
test, clean, train = np.split(order, [16_000, 16_500])
private = (adult.data["workclass"] == "Private").astype(int).rename("private")
noisy = adult.target.copy()
noisy[(private == 1) & (rng.random(len(noisy)) < 0.5)] = 0


def loss(y_true, scores, sensitive):
    """One minus the mean F1 of two groups."""
    found = []
    for group in (0, 1):
        decided, positive = scores[sensitive == group] > 0, y_true[sensitive == group] == 1
        found.append(2 * (decided & positive).sum() / max(decided.sum() + positive.sum(), 1))
    return 1 - np.mean(found)


# %%
# Train
# -----
# By default the surrogates are the log losses of each label in each group. The training rows have
# the wrong labels, and the clean rows choose the model.
def part(rows, labels=adult.target):
    return adult.data.iloc[rows], labels.iloc[rows], private.iloc[rows]


model = gc.ConstrainedLGBMClassifier(
    minimize=BlackBox(loss, by="private"), n_estimators=60, num_leaves=7, n_jobs=1, verbose=-1
)
X, y, groups = part(train, noisy)
model.fit(X, y, sensitive_features=groups, validation=part(clean), evaluation=part(test))

# %%
# Measure
# -------
# The rows that chose the model promise too much. ``evaluation`` is of rows that chose nothing.
table = model.blackbox_report_.set_index("model")
print(table[["evaluation", "low", "high", "verdict", "validation"]].round(3).to_string())

# %%
# Figure
# ------
# The metric on the clean rows over the iterations, the surrogates and what they were asked for,
# and the weights of the trees with the offsets of both groups.
figure, axes = plt.subplots(1, 3, figsize=(16, 5), layout="constrained")
for display, ax in zip(
    (BlackBoxHistoryDisplay, SurrogateTargetsDisplay, ModelParametersDisplay), axes, strict=True
):
    display.from_estimator(model, ax=ax)
figure.savefig("adult_black_box.png", dpi=150)
