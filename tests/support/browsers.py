"""A real browser for the tests of reports; ``python tests/support/browsers.py`` installs one.

Playwright's own Chromium is tried first, then one on the PATH. If Playwright's download is not
reachable, Chromium is installed with the system's packages, given the permission.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NOT_INSTALLED = (
    "There is no Chromium, neither Playwright's nor one on the PATH. `python "
    "tests/support/browsers.py` tries to install one"
)


def launch(playwright):
    """A headless Chromium, or None if there is none."""
    from playwright.sync_api import Error

    path = next(filter(None, map(shutil.which, NAMES)), None)
    for options in ({}, {"executable_path": path}):
        if options.get("executable_path", "own") is None:
            continue
        try:
            return playwright.chromium.launch(args=["--no-sandbox"], **options)
        except Error:
            continue
    return None


def is_installed():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        if browser is not None:
            browser.close()
        return browser is not None


def install():
    """Try the ways to install a browser in turn."""
    if is_installed():
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
        if is_installed():
            return
    sys.stderr.write(f"{NOT_INSTALLED}; its tests are skipped\n")


if __name__ == "__main__":
    install()
