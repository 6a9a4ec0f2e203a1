"""Who asks an equal situation: the second look into the cache, and questions in flight elsewhere.

Asking once works across workers: the first to look asks, the others wait for its answer in the cache. A
leader's failure is its own: it lets go, and a follower asks for itself.
"""

from collections.abc import Iterable, Mapping, Sequence

from shared.scheduling.items import CachedDecision, QueueItem, decode_cached, encode
from shared.scheduling.sharing import CacheScope, written_scope
from shared.store.answers import AnswerStore, Asked, Cached, Ending
from shared.store.answers import Look as StoredLook
from shared.store.connection import Command, Reply
from workers.work import Flight, Pending

FLIGHT_MS = 1_000  # a leader that falls silent is forgotten after this; the heartbeat renews it

Looks = Mapping[Flight, CachedDecision | bool]  # a cached decision, or whether this batch may ask


def flight_of(item: QueueItem, digest: bytes) -> Flight:
    """Where a question of this situation is in flight and its answer is written."""
    scope = written_scope(item.security_profile)
    return Flight(scope, item.game, item.session if scope is CacheScope.SESSION else "", digest)


class Flights:
    """Commands and replies about the questions of one batch, whose id is the asker."""

    def __init__(self, store: AnswerStore) -> None:
        self._store = store

    def wanted(self, items: Iterable[QueueItem]) -> list[list[Flight]]:
        """The distinct questions of the items that a cache knows, in groups that one command can ask for."""
        return _grouped(
            flight_of(item, ask.digest) for item in items for ask in item.asks if ask.digest is not None
        )

    def wanted_of(self, waiting: Iterable[Pending]) -> list[list[Flight]]:
        """The same for asks that wait."""
        return _grouped(pending.flight for pending in waiting if pending.flight is not None)

    def look_commands(self, asker: str, groups: Sequence[Sequence[Flight]]) -> list[Command]:
        """Look the questions up wherever they may be answered, and claim the missing ones for `asker`."""
        commands: list[Command] = []
        for group in groups:
            scope, game, session, _ = group[0]
            digests = [flight.digest for flight in group]
            commands.append(self._store.ask_once_command(scope, game, session, digests, asker, FLIGHT_MS))
            if scope is CacheScope.SESSION:
                # A client session reads what others wrote for the whole game, and never waits for it.
                commands.append(self._store.cached_command(CacheScope.GAME, game, "", digests))
        return commands

    def parse_looks(self, groups: Sequence[Sequence[Flight]], replies: Sequence[Reply]) -> Looks:
        """Read the replies to `look_commands`."""
        looks: dict[Flight, CachedDecision | bool] = {}
        at = 0
        for group in groups:
            for flight, look in zip(group, self._store.parse_ask_once(replies[at]), strict=True):
                looks[flight] = _read(look)
            at += 1
            if group[0].scope is CacheScope.SESSION:
                for flight, value in zip(group, self._store.parse_cached(replies[at]), strict=True):
                    cached = decode_cached(value) if value is not None else None
                    if cached is not None:
                        looks[flight] = cached
                at += 1
        return looks

    def end_commands(
        self, asker: str, endings: Mapping[Flight, tuple[CachedDecision, int] | None]
    ) -> list[Command]:
        """Write answers with their life in milliseconds; None lets others ask."""
        groups: dict[tuple[CacheScope, str, str], list[Ending]] = {}
        for flight, answer in endings.items():
            digest = flight.digest
            ending = Ending(digest) if answer is None else Ending(digest, encode(answer[0]), answer[1])
            groups.setdefault((flight.scope, flight.game, flight.session), []).append(ending)
        return [
            self._store.answer_once_command(scope, game, session, asker, group)
            for (scope, game, session), group in groups.items()
        ]

    def keep_commands(self, flights: Iterable[Flight]) -> list[Command]:
        """Let questions stay in flight."""
        return [
            self._store.keep_command(one.scope, one.game, one.session, one.digest, FLIGHT_MS)
            for one in flights
        ]


def _grouped(flights: Iterable[Flight]) -> list[list[Flight]]:
    groups: dict[tuple[str, str], dict[Flight, None]] = {}
    for flight in flights:
        groups.setdefault((flight.game, flight.session), {})[flight] = None
    return [list(group) for group in groups.values()]


def _read(look: StoredLook) -> CachedDecision | bool:
    if isinstance(look, Cached):
        return decode_cached(look.value) or True  # unreadable: asked anew, and written over
    return isinstance(look, Asked)
