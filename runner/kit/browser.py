"""Chromium in the evaluator's pod, driven through Playwright: how a case sees the submission's pages.

A control that is not there is the submission's failure; a browser that crashes is the kit's. Pages are hostile: they
reach nothing but the address they came from.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page, Playwright, Route, sync_playwright
from playwright.sync_api import Error as BrowserError
from playwright.sync_api import TimeoutError as BrowserTimeout

from runner.kit.casefile import CaseFile
from runner.kit.faults import KitFailed, SubmissionFailed

Done = TypeVar("Done")
PageRole = Literal["alert", "button", "cell", "form", "heading", "row", "status", "table"]
FIELD_ROLES: Final[tuple[Literal["combobox"], Literal["textbox"], Literal["spinbutton"]]] = (
    "combobox",
    "textbox",
    "spinbutton",
)
WAIT_SECONDS: Final = 8.0
ARGUMENTS: Final = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"]


class Chromium:
    """One browser for all cases of a shard, started when the first of them needs it."""

    def __init__(self, path: str, host: str) -> None:
        """`host` is the one that its pages come from."""
        self._path = path
        # In the browser itself: routes of Playwright see neither redirects nor WebSockets.
        self._arguments = [*ARGUMENTS, f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {host}"]
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def open(self, url: str, case_file: CaseFile, width: int = 1440, height: int = 1000) -> "Ui":
        """Open a page in a context of its own, in time zone UTC."""
        if self._browser is None or not self._browser.is_connected():
            self.close()
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=self._path, args=self._arguments)
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            timezone_id="UTC",
            # A page could fill this pod's disk with the one, and outlive itself with the other.
            accept_downloads=False,
            service_workers="block",
        )
        context.set_default_timeout(WAIT_SECONDS * 1000)
        origin = urlsplit(url).netloc

        def only_there(route: Route) -> None:
            if urlsplit(route.request.url).netloc == origin:
                route.continue_()
            else:
                route.abort()

        context.route("**/*", only_there)
        return Ui(self._browser, context.new_page(), url, case_file)

    def close(self) -> None:
        """End the browser."""
        if self._browser is not None and self._browser.is_connected():
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._browser = self._playwright = None


class Ui:
    """One page; every verb either works or says whose failure it was."""

    def __init__(self, browser: Browser, page: Page, url: str, case_file: CaseFile) -> None:
        self._browser, self._page, self._url, self._file = browser, page, url, case_file
        self._crashed = False
        page.on("crash", lambda _: setattr(self, "_crashed", True))

    def goto(self, path: str = "/") -> None:
        """Load a path of the submission."""
        self._do(f"open {path}", lambda: self._page.goto(self._url + path, wait_until="load"))

    def fill(self, label: str, text: str) -> None:
        """Fill the field with this accessible name."""
        self._do(f"fill {label!r} with {text!r}", lambda: self._field(label).fill(text))

    def select(self, label: str, value: str) -> None:
        """Choose an option of the select with this accessible name."""
        self._do(f"choose {value!r} in {label!r}", lambda: self._field(label).select_option(value))

    def click(self, button: str) -> None:
        """Press the button with this accessible name."""
        self._do(f"press {button!r}", lambda: self._page.get_by_role("button", name=button, exact=True).click())

    def wait_for(self, role: PageRole, *, name: str | None = None, text: str | None = None) -> str:
        """Wait until something with this role (and name, and text in it) is visible; return its text."""
        what = f"see [{role}]" + (f" named {name!r}" if name else "") + (f" with {text!r}" if text else "")

        def look() -> str:
            found = self._page.get_by_role(role, name=name, exact=True) if name else self._page.get_by_role(role)
            first: Locator = (found.filter(has_text=text) if text else found).first
            first.wait_for(state="visible")
            return first.inner_text()

        return self._do(what, look)

    def wait_gone(self, button: str) -> None:
        """Wait until no button with this accessible name is visible."""
        target = self._page.get_by_role("button", name=button, exact=True)
        self._do(f"see no button {button!r}", lambda: target.first.wait_for(state="hidden"))

    def picture(self, name: str) -> None:
        """Put a screenshot on the case's file."""
        try:
            self._file.picture(name, self._page.screenshot(timeout=5000))
        except BrowserError as error:
            self._file.line(f"no picture {name!r}: {error}")

    def close(self) -> None:
        """Close the page and its context."""
        if self._browser.is_connected():
            self._page.context.close()

    def _field(self, label: str) -> Locator:
        """Find a field by its label or its accessible name: the label around a select has the options in its text."""
        page = self._page
        found = page.get_by_label(label, exact=True)
        for role in FIELD_ROLES:
            found = found.or_(page.get_by_role(role, name=label, exact=True))
        return found

    def _do(self, what: str, act: Callable[[], Done]) -> Done:
        self._file.line(f"browser: {what}")
        try:
            return act()
        except BrowserTimeout as error:
            self.picture(f"failed to {what}")
            raise SubmissionFailed(f"in the browser, could not {what} within {WAIT_SECONDS:g} s") from error
        except BrowserError as error:
            if not self._browser.is_connected():
                raise KitFailed(f"the browser has ended while it should {what}: {error}") from error
            if self._crashed or "net::ERR" in error.message or "strict mode" in error.message:
                raise SubmissionFailed(f"in the browser, could not {what}: {error.message[:400]}") from error
            raise
