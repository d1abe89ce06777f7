"""Where gradients beside XGBoost are computed."""

import warnings

import numpy as np
import pytest

from gbm_constrained.data.cells import find_cupy
from gbm_constrained.scorers.xgboost.parameters import choose_array_module, kernel_options

without_card = pytest.mark.skipif(find_cupy() is not None, reason="there is a graphics card")


@pytest.mark.parametrize("device", [None, "cpu", "sycl"])
def test_the_processor_computes_by_numpy(device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_array_module(device, 1) is np


@without_card
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu"])
def test_without_cupy_a_warning_names_what_to_install(device):
    with pytest.warns(UserWarning, match="install CuPy.*GC308"):
        assert choose_array_module(device, None) is np


@without_card
def test_a_silent_booster_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_array_module("cuda", 0) is np


def test_threads_are_those_of_the_native_parameters():
    """``nthread`` of keyword arguments comes before ``n_jobs``."""
    assert kernel_options({"n_jobs": 1}, 1)["n_threads"] == 1
    assert kernel_options({"n_jobs": None, "nthread": 1}, 1)["n_threads"] == 1


@pytest.mark.skipif(find_cupy() is None, reason="there is no graphics card, or no CuPy")
def test_a_card_that_cupy_does_not_use_is_left_to_xgboost():
    assert choose_array_module("cuda", 1) is find_cupy()
    with pytest.warns(UserWarning, match="make card 7 the current one"):
        assert choose_array_module("cuda:7", 1) is np
