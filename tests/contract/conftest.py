"""The contract of Redis connections holds on asyncio's own event loop and on the one the roles run on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both for the connections' contract; the roles' for their faults, which take long; else asyncio's."""
    name = item.path.name
    if name == "test_redis_connection.py":
        return _LOOPS
    return {"loop": _LOOPS["uvloop" if name.startswith("test_redis_") else "asyncio"]}
