"""`densevit app` below its page: what a checkpoint shows, the files it writes, and what it says of bad input."""

import base64
import io
import json
import re
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from shell import Shell
from web_sites import SIZE, save_model

from densevit.api import load
from densevit.api.predict import predict
from densevit.app.command import names_of
from densevit.app.files import affordable_end, clip_fov, formats_of, write_clip_files, write_image_files
from densevit.app.inputs import GivenClip, GivenImage, Limits, open_given
from densevit.app.models import AppModel, ViewOptions
from densevit.app.page import options_from
from densevit.app.views import legend_of, map_view, map_views, scale_of_video
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Lens
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec
from densevit.ops.colors import colorize, percentile_range
from densevit.ops.geometry import field_of_view, focal_length
from densevit.ops.segments import InstancePrediction, PanopticPrediction, draw_segments

LIMITS = Limits(pixels=100_000)


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    save_model(folder / "model")
    pixels = np.random.default_rng(0).integers(0, 256, (9, 10, 3), dtype=np.uint8)
    Image.fromarray(cv2.resize(pixels, SIZE[::-1])).save(folder / "photo.png")
    (folder / "frames").mkdir()
    for i in range(4):
        Image.fromarray(np.roll(cv2.resize(pixels, SIZE[::-1]), i, 1)).save(folder / f"frames/{i}.png")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> AppModel:
    return AppModel("mine", load(folder / "model", device="cpu", precision="fp32"))


@pytest.fixture(scope="module")
def given(folder: Path) -> GivenImage:
    found = open_given(folder / "photo.png", LIMITS, folder)
    assert isinstance(found, GivenImage)
    return found


class Part(torch.nn.Module):
    """A model without some of its heads."""

    def __init__(self, model: torch.nn.Module, kept: Collection[str]) -> None:
        super().__init__()
        self.model, self.kept = model, kept

    def forward(self, *given: Any, **more: Any) -> dict[str, torch.Tensor]:
        return {name: y for name, y in self.model(*given, **more).items() if name in self.kept}


def part_of(model: AppModel, *heads: str, **changed: Any) -> AppModel:
    """The model with these heads only, and a changed card."""
    card = model.predictor.card
    kept = {name: card.outputs[name] for name in heads}
    changed = {"outputs": kept, **changed}
    predictor = Predictor(Part(model.predictor.model, kept), replace(card, **changed), device="cpu", precision="fp32")
    return AppModel("other", predictor)


def picture(view: str, alt: str) -> np.ndarray:
    found = re.search(rf'src="data:image/\w+;base64,([^"]+)" alt="{alt}"', view)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB"))


def values_of(view: str) -> np.ndarray:
    about, values = re.search(r'data-about="([^"]+)" data-values="([^"]+)"', view).groups()  # type: ignore[union-attr]
    shape = json.loads(about.replace("&#34;", '"'))["shape"]
    return np.frombuffer(base64.b64decode(values), "<f4").reshape(shape)


def test_a_view_holds_the_values_of_python_and_their_colours(model: AppModel, given: GivenImage) -> None:
    maps = model.predict(given, None)
    expected = model.predictor.predict_all(given.path)
    (view,) = map_views([model], given, [maps], ViewOptions(cmap="viridis", limits=(None, 19.0)))
    np.testing.assert_array_equal(values_of(view)[..., 0], expected["depth"])
    low, _ = percentile_range(np.asarray(expected["depth"]))
    np.testing.assert_array_equal(picture(view, "the map"), colorize(expected["depth"], low, 19.0, "viridis"))
    assert f"{low:.3g} m" in view and "19 m" in view
    (view,) = map_views([model], given, [maps], ViewOptions(head="classes"))
    ids = expected["classes"].argmax(0)
    np.testing.assert_array_equal(values_of(view)[..., 0], ids)
    for i, name in enumerate(("wall", "floor", "table")):
        assert (f"{name} {(ids == i).mean():.1%}" in view) == (i in ids)
    ids = np.zeros((60, 80), np.int64)
    ids[0, 0] = 1  # 0.02% of the pixels
    assert [name for _, name in legend_of(ids, model.heads["classes"])] == ["wall 100.0%"]
    (view,) = map_views([model], given, [maps], ViewOptions(head="normals"))
    np.testing.assert_array_equal(values_of(view), expected["normals"].transpose(1, 2, 0))


def test_a_view_of_segments_has_a_table_of_them_and_names_those_under_the_pointer(
    model: AppModel, given: GivenImage
) -> None:
    spec = HeadSpec(kind="panoptic", unit="", classes=("wall", "floor", "table"), things=(2,))
    card = replace(model.predictor.card, outputs={"panoptic": spec})
    shown = AppModel("other", model.predictor.with_options(card=card))
    ids = np.zeros(SIZE, np.int32)
    ids[:, 10:30], ids[:, 30:40], ids[5:, 40:] = 1, 2, 3
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    found = PanopticPrediction(ids, np.array([0, 2, 2]), scores, np.array([False, True, True]))
    assert shown.reduced("panoptic", found, given) is found
    depth = np.where(ids == 2, 3.25, np.where(ids == 3, np.nan, 1.0)).astype(np.float32)
    outputs = {"depth": model.heads["depth"], "panoptic": spec}
    metric = AppModel("other", model.predictor.with_options(card=replace(card, outputs=outputs)))
    (view,) = map_views([metric], given, [{"panoptic": found, "depth": depth}], ViewOptions("panoptic"))
    np.testing.assert_array_equal(picture(view, "the map"), draw_segments(given.image, found, spec))
    np.testing.assert_array_equal(values_of(view)[..., 0], ids)
    names = ["no segment", "wall 0.90", "table 0.80, 3.2 m", "table 0.70"]
    assert f'"classes": {json.dumps(names)}'.replace('"', "&#34;") in view
    rows = re.findall(r"</span>(\w+)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)%", view)
    assert rows[-1] == ("table", "0.80", "3.25 m", f"{100 * (ids == 2).mean():.1f}")
    assert ("wall", "0.90", "") in [row[:3] for row in rows] and len(rows) == 3
    (view,) = map_views([shown], given, [{"panoptic": found}], ViewOptions())
    assert "median distance" not in view and "table 0.80&#34;" in view
    flat = PanopticPrediction(np.ones(SIZE, np.int32), np.array([0]), scores[:1], np.array([False]))
    (view,) = map_views([metric], given, [{"panoptic": flat, "depth": depth}], ViewOptions("panoptic"))
    assert "median distance" not in view  # stuff has none
    masks = np.stack([ids == 2, ids > 1])
    instances = InstancePrediction(masks, np.array([2, 1]), np.array([0.9, 0.6], np.float32))
    flat = shown.reduced("panoptic", instances, given)
    np.testing.assert_array_equal(flat.segments, np.array([0, 0, 1, 2])[ids])


@pytest.mark.parametrize(("limits", "shown"), [((None, 0.5), ("-0.5", "0.5")), ((9.0, None), ("9", "10"))])
def test_one_end_of_the_colours_may_lie_beyond_all_values(
    limits: tuple[float | None, float | None], shown: tuple[str, str]
) -> None:
    values = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
    view = map_view("x", np.zeros((3, 4, 3), np.uint8), values, HeadSpec(kind="affine"), ViewOptions(limits=limits))
    assert re.search(rf'class="scale">{shown[0]}<img.*>{shown[1]}</span>', view)
    assert len(np.unique(picture(view, "the map").reshape(-1, 3), axis=0)) == 1


def test_large_maps_are_thinned_out_and_never_blended() -> None:
    values = np.random.default_rng(0).random((20, 3000), dtype=np.float32)
    view = map_view("x", np.zeros((20, 3000, 3), np.uint8), values, HeadSpec(kind="affine"), ViewOptions())
    shown = values_of(view)
    assert shown.shape[1] == 1024 and np.isin(shown, values).all()
    assert '<div class="pair wide"' in view  # the map stands below an image this wide


def test_checkpoints_side_by_side_share_one_scale_of_metres(model: AppModel, given: GivenImage) -> None:
    maps = model.predict(given, None)
    far = {**maps, "depth": maps["depth"] * 3}
    both = map_views([model, model], given, [maps, far], ViewOptions())
    low, high = percentile_range(np.concatenate([maps["depth"].ravel(), far["depth"].ravel()]))
    for view, values in zip(both, (maps["depth"], far["depth"]), strict=True):
        np.testing.assert_array_equal(picture(view, "the map"), colorize(values, low, high))


def test_files_are_those_of_export_depth(model: AppModel, given: GivenImage, tmp_path: Path) -> None:
    formats = ["png16", "npy", "ply", "viewer", "labels", "normals"]
    assert set(formats) < set(formats_of(model, ViewOptions()))
    written = write_image_files(model, given, formats, ViewOptions(), tmp_path / "page")
    predict(model.predictor, given.path, tmp_path / "own", formats=formats, fov=60)
    assert {path.name for path in written} >= {"photo.png", "photo.ply", "photo.labels.png", "classes.json"}
    for path in written:
        assert path.read_bytes() == (tmp_path / "own" / path.name).read_bytes(), path.name
    write_image_files(model, given, ["color"], ViewOptions(cmap="magma", limits=(1.0, 2.0)), tmp_path / "page")
    shown = np.asarray(Image.open(tmp_path / "page/photo.color.png"))
    np.testing.assert_array_equal(shown, colorize(model.predict(given, None)["depth"], 1.0, 2.0, "magma"))


def test_a_checkpoint_without_depth_offers_what_it_has_and_says_what_it_lacks(
    model: AppModel, given: GivenImage
) -> None:
    classes = part_of(model, "classes")
    assert set(formats_of(classes, ViewOptions(head="depth"))) == {"labels", "overlay", "probabilities"}
    maps = classes.predict(given, None)
    (view,) = map_views([classes], given, [maps], ViewOptions(head="depth"))
    assert "other: classes" in view
    with pytest.raises(ConfigError, match="other predicts classes and no depth: there is no point cloud"):
        classes.cloud(given, maps, ViewOptions())


def test_depth_without_metres_takes_the_assumed_ends(model: AppModel, given: GivenImage, tmp_path: Path) -> None:
    card = model.predictor.card
    outputs = {**card.outputs, "depth": HeadSpec(kind="disparity")}
    relative = AppModel("r", Predictor(model.predictor.model, replace(card, outputs=outputs), device="cpu"))
    options = ViewOptions(assume_depth=(2.0, 5.0))
    page = relative.cloud(given, relative.predict(given, None), options)
    assert "metres if the depth runs from 2 to 5 m, which was assumed" in page
    assert "ply" in formats_of(relative, options)
    (path,) = write_image_files(relative, given, ["ply"], options, tmp_path)
    assert b"from 2 to 5 m, which was assumed" in path.read_bytes()[:300]


def test_the_lens_is_given_or_from_exif_or_assumed(model: AppModel, folder: Path, given: GivenImage) -> None:
    card = model.predictor.card
    predictor = model.predictor
    assert given.lens(predictor, None)[1].startswith("assumed") and given.lens(predictor, 70.0)[0].fov == 70.0
    image = Image.open(folder / "photo.png")
    exif = image.getexif()
    exif.get_ifd(0x8769)[0xA405] = 28  # the 35 mm equivalent
    image.save(folder / "exif.jpg", exif=exif)
    photo = open_given(folder / "exif.jpg", LIMITS, folder)
    assert isinstance(photo, GivenImage)
    assert photo.lens(predictor, None) == (photo.lens(predictor, None)[0], "from EXIF")
    assert photo.lens(predictor, None)[0].focal == pytest.approx(28 * np.hypot(*SIZE) / np.hypot(36, 24))
    outputs = {"depth": replace(card.outputs["depth"], focal=50.0)}
    needy = part_of(model, "depth", outputs=outputs, fov=(50.0, 70.0))
    expected = needy.predictor.with_options(camera=focal_length(SIZE[1], 60.0))(given.path)
    np.testing.assert_allclose(needy.predict(given, None)["depth"], expected, rtol=1e-6)
    np.testing.assert_allclose(needy.predict(given, 90.0)["depth"], expected * np.tan(np.pi / 6), rtol=1e-4)
    wide = AppModel("wide", needy.predictor.with_options(camera=Lens(fov=90.0)))  # densevit app --fov 90
    assert photo.lens(wide.predictor, None) == (Lens(fov=90.0), "given")
    np.testing.assert_allclose(wide.predict(given, None)["depth"], needy.predict(given, 90.0)["depth"])
    assert clip_fov(wide, ViewOptions()) == 90.0 and clip_fov(wide, ViewOptions(fov=50.0)) == 50.0


def test_a_large_photo_is_reduced_with_its_lens_and_says_so(model: AppModel, folder: Path, tmp_path: Path) -> None:
    image = Image.open(folder / "photo.png").resize((800, 640))
    exif = image.getexif()
    exif.get_ifd(0x8769)[0xA405] = 28
    image.save(tmp_path / "phone.jpg", exif=exif)
    photo = open_given(tmp_path / "phone.jpg", LIMITS, folder)
    assert isinstance(photo, GivenImage) and photo.image.shape == (282, 353, 3)
    assert photo.note == "Reduced from 800 x 640 pixels (--max-pixels 100,000)." and photo.path.name == "phone.jpg"
    fov = field_of_view(800, 28 * np.hypot(800, 640) / np.hypot(36, 24))
    assert photo.focal == pytest.approx(focal_length(353, fov))
    (cloud,) = write_image_files(model, photo, ["ply"], ViewOptions(), tmp_path / "page")
    predict(model.predictor, photo.path, tmp_path / "own", formats=["ply"], fov=fov)
    assert cloud.read_bytes() == (tmp_path / "own/phone.ply").read_bytes()


def test_an_image_by_the_name_of_a_list_is_no_list(model: AppModel, folder: Path, tmp_path: Path) -> None:
    image = Path(shutil.copy(folder / "photo.png", tmp_path / "photo.txt"))
    (tmp_path / "copies").mkdir()
    for limits in (LIMITS, Limits(pixels=1000)):
        given = open_given(image, limits, tmp_path / "copies")
        assert isinstance(given, GivenImage)
        (depth,) = write_image_files(model, given, ["npy"], ViewOptions(), tmp_path / f"{limits.pixels}")
        assert np.load(depth).shape == given.image.shape[:2]


def test_of_an_animation_the_first_image_is_shown_which_is_said(folder: Path, tmp_path: Path) -> None:
    still = Image.open(folder / "photo.png").convert("RGB")
    still.save(tmp_path / "walk.webp", save_all=True, append_images=[still.rotate(20)])
    given = open_given(tmp_path / "walk.webp", LIMITS, tmp_path)
    assert given.note == "Only the first frame is shown. To see all frames, convert the animation to a video (MP4)."
    assert open_given(folder / "photo.png", LIMITS, tmp_path).note == ""


def test_a_clip_becomes_a_video_as_long_as_the_time_limit_allows(model: AppModel, folder: Path, tmp_path: Path) -> None:
    predict(model.predictor, folder / "frames", tmp_path, formats=["mp4"], fps=4)
    clip = open_given(tmp_path / "frames.color.mp4", LIMITS, tmp_path)
    assert isinstance(clip, GivenClip)
    assert affordable_end(model, clip, ViewOptions(), 1000.0) is None
    assert affordable_end(model, clip, ViewOptions(), 1e-9) == 0.0
    scale = scale_of_video(tmp_path / "frames.color.mp4")
    assert re.search(r'<span class="scale">[\d.]+ m<img [^>]*>[\d.]+ m</span>', scale)
    whole = write_clip_files(model, clip, ["mp4", "npz_clip", "png16"], ViewOptions(), tmp_path / "a", None)
    assert [path.name for path in whole] == ["frames.color.color.mp4", "frames.color.depth.npz", "frames.color.zip"]
    assert len(np.load(whole[1])["depth"]) == 4
    (short,) = write_clip_files(model, clip, ["npz_clip"], ViewOptions(), tmp_path / "b", 0.3)
    assert len(np.load(short)["depth"]) == 2


def test_bad_files_are_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "film.mp4").write_bytes(b"no film")
    for name, text in {
        "notes.pdf": "notes.pdf: is PDF; images may be JPEG",
        "film.mp4": "film.mp4: cannot be read as a video",
    }.items():
        with pytest.raises(DataError) as error:
            open_given(tmp_path / name, LIMITS, tmp_path)
        assert str(error.value).startswith(text) and str(error.value).endswith("Choose another image or clip.")


def test_numbers_that_do_not_fit_are_refused() -> None:
    def options(low: str = "", high: str = "", fov: str = "", near: str = "1", far: str = "3") -> ViewOptions:
        return options_from("depth", "turbo", low, high, fov, near, far, True)

    assert options(high="2,5", fov="60") == ViewOptions("depth", "turbo", (None, 2.5), 60.0, (1.0, 3.0), True)
    for wrong, text in (
        ({"low": "3", "high": "3"}, "the first must be the smaller"),
        ({"fov": "175"}, "between 0.5 and 170"),
        ({"near": "0"}, "0 < near < far"),
        ({"far": "x"}, "far is 'x', which is no number"),
    ):
        with pytest.raises(DataError, match=text):
            options(**wrong)


def test_checkpoints_are_named_by_what_tells_them_apart() -> None:
    assert names_of(["runs/a", "runs/b"]) == ["a", "b"]
    assert names_of(["runs/a/best", "runs/b/best"]) == ["a/best", "b/best"]
    assert names_of(["runs/a", "runs/a"]) == ["1: runs/a", "2: runs/a"]


def test_a_line_says_what_a_model_cannot_do_and_unfolds_the_rest(model: AppModel) -> None:
    words = "Small: rooms only. For streets, take another."
    card = replace(model.predictor.card, trained_on="rooms (v2.0)", limitations=words, licence="MIT", source="runs/a")
    line, rest = AppModel("rooms", model.predictor.with_options(card=card)).about()
    assert line == "rooms: trained on rooms. Small: rooms only."
    assert rest == (
        "Predicts metric depth, classes of pixels, surface normals, 0.1 million parameters; runs/a; licence: MIT. "
        "Trained on rooms (v2.0). For streets, take another."
    )
    line, rest = model.about()
    assert line == "mine: trained on unknown data." and rest.endswith("; licence: unknown.")


def test_the_command_names_the_extra_before_it_reads_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr("densevit.utils.packages.is_installed", lambda package: False)
    assert "gradio is not installed: pip install 'densevit[app]'" in shell.refused("app", "missing")


def test_the_command_refuses_what_a_page_cannot_show(
    monkeypatch: pytest.MonkeyPatch, folder: Path, shell: Shell
) -> None:
    monkeypatch.setattr("densevit.utils.packages.is_installed", lambda package: True)
    refused = shell.refused("app", str(folder / "model"), "--tile-size", "64")
    assert "tiles: for depth only, not for classes (labels), normals (normals);" in refused
    assert "--fov DEGREES" in shell.refused("app", str(folder / "model"), "--focal", "500")
