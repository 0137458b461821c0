"""`baobab sites` against a server that runs."""

import httpx
import pytest

from tests.cli.client.conftest import Terminal


def write_site(terminal: Terminal, text: str) -> None:
    terminal.write("dist/index.html", f"<h1>{text}</h1>")
    terminal.write("dist/assets/app.js", "let a = 1")


def read_page(terminal: Terminal) -> str:
    """The page that visitors see, asked for by the site's host."""
    host = terminal.call("GET", "/v1/APP/config").json()["subdomain"] + ".localhost"
    return httpx.get(terminal.server.address, headers={"host": host, "accept": "text/html"}).text


def test_a_folder_becomes_the_site_and_is_rolled_back(terminal: Terminal) -> None:
    write_site(terminal, "One")
    terminal.write("dist/.env", "SECRET=1")
    answer = terminal.run_json("sites", "deploy", terminal.folder / "dist")
    assert (answer["status"], answer["live"], answer["files_count"]) == ("READY", True, 2)
    assert answer["left_out"] == [".env"]
    assert read_page(terminal) == "<h1>One</h1>"
    write_site(terminal, "Two")
    address, deployment_id = terminal.run("sites", "deploy", terminal.folder / "dist").splitlines()
    assert address == answer["url"]
    assert read_page(terminal) == "<h1>Two</h1>"
    first, second = terminal.run("sites", "list").splitlines()
    assert first.startswith(f"*  {deployment_id}")
    assert answer["id"] in second
    terminal.run("sites", "rollback")
    assert read_page(terminal) == "<h1>One</h1>"
    assert "no ready deployment before" in terminal.run("sites", "rollback", code=1)
    terminal.run("sites", "rollback", "--to", deployment_id)
    assert read_page(terminal) == "<h1>Two</h1>"


def test_a_preview_is_shown_at_its_own_address_and_not_live(terminal: Terminal) -> None:
    write_site(terminal, "One")
    terminal.run("sites", "deploy", terminal.folder / "dist")
    write_site(terminal, "Two")
    answer = terminal.run_json("sites", "deploy", terminal.folder / "dist", "--preview")
    assert not answer["live"]
    assert answer["preview_url"].split("?")[0].rstrip("/") != answer["url"]
    assert read_page(terminal) == "<h1>One</h1>"


def test_what_no_site_may_hold_is_refused_before_anything_is_sent(terminal: Terminal) -> None:
    write_site(terminal, "One")
    (terminal.folder / "dist" / "link.html").symlink_to("index.html")
    assert "link.html is a link" in terminal.run("sites", "deploy", terminal.folder / "dist", code=1)
    (terminal.folder / "dist" / "link.html").unlink()
    terminal.write("dist/what?.html", "")
    assert "what?.html" in terminal.run("sites", "deploy", terminal.folder / "dist", code=1)
    assert terminal.call("GET", "/v1/APP/frontend/deployments").json()["deployments"] == []


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_folder_without_pages_is_no_site(terminal: Terminal, folder: str) -> None:
    (terminal.folder / "empty").mkdir()
    output = terminal.run_json("sites", "deploy", terminal.folder / folder, code=1)
    assert folder in output["error"]["message"]
