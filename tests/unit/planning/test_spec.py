"""spec.yaml text -> JobSpec -> text: values as the trainer reads them, comments kept, errors with a position."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from backend.domain.job import JobSpec, Offload, Task, ZeroConfig
from backend.domain.problem import ArgValue
from backend.errors import InvalidInput
from backend.planning.document import load_document, parse_value, render_value, same_value
from backend.planning.spec import apply_changes, dump_spec, parse_spec, parse_spec_bytes

DOCUMENT = """\
# our first run
tunedeck:                 # ours
  name: first
  processes: 2            # two ranks
  env: {HIP_FORCE_DEV_KERNARG: 1, SHOUT: no}
  zero: {stage: 3}        # partition all

### model
model_name_or_path: /models/tiny   # local folder

### method
stage: sft
learning_rate: 2e-5
do_train: yes
lora_target:
- q_proj   # attention
- v_proj
deepspeed_note: |
  two lines
  of text

### data
dataset: 'demo'
unheard_of: 0.10
"""


def test_values_are_read_as_the_trainer_reads_them(tmp_path: Path) -> None:
    text = "a: 2e-5\nb: no\nc: 'no'\nd: 010\ne: 1_000\nf: ~\ng: 1:30\nh: on\ni: 2024-01-01\nj: .inf\nk: nan\nl: 5e\nm: Yes\n"
    path = tmp_path / "train.yaml"
    path.write_text(text)
    theirs = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(theirs, dict)
    assert parse_spec(text).train == theirs
    assert parse_spec(text).train["a"] == 2e-5
    assert parse_spec(text).train["b"] is False
    assert parse_spec(text).train["c"] == "no"


def test_own_section_is_typed_and_texts_are_taken_as_written() -> None:
    spec = parse_spec(DOCUMENT)
    assert spec.name == "first"
    assert spec.processes == 2
    assert spec.zero == ZeroConfig(stage=3)
    assert spec.env == {"HIP_FORCE_DEV_KERNARG": "1", "SHOUT": "no"}
    assert "tunedeck" not in spec.train
    assert spec.train["do_train"] is True


def test_unchanged_spec_dumps_its_own_text() -> None:
    assert dump_spec(parse_spec(DOCUMENT)) == DOCUMENT


def test_edit_touches_only_the_named_lines() -> None:
    text = apply_changes(
        DOCUMENT,
        {
            "learning_rate": 1e-4,
            "lora_rank": 16,
            "tunedeck.zero.stage": 2,
            "tunedeck.env.X": "on",
            "eval_strategy": "no",
        },
        ["tunedeck.processes", "unheard_of"],
    )
    expected = DOCUMENT.replace("2e-5", "1.0e-4").replace("  processes: 2            # two ranks\n", "")
    expected = expected.replace("stage: 3}", "stage: 2}").replace("SHOUT: no}", 'SHOUT: no, X: "on"}')
    expected = expected.replace("unheard_of: 0.10\n", 'eval_strategy: "no"\n')
    expected = expected.replace("stage: sft\n", "stage: sft\nlora_rank: 16\n").replace("yes\nlora_rank: 16\n", "yes\n")
    lines = set(text.splitlines())
    assert "lora_rank: 16" in lines
    assert [line for line in text.splitlines() if line != "lora_rank: 16"] == [
        line for line in expected.splitlines() if line != "lora_rank: 16"
    ]
    assert text.index("### method") < text.index("lora_rank: 16") < text.index("### data")


def test_setting_the_value_it_has_changes_nothing() -> None:
    assert apply_changes(DOCUMENT, {"learning_rate": 2e-5, "do_train": True, "unheard_of": 0.1}) == DOCUMENT


def test_block_values_are_replaced_whole_and_comments_around_stay() -> None:
    text = apply_changes(DOCUMENT, {"lora_target": "all", "deepspeed_note": None})
    assert "lora_target: all\n" in text
    assert "- v_proj" not in text
    assert "deepspeed_note: null\n\n### data\n" in text


def test_removing_the_last_key_of_a_mapping_removes_the_mapping() -> None:
    assert (
        apply_changes("tunedeck:\n  zero:\n    stage: 3\nstage: sft\n", {}, ["tunedeck.zero.stage"]) == "stage: sft\n"
    )
    assert (
        apply_changes("tunedeck: {zero: {stage: 3}, name: a}\n", {}, ["tunedeck.zero.stage"]) == "tunedeck: {name: a}\n"
    )


def test_keys_are_added_to_an_empty_document() -> None:
    assert (
        apply_changes("", {"tunedeck.zero.stage": 2, "stage": "sft"}) == "tunedeck:\n  zero: {stage: 2}\nstage: sft\n"
    )
    assert apply_changes("# only a comment", {"stage": "sft"}) == "# only a comment\nstage: sft\n"


def test_anchors_and_aliases_are_edited_by_the_round_trip_library() -> None:
    text = apply_changes("a: &rate 1e-4  # shared\nb: *rate\n", {"b": 3})
    assert load_document(text) == {"a": 1e-4, "b": 3}
    assert "# shared" in text


def test_windows_line_ends_survive() -> None:
    text = apply_changes("stage: sft\r\ndataset: a\r\n", {"stage": "dpo", "seed": 1})
    assert text == "stage: dpo\r\ndataset: a\r\nseed: 1\r\n"


def test_a_key_with_a_dot_that_the_document_has_is_that_key() -> None:
    assert load_document(apply_changes("a.b: 1\n", {"a.b": 2})) == {"a.b": 2}


def test_path_through_a_plain_value_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"deepspeed: found .*expected a mapping"):
        apply_changes("deepspeed: ds.json\n", {"deepspeed.zero_optimization.stage": 2})


@pytest.mark.parametrize(
    ("text", "field", "line", "column"),
    [
        ("stage: sft\nlearning_rate: 1e-4: x\n", "document", 2, 20),
        ("stage: [sft\n", "document", 2, 1),
        ("a: 1\na: 2\n", "document", 2, 1),
        ("- sft\n", "document", 1, 1),
        ("sft\n", "document", 1, 1),
        ("stage: sft\non: 1\n", "True", None, None),
        ("stage: sft\nrank: !!int many\n", "document", 2, 7),
        ("stage: sft\npath: ${broken\n", "path", 2, 1),
        ("stage: s\x07ft\n", "document", 1, 9),
        ("a: &x [*x]\n", "document", 1, 4),
        ("stage: sft\nname: !!timestamp 2024-01-01\n", "name", 2, 1),
        ("tunedeck:\n  proceses: 2\n", "tunedeck.proceses", 2, 3),
        ("tunedeck:\n  processes: 0\n", "tunedeck.processes", 2, 3),
        ("tunedeck:\n  processes: yes\n", "tunedeck.processes", 2, 3),
        ("tunedeck: [a]\n", "tunedeck", 1, 1),
        ("tunedeck:\n  zero: {stage: 4}\n", "tunedeck.zero.stage", 2, 10),
        ("tunedeck:\n  zero: {offload_param: gpu}\n", "tunedeck.zero.offload_param", 2, 10),
        ("tunedeck:\n  env: {A: [1]}\n", "tunedeck.env.A", 2, 9),
        ("[" * 100_000, "document", 1, 41),
        ("a: " + "9" * 5_000, "document", 1, 4),
        ("---\na: 1\n---\nb: 2\n", "document", 3, 1),
    ],
)
def test_bad_text_names_field_and_position(text: str, field: str, line: int | None, column: int | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec(text)
    assert (caught.value.field, caught.value.line, caught.value.column) == (field, line, column)
    if line is not None:
        assert f"line {line}, column {column}" in str(caught.value)


def test_alias_bombs_are_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(InvalidInput, match=r"alias|expan"):
        parse_spec("\n".join(levels))


def test_bytes_that_are_not_utf8_name_the_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spec_bytes(b"stage: sft\nname: \xff\n")
    assert (caught.value.line, caught.value.column) == (2, 7)
    assert parse_spec_bytes("\ufeffstage: sft\n".encode()).train == {"stage": "sft"}
    assert parse_spec_bytes("stage: sft\n".encode("utf-16")).train == {"stage": "sft"}


@given(st.binary(max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_a_spec_or_invalid_input(data: bytes) -> None:
    try:
        parse_spec_bytes(data)
    except InvalidInput:
        pass


_YAMLISH = st.text(alphabet="ab:-?[]{}#&*!|>'\"%@`, \n\t0123.e~<=$\u00e9\u4e2d\ufeff\x85\u2028", max_size=40)


@given(_YAMLISH, st.sampled_from(["a", "b.a", "tunedeck.env.A"]), st.sampled_from([1, "no", None, {"a": [1]}]))
@settings(max_examples=300, deadline=None)
@example("a: &x 1\nb: *x\n", "b.a", 1)
@example("? a\n: 1\n", "a", "no")
@example("b:\n  a:\n", "b.a", 1)
@example("a: >-\n  folded\n\n# tail\n", "a", "no")
@example("{a: 1, }", "b.a", 1)
@example("a: 1 #c\n...\n", "b.a", 1)
def test_an_edit_of_yaml_like_text_gives_the_value_or_a_clear_error(text: str, key: str, value: ArgValue) -> None:
    try:
        before = load_document(text)
        after = load_document(apply_changes(text, {key: value}))
    except InvalidInput:
        return
    inner: ArgValue = after
    for name in [key] if key in before else key.split("."):
        assert isinstance(inner, dict)
        inner = inner[name]
    assert same_value(inner, value)
    untouched = key.split(".")[0]
    assert {k: v for k, v in after.items() if k != untouched} == {
        k: v for k, v in before.items() if k != untouched
    } or any(item != item for item in before.values())


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: "${" not in text and "\\" not in text
)
_SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT
_VALUE = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=6
)
_NAME = st.text(string.ascii_lowercase + "_", min_size=1, max_size=10).filter(lambda name: name != "tunedeck")


@given(
    st.builds(
        JobSpec,
        name=_TEXT.filter(bool),
        train=st.dictionaries(_NAME, _VALUE, max_size=5),
        processes=st.none() | st.integers(1, 64),
        gpus=st.lists(st.just("0000:c1:00.0") | st.just("0000:05:00.0"), max_size=2, unique=True).map(tuple),
        zero=st.builds(
            ZeroConfig,
            stage=st.none() | st.integers(0, 3),
            offload_optimizer=st.sampled_from(Offload),
            offload_param=st.sampled_from(Offload),
        ),
        env=st.dictionaries(_NAME, _TEXT, max_size=3),
        environment=_TEXT,
        priority=st.integers(-5, 5),
        tags=st.lists(_TEXT, max_size=2).map(tuple),
        notes=_TEXT,
        text=st.just("") | st.just(DOCUMENT) | st.just("tunedeck: {zero: {stage: null}, env: {A: yes}}\nb: [1]\n"),
    )
)
@settings(max_examples=40, deadline=None)
def test_dump_then_parse_gives_the_same_spec(spec: JobSpec) -> None:
    assert replace(parse_spec(dump_spec(spec)), text="") == replace(spec, text="")


@given(_VALUE)
@settings(max_examples=150, deadline=None)
def test_rendered_value_is_read_back_exactly(value: ArgValue) -> None:
    assert same_value(parse_value(render_value(value)), value)


def test_ambiguous_texts_are_quoted() -> None:
    assert [render_value(text) for text in ("no", "1e5", "~", "", "a: b", "# x", "/a/b.json", "中文 name")] == [
        '"no"', '"1e5"', '"~"', '""', '"a: b"', '"# x"', "/a/b.json", "中文 name",
    ]  # fmt: skip


def test_task_is_read_written_and_refused_when_unknown() -> None:
    spec = parse_spec("tunedeck: {task: trial}\nmodel_name_or_path: m\n")
    assert spec.task is Task.TRIAL
    assert parse_spec(dump_spec(spec)).task is Task.TRIAL
    assert parse_spec("model_name_or_path: m\n").task is Task.TRAIN
    with pytest.raises(InvalidInput, match="train, trial, bench"):
        parse_spec("tunedeck: {task: fly}\n")
