"""What a run cost and what would make it faster, read from its own records and the cards' readings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.domain.advice import Basis
from backend.domain.gpu import Device
from backend.domain.job import JobState
from backend.errors import InvalidInput, NotFound
from backend.planning.spec import parse_spec
from backend.services.api import Api
from backend.services.forecast import Forecaster
from backend.services.gpus import open_gpus
from backend.services.run_speed import MEASURED_SHARE, RunSpeed, open_comparisons
from backend.services.views import Views
from backend.settings import load_settings
from tests.job_folders import add_job, open_api
from tests.recorder_files import RecorderFiles
from tests.unit.test_comparison import GPU, measured
from tests.unit.test_forecast_view import CONFIG

CARD = Device(id=GPU, vendor="amd", name="AMD Instinct MI300X", gfx_target="gfx942", vram_total_bytes=192 << 30)


def speed_of(api: Api) -> RunSpeed:
    return RunSpeed(Views(api), Forecaster(api.settings, api.paths, api.environments), lambda: (CARD,))


def add_run(api: Api, steps: int = 40, devices: tuple[str, ...] = (GPU,), spec: str = "", **step: float) -> None:
    paths = add_job(
        api, "a", JobState.SUCCEEDED, ended_at=999_990.0 + 3600, devices=devices, max_steps=steps, step=steps
    )
    model = paths.root / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    paths.spec.write_text(spec or f"model_name_or_path: {model}\nstage: sft\nfinetuning_type: lora\nbf16: true\n")
    files = RecorderFiles(paths.recorder)
    files.start(max_steps=steps)
    for number in range(1, steps + 1):
        files.step(number, **step)  # type: ignore[arg-type]
    files.log(steps, epoch=2.0, loss=1.0)
    files.finish(steps, max_steps=steps)


def test_cost_is_of_time_energy_and_prices_and_names_its_sources(tmp_path: Path) -> None:
    api = open_api(tmp_path, price_gpu_hour=2.0, price_kwh=10.0, currency="EUR", card_prices=(("H100", 4.0),))
    add_run(api, tokens=1000)
    measured(api, "a", watts=720)
    found = speed_of(api).cost("a")
    assert found.cost is not None and found.missing == () and found.energy_estimate
    kwh = 720 * 110 / 3.6e6
    assert found.cost.total == pytest.approx(2.0 + 10 * kwh)
    assert found.cost.per_million_tokens == pytest.approx((2.0 + 10 * kwh) / 0.04)
    assert found.cost.per_epoch == pytest.approx((2.0 + 10 * kwh) / 2)
    assert found.cost.projected == pytest.approx(found.cost.total)
    assert any("estimate" in source for source in found.cost.sources)
    here, *others = found.offers
    assert here.source.startswith("measured") and here.place == "MI300X"
    assert here.kwh == pytest.approx(kwh) and here.cost == pytest.approx(found.cost.total)
    by_name = {offer.place: offer for offer in others}
    assert by_name["H100"].cost is not None and by_name["H200"].cost is None, "another card's price is never guessed"
    assert all("estimate" in offer.source for offer in others)


def test_without_a_card_or_a_price_there_is_no_cost_and_it_says_why(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api, devices=())
    add_job(api, "waiting", JobState.QUEUED, devices=(GPU,))
    add_job(api, "plain", JobState.RUNNING, devices=(GPU,))
    speed = speed_of(api)
    assert speed.cost("a").missing == ("no_gpu",)
    assert speed.cost("waiting").missing == ("not_started",)
    plain = speed.cost("plain")
    assert plain.cost is not None and plain.cost.total is None and plain.missing == ("no_price", "no_telemetry")


def test_time_spent_waiting_for_data_is_measured_and_can_be_applied(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api, seconds=0.05)  # the recorder's files say 0.01 s of waiting in each
    speed = speed_of(api)
    found = speed.advice("a")
    waiting = next(advice for advice in found.advices if advice.code == "data_wait")
    assert found.ready and waiting.basis is Basis.MEASURED
    assert waiting.gain == pytest.approx(1 / 0.8, rel=0.02)
    assert parse_spec(speed.apply("a", "data_wait")).train["dataloader_num_workers"] == 2
    with pytest.raises(NotFound):
        speed.apply("a", "nothing_like_this")


def test_a_run_is_not_judged_before_it_has_steps_and_mfu_needs_a_known_card(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api, steps=3, tokens=1000)
    found = speed_of(api).advice("a")
    assert not found.ready and not any(advice.basis is Basis.MEASURED for advice in found.advices)
    assert found.mfu is not None and 0 < found.mfu < 1
    api.jobs.update("a", devices=())
    assert speed_of(api).advice("a").mfu is None


def test_jobs_that_are_no_training_get_no_advice(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api, spec="tunedeck:\n  task: bench\n")
    assert speed_of(api).advice("a").advices == ()


def test_prices_of_other_cards_are_read_and_a_wrong_one_is_named() -> None:
    assert load_settings({"TUNEDECK_CARD_PRICES": "H100=2.5, MI300X = 1.99"}).card_prices == (
        ("H100", 2.5),
        ("MI300X", 1.99),
    )
    for wrong in ("H100=cheap", "H100", "=3", "H100=-1"):
        with pytest.raises(InvalidInput, match="TUNEDECK_CARD_PRICES"):
            load_settings({"TUNEDECK_CARD_PRICES": wrong})


def test_shares_of_time_and_tokens_are_measured_and_missing_ones_are_none(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api, tokens=100)
    shares = speed_of(api).advice("a").shares
    assert shares.padding == pytest.approx(0.2), "the recorder's files have 25 padding positions beside 100 tokens"
    assert shares.data_wait is not None and 0 <= shares.data_wait < 1
    assert shares.pauses == 0.0
    assert shares.truncated is None, "no data set was counted"


def test_profile_of_the_run_is_told_and_stands_beside_the_estimates(tmp_path: Path) -> None:
    api = open_api(tmp_path)
    add_run(api)
    paths = api.job_paths("a")
    spec = f"model_name_or_path: {paths.root / 'model'}\nstage: sft\nfinetuning_type: lora\nbf16: true\noptim: adamw_torch\n"
    paths.spec.write_text(spec)
    paths.profile.mkdir(exist_ok=True)
    answer = {
        "at": 9.0,
        "rank": 0,
        "from": 7,
        "to": 9,
        "window_seconds": 2.0,
        "busy_seconds": 1.0,
        "device": "accelerator",
    }
    (paths.profile / "rank-0.json").write_text(json.dumps(answer | {"categories": {"optimizer": 0.5}}))
    found = speed_of(api).advice("a")
    assert (found.shares.idle, found.shares.communication, found.shares.profiled_steps) == (0.5, None, "7-9")
    by_code = {advice.code: advice for advice in found.advices}
    assert by_code["gpu_idle"].basis is Basis.MEASURED
    assert by_code["optimizer_not_fused"].evidence[MEASURED_SHARE] == 0.25


def test_command_line_report_has_the_same_mfu_as_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = open_api(tmp_path)
    add_run(api, tokens=1000)
    gpus = open_gpus(api.paths)
    monkeypatch.setattr(gpus, "read_devices", lambda: (CARD,))
    (run,) = open_comparisons(api, gpus).compare(["a"]).runs
    assert run.figures["mfu"].value == speed_of(api).utilization("a") and run.figures["mfu"].value is not None
