"""Scores of largest AUC under pair rules: their gradients, levels, reports, and the estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from pair_problems import PairProblem
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import check_estimator

import gbm_constrained as gc
from gbm_constrained._findings import collect_warnings
from gbm_constrained.exceptions import InfeasibleConstraintsWarning
from gbm_constrained.linear_model import ConstrainedAUCScorer
from gbm_constrained.linear_model.auc_scorer import LinearScore, SigmoidNetwork
from gbm_constrained.solvers.level_set import SquareSurrogate, density_ratios, find_optimum

QUICK = {"n_steps": 200, "theta": 1.0}


@pytest.fixture(scope="module")
def rows():
    """Rows whose first feature tells labels and the second, partly, groups."""
    rng = np.random.default_rng(0)
    n = 3000
    X = rng.normal(size=(n, 4))
    sex = np.where(X[:, 1] + 0.7 * rng.normal(size=n) > 0.2, "F", "M")
    y = (1.2 * X[:, 0] + 0.9 * X[:, 1] + rng.logistic(size=n) > 0.5).astype(int)
    weight = rng.uniform(0.5, 2.0, n)
    return X, y, sex, weight


def pair_auc(scores, first, second, weight):
    """Compute AUC(first, second) of two masks without overlap."""
    chosen = first | second
    return roc_auc_score(first[chosen], scores[chosen], sample_weight=weight[chosen])


def values_of(scores, y, sex, weight):
    """Compute the three metrics of the paper's experiments by scikit-learn's AUC."""
    F, positive = sex == "F", y == 1
    return {
        "mean_rank": abs(pair_auc(scores, F, ~F, weight) - 0.5),
        "cross_auc": abs(
            pair_auc(scores, positive & F, ~positive & ~F, weight)
            - pair_auc(scores, positive & ~F, ~positive & F, weight)
        ),
        "auc": abs(
            pair_auc(scores, positive & F, ~positive & F, weight)
            - pair_auc(scores, positive & ~F, ~positive & ~F, weight)
        ),
    }


@pytest.mark.parametrize("rate", [gc.mean_rank, gc.cross_auc])
def test_the_rule_is_met_where_the_unconstrained_score_violates_it(rows, rate):
    X, y, sex, weight = rows
    free = ConstrainedAUCScorer(**QUICK).fit(X, y, weight)
    rule = gc.gap(rate(), by="sex") <= 0.1
    fair = ConstrainedAUCScorer(rule, slack=0.1, **QUICK)
    fair.fit(X, y, weight, sensitive_features={"sex": sex})
    name = rate.__name__
    before = values_of(free.decision_function(X), y, sex, weight)[name]
    after = values_of(fair.decision_function(X), y, sex, weight)[name]
    assert before > 0.2
    assert after <= 0.1 + 0.02
    report = fair.constraint_report_.iloc[0]
    assert report.satisfied
    assert report.held_out <= 0.1
    assert report.multiplier > 0
    auc = roc_auc_score(y, fair.decision_function(X), sample_weight=weight)
    assert 0.7 < auc < roc_auc_score(y, free.decision_function(X), sample_weight=weight)


def test_reported_values_are_those_of_the_rows(rows):
    """Of rows without weights, training and validation values average to that of all rows."""
    X, y, sex, weight = rows
    rules = [gc.gap(rate(), by="sex") <= 0.3 for rate in (gc.mean_rank, gc.cross_auc, gc.auc)]
    model = ConstrainedAUCScorer(rules, slack=0.2, **QUICK)
    model.fit(X, y, weight, sensitive_features={"sex": sex})
    expected = values_of(model.decision_function(X), y, sex, weight)
    found = dict(
        zip(("mean_rank", "cross_auc", "auc"), model.constraint_report_.train, strict=True)
    )
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=0.02)


def test_the_chosen_level_is_the_best_of_those_that_meet_the_rule(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    model = ConstrainedAUCScorer(rule, slack=0.15, **QUICK)
    history = model.fit(X, y, sensitive_features={"sex": sex}).history_
    feasible = history[history.violation <= 1e-12]
    best = feasible.loc[feasible.auc.idxmax()]
    assert model.level_ == best.level
    assert history.chosen.sum() == 1
    assert history.loc[history.chosen].level.item() == best.level
    np.testing.assert_allclose(
        history.violation, np.maximum(history[f"value[{rule}]"] - 0.1, 0.0), atol=1e-12
    )
    assert (history.surrogate_violation.iloc[:-1] <= 0).all()


def test_the_exact_solver_is_the_limit_of_the_level_set_method(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    features = {"sensitive_features": {"sex": sex}}
    exact = ConstrainedAUCScorer(rule, solver="exact").fit(X, y, **features)
    search = ConstrainedAUCScorer(rule, n_steps=200, theta=1.0).fit(X, y, **features)
    least = exact.history_.surrogate_objective.item()
    assert exact.history_.surrogate_violation.item() == pytest.approx(0.0, abs=1e-6)
    assert least <= search.history_.surrogate_objective.iloc[-1] <= 1.03 * least
    assert exact.level_ == 0


def test_no_rules_give_the_optimum_of_the_square_loss(rows):
    X, y, _, weight = rows
    model = ConstrainedAUCScorer(solver="exact", validation_fraction=0.5).fit(X, y, weight)
    direction = model.coef_[0] / np.linalg.norm(model.coef_)
    surrogate = SquareSurrogate.of([], 2)
    ratios = density_ratios(np.stack([y == 1, y == 0], axis=1) * weight[:, None])
    whole, *_ = find_optimum(surrogate, X, ratios)
    assert direction @ whole / np.linalg.norm(whole) == pytest.approx(1.0, abs=0.01)
    assert model.constraint_report_.empty


def test_a_network_ranks_what_no_line_does(rows):
    X, _, sex, _ = rows
    y = ((X[:, 0] > -0.3) & (X[:, 2] > -0.3)).astype(int)
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    features = {"sensitive_features": {"sex": sex}}
    linear = ConstrainedAUCScorer(rule, slack=0.2, solver="exact").fit(X, y, **features)
    model = ConstrainedAUCScorer(
        rule, slack=0.2, hidden=10, theta=1.0, n_steps=600, max_levels=8, random_state=1
    )
    model.fit(X, y, **features)
    auc, of_line = (roc_auc_score(y, m.decision_function(X)) for m in (model, linear))
    assert auc > of_line + 0.02
    assert not hasattr(model, "coef_")
    assert set(model.history_.proximal_point) == {0, 1}


class TestPartialFit:
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1

    def run(self, rows, sizes, n_rows, **options):
        X, y, sex, weight = rows
        model = ConstrainedAUCScorer(self.rule, slack=0.1, theta=1.0, **options)
        order = np.random.default_rng(3).permutation(np.resize(np.arange(len(y)), n_rows))
        ends = np.cumsum([200, *([sizes] * ((n_rows - 200) // sizes))])
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            part = order[start:end]
            features = {"sex": sex[part]}
            model.partial_fit(X[part], y[part], weight[part], sensitive_features=features)
        return model

    def objective(self, model, rows):
        """Compute the surrogate objective at the last level, on all rows."""
        X, y, _, weight = rows
        ratios = density_ratios(np.stack([y == 1, y == 0], axis=1) * weight[:, None])
        surrogate = SquareSurrogate.of([], 2)
        w = model._stream.search.levels[-1].point.parameters
        return surrogate.values(surrogate.moments(X @ w, ratios))[0]

    def test_single_rows_do_as_well_as_batches(self, rows):
        one = self.run(rows, 1, 2_000, n_steps=8)
        many = self.run(rows, 100, 2_000, n_steps=8)
        found, expected = self.objective(one, rows), self.objective(many, rows)
        assert found == pytest.approx(expected, rel=0.05)
        assert expected < 0.45  # Scores of zero have 0.5.

    def test_levels_end_and_the_best_is_returned(self, rows):
        X, y, sex, weight = rows
        early = self.run(rows, 100, 1_000, n_steps=20)
        assert early.level_ is None
        assert roc_auc_score(y, early.decision_function(X)) > 0.6
        model = self.run(rows, 100, 40_000, n_steps=40)
        assert model.level_ is not None
        assert len(model.history_) >= 8
        assert model.constraint_report_.satisfied.all()
        scores = model.decision_function(X)
        assert values_of(scores, y, sex, weight)["mean_rank"] <= 0.13
        assert roc_auc_score(y, scores) > 0.7

    def test_validation_rows_are_not_trained_on(self, rows):
        model = self.run(rows, 100, 10_000, n_steps=20)
        n_validation = model._stream.validation.n_offered
        assert n_validation + model._stream.search.n_rows == 10_000
        assert n_validation == pytest.approx(1_000, abs=150)

    def test_rows_of_an_unknown_group_are_refused(self, rows):
        X, y, sex, _ = rows
        model = ConstrainedAUCScorer(self.rule, slack=0.1)
        model.partial_fit(X[:300], y[:300], sensitive_features={"sex": sex[:300]})
        with pytest.raises(ValueError, match=r"'X'.*which no row of the first call had"):
            model.partial_fit(X[:1], y[:1], sensitive_features={"sex": ["X"]})
        with pytest.raises(ValueError, match="not among the classes"):
            model.partial_fit(X[:1], [2], sensitive_features={"sex": ["F"]})

    def test_a_stream_starts_at_one_row(self, rows):
        """Rows are held until there are some of each class and group."""
        X, y, sex, _ = rows
        rule = gc.gap(gc.mean_rank(), by="sex", min_group_size=5) <= 0.1
        declared = {"classes": [0, 1], "groups": {"sex": ["F", "M"]}}
        options = {"slack": 0.1, "n_steps": 1, "theta": 1.0}
        for given in (X, sparse.csr_array(X), pd.DataFrame(X).add_prefix("x")):
            model, take = ConstrainedAUCScorer(rule, **options), getattr(given, "iloc", given)
            for i in range(60):
                features = {"sex": sex[i : i + 1]}
                model.partial_fit(
                    take[i : i + 1], y[i : i + 1], sensitive_features=features, **declared
                )
                if i == 3:
                    with pytest.raises(NotFittedError, match=r"holds 4 rows.*sex='F' of class 1"):
                        model.predict(given)
            n_read = model._stream.search.n_rows + model._stream.validation.n_offered
            assert n_read == 60
            assert model.predict(given).size == len(y)

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            (["F", "M"], "groups must be a dict"),
            ({"sx": ["F", "M"]}, "'sx', which no constraint reads"),
            ({"sex": ["F"]}, "'M' of 'sex', which groups= does not name"),
        ],
    )
    def test_groups_that_do_not_fit_are_refused(self, rows, groups, message):
        X, y, sex, _ = rows
        with pytest.raises(ValueError, match=message):
            ConstrainedAUCScorer(self.rule).partial_fit(
                X[:9], y[:9], groups=groups, sensitive_features={"sex": sex[:9]}
            )

    def test_rules_that_no_level_meets_are_named_once(self, rows):
        X, y, sex, _ = rows
        rule = gc.gap(gc.mean_rank(), by="sex") <= 1e-6
        model = ConstrainedAUCScorer(rule, slack=0.5, n_steps=4, batch_size=50)
        parts = np.split(np.arange(1200), 6)
        with collect_warnings() as named:
            for part in parts:
                features = {"sensitive_features": {"sex": sex[part]}}
                model.partial_fit(X[part], y[part], **features)
        assert [(category, "None of 1 levels" in text) for text, category in named] == [
            (InfeasibleConstraintsWarning, True)
        ]
        assert len(model.history_) > 2

    def test_fit_begins_anew(self, rows):
        X, y, sex, _ = rows
        features = {"sensitive_features": {"sex": sex}}
        model = ConstrainedAUCScorer(self.rule, slack=0.1, **QUICK)
        model.partial_fit(X, y, **features).fit(X, y, **features)
        fresh = clone(model).fit(X, y, **features)
        np.testing.assert_array_equal(model.coef_, fresh.coef_)
        model.partial_fit(X, y, **features)
        assert model.level_ is None
        assert not hasattr(model, "history_")


def test_predictions_follow_from_the_log_odds(rows):
    X, y, _, _ = rows
    labels = np.where(y == 1, "yes", "no")
    model = ConstrainedAUCScorer(solver="exact").fit(X, labels)
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, (X @ model.coef_.T)[:, 0] + model.intercept_)
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(probability[:, 1] / probability[:, 0]), scores)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "yes", "no"))
    assert probability[:, 1].mean() == pytest.approx(y.mean(), abs=0.02)


def test_groups_are_found_in_the_features_too(rows):
    X, y, sex, _ = rows
    table = pd.DataFrame(X, columns=list("abcd")).assign(F=(sex == "F").astype(float))
    rule = gc.gap(gc.mean_rank(), by="F") <= 0.1
    model = ConstrainedAUCScorer(rule, slack=0.1, solver="exact").fit(table, y)
    other = ConstrainedAUCScorer(
        gc.gap(gc.mean_rank(), by="G") <= 0.1, slack=0.1, solver="exact"
    ).fit(table, y, sensitive_features={"G": table.F})
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-6)


def test_models_are_copied_and_kept(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    model = ConstrainedAUCScorer(rule, slack=0.1, **QUICK)
    model.fit(X, y, sensitive_features={"sex": sex})
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(kept.decision_function(X), model.decision_function(X))
    again = clone(model).fit(X, y, sensitive_features={"sex": sex})
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_units_of_features_weights_and_of_the_surrogate_change_nothing(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    units = np.array([50.0, 1e4, 1.0, 1e-3])
    plain, other = (
        ConstrainedAUCScorer(rule, slack=0.1, n_steps=60, theta=1.0, max_levels=4, **options).fit(
            factor * X[:900], y[:900], weight, sensitive_features={"sex": sex[:900]}
        )
        for factor, options, weight in (
            (1.0, {}, None),
            (units, {"c1": 5e-5, "c2": 100.0}, np.full(900, 1 / 900)),
        )
    )
    expected = plain.predict_proba(X)
    np.testing.assert_allclose(other.predict_proba(units * X), expected, rtol=1e-6)
    np.testing.assert_allclose(other.history_.r, plain.history_.r, rtol=1e-6)
    assert expected[:, 1].max() > 0.8


def test_rows_without_positives_to_choose_by_give_base_rates(rows):
    X, _, _, _ = rows
    y = (np.arange(len(X)) % 1000 == 0).astype(int)  # Of three rows, none is for validation.
    model = ConstrainedAUCScorer(n_steps=50, theta=1.0, max_levels=3, tol=0.0)
    with pytest.warns(
        gc.FragileConstraintsWarning, match="no whole value of the AUC, so that the last"
    ):
        model.fit(X, y)
    assert not model.predict(X).any()
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 3 / (0.9 * len(X)), rtol=0.05)
    assert model.level_ == len(model.history_) - 1


def test_constraints_without_a_value_are_named_and_not_met(rows):
    X, y, sex, _ = rows
    sex = np.where(np.arange(len(X)) % 1500 == 1, "X", sex)
    rule = gc.gap(gc.mean_rank(), by="sex", min_group_size=1) <= 0.6
    model = ConstrainedAUCScorer(rule, slack=0.5, n_steps=20, max_levels=2)
    with pytest.warns(gc.FragileConstraintsWarning, match=r"no whole value of gap\(mean_rank"):
        model.fit(X, y, sensitive_features={"sex": sex})
    assert model.constraint_report_.satisfied.isna().all()


def test_a_search_that_stands_still_is_named(rows):
    X, y, _, _ = rows
    with pytest.warns(ConvergenceWarning, match=r"no progress.*solver='exact'"):
        ConstrainedAUCScorer(n_steps=3, learning_rate=1e-4).fit(X, y)


def test_stop_and_first_level_are_options(rows):
    """Proposition 1 stops at a share of the first upper bound."""
    X, y, _, _ = rows
    quick = {"n_steps": 100, "theta": 1.0, "first_level": 0.9}
    history = ConstrainedAUCScorer(**quick, relative_tol=0.3).fit(X, y).history_
    assert history.r[0] == pytest.approx(0.9)
    is_over = history.upper_bound >= 0.3 * history.upper_bound[0]
    assert is_over.iloc[-1]
    assert not is_over.iloc[:-1].any()


def test_sparse_features_do_what_dense_ones_do(rows):
    X, y, sex, weight = rows
    X = np.where(np.abs(X) > 0.5, X, 0.0)
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.1
    for options in ({"solver": "exact"}, {"hidden": 2}, {}):
        quick = {"n_steps": 10, "max_levels": 2, "n_proximal_points": 1, **options}
        dense, sparse_one = (
            ConstrainedAUCScorer(rule, slack=0.3, **quick).fit(
                given, y, weight, sensitive_features={"sex": sex}
            )
            for given in (X, sparse.csr_array(X))
        )
        expected = dense.decision_function(X)
        np.testing.assert_allclose(
            sparse_one.decision_function(sparse.csr_array(X)), expected, rtol=1e-6, atol=1e-8
        )


def test_rules_that_no_level_meets_are_named(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.mean_rank(), by="sex") <= 0.0001
    model = ConstrainedAUCScorer(rule, slack=0.5, n_steps=20, max_levels=2)
    with pytest.warns(InfeasibleConstraintsWarning, match="None of 2 levels meets"):
        model.fit(X, y, sensitive_features={"sex": sex})
    assert not model.constraint_report_.satisfied.any()
    assert model.history_.violation.min() == model.history_.violation[model.level_]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"c1": 1.0}, r"2 c1 c2\^2 = 2 must be at most 1 \+ kappa = 1.1"),
        ({"c1": 0.5, "c2": 1.2}, "must be at most"),
        ({"c1": 0.0}, "c1 must be a positive number"),
        ({"theta": 0.5}, "theta must be a number >= 1"),
        ({"hidden": -1}, "hidden must be an integer >= 0"),
        ({"hidden": 3, "solver": "exact"}, "solver='exact' is for linear scores"),
        ({"solver": "sgd"}, "solver must be one of"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"first_level": 0.0}, "first_level must be a positive number"),
        ({"tol": -1.0}, "tol must be a non-negative number"),
        ({"slack": np.nan}, "slack must be a non-negative number"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie strictly between"),
        ({"constraints": [gc.fnr() <= 0.1]}, "is no rule on pair rates"),
    ],
)
def test_bad_parameters_are_refused_before_training(rows, options, message):
    X, y, sex, _ = rows
    given = {"constraints": gc.gap(gc.mean_rank(), by="sex") <= 0.1, **options}
    with pytest.raises(ValueError, match=message):
        ConstrainedAUCScorer(**given).fit(X, y, sensitive_features={"sex": sex})


def test_bad_rows_are_refused_before_training(rows):
    X, y, sex, _ = rows
    rule = gc.gap(gc.auc(), by="sex") <= 0.1
    model = ConstrainedAUCScorer(rule)
    features = {"sensitive_features": {"sex": sex}}
    with pytest.raises(ValueError, match="into 6 for training and 0 for validation"):
        ConstrainedAUCScorer(validation_fraction=1e-6).fit(X[:6], [0, 1, 0, 1, 0, 1])
    with pytest.raises(ValueError, match="3 classes"):
        model.fit(X, np.arange(len(y)) % 3, **features)
    with pytest.raises(ValueError, match="'sex' is neither"):
        model.fit(X, y)
    with (
        pytest.warns(UserWarning, match="fewer than min_group_size"),
        pytest.raises(ValueError, match="1 is left"),  # No woman is positive.
    ):
        model.fit(X, np.where(sex == "F", 0, y), **features)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.zeros(len(y)), **features)
    with pytest.raises(ValueError, match="zero on all rows of class 1"):
        model.fit(X, y, 1.0 - y, **features)
    with pytest.raises(ValueError, match="zero on every row"):
        model.fit(X, y, np.zeros(len(y)), **features)


def test_the_conventions_of_scikit_learn():
    """Weights and copies of rows are drawn into other batches, so that the steps differ."""
    check_estimator(
        ConstrainedAUCScorer(n_steps=10, max_levels=3),
        on_skip=None,
        expected_failed_checks={
            "check_sample_weight_equivalence_on_dense_data": "The order of rows is drawn.",
            "check_sample_weight_equivalence_on_sparse_data": "The order of rows is drawn.",
        },
    )


def test_a_floor_that_equal_scores_miss_is_met_or_named(rows):
    """The square surrogate of AUC >= b has no start: equal scores have an AUC of one half."""
    X, y, sex, _ = rows
    features = {"sensitive_features": {"sex": sex}}
    easy = ConstrainedAUCScorer(gc.each(gc.auc(), by="sex") >= 0.7, slack=0.25, **QUICK)
    assert easy.fit(X, y, **features).constraint_report_.satisfied.all()
    hard = ConstrainedAUCScorer(gc.auc() >= 0.97, **QUICK)
    with pytest.warns(InfeasibleConstraintsWarning, match="auc >= 0.97"):
        hard.fit(X, y, **features)


def test_constant_features_give_equal_scores():
    y = np.arange(200) % 2
    model = ConstrainedAUCScorer(**QUICK).fit(np.ones((200, 2)), y)
    np.testing.assert_allclose(model.predict_proba(np.ones((3, 2))), 0.5, atol=0.01)


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_pull_back_is_the_gradient_of_scores(kind):
    problem = PairProblem(5, n=30)
    score = LinearScore.of(problem.X) if kind == "linear" else SigmoidNetwork.of(problem.X, 3)
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=score.start(np.random.RandomState(0)).size)
    rows = rng.normal(size=30)
    numerical = [
        rows @ (score.scores(parameters + e, problem.X) - score.scores(parameters - e, problem.X))
        for e in np.eye(parameters.size) * 1e-5
    ]
    found = score.pull_back(parameters, problem.X, rows)
    np.testing.assert_allclose(found, np.array(numerical) / 2e-5, rtol=1e-6, atol=1e-8)
    squares = [
        (score.pull_back(parameters, problem.X[[i]], np.ones(1)) ** 2).sum() for i in range(30)
    ]
    mean = score.mean_squared_gradient(parameters, problem.X)
    assert mean == pytest.approx(np.mean(squares), rel=1e-10)


def test_networks_start_at_equal_scores_with_different_units():
    problem = PairProblem(6, n=30)
    network = SigmoidNetwork.of(problem.X, 5)
    parameters = network.start(np.random.RandomState(0))
    np.testing.assert_array_equal(network.scores(parameters, problem.X), 0.0)
    gradient = network.pull_back(parameters, problem.X, problem.scores)
    assert np.unique(gradient[-5:]).size == 5


def test_scores_of_networks_do_not_depend_on_the_scale_of_features():
    problem = PairProblem(7, n=30)
    scores = []
    for factor in (1.0, 100.0):
        network = SigmoidNetwork.of(factor * problem.X, 5)
        parameters = network.start(np.random.RandomState(0))
        parameters[-5:] = np.arange(5.0)
        scores.append(network.scores(parameters, factor * problem.X))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-10)
