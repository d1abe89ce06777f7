"""What the drop-in estimators of LightGBM add to their parents: parameters of a fit, and files."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb

from gbm_constrained.boosters.lightgbm.model_text import read_file
from gbm_constrained.boosters.lightgbm.trained_model import LIBRARY_ATTRIBUTES, write_text
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.options import drop_solver_parameters

_Parent: Any = lgb.LGBMModel if TYPE_CHECKING else object


class DrivenLGBMMixin(_Parent):
    """Methods of an estimator of LightGBM that a solver drives."""

    _other_params: dict[str, Any]

    @abstractmethod
    def _read_kind(self, text: str) -> tuple[str, int]:
        """Find objective and number of classes, zero of a regressor, or refuse the text."""

    @abstractmethod
    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        """Take over the booster of a file, and its note, if there is one."""

    # Private in LightGBM. Should LightGBM stop calling this method, LightGBM would warn of unknown
    # parameters and evaluate some metrics on raw scores, which tests notice.
    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        drop_solver_parameters(params)
        if getattr(self, "deterministic", None) is not None:  # LightGBM has a meaning for it, too.
            params["deterministic"] = self.deterministic
        if stage == "fit":
            params.update(self.__dict__.get("_fit_params", {}))
        return params

    def save_model(
        self,
        fname: Any,
        *,
        num_iteration: int | None = None,
        start_iteration: int = 0,
        importance_type: str = "split",
    ) -> None:
        """Save the model, its constraints and reports; plain LightGBM reads the same file.

        Parameters
        ----------
        fname : str or path
            File to write.
        num_iteration : int, default=None
            Boosting rounds to save; all up to the best one by default. A part of the model is
            saved without reports and threshold, which are those of the whole.
        start_iteration : int, default=0
            First boosting round to save.
        importance_type : {"split", "gain"}, default="split"
            Importance of the features that LightGBM writes into its file.

        Raises
        ------
        TypeError
            If a constraint or a label holds a value that no file can hold.
        ValueError
            If the objective is a function, without which the file would be read as raw scores.
        """
        text = write_text(self, num_iteration, start_iteration, importance_type)
        Path(fname).write_text(text, encoding="utf-8", newline="\n")

    def load_model(self, fname: Any) -> Any:
        """Load a model, with its parameters, constraints and reports where the file has them.

        The file of another program holds none of these. Then parameters stay as they are, classes
        of a classifier are numbered from 0, and all knowledge of an earlier model is removed, with
        the constraints of an earlier file.

        Parameters
        ----------
        fname : str or path
            Written by :meth:`save_model` or by LightGBM.

        Raises
        ------
        ValueError
            If the file is damaged, holds another kind of model, or is of a newer version; the
            estimator is left as it was.
        """
        source = f"The file {fname}"
        try:
            text, written = read_file(fname, saving.NAME)
            saving.check_unchanged(written, text)
            objective, n_classes = self._read_kind(text)
            booster = lgb.Booster(model_str=text)
        except (ValueError, lgb.basic.LightGBMError) as error:
            raise ValueError(f"{source} cannot be loaded: {error}.") from error
        note = saving.read_note(
            written,
            self,
            LIBRARY_ATTRIBUTES,
            rounds=booster.current_iteration(),
            n_classes=n_classes,
            source=source,
        )
        with saving.unchanged_on_error(self):
            remove_report(self)
            saving.forget_constraints(self)
            self._adopt(booster, objective, n_classes, note)
        return self
