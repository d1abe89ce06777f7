"""
Card frauds: a bound on the miss rate
=====================================

Miss at most 10% of the frauds, and raise as few false alarms as that allows: ``fnr() <= 0.1``. The
constraint alone holds on rows that the trees have not seen, up to sampling error. With
``guarantee="high_probability"`` it holds in the population with a probability of 95%, for which
the model pays with false alarms.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained.datasets import load_credit
from gbm_constrained.plotting import plot_threshold_curve

credit = load_credit()
X_train, X_test, y_train, y_test = train_test_split(
    credit.data, credit.target, test_size=0.3, stratify=credit.target, random_state=3
)
print(f"{y_train.sum()} frauds among {len(y_train):,} training rows, {y_test.sum()} in the test")

# %%
# Train
# -----
# With some 350 frauds to learn from, small trees do best.
parameters = {
    "n_estimators": 60, "learning_rate": 0.1, "max_depth": 3, "min_child_weight": 10,
    "verbosity": 0, "n_jobs": 1,
}  # fmt: skip
constraint = gc.fnr() <= 0.1
plain = XGBClassifier(**parameters).fit(X_train, y_train)
constrained = gc.ConstrainedXGBClassifier(constraints=[constraint], **parameters)
constrained.fit(X_train, y_train)
certified = gc.ConstrainedXGBClassifier(
    constraints=[constraint], guarantee="high_probability", **parameters
)
certified.fit(X_train, y_train)
report = pd.concat([constrained.constraint_report_, certified.constraint_report_])
print(report[["constraint", "held_out", "low", "high", "rows", "verdict"]].round(3))

# %%
# Measure
# -------
# An audit gives both error rates on test rows, with exact intervals. The second constraint holds
# for every model: it is there to measure the false alarms.
records = []
models = {"plain": plain, "constrained": constrained, "with a guarantee": certified}
for name, model in models.items():
    frame = gc.audit(model, X_test, y_test, [constraint, gc.fpr() <= 1.0]).frame
    missed, alarms = frame.iloc[0], frame.iloc[1]
    records.append(
        {"model": name, "missed": missed["value"], "low": missed["low"], "high": missed["high"]}
        | {"false alarms": alarms["value"], "verdict": missed["verdict"]}
    )
table = pd.DataFrame(records)
print(table.round(4).to_string(index=False))

# %%
# Both errors
# -----------
# The line has every threshold of the plain model.
figure, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
plot_threshold_curve(y_test, plain.predict_proba(X_test)[:, 1], ax, label="plain, all thresholds")
for row in table.itertuples(index=False):
    ax.plot(row.missed, row[4], "o", label=row.model)
ax.axvline(0.1, color="grey", linestyle=":", label="bound")
ax.set(xlim=(0, 0.4), yscale="log", ylim=(1e-4, 1))
ax.set(xlabel="frauds missed on test rows", ylabel="false alarms on test rows")
ax.get_legend().remove()
figure.legend(loc="outside lower center", ncols=2)
figure.savefig("credit_neyman_pearson.png", dpi=150)
