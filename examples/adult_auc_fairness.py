"""
Fair rankings on Adult
======================

A score may be used to rank persons, without a threshold. This example bounds three differences
between women and men that depend on the ranking alone: three bounds of each, and both libraries.
``sex`` is no feature: training takes it as ``sensitive_features``, and prediction needs no group.
"""

import matplotlib.pyplot as plt
import pandas as pd
from lightgbm import LGBMClassifier
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import GroupROCDisplay, TradeoffDisplay

adult = load_adult()
train, test = adult.split == "train", adult.split == "test"
X, y, groups = adult.data.drop(columns="sex"), adult.target, adult.sensitive_features[["sex"]]
xgboost = {"max_depth": 4, "learning_rate": 0.1, "enable_categorical": True, "n_jobs": 1}
lightgbm = {"num_leaves": 15, "verbose": -1, "n_jobs": 1}
folds = {"measure_on": gc.CrossFit(n_folds=2)}
libraries = {
    "XGBoost": (XGBClassifier(**xgboost), gc.ConstrainedXGBClassifier(**xgboost, **folds)),
    "LightGBM": (LGBMClassifier(**lightgbm), gc.ConstrainedLGBMClassifier(**lightgbm, **folds)),
}

# %%
# Train and measure
# -----------------
# ``mean_rank`` asks that women are ranked as high as men, whatever they earn. ``cross_auc``
# compares those of one sex who earn more with those of the other who do not. ``auc`` compares how
# well the ranking is within each sex. Adult's own test rows measure all models.
metrics = {
    "mean_rank": (gc.mean_rank(), (0.1, 0.05, 0.02)),
    "cross_auc": (gc.cross_auc(), (0.08, 0.04, 0.02)),
    "auc": (gc.auc(), (0.03, 0.02, 0.01)),
}
measured = {"X_test": X[test], "y_test": y[test], "sensitive_features_test": groups[test]}
tables = []
for library, (plain, constrained) in libraries.items():
    plain.fit(X[train], y[train])
    for metric, (rate, bounds) in metrics.items():
        rules = [gc.gap(rate, by="sex") <= 1.0, gc.auc() >= 0.0]  # always met: only measured
        of_plain = gc.audit(plain, X[test], y[test], rules, sensitive_features=groups[test]).frame
        start = of_plain.loc[[0], ["constraint", "value", "low", "high"]]
        start = start.rename(columns={"low": "value_low", "high": "value_high"})
        start["auc"] = of_plain["value"][1]
        curve = gc.tradeoff_curve(
            constrained, X[train], y[train], bounds, sensitive_features=groups[train],
            constraint=lambda b, rate=rate: gc.gap(rate, by="sex") <= b, **measured,
        )  # fmt: skip
        names = {"library": library, "metric": metric, "label": ["plain", *map(str, bounds)]}
        tables.append(pd.concat([start, curve]).assign(**names))
table = pd.concat(tables)
columns = ["library", "metric", "label", "value", "value_low", "value_high", "auc", "verdict"]
print(table[columns].round(3).to_string(index=False))

# %%
# Figure
# ------
# Above, the AUC against each gap: up and to the left is better. Below, the ROC curves of the
# positives of one sex against the negatives of the other, before and after ``cross_auc`` is bound.
layout = [[metric for metric in metrics for _ in range(2)], ["plain"] * 3 + ["constrained"] * 3]
figure, axes = plt.subplot_mosaic(layout, figsize=(13, 9.5), layout="constrained")
for metric, points in table.groupby("metric", sort=False):
    TradeoffDisplay(points).plot(axes[metric], series="library", label="label", bound=None)
    axes[metric].get_legend().remove()  # One will do for all.
    axes[metric].set(title=metric, xlabel=f"gap of {metric} on test rows", ylabel="AUC, test rows")
figure.legend(*axes[metric].get_legend_handles_labels(), loc="outside lower center", ncols=3)
constraint = gc.gap(gc.cross_auc(), by="sex") <= 0.02
constrained.set_params(constraints=[constraint])
constrained.fit(X[train], y[train], sensitive_features=groups[train])
for name, model in {"plain": plain, "constrained": constrained}.items():
    options = {"kind": "cross", "constraint": constraint, "sensitive_features": groups[test]}
    GroupROCDisplay.from_estimator(model, X[test], y[test], by="sex", **options, ax=axes[name])
    axes[name].set_title(f"LightGBM, {name}")
figure.savefig("adult_auc_fairness.png", dpi=150)
