"""Fits for a metric that callbacks watch, that end in time, or that are interrupted.

An evaluation metric is called in each round of each booster, by which a test moves the clock.
"""

from __future__ import annotations

import functools
import itertools
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, Interruption, interrupt, quiet

import gbm_constrained as gc
from gbm_constrained.metrics import f1_macro, f_beta, g_mean, h_mean, metric
from gbm_constrained.presets import Coverage
from gbm_constrained.solvers import Reduction

N, ROUNDS, FOLDS = 600, 6, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 4))
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=N)
Y = np.digitize(SCORE, [0.0, 1.2])
GROUP = pd.Series(np.where(X[:, 3] + RNG.normal(size=N) > 0, "a", "b"), name="g")
OWN = {
    "xgboost": {"max_depth": 3, "subsample": 0.8},
    "lightgbm": {"num_leaves": 7, "subsample": 0.8, "subsample_freq": 1, "verbose": -1},
}
COVERAGE = [Coverage(within=0.01)]


def make(library, **options):
    given = {"n_estimators": ROUNDS, "measure_on": gc.CrossFit(FOLDS), "n_jobs": 1}
    return CLASSIFIERS[library](**{**given, **OWN[library], **options})


def bytes_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return bytes(model.get_booster().save_raw("ubj"))
    return model.booster_.model_to_string(num_iteration=-1).encode()


def rounds_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().num_boosted_rounds()
    return model.booster_.current_iteration()


class Trainings:
    """Counts trainings of either library, and interrupts one of them."""

    def __init__(self):
        self.count, self.last = 0, None

    def interrupt_at(self, number):
        self.count, self.last = 0, number

    def wrap(self, fit):
        def counted(*args, **kwargs):
            self.count += 1
            if self.count == self.last:
                raise Interruption
            return fit(*args, **kwargs)

        return counted


@pytest.fixture
def trainings(monkeypatch):
    found = Trainings()
    for library, name in ((xgb.sklearn, "train"), (lgb.sklearn, "train")):
        monkeypatch.setattr(library, name, found.wrap(getattr(library, name)))
    return found


def in_each_round(library, model, do):
    """Let a classifier call a function in each round of each booster; arguments of its fit."""

    def tick(y, scores, *_):
        do()
        return ("none", 0.0, True) if library == "lightgbm" else 0.0

    if library == "xgboost":
        model.set_params(eval_metric=tick)
        return {"eval_set": [(X[:60], Y[:60])], "verbose": False}
    return {"eval_set": [(X[:60], Y[:60])], "eval_metric": tick}


# --- callbacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["lightgbm", "linear"])
def test_callbacks_see_each_mixture(library):
    """Only a callback that returns True ends the search."""
    states = []
    model = make_any(library, maximize=g_mean(), constraints=COVERAGE)
    callback = lambda state: states.append(state) or "no"  # noqa: E731
    model.fit(X, Y, constraint_callbacks=[callback], **quiet(library))
    assert model.stopping_message_ is None
    assert {state.rows for state in states} == {
        f"out of fold, counted by {how}" for how in ("probabilities", "labels")
    }
    assert [state.iteration for state in states] == list(range(len(states)))
    seconds = [state.seconds for state in states]
    assert seconds == sorted(seconds)
    last = states[-1]
    assert last.phase == "measuring"
    assert list(map(str, last.constraints)) == list(map(str, COVERAGE))
    expected = np.abs(last.rates).max()  # of the differences of predicted and true shares
    assert last.values.iloc[0] == pytest.approx(expected, abs=1e-12)
    assert last.violations.iloc[0] == pytest.approx(expected - 0.01, abs=1e-12)
    assert np.isnan(last.error)
    assert np.isnan(last.multipliers).all()
    # The last mixture is all but the one that was found.
    found = model.history_[model.history_["counted_by"] == "labels"]["value"]
    assert np.isclose(last.objective, found, atol=1e-3).any()
    silent = make_any(library, maximize=g_mean(), constraints=COVERAGE)
    silent.fit(X, Y, **quiet(library))
    pd.testing.assert_frame_equal(silent.metric_report_, model.metric_report_)


def make_any(library, **options):
    if library == "linear":
        return gc.ConstrainedLogisticRegression(**options)
    return make(library, **options)


UNDER_COVERAGE = {"maximize": g_mean(), "constraints": COVERAGE}


@pytest.mark.parametrize(
    ("library", "n_calls", "options"),
    [
        ("linear", 1, UNDER_COVERAGE),
        ("xgboost", 8, UNDER_COVERAGE),
        ("lightgbm", 8, {"maximize": f1_macro()}),
        ("linear", 4, {"maximize": f_beta(1, 2), "constraints": [gc.recall(2) >= 0.5]}),
    ],
)
def test_a_callback_ends_the_search_with_the_best_so_far(library, n_calls, options):
    seen = []

    def end(state):
        seen.append(state)
        return len(seen) == n_calls

    model = make_any(library, **options).fit(X, Y, constraint_callbacks=[end], **quiet(library))
    assert len(seen) == n_calls
    assert model.stopping_message_ == (
        "A constraint callback ended the search for decisions: they are the best mixture of the "
        "rules found until then."
    )
    returned = model.metric_report_[model.metric_report_["is_returned"]].iloc[0]
    assert returned["violation"] <= 0.02  # Among the known rules are constant ones.
    shares = model.decision_probabilities(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert model.metric_report_["held_out"].notna().all()


@EITHER
def test_an_interruption_leaves_the_classifier_as_it_was(library):
    model = make(library, maximize=g_mean()).fit(X, Y, **quiet(library))
    before = bytes_of(model)
    fit = functools.partial(model.set_params(n_estimators=3).fit, X, Y, **quiet(library))
    interrupt(fit, lambda state: state.iteration == 2)
    assert bytes_of(model) == before


# --- a time limit --------------------------------------------------------------------------------


@pytest.fixture
def limited(clock):
    """Fit a classifier each round of which takes a second, within a limit."""

    def fit(library, model, limit, seconds=1.0, **given):
        clock.now = 0.0

        def tick():
            clock.now += seconds

        ticking = in_each_round(library, model, tick)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, Y, time_limit=limit, **{**given, **ticking})
        model.said = [w.message for w in caught if w.category is gc.TimeLimitWarning]
        model.seconds = clock.now
        return model

    return fit


@EITHER
def test_all_boosters_have_the_rounds_that_there_is_time_for(library, limited):
    """Three folds of 2/3 of the rows are two units of work, the model of all rows one more.

    A round of the first fold takes a second, so that the planned boosters and the search take
    1.2 * 3 / (2 / 3) = 5.4 seconds a round, and 90 % of 40 seconds are for 6.67 of them.
    """
    model = limited(library, make(library, maximize=g_mean(), n_estimators=20), 40.0)
    assert rounds_of(model) == 6
    assert model.seconds == 6 * (FOLDS + 1)
    assert model.stopping_message_ == (
        "time_limit=40 ended measuring after 6 of 20 rounds. The model has no more rounds than "
        "were measured."
    )
    (said,) = model.said
    assert model.stopping_message_ in str(said)
    expected = make(library, maximize=g_mean(), n_estimators=6).fit(X, Y, **quiet(library))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(
        model.metric_report_["held_out"][:4], expected.metric_report_["held_out"]
    )


@EITHER
def test_a_generous_limit_changes_nothing(library, limited):
    model = limited(library, make(library, maximize=g_mean()), 1000.0)
    expected = make(library, maximize=g_mean()).fit(X, Y, **quiet(library))
    assert model.stopping_message_ is None
    assert not model.said
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


@EITHER
def test_a_limit_that_leaves_hardly_a_model_is_refused(library, limited):
    message = r"time_limit=0\.5 leaves time for 1 of 6 rounds.*at a learning rate of 0\.05"
    with pytest.raises(ValueError, match=message):
        limited(library, make(library, maximize=g_mean(), learning_rate=0.05), 0.5)


@EITHER
def test_one_round_is_trained_whatever_the_limit_and_files_say_so(library, limited, tmp_path):
    """One round is a model at this learning rate."""
    model = limited(library, make(library, maximize=g_mean(), learning_rate=0.6), 0.5)
    assert rounds_of(model) == 1
    assert "time_limit=0.5 ended measuring after 1 of 6 rounds" in model.stopping_message_
    assert "time_limit=0.5 ended the search for decisions" in model.stopping_message_
    assert set(np.unique(model.predict(X))) <= {0, 1, 2}
    path = tmp_path / {"xgboost": "model.json", "lightgbm": "model.txt"}[library]
    model.set_params(**({"eval_metric": None} if library == "xgboost" else {})).save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert loaded.stopping_message_ == model.stopping_message_


@pytest.mark.parametrize(("library", "oracle"), [("xgboost", "refit"), ("lightgbm", "auto")])
def test_no_boosters_are_grown_anew_without_time(library, oracle, limited):
    options = {"maximize": g_mean(), "solver": Reduction(oracle=oracle)}
    model = limited(library, make(library, **options), 40.0)
    assert rounds_of(model) == ROUNDS
    assert set(model.metric_report_["oracle"]) == {"plug_in"}
    assert model.stopping_message_ == (
        "time_limit=40 left no time to grow boosters at the costs of the metric: the decisions "
        "are those of Reduction(oracle='plug_in')."
    )
    assert len(model.said) == 1
    with_time = limited(library, make(library, **options), 400.0)
    assert len(set(with_time.metric_report_["oracle"])) == 2
    assert with_time.stopping_message_ is None


@pytest.mark.parametrize(
    ("library", "limit", "rounds"), [("xgboost", 64.0, 10), ("lightgbm", 15.0, 2)]
)
def test_boosters_in_stages_have_the_rounds_that_there_is_time_for(
    library, limited, limit, rounds
):
    """The first stage would have seven of the rounds, and shows how many there is time for.

    As above, all boosters and the search take 5.4 seconds a round: 90 % of 64 seconds are for
    10.67 rounds, and those of 15 seconds for 2.5, which do not even end the first stage.
    """
    options = {"maximize": g_mean(), "solver": Reduction(oracle="in_training"), "n_estimators": 20}
    options["learning_rate"] = 0.4
    model = limited(library, make(library, **options), limit)
    assert rounds_of(model) == rounds
    assert f"ended measuring after {rounds} of 20 rounds" in model.stopping_message_
    assert len(model.said) == 1
    assert set(model.metric_report_["oracle"]) == {"in_training"}
    with_time = limited(library, make(library, **options), 1000.0)
    assert rounds_of(with_time) == 20
    assert with_time.stopping_message_ is None


def test_a_callback_sees_no_search_of_a_stage():
    states = []
    model, silent = (
        make("lightgbm", maximize=g_mean(), solver=Reduction(oracle="in_training")).fit(
            X, Y, constraint_callbacks=callbacks
        )
        for callbacks in ([states.append], None)
    )
    counted = [state.rows for state in states]
    assert counted == sorted(counted, reverse=True)  # First by probabilities, then by labels.
    assert bytes_of(silent) == bytes_of(model)


@EITHER
def test_early_stopping_goes_back_to_its_best_round(library, limited):
    name = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}[library]
    options = {"maximize": g_mean(), name: 15, "n_estimators": 20, "measure_on": "holdout"}
    options |= {"metric": "None"} if library == "lightgbm" else {}
    model = limited(library, make(library, **options), 20.0)
    best = model.best_iteration if library == "xgboost" else model.best_iteration_ - 1
    assert best == 0  # The metric of all rounds is equal.
    assert rounds_of(model) < 12


def test_the_search_of_a_linear_model_ends_in_time(clock):
    """A second for each call of the oracle."""

    def wait(state):
        clock.now += 1.0

    model = gc.ConstrainedLogisticRegression(maximize=g_mean(), constraints=COVERAGE)
    with pytest.warns(gc.TimeLimitWarning, match="time_limit=10 ended the search"):
        model.fit(X, Y, constraint_callbacks=[wait], time_limit=10)
    assert clock.now == pytest.approx(10.0, abs=1.5)
    assert model.stopping_message_.startswith("time_limit=10 ended the search for decisions")
    assert model.metric_report_["held_out"].notna().all()


# --- refusals ------------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"time_limit": 0}, ValueError, "time_limit is 0: give a positive number of seconds"),
        ({"time_limit": "1"}, TypeError, "time_limit is '1', which is no number"),
        ({"constraint_callbacks": print}, TypeError, "constraint_callbacks must be a list"),
        ({"checkpoint": b"file"}, TypeError, "checkpoint must be the path of a file"),
        ({"checkpoint": "no/such/folder/file"}, ValueError, "is in a folder that is not there"),
    ],
)
def test_bad_arguments_are_refused_before_training(library, given, error, words, trainings):
    with pytest.raises(error, match=words):
        make(library, maximize=g_mean()).fit(X, Y, **given)
    assert trainings.count == 0


# --- checkpoints: interrupted fits give the models of uninterrupted ones, bit by bit -------------


def assert_same(one, other):
    assert bytes_of(one) == bytes_of(other)
    np.testing.assert_array_equal(one.predict(X, random_state=0), other.predict(X, random_state=0))
    for name in ("metric_report_", "mixture_", "constraint_report_"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    left_out = ("_Booster", "history_")
    known = [{k: str(v) for k, v in vars(m).items() if k not in left_out} for m in (one, other)]
    assert known[0] == known[1]
    cells = [vars(model).get("_rules", {}).get("cell_model") for model in (one, other)]
    assert cells[0] == cells[1]


STAGES = 3
IN_GROUPS = {"constraints": [gc.gap(gc.recall(1), by="g") <= 0.1]}
CASES = {  # parameters, and boosters that are trained on parts or all of the rows
    "shift": ({"maximize": g_mean()}, FOLDS + 1),
    "mixture": ({"maximize": gc.recall(2), "constraints": [gc.selection_rate(2) <= 0.2],
                 "solver": Reduction(deterministic=False)}, FOLDS + 1),
    "groups": ({"maximize": "g_mean", "solver": "columns", **IN_GROUPS}, 2 * FOLDS + 2),
    "merged": ({"maximize": g_mean(), "solver": Reduction(ensemble="folds")}, FOLDS),
    "merged groups": ({"maximize": g_mean(), "solver": Reduction(ensemble="folds"), **IN_GROUPS},
                      2 * FOLDS),
    "refit": ({"maximize": g_mean(), "solver": Reduction(oracle="refit")}, 2 * FOLDS + 1),
    "in stages": ({"maximize": g_mean(), "solver": Reduction(oracle="in_training")},
                  STAGES * (FOLDS + 1)),
    "groups in stages": (
        {"maximize": g_mean(), "solver": Reduction(oracle="in_training"), **IN_GROUPS},
        2 * STAGES * (FOLDS + 1)),
    "merged stages": (
        {"maximize": g_mean(), "solver": Reduction(oracle="in_training", ensemble="folds")},
        STAGES * FOLDS,
    ),
    "auto": ({"minimize": gc.error_rate(), "solver": Reduction(oracle="auto")},
             (1 + STAGES) * FOLDS + 1),
    "of ones own": ({"maximize": metric(lambda C: C[2, 2] - C[0, 2], kind="linear")}, FOLDS + 1),
    "one model": ({"maximize": g_mean(), "measure_on": "train"}, 2),
    "without gradients": ({"constraints": [gc.class_error(2) <= 0.2]}, FOLDS + 1),
}  # fmt: skip
COMBINED = ("mixture", "merged groups", "groups in stages", "merged stages", "of ones own")
WITHOUT_GRADIENTS = {
    "xgboost": {"booster": "dart", "rate_drop": 0.3},
    "lightgbm": {"boosting_type": "dart"},
}


def case_of(library, case):
    options, n_boosters = CASES[case]
    others = WITHOUT_GRADIENTS[library] if case == "without gradients" else {}
    return functools.partial(make, library, **options, **others), n_boosters


@pytest.mark.parametrize(  # Each case with one of the libraries, in turn.
    ("library", "case"),
    [
        pytest.param(library, case, marks=[pytest.mark.slow] * (case in COMBINED))
        for library, case in zip(itertools.cycle(CLASSIFIERS), CASES, strict=False)
    ],
)
@pytest.mark.filterwarnings("ignore:measure_on='train'")
def test_an_interrupted_fit_gives_the_uninterrupted_model(library, case, tmp_path, trainings):
    """Interrupted as the second and then the last booster is trained: the others are kept.

    The last booster is trained again with all of its stages.
    """
    path = tmp_path / "run.checkpoint"
    make_model, n_boosters = case_of(library, case)
    given = {"sensitive_features": GROUP, **quiet(library)}
    whole = make_model().fit(X, Y, **given)
    assert trainings.count == n_boosters
    for number in (2, n_boosters - 1):  # The second fit takes one booster from the file.
        trainings.interrupt_at(number)
        with pytest.raises(Interruption):
            make_model().fit(X, Y, checkpoint=path, **given)
        assert path.exists()
    trainings.interrupt_at(None)
    resumed = make_model().fit(X, Y, checkpoint=path, **given)
    assert trainings.count == (STAGES if case.endswith("in stages") else 1)
    assert not list(tmp_path.iterdir())
    assert_same(resumed, whole)


@EITHER
def test_fold_boosters_of_a_fit_without_a_metric_are_resumed(library, tmp_path, trainings):
    """The library itself trains the model of all rows alone."""
    path, options = tmp_path / "run.checkpoint", {"maximize": g_mean(), **IN_GROUPS}
    three = pd.Series(np.resize(list("abc"), len(Y)), name="g")
    given = {"sensitive_features": three, **quiet(library)}
    whole = make(library, **options).fit(X, Y, **given)
    trainings.interrupt_at(1)
    with pytest.raises(Interruption):
        make(library, **options).fit(X, Y, checkpoint=path, **given)
    assert path.exists()
    trainings.interrupt_at(None)
    resumed = make(library, **options).fit(X, Y, checkpoint=path, **given)
    assert not list(tmp_path.iterdir())
    assert_same(resumed, whole)


@EITHER
def test_a_checkpoint_of_another_metric_is_refused(library, tmp_path, trainings):
    path = tmp_path / "run.checkpoint"
    trainings.interrupt_at(2)
    with pytest.raises(Interruption):
        make(library, maximize=g_mean()).fit(X, Y, checkpoint=path)
    trainings.interrupt_at(None)
    with pytest.raises(
        ValueError, match=r"is of another fit: maximize was g_mean\(\) and is h_mean\(\)"
    ):
        make(library, maximize=h_mean()).fit(X, Y, checkpoint=path)
    with pytest.raises(ValueError, match=r"is of another fit: .*y differs"):
        make(library, maximize=g_mean()).fit(X, Y[::-1], checkpoint=path)
    assert trainings.count == 0


@EITHER
def test_merged_boosters_stop_early_alike(library, tmp_path, trainings):
    """A restored booster has the rounds up to its best one."""
    path = tmp_path / "run.checkpoint"
    name = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}[library]
    options = {
        "maximize": g_mean(),
        "solver": Reduction(ensemble="folds"),
        name: 2,
        "n_estimators": 30,
    }
    options |= {"learning_rate": 0.9}
    given = {"eval_set": [(X[:200], Y[300:500])], **quiet(library)}
    whole = make(library, **options).fit(X, Y, **given)
    assert rounds_of(whole) < 20 * FOLDS
    trainings.interrupt_at(FOLDS)
    with pytest.raises(Interruption):
        make(library, **options).fit(X, Y, checkpoint=path, **given)
    trainings.interrupt_at(None)
    assert_same(make(library, **options).fit(X, Y, checkpoint=path, **given), whole)
