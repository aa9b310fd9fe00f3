"""Alarms on a run's numbers in both languages, as messages of the pages: `alarm.<code>` and what to do, `alarm.<code>.do`."""

from __future__ import annotations

from collections.abc import Mapping

from backend.services.health_watch import alarm_texts
from ui.text.diagnosis_zh import DIAGNOSIS_ZH


def alarm_messages(texts: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Braces are for parameters in messages: none are left in these."""
    titles = {f"alarm.{code}": title for code, (title, _) in texts.items()}
    return titles | {f"alarm.{code}.do": remedy for code, (_, remedy) in texts.items()}


ALARMS_EN = alarm_messages(alarm_texts())
ALARMS_ZH = alarm_messages({code: DIAGNOSIS_ZH[code] for code in alarm_texts()})
