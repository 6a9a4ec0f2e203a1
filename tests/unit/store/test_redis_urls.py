"""Redis URLs: what is understood, what is refused, and that a password is never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ConfigError
from shared.store.redis_url import RedisUrl, parse_redis_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", RedisUrl(host="cache")),
        ("redis://cache:7000/3", RedisUrl(host="cache", port=7000, database=3)),
        ("redis://cache/", RedisUrl(host="cache")),
        ("redis://cache?db=2", RedisUrl(host="cache", database=2)),
        ("redis://[::1]:6380", RedisUrl(host="::1", port=6380)),
        ("redis://:secret@cache", RedisUrl(host="cache", password="secret")),
        ("redis://ann:p%40ss%2Fw%3Ard@cache", RedisUrl(host="cache", username="ann", password="p@ss/w:rd")),
        ("rediss://cache:6390", RedisUrl(host="cache", port=6390, tls=True)),
        (
            "rediss://cache?ssl_ca_certs=/etc/ca%20s.pem&db=1",
            RedisUrl(host="cache", tls=True, ca_file="/etc/ca s.pem", database=1),
        ),
        ("unix:///run/valkey.sock", RedisUrl(path="/run/valkey.sock")),
        ("unix:///run/my%20valkey.sock?db=4", RedisUrl(path="/run/my valkey.sock", database=4)),
        ("unix://ann:pw@/run/v.sock", RedisUrl(path="/run/v.sock", username="ann", password="pw")),
    ],
)
def test_reads(url: str, expected: RedisUrl) -> None:
    assert parse_redis_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cache:6379",
        "/run/valkey.sock",
        "http://cache",
        "redis://",
        "redis:///3",
        "redis://:6379",
        "redis://cache:port",
        "redis://cache:70000",
        "redis://cache/db",
        "redis://cache/1/2",
        "redis://cache/-1",
        "redis://cache/٣",
        "redis://cache?db=",
        "redis://cache?db=1&db=2",
        "redis://cache?timeout=3",
        "redis://cache?ssl_ca_certs=/ca.pem",
        "redis://ann@cache",
        "redis://:se#cret@cache",
        "redis://[::1",
        "redis://a..b",
        "redis://\udcff@cache",
        "unix://",
        "unix:///",
        "unix://run/valkey.sock",
        "unix:///run/%00.sock",
        "unix:///run/v.sock?ssl_ca_certs=/ca.pem",
    ],
)
def test_refuses(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^Redis URL: "):
        parse_redis_url(url)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for url in (text, f"redis://{text}", f"unix://{text}"):
        try:
            parse_redis_url(url)
        except ConfigError:
            continue


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hush@cache:port",
        "redis://:hush@cache/x",
        "redis://:hush#@cache",
        "redis://:hush?@cache",
        "redis://:hush/@cache",
        "redis://:hush[@cache",
        "unix://:hush@cache/x",
        "http://:hush@cache",
        "hush",
    ],
)
def test_no_error_shows_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_redis_url(url)
    assert "hush" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ann:secret@cache/2", "redis://cache:6379"),
        ("rediss://[::1]:1", "rediss://[::1]:1"),
        ("unix://:secret@/run/v.sock", "unix:///run/v.sock"),
    ],
)
def test_is_shown_without_its_account(url: str, shown: str) -> None:
    assert str(parse_redis_url(url)) == shown
    assert "secret" not in repr(parse_redis_url(url))
