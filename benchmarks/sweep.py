"""Rules drawn at random over the whole language: what each fit loses, misses, says and costs.

A draw is one fit: a kind of rule, a table, its groups (two, all values of a column as they stand,
or two columns crossed), one to three rules, a library, rounds, and training rows. Its number
determines all of it. Figures are of test rows, of the plain model and of the returned one:

- classifiers have the best threshold of all rows and the best group thresholds of the plain model
  that meet the rules there, by a linear programme that knows the test labels. It asks the rules of
  groups with 100 test rows of the rate or more;
- regressors have the best group shifts of the plain model, for gaps of means and residuals;
- fits with pair rates have the plain model and what it misses;
- several classes and metrics have the better of the plain model's decisions and of these at prices
  of the classes, which are chosen out of fold on the training rows.

Tables are divided in two halves: constants are chosen on "tune", and figures reported of "report".

    python benchmarks/sweep.py [--draws 1500] [--first 0] [--kinds groups auc ...] [--groups many]
        [--half report] [--least-rows 1] [--most-rows 8000] [--most-rounds 60] [--tables]
        [--output FILE]

``--draws`` counts the draws that the other options leave, from number ``--first`` on. Each is a
row of a CSV, and is not repeated while its row is there. ``--tables`` prints what the rows say,
without fitting. Tables that are not bundled are looked for in the folder that GBM_CONSTRAINED_DATA
names.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from data_sets import AMOUNTS, BINARY, CLASSES, REPORT, TABLES, TARGETS, TUNE, load
from lightgbm import LGBMClassifier, LGBMRegressor
from result_file import HERE, Figures, ResultFile, at_least, commit, make_parser
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler
from sweep_rules import (
    KNOWN,
    SHARES,
    Case,
    Rule,
    area,
    class_prices,
    confusion,
    group_blind,
    group_shifts,
    group_thresholds,
    metric,
    missed,
)

import gbm_constrained as gbc
from gbm_constrained import metrics

# Every draw's kind is that of its number in this cycle.
CYCLE = (
    "groups", "groups", "regression", "groups", "auc", "groups", "classes", "groups", "metrics",
    "groups", "regression", "forward", "groups", "metrics", "amounts", "groups", "auc", "groups",
    "classes", "groups",
)  # fmt: skip
KINDS = tuple(dict.fromkeys(CYCLE))
POOLS = {"regression": TARGETS, "classes": CLASSES, "amounts": AMOUNTS}
GROUPINGS = ("two", "many", "crossed")
MANY = ("many", "crossed")
BOOSTERS, LINEAR = ("lightgbm", "xgboost"), "linear"
METRICS = ("balanced_accuracy", "q_mean", "g_mean", "h_mean", "min_recall", "f1_macro", "accuracy")
ROUNDS, ROUND_SHARES = (20, 60, 200), (0.4, 0.4, 0.2)
ROWS, ROW_SHARES = (1500, 3000, 5000, 8000, 20000), (0.2, 0.25, 0.25, 0.2, 0.1)
TEST_ROWS = 20000
SHARE = (0.3, 0.9)  # of the plain model's value, between which bounds are drawn
USUAL = (0.03, 0.05, 0.1, 0.15, 0.2)  # gaps that users ask for, whatever the plain model has
FIGURES = (
    "kind", "table", "half", "grouping", "n_groups", "smallest", "library", "rounds",
    "learning_rate", "rows", "test_rows", "goal", "rules", "plain", "returned", "blind",
    "reference", "plain_violation", "violation", "plain_known", "known", "in_errors", "status",
    "satisfied", "warnings", "seconds", "plain_seconds", "cpu", "package",
)  # fmt: skip
THRESHOLDED = ("groups", "amounts", "forward")  # kinds with thresholds for a reference
ENOUGH = 1000  # test rows, of which that reference, which knows their labels, is not mostly chance
# Warnings that say that rules cost or miss something.
SAID = ("Costly", "Fragile", "Missed", "Infeasible", "TimeLimit")


class Plan(NamedTuple):
    """What the number of a draw says without looking at its table."""

    number: int
    kind: str
    table: str
    grouping: str
    by: tuple[str, ...]
    library: str
    rounds: int
    learning_rate: float
    rows: int

    @property
    def half(self) -> str:
        return TABLES[self.table].half


class Part(NamedTuple):
    """Some rows: features, targets, group columns, codes of groups, amounts."""

    X: Any
    y: Any
    frame: Any
    codes: Any
    amounts: Any

    def case(self, d: Any) -> Case:
        return Case(self.y, d, self.codes, self.amounts)


class Draw(NamedTuple):
    """A plan, its training and test rows, the rules, and what the model is to maximise."""

    plan: Plan
    train: Part
    test: Part
    rules: tuple[Rule, ...]
    goal: str


def plan(number: int) -> Plan:
    """Draw all but the rows and the rules."""
    rng = np.random.default_rng([54, number])
    kind = CYCLE[number % len(CYCLE)]
    pool = POOLS.get(kind, BINARY)
    if kind == "metrics" and rng.random() < 0.5:
        pool = CLASSES
    names = sorted(pool)
    table = names[rng.integers(len(names))]
    has = TABLES[table]
    grouping = str(rng.choice(GROUPINGS, p=(0.35, 0.4, 0.25)))
    grouping = grouping if has.two else ""
    two, many = rng.permutation(has.two), rng.permutation(has.many)
    by = {"": (), "two": two[:1], "many": many[:1], "crossed": (*two[:1], *many[:1])}[grouping]
    library = str(rng.choice(BOOSTERS))
    if kind in ("groups", "regression") and rng.random() < 0.1:
        library = LINEAR
    rounds = int(rng.choice(ROUNDS, p=ROUND_SHARES))
    rate = float(rng.choice([0.1, 0.3], p=(0.7, 0.3)))
    rows = int(rng.choice(ROWS, p=ROW_SHARES))
    return Plan(number, kind, table, grouping, tuple(map(str, by)), library, rounds, rate, rows)


def shapes(of: Plan, rng: Any, n_classes: int) -> tuple[list[Rule], str]:
    """Draw one to three rules without bounds, and the goal."""
    size = int(rng.choice([1, 2, 3], p=(0.5, 0.3, 0.2)))
    pick = lambda options: options[rng.integers(len(options))]  # noqa: E731
    if of.kind == "regression":
        kinds = [Rule("mean_prediction", "gap"), Rule("mean_prediction", "gap"),
                 Rule("mean_residual", "gap"), Rule("mean_residual", "within"),
                 Rule("squared", "each"), Rule("absolute", "each")]  # fmt: skip
        chosen = rng.choice(len(kinds), size=1 + (rng.random() < 0.2), replace=False)
        return list({kinds[i].rate: kinds[i] for i in chosen}.values()), "r2"
    if of.kind == "auc":
        kinds = [Rule("auc", "each"), Rule("auc", "each"), Rule("auc", "gap"),
                 Rule("cross_auc", "gap"), Rule("mean_rank", "gap")]  # fmt: skip
        return [pick(kinds)], "auc"
    if of.kind == "classes" or (of.kind == "metrics" and of.table in CLASSES):
        goal = "accuracy" if of.kind == "classes" else str(pick(METRICS))
        most = n_classes if rng.random() < 0.3 else min(int(rng.integers(1, 5)), n_classes)
        if of.kind == "metrics" and goal != "accuracy" and rng.random() < 0.5:
            most = 0
        labels = np.sort(rng.permutation(n_classes)[:most])
        return [Rule(f"class_error:{k}", "all") for k in labels], goal
    if of.kind == "amounts":
        if not of.by or rng.random() < 0.5:
            return [Rule(pick(["fnr", "fpr"]), "all", amounts=True)], "accuracy"
        return [Rule(pick(["tpr", "selection_rate"]), "gap", amounts=True)], "accuracy"
    goal = "accuracy"
    if of.kind == "metrics":
        goal = str(pick(METRICS[:-1]))
        if rng.random() < 0.4:
            return [], goal
        size = 1
    hows, rules = ["gap", "gap", "each", "ratio"], {}
    for place in range(size):
        how = pick(hows)
        if place and rng.random() < 0.3:
            rule = Rule(pick(["fpr", "fnr", "selection_rate"]), "all")
        else:
            rule = Rule(pick(sorted(SHARES)), how)
        if rule.how == "ratio" and rule.rate != "selection_rate" and rng.random() < 0.7:
            rule = Rule("selection_rate", "ratio")
        # A gap of misses is one of hits.
        rules["tpr" if rule.rate == "fnr" else rule.rate] = rule
    return list(rules.values()), goal


def bounded(rule: Rule, of: Plan, rng: Any, case: Case) -> Rule:
    """Give a rule a bound that the plain model misses, or one that users ask for."""
    share = rng.uniform(*SHARE)
    usual = rng.random() < 0.5 and of.grouping != "two" and of.kind in ("groups", "forward")
    values = rule.values(case)
    kept = values.rows >= KNOWN
    v, rows = values.of(kept if kept.sum() > 1 else values.rows > 0)[::2]
    overall = float(v @ rows / rows.sum())
    if rule.how == "gap":
        bound = rng.choice(USUAL) if usual else max(share * np.ptp(v), 0.01)
    elif rule.how == "within":
        bound = share * np.abs(v).max()
    elif rule.how == "ratio":
        ratio = v.min() / max(v.max(), 1e-9)
        nearer = min(ratio + (1.0 - share) * (1.0 - ratio), 0.95)
        bound = rng.choice([0.7, 0.8, 0.9]) if usual else nearer
    elif rule.how == "all":
        bound = max(share * v[0], 0.02)
    elif rule.rate == "auc":
        bound = v.min() + rng.uniform(-0.01, 0.02)
    else:  # between the worst group and all rows, and near the worst one for losses
        worst = v.min() if rule.sign < 0 else v.max()
        bound = worst + (1.1 - share) * (overall - worst)
    bound = float(f"{bound:.3g}")
    return Rule(rule.rate, rule.how, bound, rule.amounts)


def draw(number: int) -> Draw:
    """Draw a split and the rules; bounds come from the plain LightGBM out of fold."""
    of, rng = plan(number), np.random.default_rng([540, number])
    rows = load(of.table)
    is_regression = of.kind == "regression"
    n = min(of.rows, int(0.6 * rows.y.size))
    train, test = train_test_split(
        np.arange(rows.y.size),
        train_size=n,
        random_state=number,
        stratify=None if is_regression else rows.y,
    )
    frame = rows.groups[list(of.by)] if of.by else rows.groups.iloc[:, :0]
    first, *others = (frame[name] for name in of.by) if of.by else [pd.Series("", frame.index)]
    joined = first.str.cat(others, "/") if others else first
    codes = joined.astype("category").cat.codes.to_numpy().astype(int)

    def part(at: Any) -> Part:
        own = frame.iloc[at].reset_index(drop=True)
        amounts = None if rows.amounts is None else rows.amounts[at]
        return Part(rows.X[at], rows.y[at], own, codes[at], amounts)

    of = of._replace(rows=n)
    trained, tested = part(train), part(test[:TEST_ROWS])
    rules, goal = shapes(of, rng, int(rows.y.max()) + 1)
    if rules:
        parameters = {"n_estimators": min(of.rounds, 60), "learning_rate": of.learning_rate}
        model = (LGBMRegressor if is_regression else LGBMClassifier)(
            **parameters, **TABLES[of.table].tree, n_jobs=1, random_state=0, verbose=-1
        )
        method = "predict_proba" if of.kind == "auc" else "predict"
        d = cross_val_predict(model, trained.X, trained.y, cv=3, method=method)
        case = trained.case(d[:, 1] if of.kind == "auc" else d)
        rules = [bounded(rule, of, rng, case) for rule in rules]
    return Draw(of, trained, tested, tuple(rules), goal)


def estimator(of: Plan, constraints: Any, **parameters: Any) -> Any:
    """Give the model of a plan, on one thread."""
    tree = TABLES[of.table].tree
    parameters |= {"constraints": constraints, "random_state": 0}
    is_regression = of.kind == "regression"
    if of.library == LINEAR:
        parameters.pop("random_state")
        model = gbc.ConstrainedRidge if is_regression else gbc.ConstrainedLogisticRegression
        return model(**parameters)
    parameters |= {"n_estimators": of.rounds, "learning_rate": of.learning_rate, "n_jobs": 1}
    if of.library == "lightgbm":
        model = gbc.ConstrainedLGBMRegressor if is_regression else gbc.ConstrainedLGBMClassifier
        return model(verbose=-1, **tree, **parameters)
    model = gbc.ConstrainedXGBRegressor if is_regression else gbc.ConstrainedXGBClassifier
    return model(verbosity=0, max_depth=tree["max_depth"], **parameters)


def answer(model: Any, kind: str, X: Any) -> Any:
    """Decisions, predictions of a regressor, or scores where ranks are asked for."""
    return np.asarray(model.predict_proba(X)[:, 1] if kind == "auc" else model.predict(X))


def objective(case: Draw, d: Any) -> float:
    """Measure the goal on test rows."""
    y = case.test.y
    if case.goal == "r2":
        return float(1.0 - np.sum((y - d) ** 2) / np.sum((y - y.mean()) ** 2))
    if case.goal == "auc":
        return area(d[y == 1], d[y == 0])
    return metric(case.goal, confusion(y, d, int(max(y.max(), d.max())) + 1))


def references(case: Draw, plain: Any, d: Any, known: float) -> Figures:
    """Objectives of the references of a fit, by kind."""
    kind, test = case.plan.kind, case.test
    of_plain = test.case(d)
    if kind == "regression":
        return {"reference": group_shifts(case.rules, of_plain)}
    if kind == "auc":
        return {"reference": objective(case, d)}
    P = np.asarray(plain.predict_proba(test.X))
    if kind in ("classes", "metrics"):
        train, model = case.train, estimator(case.plan, [])
        folds = StratifiedKFold(4, shuffle=True, random_state=0)
        held = cross_val_predict(model, train.X, train.y, cv=folds, method="predict_proba")
        rows = (held, train.case(np.argmax(held, axis=1)))
        most = 0.0 if np.isnan(known) else known
        return {"reference": class_prices(case.goal, case.rules, rows, (P, of_plain), most)}
    return {
        "blind": group_blind(case.rules, P[:, 1], of_plain),
        "reference": group_thresholds(case.rules, P[:, 1], of_plain),
    }


def timed(model: Any, *given: Any, **named: Any) -> float:
    began = time.process_time()
    model.fit(*given, **named)
    return time.process_time() - began


def fit(case: Draw) -> dict[str, Any]:
    """Fit a draw and its plain model, and measure test rows."""
    of, train, test = case.plan, case.train, case.test
    if of.library == LINEAR:
        scale = StandardScaler().fit(train.X)
        train = train._replace(X=scale.transform(train.X))
        test = test._replace(X=scale.transform(test.X))
        case = case._replace(train=train, test=test)
    parameters: dict[str, Any] = {}
    if of.kind == "metrics":
        goal = gbc.accuracy if case.goal == "accuracy" else getattr(metrics, case.goal)
        parameters["maximize"] = goal()
    given = train.frame.copy()
    if any(rule.amounts for rule in case.rules):
        given["amount"] = train.amounts
    named: dict[str, Any] = {"sensitive_features": given} if given.shape[1] else {}
    if of.kind == "forward":
        parameters["measure_on"] = "forward"
        named["time"] = np.arange(len(train.y))
    constraints = [c for rule in case.rules for c in rule.constraints(list(of.by))]
    plain = estimator(of, [])
    plain_seconds = timed(plain, train.X, train.y)
    d_plain = answer(plain, of.kind, test.X)
    of_plain = missed(case.rules, test.case(d_plain))
    row = {
        "plain": objective(case, d_plain),
        "plain_violation": of_plain.all,
        "plain_known": of_plain.known,
        "plain_seconds": plain_seconds,
    }
    model = estimator(of, constraints, **parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seconds = timed(model, train.X, train.y, **named)
        except (ValueError, gbc.InfeasibleConstraintsError) as error:
            return row | {"status": f"refused: {type(error).__name__}: {str(error)[:120]}"}
    d = answer(model, of.kind, test.X)
    of_returned = missed(case.rules, test.case(d))
    report = getattr(model, "constraint_report_", None)
    feasibility = getattr(model, "feasibility_", None)
    kinds = sorted({w.category.__name__.removesuffix("Warning") for w in caught})
    row |= {
        "returned": objective(case, d),
        "violation": of_returned.all,
        "known": of_returned.known,
        "in_errors": of_returned.in_errors,
        "status": getattr(feasibility, "status", ""),
        "satisfied": "" if report is None else " ".join(map(str, report["satisfied"])),
        "warnings": " ".join(kinds),
        "seconds": seconds,
        "cpu": seconds / max(plain_seconds, 1e-3),
    } | references(case, plain, d_plain, of_returned.known)  # fmt: skip
    return row


def described(case: Draw) -> dict[str, Any]:
    """Columns of a row that say what was fitted."""
    of, sizes = case.plan, np.bincount(case.train.codes)
    is_grouped = any(rule.is_grouped for rule in case.rules)
    return {
        "draw": of.number, "kind": of.kind, "table": of.table, "half": of.half,
        "grouping": of.grouping if is_grouped else "", "n_groups": int((sizes > 0).sum()),
        "smallest": int(sizes[sizes > 0].min()), "library": of.library, "rounds": of.rounds,
        "learning_rate": of.learning_rate, "rows": of.rows, "test_rows": len(case.test.y),
        "goal": case.goal, "rules": "; ".join(map(str, case.rules)),
    }  # fmt: skip


def wanted(args: argparse.Namespace) -> Iterator[Plan]:
    """Plans from the first number on that the options leave."""
    plans = map(plan, itertools.count(args.first))
    return itertools.islice(
        (
            p
            for p in plans
            if p.kind in args.kinds
            and (not args.groups or p.grouping in args.groups)
            and (not args.half or p.half == args.half)
            and args.least_rows <= p.rows <= args.most_rows
            and p.rounds <= args.most_rounds
        ),
        args.draws,
    )


def run(results: ResultFile, args: argparse.Namespace) -> None:
    """Fit the draws that have no row."""
    done, package = results.keys("draw"), commit(Path(gbc.__file__).parent)
    for of in wanted(args):
        if (str(of.number),) not in done:
            case = draw(of.number)
            row = described(case) | fit(case) | {"package": package}
            results.append({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def frame_of(rows: Sequence[dict[str, str]]) -> pd.DataFrame:
    """Rows with numbers, and what is lost and said."""
    frame = pd.DataFrame(rows)
    numbers = ["plain", "returned", "blind", "reference", "plain_violation", "violation",
               "plain_known", "known", "in_errors", "seconds", "plain_seconds", "cpu", "rows",
               "rounds", "test_rows"]  # fmt: skip
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    frame["is_refused"] = frame["status"].str.startswith("refused")
    frame["loss"] = frame["reference"] - frame["returned"]
    frame["said"] = frame["warnings"].apply(lambda text: any(name in text for name in SAID))
    frame["costly"] = frame["warnings"].str.contains("Costly")
    return frame


def lost(part: pd.DataFrame, *more_than: float) -> dict[str, Any]:
    """Shares of fits that lose more than something, in silence or not."""
    fits = part[part["loss"].notna()]
    found: dict[str, Any] = {"fits": len(fits), "mean": fits["loss"].mean()}
    for limit in more_than:
        over = fits["loss"] > limit
        found[f"> {limit:g}"] = over.mean()
        found[f"> {limit:g} silent"] = (over & ~fits["said"]).mean()
    nothing = fits["loss"] <= 0.01
    found["costly, none lost"] = (fits["costly"] & nothing).mean()
    found["warned, none lost"] = (fits["said"] & nothing & (fits["known"] <= 0.01)).mean()
    return found


def excess_and_cost(part: pd.DataFrame) -> Figures:
    """Mean violation of the groups that rows can tell of, and the median cost in plain fits."""
    return {"known": part["known"].clip(lower=0.0).mean(), "cpu": part["cpu"].median()}


def _groups(frame: pd.DataFrame, groupings: Sequence[str]) -> dict[str, Any]:
    part = frame[frame["kind"].isin(THRESHOLDED) & (frame["test_rows"] >= ENOUGH)]
    return lost(part[part["grouping"].isin(groupings)], 0.03, 0.05, 0.1)


def _auc(frame: pd.DataFrame) -> dict[str, Any]:
    part = frame[frame["kind"] == "auc"]
    return lost(part[part["plain_known"] <= 0.02], 0.02)


def _large(frame: pd.DataFrame) -> dict[str, Any]:
    part = frame[frame["in_errors"].notna() & frame["reference"].notna()]
    part = part[part["kind"].isin(THRESHOLDED)]
    # The rows that a model is trained on have an error of their own beside that of test rows.
    both = part["in_errors"] / np.sqrt(1.0 + part["test_rows"] / part["rows"])
    found: dict[str, Any] = {}
    everything = part["grouping"].isin([*GROUPINGS, ""])
    kinds = {
        "all": everything,
        "two": part["grouping"] == "two",
        "many": part["grouping"].isin(MANY),
        "a threshold without groups meets": everything & part["blind"].notna(),
    }
    for name, kept in kinds.items():
        found[f"{name}: fits"] = int(kept.sum())
        found[f"{name} > 2 test errors"] = (part.loc[kept, "in_errors"] > 2).mean()
        found[f"{name} > 2 errors of both samples"] = (both[kept] > 2).mean()
    return found


def _cpu(frame: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {}
    frame = frame[frame["library"] != LINEAR]  # Which takes milliseconds, and has no rounds.
    large = (frame["rows"] >= 5000) & (frame["rounds"] >= 60)
    for name, part in (("all", frame), ("large", frame[large])):
        cpu = part["cpu"].dropna()
        found |= {f"{name}: fits": len(cpu), "median of " + name: cpu.median()}
        found[f"95% of {name}"] = cpu.quantile(0.95)
    return found


QUESTIONS: dict[str, Callable[[pd.DataFrame], dict[str, Any]]] = {
    "groups as they stand": lambda frame: _groups(frame, MANY),
    "two groups, or none": lambda frame: _groups(frame, ("two", "")),
    "regression": lambda frame: lost(frame[frame["kind"] == "regression"], 0.05),
    "pair rates, plain within .02 of the rule": _auc,
    "classes and metrics": lambda frame: lost(
        frame[frame["kind"].isin(["classes", "metrics"])], 0.02, 0.05
    ),
    "groups of 500 rows or more, where the reference meets the rules": _large,
    "CPU of boosters over plain (large: 5,000 rows and 60 rounds or more)": _cpu,
    "refused": lambda frame: {"share": frame["is_refused"].mean()},
}


def tables(rows: Sequence[dict[str, str]]) -> None:
    """Print the shares by half, and the losses by kind, library and rounds."""
    frame = frame_of(rows)
    halves = {"all": frame} | {half: frame[frame["half"] == half] for half in (TUNE, REPORT)}
    for question, figures in QUESTIONS.items():
        found = pd.DataFrame({half: figures(part) for half, part in halves.items() if len(part)})
        print(f"{question}\n{found.T.round(4).to_string()}\n")
    for by in (["kind", "grouping"], ["kind", "library"], ["kind", "rounds"]):
        grouped = frame.groupby(by)[frame.columns]
        found = grouped.apply(
            lambda part: pd.Series(lost(part, 0.03, 0.05) | excess_and_cost(part))
        )
        print(found.round(4).to_string(), end="\n\n")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--draws", type=at_least(1), default=1500)
    parser.add_argument("--first", type=at_least(0), default=0, help="number of the first draw")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--groups", nargs="+", choices=GROUPINGS, help="all by default")
    parser.add_argument("--half", choices=(TUNE, REPORT), help="both by default")
    parser.add_argument("--least-rows", type=at_least(1), default=1)
    parser.add_argument("--most-rows", type=at_least(1), default=max(ROWS))
    parser.add_argument("--most-rounds", type=at_least(1), default=max(ROUNDS))
    parser.add_argument("--tables", action="store_true", help="print, without fitting")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "sweep_language.csv")
    args = parser.parse_args()
    results = ResultFile(args.output, ["draw", *FIGURES])
    if not args.tables:
        run(results, args)
    tables(results.rows())


if __name__ == "__main__":
    main()
