"""Small real data sets: Adult, COMPAS, Credit (card fraud) and Dry Bean.

Each loader looks for its table in this order and takes the first that exists:

1. ``data_home``, when given (nothing else is then tried);
2. the directory named by the environment variable ``GBM_CONSTRAINED_DATA``;
3. the files bundled with the package;
4. the user cache, ``$XDG_CACHE_HOME/gbm_constrained`` or ``~/.cache/gbm_constrained``;
5. the public source, through pooch; the table is then kept in the user cache.

A place may hold the table as parquet or the public file itself, downloaded by hand. Whatever the
place, the *content* of the table is checked against a SHA-256 digest, so that every place gives
the same table whichever parquet writer made the file.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

__all__ = ["load_adult", "load_compas", "load_credit", "load_dry_bean"]

_ENVIRONMENT = "GBM_CONSTRAINED_DATA"
_PACKAGE = Path(__file__).resolve().parents[1]
# An installed wheel carries the files inside the package, a source checkout beside it.
_BUNDLED = (_PACKAGE / "_bundled", _PACKAGE.parent / "datasets")


@dataclass(frozen=True, kw_only=True)
class _Table:
    file: str
    raw: str  # name under which the public file is recognised
    url: str
    parse: Callable[[Path], pd.DataFrame]
    dtypes: Mapping[str, str]
    sha256: str  # of the content, see _digest
    description: str


def _parse_adult(path: Path) -> pd.DataFrame:
    parts = []
    with zipfile.ZipFile(path) as archive:
        for split, member in (("train", "adult.data"), ("test", "adult.test")):
            text = archive.read(member).decode()
            if split == "test":  # "|1x3 Cross validator" comes first, and labels end in a dot
                text = text.partition("\n")[2]
            columns = list(_ADULT_DTYPES)[:-1]
            part = pd.read_csv(io.StringIO(text), names=columns, skipinitialspace=True)
            part["income"] = part["income"].str.rstrip(".")
            parts.append(part.assign(split=split))
    return pd.concat(parts, ignore_index=True)


def _parse_compas(path: Path) -> pd.DataFrame:
    # Only the columns kept are read, so names and dates of birth never enter the table.
    frame = pd.read_csv(path, usecols=list(_COMPAS_DTYPES))
    return frame.assign(c_charge_desc=frame["c_charge_desc"].str.strip())


def _parse_arff(text: str, dtype: type[str] | None = None) -> pd.DataFrame:
    lines = io.StringIO(text)
    names = []
    for line in lines:
        keyword = line.split(maxsplit=2)
        if keyword and keyword[0].lower() == "@attribute":
            names.append(keyword[1].strip("'\""))
        elif keyword and keyword[0].lower() == "@data":
            break
    return pd.read_csv(lines, names=names, quotechar="'", skipinitialspace=True, dtype=dtype)


def _parse_credit(path: Path) -> pd.DataFrame:
    return _parse_arff(path.read_text(encoding="utf-8"))


def _parse_credit_sample(path: Path) -> pd.DataFrame:
    return _sample_credit(_parse_credit(path))


def _parse_dry_bean(path: Path) -> pd.DataFrame:
    with zipfile.ZipFile(path) as archive:
        member = next((name for name in archive.namelist() if name.endswith(".arff")), None)
        if member is None:
            raise ValueError("the archive has no .arff member")
        # As text: pandas' own decimal parser may miss a double by its last bit, astype does not.
        return _parse_arff(archive.read(member).decode(), dtype=str)


def _sample_credit(frame: pd.DataFrame) -> pd.DataFrame:
    """All frauds and 40,000 of the other rows, in their original order."""
    genuine = np.flatnonzero(frame["Class"] == 0)
    # RandomState, not Generator: numpy keeps its stream the same for ever.
    chosen = np.random.RandomState(0).permutation(genuine)[:40_000]
    rows = np.union1d(np.flatnonzero(frame["Class"] == 1), chosen)
    return frame.iloc[rows].reset_index(drop=True)


# fmt: off
_ADULT_DTYPES = {
    "age": "int64", "workclass": "category", "fnlwgt": "int64", "education": "category",
    "education-num": "int64", "marital-status": "category", "occupation": "category",
    "relationship": "category", "race": "category", "sex": "category", "capital-gain": "int64",
    "capital-loss": "int64", "hours-per-week": "int64", "native-country": "category",
    "income": "category", "split": "category",
}
_COMPAS_DTYPES = {
    "sex": "category", "age": "int64", "age_cat": "category", "race": "category",
    "juv_fel_count": "int64", "juv_misd_count": "int64", "juv_other_count": "int64",
    "priors_count": "int64", "c_charge_degree": "category", "c_charge_desc": "category",
    "days_b_screening_arrest": "float64", "is_recid": "int64", "score_text": "category",
    "decile_score": "int64", "two_year_recid": "int64",
}
_CREDIT_DTYPES = {
    **dict.fromkeys(["Time", *(f"V{i}" for i in range(1, 29)), "Amount"], "float32"),
    "Class": "int8",
}
_DRY_BEAN_DTYPES = {
    "Area": "int64", "Perimeter": "float64", "MajorAxisLength": "float64",
    "MinorAxisLength": "float64", "AspectRation": "float64", "Eccentricity": "float64",
    "ConvexArea": "int64", "EquivDiameter": "float64", "Extent": "float64",
    "Solidity": "float64", "roundness": "float64", "Compactness": "float64",
    "ShapeFactor1": "float64", "ShapeFactor2": "float64", "ShapeFactor3": "float64",
    "ShapeFactor4": "float64", "Class": "category",
}
_ADULT = _Table(
    file="adult.parquet",
    raw="adult.zip",
    url="https://archive.ics.uci.edu/static/public/2/adult.zip",
    parse=_parse_adult,
    dtypes=_ADULT_DTYPES,
    sha256="7eaf666ebe6c9c6b34a506592f9f3ca5c25295794fdcca2e681382c406031f2b",
    description="Adult (census income 1994), UCI 2, CC BY 4.0: 48,842 persons, original split.",
)
_COMPAS = _Table(
    file="compas.parquet",
    raw="compas-scores-two-years.csv",
    url="https://raw.githubusercontent.com/propublica/compas-analysis/master/"
    "compas-scores-two-years.csv",
    parse=_parse_compas,
    dtypes=_COMPAS_DTYPES,
    sha256="529cc2ee25c0ddb0d9d5aea124e9dc653394fa347ebb2dad4a9aaa7d99b6a00f",
    description="COMPAS two-year recidivism, ProPublica 2016, public records of Broward County, "
    "Florida: 7,214 persons, without names and dates of birth.",
)
_CREDIT = _Table(
    file="credit.parquet",
    raw="credit.arff",
    url="https://www.openml.org/data/download/1673544/phpKo8OWT",
    parse=_parse_credit,
    dtypes=_CREDIT_DTYPES,
    sha256="41f0f1fca8595496eee945a475c1dc63156e792a7e71408aaa10b1d373073c6a",
    description="Credit card fraud, ULB / Worldline 2013, OpenML 1597, ODbL/DbCL 1.0 (recalled, "
    "not verified): 284,807 transactions, 492 frauds.",
)
_CREDIT_SAMPLE = _Table(
    file="credit_sample.parquet",
    raw=_CREDIT.raw,
    url=_CREDIT.url,
    parse=_parse_credit_sample,
    dtypes=_CREDIT_DTYPES,
    sha256="55ffed3eedfcf20b24d66b608054974b60365bf0d0db401a6a589bc677e9dfa0",
    description=f"{_CREDIT.description} Here all frauds and a fixed 40,000 of the others.",
)
_DRY_BEAN = _Table(
    file="dry_bean.parquet",
    raw="dry+bean+dataset.zip",
    url="https://archive.ics.uci.edu/static/public/602/dry+bean+dataset.zip",
    parse=_parse_dry_bean,
    dtypes=_DRY_BEAN_DTYPES,
    sha256="4b43ac8755a6faf055211fb921d863dc551662c82574a40f7ca3ae24ad5c647f",
    description="Dry Bean, Koklu & Ozkan 2020, UCI 602, CC BY 4.0: 13,611 grains, 7 varieties.",
)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gbm_constrained"


def _typed(frame: pd.DataFrame, dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Select and order the columns of a table and give them their dtypes; "?" is missing."""
    missing = [name for name in dtypes if name not in frame]
    if missing:
        raise ValueError(f"it has no columns {missing}")
    frame = frame[list(dtypes)].astype(dict(dtypes))
    for name in frame.select_dtypes("category"):
        column = frame[name].cat
        names = [value for value in sorted(column.categories) if value != "?"]
        frame[name] = column.set_categories(names).cat.remove_unused_categories()
    return frame


def _digest(frame: pd.DataFrame) -> str:
    """SHA-256 of the content of a typed table.

    Per column, a JSON header (name, number of rows, and the kind or the sorted categories), then
    the values, little-endian: category codes as int32 with -1 for missing, integers as int64,
    floats as float32, which forgives decimal parsers that differ in the last bit of a double.
    """
    sha = hashlib.sha256()
    for name, column in frame.items():
        kind: str | list[str]
        if isinstance(column.dtype, pd.CategoricalDtype):
            kind = [str(value) for value in column.cat.categories]
            values = column.cat.codes.to_numpy().astype("<i4")
        elif column.dtype.kind == "f":
            kind = "float"
            values = column.to_numpy().astype("<f4") + np.float32(0)  # -0.0 becomes 0.0
            values[np.isnan(values)] = np.nan
        else:
            kind = "integer"
            values = column.to_numpy().astype("<i8")
        sha.update(json.dumps([str(name), len(column), kind]).encode())
        sha.update(values.tobytes())
    return sha.hexdigest()


def _advice(table: _Table) -> str:
    return (
        f"Put {table.file}, or the public file {table.url} saved under the name {table.raw}, into "
        f"{_cache()}, or into a directory named by the environment variable {_ENVIRONMENT} or the "
        "argument data_home."
    )


def _read(table: _Table, path: Path, origin: str, remedy: str) -> pd.DataFrame:
    """Read the table or the public file at `path`, and check its content."""
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else table.parse(path)
        frame = _typed(frame, table.dtypes)
    except ImportError as error:
        raise ImportError(
            f'reading {origin} needs pyarrow: pip install "gbm_constrained[datasets]".'
        ) from error
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{origin} cannot be read as {table.file}: {error}. {remedy}") from error
    found = _digest(frame)
    if found != table.sha256:
        raise ValueError(
            f"{origin} does not hold the expected table: the SHA-256 of its content is {found}, "
            f"expected {table.sha256}. {remedy}"
        )
    return frame


def _read_local(table: _Table, path: Path) -> pd.DataFrame:
    return _read(
        table,
        path,
        str(path),
        f"Replace it by the public file {table.url} saved as {table.raw}, or delete it (unless "
        "data_home is given, the next place is then tried); see datasets/README.md.",
    )


def _find(table: _Table, folder: Path) -> Path | None:
    candidates = (folder / table.file, folder / table.raw)
    return next((path for path in candidates if path.is_file()), None)


def _load(
    table: _Table, data_home: str | os.PathLike[str] | None, *, download: bool
) -> pd.DataFrame:
    if data_home is not None:
        folder = Path(data_home).expanduser()
        path = _find(table, folder)
        if path is None:
            raise FileNotFoundError(
                f"data_home={str(folder)!r} has neither {table.file} nor {table.raw}. Put one of "
                f"them there ({table.raw} is {table.url}), or leave data_home out to look in the "
                "other places."
            )
        return _read_local(table, path)
    environment = os.environ.get(_ENVIRONMENT)
    folders = [Path(environment).expanduser()] if environment else []
    for folder in [*folders, *_BUNDLED, _cache()]:
        path = _find(table, folder)
        if path is not None:
            return _read_local(table, path)
    if not download:
        raise FileNotFoundError(f"{table.file} was not found and download=False. {_advice(table)}")
    return _download(table)


def _download(table: _Table) -> pd.DataFrame:
    try:
        pooch = importlib.import_module("pooch")
    except ImportError as error:
        raise ImportError(
            f"{table.file} was not found, and its download needs pooch: "
            f'pip install "gbm_constrained[datasets]". Or without it: {_advice(table)}'
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        try:
            # No hash of the public file is known: the content of the table is checked instead.
            raw = pooch.retrieve(table.url, known_hash=None, fname=table.raw, path=folder)
        except OSError as error:  # requests' exceptions are OSErrors
            raise OSError(
                f"{table.file} was not found, and the download of {table.url} failed ({error}). "
                f"{_advice(table)}"
            ) from error
        frame = _read(table, Path(raw), f"The download from {table.url}", _advice(table))
    with suppress(OSError):  # a cache that cannot be written only costs the next download
        _cache().mkdir(parents=True, exist_ok=True)
        partial = _cache() / f".{table.file}.{os.getpid()}"
        frame.to_parquet(partial, compression="zstd", index=False)
        partial.replace(_cache() / table.file)
    return frame


def _bunch(
    table: _Table,
    frame: pd.DataFrame,
    features: list[str],
    target: pd.Series,
    target_names: list[str],
    sensitive: list[str] | None = None,
    **extra: pd.Series,
) -> Bunch:
    return Bunch(
        data=frame[features],
        target=target.copy(),  # pandas 2 would share it with frame
        sensitive_features=None if sensitive is None else frame[sensitive],
        frame=frame,
        feature_names=features,
        target_names=target_names,
        DESCR=f"{table.description} Source: {table.url}",
        **extra,
    )


def load_adult(*, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Bunch:
    """Load Adult: who of the US census of 1994 earns more than $50,000 a year.

    48,842 rows, 14 features; 11,687 rows are positive. Source: UCI 2, CC BY 4.0.

    Parameters
    ----------
    data_home : path, optional
        Directory with ``adult.parquet`` or ``adult.zip``; the only place looked in when given.
    download : bool, default=True
        Download when no place has the table.

    Returns
    -------
    Bunch
        ``data``, DataFrame (48842, 14): int64 and, for text, category with sorted categories; "?"
        is missing. ``target``, Series of int64, 1 for ">50K". ``sensitive_features``, DataFrame
        with sex and race, which are in ``data`` too. ``split``, category Series, "train" (32,561
        rows) or "test" (16,281). ``frame``, the whole table. ``feature_names``,
        ``target_names``, ``DESCR``.

    Raises
    ------
    OSError, ImportError
        The table is in no place and cannot be downloaded (without pooch): what to put where.
    ValueError
        A file was found whose content is not the expected one.
    """
    frame = _load(_ADULT, data_home, download=download)
    return _bunch(
        _ADULT,
        frame,
        list(_ADULT_DTYPES)[:14],
        (frame["income"] == ">50K").astype("int64").rename("income"),
        ["<=50K", ">50K"],
        ["sex", "race"],
        split=frame["split"],
    )


def load_compas(
    *,
    data_home: str | os.PathLike[str] | None = None,
    target: Literal["two_year_recid", "score_text"] = "two_year_recid",
    standard_filter: bool = True,
    download: bool = True,
) -> Bunch:
    """Load COMPAS: recidivism within two years, or the class of the COMPAS risk score.

    Source: ProPublica's analysis file, public records; names and dates of birth are left out.

    Parameters
    ----------
    data_home : path, optional
        Directory with ``compas.parquet`` or ``compas-scores-two-years.csv``; the only place
        looked in when given.
    target : {"two_year_recid", "score_text"}, default="two_year_recid"
        What to predict.
    standard_filter : bool, default=True
        Keep the 6,172 of 7,214 rows that ProPublica analysed: screening within 30 days of the
        arrest, recidivism known, a charge that can lead to jail, and a score.
    download : bool, default=True
        Download when no place has the table.

    Returns
    -------
    Bunch
        ``data``, DataFrame (6172 or 7214, 9) of int64 and category: sex, age and its class, race,
        counts of prior offences, degree of the charge. Left out are ``is_recid``, which is the
        outcome; ``decile_score`` and ``score_text``, the prediction of another model (each
        determines the other); ``days_b_screening_arrest``, an artefact of data collection; and
        ``c_charge_desc``, with 437 values. ``target``, Series of int64 0/1, or of the ordered
        category "Low" < "Medium" < "High". ``sensitive_features``, DataFrame with race and sex,
        which are in ``data`` too. ``frame``, all columns. ``feature_names``, ``target_names``,
        ``DESCR``.

    Raises
    ------
    OSError, ImportError
        The table is in no place and cannot be downloaded (without pooch): what to put where.
    ValueError
        Unknown `target`, or a file was found whose content is not the expected one.
    """
    if target not in ("two_year_recid", "score_text"):
        raise ValueError(f"target must be 'two_year_recid' or 'score_text', got {target!r}.")
    frame = _load(_COMPAS, data_home, download=download)
    if standard_filter:
        keep = (
            frame["days_b_screening_arrest"].between(-30, 30)
            & (frame["is_recid"] != -1)
            & (frame["c_charge_degree"] != "O")
            & (frame["score_text"] != "N/A")
        )
        frame = frame[keep].reset_index(drop=True)
    levels = ["Low", "Medium", "High"]
    if target == "score_text":
        frame["score_text"] = frame["score_text"].cat.set_categories(levels, ordered=True)
    names = levels if target == "score_text" else ["no recidivism", "recidivism"]
    return _bunch(_COMPAS, frame, list(_COMPAS_DTYPES)[:9], frame[target], names, ["race", "sex"])


def load_credit(
    *,
    data_home: str | os.PathLike[str] | None = None,
    full: bool = False,
    download: bool = True,
) -> Bunch:
    """Load Credit: fraudulent card transactions of two days of September 2013.

    Source: ULB / Worldline, OpenML 1597, ODbL/DbCL 1.0 (recalled, not verified).

    Parameters
    ----------
    data_home : path, optional
        Directory with ``credit_sample.parquet`` (``credit.parquet`` when `full`) or
        ``credit.arff``; the only place looked in when given.
    full : bool, default=False
        All 284,807 rows instead of the bundled sample: all 492 frauds and 40,000 of the others.
    download : bool, default=True
        Download when no place has the table.

    Returns
    -------
    Bunch
        ``data``, DataFrame (40492 or 284807, 30) of float32, rows in order of ``Time``.
        ``target``, Series of int64, 1 for fraud. ``sensitive_features``, None. ``frame``, the
        whole table. ``feature_names``, ``target_names``, ``DESCR``.

    Raises
    ------
    OSError, ImportError
        The table is in no place and cannot be downloaded (without pooch): what to put where.
    ValueError
        A file was found whose content is not the expected one.
    """
    table = _CREDIT if full else _CREDIT_SAMPLE
    frame = _load(table, data_home, download=download)
    target = frame["Class"].astype("int64")
    return _bunch(table, frame, list(_CREDIT_DTYPES)[:30], target, ["genuine", "fraud"])


def load_dry_bean(
    *, data_home: str | os.PathLike[str] | None = None, download: bool = True
) -> Bunch:
    """Load Dry Bean: the variety of a grain from 16 measures of its image.

    13,611 rows, 7 classes. Source: UCI 602, CC BY 4.0. Not bundled.

    Parameters
    ----------
    data_home : path, optional
        Directory with ``dry_bean.parquet`` or ``dry+bean+dataset.zip``; the only place looked in
        when given.
    download : bool, default=True
        Download when no place has the table.

    Returns
    -------
    Bunch
        ``data``, DataFrame (13611, 16) of float64, two columns of int64. ``target``, category
        Series of class names. ``target_names``, the names, sorted. ``sensitive_features``, None.
        ``frame``, the whole table. ``feature_names``, ``DESCR``.

    Raises
    ------
    OSError, ImportError
        The table is in no place and cannot be downloaded (without pooch): what to put where.
    ValueError
        A file was found whose content is not the expected one.
    """
    frame = _load(_DRY_BEAN, data_home, download=download)
    target = frame["Class"]
    names = [str(name) for name in target.cat.categories]
    return _bunch(_DRY_BEAN, frame, list(_DRY_BEAN_DTYPES)[:16], target, names)
