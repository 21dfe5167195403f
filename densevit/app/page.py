"""What happens on the page: from an event and the visitor's choices to new contents of components."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from math import inf, isfinite
from pathlib import Path
from shutil import copyfile
from tempfile import mkdtemp
from time import perf_counter
from typing import Any

from densevit.app.files import affordable_end, formats_of, write_clip_files, write_image_files
from densevit.app.inputs import GivenClip, GivenImage, Limits, open_given
from densevit.app.layout import EXAMPLES, WAITING, Layout, paragraphs
from densevit.app.models import AppModel, ViewOptions
from densevit.app.views import is_coloured, map_views, scale_of_video
from densevit.errors import ConfigError, DataError, DensevitError, Preempted
from densevit.ops.geometry import field_of_view, is_possible_fov
from densevit.output_kinds import DEPTH_KINDS
from densevit.utils.device import is_out_of_memory

TICKED = ("png16", "npy", "color", "ply", "labels", "overlay", "mp4", "ffv1")  # formats, at first
NAME_EXAMPLES = """() => {
  for (const image of document.querySelectorAll("#examples img")) image.alt = image.src.match(/(\\w+)\\.jpg/)[1];
}"""  # Gradio leaves their buttons without names
Updates = dict[Any, Any]
"""Component -> its new value or properties."""


@dataclass(eq=False)
class Visit:
    """What one visitor has on the page.

    Attributes:
        predictions: of an image, the maps of each model.
        ends: of a clip, the second at which each model stops; None for its end.
        fov: the field of view that was given for these predictions.
        clicked: x, y of the image.
    """

    given: GivenImage | GivenClip
    predictions: list[dict[str, Any]] = field(default_factory=list)
    ends: list[float | None] = field(default_factory=list)
    fov: float | None = None
    clicked: tuple[float, float] | None = None


class Page:
    """The page, as Gradio's Blocks in `blocks`."""

    def __init__(self, models: Sequence[AppModel], limits: Limits, folder: Path) -> None:
        """
        Args:
            folder: for files that are offered.
        """
        import gradio

        self.models, self.limits, self.folder = models, limits, folder
        with gradio.Blocks(title="densevit", analytics_enabled=False, delete_cache=(600, 3600)) as self.blocks:
            self.visit = gradio.State(None, time_to_live=3600)
            self.opened = gradio.State(None, time_to_live=3600)  # path of the last file, also of a refused one
            self.uploaded = gradio.State([], time_to_live=3600)  # paths in the list of files
            self.ui = Layout(models)
            self.connect()

    def connect(self) -> None:
        import gradio

        ui, shared = self.ui, [self.visit, self.ui.status]
        chosen, offered = [self.visit, *ui.choices], [ui.source, ui.formats, ui.written]

        def on(event: Any, handler: Callable[..., Updates], given: list[Any], outputs: list[Any]) -> Any:
            # One at a time: the machine's cores and memory are shared by all visitors.
            return event(
                self.guarded(handler), given, [*shared, *outputs], concurrency_id="models", concurrency_limit=1,
                show_progress="minimal", api_visibility="private",
            )  # fmt: skip

        def click(visit: Visit | None, layer: float, shown: str, event: gradio.EventData) -> Updates:
            if visit is not None:
                visit.clicked = (event.x, event.y)
            return self.attend(visit, layer, shown)

        def example(index: int, *given: Any) -> Updates:
            return self.open(str(EXAMPLES[index]), *given)

        def upload(paths: list[str] | None, before: list[str], *given: Any) -> Updates:
            first = next((path for path in paths or [] if path not in before), paths[-1] if paths else None)
            return {**self.open(first, *given), **self.listed(paths, first)}

        def shoot(path: str | None, *given: Any) -> Updates:
            # Gradio calls every shot image.png.
            return self.open(path and copyfile(path, str(self.new_folder() / f"webcam{Path(path).suffix}")), *given)

        def show(paths: list[str] | None, index: int | None, opened: str | None, *given: Any) -> Updates:
            # Gradio reports a choice by mouse twice: when it is made, and when the list loses the focus.
            path = paths[index] if paths and index is not None and index < len(paths) else None
            return {} if path == opened else self.open(path, *given)

        opening = [self.opened, *ui.figures, *ui.clouds, *offered]
        for event, opened, given in (
            (ui.file.upload, upload, [ui.file, self.uploaded]),
            (ui.shown.input, show, [ui.file, ui.shown, self.opened]),
            (ui.webcam.input, shoot, [ui.webcam]),
            (ui.examples.click, example, [ui.examples]),
        ):
            done = on(event, opened, [*given, *chosen], [ui.shown, self.uploaded, *opening])
            on(done.then, self.cloud, chosen, ui.clouds)
        for removed in (ui.file.delete, ui.file.clear):
            on(removed, self.listed, [ui.file, self.opened], [ui.shown, self.uploaded])
        first = on(self.blocks.load, partial(example, 0), chosen, opening)
        on(first.then, self.cloud, chosen, ui.clouds)
        first.then(None, js=NAME_EXAMPLES, api_visibility="private")
        on(ui.again.click, self.predict, chosen, [*ui.figures, *offered])
        for changed in (ui.cmap.change, ui.low.submit, ui.low.blur, ui.high.submit, ui.high.blur):
            on(changed, self.recolour, chosen, [ui.colours, *ui.views])
        lens = [event for text in (ui.fov, ui.near, ui.far) for event in (text.submit, text.blur)]
        for changed in (ui.head.change, *lens):
            done = on(changed, self.refresh, chosen, [*ui.figures, *offered])
            on(done.then, self.cloud, chosen, ui.clouds)
        looked = [*ui.attentions, ui.attention_controls, ui.layer, ui.query]
        for view in ui.views:
            on(view.click, click, [self.visit, ui.layer, ui.query], looked)
        for changed in (ui.layer.release, ui.query.input):
            on(changed, self.attend, [self.visit, ui.layer, ui.query], looked)
        on(ui.source.change, self.offer, [self.visit, ui.source, *ui.choices], offered)
        on(ui.write.click, self.save, [self.visit, ui.source, ui.formats, *ui.choices], offered)

    def guarded(self, handler: Callable[..., Updates]) -> Callable[..., Updates]:
        """Return a handler whose errors become a sentence on the page, which keeps what it showed before."""
        import gradio

        @wraps(handler)
        def run(*given: Any) -> Updates:
            try:
                return handler(*given) or {self.ui.status: gradio.skip()}  # Gradio takes no empty dict
            except (DensevitError, Preempted, MemoryError, OSError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                    raise
                return {self.ui.status: f'<p class="warning">{html.escape(reason(error))}</p>'}

        return run

    def open(self, path: str | None, before: Visit | None, *choices: Any) -> Updates:
        """Show a new image or clip; one that is refused takes what the page showed before with it."""
        if path is None:
            return {}
        try:
            shown = self.predict(Visit(open_given(Path(path), self.limits, self.new_folder())), *choices)
        except DataError as error:
            shown = self.cleared(str(error), before)
        return {**shown, self.opened: path}

    def listed(self, paths: list[str] | None, opened: str | None) -> Updates:
        """Return the list of the visitor's files, from which one is shown."""
        import gradio

        paths = paths or []
        choices = [(Path(path).name, index) for index, path in enumerate(paths)]
        shown = paths.index(opened) if opened in paths else None
        visible = len(paths) > 1 or (len(paths) == 1 and shown is None)
        return {self.ui.shown: gradio.update(choices=choices, value=shown, visible=visible), self.uploaded: paths}

    def cleared(self, why: str, before: Visit | None) -> Updates:
        import gradio

        ui = self.ui
        gone = f" The result of {before.given.path.name} was cleared." if before else ""
        warning = f'<p class="warning">{html.escape(why + gone)}</p>'
        parts = [ui.clip_column, *ui.clips, *ui.attentions, ui.attention_controls, ui.again]
        return {
            **{part: gradio.update(visible=False) for part in parts},
            **dict.fromkeys([*ui.views, *ui.clouds], WAITING),
            ui.views[0]: warning,  # on phones the status is far below
            ui.formats: gradio.update(choices=[], value=[]),
            ui.written: None,
            self.visit: None,
            ui.status: warning,
        }

    def predict(self, visit: Visit | None, *choices: Any) -> Updates:
        if visit is None:
            return {}
        options = options_from(*choices)
        visit.fov = options.fov
        shown = self.predict_image if isinstance(visit.given, GivenImage) else self.predict_clip
        updates: Updates = shown(visit, options)
        return {**updates, self.visit: visit, **self.offer(visit, self.models[0].name, *choices)}

    def predict_image(self, visit: Visit, options: ViewOptions) -> Updates:
        import gradio

        given = visit.given
        assert isinstance(given, GivenImage)
        visit.predictions, times = [], []
        for model in self.models:
            begun = perf_counter()
            visit.predictions.append(model.predict(given, options.fov))
            times.append(f"{model.name} {perf_counter() - begun:.2f} s")
        h, w = given.image.shape[:2]
        lines = [
            f"{given.path.name}, {w} x {h} pixels: {', '.join(times)}. {given.note}",
            self.describe_lens(given, options),
        ]
        hidden = [self.ui.clip_column, *self.ui.clips, *self.ui.attentions, self.ui.attention_controls, self.ui.again]
        return {
            self.ui.status: paragraphs(lines),
            **self.views(visit, options),
            **{component: gradio.update(visible=False) for component in hidden},
        }

    def predict_clip(self, visit: Visit, options: ViewOptions) -> Updates:
        import gradio

        given, ui = visit.given, self.ui
        assert isinstance(given, GivenClip)
        visit.ends, lines = [], []
        updates: Updates = {part: gradio.update(visible=False) for part in [*ui.attentions, ui.attention_controls]}
        updates[ui.colours] = gradio.update(visible=True)
        for model, clip, view in zip(self.models, ui.clips, ui.views, strict=True):
            if model.head(options.head, DEPTH_KINDS) is None:
                visit.ends.append(None)
                updates |= {view: paragraphs([no_depth(model, "clips are shown as depth")])}
                continue
            begun = perf_counter()
            visit.ends.append(affordable_end(model, given, options, self.limits.seconds))
            (video,) = write_clip_files(model, given, ["mp4"], options, self.new_folder(), visit.ends[-1])
            updates |= {view: str(scale_of_video(video)), clip: gradio.update(value=str(video), visible=True)}
            lines.append(f"{given.path.name}: {model.name} {perf_counter() - begun:.1f} s.")
            if visit.ends[-1] is not None:
                lines.append(
                    f"These are its first {visit.ends[-1]:.1f} s: the rest would take {model.name} longer than "
                    f"{self.limits.seconds:g} s (--time-limit)."
                )
        updates |= {ui.clip: str(given.path), ui.clip_column: gradio.update(visible=True)}
        return {**updates, ui.status: paragraphs(lines), ui.again: gradio.update(visible=True)}

    def views(self, visit: Visit, options: ViewOptions) -> Updates:
        assert isinstance(visit.given, GivenImage)
        import gradio

        shown = map_views(self.models, visit.given, visit.predictions, options)
        heads = [
            spec for model in self.models for name, spec in model.heads.items() if name == model.head(options.head)
        ]
        colours = gradio.update(visible=any(map(is_coloured, heads)))
        return {self.ui.colours: colours, **dict(zip(self.ui.views, map(str, shown), strict=True))}

    def recolour(self, visit: Visit | None, *choices: Any) -> Updates:
        if visit is None or isinstance(visit.given, GivenClip):
            return {}  # the button predicts a clip again
        return self.views(visit, options_from(*choices))

    def refresh(self, visit: Visit | None, *choices: Any) -> Updates:
        """Renew the views after a change that may concern predictions, too."""
        if visit is None or isinstance(visit.given, GivenClip):
            return {}
        options = options_from(*choices)
        needs = any(model.predictor.card.needs_camera for model in self.models)
        if needs and options.fov != visit.fov:
            return self.predict(visit, *choices)
        lens = {self.ui.status: paragraphs([visit.given.path.name, self.describe_lens(visit.given, options)])}
        return {**self.views(visit, options), **self.offer(visit, self.models[0].name, *choices), **lens}

    def cloud(self, visit: Visit | None, *choices: Any) -> Updates:
        if visit is None:
            return {}
        if isinstance(visit.given, GivenClip):
            return dict.fromkeys(self.ui.clouds, paragraphs(["A point cloud needs an image. Drop one."]))
        options, updates = options_from(*choices), {}
        for model, maps, component in zip(self.models, visit.predictions, self.ui.clouds, strict=True):
            try:
                page = html.escape(model.cloud(visit.given, maps, options))
                title = html.escape(model.name)
                updates[component] = (
                    f'<p>{title}</p><iframe class="cloud" title="point cloud of {title}" srcdoc="{page}"></iframe>'
                )
            except ConfigError as error:
                updates[component] = paragraphs([str(error)])
        return updates

    def describe_lens(self, given: GivenImage, options: ViewOptions) -> str:
        size = (given.image.shape[0], given.image.shape[1])
        lenses = [given.lens(model.predictor, options.fov) for model in self.models]
        angles: dict[str, dict[str, None]] = {}
        for lens, source in lenses:
            angle = field_of_view(size[1], float(lens.matrix(size)[0, 0]))
            angles.setdefault(source, {})[f"{angle:.0f}"] = None
        words = [f"{' and '.join(each)} degrees ({source})" for source, each in angles.items()]
        return f"Field of view: {', '.join(words)}."

    def attend(self, visit: Visit | None, layer: float, shown: str) -> Updates:
        """Return the attention of the patch that was clicked."""
        import gradio

        if visit is None or visit.clicked is None or isinstance(visit.given, GivenClip):
            return {}
        ui, updates, lines, found = self.ui, dict[Any, Any](), [], []
        for model, component in zip(self.models, self.ui.attentions, strict=True):
            try:
                seen = model.attention(visit.given, visit.clicked, int(layer), shown)
            except ConfigError as error:
                lines.append(f"{model.name}: {error}")
                updates[component] = gradio.update(visible=False)
            else:
                found.append(seen)
                updates[component] = gradio.update(value=seen.pixels, label=seen.caption, visible=True)
        if found:
            layers, heads = (max(counts) for counts in zip(*((seen.layers, seen.heads) for seen in found), strict=True))
            updates |= {
                ui.attention_controls: gradio.update(visible=True),
                ui.layer: gradio.update(maximum=max(2, layers), value=min(int(layer), layers), visible=layers > 1),
                ui.query: gradio.update(choices=["mean of heads", "rollout", *(f"head {i}" for i in range(heads))]),
            }
        return {**updates, **({ui.status: paragraphs(lines)} if lines else {})}

    def offer(self, visit: Visit | None, source: str, *choices: Any) -> Updates:
        """Return the formats of the chosen checkpoint."""
        import gradio

        if visit is None:
            return {}
        clip = isinstance(visit.given, GivenClip)
        names = formats_of(self.model(source), options_from(*choices), clip=clip)
        ticked = [name for name in names if name in TICKED and not (clip and name not in ("mp4", "ffv1"))]
        found = {self.ui.formats: gradio.update(choices=names, value=ticked), self.ui.written: None}
        return {self.ui.source: source, **found}

    def save(self, visit: Visit | None, source: str, formats: list[str], *choices: Any) -> Updates:
        if visit is None or not formats:
            raise DataError("Drop an image or a clip first." if visit is None else "Tick a format first.")
        model, options, folder = self.model(source), options_from(*choices), self.new_folder()
        if isinstance(visit.given, GivenImage):
            paths = write_image_files(model, visit.given, formats, options, folder)
        else:
            end = visit.ends[self.models.index(model)]
            paths = write_clip_files(model, visit.given, formats, options, folder, end)
        return {self.ui.written: [str(path) for path in paths]}

    def model(self, name: str) -> AppModel:
        return next(model for model in self.models if model.name == name)

    def new_folder(self) -> Path:
        return Path(mkdtemp(dir=self.folder))


def options_from(
    head: str,
    cmap: str,
    low: str | None,
    high: str | None,
    fov: str | None,
    near: str | None,
    far: str | None,
    stabilize: bool,
) -> ViewOptions:
    """Return the values of the controls, in the order of `Layout.choices`. Raises DataError: numbers that do not
    fit."""
    limits, angle = (number(low, "from"), number(high, "to")), number(fov, "field of view")
    ends = (number(near, "near") or 0.0, number(far, "far") or 0.0)
    if limits[0] is not None and limits[1] is not None and not limits[0] < limits[1]:
        raise DataError(f"Colours run from {low} to {high}: the first must be the smaller one.")
    if angle is not None and not is_possible_fov(angle):
        raise DataError(f"The field of view is {fov} degrees; it lies between 0.5 and 170.")
    if not 0 < ends[0] < ends[1]:
        raise DataError(f"Near is {near or 'nothing'} and far {far or 'nothing'}: metres, 0 < near < far.")
    return ViewOptions(head, cmap, limits, angle, ends, stabilize)


def number(text: str | None, name: str) -> float | None:
    """Return None of an empty field."""
    if text is None or not text.strip():
        return None
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = inf
    if not isfinite(value):
        raise DataError(f"{name} is '{text}', which is no number.")
    return value


def no_depth(model: AppModel, what: str) -> str:
    return f"{model.name} predicts {', '.join(model.heads)} and no depth; {what}."


def reason(error: BaseException) -> str:
    if is_out_of_memory(error) or isinstance(error, MemoryError):
        return "This does not fit into the machine's memory. Choose a smaller image."
    return str(error)
