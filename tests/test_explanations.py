"""Gaps that are split over the features: sums, path integrals, brute force, coverage."""

import itertools
import math

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, PARENTS
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gbm_constrained as gc
from gbm_constrained import explain_gap
from gbm_constrained.explanations import N_PAIRINGS

QUIET = {"xgboost": {"verbosity": 0}, "lightgbm": {"verbose": -1}}
REGRESSORS = {"xgboost": xgb.XGBRegressor, "lightgbm": lgb.LGBMRegressor}


def draw(n=900, seed=0, d=6):
    rng = np.random.default_rng(seed)
    sex = (rng.random(n) < 0.4).astype(int)
    X = rng.normal(size=(n, d))
    X[:, 0] += 0.8 * sex
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n) > 0.5).astype(int)
    return X, y, {"sex": sex}


def booster(library, X, y, n_estimators=20, **options):
    model = PARENTS[library](n_estimators=n_estimators, n_jobs=1, **QUIET[library], **options)
    return model.fit(X, y)


def raw_scores(model, X):
    if hasattr(model, "booster_"):
        return model.predict(X, raw_score=True)
    return model.predict(X, output_margin=True).astype(float)


RATES = {
    "selection": gc.selection_rate(), "tpr": gc.tpr(), "fpr": gc.fpr(), "error": gc.error_rate(),
    "cost": gc.cost([[0, 1], [5, 0]]),
}  # fmt: skip


def value_of(name, y, decided):
    return {
        "selection": decided.mean(), "tpr": decided[y == 1].mean(), "fpr": decided[y == 0].mean(),
        "error": (decided != y).mean(),
        "cost": (1.0 * ((y == 0) & (decided == 1)) + 5.0 * ((y == 1) & (decided == 0))).mean(),
    }[name]  # fmt: skip


@EITHER
@pytest.mark.parametrize("tree_shap", [False, True])
@pytest.mark.parametrize("name", RATES)
def test_parts_add_up_to_the_gap_of_the_decisions(library, name, tree_shap):
    X, y, groups = draw()
    model = booster(library, X, y)
    found = explain_gap(
        model, X, gc.gap(RATES[name], by="sex"), y, sensitive_features=groups,
        groups=("sex=1", "sex=0"), tree_shap=tree_shap,
    )  # fmt: skip
    decided, sex = model.predict(X), groups["sex"]
    values = [value_of(name, y[sex == g], decided[sex == g]) for g in (1, 0)]
    assert found.gaps[["sex=1", "sex=0"]].to_numpy().ravel() == pytest.approx(values, abs=1e-12)
    assert found.gaps["gap"][0] == pytest.approx(values[0] - values[1], abs=1e-12)
    assert found.parts["part"].sum() == pytest.approx(values[0] - values[1], abs=1e-9)
    assert (found.parts["feature"] == "labels").any() == (name in ("error", "cost"))


@EITHER
def test_contributions_are_shapley_values_of_the_trees(library):
    """Those of TreeSHAP, against the sum over all subsets of six features."""
    X, y, _ = draw(400)
    model = booster(library, X, y, n_estimators=3, max_depth=3)
    trees = trees_of(model)
    rows = X[:12]
    expected = np.zeros((len(rows), 6))
    for size in range(6):
        factor = math.factorial(size) * math.factorial(5 - size) / math.factorial(6)
        for subset in itertools.combinations(range(6), size):
            for j in set(range(6)) - set(subset):
                with_j, without = (
                    sum(expectation(tree, rows, known) for tree in trees)
                    for known in ({*subset, j}, set(subset))
                )
                expected[:, j] += factor * (with_j - without)
    found = explain_gap(
        model, rows, gc.gap(gc.selection_rate(), by="g", min_group_size=1), of="score",
        tree_shap=True, sensitive_features={"g": np.arange(12) // 6}, groups=("g=0", "g=1"),
    )  # fmt: skip
    parts = found.parts.set_index("feature")["part"].reindex([f"x{j}" for j in range(6)])
    np.testing.assert_allclose(
        parts, expected[:6].mean(axis=0) - expected[6:].mean(axis=0), atol=1e-6
    )


def trees_of(model):
    """Nodes as (feature, threshold, left, right) or leaf values, with the rows that reach them."""
    if hasattr(model, "booster_"):

        def read(node):
            if "left_child" not in node:
                return node["leaf_value"], node["leaf_count"]
            children = read(node["left_child"]), read(node["right_child"])
            return (node["split_feature"], node["threshold"], *children), node["internal_count"]

        return [read(t["tree_structure"]) for t in model.booster_.dump_model()["tree_info"]]
    frame = model.get_booster().trees_to_dataframe().set_index("ID")

    def read(name):
        node = frame.loc[name]
        if node["Feature"] == "Leaf":
            return node["Gain"], node["Cover"]
        feature = int(node["Feature"][1:])
        children = read(node["Yes"]), read(node["No"])
        return (
            feature,
            np.nextafter(np.float32(node["Split"]), np.float32(-np.inf)),
            *children,
        ), node["Cover"]

    return [read(f"{t}-0") for t in frame["Tree"].unique()]


def expectation(tree, rows, known):
    """The mean output of a tree if some features are known, by the rows that reach each child."""
    node, _ = tree
    if not isinstance(node, tuple):
        return np.full(len(rows), float(node))
    feature, threshold, left, right = node
    of_left, of_right = expectation(left, rows, known), expectation(right, rows, known)
    if feature in known:
        return np.where(rows[:, feature].astype(np.float32) <= threshold, of_left, of_right)
    return (left[1] * of_left + right[1] * of_right) / (left[1] + right[1])


@pytest.mark.parametrize("of", ["rate", "probability"])
def test_parts_are_integrals_along_the_paths_of_all_pairs(of):
    """By brute force over the pairs of two groups; a step is integrated where it is crossed."""
    X, y, groups = draw(160, seed=3)
    model = LogisticRegression().fit(X, y)
    sex = groups["sex"]
    constraint = gc.gap(gc.selection_rate(), by="sex", min_group_size=1)
    found = explain_gap(
        model, X, constraint, of=of, sensitive_features=groups, groups=("sex=1", "sex=0")
    )
    phi = X * model.coef_
    score = model.decision_function(X)
    h = (score > 0) * 1.0 if of == "rate" else 1.0 / (1.0 + np.exp(-score))
    a, b = np.flatnonzero(sex == 1), np.flatnonzero(sex == 0)
    ratio = (h[a, None] - h[b]) / (score[a, None] - score[b])
    t = (np.arange(200) + 0.5) / 200
    if of == "probability":  # The integral of the derivative along the path, by quadrature.
        path = score[b][None, :, None] + t * (score[a, None, None] - score[b][None, :, None])
        density = np.exp(-path) / (1.0 + np.exp(-path)) ** 2
        np.testing.assert_allclose(density.mean(axis=2), ratio, atol=1e-5)
    expected = np.einsum("ik,ikj->j", ratio, phi[a][:, None] - phi[b]) / ratio.size
    parts = found.parts.set_index("feature")["part"].reindex([f"x{j}" for j in range(6)])
    assert expected.sum() == pytest.approx(found.gaps["gap"][0], abs=1e-12)
    # 64 of all pairings stand for all of them.
    tolerance = 2e-4 if of == "probability" else 0.01
    np.testing.assert_allclose(parts, expected, atol=tolerance)
    assert N_PAIRINGS == 64


@EITHER
@pytest.mark.parametrize("tree_shap", [False, True])
def test_mean_scores_are_split_to_the_last_digits(library, tree_shap):
    X, y, groups = draw()
    model = booster(library, X, y)
    found = explain_gap(
        model, X, gc.gap(gc.tpr(), by="sex"), y, of="score", sensitive_features=groups,
        groups=("sex=1", "sex=0"), tree_shap=tree_shap,
    )  # fmt: skip
    score, sex = raw_scores(model, X), groups["sex"]
    gap = np.subtract(*(score[(y == 1) & (sex == g)].mean() for g in (1, 0)))
    assert found.gaps["gap"][0] == pytest.approx(gap, abs=1e-5)
    assert found.parts["part"].sum() == pytest.approx(found.gaps["gap"][0], abs=1e-12)


@EITHER
def test_a_feature_that_the_model_does_not_use_has_no_part(library):
    X, y, groups = draw()
    X[:, 5] = 0.0
    model = booster(library, X, y)
    X[:, 5] = groups["sex"]
    found = explain_gap(model, X, gc.gap(gc.error_rate(), by="sex"), y, sensitive_features=groups)
    of_feature = found.parts.set_index("feature").loc["x5"]
    assert of_feature[["part", "low", "high"]].eq(0.0).all()


def test_contributions_along_the_path_are_those_of_xgboost_and_of_the_leaves():
    """LightGBM has none of its own. Each leaf moves the score by the values on its path."""
    X, y, groups = draw(500)
    X[::7, 1] = np.nan
    model = booster("lightgbm", X, y, n_estimators=5)
    found = explain_gap(
        model, X, gc.gap(gc.selection_rate(), by="sex"), of="score", sensitive_features=groups,
        groups=("sex=1", "sex=0"),
    )  # fmt: skip

    def walk(node, leaf, gained):
        if "left_child" not in node:
            return gained if node.get("leaf_index", 0) == leaf else None
        for child in (node["left_child"], node["right_child"]):
            value = child.get("internal_value", child.get("leaf_value"))
            step = {node["split_feature"]: value - node["internal_value"]}
            below = walk(child, leaf, [*gained, step])
            if below is not None:
                return below
        return None

    leaves, phi = model.predict(X, pred_leaf=True), np.zeros_like(X)
    for t, tree in enumerate(model.booster_.dump_model()["tree_info"]):
        for i in range(len(X)):
            for step in walk(tree["tree_structure"], leaves[i, t], []):
                ((j, value),) = step.items()
                phi[i, j] += value
    sex = groups["sex"]
    parts = found.parts.set_index("feature")["part"].reindex([f"x{j}" for j in range(6)])
    np.testing.assert_allclose(parts, phi[sex == 1].mean(0) - phi[sex == 0].mean(0), atol=1e-9)


@EITHER
def test_regressors(library):
    """Means of predictions and residuals, and shares above a threshold, with a link or without."""
    X, _, groups = draw()
    y, sex = np.exp(0.3 * X[:, 0] + 0.2 * X[:, 1]), groups["sex"]
    parent = REGRESSORS[library]
    link = {"xgboost": "count:poisson", "lightgbm": "poisson"}[library]
    for options in ({}, {"objective": link}):
        model = parent(n_estimators=20, n_jobs=1, **QUIET[library], **options).fit(X, y)
        predicted = model.predict(X).astype(float)
        for rate, values in (
            (gc.mean_prediction(), predicted),
            (gc.mean_residual(), y - predicted),
            (gc.share_above(1.2), predicted > 1.2),
            (gc.mean_prediction(range=(0.9, 1.5)), np.clip(predicted, 0.9, 1.5)),
        ):
            found = explain_gap(
                model, X, gc.gap(rate, by="sex"), y, sensitive_features=groups,
                groups=("sex=1", "sex=0"),
            )  # fmt: skip
            gap = values[sex == 1].mean() - values[sex == 0].mean()
            assert found.gaps["gap"][0] == pytest.approx(gap, abs=1e-5)
            assert found.parts["part"].sum() == pytest.approx(found.gaps["gap"][0], abs=1e-9)
            labels = found.parts.set_index("feature")["part"].get("labels", 0.0)
            of_targets = y[sex == 1].mean() - y[sex == 0].mean()
            expected = of_targets if "residual" in str(rate) else 0.0
            assert labels == pytest.approx(expected, abs=1e-9)


def test_linear_models_pipelines_weights_and_several_groups():
    X, y, _ = draw(1200)
    region = np.random.default_rng(1).integers(0, 3, 1200)
    weight = np.random.default_rng(2).integers(1, 4, 1200)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    constraint = gc.gap(gc.selection_rate(), by="region")
    given = {"sensitive_features": {"region": region}}
    plain = LogisticRegression().fit(frame, y)
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, y)
    found = explain_gap(plain, frame, constraint, others={"scaled": scaled}, **given)
    rates = pd.Series(plain.predict(frame)).groupby(region).mean()
    assert found.gaps["gap"][0] == pytest.approx(rates.max() - rates.min())
    for _, part in found.parts.groupby("model"):
        assert set(part["feature"]) == set("abcdef")
    weighted = explain_gap(plain, frame, constraint, sample_weight=weight, **given)
    repeated = np.repeat(np.arange(1200), weight)
    again = explain_gap(
        plain, frame.iloc[repeated], constraint, sensitive_features={"region": region[repeated]}
    )
    assert weighted.gaps["gap"][0] == pytest.approx(again.gaps["gap"][0])
    own, other = (f.parts.set_index("feature")["part"] for f in (weighted, again))
    pd.testing.assert_series_equal(own, other.reindex(own.index), atol=0.01)
    number = LinearRegression().fit(frame, X[:, 0])
    found = explain_gap(number, frame, gc.gap(gc.mean_prediction(), by="region"), **given)
    assert found.parts["part"].sum() == pytest.approx(found.gaps["gap"][0], abs=1e-12)


@EITHER
def test_constrained_models_say_what_the_constraint_changed(library):
    X, y, groups = draw(2000)
    X = np.column_stack([X, groups["sex"] + 0.1 * np.random.default_rng(0).normal(size=2000)])
    y = np.where(np.random.default_rng(1).random(2000) < 0.2 * groups["sex"], 1, y)
    constraint = gc.gap(gc.selection_rate(), by="sex") <= 0.02
    model = CLASSIFIERS[library](
        constraints=constraint, n_estimators=30, n_jobs=1, **QUIET[library]
    ).fit(X, y, sensitive_features=groups)
    plain = booster(library, X, y, n_estimators=30)
    found = explain_gap(model, X, constraint, others={"plain": plain}, sensitive_features=groups,
                        groups=("sex=1", "sex=0"))  # fmt: skip
    gaps = found.gaps.set_index("model")["gap"]
    assert abs(gaps.iloc[0]) < gaps["plain"] / 2
    totals = found.parts.groupby("model", sort=False)["part"].sum()
    np.testing.assert_allclose(totals, gaps.reindex(totals.index), atol=1e-9)
    text = str(found)
    assert text.startswith("selection_rate: sex=1 less sex=0\n")
    assert "(gap)" in text
    assert "plain" in text


def test_what_cannot_be_split_is_refused():
    X, y, groups = draw(300)
    model = LogisticRegression().fit(X, y)
    given = {"sensitive_features": groups}
    with pytest.raises(ValueError, match=r"y is None, and gap\(tpr.* is about labels: give y="):
        explain_gap(model, X, gc.gap(gc.tpr(), by="sex"), **given)
    with pytest.raises(TypeError, match=r"gap\(precision\(\), by='sex'\) compares 2 rates"):
        explain_gap(model, X, gc.gap(gc.precision(), by="sex"), y, **given)
    with pytest.raises(ValueError, match="is about labels: give y="):
        explain_gap(model, X, gc.gap(gc.tpr(), by="sex"), of="score", **given)
    others = {"LogisticRegression": model}
    with pytest.raises(ValueError, match="others has a model called 'LogisticRegression'"):
        explain_gap(model, X, gc.gap(gc.fpr(), by="sex"), y, others=others, **given)
    for rate in (gc.auc(), gc.log_loss()):
        with pytest.raises(ValueError, match="is no mean of decisions or predictions"):
            explain_gap(model, X, gc.gap(rate, by="sex"), y, **given)
    with pytest.raises(TypeError, match="must compare groups"):
        explain_gap(model, X, gc.fpr() <= 0.1, y, **given)
    with pytest.raises(ValueError, match=r"groups has 'sex=2', which is not among"):
        explain_gap(model, X, gc.gap(gc.fpr(), by="sex"), y, groups=("sex=2", "sex=1"), **given)
    with pytest.raises(ValueError, match="of must be one of"):
        explain_gap(model, X, gc.gap(gc.fpr(), by="sex"), y, of="margin", **given)
    three = LogisticRegression().fit(X, y + (X[:, 0] > 1))
    with pytest.raises(ValueError, match="has 3 classes, and a gap is split of two"):
        explain_gap(three, X, gc.gap(gc.class_error(1), by="sex"), y, **given)

    class Odd:
        classes_ = np.arange(2)
        coef_, intercept_ = model.coef_, model.intercept_

        def predict(self, X):
            return (np.arange(len(X)) % 2).astype(int)

    with pytest.raises(ValueError, match="otherwise than by a threshold of its raw scores"):
        explain_gap(Odd(), X, gc.gap(gc.fpr(), by="sex"), y, **given)

    class Bare:
        classes_ = np.arange(2)

        def predict(self, X):
            return np.zeros(len(X), int)

    with pytest.raises(TypeError, match="Bare has no contributions of features: give a booster"):
        explain_gap(Bare(), X, gc.gap(gc.fpr(), by="sex"), y, **given)


@pytest.mark.parametrize(
    "options",
    [{"linear_tree": True}, {"objective": "multiclass", "num_class": 2}],
    ids=["linear", "two scores"],
)
def test_contributions_that_do_not_add_up_are_refused(options):
    """Leaves that are functions, and two scores for a row."""
    X, y, groups = draw(400)
    model = booster("lightgbm", X, y, **options)
    with pytest.raises(ValueError, match=r"no scores that are sums of constant leaves"):
        explain_gap(model, X, gc.gap(gc.tpr(), by="sex"), y, sensitive_features=groups)


@EITHER
def test_rounds_after_the_best_one_do_not_count(library):
    X, y, groups = draw(600)
    options = {"n_estimators": 60, "learning_rate": 0.5, "n_jobs": 1, **QUIET[library]}
    if library == "xgboost":
        model = xgb.XGBClassifier(early_stopping_rounds=3, **options)
        model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], verbose=False)
    else:
        model = lgb.LGBMClassifier(**options)
        stopping = lgb.early_stopping(3, verbose=False)
        model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], callbacks=[stopping])
    found = explain_gap(
        model, X, gc.gap(gc.tpr(), by="sex"), y, of="score", sensitive_features=groups,
        groups=("sex=1", "sex=0"),
    )  # fmt: skip
    score, sex = raw_scores(model, X), groups["sex"]
    gap = np.subtract(*(score[(y == 1) & (sex == g)].mean() for g in (1, 0)))
    assert found.gaps["gap"][0] == pytest.approx(gap, abs=1e-5)


def test_groups_of_few_rows_have_no_intervals():
    X, y, _ = draw(300)
    few = {"g": np.r_[np.zeros(280, int), np.ones(20, int)]}
    model = LogisticRegression().fit(X, y)
    found = explain_gap(model, X, gc.gap(gc.selection_rate(), by="g"), sensitive_features=few)
    assert found.parts["part"].notna().all()
    assert found.parts[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    "repetitions", [30, pytest.param(400, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_intervals_cover_the_parts_of_the_population(repetitions):
    """Of a rate of decisions under a fixed model; the parts of many rows stand for the truth."""
    rng = np.random.default_rng(0)
    X, y, _ = draw(3000)
    model = LogisticRegression().fit(X, y)
    constraint = gc.gap(gc.tpr(), by="sex")

    def split(n, seed):
        X, y, groups = draw(n, seed)
        found = explain_gap(
            model, X, constraint, y, sensitive_features=groups, groups=("sex=1", "sex=0")
        )
        return found.parts.set_index("feature").reindex([f"x{j}" for j in range(3)])

    is_long = repetitions > 100
    truth = split(400_000 if is_long else 100_000, 99)["part"]
    inside = np.array([
        (found["low"] <= truth) & (truth <= found["high"])
        for found in (split(4000, int(rng.integers(1 << 30))) for _ in range(repetitions))
    ])  # fmt: skip
    assert inside.mean(axis=0).min() >= (0.92 if is_long else 0.85)
    assert inside.mean() >= (0.93 if is_long else 0.88)


def test_the_figure_has_a_bar_for_each_model_and_feature():
    pytest.importorskip("matplotlib").use("Agg")
    X, y, groups = draw(400)
    model, other = LogisticRegression().fit(X, y), LogisticRegression(C=0.01).fit(X, y)
    found = explain_gap(model, X, gc.gap(gc.selection_rate(), by="sex"), others={"$C$": other},
                        sensitive_features=groups)  # fmt: skip
    display = found.plot(most=3)
    assert len(display.ax_.patches) == 2 * 4  # Three features and the others, of two models.
    assert [label.get_text() for label in display.ax_.get_yticklabels()][-1] == "3 others"
    widths = np.array([bar.get_width() for bar in display.ax_.patches]).reshape(2, 4).sum(axis=1)
    np.testing.assert_allclose(widths, found.gaps["gap"], atol=1e-12)


def test_an_audit_has_a_section(tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    X, y, groups = draw(400)
    model, constraint = LogisticRegression().fit(X, y), gc.gap(gc.tpr(), by="sex") <= 0.1
    found = explain_gap(model, X, constraint, y, sensitive_features=groups)
    report = gc.audit(model, X, y, constraint, sensitive_features=groups, explanation=found)
    pd.testing.assert_frame_equal(report.gap_parts, found.parts)
    again = gc.Audit.from_json(report.to_json())
    pd.testing.assert_frame_equal(again.gap_parts, found.parts)
    page = report.to_html()
    assert "<h2>Parts of a gap</h2>" in page
    assert found.comparison in page
    assert all(f'class="left">{name}</th>' in page for name in found.parts["feature"])
    with pytest.raises(TypeError, match="explanation must be what explain_gap returned"):
        gc.audit(model, X, y, constraint, sensitive_features=groups, explanation=found.parts)
