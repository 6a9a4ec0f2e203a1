"""The deadline queue: builds the commands of its scripts and reads their replies. The scripts' headers state
what each does; nothing here looks at a key's contents.

Commands come as values, so that a caller can send them in one round trip with others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, cast

from shared.scheduling.routing import Priority
from shared.store.connection import Command, RedisConnection, Reply
from shared.store.keys import QueueKeys
from shared.store.replies import blob, list_of, number, pairs, text

DropCode = Literal["busy", "unavailable"]

_CLAIM_HEAD = 5  # values before the items in claim's reply
_CLAIM_ITEM = 5  # values per item


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Bounds and lifetimes that hold for a whole deployment."""

    max_depth: int = 50_000  # questions that may wait in a shard
    max_bytes: int = 256 * 1024 * 1024  # payload bytes that may wait in a shard
    keys_ttl_ms: int = 3_600_000  # longer than any deadline: 30 s (A2G-Timeout-Ms)
    grace_ms: int = 10_000  # how long an item's key outlives its deadline
    min_remaining_ms: int = 20  # a call with less time left is not worth paying for
    max_sleep_ms: int = 1_000  # how long a wake-up that got lost can go unnoticed
    lower_share: int = 8  # every how many batches a lower class goes first
    max_attempts: int = 2  # of one item, counting claims by workers that died
    reply_ttl_ms: int = 120_000
    reply_length: int = 4_096  # entries of one gateway's reply stream
    log_length: int = 2_000_000  # entries; the log writer warns long before
    log_ttl_ms: int = 7 * 86_400_000  # after the last entry


@dataclass(frozen=True, slots=True)
class Admission:
    """One item at the door: a request's entities of one lane."""

    item: str  # an id never used before
    gateway: str
    route: str
    priority: Priority
    lane: str  # opaque: what may share a provider request
    deadline_ms: int  # absolute
    questions: int  # at least 1
    full: int  # questions that fill a provider request: a lane with as many is claimed at once
    linger_ms: int  # how long the item waits for company
    payload: bytes


@dataclass(frozen=True, slots=True)
class ClaimedItem:
    """One item of a claimed batch."""

    item: str
    gateway: str
    attempts: int  # claims before this one
    deadline_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A batch that this worker holds until its lease ends."""

    batch: str
    lane: str
    priority: Priority
    fence: int
    route: str
    items: list[ClaimedItem]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do: claim again after `wait_ms`, or when told on the wake channel, whatever comes first."""

    wait_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker has to say about one item; an empty log entry is not written."""

    item: str
    gateway: str
    reply: bytes
    log: bytes = b""


@dataclass(frozen=True, slots=True)
class ItemReply:
    """One entry of a gateway's reply stream: the worker's reply, or the code of a drop."""

    entry: str  # the stream's id: where to read on
    item: str
    reply: bytes | None
    code: DropCode | None


class Cancelled(IntEnum):
    """Where an item was when its gateway gave it up."""

    GONE = 0  # its reply is on the way or was read
    CLAIMED = 1  # whatever its worker still answers reaches nobody
    QUEUED = 2


class DeadlineQueue:
    """One shard. Times are milliseconds of the caller's clock."""

    def __init__(
        self, connection: RedisConnection, shard: int = 0, bounds: QueueBounds | None = None
    ) -> None:
        self.keys = QueueKeys(shard)
        self.bounds = bounds or QueueBounds()
        self._connection = connection
        self._admit = connection.script("admit")
        self._claim = connection.script("claim")
        self._settle = connection.script("settle")
        self._extend = connection.script("extend")
        self._cancel = connection.script("cancel")

    def admit_command(self, now_ms: int, items: Sequence[Admission]) -> Command:
        """Put items into their lanes; `parse_admit` reads the reply."""
        bounds = self.bounds
        args: list[str | bytes | int] = [
            now_ms,
            bounds.max_depth,
            bounds.max_bytes,
            bounds.keys_ttl_ms,
            bounds.grace_ms,
        ]
        for item in items:
            args += (
                item.item,
                item.gateway,
                item.route,
                item.priority,
                item.lane,
                item.deadline_ms,
                item.questions,
                item.full,
                item.linger_ms,
                item.payload,
            )
        return self._admit.call([self.keys.prefix], args)

    @staticmethod
    def parse_admit(reply: Reply) -> list[bool]:
        """Per item: True admitted, False refused because the queue is full."""
        return [number(flag) == 1 for flag in list_of(reply)]

    def claim_command(
        self,
        now_ms: int,
        worker: str,
        batch: str,
        routes: Mapping[str, int],
        lease_ms: int,
        min_remaining_ms: int = 0,
    ) -> Command:
        """Take the most urgent batch; `parse_claim` reads the reply.

        `batch` is an id never used before. `routes` names every route this worker can serve with the most
        questions it takes now; 0 for one whose slots are all busy. Items with less than `min_remaining_ms`
        to their deadline are dropped as `busy`: the bounds' own least time holds as well.
        """
        bounds = self.bounds
        args: list[str | bytes | int] = [
            now_ms,
            worker,
            batch,
            lease_ms,
            max(bounds.min_remaining_ms, min_remaining_ms),
            bounds.max_sleep_ms,
            bounds.lower_share,
            bounds.max_attempts,
            bounds.keys_ttl_ms,
            bounds.reply_ttl_ms,
            bounds.reply_length,
        ]
        for route, max_questions in routes.items():
            args += (route, max_questions)
        return self._claim.call([self.keys.prefix], args)

    @staticmethod
    def parse_claim(reply: Reply) -> Claim | Sleep:
        """The batch, or how long to sleep."""
        values = list_of(reply)
        if len(values) == 1:
            return Sleep(number(values[0]))
        items = [
            ClaimedItem(
                text(values[at]),
                text(values[at + 1]),
                number(values[at + 2]),
                number(values[at + 3]),
                blob(values[at + 4]),
            )
            for at in range(_CLAIM_HEAD, len(values), _CLAIM_ITEM)
        ]
        batch, lane, priority, fence, route = values[:_CLAIM_HEAD]
        return Claim(
            text(batch), text(lane), cast("Priority", number(priority)), number(fence), text(route), items
        )

    def settle_command(self, batch: str, fence: int, answers: Sequence[Answer], *, final: bool) -> Command:
        """Answer items of a claimed batch; `parse_settle` reads the reply.

        `final` ends the claim: items not answered by then go back to their lane.
        """
        bounds = self.bounds
        args: list[str | bytes | int] = [
            batch,
            fence,
            int(final),
            bounds.reply_length,
            bounds.reply_ttl_ms,
            bounds.log_length,
            bounds.log_ttl_ms,
        ]
        for answer in answers:
            args += (answer.item, answer.gateway, answer.reply, answer.log)
        return self._settle.call([self.keys.prefix], args)

    @staticmethod
    def parse_settle(reply: Reply) -> list[bool] | None:
        """Per answer whether it is the item's one answer; None when the batch is no longer this worker's."""
        held, *flags = [number(flag) for flag in list_of(reply)]
        return [flag == 1 for flag in flags] if held else None

    def extend_command(self, now_ms: int, batch: str, fence: int, lease_ms: int) -> Command:
        """Keep a batch for `lease_ms` from now; `parse_extend` reads the reply."""
        args: list[str | int] = [now_ms, batch, fence, lease_ms, self.bounds.keys_ttl_ms]
        return self._extend.call([self.keys.prefix], args)

    @staticmethod
    def parse_extend(reply: Reply) -> bool:
        """Whether the batch is still this worker's."""
        return number(reply) == 1

    def cancel_command(self, items: Sequence[str]) -> Command:
        """Give items up: the gateway answers them itself. `parse_cancel` reads the reply."""
        args: list[str | bytes | int] = [self.bounds.keys_ttl_ms, *items]
        return self._cancel.call([self.keys.prefix], args)

    @staticmethod
    def parse_cancel(reply: Reply) -> list[Cancelled]:
        """Per item where it was."""
        return [Cancelled(number(verdict)) for verdict in list_of(reply)]

    def replies_command(self, gateway: str, after: str, block_ms: int, count: int = 256) -> Command:
        """Wait up to `block_ms` for entries after id `after` ("0" all), on a connection that may block."""
        stream = self.keys.replies(gateway)
        return ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, after)

    @staticmethod
    def parse_replies(reply: Reply) -> list[ItemReply]:
        """The entries in order, empty when the wait ended without one."""
        if reply is None:
            return []
        streams = reply.values() if isinstance(reply, dict) else [list_of(pair)[1] for pair in list_of(reply)]
        return [_item_reply(list_of(entry)) for entries in streams for entry in list_of(entries)]

    async def admit(self, now_ms: int, items: Sequence[Admission]) -> list[bool]:
        """One trip of `admit_command`."""
        (reply,) = await self._connection.trip([self.admit_command(now_ms, items)])
        return self.parse_admit(reply)

    async def claim(
        self,
        now_ms: int,
        worker: str,
        batch: str,
        routes: Mapping[str, int],
        lease_ms: int,
        min_remaining_ms: int = 0,
    ) -> Claim | Sleep:
        """One trip of `claim_command`."""
        command = self.claim_command(now_ms, worker, batch, routes, lease_ms, min_remaining_ms)
        (reply,) = await self._connection.trip([command])
        return self.parse_claim(reply)

    async def settle(
        self, batch: str, fence: int, answers: Sequence[Answer], *, final: bool
    ) -> list[bool] | None:
        """One trip of `settle_command`."""
        (reply,) = await self._connection.trip([self.settle_command(batch, fence, answers, final=final)])
        return self.parse_settle(reply)

    async def extend(self, now_ms: int, batch: str, fence: int, lease_ms: int) -> bool:
        """One trip of `extend_command`."""
        (reply,) = await self._connection.trip([self.extend_command(now_ms, batch, fence, lease_ms)])
        return self.parse_extend(reply)

    async def cancel(self, items: Sequence[str]) -> list[Cancelled]:
        """One trip of `cancel_command`."""
        (reply,) = await self._connection.trip([self.cancel_command(items)])
        return self.parse_cancel(reply)


def _item_reply(entry: list[Reply]) -> ItemReply:
    fields = pairs(entry[1])
    code = fields.get("c")
    return ItemReply(
        entry=text(entry[0]),
        item=text(fields["i"]),
        reply=fields.get("b"),
        code=None if code is None else cast("DropCode", code.decode()),
    )
