"""The guarded client: how it calls what it does call, follows redirects and speaks TLS."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from baobab.runtime.net.addresses import CredentialInClear
from baobab.runtime.net.egress import (
    AddressRefused,
    Egress,
    EgressError,
    EgressUnavailable,
    RequestRefused,
    UrlRefused,
)
from tests.certificates import create_certificate
from tests.runtime.sites import (
    LOOPBACK,
    Answer,
    build_resolver,
    catch_refusal,
    close_after,
    fail_to_resolve,
    http_response,
    local_egress,
    redirect_to,
    serving,
)


async def test_loopback_is_reached_only_when_the_operator_allows_it() -> None:
    async with serving({"/": http_response("200 OK", "X-Answer: yes", body=b"hello")}) as site:
        url = f"http://127.0.0.1:{site.port}/"
        assert await catch_refusal(url) is AddressRefused
        assert site.connections == 0
        async with close_after(local_egress()) as egress:
            response = await egress.request("POST", url, headers={"X-Sent": "1"}, body=b"data")
    assert (response.status, response.headers["x-answer"], response.body) == (200, "yes", b"hello")
    assert [(first, headers["x-sent"], body) for first, headers, body in site.requests] == [
        ("POST / HTTP/1.1", "1", b"data")
    ]


async def test_a_status_is_an_answer_and_not_an_error() -> None:
    async with (
        serving({"/": http_response("503 Service Unavailable", body=b"later")}) as site,
        close_after(local_egress()) as egress,
    ):
        response = await egress.request("GET", f"http://a.test:{site.port}/")
    assert (response.status, response.body) == (503, b"later")


async def test_a_name_that_changes_its_address_does_not_move_the_connection() -> None:
    asked_hosts: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked_hosts.append(host)
        return ["127.0.0.1"] if len(asked_hosts) == 1 else ["127.0.0.2"]

    egress = Egress(["127.0.0.1/32"], resolver=rebinding)
    async with serving({"/": http_response("200 OK", "Connection: close")}) as site, close_after(egress):
        assert (await egress.request("GET", f"http://a.test:{site.port}/")).status == 200
        assert asked_hosts == ["a.test"]
        with pytest.raises(AddressRefused):
            await egress.request("GET", f"http://a.test:{site.port}/")
    assert site.connections == 1


async def test_a_connection_is_used_again() -> None:
    async with serving({"/": http_response("200 OK", body=b"x")}) as site, close_after(local_egress()) as egress:
        for _ in range(3):
            await egress.request("GET", f"http://a.test:{site.port}/")
    assert (site.connections, len(site.requests)) == (1, 3)


async def test_the_environment_and_earlier_answers_add_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine a.test login me password secret")
    monkeypatch.setenv("NETRC", str(netrc))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with (
        serving({"/": http_response("200 OK", "Set-Cookie: a=b")}) as site,
        close_after(local_egress()) as egress,
    ):
        for _ in range(2):
            await egress.request("GET", f"http://a.test:{site.port}/")
    assert [sorted(headers) for _, headers, _ in site.requests] == [
        ["accept", "accept-encoding", "host", "user-agent"]
    ] * 2


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("CONNECT", {}),
        ("TRACE", {}),
        ("GET / HTTP/1.1\r\nX:", {}),
        ("GET", {"X": "a\r\nY: b"}),
        ("GET", {"X": "a\x00"}),
        ("GET", {"X Y": "a"}),
        ("GET", {"X\r\nY": "a"}),
        ("GET", {"Host": "other.test"}),
        ("GET", {"content-length": "3"}),
        ("GET", {"Transfer-Encoding": "chunked"}),
        ("GET", {"Proxy-Authorization": "x"}),
    ],
)
async def test_a_method_or_header_that_could_change_the_request_is_refused(
    method: str, headers: dict[str, str]
) -> None:
    async with close_after(Egress(resolver=fail_to_resolve)) as egress:
        with pytest.raises(RequestRefused):
            await egress.request(method, "http://a.test/", headers=headers)


async def test_what_does_not_answer_is_unavailable_and_names_no_address() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name at 10.0.0.53")

    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        writer.close()

    answers: dict[str, Answer] = {"/half": half, "/noise": b"\x00\x01\x02\r\n\r\n"}
    async with serving(answers) as site:
        port = site.port
        for path in answers:
            assert await catch_refusal(f"http://a.test:{port}{path}", local_egress()) is EgressUnavailable
    assert await catch_refusal(f"http://a.test:{port}/closed", local_egress()) is EgressUnavailable
    for resolver in (unknown, build_resolver(a_test=[])):
        assert await catch_refusal("http://a.test/", Egress(resolver=resolver)) is EgressUnavailable


async def test_a_redirect_is_the_answer_unless_it_is_to_be_followed() -> None:
    async with (
        serving({"/": redirect_to("/next"), "/next": http_response("200 OK", body=b"there")}) as site,
        close_after(local_egress()) as egress,
    ):
        url = f"http://a.test:{site.port}"
        first = await egress.request("GET", url + "/")
        last = await egress.request("GET", url + "/", follow=1)
    assert (first.status, first.headers["location"]) == (302, "/next")
    assert (last.status, last.body, last.url) == (200, b"there", url + "/next")


async def test_redirects_end() -> None:
    async with serving({"/": redirect_to("/")}) as site, close_after(local_egress()) as egress:
        with pytest.raises(UrlRefused):
            await egress.request("GET", f"http://a.test:{site.port}/", follow=3)
    assert len(site.requests) == 4


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://127.0.0.2/", AddressRefused),
        ("http://inside.test/", AddressRefused),
        ("http://2130706433/", AddressRefused),
        ("http://[::ffff:10.0.0.1]/", AddressRefused),
        ("http://user:pass@a.test/", UrlRefused),
        ("http://a.test:22/", UrlRefused),
        ("file:///etc/passwd", UrlRefused),
        ("http://[", UrlRefused),
    ],
)
async def test_every_hop_is_vetted(location: str, error: type[EgressError]) -> None:
    resolver = build_resolver(a_test="127.0.0.1", inside_test="10.0.0.1")
    async with (
        serving({"/": redirect_to(location)}) as site,
        close_after(Egress(["127.0.0.1/32"], resolver=resolver)) as egress,
    ):
        with pytest.raises(error):
            await egress.request("GET", f"http://a.test:{site.port}/", follow=5, cross_host=True)


async def test_another_host_must_be_asked_for() -> None:
    async with serving({}) as site, close_after(local_egress()) as egress:
        site.answers = {"/": redirect_to(f"http://b.test:{site.port}/next"), "/next": http_response("200 OK")}
        url = f"http://a.test:{site.port}/"
        with pytest.raises(UrlRefused):
            await egress.request("GET", url, follow=5)
        assert (await egress.request("GET", url, follow=5, cross_host=True)).url == f"http://b.test:{site.port}/next"


async def test_secrets_stay_with_the_origin() -> None:
    secrets = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "x", "Accept": "text/plain"}
    async with serving({"/next": http_response("200 OK")}) as other, serving({"/own": http_response("200 OK")}) as site:
        for host, port in (("b.test", site.port), ("a.test", other.port)):
            site.answers |= {
                "/": redirect_to(f"http://{host}:{port}/next"),
                "/home": redirect_to("/own"),
                "/next": http_response("200 OK"),
            }
            async with close_after(local_egress()) as egress:
                await egress.request("GET", f"http://a.test:{site.port}/", headers=secrets, follow=1, cross_host=True)
                await egress.request("GET", f"http://a.test:{site.port}/home", headers=secrets, follow=1)
    requests = [(first.split()[1], headers) for first, headers, _ in site.requests + other.requests]
    strangers = [headers for path, headers in requests if path == "/next"]
    own = [headers for path, headers in requests if path == "/own"]
    assert [sorted(headers) for headers in strangers] == [["accept", "accept-encoding", "host", "user-agent"]] * 2
    assert [(headers["authorization"], headers["cookie"], headers["x-api-key"]) for headers in own] == [
        ("Bearer x", "a=b", "x")
    ] * 2


@pytest.mark.parametrize(
    ("status", "method", "expected_request"),
    [
        ("301 Moved", "POST", ("GET", b"", False)),
        ("302 Found", "POST", ("GET", b"", False)),
        ("303 See Other", "PUT", ("GET", b"", False)),
        ("303 See Other", "HEAD", ("HEAD", b"", True)),
        ("307 Temporary", "POST", ("POST", b"data", True)),
        ("308 Permanent", "PUT", ("PUT", b"data", True)),
    ],
)
async def test_a_redirect_keeps_or_drops_the_body_by_its_status(
    status: str, method: str, expected_request: tuple[str, bytes, bool]
) -> None:
    body = None if method == "HEAD" else b"data"
    async with (
        serving({"/": redirect_to("/next", status), "/next": http_response("200 OK")}) as site,
        close_after(local_egress()) as egress,
    ):
        url = f"http://a.test:{site.port}/"
        await egress.request(method, url, headers={"Content-Type": "text/plain"}, body=body, follow=1)
    first, headers, received_body = site.requests[1]
    assert (first.split()[0], received_body, "content-type" in headers) == expected_request


async def test_tls_names_and_verifies_the_host_although_the_address_is_pinned(tmp_path: Path) -> None:
    certificate_file, key_file = create_certificate("a.test", tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate_file, key_file)
    server_names: list[str | None] = []
    server_side.sni_callback = lambda _socket, name, _context: server_names.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate_file))
    resolver = build_resolver(a_test="127.0.0.1", b_test="127.0.0.1")
    async with serving({"/": http_response("200 OK", body=b"safe")}, server_side) as site:
        async with close_after(Egress(LOOPBACK, resolver=resolver, tls=trusting)) as egress:
            assert (await egress.request("GET", f"https://a.test:{site.port}/")).body == b"safe"
            with pytest.raises(EgressUnavailable):
                await egress.request("GET", f"https://b.test:{site.port}/")
        async with close_after(Egress(LOOPBACK, resolver=resolver)) as egress:
            with pytest.raises(EgressUnavailable):
                await egress.request("GET", f"https://a.test:{site.port}/")
    assert server_names == ["a.test", "b.test", "a.test"]


async def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path) -> None:
    certificate_file, key_file = create_certificate("a.test", tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate_file, key_file)
    trusting = ssl.create_default_context(cafile=str(certificate_file))
    client = Egress(LOOPBACK, resolver=build_resolver(a_test="127.0.0.1"), tls=trusting)
    async with serving({"/": redirect_to("http://a.test/")}, server_side) as site, close_after(client) as egress:
        with pytest.raises(UrlRefused):
            await egress.request("GET", f"https://a.test:{site.port}/", follow=1)


@pytest.mark.parametrize("url", ["http://a.test/", "http://93.184.216.34/"])
async def test_a_credential_is_not_sent_in_clear_to_a_public_host(url: str) -> None:
    async with close_after(Egress(LOOPBACK, resolver=build_resolver(a_test="93.184.216.34"))) as egress:
        with pytest.raises(CredentialInClear):
            await egress.request("GET", url, headers={"Authorization": "Bearer secret"})


async def test_a_credential_is_sent_in_clear_where_the_operator_names_the_network() -> None:
    async with serving({"/": http_response("200 OK", body=b"here")}) as site, close_after(local_egress()) as egress:
        answer = await egress.request("GET", f"http://a.test:{site.port}/", headers={"Authorization": "Bearer secret"})
    assert answer.body == b"here"


def test_importing_the_client_does_not_load_aiohttp() -> None:
    code = "import sys, baobab.runtime.net.egress; sys.exit('aiohttp' in sys.modules or 'yarl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
