"""The log stream's key, with a real Valkey: whoever makes it, it expires when nobody uses it any more."""

from shared.metrics import Metrics
from shared.store.connection import RedisConnection
from shared.store.keys import QueueKeys
from shared.store.log_outbox import LogOutbox
from shared.store.log_stream import LogStream
from tests.live_store import LiveStore

WEEK_MS = 7 * 86_400_000


async def test_made_by_its_reader_it_expires(
    live_store: LiveStore, store_connection: RedisConnection
) -> None:
    await LogStream(store_connection, 0, "writer").read_new(10)
    assert WEEK_MS - 60_000 < live_store.client.pttl(QueueKeys(0).log) <= WEEK_MS


async def test_made_by_a_gateway_it_expires_once_it_is_read(
    live_store: LiveStore, store_connection: RedisConnection
) -> None:
    await LogOutbox(store_connection, QueueKeys(0).log, 100, Metrics()).write(b"entry")
    stream = LogStream(store_connection, 0, "writer")
    await stream.read_new(10)  # makes the group
    [(entry, raw)] = await stream.read_new(10)
    assert (raw, await stream.remove([entry])) == (b"entry", 0)
    assert WEEK_MS - 60_000 < live_store.client.pttl(QueueKeys(0).log) <= WEEK_MS
