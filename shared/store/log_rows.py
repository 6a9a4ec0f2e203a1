"""From entries of the decision-log stream to rows of the log's tables. Pure.

Whatever an entry holds becomes something Postgres can store: text has no U+0000 there, integers have 64 bits.
An entry that cannot be read, or names an impossible time, becomes a dead letter.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from shared.decision_log import (
    DecisionEntry,
    DecisionHead,
    DecisionRow,
    ReportEntry,
    StaticEntry,
    decode_entry,
)

DECISION_COLUMNS = (
    "at", "id", "game", "session", "client_id", "security_profile", "epoch", "manifest_hash", "contexts_hash",
    "scope", "route", "priority", "state", "entity_id", "entity_type", "legal_actions", "source", "code",
    "action", "confidence", "probabilities", "profile", "trigger", "parent", "input", "provider", "model",
    "cached", "input_tokens", "output_tokens", "cost_nanousd", "latency_ms",
)  # fmt: skip
REPORT_COLUMNS = (
    "at", "id", "decision_id", "game", "session", "client_id", "security_profile", "entity_id", "action",
    "status", "outcome", "remembered", "source", "local_prediction", "policy_version",
)  # fmt: skip
MIN_AT_MS = 1_577_836_800_000  # 2020-01-01: older, or later than 2100-01-01, is no clock's time
MAX_AT_MS = 4_102_444_800_000
MAX_DEAD_LETTER_BYTES = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_INT64 = (1 << 63) - 1

TableRow = tuple[Any, ...]


class LogRows(msgspec.Struct):
    """Rows ready to be written, by table.

    A manifest or static text is (first_at, game, hash, source), a dead letter (id, error, entry).
    """

    decisions: list[TableRow] = msgspec.field(default_factory=list)
    reports: list[TableRow] = msgspec.field(default_factory=list)
    manifests: list[TableRow] = msgspec.field(default_factory=list)
    static_texts: list[TableRow] = msgspec.field(default_factory=list)
    dead_letters: list[TableRow] = msgspec.field(default_factory=list)
    days: set[date] = msgspec.field(default_factory=set)

    @staticmethod
    def of(raws: Iterable[bytes]) -> "LogRows":
        """The rows of many entries."""
        rows = LogRows()
        for raw in raws:
            rows.add(raw)
        return rows

    def __len__(self) -> int:
        return (
            len(self.decisions)
            + len(self.reports)
            + len(self.manifests)
            + len(self.static_texts)
            + len(self.dead_letters)
        )

    def add(self, raw: bytes) -> None:
        """Add what one stream entry holds."""
        try:
            entry = decode_entry(raw)
            at = _datetime(entry.head.at_ms if isinstance(entry, DecisionEntry) else entry.at_ms)
        except (msgspec.MsgspecError, ValueError) as exc:
            self.add_dead_letter(raw, str(exc))
            return
        if isinstance(entry, StaticEntry):
            rows = self.manifests if entry.kind == "manifest" else self.static_texts
            rows.append((at, _text(entry.game), _text(entry.hash), _text(entry.source)))
            return
        self.days.add(at.date())
        if isinstance(entry, ReportEntry):
            self.reports.append(_report_row(at, entry, raw))
        else:
            head = _head_values(entry.head)
            self.decisions += [(at, _text(row.id), *head, *_row_values(row)) for row in entry.rows]

    def add_dead_letter(self, raw: bytes, error: str) -> None:
        """Set an entry aside with the reason."""
        self.dead_letters.append((_digest(raw), _text(error)[:1000], raw[:MAX_DEAD_LETTER_BYTES]))


def _datetime(at_ms: int) -> datetime:
    if not MIN_AT_MS <= at_ms < MAX_AT_MS:
        raise ValueError(f"at_ms {at_ms} is no time between 2020 and 2100")
    return _EPOCH + timedelta(milliseconds=at_ms)


def _head_values(head: DecisionHead) -> TableRow:
    return (
        _text(head.game),
        _text(head.session),
        _text(head.client_id),
        _text(head.security_profile),
        _int64(head.epoch),
        _text(head.manifest_hash),
        _text(head.contexts_hash),
        _optional(head.scope),
        _text(head.route),
        _text(head.priority),
        _text(head.state),
    )


def _row_values(row: DecisionRow) -> TableRow:
    return (
        _text(row.entity_id),
        _text(row.entity_type),
        [_text(action) for action in row.legal_actions],
        row.source,
        _optional(row.code),
        _optional(row.action),
        row.confidence,
        row.probabilities,
        _optional(row.profile),
        _optional(row.trigger),
        _optional(row.parent),
        _text(row.input),
        _optional(row.provider),
        _optional(row.model),
        row.cached,
        _int64(row.input_tokens),
        _int64(row.output_tokens),
        _int64(row.cost_nanousd),
        _int64(row.latency_ms),
    )


def _report_row(at: datetime, entry: ReportEntry, raw: bytes) -> TableRow:
    return (
        at,
        "r_" + _digest(raw),
        _optional(entry.decision_id),
        _text(entry.game),
        _text(entry.session),
        _text(entry.client_id),
        _text(entry.security_profile),
        _text(entry.entity_id),
        _text(entry.action),
        _text(entry.status),
        _json(entry.outcome),
        entry.remembered,
        _text(entry.source),
        None if entry.local_prediction is None else _json(entry.local_prediction),
        _optional(entry.policy_version),
    )


def _json(values: dict[str, float | int | bool | str | None]) -> str:
    """JSON that jsonb takes: it refuses U+0000 escaped as well."""
    clean = {_text(name): _text(v) if isinstance(v, str) else v for name, v in values.items()}
    return msgspec.json.encode(clean).decode()


def _text(text: str) -> str:
    return text.replace("\0", "") if "\0" in text else text


def _optional(text: str | None) -> str | None:
    return text if text is None else _text(text)


def _int64(value: int) -> int:
    return min(value, _MAX_INT64)  # msgpack has no integer below -2^63, but goes up to 2^64 - 1


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()
