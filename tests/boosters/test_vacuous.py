"""A constraint that never binds leaves the library's own model: same trees, same predictions.

The flagship test: it runs the whole machinery (callable objective, cells, multipliers, native
post-processing) and finds most mistakes of integration.
"""

import inspect
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    class_error,
    each,
    error_rate,
    f1,
    fnr,
    fpr,
    gap,
    log_loss,
    precision,
    ratio,
    recall,
    selection_rate,
)
from gbm_constrained.solvers import AutoSolver

ROUNDS = 20
NEVER_BINDS = [error_rate() <= 1.0, class_error(0) <= 1.0, log_loss() <= 50.0]


def weights(n):
    return np.random.default_rng(3).exponential(size=n).round(3)


def variants(X, y):
    """Kinds of input, as (name, X, fit arguments)."""
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    with_categories = frame.assign(
        kind=pd.Categorical(np.array(["a", "b", "c"])[(np.abs(X[:, 3]) * 3).astype(int) % 3])
    )
    holes = X.copy()
    holes[np.random.default_rng(4).random(X.shape) < 0.2] = np.nan
    dense = np.where(np.abs(X) < 0.7, 0.0, X)
    return {
        "numpy": (X, {}),
        "frame": (frame, {}),
        "categories": (with_categories, {}),
        "missing": (holes, {}),
        "sparse": (sparse.csr_matrix(dense), {}),
        "weights": (X, {"sample_weight": weights(y.size)}),
    }


XGB_OPTIONS = {
    "gbtree": {},
    "subsample": {"subsample": 0.6, "random_state": 1},
    "gradient_based": {"subsample": 0.9, "colsample_bytree": 0.5, "colsample_bynode": 0.7},
    "monotone": {"monotone_constraints": (1, 0, -1, 0, 0, 0)},
    "lossguide": {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
    "regularised": {"reg_lambda": 3.0, "reg_alpha": 0.2, "min_child_weight": 5.0, "gamma": 0.1},
    "exact": {"tree_method": "exact", "enable_categorical": False},
    # Trees of a round share gradients: splits of no gain would be ties that rounding decides.
    "forest_rounds": {"num_parallel_tree": 3, "subsample": 0.7, "random_state": 2, "gamma": 1e-3},
}
LGB_OPTIONS = {
    "gbdt": {},
    "goss": {"data_sample_strategy": "goss", "random_state": 1},
    "bagging": {"subsample": 0.6, "subsample_freq": 1, "random_state": 1},
    "columns": {"colsample_bytree": 0.5, "feature_fraction_bynode": 0.7, "random_state": 1},
    "extra_trees": {"extra_trees": True, "random_state": 1},
    "monotone": {"monotone_constraints": [1, 0, -1, 0, 0, 0]},
    "linear_tree": {"linear_tree": True},
    "no_average": {"boost_from_average": False},
    "quantized": {"use_quantized_grad": True},
}


def compare(plain, constrained, X, y, fit_arguments, tolerance):
    plain.fit(X, y, **fit_arguments)
    constrained.fit(X, y, **fit_arguments)
    assert isinstance(constrained, type(plain).__mro__[0])
    np.testing.assert_allclose(
        constrained.predict_proba(X), plain.predict_proba(X), rtol=0, atol=tolerance
    )
    np.testing.assert_array_equal(constrained.predict(X), plain.predict(X))
    assert not constrained.multipliers_.any()


def xgb_structure(model):
    trees = model.get_booster().trees_to_dataframe()
    return trees[["Tree", "Node", "Feature", "Yes", "No", "Missing"]]


def xgb_pair(measure_on="train", **options):
    options = {"n_estimators": ROUNDS, "n_jobs": 1, "enable_categorical": True, **options}
    return xgb.XGBClassifier(**options), ConstrainedXGBClassifier(
        constraints=NEVER_BINDS, measure_on=measure_on, **options
    )


def lgb_pair(measure_on="train", **options):
    options = {"n_estimators": ROUNDS, "n_jobs": 1, "verbose": -1, **options}
    return lgb.LGBMClassifier(**options), ConstrainedLGBMClassifier(
        constraints=NEVER_BINDS, measure_on=measure_on, **options
    )


@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize("name", XGB_OPTIONS)
def test_xgboost_options(name, kind, request):
    X, y = request.getfixturevalue(kind)
    plain, constrained = xgb_pair(**XGB_OPTIONS[name])
    compare(plain, constrained, X, y, {}, 2e-7)
    pd.testing.assert_frame_equal(xgb_structure(constrained), xgb_structure(plain))


@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize("name", LGB_OPTIONS)
def test_lightgbm_options(name, kind, request):
    X, y = request.getfixturevalue(kind)
    plain, constrained = lgb_pair(**LGB_OPTIONS[name])
    compare(plain, constrained, X, y, {}, 1e-12)


@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize("name", ["numpy", "frame", "categories", "missing", "sparse", "weights"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_inputs(library, name, kind, request):
    X, y = request.getfixturevalue(kind)
    X, fit_arguments = variants(X, y)[name]
    plain, constrained = xgb_pair() if library == "xgboost" else lgb_pair()
    compare(plain, constrained, X, y, fit_arguments, 2e-7 if library == "xgboost" else 1e-12)


@pytest.mark.parametrize("measure_on", ["holdout", "crossfit"])
@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize("name", ["numpy", "categories", "missing", "sparse", "weights"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_inputs_where_rates_are_measured_on_unseen_rows(library, name, kind, measure_on, request):
    """Boosters that look at other rows leave no trace, and nothing is calibrated."""
    X, y = request.getfixturevalue(kind)
    X, fit_arguments = variants(X, y)[name]
    pair = xgb_pair if library == "xgboost" else lgb_pair
    options = {"n_estimators": 8, "measure_on": measure_on}
    plain, constrained = pair(**options)
    compare(plain, constrained, X, y, fit_arguments, 2e-7 if library == "xgboost" else 1e-12)
    assert not constrained.shift_.any()


@pytest.mark.parametrize("measure_on", ["holdout", "crossfit"])
@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("xgboost", name) for name in ("subsample", "gradient_based", "exact", "lossguide")),
        *(("lightgbm", name) for name in ("goss", "bagging", "columns", "linear_tree")),
    ],
)
def test_options_where_rates_are_measured_on_unseen_rows(library, name, kind, measure_on, request):
    """Random subsamples are those of the plain fit: no scout draws from its stream."""
    X, y = request.getfixturevalue(kind)
    options = {"n_estimators": 8, "measure_on": measure_on}
    if library == "xgboost":
        compare(*xgb_pair(**options, **XGB_OPTIONS[name]), X, y, {}, 2e-7)
    else:
        compare(*lgb_pair(**options, **LGB_OPTIONS[name]), X, y, {}, 1e-12)


@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
@pytest.mark.parametrize("rate", [fpr, selection_rate])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_rate_of_one_does_not_exceed_one_by_rounding(library, rate, measure_on, binary):
    """Where the constant model says yes to all rows, their weights may sum to more than all."""
    X, y = binary[0], 1 - binary[1]
    pair, tolerance = (xgb_pair, 2e-7) if library == "xgboost" else (lgb_pair, 0.0)
    options = {"measure_on": measure_on, "n_estimators": 8}
    # Not all weights do; in double precision, those of is_unbalance are among them.
    options |= {} if library == "xgboost" else {"is_unbalance": True}
    plain, constrained = pair(**options)
    constrained.set_params(constraints=[rate() <= 1.0])
    random = np.random.default_rng(1).random(y.size) + 0.1
    more = {"sample_weight": random} if library == "xgboost" else {}
    compare(plain, constrained, X, y, more, tolerance)
    assert not constrained.shift_.any()
    assert not constrained.history_.filter(like="multiplier").to_numpy().any()


@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
@pytest.mark.parametrize("source", [np.random.RandomState, np.random.default_rng])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_source_of_randomness_is_left_to_the_library(library, source, measure_on, binary):
    """Splits and boosters besides draw nothing from it."""
    X, y = binary
    options = {"n_estimators": 8, "subsample": 0.6}
    pair, tolerance = (xgb_pair, 2e-7) if library == "xgboost" else (lgb_pair, 1e-12)
    if library == "lightgbm":
        options["subsample_freq"] = 1
    plain, constrained = pair(measure_on=measure_on, **options)
    plain.set_params(random_state=source(3))
    constrained.set_params(random_state=source(3))
    compare(plain, constrained, X, y, {}, tolerance)
    assert plain.random_state.random() == constrained.random_state.random()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_scores_to_start_from_where_rates_are_measured_on_unseen_rows(library, binary):
    X, y = binary
    start = np.linspace(-1, 1, y.size)
    options = {"n_estimators": 8, "measure_on": "crossfit"}
    if library == "xgboost":
        compare(*xgb_pair(**options), X, y, {"base_margin": start}, 2e-7)
    else:
        compare(*lgb_pair(**options), X, y, {"init_score": start}, 1e-12)


def test_lightgbm_trees_are_identical_in_the_saved_text(binary):
    """Not only predictions: leaves, internal values, counts and the objective line."""
    X, y = binary
    plain, constrained = lgb_pair()
    text, native = (m.fit(X, y).booster_.model_to_string() for m in (constrained, plain))
    differences = [
        pair
        for pair in zip(text.splitlines(), native.splitlines(), strict=True)
        if pair[0] != pair[1] and not pair[1].startswith(("internal_value", "[metric"))
    ]
    assert differences == []


@pytest.mark.parametrize(
    "options", [{"class_weight": "balanced"}, {"class_weight": {0: 2.0, 1: 0.5}}]
)
def test_lightgbm_class_weight(options, binary):
    X, y = binary
    compare(*lgb_pair(**options), X, y, {"sample_weight": weights(y.size)}, 1e-12)


@pytest.mark.parametrize("options", [{"is_unbalance": True}, {"scale_pos_weight": 3.0}])
def test_lightgbm_unbalance(options, binary):
    X, y = binary
    compare(*lgb_pair(**options), X, y, {}, 1e-12)


def test_xgboost_scale_pos_weight(binary):
    X, y = binary
    compare(*xgb_pair(scale_pos_weight=3.0), X, y, {"sample_weight": weights(y.size)}, 2e-7)


def test_user_starting_scores(binary):
    """base_margin and init_score replace the intercept, as in the parents."""
    X, y = binary
    start = np.linspace(-1, 1, y.size)
    compare(*xgb_pair(), X, y, {"base_margin": start}, 2e-7)
    compare(*lgb_pair(), X, y, {"init_score": start}, 1e-12)


def test_continued_training(binary):
    X, y = binary
    first, second = xgb_pair()
    compare(first, second, X, y, {}, 2e-7)
    compare(*xgb_pair(), X, y, {"xgb_model": first.get_booster()}, 2e-7)
    start = lgb_pair()[0].fit(X, y).booster_
    compare(*lgb_pair(), X, y, {"init_model": start}, 1e-12)


def test_xgboost_metrics_and_early_stopping_are_the_parents(binary):
    X, y = binary
    options = {
        "n_estimators": 200,
        "early_stopping_rounds": 5,
        "eval_metric": ["auc", "logloss"],
        "learning_rate": 0.5,
    }
    fit_arguments = {"eval_set": [(X[:300], y[:300])], "verbose": False}
    plain, constrained = xgb_pair(**options)
    compare(plain, constrained, X[300:], y[300:], fit_arguments, 2e-7)
    assert constrained.best_iteration == plain.best_iteration < 150
    for metric, values in plain.evals_result()["validation_0"].items():
        np.testing.assert_allclose(
            constrained.evals_result()["validation_0"][metric], values, rtol=1e-5
        )


@pytest.mark.parametrize("kind", ["binary", "several"])
def test_xgboost_callable_metric_sees_probabilities(kind, request):
    X, y = request.getfixturevalue(kind)
    seen = []

    def brier(y_true, p):
        seen.append((p.min(), p.max()))
        hit = p if p.ndim == 1 else p[np.arange(y_true.size), y_true.astype(int)]
        return float(np.mean((1 - hit) ** 2))

    plain, constrained = xgb_pair(eval_metric=brier)
    compare(plain, constrained, X, y, {"eval_set": [(X, y)], "verbose": False}, 2e-7)
    assert min(low for low, _ in seen) >= 0
    assert max(high for _, high in seen) <= 1
    np.testing.assert_allclose(
        constrained.evals_result()["validation_0"]["brier"],
        plain.evals_result()["validation_0"]["brier"],
        rtol=0,
        atol=1.1e-6,  # XGBoost rounds them to six decimals
    )
    assert constrained.eval_metric is brier


@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
def test_xgboost_names_of_metrics_beside_a_function(measure_on, binary):
    """Also where boosters that nothing evaluates measure the rules; of functions, one only."""
    X, y = binary

    def brier(y_true, p):
        return float(np.mean((y_true - p) ** 2))

    plain, constrained = xgb_pair(eval_metric=["auc", brier], measure_on=measure_on)
    compare(plain, constrained, X, y, {"eval_set": [(X[:300], y[:300])], "verbose": False}, 2e-7)
    results = [model.evals_result()["validation_0"] for model in (plain, constrained)]
    assert list(results[0]) == list(results[1]) == ["auc", "brier"]
    for model in (plain, constrained):
        model.set_params(eval_metric=[brier, "auc", brier])
        with pytest.raises(NotImplementedError, match="Using multiple custom metrics is not yet"):
            model.fit(X, y)


@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize(
    "metric",
    [
        None,
        "auc",
        "error",
        ["logloss", "error"],
        ["binary_logloss", "auc"],
        "average_precision",
        ["binary_logloss", "average_precision"],
        "l2",
        "cross_entropy",
        ["multi_logloss", "auc_mu"],
    ],
)
def test_lightgbm_metrics_are_the_parents(kind, metric, request):
    """Names, order and values; LightGBM itself would evaluate raw scores here."""
    of_several = ["multi_logloss", "auc_mu"]
    if kind == "several" and metric not in (None, "error", ["logloss", "error"], of_several):
        pytest.skip("a metric of binary classifiers")
    if kind == "binary" and metric == of_several:
        pytest.skip("a metric of several classes")
    X, y = request.getfixturevalue(kind)
    metric = list(metric) if isinstance(metric, list) else metric
    holdout = weights(300)
    fit_arguments = {"eval_set": [(X[:300], y[:300])], "eval_sample_weight": [holdout]}
    plain, constrained = lgb_pair()
    results = []
    for model in (plain, constrained):
        asked = list(metric) if isinstance(metric, list) else metric
        model.fit(X[300:], y[300:], eval_metric=asked, **fit_arguments)
        results.append(model.evals_result_["valid_0"])
    assert list(results[1]) == list(results[0])
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, rtol=1e-6, err_msg=name)


def test_lightgbm_metrics_without_a_counterpart_are_refused(binary):
    """Those that docs/drop_in.md names."""
    page = (Path(__file__).parents[2] / "docs" / "drop_in.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| LightGBM's metrics "))
    names = row.split("|")[1].split("`")[1::2]
    assert {"quantile", "cross_entropy_lambda"} <= set(names)
    for name in names:
        with pytest.raises(ValueError, match=f"metric '{name}' cannot be evaluated on 2 classes"):
            lgb_pair()[1].fit(*binary, eval_metric=name)


@pytest.mark.parametrize("kind", ["binary", "several"])
def test_lightgbm_early_stopping_on_default_metric(kind, request):
    X, y = request.getfixturevalue(kind)
    plain, constrained = lgb_pair(n_estimators=300, learning_rate=0.3)
    fit_arguments = {
        "eval_set": [(X[:300], y[:300])],
        "callbacks": [lgb.early_stopping(5, verbose=False)],
    }
    compare(plain, constrained, X[300:], y[300:], fit_arguments, 1e-12)
    assert constrained.best_iteration_ == plain.best_iteration_ < 250
    assert constrained.best_score_["valid_0"] == pytest.approx(plain.best_score_["valid_0"])


def test_no_constraints_is_the_parents_own_fit(binary):
    X, y = binary
    for empty in ([], None, ()):
        plain = xgb.XGBClassifier(n_estimators=ROUNDS).fit(X, y)
        own = ConstrainedXGBClassifier(constraints=empty, n_estimators=ROUNDS).fit(X, y)
        assert own.get_booster().get_dump() == plain.get_booster().get_dump()
        plain = lgb.LGBMClassifier(n_estimators=ROUNDS, verbose=-1).fit(X, y)
        own = ConstrainedLGBMClassifier(constraints=empty, n_estimators=ROUNDS, verbose=-1).fit(
            X, y
        )
        assert own.booster_.model_to_string() == plain.booster_.model_to_string()
        assert not hasattr(own, "constraint_report_")


@pytest.mark.parametrize(
    ("own", "parent"),
    [
        (ConstrainedXGBClassifier, xgb.XGBClassifier),
        (ConstrainedLGBMClassifier, lgb.LGBMClassifier),
    ],
)
def test_signatures_hold_everything_of_the_parent(own, parent):
    """A new library version cannot add a parameter unnoticed."""
    for method in ("fit", "__init__"):
        mine = inspect.signature(getattr(own, method)).parameters
        theirs = inspect.signature(getattr(parent, method)).parameters
        assert [name for name in theirs if name not in mine] == []
        for name, parameter in theirs.items():
            assert mine[name].default == parameter.default, name
    assert set(parent().get_params()) <= set(own().get_params())


# --- beside rules that bind ---------------------------------------------------------------------

EVEN = np.arange(1600) % 2 == 0
MORE = {
    "in cells that there are": lambda n: [selection_rate(1) <= 1.0, precision(1) >= 0.0],
    "in cells of their own": lambda n: [
        error_rate(on=EVEN[:n]) <= 1.0,
        gap(error_rate(), by="h") <= 1.0,
        ratio(class_error(1), by="h") >= 0.0,
    ],
}


def beside(library, X, y, rules, more=(), **options):
    """Fit rules with others before and after them."""
    sources = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    model = sources[library](
        constraints=[*more[:1], *rules, *more[1:]], n_estimators=8, n_jobs=1, learning_rate=0.3,
        **quiet, **options,
    )  # fmt: skip
    given = {"g": np.arange(y.size) // 3 % 3, "h": np.arange(y.size) // 5 % 2}
    return model.fit(X, y, sample_weight=weights(y.size), sensitive_features=given)


@pytest.mark.parametrize("kind", ["binary", "several"])
@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_rules_that_are_always_met_change_no_bit_of_those_that_bind(
    library, measure_on, kind, request
):
    X, y = request.getfixturevalue(kind)
    rules = [
        class_error(1) <= 0.1,
        gap(selection_rate(1), by="g") <= 0.02,
        gap(error_rate(), by="g") <= 0.05,
    ]
    alone = beside(library, X, y, rules, measure_on=measure_on)
    # Multipliers, or a threshold alone where these cost more.
    assert alone.history_.filter(like="multiplier").to_numpy().any() or alone.shift_.any()
    for make_more in MORE.values():
        more = make_more(y.size)
        model = beside(library, X, y, rules, more, measure_on=measure_on)
        np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
        report = model.constraint_report_
        assert report["constraint"].tolist() == list(map(str, model.constraints))
        assert report["train"].notna().all()
        always = [rule.is_always_met for rule in model.constraints]
        assert report.loc[always, "train_satisfied"].all()
        assert not report.loc[always, "multiplier"].any()
        pd.testing.assert_series_equal(model.multipliers_[alone.multipliers_.index],
                                       alone.multipliers_)  # fmt: skip
        assert len(model.multipliers_) > len(alone.multipliers_)


@pytest.mark.parametrize(
    "options",
    [
        {"iterate": "best"},
        {"iterate": "randomized"},
        {"guarantee": "expected", "calibration_fraction": 0.4},
        {"guarantee": "high_probability", "calibration_fraction": 0.4},
    ],
)
def test_rules_that_are_always_met_change_no_choice(options, binary):
    X, y = binary
    alone = beside("lightgbm", X, y, [fpr() <= 0.2], **options)
    for make_more in MORE.values():
        model = beside("lightgbm", X, y, [fpr() <= 0.2], make_more(y.size), **options)
        np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
        own = model.constraint_report_[model.constraint_report_["constraint"] == "fpr <= 0.2"]
        pd.testing.assert_frame_equal(
            own.reset_index(drop=True), alone.constraint_report_, check_dtype=False
        )


def test_multipliers_of_rules_that_are_always_met_are_warm_starts_of_nothing(binary):
    X, y = binary
    more = MORE["in cells of their own"](y.size)
    first = beside("lightgbm", X, y, [fpr() <= 0.02], more, measure_on="train")
    start = first.multipliers_.to_numpy() + 0.1
    options = {"measure_on": "train", "solver": AutoSolver(initial_multipliers=start)}
    model = beside("lightgbm", X, y, [fpr() <= 0.02], more, **options)
    own = {
        "measure_on": "train",
        "solver": AutoSolver(initial_multipliers=start[first.multipliers_.index == "fpr <= 0.02"]),
    }
    alone = beside("lightgbm", X, y, [fpr() <= 0.02], **own)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


def test_which_rules_are_always_met():
    always = [
        fpr() <= 1.0, recall() >= 0.0, precision() >= 0.0, precision() <= 1.0, f1() <= 1.0,
        gap(fpr(), by="g") <= 1.0, ratio(fpr(), by="g") >= 0.0, each(fpr(), by="g") <= 1.0,
        fpr() + fnr() <= 2.0, fpr() - fnr() >= -1.0,
    ]  # fmt: skip
    may_fail = [
        fpr() <= 0.999, fpr() >= 1.0, recall() <= 0.0, precision() >= 1.0, fpr() - fnr() <= 0.0,
        ratio(fpr(), by="g") >= 1.0, gap(fpr(), by="g") <= 0.0, log_loss() <= 50.0,
    ]  # fmt: skip
    assert all(rule.is_always_met for rule in always)
    assert not any(rule.is_always_met for rule in may_fail)
