"""Items, claims and replies for tests of the queue."""

import asyncio
from typing import Any

from shared.store.connection import RedisConnection
from shared.store.queue import Admission, Answer, Claim, DeadlineQueue, ItemReply

NOW = 1_750_000_000_000
LEASE_MS = 1_000
ROUTES = {"default": 64}


def item(name: str, **changes: Any) -> Admission:
    """One item of one question, ready at once unless told otherwise."""
    values: dict[str, Any] = {
        "item": name,
        "gateway": "g",
        "route": "default",
        "priority": 2,
        "lane": "lane",
        "deadline_ms": NOW + 3_000,
        "questions": 1,
        "full": 64,
        "linger_ms": 0,
        "payload": b"payload",
    }
    return Admission(**values | changes)


def answers(claim: Claim, text: str = "reply") -> list[Answer]:
    return [Answer(one.item, one.gateway, f"{text} {one.item}".encode(), b"row") for one in claim.items]


async def claimed(queue: DeadlineQueue, batch: str, at_ms: int = NOW, worker: str = "w") -> Claim:
    claim = await queue.claim(at_ms, worker, batch, ROUTES, LEASE_MS)
    assert isinstance(claim, Claim)
    return claim


async def replies(connection: RedisConnection, queue: DeadlineQueue, gateway: str = "g") -> list[ItemReply]:
    (reply,) = await connection.trip([("XREAD", "STREAMS", queue.keys.replies(gateway), "0")])
    return queue.parse_replies(reply)


async def hear(connection: RedisConnection, queue: DeadlineQueue, worker: str) -> asyncio.Queue[bytes]:
    messages: asyncio.Queue[bytes] = asyncio.Queue()
    await connection.listen(queue.keys.wake(worker), messages.put_nowait)
    return messages
