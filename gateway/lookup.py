"""The first round trip of a decide request: the session's version, parents' decisions, cached ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.sessions import SessionCopy
from shared.protocol.decide import DecideRequest
from shared.protocol.situation import LastDecision
from shared.scheduling.items import CachedDecision, decode_cached, decode_last
from shared.scheduling.sharing import read_scopes
from shared.store.answers import AnswerStore
from shared.store.connection import Command, RedisConnection, Reply
from shared.store.sessions import SessionStore
from shared.store.situations import SituationStore


@dataclass(slots=True)
class Lookup:
    """What Redis says before anything is admitted. Lists are by entity of the request."""

    version: int | None  # of the session; None: it is gone
    confirmed: bool = True  # False: nothing was asked yet, the version is this process's belief
    parents: dict[str, LastDecision] = field(default_factory=dict)
    digests: list[bytes | None] = field(default_factory=list)
    cached: list[CachedDecision | None] = field(default_factory=list)


class Lookups:
    """Makes that trip; a second one only where a cache key needs the parents' decisions first."""

    def __init__(
        self,
        connection: RedisConnection,
        sessions: SessionStore,
        situations: SituationStore,
        answers: AnswerStore,
    ) -> None:
        self._connection = connection
        self._sessions = sessions
        self._situations = situations
        self._answers = answers

    @staticmethod
    def nothing_to_ask(copy: SessionCopy, request: DecideRequest) -> Lookup | None:
        """An unconfirmed lookup for a request without parents, cached types or single options; else None.

        Such a request needs no first round trip: its session's version is confirmed with its admission.
        """
        for entity in request.entities:
            keyed = entity.entity_type.name in copy.plan.cache_keys
            if keyed or entity.parent is not None or len(entity.legal_actions) == 1:
                return None
        count = len(request.entities)
        return Lookup(copy.version, confirmed=False, digests=[None] * count, cached=[None] * count)

    def version_command(self, copy: SessionCopy) -> Command:
        """Ask for the session's version, in a trip of the caller's."""
        return self._sessions.version_command(copy.session)

    def version_of(self, reply: Reply) -> int | None:
        """The version in the reply to `version_command`."""
        return self._sessions.parse_version(reply)

    async def look_up(
        self, copy: SessionCopy, request: DecideRequest | None, timeout_s: float | None = None
    ) -> Lookup:
        """Ask for one request; `request` is None when only the session's version matters.

        `timeout_s` is of each round trip, None the connection's own. Raises StoreUnavailableError.
        """
        commands: list[Command] = [self._sessions.version_command(copy.session)]
        if request is None:
            replies = await self._connection.trip(commands, timeout_s=timeout_s)
            return Lookup(self._sessions.parse_version(replies[0]))
        parents = list(dict.fromkeys(e.parent for e in request.entities if e.parent is not None))
        if parents:
            commands.append(self._situations.last_command(copy.session, parents))
        keyed_by_parent = parents and not copy.plan.parent_keyed.isdisjoint(
            e.entity_type.name for e in request.entities
        )
        digests = [] if keyed_by_parent else _digests(copy, request, {})
        commands += self._cache_commands(copy, digests)
        replies = await self._connection.trip(commands, timeout_s=timeout_s)
        lookup = Lookup(self._sessions.parse_version(replies[0]), digests=digests)
        if parents:
            lookup.parents = _parents(parents, self._situations.parse_last(replies[1]))
        found = replies[2 if parents else 1 :]
        if keyed_by_parent:
            lookup.digests = _digests(copy, request, lookup.parents)
            commands = self._cache_commands(copy, lookup.digests)
            found = await self._connection.trip(commands, timeout_s=timeout_s) if commands else []
        lookup.cached = self._cached(lookup.digests, found)
        return lookup

    def _cache_commands(self, copy: SessionCopy, digests: list[bytes | None]) -> list[Command]:
        wanted = [digest for digest in digests if digest is not None]
        if not wanted:
            return []
        return [
            self._answers.cached_command(scope, copy.game, copy.session, wanted)
            for scope in read_scopes(copy.profile)
        ]

    def _cached(self, digests: list[bytes | None], replies: list[Reply]) -> list[CachedDecision | None]:
        """By entity; of several scopes the first that has an answer counts."""
        cached: list[CachedDecision | None] = [None] * len(digests)
        places = [place for place, digest in enumerate(digests) if digest is not None]
        for reply in replies:
            for place, value in zip(places, self._answers.parse_cached(reply), strict=True):
                if value is not None and cached[place] is None:
                    cached[place] = decode_cached(value)
        return cached


def _digests(
    copy: SessionCopy, request: DecideRequest, parents: Mapping[str, LastDecision]
) -> list[bytes | None]:
    digests: list[bytes | None] = []
    for entity in request.entities:
        key = copy.plan.cache_keys.get(entity.entity_type.name)
        if key is None or len(entity.legal_actions) == 1:
            digests.append(None)
            continue
        parent = parents.get(entity.parent) if entity.parent is not None else None
        action = parent.action if parent is not None else None
        digests.append(key.digest(request, entity, copy.contexts.contexts, action))
    return digests


def _parents(ids: list[str], values: list[bytes | None]) -> dict[str, LastDecision]:
    read = {
        entity: decode_last(value) for entity, value in zip(ids, values, strict=True) if value is not None
    }
    return {entity: last for entity, last in read.items() if last is not None}
