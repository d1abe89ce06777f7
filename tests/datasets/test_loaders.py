"""The loaders: tables, places and messages. Nothing here uses the network."""

from __future__ import annotations

import io
import re
import shutil
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import sklearn.datasets
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch

from gbm_constrained import datasets

pytest.importorskip("pyarrow")

FILES = Path(__file__).parents[2] / "datasets"
BUNDLED = {
    "adult": datasets.load_adult,
    "communities_crime": datasets.load_communities_crime,
    "compas": datasets.load_compas,
    "credit_sample": datasets.load_credit,
}


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """The data home of scikit-learn is empty, and a download fails as it does offline."""

    def fail(*args, **kwargs):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    monkeypatch.setattr(urllib.request, "urlopen", fail)


@pytest.fixture(scope="module")
def full_credit():
    try:
        return datasets.load_credit(full=True, download=False)
    except FileNotFoundError as error:
        pytest.skip(f"optional data not present: {error}")


@pytest.fixture(scope="module")
def dry_bean():
    try:
        return datasets.load_dry_bean(download=False)
    except FileNotFoundError as error:
        pytest.skip(f"optional data not present: {error}")


def test_communities_crime():
    crime = datasets.load_communities_crime()
    assert crime.data.shape == (1994, 122)
    assert crime.target.name == "ViolentCrimesPerPop"
    assert crime.target.between(0, 1).all()
    assert crime.target.mean() == pytest.approx(0.238, abs=5e-4)
    assert "x127" not in crime.data
    for name, column in {"black": "x7", "hispanic": "x10"}.items():
        high = crime.sensitive_features[name] == "high"
        assert crime.data[column][high].min() > crime.data[column][~high].max()
        assert 0.4 < high.mean() <= 0.5
    # As is known of these data, and the reason for rules on groups.
    assert crime.target[crime.sensitive_features["black"] == "high"].mean() > 0.3


def test_adult():
    adult = datasets.load_adult()
    assert adult.data.shape == (48_842, 14)
    assert list(adult.data.columns) == adult.feature_names
    assert adult.target.dtype == "int64"
    assert adult.target.sum() == 11_687
    assert adult.split.value_counts().to_dict() == {"train": 32_561, "test": 16_281}
    assert adult.target[adult.split == "train"].sum() == 7_841
    assert list(adult.sensitive_features) == ["sex", "race"]
    assert adult.sensitive_features["sex"].value_counts()["Female"] == 16_192
    assert {"sex", "race"} <= set(adult.feature_names)
    text = adult.data.select_dtypes("category")
    assert text.shape[1] == 8
    assert adult.data.drop(columns=text.columns).dtypes.eq("int64").all()
    for name in text:
        assert list(text[name].cat.categories) == sorted(text[name].dropna().unique())
    missing = {"workclass": 2_799, "occupation": 2_809, "native-country": 857}
    assert text.isna().sum()[lambda n: n > 0].to_dict() == missing
    assert adult.frame.shape == (48_842, 16)
    assert "CC BY 4.0" in adult.DESCR


def test_compas_two_year_recid():
    compas = datasets.load_compas()
    assert compas.data.shape == (6_172, 9)
    assert compas.target.value_counts().to_dict() == {0: 3_363, 1: 2_809}
    assert compas.target.dtype == "int64"
    assert list(compas.sensitive_features) == ["race", "sex"]
    assert compas.sensitive_features["race"].value_counts()["African-American"] == 3_175
    leaks = {"is_recid", "decile_score", "score_text", "days_b_screening_arrest", "two_year_recid"}
    assert not leaks & set(compas.data)
    assert list(compas.data.index) == list(range(6_172))
    everyone = datasets.load_compas(standard_filter=False)
    assert everyone.data.shape == (7_214, 9)
    assert everyone.data.dtypes.equals(compas.data.dtypes)  # the filter keeps all categories
    personal = {"id", "name", "first", "last", "dob", "c_case_number"}
    assert not personal & set(everyone.frame)


@pytest.mark.parametrize("standard_filter", [True, False])
def test_compas_score_text_is_ordered(standard_filter):
    compas = datasets.load_compas(target="score_text", standard_filter=standard_filter)
    assert list(compas.target.cat.categories) == compas.target_names == ["Low", "Medium", "High"]
    assert compas.target.cat.ordered
    assert not compas.target.isna().any()
    if standard_filter:
        counts = {"Low": 3_421, "Medium": 1_607, "High": 1_144}
        assert compas.target.value_counts().to_dict() == counts


def test_compas_rejects_an_unknown_target():
    with pytest.raises(ValueError, match="target must be 'two_year_recid' or 'score_text'"):
        datasets.load_compas(target="is_recid")


def test_credit_sample():
    credit = datasets.load_credit()
    assert credit.data.shape == (40_492, 30)
    assert credit.data.dtypes.eq("float32").all()
    assert credit.target.value_counts().to_dict() == {0: 40_000, 1: 492}
    assert credit.target.dtype == "int64"
    assert credit.frame["Class"].dtype == "int8"
    assert credit.data["Time"].is_monotonic_increasing
    assert credit.sensitive_features is None
    assert "not verified" in credit.DESCR


def test_credit_full(full_credit):
    assert full_credit.data.shape == (284_807, 30)
    assert full_credit.data.dtypes.eq("float32").all()
    assert full_credit.target.sum() == 492


def test_dry_bean(dry_bean):
    assert dry_bean.data.shape == (13_611, 16)
    assert dry_bean.target_names == sorted(dry_bean.target_names)
    assert dry_bean.target.value_counts()["DERMASON"] == 3_546
    encoder = LabelEncoder().fit(dry_bean.target)
    assert list(encoder.classes_) == dry_bean.target_names
    assert dry_bean.sensitive_features is None


@pytest.mark.parametrize("name", BUNDLED)
def test_tables_are_independent_copies(name):
    first = BUNDLED[name]()
    n_values = first.target.nunique()
    first.frame.iloc[0, 0] = first.frame.iloc[1, 0]
    first.target.iloc[:] = 1
    assert BUNDLED[name]().target.nunique() == n_values > 1


@pytest.mark.parametrize("name", BUNDLED)
def test_places_are_tried_in_order(name, tmp_path, monkeypatch):
    """Each place wins over those after it: a broken file there is met, not passed over."""
    load, file = BUNDLED[name], f"{name}.parquet"
    given, environment = tmp_path / "given", tmp_path / "environment"
    monkeypatch.setenv("GBM_CONSTRAINED_DATA", str(environment))
    for place in (given, environment):
        place.mkdir()
        (place / file).write_bytes(b"broken")
    with pytest.raises(ValueError, match=re.escape(str(given / file))):
        load(data_home=given)
    with pytest.raises(ValueError, match=re.escape(str(environment / file))):
        load()
    (environment / file).unlink()
    bundled = load()
    shutil.copy(FILES / file, given / file)
    assert load(data_home=given).frame.equals(bundled.frame)


def test_data_home_without_the_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load_adult(data_home=tmp_path)
    for part in (str(tmp_path), "adult.parquet", "archive.ics.uci.edu"):
        assert part in str(caught.value)


@pytest.mark.parametrize("change", ["rows", "columns", "target"])
def test_another_table_is_refused(change, tmp_path):
    frame = pd.read_parquet(FILES / "adult.parquet")
    changed = {
        "rows": frame[:-1],
        "columns": frame.drop(columns="race"),
        "target": frame.rename(columns={"income": "wage"}),
    }[change]
    changed.to_parquet(tmp_path / "adult.parquet")
    with pytest.raises(ValueError, match="does not hold the expected table") as caught:
        datasets.load_adult(data_home=tmp_path)
    for part in (str(tmp_path / "adult.parquet"), str(changed.shape), "datasets/README.md"):
        assert part in str(caught.value)


def test_categories_are_sorted_however_they_are_stored(tmp_path):
    frame = pd.read_parquet(FILES / "adult.parquet").fillna("?")
    frame["race"] = pd.Categorical(frame["race"], frame["race"].unique()[::-1])
    frame.to_parquet(tmp_path / "adult.parquet", compression=None)
    other = datasets.load_adult(data_home=tmp_path).frame
    assert other.equals(datasets.load_adult().frame)


def test_download_of_dry_bean(monkeypatch, dry_bean):
    """The public archive is written anew; the second call reads what the first one kept."""
    varieties = ",".join(dry_bean.target_names[::-1])
    names = "".join(f"@ATTRIBUTE {name} REAL\n" for name in dry_bean.feature_names)
    rows = dry_bean.frame.to_csv(index=False, header=False, lineterminator="\n")
    text = f"@RELATION beans\n{names}@ATTRIBUTE Class {{{varieties}}}\n@DATA\n{rows}"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("DryBeanDataset/Dry_Bean_Dataset.arff", text)
    monkeypatch.delenv("GBM_CONSTRAINED_DATA")
    with monkeypatch.context() as online:
        online.setattr(
            urllib.request, "urlopen", lambda url, timeout: io.BytesIO(archive.getvalue())
        )
        downloaded = datasets.load_dry_bean()
    pd.testing.assert_frame_equal(downloaded.frame, dry_bean.frame)
    pd.testing.assert_frame_equal(datasets.load_dry_bean(download=False).frame, dry_bean.frame)


def test_download_of_credit(monkeypatch, full_credit):
    """OpenML ignores the column Time, and gives it last where it is the target."""

    def answer(*, data_id, target_column, **options):
        assert (data_id, target_column) == (1597, "Time")
        frame = full_credit.frame.astype("float64")
        frame["Class"] = pd.Categorical(full_credit.target.astype(str))
        return Bunch(frame=frame[[*frame.columns.drop("Time"), "Time"]])

    monkeypatch.delenv("GBM_CONSTRAINED_DATA")
    with monkeypatch.context() as online:
        online.setattr(sklearn.datasets, "fetch_openml", answer)
        downloaded = datasets.load_credit(full=True)
    assert downloaded.frame.equals(full_credit.frame)
    assert datasets.load_credit(full=True, download=False).frame.equals(full_credit.frame)


@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize(
    ("load", "file", "source"),
    [
        (lambda **options: datasets.load_credit(full=True, **options), "credit.parquet", "openml"),
        (datasets.load_dry_bean, "dry_bean.parquet", "archive.ics.uci.edu"),
    ],
)
def test_messages_say_which_file_to_put_where(load, file, source, download, monkeypatch):
    monkeypatch.delenv("GBM_CONSTRAINED_DATA", raising=False)
    with pytest.raises(OSError, match="failed" if download else "was not found") as caught:
        load(download=download)
    for part in (file, source, "GBM_CONSTRAINED_DATA", "data_home"):
        assert part in str(caught.value)


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    def read_parquet(path):
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd, "read_parquet", read_parquet)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install .gbm_constrained.datasets"):
        datasets.load_credit()


def test_the_recipe_of_the_sample_makes_the_file(tmp_path, monkeypatch, full_credit):
    section = (FILES / "README.md").read_text().partition("### credit_sample\n")[2]
    monkeypatch.chdir(tmp_path)
    exec(section.partition("```python\n")[2].partition("```")[0], {})
    made = datasets.load_credit(data_home=tmp_path).frame
    assert made.equals(datasets.load_credit().frame)
