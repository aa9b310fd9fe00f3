"""Colours and type of Gradio's own components, taken from the same tokens as our pages (ui/static/app.css)."""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils import colors, sizes

# System fonts only: the same page without internet. CJK families are named so that Chinese is not drawn with Japanese forms.
FONT = (
    "system-ui",
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Noto Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Noto Sans CJK SC",
    "sans-serif",
)
MONO = ("ui-monospace", "SF Mono", "Cascadia Mono", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")


def build_theme() -> gr.themes.Base:
    """The theme to mount with; every colour is a token of app.css, so light and dark switch together."""
    theme = gr.themes.Base(
        primary_hue=colors.indigo,
        secondary_hue=colors.indigo,
        neutral_hue=colors.slate,
        spacing_size=sizes.spacing_sm,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=FONT,
        font_mono=MONO,
    )
    return theme.set(
        body_background_fill="var(--td-bg)",
        body_background_fill_dark="var(--td-bg)",
        body_text_color="var(--td-text)",
        body_text_color_dark="var(--td-text)",
        body_text_color_subdued="var(--td-muted)",
        body_text_color_subdued_dark="var(--td-muted)",
        background_fill_primary="var(--td-surface)",
        background_fill_primary_dark="var(--td-surface)",
        background_fill_secondary="var(--td-surface-2)",
        background_fill_secondary_dark="var(--td-surface-2)",
        border_color_primary="var(--td-border)",
        border_color_primary_dark="var(--td-border)",
        block_background_fill="var(--td-surface)",
        block_background_fill_dark="var(--td-surface)",
        block_border_color="var(--td-border)",
        block_border_color_dark="var(--td-border)",
        block_label_text_color="var(--td-text)",
        block_label_text_color_dark="var(--td-text)",
        block_info_text_color="var(--td-muted)",
        block_info_text_color_dark="var(--td-muted)",
        block_shadow="none",
        input_background_fill="var(--td-surface)",
        input_background_fill_dark="var(--td-surface-2)",
        input_border_color="var(--td-border-strong)",
        input_border_color_dark="var(--td-border-strong)",
        input_border_color_focus="var(--td-accent)",
        input_border_color_focus_dark="var(--td-accent)",
        input_placeholder_color="var(--td-muted)",
        input_placeholder_color_dark="var(--td-muted)",
        button_primary_background_fill="var(--td-accent)",
        button_primary_background_fill_dark="var(--td-accent)",
        button_primary_background_fill_hover="var(--td-accent-strong)",
        button_primary_background_fill_hover_dark="var(--td-accent-strong)",
        button_primary_text_color="var(--td-on-accent)",
        button_primary_text_color_dark="var(--td-on-accent)",
        button_secondary_background_fill="var(--td-surface)",
        button_secondary_background_fill_dark="var(--td-surface-2)",
        button_secondary_background_fill_hover="var(--td-hover)",
        button_secondary_background_fill_hover_dark="var(--td-hover)",
        button_secondary_border_color="var(--td-border-strong)",
        button_secondary_border_color_dark="var(--td-border-strong)",
        button_secondary_text_color="var(--td-text)",
        button_secondary_text_color_dark="var(--td-text)",
        # gr.themes.Base leaves variant="stop" without red.
        button_cancel_background_fill="var(--td-bad)",
        button_cancel_background_fill_dark="var(--td-bad)",
        button_cancel_text_color="var(--td-on-accent)",
        button_cancel_text_color_dark="var(--td-on-accent)",
    )
