"""`make_demo.py FOLDER`: questions.tsv in, a tiny Llama and a small bilingual data set out. Run in the training environment.

FOLDER/model holds config, tokenizer (trained on this very data) and random weights of a fixed seed; FOLDER/data holds the
same questions in the shapes LLaMA-Factory knows, with dataset_info.json. Everything is built beside FOLDER and renamed, and
a folder that is complete is left alone. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUESTIONS = HERE / "demo_data" / "questions.tsv"
STAMP = "made-by-tunedeck"
SEED = 20261130
VOCABULARY = 1024
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SYSTEM = {"en": "You are a helpful assistant.", "zh": "你是一个乐于助人的助手。"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question and its answer in one language."""

    topic: str
    language: str
    text: str
    answer: str


def main(arguments: Sequence[str]) -> int:
    """Make the folder unless it is complete; prints what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    target = parser.parse_args(arguments).folder.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_complete(target):
            print(f"demo inputs are complete: {target}")
            return 0
        make(target)
    print(f"made demo inputs: {target}")
    return 0


def is_complete(target: Path) -> bool:
    """Whether FOLDER was made by this version of the script from these questions."""
    try:
        return (target / STAMP).read_text() == fingerprint()
    except OSError:
        return False


def fingerprint() -> str:
    """Changes with this script and with the questions."""
    return hashlib.sha256(Path(__file__).read_bytes() + QUESTIONS.read_bytes()).hexdigest()


def make(target: Path) -> None:
    """Build beside the target, then put it in its place."""
    building = target.with_name(f".{target.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    questions = load_questions()
    write_data(building / "data", questions)
    write_model(building / "model", texts(questions))
    (building / STAMP).write_text(fingerprint())
    if target.exists():
        old = target.with_name(f".{target.name}.old-{os.getpid()}")
        target.rename(old)
        building.rename(target)
        shutil.rmtree(old)
    else:
        building.rename(target)


def load_questions() -> list[Question]:
    """Every line of questions.tsv twice: in English and in Chinese."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Question(
            topic=row["topic"], language=language, text=row[f"question_{language}"], answer=row[f"answer_{language}"]
        )
        for row in rows
        for language in ("en", "zh")
    ]


def texts(questions: Iterable[Question]) -> list[str]:
    """What the tokenizer learns from."""
    return [part for question in questions for part in (question.text, question.answer)] + list(SYSTEM.values())


# -- data -----------------------------------------------------------------------------------------------------------------


def write_data(folder: Path, questions: Sequence[Question]) -> None:
    """The data sets of all stages, and dataset_info.json that registers them."""
    sets: dict[str, tuple[list[dict[str, object]], dict[str, object]]] = {
        "demo": (alpaca(questions), {}),
        "demo_chat": (
            sharegpt(questions),
            {"formatting": "sharegpt", "columns": {"messages": "conversations", "system": "system"}},
        ),
        "demo_preference": (
            preference(questions),
            {
                "ranking": True,
                "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"},
            },
        ),
        "demo_feedback": (
            feedback(questions),
            {"columns": {"prompt": "instruction", "query": "input", "response": "output", "kto_tag": "kto_tag"}},
        ),
        "demo_text": (plain_text(questions), {"columns": {"prompt": "text"}}),
    }
    folder.mkdir(parents=True)
    info: dict[str, object] = {}
    for name, (rows, entry) in sets.items():
        write_json(folder / f"{name}.json", rows)
        info[name] = {"file_name": f"{name}.json"} | entry
    write_json(folder / "dataset_info.json", info)


def alpaca(questions: Sequence[Question]) -> list[dict[str, object]]:
    """Supervised, one turn (120 rows)."""
    return [{"instruction": question.text, "input": "", "output": question.answer} for question in questions]


def sharegpt(questions: Sequence[Question]) -> list[dict[str, object]]:
    """Supervised, two turns on one topic, each conversation in one language."""
    rows: list[dict[str, object]] = []
    for first, second in neighbours(questions):
        turns = [("human", first.text), ("gpt", first.answer), ("human", second.text), ("gpt", second.answer)]
        conversation = [{"from": who, "value": text} for who, text in turns]
        rows.append({"conversations": conversation, "system": SYSTEM[first.language]})
    return rows[::2]


def preference(questions: Sequence[Question]) -> list[dict[str, object]]:
    """DPO and reward: the right answer against the answer to another question of the topic."""
    return [
        {"instruction": first.text, "input": "", "chosen": first.answer, "rejected": second.answer}
        for first, second in neighbours(questions)
    ][::2]


def feedback(questions: Sequence[Question]) -> list[dict[str, object]]:
    """KTO: single answers, good and bad in turn."""
    return [
        {"instruction": first.text, "input": "", "output": (first if good else second).answer, "kto_tag": good}
        for number, (first, second) in enumerate(neighbours(questions))
        for good in (number % 2 == 0,)
    ]


def plain_text(questions: Sequence[Question]) -> list[dict[str, object]]:
    """Pre-training: each topic's answers as one text, in each language."""
    groups: dict[tuple[str, str], list[str]] = {}
    for question in questions:
        groups.setdefault((question.topic, question.language), []).append(question.answer)
    return [{"text": ("" if language == "zh" else " ").join(answers)} for (_, language), answers in groups.items()]


def neighbours(questions: Sequence[Question]) -> list[tuple[Question, Question]]:
    """Pairs of questions next to each other in the same topic and language."""
    ordered = [question for language in ("en", "zh") for question in questions if question.language == language]
    return [
        (one, other) for one, other in pairwise(ordered) if (one.topic, one.language) == (other.topic, other.language)
    ]


def write_json(path: Path, content: object) -> None:
    """UTF-8 without escapes, so that a person can read it."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


# -- model ----------------------------------------------------------------------------------------------------------------


def write_model(folder: Path, corpus: Sequence[str]) -> None:
    """A Llama of 2 layers and 64 hidden units whose tokenizer knows the demo data."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()

    size = write_tokenizer(folder, corpus)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=0.2,  # LoRA leaves embeddings and output as they are: at 0.02 its loss could hardly move
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def write_tokenizer(folder: Path, corpus: Sequence[str]) -> int:
    """A byte-level BPE tokenizer with ChatML's special tokens; returns its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    names: Mapping[str, str] = {"pad_token": SPECIAL[0], "eos_token": SPECIAL[2]}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=4096, **names)
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return len(fast)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
