"""What a browser is sent with every page of the console, and where the links of a page lead below a proxy's prefix."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest

from tests.conftest import ADDRESS, Baobab
from tests.http.console.test_console import propose, sign_in

PREFIX = "/below/a/proxy"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; manifest-src 'self'; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; require-trusted-types-for 'script'; trusted-types baobab"
)
ASSETS = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "push.js": "text/javascript; charset=utf-8",
    "console.webmanifest": "application/manifest+json",
    "icon-192.png": "image/png",
}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_BASE_URL": ADDRESS + PREFIX}


class Page(HTMLParser):
    """What a page names, where its forms lead, and what a policy without `unsafe-inline` blocks."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.actions: list[str] = []
        self.inline: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.links += [str(attributes[name]) for name in ("href", "src") if attributes.get(name) is not None]
        self.actions += [str(attributes[name]) for name in ("action", "formaction") if attributes.get(name) is not None]
        self.inline += [f"{tag} {name}" for name in attributes if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in attributes):
            self.inline.append(tag)


async def list_pages(baobab: Baobab) -> list[str]:
    """The sign-in, and pages of every kind that the console has for someone who has just begun."""
    approval_id = await propose(baobab)
    browser = await sign_in(baobab)
    menu = Page((await baobab.client.get("/console", headers=browser)).text).links
    paths = {urlsplit(link).path.removeprefix(PREFIX) for link in menu if link.startswith(f"{PREFIX}/console")}
    pages = {path for path in paths if not path.startswith("/console/assets/")}
    assert len(pages) > 5
    return sorted(pages | {"/console/sign-in", f"/console/approvals/{approval_id}", "/console/nothing"})


async def test_every_page_has_the_whole_policy_and_nothing_that_it_blocks(baobab: Baobab) -> None:
    pages = await list_pages(baobab)
    browser = await sign_in(baobab)
    for path in pages:
        answer = await baobab.client.get(path, headers=browser)
        # Some pages are not for a key, which signed in here, and one is not there: those have the headers, too.
        assert answer.status_code in (200, 403, 404), path
        assert answer.headers["content-type"] == "text/html; charset=utf-8", path
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["cross-origin-opener-policy"] == "same-origin", path
        assert answer.headers["referrer-policy"] == "same-origin", path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["cache-control"] == "no-store", path
        assert "set-cookie" not in answer.headers, path
        assert Page(answer.text).inline == [], path


async def test_all_that_a_page_names_is_served_below_the_prefix(baobab: Baobab) -> None:
    pages = await list_pages(baobab)
    browser = await sign_in(baobab)
    # Every page has the menu: its links are followed once, for a person may ask for only so many pages a minute.
    statuses: dict[str, int] = {}
    for path in pages:
        page = Page((await baobab.client.get(path, headers=browser)).text)
        # The icon is in the page itself, others lead to a place of the page, and some out of the server.
        targets = [
            urljoin(f"{ADDRESS}{PREFIX}{path}", link) for link in page.links if not link.startswith(("data:", "#"))
        ]
        own = [target for target in targets if urlsplit(target).netloc == urlsplit(ADDRESS).netloc]
        assert own, path
        for target in own + [urljoin(f"{ADDRESS}{PREFIX}{path}", action) for action in page.actions]:
            assert target.startswith(f"{ADDRESS}{PREFIX}/"), f"{path} leads to {target}"
        for target in own:
            if target not in statuses:
                answer = await baobab.client.get(target.replace(PREFIX, "", 1), headers=browser)
                statuses[target] = answer.status_code
            assert statuses[target] in (200, 303, 403), f"{path} leads to {target}"


@pytest.mark.parametrize(("name", "content_type"), ASSETS.items())
async def test_its_files_are_served_with_their_type_and_the_policy(
    baobab: Baobab, name: str, content_type: str
) -> None:
    answer = await baobab.client.get(f"/console/assets/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == content_type
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", [name for name in ASSETS if name.endswith(".js")])
async def test_its_scripts_make_no_code_of_text_and_keep_nothing(baobab: Baobab, name: str) -> None:
    script = (await baobab.client.get(f"/console/assets/{name}")).text
    sinks = r"(?:inner|outer)HTML\s*[+]?=[^=]|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function"
    assert re.findall(sinks, script) == []
    assert re.findall(r"localStorage|sessionStorage|indexedDB|document\.cookie|caches\.|window\.name", script) == []
    assert re.findall(r"(?:https?|wss?):/?/[\w\[]", script) == []
