"""`python -m gateway`: one gateway process."""

import asyncio
import sys

from gateway.app import Gateway
from shared.config import load_config
from shared.process import run_role
from shared.settings import Settings


async def _run(settings: Settings, stop: asyncio.Event) -> None:
    await Gateway(settings, load_config(settings.required_config)).run(stop)


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    return run_role("gateway", _run)


if __name__ == "__main__":
    sys.exit(main())
