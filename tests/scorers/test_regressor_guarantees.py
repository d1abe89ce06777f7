"""Guarantees of regressors of both libraries: rows set aside, reports and refusals."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from regressor_fits import EACH, REGRESSORS, fit, make_problem

import gbm_constrained as gc
from gbm_constrained.exceptions import InfeasibleConstraintsWarning

PROBLEM = make_problem(900)
LOSS = gc.mean_loss("absolute", range=(0, 20))
ABOVE = [gc.share_above(0.8) <= 0.3]
KILL = {"constraint_callbacks": [lambda state: pytest.fail("training has begun")]}
OPTIONS = {"guarantee": "high_probability", "delta": 0.1, "n_estimators": 20}


def certified(library, rules, problem=PROBLEM, **options):
    return fit(library, rules, problem, **{**OPTIONS, "measure_on": "holdout", **options})


@EACH
def test_the_certificate_is_that_of_rows_set_aside(library):
    model = certified(library, ABOVE)
    report = model.constraint_report_.iloc[0]
    assert report["rows"] == "certification"
    assert report["verdict"] == "met"
    found = model.feasibility_
    assert found.p_value <= found.level == 0.1
    assert found.n_rows == 180
    # Other rows are measured alike; the shares differ by chance alone.
    new = make_problem(5000, seed=1)
    assert np.mean(model.predict(new.X) > 0.8) == pytest.approx(report["held_out"], abs=0.12)
    assert np.mean(model.predict(new.X) > 0.8) <= 0.3


@EACH
def test_rows_set_aside_are_in_no_booster(library):
    """The latest rows are set aside, and other targets and features there leave all trees."""
    time = np.arange(900)
    late = time >= 720
    changed = make_problem(900)
    changed.X, changed.y = changed.X.copy(), changed.y.copy()
    changed.X[late] = 0.0
    changed.y[late] = 7.0
    never = [gc.share_above(1e6) <= 0.5]
    first, second = (
        certified(library, never, problem, given={"time": time}, measure_on="forward", n_folds=2)
        for problem in (PROBLEM, changed)
    )
    np.testing.assert_array_equal(first.predict(PROBLEM.X), second.predict(PROBLEM.X))


@EACH
def test_weights_data_sets_and_evaluation_sets(library, tmp_path):
    """Each constraint is certified on its own rows; a saved model keeps its report."""
    new = make_problem(400, seed=2)
    rules = [
        gc.each(LOSS, by="g") <= 12.0,
        gc.mean_prediction(range=(-20, 20), on=gc.dataset("new")) <= 12.0,
    ]
    given = {
        "sample_weight": np.where(np.arange(900) % 2, 1.0, 2.0),
        "datasets": {"new": new.X},
        "eval_set": [(new.X, new.y)],
        "sensitive_features_eval_set": [pd.DataFrame({"g": new.group})],
    }
    rules_of_rows = rules[:1]
    model = certified(library, rules, given={k: given[k] for k in ("sample_weight", "datasets")})
    assert model.feasibility_.p_value <= 0.1
    assert model.constraint_report_["rows"].tolist() == ["certification"] * 2
    del given["datasets"]
    model = certified(library, rules_of_rows, given=given)
    assert model.constraint_report_["rows"].tolist() == ["certification"]
    model.save_model(tmp_path / "model.json")
    loaded = REGRESSORS[library]()
    loaded.load_model(tmp_path / "model.json")
    assert loaded.get_params()["guarantee"] == "high_probability"
    assert loaded.constraints == rules_of_rows
    assert loaded.feasibility_.p_value == model.feasibility_.p_value


@EACH
def test_a_guarantee_that_is_not_given_is_named(library):
    rule = gc.mean_loss("absolute", range=(0, 6)) <= 0.8
    with pytest.warns(InfeasibleConstraintsWarning, match="Not certified: mean_loss") as caught:
        model = certified(library, [rule], delta=0.3)
    text = str(caught[0].message)
    assert "Of the maps of the scores none passes on 180 unseen rows (certification)" in text
    assert "error" not in text.partition("The model returned")[2]
    found = model.feasibility_
    assert found.p_value > found.level
    assert found.conflict == (rule,)
    assert str(model.constraint_report_["verdict"][0]) == "cannot be told"


@EACH
@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        (
            [gc.mean_loss() <= 3.0], {},
            "cannot be given for mean_loss(squared) <= 3: values of a row may be as large as they "
            "like. Give the smallest and the largest of them, as in mean_loss('squared', "
            "range=(0, 25))",
        ),
        (
            [gc.gap(gc.mean_prediction(), by="g") <= 1.0], {}, "values of a row may be as large",
        ),
        (ABOVE, {"guarantee": "expected"}, "Use guarantee='high_probability'"),
        (ABOVE, {"guarantee": "certain"}, "guarantee must be one of"),
        (ABOVE, {"measure_on": "train"}, "needs rows that the trees have not seen"),
        (
            [gc.share_above(0.8) <= 0.001], {},
            "even the best predictions of the 180 rows that calibration_fraction=0.2 sets aside "
            "leave a p-value of 0.84, above delta=0.1.",
        ),
        (
            [gc.mean_residual(range=(-9, 9)) <= 0.0, gc.mean_residual(range=(-9, 9)) >= 0.0], {},
            "even the best predictions",
        ),
        (
            [gc.mean_loss(range=(0, 9), weight="g") <= 3.0], {}, "give a cap that no row exceeds",
        ),
    ],
)  # fmt: skip
def test_what_no_row_can_certify_is_refused_before_training(library, rules, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        certified(library, rules, given=KILL, **options)


@EACH
def test_an_observed_value_outside_of_its_range_is_an_error(library):
    """The model is not fitted: the range is not what the user says it is."""
    rule = gc.mean_loss("absolute", range=(0, 2)) <= 1.9
    model = None
    message = r"states that the value of each row is from 0 to 2, and \d+ of \d+ unseen rows"
    with pytest.raises(ValueError, match=message):
        model = certified(library, [rule])
    assert model is None


@EACH
def test_training_rows_as_evaluation_set_are_refused(library):
    with pytest.raises(ValueError, match="eval_set holds the training rows"):
        certified(library, ABOVE, given={"eval_set": [(PROBLEM.X, PROBLEM.y)]})


@EACH
def test_groups_of_rows_are_refused(library):
    with pytest.raises(ValueError, match="counts rows as independent"):
        certified(library, ABOVE, given={"groups": np.arange(900) // 2})
