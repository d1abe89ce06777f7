"""
Equal false positive rates on Adult
===================================

A plain model of who earns more than $50,000 has a false positive rate that is 6 points higher for
men than for women. This example bounds the difference, ``gap(fpr(), by="sex") <= bound``, for
three bounds and both libraries. The column ``sex`` is not a feature: training takes it as
``sensitive_features``, and prediction needs no group.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, cross_val_predict
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import TradeoffDisplay

adult = load_adult()
train, test = adult.split == "train", adult.split == "test"
X, y, groups = adult.data.drop(columns="sex"), adult.target, adult.sensitive_features
negatives = [(y[train] == 0) & (groups["sex"][train] == sex) for sex in ("Female", "Male")]
xgboost = {"enable_categorical": True, "learning_rate": 0.1, "n_jobs": 1, "verbosity": 0}
lightgbm = {"verbose": -1, "n_jobs": 1}
libraries = {
    "XGBoost": (XGBClassifier(**xgboost), gc.ConstrainedXGBClassifier(**xgboost)),
    "LightGBM": (LGBMClassifier(**lightgbm), gc.ConstrainedLGBMClassifier(**lightgbm)),
}

# %%
# Train and measure
# -----------------
# Besides the constrained model, another threshold on the plain model meets each bound: the one of
# fewest errors, on scores of rows that the trees have not seen. Adult's own test rows measure all
# models.
records = []
for library, (plain, constrained) in libraries.items():
    scores = cross_val_predict(plain, X[train], y[train], cv=4, method="predict_proba")[:, 1]
    thresholds = np.linspace(0.001, 1.0, 500)
    errors = np.array([np.mean((scores >= t) != y[train]) for t in thresholds])
    rates = np.array([[np.mean(scores[rows] >= t) for rows in negatives] for t in thresholds])
    plain.fit(X[train], y[train])
    for bound in (0.03, 0.02, 0.01):
        constraint = gc.gap(gc.fpr(), by="sex") <= bound
        constrained.set_params(constraints=[constraint])
        constrained.fit(X[train], y[train], sensitive_features=groups[train])
        best = np.argmin(np.where(np.ptp(rates, axis=1) <= bound, errors, np.inf))
        moved = FixedThresholdClassifier(
            FrozenEstimator(plain), threshold=thresholds[best], response_method="predict_proba"
        ).fit(X[train], y[train])
        models = {"constrained": constrained, "plain, other threshold": moved}
        models |= {"plain": plain} if bound == 0.02 else {}
        for name, model in models.items():
            audit = gc.audit(model, X[test], y[test], constraint, sensitive_features=groups[test])
            record = {"library": library, "model": name, "bound": f"{bound:g}"}
            record |= audit.frame.loc[0, ["value", "low", "high", "verdict"]].to_dict()
            records.append(record | {"accuracy": audit.accuracy.value})
table = pd.DataFrame(records)
print(table.round(4).to_string(index=False))

# %%
# Accuracy against the gap
# ------------------------
# Up and to the left is better. Each point has its bound, and the 95% interval of its gap.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True, layout="constrained")
table = table.rename(columns={"low": "value_low", "high": "value_high"})
for ax, (library, points) in zip(axes, table.groupby("library", sort=False), strict=True):
    plain = points[points["model"] == "plain"].iloc[0]
    TradeoffDisplay(points[points["model"] != "plain"]).plot(
        ax, series="model", label="bound", bound=None, plain=(plain["value"], plain["accuracy"])
    )
    ax.set(title=library, xlabel="gap of false positive rates on test rows")
    ax.get_legend().remove()  # One will do for both.
figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4)
figure.savefig("adult_false_positive_rates.png", dpi=150)
