"""What the drop-in estimators of XGBoost add to their parents while a solver drives a fit.

XGBoost's own ``fit`` makes matrices, parameters and a booster. The overridden methods hand the
solver what it needs of them, and put the note of this package into model files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xgboost as xgb
from xgboost.core import require_keyword_args

from gbm_constrained._typing import Array
from gbm_constrained.boosters.xgboost.checks import check_complete
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.options import drop_solver_parameters

# Attributes of a fit that the library's own file leaves out.
LIBRARY_ATTRIBUTES = {"evals_result_": dict}
Method = TypeVar("Method", bound=Callable[..., Any])


def by_keyword(method: Method) -> Method:
    """Make a method take keyword arguments by position as the parent does: with a warning."""
    wrapped: Method = require_keyword_args(error=False)(method)
    return wrapped


@dataclass(eq=False)
class DrivenFit:
    """State of a fit that the classifier's overridden methods read while a solver drives it.

    Attributes
    ----------
    params : dict
        Parameters of the native learner beside the user's.
    sets : iterator of (X_i, y_i, bool)
        Evaluation sets, and whether each is held out.
    is_continued : bool
        Whether training goes on from another model.
    keeps_objective : bool, default=False
        Whether the library's objective stays beside gradients of a solver, where the parent's fit
        would put the squared error.
    matrices : list
        Matrices that the parent's fit has made: training rows, and held-out evaluation sets.
    """

    params: dict[str, Any]
    sets: Iterator[tuple[Any, Any, bool]]
    is_continued: bool
    keeps_objective: bool = False
    matrices: list[Any] = field(default_factory=list)


class KeptObjective(dict[str, Any]):
    """Parameters whose objective stays when the parent's fit sets another one."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "objective":
            super().__setitem__(name, value)


def _copied_to_one_place(values: Array) -> Callable[[], Array]:
    """Make the function that gives a copy of values, which the next call writes anew.

    To touch new memory takes several times as long as to copy.
    """
    copy = np.empty_like(values)

    def read() -> Array:
        np.copyto(copy, values)
        return copy

    return read


# The parent comes next to the mixin, and XGBoost looks for parameters in the first two bases.
_Parent: Any = xgb.XGBModel if TYPE_CHECKING else object


class DrivenXGBMixin(_Parent):
    """Methods of an estimator of XGBoost that a solver drives."""

    n_jobs: Any
    _doc_link_module = "gbm_constrained"
    _driven: DrivenFit
    _class_labels: Any  # labels of the classes in the note of a file, if there is a note

    @property
    def _doc_link_template(self) -> str:
        """Page of the parent, to which scikit-learn's view of an estimator links."""
        parents = (c for c in type(self).__mro__ if c.__module__.partition(".")[0] == "xgboost")
        template: str = next(parents)()._doc_link_template
        return template

    def get_xgb_params(self) -> dict[str, Any]:
        """Get the parameters of the native learner, without those of the solver."""
        params = super().get_xgb_params()
        drop_solver_parameters(params)
        is_softmax = params.get("objective") in ("multi:softprob", "multi:softmax")
        if is_softmax and getattr(self, "n_classes_", 0) == 2 and "num_class" not in params:
            params["objective"] = "binary:logistic"  # An earlier fit to more classes set it.
        if (driven := self.__dict__.get("_driven")) is not None:
            params.update(driven.params)
            if driven.keeps_objective:
                return KeptObjective(params)
        return dict(params)

    def save_model(self, fname: Any) -> None:
        """Save the model, its constraints and reports; plain XGBoost reads the same file.

        Parameters
        ----------
        fname : str or path
            File to write, in the form of its extension, ``json`` or ``ubj``.

        Raises
        ------
        TypeError
            If a constraint holds a value that no file can hold.
        """
        booster, known = self.get_booster(), vars(self)
        library = {name: known[name] for name in LIBRARY_ATTRIBUTES if name in known}
        note = saving.write_note(self, booster.num_boosted_rounds(), library)
        booster.set_attr(**{saving.NAME: note})
        try:
            super().save_model(fname)
        finally:
            booster.set_attr(**{saving.NAME: None})

    def load_model(self, fname: Any) -> Any:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none of these. Then parameters stay as they are, apart
        from those that the parent reads from the file. All knowledge of an earlier model is
        removed, with the constraints of an earlier file.

        Parameters
        ----------
        fname : str, path or bytearray
            Written by :meth:`save_model` or by XGBoost.

        Raises
        ------
        ValueError
            If the file is damaged, or of a newer version; the estimator is left as it was.
        """
        source = "The model in memory" if isinstance(fname, bytearray) else f"The file {fname}"
        with saving.unchanged_on_error(self):
            self.__dict__.pop("_Booster", None)  # The parent would load into this booster.
            try:
                check_complete(fname)
                super().load_model(fname)
                booster = self.get_booster()
                text = booster.attr(saving.NAME)
            # XGBoost raises ValueErrors, and an AssertionError for an empty attribute.
            except (ValueError, AssertionError) as error:
                reason = str(error).partition("\nStack trace:")[0] or "an attribute is empty"
                raise xgb.core.XGBoostError(f"{source} cannot be loaded: {reason}") from error
            note = saving.read_note(
                text,
                self,
                LIBRARY_ATTRIBUTES,
                rounds=booster.num_boosted_rounds(),
                n_classes=getattr(self, "n_classes_", 0),
                source=source,
            )
            remove_report(self)
            booster.set_attr(**{saving.NAME: None})
            self.__dict__.pop("evals_result_", None)
            self._class_labels = None if note is None else note.classes
            saving.forget_constraints(self)
            if note is not None:
                note.restore(self)
                self.__dict__.update(note.library)
                booster.set_param({"nthread": self.n_jobs or 0})
        return self

    # Private in XGBoost, and the only way to its cached margins of training and evaluation rows.
    # Should XGBoost stop calling this method, the adapter finds no matrix and raises an error.
    def _create_dmatrix(self, ref: Any, **kwargs: Any) -> Any:
        matrix = super()._create_dmatrix(ref, **kwargs)
        driven = self.__dict__.get("_driven")
        if driven is not None:
            if ref is None:
                driven.matrices.append(self._scored(matrix, kwargs))
                # XGBoost reads both in every round, by JSON, for an objective that uses neither.
                # A copy takes a fraction of that time.
                for name in ("get_label", "get_weight"):
                    setattr(matrix, name, _copied_to_one_place(getattr(matrix, name)()))
            else:
                X, y = kwargs["data"], kwargs["label"]
                # XGBoost may make no matrix for sets that are the training rows.
                if next(held for X_i, y_i, held in driven.sets if X_i is X and y_i is y):
                    driven.matrices.append(self._scored(matrix, kwargs))
        return matrix

    def _scored(self, matrix: Any, given: Mapping[str, Any]) -> Any:
        """Give a matrix of the same rows on which scores are those of ``predict``."""
        if not self._driven.is_continued:
            return matrix
        # Trees of the continued model split elsewhere than at the bins of these rows.
        names = ("data", "base_margin", "missing", "enable_categorical", "feature_types")
        return xgb.DMatrix(**{name: given[name] for name in names}, nthread=self.n_jobs)
