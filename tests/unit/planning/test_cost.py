import pytest

from backend.planning.cards import find_card
from backend.planning.cost import Place, PowerSample, Prices, Use, compare_places, count_cost, measure_energy


def test_counter_differences_win_over_integrated_power() -> None:
    samples = [PowerSample(at=float(t), watts=100.0, energy_joules=1000.0 + 300 * t) for t in range(11)]
    energy = measure_energy(samples, 0, 10)
    assert energy is not None
    assert (energy.joules, energy.source, energy.covered) == (3000, "counter", 1.0)


def test_counter_that_was_reset_is_not_bridged() -> None:
    readings = [(0, 5000.0), (5, 6000.0), (10, 100.0), (15, 1100.0)]
    energy = measure_energy([PowerSample(at=float(t), energy_joules=e) for t, e in readings], 0, 15)
    assert energy is not None
    assert energy.joules == 2000
    assert energy.covered == pytest.approx(10 / 15)


def test_power_is_integrated_and_long_gaps_are_left_out() -> None:
    samples = [PowerSample(at=t, watts=w) for t, w in ((0.0, 100.0), (10.0, 300.0), (100.0, 300.0), (110.0, 300.0))]
    energy = measure_energy(samples, 0, 110)
    assert energy is not None
    assert energy.joules == 2000 + 3000
    assert energy.covered == pytest.approx(20 / 110)


def test_without_readings_energy_is_unknown_not_zero() -> None:
    assert measure_energy([], 0, 10) is None
    assert measure_energy([PowerSample(at=5.0, watts=None)], 0, 10) is None
    assert measure_energy([PowerSample(at=5.0, watts=100.0)], 0, 10) is None


def test_cost_names_its_parts_and_projects_the_total() -> None:
    use = Use(gpu_seconds=7200, joules=7.2e6, tokens=4_000_000, epochs=0.5, progress=0.25, energy_source="counter")
    cost = count_cost(use, Prices(gpu_hour=3.0, kwh=0.5, currency="EUR", overhead=1.5))
    assert cost.kwh == pytest.approx(3.0)
    assert cost.total == pytest.approx(6.0 + 1.5)
    assert cost.per_million_tokens == pytest.approx(7.5 / 4)
    assert cost.per_epoch == pytest.approx(15)
    assert cost.projected == pytest.approx(30)
    assert cost.joules_per_token == pytest.approx(1.8)
    assert cost.parts == ("gpu_hours", "energy")


def test_what_has_no_price_has_no_cost() -> None:
    cost = count_cost(Use(gpu_seconds=3600, joules=1e6, tokens=10), Prices())
    assert (cost.total, cost.per_million_tokens, cost.projected) == (None, None, None)
    assert cost.gpu_hours == 1
    only_time = count_cost(Use(gpu_seconds=3600), Prices(gpu_hour=2.0, kwh=0.3))
    assert (only_time.total, only_time.kwh, only_time.parts) == (2.0, None, ("gpu_hours",))


def test_other_places_say_how_their_pace_is_known() -> None:
    mi300x, h200, mi210 = (find_card(name) for name in ("MI300X", "H200", "MI210"))
    assert mi300x and h200 and mi210
    here = Place(name="here", card=h200, gpus=1, prices=Prices(gpu_hour=4.0), measured_rate=10_000.0)
    there = Place(name="there", card=mi300x, gpus=2, prices=Prices(gpu_hour=2.0))
    old = Place(name="old", card=mi210, gpus=1, prices=Prices())
    own = Place(name="own", card=mi300x, gpus=1, prices=Prices(kwh=0.2), measured_rate=9_000.0)
    offers = {offer.place: offer for offer in compare_places(3.6e7, here, [there, old, own])}
    assert offers["here"].seconds == 3600 and offers["here"].cost == 4.0
    assert offers["there"].source.startswith("estimate: scaled by largest measured matmul")
    assert offers["there"].seconds == pytest.approx(3600 * 794 / 668 / 2)
    assert "peak" in offers["old"].source and offers["old"].cost is None
    assert offers["own"].source.startswith("measured")


def test_comparison_without_a_measured_pace_is_refused() -> None:
    card = find_card("MI300X")
    assert card is not None
    with pytest.raises(ValueError, match="measured"):
        compare_places(1.0, Place(name="x", card=card, gpus=1, prices=Prices()), [])
