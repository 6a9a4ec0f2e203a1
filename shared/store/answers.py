"""Cached decisions and questions in flight: faces of ask_once.lua and answer_once.lua. Who may share an
answer is decided elsewhere, and comes as the scope in which a situation's digest is looked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.scheduling.sharing import CacheScope
from shared.store.connection import Command, RedisConnection, Reply
from shared.store.keys import GameKeys, SessionKeys
from shared.store.replies import blob, list_of, number


@dataclass(frozen=True, slots=True)
class Cached:
    """The situation's decision is known."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """The asker is the one to ask: it ends the flight with `answer_once`, or lets it lapse."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else is asking."""


Look = Cached | Asked | Wait
_ASKED, _WAIT = Asked(), Wait()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a question in flight ended; without a value somebody else may ask."""

    digest: bytes
    value: bytes | None = None
    ttl_ms: int = 0  # how long the value may be reused; at least 1 with a value


class AnswerStore:
    """All digests of one command are of one scope, so that it stays in one slot."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._ask_once = connection.script("ask_once")
        self._answer_once = connection.script("answer_once")

    @staticmethod
    def cached_command(scope: CacheScope, game: str, session: str, digests: Sequence[bytes]) -> Command:
        """Look situations up (at least one) without asking; `parse_cached` reads the reply."""
        keys = _scope_keys(scope, game, session)
        return ("MGET", *(keys.cache(digest) for digest in digests))

    @staticmethod
    def parse_cached(reply: Reply) -> list[bytes | None]:
        """Per digest the cached value."""
        return [None if value is None else blob(value) for value in list_of(reply)]

    def ask_once_command(
        self,
        scope: CacheScope,
        game: str,
        session: str,
        digests: Sequence[bytes],
        asker: str,
        flight_ms: int,
    ) -> Command:
        """Look situations up and claim the missing ones for `asker`; `parse_ask_once` reads the reply.

        Asking again with the same asker gives the same verdict. A flight lapses after `flight_ms`.
        """
        keys = _scope_keys(scope, game, session)
        names = [name for digest in digests for name in (keys.cache(digest), keys.flight(digest))]
        return self._ask_once.call(names, [asker, flight_ms])

    @staticmethod
    def parse_ask_once(reply: Reply) -> list[Look]:
        """Per digest what to do."""
        return [
            Cached(value) if isinstance(value, bytes) else _ASKED if number(value) == 1 else _WAIT
            for value in list_of(reply)
        ]

    def answer_once_command(
        self, scope: CacheScope, game: str, session: str, asker: str, endings: Sequence[Ending]
    ) -> Command:
        """Write the answers and end this asker's flights; `parse_answer_once` reads the reply."""
        keys = _scope_keys(scope, game, session)
        names: list[str] = []
        args: list[str | bytes | int] = [asker]
        for ending in endings:
            names += (keys.cache(ending.digest), keys.flight(ending.digest))
            args += (ending.value or b"", ending.ttl_ms)
        return self._answer_once.call(names, args)

    @staticmethod
    def parse_answer_once(reply: Reply) -> int:
        """How many flights were this asker's."""
        return number(reply)

    @staticmethod
    def keep_command(scope: CacheScope, game: str, session: str, digest: bytes, flight_ms: int) -> Command:
        """Let a question stay in flight for `flight_ms` from now; the reply is of no interest."""
        return ("PEXPIRE", _scope_keys(scope, game, session).flight(digest), flight_ms)

    async def ask_once(
        self,
        scope: CacheScope,
        game: str,
        session: str,
        digests: Sequence[bytes],
        asker: str,
        flight_ms: int,
    ) -> list[Look]:
        """One trip of `ask_once_command`."""
        command = self.ask_once_command(scope, game, session, digests, asker, flight_ms)
        (reply,) = await self._connection.trip([command])
        return self.parse_ask_once(reply)

    async def answer_once(
        self, scope: CacheScope, game: str, session: str, asker: str, endings: Sequence[Ending]
    ) -> int:
        """One trip of `answer_once_command`."""
        command = self.answer_once_command(scope, game, session, asker, endings)
        (reply,) = await self._connection.trip([command])
        return self.parse_answer_once(reply)


def _scope_keys(scope: CacheScope, game: str, session: str) -> GameKeys | SessionKeys:
    return GameKeys(game) if scope is CacheScope.GAME else SessionKeys(session)
