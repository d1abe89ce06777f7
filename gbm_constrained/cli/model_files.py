"""Models in files of XGBoost and LightGBM, and what a table needs to be given to them.

A file is what the library itself writes and reads. XGBoost knows its classes as 0, 1, 2 ... only,
and before 3.4 it cuts the names of categories that are not ASCII: labels and names are kept in
attributes of the booster, which XGBoost carries along and does not look at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.lightgbm.model_text import classifier_of
from gbm_constrained.boosters.xgboost.checks import KEEPS_NAMES
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.text import format_constraint, parse_constraint
from gbm_constrained.evaluation.classifiers import repeatable_decisions
from gbm_constrained.training.model_note import constraints_of

LABELS_ATTRIBUTE = "class_labels"
NAMES_ATTRIBUTE = "category_names"
# Objectives of XGBoost under which its own classifier decides for classes.
OF_CLASSIFIERS = (
    "binary:logistic", "binary:hinge", "reg:logistic", "multi:softprob", "multi:softmax"
)  # fmt: skip
Label = str | int | float | bool


def save_classifier(
    classifier: Any, path: str | os.PathLike[str], labels: Sequence[Label], X: pd.DataFrame
) -> None:
    """Write a fitted classifier as a model of its library.

    Parameters
    ----------
    classifier : ConstrainedXGBClassifier or ConstrainedLGBMClassifier
        The classifier.
    path : path
        Where to; for XGBoost it ends in ``.json`` or ``.ubj``.
    labels : sequence
        What the classes in their order stand for.
    X : DataFrame
        Features that it was trained on, whose categories it knows.

    Raises
    ------
    ValueError
        If it was trained with an objective that makes no classifier; nothing is written.
    """
    if isinstance(classifier, ConstrainedXGBClassifier):
        _check_objective(path, classifier.objective)
        known = {LABELS_ATTRIBUTE: list(labels), NAMES_ATTRIBUTE: _names_of_categories(X)}
        classifier.get_booster().set_attr(**{name: json.dumps(v) for name, v in known.items()})
    else:
        try:
            classifier_of(classifier.booster_.model_to_string(num_iteration=1))
        except ValueError as error:
            raise ValueError(f"{path} is no classifier of LightGBM: {error}.") from None
    classifier.save_model(os.fspath(path))


def _names_of_categories(X: pd.DataFrame) -> dict[str, list[str]]:
    """Categories of a table's columns that are texts; numbers are right in files of XGBoost."""
    found = {
        str(column): values.cat.categories.tolist()
        for column, values in X.items()
        if isinstance(values.dtype, pd.CategoricalDtype)
    }
    return {name: names for name, names in found.items() if are_texts(names)}


def _check_objective(path: str | os.PathLike[str], objective: Any) -> None:
    if objective not in OF_CLASSIFIERS:
        raise ValueError(
            f"{path} is no classifier of XGBoost: it was trained with {objective!r}, and not "
            f"with one of {', '.join(map(repr, OF_CLASSIFIERS))}."
        )


def with_categories(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Make categories of the texts in a table of features, and name their columns.

    Raises
    ------
    ValueError
        If a column holds neither numbers, bools, categories nor texts.
    """
    table, made = table.copy(), []
    for name in map(str, table):
        dtype = table[name].dtype
        if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_numeric_dtype(dtype):
            continue  # bools are numeric
        kind = pd.api.types.infer_dtype(table[name], skipna=True)
        if kind == "boolean":
            table[name] = table[name].astype("boolean")
        elif kind == "empty":  # as in CSV; XGBoost takes no categories of which there are none
            table[name] = np.nan
        elif kind == "string":
            table[name] = table[name].astype("category")
            made.append(name)
        else:
            raise ValueError(
                f"column {name!r} holds {kind} values, which no booster takes: turn them into "
                f"numbers or texts, or leave the column out."
            )
    return table, made


def open_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model of XGBoost or LightGBM, whichever it is.

    Parameters
    ----------
    path : path
        The file.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If it is something else, or names no features.
    """
    with Path(path).open("rb") as file:
        begin = file.read(4)
    if begin == b"tree":
        return LightGBMModel(path)
    if begin[:1] == b"{":
        return XGBoostModel(path)
    raise ValueError(f"{path} is neither a model of XGBoost (JSON, UBJSON) nor one of LightGBM.")


class ModelFile:
    """A model that was read from a file: a classifier of tables.

    Parameters
    ----------
    path : path
        The file.

    Attributes
    ----------
    classifier : classifier
        What the file holds.
    features : list of str
        Columns that it takes, in their order.
    n_classes : int
        Classes that it tells apart.
    labels : list or None
        What they stand for, where the file tells.
    constraints : tuple of Constraint
        The rules that it was trained under, where the file tells; about `labels`.
    classes_ : ndarray of shape (n_classes,)
        The labels that are predicted, once it is told by `named`.
    history_ : DataFrame or None
        How its training went, if it is told; audits show it.
    """

    features: list[str]
    n_classes: int
    labels: list[Label] | None = None
    constraints: tuple[Constraint, ...] = ()
    classes_: NDArray[Any]
    history_: pd.DataFrame | None = None

    def __init__(self, path: str | os.PathLike[str], classifier: Any) -> None:
        self.path, self.classifier = path, classifier

    def named(self, labels: Sequence[Label]) -> ModelFile:
        """Tell what the classes stand for, and return the model."""
        self.classes_ = np.array(labels)
        return self

    def take(self, table: pd.DataFrame) -> pd.DataFrame:
        """Take the features out of a table, with categories for texts.

        Categories that are new to the model are missing values: XGBoost may take them for known
        ones.

        Raises
        ------
        ValueError
            If a feature is not there, holds none of its categories, or texts for numbers.
        """
        X = self._features_in(table)
        categories = self.categories(X)
        for name in self.features:
            values = X[name].astype(object)
            if name in categories:
                X[name] = self._as_category(values, categories[name])
            elif isinstance(X[name].dtype, pd.CategoricalDtype):
                X[name] = self._as_number(values)
        return X

    def texts(self, table: pd.DataFrame) -> list[str]:
        """Columns of a table that held texts when the model was trained."""
        categories = self.categories(self._features_in(table))
        columns = zip(self._columns_in(table), self.features, strict=True)
        return [column for column, name in columns if are_texts(categories.get(name, []))]

    def categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Categories that the model knows, by feature."""
        raise NotImplementedError

    def name_of(self, column: str) -> str:
        """Say what the model calls a column of a table."""
        return column

    def _features_in(self, table: pd.DataFrame) -> pd.DataFrame:
        columns = self._columns_in(table)
        return with_categories(table[columns].set_axis(self.features, axis=1))[0]

    def _columns_in(self, table: pd.DataFrame) -> list[str]:
        """Columns of a table that are the features, in their order."""
        columns: dict[str, list[str]] = {}
        for column in map(str, table):
            columns.setdefault(self.name_of(column), []).append(column)
        missing = [name for name in self.features if name not in columns]
        if missing:
            raise ValueError(
                f"the data have no column {missing[0]!r}, which {self.path} was trained on "
                f"({len(missing)} such columns)."
            )
        for name in self.features:
            if len(columns[name]) > 1:
                raise ValueError(
                    f"columns {' and '.join(map(repr, columns[name]))} of the data have one name "
                    f"in {self.path}, {name!r}: rename or leave out those that it was not "
                    f"trained on."
                )
        return [columns[name][0] for name in self.features]

    def _as_category(self, values: pd.Series, known: list[Any]) -> pd.Categorical:
        if are_texts(known):  # of which these may all look like numbers
            values = values.map(_text_of, na_action="ignore")
        of_model = pd.Categorical(values.where(values.isin(known)), categories=known)
        if of_model.isna().all() and not values.isna().all():
            raise ValueError(
                f"column {values.name!r} holds none of the values that {self.path} was trained "
                f"on: {known[:10]}."
            )
        return of_model

    def _as_number(self, values: pd.Series) -> pd.Series:
        """Nothing but missing values; a booster would take the codes of others for numbers."""
        there = values.dropna()
        if len(there):
            strange = there[pd.to_numeric(there, errors="coerce").isna()]
            example = there.iloc[0] if strange.empty else strange.iloc[0]
            kind = "texts" if isinstance(example, str) else "categories"
            raise ValueError(
                f"column {values.name!r} holds {kind} such as {example!r}, and {self.path} was "
                f"trained on numbers there."
            )
        return values.astype(float)

    def predict(self, X: pd.DataFrame) -> NDArray[Any]:
        """Predict labels."""
        decided = np.asarray(repeatable_decisions(self.classifier, X))
        codes = np.searchsorted(self.classifier.classes_, decided)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: pd.DataFrame) -> NDArray[Any]:
        """Predict probabilities of shape (n_samples, n_classes)."""
        return np.asarray(self.classifier.predict_proba(X))


def are_texts(categories: Sequence[Any]) -> bool:
    """Whether there are categories, or labels, and all of them are texts."""
    return bool(categories) and all(isinstance(category, str) for category in categories)


def _text_of(value: Any) -> str:
    """Write a value as in a table of texts; whole numbers are floats where others are missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class XGBoostModel(ModelFile):
    """A model of XGBoost."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        classifier = ConstrainedXGBClassifier()
        try:
            classifier.load_model(os.fspath(path))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is no classifier of XGBoost: {error}") from None
        super().__init__(path, classifier)
        self.booster = classifier.get_booster()
        objective = json.loads(self.booster.save_config())["learner"]["objective"]["name"]
        _check_objective(path, objective)  # XGBoost loads any, and cuts its answers at 0.5
        if self.booster.feature_names is None:
            raise ValueError(f"{path} names no features: train it on a table with columns.")
        self.features = list(self.booster.feature_names)
        self.n_classes = int(classifier.n_classes_)
        stored = self.booster.attr(LABELS_ATTRIBUTE)
        self.labels = None if stored is None else json.loads(stored)
        self._names = json.loads(self.booster.attr(NAMES_ATTRIBUTE) or "{}")
        label_of = None if self.labels is None else dict(enumerate(self.labels))
        self.constraints = stored_constraints(classifier, label_of)

    def categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Categories that the model knows, by feature."""
        if "c" not in (self.booster.feature_types or ()):
            return {}
        try:
            found = self.booster.get_categories(export_to_arrow=True).to_arrow()
        except ImportError:
            raise ImportError(
                f"{self.path} has categories, and reading these from XGBoost needs pyarrow: pip "
                f"install 'gbm_constrained[datasets]'."
            ) from None
        for name, type_ in zip(self.features, self.booster.feature_types, strict=True):
            # Those of slices of XGBoost's boosters; of numbers, they are the codes.
            is_lost = type_ == "c" and dict(found)[name] is None
            if is_lost and isinstance(X[name].dtype, pd.CategoricalDtype):
                raise ValueError(
                    f"{self.path} does not say which categories column {name!r} had in training: "
                    f"save the whole model, by XGBoost 3.1 or newer."
                )
        return {
            name: self._names[name] if name in self._names else self._names_in_file(name, known)
            for name, known in found
            if known is not None
        }

    def _names_in_file(self, column: str, known: Any) -> list[Any]:
        """Categories as XGBoost itself keeps them, where they are whole."""
        try:
            names: list[Any] = known.to_pylist()
            is_whole = self._written_by >= KEEPS_NAMES or all(str(n).isascii() for n in names)
        except UnicodeDecodeError:
            is_whole = False
        if not is_whole:
            raise ValueError(
                f"XGBoost before 3.4 cuts the names of categories that are not ASCII, which "
                f"{self.path} has in column {column!r}: train it by gbm-constrained fit, which "
                f"keeps them, or by XGBoost 3.4 or newer."
            )
        return names

    @property
    def _written_by(self) -> tuple[int, ...]:
        """Version of XGBoost that wrote the file."""
        data = Path(self.path).read_bytes()
        model = ubjson.read(data) if ubjson.is_ubjson(data) else json.loads(data)
        return tuple(map(int, model["version"]))


class LightGBMModel(ModelFile):
    """A model of LightGBM, which writes spaces in the names of columns as underscores."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        classifier = ConstrainedLGBMClassifier().load_model(os.fspath(path))
        super().__init__(path, classifier)
        self.features = list(classifier.booster_.feature_name())
        self.n_classes = int(classifier.n_classes_)
        # LightGBM's own file numbers the classes; False and True equal 0 and 1.
        is_numbered = np.array_equal(classifier.classes_, np.arange(self.n_classes))
        is_named = classifier.classes_.dtype == bool or not is_numbered
        self.labels = classifier.classes_.tolist() if is_named else None
        self.constraints = stored_constraints(classifier)

    def name_of(self, column: str) -> str:
        """Say what the model calls a column of a table."""
        return column.replace(" ", "_")

    def categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Categories that the model knows, by feature; the file has them without their names."""
        booster = self.classifier.booster_
        known = booster.pandas_categorical or []
        if not known:
            return {}
        # Features that no tree can use are not among these, and may be of either kind.
        infos = booster.dump_model(num_iteration=1)["feature_infos"]
        is_category = {n: bool(infos[n]["values"]) if n in infos else None for n in self.features}
        is_text = {n: isinstance(X[n].dtype, pd.CategoricalDtype) for n in self.features}
        guesses = (
            [n for n, told in is_category.items() if told],
            [n for n, told in is_category.items() if told is not False],
            [n for n, told in is_category.items() if told or (told is None and is_text[n])],
            # Numbers, too, are categories where a parameter of LightGBM named them so.
            [n for n, told in is_category.items() if told is not False and is_text[n]],
        )
        for names in guesses:
            if len(names) == len(known):
                return dict(zip(names, known, strict=True))
        raise ValueError(
            f"{self.path} was trained on {len(known)} columns of texts and does not say on "
            f"which, and the data have {len(guesses[-1])} that these may be: {guesses[-1]}. "
            f"Columns must be of the same kind."
        )


def stored_constraints(
    classifier: Any, labels: Mapping[Any, Hashable] | None = None
) -> tuple[Constraint, ...]:
    """Find the rules that were saved with a classifier.

    Parameters
    ----------
    classifier : classifier
        As it was read.
    labels : mapping, default=None
        What the class positions that the rules speak of stand for.
    """
    rules = constraints_of(classifier)
    if labels is None:
        return rules
    return tuple(parse_constraint(format_constraint(rule), labels=labels) for rule in rules)
