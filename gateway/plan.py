"""What a gateway derives once from a manifest and a scope chain: renderers, cache keys, lane texts. Pure."""

from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from shared.protocol.cache_key import CacheKey, compile_cache_key
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.fragments import Renderer, compile_renderer
from shared.protocol.manifest import PARENT_ACTION, CacheRule, Manifest

_TEXTS_HASH_BYTES = 12  # part of a lane's name: 96 bits


@dataclass(frozen=True, slots=True)
class Rendered:
    """A request's values as the model will read them: JSON object texts, "" for what is not declared."""

    world_state: str
    scope_state: str
    observations: list[str]  # by entity


def _all_buckets(manifest: Manifest) -> CacheRule:
    """The thresholds of all types together: shared state is rounded to what any of them distinguishes."""
    thresholds: dict[str, set[float]] = {}
    for entity_type in manifest.entity_types.values():
        if entity_type.cache is not None:
            for entry, values in entity_type.cache.buckets.items():
                thresholds.setdefault(entry, set()).update(values)
    return CacheRule((), {entry: tuple(sorted(values)) for entry, values in thresholds.items()}, 0)


class ManifestPlan:
    """Renderers and cache keys of one manifest, by entity type."""

    def __init__(self, compiled: CompiledManifest) -> None:
        manifest = compiled.manifest
        self.compiled = compiled
        self.world: Renderer | None = (
            compile_renderer(manifest.world_fields, _all_buckets(manifest), "world.")
            if manifest.world_fields
            else None
        )
        self.observations: dict[str, Renderer] = {}
        self.cache_keys: dict[str, CacheKey] = {}
        self.parent_keyed: set[str] = set()
        for name, entity_type in manifest.entity_types.items():
            self.observations[name] = compile_renderer(entity_type.fields, entity_type.cache)
            key = compile_cache_key(entity_type, manifest)
            if key is not None:
                self.cache_keys[name] = key
            if entity_type.cache is not None and PARENT_ACTION in entity_type.cache.key:
                self.parent_keyed.add(name)


class ScopePlan:
    """The renderer of one scope chain's state, and what stands for its texts in a lane's name."""

    def __init__(self, contexts: CompiledContexts, scope: str | None) -> None:
        chain = contexts.contexts.chain(scope) if scope is not None else ()
        fields = contexts.scope_fields(scope) if scope is not None else {}
        rule = _all_buckets(contexts.manifest)
        self.state: Renderer | None = compile_renderer(fields, rule, "scope.") if fields else None
        texts = msgspec.json.encode([[one.name, one.text] for one in chain])
        self.texts_hash = blake2b(texts, digest_size=_TEXTS_HASH_BYTES).hexdigest() if chain else "-"
