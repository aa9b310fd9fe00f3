import numpy as np

from backend.services.energy import read_energy
from backend.store.telemetry import History


class Telemetry:
    """Ten minutes at one sample a second: card a has a counter, b only power, c reports nothing."""

    def history(self, device: str, key: str, start: float, end: float, px: int = 1000) -> History:
        times = np.arange(start, end + 1)
        known = {
            ("a", "energy_joules"): 500 + 400 * (times - start),
            ("b", "socket_power_watts"): np.full(len(times), 200.0),
        }
        values = known.get((device, key), np.full(len(times), np.nan))
        return History(step_seconds=1, times=times, mean=values, low=values, high=values)


def test_devices_are_added_up_from_counter_or_power() -> None:
    energy = read_energy(Telemetry(), ["a", "b"], 0.0, 100.0)
    assert energy is not None
    assert round(energy.joules) == 400 * 100 + 200 * 100
    assert energy.source == "power" and energy.covered == 1.0
    only = read_energy(Telemetry(), ["a"], 0.0, 100.0)
    assert only is not None and only.source == "counter"


def test_one_device_without_readings_makes_the_sum_unknown() -> None:
    assert read_energy(Telemetry(), ["a", "c"], 0.0, 100.0) is None
    assert read_energy(Telemetry(), [], 0.0, 100.0) is None
