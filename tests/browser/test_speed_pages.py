"""Tuner, sweeps, memory plan, advice and the speed section of a run in Chromium, on the real server and store."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from backend.domain.job import JobState
from backend.services.gpus import open_gpus
from backend.services.searches import Searches, SearchRow
from backend.services.sweeps import Sweeps
from backend.store.sweeps import Sweep
from tests.browser.conftest import Open, Watch
from tests.browser.test_new_run import HOSTILE, Site, site, tab
from tests.job_folders import add_job
from tests.recorder_files import RecorderFiles
from tests.unit.test_forecast_view import CONFIG

__all__ = ["site", "tab"]
pytestmark = pytest.mark.browser


def store_search(site: Site, state: str = "finished", **more: object) -> str:
    api = site.deck.api
    searches = Searches(api, open_gpus(api.paths))
    record = searches.create(f"model_name_or_path: m\ndataset: d\ntunedeck:\n  name: '{HOSTILE}'\n", 60)
    rows = (
        SearchRow(label="micro 4 x 1, packed 2048", outcome="ok", tokens_per_second=9286.0, spread=0.02, best=True,
                  rows_per_step=14.9, peak_bytes=26 << 30, mfu=0.31, joules_per_token=0.064),
        SearchRow(label="micro 2 x 8", outcome="ok", tokens_per_second=622.0, base=True, rows_per_step=16.0, peak_bytes=16 << 30),
        SearchRow(label="micro 16 x 1", outcome="oom", error=f"OutOfMemoryError: {HOSTILE}"),
    )  # fmt: skip
    done = replace(
        record, state=state, rows=rows, best=rows[0].label, gain=14.9, best_changes={"packing": True}, packs_rows=True,
        base_rows_per_step=16.0, best_rows_per_step=14.9, candidates=20, excluded=1, seconds=58.0, jobs=("trial-1",),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    (searches.root / record.id / "state.json").write_text(json.dumps(asdict(done)))
    (searches.root / record.id / "best.yaml").write_text("model_name_or_path: tuned-model\nstage: sft\n")
    return record.id


def test_a_finished_search_shows_its_table_its_effects_and_opens_in_the_form(site: Site, tab: Tab) -> None:
    search = store_search(site)
    tab.goto(f"{site.base}/tune?id={search}")
    expect(tab.locator(".td-tune-tiles")).to_contain_text("14.9×")
    expect(tab.locator(".td-tune-best")).to_contain_text("9,286")
    expect(tab.locator("tr[data-outcome=oom]")).to_contain_text("out of memory")
    expect(tab.locator(".td-note-info")).to_contain_text("16 now, 14.9 with the best")
    expect(tab.locator(".td-note-info")).to_contain_text("not the same number")
    expect(tab.get_by_role("button", name="Stop the search")).to_be_hidden()
    assert tab.evaluate("window.__pwn") is None
    tab.get_by_role("link", name="Open in the form").click()
    expect(tab.locator("#f-model_name_or_path input, #f-model_name_or_path textarea").first).to_have_value(
        "tuned-model"
    )


def test_a_failed_search_says_why_and_offers_to_launch_only_what_it_measured(site: Site, tab: Tab) -> None:
    search = store_search(site, "failed", message="Killed in the middle.")
    tab.goto(f"{site.base}/tune?id={search}")
    expect(tab.get_by_role("alert")).to_contain_text("Killed in the middle.")
    expect(tab.get_by_role("button", name="Launch the best")).to_be_visible()
    state = Searches(site.deck.api, open_gpus(site.deck.api.paths)).root / search / "state.json"
    nothing = {"rows": [], "best": "", "gain": None, "message": "The model is not there."}
    state.write_text(json.dumps({**json.loads(state.read_text()), **nothing}))
    tab.goto(f"{site.base}/zh/tune?id={search}")
    expect(tab.get_by_role("alert")).to_contain_text("The model is not there.")
    expect(tab.get_by_role("button", name="启动最佳设置")).to_be_hidden()
    tab.goto(f"{site.base}/tune")
    expect(tab.locator("tbody tr").first).to_be_visible()


@pytest.mark.parametrize(("path", "words"), [("tune", "No such search"), ("sweep", "No such sweep")])
def test_what_is_not_there_is_said(site: Site, open_page: Open, watch: Watch, path: str, words: str) -> None:
    watch.expected = ("404",)
    page = open_page(f"{site.base}/{path}?id=nope")
    expect(page.locator("h1")).to_have_text(words)


def test_a_sweep_compares_its_runs_as_table_and_lines(site: Site, tab: Tab) -> None:
    api = site.deck.api
    for number, loss in enumerate((1.0, 2.0, 3.0), 1):
        paths = add_job(api, f"swept-{number}", JobState.SUCCEEDED, ended_at=999_999.0)
        files = RecorderFiles(paths.recorder)
        files.start()
        files.step(1, loss=loss)
    jobs = {f"swept-{number}": {"learning_rate": 10.0**-number, "optim": HOSTILE} for number in (1, 2, 3)}
    sweep = Sweep(id="s-1", name="Demo", created_at=1e6, keys=("learning_rate", "optim"), early_stop=False, jobs=jobs)
    folder = Sweeps(api).store.root
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s-1.json").write_text(json.dumps(asdict(sweep)))
    tab.goto(f"{site.base}/sweep?id=s-1")
    expect(tab.locator(".td-par-line")).to_have_count(3)
    expect(tab.locator(".td-sweep-table tbody tr").first).to_contain_text("swept-1")
    expect(tab.locator(".td-tune-best")).to_contain_text("best")
    tab.locator(".td-sweep-table tbody tr").nth(2).hover()
    expect(tab.locator(".td-par-here")).to_have_attribute("data-job", "swept-3")
    assert tab.evaluate("window.__pwn") is None
    tab.goto(f"{site.base}/zh/sweep")
    expect(tab.locator("tbody tr")).to_contain_text("learning_rate")


def test_the_panel_shows_memory_and_advice_and_applies_all_of_it(site: Site, tab: Tab) -> None:
    model = site.deck.settings.data_dir / "shape"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    demo = site.deck.settings.data_dir / "demo" / "data"
    text = (
        f"model_name_or_path: {model}\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: demo\ndataset_dir: {demo}\n"
        "template: llama3\nbf16: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\noptim: adamw_torch\n"
    )
    tab.goto(f"{site.base}/new")
    expect(tab.locator("#new-presets .td-new-card").first).to_be_visible()
    tab.evaluate("text => sessionStorage.setItem('td-draft:' + location.search, text)", text)
    tab.reload()
    expect(tab.locator(".td-mem-value")).to_contain_text("per GPU")
    expect(tab.locator(".td-mem-part").first).to_be_visible()
    advice = tab.locator("[data-advice=optimizer_not_fused]")
    advice.locator("summary").click()
    advice.get_by_role("button", name="Apply").click()
    expect(advice).to_have_count(0)
    expect(tab.locator("#new-notice")).to_contain_text("faster settings")


def test_a_runs_speed_section_says_what_is_missing(site: Site, tab: Tab) -> None:
    paths = add_job(site.deck.api, "slow", JobState.SUCCEEDED, ended_at=999_999.0)
    files = RecorderFiles(paths.recorder)
    files.start()
    for step in range(1, 31):
        files.step(step, seconds=0.05, loss=1.0)
    tab.goto(f"{site.base}/run?id=slow&tab=speed")
    expect(tab.locator(".td-speed")).to_contain_text("uses no GPU")
    waiting = tab.locator("[data-advice=data_wait]")
    expect(waiting).to_contain_text("1.2×")
    waiting.locator("summary").click()
    waiting.get_by_role("button", name="New run with this change").click()
    expect(tab).to_have_url(f"{site.base}/new?clone=slow")


def test_refused_second_search_stays_said_and_leads_to_the_first(site: Site, open_page: Open, watch: Watch) -> None:
    watch.expected = ("409",)
    search = Searches(site.deck.api, open_gpus(site.deck.api.paths))
    made = search.create("model_name_or_path: m\ndataset: d\ntunedeck:\n  name: first\n", 60)
    state = search.root / made.id / "state.json"
    record = json.loads(state.read_text())
    state.write_text(json.dumps({**record, "created_at": 4e9}))  # is being started, as far as anybody can see
    tab = open_page(f"{site.base}/new")
    tab.get_by_text("Demo on the CPU, one process").click()
    expect(tab.locator("#new-notice")).to_contain_text("is loaded")
    tab.wait_for_function("document.querySelector('.td-new-numbers')?.textContent.includes('200')")
    tab.get_by_role("button", name="Tune first").click()
    refused = tab.locator(".td-new-tune-bad")
    expect(refused).to_contain_text("at work on first")
    tab.wait_for_timeout(3500)  # the panel asks again every 1.5 s
    expect(refused).to_contain_text("at work on first")
    expect(refused.get_by_role("link", name="Look at it")).to_have_attribute("href", re.compile("/tune$"))
    state.write_text(json.dumps({**record, "state": "stopped"}))


@pytest.mark.parametrize(
    ("prefix", "tag", "title", "link"),
    [
        ("", "host-check", "A check has no curves", "Figures on the GPUs page"),
        ("", "tuning:t-1", "Short trials have no curves", "Its tuning search"),
        ("/zh", "tuning:t-1", "短试验没有曲线", "所属调优搜索"),
    ],
)
def test_jobs_that_are_no_training_say_where_their_figures_are(
    site: Site, tab: Tab, prefix: str, tag: str, title: str, link: str
) -> None:
    job = f"no-training-{tag.partition(':')[0]}-{len(prefix)}"
    add_job(site.deck.api, job, JobState.RUNNING, tags=(tag, "plain"), devices=())
    tab.goto(f"{site.base}{prefix}/run?id={job}")
    expect(tab.get_by_text(title)).to_be_visible()
    target = "gpus" if tag == "host-check" else "tune?id=t-1"
    expect(tab.get_by_role("link", name=link).first).to_have_attribute("href", re.compile(re.escape(target)))
    expect(tab.locator(".td-tiles")).to_be_hidden()
    for words in ("Clone and edit", "Compare", "克隆并编辑", "对比"):
        expect(tab.get_by_role("link", name=words, exact=True)).to_be_hidden()
        expect(tab.get_by_role("button", name=words, exact=True)).to_be_hidden()
    if not prefix:
        tab.get_by_role("button", name="Stop", exact=True).click()
        choices = tab.get_by_role("dialog").get_by_role("radio")
        expect(choices).to_have_count(2)  # nothing to save
    site.deck.api.jobs.update(job, state=JobState.CANCELLED)


def test_line_of_a_search_leads_to_the_run_that_measured_it_and_a_stopped_one_can_be_repeated(
    site: Site, tab: Tab
) -> None:
    search = store_search(site, "stopped", message="stopped by a person")
    state = Searches(site.deck.api, open_gpus(site.deck.api.paths)).root / search / "state.json"
    record = json.loads(state.read_text())
    record["rows"][0] |= {"job": "trial-1", "energy_spread": 0.03}
    state.write_text(json.dumps(record))
    tab.goto(f"{site.base}/tune?id={search}")
    expect(tab.get_by_role("link", name="micro 4 x 1, packed 2048")).to_have_attribute(
        "href", re.compile("run\\?id=trial-1")
    )
    expect(tab.locator(".td-tune-best .td-tune-energy")).to_contain_text("± 3%")
    expect(tab.get_by_text("17 more candidates were not measured.")).to_be_visible()
    expect(tab.get_by_role("button", name="Search again")).to_be_visible()


def test_sweep_started_from_a_run_says_how_many_runs_it_makes_before_it_starts(site: Site, tab: Tab) -> None:
    add_job(site.deck.api, "varied", JobState.SUCCEEDED, ended_at=999_999.0)
    tab.goto(f"{site.base}/run?id=varied")
    tab.get_by_role("button", name=re.compile("^Sweep: train")).click()
    box = tab.get_by_role("dialog")
    expect(box).to_contain_text("That makes 6 runs.")
    lines = box.get_by_role("textbox")
    lines.fill("learning_rate = 1e-5..1e-3:log\nseed: 1，2")
    expect(box).to_contain_text("needs a number of runs to draw")
    box.get_by_role("spinbutton").fill("5")
    expect(box).to_contain_text("Draws 5 different runs.")
    lines.fill("seed = 1\nseed = 2")
    expect(box).to_contain_text("A setting is named twice")


def test_the_table_of_a_sweep_is_sorted_by_any_column_with_unknown_figures_last(site: Site, tab: Tab) -> None:
    api = site.deck.api
    for number, loss in enumerate((2.0, 1.0, None), 1):
        paths = add_job(api, f"sorted-{number}", JobState.SUCCEEDED, ended_at=999_999.0)
        if loss is not None:
            files = RecorderFiles(paths.recorder)
            files.start()
            files.step(1, loss=loss)
    jobs = {f"sorted-{number}": {"seed": 10 * number} for number in (1, 2, 3)}
    sweep = Sweep(id="s-2", name="Demo", created_at=1e6, keys=("seed",), early_stop=False, jobs=jobs)
    folder = Sweeps(api).store.root
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s-2.json").write_text(json.dumps(asdict(sweep)))
    tab.goto(f"{site.base}/sweep?id=s-2")
    names = tab.locator(".td-sweep-table tbody tr td:first-child a")
    expect(names).to_have_text(["sorted-2", "sorted-1", "sorted-3"])
    tab.get_by_role("button", name="seed").click()
    expect(names).to_have_text(["sorted-1", "sorted-2", "sorted-3"])
    tab.get_by_role("button", name="seed").click()
    expect(names).to_have_text(["sorted-3", "sorted-2", "sorted-1"])
    heading = tab.get_by_role("button", name="Loss", exact=True)
    heading.click()
    heading.click()
    expect(names).to_have_text(["sorted-1", "sorted-2", "sorted-3"])  # highest first, the unknown last all the same
    expect(tab.get_by_role("link", name="Open the best in the form")).to_have_attribute(
        "href", re.compile("clone=sorted-2")
    )
    expect(tab.get_by_role("link", name="Compare the curves")).to_have_attribute("href", re.compile("sorted-1"))


@pytest.mark.parametrize(
    ("prefix", "facts", "help_text", "button"),
    [
        ("", "2 runs were never queued", "4 runs go on from their last checkpoint", "Resume"),
        ("/zh", "2 次运行未曾入队", "4 次运行将从最后的检查点继续", "继续"),
    ],
)
def test_a_stopped_sweep_says_what_a_resume_brings_back(
    site: Site, tab: Tab, prefix: str, facts: str, help_text: str, button: str
) -> None:
    api, store = site.deck.api, Sweeps(site.deck.api).store
    states = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.LOST, JobState.FAILED)
    names = [f"halted-{len(prefix)}-{state.value}" for state in states]
    for name, state in zip(names, states, strict=True):
        add_job(api, name, state, ended_at=999_999.0)
    store.save(
        Sweep(
            id=f"s-halted{len(prefix)}", name="Demo", created_at=1e6, keys=("seed",), early_stop=False,
            jobs={name: {"seed": at} for at, name in enumerate(names)}, waiting={"5": {"seed": 5}, "6": {"seed": 6}},
        )
    )  # fmt: skip
    store.halt(f"s-halted{len(prefix)}")
    tab.goto(f"{site.base}{prefix}/sweep?id=s-halted{len(prefix)}")
    expect(tab.get_by_text(facts)).to_be_visible()
    tab.get_by_role("button", name=button, exact=True).click()
    box = tab.get_by_role("dialog")
    expect(box).to_contain_text(help_text)
    expect(box.get_by_role("checkbox")).not_to_be_checked()  # the failed one only when asked to


def test_ticks_of_a_sweeps_axis_do_not_cover_each_other(site: Site, tab: Tab) -> None:
    api = site.deck.api
    losses = (7.124, 7.213, 8.209, 8.239)
    for number, loss in enumerate(losses, 1):
        files = RecorderFiles(add_job(api, f"near-{number}", JobState.SUCCEEDED, ended_at=999_999.0).recorder)
        files.start()
        files.step(1, loss=loss)
    jobs = {f"near-{number}": {"seed": number} for number in range(1, 5)}
    Sweeps(api).store.save(Sweep(id="s-near", name="Demo", created_at=1e6, keys=("seed",), early_stop=False, jobs=jobs))
    tab.goto(f"{site.base}/sweep?id=s-near")
    expect(tab.locator(".td-par-line")).to_have_count(4)
    ticks = tab.locator(".td-par-tick").evaluate_all(
        "all => all.map(one => [+one.getAttribute('x'), +one.getAttribute('y')])"
    )
    assert len(ticks) == 4 + 3, "8.209 lies too near to the upper end"
    assert all(one == other or one[0] != other[0] or abs(one[1] - other[1]) >= 14 for one in ticks for other in ticks)


@pytest.mark.parametrize(
    ("line", "words"),
    [("", "settings from an earlier run"), ("resume_from_checkpoint: /x/checkpoint-5\n", "continues an earlier run")],
)
def test_a_clone_does_not_claim_to_continue_its_parent(site: Site, tab: Tab, line: str, words: str) -> None:
    name = f"child-{len(line)}"
    add_job(site.deck.api, name, JobState.CANCELLED, ended_at=999_999.0, parent="varied").spec.write_text(
        f"stage: sft\n{line}"
    )
    tab.goto(f"{site.base}/run?id={name}")
    expect(tab.locator(".td-parent")).to_have_text(words)
