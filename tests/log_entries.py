"""Factories of decision-log entries."""

from typing import Any, Literal

import msgspec

from shared.decision_log import DecisionEntry, DecisionHead, DecisionRow, ReportEntry, StaticEntry

AT_MS = 1_772_366_400_000  # 2026-03-01 12:00 UTC
HEAD = DecisionHead(
    at_ms=AT_MS,
    game="lango",
    session="s1",
    client_id="client-1",
    security_profile="local",
    epoch=7,
    manifest_hash="sha256:" + "ab" * 32,
    contexts_hash="cd" * 16,
    scope="forest",
    route="default",
    priority="normal",
    state='{"hour":14,"weather":"rain"}',
)
ROW = DecisionRow(
    id="d_1",
    entity_id="bee_1",
    entity_type="bee",
    legal_actions=["gather", "return_home", "flee"],
    source="AI",
    code=None,
    action="gather",
    confidence=0.7,
    probabilities=[0.8, 0.15, 0.05],
    profile="queen_bee",
    trigger="damaged",
    parent="hive_1",
    input='{"observation":{"hp_fraction":0.33}}',
    provider="main",
    model="jev-1.13.0",
    cached=False,
    input_tokens=180,
    output_tokens=12,
    cost_nanousd=7_560,
    latency_ms=141,
)
REPORT = ReportEntry(
    at_ms=AT_MS + 900,
    game="lango",
    session="s1",
    client_id="client-1",
    security_profile="local",
    decision_id="d_1",
    entity_id="bee_1",
    action="gather",
    status="executed",
    outcome={"nectar": 2.5, "safe": True, "note": None},
    remembered=True,
    source="AI",
    local_prediction=None,
    policy_version=None,
)


def decision_entry(*ids: str, at_ms: int = AT_MS, **row: Any) -> DecisionEntry:
    """An entry with one row for each id; `row` overrides fields of them all."""
    head = msgspec.structs.replace(HEAD, at_ms=at_ms)
    return DecisionEntry(head, [msgspec.structs.replace(ROW, id=one, **row) for one in ids])


def fallback_entry(*ids: str, code: str = "busy", at_ms: int = AT_MS) -> DecisionEntry:
    """An entry of fallbacks."""
    return decision_entry(
        *ids,
        at_ms=at_ms,
        source="FALLBACK",
        code=code,
        action=None,
        confidence=None,
        probabilities=None,
        provider=None,
        model=None,
        input_tokens=0,
        output_tokens=0,
        cost_nanousd=0,
    )


def report_entry(**fields: Any) -> ReportEntry:
    return msgspec.structs.replace(REPORT, **fields)


def static_entry(
    kind: Literal["manifest", "contexts"] = "manifest",
    digest: str = "h1",
    source: str = "{}",
    game: str = "lango",
) -> StaticEntry:
    return StaticEntry(at_ms=AT_MS, game=game, kind=kind, hash=digest, source=source)
