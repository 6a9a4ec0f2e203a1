"""Manifests, scopes and profiles by their hash: Redis keeps the texts, processes what they read from them."""

from dataclasses import dataclass

from cachetools import LRUCache

from shared.protocol.contexts import Contexts, load_contexts
from shared.protocol.manifest import Manifest, load_manifest
from shared.store.connection import Command, RedisConnection
from shared.store.keys import GameKeys
from shared.store.replies import require_done
from shared.store.sessions import SESSION_TTL_MS

TEXT_TTL_MS = 2 * SESSION_TTL_MS  # every renewal of a session puts its texts again
KEPT_BYTES = 128 << 20  # of memory in one process, as `memory_bytes` estimates it
BYTES_PER_BYTE = 40  # what a manifest of many small parts takes in memory, read and compiled


@dataclass(frozen=True, slots=True)
class Statics:
    """What a session names by hash."""

    manifest: Manifest
    contexts: Contexts


def memory_bytes(statics: Statics) -> int:
    """About how much memory these and what is compiled from them take; a quarter of all kept at most."""
    text_bytes = len(statics.manifest.source) + len(statics.contexts.source)
    return min(KEPT_BYTES // 4, 4096 + BYTES_PER_BYTE * text_bytes)


class StaticStore:
    """Reads once; a hash names its text, so what is kept never goes stale."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._kept: LRUCache[tuple[str, str], Statics] = LRUCache(KEPT_BYTES, getsizeof=memory_bytes)

    def put_commands(self, game: str, manifest: Manifest, contexts: Contexts) -> list[Command]:
        """Commands that store both; the sessions that name them keep them alive."""
        keys = GameKeys(game)
        return [
            ("SET", keys.manifest(manifest.key), manifest.source, "PX", TEXT_TTL_MS),
            ("SET", keys.contexts(contexts.hash), contexts.source, "PX", TEXT_TTL_MS),
        ]

    def keep(self, statics: Statics) -> None:
        """Keep what a session was just opened with."""
        self._kept[statics.manifest.key, statics.contexts.hash] = statics

    async def load(self, game: str, manifest_key: str, contexts_hash: str) -> Statics | None:
        """Both by name, None when Redis has lost one of them. Raises StoreUnavailableError."""
        kept = self._kept.get((manifest_key, contexts_hash))
        if kept is not None:
            return kept
        keys = GameKeys(game)
        names = (keys.manifest(manifest_key), keys.contexts(contexts_hash))
        manifest_source, contexts_source = await self._connection.trip([("GET", name) for name in names])
        require_done((manifest_source, contexts_source))
        if not isinstance(manifest_source, bytes) or not isinstance(contexts_source, bytes):
            return None
        manifest = load_manifest(manifest_source)
        statics = Statics(manifest, load_contexts(contexts_source, manifest))
        self.keep(statics)
        return statics
