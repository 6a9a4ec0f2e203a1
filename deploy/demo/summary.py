"""What a demo comes to in the end: a table, or a JSON object. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from deploy.demo.play import Player
from deploy.demo.provider import Spend
from deploy.demo.tally import DECIDED, VERDICTS, Tally, percentiles
from deploy.demo.view import DASH, cost_text, label


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's figures. `picture` is the PNG's path, None when none could be written."""

    seconds: float
    worlds: int
    scenes: int
    simulated: bool
    tally: Tally
    spend: Spend | None
    picture: str | None


def summarise(
    *, seconds: float, players: Sequence[Player], tally: Tally, spend: Spend | None, simulated: bool,
    picture: str | None,
) -> Summary:  # fmt: skip
    scenes = sum(player.world.scene_number for player in players)
    return Summary(seconds, len(players), scenes, simulated, tally, spend, picture)


def as_table(summary: Summary) -> Table:
    """For people."""
    tally, spend = summary.tally, summary.spend
    table = Table(title="Muster demo: summary", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("played", f"{summary.seconds:.0f} s, {summary.worlds} worlds, {summary.scenes} islands")
    if summary.simulated:
        table.add_row("answers", "from the provider simulator, not from a model")
    for verdict in VERDICTS:
        if tally.totals[verdict]:
            source, code = label(verdict)
            table.add_row(f"{source}, {code}", f"{tally.totals[verdict]:,}")
    rates = f"{tally.decided / summary.seconds:.1f} decisions/s" if summary.seconds else DASH
    table.add_row("decided", f"{tally.decided:,} ({rates}), {tally.cache_share:.0%} from the cache")
    p50, p99 = _percentile_texts(tally)
    table.add_row("latency", f"p50 {p50} ms, p99 {p99} ms over {tally.requests:,} requests")
    ratio = spend.questions_per_call if spend is not None else None
    table.add_row("questions per call", DASH if ratio is None else f"{ratio:.1f}")
    table.add_row("provider calls", DASH if spend is None else f"{spend.calls:,}")
    table.add_row("tokens", DASH if spend is None else f"{spend.tokens:,}")
    table.add_row("cost", cost_text(spend))
    table.add_row("reports", ", ".join(f"{n:,} {status}" for status, n in tally.endings.items()) or "0")
    moved = tally.steered + tally.native
    table.add_row("moves by a decision", f"{tally.steered / moved:.0%}" if moved else DASH)
    table.add_row("frames", f"{tally.frames:,}, {tally.late_frames:,} late")
    for kind, count in tally.faults.items():
        table.add_row(f"not answered, {kind}", f"{count:,}")
    table.add_row("picture", summary.picture or DASH)
    return table


def as_json(summary: Summary) -> dict[str, Any]:
    """For programs. Money in nano-dollars; what is not known is null."""
    tally, spend = summary.tally, summary.spend
    found = percentiles(tally.latencies_ms)
    return {
        "seconds": round(summary.seconds, 1),
        "worlds": summary.worlds,
        "scenes": summary.scenes,
        "simulated_provider": summary.simulated,
        "decisions": {verdict: tally.totals[verdict] for verdict in VERDICTS},
        "decided": tally.decided,
        "native": sum(tally.totals[verdict] for verdict in VERDICTS if verdict not in DECIDED),
        "cache_share": round(tally.cache_share, 4),
        "latency_ms": None if found is None else {"p50": round(found[0], 1), "p99": round(found[1], 1)},
        "requests": tally.requests,
        "reports": dict(tally.endings),
        "provider": None if spend is None else {
            "calls": spend.calls,
            "questions": spend.questions,
            "tokens": spend.tokens,
            "cost_nanousd": spend.cost_nanousd,
        },
        "frames": tally.frames,
        "late_frames": tally.late_frames,
        "moves": {"decided": tally.steered, "native": tally.native},
        "faults": dict(tally.faults),
        "sessions_opened": tally.sessions_opened,
        "contexts_sent": tally.contexts_sent,
        "picture": summary.picture,
    }  # fmt: skip


def _percentile_texts(tally: Tally) -> tuple[str, str]:
    found = percentiles(tally.latencies_ms)
    return (DASH, DASH) if found is None else (f"{found[0]:.0f}", f"{found[1]:.0f}")
