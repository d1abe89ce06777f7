"""Metrics and early stopping under constraints that never bind are the parents'."""

from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
from parent_pairs import HELD, WEIGHT, X, assert_alike, assert_same_results, evaluated, fitted_pair
from vacuous_pairs import compare, lgb_pair, weights, xgb_pair

import gbm_constrained as gc


@pytest.mark.parametrize("eval_metric", [None, "auc", "None"])
@pytest.mark.parametrize("metric", [None, "", [], [None], [""], "None"])
def test_metrics_without_a_name_are_that_of_the_objective(metric, eval_metric):
    given = {**evaluated("lightgbm"), "eval_metric": eval_metric}
    parent, own = fitted_pair("lightgbm", {"metric": metric}, **given)
    assert_same_results(own, parent)


def test_multi_error_of_several_ranks():
    """LightGBM's own count of rows whose class is not among the first k."""
    several = np.digitize(X[:, 0], [-0.5, 0.5])
    options = {"multi_error_top_k": 2, "metric": ["multi_logloss", "multi_error"], "num_class": 3}
    arguments = {"eval_set": [(HELD, several[:100])]}
    parent, own = fitted_pair("lightgbm", options, y=several, **arguments)
    assert_alike("lightgbm", own, parent)
    assert_same_results(own, parent)
    assert "multi_error@2" in own.evals_result_["valid_0"]


def test_auc_mu_with_costs_of_errors():
    """After a metric of probabilities, where it is ours, as LightGBM's own."""
    several = np.digitize(X[:, 0], [-0.5, 0.5])
    costs = [0, 1, 3, 2, 0, 1, 1, 1, 0]
    options = {"metric": ["multi_logloss", "auc_mu"], "num_class": 3, "auc_mu_weights": costs}
    arguments = {"eval_set": [(HELD, several[:100])], "eval_sample_weight": [WEIGHT[:100]]}
    assert_same_results(*fitted_pair("lightgbm", options, y=several, **arguments))


@pytest.mark.parametrize("only", ["average_precision", "auc"])
def test_ranking_metrics_of_one_class(only):
    """Rows of one class cannot be ranked: LightGBM says one."""
    for label in (0, 1):
        arguments = {"eval_set": [(HELD, np.full(100, label))]}
        options = {"metric": ["binary_logloss", only]}
        assert_same_results(*fitted_pair("lightgbm", options, **arguments))


def test_early_stopping_looks_at_the_metric_asked_for_first():
    options = {
        "n_estimators": 60, "learning_rate": 0.9, "first_metric_only": True,
        "early_stopping_round": 1,
    }  # fmt: skip
    asked = ["binary_logloss", "average_precision"]
    parent, own = fitted_pair("lightgbm", options, eval_metric=asked, **evaluated("lightgbm"))
    assert own.best_iteration_ == parent.best_iteration_
    assert_same_results(own, parent)


@pytest.mark.parametrize("metric", ["auc", ["auc"], ["average_precision", "auc"], "binary_error"])
def test_a_metric_asked_for_twice_stands_where_the_parent_has_it(metric):
    """That of the parameter comes after those of eval_metric."""
    asked = ["auc", "binary_logloss"]
    parent, own = fitted_pair(
        "lightgbm", {"metric": metric}, eval_metric=asked, **evaluated("lightgbm")
    )
    for of_parent, of_own in zip(
        parent.evals_result_.values(), own.evals_result_.values(), strict=True
    ):
        assert list(of_own) == list(of_parent)
    assert_same_results(own, parent)


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
    """XGBoost takes one function, and fold boosters evaluate no metric."""
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


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        *(("several", metric) for metric in (None, "error", ["multi_logloss", "auc_mu"])),
        *(("binary", metric) for metric in (
            None, "auc", "error", ["logloss", "error"], ["binary_logloss", "auc"],
            "average_precision", ["binary_logloss", "average_precision"], "l2",
            ["cross_entropy", "kullback_leibler"],
            ["fair", "huber", "quantile", "mape", "poisson", "tweedie", "rmse"],
        )),
    ],
)  # fmt: skip
def test_lightgbm_metrics_are_the_parents(kind, metric, request):
    """Names, order and values; LightGBM itself would evaluate raw scores here."""
    X, y = request.getfixturevalue(kind)
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
    assert {"ndcg", "gamma"} <= set(names)
    for name in names:
        with pytest.raises(ValueError, match=f"metric '{name}' cannot be evaluated under"):
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


@pytest.mark.parametrize(
    ("solver", "measure_on"), [("abpp", "train"), ("abpp", "crossfit"), ("threshold", "crossfit")]
)
def test_multi_softmax_hands_classes_to_a_function(solver, measure_on, several):
    """The booster itself has softmax scores; the threshold alone trains by XGBoost's objective."""
    X, y = several
    seen = []

    def missed(y_true, decided):
        seen.append((decided.dtype, decided.shape, decided.tolist()))
        return float(np.mean(y_true != decided))

    options = {"objective": "multi:softmax", "eval_metric": ["merror", missed]}
    plain, constrained = xgb_pair(measure_on=measure_on, **options)
    constrained.set_params(solver=solver, constraints=[gc.error_rate() <= 1.0])
    for model in (plain, constrained):
        model.fit(X[300:], y[300:], eval_set=[(X[:300], y[:300])], verbose=False)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert constrained.evals_result() == plain.evals_result()
