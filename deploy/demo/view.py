"""The live view of a running demo, for a terminal of 100 columns by 30 lines; and one line per second
for everything that is not a terminal. Pure: reads the game's objects, returns what to print."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.demo.decisions import Track
from deploy.demo.play import Player
from deploy.demo.provider import Spend
from deploy.demo.tally import DECIDED, VERDICTS, Tally

MAX_ENTITY_ROWS, MIN_ENTITY_ROWS = 12, 3
_HISTORY_S = 20  # as wide as the figures beside it leave room for
_AVERAGE_S = 5
_BARS = " ▁▂▃▄▅▆▇█"
DASH = "–"
# What a row of the decisions table is called: source and code as on the wire, then the game's own reasons.
_LABELS = {
    "ai": ("AI", "asked"),
    "cached": ("AI", "cached"),
    "no_reply": ("native", "no reply"),
    "stale": ("native", "old epoch"),
    "gone": ("native", "entity gone"),
    "illegal": ("native", "not legal"),
}
_SHORT = {"distance": "dist", "mean_health": "health"}
_ALWAYS_SHOWN = ("ai", "cached", "unavailable", "busy")


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything one picture of the view is made from."""

    now_s: float
    length_s: float
    url: str
    simulated: bool  # the answers come from the provider simulator, not from a model
    outage: bool
    tally: Tally
    players: Sequence[Player]
    spend: Spend | None
    rates: Spend | None


def render(moment: Moment, height: int) -> RenderableType:
    """The whole picture, in at most `height` lines (but never without a few entities)."""
    headline, decisions, figures = _headline(moment), _decisions(moment), _figures(moment)
    middle = Table.grid(padding=(0, 2))
    middle.add_row(decisions, figures)
    # Besides: title and header of both tables, an empty line above each.
    taken = len(headline.plain.splitlines()) + max(decisions.row_count + 2, figures.row_count) + 4
    rows = min(MAX_ENTITY_ROWS, max(MIN_ENTITY_ROWS, height - taken))
    return Group(headline, Text(), middle, Text(), _entities(moment, rows))


def plain_line(moment: Moment) -> str:
    """The last second in one line."""
    second = moment.tally.per_second(moment.now_s, 1)[0]
    decided = sum(second[verdict] for verdict in DECIDED)
    native = {label(v)[1]: second[v] for v in VERDICTS if v not in DECIDED and second[v]}
    why = " (" + ", ".join(f"{code} {count}" for code, count in native.items()) + ")" if native else ""
    p50, p99 = _percentiles(moment.tally)
    rates = moment.rates
    return (
        f"{moment.now_s:3.0f} s  AI {decided}/s ({second['cached']} cached)"
        f"  native {sum(native.values())}/s{why}  p50 {p50} p99 {p99} ms"
        f"  calls {_number(rates.calls if rates else None)}/s  questions/call {_ratio(rates)}"
        f"  tokens {_number(rates.tokens if rates else None)}/s  cost {cost_text(moment.spend)}"
        f"{'  PROVIDER OUTAGE' if moment.outage else ''}"
    )


def label(verdict: str) -> tuple[str, str]:
    """(source, code or reason) of a verdict."""
    return _LABELS.get(verdict, ("FALLBACK", verdict))


def cost_text(spend: Spend | None) -> str:
    """Dollars, to a ten-thousandth of a cent."""
    if spend is None or spend.cost_nanousd is None:
        return DASH
    return f"${spend.cost_nanousd / 1e9:.6f}"


def sparkline(values: Sequence[int], top: int) -> str:
    """One bar per value; `top` is a full bar."""
    return "".join(_BARS[min(8, -(-8 * value // top))] if top else " " for value in values)


def _headline(moment: Moment) -> Text:
    text = Text()
    text.append("Muster demo ", style="bold")
    text.append(f"Crafter, {len(moment.players)} worlds → {moment.url}  ")
    text.append(f"{moment.now_s:.0f} of {moment.length_s:.0f} s")
    if moment.simulated:
        text.append("\nAnswers come from the provider simulator, not from a model.", style="dim")
    if moment.outage:
        text.append("\nPROVIDER OUTAGE: the game goes on with its native AI.", style="bold white on red")
    return text


def _decisions(moment: Moment) -> Table:
    history = moment.tally.per_second(moment.now_s, _HISTORY_S)
    recent = sum(history[-_AVERAGE_S:], Counter())
    top = max((max(second.values(), default=0) for second in history), default=0)
    table = Table(title="decisions", title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("source")
    table.add_column("code", min_width=11)
    table.add_column("/s", justify="right", min_width=5)
    table.add_column("total", justify="right", min_width=6)
    table.add_column(f"last {_HISTORY_S} s", min_width=_HISTORY_S)
    for verdict in VERDICTS:
        if verdict not in _ALWAYS_SHOWN and not moment.tally.totals[verdict]:
            continue
        source, code = label(verdict)
        style = "green" if verdict in DECIDED else "yellow"
        bars = sparkline([second[verdict] for second in history], top)
        rate = f"{recent[verdict] / _AVERAGE_S:.1f}"
        table.add_row(source, code, rate, str(moment.tally.totals[verdict]), bars, style=style)
    return table


def _figures(moment: Moment) -> Table:
    tally, spend, rates = moment.tally, moment.spend, moment.rates
    p50, p99 = _percentiles(tally)
    moved = tally.steered + tally.native
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in (
        ("cache share", f"{tally.cache_share:.0%}"),
        ("latency p50 / p99", f"{p50} / {p99} ms"),
        ("provider calls", _both(spend, rates, lambda s: s.calls)),
        ("questions per call", _ratio(spend)),
        ("tokens", _both(spend, rates, lambda s: s.tokens)),
        ("cost", cost_text(spend)),
        ("moves by a decision", f"{tally.steered / moved:.0%}" if moved else DASH),
        ("frames, late", f"{tally.frames}, {tally.late_frames}"),
        ("reports", str(sum(tally.endings.values()))),
    ):
        table.add_row(name, value)
    return table


def _entities(moment: Moment, rows: int) -> Table:
    table = Table(title="some entities", title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("entity", no_wrap=True, width=14)
    table.add_column("saw", no_wrap=True, width=32)
    table.add_column("chose", no_wrap=True, width=19)
    table.add_column("how the last one ended", no_wrap=True, width=29)
    for player, entity_id, track in _picked(moment.players, rows):
        table.add_row(f"{player.world.name} {entity_id}", saw(player, entity_id), _chose(track), track.ending)
    return table


def _picked(players: Sequence[Player], rows: int) -> list[tuple[Player, str, Track]]:
    """A fair share of each world: its horde, then those nearest to the player."""
    picked = []
    for number, player in enumerate(players):
        share = rows // len(players) + (number < rows % len(players))
        nearest = sorted(player.book.tracks, key=partial(_nearness, player))[:share]
        picked += [(player, entity_id, player.book.tracks[entity_id]) for entity_id in nearest]
    return picked


def _nearness(player: Player, entity_id: str) -> tuple[int, str]:
    creature = player.world.creatures.get(entity_id)
    return (-1 if creature is None else player.world.distance(creature), entity_id)


def saw(player: Player, entity_id: str) -> str:
    """What the entity's present decision (or its question) was based on, shortened."""
    track = player.book.tracks[entity_id]
    seen = track.decision.observation if track.decision is not None else player.adapter.observe(entity_id)
    if seen is None:
        return ""
    names = [
        name for name in ("size", "lost", "nearest", "distance", "health", "mean_health") if name in seen
    ]
    shown = ", ".join(f"{_SHORT.get(name, name)} {seen[name]:g}" for name in names)
    return f"{shown}, {track.last_trigger}" if track.last_trigger else shown


def _chose(track: Track) -> Text:
    if track.decision is not None:
        confidence = track.decision.confidence
        sure = "" if confidence is None else f" {confidence:.2f}"
        return Text(f"{track.decision.action}{sure}{' c' if track.decision.cached else ''}", style="green")
    if track.verdict is None or track.verdict in DECIDED:  # not asked yet, or its decision has ended
        return Text("native", style="yellow")
    return Text(f"native, {label(track.verdict)[1]}", style="yellow")


def _percentiles(tally: Tally) -> tuple[str, str]:
    found = tally.recent_percentiles_ms()
    return (DASH, DASH) if found is None else (f"{found[0]:.0f}", f"{found[1]:.0f}")


def _number(value: int | None) -> str:
    return DASH if value is None else f"{value:,}"


def _ratio(spend: Spend | None) -> str:
    ratio = spend.questions_per_call if spend is not None else None
    return DASH if ratio is None else f"{ratio:.1f}"


def _both(total: Spend | None, rate: Spend | None, figure: Callable[[Spend], int]) -> str:
    shown = [_number(None if spend is None else figure(spend)) for spend in (total, rate)]
    return f"{shown[0]} ({shown[1]}/s)"
