"""A person in front of a browser: logs in, clicks, reads, takes pictures."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import pytest
from playwright.sync_api import Browser, FrameLocator, Locator, Page, sync_playwright

PATIENCE_S = 120
"""How long a person waits for a page; a starting Spark delays everything on two cores."""
MOST_BYTES = 200_000
"""The greatest size of a picture for docs/images."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Run the machine's Chromium during the body of a `with` statement."""
    program = which("chromium") or which("chromium-browser") or which("google-chrome")
    if program is None:
        pytest.fail("make test-ui needs Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield running
        finally:
            running.close()


@dataclass(slots=True)
class Person:
    """Somebody with a browser window of their own. `clicks` counts the clicks since `count_from_here`."""

    page: Page
    url: str
    pictures: Path | None = None
    clicks: int = 0
    requests: list[str] = field(default_factory=list)

    @classmethod
    def arrives(cls, running: Browser, url: str, pictures: Path | None = None) -> "Person":
        """Open a window without cookies at the first page of Airflow."""
        context = running.new_context(viewport={"width": 1280, "height": 860})
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        person = cls(page=page, url=url, pictures=pictures)
        page.on("request", lambda request: person.requests.append(request.url))
        page.goto(url)
        return person

    def log_in(self, user: str, password: str) -> None:
        """Fill in the form of the login."""
        self.page.fill("input[name=username]", user)
        self.page.fill("input[name=password]", password)
        self.page.keyboard.press("Enter")
        self.page.get_by_role("link", name="Home").first.wait_for()
        self.clicks = 0

    @property
    def pages(self) -> FrameLocator:
        """The frame in which Airflow shows our pages."""
        return self.page.frame_locator("iframe[title=Hindcast]")

    def click(self, target: Locator) -> None:
        """Click, and count it."""
        target.click()
        self.clicks += 1

    def picture(self, name: str, *, of: Locator | None = None) -> None:
        """Save what the window shows as NAME.png, if pictures are wanted."""
        if self.pictures is None:
            return
        if of is not None:
            of.scroll_into_view_if_needed()
        self.page.wait_for_timeout(1500)  # the interface draws after the data have arrived
        path = self.pictures / f"{name}.png"
        self.page.screenshot(path=path)
        assert path.stat().st_size < MOST_BYTES, f"{path} has {path.stat().st_size:,} bytes"


def wait_until(is_so: Callable[[], bool], *, what: str, most_s: float = 600) -> None:
    """Wait for something that happens outside of the browser.

    Raises:
        AssertionError: it did not happen in time.
    """
    deadline = time.monotonic() + most_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {most_s:.0f} s: {what}"
        time.sleep(1)
