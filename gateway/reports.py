"""The report use case: memory for entities, training data for the log."""

from collections.abc import Mapping

from gateway.http import Call
from gateway.reply import OK, UNKNOWN_SESSION, Reply
from gateway.sessions import LOCAL, SessionCopy, Sessions, local_session
from shared import metric_defs
from shared.clock import Clock
from shared.decision_log import ReportEntry, encode_entry
from shared.metrics import Metrics
from shared.protocol.decision_ids import DecisionIds
from shared.protocol.fragments import json_text, scalars_text
from shared.protocol.messages import Report, Scalar, decode_report
from shared.store.connection import RedisConnection
from shared.store.log_outbox import LogOutbox
from shared.store.sessions import SessionStore
from shared.store.situations import Reported, ReportedDecision, SituationStore


def memory_text(action: str, status: str, outcome: Mapping[str, Scalar]) -> str:
    """One report as the model will read it: JSON on one line (A2G Report, "short-term memory")."""
    return f'{{"action":{json_text(action)},"status":{json_text(status)},"outcome":{scalars_text(outcome)}}}'


class TakeReport:
    """Answers `POST /v1/report`."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        store: SessionStore,
        situations: SituationStore,
        connection: RedisConnection,
        outbox: LogOutbox,
        ids: DecisionIds,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._situations = situations
        self._connection = connection
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._counts = {
            result: metrics.counter(metric_defs.REPORTS, result)
            for result in ("remembered", "logged", "ignored")
        }

    async def __call__(self, call: Call) -> Reply:
        """Take in one report; one whose decision id is unknown, foreign, used or too old is ignored.

        Raises InputError for a report that breaks the protocol, before its id is looked at.
        """
        report = decode_report(call.body)
        session = local_session(report.client_id)
        now_ms = self._clock.now_ms()
        # First of all: once the id is used up, nothing may keep the report from the log.
        copy = self._sessions.known(report.client_id) or await self._sessions.load(report.client_id)
        if copy is None:
            return UNKNOWN_SESSION
        if report.decision_id is None:
            return await self._log_only(copy, report, now_ms)
        claim = self._ids.verify(report.decision_id, session, report.entity_id, report.action, now_ms)
        if claim is None:
            return await self._ignored(session)
        # Before the id is used up: should Redis fail now, the game's next try is not taken for a repeat.
        copy = self._sessions.known(report.client_id) or await self._sessions.load(report.client_id)
        if copy is None:
            return UNKNOWN_SESSION
        reported = ReportedDecision(
            report.decision_id,
            claim.expires_ms,
            report.entity_id,
            memory_text(report.action, report.status, report.outcome),
        )
        result = await self._situations.report(session, now_ms, reported)
        if result is None:
            return UNKNOWN_SESSION
        if result is Reported.REPEATED:
            self._counts["ignored"].inc()
            return OK
        remembered = result is Reported.REMEMBERED
        self._counts["remembered" if remembered else "logged"].inc()
        await self._log(copy, report, now_ms, remembered=remembered)
        return OK

    async def _ignored(self, session: str) -> Reply:
        """A forged id is no reason to hide that the session is gone."""
        if await self._version(session) is None:
            return UNKNOWN_SESSION
        self._counts["ignored"].inc()
        return OK

    async def _log_only(self, copy: SessionCopy, report: Report, now_ms: int) -> Reply:
        """A decision of the game's own policy: for training, never for memory."""
        if await self._version(copy.session) is None:
            return UNKNOWN_SESSION
        self._counts["logged"].inc()
        await self._log(copy, report, now_ms, remembered=False)
        return OK

    async def _version(self, session: str) -> int | None:
        (reply,) = await self._connection.trip([self._store.version_command(session)])
        return self._store.parse_version(reply)

    async def _log(self, copy: SessionCopy, report: Report, now_ms: int, *, remembered: bool) -> None:
        entry = ReportEntry(
            at_ms=now_ms,
            game=copy.game,
            session=copy.session,
            client_id=report.client_id,
            security_profile=LOCAL,
            decision_id=report.decision_id,
            entity_id=report.entity_id,
            action=report.action,
            status=report.status,
            outcome=dict(report.outcome),
            remembered=remembered,
            source=report.source,
            local_prediction=dict(report.local_prediction) if report.local_prediction is not None else None,
            policy_version=report.policy_version,
        )
        await self._outbox.write(encode_entry(entry))
