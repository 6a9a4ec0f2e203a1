"""Fixtures that every test may ask for. (Here at the root so that `tests` can be imported.)"""

# Who imports another comes after it.
pytest_plugins = [
    "tests.valkey",
    "tests.live_store",
    "tests.own_valkey",
    "tests.postgres",
    "tests.decide_platform",
]
