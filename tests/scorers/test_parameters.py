"""Every parameter of the parents is accounted for.

The names are those of the installed libraries. Each is in a table here: with a value under which
a fit whose constraint never binds equals the parent's own, as refused with a reason, or as having
no meaning for a classifier. A new version of a library that adds one fails a test.
"""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import PARENTS
from lightgbm.basic import _ConfigAliases
from parent_pairs import (
    ALWAYS,
    NEVER_BINDS,
    OWN,
    X,
    Y,
    assert_alike,
    assert_same_results,
    evaluated,
    fitted_pair,
)
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.fit.options import SOLVER_PARAMETERS, check_spelling
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.scorers.lightgbm.parameters import ALIASES

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


# --- constructor parameters ---------------------------------------------------------------------


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_constructor_parameter_is_known(library):
    parents = set(PARENTS[library]().get_params())
    assert parents == set(CONSTRUCTOR[library]), "classify what the new version adds or drops"
    added = set(OWN[library]().get_params()) - parents
    of_classifiers = set(SOLVER_PARAMETERS) - {"group_shifts"}  # Regressors have that one.
    assert added == of_classifiers, "ours, each with its tests"


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
        ("measured_on", "measure_on"), ("on_infeasable", "on_infeasible"),
        ("constraints__bound", "constraints"), ("constraints__0__bound", "constraints"),
    ],
)  # fmt: skip
def test_parameters_of_ours_that_are_misspelt(library, given, wrong, right):
    """The libraries would hand them on, and train without the constraint."""
    clf = OWN[library](**given, **{wrong: NEVER_BINDS}, **ALWAYS[library])
    with pytest.raises(TypeError, match=f"no parameter '{wrong}': did you mean {right}=?"):
        clf.fit(X, Y)
    right_ones = OWN[library](**ALWAYS[library]).set_params(
        constraints=NEVER_BINDS, measure_on=gc.CrossFit(2)
    )
    assert hasattr(right_ones.fit(X, Y), "multipliers_")


def test_no_parameter_of_the_libraries_counts_as_misspelt():
    names = _ConfigAliases._get_all_param_aliases()
    names = {*names, *(alias for group in names.values() for alias in group)}
    early = {"early_stopping_round", *ALIASES["early_stopping_round"]}
    check_spelling(gc.ConstrainedLGBMClassifier(), names, early)
    of_the_booster = {
        "alpha", "eta", "extmem_single_page", "feature_selector", "huber_slope", "lambda",
        "max_cached_hist_node", "normalize_type", "nthread", "num_class", "one_drop",
        "process_type", "quantile_alpha", "rate_drop", "refresh_leaf", "sample_type", "seed",
        "seed_per_iteration", "skip_drop", "top_k", "updater",
    }  # fmt: skip
    check_spelling(gc.ConstrainedXGBClassifier(), of_the_booster)


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
    own = gc.ConstrainedLGBMClassifier(
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
        ({"boosting_type": "RF", "solver": "abpp"}, "solver='abpp'.*boosting_type='rf'"),
        ({"sigmoid": "2"}, "sigmoid=2.0 belongs to LightGBM's own objective"),
        ({"scale_pos_weight": "much"}, "scale_pos_weight must be a number, got 'much'"),
        ({"n_estimators": "5"}, "n_estimators must be an integer >= 1, got '5'"),
    ],
)
def test_texts_are_refused_as_the_values_that_they_are(options, reason):
    clf = gc.ConstrainedLGBMClassifier(constraints=NEVER_BINDS, **options)
    with pytest.raises(ValueError, match=reason):
        clf.fit(X, Y)


@pytest.mark.parametrize("name", list(REFUSED_CORE))
def test_what_is_refused_of_lightgbms_core(name):
    value, reason = REFUSED_CORE[name]
    for alias in (name, *ALIASES.get(name, ())):
        clf = gc.ConstrainedLGBMClassifier(constraints=NEVER_BINDS, **{alias: value})
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
