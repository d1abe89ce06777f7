"""
Card frauds: value in the place of cases
========================================

A bank loses money, and not cases. Miss at most 10% of the fraud *value* with
``fnr(weight="Amount") <= 0.1``, or bound the expected cost of a transaction: a missed fraud costs
its amount, and each alarm costs the price of a review.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_credit

REVIEW = 3.0  # Euros for each alarm.
credit = load_credit()
X_train, X_test, y_train, y_test = train_test_split(
    credit.data, credit.target, test_size=0.5, stratify=credit.target, random_state=1
)

# %%
# Three rules
# -----------
# The first counts frauds, the second their value. The cost of a transaction is a sum of two
# matrices: one is multiplied by the amount, the other is the same for all rows.
missed_value = gc.fnr(weight="Amount")
cost = gc.cost([[0, 0], [1, 0]], weight="Amount") + gc.cost([[0, REVIEW], [0, REVIEW]])
parameters = {"n_estimators": 40, "learning_rate": 0.15, "max_depth": 4, "n_jobs": 1}
models = {"plain": XGBClassifier(**parameters).fit(X_train, y_train)}
for name, rule in {
    "misses 10% of frauds": gc.fnr() <= 0.1,
    "misses 10% of value": missed_value <= 0.1,
    "costs 0.40": cost <= 0.4,
}.items():
    models[name] = gc.ConstrainedXGBClassifier(constraints=[rule], **parameters)
    models[name].fit(X_train, y_train)
    print(models[name].constraint_report_[["held_out", "low", "high", "verdict"]].round(3))

# %%
# Measure
# -------
# An audit measures all of them on test rows. Bounds that every model meets are there to measure
# what the others cost.
measured = [gc.fnr() <= 1, missed_value <= 1, gc.fpr() <= 1, cost <= 1000]
table = pd.DataFrame(columns=["model", "frauds", "value", "alarms", "cost", "low", "high"])
for name, model in models.items():
    frame = gc.audit(model, X_test, y_test, measured).frame
    table.loc[len(table)] = (name, *frame["value"], *frame[["low", "high"]].iloc[-1])
print(table.round(3).to_string(index=False))

# %%
# Value and cost
# --------------
# The lines have every threshold of the plain model.
score = models["plain"].predict_proba(X_test)[:, 1]
order = np.argsort(-score)
is_fraud, value = y_test.to_numpy()[order] == 1, X_test["Amount"].to_numpy()[order]
missed = 1 - np.cumsum(value * is_fraud) / value[is_fraud].sum()
alarms = np.cumsum(~is_fraud) / (~is_fraud).sum()
costs = (missed * value[is_fraud].sum() + REVIEW * np.arange(1, len(order) + 1)) / len(order)
figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
axes[0].plot(missed, alarms, color="grey", label="plain, all thresholds")
axes[0].axvline(0.1, color="grey", linestyle=":", label="10% of the value")
axes[1].plot(alarms, costs, color="grey")
for row in table.itertuples(index=False):
    axes[0].plot(row.value, row.alarms, "o", label=row.model)
    axes[1].errorbar(row.alarms, row.cost, [[row.cost - row.low], [row.high - row.cost]],
                     fmt="o", capsize=3)  # fmt: skip
axes[1].axhline(0.4, color="grey", linestyle="--", label="0.4 euros per transaction")
axes[0].set(xlabel="share of the fraud value that is missed", ylabel="false alarms")
axes[0].set(xlim=(0, 0.5), yscale="log", ylim=(1e-4, 1))
axes[1].set(xlabel="false alarms", ylabel="euros per transaction")
axes[1].set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1))
figure.legend(loc="outside lower center", ncols=3)
figure.savefig("credit_fraud_value.png", dpi=150)
