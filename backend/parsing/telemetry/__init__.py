"""Texts, JSON and file trees of GPU tools in, normalised rows and verdicts out. Pure."""
