"""The loaders: tables, places, checks and messages. Nothing here uses the network."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import re
import shutil
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Bunch

from gbm_constrained.datasets import loaders as datasets

pytest.importorskip("pyarrow")

FILES = Path(__file__).parents[2] / "datasets"
LOADERS: dict[str, Callable[..., Bunch]] = {
    "adult": datasets.load_adult,
    "compas": datasets.load_compas,
    "credit_sample": datasets.load_credit,
}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch, tmp_path):
    """No user cache, and a download fails as it does offline."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _serve(monkeypatch, None)


def _serve(monkeypatch, source: Path | None) -> list[str]:
    """Stand in for pooch: `source` is what the network has, None when offline."""
    urls: list[str] = []

    def retrieve(url, known_hash, fname, path):
        urls.append(url)
        if source is None:
            raise ConnectionError("Name or service not known")
        return shutil.copy(source, Path(path) / fname)

    real = importlib.import_module
    fake = types.SimpleNamespace(retrieve=retrieve)
    monkeypatch.setattr(
        datasets.importlib,
        "import_module",
        lambda name, *args: fake if name == "pooch" else real(name, *args),
    )
    return urls


def _alone(monkeypatch):
    """Leave only the user cache and the network."""
    monkeypatch.delenv("GBM_CONSTRAINED_DATA", raising=False)
    monkeypatch.setattr(datasets, "_BUNDLED", ())


def _or_skip(load: Callable[[], Bunch]) -> Bunch:
    try:
        return load()
    except FileNotFoundError as error:
        pytest.skip(f"optional data not present: {error}")


@pytest.fixture
def full_credit() -> Bunch:
    return _or_skip(lambda: datasets.load_credit(full=True, download=False))


@pytest.fixture
def dry_bean() -> Bunch:
    return _or_skip(lambda: datasets.load_dry_bean(download=False))


# ------------------------------------------------------- the public files, written anew


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    text = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(text, object))


def _write_adult(folder: Path) -> Path:
    frame = _plain(datasets.load_adult().frame).fillna("?")
    parts = {}
    for split, dot in (("train", ""), ("test", ".")):
        rows = frame[frame["split"] == split].drop(columns="split")
        rows["income"] += dot
        parts[split] = "\n".join(", ".join(map(str, row)) for row in rows.to_numpy()) + "\n\n"
    with zipfile.ZipFile(folder / "adult.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adult.data", parts["train"])
        archive.writestr("adult.test", "|1x3 Cross validator\n" + parts["test"])
        archive.writestr("adult.names", "| names and notes\n")
    return folder / "adult.zip"


def _write_compas(folder: Path) -> Path:
    frame = _plain(datasets.load_compas(standard_filter=False).frame)
    frame["c_charge_desc"] += " "
    person = pd.DataFrame({"id": frame.index, "name": "a b", "dob": "1970-01-01"})
    # As in the public file, two columns have a second copy of the same name.
    raw = pd.concat([person, frame, frame[["decile_score", "priors_count"]]], axis=1)
    raw.to_csv(folder / "compas-scores-two-years.csv", index=False)
    return folder / "compas-scores-two-years.csv"


def _arff(relation: str, attributes: list[str], frame: pd.DataFrame) -> str:
    head = "\n".join(f"@ATTRIBUTE {attribute}" for attribute in attributes)
    rows = frame.to_csv(index=False, header=False, lineterminator="\n")
    return f"% a comment\n@RELATION {relation}\n{head}\n\n@DATA\n{rows}"


def _write_credit(folder: Path, frame: pd.DataFrame) -> Path:
    names = [f"'{name}' REAL" for name in frame.columns[:-1]]
    quoted = frame.assign(Class=frame["Class"].map({0: "'0'", 1: "'1'"}))
    path = folder / "credit.arff"
    path.write_text(_arff("creditcard", [*names, "'Class' {'0','1'}"], quoted))
    return path


def _write_dry_bean(folder: Path, frame: pd.DataFrame) -> Path:
    names = [
        f"{name}\t{'INTEGER' if frame[name].dtype.kind == 'i' else 'REAL'}"
        for name in frame.columns[:-1]
    ]
    names.append("Class\t{SEKER, BARBUNYA, BOMBAY, CALI, HOROZ, SIRA, DERMASON}")
    text = _arff("Dry_Beans_Dataset", names, _plain(frame))
    with zipfile.ZipFile(folder / "dry+bean+dataset.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("DryBeanDataset/Dry_Bean_Dataset.arff", text)
        archive.writestr("DryBeanDataset/Dry_Bean_Dataset.xlsx", b"")
    return folder / "dry+bean+dataset.zip"


# ------------------------------------------------------------------------------- tables


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


@pytest.mark.parametrize("standard_filter", [True, False])
def test_compas_score_text_is_ordered(standard_filter):
    compas = datasets.load_compas(target="score_text", standard_filter=standard_filter)
    assert list(compas.target.cat.categories) == compas.target_names == ["Low", "Medium", "High"]
    assert compas.target.cat.ordered
    assert not compas.target.isna().any()
    if standard_filter:
        counts = {"Low": 3_421, "Medium": 1_607, "High": 1_144}
        assert compas.target.value_counts().to_dict() == counts


def test_compas_has_no_personal_names():
    columns = set(datasets.load_compas(standard_filter=False).frame)
    assert columns == set(pd.read_parquet(FILES / "compas.parquet"))
    assert not columns & {"id", "name", "first", "last", "dob", "c_case_number"}
    assert len(columns) == 15


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
    sample = datasets._sample_credit(full_credit.frame)
    assert sample.equals(datasets.load_credit().frame)


def test_dry_bean(dry_bean):
    assert dry_bean.data.shape == (13_611, 16)
    assert dry_bean.target_names == sorted(dry_bean.target_names)
    assert dry_bean.target.value_counts()["DERMASON"] == 3_546
    encoder = LabelEncoder().fit(dry_bean.target)
    assert list(encoder.classes_) == dry_bean.target_names
    assert dry_bean.sensitive_features is None


@pytest.mark.parametrize("name", LOADERS)
def test_tables_are_independent_copies(name):
    first = LOADERS[name]()
    first.frame.iloc[0, 0] = first.frame.iloc[1, 0]
    first.target.iloc[:] = 1
    assert LOADERS[name]().target.nunique() == 2


# ------------------------------------------------------------------------------- places


@pytest.mark.parametrize("name", LOADERS)
def test_places_are_tried_in_order(name, tmp_path, monkeypatch):
    """Each place wins over those after it: a broken file there is met, not passed over."""
    load, file = LOADERS[name], f"{name}.parquet"
    places = [tmp_path / place for place in ("home", "environment", "bundled", "cache")]
    places[3] /= "gbm_constrained"
    monkeypatch.setenv("GBM_CONSTRAINED_DATA", str(places[1]))
    monkeypatch.setattr(datasets, "_BUNDLED", (places[2],))
    for place in places:
        place.mkdir(parents=True)
        (place / file).write_bytes(b"broken")
    with pytest.raises(ValueError, match="home"):
        load(data_home=places[0])
    for place in places[1:]:
        with pytest.raises(ValueError, match=re.escape(str(place / file))):
            load()
        (place / file).unlink()
    with pytest.raises(OSError, match="download"):
        load()
    for place in reversed(places[1:]):
        shutil.copy(FILES / file, place / file)
        assert len(load().data) > 0


def test_environment_without_the_file_falls_through(tmp_path, monkeypatch):
    monkeypatch.setenv("GBM_CONSTRAINED_DATA", str(tmp_path))
    assert len(datasets.load_credit().data) == 40_492


def test_data_home_without_the_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load_adult(data_home=tmp_path)
    for part in (str(tmp_path), "adult.parquet", "adult.zip", "archive.ics.uci.edu"):
        assert part in str(caught.value)


def test_cache_defaults_to_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert datasets._cache() == tmp_path / ".cache" / "gbm_constrained"


# ------------------------------------------------------------------------------- checks


@pytest.mark.parametrize("name", LOADERS)
def test_changed_content_is_refused(name, tmp_path):
    frame = pd.read_parquet(FILES / f"{name}.parquet")
    frame.iloc[7, 1] = frame.iloc[0, 1]
    assert not frame.equals(pd.read_parquet(FILES / f"{name}.parquet"))
    frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match="does not hold the expected table") as caught:
        LOADERS[name](data_home=tmp_path)
    digests = set(re.findall(r"[0-9a-f]{64}", str(caught.value)))
    expected = {"adult": datasets._ADULT, "compas": datasets._COMPAS}
    assert len(digests) == 2
    assert expected.get(name, datasets._CREDIT_SAMPLE).sha256 in digests
    for part in (str(tmp_path / f"{name}.parquet"), "delete it", "datasets/README.md"):
        assert part in str(caught.value)


@pytest.mark.parametrize("change", ["rows", "columns"])
def test_a_table_cut_short_is_refused(change, tmp_path):
    frame = pd.read_parquet(FILES / "adult.parquet")
    cut = frame[:-1] if change == "rows" else frame.drop(columns="race")
    cut.to_parquet(tmp_path / "adult.parquet")
    with pytest.raises(
        ValueError, match=r"adult\.parquet .*(expected table|no columns \['race'\])"
    ):
        datasets.load_adult(data_home=tmp_path)


def test_digest_is_of_content_not_of_storage(tmp_path):
    frame = pd.read_parquet(FILES / "adult.parquet")
    frame = frame[frame.columns[::-1]].fillna("?").astype({"age": "int32", "race": "category"})
    frame["race"] = frame["race"].cat.set_categories([*frame["race"].unique()[::-1], "unused"])
    frame.to_parquet(tmp_path / "adult.parquet", compression=None)
    other = datasets.load_adult(data_home=tmp_path).frame
    assert other.equals(datasets.load_adult().frame)


def test_digest_forgives_the_last_bit_and_the_sign_of_zero():
    one = pd.DataFrame({"x": [0.0, 0.1, np.nan], "y": [1, 2, 3]})
    two = pd.DataFrame({"x": [-0.0, np.nextafter(0.1, 1), -np.nan], "y": [1, 2, 3]})
    assert datasets._digest(one) == datasets._digest(two)
    assert datasets._digest(one) != datasets._digest(one.assign(x=[0.0, 0.1, 0.2]))
    assert datasets._digest(one) != datasets._digest(one.rename(columns={"x": "z"}))


# ------------------------------------------------------------------------------- downloads


def _accepts(monkeypatch, source: Path, load: Callable[[], Bunch], expected: pd.DataFrame, file):
    """The download gives the table, and the second load takes it from the cache."""
    _alone(monkeypatch)
    urls = _serve(monkeypatch, source)
    assert load().frame.equals(expected)
    assert len(urls) == 1
    assert [path.name for path in datasets._cache().iterdir()] == [file]
    assert load().frame.equals(expected)
    assert len(urls) == 1


def test_download_adult(tmp_path, monkeypatch):
    expected = datasets.load_adult().frame
    source = _write_adult(tmp_path)
    _accepts(monkeypatch, source, datasets.load_adult, expected, "adult.parquet")


def test_download_compas(tmp_path, monkeypatch):
    def load() -> Bunch:
        return datasets.load_compas(standard_filter=False)

    expected = load().frame
    _accepts(monkeypatch, _write_compas(tmp_path), load, expected, "compas.parquet")


def test_download_credit(tmp_path, monkeypatch):
    """The sample stands in for the 284,807 rows, whose text would take 150 MB."""
    sample = datasets.load_credit().frame
    digest = datasets._CREDIT_SAMPLE.sha256
    monkeypatch.setattr(datasets, "_CREDIT", dataclasses.replace(datasets._CREDIT, sha256=digest))

    def load() -> Bunch:
        return datasets.load_credit(full=True)

    _accepts(monkeypatch, _write_credit(tmp_path, sample), load, sample, "credit.parquet")
    (datasets._cache() / "credit.parquet").unlink()
    again = datasets.load_credit().frame  # all frauds and 40,000 others of these are all of them
    assert again.equals(sample)


def test_download_dry_bean(tmp_path, monkeypatch, dry_bean):
    source = _write_dry_bean(tmp_path, dry_bean.frame)
    _accepts(monkeypatch, source, datasets.load_dry_bean, dry_bean.frame, "dry_bean.parquet")


def test_public_file_saved_by_hand(tmp_path):
    _write_compas(tmp_path)
    assert len(datasets.load_compas(data_home=tmp_path).data) == 6_172


def test_download_of_something_else_is_refused(tmp_path, monkeypatch):
    _alone(monkeypatch)
    page = tmp_path / "page.html"
    page.write_text("<html>Not found</html>")
    _serve(monkeypatch, page)
    for load in (*LOADERS.values(), datasets.load_dry_bean):
        with pytest.raises(ValueError, match=r"download from https://.* cannot be read as"):
            load()
    assert not datasets._cache().exists()


def test_unwritable_cache_costs_only_the_next_download(tmp_path, monkeypatch):
    source = _write_compas(tmp_path)
    _alone(monkeypatch)
    (tmp_path / "cache").write_text("a file where the directory should be")
    _serve(monkeypatch, source)
    assert len(datasets.load_compas().data) == 6_172


@pytest.mark.parametrize(
    ("load", "file", "url"),
    [
        (datasets.load_adult, "adult.parquet", "https://archive.ics.uci.edu/static/public/2/"),
        (datasets.load_compas, "compas.parquet", "https://raw.githubusercontent.com/propublica/"),
        (datasets.load_credit, "credit_sample.parquet", "https://www.openml.org/data/download/"),
        (datasets.load_dry_bean, "dry_bean.parquet", "https://archive.ics.uci.edu/static/public/"),
    ],
)
@pytest.mark.parametrize("failure", ["offline", "download=False", "no pooch"])
def test_messages_say_which_file_to_put_where(load, file, url, failure, monkeypatch):
    _alone(monkeypatch)
    if failure == "no pooch":

        def absent(name):
            raise ImportError(name)

        monkeypatch.setattr(datasets.importlib, "import_module", absent)
    with pytest.raises(ImportError if failure == "no pooch" else OSError) as caught:
        load(download=failure != "download=False")
    text = str(caught.value)
    for part in (file, url, str(datasets._cache()), "GBM_CONSTRAINED_DATA", "data_home"):
        assert part in text
    if failure == "no pooch":
        assert 'pip install "gbm_constrained[datasets]"' in text


# ------------------------------------------------------------------------------- README


def _recipe(name: str) -> str:
    section = (FILES / "README.md").read_text().partition(f"### {name}\n")[2]
    return section.partition("```python\n")[2].partition("```")[0]


@pytest.mark.parametrize("name", LOADERS)
def test_readme_recipe_makes_the_file(name, tmp_path, monkeypatch, request):
    if name == "credit_sample":
        request.getfixturevalue("full_credit")
    else:
        {"adult": _write_adult, "compas": _write_compas}[name](tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(_recipe(name), {})
    made = LOADERS[name](data_home=tmp_path).frame
    assert made.equals(LOADERS[name]().frame)


def test_readme_gives_the_checksums():
    readme = (FILES / "README.md").read_text()
    for table in (datasets._ADULT, datasets._COMPAS, datasets._CREDIT_SAMPLE):
        assert table.sha256 in readme
        assert hashlib.sha256((FILES / table.file).read_bytes()).hexdigest() in readme
        assert table.url in readme
    assert not (FILES / "dry_bean.parquet").exists()


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    def read_parquet(path):
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd, "read_parquet", read_parquet)
    with pytest.raises(ImportError, match=r"needs pyarrow: pip install .gbm_constrained.datasets"):
        datasets.load_credit(download=False)
