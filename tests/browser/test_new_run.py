"""The New run page in Chromium, on the real server and store, with a stand-in for the training environment."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, expect
from playwright.sync_api import Page as Tab

from backend.domain.events import CheckpointSaved
from backend.domain.job import Job, JobState
from backend.services.form import FormService
from backend.services.views import Views
from backend.store.events import append_event
from tests.checkpoint_files import write_checkpoint
from tests.integration.conftest import Deck, make_deck
from tests.job_folders import add_job
from ui.assets import asset_url
from ui.layout import build_pages, page_css, prefix_of
from ui.server import Page, create_app
from ui.text import LANGUAGES
from ui.theme import build_theme

pytestmark = pytest.mark.browser
DEMO = '[data-preset="demo/cpu_sft_lora"] .td-new-card-pick'
HOSTILE = "<img src=x onerror=window.__pwn=1> ${1+1} {{7*7}}"
PATIENCE = 15_000


@dataclass
class Site:
    """A dashboard at `base`, and the installation behind it."""

    base: str
    deck: Deck

    def jobs(self) -> list[Job]:
        return self.deck.api.list_jobs(limit=500)[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    deck = make_deck(tmp_path_factory.mktemp("site"))
    make_demo(deck.settings.data_dir / "demo")
    api = deck.api
    pages = {
        prefix_of(lang) or "/": Page(
            blocks=build_pages(lang, asset_url=asset_url, form=FormService(api)), theme=build_theme(), css=page_css()
        )
        for lang in LANGUAGES
    }
    listener = socket.create_server(("127.0.0.1", 0))
    app = create_app(api, Views(api), pages, deck.settings)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", deck)
    server.should_exit = True
    thread.join(10)
    deck.close()


def make_demo(folder: Path) -> None:
    """What scripts/make_demo.py makes, as far as a preview looks at it."""
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "data").mkdir()
    names = ("demo", "demo_chat", "demo_preference")
    (folder / "data" / "dataset_info.json").write_text(
        json.dumps({name: {"file_name": f"{name}.json"} for name in names})
    )
    for name in names:
        (folder / "data" / f"{name}.json").write_text('[{"instruction": "a", "input": "", "output": "b"}]')


@pytest.fixture
def tab(browser: Browser, site: Site) -> Iterator[Tab]:
    """A fresh browser profile; fails the test on errors of the page and on requests to other machines."""
    faults: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 950})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: faults.append(f"page: {error}"))
    # Gradio reports its own closed streams as errors when a page is left.
    page.on("console", lambda message: faults.append(message.text) if complains(message) else None)
    page.on("request", lambda request: faults.append(request.url) if away(request.url, site.base) else None)
    yield page
    context.close()
    assert faults == []


def complains(message: ConsoleMessage) -> bool:
    ended = ("AbortError", "Connection errored out", "net::ERR_ABORTED")
    return message.type == "error" and not any(word in message.text for word in ended)


def away(url: str, base: str) -> bool:
    return not url.startswith((base, base.replace("http", "ws"), "data:", "blob:"))


def open_new(tab: Tab, site: Site, query: str = "", prefix: str = "") -> None:
    tab.goto(f"{site.base}{prefix}/new{query}")
    tab.wait_for_selector(".td-new-state-line")


def show_yaml(tab: Tab) -> None:
    tab.click('#new-tabs [role="tab"] >> nth=1')
    tab.wait_for_selector("#new-yaml .cm-content")


def show_form(tab: Tab) -> None:
    tab.click('#new-tabs [role="tab"] >> nth=0')


def yaml_of(tab: Tab) -> str:
    """The whole document in the editor (which draws only the lines in view)."""
    tab.wait_for_selector("#new-yaml .cm-content")
    return str(tab.evaluate("document.querySelector('#new-yaml .cm-content').cmTile.view.state.doc.toString()"))


def wait_for_yaml(tab: Tab, words: str) -> None:
    tab.wait_for_function(
        "words => document.querySelector('#new-yaml .cm-content')?.cmTile.view.state.doc.toString().includes(words)",
        arg=words,
    )


def write_yaml(tab: Tab, text: str) -> None:
    show_yaml(tab)
    tab.click("#new-yaml .cm-content")
    tab.keyboard.press("Control+A")
    tab.keyboard.insert_text(text)


def test_newcomer_launches_the_demo_with_two_clicks(tab: Tab, site: Site) -> None:
    before = len(site.jobs())
    open_new(tab, site)
    expect(tab.locator("#new-launch")).to_be_disabled()
    expect(tab.locator("#new-launch")).to_have_text("Choose a model")
    tab.click(DEMO)
    expect(tab.locator("#new-launch")).to_be_enabled()
    tab.click("#new-launch")
    tab.wait_for_url("**/run?id=*")
    job = site.jobs()[0]
    assert len(site.jobs()) == before + 1
    assert tab.url.endswith(f"/run?id={job.id}")
    assert (job.name, job.dataset) == ("demo-lora", "demo,demo_chat")


def test_launch_pressed_many_times_starts_one_job(tab: Tab, site: Site) -> None:
    before = len(site.jobs())
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    expect(tab.locator("#new-launch")).to_be_enabled()
    tab.evaluate(
        "() => { const button = document.getElementById('new-launch'); for (let i = 0; i < 6; i++) button.click(); }"
    )
    tab.wait_for_url("**/run?id=*")
    time.sleep(1.0)
    assert len(site.jobs()) == before + 1


def test_form_and_yaml_are_two_views_of_one_document(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    tab.fill("#f-learning_rate input", "2e-4")
    tab.fill("#f-lora_rank input", "32")
    tab.click("#f-packing input")
    tab.fill("#f-gradient_accumulation_steps input", "5")
    expect(tab.locator(".td-new-numbers")).to_contain_text("4 micro batch × 5 accumulation × 1 process")
    show_yaml(tab)
    wait_for_yaml(tab, "gradient_accumulation_steps: 5")
    text = yaml_of(tab)
    assert "learning_rate: 2.0e-4" in text
    assert "lora_rank: 32" in text
    assert "packing: true" in text
    assert "gradient_accumulation_steps: 5" in text
    assert "# bf16 without a GPU works only with this" in text

    write_yaml(tab, text.replace("lora_rank: 32", "lora_rank: 64   # mine\nmade_up_key: false"))
    expect(tab.locator("#new-panel")).to_contain_text("made_up_key")
    show_form(tab)
    expect(tab.locator("#f-lora_rank input")).to_have_value("64")
    tab.fill("#f-lora_rank input", "128")
    show_yaml(tab)
    wait_for_yaml(tab, "lora_rank: 128   # mine")
    assert "made_up_key: false" in yaml_of(tab)


def test_bad_yaml_names_line_and_column_and_leaves_the_form_alone(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    show_yaml(tab)
    good = yaml_of(tab)
    write_yaml(tab, good.replace("stage: sft", "stage: [sft"))
    notice = tab.locator("#new-notice")
    expect(notice).to_contain_text("cannot be read: line 10, column")
    tab.click("#new-notice >> text=Show the line")
    expect(tab.locator(".cm-line.td-new-line")).to_contain_text("do_train")
    expect(tab.locator("#new-launch")).to_be_disabled()
    expect(tab.locator("#new-launch")).to_have_text("Correct the YAML")
    show_form(tab)
    expect(tab.locator("#f-lora_rank input")).to_have_value("16")
    tab.click("#new-notice >> text=Back to the last readable version")
    expect(tab.locator("#new-launch")).to_be_enabled()
    show_yaml(tab)
    wait_for_yaml(tab, "stage: sft")
    assert yaml_of(tab).strip() == good.strip()


def test_impossible_value_is_named_and_blocks_the_launch(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    tab.fill("#f-learning_rate input", "fast")
    expect(tab.locator("#new-launch")).to_have_text("Correct “Learning rate”")
    expect(tab.locator("#new-launch")).to_be_disabled()
    expect(tab.locator("#new-panel")).to_contain_text("a number, 0 or more")
    tab.fill("#f-learning_rate input", "3e-4")
    expect(tab.locator("#new-launch")).to_be_enabled()


def test_fields_follow_method_and_goal(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    expect(tab.locator("#f-lora_rank")).to_be_visible()
    expect(tab.locator("#f-freeze_trainable_layers")).to_be_hidden()
    tab.click("#f-finetuning_type label:has-text('Freeze')")
    expect(tab.locator("#f-freeze_trainable_layers")).to_be_visible()
    expect(tab.locator("#f-lora_rank")).to_be_hidden()
    expect(tab.locator("#f-quantization_bit")).to_be_hidden()
    tab.click("#f-stage label:has-text('DPO')")
    expect(tab.locator("#f-pref_beta")).to_be_visible()


def test_trainer_is_asked_in_the_background(tab: Tab, site: Site) -> None:
    site.deck.api.environments.describe()
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    panel = tab.locator("#new-panel")
    expect(panel).to_contain_text("The trainer itself finds nothing", timeout=PATIENCE)
    expect(panel).to_contain_text("120 rows")
    expect(panel).to_contain_text("3 of 20 looked at are longer than the sequence length")
    tab.click("#more-output > button")
    tab.fill("#f-run_name input", "refuse")
    expect(panel).to_contain_text("The trainer itself found 1", timeout=PATIENCE)
    expect(panel).to_contain_text("The stand-in refuses this.")


def test_one_click_fixes_a_problem(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    show_yaml(tab)
    write_yaml(tab, yaml_of(tab) + "\nflash_attn: true\n")
    problem = tab.locator(".td-new-problem-error", has_text="flash_attn")
    expect(problem).to_be_visible()
    expect(tab.locator("#new-launch")).to_be_disabled()
    problem.locator("text=Fix it").click()
    expect(problem).to_have_count(0)
    expect(tab.locator("#new-launch")).to_be_enabled()
    assert "flash_attn: true" not in yaml_of(tab)


def test_problem_leads_to_its_setting_in_a_closed_section(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    show_yaml(tab)
    write_yaml(tab, yaml_of(tab) + "\nlora_dropout: 7\n")
    tab.locator(".td-new-problem", has_text="lora_dropout").first.locator("text=Go to the setting").click()
    field = tab.locator("#f-lora_dropout input")
    expect(field).to_be_visible()
    expect(field).to_be_focused()
    expect(field).to_have_value("7")


def test_setting_is_found_by_name(tab: Tab, site: Site) -> None:
    open_new(tab, site)
    tab.fill("#new-find input", "warmup_steps")
    tab.keyboard.press("Enter")
    expect(tab.locator("#f-warmup_steps input")).to_be_focused()


def test_unfinished_form_survives_a_reload_and_a_change_of_language(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    tab.fill("#f-lora_rank input", "48")
    expect(tab.locator("#new-panel")).to_contain_text("train.yaml")
    tab.wait_for_function("() => sessionStorage.getItem('td-draft:' + location.search)?.includes('lora_rank: 48')")
    tab.reload()
    expect(tab.locator("#f-lora_rank input")).to_have_value("48")
    expect(tab.locator("#new-notice")).to_contain_text("Your unfinished form is back")
    open_new(tab, site, "?preset=demo/cpu_sft_lora", prefix="/zh")
    expect(tab.locator("#f-lora_rank input")).to_have_value("48")
    tab.click("#new-notice >> text=重新开始")
    expect(tab.locator("#f-lora_rank input")).to_have_value("16")


def test_preset_can_be_undone(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    tab.fill("#f-lora_rank input", "48")
    tab.wait_for_function("() => sessionStorage.getItem('td-draft:' + location.search)?.includes('lora_rank: 48')")
    tab.click('[data-preset="demo/cpu_sft_lora_zero3_2x"] .td-new-card-pick')
    expect(tab.locator("#f-lora_rank input")).to_have_value("16")
    tab.click("#new-notice >> text=Undo")
    expect(tab.locator("#f-lora_rank input")).to_have_value("48")


def test_clone_and_unknown_runs(tab: Tab, site: Site) -> None:
    job = site.deck.api.submit(site.deck.spec("to-clone"))
    open_new(tab, site, f"?clone={job.id}")
    expect(tab.locator("#new-notice")).to_contain_text(f"A copy of {job.id}")
    expect(tab.locator("#f-tunedeck-name input")).to_have_value("to-clone")
    show_yaml(tab)
    assert f"parent: {job.id}" in yaml_of(tab)
    open_new(tab, site, "?clone=nothing-like-it")
    expect(tab.locator("#new-notice")).to_contain_text("nothing-like-it cannot be loaded")


def test_resume_opens_the_form_at_the_checkpoint(tab: Tab, site: Site) -> None:
    api = site.deck.api
    paths = add_job(api, "run-to-resume", JobState.SUCCEEDED)
    paths.spec.write_text(site.deck.spec("long"))
    folder = write_checkpoint(paths.output, 50)
    append_event(paths.events, CheckpointSaved(at=1.0, step=50, path="checkpoint-50"))
    open_new(tab, site, "?resume=run-to-resume&checkpoint=checkpoint-50")
    expect(tab.locator("#new-notice")).to_contain_text("Goes on from checkpoint-50 of run-to-resume")
    expect(tab.locator("#f-tunedeck-name input")).to_have_value("long-from-50")
    show_yaml(tab)
    wait_for_yaml(tab, f"resume_from_checkpoint: {folder}")
    wait_for_yaml(tab, "parent: run-to-resume")
    open_new(tab, site, "?resume=run-to-resume&checkpoint=checkpoint-7")
    expect(tab.locator("#new-notice")).to_contain_text("checkpoint-7")
    expect(tab.locator("#new-notice")).to_contain_text("cannot be loaded")


def test_hostile_text_is_shown_as_text(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    show_yaml(tab)
    write_yaml(tab, yaml_of(tab) + f"\n'{HOSTILE.replace('$', '')}': 1\nrun_name: '{HOSTILE.replace('$', '')}'\n")
    expect(tab.locator("#new-panel")).to_contain_text("<img src=x")
    write_yaml(tab, f"{HOSTILE}: [")
    expect(tab.locator("#new-notice")).to_contain_text("cannot be read")
    assert tab.evaluate("() => window.__pwn") is None


def test_chinese_page_launches_to_the_chinese_run_page(tab: Tab, site: Site) -> None:
    open_new(tab, site, "", prefix="/zh")
    expect(tab.locator("h1").first).to_have_text("新建任务")
    expect(tab.locator("#new-launch")).to_have_text("请选择模型")
    tab.click(DEMO)
    expect(tab.locator("#new-launch")).to_have_text("启动")
    tab.click("#new-launch")
    tab.wait_for_url("**/zh/run?id=*")


@pytest.mark.parametrize("prefix", ["", "/zh"])
def test_phone_shows_everything_in_one_column(tab: Tab, site: Site, prefix: str) -> None:
    tab.set_viewport_size({"width": 390, "height": 844})
    open_new(tab, site, "?preset=llama-3.3/70b_sft_full_8xmi300x", prefix=prefix)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    expect(tab.locator("#new-launch")).to_be_in_viewport()


def test_no_field_is_lost_between_form_and_text(tab: Tab, site: Site) -> None:
    """Every kind of widget once, in advanced sections too."""
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    for group in ("method", "training", "hardware", "output", "expert", "data"):
        tab.click(f"#more-{group} > button")
    tab.fill("#f-lr_scheduler_kwargs input", "{num_cycles: 2}")
    tab.fill("#f-tunedeck-env textarea", "NCCL_DEBUG=WARN\nA=no")
    tab.fill("#f-extra textarea", "dataloader_persistent_workers: false")
    tab.fill("#f-warmup_steps input", "0.05")
    tab.click("#f-lr_scheduler_type input")
    tab.click("[role=option] >> text=polynomial")
    tab.click("#f-use_dora input")
    tab.fill("#f-dataset input", "demo_preference")
    tab.keyboard.press("Enter")
    expect(tab.locator(".td-new-vars")).to_contain_text("NCCL_DEBUG", use_inner_text=False)
    show_yaml(tab)
    wait_for_yaml(tab, "demo_preference")
    text = yaml_of(tab)
    for line in (
        "lr_scheduler_kwargs:\n  num_cycles: 2\n",
        "NCCL_DEBUG: WARN",
        'A: "no"',
        "dataloader_persistent_workers: false",
        "warmup_steps: 0.05",
        "lr_scheduler_type: polynomial",
        "use_dora: true",
        "dataset: demo,demo_chat,demo_preference",
    ):
        assert line in text, text


def test_every_rule_of_our_style_sheets_reaches_the_page(tab: Tab, site: Site) -> None:
    """Gradio rewrites them: a rule that it breaks is gone without a word."""
    open_new(tab, site)
    gone = tab.evaluate(
        """async (css) => {
          const own = new CSSStyleSheet();
          await own.replace(css);
          const walk = (rules) => [...rules].flatMap((rule) =>
            rule.cssRules?.length && !rule.selectorText ? walk(rule.cssRules) : [rule]);
          const split = (text) => (text ?? "").split(/,(?![^(]*\\))/).map((part) => part.trim()).filter(Boolean);
          const parts = (rule) => split(rule.selectorText).map((one) => one + " { " + rule.style.cssText);
          const readable = (sheet) => { try { return [...sheet.cssRules]; } catch { return []; } };
          const live = walk([...document.styleSheets].flatMap(readable)).flatMap(parts);
          const wanted = walk(own.cssRules).flatMap(parts);
          const bare = (text) => text.replace(/^(:root|html|body)(?=[ .:[]|$)/, "").trim();
          const arrived = (one) => live.some((other) => other === one || other.endsWith(bare(one)));
          return [wanted.length, wanted.filter((one) => !arrived(one))];
        }""",
        page_css(),
    )
    assert gone[0] > 500
    assert gone[1] == []
