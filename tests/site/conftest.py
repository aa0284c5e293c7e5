"""What the tests of the built documentation share: where it is, and a browser; a reason where there is none."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def pytest_collection_modifyitems(items):
    """All that is here needs what `make docs` makes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def site():
    """The folder of the built documentation, which has a folder for each language."""
    if not (SITE / "en" / "index.html").exists():
        pytest.skip("the documentation has not been built: make docs")
    return SITE


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site):
    """The site over HTTP, on this machine: pages opened as files cannot fetch others."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Handler, directory=site)
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser():
    """Chromium, without a window."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: make docs-test does"
    )
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A new tab, 1440 pixels wide; what its console says as an error fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    made = context.new_page()
    errors = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else None
    )
    yield made
    context.close()
    assert errors == []
