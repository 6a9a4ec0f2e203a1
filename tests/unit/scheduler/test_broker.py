"""Celery's broker address in kombu's form."""

import pytest

from scheduler.broker import broker_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://u:p@host:6380/1", "rediss://u:p@host:6380/1"),
        ("sentinel://a:26379;sentinel://b:26379", "sentinel://a:26379;sentinel://b:26379"),
        ("unix:///run/muster/valkey.sock", "redis+socket:///run/muster/valkey.sock?virtual_host=0"),
        ("unix:///tmp/v.sock?db=3", "redis+socket:///tmp/v.sock?virtual_host=3"),
        ("unix://user:secret@/tmp/v.sock", "redis+socket://user:secret@/tmp/v.sock?virtual_host=0"),
    ],
)
def test_unix_sockets_are_named_as_kombu_wants(url: str, expected: str) -> None:
    assert broker_address(url) == expected
