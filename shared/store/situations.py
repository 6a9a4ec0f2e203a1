"""What a session's entities did and where they are: faces of telemetry.lua, report.lua and remember.lua, and
the reads a worker needs for one request's situation context. Values are opaque here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from shared.store.connection import Command, RedisConnection, Reply
from shared.store.keys import SessionKeys
from shared.store.replies import blob, list_of, number, pairs, text
from shared.store.sessions import SESSION_TTL_MS

_READS = 5  # commands of one read


@dataclass(frozen=True, slots=True)
class SituationBounds:
    """How much is kept of one session."""

    max_reports: int = 8  # of one entity (A2G Report)
    max_entities: int = 512  # with memory, with a latest decision, asked for; a snapshot holds 128
    max_seen: int = 20_000  # ids of one scene that are told apart; spawners make any number
    max_gone: int = 4_096
    gone_window_ms: int = 900_000  # longer than a decision's id is accepted: 120 s + 10 min


class Reported(Enum):
    """What became of a report."""

    REPEATED = 0  # its decision was reported before: ignored
    REMEMBERED = 1
    LOGGED_ONLY = 2  # its entity has left telemetry


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One telemetry snapshot on its way into the store."""

    at_ms: int  # the gateway's time
    scene: str
    entities: Sequence[tuple[str, str]]  # id and type, no id twice
    rows: bytes


@dataclass(frozen=True, slots=True)
class ReportedDecision:
    """One report on its way into the store."""

    decision_id: str
    expires_ms: int  # after which the id is not accepted any more
    entity_id: str
    report: str  # JSON text without a newline


@dataclass(frozen=True, slots=True)
class SessionSituation:
    """What the store knows of one session, as far as some of its entities need it."""

    snapshot: bytes | None  # the latest, None before the first
    seen: dict[str, int]  # type → distinct ids since the scene began
    asked: dict[str, bytes]  # entity → row, known from decide requests since the snapshot
    last: dict[str, bytes]  # entity → latest decision, of all entities
    memory: dict[str, str]  # entity asked for → reports joined by newlines, oldest first


class SituationStore:
    """Commands of one session's situation; each lies in the session's slot."""

    def __init__(
        self, connection: RedisConnection, ttl_ms: int = SESSION_TTL_MS, bounds: SituationBounds | None = None
    ) -> None:
        self.ttl_ms = ttl_ms
        self.bounds = bounds or SituationBounds()
        self._connection = connection
        self._telemetry = connection.script("telemetry")
        self._report = connection.script("report")
        self._remember = connection.script("remember")

    def telemetry_command(self, session: str, snapshot: Snapshot) -> Command:
        """Take in a snapshot; `parse_telemetry` reads the reply."""
        keys = SessionKeys(session)
        names = [keys.session, keys.snap, keys.seen, keys.cur, keys.counts]
        names += [keys.gone, keys.mem, keys.last, keys.asked]
        args: list[str | bytes | int] = [snapshot.at_ms, snapshot.scene, self.ttl_ms]
        args += [
            self.bounds.max_seen,
            self.bounds.gone_window_ms,
            self.bounds.max_gone,
            snapshot.rows,
        ]
        for entity, kind in snapshot.entities:
            args += (entity, kind)
        return self._telemetry.call(names, args)

    @staticmethod
    def parse_telemetry(reply: Reply) -> bool | None:
        """Whether it was taken in (False: older than the latest); None for an unknown session."""
        return None if reply is None else number(reply) == 1

    def report_command(self, session: str, now_ms: int, reported: ReportedDecision) -> Command:
        """Take in a report whose decision id was verified; `parse_report` reads the reply."""
        keys = SessionKeys(session)
        return self._report.call(
            [keys.session, keys.used, keys.gone, keys.mem],
            [
                now_ms,
                reported.expires_ms,
                reported.decision_id,
                reported.entity_id,
                reported.report,
                self.ttl_ms,
                self.bounds.max_reports,
                self.bounds.max_entities,
            ],
        )

    @staticmethod
    def parse_report(reply: Reply) -> Reported | None:
        """None for an unknown session."""
        return None if reply is None else Reported(number(reply))

    def remember_command(self, session: str, decisions: Mapping[str, bytes]) -> Command:
        """Write entities' latest decisions (at least one); the reply is of no interest."""
        return self._write(SessionKeys(session).last, decisions)

    def asked_command(self, session: str, rows: Mapping[str, bytes]) -> Command:
        """Write entities known from a decide request (at least one); the reply is of no interest."""
        return self._write(SessionKeys(session).asked, rows)

    def _write(self, key: str, fields: Mapping[str, bytes]) -> Command:
        args: list[str | bytes | int] = [self.ttl_ms, self.bounds.max_entities]
        for field, value in fields.items():
            args += (field, value)
        return self._remember.call([key], args)

    @staticmethod
    def last_command(session: str, entities: Sequence[str]) -> Command:
        """Read entities' latest decisions (at least one); `parse_last` reads the reply."""
        return ("HMGET", SessionKeys(session).last, *entities)

    @staticmethod
    def parse_last(reply: Reply) -> list[bytes | None]:
        """Per entity its latest decision, None where there is none."""
        return [None if value is None else blob(value) for value in list_of(reply)]

    @staticmethod
    def read_commands(session: str, entities: Sequence[str]) -> list[Command]:
        """Read what decisions for `entities` (at least one) need; `parse_read` reads the replies."""
        keys = SessionKeys(session)
        return [
            ("HGET", keys.snap, "b"),
            ("HGETALL", keys.counts),
            ("HGETALL", keys.asked),
            ("HGETALL", keys.last),
            ("HMGET", keys.mem, *entities),
        ]

    @staticmethod
    def parse_read(replies: Sequence[Reply], place: int, entities: Sequence[str]) -> SessionSituation:
        """The replies of `read_commands` for the same entities, which begin at `place`."""
        snapshot, seen, asked, last, memory = replies[place : place + _READS]
        return SessionSituation(
            snapshot=None if snapshot is None else blob(snapshot),
            seen={kind: int(count) for kind, count in pairs(seen).items()},
            asked=pairs(asked),
            last=pairs(last),
            memory={
                entity: text(reports)
                for entity, reports in zip(entities, list_of(memory), strict=True)
                if reports is not None
            },
        )

    async def telemetry(self, session: str, snapshot: Snapshot) -> bool | None:
        """One trip of `telemetry_command`."""
        (reply,) = await self._connection.trip([self.telemetry_command(session, snapshot)])
        return self.parse_telemetry(reply)

    async def report(self, session: str, now_ms: int, reported: ReportedDecision) -> Reported | None:
        """One trip of `report_command`."""
        (reply,) = await self._connection.trip([self.report_command(session, now_ms, reported)])
        return self.parse_report(reply)

    async def read(self, session: str, entities: Sequence[str]) -> SessionSituation:
        """One trip of `read_commands`."""
        replies = await self._connection.trip(self.read_commands(session, entities))
        return self.parse_read(replies, 0, entities)
