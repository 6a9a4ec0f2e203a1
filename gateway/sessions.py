"""Sessions as a gateway knows them: opened and changed in Redis, kept compiled in this process.

A copy is used only while its version is the one in Redis: every decide request confirms it in the round trip
that it makes anyway.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import WeakValueDictionary

from cachetools import LRUCache

from gateway.plan import ManifestPlan, Rendered, ScopePlan
from shared.clock import Clock
from shared.config import Config
from shared.decision_log import StaticEntry, encode_entry
from shared.errors import StoreUnavailableError
from shared.protocol.compiled import CompiledContexts, CompiledManifest
from shared.protocol.contexts import Contexts
from shared.protocol.decide import DecideRequest, Entity
from shared.protocol.manifest import Manifest, ParsedManifest
from shared.protocol.messages import ContextUpdate
from shared.protocol.session import SessionRequest
from shared.scheduling.routing import GameRouting, Priority
from shared.scheduling.sharing import SecurityProfile
from shared.store.connection import RedisConnection
from shared.store.log_outbox import LogOutbox
from shared.store.replies import require_done
from shared.store.sessions import SessionRecord, SessionStore
from shared.store.statics import KEPT_BYTES, Statics, StaticStore, memory_bytes

COPY_BYTES = 2_048  # of a session whose plan others share
LOGGED_TEXTS = 4_096  # texts of which this process knows that they are in the log
MAX_CONTEXT_RACES = 8  # updates of one session that may overtake ours before we give up

LOCAL: SecurityProfile = "local"


def local_session(client_id: str) -> str:
    """The session's id in the local profile, where nothing but the client names it."""
    return blake2b(b"local\0" + client_id.encode(), digest_size=12).hexdigest()


@dataclass(slots=True, eq=False)
class SessionCopy:
    """One session at one version."""

    session: str
    client_id: str
    game: str
    profile: SecurityProfile
    version: int
    plan: ManifestPlan
    contexts: CompiledContexts
    routing: GameRouting
    renewed_ms: int
    memory_bytes: int  # about what it keeps alive
    _scopes: dict[str | None, ScopePlan] = field(default_factory=dict)
    _places: dict[tuple[str, str | None], tuple[str, Priority]] = field(default_factory=dict)

    def scope_plan(self, scope: str | None) -> ScopePlan:
        """What depends on the active scope alone."""
        plan = self._scopes.get(scope)
        if plan is None:
            plan = self._scopes[scope] = ScopePlan(self.contexts, scope)
        return plan

    def place(self, entity: Entity) -> tuple[str, Priority]:
        """The route and priority class of an entity."""
        key = (entity.entity_type.name, entity.profile)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self.routing.place(*key)
        return place

    def rendered(self, request: DecideRequest) -> Rendered:
        """The request's values as the model will read them."""
        plan = self.plan
        state = self.scope_plan(request.scope).state
        return Rendered(
            world_state=plan.world(request.world) if plan.world is not None else "",
            scope_state=state(request.scope_state) if state and request.scope_state is not None else "",
            observations=[plan.observations[e.entity_type.name](e.observation) for e in request.entities],
        )


def _memory_bytes(copy: SessionCopy) -> int:
    return copy.memory_bytes


class Sessions:
    """Opens, changes and loads sessions of the local profile."""

    def __init__(
        self,
        *,
        connection: RedisConnection,
        store: SessionStore,
        statics: StaticStore,
        outbox: LogOutbox,
        config: Config,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._store = store
        self._statics = statics
        self._outbox = outbox
        self._config = config
        self._clock = clock
        # Copies hold what is compiled: the first session to have it answers for the memory that it takes.
        self._copies: LRUCache[str, SessionCopy] = LRUCache(KEPT_BYTES, getsizeof=_memory_bytes)
        self._plans: WeakValueDictionary[str, ManifestPlan] = WeakValueDictionary()
        self._contexts: WeakValueDictionary[tuple[str, str], CompiledContexts] = WeakValueDictionary()
        self._logged: LRUCache[tuple[str, str], bool] = LRUCache(LOGGED_TEXTS)

    def known(self, client_id: str) -> SessionCopy | None:
        """This process's copy, which may be out of date; None when it has none."""
        return self._copies.get(client_id)

    def forget(self, client_id: str) -> None:
        """Drop a copy that is out of date."""
        self._copies.pop(client_id, None)

    async def load(self, client_id: str) -> SessionCopy | None:
        """The session as Redis has it, None when it has none. Raises StoreUnavailableError."""
        session = local_session(client_id)
        record = await self._store.read(session)
        if record is not None:
            statics = await self._statics.load(record.game, record.manifest_key, record.contexts_hash)
            if statics is not None:
                return self._keep(session, record, statics)
        self.forget(client_id)
        return None

    async def open(self, request: SessionRequest, parsed: ParsedManifest) -> None:
        """Create or replace the session of a client. Raises StoreUnavailableError."""
        statics = Statics(parsed.manifest, parsed.contexts)
        self._statics.keep(statics)
        record = SessionRecord(
            game=request.game,
            client_id=request.client_id,
            profile=LOCAL,
            manifest_key=parsed.manifest.key,
            manifest_hash=parsed.manifest.hash,
            contexts_hash=parsed.contexts.hash,
            engine=request.engine,
            created_ms=self._clock.now_ms(),
        )
        session = local_session(request.client_id)
        # Texts first: a record must never name what is not there.
        await self._put_texts(request.game, parsed.manifest, parsed.contexts)
        await self._store.open(session, record)
        # Not before: while Redis is away, a game that tries again to open keeps the session that it has.
        self.forget(request.client_id)
        await self._log_texts(request.game, statics)

    async def update_contexts(self, update: ContextUpdate) -> Contexts | None:
        """Change scopes and profiles; None for an unknown session.

        Raises InputError when the result is not valid as a whole: nothing changes then.
        """
        for _ in range(MAX_CONTEXT_RACES):
            copy = await self.load(update.client_id)
            if copy is None:
                return None
            manifest = copy.plan.compiled.manifest
            contexts = copy.contexts.contexts.updated(update.scopes, update.profiles, manifest)
            await self._put_texts(copy.game, manifest, contexts)
            result = await self._store.update_context(copy.session, copy.version, contexts.hash)
            self.forget(update.client_id)
            if result is None:
                return None
            if result.replaced:
                await self._log_texts(copy.game, Statics(manifest, contexts))
                return contexts
        raise StoreUnavailableError("the session's contexts change too fast")

    async def renew(self, copy: SessionCopy) -> None:
        """Let a session live on, with its texts, which Redis may have lost; cheap when it was done lately."""
        now_ms = self._clock.now_ms()
        if now_ms - copy.renewed_ms < self._store.ttl_ms // 4:
            return
        copy.renewed_ms = now_ms
        texts = self._statics.put_commands(copy.game, copy.plan.compiled.manifest, copy.contexts.contexts)
        await self._connection.trip([*self._store.renew_commands(copy.session), *texts])

    async def _put_texts(self, game: str, manifest: Manifest, contexts: Contexts) -> None:
        require_done(await self._connection.trip(self._statics.put_commands(game, manifest, contexts)))

    async def _log_texts(self, game: str, statics: Statics) -> None:
        """Send what rows name by hash to the log, once per process: a repeat is harmless."""
        manifest, contexts = statics.manifest, statics.contexts
        now_ms = self._clock.now_ms()
        entries = (
            StaticEntry(now_ms, game, "manifest", manifest.hash, manifest.source.decode()),
            StaticEntry(now_ms, game, "contexts", contexts.hash, contexts.source.decode()),
        )
        for entry in entries:
            if (game, entry.hash) not in self._logged:
                self._logged[game, entry.hash] = True
                await self._outbox.write(encode_entry(entry))

    def _keep(self, session: str, record: SessionRecord, statics: Statics) -> SessionCopy:
        memory = COPY_BYTES
        plan = self._plans.get(record.manifest_key)
        contexts = self._contexts.get((record.manifest_key, record.contexts_hash))
        if plan is None or contexts is None:
            memory += memory_bytes(statics)
            plan = plan or ManifestPlan(CompiledManifest(statics.manifest))
            contexts = contexts or CompiledContexts(statics.contexts, statics.manifest)
            self._plans[record.manifest_key] = plan
            self._contexts[record.manifest_key, record.contexts_hash] = contexts
        game = self._config.game(record.game)
        copy = SessionCopy(
            session=session,
            client_id=record.client_id,
            game=record.game,
            profile=LOCAL,
            version=record.version,
            plan=plan,
            contexts=contexts,
            memory_bytes=memory,
            routing=GameRouting(game.routes, game.priorities),
            renewed_ms=0,  # the next request renews: nobody knows when that was done last
        )
        self._copies[record.client_id] = copy
        return copy
