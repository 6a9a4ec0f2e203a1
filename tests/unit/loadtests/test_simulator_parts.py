"""The simulator's pure parts: chance, quotas, dice, counters, token counts."""

import pytest

from loadtests.simulator.chance import VARIANTS, confidence, distribution, variant_of
from loadtests.simulator.faults import MALFORMATIONS, Dice, Faults, Quota, spoilt
from loadtests.simulator.stats import Stats
from loadtests.simulator.texts import seen_chars


def test_a_distribution_is_the_same_for_the_same_seed_and_sums_to_one() -> None:
    for count in (2, 3, 8, 255):
        for seed in range(50):
            shares = distribution(str(seed), count)
            assert shares == distribution(str(seed), count)
            assert sum(shares) == pytest.approx(1)
            assert all(0 <= share <= 1 for share in shares)


def test_the_distribution_of_a_seed_is_pinned() -> None:
    # Answers must not change between versions of the simulator: recorded demos and benchmarks compare them.
    assert distribution("1:0", 3) == [0.6323, 0.1559, 0.2118]


def test_similar_questions_spread_over_the_variants() -> None:
    seen = {variant_of(b'{"hp":%d}' % number, 5) for number in range(2_000)}
    assert len(seen) > VARIANTS * 0.95
    assert all(0 <= variant < VARIANTS for variant in seen)


def test_the_options_count_as_much_as_the_instructions() -> None:
    assert len({variant_of(b"What next?", seed) for seed in range(1_000)}) > VARIANTS * 0.9


def test_confidence_is_the_formula() -> None:
    assert confidence([0.75, 0.25]) == 0.5
    assert confidence([0.5, 0.25, 0.25]) == 0.25
    assert confidence([1.0]) == 1


def test_strings_count_as_read_and_the_rest_as_written() -> None:
    assert seen_chars(b'"a\\u00e9\\n"') == 3
    assert seen_chars(b'{"a": 1}') == 8
    assert seen_chars('{"é":1}'.encode()) == 7


def test_a_quota_grants_a_second_at_once_and_then_its_rate() -> None:
    quota = Quota()
    assert [quota.take(1, 2, 100.0) for _ in range(3)] == [0, 0, 0.5]
    assert quota.take(1, 2, 100.5) == 0
    assert quota.take(1, 2, 100.6) == pytest.approx(0.4)


def test_a_quota_saves_up_no_more_than_a_second() -> None:
    quota = Quota()
    quota.take(1, 2, 100.0)
    assert [quota.take(1, 2, 200.0) for _ in range(3)] == [0, 0, 0.5]


def test_a_quota_of_zero_grants_everything() -> None:
    assert Quota().take(10**9, 0, 1.0) == 0


def test_one_request_larger_than_the_quota_passes_and_is_paid_for_later() -> None:
    quota = Quota()
    assert quota.take(300, 100, 50.0) == 0
    assert quota.take(1, 100, 50.0) == pytest.approx(2.01)
    assert quota.take(1, 100, 52.5) == 0


def test_a_changed_rate_starts_full() -> None:
    quota = Quota()
    quota.take(1, 1, 10.0)
    assert quota.take(1, 1, 10.0) > 0
    assert quota.take(5, 5, 10.0) == 0


def test_dice_fall_by_share_and_seed() -> None:
    assert not any(Dice(1).falls(0.0) for _ in range(100))
    assert all(Dice(seed).falls(1.0) for seed in range(100))
    dice = Dice(3)
    assert 150 < sum(dice.falls(0.2) for _ in range(1_000)) < 250
    assert Dice(5).missing(0.5, 100) == Dice(5).missing(0.5, 100)


def test_a_status_is_drawn_by_its_share() -> None:
    dice = Dice(1)
    drawn = [dice.status({429: 0.25, 500: 0.25}) for _ in range(2_000)]
    assert 400 < drawn.count(429) < 600
    assert 400 < drawn.count(500) < 600
    assert drawn.count(None) > 800
    assert dice.status({}) is None


def test_jitter_adds_to_the_latency() -> None:
    dice = Dice(1)
    delays = [dice.delay_ms(Faults(latency_ms=10, jitter_ms=5)) for _ in range(500)]
    assert min(delays) >= 10
    assert max(delays) <= 15
    assert max(delays) - min(delays) > 4
    assert dice.delay_ms(Faults(latency_ms=10)) == 10


@pytest.mark.parametrize("how", MALFORMATIONS)
def test_every_malformation_changes_the_reply(how: str) -> None:
    reply = b'{"answers":{"q1":{"choice":"a","probabilities":{"a":0.6,"b":0.4}}}}'
    assert spoilt(reply, how) != reply  # type: ignore[arg-type]


def test_a_reset_keeps_what_is_in_flight() -> None:
    stats = Stats()
    stats.enter()
    stats.requests = 5
    stats.count_status(200)
    stats.reset()
    assert (stats.requests, stats.by_status, stats.in_flight, stats.peak_in_flight) == (0, {}, 1, 1)
    stats.leave()
    assert stats.in_flight == 0
