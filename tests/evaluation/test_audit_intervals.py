"""Intervals of audits are exact where there are exact ones, and cover the truth."""

import numpy as np
import pytest
from audited import Decides
from scipy import stats
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.constraints.comparisons import Ratio


def test_intervals_of_rates_are_exact(unseen, binary):
    X, y, sensitive, _ = unseen
    model = LogisticRegression().fit(binary[0][:500], binary[1][:500])
    of = gc.audit(model, X, y, [gc.fnr() <= 0.3, gc.gap(gc.fpr(), by="sex") <= 0.1],
               sensitive_features=sensitive, level=0.9)  # fmt: skip
    decided = model.predict(X)
    exact = stats.binomtest(int(((y == 1) & (decided == 0)).sum()), int((y == 1).sum()))
    low, high = exact.proportion_ci(0.9, method="exact")
    assert of.frame.loc[0, ["low", "high"]].tolist() == pytest.approx([low, high])
    right = stats.binomtest(int((y == decided).sum()), y.size).proportion_ci(0.9, method="exact")
    assert of.accuracy[1:] == pytest.approx(tuple(right))
    women = (y == 0) & (sensitive["sex"] == "F").to_numpy()
    of_women = stats.binomtest(int((women & (decided == 1)).sum()), int(women.sum()))
    expected = [women.sum(), of_women.statistic, *of_women.proportion_ci(0.9, method="exact")]
    shown = of.groups.set_index("group").loc["sex=F", ["rows", "rate", "low", "high"]]
    assert shown.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("expression", "rates", "truth"),
    [
        (gc.each(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.1),
        (gc.gap(gc.fnr(), by="g"), (0.1, 0.1, 0.1, 0.1), 0.0),
        (gc.gap(gc.fnr(), by="g"), (0.05, 0.1, 0.1, 0.15), 0.1),
        (gc.gap(gc.fnr(), by="g", reference="3"), (0.05, 0.1, 0.1, 0.15), 0.1),
        (gc.ratio(gc.fnr(), by="g"), (0.4, 0.5, 0.6, 0.8), 0.5),
        (gc.ratio(gc.fnr(), by="g"), (0.5, 0.5, 0.5, 0.5), 1.0),
    ],
)
def test_intervals_of_several_groups_cover(expression, rates, truth):
    """The true worst group or pair lies within, in at least as many samples as the level says."""
    rng = np.random.default_rng(8)
    n, covered, repeats = 150, 0, 60
    given = {"sensitive_features": {"g": [*np.repeat(list("0123"), n), "0"]}}
    y, X = np.r_[np.ones(4 * n), [0]], np.ones((4 * n + 1, 1))
    for _ in range(repeats):
        decided = np.concatenate([rng.random(n) >= rate for rate in rates])
        rule = expression >= 0.5 if isinstance(expression, Ratio) else expression <= 0.5
        of = gc.audit(Decides(np.r_[decided, [0]]), X, y, rule, level=0.9, **given)
        covered += of.frame.loc[0, "low"] <= truth <= of.frame.loc[0, "high"]
    assert covered / repeats >= 0.9 - 3 * np.sqrt(0.09 / repeats)


def test_intervals_of_losses_cover():
    """Means, gaps and ratios of mean losses: about as often as the level says."""
    rng = np.random.default_rng(9)
    n, repeats = 400, 120
    y = np.tile([0, 1], n // 2)
    group = np.repeat(["a", "b"], n // 2)

    class Gives:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return (X[:, 0] > 0.5).astype(int)

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

    rules = [
        gc.log_loss() <= 0.5,
        gc.gap(gc.log_loss(), by="g") <= 0.2,
        gc.ratio(gc.log_loss(), by="g") >= 0.2,
        gc.log_loss(on={"g": "b"}) - gc.error_rate() <= 0.5,
    ]
    # Losses are exponential with means 0.4 and 0.6; a row is an error when its loss is > log 2.
    means = {"a": 0.4, "b": 0.6}
    errors = np.mean([np.exp(-np.log(2) / m) for m in means.values()])
    truth = np.array([0.5, 0.2, 2 / 3, 0.6 - errors])
    inside = np.zeros(4)
    for _ in range(repeats):
        loss = rng.exponential([means[g] for g in group])
        right = np.exp(-loss)
        X = np.where(y == 1, right, 1 - right)[:, None]
        frame = gc.audit(Gives(), X, y, rules, sensitive_features={"g": group}, level=0.9).frame
        inside += (frame["low"] <= truth) & (truth <= frame["high"])
    assert (np.abs(inside / repeats - 0.9) <= 0.09).all(), inside / repeats


def test_intervals_of_mean_losses_do_not_go_below_zero():
    """One row has nearly all of the loss."""
    y = np.zeros(80, dtype=int)
    y[-1] = 1

    class Sure:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return np.zeros(len(X), dtype=int)

        def predict_proba(self, X):
            return np.tile([0.99, 0.01], (len(X), 1))

    rules = [
        gc.log_loss() <= 1.0,
        gc.each(gc.log_loss(), by="g") >= 0.01,
        gc.ratio(gc.log_loss(), by="g") >= 0.1,
    ]
    group = {"sensitive_features": {"g": ["a"] * 40 + ["b"] * 40}}
    report = gc.audit(Sure(), np.zeros((80, 1)), y, rules, **group)
    for table, name in ((report.frame, "value"), (report.groups, "rate")):
        assert (table["low"] >= 0.0).all()
        assert ((table["low"] <= table[name]) & (table[name] <= table["high"])).all()
    assert report.frame["low"].tolist()[0] == 0.0
    assert report.groups["low"].iloc[-1] == 0.0


def test_wins_over_losses_have_an_exact_interval():
    """Two wins and no loss prove nothing, whatever resampling says; a hundred do."""
    y = np.ones(1000, dtype=int)
    y[0] = 0
    for won, lost, verdict in ((2, 0, "cannot be told"), (100, 0, "met"), (30, 30, "missed")):
        old, new = y.copy(), y.copy()
        old[1 : 1 + won] = 0
        new[500 : 500 + lost] = 0
        rule = gc.wins(over=old) / gc.losses(to=old) >= 2.0
        frame = gc.audit(Decides(new), np.ones((1000, 1)), y, rule).frame
        low, high = stats.binomtest(won, won + lost).proportion_ci(0.95, method="exact")
        expected = [low / (1 - low), np.inf if high == 1.0 else high / (1 - high)]
        assert frame.loc[0, ["low", "high"]].tolist() == pytest.approx(expected)
        assert frame["verdict"].tolist() == [verdict]


@pytest.mark.parametrize("errors", [0, 3])
def test_odds_of_errors_have_an_exact_interval(errors):
    """A part of every row is a constant: thirty right rows prove little."""
    y = np.arange(30) % 2
    new = np.where(np.arange(30) < errors, 1 - y, y)
    rules = [
        gc.error_rate() / (1 - gc.error_rate()) <= 0.01,
        gc.error_rate() / gc.accuracy() <= 0.01,
        (1 - gc.accuracy()) / (2 - gc.error_rate()) <= 0.01,
    ]
    frame = gc.audit(Decides(new), np.ones((30, 1)), y, rules).frame
    p = np.array(stats.binomtest(errors, 30).proportion_ci(0.95, method="exact"))
    expected = [*[p / (1 - p)] * 2, p / (2 - p)]
    np.testing.assert_allclose(frame[["low", "high"]], expected, atol=1e-12)
    assert (frame["verdict"] == ("missed" if errors else "met")).all()
