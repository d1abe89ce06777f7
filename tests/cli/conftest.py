import numpy as np
import pytest
from command_line import LABELS, TEXTS, CommandLine

from gbm_constrained.datasets import load_adult


@pytest.fixture(scope="session")
def adult_rows():
    """Adult with texts and named labels, as in a file, and decisions by years of education."""
    data = load_adult(download=False)
    table = data.data.iloc[:3000].copy()
    for name in TEXTS:
        table[name] = table[name].astype(object)
    table["income"] = np.array(LABELS)[data.target.iloc[:3000]]
    table["old"] = np.where(table["education-num"] > 12, *LABELS[::-1])
    table["y"] = data.target.iloc[:3000]
    return table


@pytest.fixture(scope="session")
def files(adult_rows, tmp_path_factory):
    """Folder of Adult as CSV: rows to train on and new ones, with named and numbered labels."""
    folder = tmp_path_factory.mktemp("adult")
    for part, rows in (("train", slice(0, 2000)), ("new", slice(2000, None))):
        table = adult_rows.iloc[rows]
        table.drop(columns="y").to_csv(folder / f"{part}.csv", index=False)
        table.drop(columns="income").rename(columns={"old": "old model"}).to_csv(
            folder / f"{part}_01.csv", index=False
        )
    return folder


@pytest.fixture
def run(files, tmp_path, capsys, monkeypatch):
    """Commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(files, capsys)
