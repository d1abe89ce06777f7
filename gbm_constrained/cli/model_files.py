"""Model files of both libraries, and the estimators that commands train.

XGBoost before 3.4 cuts the names of categories that are not ASCII. The command line keeps them in
an attribute of the booster, which XGBoost carries along with the trees.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray
from sklearn.base import is_regressor

from gbm_constrained.cli.tables import Label, are_texts, make_categories
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.evaluation.audit import repeatable_decisions
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.scorers import ubjson
from gbm_constrained.scorers.base import BoosterAdapter
from gbm_constrained.scorers.lightgbm.estimators import (
    ConstrainedLGBMClassifier,
    ConstrainedLGBMRegressor,
)
from gbm_constrained.scorers.lightgbm.models import read_kind
from gbm_constrained.scorers.xgboost.estimators import (
    ConstrainedXGBClassifier,
    ConstrainedXGBRegressor,
)
from gbm_constrained.scorers.xgboost.parameters import KEEPS_NAMES, check_complete


class LabelledXGBClassifier(ConstrainedXGBClassifier):
    """Train XGBoost on class positions, and the constraints on the labels of these classes.

    XGBoost takes the labels 0, 1, 2 ... only. Constraints, reports and the note of the saved file
    hold the labels themselves, and predictions are labels.
    """

    _class_labels: Any = None

    @property
    def classes_(self) -> Any:
        """Sorted labels; 0, 1 ... of a file that does not name its classes."""
        return super().classes_ if self._class_labels is None else self._class_labels

    def fit(self, X: Any, y: Any, **given: Any) -> LabelledXGBClassifier:
        """Fit the classifier to labels of any kind."""
        self._training_labels, positions = np.unique(y, return_inverse=True)
        self._class_labels = None  # XGBoost checks the positions against classes_.
        super().fit(X, positions, **given)
        self._class_labels = self._training_labels
        return self

    def _bind_rows(self, adapter: BoosterAdapter, rows: FitArguments) -> FitArguments:
        return replace(rows, y=self._training_labels[rows.y])

    def predict(self, X: Any, **given: Any) -> Any:
        """Predict labels, or scores where these are asked for."""
        found = super().predict(X, **given)
        return found if given.get("output_margin") else self.classes_[found]


# The estimator of each library, for classes and for numbers.
ESTIMATORS: dict[tuple[str, bool], Any] = {
    ("xgboost", False): LabelledXGBClassifier,
    ("xgboost", True): ConstrainedXGBRegressor,
    ("lightgbm", False): ConstrainedLGBMClassifier,
    ("lightgbm", True): ConstrainedLGBMRegressor,
}


CATEGORIES_ATTRIBUTE = "category_names"
# Objectives of XGBoost under which XGBClassifier decides for classes.
CLASSIFIER_OBJECTIVES = (
    "binary:logistic", "binary:hinge", "reg:logistic", "multi:softprob", "multi:softmax"
)  # fmt: skip
# Objectives under which XGBRegressor predicts one number for each row, or one for each quantile.
REGRESSOR_OBJECTIVES = (
    "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror", "reg:gamma", "reg:tweedie", "count:poisson", "reg:logistic"
)  # fmt: skip


def save_estimator(estimator: Any, path: str | os.PathLike[str], X: pd.DataFrame) -> None:
    """Write an estimator that was fitted on the table X; an objective of no such is refused."""
    if isinstance(estimator, xgb.XGBModel):
        _check_objective(path, estimator.objective, estimator)
        names = {
            str(column): X[column].cat.categories.tolist()
            for column in X.select_dtypes("category")
        }
        # XGBoost's own file is right about categories that are numbers.
        texts = {column: known for column, known in names.items() if are_texts(known)}
        estimator.get_booster().set_attr(**{CATEGORIES_ATTRIBUTE: json.dumps(texts)})
    else:
        is_of_numbers = is_regressor(estimator)
        text = estimator.booster_.model_to_string(num_iteration=1)
        try:
            read_kind(text, is_regressor=is_of_numbers)
        except ValueError as error:
            kind = "regressor" if is_of_numbers else "classifier"
            raise ValueError(f"{path} is no {kind} of LightGBM: {error}.") from None
    estimator.save_model(os.fspath(path))


def _check_objective(path: str | os.PathLike[str], objective: Any, estimator: Any) -> None:
    """Refuse an objective of XGBoost that is not one of the estimator's kind."""
    is_of_numbers = is_regressor(estimator)
    kind = "regressor" if is_of_numbers else "classifier"
    known = REGRESSOR_OBJECTIVES if is_of_numbers else CLASSIFIER_OBJECTIVES
    if objective not in known:
        raise ValueError(
            f"{path} is no {kind} of XGBoost: it was trained with {objective!r}, and not with one "
            f"of {', '.join(map(repr, known))}."
        )


def open_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model of either library; a ValueError says why a file is none."""
    with Path(path).open("rb") as file:
        begin = file.read(4)
    if begin == b"tree":
        return LightGBMModel(path)
    if begin[:1] == b"{":
        return XGBoostModel(path)
    raise ValueError(f"{path} is neither a model of XGBoost (JSON, UBJSON) nor one of LightGBM.")


def is_numbered(labels: Sequence[Any]) -> bool:
    """Whether labels are 0, 1, 2 ..., as the libraries number classes; False and True are not."""
    return all(type(label) is int and label == i for i, label in enumerate(labels))


class ModelFile:
    """A classifier or regressor of table rows that was read from a file.

    Attributes
    ----------
    estimator : constrained classifier or regressor
        Content of the file.
    predicts_numbers : bool
        Whether it is a regressor.
    features : list of str
        Names of the columns that the model takes, in their order.
    labels : list or None
        Labels of the classes, none of a regressor; None where the file numbers them.
    constraints, positive
        Constraints of the training, and the positive class of rates that name none.
    objective : Metric or None
        Metric that the training maximised or minimised.
    classes_ : ndarray of shape (n_classes,)
        Labels that are predicted, once `name_classes` has set them.
    history_ : DataFrame or None
        History of the training under constraints, which audits show.
    """

    space = " "  # The library writes spaces in the names of columns as this character.
    classes_: NDArray[Any]

    def __init__(self, path: str | os.PathLike[str], estimator: Any, features: list[str]) -> None:
        self.path, self.estimator, self.features = path, estimator, features
        self.predicts_numbers = bool(is_regressor(estimator))
        self.constraints = check_constraints(estimator.constraints)
        self.history_: pd.DataFrame | None = getattr(estimator, "history_", None)
        self.n_classes = 0
        self.positive: Label | None = None
        self.objective: Metric | None = None
        self.labels: list[Label] | None = []
        if not self.predicts_numbers:
            self.n_classes = int(estimator.n_classes_)
            labels: list[Label] = estimator.classes_.tolist()
            self.labels = None if is_numbered(labels) else labels
            self.positive = estimator.positive
            self.objective = read_objective(estimator.maximize, estimator.minimize)

    def name_classes(self, labels: Sequence[Label]) -> ModelFile:
        """Set the labels of the classes, and return the model."""
        self.classes_ = np.array(labels)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[Any]:
        """Predict labels, or the numbers of a regressor."""
        if self.predicts_numbers:
            return np.asarray(self.estimator.predict(X))
        decided = repeatable_decisions(self.estimator, X)
        return np.asarray(self.classes_[np.searchsorted(self.estimator.classes_, decided)])

    def predict_proba(self, X: pd.DataFrame) -> NDArray[Any]:
        """Predict probabilities of shape (n_samples, n_classes)."""
        return np.asarray(self.estimator.predict_proba(X))

    def find_categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Find the categories that the model knows, by feature."""
        raise NotImplementedError

    def take_features(self, table: pd.DataFrame) -> pd.DataFrame:
        """Take the features out of a table, as numbers and as categories of the training.

        Categories that are new to the model become missing values, because XGBoost may take them
        for known ones.
        """
        X = self._features_in(table)
        categories = self.find_categories(X)
        for name in self.features:
            values = X[name].astype(object)
            if name in categories:
                known = categories[name]
                if are_texts(known):  # A table may hold these texts as numbers.
                    # pandas makes whole numbers beside NaN floats.
                    values = values.map(
                        lambda v: str(int(v) if isinstance(v, float) and v.is_integer() else v),
                        na_action="ignore",
                    )
                X[name] = pd.Categorical(values.where(values.isin(known)), categories=known)
                if X[name].isna().all() and not values.isna().all():
                    raise ValueError(
                        f"column {name!r} holds none of the values that {self.path} was trained "
                        f"on: {known[:10]}."
                    )
            elif isinstance(X[name].dtype, pd.CategoricalDtype):
                # A booster would take the codes of texts and categories for numbers.
                present = values.dropna()
                if len(present):
                    texts = present[pd.to_numeric(present, errors="coerce").isna()]
                    example = present.iloc[0] if texts.empty else texts.iloc[0]
                    kind = "texts" if isinstance(example, str) else "categories"
                    raise ValueError(
                        f"column {name!r} holds {kind} such as {example!r}, and {self.path} was "
                        f"trained on numbers there."
                    )
                X[name] = values.astype(float)
        return X

    def find_text_columns(self, table: pd.DataFrame) -> list[str]:
        """Find the columns of a table that held texts when the model was trained."""
        categories = self.find_categories(self._features_in(table))
        columns = zip(self._columns_in(table), self.features, strict=True)
        return [column for column, name in columns if are_texts(categories.get(name, []))]

    def _features_in(self, table: pd.DataFrame) -> pd.DataFrame:
        columns = self._columns_in(table)
        return make_categories(table[columns].set_axis(self.features, axis=1))[0]

    def _columns_in(self, table: pd.DataFrame) -> list[str]:
        """Find the columns of a table that are the features, in their order."""
        columns: dict[str, list[str]] = {name: [] for name in self.features}
        for column in map(str, table):
            columns.setdefault(column.replace(" ", self.space), []).append(column)
        missing = [name for name in self.features if not columns[name]]
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


class XGBoostModel(ModelFile):
    """A model of XGBoost."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            check_complete(path)
            booster = xgb.Booster(model_file=os.fspath(path))
            objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
            # The kind of the estimator is an attribute of scikit-learn, or that of the objective.
            kind = json.loads(booster.attr("scikit_learn") or "{}").get("_estimator_type")
            is_of_numbers = kind == "regressor"
            if kind is None and objective not in CLASSIFIER_OBJECTIVES:
                is_of_numbers = objective in REGRESSOR_OBJECTIVES
            estimator = ESTIMATORS["xgboost", is_of_numbers]()
            estimator.load_model(os.fspath(path))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is no classifier or regressor of XGBoost: {error}") from None
        self.booster = estimator.get_booster()
        _check_objective(path, objective, estimator)
        if self.booster.feature_names is None:
            raise ValueError(f"{path} names no features: train it on a table with columns.")
        super().__init__(path, estimator, list(self.booster.feature_names))

    def find_categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Find the categories that the model knows, by feature."""
        if "c" not in (self.booster.feature_types or ()):
            return {}
        try:
            found = dict(self.booster.get_categories(export_to_arrow=True).to_arrow())
        except ImportError:
            raise ImportError(
                f"{self.path} has categories, and reading these from XGBoost needs pyarrow: pip "
                f"install 'gbm_constrained[datasets]'."
            ) from None
        for name, kind in zip(self.features, self.booster.feature_types, strict=True):
            # A slice of a booster loses its categories; the codes of numbers are the numbers.
            is_lost = kind == "c" and found[name] is None
            if is_lost and isinstance(X[name].dtype, pd.CategoricalDtype):
                raise ValueError(
                    f"{self.path} does not say which categories column {name!r} had in training: "
                    f"save the whole model, by XGBoost 3.1 or newer."
                )
        kept = json.loads(self.booster.attr(CATEGORIES_ATTRIBUTE) or "{}")
        return {
            name: kept[name] if name in kept else self._read_names(name, known)
            for name, known in found.items()
            if known is not None
        }

    def _read_names(self, column: str, known: Any) -> list[Any]:
        """Read the categories as XGBoost keeps them; names that it has cut are refused."""
        data = Path(self.path).read_bytes()
        model = ubjson.read(data) if ubjson.is_ubjson(data) else json.loads(data)
        try:
            names: list[Any] = known.to_pylist()
            if tuple(model["version"]) >= KEEPS_NAMES or all(str(n).isascii() for n in names):
                return names
        except UnicodeDecodeError:
            pass
        raise ValueError(
            f"XGBoost before 3.4 cuts the names of categories that are not ASCII, which "
            f"{self.path} has in column {column!r}: train it by gbm-constrained fit, which "
            f"keeps them, or by XGBoost 3.4 or newer."
        )


class LightGBMModel(ModelFile):
    """A model of LightGBM."""

    space = "_"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        try:
            read_kind(text, is_regressor=True)
            estimator: Any = ConstrainedLGBMRegressor()
        except ValueError:  # The classifier says why a file is none.
            estimator = ConstrainedLGBMClassifier()
        estimator.load_model(os.fspath(path))
        super().__init__(path, estimator, list(estimator.booster_.feature_name()))

    def find_categories(self, X: pd.DataFrame) -> dict[str, list[Any]]:
        """Find the categories of each feature; the file lists them without names of columns."""
        booster = self.estimator.booster_
        known = booster.pandas_categorical or []
        if not known:
            return {}
        # The file has no information of features that no tree can use; they may be of any kind.
        info = booster.dump_model(num_iteration=1)["feature_infos"]
        categorical = [n for n in self.features if n in info and info[n]["values"]]
        possible = [n for n in self.features if n not in info or n in categorical]
        text = [n for n in self.features if isinstance(X[n].dtype, pd.CategoricalDtype)]
        guesses = (
            categorical,
            possible,
            [n for n in possible if n in categorical or n in text],
            # A parameter of LightGBM makes numbers categories, which the list leaves out.
            [n for n in possible if n in text],
        )
        for names in guesses:
            if len(names) == len(known):
                return dict(zip(names, known, strict=True))
        raise ValueError(
            f"{self.path} was trained on {len(known)} columns of texts and does not say on "
            f"which, and the data have {len(guesses[-1])} that these may be: {guesses[-1]}. "
            f"Columns must be of the same kind."
        )
