"""The parents' whole surface: every parameter, argument, method and attribute is accounted for.

The names are asked of the installed libraries, and each must be in a table here: with a value
under which a fit whose rule never binds equals the parent's own, or as refused with a reason, or
as having no meaning for a classifier. A new version of a library that adds one fails a test.
"""

import copy
import inspect
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import PARENTS
from lightgbm.basic import _ConfigAliases
from sklearn.linear_model import LogisticRegression

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    error_rate,
    fpr,
)
from gbm_constrained.boosters.lightgbm.classifier import ALIASES
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.training.options import SOLVER_PARAMETERS, check_spelling

NEVER_BINDS = [error_rate() <= 1.0]
RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(400, 4)), RNG.integers(0, 4, 400)])
Y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * RNG.normal(size=400) > 0.5).astype(int)
HELD, LABELS = X[:100] + 0.1, Y[:100]
WEIGHT, START = RNG.exponential(size=400).round(2), RNG.normal(size=400)

OWN = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}
ALWAYS = {
    # Leaves of few rows have splits of equal gain, which single precision decides.
    "xgboost": {"n_estimators": 4, "n_jobs": 1, "verbosity": 0, "max_depth": 3},
    "lightgbm": {"n_estimators": 4, "n_jobs": 1, "verbose": -1},
}
TOLERANCE = {"xgboost": 5e-7, "lightgbm": 1e-12}

# A value of each constructor parameter, with others that let it do something.
CONSTRUCTOR = {
    "xgboost": {
        "base_score": 0.3,
        "booster": "gbtree",
        "callbacks": [xgb.callback.LearningRateScheduler(lambda epoch: 0.5 / (1 + epoch))],
        "colsample_bylevel": 0.5,
        "colsample_bynode": 0.5,
        "colsample_bytree": 0.5,
        "device": "cpu",
        "early_stopping_rounds": 1,
        "enable_categorical": True,
        "eval_metric": "error",
        "feature_types": ["q", "q", "q", "q", "int"],
        "feature_weights": ([1.0, 1.0, 0.1, 0.1, 3.0], {"colsample_bynode": 0.4}),
        "gamma": 1.0,
        "grow_policy": ("lossguide", {"max_leaves": 4}),
        "importance_type": "weight",
        "interaction_constraints": "[[0, 1], [2, 3, 4]]",
        "learning_rate": 0.05,
        "max_bin": 8,
        "max_cat_threshold": (1, {"feature_types": ["q"] * 4 + ["c"], "enable_categorical": True}),
        "max_cat_to_onehot": (1, {"feature_types": ["q"] * 4 + ["c"], "enable_categorical": True}),
        "max_delta_step": 0.1,
        "max_depth": 2,
        "max_leaves": 3,
        "min_child_weight": 8.0,
        "missing": 0.0,
        "monotone_constraints": (1, -1, 0, 0, 0),
        "multi_strategy": "multi_output_tree",
        "n_estimators": 2,
        "n_jobs": 2,
        "num_parallel_tree": (2, {"subsample": 0.5, "gamma": 1e-3}),
        "objective": "binary:logistic",
        "random_state": (3, {"subsample": 0.5}),
        "reg_alpha": 1.0,
        "reg_lambda": 9.0,
        "sampling_method": ("uniform", {"subsample": 0.5}),
        "scale_pos_weight": 2.0,
        "subsample": 0.5,
        "tree_method": "approx",
        "validate_parameters": True,
        "verbosity": 0,
    },
    "lightgbm": {
        "boosting_type": "goss",
        "class_weight": {0: 1.0, 1: 3.0},
        "colsample_bytree": 0.5,
        "importance_type": "gain",
        "learning_rate": 0.4,
        "max_depth": 2,
        "min_child_samples": 40,
        "min_child_weight": 9.0,
        "min_split_gain": 1.0,
        "n_estimators": 2,
        "n_jobs": 2,
        "num_leaves": 4,
        "objective": "binary",
        "random_state": (3, {"extra_trees": True}),
        "reg_alpha": 1.0,
        "reg_lambda": 9.0,
        "subsample": (0.5, {"subsample_freq": 1}),
        "subsample_for_bin": 50,
        "subsample_freq": (2, {"subsample": 0.5}),
    },
}

# Parameters of LightGBM's core, which the constructor takes as keyword arguments.
LIGHTGBM_CORE = {
    "bagging_fraction": (0.5, {"bagging_freq": 1}),
    "bagging_freq": (2, {"bagging_fraction": 0.5}),
    "bagging_seed": (7, {"bagging_fraction": 0.5, "bagging_freq": 1}),
    "bin_construct_sample_cnt": 50,
    "boost_from_average": False,
    "boosting": "goss",
    "cat_l2": (1.0, {"categorical_feature": [4]}),
    "cat_smooth": (1.0, {"categorical_feature": [4]}),
    "categorical_feature": [4],
    "cegb_penalty_feature_coupled": [0.1] * 5,
    "cegb_penalty_feature_lazy": [0.01] * 5,
    "cegb_penalty_split": 0.01,
    "cegb_tradeoff": (2.0, {"cegb_penalty_split": 0.01}),
    "data_random_seed": 5,
    "data_sample_strategy": "goss",
    "deterministic": True,
    "device_type": "cpu",
    "early_stopping_min_delta": (0.5, {"early_stopping_round": 1}),
    "early_stopping_round": 1,
    "enable_bundle": False,
    "extra_seed": (5, {"extra_trees": True}),
    "extra_trees": True,
    "feature_contri": [1.0, 0.5, 0.5, 0.5, 0.5],
    "feature_fraction": 0.5,
    "feature_fraction_bynode": 0.5,
    "feature_fraction_seed": (5, {"feature_fraction": 0.5}),
    "feature_pre_filter": False,
    "first_metric_only": (True, {"early_stopping_round": 1, "metric": ["auc", "binary_error"]}),
    "force_col_wise": True,
    "force_row_wise": True,
    "forcedbins_filename": "",
    "forcedsplits_filename": "",
    "histogram_pool_size": 10.0,
    "interaction_constraints": [[0, 1], [2, 3, 4]],
    "is_enable_sparse": False,
    "is_unbalance": True,
    "lambda_l1": 1.0,
    "lambda_l2": 9.0,
    "learning_rate": 0.4,
    "linear_lambda": (0.5, {"linear_tree": True}),
    "linear_tree": True,
    "max_bin": 8,
    "max_bin_by_feature": [8, 9, 10, 11, 4],
    "max_cat_threshold": (1, {"categorical_feature": [4]}),
    "max_cat_to_onehot": (1, {"categorical_feature": [4]}),
    "max_delta_step": 0.1,
    "max_depth": 2,
    "metric": ["auc", "binary_logloss"],
    "min_data_in_bin": 30,
    "min_data_in_leaf": 40,
    "min_data_per_group": (5, {"categorical_feature": [4]}),
    "min_gain_to_split": 1.0,
    "min_sum_hessian_in_leaf": 9.0,
    "monotone_constraints": [1, -1, 0, 0, 0],
    "monotone_constraints_method": ("advanced", {"monotone_constraints": [1, -1, 0, 0, 0]}),
    "monotone_penalty": (1.0, {"monotone_constraints": [1, -1, 0, 0, 0]}),
    "num_grad_quant_bins": (8, {"use_quantized_grad": True}),
    "num_iterations": 2,
    "num_leaves": 4,
    "num_threads": 2,
    "objective": "binary",
    "other_rate": (0.2, {"data_sample_strategy": "goss"}),
    "path_smooth": 2.0,
    "quant_train_renew_leaf": (True, {"use_quantized_grad": True}),
    "saved_feature_importance_type": 1,
    "scale_pos_weight": 2.0,
    "seed": (3, {"extra_trees": True}),
    "stochastic_rounding": (False, {"use_quantized_grad": True}),
    "top_rate": (0.4, {"data_sample_strategy": "goss"}),
    "tree_learner": "serial",
    "use_missing": False,
    "use_quantized_grad": True,
    "verbosity": -1,
    "zero_as_missing": True,
}
# Shown elsewhere: test_multi_error_of_several_ranks, for it needs several classes.
OF_SEVERAL_CLASSES = {"multi_error_top_k", "num_class", "auc_mu_weights"}
REFUSED_CORE = {
    "sigmoid": (2.0, "belongs to LightGBM's own objective"),
    "pos_bagging_fraction": (0.5, "belongs to LightGBM's own objective"),
    "neg_bagging_fraction": (0.5, "belongs to LightGBM's own objective"),
    "num_machines": (2, "the multipliers would go apart"),
    "machines": ("10.0.0.1:1", "the multipliers would go apart"),
}
# About DART, which is refused.
OF_DART = {
    "drop_rate", "drop_seed", "max_drop", "skip_drop", "uniform_drop", "xgboost_dart_mode",
}  # fmt: skip
# About regression and ranking, files and the command line, other machines and graphics cards,
# predictions from files: nothing that the classifier's ``fit`` would look at.
OF_OTHER_OBJECTIVES = {
    "alpha", "bagging_by_query", "eval_at", "fair_c", "label_gain", "lambdarank_norm",
    "lambdarank_position_bias_regularization", "lambdarank_truncation_level", "objective_seed",
    "poisson_max_delta_step", "reg_sqrt", "tweedie_variance_power",
}  # fmt: skip
OF_THE_COMMAND_LINE = {
    "config", "convert_model", "convert_model_language", "data", "group_column", "header",
    "ignore_column", "input_model", "is_provide_training_metric", "label_column", "metric_freq",
    "num_iteration_predict", "output_model", "output_result", "parser_config_file",
    "pre_partition", "precise_float_parser", "predict_contrib", "predict_leaf_index",
    "predict_raw_score", "refit_decay_rate", "save_binary", "snapshot_freq",
    "start_iteration_predict", "task", "two_round", "valid", "weight_column",
}  # fmt: skip
OF_OTHER_MACHINES = {
    "gpu_device_id", "gpu_device_id_list", "gpu_platform_id", "gpu_use_dp", "local_listen_port",
    "machine_list_filename", "num_gpu", "time_out", "top_k",
}  # fmt: skip
# Looked at by ``predict``, which is the parent's.
OF_PREDICTIONS = {
    "pred_early_stop", "pred_early_stop_freq", "pred_early_stop_margin",
    "predict_disable_shape_check",
}  # fmt: skip


def unpacked(entry):
    value, more = (
        entry if isinstance(entry, tuple) and isinstance(entry[-1], dict) else (entry, {})
    )
    return value, more


def fitted_pair(library, options, X=X, y=Y, **arguments):
    """The parent, and ours with a rule that never binds, measured on rows not seen."""
    options = {**ALWAYS[library], **options}
    models = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*deprecated")  # both by the parent
        for cls, more in (
            (PARENTS[library], {}),
            (OWN[library], {"constraints": NEVER_BINDS, "n_folds": 2}),
        ):
            models.append(cls(**options, **more).fit(X, y, **arguments))
    assert hasattr(models[1], "multipliers_")
    return models


def evaluated(library):
    return {
        "eval_set": [(HELD, LABELS)],
        **({"verbose": False} if library == "xgboost" else {}),
    }


def results_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return (
            {k: dict(v) for k, v in model.evals_result().items()} if model.evals_result() else {}
        )
    return {k: dict(v) for k, v in model.evals_result_.items()}


def assert_alike(library, own, parent, X=X):
    np.testing.assert_allclose(
        own.predict_proba(X), parent.predict_proba(X), rtol=0, atol=TOLERANCE[library]
    )
    np.testing.assert_array_equal(own.predict(X), parent.predict(X))


def assert_same_results(own, parent):
    assert results_of(own).keys() == results_of(parent).keys()
    for data, metrics in results_of(parent).items():
        assert list(results_of(own)[data]) == list(metrics)
        for name, values in metrics.items():
            np.testing.assert_allclose(results_of(own)[data][name], values, rtol=1e-5, atol=1e-6)


# --- constructor parameters ---------------------------------------------------------------------


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_constructor_parameter_is_known(library):
    parents = set(PARENTS[library]().get_params())
    assert parents == set(CONSTRUCTOR[library]), "classify what the new version adds or drops"
    added = set(OWN[library]().get_params()) - parents
    assert added == set(SOLVER_PARAMETERS), "ours, each with its tests"


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, table in CONSTRUCTOR.items() for name in table]
)
def test_constructor_parameters_work_as_in_the_parent(library, name):
    value, more = unpacked(CONSTRUCTOR[library][name])
    parent, own = fitted_pair(library, {**more, name: value}, **evaluated(library))
    assert_alike(library, own, parent)
    assert_same_results(own, parent)
    np.testing.assert_allclose(
        own.feature_importances_, parent.feature_importances_, rtol=1e-4, atol=1e-6
    )


def test_every_parameter_of_lightgbms_core_is_known():
    known = [
        set(LIGHTGBM_CORE), set(REFUSED_CORE), OF_SEVERAL_CLASSES, OF_OTHER_OBJECTIVES,
        OF_THE_COMMAND_LINE, OF_OTHER_MACHINES, OF_PREDICTIONS, OF_DART,
    ]  # fmt: skip
    assert sum(map(len, known)) == len(set().union(*known)), "each in one table"
    found = set(_ConfigAliases._get_all_param_aliases())
    assert found - set().union(*known) == set(), "classify what the new version adds"


@pytest.mark.parametrize("library", list(PARENTS))
@pytest.mark.parametrize("given", [{}, {"constraints": NEVER_BINDS}])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("constraint", "constraints"), ("contraints", "constraints"), ("guarante", "guarantee"),
        ("measured_on", "measure_on"), ("on_infeasable", "on_infeasible"), ("n_fold", "n_folds"),
        ("constraints__bound", "constraints"), ("constraints__0__bound", "constraints"),
    ],
)  # fmt: skip
def test_parameters_of_ours_that_are_misspelt(library, given, wrong, right):
    """The libraries would hand them on, and train without the rule."""
    clf = OWN[library](**given, **{wrong: NEVER_BINDS}, **ALWAYS[library])
    with pytest.raises(TypeError, match=f"no parameter '{wrong}': did you mean {right}=?"):
        clf.fit(X, Y)
    right_ones = OWN[library](**ALWAYS[library]).set_params(constraints=NEVER_BINDS, n_folds=2)
    assert hasattr(right_ones.fit(X, Y), "multipliers_")


def test_no_parameter_of_the_libraries_counts_as_misspelt():
    names = _ConfigAliases._get_all_param_aliases()
    names = {*names, *(alias for group in names.values() for alias in group)}
    early = {"early_stopping_round", *ALIASES["early_stopping_round"]}
    check_spelling(ConstrainedLGBMClassifier(), names, early)
    of_the_booster = {
        "alpha", "eta", "extmem_single_page", "feature_selector", "huber_slope", "lambda",
        "max_cached_hist_node", "normalize_type", "nthread", "num_class", "one_drop",
        "process_type", "quantile_alpha", "rate_drop", "refresh_leaf", "sample_type", "seed",
        "seed_per_iteration", "skip_drop", "top_k", "updater",
    }  # fmt: skip
    check_spelling(ConstrainedXGBClassifier(), of_the_booster)


def test_other_names_of_parameters_are_all_known():
    for name, aliases in ALIASES.items():
        assert {name, *aliases} == set(_ConfigAliases.get(name)), name


def test_no_parameter_of_lightgbm_takes_the_place_of_a_method():
    """LightGBM sets ``_name``, too, where there is one."""
    names = _ConfigAliases._get_all_param_aliases()
    names = {*names, *(alias for group in names.values() for alias in group)}
    assert not [name for name in names if callable(getattr(OWN["lightgbm"], f"_{name}", None))]


@pytest.mark.filterwarnings("ignore:Found")  # the parent says which name it takes
@pytest.mark.parametrize("name", ["metric", *ALIASES["metric"]])
def test_other_names_of_the_metric(name):
    parent, own = fitted_pair("lightgbm", {name: ["auc", "l2"]}, **evaluated("lightgbm"))
    assert_same_results(own, parent)


@pytest.mark.parametrize("eval_metric", [None, "auc", "None"])
@pytest.mark.parametrize("metric", [None, "", [], [None], [""], "None"])
def test_metrics_without_a_name_are_that_of_the_objective(metric, eval_metric):
    given = {**evaluated("lightgbm"), "eval_metric": eval_metric}
    parent, own = fitted_pair("lightgbm", {"metric": metric}, **given)
    assert_same_results(own, parent)


@pytest.mark.parametrize("name", list(LIGHTGBM_CORE))
def test_parameters_of_lightgbms_core_work_as_in_the_parent(name):
    value, more = unpacked(LIGHTGBM_CORE[name])
    options = {**more, name: value}
    arguments = {}
    if "categorical_feature" in options:
        arguments["categorical_feature"] = options.pop("categorical_feature")
    parent, own = fitted_pair("lightgbm", options, **arguments, **evaluated("lightgbm"))
    assert_alike("lightgbm", own, parent)
    assert_same_results(own, parent)


@pytest.mark.filterwarnings("ignore:Found")  # the parent says which name it takes
@pytest.mark.parametrize("name", ALIASES["objective"])
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_other_names_of_the_objective(name, measure_on):
    """LightGBM takes them before the objective itself, which the solver is while it trains."""
    parent = lgb.LGBMClassifier(**ALWAYS["lightgbm"], **{name: "binary"}).fit(X, Y)
    own = ConstrainedLGBMClassifier(
        constraints=NEVER_BINDS, measure_on=measure_on, **ALWAYS["lightgbm"], **{name: "binary"}
    )
    for _ in range(2):  # the fit has left all parameters as they were
        own.fit(X, Y)
        assert_alike("lightgbm", own, parent)
        assert own.objective_ == parent.objective_
        assert own.get_params()[name] == "binary"
    refused = own.set_params(**{name: "poisson"})
    with pytest.raises(ValueError, match="objective='poisson' cannot be trained"):
        refused.fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [
        {"is_unbalance": "false"},
        {"is_unbalance": "+"},
        {"boost_from_average": "-"},
        {"boosting_type": "GOSS"},
        {"objective": "Binary"},
        {"boosting": "Gbdt", "linear_tree": "FALSE"},
        {"scale_pos_weight": "2.0"},
        {"sigmoid": "1", "num_class": "1", "num_machines": "1"},
        {"verbose": "-1"},
    ],
)
def test_texts_are_values_as_lightgbm_reads_them(options):
    parent, own = fitted_pair("lightgbm", options, **evaluated("lightgbm"))
    assert_alike("lightgbm", own, parent)
    assert_same_results(own, parent)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"boosting_type": "RF"}, "boosting_type='rf' cannot be trained"),
        ({"sigmoid": "2"}, "sigmoid=2.0 belongs to LightGBM's own objective"),
        ({"scale_pos_weight": "much"}, "scale_pos_weight must be a number, got 'much'"),
        ({"n_estimators": "5"}, "n_estimators must be an integer >= 1, got '5'"),
    ],
)
def test_texts_are_refused_as_the_values_that_they_are(options, reason):
    clf = ConstrainedLGBMClassifier(constraints=NEVER_BINDS, **options)
    with pytest.raises(ValueError, match=reason):
        clf.fit(X, Y)


def test_objectives_of_another_number_of_classes():
    several = np.digitize(X[:, 0], [-0.5, 0.5])
    for cls, more in ((lgb.LGBMClassifier, {}), (OWN["lightgbm"], {"constraints": NEVER_BINDS})):
        for objective, y in (("binary", several), ("multiclass", Y), ("Softmax", Y)):
            with pytest.raises(lgb.basic.LightGBMError):
                cls(objective=objective, **more).fit(X, y)
    for name in ("num_class", "num_classes"):
        wrong = ConstrainedLGBMClassifier(
            constraints=NEVER_BINDS, objective="multiclass", **{name: 2}
        )
        with pytest.raises(ValueError, match="num_class=2 cannot be trained under constraints"):
            wrong.fit(X, Y)
    for objective in ("multi:softprob", "multi:softmax"):
        wrong = ConstrainedXGBClassifier(constraints=NEVER_BINDS, objective=objective, num_class=2)
        with pytest.raises(ValueError, match="num_class=2 cannot be trained under constraints"):
            wrong.fit(X, Y)


@pytest.mark.parametrize("name", list(REFUSED_CORE))
def test_what_is_refused_of_lightgbms_core(name):
    value, reason = REFUSED_CORE[name]
    for alias in (name, *ALIASES.get(name, ())):
        clf = ConstrainedLGBMClassifier(constraints=NEVER_BINDS, **{alias: value})
        with pytest.raises(ValueError, match=reason):
            clf.fit(X, Y)


def test_every_parameter_of_the_linear_parent_is_known():
    """What these do is shown in test_logistic.py, the refused ones too."""
    works = {
        "C", "class_weight", "fit_intercept", "max_iter", "n_jobs", "random_state", "tol",
        "verbose", "solver", "warm_start",
    }  # fmt: skip
    refused = {"dual", "intercept_scaling", "l1_ratio", "penalty"}
    own = set(ConstrainedLogisticRegression().get_params())
    parents = set(LogisticRegression().get_params())
    assert parents - {"multi_class"} == works | refused, "classify what the new version adds"
    of_the_solver = {*SOLVER_PARAMETERS, "n_iterations", "constraint_solver"}
    assert own - parents <= of_the_solver


# --- arguments of fit ---------------------------------------------------------------------------

EVALUATED = {"eval_set": [(X, Y), (HELD, LABELS)]}
FIT = {
    "xgboost": {
        "sample_weight": {"sample_weight": WEIGHT},
        "base_margin": {"base_margin": START},
        "eval_set": EVALUATED,
        "verbose": {**EVALUATED, "verbose": 2},
        "xgb_model": {"xgb_model": xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, Y)},
        "sample_weight_eval_set": {**EVALUATED, "sample_weight_eval_set": [WEIGHT, WEIGHT[:100]]},
        "base_margin_eval_set": {
            **EVALUATED, "base_margin": START, "base_margin_eval_set": [START, START[:100]],
        },
        "feature_weights": {"feature_weights": np.array([1.0, 1.0, 0.1, 0.1, 3.0])},
    },
    "lightgbm": {
        "sample_weight": {"sample_weight": WEIGHT},
        "init_score": {"init_score": START},
        "eval_set": EVALUATED,
        "eval_names": {**EVALUATED, "eval_names": ["mine", "theirs"]},
        "eval_sample_weight": {**EVALUATED, "eval_sample_weight": [WEIGHT, WEIGHT[:100]]},
        "eval_class_weight": {**EVALUATED, "eval_class_weight": [None, {0: 1.0, 1: 5.0}]},
        "eval_init_score": {"eval_set": [(HELD, LABELS)], "eval_init_score": [START[:100]]},
        "eval_metric": {**EVALUATED, "eval_metric": ["auc", "error"]},
        "feature_name": {"feature_name": ["a", "b", "c", "d", "e"]},
        "categorical_feature": {"categorical_feature": [4]},
        "callbacks": {**EVALUATED, "callbacks": [
            lgb.reset_parameter(learning_rate=[0.5, 0.4, 0.3, 0.2]),
            lgb.early_stopping(2, verbose=False),
        ]},
        "init_model": {"init_model": lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y)},
        "eval_X": {"eval_X": (HELD,), "eval_y": (LABELS,)},
        "eval_y": {"eval_X": (HELD,), "eval_y": (LABELS,)},
    },
}  # fmt: skip
OUR_ARGUMENTS = {
    "sensitive_features", "datasets", "sensitive_features_eval_set", "groups",
    "constraint_callbacks", "checkpoint", "time_limit",
}  # fmt: skip


def arguments_of(method):
    return {
        name for name in inspect.signature(method).parameters if name not in ("self", "X", "y")
    }


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_argument_of_fit_is_known(library):
    parents = arguments_of(PARENTS[library].fit)
    assert parents <= set(FIT[library]), "classify what the new version adds"
    assert arguments_of(OWN[library].fit) == set(FIT[library]) | OUR_ARGUMENTS
    linear = arguments_of(ConstrainedLogisticRegression.fit)
    assert linear - arguments_of(LogisticRegression.fit) <= OUR_ARGUMENTS


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, table in FIT.items() for name in table]
)
def test_arguments_of_fit_work_as_in_the_parent(library, name, capfd):
    if name not in arguments_of(PARENTS[library].fit):
        pytest.skip(f"this version of {library} has no {name}")
    given = FIT[library][name]
    options = {"colsample_bynode": 0.4} if name == "feature_weights" else {}
    parent, own = fitted_pair(library, options, **given)
    assert_alike(library, own, parent)
    if "eval_set" in given or "eval_X" in given:
        assert_same_results(own, parent)
    if name == "verbose":
        printed = capfd.readouterr().out.splitlines()
        half = len(printed) // 2
        assert half > 1
        assert printed[:half] == printed[half:], "the rounds and metrics that the parent prints"
    if library == "lightgbm":
        assert own.booster_.feature_name() == parent.booster_.feature_name()


@pytest.mark.skipif("eval_X" not in arguments_of(lgb.LGBMClassifier.fit), reason="new in 4.7")
@pytest.mark.parametrize("first", [True, False])
def test_training_rows_among_the_tables_of_eval_x(first):
    """LightGBM reads them once more, where it knows those of ``eval_set``."""
    sets = [(X, Y), (HELD, LABELS)] if first else [(HELD, LABELS), (X, Y)]
    eval_X, eval_y = zip(*sets, strict=True)
    parent, own = fitted_pair("lightgbm", {}, eval_X=eval_X, eval_y=eval_y)
    assert_alike("lightgbm", own, parent)
    assert_same_results(own, parent)
    decided = np.mean(own.predict(HELD) != LABELS)
    assert own.constraint_report_.held_out[0] == pytest.approx(decided)


# --- methods and attributes ---------------------------------------------------------------------

METHODS = {
    "xgboost": {
        "apply": lambda m: m.apply(X),
        "evals_result": lambda m: results_of(m)["validation_0"]["logloss"],
        "get_booster": lambda m: m.get_booster().num_boosted_rounds(),
        "get_num_boosting_rounds": lambda m: m.get_num_boosting_rounds(),
        "get_xgb_params": lambda m: sorted(m.get_xgb_params()),
        "predict": lambda m: m.predict(X, output_margin=True, iteration_range=(0, 2)),
        "predict_proba": lambda m: m.predict_proba(X, base_margin=START),
        "score": lambda m: m.score(X, Y, sample_weight=WEIGHT),
    },
    "lightgbm": {
        "decision_function": lambda m: m.decision_function(X),
        "predict": lambda m: m.predict(X, pred_leaf=True, start_iteration=1, num_iteration=2),
        "predict_proba": lambda m: m.predict_proba(X, pred_contrib=True),
        "score": lambda m: m.score(X, Y, sample_weight=WEIGHT),
    },
}
OUR_METHODS = {"save_model", "load_model"}  # which XGBoost has, and LightGBM has not
# Shown elsewhere: files in test_native.py and test_saving.py, parameters in test_estimators.py,
# and routing in test_drop_in.py.
ELSEWHERE = {"fit", "get_params", "set_params", "save_model", "load_model", "get_metadata_routing"}
ATTRIBUTES = {
    "xgboost": {
        "best_iteration", "best_score", "classes_", "coef_", "feature_importances_",
        "feature_names_in_", "intercept_", "n_classes_", "n_features_in_",
    },
    "lightgbm": {
        "best_iteration_", "best_score_", "booster_", "classes_", "evals_result_",
        "feature_importances_", "feature_name_", "feature_names_in_", "fitted_", "n_classes_",
        "n_estimators_", "n_features_", "n_features_in_", "n_iter_", "objective_",
    },
}  # fmt: skip
OUR_ATTRIBUTES = {
    "constraint_report_", "feasibility_", "group_report_", "history_", "multipliers_", "shift_",
    "small_groups_", "stopping_message_", "unseen_accuracy_",
}  # fmt: skip


def public_methods(cls):
    return {
        name for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and not name.endswith("_request")
    }  # fmt: skip


@pytest.fixture(scope="module")
def stopped():
    """Both libraries, stopped early on frames: every attribute then has something to say."""
    pairs = {}
    frame, held = (pd.DataFrame(rows, columns=list("abcde")) for rows in (X, HELD))
    for library in PARENTS:
        stopping = {"early_stopping_rounds" if library == "xgboost" else "early_stopping_round": 2}
        options = {**stopping, "n_estimators": 40, "learning_rate": 0.5}
        given = {**evaluated(library), "eval_set": [(held, LABELS)]}
        pairs[library] = fitted_pair(library, options, X=frame, **given)
    return pairs


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_method_is_known(library):
    parents = public_methods(PARENTS[library])
    assert parents <= set(METHODS[library]) | ELSEWHERE, "classify what the new version adds"
    assert public_methods(OWN[library]) == parents | OUR_METHODS


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, table in METHODS.items() for name in table]
)
def test_methods_answer_as_in_the_parent(library, name):
    if not hasattr(PARENTS[library], name):
        pytest.skip(f"this version of {library} has no {name}")
    parent, own = fitted_pair(library, {}, **evaluated(library))
    found, expected = METHODS[library][name](own), METHODS[library][name](parent)
    if name == "get_xgb_params":
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_attribute_is_known(library, stopped):
    parent, own = stopped[library]
    properties = {
        name for name, value in inspect.getmembers(PARENTS[library])
        if isinstance(value, property) and not name.startswith("_")
    }  # fmt: skip
    fitted = {n for n in vars(parent) if n.endswith("_") and not n.startswith("_")}
    fitted -= {"evals_result_"}  # of XGBoost: what evals_result() returns
    assert properties | fitted <= ATTRIBUTES[library], "classify what the new version adds"
    ours = {n for n in vars(own) if n.endswith("_") and not n.startswith("_")} - set(vars(parent))
    assert ours == OUR_ATTRIBUTES


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, names in ATTRIBUTES.items() for name in sorted(names)]
)
def test_attributes_are_the_parents(library, name, stopped):
    parent, own = stopped[library]
    if (library, name) == ("xgboost", "feature_importances_"):  # the parent's are of all rounds
        parent = copy.copy(parent)
        parent._Booster = parent.get_booster()[: parent.best_iteration + 1]
    try:
        expected = getattr(parent, name)
    except AttributeError as refused:  # the parent's own word on it
        with pytest.raises(AttributeError, match=str(refused).replace("`", ".")[:40]):
            getattr(own, name)
        return
    found = getattr(own, name)
    if name == "booster_":
        found, expected = found.num_trees(), expected.num_trees()
    elif name in ("best_score_", "evals_result_"):
        found, expected = found["valid_0"], expected["valid_0"]
        assert list(found) == list(expected)
        found, expected = next(iter(found.values())), next(iter(expected.values()))
    if np.asarray(expected).dtype.kind in "OUS":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("constraints", [[], NEVER_BINDS])
def test_arguments_by_position_are_taken_as_in_the_parent(constraints):
    """XGBoost warns of them, LightGBM does not."""
    parent = xgb.XGBClassifier(**ALWAYS["xgboost"])
    own = ConstrainedXGBClassifier(constraints=constraints, n_folds=2, **ALWAYS["xgboost"])
    for model in (parent, own):
        with pytest.warns(FutureWarning, match="Pass `sample_weight, base_margin` as keyword"):
            assert model.fit(X, Y, WEIGHT, START) is model
    assert_alike("xgboost", own, parent)
    found = []
    for model in (parent, own):
        with pytest.warns(FutureWarning, match="Pass `output_margin` as keyword"):
            found.append(model.predict(X, True))
    np.testing.assert_allclose(*found, atol=1e-6)
    parent = lgb.LGBMClassifier(**ALWAYS["lightgbm"]).fit(X, Y, WEIGHT, START)
    own = ConstrainedLGBMClassifier(constraints=constraints, n_folds=2, **ALWAYS["lightgbm"])
    assert_alike("lightgbm", own.fit(X, Y, WEIGHT, START), parent)
    np.testing.assert_allclose(own.predict(X, True), parent.predict(X, True), atol=1e-12)


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


def test_scores_to_start_from_are_refused_where_they_have_no_meaning():
    """Rows of further data sets have none."""
    more = {"other": HELD}
    for cls, name in ((ConstrainedXGBClassifier, "base_margin"),
                      (ConstrainedLGBMClassifier, "init_score")):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} cannot be given together with datasets"):
            cls(constraints=[fpr() <= 0.1]).fit(X, Y, datasets=more, **{name: START})
