"""The program, its help and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from helpers import BOTH

import gbm_constrained as gc
from gbm_constrained.cli.main import main

ROOT = Path(__file__).parents[2]


def test_it_is_a_program(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = ["audit", "none.json", "none.csv", "--target=y", "--constraint=fpr <= 0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "gbm_constrained", *arguments],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gbm-constrained audit: error: MODEL none.json does not exist: check its name and "
        "folder.\n"
    )
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"gbm-constrained": f"{main.__module__}:{main.__name__}"}


def test_help_and_version(run):
    assert run("--version").out == f"gbm-constrained {gc.__version__}\n"
    done = run("fit", "--help")
    assert done.code == 0
    assert "exit codes: 0 all constraints are met" in run("--help").out
    for option in ("--constraint CONSTRAINT", "--sensitive COLUMN", "--param NAME=VALUE"):
        assert option in done.out
    assert run().code == 2


@BOTH
def test_exit_codes_are_those_of_the_verdicts(library, run):
    assert run.fit(library, "--constraint=fpr <= 0.2").code == 0
    for text, code, verdict in (("fpr <= 0.5", 0, "met"), ("recall >= 0.99", 1, "missed")):
        done = run.audit(library, f"--constraint={text}")
        assert done.code == code
        assert f"The constraint is {verdict} on" in done.out
    report = run.report_of("audit", library, "--constraint=fpr <= 0.5")
    value = report["constraints"][0]["value"]
    assert run.audit(library, f"--constraint=fpr <= {value}").code == 0
    done = run.audit(library, f"--constraint=fpr <= {0.99 * value}")
    assert done.code == 1
    assert "The constraint is missed within sampling error" in done.out
