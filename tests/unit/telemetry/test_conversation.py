"""A helper process that answers line by line, and what happens when it does not."""

from __future__ import annotations

import sys
import time

import pytest

from backend.adapters.process import Conversation, identify, is_alive
from backend.errors import EnvironmentFault

ECHO = """
import os, sys, time
answers = os.fdopen(int(sys.argv[1]), "w")
print("noise on stdout", flush=True)
for line in sys.stdin:
    if line == "hang\\n":
        time.sleep(60)
    if line == "die\\n":
        sys.exit("it died of something")
    answers.write("answer to " + line)
    answers.flush()
"""


def _talk() -> Conversation:
    return Conversation([sys.executable, "-c", ECHO, "{fd}"])


def test_answers_are_apart_from_what_the_child_prints() -> None:
    talk = _talk()
    assert talk.ask(b"one", timeout_seconds=20) == b"answer to one"
    assert talk.ask(b"two", timeout_seconds=20) == b"answer to two"
    assert talk.noise == b"noise on stdout\n"
    talk.close()
    talk.close()
    assert talk.ask(b"three", timeout_seconds=1) is None


def test_hang_is_killed_at_its_limit() -> None:
    talk = _talk()
    talk.ask(b"one", timeout_seconds=20)
    child = identify(talk.pid)
    assert child is not None
    began = time.monotonic()
    assert talk.ask(b"hang", timeout_seconds=0.3) is None
    assert time.monotonic() - began < 5
    assert not is_alive(child)


def test_death_is_no_answer_and_its_last_words_are_kept() -> None:
    talk = _talk()
    assert talk.ask(b"die", timeout_seconds=20) is None
    assert b"it died of something" in talk.noise


def test_program_that_cannot_start_is_named() -> None:
    with pytest.raises(EnvironmentFault, match="no/such/program"):
        Conversation(["/no/such/program"])
