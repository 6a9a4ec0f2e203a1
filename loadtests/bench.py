"""`make bench`: the figures of docs/benchmarks.md, measured on this machine with real processes.

CPU time is read from /proc and divided by decisions: it depends far less on what else a shared machine does
than wall time. Compare ratios within one run.
"""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import click

from loadtests import lango
from loadtests.load import Connection, Tally, at_rate, http_post, saturate
from loadtests.rig import Rig, RigOptions, rig

ENTITIES = 16
TRACKED = 20  # entities of a session's telemetry, the player apart
CONNECTIONS = 24
SEED = 7
BODIES = 8  # different requests per session
UNCACHED = "bat"  # the manifest's type without a cache rule: every decision is asked
CACHED = "bee"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    figure: str
    measured: str
    aim: str


async def _post(rig: Rig, path: str, bodies: list[bytes]) -> list[bytes]:
    connection = Connection(rig.host, rig.port)
    replies = []
    for body in bodies:
        status, reply = await connection.exchange(http_post(path, body))
        if status != 200:
            raise RuntimeError(f"{path} answered {status}: {reply[:200]!r}")
        replies.append(reply)
    connection.close()
    return replies


async def _prepare(
    rig: Rig, sessions: int, kind: str, entities: int = ENTITIES, *, snapshot: bool = True
) -> Iterator[bytes]:
    """Open sessions, with a snapshot each; returns endless decide requests, session after session."""
    chance = Random(SEED)
    names = [f"load-{n}" for n in range(sessions)]
    await _post(rig, "/v1/session", [lango.session_body(name) for name in names])
    if snapshot:
        snapshots = [lango.telemetry_body(name, kind, TRACKED, chance) for name in names]
        await _post(rig, "/v1/telemetry", snapshots)
    bodies = BODIES if sessions <= 1000 else 1
    requests = [
        http_post("/v1/decide", lango.decide_body(name, kind, entities, chance))
        for _ in range(bodies)
        for name in names
    ]
    return itertools.cycle(requests)


def _per_decision_us(rig: Rig, before: dict[str, float], tally: Tally) -> dict[str, float]:
    decisions = max(1, tally.answered + tally.fallbacks)
    return {name: (rig.cpu_s(name) - spent) / decisions * 1e6 for name, spent in before.items()}


def _spent(rig: Rig) -> dict[str, float]:
    return {name: rig.cpu_s(name) for name in ("gateway", "worker", "valkey", "scheduler")}


async def _saturated(rig: Rig, requests: Iterator[bytes], seconds: float) -> tuple[Tally, dict[str, float]]:
    await saturate(rig.host, rig.port, requests, CONNECTIONS, 1.5)  # warm: caches, connections, scripts
    before = _spent(rig)
    tally = await saturate(rig.host, rig.port, requests, CONNECTIONS, seconds)
    return tally, _per_decision_us(rig, before, tally)


def _cost_text(costs: dict[str, float], tally: Tally) -> str:
    both = costs["gateway"] + costs["worker"]
    rate = (tally.answered + tally.fallbacks) / tally.seconds
    return (
        f"{both:.1f} µs (gateway {costs['gateway']:.1f}, worker {costs['worker']:.1f}; Valkey "
        f"{costs['valkey']:.1f}, log writer {costs['scheduler']:.1f}) at {rate:.0f} decisions/s"
    )


def cpu_per_decision(seconds: float) -> list[Row]:
    """CPU of gateway and worker per decision, at saturation and at half load, and the added latency."""

    async def measure() -> list[Row]:
        with rig() as running:
            requests = await _prepare(running, 50, UNCACHED)
            full, costs = await _saturated(running, requests, seconds)
            rows = [Row("CPU per decision, saturation", _cost_text(costs, full), "≤ 60 µs")]
            rate = full.requests / full.seconds / 2
            runs = [await _half_load(running, requests, rate, seconds) for _ in range(5)]
            costs_half = statistics.median(run[0] for run in runs)
            p50 = statistics.median(run[1] for run in runs)
            p99 = statistics.median(run[2] for run in runs)
            late = max(run[3] for run in runs)
            rows.append(Row("CPU per decision, half load", f"{costs_half:.1f} µs", "≤ 90 µs"))
            control = await _control(running, rate, seconds)
            rows.append(
                Row(
                    "added latency at half load, median of 5 runs",
                    f"p50 {p50:.1f} ms, p99 {p99:.1f} ms (load generator late: {late:.1%}; a bare aiohttp "
                    f"server at the same rate: p50 {control.percentile_ms(0.5):.1f} ms, p99 "
                    f"{control.percentile_ms(0.99):.1f} ms)",
                    "p50 ≤ 4 ms, p99 ≤ 12 ms",
                )
            )
            return rows

    return asyncio.run(measure())


async def _half_load(
    running: Rig, requests: Iterator[bytes], rate: float, seconds: float
) -> tuple[float, float, float, float]:
    """CPU per decision in µs, p50 and p99 of the gateway's own overhead in ms, share of late starts."""
    before, buckets = _spent(running), _overhead(running)
    tally = await at_rate(running.host, running.port, requests, rate, seconds, CONNECTIONS)
    costs = _per_decision_us(running, before, tally)
    gained = {bound: count - buckets.get(bound, 0.0) for bound, count in _overhead(running).items()}
    return (
        costs["gateway"] + costs["worker"],
        _quantile_ms(gained, 0.5),
        _quantile_ms(gained, 0.99),
        tally.late_starts / max(1, tally.requests),
    )


async def _control(running: Rig, rate: float, seconds: float) -> Tally:
    """The same rate at a server that does nothing: what loopback and this machine add by themselves."""
    host, _, port = running.simulator.removeprefix("http://").rpartition(":")
    request = itertools.repeat(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return await at_rate(host, int(port), request, rate, seconds, CONNECTIONS)


def _overhead(running: Rig) -> dict[float, float]:
    samples = running.metric("gateway-1", "muster_overhead_seconds_bucket")
    return {float(dict(labels)["le"]): value for labels, value in samples.items()}


def _quantile_ms(buckets: dict[float, float], share: float) -> float:
    """A quantile of a cumulative histogram in milliseconds, linear within its bucket."""
    total = max(buckets.values(), default=0.0)
    below = lower = 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if total and count >= total * share:
            width = bound - lower if bound != float("inf") else 0.0
            inside = (total * share - below) / (count - below) if count > below else 0.0
            return (lower + width * inside) * 1000
        below, lower = count, bound
    return lower * 1000


@dataclass(frozen=True, slots=True)
class Variant:
    """One thing changed against the main measurement."""

    name: str
    options: RigOptions = field(default_factory=RigOptions)
    sessions: int = 50
    kind: str = UNCACHED
    entities: int = ENTITIES
    snapshot: bool = True
    aim: str = "–"


VARIANTS = (
    Variant("redis-py instead of the thin connection", RigOptions(redis_client="redis-py")),
    Variant("no telemetry: no situation context", snapshot=False),
    Variant("every decision from the cache", sessions=1, kind=CACHED),
    Variant("4 entities a request", entities=4),
    Variant("1 entity a request", entities=1),
    Variant("10 sessions", sessions=10),
    Variant("10,000 sessions", sessions=10_000, aim="within 10 % of 10 sessions"),
)


def variants(seconds: float) -> list[Row]:
    """The main load with one thing changed each."""

    async def measure(variant: Variant) -> str:
        with rig(variant.options) as running:
            requests = await _prepare(
                running, variant.sessions, variant.kind, variant.entities, snapshot=variant.snapshot
            )
            before = running.simulator_stats()
            tally, costs = await _saturated(running, requests, seconds)
            after = running.simulator_stats()
            calls = after["requests"] - before["requests"]
            fill = (after["questions"] - before["questions"]) / calls if calls else 0.0
            return f"{_cost_text(costs, tally)}, {fill:.0f} questions a call"

    return [Row(one.name, asyncio.run(measure(one)), one.aim) for one in VARIANTS]


OVERLOAD_LATENCY_MS = 100
OVERLOAD_SLOTS = 4
OVERLOAD_CAPACITY = OVERLOAD_SLOTS * ENTITIES * 1000 // OVERLOAD_LATENCY_MS  # decisions/s, one session a call


def overload(seconds: float) -> list[Row]:
    """Goodput when three times as much is offered as the provider's slots can answer."""

    async def measure(factor: float) -> tuple[float, float, float]:
        options = RigOptions(latency_ms=OVERLOAD_LATENCY_MS, concurrency=OVERLOAD_SLOTS)
        with rig(options) as running:
            requests = await _prepare(running, 50, UNCACHED)
            rate = OVERLOAD_CAPACITY / ENTITIES * factor
            await at_rate(running.host, running.port, requests, rate, 5.0, 1000)  # the queue fills
            late = running.metric("worker-1", "muster_late_answers_total").get((), 0.0)
            tally = await at_rate(running.host, running.port, requests, rate, max(10.0, seconds), 1000)
            paid = running.metric("worker-1", "muster_late_answers_total").get((), 0.0) - late
            return tally.answered / tally.seconds, paid / max(1, tally.answered), tally.percentile_ms(0.99)

    peak, _, _ = asyncio.run(measure(0.95))
    goodput, late, p99 = asyncio.run(measure(3.0))
    share = goodput / peak
    text = f"{goodput:.0f} decisions/s, {share:.0%} of {peak:.0f}; {late:.1%} paid late; p99 {p99:.0f} ms"
    return [Row("goodput at 3× capacity (admission control comes later)", text, "≥ 95 %, none paid late")]


def tokens_per_entity(_seconds: float) -> list[Row]:
    """Provider tokens per entity of the specification's example, by the simulator's count."""

    async def measure(reports: int) -> float:
        with rig() as running:
            chance = Random(SEED)
            await _post(running, "/v1/session", [lango.session_body("one")])
            for _ in range(reports):
                (reply,) = await _post(
                    running, "/v1/decide", [lango.decide_body("one", UNCACHED, ENTITIES, chance)]
                )
                decisions = json.loads(reply)["decisions"]
                bodies = [
                    lango.report_body("one", one["id"], one["decision_id"], one["action"], chance)
                    for one in decisions
                ]
                await _post(running, "/v1/report", bodies)
            await _post(running, "/v1/telemetry", [lango.telemetry_body("one", UNCACHED, TRACKED, chance)])
            before = running.simulator_stats()["tokens"]
            await _post(running, "/v1/decide", [lango.decide_body("one", UNCACHED, ENTITIES, chance)])
            return float(running.simulator_stats()["tokens"] - before) / ENTITIES

    none, eight = asyncio.run(measure(0)), asyncio.run(measure(8))
    return [
        Row("provider tokens per entity, 16 entities, no memory", f"{none:.0f}", "≤ 240"),
        Row("provider tokens per entity, 16 entities, 8 reports", f"{eight:.0f}", "≤ 530"),
    ]


def idle(seconds: float) -> list[Row]:
    """What an idle platform costs, and how long it takes to start."""
    with rig() as running:
        seconds = max(10.0, seconds)
        time.sleep(3.0)  # first partitions, first checkpoints
        before = {name: running.cpu_s(name) for name in running.processes}
        time.sleep(seconds)
        spent = {name: (running.cpu_s(name) - before[name]) / seconds for name in before}
        top = ", ".join(f"{n} {s:.2%}" for n, s in sorted(spent.items(), key=lambda one: -one[1])[:4])
        return [
            Row("idle platform, all processes", f"{sum(spent.values()):.2%} of a core ({top})", "< 3 %"),
            Row("`muster up` ready", f"{running.ready_s:.1f} s", "≤ 8 s"),
        ]


SECTIONS: dict[str, Callable[[float], list[Row]]] = {
    "cpu": cpu_per_decision,
    "variants": variants,
    "tokens": tokens_per_entity,
    "idle": idle,
    "overload": overload,
}


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice(list(SECTIONS)))
@click.option("--seconds", default=6.0, help="Length of each measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a Markdown table.")
def main(sections: tuple[str, ...], seconds: float, as_json: bool) -> None:
    """Print the benchmark figures; all SECTIONS unless named."""
    rows = [row for name in sections or SECTIONS for row in SECTIONS[name](seconds)]
    if as_json:
        click.echo(json.dumps([{"figure": r.figure, "measured": r.measured, "aim": r.aim} for r in rows]))
        return
    click.echo("| figure | measured | aim |\n|---|---|---|")
    for row in rows:
        click.echo(f"| {row.figure} | {row.measured} | {row.aim} |")


if __name__ == "__main__":
    main()
