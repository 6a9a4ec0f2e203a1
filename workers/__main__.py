"""`python -m workers`: one worker process."""

import asyncio
import sys

from shared.config import load_config
from shared.process import run_role
from shared.settings import Settings
from workers.app import Worker


async def _run(settings: Settings, stop: asyncio.Event) -> None:
    await Worker(settings, load_config(settings.required_config)).run(stop)


def main() -> int:
    """Claim and ask until told to stop; returns the exit code."""
    return run_role("worker", _run)


if __name__ == "__main__":
    sys.exit(main())
