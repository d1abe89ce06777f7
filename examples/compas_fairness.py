"""
Equalized odds on COMPAS, with intervals
========================================

A prediction of recidivism should have similar error rates for persons of each race: both
``gap(fpr(), by="race")`` and ``gap(fnr(), by="race")`` are at most 0.1. The groups are small. An
error rate of 150 persons has a standard error of 4 points, so that intervals matter here.
"""

import warnings

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_compas
from gbm_constrained.plotting import GroupRatesDisplay

compas = load_compas()
X_train, X_test, y_train, y_test = train_test_split(
    compas.data, compas.target, test_size=0.4, random_state=0
)

# %%
# Train
# -----
# Races of fewer than 300 persons are left out, and a warning would name them in each step. The
# column ``race`` is a feature here, so that ``fit`` needs no ``sensitive_features``.
warnings.filterwarnings("ignore", message=".*fewer than min_group_size")
parameters = {
    "n_estimators": 100, "learning_rate": 0.1, "max_depth": 3, "enable_categorical": True,
    "n_jobs": 1, "verbosity": 0,
}  # fmt: skip
compared = {"by": "race", "min_group_size": 300, "small_groups": "drop"}
constraints = [gc.gap(gc.fpr(), **compared) <= 0.1, gc.gap(gc.fnr(), **compared) <= 0.1]
plain = XGBClassifier(**parameters).fit(X_train, y_train)
constrained = gc.ConstrainedXGBClassifier(constraints=constraints, **parameters)
constrained.fit(X_train, y_train)
columns = ["constraint", "held_out", "low", "high", "rows", "verdict"]
print(constrained.constraint_report_[columns].round(3).to_string(index=False))
print(constrained.group_report_[["group", "rows", "held_out", "low", "high"]].round(3))

# %%
# Measure
# -------
# Value, 95% interval and verdict of both models on test rows.
reports = {
    name: gc.audit(model, X_test, y_test, constraints)
    for name, model in {"plain": plain, "constrained": constrained}.items()
}
table = pd.concat({name: report.frame for name, report in reports.items()}, names=["model"])
columns = ["constraint", "value", "low", "high", "verdict"]
print(table.droplevel(1)[columns].round(3).to_string())
print({name: f"accuracy {report.accuracy.value:.3f}" for name, report in reports.items()})

# %%
# Error rates of the groups
# -------------------------
# A band is as wide as its bound: the constraint holds where all rates lie in one such band.
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for ax, constraint, rate in zip(axes, constraints, (gc.fpr(), gc.fnr()), strict=True):
    GroupRatesDisplay.from_estimator(constrained, X_test, y_test, constraint, ax=ax)
    GroupRatesDisplay.from_estimator(plain, X_test, y_test, gc.each(rate, **compared), ax=ax)
figure.savefig("compas_fairness.png", dpi=150)
