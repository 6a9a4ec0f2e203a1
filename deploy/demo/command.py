"""`muster demo`: play Crafter against the whole platform."""

import asyncio
import json
from pathlib import Path

import click
from rich.console import Console

from deploy.demo.run import Options, run
from deploy.demo.summary import as_json, as_table

DEFAULT_DATA_DIR = Path("~/.local/share/muster-demo")
DEFAULT_PICTURE = Path("out/muster-demo.png")


class _Outage(click.ParamType[tuple[float, float]]):
    """`20:10`: when the provider's outage begins, in seconds of play, and how long it lasts."""

    name = "START:SECONDS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Read one pair; click reports what cannot be read."""
        start, _, length = str(value).partition(":")
        try:
            pair = float(start), float(length)
        except ValueError:
            pair = (-1.0, -1.0)
        if not (0 <= pair[0] < float("inf") and 0 < pair[1] < float("inf")):
            self.fail(f"{value!r} is not START:SECONDS, such as 20:10", param, ctx)
        return pair


@click.command("demo")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=60.0, show_default=True)
@click.option("--worlds", type=click.IntRange(1, 64), default=4, show_default=True)
@click.option("--provider-outage", "outage", type=_Outage(), help="Let the simulated provider die meanwhile.")
@click.option("--url", help="A platform that is already running; without it the demo starts its own.")
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), default=DEFAULT_PICTURE, show_default=True
)
@click.option("--plain", is_flag=True, help="One line a second instead of the live view.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="The platform's data; with --url, where its stack.json is.",
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=7, show_default=True)
@click.option(
    "--json", "as_json_", is_flag=True, help="Print the summary as JSON; all else to standard error."
)
def demo(
    seconds: float, worlds: int, outage: tuple[float, float] | None, url: str | None, picture: Path,
    plain: bool, data_dir: Path, seed: int, as_json_: bool,
) -> None:  # fmt: skip
    """Play the game Crafter: zombies, skeletons and cows of several worlds decide through the platform."""
    options = Options(
        seconds=seconds,
        worlds=worlds,
        seed=seed,
        data_dir=data_dir.expanduser().resolve(),
        picture=picture.expanduser().resolve(),
        url=url,
        outage=outage,
        plain=plain or as_json_,
    )
    console = Console(stderr=as_json_)
    summary = asyncio.run(run(options, console))
    if as_json_:
        click.echo(json.dumps(as_json(summary)))
    else:
        console.print(as_table(summary))
