"""
Largest G-mean with equal opportunity on Adult
==============================================

A quarter of the persons in Adult earn more than $50,000. ``maximize=g_mean()`` balances the
recalls of both classes, and ``gap(tpr(), by="sex") <= 0.05`` asks that those who earn more are
found alike among women and men. The column ``sex`` is not a feature: training takes it as
``sensitive_features``, and prediction needs no group.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.metrics import g_mean
from gbm_constrained.plotting import AchievableRatesDisplay, ClassRecallsDisplay

adult = load_adult()
train, test = adult.split == "train", adult.split == "test"
X, y, groups = adult.data.drop(columns="sex"), adult.target, adult.sensitive_features[["sex"]]

# %%
# Train
# -----
# Boosters of the pair of label and sex estimate the probability of the group, so that the decision
# weighs both groups without knowing which one a person is in.
parameters = {"n_estimators": 30, "num_leaves": 15, "verbose": -1, "n_jobs": 1}
constraint = gc.gap(gc.tpr(), by="sex") <= 0.05
plain = LGBMClassifier(**parameters).fit(X[train], y[train])
balanced = gc.ConstrainedLGBMClassifier(maximize=g_mean(), **parameters)
balanced.fit(X[train], y[train])
fair = gc.ConstrainedLGBMClassifier(maximize=g_mean(), constraints=[constraint], **parameters)
fair.fit(X[train], y[train], sensitive_features=groups[train])
columns = ["decisions", "held_out", "low", "high", "violation", "is_returned"]
print(fair.metric_report_[columns].round(3).to_string(index=False))

# %%
# Measure
# -------
# Decisions of ``predict`` on Adult's own test rows, by the audit of any classifier.
models = {"plain": plain, "G-mean": balanced, "G-mean, equal opportunity": fair}
records = []
for name, model in models.items():
    report = gc.audit(model, X[test], y[test], constraint, sensitive_features=groups[test])
    decided = np.asarray(model.predict(X[test])) == y[test]
    recalls = decided.groupby(y[test]).mean()
    record = {"model": name, "G-mean": np.sqrt(recalls.prod())}
    records.append(record | report.frame.loc[0, ["value", "low", "high", "verdict"]].to_dict())
table = pd.DataFrame(records).set_index("model")
print(table.round(3).to_string())

# %%
# Figure
# ------
# On the left what decision rules achieve of the two recalls of women and men on held-out rows, and
# what was returned. On the right the recalls of both classes on test rows.
figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
AchievableRatesDisplay.from_estimator(
    fair, x="tpr[sex=Female]", y="tpr[sex=Male]", ax=axes[0]
)  # fmt: skip
others = {"plain": plain, "G-mean": balanced}
ClassRecallsDisplay.from_estimator(
    fair, X[test], y[test], others=others, name="G-mean, equal opportunity", ax=axes[1]
)  # fmt: skip
figure.savefig("adult_g_mean.png", dpi=150)
