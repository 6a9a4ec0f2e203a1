"""The telemetry use case: one snapshot replaces the last; what others may see in it is rendered once."""

from gateway.http import Call
from gateway.reply import OK, UNKNOWN_SESSION, Reply
from gateway.sessions import SessionCopy, Sessions
from shared import metric_defs
from shared.errors import InputError
from shared.metrics import Metrics
from shared.protocol.messages import Telemetry, decode_client_id, decode_telemetry
from shared.protocol.situation import pack_snapshot, snapshot_ids
from shared.store.connection import RedisConnection
from shared.store.sessions import SessionStore
from shared.store.situations import SituationStore, Snapshot


class TakeTelemetry:
    """Answers `POST /v1/telemetry`."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        store: SessionStore,
        situations: SituationStore,
        connection: RedisConnection,
        metrics: Metrics,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._situations = situations
        self._connection = connection
        self._counts = {
            result: metrics.counter(metric_defs.TELEMETRY, result) for result in ("taken", "outdated")
        }

    async def __call__(self, call: Call) -> Reply:
        """Take in one snapshot; one that overtook a newer one is ignored.

        Raises InputError for a snapshot that breaks the protocol.
        """
        client_id = decode_client_id(call.body)
        copy = self._sessions.known(client_id)
        fresh = copy is None
        if copy is None:
            copy = await self._sessions.load(client_id)
            if copy is None:
                return UNKNOWN_SESSION
        try:
            telemetry = decode_telemetry(call.body, copy.plan.compiled.manifest)
        except InputError:
            if fresh:
                raise
            # The fault may be our copy's: another gateway may have replaced the manifest.
            copy = await self._sessions.load(client_id)
            if copy is None:
                return UNKNOWN_SESSION
            telemetry = decode_telemetry(call.body, copy.plan.compiled.manifest)
        return await self._take(copy, telemetry, call.received_ms)

    async def _take(self, copy: SessionCopy, telemetry: Telemetry, received_ms: int) -> Reply:
        snapshot = Snapshot(
            at_ms=received_ms,
            scene=telemetry.scene,
            entities=snapshot_ids(telemetry.rows),
            rows=pack_snapshot(telemetry.scene, telemetry.rows, copy.plan.compiled.manifest),
        )
        taken = await self._situations.telemetry(copy.session, snapshot)
        if taken is None:
            self._sessions.forget(copy.client_id)
            return UNKNOWN_SESSION
        self._counts["taken" if taken else "outdated"].inc()
        await self._sessions.renew(copy)
        return OK
