"""Fixtures that every test may ask for. (Here at the root so that `tests` can be imported.)"""

pytest_plugins = ["tests.live_store", "tests.own_valkey", "tests.postgres"]
