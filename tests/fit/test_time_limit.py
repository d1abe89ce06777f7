"""Fits that end in time: what is given up, what is returned, and which message says so.

The clock stands still but for the seconds that each outer iteration takes by a callback.
"""

import functools
import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, interrupt, margins_of, quiet
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

import gbm_constrained as gc

X, Y = make_classification(1500, 8, n_informative=4, flip_y=0.1, random_state=0)
SEX = (X[:, 3] > 0).astype(int)
HELD = slice(1000, 1500)
N = 20  # rounds asked for; two are an outer iteration
OPTIONS = {
    "xgboost": {"n_jobs": 1, "max_depth": 3, "verbosity": 0},
    "lightgbm": {"n_jobs": 1, "max_depth": 3, "verbose": -1},
}
GAP = [gc.gap(gc.selection_rate(), by="sex") <= 0.05]  # is not done without multipliers
STOPPING = {"xgboost": "early_stopping_rounds", "lightgbm": "early_stopping_round"}


class Pace:
    """A constraint callback that moves the clock: seconds of an outer iteration, by phase."""

    def __init__(self, clock, measuring=1.0, training=1 / 3):
        self.clock = clock
        self.steps = {"measuring": measuring, "training": training}
        self.seen = []

    def __call__(self, state):
        self.seen.append((state.phase, state.rows, state.rounds))
        self.clock.now += self.steps[state.phase]


@pytest.fixture
def pace(clock):
    def start(**steps):
        clock.now = 0.0
        return Pace(clock, **steps)

    return start


def make(library, constraints=GAP, **options):
    options = {"n_estimators": N, "measure_on": "crossfit", **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=constraints, **options)


def fit(model, part=slice(None), **given):
    return model.fit(X[part], Y[part], sensitive_features={"sex": SEX[part]}, **given)


def rounds_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().num_boosted_rounds()
    return model.booster_.num_trees()


def says(text):
    return pytest.warns(gc.TimeLimitWarning, match=text)


# --- measuring and training -----------------------------------------------------------------


@EITHER
@pytest.mark.usefixtures("one_pass")
def test_measuring_leaves_time_for_the_model(library, pace):
    """Of four folds a round of the model takes a third of theirs: (i + 1) (1 + 1 / 3) <= 9."""
    now = pace()
    with says("time_limit=10 ended measuring after 12 of 20 rounds. The model has no more"):
        model = fit(make(library, solver="abpp"), time_limit=10, constraint_callbacks=[now])
    assert now.clock.now == pytest.approx(8.0)
    assert rounds_of(model) == model.history_["rounds"].iloc[-1] == 12
    short = fit(make(library, n_estimators=12, solver="abpp"))
    np.testing.assert_array_equal(margins_of(model, X), margins_of(short, X))
    assert model.constraint_report_.equals(short.constraint_report_)
    assert model.stopping_message_.startswith("time_limit=10 ended measuring after 12 of 20")


# Multipliers cost more errors under these than thresholds of the groups do.
COSTLY = [gc.gap(gc.fpr(), by="sex") <= 0.01, gc.fnr() <= 0.05]


@EITHER
def test_further_passes_are_given_up(library, pace, request):
    """One pass takes ten seconds, and two with the model more than there are."""
    now = pace()
    with says("time_limit=20 left no time to measure with better multipliers"):
        model = fit(
            make(library, COSTLY, solver="abpp"), time_limit=20, constraint_callbacks=[now]
        )
    assert sum(rows == 0 for *_, rows in now.seen) == 2  # one pass, and the model
    assert rounds_of(model) == N
    now = pace()
    two = fit(make(library, COSTLY, solver="abpp"), time_limit=50, constraint_callbacks=[now])
    # The model, two passes, and with LightGBM one more: the second has gained nothing.
    n_passes = sum(rows == 0 for *_, rows in now.seen) - 1
    assert n_passes == {"xgboost": 2, "lightgbm": 3}[library]
    assert two.stopping_message_ is None
    now = pace()
    with says("time_limit=20 left no time to try multipliers"):
        fit(make(library, COSTLY), time_limit=20, constraint_callbacks=[now])
    assert sum(rows == 0 for *_, rows in now.seen) == 2  # plain boosters, and the model
    request.getfixturevalue("one_pass")
    one = fit(make(library, COSTLY, solver="abpp"))
    np.testing.assert_array_equal(margins_of(model, X), margins_of(one, X))
    assert one.stopping_message_ is None


@EITHER
def test_training_ends_in_time_as_well(library, pace):
    """Fold boosters have every prefix; the report is of the one returned."""
    now = pace(training=1.0)
    with says("ended measuring after 12 of 20 rounds. time_limit=10 ended training after 6 of 20"):
        model = fit(make(library), time_limit=10, constraint_callbacks=[now])
    assert now.clock.now == 9.0
    assert rounds_of(model) == model.history_["rounds"].iloc[-1] == 6
    chosen = model.predict(X) == 1
    found = abs(chosen[SEX == 1].mean() - chosen[SEX == 0].mean())
    assert model.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert model.constraint_report_.held_out.notna().all()


@EITHER
@pytest.mark.parametrize("measure_on", ["holdout", "train", "watch"])
def test_other_measurements(library, measure_on, pace):
    """A holdout of a quarter leaves 4 / 3 of its booster's seconds to the model."""
    now = pace(measuring=1.0, training=1.0)
    given, part = {}, slice(None)
    if measure_on == "watch":
        given, part = {"eval_set": [(X[HELD], Y[HELD])], **quiet(library)}, slice(1000)
        given["sensitive_features_eval_set"] = [{"sex": SEX[HELD]}]
    model = make(library, measure_on="train" if measure_on == "train" else "holdout")
    with says("time_limit=8 ended"):
        model = fit(model, part, time_limit=8, constraint_callbacks=[now], **given)
    assert now.clock.now <= 8.0
    assert rounds_of(model) == model.history_["rounds"].iloc[-1] < N
    assert model.constraint_report_["held_out"].isna().all() == (measure_on == "train")


@EITHER
def test_at_least_one_iteration_is_measured_and_trained(library, pace):
    with says("ended measuring after 2 of 20 rounds"):
        model = fit(
            make(library, learning_rate=0.4), time_limit=1e-3, constraint_callbacks=[pace()]
        )
    assert rounds_of(model) == 2


@EITHER
def test_a_limit_that_leaves_hardly_a_model_is_an_error(library, pace):
    """Two seconds for each two rounds of the folds, and a third of that for the model's."""
    slow = make(library, n_estimators=2000, learning_rate=0.02)
    message = (
        r"time_limit=10 leaves time for 12 of 2000 rounds, which at a learning rate of 0\.02 are "
        r"hardly a model. By the first rounds, all take about [\d,.]+ seconds: give more time"
    )
    with pytest.raises(ValueError, match=message) as caught:
        fit(slow, time_limit=10, constraint_callbacks=[pace()])
    needed = float(str(caught.value).split("about ")[1].split()[0].replace(",", ""))
    assert needed == pytest.approx(2000 * 0.5 * (4 / 3) / 0.9, rel=0.2)
    assert not hasattr(slow, "classes_")


@EITHER
def test_training_that_is_cut_to_hardly_a_model_is_an_error(library, pace):
    """Measuring ends in time, and training takes ten times as long as the folds showed."""
    slow = make(library, n_estimators=200, learning_rate=0.05)
    with pytest.raises(ValueError, match=r"time_limit=30 leaves time for \d+ of 200 rounds"):
        fit(slow, time_limit=30, constraint_callbacks=[pace(training=10.0)])


@EITHER
def test_nothing_is_said_of_a_limit_that_is_not_reached(library, pace):
    model = fit(make(library), time_limit=1000, constraint_callbacks=[pace()])
    assert model.stopping_message_ is None
    plain = fit(make(library))
    assert plain.stopping_message_ is None
    np.testing.assert_array_equal(margins_of(model, X), margins_of(plain, X))


@EITHER
def test_multipliers_are_given_up(library, pace):
    """Constraints that a threshold may meet are measured without them first."""
    constraints = [gc.fnr() <= 0.02, gc.fpr() <= 0.2]
    # Ten iterations of the first boosters, 20 seconds for others and a model each: 33 are needed.
    now = pace()
    left = (
        "the constraints are left to the threshold, and of a regressor to scale and shift, alone"
    )
    with says(f"left no time to try multipliers: {left}"):
        model = fit(make(library, constraints), time_limit=25, constraint_callbacks=[now])
    assert {rows for phase, rows, _ in now.seen if phase == "measuring"} == {
        "out of fold, without multipliers"
    }
    alone = fit(make(library, constraints, solver="threshold"))
    np.testing.assert_array_equal(margins_of(model, X), margins_of(alone, X))
    assert "multipliers" in model.stopping_message_


@EITHER
def test_boosters_with_multipliers_that_take_too_long(library, pace):
    """They are dropped: the others were measured for all rounds."""
    constraints = [gc.fnr() <= 0.02, gc.fpr() <= 0.2]

    now = pace()

    def slow_down(state):
        if state.phase == "measuring" and "without" not in state.rows:
            now.clock.now += 2.0

    with says("left no time to try multipliers"):
        model = fit(
            make(library, constraints), time_limit=30, constraint_callbacks=[now, slow_down]
        )
    assert ("measuring", "out of fold", 0) in now.seen
    assert ("measuring", "out of fold", N - 2) not in now.seen
    alone = fit(make(library, constraints, solver="threshold"))
    np.testing.assert_array_equal(margins_of(model, X), margins_of(alone, X))


# --- with early stopping, checkpoints, files ----------------------------------------------------


@EITHER
@pytest.mark.parametrize(
    ("on", "by", "cause"),
    [
        ("metric", "parameter", "time"),
        ("metric", "callback", "callback"),
        ("constraints", "callback", "time"),
        ("both", "parameter", "callback"),
    ],
)
def test_early_stopping_has_its_best_round(library, on, by, cause, pace):
    """Where training ends before its patience does, as at the last round that was asked for."""
    now = pace(training=1.0)
    options = {"measure_on": "train", "learning_rate": 1.0, "early_stopping_on": on}
    given = {"eval_set": [(X[HELD], Y[HELD])], **quiet(library)}
    if by == "parameter":
        options[STOPPING[library]] = 50
    elif library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(50, verbose=False)]
    whole, model = (make(library, [gc.fnr() <= 0.15], n_estimators=n, **options) for n in (12, 60))
    if by == "callback" and library == "xgboost":
        for each in (whole, model):
            each.set_params(callbacks=[xgb.callback.EarlyStopping(rounds=50)])
    fit(whole, slice(1000), **given)
    if cause == "time":
        with says("time_limit=7 ended training after 12 of 60 rounds"):
            fit(model, slice(1000), time_limit=7, constraint_callbacks=[now], **given)
    else:
        given["constraint_callbacks"] = [lambda state: state.rounds == 10]
        fit(model, slice(1000), **given)
        assert model.stopping_message_.startswith("A constraint callback ended training after 12")
    np.testing.assert_array_equal(margins_of(model, X), margins_of(whole, X))
    name = "best_iteration" if library == "xgboost" else "best_iteration_"
    assert getattr(model, name) == getattr(whole, name)
    if on == "metric":
        assert rounds_of(model) < 12


def interrupt_training(model, path, pace, limit):
    """Interrupt a fit as its model is trained."""
    resumable = functools.partial(fit, model, checkpoint=path, time_limit=limit)
    interrupt(resumable, lambda state: state.phase == "training" and state.rounds == 6, [pace])


@EITHER
def test_a_resumed_fit_keeps_what_has_ended(library, pace, tmp_path, grown):
    """Measuring does not go on where the model has begun to follow it."""
    path, affordable = tmp_path / "fit", [gc.gap(gc.selection_rate(), by="sex") <= 0.15]
    interrupt_training(make(library, affordable, solver="abpp"), path, pace(), 10)
    with says("ended measuring after 12 of 20 rounds"):
        resumed = fit(make(library, affordable, solver="abpp"), checkpoint=path, time_limit=100)
    expected = fit(make(library, affordable, solver="abpp", n_estimators=12))
    assert grown == [True] * 3  # No fit needs a further pass.
    np.testing.assert_array_equal(margins_of(resumed, X), margins_of(expected, X))
    assert resumed.constraint_report_.equals(expected.constraint_report_)


@EITHER
def test_a_resumed_fit_knows_how_long_a_pass_takes(library, pace, tmp_path):
    """Ten seconds, as in the fit before, though they need not be spent again."""
    path, constraints = tmp_path / "fit", [gc.fnr() <= 0.02, gc.fpr() <= 0.2]
    interrupt_training(make(library, constraints), path, pace(), 25)
    now = pace(measuring=0.0, training=0.0)
    with says("time_limit=12 left no time to try multipliers"):
        fit(make(library, constraints), checkpoint=path, time_limit=12, constraint_callbacks=[now])


@EITHER
def test_files_keep_the_message(library, pace, tmp_path):
    with says("ended measuring"):
        model = fit(make(library), time_limit=10, constraint_callbacks=[pace()])
    path = tmp_path / ("model.json" if library == "xgboost" else "model.txt")
    model.save_model(path)
    loaded = CLASSIFIERS[library]().load_model(path)
    assert loaded.stopping_message_ == model.stopping_message_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_logistic_regression(pace):
    """The best iterate so far is returned."""
    now = pace(training=1.0)
    model = gc.ConstrainedLogisticRegression(constraints=[gc.log_loss(on={"sex": 1}) <= 0.3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, time_limit=10, constraint_callbacks=[now])
    (said,) = (w for w in caught if w.category is gc.TimeLimitWarning)
    assert str(said.message) == (
        "time_limit=10 ended training after 9 of 500 iterations. Give more time, or ask for a "
        "larger tol. [GC303]"
    )
    assert model.n_iter_[0] == 9
    assert not any("n_iterations=" in str(w.message) for w in caught)
    assert np.isfinite(model.coef_).all()


def test_logistic_regression_that_violates_its_constraints_in_time(pace):
    """Which is said as well, of the iterations that there was time for."""
    now = pace(training=1.0)
    model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.001, gc.fpr() <= 0.001])
    with (
        pytest.warns(
            gc.InfeasibleConstraintsWarning, match="The solver stopped at time_limit=5, and"
        ),
        says("ended training after 4 of 500 iterations"),
    ):
        fit(model, time_limit=5, constraint_callbacks=[now])


def test_a_difference_of_losses(pace):
    """CBPR ends in time, and before it the search for a model that it can start from."""
    now = pace(training=1.0)
    constraints = [gc.gap(gc.log_loss(), by="sex") <= 1e-4]
    model = gc.ConstrainedLogisticRegression(constraints=constraints, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with says("time_limit=5 ended training after"):
            fit(model, time_limit=5, constraint_callbacks=[now])
    assert now.clock.now <= 6.0


# --- callbacks, and what is refused -------------------------------------------------------------


@EITHER
def test_a_callback_that_ends_the_fit_is_reported(library):
    stop = [lambda state: state.phase == "measuring" and state.rounds == 2]
    model = fit(make(library), constraint_callbacks=stop)
    assert model.stopping_message_ == (
        "A constraint callback ended measuring after 4 of 20 rounds. The model has no more rounds "
        "than were measured."
    )


@pytest.mark.parametrize("library", [*CLASSIFIERS, "logistic"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "time_limit is 0: give a positive number of seconds"),
        (-1.5, ValueError, "time_limit is -1.5: give"),
        (float("inf"), ValueError, "time_limit is inf: give"),
        (float("nan"), ValueError, "time_limit is nan: give"),
        ("60", TypeError, "time_limit is '60', which is no number: give"),
        (True, TypeError, "time_limit is True, which is no number"),
    ],
)
def test_bad_limits_are_refused_before_training(library, value, error, message):
    seen = []
    model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.2])
    if library != "logistic":
        model = make(library)
    with pytest.raises(error, match=message):
        fit(model, time_limit=value, constraint_callbacks=[seen.append])
    assert not seen
    with pytest.raises(ValueError, match="ends fits under constraints or for a metric, and"):
        model.set_params(constraints=[]).fit(X, Y, time_limit=5)
