"""Small real data sets: Adult, Communities and Crime, COMPAS, Credit (card fraud) and Dry Bean.

Each loader takes its parquet file from the first place that has it: ``data_home``, which is the
only place when given; the directory in the environment variable ``GBM_CONSTRAINED_DATA``; the
files bundled with the package; the data home of scikit-learn. Dry Bean and all of Credit are not
bundled: they are downloaded from UCI and OpenML, and kept in the data home of scikit-learn.
"""

from __future__ import annotations

import io
import os
import urllib.request
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
import sklearn.datasets
from scipy.io import arff
from sklearn.utils import Bunch

__all__ = ["load_adult", "load_communities_crime", "load_compas", "load_credit", "load_dry_bean"]

_DRY_BEAN_URL = "https://archive.ics.uci.edu/static/public/602/dry+bean+dataset.zip"


def _fetch_credit() -> pd.DataFrame:
    """Download Credit from OpenML, which ignores ``Time`` unless it is asked for as the target."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has flag is_ignore")
        frame: pd.DataFrame = sklearn.datasets.fetch_openml(
            data_id=1597, target_column="Time", as_frame=True, cache=False
        ).frame
    return frame[["Time", *frame.columns.drop(["Time", "Class"]), "Class"]]


def _fetch_dry_bean() -> pd.DataFrame:
    """Download Dry Bean from UCI, where it is an archive with a file in ARFF."""
    with urllib.request.urlopen(_DRY_BEAN_URL, timeout=60) as answer:
        archive = zipfile.ZipFile(io.BytesIO(answer.read()))
    member = next(name for name in archive.namelist() if name.endswith(".arff"))
    frame = pd.DataFrame(arff.loadarff(io.StringIO(archive.read(member).decode()))[0])
    frame["Class"] = frame["Class"].str.decode("utf-8")
    return frame.astype({"Area": "int64", "ConvexArea": "int64"})


class _Table(NamedTuple):
    """A table: its file, its shape, its target, and its origin."""

    file: str
    shape: tuple[int, int]
    target: str
    description: str
    fetch: Callable[[], pd.DataFrame] | None = None


_FRAUD = (
    "Credit card fraud, ULB / Worldline 2013, ODbL/DbCL 1.0 (recalled, not verified): 284,807 "
    "transactions, 492 frauds. Source: https://www.openml.org/d/1597"
)
_ADULT = _Table(
    "adult.parquet", (48_842, 16), "income",
    "Adult (census income 1994), UCI 2, CC BY 4.0: 48,842 persons, original split. Source: "
    "https://archive.ics.uci.edu/dataset/2/adult",
)  # fmt: skip
_CRIME = _Table(
    "communities_crime.parquet", (1_994, 128), "127",
    "Communities and Crime, UCI 183, CC BY 4.0: 1,994 communities of the US, census of 1990 and "
    "crimes of 1995, scaled to [0, 1]. Source: "
    "https://archive.ics.uci.edu/dataset/183/communities+and+crime",
)  # fmt: skip
_COMPAS = _Table(
    "compas.parquet", (7_214, 15), "two_year_recid",
    "COMPAS two-year recidivism, ProPublica 2016, public records of Broward County, Florida: "
    "7,214 persons, without names and dates of birth. Source: "
    "https://github.com/propublica/compas-analysis",
)  # fmt: skip
_CREDIT = _Table("credit.parquet", (284_807, 31), "Class", _FRAUD, _fetch_credit)
_CREDIT_SAMPLE = _Table(
    "credit_sample.parquet", (40_492, 31), "Class",
    f"{_FRAUD}. Here all frauds and a fixed 40,000 of the others",
)  # fmt: skip
_DRY_BEAN = _Table(
    "dry_bean.parquet", (13_611, 17), "Class",
    "Dry Bean, Koklu & Ozkan 2020, UCI 602, CC BY 4.0: 13,611 grains, 7 varieties. Source: "
    + _DRY_BEAN_URL,
    _fetch_dry_bean,
)  # fmt: skip


def _load(table: _Table, data_home: str | os.PathLike[str] | None, *, download: bool) -> Any:
    """Read a table from the first place that has it, or download it."""
    variable, package = "GBM_CONSTRAINED_DATA", Path(__file__).resolve().parents[1]
    given = os.environ.get(variable) if data_home is None else data_home
    folders = [Path(given).expanduser()] if given else []
    if data_home is None:
        # An installed wheel carries the files inside the package, a source checkout beside it.
        folders += [package / "_bundled", package.parent / "datasets"]
        folders.append(Path(sklearn.datasets.get_data_home()))
    for path in (folder / table.file for folder in folders):
        if path.is_file():
            return _check(table, _read(path), str(path))
    advice = (
        f"Put {table.file} into a directory that the argument data_home or the environment "
        f"variable {variable} names. {table.description}."
    )
    if table.fetch is None or data_home is not None or not download:
        where = ", ".join(map(str, folders))
        raise FileNotFoundError(f"{table.file} was not found in {where}. {advice}")
    try:
        frame = table.fetch()
    except OSError as error:  # HTTP and URL errors are OSErrors.
        raise OSError(f"The download of {table.file} failed ({error}). {advice}") from error
    frame = _check(table, frame, "The download")
    frame.to_parquet(folders[-1] / table.file, index=False)
    return frame


def _read(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        message = f'reading {path} needs pyarrow: pip install "gbm_constrained[datasets]".'
        raise ImportError(message) from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Replace or delete it.") from error


def _check(table: _Table, frame: pd.DataFrame, origin: str) -> pd.DataFrame:
    """Refuse another table; make texts categories in sorted order, in which "?" is missing."""
    if frame.shape != table.shape or table.target not in frame:
        raise ValueError(
            f"{origin} does not hold the expected table, of shape {table.shape} with a column "
            f"{table.target}, but one of shape {frame.shape}. Replace it by {table.file} as "
            f"datasets/README.md describes it, or delete it."
        )
    for name in frame.select_dtypes(exclude="number"):
        column = frame[name].astype("category").cat
        frame[name] = column.set_categories(sorted(set(column.categories) - {"?"}))
    return frame


def _bunch(table: _Table, frame: pd.DataFrame, features: Any, target: Any, **parts: Any) -> Bunch:
    names = list(features)
    # pandas 2 would share the target with the frame.
    return Bunch(
        data=frame[names], target=target.copy(), frame=frame, feature_names=names,
        DESCR=table.description, **{"sensitive_features": None, **parts},
    )  # fmt: skip


def load_adult(*, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Bunch:
    """Load Adult: who of the US census of 1994 earns more than $50,000 a year.

    48,842 rows, 14 features; 11,687 rows are positive. Source: UCI 2, CC BY 4.0.

    Parameters
    ----------
    data_home : path, default=None
        Directory with ``adult.parquet``; the only place looked in when given.
    download : bool, default=True
        Without effect on this table, which is bundled.

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
    OSError, ImportError, ValueError
        The table was not found, pyarrow is not installed, or a file holds another table.
    """
    frame = _load(_ADULT, data_home, download=download)
    target = (frame["income"] == ">50K").astype("int64").rename("income")
    return _bunch(
        _ADULT, frame, frame.columns.drop(["income", "split"]), target,
        target_names=["<=50K", ">50K"], sensitive_features=frame[["sex", "race"]],
        split=frame["split"],
    )  # fmt: skip


def load_communities_crime(
    *, data_home: str | os.PathLike[str] | None = None, download: bool = True
) -> Bunch:
    """Load Communities and Crime: violent crimes per head in communities of the US.

    1,994 rows, 122 features; all numbers are scaled to [0, 1]. Source: UCI 183, CC BY 4.0.

    Parameters
    ----------
    data_home : path, default=None
        Directory with ``communities_crime.parquet``; the only place looked in when given.
    download : bool, default=True
        Without effect on this table, which is bundled.

    Returns
    -------
    Bunch
        ``data``, DataFrame (1994, 122) of float64, named by the position in the source, "x5" to
        "x126"; figures of the police are missing in most communities. ``target``, Series of
        float64. ``sensitive_features``, DataFrame with ``black`` and ``hispanic``: whether these
        shares of the population are "high", above their medians, or "low". ``frame``, the whole
        table. ``feature_names``, ``DESCR``.

    Raises
    ------
    OSError, ImportError, ValueError
        As for :func:`load_adult`.
    """
    frame = _load(_CRIME, data_home, download=download)
    # The first columns name the community and a fold.
    numbers = frame[[str(i) for i in range(5, 128)]].astype("float64").add_prefix("x")
    shares = numbers[["x7", "x10"]].set_axis(["black", "hispanic"], axis=1)
    groups = (shares > shares.median()).replace({True: "high", False: "low"})
    target = numbers["x127"].rename("ViolentCrimesPerPop")
    bunch = _bunch(
        _CRIME, numbers, numbers.columns.drop("x127"), target, sensitive_features=groups
    )
    return Bunch(**{**bunch, "frame": frame})


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
    data_home : path, default=None
        Directory with ``compas.parquet``; the only place looked in when given.
    target : {"two_year_recid", "score_text"}, default="two_year_recid"
        Column to predict.
    standard_filter : bool, default=True
        Keep the 6,172 of 7,214 rows that ProPublica analysed: screening within 30 days of the
        arrest, recidivism known, a charge that can lead to jail, and a score.
    download : bool, default=True
        Without effect on this table, which is bundled.

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
    OSError, ImportError, ValueError
        `target` is unknown, or as for :func:`load_adult`.
    """
    if target not in ("two_year_recid", "score_text"):
        raise ValueError(f"target must be 'two_year_recid' or 'score_text', got {target!r}.")
    frame = _load(_COMPAS, data_home, download=download)
    if standard_filter:
        frame = frame.query(
            "-30 <= days_b_screening_arrest <= 30 and is_recid != -1 and c_charge_degree != 'O' "
            "and score_text != 'N/A'"
        ).reset_index(drop=True)
    names = ["no recidivism", "recidivism"]
    if target == "score_text":
        names = ["Low", "Medium", "High"]
        frame["score_text"] = frame["score_text"].cat.set_categories(names, ordered=True)
    return _bunch(
        _COMPAS, frame, frame.columns[:9], frame[target], target_names=names,
        sensitive_features=frame[["race", "sex"]],
    )  # fmt: skip


def load_credit(
    *, data_home: str | os.PathLike[str] | None = None, full: bool = False, download: bool = True
) -> Bunch:
    """Load Credit: fraudulent card transactions of two days of September 2013.

    Source: ULB / Worldline, OpenML 1597, ODbL/DbCL 1.0 (recalled, not verified).

    Parameters
    ----------
    data_home : path, default=None
        Directory with ``credit_sample.parquet`` (``credit.parquet`` when `full`); the only place
        looked in when given.
    full : bool, default=False
        All 284,807 rows instead of the bundled sample: all 492 frauds and 40,000 of the others.
    download : bool, default=True
        Download the whole table when no place has it.

    Returns
    -------
    Bunch
        ``data``, DataFrame (40492 or 284807, 30) of float32, rows in order of ``Time``.
        ``target``, Series of int64, 1 for fraud. ``sensitive_features``, None. ``frame``, the
        whole table. ``feature_names``, ``target_names``, ``DESCR``.

    Raises
    ------
    OSError, ImportError, ValueError
        The download failed, or as for :func:`load_adult`.
    """
    table = _CREDIT if full else _CREDIT_SAMPLE
    frame = _load(table, data_home, download=download).astype("float32").astype({"Class": "int8"})
    target = frame["Class"].astype("int64")
    features = frame.columns.drop("Class")
    return _bunch(table, frame, features, target, target_names=["genuine", "fraud"])


def load_dry_bean(
    *, data_home: str | os.PathLike[str] | None = None, download: bool = True
) -> Bunch:
    """Load Dry Bean: the variety of a grain from 16 measures of its image.

    13,611 rows, 7 classes. Source: UCI 602, CC BY 4.0. Not bundled.

    Parameters
    ----------
    data_home : path, default=None
        Directory with ``dry_bean.parquet``; the only place looked in when given.
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
    OSError, ImportError, ValueError
        The download failed, or as for :func:`load_adult`.
    """
    frame = _load(_DRY_BEAN, data_home, download=download)
    names = list(frame["Class"].cat.categories)
    features = frame.columns.drop("Class")
    return _bunch(_DRY_BEAN, frame, features, frame["Class"], target_names=names)
