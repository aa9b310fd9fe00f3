"""The tutorial test in Chromium: files of a public tutorial in, each mistake named, all fixed by one click, launched."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, expect
from playwright.sync_api import Page as Tab

from backend.domain.job import StopMode, TerminationReason
from backend.errors import Conflict
from tests.browser.test_main_job import served, wait_for_step
from tests.browser.test_new_run import Site, open_new, show_yaml, site, tab, yaml_of

__all__ = ["served", "site", "tab"]
pytestmark = pytest.mark.browser
TUTORIAL = Path(__file__).parents[1] / "data" / "tutorial"
WORDS = {
    "": (
        "is a control of LLaMA Board",
        "after all data is tokenized",
        "always partitions gradients",
        "forces one instruction set",
    ),
    "/zh": ("是 LLaMA Board 的控件", "等全部数据分词之后才被拒绝", "总会切分梯度", "强制所有 GPU 使用同一指令集"),
}
NAMED = (
    "compute_type",
    "flash_attn",
    "disable_torch_compile",
    "stage3_parition_grads",
    "HSA_OVERRIDE_GFX_VERSION",
    "PYTORCH_ROCM_ARCH",
)
IMPORT_WORDS = {
    "": ("train.yaml is read as the config", "no tool rccl-env", "became part of the document"),
    "/zh": ("train.yaml 按配置读取", "没有名为 rccl-env 的工具", "已并入文档"),
}
FIX = {"": "Fix it", "/zh": "一键修复"}
RUNNING = {"": "Running", "/zh": "运行中"}
NOTICE = {"": "Imported: a launch command or script.", "/zh": "已导入：启动命令或脚本。"}


def tutorial_files(site: Site) -> list[FilePayload]:
    return files_for(site.deck.model, site.deck.settings.data_dir / "demo" / "data")


def files_for(model: Path, data_folder: Path) -> list[FilePayload]:
    """The tutorial's files with a model and a data set that this host has, and as many ranks."""
    texts = {name: (TUTORIAL / name).read_text() for name in ("launch.sh", "train.yaml", "ds_z3_config.json")}
    data = f"demo\ndataset_dir: {data_folder}"
    texts["train.yaml"] = texts["train.yaml"].replace("acme/Harbour-8B-Instruct", str(model))
    texts["train.yaml"] = texts["train.yaml"].replace("desk_qa", data)
    texts["launch.sh"] = texts["launch.sh"].replace("--nproc_per_node=8", "--nproc_per_node=2")
    return [{"name": name, "mimeType": "text/plain", "buffer": text.encode()} for name, text in texts.items()]


def open_import(tab: Tab) -> None:
    tab.click('#new-tabs [role="tab"] >> nth=2')
    tab.wait_for_selector(".td-new-import")


@pytest.mark.parametrize("prefix", ["", "/zh"])
def test_tutorial_is_imported_fixed_and_launched(tab: Tab, site: Site, prefix: str) -> None:
    before = len(site.jobs())
    open_new(tab, site, prefix=prefix)
    open_import(tab)
    tab.set_input_files(".td-new-import input[type=file]", tutorial_files(site))
    expect(tab.locator(".td-new-import-files li")).to_have_count(3)
    tab.click(".td-new-import .td-button-primary")
    expect(tab.locator("#new-notice")).to_contain_text(NOTICE[prefix])
    problems = tab.locator(".td-new-problems")
    for words in (*WORDS[prefix], *NAMED):
        expect(problems).to_contain_text(words)
    for words in IMPORT_WORDS[prefix]:
        expect(tab.locator("#new-notice")).to_contain_text(words)
    expect(tab.locator("#new-launch")).to_be_disabled()

    tab.click(".td-new-problems > .td-button")
    expect(tab.locator(".td-new-problem-error")).to_have_count(0)
    expect(tab.locator("#new-launch")).to_be_enabled()
    show_yaml(tab)
    text = yaml_of(tab)
    assert "bf16: true" in text and "flash_attn: auto" in text
    assert not any(word in text for word in ("compute_type", "disable_torch_compile", "parition", "HSA_OVERRIDE"))
    tab.click("#new-launch")
    tab.wait_for_url("**/run?id=*")
    assert len(site.jobs()) == before + 1
    job = site.jobs()[0]
    assert job.processes == 2
    site.deck.start_worker()
    site.deck.until(job.id, lambda job: (job.step or 0) >= 1 or job.state.is_final)
    expect(tab.locator("body")).to_contain_text(RUNNING[prefix])
    with contextlib.suppress(Conflict):  # the stand-in may have taken its few steps before the request
        site.deck.api.request_stop(job.id, StopMode.KILL)
    ended = site.deck.end(job.id).reason
    assert ended in (TerminationReason.KILLED_BY_USER, TerminationReason.COMPLETED)


@pytest.mark.parametrize("prefix", ["", "/zh"])
def test_mistake_of_the_tutorials_command_line_is_named_and_fixed(tab: Tab, site: Site, prefix: str) -> None:
    open_new(tab, site, prefix=prefix)
    open_import(tab)
    tab.fill(".td-new-import-text", (TUTORIAL / "slow.sh").read_text())
    tab.click(".td-new-import .td-button-primary")
    problem = tab.locator(".td-new-problem-error", has_text="flash_attn")
    expect(problem).to_contain_text("Fa")
    problem.get_by_role("button", name=FIX[prefix]).click()
    expect(problem).to_have_count(0)


@pytest.mark.training
def test_fixed_tutorial_trains_for_real(browser: Browser, served: tuple[str, Path], demo_inputs: Path) -> None:
    """Real LLaMA-Factory and DeepSpeed take what "fix all" made of the tutorial, up to a step."""
    base, _ = served
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, locale="en-US")
    page = context.new_page()
    page.goto(f"{base}/new")
    page.wait_for_selector(".td-new-state-line")
    open_import(page)
    files = files_for(demo_inputs / "model", demo_inputs / "data")
    for file in files:  # the demo model has no room for the special tokens of llama3
        file["buffer"] = file["buffer"].replace(b"template: llama3", b"template: default")
    page.set_input_files(".td-new-import input[type=file]", files)
    page.click(".td-new-import .td-button-primary")
    expect(page.locator("#new-notice")).to_contain_text(NOTICE[""])
    page.click(".td-new-problems > .td-button")
    expect(page.locator("#new-launch")).to_be_enabled(timeout=90_000)
    expect(page.locator("#new-panel")).to_contain_text("The trainer itself is checking", timeout=30_000)
    without_gpu = page.locator(".td-new-problem", has_text="This host has no GPU")
    without_gpu.get_by_role("button", name="Fix it").click(timeout=120_000)
    expect(page.locator("#new-panel")).to_contain_text("The trainer itself finds nothing", timeout=120_000)
    page.click("#new-launch")
    page.wait_for_url("**/run?id=*", timeout=90_000)
    wait_for_step(page, 1)
    context.close()


def test_pasted_command_fills_the_form_and_can_be_undone(tab: Tab, site: Site) -> None:
    open_new(tab, site)
    open_import(tab)
    tab.fill(
        ".td-new-import-text",
        "llamafactory-cli train --stage dpo --do_train --lora_rank 24 --learning_rate 5e-6 --flash_attn Fa",
    )
    tab.click(".td-new-import .td-button-primary")
    expect(tab.locator("#new-notice")).to_contain_text("Imported")
    tab.click('#new-tabs [role="tab"] >> nth=0')
    expect(tab.locator("#f-lora_rank input")).to_have_value("24")
    tab.click("#new-notice >> text=Undo")
    expect(tab.locator("#f-lora_rank input")).not_to_have_value("24")


def test_what_cannot_be_run_is_said_and_the_document_stays(tab: Tab, site: Site) -> None:
    open_new(tab, site, "?preset=demo/cpu_sft_lora")
    open_import(tab)
    tab.fill(
        ".td-new-import-text",
        "base_model: a/b\nsequence_len: 9\nmicro_batch_size: 1\nload_in_4bit: true\n<img src=x onerror=window.__pwn=1>: 1\n",
    )
    tab.click(".td-new-import .td-button-primary")
    expect(tab.locator("#new-notice")).to_contain_text("another program")
    assert tab.evaluate("window.__pwn") is None
    show_yaml(tab)
    assert "demo" in yaml_of(tab)
