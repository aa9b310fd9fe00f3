"""Every check, gap and hindrance has words in both languages."""

from __future__ import annotations

import re

from backend.parsing.telemetry.reasons import Gap
from backend.planning import host_checks
from backend.planning.leases import Hindrance
from backend.settings import REPOSITORY
from ui.text.checks_zh import CHECKS_ZH, GAPS_EN, GAPS_ZH, HINDRANCES_ZH, check_text_zh


def test_every_check_has_a_chinese_text() -> None:
    source = (REPOSITORY / "backend/planning/host_checks.py").read_text()
    codes = (
        set(re.findall(r'code="(\w+)"', source)) | {f"part_{part}" for part in host_checks._PART_ADVICE} | {"disk_data"}
    )
    assert len(codes) >= 18
    assert [code for code in sorted(codes) if check_text_zh(code) is None] == []
    assert all(re.search(r"[\u4e00-\u9fff]", text.advice) for text in CHECKS_ZH.values())


def test_every_gap_and_hindrance_has_words() -> None:
    assert set(GAPS_EN) == set(GAPS_ZH) == {gap.value for gap in Gap}
    assert set(HINDRANCES_ZH) == {hindrance.value for hindrance in Hindrance}
