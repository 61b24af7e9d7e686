"""A real browser for the tests of the report: found, or installed by ``python tests/browsers.py``.

Playwright's own is tried first. Where its download cannot be reached, the system's Chromium will
do, and is installed with the system's packages where we may do that.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WHY_NONE = (
    "no Chromium: neither Playwright's own nor one on the PATH; `python tests/browsers.py` "
    "installs one where it can"
)


def launch(playwright):
    """A headless Chromium, or None where there is none."""
    from playwright.sync_api import Error

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    for options in ({}, {"executable_path": path}):
        if options.get("executable_path", "own") is None:
            continue
        try:
            return playwright.chromium.launch(args=["--no-sandbox"], **options)
        except Error:
            continue
    return None


def is_there():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        if browser is not None:
            browser.close()
        return browser is not None


def install():
    """Try what there is to try, one after the other."""
    if is_there():
        return
    ways = [[[sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        ways.append(
            [
                ["apt-get", "update", "--quiet"],
                [
                    "apt-get",
                    "install",
                    "--yes",
                    "--quiet",
                    "--no-install-recommends",
                    "chromium",
                    "fonts-dejavu-core",
                ],
            ]
        )
    for commands in ways:
        for command in commands:
            try:
                subprocess.run(command, capture_output=True, check=True, timeout=300)
            except (OSError, subprocess.SubprocessError) as error:
                sys.stderr.write(f"{error}\n")
                break
        if is_there():
            return
    sys.stderr.write(f"{WHY_NONE}: its tests will be skipped\n")


if __name__ == "__main__":
    install()
