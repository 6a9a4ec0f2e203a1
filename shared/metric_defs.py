"""Every metric, defined once: name, kind, labels, buckets, meaning. Pure.

Units are in the names. No label takes its value from a game's input.
"""

from dataclasses import dataclass
from typing import Literal

LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.02, 0.03, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0,
)  # fmt: skip
QUESTION_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 400, 800)


@dataclass(frozen=True, slots=True)
class MetricDef:
    """One metric. `labels` are its label names; `buckets` are a histogram's upper bounds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


REQUESTS = MetricDef("muster_requests", "counter", "HTTP requests answered", ("path", "status"))
DECISIONS = MetricDef(
    "muster_decisions",
    "counter",
    "Entities answered; code is empty for AI, cached says that no question was asked for the entity",
    ("source", "code", "cached"),
)
DECIDE_SECONDS = MetricDef(
    "muster_decide_seconds", "histogram", "Decide requests, receive to reply", buckets=LATENCY_BUCKETS_S
)
OVERHEAD_SECONDS = MetricDef(
    "muster_overhead_seconds",
    "histogram",
    "Decide requests that asked a provider: total less the provider's time and the linger",
    buckets=LATENCY_BUCKETS_S,
)
REPORTS = MetricDef(
    "muster_reports",
    "counter",
    "Reports by what became of them: remembered, logged (the entity is gone, or a LOCAL decision) or ignored",
    ("result",),
)
TELEMETRY = MetricDef(
    "muster_telemetry_snapshots", "counter", "Telemetry snapshots by what became of them", ("result",)
)
OUTBOX_ENTRIES = MetricDef(
    "muster_log_outbox_entries", "gauge", "Log entries that this process holds until Redis takes them"
)
OUTBOX_DROPPED = MetricDef(
    "muster_log_outbox_dropped",
    "counter",
    "Log entries lost because the outbox was full while Redis was away",
)
CLAIMED_QUESTIONS = MetricDef(
    "muster_batch_entities", "histogram", "Entities in a claimed batch", buckets=QUESTION_BUCKETS
)
PROVIDER_CALLS = MetricDef(
    "muster_provider_calls",
    "counter",
    "Attempts by provider and outcome (ok or the kind of failure)",
    ("provider", "outcome"),
)
PROVIDER_QUESTIONS = MetricDef("muster_provider_questions", "counter", "Questions sent", ("provider",))
PROVIDER_TOKENS = MetricDef(
    "muster_provider_tokens",
    "counter",
    "Tokens by provider and direction (input or output)",
    ("provider", "direction"),
)
PROVIDER_COST = MetricDef(
    "muster_provider_cost_nanousd", "counter", "Spend in nano-dollars, every attempt counted", ("provider",)
)
PROVIDER_SECONDS = MetricDef(
    "muster_provider_seconds", "histogram", "Provider calls, send to reply", ("provider",), LATENCY_BUCKETS_S
)
LATE_ANSWERS = MetricDef(
    "muster_late_answers",
    "counter",
    "Entities whose answer was paid for and came after their request had ended",
)
LOG_LAG_ENTRIES = MetricDef(
    "muster_log_lag_entries", "gauge", "Entries on the log stream not yet in Postgres"
)
LOG_WRITTEN_ROWS = MetricDef(
    "muster_log_written_rows", "counter", "Rows committed by the log writer", ("table",)
)
LOG_SPILLED_BYTES = MetricDef("muster_log_spilled_bytes", "gauge", "Log bytes on disk, waiting for Postgres")

ALL = (
    REQUESTS, DECISIONS, DECIDE_SECONDS, OVERHEAD_SECONDS, REPORTS, TELEMETRY, OUTBOX_ENTRIES, OUTBOX_DROPPED,
    CLAIMED_QUESTIONS, PROVIDER_CALLS, PROVIDER_QUESTIONS, PROVIDER_TOKENS, PROVIDER_COST, PROVIDER_SECONDS,
    LATE_ANSWERS, LOG_LAG_ENTRIES, LOG_WRITTEN_ROWS, LOG_SPILLED_BYTES,
)  # fmt: skip
