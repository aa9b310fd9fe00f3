"""Blank-separated text -> a set of words: long vocabularies stay readable in the source."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """`words("a b c")` is the set of three words."""
    return frozenset(text.split())
