"""The guarded client: what it refuses to call, and how it calls what it does. Servers listen on loopback only, so every
test that gets an answer is also one in which the operator allowed loopback."""

import asyncio
import gzip
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from baobab.runtime.addresses import AddressPolicy, CredentialInClear
from baobab.runtime.egress import (
    AddressRefused,
    Egress,
    EgressError,
    EgressTimeout,
    EgressTooLarge,
    EgressUnavailable,
    RequestRefused,
    UrlRefused,
)
from tests.certificates import create_certificate

LOOPBACK = ["127.0.0.0/8", "::1/128"]
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def build_resolver(**known: str | Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver: `a_test="10.0.0.1"` is the host a.test."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        addresses = known[host.replace(".", "_")]
        return [addresses] if isinstance(addresses, str) else addresses

    return resolve


async def fail_to_resolve(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


def http_response(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Site:
    """A server that answers from a table of paths and keeps what it was sent."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers
        self.port = 0
        self.connections = 0
        self.received: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.received.append((first, headers, body))
                answer = self.answers[first.split()[1].partition("?")[0]]
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answers: dict[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site(answers)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    async with server:
        yield site


@asynccontextmanager
async def close_after(egress: Egress) -> AsyncIterator[Egress]:
    try:
        yield egress
    finally:
        await egress.close()


def local_egress(**known: str | Sequence[str]) -> Egress:
    """A client that may call loopback, under the names given, else a.test and b.test."""
    return Egress(
        LOOPBACK, timeout=5, resolver=build_resolver(**(known or {"a_test": "127.0.0.1", "b_test": "127.0.0.1"}))
    )


async def catch_refusal(url: str, egress: Egress | None = None) -> type[EgressError]:
    """The class of the refusal, after checking that its text tells no address that a name resolved to."""
    async with close_after(egress or Egress(resolver=fail_to_resolve)) as client:
        with pytest.raises(EgressError) as caught:
            await client.request("GET", url)
    assert not any(part in f"{caught.value} {caught.value.remedy}" for part in ("127.", "10.", "::"))
    return caught.type


# -- addresses --------------------------------------------------------------------------------------------------------

PRIVATE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
]


@st.composite
def private_addresses(draw: st.DrawFn) -> IPv4Address:
    network = IPv4Network(draw(st.sampled_from(PRIVATE)))
    return network[draw(st.integers(0, network.num_addresses - 1))]


def format_number(value: int, base: int) -> str:
    return {8: f"0{value:o}", 10: f"{value}", 16: f"{value:#x}"}[base]


@st.composite
def texts_of_ipv4(draw: st.DrawFn, address: IPv4Address) -> str:
    """Any form of inet_aton (one to four parts, each decimal, octal or hexadecimal), dressed up in Unicode or not."""
    parts = draw(st.integers(1, 4))
    octets = list(address.packed)
    values = [*octets[: parts - 1], int.from_bytes(address.packed[parts - 1 :])]
    text = ".".join(format_number(value, draw(st.sampled_from([8, 10, 16]))) for value in values)
    if draw(st.booleans()):
        wide = {digit: chr(ord(digit) + 0xFEE0) for digit in "0123456789abcdefx"} | {
            ".": draw(st.sampled_from("\u3002\uff0e\uff61"))
        }
        text = "".join(wide[character] if draw(st.booleans()) else character for character in text)
    text = text.upper() if draw(st.booleans()) else text
    return text + draw(st.sampled_from(["", "", "."]))


@st.composite
def texts_of_ipv6(draw: st.DrawFn, address: IPv4Address) -> str:
    """IPv6 addresses with the IPv4 address inside: mapped, compatible, NAT64, 6to4, Teredo (which inverts it)."""
    inside, noise = int(address), draw(st.integers(0, 2**32 - 1))
    forms = [
        IPv6Address((0xFFFF << 32) | inside),
        IPv6Address(inside),
        IPv6Address((0x64FF9B << 96) | inside),
        IPv6Address((0x64FF9B0001 << 80) | inside),
        IPv6Address((0x2002 << 112) | (inside << 80) | noise),
        IPv6Address((0x20010000 << 96) | (noise << 64) | (inside ^ 0xFFFFFFFF)),
    ]
    chosen = draw(st.sampled_from(forms))
    dotted = f"::ffff:{address}" if chosen.ipv4_mapped else str(chosen)
    text = draw(st.sampled_from([str(chosen), chosen.exploded, chosen.exploded.upper(), dotted]))
    return f"[{text}]"


@given(st.data())
def test_a_private_address_is_refused_in_every_textual_form(data: st.DataObject) -> None:
    address = data.draw(private_addresses())
    host = data.draw(st.one_of(texts_of_ipv4(address), texts_of_ipv6(address)))
    port = data.draw(st.sampled_from(["", ":80", ":8080"]))
    assert asyncio.run(catch_refusal(f"http://{host}{port}/")) in (AddressRefused, UrlRefused)


@given(private_addresses(), st.sampled_from(["{}", "::ffff:{}", "64:ff9b::{}"]))
def test_a_name_is_refused_when_it_resolves_to_a_private_address(address: IPv4Address, form: str) -> None:
    egress = Egress(resolver=build_resolver(a_test=["93.184.216.34", form.format(address)]))
    assert asyncio.run(catch_refusal("http://a.test/", egress)) is AddressRefused


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_is_permitted_that_the_registries_do_not_call_global(address: IPv4Address | IPv6Address) -> None:
    assume(not (isinstance(address, IPv6Address) and address.ipv4_mapped))
    if not address.is_global or address.is_multicast:
        assert not AddressPolicy().is_permitted(address)


@pytest.mark.parametrize(
    "address",
    [
        *[
            "::",
            "::1",
            "fe80::1",
            "fe80::1%1",
            "fc00::1",
            "fd12:3456::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001:db8::1",
        ],
        *["3fff::1", "2001::1", "2001:2::1", "2002:808:808::1", "64:ff9b:1::808:808", "::8.8.8.8", "4000::1"],
        *["fd00:ec2::254", "fd20:ce::254", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
        *["255.255.255.255", "192.88.99.1", "198.51.100.1", "203.0.113.1"],
    ],
)
def test_special_addresses_are_refused(address: str) -> None:
    assert not AddressPolicy().is_permitted(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::8.8.8.8"]
)
def test_public_addresses_are_permitted(address: str) -> None:
    assert AddressPolicy().is_permitted(ip_address(address))


def test_the_operator_allows_networks_but_metadata_only_by_its_own_address() -> None:
    policy = AddressPolicy(["10.0.0.0/8", "fd00::/8", "169.254.0.0/16"])
    allowed = ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd00::1", "169.254.1.1"]
    refused = ["127.0.0.1", "169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"]
    assert [policy.is_permitted(ip_address(address)) for address in allowed + refused] == [True] * 5 + [False] * 4
    assert AddressPolicy(["169.254.169.254/32"]).is_permitted(ip_address("169.254.169.254"))


# -- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *["", "a.test", "//a.test/", "http:/a.test/", "http:///", "http://", "ftp://a.test/", "file:///etc/passwd"],
        *["gopher://a.test/", "http\u017f://a.test/", "javascript:alert(1)", "http:a.test"],
        *["http://user@a.test/", "http://user:pass@a.test/", "http://@a.test/", "http://a.test@10.0.0.1/"],
        *[
            "http://a.test\\@10.0.0.1/",
            "http://a.test/\r\nX: y",
            "http://a.test/ x",
            "http://a.test/\x00",
            "http://a\t.test/",
        ],
        *["http://a.test/\x7f", "http://a.test/\u2028", "http://a.test/\ud800", " http://a.test/"],
        *["http://a.test:0/", "http://a.test:65536/", "http://a.test:x/", "http://a.test:/", "http://a.test:٣/"],
        *["http://a.test:22/", "http://a.test:25/", "https://a.test:6379/", "http://a.test:11211/"],
        *["http://a..test/", "http://.a.test/", "http://a.test./", "http://localhost./", "http://%6cocalhost/"],
        *["http://a%2etest/", "http://a℀b.test/", "http://-a.test/", "http://" + "a" * 64 + ".test/", "http://[::1/"],
        *["http://[fe80::1%25eth0]/", "http://[a.test]/", "http://::1/", "http://é" + "é" * 70 + ".test/"],
        "http://a.test/" + "x" * 8192,
    ],
)
async def test_an_odd_url_is_refused(url: str) -> None:
    assert await catch_refusal(url) is UrlRefused


@pytest.mark.parametrize(
    "host", ["127.0.0.1.", "127.1.", "%31%32%37.0.0.1", "0x", "a.0x7f", "1.2.3.4.5", "999.1.1.1", "08.8.8.8", "a.1"]
)
async def test_a_host_that_ends_in_a_number_must_be_a_plain_address(host: str) -> None:
    assert await catch_refusal(f"http://{host}/") is AddressRefused


@pytest.mark.parametrize("host", ["ⓛocalhost", "LOCALHOST", "localho\u017ft"])
async def test_a_disguised_name_is_resolved_as_what_it_stands_for(host: str) -> None:
    assert (
        await catch_refusal(f"http://{host}/", Egress(resolver=build_resolver(localhost="127.0.0.1"))) is AddressRefused
    )


async def test_an_international_name_is_resolved_in_its_ascii_form() -> None:
    async with (
        serving({"/": http_response("200 OK")}) as site,
        close_after(local_egress(**{"xn--bcher-kva_test": "127.0.0.1"})) as egress,
    ):
        await egress.request("GET", f"http://Bücher.test:{site.port}")
    assert site.received[0][1]["host"] == f"xn--bcher-kva.test:{site.port}"


async def test_path_and_query_arrive_as_they_were_given() -> None:
    rest = "/a/../b%2Fc;d?x=%20y+z&u=é&v=/?"
    async with serving({"/a/../b%2Fc;d": http_response("200 OK")}) as site, close_after(local_egress()) as egress:
        response = await egress.request("GET", f"http://a.test:{site.port}{rest}#fragment")
    assert site.received[0][0] == "GET /a/../b%2Fc;d?x=%20y+z&u=%C3%A9&v=/? HTTP/1.1"
    assert response.url == f"http://a.test:{site.port}/a/../b%2Fc;d?x=%20y+z&u=%C3%A9&v=/?"


async def test_plain_http_can_be_ruled_out() -> None:
    assert await catch_refusal("http://a.test/", Egress(https_only=True, resolver=fail_to_resolve)) is UrlRefused
    async with close_after(local_egress()) as egress:
        with pytest.raises(UrlRefused):
            await egress.request("GET", "http://a.test/", https_only=True)


# -- requests ---------------------------------------------------------------------------------------------------------


async def test_loopback_is_reached_only_when_the_operator_allows_it() -> None:
    async with serving({"/": http_response("200 OK", "X-Answer: yes", body=b"hello")}) as site:
        url = f"http://127.0.0.1:{site.port}/"
        assert await catch_refusal(url) is AddressRefused
        assert site.connections == 0
        async with close_after(local_egress()) as egress:
            response = await egress.request("POST", url, headers={"X-Sent": "1"}, body=b"data")
    assert (response.status, response.headers["x-answer"], response.body) == (200, "yes", b"hello")
    assert [(first, headers["x-sent"], body) for first, headers, body in site.received] == [
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
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    egress = Egress(["127.0.0.1/32"], resolver=rebinding)
    async with serving({"/": http_response("200 OK", "Connection: close")}) as site, close_after(egress):
        assert (await egress.request("GET", f"http://a.test:{site.port}/")).status == 200
        assert asked == ["a.test"]
        with pytest.raises(AddressRefused):
            await egress.request("GET", f"http://a.test:{site.port}/")
    assert site.connections == 1


async def test_a_connection_is_used_again() -> None:
    async with serving({"/": http_response("200 OK", body=b"x")}) as site, close_after(local_egress()) as egress:
        for _ in range(3):
            await egress.request("GET", f"http://a.test:{site.port}/")
    assert (site.connections, len(site.received)) == (1, 3)


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
    assert [sorted(headers) for _, headers, _ in site.received] == [
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


# -- redirects --------------------------------------------------------------------------------------------------------


def redirect_to(location: str, status: str = "302 Found") -> bytes:
    return http_response(status, f"Location: {location}")


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
    assert len(site.received) == 4


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
    received = [(first.split()[1], headers) for first, headers, _ in site.received + other.received]
    strangers = [headers for path, headers in received if path == "/next"]
    own = [headers for path, headers in received if path == "/own"]
    assert [sorted(headers) for headers in strangers] == [["accept", "accept-encoding", "host", "user-agent"]] * 2
    assert [(headers["authorization"], headers["cookie"], headers["x-api-key"]) for headers in own] == [
        ("Bearer x", "a=b", "x")
    ] * 2


@pytest.mark.parametrize(
    ("status", "method", "expected"),
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
    status: str, method: str, expected: tuple[str, bytes, bool]
) -> None:
    body = None if method == "HEAD" else b"data"
    async with (
        serving({"/": redirect_to("/next", status), "/next": http_response("200 OK")}) as site,
        close_after(local_egress()) as egress,
    ):
        url = f"http://a.test:{site.port}/"
        await egress.request(method, url, headers={"Content-Type": "text/plain"}, body=body, follow=1)
    first, headers, received = site.received[1]
    assert (first.split()[0], received, "content-type" in headers) == expected


# -- size and time ----------------------------------------------------------------------------------------------------


def encoded_response(encoding: str, body: bytes) -> bytes:
    return http_response("200 OK", f"Content-Encoding: {encoding}", body=body)


async def test_an_answer_of_exactly_the_limit_passes_and_one_more_byte_does_not() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async def announce_too_much(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")

    answers: dict[str, Answer] = {
        "/fits": http_response("200 OK", body=b"x" * 1000),
        "/endless": endless,
        "/announced": announce_too_much,
    }
    async with serving(answers) as site, close_after(local_egress()) as egress:
        url = f"http://a.test:{site.port}"
        assert len((await egress.request("GET", url + "/fits", max_bytes=1000)).body) == 1000
        for path in ("/endless", "/announced"):
            with pytest.raises(EgressTooLarge) as caught:
                await egress.request("GET", url + path, max_bytes=1000)
            assert caught.value.details == {"max_bytes": 1000}


def unbounded_answer(encoding: str, body: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n\r\n".encode() + body)
        writer.close()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(encoded_response("gzip", gzip.compress(bytes(50_000_000))), id="gzip"),
        pytest.param(encoded_response("deflate", zlib.compress(bytes(50_000_000))), id="deflate"),
        pytest.param(unbounded_answer("gzip", gzip.compress(b"") * 60_000), id="nothing, sixty thousand times"),
    ],
)
async def test_a_decompression_bomb_is_stopped_at_the_limit(answer: Answer) -> None:
    sizes = [0]

    async def collect(url: str) -> None:
        async with egress.stream("GET", url, max_bytes=1_000_000) as stream:
            async for piece in stream:
                sizes.append(len(piece))  # noqa: PERF401 -- the loop is to be left by an exception

    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        with pytest.raises(EgressTooLarge):
            await collect(f"http://a.test:{site.port}/")
    assert sum(sizes) <= 1_000_000
    assert max(sizes) <= 64 * 1024


def deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


TEXT = b"text to compress " * 10_000


@pytest.mark.parametrize(
    "answer",
    [
        encoded_response("identity", TEXT),
        encoded_response("gzip", gzip.compress(TEXT)),
        encoded_response("X-GZip", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
        encoded_response("deflate", zlib.compress(TEXT)),
        encoded_response("deflate", deflate_raw(TEXT)),
    ],
    ids=["plain", "gzip", "two gzip members", "deflate", "bare deflate"],
)
async def test_a_compressed_answer_is_decompressed(answer: bytes) -> None:
    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        assert (await egress.request("GET", f"http://a.test:{site.port}/")).body == TEXT


@pytest.mark.parametrize(
    "answer",
    [
        encoded_response("gzip", b"not gzip"),
        encoded_response("gzip", gzip.compress(TEXT)[:-20]),
        encoded_response("br", b"x"),
    ],
    ids=["damaged", "cut short", "not asked for"],
)
async def test_an_answer_that_cannot_be_decompressed_is_an_error(answer: bytes) -> None:
    async with serving({"/": answer}) as site, close_after(local_egress()) as egress:
        with pytest.raises(EgressUnavailable):
            await egress.request("GET", f"http://a.test:{site.port}/")


async def test_an_empty_compressed_answer_is_empty() -> None:
    async with serving({"/": encoded_response("gzip", b"")}) as site, close_after(local_egress()) as egress:
        assert (await egress.request("HEAD", f"http://a.test:{site.port}/")).body == b""


async def test_a_stream_arrives_while_it_is_sent() -> None:
    gate = asyncio.Event()

    async def two(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await gate.wait()
        writer.write(b"two")

    async with (
        serving({"/": two}) as site,
        close_after(local_egress()) as egress,
        egress.stream("GET", f"http://a.test:{site.port}/") as stream,
    ):
        pieces = aiter(stream)
        assert (stream.status, await anext(pieces)) == (200, b"one")
        gate.set()
        assert [piece async for piece in pieces] == [b"two"]


async def test_the_time_limit_covers_resolving_waiting_and_a_dripping_body() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2)

    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async def slow(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(2)
        return ["127.0.0.1"]

    loop = asyncio.get_running_loop()
    async with serving({"/silent": silent, "/dripping": dripping, "/loop": redirect_to("/silent")}) as site:
        for egress, path in (
            (local_egress(), "/silent"),
            (local_egress(), "/dripping"),
            (local_egress(), "/loop"),
            (Egress(resolver=slow), "/"),
        ):
            async with close_after(egress):
                start = loop.time()
                with pytest.raises(EgressTimeout):
                    await egress.request("GET", f"http://a.test:{site.port}{path}", timeout=0.2, follow=1)
                assert loop.time() - start < 1


# -- TLS --------------------------------------------------------------------------------------------------------------


async def test_tls_names_and_verifies_the_host_although_the_address_is_pinned(tmp_path: Path) -> None:
    certificate_file, key_file = create_certificate("a.test", tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate_file, key_file)
    named: list[str | None] = []
    server_side.sni_callback = lambda _socket, name, _context: named.append(name)
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
    assert named == ["a.test", "b.test", "a.test"]


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
    code = "import sys, baobab.runtime.egress; sys.exit('aiohttp' in sys.modules or 'yarl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
