"""`muster manifest check FILE`: what the platform would say to a manifest, without a platform."""

import sys

import click
import msgspec

from shared.errors import InputError


@click.group("manifest")
def command() -> None:
    """Look at manifests offline."""


@command.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: str, as_json: bool) -> None:
    """Validate FILE (- for standard input); print its hash and warnings, or the path of its first fault."""
    try:
        with click.open_file(file, "rb") as stream:
            hash_, warnings = _checked(stream.read())
    except InputError as fault:
        if as_json:
            click.echo(msgspec.json.encode({"valid": False, "path": fault.path, "problem": fault.problem}))
        else:
            click.echo(f"{file}: {fault}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(msgspec.json.encode({"valid": True, "hash": hash_, "warnings": warnings}))
        return
    click.echo(hash_)
    for warning in warnings:
        click.echo(f"warning: {warning}")


def _checked(source: bytes) -> tuple[str, tuple[str, ...]]:
    from shared.protocol.decoding import decode_any
    from shared.protocol.manifest import parse_manifest

    parsed = parse_manifest(decode_any(source))
    return parsed.manifest.hash, parsed.warnings
