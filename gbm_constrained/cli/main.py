"""The command line: train under rules, and audit models, without writing Python.

It has two commands::

    gbm-constrained fit data.parquet --target y --constraint "fpr <= 0.05" --out model.json
    gbm-constrained audit model.json new.parquet --target y --constraint "fpr <= 0.05"

Exit codes: 0 if the verdict on every rule is "met", 1 if one is not, 2 if something that was given
does not fit; the standard error stream then says what.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import json
import math
import os
import re
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from sklearn.model_selection import train_test_split

from gbm_constrained._version import __version__
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.cli.model_files import (
    Label,
    ModelFile,
    are_texts,
    open_model,
    save_classifier,
    with_categories,
)
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.grouped import Grouped
from gbm_constrained.constraints.positive_class import find_positive_class
from gbm_constrained.constraints.selectors import Column
from gbm_constrained.constraints.text import format_constraint, parse_constraints
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import check_integer, check_weight
from gbm_constrained.decision.guarantees import GUARANTEES
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.reporting.audit import Audit, audit
from gbm_constrained.training.options import MEASURE_ON
from gbm_constrained.training.progress import Progress

PROGRAM = "gbm-constrained"
ALL_MET, NOT_MET, BAD_INPUT = 0, 1, 2
LIBRARIES = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}
NAMES = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}
# Parameters that have options of their own.
OPTION_OF = {
    "constraints": "--constraint",
    "measure_on": "--measure-on",
    "guarantee": "--guarantee",
    "delta": "--delta",
    "random_state": "--seed",
    "seed": "--seed",
}
# Characters that each library refuses in the name of a feature, without saying in which.
REFUSED = {"xgboost": "[]<", "lightgbm": '",:[]{}'}
Number = TypeVar("Number", int, float)
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")
INTEGER, DECIMAL = (
    re.compile(r"-?(?:0|[1-9]\d*)"),
    re.compile(r"-?(?:0|[1-9]\d*)\.\d+(?:[eE][+-]?\d+)?"),
)
SMALL_GROUPS = ("keep", "merge", "drop")
# A column with more distinct texts than this, or than this share of the rows, may name the rows.
MANY_TEXTS, MANY_OF_ROWS = 1000, 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments; those of the process by default.

    Returns
    -------
    int
        The exit code.
    """
    options = _parser().parse_args(argv)
    spelling: dict[str, str] = {}  # what names codes of labels, and how it was written
    options.spelling = spelling
    # The errors that this package, pandas, XGBoost and LightGBM report bad input by.
    expected = (ValueError, TypeError, OSError, ImportError, lgb.basic.LightGBMError)
    try:
        with _warnings_printed(spelling):
            code: int = options.run(options)
    except expected as error:
        text = _with_options(_spelt(_message(error), spelling))
        print(f"{PROGRAM} {options.command}: error: {text}", file=sys.stderr)
        return BAD_INPUT
    return code


def _message(error: BaseException) -> str:
    """Say what is wrong, without the stack that XGBoost appends and its place in XGBoost."""
    text = str(error).partition("\nStack trace")[0].strip()
    return re.sub(r"\[[\d:]+\] \S+:\d+: ", "", text)


def _spelling(
    asked: Sequence[Constraint],
    rules: Sequence[Constraint],
    decisions: Sequence[Any],
    codes: dict[Any, int],
) -> dict[str, str]:
    """Tell how what a fit knows by codes was written: rules, their rates, groups by decisions."""
    pairs: list[tuple[Any, Any]] = []
    for coded, rule in zip(asked, rules, strict=True):
        pairs += [(coded, rule), *zip(coded.rates, rule.rates, strict=True)]
    for name in decisions:
        pairs += [(Column(name, code), Column(name, label)) for label, code in codes.items()]
    return {str(coded): str(written) for coded, written in pairs}


def _spelt(text: str, spelling: dict[str, str]) -> str:
    """Name rules and groups as they were written, where XGBoost knows codes of labels only."""
    longest_first = sorted(map(re.escape, spelling), key=len, reverse=True)
    # Of whole words: "old=0" is no part of "threshold=0".
    known = rf"(?<!\w)(?:{'|'.join(longest_first) or '(?!)'})(?!\w)"
    return re.sub(known, lambda found: spelling[found[0]], text)


def _with_options(text: str) -> str:
    """Name the option in the place of the argument that Python has for it."""
    text = re.sub(r"small_groups='(\w+)'", r"--small-groups \1", text)
    return text.replace(" small_groups_ lists all of them.", "")


@contextmanager
def _warnings_printed(spelling: dict[str, str]) -> Iterator[None]:
    """Print each warning that is meant for users once, line by line, without empty ones."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        lines = map(str.rstrip, str(message).strip().splitlines())
        text = _with_options(_spelt("\n".join(filter(None, lines)), spelling))
        if issubclass(category, UserWarning) and text not in seen:
            print(f"{PROGRAM}: warning: {text}", file=sys.stderr)
        seen.add(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Train XGBoost and LightGBM classifiers that obey rules, and audit models.",
        epilog="exit codes: 0 all rules are met, 1 a rule is not met, 2 bad usage or input",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{fit,audit}")
    _add_fit(commands.add_parser("fit", help="train a model under rules"))
    _add_audit(commands.add_parser("audit", help="measure rules on rows a model has not seen"))
    return parser


def at_least(least: Number, most: float = math.inf) -> Callable[[str], Number]:
    """Make the type of an argument that is a number within limits.

    Parameters
    ----------
    least : int or float
        The lower limit; where it is a whole number, the argument is one.
    most : float, default=inf
        The upper limit.
    """
    kind = type(least)
    limits = f"{least:,g} or more" if math.isinf(most) else f"between {least:,g} and {most:,g}"

    def number(text: str) -> Number:
        if not least <= (value := kind(text)) <= most:
            raise argparse.ArgumentTypeError(f"must be {limits}, got {text}")
        return value

    number.__name__ = kind.__name__  # as errors call it
    return number


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", type=Path, help="table of rows: .parquet or .csv")
    add("--target", required=True, metavar="COLUMN", help="the labels")
    add(
        "--constraint",
        action="append",
        default=[],
        metavar="RULE",
        help='a rule such as "fpr <= 0.05" or "gap(tpr, by=sex) <= 0.02"; may be repeated',
    )
    add(
        "--sensitive",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column for rules to look at that the model does not; may be repeated",
    )
    add(
        "--small-groups",
        choices=SMALL_GROUPS,
        help="what becomes of groups of fewer than min_group_size rows in rules that do not say "
        "(default: keep)",
    )
    add("--weight", metavar="COLUMN", help="sample weights")
    add(
        "--positive",
        metavar="LABEL",
        help="the label that fpr, recall ... take as positive; by default the last of the sorted "
        "labels",
    )
    add(
        "--level",
        type=float,
        default=0.95,
        help="level of each interval of the audit (default: 0.95)",
    )
    add("--html", type=Path, metavar="FILE", help="write the audit as a page")
    add("--json", type=Path, metavar="FILE", help="write the audit as JSON")
    add("--quiet", action="store_true", help="print nothing but warnings and errors")


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_fit)
    _add_common(parser)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the model, as its library has it")
    add("--library", choices=list(LIBRARIES), default="xgboost", help="default: xgboost")
    add(
        "--drop",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column to leave out; may be repeated",
    )
    add(
        "--test-fraction",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="rows that are held out, stratified by the target, for an audit after the fit; 0 "
        "for none (default: 0.2)",
    )
    add("--measure-on", choices=MEASURE_ON, help="rows whose rates train the model")
    guarantees = [guarantee for guarantee in GUARANTEES if guarantee is not None]
    add("--guarantee", choices=guarantees, help="what is promised of new rows")
    add("--delta", type=float, help="probability that the guarantee fails (default: 0.05)")
    add(
        "--seed",
        type=at_least(0),
        default=0,
        help="of splits and of the booster (default: 0)",
    )
    add(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the classifier, such as n_estimators=300; may be repeated",
    )


def _add_audit(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_audit)
    parser.add_argument("model", type=Path, help="a model of XGBoost or LightGBM")
    _add_common(parser)


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Parameters of the classifier: those given by name, and those that have options."""
    given: dict[str, Any] = {}
    for pair in options.param:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--param {pair!r} must be NAME=VALUE, such as n_estimators=300.")
        if name in OPTION_OF:
            raise ValueError(f"--param {pair!r}: use {OPTION_OF[name]}.")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = {"True": True, "False": False, "None": None}.get(value, value)
    if isinstance(given.get("monotone_constraints"), list):  # which JSON has and XGBoost not
        given["monotone_constraints"] = tuple(given["monotone_constraints"])
    _check_known(options.library, given)
    if "n_estimators" in given:
        check_integer("--param n_estimators", given["n_estimators"], 1)
    for name in ("measure_on", "guarantee", "delta"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name)
    return {**given, "random_state": options.seed}


def _check_known(library: str, given: dict[str, Any]) -> None:
    """Refuse parameters that neither the classifier nor its library knows."""
    known = set(LIBRARIES[library]().get_params())
    others = {name: value for name, value in given.items() if name not in known}
    if library == "lightgbm":
        # Not public, and the only list of LightGBM's parameters; without it, it warns later.
        table = getattr(lgb.basic, "_ConfigAliases", None)
        aliases = {} if table is None else table._get_all_param_aliases()
        names = {alias for group in aliases.values() for alias in group} | set(aliases)
        unknown = [name for name in others if names and name not in names]
    else:
        unknown = [name for name, value in others.items() if _xgboost_ignores(name, value)]
        names = set()
    if unknown:
        near = difflib.get_close_matches(unknown[0], [*known, *names], n=1)
        remedy = f"did you mean {near[0]}?" if near else "see the library's documentation."
        raise ValueError(f"--param: {NAMES[library]} has no parameter {unknown[0]}: {remedy}")


def _xgboost_ignores(name: str, value: Any) -> bool:
    """Whether XGBoost has no use for a parameter, which it says in a warning."""
    rows = xgb.DMatrix(np.zeros((2, 1)), label=[0, 1])
    settings = {name: value, "validate_parameters": True, "verbosity": 1}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xgb.train(settings, rows, 1)
    return any("are not used" in str(warning.message) for warning in caught)


def _check_input(role: str, path: Path) -> None:
    """Refuse a file that cannot be read, before anything takes its time."""
    if path.is_dir():
        raise ValueError(f"{role} {path} is a folder: name a file in it.")
    if not path.exists():
        others = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        remedy = f"did you mean {path.parent / near[0]}?" if near else "check its name and folder."
        raise ValueError(f"{role} {path} does not exist: {remedy}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{role} {path} cannot be read: permission is denied.")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{role} {path} is empty: give a file with content.")


def _check_table(path: Path) -> None:
    """Refuse what is no file of a table."""
    if not path.name.lower().endswith((*PARQUET, *CSV)):
        raise ValueError(f"DATA {path} must be a table that ends in .parquet or .csv.")
    _check_input("DATA", path)


def _read(path: Path) -> pd.DataFrame:
    """Read a table as pandas does, every column under a name of its own."""
    if _is_csv(path):
        # Read as a header, names that come again get numbers and are columns of their own.
        header = _read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
        counts = Counter(filter(None, header.to_numpy()[0]))  # of those that have a name
        if again := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"{path} has several columns {again[0]!r}: give each its own name.")
        # Read by chunks, a column may be of numbers in one and of texts in another.
        table = _read_csv(path, low_memory=False)
    else:
        if importlib.util.find_spec("pyarrow") is None:
            raise ImportError(
                f"reading {path} needs pyarrow: pip install 'gbm_constrained[datasets]', or give "
                f"CSV."
            )
        try:
            table = pd.read_parquet(path, engine="pyarrow")
        except (ValueError, OSError) as error:
            raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
    if table.empty:
        raise ValueError(f"{path} has no rows.")
    # Parquet keeps an index: with names, its levels are columns like others.
    named = [name for name in table.index.names if name is not None]
    table = table.reset_index(level=named).reset_index(drop=True)
    return table.set_axis(table.columns.map(str), axis=1)  # of several levels, one text too


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith(CSV)


def _read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read CSV, rows that end in a comma too; other fields without a name are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # By itself pandas takes the first fields of longer rows as an index, and all names
            # would move by one column.
            table: pd.DataFrame = pd.read_csv(path, index_col=False, **options)
        except pd.errors.ParserWarning:
            raise ValueError(
                f"{path} has rows with more fields than its header has names: name every column."
            ) from None
        # Errors of bytes, of lines, and of compressed files that end too soon name no file.
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read as CSV in UTF-8: {error}") from None
    return table


def _as_written(path: Path, table: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """Read again the columns of CSV that pandas took as numbers, now as the file writes them.

    Parameters
    ----------
    path : path
        The file.
    table : DataFrame
        The file as pandas reads it.
    names : collection of str
        Columns to look at.

    Returns
    -------
    DataFrame
        Texts of those columns that hold numbers; no columns of Parquet, which has types.
    """
    numbers = [name for name in names if _holds_numbers(table[name])]
    if not numbers or not _is_csv(path):
        return table[[]]
    return _read_csv(path, usecols=numbers, dtype=str).where(table[numbers].notna())


def _holds_numbers(column: pd.Series) -> bool:
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def _values(column: pd.Series, written: pd.Series | None, *, as_texts: bool = False) -> pd.Series:
    """Values of a column of labels or groups, alike in CSV and in Parquet.

    Parameters
    ----------
    column : Series
        The column as pandas reads it.
    written : Series, default=None
        Its texts in a CSV file, where pandas reads numbers.
    as_texts : bool, default=False
        Whether numbers are to be texts.

    Returns
    -------
    Series of object
        Texts; whole numbers; other numbers where not all of them are whole. Numbers of CSV are
        texts where they would lose something as numbers, such as the zero of 01.
    """
    if is_datetime64_any_dtype(column):
        return column.astype(str).where(column.notna()).astype(object)
    codes, uniques = pd.factorize(column if written is None else written)
    found = uniques.tolist()
    if written is not None and not as_texts:
        found = _as_numbers(found)
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in found):
        is_whole = all(float(value).is_integer() for value in found)
        found = [int(value) if is_whole else float(value) for value in found]
        found = list(map(str, found)) if as_texts else found
    return pd.Series(np.array([*found, None], dtype=object)[codes], name=column.name)


def _as_numbers(texts: list[str]) -> list[Any]:
    """Numbers in the place of texts, or the texts if some say more than their number."""
    trimmed = list(map(str.strip, texts))
    if not all(map(_is_number, trimmed)):
        return texts
    numbers = [int(text) if INTEGER.fullmatch(text) else float(text) for text in trimmed]
    return numbers if len(set(numbers)) == len(set(trimmed)) else texts


def _is_number(text: str) -> bool:
    """Whether a text that pandas reads as a number is written as one: 1, 2.50, 1e-05, not 01."""
    return bool(INTEGER.fullmatch(text) or DECIMAL.fullmatch(text)) or str(float(text)) == text


def _check_columns(options: argparse.Namespace, table: pd.DataFrame) -> None:
    """Refuse columns that do not exist, or have two roles."""
    roles: dict[str, str] = {}
    for option in ("target", "weight", "sensitive", "drop"):
        given = getattr(options, option, None)
        for name in [given] if isinstance(given, str) else given or []:
            if name not in table:
                raise ValueError(f"--{option}: {_no_column(options.data, table, name)}")
            if roles.get(name, option) != option:
                raise ValueError(f"--{option} {name}: this column is --{roles[name]} already.")
            roles[name] = option


def _no_column(path: Path, table: pd.DataFrame, name: object) -> str:
    near = difflib.get_close_matches(str(name), list(table.columns), n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {list(table.columns)}."
    return f"{path} has no column {name!r}: {remedy}"


def _labels(column: pd.Series, name: str) -> NDArray[Any]:
    """Labels as texts, whole numbers or bools."""
    missing = np.flatnonzero(column.isna())
    if missing.size:
        raise ValueError(
            f"--target {name}: {missing.size} rows have no label, the first is row "
            f"{missing[0]}: take them out."
        )
    values = column.astype(object).tolist()
    types = {type(value) for value in values}
    if types == {float} and all(value.is_integer() for value in values):
        values, types = [int(value) for value in values], {int}
    if len(types) > 1 or not types <= {str, int, bool}:
        found = sorted(kind.__name__ for kind in types)
        raise ValueError(
            f"--target {name} must hold texts, whole numbers or bools as labels, and holds "
            f"{' and '.join(found)}."
        )
    return np.array(values)


@dataclass(frozen=True)
class _Data:
    """A table, with its labels, its weights and the columns that rules look at."""

    table: pd.DataFrame
    y: NDArray[Any]
    weight: NDArray[Any] | None
    groups: pd.DataFrame

    @classmethod
    def of(
        cls,
        options: argparse.Namespace,
        rules: Sequence[Constraint],
        model: ModelFile | None = None,
    ) -> _Data:
        """Read a table; features that a model was trained on as texts are texts in CSV too."""
        path, target = options.data, options.target
        table = _read(path)
        _check_columns(options, table)
        named, decisions = _columns_named(rules)
        named = [name for name in dict.fromkeys([*options.sensitive, *named]) if name in table]
        features = [] if model is None else model.texts(table)
        written = _as_written(path, table, {target, *named, *features})
        texts = [name for name in features if name in written]
        table[texts] = written[texts]
        of_model = model is not None and are_texts(model.labels or [])
        y = _labels(_values(table[target], written.get(target), as_texts=of_model), target)
        as_texts = _named_by_texts(rules)
        if y.dtype.kind == "U":
            as_texts.update(decisions)
        groups = {
            name: _values(table[name], written.get(name), as_texts=name in as_texts)
            for name in named
        }
        if _is_csv(path):
            _say_missing(options, table, named)
        weight = None
        if options.weight is not None:
            weight = table[options.weight].to_numpy()
            if weight.dtype.kind not in "iufb":
                raise ValueError(f"--weight {options.weight} must hold numbers.")
            weight = check_weight(weight, len(table), f"--weight {options.weight}")
        return cls(table, y, weight, pd.DataFrame(groups, index=table.index))

    def rows(self, index: NDArray[Any]) -> _Data:
        weight = None if self.weight is None else self.weight[index]
        return _Data(self.table.iloc[index], self.y[index], weight, self.groups.iloc[index])


def _say_missing(options: argparse.Namespace, table: pd.DataFrame, names: Sequence[str]) -> None:
    """Tell which texts of CSV in columns of groups count as missing values."""
    lacking = [name for name in names if table[name].isna().any()]
    if not lacking:
        return
    written = _read_csv(options.data, usecols=lacking, dtype=str, keep_default_na=False)
    for name in lacking:
        counts = written[name][table[name].isna() & (written[name] != "")].value_counts()
        for text, count in counts.items():
            _say(options, f"{name}: {text!r} is a missing value ({count:,} rows)")


def _rules(
    options: argparse.Namespace, labels: dict[Any, Any] | None = None
) -> tuple[Constraint, ...]:
    """Read the rules; given labels, as they are to be in the constraints."""
    positive = None
    if labels is not None:
        if options.positive is not None:
            positive = next((name for name in labels if str(name) == options.positive), None)
            if positive is None:
                raise ValueError(
                    f"--positive {options.positive}: the labels are "
                    f"{', '.join(map(repr, labels))}."
                )
        positive = find_positive_class([*labels], positive)
    rules: list[Constraint] = []
    for text in options.constraint:
        try:
            rules += parse_constraints(text, labels=labels, positive=positive)
        except ValueError as error:
            raise ValueError(f"--constraint: {error}") from None
    return tuple(_with_groups(rule, options) for rule in rules)


def _with_groups(rule: Constraint, options: argparse.Namespace) -> Constraint:
    """Name the columns of a rule's groups, and what becomes of small ones, where it does not."""
    expression = rule.expression
    if not isinstance(expression, Grouped):
        return rule
    if expression.by is None and options.sensitive:
        expression = replace(expression, by=tuple(options.sensitive))
    if options.small_groups and expression.small_groups == Grouped.small_groups:
        expression = replace(expression, small_groups=options.small_groups)
    return replace(rule, expression=expression)


def _columns_named(rules: Sequence[Constraint]) -> tuple[list[Any], list[Any]]:
    """Columns that rules look at, and those of them that hold decisions."""
    named = [name for rule in rules for name in rule.columns]
    decisions = [model.column for rule in rules for model in rule.reference_models]
    return list(dict.fromkeys([*named, *decisions])), list(dict.fromkeys(decisions))


def _named_by_texts(rules: Iterable[Constraint]) -> set[Any]:
    """Columns of which rules name a value by its text, as in on={zip: "02134"}."""
    named: dict[Any, list[Any]] = {}
    for rule in rules:
        reference = rule.expression.reference_group or ()
        for name, value in zip(rule.expression.columns, reference, strict=False):
            named.setdefault(name, []).append(value)
        for column in (column for term in rule.terms for column in term.columns):
            named.setdefault(column.name, []).append(column.value)
    return {name for name, values in named.items() if any(isinstance(v, str) for v in values)}


def _text_of(rule: Constraint) -> str:
    """Give a rule as it is written; of a model's file, one may have no text."""
    try:
        return format_constraint(rule)
    except ValueError:
        return str(rule)


def _check_rules(
    rules: Iterable[Constraint],
    options: argparse.Namespace,
    data: _Data,
    labels: Sequence[Label],
) -> None:
    """Refuse rules about what the command line cannot give."""
    kept_out = {options.target: "target", options.weight: "weight"}
    kept_out |= dict.fromkeys(getattr(options, "drop", []), "drop")
    for rule in rules:
        if isinstance(rule.expression, Grouped) and rule.expression.by is None:
            raise ValueError(
                f"--constraint {_text_of(rule)}: name the columns of the groups, by=..., or "
                f"give --sensitive."
            )
        if rule.data_sets:
            raise ValueError(
                f"--constraint {_text_of(rule)} speaks of a further data set, which only Python "
                f"can give."
            )
        named, decisions = _columns_named([rule])
        if None in decisions:
            raise ValueError(
                f"the rule {_text_of(rule)} of {options.model} speaks of another model, which the "
                f"file does not hold: give the rules anew by --constraint, and a column of that "
                f"model's decisions, as in churn(to=COLUMN)."
            )
        for name in named:
            if name not in data.table:
                missing = _no_column(options.data, data.table, name)
                raise ValueError(f"--constraint {_text_of(rule)}: {missing}")
            if name in kept_out:
                raise ValueError(
                    f"--constraint {_text_of(rule)}: column {name!r} is --{kept_out[name]}, and "
                    f"rules look at features and --sensitive columns only."
                )
        for name in decisions:
            # NA of pandas is neither equal to a label nor different from it.
            strange = [v for v in data.groups[name].unique() if pd.isna(v) or v not in labels]
            if strange:
                found = "a missing value" if pd.isna(strange[0]) else repr(strange[0])
                raise ValueError(
                    f"--constraint {_text_of(rule)}: column {name!r} is to hold another model's "
                    f"decisions, and holds {found}, which is not among the labels {labels}."
                )


def _check_not_selected_by(decisions: Sequence[Any], rules: Iterable[Constraint]) -> None:
    """Refuse rules that name a decision of another model, where only its code is known."""
    for rule in rules:
        named = {column.name for term in rule.terms for column in term.columns}
        if rule.expression.reference_group is not None:
            named |= {*rule.expression.columns}
        for name in named.intersection(decisions):
            raise ValueError(
                f"--constraint {_text_of(rule)}: column {name!r} holds another model's decisions, "
                f"which XGBoost knows by the codes of the labels: name a copy of the column, or "
                f"take --library lightgbm."
            )


def _check_measurable(
    rules: Sequence[Constraint],
    data: _Data,
    rows: NDArray[np.intp],
    held_out: NDArray[np.intp],
    labels: Sequence[Label],
) -> None:
    """Refuse rules that one part of the rows has no value of, before the fit."""
    if not held_out.size:
        return
    for part, purpose in ((held_out, "held out"), (rows, "trained on")):
        try:
            _compile(rules, data.rows(part), labels)
        except ValueError as error:
            _compile(rules, data, labels)  # what is wrong on all rows is said as it is
            raise ValueError(
                f"{error} This is about the {part.size:,} rows that are {purpose}: give another "
                f"--seed or --test-fraction, such as 0."
            ) from None


def _compile(rules: Sequence[Constraint], data: _Data, labels: Sequence[Label]) -> None:
    """Find out whether rules can be measured on rows; what they warn of, the fit says too."""
    codes = np.searchsorted(labels, data.y)
    columns = columns_of(data.groups[_columns_named(rules)[0]], codes.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_constraints(rules, Rows(codes, np.array(labels), data.weight, columns, []))


def _fit(options: argparse.Namespace) -> int:
    """Train a model, write it, and audit what was written on the rows held out."""
    stated = _rules(options)  # before a large table is read
    _check_table(options.data)
    parameters = _parameters(options)
    _check_out(options)
    data = _Data.of(options, stated)
    labels = np.unique(data.y).tolist()
    if len(labels) < 2:
        raise ValueError(f"--target {options.target} holds one label only, {labels[0]!r}.")
    is_coded = options.library == "xgboost" and not _are_positions(labels)
    codes = {label: i for i, label in enumerate(labels)}
    rules = _rules(options, {label: label for label in labels})
    _check_rules(rules, options, data, labels)
    asked = _rules(options, codes) if is_coded else rules
    X = _features(options, data.table)
    rows, held_out = _split(data, options)
    _say(options, f"{rows.size:,} rows to train on, {held_out.size:,} held out; labels {labels}")
    if len(labels) == 2:
        _say(options, f"positive: {options.positive or labels[-1]}")
    named, decisions = _columns_named(rules)
    seen = [name for name in named if name in X]
    if seen:
        _say(options, f"rules look at features: {', '.join(seen)} (--sensitive takes them out)")
    trained = data.rows(rows)
    sensitive, y = trained.groups.copy(), trained.y
    if is_coded:
        if labels != list(codes.values()):  # as False and True are
            _check_not_selected_by(decisions, rules)
        y = np.searchsorted(labels, y)
        for name in decisions:
            sensitive[name] = sensitive[name].map(codes)
    _check_measurable(rules, data, rows, held_out, labels)
    classifier = _classifier(options.library, asked, parameters)
    # Only the fit speaks of codes: the same text after it is about labels, maybe others.
    spelling = _spelling(asked, rules, decisions if is_coded else [], codes)
    options.spelling.update(spelling)
    shown: dict[str, Any] = {}
    progress = None
    if options.library == "xgboost":
        shown["verbose"] = not options.quiet
        if is_coded and not options.quiet and classifier.verbosity != 0:
            # That of the fit would name labels by their codes.
            progress = Progress("round", rename=partial(_spelt, spelling=spelling))
            shown = {"verbose": False, "constraint_callbacks": [progress]}
    try:
        classifier.fit(
            X.iloc[rows],
            y,
            sample_weight=trained.weight,
            sensitive_features=sensitive if len(sensitive.columns) else None,
            **shown,
        )
    finally:
        if progress is not None:
            progress.close()
    options.spelling.clear()
    save_classifier(classifier, options.out, labels, X)
    known = f" whose classes 0, 1 ... are {labels}" if is_coded else ""
    _say(options, f"wrote {options.out}: a plain {NAMES[options.library]} model{known}")
    if not held_out.size:
        return _report(options, classifier, rules, spelling)
    model = open_model(options.out).named(labels)
    if rules:
        model.history_ = classifier.history_.rename(columns=lambda name: _spelt(name, spelling))
    # The very features: among all columns, others may have their names.
    seen_as = X.iloc[held_out].set_axis(model.features, axis=1)
    return _measured(options, model, seen_as, data.rows(held_out), rules)


def _audit(options: argparse.Namespace) -> int:
    """Measure rules on the decisions of a model."""
    stated = _rules(options)
    _check_input("MODEL", options.model)
    _check_table(options.data)
    _check_out(options)
    if options.positive is not None and not options.constraint:
        raise ValueError("--positive is for --constraint: rules of a model name their labels.")
    model = open_model(options.model)
    rules = tuple(_with_groups(rule, options) for rule in model.constraints)
    data = _Data.of(options, stated or rules, model)
    labels = _labels_of(model, data.y, options)
    if options.constraint:
        rules = _rules(options, {label: label for label in labels})
    if not rules:
        raise ValueError(
            f"{options.model} has no rules with it: give at least one --constraint RULE."
        )
    _check_rules(rules, options, data, labels)
    return _measured(options, model.named(labels), model.take(data.table), data, rules)


def _are_positions(labels: Sequence[Any]) -> bool:
    """Whether labels are 0, 1, 2 ..., as XGBoost has them."""
    return all(type(label) is int and label == i for i, label in enumerate(labels))


def _check_out(options: argparse.Namespace) -> None:
    """Refuse what could not be written, before anything takes its time."""
    _check_apart(options)
    for option in ("out", "html", "json"):
        path = getattr(options, option, None)
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise ValueError(f"--{option} {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise ValueError(f"--{option} {path} is a folder: name a file in it.")
        _check_writable(option, path)
    if not 0.0 < options.level < 1.0:
        raise ValueError(
            f"--level must lie strictly between 0 and 1, such as 0.95, got {options.level:g}."
        )
    if options.command != "fit":
        return
    if options.library == "xgboost" and options.out.suffix not in (".json", ".ubj"):
        raise ValueError(f"--out {options.out} must end in .json or .ubj for XGBoost.")
    share = options.test_fraction
    if not 0.0 <= share < 1.0:
        raise ValueError(f"--test-fraction must be at least 0 and below 1, got {share:g}.")
    if share == 0.0 and (options.html or options.json):
        raise ValueError(
            "--html and --json write the audit of held-out rows, of which --test-fraction 0 "
            "leaves none."
        )


def _check_apart(options: argparse.Namespace) -> None:
    """Refuse to write a file over one that is read, or over another that is written."""
    roles = {"data": "DATA", "model": "MODEL", "out": "--out", "html": "--html", "json": "--json"}
    given = [
        (role, getattr(options, name))
        for name, role in roles.items()
        if getattr(options, name, None) is not None
    ]
    for (first, one), (second, other) in itertools.combinations(given, 2):
        if second.startswith("--") and _is_same_file(one, other):
            raise ValueError(
                f"{second} {other} would be written over {first} {one}: name another file."
            )


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, by links as well, or would if it were written."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be opened for writing; one that is there stays as it is."""
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise ValueError(f"--{option} {path} cannot be written: {error.strerror}.") from None
    if is_new:
        path.unlink()


def _features(options: argparse.Namespace, table: pd.DataFrame) -> pd.DataFrame:
    """Take the features out of a table, with categories for texts."""
    left_out = {options.target, options.weight, *options.sensitive, *options.drop}
    names = [name for name in table if name not in left_out]
    if not names:
        raise ValueError(f"{options.data} has no columns left to train on.")
    refused = REFUSED[options.library]
    if strange := [name for name in names if set(refused).intersection(str(name))]:
        raise ValueError(
            f"{NAMES[options.library]} trains on no columns with any of {' '.join(refused)} in "
            f"their names, as {strange[0]!r} has: rename or --drop it."
        )
    X, made = with_categories(table[names])
    if made:
        _say(options, f"text columns as categories: {', '.join(made)}")
    for name in made:
        distinct = X[name].nunique()
        if distinct > min(MANY_TEXTS, MANY_OF_ROWS * len(X)):
            _say(options, f"{name} has {distinct:,} distinct texts: --drop it if it names rows")
    for column in names:
        if re.fullmatch(r"Unnamed: \d+", str(column)):  # so pandas calls what has no header
            _say(options, f"{column!r} is a feature: --drop it if it is the index of a table")
    return X


def _split(data: _Data, options: argparse.Namespace) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split the rows into those to train on and those held out."""
    rows = np.arange(data.y.size)
    if options.test_fraction == 0.0:
        return rows, rows[:0]
    n, n_labels, share = rows.size, np.unique(data.y).size, options.test_fraction
    held_out = math.ceil(share * n)
    if min(held_out, n - held_out) < n_labels:
        raise ValueError(
            f"--test-fraction {share:g} holds out {held_out} of {n} rows, and both parts need "
            f"rows of all {n_labels} labels: give another share, or 0 to train on all rows."
        )
    trained, test = train_test_split(
        rows, test_size=options.test_fraction, stratify=data.y, random_state=options.seed
    )
    return np.sort(trained), np.sort(test)


def _classifier(library: str, rules: tuple[Constraint, ...], parameters: dict[str, Any]) -> Any:
    quiet: dict[str, Any] = {"enable_categorical": True}
    if library == "lightgbm":
        quiet = {} if "verbosity" in parameters else {"verbose": -1}
    return LIBRARIES[library](constraints=list(rules), **{**quiet, **parameters})


def _labels_of(model: ModelFile, y: NDArray[Any], options: argparse.Namespace) -> list[Label]:
    """Labels of a model's classes: those of the file, else 0, 1 ..., else those of the data."""
    if model.labels is not None:
        return model.labels
    found: list[Label] = np.unique(y).tolist()
    positions = list(range(model.n_classes))
    if set(found) <= set(positions) and bool not in map(type, found):
        return list(positions)
    if len(found) != model.n_classes:
        raise ValueError(
            f"{options.model} tells {model.n_classes} classes apart and does not name them, and "
            f"--target {options.target} holds {found}: give rows of all classes."
        )
    _say(
        options,
        f"{options.model} does not name its classes: taken as the sorted labels, {found}",
    )
    return found


def _measured(
    options: argparse.Namespace,
    model: ModelFile,
    X: pd.DataFrame,
    data: _Data,
    rules: tuple[Constraint, ...],
) -> int:
    """Audit a model, and write and print what was found."""
    sensitive = data.groups
    report: Audit = audit(
        model,
        X,
        data.y,
        rules,
        sensitive_features=sensitive if len(sensitive.columns) else None,
        sample_weight=data.weight,
        level=options.level,
    )
    _say(options, f"\n{report}")
    if options.html is not None:
        report.to_html(options.html)
    if options.json is not None:
        options.json.write_text(report.to_json(), encoding="utf-8")
    return ALL_MET if (report.frame["verdict"] == "met").all() else NOT_MET


def _report(
    options: argparse.Namespace,
    classifier: Any,
    rules: Sequence[Constraint],
    spelling: dict[str, str],
) -> int:
    """Print what the fit itself says of its rules, and by which rows."""
    if not rules:
        return ALL_MET
    report = classifier.constraint_report_.assign(constraint=[str(rule) for rule in rules])
    shown = report[["constraint", "held_out", "low", "high", "rows", "verdict"]]
    _say(options, f"\n{shown.to_string(index=False, float_format='{:.4f}'.format)}")
    _say(options, f"\n{_spelt(str(classifier.feasibility_), spelling)}")
    return ALL_MET if classifier.feasibility_.status == "met" else NOT_MET


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text)
