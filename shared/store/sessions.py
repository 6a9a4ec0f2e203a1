"""Session records: faces of open_session.lua and update_context.lua, and the reads around them. A record is
small: the manifest, scopes and profiles lie apart, by hash, shared by the game's sessions that have the same.
"""

from dataclasses import dataclass

from shared.store.connection import Command, RedisConnection, Reply
from shared.store.keys import SessionKeys
from shared.store.replies import list_of, number, pairs

SESSION_TTL_MS = 3_600_000  # after the last telemetry, report or renewal


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What every gateway and worker must know about a session."""

    game: str
    client_id: str
    profile: str  # the security profile: local, server or client
    manifest_key: str
    manifest_hash: str
    contexts_hash: str
    engine: str
    created_ms: int
    version: int = 0  # given by the store; equal versions mean equal records


@dataclass(frozen=True, slots=True)
class ContextUpdateResult:
    """What came of a change of scopes and profiles."""

    replaced: bool  # False: the record moved, load it and try again
    version: int  # the record's, now


class SessionStore:
    """Commands of one session's record; all lie in the session's slot."""

    def __init__(self, connection: RedisConnection, ttl_ms: int = SESSION_TTL_MS) -> None:
        self.ttl_ms = ttl_ms
        self._connection = connection
        self._open = connection.script("open_session")
        self._update_context = connection.script("update_context")

    def open_command(self, session: str, record: SessionRecord) -> Command:
        """Create or replace a session's record, made at `record.created_ms`; `parse_open` reads the reply."""
        keys = SessionKeys(session)
        situation = (keys.snap, keys.asked, keys.counts, keys.seen)
        kept = (keys.cur, keys.gone, keys.mem, keys.last, keys.used)
        fields = (
            ("client_id", record.client_id),
            ("profile", record.profile),
            ("manifest_hash", record.manifest_hash),
            ("contexts_hash", record.contexts_hash),
            ("engine", record.engine),
        )
        return self._open.call(
            [keys.session, *situation, *kept],
            [
                record.created_ms,
                self.ttl_ms,
                record.manifest_key,
                record.game,
                *(part for field in fields for part in field),
            ],
        )

    @staticmethod
    def parse_open(reply: Reply) -> int:
        """The record's version."""
        return number(reply)

    def update_context_command(self, session: str, version: int, contexts_hash: str) -> Command:
        """Name other scopes and profiles if the record is still at `version`."""
        return self._update_context.call(
            [SessionKeys(session).session], [version, contexts_hash, self.ttl_ms]
        )

    @staticmethod
    def parse_update_context(reply: Reply) -> ContextUpdateResult | None:
        """None for an unknown session."""
        if reply is None:
            return None
        replaced, version = list_of(reply)
        return ContextUpdateResult(number(replaced) == 1, number(version))

    @staticmethod
    def read_command(session: str) -> Command:
        """Read the record; `parse_read` reads the reply."""
        return ("HGETALL", SessionKeys(session).session)

    @staticmethod
    def parse_read(reply: Reply) -> SessionRecord | None:
        """None for an unknown session."""
        fields = {name: value.decode() for name, value in pairs(reply).items()}
        if not fields:
            return None
        return SessionRecord(
            game=fields["game"],
            client_id=fields["client_id"],
            profile=fields["profile"],
            manifest_key=fields["manifest_key"],
            manifest_hash=fields["manifest_hash"],
            contexts_hash=fields["contexts_hash"],
            engine=fields["engine"],
            created_ms=int(fields["created_ms"]),
            version=int(fields["version"]),
        )

    @staticmethod
    def version_command(session: str) -> Command:
        """Read the record's version alone; `parse_version` reads the reply."""
        return ("HGET", SessionKeys(session).session, "version")

    @staticmethod
    def parse_version(reply: Reply) -> int | None:
        """None for an unknown session."""
        return None if reply is None else number(reply)

    def renew_commands(self, session: str) -> list[Command]:
        """Let the session live on; the replies are of no interest."""
        return [("PEXPIRE", key, self.ttl_ms) for key in SessionKeys(session).all]

    async def open(self, session: str, record: SessionRecord) -> int:
        """One trip of `open_command`: the record's version."""
        (reply,) = await self._connection.trip([self.open_command(session, record)])
        return self.parse_open(reply)

    async def update_context(
        self, session: str, version: int, contexts_hash: str
    ) -> ContextUpdateResult | None:
        """One trip of `update_context_command`."""
        command = self.update_context_command(session, version, contexts_hash)
        (reply,) = await self._connection.trip([command])
        return self.parse_update_context(reply)

    async def read(self, session: str) -> SessionRecord | None:
        """One trip of `read_command`."""
        (reply,) = await self._connection.trip([self.read_command(session)])
        return self.parse_read(reply)
