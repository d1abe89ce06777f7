"""Findings of a fit and of an audit, as codes of ``docs/warnings.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gbm_constrained._findings import FINDINGS, Finding


def findings_of_fit(feasibility: Any) -> tuple[Finding, ...]:
    """List the findings of a fit, ordered by code."""
    f = feasibility
    verdicts = {result.verdict.kind for result in f.rules}
    explained = {result.constraint for result in (*f.left, *f.broken_by_shift)}
    found = {
        "GC101": bool(f.conflict) and not f.p_value > f.level,
        "GC102": bool(f.conflict) and f.p_value > f.level,
        "GC103": not f.conflict
        and any(r.verdict.kind == "missed" and r.constraint not in explained for r in f.rules),
        "GC104": bool(f.left),
        "GC105": bool(f.broken_by_shift),
        "GC111": not f.conflict and "missed within sampling error" in verdicts,
        "GC112": bool(f.too_few_rows),
        "GC113": bool(f.undefined),
        "GC114": bool(f.unsteady),
        "GC115": bool(f.refuted),
        "GC116": f.is_fragile,
        "GC117": f.cost.is_costly,
        "GC118": any(result.verdict.source == "training rows" for result in f.rules),
        "GC119": f.rounds_trained < f.rounds_asked,
        "GC121": bool(f.drifting),
    }
    return tuple(FINDINGS[code] for code, is_found in found.items() if is_found)


def findings_of_audit(frame: pd.DataFrame, drifting: Sequence[str] = ()) -> tuple[Finding, ...]:
    """List the findings of an audit, by its table of constraints, ordered by code.

    `drifting` names the constraints that drift.
    """
    verdict, is_undefined = frame["verdict"], frame["value"].isna()
    found = {
        "GC103": verdict == "missed",
        "GC111": verdict == "missed within sampling error",
        "GC112": (verdict == "cannot be told") & ~is_undefined,
        "GC113": (verdict == "cannot be told") & is_undefined,
        "GC121": pd.Series([bool(drifting)]),
    }
    return tuple(FINDINGS[code] for code, is_found in found.items() if is_found.any())
