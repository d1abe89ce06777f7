"""Audits: the values of constraints on held-out rows, with intervals and verdicts.

Any fitted classifier can be audited, constrained or not, from any library: an audit asks for its
decisions, and for probabilities or scores where a constraint is about these. The verdicts are
those of fits (:mod:`gbm_constrained.evaluation.verdicts`). A constraint is *met* when its value is
on the right side of the bound, *missed within sampling error* when its interval still reaches the
bound, and *missed* when the interval does not.

>>> from sklearn.datasets import make_classification
>>> from sklearn.linear_model import LogisticRegression
>>> from gbm_constrained import audit, fnr
>>> X, y = make_classification(2000, class_sep=1.5, random_state=0)
>>> model = LogisticRegression().fit(X[:1000], y[:1000])
>>> report = audit(model, X[1000:], y[1000:], [fnr() <= 0.2])
>>> report.frame["verdict"].tolist()
['met']
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from gbm_constrained._findings import Finding
from gbm_constrained.decision.evaluation_set import Estimate
from gbm_constrained.evaluation import audit as tables
from gbm_constrained.evaluation.disparities import DISPARITY_COLUMNS
from gbm_constrained.evaluation.segments import measure_again
from gbm_constrained.evaluation.verdicts import findings_of_audit
from gbm_constrained.reporting.explanation import GapExplanation
from gbm_constrained.reporting.segments import Segments

__all__ = ["Audit", "audit"]


FORMAT = "gbm_constrained.audit/2"


class Audit(tables.AuditTables):
    """Values, intervals and verdicts of constraints on held-out rows; see :func:`audit`.

    Parameters
    ----------
    model : str
        Class of the model.
    n_rows : int
        Number of rows.
    level : float
        Level of each interval.
    weighted : bool
        Whether rows had weights.
    classes : tuple
        The labels, sorted. Rates that name no class take the last of two as positive.
    accuracy : Estimate
        Accuracy and its interval; of a regressor, R^2.
    quality : str
        What `accuracy` is: "accuracy" or "R^2".
    frame : DataFrame
        One row per constraint: ``constraint``, ``sense``, ``bound``, ``value``, the interval
        ``low`` to ``high``, the ``rows`` that it is taken over, whether the value is on the right
        side (``satisfied``, missing where there is no value), the ``verdict`` and the verdict as
        a sentence (``detail``).
    groups : DataFrame
        One row per group of each constraint that compares groups: ``constraint``, ``group``,
        the ``rows`` that the rate is taken over (of a sum of rates, those of the one that has
        fewest), ``rate``, ``low``, ``high``.
    models : DataFrame
        One row per model, the audited one first: ``model``, ``accuracy`` and its interval ``low``
        to ``high``, the largest ``violation`` of a bound by a value (zero if there is none), the
        number of constraints by verdict, and ``value[...]`` of each.
    history : DataFrame or None
        Values and multipliers in each round of a constrained training.
    metrics : DataFrame
        One row per model and metric: ``model``, ``metric``, ``value`` and its interval ``low`` to
        ``high``.
    periods : DataFrame
        One row per constraint and period of time of the audited model: ``constraint``,
        ``sense``, ``bound``, the number ``period``, its ``first`` and ``last`` time, ``rows``,
        ``value``, ``low`` and ``high``. In the last period also the interval ``expected_low`` to
        ``expected_high`` that the earlier ones leave for the value, and whether the value is
        outside (``drifts``). Empty without times.
    base_rates : DataFrame
        Of all rows, and of each group that constraints compare: ``group``, ``rows`` and
        ``share[...]`` of each class; of a regressor, ``mean`` and ``std`` of the targets.
    disparities : DataFrame
        One row per group that constraints compare: ``group``, its ``reference``, ``rows``, the
        ``selection_rate`` and its interval ``low`` to ``high``, the ``gap`` to the reference, the
        adverse impact ratio ``air`` and its interval, and the standardised mean difference
        ``smd`` of scores (see :mod:`gbm_constrained.evaluation.disparities`). Empty of regressors,
        and of several classes without `positive`.
    segments : DataFrame
        One row per segment that was given, as in :attr:`gbm_constrained.Segments.frame`, measured
        on these rows.
    gap_parts : DataFrame
        Parts of the features in the gap that was explained, as in
        :attr:`gbm_constrained.GapExplanation.parts`.
    provenance : dict
        ``date`` of the audit, ``versions`` of the libraries, ``parameters`` of the model that
        differ from the defaults, the ``defaults`` that stay, and the ``file`` of the model where
        one was audited.
    """

    @property
    def headline(self) -> str:
        """Sum the verdicts up: ``2 of 3 constraints are met on 9,769 held-out rows; 1 missed.``"""  # noqa: D400
        on = f"on {self.n_rows:,} held-out rows"
        counts = {v: int((self.frame["verdict"] == v).sum()) for v in tables.VERDICTS}
        total = len(self.frame)
        if total == 0:
            return f"No constraint was given; {self.quality} is {self.accuracy.value:.4f} {on}."
        if total == 1:
            (verdict,) = self.frame["verdict"]
            if verdict == "cannot be told":
                return f"Whether the constraint is met cannot be told {on}."
            return f"The constraint is {verdict} {on}."
        if counts["met"] == total:
            return f"{'Both' if total == 2 else f'All {total}'} constraints are met {on}."
        rest = ", ".join(f"{counts[v]} {v}" for v in tables.VERDICTS if v != "met" and counts[v])
        verb = "is" if counts["met"] == 1 else "are"
        return f"{counts['met']} of {total} constraints {verb} met {on}; {rest}."

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the audit, by the codes that ``docs/warnings.md`` explains."""
        return findings_of_audit(self.frame, tables.drifting(self.periods))

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write everything as JSON; missing values become null, infinite ones strings.

        Parameters
        ----------
        indent : int, default=2
            As in :func:`json.dumps`.
        """
        content = {
            "format": FORMAT,
            "model": self.model,
            "headline": self.headline,
            "n_rows": self.n_rows,
            "level": self.level,
            "weighted": self.weighted,
            "classes": list(self.classes),
            "accuracy": self.accuracy._asdict(),
            "quality": self.quality,
            "constraints": self.frame.to_dict("records"),
            "groups": self.groups.to_dict("records"),
            "models": self.models.to_dict("records"),
            "history": None if self.history is None else self.history.to_dict("list"),
            "metrics": self.metrics.to_dict("records"),
            "periods": self.periods.to_dict("records"),
            "base_rates": self.base_rates.to_dict("records"),
            "disparities": self.disparities.to_dict("records"),
            "segments": self.segments.to_dict("records"),
            "gap_parts": self.gap_parts.to_dict("records"),
            "provenance": self.provenance,
        }
        return json.dumps(_to_plain(content), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Audit:
        """Read the JSON of :meth:`to_json`.

        Parameters
        ----------
        text : str
            The JSON.

        Raises
        ------
        ValueError
            If `text` is something else.
        """
        content = json.loads(text)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise ValueError(
                f"text must be what Audit.to_json wrote, of format {FORMAT!r}, and its format is "
                f"{found!r}: audit the model again with this version of the package."
            )

        values = [name for name in (content["models"] or [{}])[0] if name.startswith("value[")]
        # Older files have fewer entries.
        rates = next(iter(content.get("base_rates", ())), ("group", "rows"))
        frames: dict[str, Any] = {
            name: tables.tabulate(content.get(name, ()), columns)
            for name, columns in {
                "constraints": tables.FRAME_COLUMNS,
                "groups": tables.GROUP_COLUMNS,
                "models": (*tables.MODEL_COLUMNS, *values),
                "metrics": tables.METRIC_COLUMNS,
                "periods": tables.PERIOD_COLUMNS,
                "base_rates": tuple(rates),
                "disparities": DISPARITY_COLUMNS,
                "segments": tables.SEGMENT_COLUMNS,
                "gap_parts": tables.PART_COLUMNS,
            }.items()
        }
        history = None
        if content["history"] is not None:
            history = pd.DataFrame(content["history"])
            for name in history.columns.difference(["iteration", "rounds"]):
                history[name] = history[name].map(tables.to_float).astype(np.float64)
        kept = ("model", "n_rows", "level", "weighted")
        return cls(
            classes=tuple(content["classes"]),
            accuracy=Estimate(**{k: tables.to_float(v) for k, v in content["accuracy"].items()}),
            frame=frames.pop("constraints"),
            history=history,
            quality=content.get("quality", "accuracy"),
            provenance=content.get("provenance", {}),
            **{name: content[name] for name in kept},
            **frames,
        )

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write a page without scripts and links: constraints, intervals, groups and trade-off.

        Parameters
        ----------
        path : path, default=None
            File to write the page to.

        Returns
        -------
        str
            The page.

        Raises
        ------
        ImportError
            If jinja2 or matplotlib is not installed.
        """
        from gbm_constrained.reporting.html import audit_figures, render_audit

        written = render_audit("page.html", "main", self, audit_figures(self))
        if path is not None:
            Path(path).write_text(written, encoding="utf-8")
        return written

    def _repr_html_(self) -> str | None:
        if importlib.util.find_spec("jinja2") is None:
            return None  # Notebooks show the text.
        from gbm_constrained.reporting.html import audit_figures, render_audit

        has_figures = importlib.util.find_spec("matplotlib") is not None
        return render_audit("audit.html", "div", self, audit_figures(self) if has_figures else {})

    def __str__(self) -> str:
        a = self.accuracy
        lines = [
            f"Audit of {self.model}. {self.headline}",
            f"{self.quality} {a.value:.4f} ({a.low:.4f} to {a.high:.4f}), intervals at level "
            f"{self.level:g}{', weighted' if self.weighted else ''}",
        ]
        of_constraint = ["constraint", "value", "low", "high", "rows", "verdict"]
        of_group = ["group", "rows", "selection_rate", "gap", "air", "air_low", "air_high", "smd"]
        of_period = ["constraint", "period", "last", "rows", "value", "low", "high"]
        for table in (
            self.frame[of_constraint], self.groups, self.disparities[of_group],
            self.metrics, self.periods[of_period], self.segments.drop(columns="expression"),
            self.gap_parts,
        ):  # fmt: skip
            if len(table):
                lines += ["", table.to_string(index=False, float_format="{:.4f}".format)]
        if drift := tables.drifting(self.periods):
            drifting_now = ", ".join(drift)
            lines += ["", f"The last period leaves the interval of those before: {drifting_now}"]
        return "\n".join(lines)

    __repr__ = __str__


def audit(
    model: Any,
    X: Any,
    y: Any,
    constraints: Any = None,
    *,
    positive: Hashable | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
    others: Mapping[str, Any] | None = None,
    metrics: Any = None,
    time: Any = None,
    n_periods: int = 5,
    grouping: Literal["model", "rows"] = "model",
    segments: Segments | None = None,
    explanation: GapExplanation | None = None,
) -> Audit:
    """Measure constraints on the decisions or predictions of any fitted model, on held-out rows.

    Parameters
    ----------
    model : fitted classifier or regressor
        A regressor is audited where the constraints are rules on means of predictions, such as
        ``mean_loss("squared")``: then `y` holds targets, and ``accuracy`` is R^2.
        Anything with ``predict`` that returns labels: constrained or not, of any library, a
        Pipeline or a search. Constraints on ``log_loss`` need ``predict_proba`` as well, and those
        on pair rates, such as ``auc()``, need scores: ``decision_function``, or ``predict_proba``
        where there is none. Several classes are ranked by probabilities first. A classifier fitted
        with ``iterate="randomized"`` is asked with ``random_state=0``, in a Pipeline or a search
        as well.
    X : array-like of shape (n_samples, n_features)
        Features, as the model takes them. It must not have been trained on these rows, nor its
        threshold or parameters chosen on them: otherwise the intervals mean nothing.
    y : array-like of shape (n_samples,)
        Labels.
    constraints : Constraint, str or sequence of these, default=None
        The constraints (see :mod:`gbm_constrained.constraints.rates`), presets or fairlearn's
        objects. Masks and decisions in them are those of these rows.
    positive : label, default=None
        The positive class of all rates that name none. By default the one that `model` was
        trained with (its parameter ``positive``), else the last of two sorted labels.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        Columns that constraints look at, next to those of `X` when it is a DataFrame.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in all rates.
    level : float, default=0.95
        Level of each interval, by itself.
    others : mapping from str to fitted classifier, default=None
        Other models, by the name to show, that are compared with this one on the same rows.
    metrics : metric, rate, quotient, str or sequence of them, default=None
        What is measured besides, such as ``[g_mean(), "recall"]``
        (see :mod:`gbm_constrained.metrics`), with an interval by the bootstrap of rows.
    time : str or array-like of shape (n_samples,), default=None
        Time of each row, or the name of a column of `X` or `sensitive_features`. Constraints are
        then measured in each of several periods as well. Ordered categories have their order.
    n_periods : int, default=5
        Periods of about equal numbers of rows. Rows of one time are in one period.
    grouping : {"model", "rows"}, default="model"
        What says which groups a constraint with ``small_groups="merge"`` or ``"drop"`` compares:
        the fit of `model`, where it was fitted under the constraint, or the audited rows by their
        `min_group_size`. A batch of few rows then keeps the groups of the fit by name.
    segments : Segments, default=None
        What :func:`gbm_constrained.find_segments` found on other rows, to be measured on these.
    explanation : GapExplanation, default=None
        What :func:`gbm_constrained.explain_gap` returned for these rows, for a section of its own.

    Returns
    -------
    Audit
        Tables of constraints, groups and models, that print, and write JSON and HTML.

    Raises
    ------
    TypeError, ValueError
        If something does not fit, as a model without scores where scores are compared; the
        message names the parameter and what to do.

    Warns
    -----
    UserWarning
        If a constraint compares groups of few rows.

    See Also
    --------
    gbm_constrained.statistics.intervals : How the intervals of rates are made.
    gbm_constrained.statistics.pairs : The same for pair rates.

    Notes
    -----
    The classes are ``model.classes_`` where there is one, else those of `y` and the decisions.
    Intervals of constraints on ``log_loss`` are those of means of many rows, which are normal. The
    intervals are too short where few rows have most of the loss.
    """
    rows = tables.AuditRows(X, y, sensitive_features, sample_weight, time, n_periods, grouping)
    measured = tables.measure_model(
        model, rows, constraints, positive=positive, level=level, others=others, metrics=metrics
    )
    if segments is not None:
        if not isinstance(segments, Segments):
            raise TypeError(
                f"segments must be what find_segments returned, got {segments!r}: conditions of "
                f"your own go into by=... of a constraint."
            )
        again = measure_again(model, rows, segments, positive, level)
        measured = replace(measured, segments=again)
    if explanation is not None:
        if not isinstance(explanation, GapExplanation):
            raise TypeError(f"explanation must be what explain_gap returned, got {explanation!r}.")
        measured = replace(measured, gap_parts=explanation.parts)
    return Audit(**vars(measured))


def _to_plain(value: Any) -> Any:
    """Convert values to Python's own types, and missing ones to None."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if value is pd.NA or value is None:
        return None
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (bool, int, float, str)) else str(value)
