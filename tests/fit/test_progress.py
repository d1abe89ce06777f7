"""Progress of a fit: bars on a terminal or in a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from helpers import BOTH
from watched_fits import FOLDS, ROUNDS, R, make, split

import gbm_constrained as gc
from gbm_constrained.fit.callbacks import Progress


@pytest.fixture
def wait(clock):
    """A callback that takes six seconds, of the clock of the process, in each outer iteration."""

    def callback(state):
        clock.now += 6.0

    return callback


@pytest.fixture
def bars(monkeypatch):
    """Every bar that tqdm makes, with its steps."""
    tqdm_auto = pytest.importorskip("tqdm.auto", reason="tqdm is the extra 'progress'")
    made = []

    class Bar(tqdm_auto.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.steps, self.notes, self.closed = [self.n], [], False
            made.append(self)

        def update(self, n=1):
            super().update(n)
            self.steps.append(self.n)

        def set_postfix_str(self, s="", refresh=True):
            super().set_postfix_str(s, refresh)
            self.notes.append(s)

        def close(self):
            super().close()
            self.closed = True

    monkeypatch.setattr(tqdm_auto, "tqdm", Bar)
    on_a_terminal(monkeypatch)
    return made


def on_a_terminal(monkeypatch):
    """Let the standard error stream be one, though it is captured."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


LOUD = {"xgboost": {}, "lightgbm": {"verbose": 1}, "linear": {"verbose": 1}}
LINEAR = [gc.log_loss(on=gc.label(1)) <= 0.7]
EVERYONE = pytest.mark.parametrize("library", list(LOUD))


@BOTH
@pytest.mark.parametrize(("measure_on", "boosters"), [("train", 1), ("crossfit", FOLDS + 1)])
def test_one_bar_counts_the_rounds_of_all_boosters(
    library, measure_on, boosters, binary, bars, wait
):
    X, y = binary
    options = {**LOUD[library], "measure_on": measure_on}
    make(library, [gc.fpr() <= 0.9, gc.fnr() <= 0.9], **options).fit(
        X, y, constraint_callbacks=[wait]
    )
    assert {bar.total for bar in bars} == {boosters * ROUNDS}
    assert all(bar.closed and not bar.leave for bar in bars)
    steps = [step for bar in bars for step in bar.steps]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == boosters * ROUNDS - R
    # After the first phase the same bar goes on where it was.
    assert len(bars) == (1 if measure_on == "train" else 2)
    assert bars[-1].steps[0] == (boosters - 1) * ROUNDS
    notes = [note for bar in bars for note in bar.notes]
    assert "training rows: objective 0.6" in notes[0 if measure_on == "train" else ROUNDS // R]
    assert notes[0].startswith("training rows" if measure_on == "train" else "out of fold")
    assert notes[0].endswith("worst violation 0.1000 (fnr <= 0.9)")  # nobody is positive yet
    assert notes[-1].endswith("all constraints met")


def test_bar_shows_the_time_that_is_left(binary, bars, wait):
    model = make("xgboost", [gc.fnr() <= 0.1], measure_on="train")
    model.fit(*binary, constraint_callbacks=[wait])
    (bar,) = bars
    shown = {**bar.format_dict, "n": 5, "elapsed": 10.0, "rate": None, "initial": bar.initial}
    assert "00:10<00:10" in bar.format_meter(**shown)


def test_bar_of_the_linear_learner(binary, bars, wait):
    model = make("linear", LINEAR, verbose=1).fit(*binary, constraint_callbacks=[wait])
    (bar,) = bars
    assert bar.total == 40
    assert bar.unit == "iteration"
    assert bar.steps[-1] == model.n_iter_[0] - 1
    assert bar.closed


@EVERYONE
@pytest.mark.parametrize("why", ["no tqdm", "no terminal"])
def test_without_a_bar_there_are_lines(library, why, binary, wait, monkeypatch, capfd):
    if why == "no tqdm":
        on_a_terminal(monkeypatch)
        monkeypatch.setitem(sys.modules, "tqdm", None)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    constraints = LINEAR if library == "linear" else [gc.fnr() <= 0.1]
    options = {} if library == "linear" else {"solver": "threshold"}
    model = make(library, constraints, **LOUD[library], **options)
    model.fit(*binary, constraint_callbacks=[wait])
    lines = [line for line in capfd.readouterr().err.splitlines() if "left]" in line]
    assert " ? left] " in lines[0]  # of no round so far
    if library == "linear":
        assert lines[1].startswith("[1/40 iterations, 3:54 left] ")  # six seconds for each
        assert "worst violation" in lines[1]
    else:
        assert len(lines) == 2 * ROUNDS // R
        # Six of 40 rounds have taken six seconds.
        assert lines[1].startswith(f"[{R * FOLDS}/{(FOLDS + 1) * ROUNDS} rounds, 0:34 left] ")
        assert "left] out of fold, without multipliers: objective 0." in lines[1]
        assert "left] training rows: objective 0." in lines[-1]


@EVERYONE
@pytest.mark.usefixtures("clock")
def test_short_fits_show_nothing(library, binary, bars, capfd):
    """No time passes by the clock of the process."""
    constraints = LINEAR if library == "linear" else [gc.fnr() <= 0.1]
    make(library, constraints, **LOUD[library]).fit(*binary)
    assert bars == []
    assert "left]" not in capfd.readouterr().err


@EVERYONE
def test_quiet_fits_show_nothing(library, binary, bars, wait, capfd):
    constraints = LINEAR if library == "linear" else [gc.fnr() <= 0.1]
    silent = {"verbose": False} if library == "xgboost" else {}
    options = {"verbose": 0} if library == "lightgbm" else {}
    make(library, constraints, **options).fit(*binary, constraint_callbacks=[wait], **silent)
    if library == "xgboost":
        make(library, constraints, verbosity=0).fit(*binary, constraint_callbacks=[wait])
    assert bars == []
    assert "left]" not in capfd.readouterr().err


@BOTH
def test_beside_lines_of_the_library_progress_comes_in_lines(library, binary, bars, wait, capfd):
    X, y, X_held, y_held = split(binary)
    given = {"callbacks": [lgb.log_evaluation(5)]} if library == "lightgbm" else {"verbose": 5}
    make(library, [gc.fnr() <= 0.1], **LOUD[library]).fit(
        X, y, eval_set=[(X_held, y_held)], constraint_callbacks=[wait], **given
    )
    said = capfd.readouterr()
    assert bars == []
    assert "rounds, 0:34 left]" in said.err
    assert "logloss" in said.out


def test_a_notebook_has_bars(binary, bars, wait, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    make("xgboost", [gc.fnr() <= 0.1]).fit(*binary, constraint_callbacks=[wait])
    assert bars == []
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    make("xgboost", [gc.fnr() <= 0.1]).fit(*binary, constraint_callbacks=[wait])
    assert bars


@EVERYONE
def test_a_fit_that_fails_takes_its_bar_away(library, binary, bars, wait):
    def fail(state):
        if state.rounds >= 4:
            raise KeyError("mine")

    constraints = LINEAR if library == "linear" else [gc.fnr() <= 0.1]
    model = make(library, constraints, **LOUD[library])
    with pytest.raises(KeyError, match="mine"):
        model.fit(*binary, constraint_callbacks=[wait, fail])
    assert bars
    assert all(bar.closed for bar in bars)


def test_progress_of_a_constraint_that_is_undefined(binary, bars, wait):
    """Where nobody is selected, there is no precision."""
    model = make("xgboost", [gc.precision() >= 0.9], measure_on="train")
    model.fit(*binary, constraint_callbacks=[wait])
    assert bars[0].notes[0].endswith("constraints undefined")
    assert "undefined" not in bars[0].notes[-1]


@pytest.mark.parametrize(
    ("violations", "said"),
    [
        ([0.0, -0.1], "all constraints met"),
        ([1e-17, -0.1], "all constraints met"),  # as the report says of it
        ([0.02, 0.1], "worst violation 0.1000 (fpr <= 0.2)"),
        ([np.nan, 0.1], "worst violation 0.1000 (fpr <= 0.2)"),
        ([np.nan, -0.1], "no constraint violated, 1 undefined"),
        ([np.nan, np.nan], "constraints undefined"),
    ],
)
def test_what_progress_says_of_constraints(violations, said, clock, capfd):
    state = SimpleNamespace(
        violations=pd.Series(violations, index=["precision >= 0.9", "fpr <= 0.2"]),
        rows="out of fold", objective=0.5, done=0, total=1, seconds=0.0,
    )  # fmt: skip
    progress = Progress("round", lines=True)
    clock.now += Progress.DELAY
    progress(state)
    assert capfd.readouterr().err.endswith(f"out of fold: objective 0.5000, {said}\n")


@pytest.mark.parametrize(
    ("rows", "phase", "said"),
    [
        (
            "out of fold, without multipliers", "measuring",
            "The fit grows 2 boosters to measure the constraints, and then the model: 0:20 in "
            "all, and 0:33 if boosters under multipliers are tried as well.\n",
        ),
        ("holdout", "measuring", "The fit grows 2 boosters to measure the constraints, and then "
         "the model: 0:20 in all.\n"),
    ],
)  # fmt: skip
def test_a_long_fit_says_at_the_start_how_long_it_takes(rows, phase, said, clock, capfd):
    state = SimpleNamespace(
        violations=pd.Series([0.1], index=["fpr <= 0.2"]), rows=rows, phase=phase, objective=0.5,
        done=30, total=300, n_rounds=100, seconds=2.0,
    )  # fmt: skip
    progress = Progress("round", lines=True)
    progress(state)
    assert capfd.readouterr().err == said
    progress(state)
    assert capfd.readouterr().err == "", "once"


def test_a_short_fit_says_nothing(clock, capfd):
    state = SimpleNamespace(done=150, total=300, n_rounds=100, seconds=2.0)
    Progress("round", lines=True)(state)
    assert capfd.readouterr().err == ""
