"""Serves the page until it is stopped. Nothing is sent out: no telemetry, no fonts or scripts from elsewhere."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from densevit.app.inputs import Limits
from densevit.app.models import AppModel
from densevit.errors import ConfigError
from densevit.utils.packages import require_packages
from densevit.utils.process import removed_at_exit


@contextmanager
def serving(
    models: Sequence[AppModel],
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Iterator[str]:
    """Serve the page inside the block; yield its address. What visitors gave is removed at the end. `port`: None for
    a free one from 7860 on. Raises ConfigError: Gradio is not installed; the address cannot be served at."""
    require_packages("gradio", extra="app")
    with TemporaryDirectory(prefix="densevit-app-") as folder, removed_at_exit(Path(folder)):
        # Before the import: Gradio else asks its makers' servers for its newest version, and reports its use.
        os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_OFFLINE="1", GRADIO_TEMP_DIR=folder)
        import gradio

        from densevit.app.page import Page

        blocks = Page(models, limits, Path(folder)).blocks
        theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
        try:
            _, address, _ = blocks.launch(
                server_name=host, server_port=port, share=False, quiet=True, prevent_thread_lock=True, ssr_mode=False,
                max_file_size=limits.megabytes * 1_000_000, footer_links=[], run_history=False, enable_monitoring=False,
                mcp_server=False, pwa=False, theme=theme, css=(files("densevit.app") / "page.css").read_text("utf-8"),
            )  # fmt: skip
        except OSError:  # Gradio names its own options
            raise ConfigError(
                f"--host {host} --port {port or 'any'}: no page can be served there. The port is in use, or the host "
                "is no address of this machine. Choose another port, or none for the first free one."
            ) from None
        try:
            yield str(address)
        finally:
            blocks.close(verbose=False)
