"""A harness behind a web page: encoders of run events for two protocols, and an app that serves both. Loaded on demand."""

from evener.web.ag_ui import AgUiEncoder, read_ag_ui
from evener.web.ui_stream import UiStreamEncoder, read_chat

__all__ = ["AgUiEncoder", "UiStreamEncoder", "read_ag_ui", "read_chat"]
