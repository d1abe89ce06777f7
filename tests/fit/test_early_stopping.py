"""Metrics of evaluation sets, and early stopping on a metric, on the constraints, or both.

References are made by hand from the prefixes of the same ensemble, trained to its end.
"""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, EITHER, quiet
from sklearn.metrics import log_loss, roc_auc_score

import gbm_constrained as gc
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.fit.options import RoundMerit, StoppingByConstraints, find_merit

N, PATIENCE = 60, 5
RNG = np.random.default_rng(7)
X = RNG.normal(size=(1600, 6))
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=1600) > 0.8).astype(int)
HELD, TRAIN = slice(0, 800), slice(800, 1600)
OPTIONS = {
    "xgboost": {"n_jobs": 1, "max_depth": 3, "learning_rate": 0.25, "verbosity": 0},
    "lightgbm": {"n_jobs": 1, "max_depth": 3, "learning_rate": 0.25, "verbose": -1},
}
STOPPING = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}


def make(library, rules, **options):
    options = {"n_estimators": N, "measure_on": "train", **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def fit(library, model, **given):
    given = {"eval_set": [(X[HELD], Y[HELD])], **quiet(library), **given}
    return model.fit(X[TRAIN], Y[TRAIN], **given)


def results_of(model):
    found = model.evals_result() if isinstance(model, xgb.XGBClassifier) else model.evals_result_
    return next(iter(found.values()))


def best_of(model):
    if isinstance(model, xgb.XGBModel):
        return model.best_iteration
    return model.best_iteration_ - 1


def trained_rounds(model):
    return len(next(iter(results_of(model).values())))


def probabilities_of_prefixes(model, n=N):
    if isinstance(model, xgb.XGBClassifier):
        return [model.predict_proba(X[HELD], iteration_range=(0, k + 1))[:, 1] for k in range(n)]
    return [model.predict_proba(X[HELD], num_iteration=k + 1)[:, 1] for k in range(n)]


def miss_rates(probabilities):
    return np.array([np.mean(p[Y[HELD] == 1] <= 0.5) for p in probabilities])


# --- metrics ------------------------------------------------------------------------------------


@BOTH
def test_metrics_are_those_of_the_probabilities(library):
    """As counted by hand from each prefix, while a constraint moves the scores."""
    names = {
        "xgboost": ["logloss", "error", "auc"],
        "lightgbm": ["binary_logloss", "binary_error", "auc"],
    }[library]
    options, given = {}, {}
    (options if library == "xgboost" else given)["eval_metric"] = list(names)
    options |= {"n_estimators": 20, "iterate": "randomized"}  # no round is cut off
    model = fit(library, make(library, [gc.fnr() <= 0.1], **options), **given)
    assert model.multipliers_.any()
    y, prefixes = Y[HELD], probabilities_of_prefixes(model, 20)
    expected = [
        [log_loss(y, p) for p in prefixes],
        [np.mean((p > 0.5) != y) for p in prefixes],
        [roc_auc_score(y, p) for p in prefixes],
    ]
    for name, values in zip(names, expected, strict=True):
        np.testing.assert_allclose(results_of(model)[name], values, rtol=0, atol=2e-6)


# --- the best round ------------------------------------------------------------------


def criterion_of(violations, bound, losses, labels=Y[HELD]):
    """Log loss, plus the price of the violation beyond a standard error of the miss rate."""
    rates = violations + bound
    errors = np.sqrt(rates * (1 - rates) / labels.sum())
    return losses + VIOLATION_PRICE * np.maximum(violations - errors, 0)


def stop_by_constraints(criterion):
    """Best round (the last of the least criterion) and rounds trained."""
    best = 0
    for t, value in enumerate(criterion):
        if value <= criterion[best] + 1e-9:
            best = t
        if t - best >= PATIENCE:
            return best, t + 1
    return best, len(criterion)


def stop_by_both(violations, losses):
    """Among the rounds that met the constraints, as the parent among all."""
    met = np.flatnonzero(violations <= 0)
    best, waited = met[0], 0
    for t in met[1:]:
        best, waited = (t, 0) if losses[t] < losses[best] else (best, waited + 1)
        if waited >= PATIENCE:
            return best, t + 1
    return best, len(violations)


@pytest.fixture(scope="module")
def paths():
    """Miss rates and losses on the evaluation set of ensembles trained to their end."""
    found = {}
    for library in CLASSIFIERS:
        for bound in BOUNDS:
            model = fit(library, make(library, [gc.fnr() <= bound]))
            prefixes = probabilities_of_prefixes(model)
            losses = np.array([log_loss(Y[HELD], p) for p in prefixes])
            found[library, bound] = miss_rates(prefixes) - bound, losses
    return found


BOUNDS = (0.2, 0.3, 0.4)


@EITHER
@pytest.mark.parametrize("bound", BOUNDS)
def test_stopping_on_the_constraints(library, bound, paths):
    violations, losses = paths[library, bound]
    options = {STOPPING[library]: PATIENCE, "early_stopping_on": "constraints"}
    model = fit(library, make(library, [gc.fnr() <= bound], **options))
    best, trained = stop_by_constraints(criterion_of(violations, bound, losses))
    assert (best_of(model), trained_rounds(model)) == (best, trained)
    assert model.constraint_report_.held_out[0] == pytest.approx(violations[best] + bound)
    assert np.mean(model.predict(X[HELD])[Y[HELD] == 1] == 0) == pytest.approx(
        violations[best] + bound
    )


@EITHER
@pytest.mark.parametrize("bound", BOUNDS)
def test_stopping_on_both(library, bound, paths):
    violations, losses = paths[library, bound]
    options = {STOPPING[library]: PATIENCE, "early_stopping_on": "both"}
    model = fit(library, make(library, [gc.fnr() <= bound], **options))
    if (violations > 0).all():
        best, trained = int(criterion_of(violations, bound, losses).argmin()), N
    else:
        best, trained = stop_by_both(violations, losses)
        assert model.constraint_report_.satisfied[0]
    assert (best_of(model), trained_rounds(model)) == (best, trained)


@EITHER
def test_a_last_round_that_breaks_the_constraints_is_not_the_best(library, paths):
    """Though its metric is better than that of all rounds that met them."""
    violations, losses = paths[library, 0.4]
    met = violations <= 0
    last = next(
        t
        for t in range(N)
        if not met[t] and met[:t].any() and losses[t] < np.where(met, losses, np.inf)[:t].min()
    )
    options = {STOPPING[library]: N, "early_stopping_on": "both", "n_estimators": last + 1}
    model = fit(library, make(library, [gc.fnr() <= 0.4], **options))
    assert best_of(model) == np.where(met[:last], losses[:last], np.inf).argmin()


def test_the_paths_set_the_ways_apart(paths):
    """Otherwise the tests above would show nothing."""
    both, constraints, met = set(), set(), set()
    for key, (violations, losses) in paths.items():
        met.add(bool((violations <= 0).any()))
        criterion = criterion_of(violations, key[1], losses)
        constraints.add(stop_by_constraints(criterion)[1] < N)
        if (violations <= 0).any():
            both.add(stop_by_both(violations, losses)[0] != int(losses.argmin()))
            assert (violations > 0).any(), key
    assert met == {True, False}
    assert True in constraints
    assert True in both


@BOTH
def test_the_metric_alone_is_the_parents_way(library, paths):
    """The default: patience counts all rounds, whether or not they meet the constraints."""
    _, losses = paths[library, 0.2]
    model = fit(library, make(library, [gc.fnr() <= 0.2], **{STOPPING[library]: PATIENCE}))
    best = next(t for t in range(N) if (losses[t + 1 : t + 1 + PATIENCE] >= losses[t]).all())
    assert best_of(model) == best
    assert trained_rounds(model) == min(best + PATIENCE + 1, N)


# --- the parents' own ways of asking for it -----------------------------------------------------


@EITHER
@pytest.mark.parametrize("on", ["constraints", "both"])
def test_callbacks_of_the_parents(library, on):
    """They bring the patience, and stay the user's."""
    by_parameter = fit(
        library,
        make(library, [gc.fnr() <= 0.3], early_stopping_on=on, **{STOPPING[library]: PATIENCE}),
    )
    options, given = {}, {}
    if library == "xgboost":
        callback = xgb.callback.EarlyStopping(rounds=PATIENCE)
        options["callbacks"] = [callback]
    else:
        callback = lgb.early_stopping(PATIENCE, verbose=False)
        given["callbacks"] = [callback]
    model = fit(
        library, make(library, [gc.fnr() <= 0.3], early_stopping_on=on, **options), **given
    )
    assert best_of(model) == best_of(by_parameter)
    assert trained_rounds(model) == trained_rounds(by_parameter)
    if library == "xgboost":
        assert model.callbacks == [callback]
        assert model.early_stopping_rounds is None
        assert by_parameter.early_stopping_rounds == PATIENCE


def test_xgboost_saves_the_best_rounds_only():
    callback = xgb.callback.EarlyStopping(rounds=PATIENCE, save_best=True)
    options = {"callbacks": [callback], "early_stopping_on": "constraints"}
    model = fit("xgboost", make("xgboost", [gc.fnr() <= 0.3], **options))
    assert model.get_booster().num_boosted_rounds() == model.best_iteration + 1


@pytest.mark.parametrize("on", ["metric", "constraints", "both"])
@pytest.mark.parametrize("by", ["parameter", "callback"])
def test_xgboost_has_the_score_of_the_round_it_was_cut_to(on, by):
    """Where the best prefix has fewer rounds than early stopping has kept."""
    # Some rounds before the one that early stopping keeps meet the bound, so that it is cut.
    cut = {"metric": (0.25, 0.1), "constraints": (0.2, 0.1), "both": (0.33, 0.08)}
    bound, learning_rate = cut[on]
    options = {"early_stopping_on": on, "learning_rate": learning_rate}
    options["eval_metric"] = ["error", "logloss"]
    pairs = [(X[HELD], Y[HELD]), (X[HELD][::2], Y[HELD][::2])]
    data, metric = ("validation_1", "logloss") if by == "parameter" else ("validation_0", "error")

    def fit_to(iterate):
        stopping = {"early_stopping_rounds": 6}
        if by == "callback":  # not by the last metric, which the parameter looks at
            stopped = xgb.callback.EarlyStopping(rounds=6, data_name=data, metric_name=metric)
            stopping = {"callbacks": [stopped]}
        model = make("xgboost", [gc.fnr() <= bound], iterate=iterate, **options, **stopping)
        return fit("xgboost", model, eval_set=pairs)

    model, stopped = fit_to("best"), fit_to("last")
    kept = model.get_booster().num_boosted_rounds()
    assert kept < stopped.get_booster().num_boosted_rounds(), "it was not cut"
    assert model.best_iteration == kept - 1
    expected = model.evals_result()[data][metric][model.best_iteration]
    if on == "constraints":
        violations = np.array([model.constraint_report_.held_out[0] - bound])
        probabilities = model.predict_proba(X[HELD][::2])[:, 1]
        losses = np.array([log_loss(Y[HELD][::2], probabilities)])
        (expected,) = criterion_of(violations, bound, losses, Y[HELD][::2])
    assert model.best_score == pytest.approx(expected)


def test_lightgbm_keeps_the_results_of_the_best_round():
    for on in ("constraints", "both"):
        options = {"early_stopping_round": PATIENCE, "early_stopping_on": on}
        model = fit("lightgbm", make("lightgbm", [gc.fnr() <= 0.4], **options))
        values = results_of(model)["binary_logloss"]
        assert model.best_score_["valid_0"]["binary_logloss"] == values[best_of(model)]


def test_rounds_of_lightgbm_without_a_split_are_not_counted():
    """The parent counts them, and predicts by trees that came after the best round."""
    sparing = {"bagging_fraction": 0.1, "bagging_freq": 1, "min_split_gain": 5.0}
    stopping = {"n_estimators": N, "early_stopping_round": PATIENCE}
    own = fit("lightgbm", make("lightgbm", [gc.error_rate() <= 1.0], **sparing, **stopping))
    parent = lgb.LGBMClassifier(**OPTIONS["lightgbm"], **sparing, **stopping)
    fit("lightgbm", parent)
    values = results_of(own)["binary_logloss"]
    np.testing.assert_allclose(values, results_of(parent)["binary_logloss"])
    assert own.best_iteration_ < parent.best_iteration_ == np.argmin(values) + 1
    scores = [log_loss(Y[HELD], model.predict_proba(X[HELD])) for model in (own, parent)]
    assert scores[0] == pytest.approx(min(values))
    assert scores[1] > min(values) + 1e-3


@EITHER
def test_the_last_evaluation_set_drives_it(library):
    """And the training rows are none."""
    easy = X[HELD, 0] > 1.2  # whose positive rows are not missed
    pairs = [(X[HELD][easy], Y[HELD][easy]), (X[HELD], Y[HELD])]
    options = {STOPPING[library]: PATIENCE, "early_stopping_on": "constraints"}
    alone = fit(library, make(library, [gc.fnr() <= 0.3], **options))
    last = fit(library, make(library, [gc.fnr() <= 0.3], **options), eval_set=pairs)
    first = fit(library, make(library, [gc.fnr() <= 0.3], **options), eval_set=pairs[::-1])
    assert best_of(last) == best_of(alone) != best_of(first)
    train = (X[TRAIN], Y[TRAIN])
    same = make(library, [gc.fnr() <= 0.3], **options).fit(
        *train, eval_set=[(X[HELD], Y[HELD]), train], **quiet(library)
    )
    assert best_of(same) == best_of(alone)


@EITHER
def test_groups_of_the_evaluation_set(library):
    """A gap is measured there with the set's own sensitive features."""
    groups = {"half": X[:, 3] > 0}
    rule = gc.gap(gc.selection_rate(), by="half") <= 0.02
    model = make(library, [rule], early_stopping_on="constraints", **{STOPPING[library]: PATIENCE})
    fit(
        library, model,
        sensitive_features={"half": groups["half"][TRAIN]},
        sensitive_features_eval_set=[{"half": groups["half"][HELD]}],
    )  # fmt: skip
    chosen, half = model.predict(X[HELD]) == 1, groups["half"][HELD]
    found = abs(chosen[half].mean() - chosen[~half].mean())
    assert model.constraint_report_.held_out[0] == pytest.approx(found)


# --- refused ------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("on", ["constraints", "both"])
def test_what_it_needs(library, on):
    stopping = {STOPPING[library]: PATIENCE, "early_stopping_on": on}
    with pytest.raises(ValueError, match=f"early_stopping_on='{on}' does not say after how many"):
        fit(library, make(library, [gc.fnr() <= 0.3], early_stopping_on=on))
    with pytest.raises(ValueError, match="on the last evaluation set, and there is none"):
        fit(library, make(library, [gc.fnr() <= 0.3], **stopping), eval_set=None)
    train = (X[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match="there is none besides the training rows"):
        make(library, [gc.fnr() <= 0.3], **stopping).fit(
            *train, eval_set=[train], **quiet(library)
        )
    masked = make(library, [gc.fpr(on=X[TRAIN, 0] > 0) <= 0.3], **stopping)
    with pytest.raises(ValueError, match=r"eval_set\[0\], where some cannot be measured"):
        fit(library, masked)
    with pytest.raises(ValueError, match=r"early_stopping_on must be one of.*'rules'"):
        fit(library, make(library, [gc.fnr() <= 0.3], early_stopping_on="rules"))


def test_the_best_round_by_the_constraints():
    """The last of equal rounds is taken, whether or not it met the constraints."""
    found = StoppingByConstraints()
    merits = zip([0.9, 0.4, 0.5, 0.4, 0.6], [0.3, 0.1, 0.0, 0.2, -0.1], strict=True)
    is_met = [found.update(t, RoundMerit(*merit)) for t, merit in enumerate(merits)]
    assert is_met == [False, False, True, False, True]
    assert (found.best, found.criterion, found.has_met) == (3, 0.4, True)


# --- few positive rows ------------------------------------------------------------------------


def draw_frauds(seed, n):
    """One row in a hundred is positive."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 8))
    score = features[:, 0] + features[:, 1] * features[:, 2] + 0.5 * features[:, 3]
    score += 0.7 * rng.normal(size=n)
    return features, (score > np.quantile(score, 0.99)).astype(int)


FRAUDS, FRAUDS_HELD = draw_frauds(0, 7500), draw_frauds(1, 4000)
HALF = {"half": FRAUDS[0][:, 5] > 0}
HALF_HELD = {"half": FRAUDS_HELD[0][:, 5] > 0}
SLOW = {"n_estimators": 150, "learning_rate": 0.05, "max_depth": 6}


@pytest.fixture(scope="module")
def plain_rounds():
    """Rounds that the parents keep on these rows."""
    models = {"xgboost": xgb.XGBClassifier, "lightgbm": lgb.LGBMClassifier}
    found = {}
    for library, kind in models.items():
        model = kind(**OPTIONS[library] | SLOW, **{STOPPING[library]: 10})
        model.fit(*FRAUDS, eval_set=[FRAUDS_HELD], **quiet(library))
        found[library] = best_of(model)
    return found


@pytest.mark.parametrize(
    ("library", "on", "rule"),
    [
        ("xgboost", "constraints", gc.fnr() <= 0.15),
        ("xgboost", "both", gc.gap(gc.tpr(), by="half") <= 0.1),
        ("lightgbm", "constraints", gc.gap(gc.tpr(), by="half") <= 0.1),
        ("lightgbm", "both", gc.fpr() <= 0.005),
    ],
    ids=str,
)
def test_it_does_not_stop_where_hardly_a_row_is_selected(library, on, rule, plain_rounds):
    """Rounds are compared under the threshold that the model gets when training is over."""
    options = {"early_stopping_on": on, STOPPING[library]: 10, "measure_on": "auto"}
    model = make(library, [rule], **options | SLOW).fit(
        *FRAUDS, eval_set=[FRAUDS_HELD], sensitive_features=HALF,
        sensitive_features_eval_set=[HALF_HELD], **quiet(library),
    )  # fmt: skip
    assert plain_rounds[library] > 20
    assert best_of(model) >= plain_rounds[library] / 2


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_shift_changes_no_merit(n_classes, conclusions):
    """Multipliers weigh classes, and the model's own shift undoes that."""
    y = np.digitize(X[:, 0] + RNG.normal(size=1600), [0.0, 1.0][: n_classes - 1])
    model = make("xgboost", [gc.accuracy() >= 0.3], measure_on="auto", n_estimators=5)
    model.fit(X[TRAIN], y[TRAIN], eval_set=[(X[HELD], y[HELD])], verbose=False)
    held = conclusions.pop().fit.evaluation_sets[-1]
    margin = model.predict(X[HELD], output_margin=True).astype(np.float64)
    moved = margin + (2.0 if n_classes == 2 else [2.0, 0.0, -1.0])
    merits = [find_merit(held, scores, is_shifted=True) for scores in (margin, moved)]
    assert merits[1] == pytest.approx(merits[0], abs=2e-4)
    unshifted = find_merit(held, moved, is_shifted=False)
    assert unshifted.criterion > merits[0].criterion + 0.1


@EITHER
def test_regressors_do_not_stop_where_all_predictions_are_alike(library):
    """Those of the first rounds have no gap."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2400, 5))
    half = {"half": features[:, 4] > 0}
    y = features[:, 0] + features[:, 1] ** 2 + 1.5 * half["half"] + 0.5 * rng.normal(size=2400)
    train, held = slice(0, 1600), slice(1600, 2400)
    kind = {"xgboost": gc.ConstrainedXGBRegressor, "lightgbm": gc.ConstrainedLGBMRegressor}
    rule = gc.gap(gc.mean_prediction(), by="half") <= 1.0
    options = {**OPTIONS[library], "n_estimators": 120, "learning_rate": 0.1, "measure_on": "auto"}
    stopping = {"early_stopping_on": "constraints", STOPPING[library]: 5}
    model = kind[library](constraints=[rule], **options, **stopping)
    model.fit(
        features[train], y[train], eval_set=[(features[held], y[held])],
        sensitive_features={"half": half["half"][train]},
        sensitive_features_eval_set=[{"half": half["half"][held]}], **quiet(library),
    )  # fmt: skip
    assert best_of(model) > 30
    errors = y[held] - model.predict(features[held])
    assert 1.0 - np.var(errors) / np.var(y[held]) > 0.6
