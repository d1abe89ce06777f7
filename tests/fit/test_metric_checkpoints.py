"""Interrupted fits for a metric give the models of uninterrupted ones, bit by bit."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH, Interruption, quiet
from metric_fits import FOLDS, GROUP, X, Y, bytes_of, make, rounds_of

import gbm_constrained as gc
from gbm_constrained.metrics import g_mean, h_mean, metric
from gbm_constrained.solvers import Reduction


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
WITHOUT_GRADIENTS = {
    "xgboost": {"booster": "dart", "rate_drop": 0.3},
    "lightgbm": {"boosting_type": "dart"},
}


def case_of(library, case):
    options, n_boosters = CASES[case]
    others = WITHOUT_GRADIENTS[library] if case == "without gradients" else {}
    return functools.partial(make, library, **options, **others), n_boosters


@BOTH
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:measure_on='train'")
def test_an_interrupted_fit_gives_the_uninterrupted_model(library, case, tmp_path, trainings):
    """Interrupted as the second and the last booster are trained: the others are kept.

    The last booster is trained again with all of its stages.
    """
    path = tmp_path / "run.checkpoint"
    make_model, n_boosters = case_of(library, case)
    given = {"sensitive_features": GROUP, **quiet(library)}
    whole = make_model().fit(X, Y, **given)
    assert trainings.count == n_boosters
    of_last = STAGES if case.endswith("in stages") else 1
    for k, number in {(1, 2), (n_boosters - of_last, n_boosters)}:
        trainings.interrupt_at(number)
        with pytest.raises(Interruption):
            make_model().fit(X, Y, checkpoint=path, **given)
        assert path.exists()
        trainings.interrupt_at(None)
        resumed = make_model().fit(X, Y, checkpoint=path, **given)
        assert trainings.count == n_boosters - k
        assert not list(tmp_path.iterdir())
        assert_same(resumed, whole)


@BOTH
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


@BOTH
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


@BOTH
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
