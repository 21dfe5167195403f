"""What stands where on the page, in Gradio's components."""

import html
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from densevit.app.models import AppModel, ViewOptions
from densevit.ops.colors import ColorMap
from densevit.output_kinds import DEPTH_KINDS

WAITING = "<p>Drop an image or a clip, or choose one.</p>"
KEPT = ["download"]  # of Gradio's buttons on an image: another one uploads it to a public host
EXAMPLES = [Path(str(files("densevit.app") / f"examples/{name}.jpg")) for name in ("lounge", "tables", "desk", "shelf")]
LAYERS = 48  # of the slider, until a click tells how many there are; the last is shown at first


class Layout:
    """The components; made inside the block that they are to stand in."""

    def __init__(self, models: Sequence[AppModel]) -> None:
        import gradio

        self.models = models
        gradio.HTML(f'<div class="intro"><h1>densevit</h1>{"".join(map(about, models))}</div>', elem_id="intro")
        with gradio.Row():
            with gradio.Column(scale=1, min_width=280, elem_id="controls"):
                self.build_controls()
            with gradio.Column(scale=3, min_width=300), gradio.Tabs():
                self.build_maps()
                self.build_clouds()
                self.build_files()

    def build_controls(self) -> None:
        import gradio

        heads = list(dict.fromkeys(name for model in self.models for name in model.heads))
        kinds = {spec.kind for model in self.models for spec in model.heads.values()}
        near, far = ViewOptions().assume_depth
        self.file = gradio.File(label="Images or clips", file_count="multiple", elem_id="file", height=140)
        self.shown = gradio.Dropdown([], label="Shown file", visible=False, elem_id="shown")
        with gradio.Accordion("Webcam", open=False):
            self.webcam = gradio.Image(
                sources=["webcam"], type="filepath", show_label=False, buttons=KEPT, elem_id="webcam"
            )
        self.examples = gradio.Dataset(
            label="Examples (rendered, CC0)",
            components=[gradio.Image(render=False)],
            samples=[[str(path)] for path in EXAMPLES],
            type="index",
            layout="gallery",
            elem_id="examples",
        )
        self.status = gradio.HTML(WAITING, elem_id="status")
        self.head = gradio.Dropdown(
            heads, value="depth" if "depth" in heads else heads[0], label="Map", visible=len(heads) > 1, elem_id="head"
        )
        with gradio.Group() as self.colours:
            self.cmap = gradio.Dropdown(list(get_args(ColorMap)), value="turbo", label="Colours", elem_id="cmap")
            with gradio.Row():
                self.low = gradio.Textbox(label="from", placeholder="auto", min_width=90, elem_id="low")
                self.high = gradio.Textbox(label="to", placeholder="auto", min_width=90, elem_id="high")
        with gradio.Accordion("Lens and clips", open=False):
            self.fov = gradio.Textbox(
                label="Horizontal field of view, degrees",
                placeholder="from EXIF, else assumed",
                info="of point clouds, and of metres where the model needs the lens",
                elem_id="fov",
            )
            with gradio.Row(visible=bool(kinds & {"affine", "disparity"})):
                self.near = gradio.Textbox(f"{near:g}", label="without metres: near is", min_width=90, elem_id="near")
                self.far = gradio.Textbox(f"{far:g}", label="and far is, m", min_width=90, elem_id="far")
            self.stabilize = gradio.Checkbox(
                True, label="Stabilize clips", visible=not kinds.isdisjoint(DEPTH_KINDS), elem_id="stabilize"
            )
        self.again = gradio.Button("Predict the clip again", visible=False, elem_id="again")
        self.choices = [self.head, self.cmap, self.low, self.high, self.fov, self.near, self.far, self.stabilize]

    def build_maps(self) -> None:
        import gradio

        script = (files("densevit.app") / "page.js").read_text("utf-8")
        self.views, self.clips, self.attentions = [], [], []
        with gradio.Tab("Maps"):
            with gradio.Row():
                with gradio.Column(min_width=250, visible=False) as self.clip_column:
                    self.clip = gradio.Video(label="The clip", buttons=KEPT, elem_id="clip")
                for i, model in enumerate(self.models):
                    with gradio.Column(min_width=250):
                        self.clips.append(
                            gradio.Video(
                                label=model.name,
                                visible=False,
                                autoplay=True,
                                loop=True,
                                buttons=KEPT,
                                elem_id=f"clip-{i}",
                            )
                        )
                        self.views.append(gradio.HTML(js_on_load=script, elem_id=f"view-{i}"))
                        self.attentions.append(gradio.Image(visible=False, buttons=KEPT, elem_id=f"attention-{i}"))
            with gradio.Row(visible=False) as self.attention_controls:
                self.layer = gradio.Slider(1, LAYERS, value=LAYERS, step=1, label="Layer", elem_id="layer")
                self.query = gradio.Dropdown(
                    ["mean of heads", "rollout"],
                    value="mean of heads",
                    label="Attention",
                    min_width=200,
                    elem_id="query",
                )

    def build_clouds(self) -> None:
        import gradio

        self.clouds = []
        with gradio.Tab("Point cloud"), gradio.Row():
            for i in range(len(self.models)):
                with gradio.Column(min_width=250):
                    self.clouds.append(gradio.HTML(WAITING, js_on_load=None, elem_id=f"cloud-{i}"))

    def build_files(self) -> None:
        import gradio

        names = [model.name for model in self.models]
        with gradio.Tab("Files"):
            self.source = gradio.Dropdown(
                names, value=names[0], label="Checkpoint", visible=len(names) > 1, elem_id="source"
            )
            self.formats = gradio.CheckboxGroup([], label="Formats", elem_id="formats")
            self.write = gradio.Button("Write files", variant="primary", elem_id="write")
            self.written = gradio.File(label="Files", file_count="multiple", interactive=False, elem_id="written")

    @property
    def figures(self) -> list[Any]:
        shown = [self.colours, self.clip, self.clip_column, *self.views, *self.clips, *self.attentions]
        return [*shown, self.attention_controls, self.again]


def about(model: AppModel) -> str:
    """Return a line about the model, which unfolds the rest."""
    line, rest = map(html.escape, model.about())
    return f"<details><summary>{line}</summary><p>{rest}</p></details>"


def paragraphs(lines: Sequence[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)
