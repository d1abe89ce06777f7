"""A browser without a screen, where one is installed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess

import pytest


def browser():
    """How to take a screenshot here: a function of the page and the image; skips without a way."""
    for name in ("chromium", "chromium-browser", "google-chrome", "firefox"):
        path = shutil.which(name)
        if path is None:
            continue

        def shoot(page, image, profile, path=path, name=name):
            if name == "firefox":
                command = [path, "--headless", "--profile", profile, "--window-size=1000,2600"]
                command += [f"--screenshot={image}", page.as_uri()]
            else:
                command = [path, "--headless", "--no-sandbox", "--disable-gpu",
                           "--enable-logging=stderr", f"--user-data-dir={profile}",
                           "--hide-scrollbars", "--window-size=1000,2600",
                           f"--screenshot={image}", page.as_uri()]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            return [line for line in done.stderr.splitlines() if "CONSOLE" in line]

        return shoot
    if importlib.util.find_spec("playwright") is not None:
        from playwright.sync_api import Error, sync_playwright

        def shoot(page, image, profile):
            said = []
            with sync_playwright() as p:
                try:
                    opened = p.chromium.launch()
                except Error as missing:
                    pytest.skip(f"playwright has no browser: {missing.message.splitlines()[0]}")
                tab = opened.new_page(viewport={"width": 1000, "height": 2600})
                tab.on("console", lambda message: said.append(message.text))
                tab.on("pageerror", lambda error: said.append(str(error)))
                tab.goto(page.as_uri())
                tab.screenshot(path=image)
                opened.close()
            return said

        return shoot
    return pytest.skip("no chromium, google-chrome or firefox on PATH, and no playwright")
