"""When a provider is not worth asking any more."""

from workers.latency import MARGIN_MS, Latency


def test_an_unknown_provider_is_asked_while_there_is_any_time() -> None:
    assert Latency().least_ms == MARGIN_MS


def test_the_typical_call_decides_not_the_outlier() -> None:
    latency = Latency()
    for took_ms in (100, 110, 90, 4000, 105):
        latency.record(took_ms)
    assert latency.least_ms == 105 + MARGIN_MS


def test_only_recent_calls_count() -> None:
    latency = Latency()
    for _ in range(50):
        latency.record(2000)
    for _ in range(32):
        latency.record(10)
    assert latency.least_ms == 10 + MARGIN_MS
