"""The examples run as a user would run them, and print and save what they say."""

import importlib
import itertools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

from gbm_constrained.datasets import load_adult, load_dry_bean

pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


def run(script, *arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / script, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run an example in this process, which spares the imports: its status and what it printed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def started(script, *arguments, cwd):
        monkeypatch.chdir(cwd)
        path = str(EXAMPLES / script)
        monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
        monkeypatch.delitem(sys.modules, "common", raising=False)  # which filters warnings
        code = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        if isinstance(code, str):  # as the interpreter says it
            return SimpleNamespace(returncode=1, stdout=printed.out, stderr=printed.err + code)
        return SimpleNamespace(returncode=code, stdout=printed.out, stderr=printed.err)

    yield started
    plt.close("all")


def saved(folder):
    return sorted(path.name for path in folder.iterdir())


def numbers(line):
    return np.array(re.findall(r"-?\d+\.\d+", line), dtype=float)


@pytest.fixture(scope="module")
def credit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("credit")
    result = run("credit_neyman_pearson.py", "--rounds", 40, "--seed", 3, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result, folder / "output"


def test_credit_prints_a_table(credit):
    result, _ = credit
    assert "Warning" not in result.stderr  # a slow fit shows its progress there
    for library in ("XGBoost", "LightGBM"):
        plain, threshold, constrained, guaranteed = (
            numbers(next(r for r in result.stdout.splitlines() if r.startswith(model)))
            for model in (
                f"{library:9}plain     ",
                f"{library:9}plain, other threshold ",
                f"{library:9}constrained ",
                f"{library:9}with a guarantee ",
            )
        )
        assert plain.shape == threshold.shape == (5,)  # nothing is known of them out of fold
        assert constrained.shape == guaranteed.shape == (8,)
        for missed, low, high in (plain[:3], constrained[:3], constrained[3:6], guaranteed[:3]):
            assert low <= missed <= high
        assert constrained[1] <= 5.0  # out of fold the rule holds up to sampling error
        assert guaranteed[0] == 0.0
        assert guaranteed[2] < 5.0
        assert constrained[-5] < plain[-5]  # fewer frauds are missed, for more false alarms
        assert constrained[-2] > plain[-2]
        assert guaranteed[-5] <= constrained[-5]
        assert guaranteed[-2] > constrained[-2]


def test_credit_says_what_the_rule_is_worth(credit):
    text = credit[0].stdout
    assert "trees that had not seen the rows" in text
    assert len(re.findall(r"\d+\.\d% false alarms instead of \d+\.\d%", text)) == 2
    assert text.count("0 of 8,099 test decisions differ") == 2


def test_credit_saves_models_and_figures(credit):
    _, output = credit
    assert saved(output) == [
        "credit_history.png",
        "credit_trade_off.png",
        "model.json",
        "model.txt",
    ]
    assert (output / "model.json").read_text().startswith("{")
    assert (output / "model.txt").read_text().startswith("tree\nversion")
    for path in output.glob("*.png"):
        assert path.read_bytes().startswith(PNG)


@pytest.fixture(scope="module")
def dry_bean(tmp_path_factory):
    try:
        load_dry_bean(download=False)
    except FileNotFoundError:
        pytest.skip("Dry Bean is not bundled, and not in GBM_CONSTRAINED_DATA nor in the cache")
    folder = tmp_path_factory.mktemp("dry_bean")
    arguments = ("--rounds", 30, "--output", folder / "here")
    result = run("dry_bean_neyman_pearson.py", *arguments, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result, folder / "here"


def test_dry_bean_prints_tables(dry_bean):
    result, _ = dry_bean
    assert "Warning" not in result.stderr  # a slow fit shows its progress there
    lines = result.stdout.splitlines()
    for library in ("XGBoost", "LightGBM"):
        plain, constrained = (
            numbers(next(r for r in lines if r.startswith(f"{library:9}{model:12}")))
            for model in ("plain", "constrained")
        )
        assert plain.shape == constrained.shape == (2,)
        assert plain[0] > 80
        assert constrained[0] > 80
        assert constrained[1] < plain[1]
    classes = [next(r for r in lines if re.match(rf"{k} [A-Z]", r)) for k in range(7)]
    assert [c.split()[1] for c in classes] == [
        "BARBUNYA", "BOMBAY", "CALI", "DERMASON", "HOROZ", "SEKER", "SIRA"
    ]  # fmt: skip
    assert [c.split()[2] for c in classes] == ["-", "1.00", "3.00", "2.00", "2.00", "-", "-"]


def test_dry_bean_saves_figures(dry_bean):
    _, output = dry_bean
    assert saved(output) == ["dry_bean_history.png", "dry_bean_trade_off.png"]
    for path in output.glob("*.png"):
        assert path.read_bytes().startswith(PNG)


def ran(script, folder, *arguments, start=run, models=()):
    """What an example prints, of which one figure is saved, and models if it saves any."""
    result = start(f"{script}.py", "--jobs", 1, "--output", folder, *arguments, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    assert saved(folder) == [f"{script}.png", *models]
    assert (folder / f"{script}.png").read_bytes().startswith(PNG)
    assert "interval" in result.stdout
    return result.stdout


def rows_of(text, name):
    """Numbers of the rows of a table, from the one that starts with `name` to the next name."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(name))
    following = itertools.takewhile(lambda line: line.startswith(" "), lines[first + 1 :])
    return np.array([numbers(line) for line in (lines[first], *following)])


def test_adult_fairness(tmp_path):
    arguments = ("--rows", 1500, "--rounds", 8, "--library", "XGBoost")
    text = ran("adult_fairness", tmp_path, *arguments)
    adult = load_adult()
    chosen = adult.data.sample(1500, random_state=0).index
    train, test = train_test_split(chosen, test_size=0.3, random_state=0)
    params = {"n_estimators": 8, "learning_rate": 0.1, "n_jobs": 1, "enable_categorical": True}
    plain = XGBClassifier(**params).fit(adult.data.loc[train], adult.target[train])
    for rule in ("selection rate by sex  ", "error rate by sex", "equalized odds by sex"):
        rows = rows_of(text, rule)
        assert rows.shape == (3, 5)
        assert (rows[:, 1] <= rows[:, 0]).all()  # the interval
        assert (rows[:, 0] <= rows[:, 2]).all()
        assert (rows[1:, 1] <= (5, 2)).all()  # no rule is broken beyond doubt
        assert (rows[:, 4] > 65).all()  # equal error rates may cost more than a constant does
        # The first row is the plain library's own model.
        accuracy = 100 * plain.score(adult.data.loc[test], adult.target[test])
        assert rows[0, 4] == pytest.approx(accuracy, abs=0.006)
    selected = rows_of(text, "selection rate by sex  ")
    predicted = pd.Series(plain.predict(adult.data.loc[test]), index=test)
    rates = predicted.groupby(adult.data["sex"], observed=True).mean()
    assert selected[0, 3] == pytest.approx(100 * (rates.max() - rates.min()), abs=0.006)
    assert selected[-1, 0] < selected[0, 0]
    assert "small groups" in text


@pytest.fixture(scope="module")
def equal_rates(tmp_path_factory):
    """The example of the README, of two thousand rows, and where its files are."""
    folder = tmp_path_factory.mktemp("adult")
    given = ("--rows", 2000, "--rounds", 8, "--jobs", 1)
    result = run("adult_false_positive_rates.py", *given, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    return result.stdout, folder / "output"


@pytest.mark.parametrize("library", ["XGBoost", "LightGBM"])
def test_adult_false_positive_rates(equal_rates, library):
    text, _ = equal_rates
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(library)]
    known = {
        name: [line for line in lines if re.match(rf"{library} +{name}  ", line)]
        for name in ("constrained", "plain, tuned threshold", "plain")
    }
    assert [len(found) for found in known.values()] == [4, 4, 1]
    assert all(line.endswith("met") or "missed" in line for line in lines[:8])
    for line in known["constrained"]:
        *_, gap, low, high, accuracy = numbers(line)
        assert low <= gap <= high
        assert accuracy > 70
    # The plain row is the library's own model, which has no column sex.
    adult = load_adult()
    chosen = adult.data.sample(2000, random_state=0).index
    is_train = adult.split.loc[chosen] == "train"
    train, test = chosen[is_train].sort_values(), chosen[~is_train].sort_values()
    features = adult.data.drop(columns="sex")
    params = {"n_estimators": 8, "learning_rate": 0.1, "n_jobs": 1}
    plain = (
        XGBClassifier(**params, enable_categorical=True)
        if library == "XGBoost"
        else LGBMClassifier(**params, verbose=-1)
    )
    predicted = plain.fit(features.loc[train], adult.target[train]).predict(features.loc[test])
    negative = (adult.target[test] == 0).to_numpy()
    rates = pd.Series(predicted[negative]).groupby(
        adult.data.loc[test, "sex"][negative].to_numpy()
    )
    gap, low, high, accuracy = numbers(known["plain"][0])
    assert gap == pytest.approx(100 * np.ptp(rates.mean()), abs=0.006)
    assert low <= gap <= high
    assert accuracy == pytest.approx(100 * np.mean(predicted == adult.target[test]), abs=0.006)


def test_adult_false_positive_rates_saves_native_models_and_a_figure(equal_rates):
    text, output = equal_rates
    name = "adult_false_positive_rates.png"
    assert saved(output) == [name, "model.json", "model.txt"]
    assert (output / name).read_bytes().startswith(PNG)
    assert len(re.findall(r"Read by plain \w+, 0 of \d+ test decisions differ", text)) == 2


def test_the_tuned_threshold_has_the_fewest_errors_within_the_bound(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("adult_false_positive_rates")
    rng = np.random.default_rng(0)
    sex, y = rng.choice(["F", "M"], 600), rng.integers(0, 2, 600)
    score = np.clip(0.3 * y + 0.2 * (sex == "M") + 0.5 * rng.random(600), 0, 0.999)

    def gap_and_errors(threshold):
        selected = score >= threshold
        rates = [selected[(y == 0) & (sex == group)].mean() for group in ("F", "M")]
        return np.ptp(rates), np.mean(selected != y)

    for bound in (1.0, 0.1, 0.0):
        gap, errors = gap_and_errors(module.threshold_for(y, score, sex, bound))
        assert gap <= bound
        others = [gap_and_errors(t) for t in np.linspace(0.001, 1.0, 1000)]
        assert errors == min(e for g, e in others if g <= bound)


def test_compas_fairness(tmp_path):
    text = ran("compas_fairness", tmp_path, "--rows", 2000, "--rounds", 8)
    assert "race=Caucasian" in text
    for rule in ("recidivism, by race  ", "recidivism, by race x sex", "score of 3 classes"):
        rows = rows_of(text, rule)
        assert rows.shape == (4, 12)
        assert ((rows >= 0) & (rows <= 100)).all()
        assert (rows[:, [4, 10]] <= rows[:, [3, 9]] / 2 + 0.006).all()  # std and range


def test_churn_and_recall(tmp_path):
    text = ran("churn_and_recall", tmp_path, "--rows", 1500, "--rounds", 8)
    for library in ("XGBoost", "LightGBM"):
        table = text.partition(f"{library}, in per cent")[2]
        for name, known in (("deployed", 0), ("plain", 0), ("recall alone", 3), ("2", 6)):
            line = next(r for r in table.splitlines() if r.strip().startswith(f"{name} "))
            row = numbers(line)
            assert row.shape == (known + 5,)
            churned, _, _, won, lost = row[known:]
            assert churned == pytest.approx(won + lost, abs=0.011)
            assert (churned == 0.0) == (name == "deployed")


@pytest.mark.parametrize("library", ["XGBoost", "LightGBM"])
def test_coverage_budget(library, tmp_path):
    arguments = ("--rows", 1500, "--rounds", 8, "--library", library)
    text = ran("coverage_budget", tmp_path, *arguments)
    assert f"{library}:" in text
    for rule in (
        "budget on training rows",
        "budget on monitored rows",
        "budget, precision >= 0.9",
    ):
        rows = [line for line in text.splitlines() if line.strip().startswith(rule)]
        assert len(rows) == 3
        for line in rows:
            _, unseen, low, high, *_ = numbers(line.partition(rule)[2])
            assert low <= unseen <= high
    thresholds = [line for line in text.splitlines() if line.startswith("threshold")]
    assert len(thresholds) == 3
    for line in thresholds:
        requested, monitored, *_ = numbers(line)
        assert monitored <= requested  # ties are not selected


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("dry_bean_neyman_pearson.py", "dry+bean+dataset.zip"),
        ("credit_neyman_pearson.py", "credit.arff"),
        ("adult_fairness.py", "adult.zip"),
        ("adult_false_positive_rates.py", "adult.zip"),
        ("compas_fairness.py", "compas-scores-two-years.csv"),
        ("churn_and_recall.py", "adult.zip"),
        ("coverage_budget.py", "adult.zip"),
    ],
)
def test_missing_data_is_said_and_not_traced_back(script, wanted, tmp_path, run_here):
    full = ["--full"] if script.startswith("credit") else []
    result = run_here(script, *full, "--data-home", tmp_path, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    assert wanted in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("adult_fairness.py", ["--rows", 400], "argument --rows: must be 1,000 or more, got 400"),
        ("compas_fairness.py", ["--rows", 400], "argument --rows: must be 1,500 or more, got 400"),
        ("credit_neyman_pearson.py", ["--rounds", 0], "argument --rounds: must be 1 or more"),
        ("adult_fairness.py", ["--output", EXAMPLES / "common.py"], "common.py: File exists."),
    ],
)
def test_arguments_that_no_example_can_take_are_said(script, arguments, said, tmp_path, run_here):
    result = run_here(script, *arguments, cwd=tmp_path)
    assert result.returncode in (1, 2)
    assert result.stdout == ""
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("script", "least", "models"),
    [
        ("adult_fairness", 1000, []),
        ("adult_false_positive_rates", 1000, ["model.txt"]),
        ("compas_fairness", 1500, []),
        ("churn_and_recall", 200, []),
        ("coverage_budget", 200, []),
    ],
)
def test_the_fewest_rows_are_enough(script, least, models, tmp_path, run_here):
    given = ["--rows", least, "--rounds", 2, "--library", "LightGBM"]
    ran(script, tmp_path, *given, start=run_here, models=models)


def test_a_search_says_whether_any_trial_met_the_rule(tmp_path):
    pytest.importorskip("optuna", reason="optuna is in the extra ecosystem")
    few = run("optuna_search.py", "--trials", 1, "--rows", 100, "--rounds", 20, cwd=tmp_path)
    assert few.returncode == 0, few.stderr
    assert few.stdout.startswith("0 of 1 trials meet gap(fpr, by='sex') <= 0.02 on unseen rows\n")
    assert "the nearest to it: {'n_estimators'" in few.stdout
    assert "best of them" not in few.stdout


def test_examples_are_importable_without_running(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("dry_bean_neyman_pearson")
    y = np.array([0, 1, 1, 2, 3, 3, 4])
    predicted = np.array([1, 1, 0, 2, 3, 3, 4])
    assert module.violation(y, predicted) == pytest.approx(0.5 - 0.01)
