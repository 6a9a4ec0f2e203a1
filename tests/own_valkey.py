"""A Valkey of a test's own, which the test may stop and start again."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey


@pytest.fixture
async def own_valkey() -> AsyncIterator[EmbeddedValkey]:
    """A running server; its data outlive a stop."""
    folder = Path(tempfile.mkdtemp(prefix="muster-valkey-"))  # short: a socket's path has 107 bytes
    server = EmbeddedValkey(folder)
    await server.start()
    yield server
    await server.kill()
    shutil.rmtree(folder)
