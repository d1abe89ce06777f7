"""Segments: planted ones found, none reported without any, the same ones on other rows, and time.

``python benchmarks/segments.py [--quick] [PART ...]`` prints the tables of
docs/evidence/segments.md: planted, null, stability, refit, time and, if it is named, mcgrad.

An effect is stated in standard errors of the half that measures it. The oracle knows the two
columns and on which side of a cut the segment is, and looks for the two cuts that fit best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from data_sets import TABLES
from lightgbm import LGBMClassifier
from sklearn.model_selection import train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    auc,
    audit,
    calibration_error,
    error_rate,
    find_segments,
    fnr,
    fpr,
    mean_loss,
    mean_residual,
    precision,
    selection_rate,
)
from gbm_constrained.datasets import load_adult, load_communities_crime, load_compas

RATE = 0.2  # Error rate of the rows outside of a planted segment.


class Given:
    """A classifier whose scores are a column of X, which is searched by no one."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: pd.DataFrame) -> Any:
        """Return the column as probabilities."""
        return np.column_stack([1.0 - X["score"], X["score"]])

    def predict(self, X: pd.DataFrame) -> Any:
        """Decide at one half."""
        return (X["score"].to_numpy() > 0.5).astype(int)


class GivenNumbers:
    """A regressor whose predictions are a column of X."""

    def predict(self, X: pd.DataFrame) -> Any:
        """Return the column."""
        return X["score"].to_numpy()


def draw_columns(rng: np.random.Generator, n: int, p: int) -> pd.DataFrame:
    """Draw columns: half of them normal, some whole numbers, and one of four texts."""
    X = pd.DataFrame(rng.normal(size=(n, p)), columns=[f"x{k}" for k in range(p)])
    for k in range(p // 2, p):
        X[f"x{k}"] = rng.integers(0, 20 + 10 * k, n)
    X["text"] = rng.choice(list("abcd"), n)
    return X


def plant(rng: np.random.Generator, n: int, p: int, effect: float) -> Any:
    """Draw rows whose error rate is raised in a segment of two conditions."""
    X = draw_columns(rng, n, p)
    share = rng.uniform(0.03, 0.10)
    first, second = rng.choice(p, 2, replace=False)
    side = share ** rng.uniform(0.35, 0.65)
    sides = []
    for k, own in ((first, side), (second, share / side)):
        v, above = X[f"x{k}"].to_numpy(), rng.random() < 0.5
        cut = np.quantile(v, 1.0 - own if above else own)
        sides.append((k, above, v > cut if above else v <= cut))
    inside = sides[0][2] & sides[1][2]
    raised = RATE + effect * np.sqrt(RATE * (1.0 - RATE) / (inside.sum() / 2.0))
    wrong = rng.random(n) < np.where(inside, min(raised, 1.0), RATE)
    X["score"] = np.where(rng.random(n) < 0.5, 0.9, 0.1)
    y = (X["score"] > 0.5).astype(int) ^ wrong
    return X, y.to_numpy().astype(int), inside, sides


def jaccard(first: Any, second: Any) -> float:
    """Compute the share of the rows of either mask that are in both."""
    return float((first & second).sum() / max((first | second).sum(), 1))


def oracle(X: pd.DataFrame, wrong: Any, sides: Any, rows: Any) -> Any:
    """Find the two cuts by the score test, the columns and the sides of the cuts being known."""
    values = [X[f"x{k}"].to_numpy() * (1 if above else -1) for k, above, _ in sides]
    grids = [np.unique(np.quantile(v[rows], np.linspace(0.0, 1.0, 201))) for v in values]
    at = [np.searchsorted(g, v[rows]) for g, v in zip(grids, values, strict=True)]
    shape = tuple(g.size + 1 for g in grids)
    r = wrong[rows] - wrong[rows].mean()
    tables = []
    for part in (r, np.ones(r.size)):
        table = np.zeros(shape)
        np.add.at(table, tuple(at), part)
        tables.append(table[::-1, ::-1].cumsum(0).cumsum(1)[::-1, ::-1])
    a, b = tables
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where((b >= 50) & (b < r.size / 2), a**2 / (b * (1.0 - b / r.size)), -1.0)
    i, j = np.unravel_index(z.argmax(), z.shape)
    found = [np.searchsorted(g, v) >= k for g, v, k in zip(grids, values, (i, j), strict=True)]
    return found[0] & found[1]


def planted(n_draws: int, n: int = 20_000, p: int = 10) -> pd.DataFrame:
    """Count the planted segments that are found, by effect."""
    records = []
    for effect in (2, 3, 4, 5, 5.5, 6, 8):
        found, overlaps, best, seconds = 0, [], [], []
        for seed in range(n_draws):
            rng = np.random.default_rng([int(10 * effect), seed])
            X, y, inside, sides = plant(rng, n, p, effect)
            start = time.perf_counter()
            given = [c for c in X if c != "score"]
            segments = find_segments(Given(), X, y, error_rate(), columns=given)
            seconds.append(time.perf_counter() - start)
            found += len(segments) > 0
            masks = [segments.masks[name].to_numpy() for name in segments.masks]
            overlaps.append(max((jaccard(mask, inside) for mask in masks), default=0.0))
            half = np.sort(np.random.RandomState(0).permutation(n)[: n // 2])
            wrong = (Given().predict(X) != y).astype(float)
            best.append(jaccard(oracle(X, wrong, sides, half), inside))
        of_all = np.array(overlaps), np.array(best)
        records.append({
            "effect": effect, "draws": n_draws, "reported": found / n_draws,
            "overlap >= .8": (of_all[0] >= 0.8).mean(), "mean overlap": of_all[0].mean(),
            "oracle >= .8": (of_all[1] >= 0.8).mean(), "seconds": np.median(seconds),
        })  # fmt: skip
    return pd.DataFrame(records)


def null(n_draws: int, n: int = 2000, p: int = 6) -> pd.DataFrame:
    """Count the draws with a report where no segment differs, by kind of value."""
    kinds: dict[str, tuple[Any, Callable[..., Any]]] = {
        "error_rate()": (error_rate(), Given),
        "error_rate() <= bound": (error_rate() <= RATE, Given),
        "fpr()": (fpr(), Given),
        "precision()": (precision(), Given),
        "auc()": (auc(), Given),
        "calibration_error()": (calibration_error(), Given),
        "mean_residual()": (mean_residual(), GivenNumbers),
        "mean_loss('squared')": (mean_loss("squared"), GivenNumbers),
    }
    records = []
    for name, (rate, kind) in kinds.items():
        reported = 0
        for seed in range(n_draws):
            rng = np.random.default_rng([7, seed])
            X = draw_columns(rng, n, p)
            given = list(X)
            if kind is GivenNumbers:
                X["score"] = rng.normal(size=n)
                y: Any = X["score"] + rng.standard_t(5, size=n)
            elif "error" in name and "cal" not in name:
                X["score"] = np.where(rng.random(n) < 0.5, 0.9, 0.1)
                y = (X["score"] > 0.5).to_numpy() ^ (rng.random(n) < RATE)
            else:
                X["score"] = rng.beta(1.0, 2.0, n)
                y = rng.random(n) < X["score"]
            y = np.asarray(y, dtype=float if kind is GivenNumbers else int)
            reported += len(find_segments(kind(), X, y, rate, columns=given)) > 0
        records.append({"value": name, "draws": n_draws, "reported": reported / n_draws})
    return pd.DataFrame(records)


def tables() -> dict[str, tuple[Any, Any, Any, list[Any]]]:
    """Load real tables: features, labels, columns beside them, and what is measured.

    Those that are not bundled are left out where they are not at hand.
    """
    adult, compas = load_adult(), load_compas()
    crime = load_communities_crime()
    rates = [error_rate(), fpr(), fnr(), selection_rate()]
    found = {
        "Adult": (adult.data, adult.target, adult.sensitive_features, rates),
        "COMPAS": (compas.data, compas.target, compas.sensitive_features, rates),
        "Crime": (
            crime.data,
            (crime.target > np.median(crime.target)).astype(int),
            crime.sensitive_features,
            rates,
        ),
    }
    for title, name in (("ACSIncome", "acs"), ("Bank", "bank"), ("Default", "default")):
        with suppress(FileNotFoundError):
            X, y, groups, _ = TABLES[name].load()
            X = X.astype(dict.fromkeys(X.select_dtypes(exclude="number"), "category"))
            found[title] = X, pd.factorize(np.asarray(y), sort=True)[0], groups, rates
    return found


def stability(n_splits: int) -> pd.DataFrame:
    """Measure segments found on one split of real tables on rows of another."""
    records = []
    for name, (X, y, groups, rates) in tables().items():
        kept = held = 0
        for seed in range(n_splits):
            parts = np.array_split(np.random.default_rng(seed).permutation(len(y)), 3)
            train, find, check = parts
            y = np.asarray(y)
            model = LGBMClassifier(n_estimators=60, verbose=-1, n_jobs=1)
            model.fit(X.iloc[train], y[train])
            for rate in rates:
                found = find_segments(
                    model, X.iloc[find], y[find], rate, sensitive_features=groups.iloc[find]
                )
                if not len(found):
                    continue
                again = audit(
                    model, X.iloc[check], y[check], segments=found,
                    sensitive_features=groups.iloc[check],
                ).segments  # fmt: skip
                before = (found.frame["value"] - found.frame["rest"]).to_numpy()
                after = (again["value"] - again["rest"]).to_numpy()
                kept += len(found)
                held += int((np.sign(before) * after >= np.abs(before) / 2.0).sum())
        records.append({"table": name, "segments": kept, "held": held / max(kept, 1)})
    return pd.DataFrame(records)


def best_threshold(score: Any, y: Any, bound: float) -> float:
    """Errors that the best threshold within a bound of the false positive rate adds to 1/2's.

    It knows the labels, as the references of ``sweep.py`` do.
    """
    order = np.argsort(-score, kind="stable")
    selected_negative = np.append(0, np.cumsum(y[order] == 0))
    missed = (y == 1).sum() - np.append(0, np.cumsum(y[order] == 1))
    allowed = selected_negative <= bound * (y == 0).sum()
    return float((selected_negative + missed)[allowed].min() - ((score > 0.5) != y).sum())


def refit(n_seeds: int) -> pd.DataFrame:
    """Fit Adult with the segment of the highest false positive rate as a rule."""
    adult, records = load_adult(), []
    X, y = adult.data, np.asarray(adult.target)
    for seed in range(n_seeds):
        train, test = train_test_split(np.arange(len(y)), random_state=seed, test_size=1 / 3)
        fit, find = train_test_split(train, random_state=seed, test_size=0.5)
        options = {"n_estimators": 60, "verbose": -1, "n_jobs": 1, "random_state": seed}
        plain = LGBMClassifier(**options).fit(X.iloc[fit], y[fit])
        found = find_segments(plain, X.iloc[find], y[find], fpr() <= 0.1)
        if not len(found):
            continue
        rule = fpr(on={found.expressions[0]: True}) <= 0.1
        model = ConstrainedLGBMClassifier(constraints=[rule], **options)
        model.fit(X.iloc[train], y[train])
        both = LGBMClassifier(**options).fit(X.iloc[train], y[train])
        report = audit(model, X.iloc[test], y[test], rule, others={"plain": both})
        of_models = report.models.set_index("model")
        column = f"value[{rule}]"
        conditions = found.segments[0].conditions
        inside = np.all([c.holds(X[c.column].iloc[test].to_numpy()) for c in conditions], axis=0)
        score = both.predict_proba(X.iloc[test])[:, 1]
        reference = best_threshold(score[inside], y[test][inside], 0.1) / len(test)
        records.append({
            "segment": found.frame["segment"][0], "plain": of_models[column]["plain"],
            "constrained": of_models[column].iloc[0], "verdict": report.frame["verdict"][0],
            "held out": model.constraint_report_["held_out"][0],
            "accuracy lost": of_models["accuracy"]["plain"] - of_models["accuracy"].iloc[0],
            "lost by a threshold in the segment": reference,
        })  # fmt: skip
    return pd.DataFrame(records)


def beside_mcgrad(n_seeds: int) -> pd.DataFrame:
    """Repair a model that lacks five columns of Adult, by MCGrad and by a fit with the segments.

    MCGrad's own MCE measures both on rows of neither (``pip install --no-deps mcgrad``).
    """
    from mcgrad.methods import MCGrad
    from mcgrad.metrics import MulticalibrationError

    adult, records = load_adult(), []
    X, y = adult.data, np.asarray(adult.target)
    numbers = [name for name in X if X[name].dtype.kind in "if"]
    texts = [name for name in X if name not in numbers]
    lacking = ["capital-gain", "marital-status", "relationship", "education-num", "education"]
    options = {"n_estimators": 60, "verbose": -1, "n_jobs": 1}

    def table(rows: Any, p: Any) -> pd.DataFrame:
        return X.iloc[rows].astype(dict.fromkeys(texts, str)).assign(y=y[rows], p=p).reset_index()

    class Lacking(Given):
        def predict_proba(self, X: pd.DataFrame) -> Any:
            return base.predict_proba(X.drop(columns=lacking))

        def predict(self, X: pd.DataFrame) -> Any:
            return base.predict(X.drop(columns=lacking))

    for seed in range(n_seeds):
        first, second, test = np.array_split(np.random.default_rng(seed).permutation(len(y)), 3)
        base = LGBMClassifier(**options).fit(X.iloc[first].drop(columns=lacking), y[first])
        before = Lacking().predict_proba(X.iloc[test])[:, 1]
        found = find_segments(Lacking(), X.iloc[second], y[second], calibration_error(bins=1))
        named = {"categorical_feature_column_names": texts}
        named["numerical_feature_column_names"] = numbers
        mcgrad = MCGrad()
        mcgrad.fit(table(second, Lacking().predict_proba(X.iloc[second])[:, 1]), "p", "y", **named)
        bounds = [calibration_error(bins=1, on={e: True}) <= 0.02 for e in found.expressions]
        own = ConstrainedLGBMClassifier(constraints=bounds, probabilities="calibrated", **options)
        both = np.concatenate([first, second])
        own.fit(X.iloc[both], y[both])
        answers = {
            "before": before, "MCGrad": mcgrad.predict(table(test, before), "p", **named),
            "fit with segments": own.predict_proba(X.iloc[test])[:, 1],
        }  # fmt: skip
        for name, p in answers.items():
            error = MulticalibrationError(
                table(test, p), "y", "p", categorical_segment_columns=texts,
                numerical_segment_columns=numbers,
            )  # fmt: skip
            records.append({"seed": seed, "model": name, "MCE": float(error.mce)})
    return pd.DataFrame(records).pivot(index="model", columns="seed", values="MCE").reset_index()


def measure_time(n_repeats: int) -> pd.DataFrame:
    """Time a search on 20,000 rows of 30 columns in plain fits of 100 trees."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20_000, 30)), columns=[f"x{k}" for k in range(30)])
    y = (X["x0"] + X["x1"] * X["x2"] + rng.normal(size=20_000) > 0).astype(int)
    fits, searches = [], []
    for _ in range(n_repeats):
        start = time.perf_counter()
        model = LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1).fit(X, y)
        fits.append(time.perf_counter() - start)
        start = time.perf_counter()
        find_segments(model, X, y, error_rate())
        searches.append(time.perf_counter() - start)
    return pd.DataFrame([{"plain fit": np.median(fits), "search": np.median(searches)}])


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the draws")
    options = parser.parse_args()
    parts: dict[str, tuple[Callable[[int], pd.DataFrame], int]] = {
        "planted": (planted, 200), "null": (null, 1000), "stability": (stability, 5),
        "refit": (refit, 5), "time": (measure_time, 5), "mcgrad": (beside_mcgrad, 3),
    }  # fmt: skip
    for name in options.parts or [name for name in parts if name != "mcgrad"]:
        run, n = parts[name]
        print(f"\n{name}\n{run(max(n // 20, 1) if options.quick else n).to_string(index=False)}")


if __name__ == "__main__":
    main()
