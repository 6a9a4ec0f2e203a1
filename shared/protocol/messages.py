"""The messages around a decision: context updates, reports and telemetry (A2G Context, Report, Telemetry).
Pure. Unknown keys are ignored, null for an optional key is as if absent (DESIGN)."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from shared.errors import InputError
from shared.protocol.checks import fault, finite_double, inside, require_name, require_object
from shared.protocol.decoding import decode, decode_any, may_hold_control
from shared.protocol.limits import (
    MAX_DECISION_VALUES,
    MAX_NAME_CHARS,
    MAX_OUTCOME_VALUES,
    MAX_STRING_CHARS,
    MAX_TELEMETRY_ENTITIES,
    MAX_TELEMETRY_VALUES,
)
from shared.protocol.manifest import Manifest
from shared.protocol.names import clean_text, has_control

_COMPOUND = (list, dict)

Scalar = str | int | float | bool
Status = Literal["executed", "blocked", "expired"]
DecisionSource = Literal["AI", "LOCAL"]
Mode = Literal["native", "ai", "local", "service", "cascade", "shadow"]

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
_Text = Annotated[str, msgspec.Meta(max_length=MAX_STRING_CHARS)]


class _ClientId(msgspec.Struct):
    client_id: _Name


_CLIENT_ID_DECODER = msgspec.json.Decoder(_ClientId)


def decode_client_id(body: bytes) -> str:
    """The `client_id` of a body that is otherwise not judged, beyond being JSON. Raises `InputError`."""
    return require_name(decode(_CLIENT_ID_DECODER.decode, body).client_id, "client_id")


@dataclass(frozen=True, slots=True)
class ContextUpdate:
    """Entries to add or replace, null to remove; `Contexts.updated` judges them. None: not sent."""

    client_id: str
    scopes: Mapping[str, object] | None
    profiles: Mapping[str, object] | None


def decode_context(body: bytes) -> ContextUpdate:
    """Read `POST /v1/context`. Raises `InputError`."""
    written = require_object(decode_any(body), "")
    tables = {
        key: None if written.get(key) is None else require_object(written[key], key)
        for key in ("scopes", "profiles")
    }
    if all(table is None for table in tables.values()):
        raise fault("", "scopes or profiles is required")
    return ContextUpdate(require_name(written.get("client_id"), "client_id"), **tables)


@dataclass(frozen=True, slots=True)
class Report:
    """How a decision ended. `decision_id` is None only for the game's own policy (`source` LOCAL)."""

    client_id: str
    entity_id: str
    decision_id: str | None
    action: str
    status: Status
    outcome: Mapping[str, Scalar]
    source: DecisionSource
    local_prediction: Mapping[str, Scalar] | None
    policy_version: str | None


class _ReportBody(msgspec.Struct):
    client_id: _Name
    entity_id: _Name
    action: _Name
    status: Status
    decision_id: _Name | None = None
    outcome: dict[str, Any] | None = None
    source: DecisionSource | None = None
    local_prediction: dict[str, Any] | None = None
    policy_version: _Text | None = None


_REPORT_DECODER = msgspec.json.Decoder(_ReportBody)


def decode_report(body: bytes) -> Report:
    """Read `POST /v1/report`; whether its ids were issued is not judged here. Raises `InputError`."""
    read = decode(_REPORT_DECODER.decode, body)
    source = read.source or "AI"
    if read.decision_id is None and source != "LOCAL":
        raise fault("decision_id", "is required")
    for name in ("client_id", "entity_id", "action", "decision_id"):
        _refuse_control(getattr(read, name), name)
    return Report(
        client_id=read.client_id,
        entity_id=read.entity_id,
        decision_id=read.decision_id,
        action=read.action,
        status=read.status,
        outcome=_all_scalars(read.outcome or {}, "outcome", MAX_OUTCOME_VALUES),
        source=source,
        local_prediction=_prediction(read.local_prediction),
        policy_version=None if read.policy_version is None else clean_text(read.policy_version),
    )


def _prediction(written: dict[str, Any] | None) -> dict[str, Scalar] | None:
    """What the game's policy would have done: its action and confidence (A2G Report, "Training fields")."""
    if written is None:
        return None
    known = {key: written[key] for key in ("action", "confidence") if written.get(key) is not None}
    prediction = _all_scalars(known, "local_prediction", len(known))
    if not isinstance(prediction.get("action", ""), str):
        raise fault("local_prediction.action", "must be a string")
    if finite_double(prediction.get("confidence", 0)) is None:
        raise fault("local_prediction.confidence", "must be a finite number")
    return prediction


class TelemetryRow(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One entity of a snapshot; `position` has two or three coordinates."""

    id: str
    type: str
    name: str
    state: str
    pending: bool
    fields: Mapping[str, Scalar]
    decision: Mapping[str, Scalar] | None
    position: tuple[float, ...] | None
    parent: str | None
    profile: str | None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A snapshot of what is actually happening; never a reason to ask a provider."""

    client_id: str
    mode: Mode
    paused: bool
    scene: str
    scope: str | None
    world: Mapping[str, Scalar]
    rows: tuple[TelemetryRow, ...]


class _RowBody(msgspec.Struct, gc=False):
    id: _Name
    type: str
    name: _Text | None = None
    state: _Text | None = None
    pending: bool | None = None
    fields: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    position: Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=3)] | None = None
    parent: _Name | None = None
    profile: _Name | None = None


class _TelemetryBody(msgspec.Struct, gc=False):
    client_id: _Name
    mode: Mode
    paused: bool
    scene: _Name | None = None
    scope: _Name | None = None
    world: dict[str, Any] | None = None
    entities: Annotated[list[_RowBody], msgspec.Meta(max_length=MAX_TELEMETRY_ENTITIES)] | None = None


_TELEMETRY_DECODER = msgspec.json.Decoder(_TelemetryBody)


def decode_telemetry(body: bytes, manifest: Manifest) -> Telemetry:
    """Read `POST /v1/telemetry`: vectors, lists and unknown keys are dropped, too many entities or scalars
    refused. Raises `InputError`."""
    read = decode(_TELEMETRY_DECODER.decode, body)
    controls = may_hold_control(body)
    for name in ("client_id", "scene", "scope"):
        _refuse_control(getattr(read, name), name)
    seen: set[str] = set()
    rows: list[TelemetryRow] = []
    for index, row in enumerate(read.entities or ()):
        try:
            rows.append(_row(row, manifest, seen, controls))
        except InputError as exc:
            raise fault(f"entities[{index}].{exc.path}", exc.problem) from None
    return Telemetry(
        client_id=read.client_id,
        mode=read.mode,
        paused=read.paused,
        scene=read.scene or "",
        scope=read.scope,
        world=_kept_scalars(read.world, "world", MAX_TELEMETRY_VALUES, manifest.world_fields, controls),
        rows=tuple(rows),
    )


def _row(read: _RowBody, manifest: Manifest, seen: set[str], controls: bool) -> TelemetryRow:
    """One entity's row. Raises `InputError` with a path inside the entity."""
    if controls:
        for name in ("id", "parent", "profile"):
            _refuse_control(getattr(read, name), name)
    entity_type = manifest.entity_types.get(read.type)
    if entity_type is None:
        raise fault("type", "must be a declared entity type")
    if read.id in seen:
        raise fault("id", "occurs twice")
    if read.parent == read.id:
        raise fault("parent", "must be another entity")
    seen.add(read.id)
    decision = read.decision
    if decision is not None:
        decision = _kept_scalars(decision, "decision", MAX_DECISION_VALUES, (), controls)
    return TelemetryRow(
        id=read.id,
        type=read.type,
        name=clean_text(read.name or ""),
        state=clean_text(read.state or ""),
        pending=bool(read.pending),
        fields=_kept_scalars(read.fields, "fields", MAX_TELEMETRY_VALUES, entity_type.fields, controls),
        decision=decision,
        position=read.position,
        parent=read.parent,
        profile=read.profile,
    )


def _refuse_control(name: str | None, path: str) -> None:
    if name is not None and has_control(name):
        raise fault(path, "must hold no control characters")


def _all_scalars(written: dict[str, Any], path: str, most: int) -> dict[str, Scalar]:
    """Every value must be a scalar; null is as if absent."""
    for key, value in written.items():
        if isinstance(value, _COMPOUND):
            raise fault(inside(path, key), "must be a number, boolean or string")
    return _kept_scalars(written, path, most, (), controls=True)


def _kept_scalars(
    written: dict[str, Any] | None, path: str, most: int, declared: Container[str], controls: bool
) -> dict[str, Scalar]:
    """The scalars among `written`, at most `most`. Strings, and keys that are not `declared`, keep the rules
    of string fields; `controls` is false where no string can hold a control character."""
    kept: dict[str, Scalar] = {}
    for key, value in (written or {}).items():
        if value is None or isinstance(value, _COMPOUND):
            continue
        if len(key) > MAX_STRING_CHARS and key not in declared:
            raise fault(inside(path, key), f"a key must have at most {MAX_STRING_CHARS} characters")
        if isinstance(value, str) and len(value) > MAX_STRING_CHARS:
            raise fault(inside(path, key), f"must have at most {MAX_STRING_CHARS} characters")
        kept[key] = _storable(value, path, key) if isinstance(value, int) else value
    if len(kept) > most:
        raise fault(path, f"must have at most {most} values")
    if not controls:
        return kept
    return {
        clean_text(key): clean_text(value) if isinstance(value, str) else value for key, value in kept.items()
    }


def _storable(value: int, path: str, key: str) -> int | float:
    """A whole number (or boolean) as 64 bits hold it, a larger one as a double."""
    if -(2**63) <= value < 2**63:
        return value
    number = finite_double(value)
    if number is None:
        raise fault(inside(path, key), "must be a number within the range of a double")
    return number
