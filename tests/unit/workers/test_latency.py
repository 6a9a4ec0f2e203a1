"""When a provider is not worth asking any more."""

from workers.latency import MARGIN_MS, REMEMBERED_S, Latency


def test_an_unknown_provider_is_asked_while_there_is_any_time() -> None:
    assert Latency().least_ms(0.0) == MARGIN_MS


def test_the_typical_call_decides_not_the_outlier() -> None:
    latency = Latency()
    for took_ms in (100, 110, 90, 4000, 105):
        latency.record(1.0, took_ms)
    assert latency.least_ms(1.0) == 105 + MARGIN_MS


def test_only_the_last_calls_count() -> None:
    latency = Latency()
    for _ in range(50):
        latency.record(1.0, 2000)
    for _ in range(32):
        latency.record(1.0, 10)
    assert latency.least_ms(1.0) == 10 + MARGIN_MS


def test_a_slow_spell_is_forgotten_so_that_the_provider_is_asked_again() -> None:
    latency = Latency()
    latency.record(1.0, 2000)
    latency.record(3.0, 1000)
    assert latency.least_ms(1.0 + REMEMBERED_S) == 1500 + MARGIN_MS
    assert latency.least_ms(1.1 + REMEMBERED_S) == 1000 + MARGIN_MS
    assert latency.least_ms(3.1 + REMEMBERED_S) == MARGIN_MS
