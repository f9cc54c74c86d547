"""Pages of the playground in headless Chromium."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
BROWSER_REASON = "chromium-headless-shell is not installed"
_TIMEOUT_MS = 60_000


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser, for any number of pages."""
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()


@contextlib.contextmanager
def playground(opened: Browser, url: str, **context: Any) -> Iterator[Page]:
    """The page at `url` in a profile of its own; the model is known when it is yielded.

    No error may be logged, nothing may be loaded from elsewhere, and no rule of the page's security
    policy may be broken. `context`: options of the profile.
    """
    with open_page(opened, url, **context) as page:
        expect(page.locator("#model option").first).to_be_attached()
        yield page


@contextlib.contextmanager
def open_page(
    opened: Browser, url: str, path: str = "/", *, expected: str = "", **context: Any
) -> Iterator[Page]:
    """As `playground`, but the page may be another one, the model unknown, and errors with
    `expected` in their text may be logged."""
    profile = opened.new_context(**context)
    profile.set_default_timeout(_TIMEOUT_MS)
    page = profile.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on(
        "request", lambda r: None if r.url.startswith(url) else problems.append(f"loads {r.url}")
    )
    page.goto(f"{url}{path}")
    yield page
    profile.close()
    unexpected = [text for text in problems if not expected or expected not in text]
    assert unexpected == []


def send(page: Page, text: str) -> None:
    """Writes a message and sends it."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def wait_for_end(page: Page) -> None:
    """Returns when no answer is arriving."""
    page.locator("body:not(.busy)").wait_for()
