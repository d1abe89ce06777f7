"""Docstrings that share the descriptions of their parameters."""

import inspect
import re

import pytest

import gbm_constrained as gc
from gbm_constrained import presets


@pytest.mark.parametrize("function", [gc.fpr, gc.cost, presets.EqualizedOdds, presets.GroupAUC])
def test_shared_parameters_stand_in_the_order_of_the_signature(function):
    text = function.__doc__
    assert text == inspect.cleandoc(text)
    names = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
    assert names[0] == "Parameters"
    assert len(set(names)) == len(names)
    section = re.split(r"\n\n\w+\n-+\n", text)[1]
    described = re.findall(r"^(\w+) : ", section, re.MULTILINE)
    assert described == list(inspect.signature(function).parameters)


def test_options_of_comparisons_are_described_together():
    described = re.findall(r"^(\w+) : ", gc.gap.__doc__, re.MULTILINE)
    assert described[-4:] == ["by", "missing", "min_group_size", "small_groups"]
