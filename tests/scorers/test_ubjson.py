"""Binary model files of XGBoost: read and written as XGBoost does, or refused."""

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from saved_models import table_of

from gbm_constrained.scorers.ubjson import read, write

X, Y = table_of("binary", np.random.default_rng(5))


def test_binary_models_are_read_and_written_and_every_cut_is_seen():
    options = {"n_estimators": 1, "max_depth": 2, "n_jobs": 1}
    for model in (
        xgb.XGBClassifier(booster="dart", **options).fit(X, Y),
        xgb.XGBClassifier(multi_strategy="multi_output_tree", **options).fit(X, Y + (X.a > 1)),
        xgb.XGBClassifier(booster="gblinear", n_estimators=1, n_jobs=1).fit(X, Y),
        xgb.XGBClassifier(enable_categorical=True, **options).fit(
            X.assign(a=pd.Categorical(np.where(X.a > 0, "x", "y"))), Y
        ),
    ):
        content = bytes(model.get_booster().save_raw("ubj"))
        assert write(read(content)) == content
        for cut in range(len(content)):
            with pytest.raises(ValueError, match="too early"):
                read(content[:cut])
        with pytest.raises(ValueError, match="1 bytes follow its end"):
            read(content + b"}")


def test_binary_models_of_many_rounds_are_written_as_xgboost_does():
    model = xgb.XGBClassifier(n_estimators=300, max_depth=1, n_jobs=1).fit(
        X.rename(columns={"a": "größe"}), Y
    )
    content = bytes(model.get_booster().save_raw("ubj"))
    assert write(read(content)) == content


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-(2**62), 2**62),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_values_in_ubjson_come_back(value):
    assert read(write(value)) == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{LL\0\0", "there should be a length|too early"),
        (b"{i\xff", "negative length"),
        (b"{i\x01a?}", "no value at byte 4"),
        (b"{i\x01a[$Z#L\x7f\0\0\0\0\0\0\0", "too early|no value"),
        (b"{i\x01a" * 70, "nested too deeply"),
        (b"[#i\x01" * 9999, "nested too deeply"),
        (b"[[", "there should be a length"),
    ],
)
def test_bytes_that_are_no_ubjson(content, message):
    with pytest.raises(ValueError, match=message):
        read(content)
