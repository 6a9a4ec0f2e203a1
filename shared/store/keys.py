"""The only place where Redis keys are built. Pure.

The braces are the hash tag: every script's keys share one, so that it runs unchanged on Redis Cluster. Keys
of a session start with `{s:S}`, of a game with `{g:G}`, of a shard of the queue with `{qN}`. A game's name
never becomes part of a tag as it is: a brace in it would move the key to another slot.
"""

from hashlib import blake2b

TAG_BYTES = 10  # 80 bits: two of a million games collide with probability 10^-12


def game_tag(game: str) -> str:
    """A game's name as hexadecimal digits that are safe in a key."""
    return blake2b(game.encode(), digest_size=TAG_BYTES).hexdigest()


class SessionKeys:
    """What Redis keeps for one session; `session` is an identifier of our own, without braces."""

    __slots__ = ("_prefix",)

    def __init__(self, session: str) -> None:
        self._prefix = f"{{s:{session}}}:"

    @property
    def session(self) -> str:
        """Hash: the session's record and its version."""
        return self._prefix + "session"

    @property
    def snap(self) -> str:
        """Hash: the latest telemetry snapshot, its scene and the gateway's time."""
        return self._prefix + "snap"

    @property
    def seen(self) -> str:
        """Set (capped): type and id of every entity since the scene began."""
        return self._prefix + "seen"

    @property
    def cur(self) -> str:
        """Hash id → type: the entities of the latest snapshot."""
        return self._prefix + "cur"

    @property
    def counts(self) -> str:
        """Hash type → distinct ids since the scene began."""
        return self._prefix + "counts"

    @property
    def gone(self) -> str:
        """Sorted set (trimmed): entities that left telemetry, by the time they did."""
        return self._prefix + "gone"

    @property
    def asked(self) -> str:
        """Hash id → row: entities known from decide requests since the latest snapshot."""
        return self._prefix + "asked"

    @property
    def mem(self) -> str:
        """Hash entity → its last reports, JSON objects joined by newlines, oldest first."""
        return self._prefix + "mem"

    @property
    def last(self) -> str:
        """Hash entity → its latest decision."""
        return self._prefix + "last"

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the session but cached decisions, which live on their own time."""
        names = ("session", "snap", "seen", "cur", "counts", "gone", "asked", "mem", "last", "used")
        return tuple(self._prefix + name for name in names)

    @property
    def used(self) -> str:
        """Sorted set: decision ids that were reported, by the time after which none is accepted."""
        return self._prefix + "used"

    def cache(self, digest: bytes) -> str:
        """String: a decision cached for this session alone."""
        return f"{self._prefix}c:{digest.hex()}"

    def flight(self, digest: bytes) -> str:
        """String: who is asking this session's question at the moment."""
        return f"{self._prefix}f:{digest.hex()}"


class GameKeys:
    """What all sessions of one game share; `game` is the game's name as it was sent or registered."""

    __slots__ = ("_prefix",)

    def __init__(self, game: str) -> None:
        self._prefix = f"{{g:{game_tag(game)}}}:"

    def manifest(self, manifest_key: str) -> str:
        """String: a manifest as it was sent, in compact JSON."""
        return f"{self._prefix}m:{manifest_key}"

    def contexts(self, contexts_hash: str) -> str:
        """String: the scopes and profiles of a session."""
        return f"{self._prefix}t:{contexts_hash}"

    def cache(self, digest: bytes) -> str:
        """String: a cached decision."""
        return f"{self._prefix}c:{digest.hex()}"

    def flight(self, digest: bytes) -> str:
        """String: who is asking this question at the moment."""
        return f"{self._prefix}f:{digest.hex()}"


class QueueKeys:
    """One shard of the deadline queue. The scripts build the keys named in lua/lanes.lua on `prefix`."""

    __slots__ = ("prefix",)

    def __init__(self, shard: int) -> None:
        self.prefix = f"{{q{shard}}}"

    @property
    def depth(self) -> str:
        """String: questions that wait in lanes."""
        return self.prefix + ":depth"

    @property
    def bytes(self) -> str:
        """String: payload bytes that wait in lanes."""
        return self.prefix + ":bytes"

    @property
    def waiting(self) -> str:
        """Hash lane → waiting questions and bytes in one number (lua/lanes.lua)."""
        return self.prefix + ":n"

    @property
    def leases(self) -> str:
        """Sorted set: claimed batches by the end of their lease."""
        return self.prefix + ":leases"

    @property
    def turn(self) -> str:
        """String: batches claimed so far, the source of fences and of the lower classes' share."""
        return self.prefix + ":turn"

    @property
    def log(self) -> str:
        """Stream: the decision log on its way to Postgres."""
        return self.prefix + ":log"

    def item(self, item: str) -> str:
        """Hash: one waiting or claimed item."""
        return f"{self.prefix}:i:{item}"

    def lane(self, priority: int, lane: str) -> str:
        """Sorted set: a lane's waiting items by deadline."""
        return f"{self.prefix}:l:{priority}:{lane}"

    def ready(self, route: str) -> str:
        """Sorted set: a route's lanes that may be claimed, by class and earliest deadline."""
        return f"{self.prefix}:ready:{route}"

    def due(self, route: str) -> str:
        """Sorted set: a route's other lanes, by the time at which they become ready."""
        return f"{self.prefix}:due:{route}"

    def idle(self, route: str) -> str:
        """Sorted set: workers that sleep, by the time at which they will claim by themselves."""
        return f"{self.prefix}:idle:{route}"

    def batch(self, batch: str) -> str:
        """Hash: a claimed batch's fence and its unanswered items."""
        return f"{self.prefix}:b:{batch}"

    def wake(self, worker: str) -> str:
        """Sharded channel on which a worker is told when to claim."""
        return f"{self.prefix}:w:{worker}"

    def replies(self, gateway: str) -> str:
        """Stream: replies to one gateway's items."""
        return f"{self.prefix}:r:{gateway}"
