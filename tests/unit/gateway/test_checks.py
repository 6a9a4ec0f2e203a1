"""Which requests the local profile looks at."""

import pytest

from gateway import checks
from shared.errors import InputError


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8787", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8787"],
)
def test_loopback_hosts_are_served(host: str) -> None:
    assert checks.host_allowed([host])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["evil.example"],
        ["127.0.0.1.evil.example"],
        ["localhost.evil.example:8787"],
        ["[::1].evil.example"],
        ["[::1]evil"],
        ["::1"],
        ["127.0.0.1:80a"],
        ["127.0.0.1:80:90"],
        ["127.0.0.1@evil.example"],
        ["127.0.0.1", "evil.example"],
        ["0.0.0.0"],
        ["127.0.0.2"],
    ],
)
def test_other_hosts_are_refused(hosts: list[str]) -> None:
    assert not checks.host_allowed(hosts)


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("/health", ["localhost"]),
        ("*", ["localhost"]),
        ("/a?b=http://evil.example/", ["localhost"]),
        ("http://evil.example/health", ["evil.example"]),
        ("HTTP://127.0.0.1:8787", ["127.0.0.1:8787"]),
        ("http://127.0.0.1?@evil.example", ["127.0.0.1"]),
        ("http://127.0.0.1@evil.example/", ["127.0.0.1@evil.example"]),
        ("http:///health", [""]),
    ],
)
def test_a_target_that_is_a_whole_address_goes_before_the_host_header(target: str, asked: list[str]) -> None:
    assert checks.hosts_asked(target, ["localhost"]) == asked


def test_only_the_own_console_may_be_the_origin() -> None:
    assert checks.origin_allowed([], 8787)
    assert checks.origin_allowed(["http://127.0.0.1:8787"], 8787)
    assert checks.origin_allowed(["http://localhost:8787"], 8787)
    for origin in ("null", "https://evil.example", "http://127.0.0.1:8788", "https://127.0.0.1:8787", ""):
        assert not checks.origin_allowed([origin], 8787), origin
    assert not checks.origin_allowed(["http://127.0.0.1:8787", "http://127.0.0.1:8787"], 8787)


def test_json_content_types() -> None:
    assert checks.is_json(["application/json"])
    assert checks.is_json(["Application/JSON; charset=utf-8"])
    for types in ([], ["text/plain"], ["application/jsonp"], ["application/json", "text/plain"]):
        assert not checks.is_json(types), types


def test_a_body_is_plain_unless_it_says_otherwise() -> None:
    assert checks.is_plain([])
    assert checks.is_plain(["Identity"])
    for codings in (["gzip"], ["identity", "br"], ["gzip, identity"], ["unheard-of"]):
        assert not checks.is_plain(codings), codings


def test_the_callers_timeout_is_clamped() -> None:
    assert checks.timeout_ms([]) is None
    assert checks.timeout_ms(["250"]) == 250
    assert checks.timeout_ms([" 1 "]) == 50
    assert checks.timeout_ms(["99999999"]) == 30_000
    assert checks.timeout_ms(["9" * 20]) == 30_000
    assert checks.timeout_ms(["-5"]) == 50


@pytest.mark.parametrize(
    "values", [[""], ["-"], ["--1"], ["1.5"], ["1e3"], ["abc"], ["٣"], ["1", "2"], ["9" * 65]]
)
def test_a_timeout_that_is_no_whole_number_is_refused(values: list[str]) -> None:
    with pytest.raises(InputError, match="A2G-Timeout-Ms"):
        checks.timeout_ms(values)
