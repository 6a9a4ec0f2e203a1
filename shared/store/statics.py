"""Manifests, scopes and profiles by their hash: Redis keeps the texts, processes keep them compiled."""

from dataclasses import dataclass

from cachetools import LRUCache

from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.contexts import Contexts, load_contexts
from shared.protocol.manifest import Manifest, load_manifest
from shared.store.connection import Command, RedisConnection
from shared.store.keys import GameKeys
from shared.store.replies import require_done
from shared.store.sessions import SESSION_TTL_MS

TEXT_TTL_MS = 2 * SESSION_TTL_MS  # texts outlive every session that names them
KEPT = 512  # compiled texts in one process: some MB


@dataclass(frozen=True, slots=True)
class Statics:
    """A session's compiled manifest and contexts."""

    manifest: CompiledManifest
    contexts: CompiledContexts


class StaticStore:
    """Loads and compiles once; a hash names its text, so a kept copy never goes stale."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._manifests: LRUCache[str, CompiledManifest] = LRUCache(KEPT)
        self._statics: LRUCache[tuple[str, str], Statics] = LRUCache(KEPT)

    def put_commands(self, game: str, manifest: Manifest, contexts: Contexts) -> list[Command]:
        """Commands that store both; the sessions that name them keep them alive."""
        keys = GameKeys(game)
        return [
            ("SET", keys.manifest(manifest.key), manifest.source, "PX", TEXT_TTL_MS),
            ("SET", keys.contexts(contexts.hash), contexts.source, "PX", TEXT_TTL_MS),
        ]

    def renew_commands(self, game: str, manifest_key: str, contexts_hash: str) -> list[Command]:
        """Commands that let both live on."""
        keys = GameKeys(game)
        return [
            ("PEXPIRE", keys.manifest(manifest_key), TEXT_TTL_MS),
            ("PEXPIRE", keys.contexts(contexts_hash), TEXT_TTL_MS),
        ]

    def compile(self, manifest: Manifest, contexts: Contexts) -> Statics:
        """The compiled form, from this process's copies where it has them."""
        compiled = self._manifests.get(manifest.key)
        if compiled is None:
            compiled = self._manifests[manifest.key] = CompiledManifest(manifest)
        kept = self._statics.get((manifest.key, contexts.hash))
        if kept is None:
            kept = Statics(compiled, CompiledContexts(contexts, compiled.manifest))
            self._statics[manifest.key, contexts.hash] = kept
        return kept

    async def load(self, game: str, manifest_key: str, contexts_hash: str) -> Statics | None:
        """Both by name, None when Redis has lost one of them. Raises StoreUnavailableError."""
        kept = self._statics.get((manifest_key, contexts_hash))
        if kept is not None:
            return kept
        keys = GameKeys(game)
        names = (keys.manifest(manifest_key), keys.contexts(contexts_hash))
        manifest_source, contexts_source = await self._connection.trip([("GET", name) for name in names])
        require_done((manifest_source, contexts_source))
        if not isinstance(manifest_source, bytes) or not isinstance(contexts_source, bytes):
            return None
        manifest = load_manifest(manifest_source)
        return self.compile(manifest, load_contexts(contexts_source, manifest))
