"""Options of solvers are objects that scikit-learn clones and sets through a classifier."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import ABPP, CBPR, AutoSolver

QUIET = {
    gc.ConstrainedXGBClassifier: {"n_estimators": 8, "n_jobs": 1},
    gc.ConstrainedLGBMClassifier: {"n_estimators": 8, "n_jobs": 1, "verbose": -1},
    gc.ConstrainedLogisticRegression: {"n_iterations": 20},
}
BOOSTERS = [gc.ConstrainedXGBClassifier, gc.ConstrainedLGBMClassifier]
OPTIONS = [
    "initial_multipliers", "mu", "outlier_clip", "proxy", "rounds_per_iteration", "sigma", "tau",
]  # fmt: skip
everywhere = pytest.mark.parametrize("kind", QUIET, ids=lambda kind: kind.__name__)


def parameter(kind):
    own = kind is gc.ConstrainedLogisticRegression
    return "constraint_solver" if own else "solver"


def make(kind, solver, **options):
    return kind(
        constraints=[gc.fnr() <= 0.1], **{parameter(kind): solver}, **QUIET[kind]
    ).set_params(**options)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    return X, (X["a"] + 0.5 * rng.normal(size=300) > 0.3).astype(int)


@everywhere
@pytest.mark.parametrize("method", [ABPP, CBPR, AutoSolver])
def test_options_are_cloned_and_set_through_the_classifier(kind, method):
    name = parameter(kind)
    model = make(kind, method(tau=2.0))
    assert model.get_params(deep=True)[f"{name}__tau"] == 2.0
    assert f"{name}__tau" not in model.get_params(deep=False)
    copy = clone(model)
    copy.set_params(**{f"{name}__tau": 3.0, f"{name}__proxy": "sigmoid"})
    assert (getattr(copy, name).tau, getattr(copy, name).proxy) == (3.0, "sigmoid")
    assert getattr(model, name).tau == 2.0  # the original's
    copy.set_params(**{name: method(mu=1.0), f"{name}__tau": 4.0})
    assert (getattr(copy, name).mu, getattr(copy, name).tau) == (1.0, 4.0)
    with pytest.raises(ValueError, match="Invalid parameter 'taus'"):
        copy.set_params(**{f"{name}__taus": 3.0})


@everywhere
@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_no_parameters_of_classifiers(kind, option):
    place = rf"has no parameter '{option}'.*{parameter(kind)}=ABPP\({option}=\.\.\.\)"
    with pytest.raises(TypeError, match=place):
        kind(**{option: 1})
    with pytest.raises(TypeError, match=place):
        kind().set_params(**{option: 1})


@pytest.mark.parametrize("kind", BOOSTERS)
@pytest.mark.parametrize("option", ["", "__tau"])
def test_boosters_refuse_the_name_of_the_linear_models_solver(kind, option):
    """Their libraries would take it for a parameter of theirs, and train without it."""
    place = rf"has no parameter 'constraint_solver{option}'.*: give solver{option}=\."
    for set_it in (kind, kind().set_params):
        with pytest.raises(TypeError, match=place):
            set_it(**{f"constraint_solver{option}": 2.0})


@pytest.mark.parametrize("solver", ["cbpr", "threshold", ABPP(tau=2.0)])
@pytest.mark.parametrize("constraints", [[], [gc.fnr() <= 0.3]])
def test_the_linear_model_refuses_solvers_in_the_place_of_its_parents(solver, constraints, rows):
    model = gc.ConstrainedLogisticRegression(constraints=constraints, solver=solver)
    with pytest.raises(ValueError, match=rf"give constraint_solver={re.escape(repr(solver))}\."):
        model.fit(*rows)


@everywhere
def test_the_form_of_errors_is_no_parameter_of_classifiers(kind):
    for set_it in (kind, kind().set_params):
        with pytest.raises(TypeError, match=r"'error_form': .* by constraints=as_log_loss\("):
            set_it(error_form="log_loss")


def test_the_linear_model_refuses_parameters_that_it_does_not_have():
    with pytest.raises(TypeError, match="has no parameter 'depth': it takes penalty, C"):
        gc.ConstrainedLogisticRegression(depth=3)


@everywhere
def test_a_name_has_no_options(kind):
    name = parameter(kind)
    with pytest.raises(TypeError, match=rf"{name}='abpp' has no options.*{name}=ABPP\(tau="):
        make(kind, "abpp").set_params(**{f"{name}__tau": 1.0})


@everywhere
@pytest.mark.parametrize("solver", ["admm", None, 3, ABPP])
def test_what_is_no_solver_is_refused(kind, solver, rows):
    with pytest.raises(ValueError, match=rf"{parameter(kind)} must be one of \['auto'"):
        make(kind, solver).fit(*rows)


@everywhere
@pytest.mark.parametrize(("name", "method"), [("abpp", ABPP), ("auto", AutoSolver)])
def test_a_name_is_the_object_with_defaults(kind, name, method, rows):
    scores = [make(kind, solver).fit(*rows).predict_proba(rows[0]) for solver in (name, method())]
    np.testing.assert_array_equal(*scores)


@everywhere
def test_a_fit_leaves_the_object_as_it_was_given(kind, rows):
    given = ABPP(rounds_per_iteration=4, initial_multipliers=[0.5])
    before = given.get_params()
    model = make(kind, given).fit(*rows)
    assert getattr(model, parameter(kind)) is given
    assert given.get_params() == before


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (CBPR(strength=-1.0), "strength must be a positive number or None, got -1.0"),
        (CBPR(inner_tol=None), "inner_tol must be a positive number, got None"),
        (CBPR(inner_iterations=0), "inner_iterations must be an integer >= 1, got 0"),
        (ABPP(proxy="hinge"), "proxy must be one of .*'hinge'"),
    ],
    ids=repr,
)
def test_options_are_checked(solver, message):
    with pytest.raises(ValueError, match=message):
        solver.check()


def test_a_search_over_options(rows):
    model = make(gc.ConstrainedLGBMClassifier, ABPP())
    search = GridSearchCV(model, {"solver__rounds_per_iteration": [1, 4]}, cv=2).fit(*rows)
    assert search.best_params_["solver__rounds_per_iteration"] in (1, 4)
    rounds = search.best_estimator_.history_["rounds"]
    assert rounds[1] == search.best_params_["solver__rounds_per_iteration"]


def compiled(rule):
    rows = Rows(np.arange(8) % 2, np.arange(2), None, {"g": np.arange(8) // 4})
    return compile_constraints([rule], rows)[1]


CONVEX = gc.fpr() <= 0.1
NOT_CONVEX = gc.gap(gc.log_loss(), by="g", min_group_size=1) <= 0.1


@pytest.mark.parametrize(
    ("method", "rule", "iterate", "reason"),
    [
        (ABPP(), CONVEX, "ergodic", None),
        (ABPP(), NOT_CONVEX, "last", "ABPP is for convex constraints"),
        (CBPR(), NOT_CONVEX, "last", None),
        (CBPR(), NOT_CONVEX, "ergodic", "iterate='ergodic' is an average that means nothing"),
        (AutoSolver(), CONVEX, "ergodic", None),
        (AutoSolver(), NOT_CONVEX, "last", None),
        (AutoSolver(), NOT_CONVEX, "ergodic", "iterate='ergodic' is an average that means"),
    ],
)
def test_methods_explain_what_they_do_not_support(method, rule, iterate, reason):
    found = method.supports(compiled(rule), iterate)
    assert found is None if reason is None else found.startswith(reason)
    if reason is None or isinstance(method, ABPP):  # ABPP also runs as a heuristic.
        method.check_problem(compiled(rule), iterate)
    else:
        with pytest.raises(ValueError, match=reason):
            method.check_problem(compiled(rule), iterate)


@pytest.mark.parametrize("solver", ["auto", "cbpr", CBPR()])
def test_averages_of_cbpr_are_refused_before_training(solver, rows):
    X, y = rows
    model = make(
        gc.ConstrainedLogisticRegression, solver, constraints=[NOT_CONVEX], iterate="ergodic"
    )
    with pytest.raises(ValueError, match=r"constraints that are not convex, which CBPR is for"):
        model.fit(X, y, sensitive_features={"g": np.arange(len(y)) % 2})


def test_auto_takes_the_method_that_fits_the_constraints(rows):
    X, y = rows
    groups = {"g": np.arange(len(y)) % 2}
    for rule, method in (
        (gc.gap(gc.log_loss(), by="g") <= 0.05, CBPR),
        (gc.gap(gc.fpr(), by="g") <= 0.05, ABPP),
    ):
        found = [
            make(gc.ConstrainedLGBMClassifier, solver, constraints=[rule], measure_on="train")
            .fit(X, y, sensitive_features=groups)
            .predict_proba(X)
            for solver in (AutoSolver(tau=2.0), method(tau=2.0))
        ]
        np.testing.assert_array_equal(*found)
