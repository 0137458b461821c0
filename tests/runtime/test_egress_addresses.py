"""The guarded client: which addresses and URLs it refuses to call."""

import asyncio
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from baobab.runtime.net.addresses import AddressPolicy
from baobab.runtime.net.egress import (
    AddressRefused,
    Egress,
    UrlRefused,
)
from tests.runtime.sites import (
    build_resolver,
    catch_refusal,
    close_after,
    fail_to_resolve,
    http_response,
    local_egress,
    serving,
)

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
    form = draw(st.sampled_from(forms))
    dotted_text = f"::ffff:{address}" if form.ipv4_mapped else str(form)
    text = draw(st.sampled_from([str(form), form.exploded, form.exploded.upper(), dotted_text]))
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
    allowed_addresses = ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd00::1", "169.254.1.1"]
    refused_addresses = ["127.0.0.1", "169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"]
    assert all(policy.is_permitted(ip_address(address)) for address in allowed_addresses)
    assert not any(policy.is_permitted(ip_address(address)) for address in refused_addresses)
    assert AddressPolicy(["169.254.169.254/32"]).is_permitted(ip_address("169.254.169.254"))


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
    assert site.requests[0][1]["host"] == f"xn--bcher-kva.test:{site.port}"


async def test_path_and_query_arrive_as_they_were_given() -> None:
    rest = "/a/../b%2Fc;d?x=%20y+z&u=é&v=/?"
    async with serving({"/a/../b%2Fc;d": http_response("200 OK")}) as site, close_after(local_egress()) as egress:
        response = await egress.request("GET", f"http://a.test:{site.port}{rest}#fragment")
    assert site.requests[0][0] == "GET /a/../b%2Fc;d?x=%20y+z&u=%C3%A9&v=/? HTTP/1.1"
    assert response.url == f"http://a.test:{site.port}/a/../b%2Fc;d?x=%20y+z&u=%C3%A9&v=/?"


async def test_plain_http_can_be_ruled_out() -> None:
    assert await catch_refusal("http://a.test/", Egress(https_only=True, resolver=fail_to_resolve)) is UrlRefused
    async with close_after(local_egress()) as egress:
        with pytest.raises(UrlRefused):
            await egress.request("GET", "http://a.test/", https_only=True)
