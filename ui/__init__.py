"""The dashboard: pages (Gradio), the HTTP and WebSocket server, scripts and texts."""

import os

# Gradio reads these when it is imported: nothing of ours may ask the internet for anything.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
