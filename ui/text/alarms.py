"""Alarms on a run's numbers in both languages, as messages of the pages.

`alarm.<code>` is the title, `alarm.<code>.do` what to do, `alarm.<form>.proof` what proves it, with names for its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from backend.domain.events import Alert
from backend.services.health_watch import alarm_proofs, alarm_texts, proof_of
from ui.text.alarms_zh import PROOFS_ZH
from ui.text.diagnosis_zh import DIAGNOSIS_ZH


def alarm_messages(texts: Mapping[str, tuple[str, str]], proofs: Mapping[str, str]) -> dict[str, str]:
    """Titles and remedies hold no braces: those are for parameters in messages."""
    titles = {f"alarm.{code}": title for code, (title, _) in texts.items()}
    remedies = {f"alarm.{code}.do": remedy for code, (_, remedy) in texts.items()}
    return titles | remedies | {f"alarm.{form}.proof": proof for form, proof in proofs.items()}


ALARMS_EN = alarm_messages(alarm_texts(), alarm_proofs())
ALARMS_ZH = alarm_messages({code: DIAGNOSIS_ZH[code] for code in alarm_texts()}, PROOFS_ZH)


def alarm_line(lang: Literal["en", "zh"], alert: Alert) -> str:
    """One line for a terminal: what, since when, what proves it, what to do. What is no alarm on numbers has its own words."""
    words = ALARMS_ZH if lang == "zh" else ALARMS_EN
    if f"alarm.{alert.code}" not in words:
        return alert.message
    since = (
        "" if alert.step is None else f" (since step {alert.step})" if lang == "en" else f"（自第 {alert.step} 步起）"
    )
    proof = proof_of(alert, PROOFS_ZH if lang == "zh" else alarm_proofs())
    between = "" if lang == "zh" else " "
    colon = "：" if lang == "zh" else ": "
    return f"{words[f'alarm.{alert.code}']}{since}{colon}{proof}{between}{words[f'alarm.{alert.code}.do']}"
