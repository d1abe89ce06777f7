"""ROC curves of groups: points, AUCs and intervals, and the band of a constraint."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import Fixed, labels
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve

import gbm_constrained as gc
from gbm_constrained.plotting import COLOURS, GroupROCDisplay


@pytest.fixture(scope="module")
def scored():
    """Labels, scores with ties, groups of which the last is small, and weights of rows."""
    rng = np.random.default_rng(0)
    n = 500
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b", "$c$"], n, p=[0.5, 0.4, 0.1])
    scores = (rng.normal(size=n) + y * (1 + (group == "b"))).round(1)
    return y, scores, {"g": group}, rng.choice([1.0, 2.0], n)


def inside(y, group, name, kind):
    """Rows of a curve: the group's positives, and the negatives of the group or of others."""
    own = group == name
    return own if kind == "within" else np.where(y == 1, own, ~own)


@pytest.mark.parametrize("kind", ["within", "cross"])
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_and_aucs_are_those_of_the_rows_of_each_group(scored, kind, weighted):
    y, scores, columns, weight = scored
    weight = weight if weighted else None
    display = GroupROCDisplay.from_predictions(
        y, scores, by="g", kind=kind, sensitive_features=columns, sample_weight=weight
    )
    assert display.aucs["group"].tolist() == ["g=$c$", "g=a", "g=b"]
    for record, line, colour in zip(
        display.aucs.to_dict("records"), display.lines_, COLOURS[:3], strict=True
    ):
        rows = inside(y, columns["g"], record["group"][2:], kind)
        weights = None if weight is None else weight[rows]
        fpr, tpr, _ = roc_curve(y[rows], scores[rows], sample_weight=weights)
        np.testing.assert_array_equal(line.get_xdata(), fpr)
        np.testing.assert_array_equal(line.get_ydata(), tpr)
        assert line.get_color() == colour
        auc = roc_auc_score(y[rows], scores[rows], sample_weight=weights)
        assert record["auc"] == pytest.approx(auc, abs=1e-12)
        assert (record["positives"], record["negatives"]) == (y[rows].sum(), (1 - y[rows]).sum())
        assert record["low"] < auc < record["high"]
    texts = labels(display.ax_)
    assert ("against others" in texts[0]) == (kind == "cross")
    first = display.aucs.iloc[0]
    assert texts[0].startswith(r"g=\$c\$")
    assert f"{first['auc']:.3f} [{first['low']:.3f}, {first['high']:.3f}]" in texts[0]
    assert display.auc_ax_ is None


def test_higher_levels_have_wider_intervals(scored):
    y, scores, columns, _ = scored
    wide, narrow = (
        GroupROCDisplay.from_predictions(y, scores, sensitive_features=columns, level=level).aucs
        for level in (0.99, 0.8)
    )
    assert (wide["low"] < narrow["low"]).all()
    assert (wide["high"] > narrow["high"]).all()


def test_band_is_what_the_constraint_allows(scored):
    y, scores, columns, _ = scored

    def band(constraint, kind="within"):
        display = GroupROCDisplay.from_predictions(
            y, scores, by="g", kind=kind, constraint=constraint, sensitive_features=columns
        )
        assert display.auc_ax_.get_title().startswith(str(constraint)[:20])
        return display.allowed, display.aucs["auc"].to_numpy()

    rate = gc.recall()
    (low, high), aucs = band(gc.gap(rate, by="g") <= 0.1)
    assert high - low == pytest.approx(0.1)
    assert (low + high) / 2 == pytest.approx((aucs.min() + aucs.max()) / 2)
    assert band(gc.each(rate, by="g") >= 0.8)[0] == (0.8, np.inf)
    (low, high), aucs = band(gc.gap(rate, by="g", reference="a") <= 0.1)
    assert (low + high) / 2 == pytest.approx(aucs[1])
    for kind in ("within", "cross"):
        (low, high), _ = band(gc.gap(rate, by="g", reference=gc.overall) <= 0.1, kind)
        assert (low + high) / 2 == pytest.approx(roc_auc_score(y, scores))
    with pytest.raises(ValueError, match=r"reference .*'z'.* none of the groups"):
        band(gc.gap(rate, by="g", reference="z") <= 0.1)
    with pytest.raises(TypeError, match="compares no groups"):
        band(rate >= 0.5)


def test_scores_of_an_estimator_are_of_its_positive_class(scored):
    y, scores, columns, weight = scored
    X = pd.DataFrame({"x": scores})
    names = np.array(["no", "yes"])
    model = LogisticRegression().fit(X, names[y])
    display = GroupROCDisplay.from_estimator(
        model, X, names[y], sensitive_features=columns, sample_weight=weight
    )
    given = GroupROCDisplay.from_predictions(
        y, scores, sensitive_features=columns, sample_weight=weight
    )
    pd.testing.assert_frame_equal(display.aucs, given.aucs)
    turned = GroupROCDisplay.from_estimator(
        model, X, names[y], positive="no", sensitive_features=columns, sample_weight=weight
    )
    np.testing.assert_allclose(turned.aucs["auc"], given.aucs["auc"], rtol=1e-12)
    assert turned.aucs["positives"].tolist() == given.aucs["negatives"].tolist()
    with pytest.raises(TypeError, match="neither decision_function nor predict_proba"):
        GroupROCDisplay.from_estimator(Fixed(y), X, y, sensitive_features=columns)


def test_groups_without_a_curve_are_named(scored):
    y, scores, columns, _ = scored
    only = np.where(columns["g"] == "b", 1, y)
    display = GroupROCDisplay.from_predictions(only, scores, by="g", sensitive_features=columns)
    assert len(display.lines_) == 2
    assert labels(display.ax_)[2].startswith("g=b\nno curve")
    assert display.aucs["auc"].isna().tolist() == [False, False, True]
    cross = GroupROCDisplay.from_predictions(
        only, scores, by="g", kind="cross", sensitive_features=columns
    )
    assert len(cross.lines_) == 3
    with pytest.raises(ValueError, match="none has positives and negatives"):
        GroupROCDisplay.from_predictions(y, scores, sensitive_features={"g": y})


def test_both_kinds_share_axes(scored):
    y, scores, columns, _ = scored
    _, ax = plt.subplots()
    for kind in ("within", "cross"):
        GroupROCDisplay.from_predictions(
            y, scores, by="g", kind=kind, sensitive_features=columns, ax=ax
        )
    assert len(labels(ax)) == 6
    assert {line.get_linestyle() for line in ax.get_lines()} == {"-", "--", ":"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "between"}, "kind"),
        ({"level": 95}, "level"),
        ({"y_true": np.zeros(500)}, "two classes"),
        ({"positive": 7}, "positive is 7"),
        ({"y_score": np.zeros((500, 3))}, "one score of the positive class"),
        ({"y_score": np.full(500, np.nan)}, "500 are NaN"),
        ({"by": "age"}, "age"),
    ],
)
def test_what_does_not_fit_is_refused(scored, change, message):
    y, scores, columns, _ = scored
    given = {"y_true": y, "y_score": scores, "sensitive_features": columns}
    with pytest.raises(ValueError, match=message):
        GroupROCDisplay.from_predictions(**given | change)
