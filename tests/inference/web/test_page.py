"""The page in Chromium, as a visitor uses it; what it shows is compared with Python's prediction for the same image.

Needs playwright (pip), Chromium (`CHROMIUM`, /usr/bin/chromium) and npm or its cache, and is skipped without them.
"""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image
from PIL.TiffImagePlugin import IFDRational
from web_sites import CHROMIUM, SIZE, runtime_package, save_model

from densevit.api import load
from densevit.cli.main import main
from densevit.data.io.exif import exif_focal
from densevit.inference.predictor import Predictor
from densevit.inference.web.export import at_size
from densevit.ops.colors import colorize, overlay, usual_palette
from densevit.ops.geometry import backproject, field_of_view, pinhole, pinhole_from_fov

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM}")]

EXIF = ExifTags.Base
PITCH = {
    EXIF.FocalLength: IFDRational(42, 10), EXIF.FocalPlaneXResolution: IFDRational(600),
    EXIF.FocalPlaneResolutionUnit: 3, EXIF.ExifImageWidth: 2 * SIZE[1], EXIF.ExifImageHeight: 2 * SIZE[0],
}  # fmt: skip

POINT = np.dtype([(axis, "<f4") for axis in "xyz"] + [(color, "u1") for color in ("red", "green", "blue")])


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    save_model(folder / "model")
    command = ["export", str(folder / "model"), str(folder / "site"), "--image-size", "64,80"]
    assert main([*command, "--title", "Rooms", "--web-runtime", str(runtime_package(folder))]) == 0
    settings = folder / "site/model.json"
    settings.write_text(settings.read_text().replace('"limitation": ""', '"limitation": "Rooms only."'))
    return folder


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    return load(folder / "model", device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Any]:
    """The page, ready; requests to other hosts fail the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "site")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    options = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=options)
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(60_000)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        yield page
        browser.close()
    server.shutdown()
    server.server_close()
    assert [url for url in requests if not url.startswith((address, "blob:", "data:"))] == []


def photo(path: Path, size: tuple[int, int] = SIZE) -> np.ndarray:
    from skimage import data

    image: Any = Image.fromarray(data.astronaut()).resize(size[::-1])
    image.save(path)
    return np.asarray(image)


def wait_for_status(page: Any, pattern: str) -> str:
    playwright.expect(page.locator("#status")).to_have_text(re.compile(pattern), timeout=60_000)
    return str(page.inner_text("#status"))


def choose(page: Any, path: Path) -> str:
    """Gives the page a file, for depth, and waits for what it says."""
    if page.is_visible("#head"):  # after the first result
        page.select_option("#head", "depth")
    page.evaluate("document.querySelector('#status').textContent = ''")
    page.set_input_files("#file", path)
    return wait_for_status(page, "^(?!Predicting).")


def saved(page: Any, button: str) -> Path:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path())


def test_values_and_pictures_are_those_of_python(page: Any, predictor: Predictor, tmp_path: Path) -> None:
    assert page.inner_text("#limitations") == "Rooms only. Images stay on this device."
    image = photo(tmp_path / "photo.png")
    assert choose(page, tmp_path / "photo.png").startswith("photo.png: ")
    expected = predictor.predict_all(image)
    depth = np.load(saved(page, "#save-values"))
    assert depth.shape == (1, *SIZE) and depth.dtype == np.float32
    assert np.abs(depth[0] - expected["depth"]).max() < 1e-3
    picture = np.asarray(Image.open(saved(page, "#save-image")).convert("RGB")).astype(int)
    assert np.abs(picture - colorize(depth[0])).max() <= 8  # one step of the table's 256
    page.select_option("#head", "classes")
    ids = np.load(saved(page, "#save-values"))
    assert (ids == expected["classes"].argmax(0)).mean() > 0.99
    picture = np.asarray(Image.open(saved(page, "#save-image")).convert("RGB")).astype(int)
    assert np.abs(picture - overlay(image, ids.astype(int), usual_palette(3))).max() <= 1
    legend = page.inner_text("#legend")
    assert [name in legend for name in ("wall", "floor", "table")] == [i in ids for i in range(3)]
    page.select_option("#head", "normals")
    assert np.abs(np.load(saved(page, "#save-values")) - expected["normals"]).max() < 1e-3
    page.select_option("#head", "depth")
    page.hover("#map", position={"x": 4, "y": 4})
    assert page.inner_text("#readout") == f"{depth[0, 0, 0]:.2f} m at x 0, y 0"
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#readout") == f"{depth[0, 10, 1]:.2f} m at x 1, y 10"
    page.select_option("#head", "classes")
    assert page.inner_text("#readout") == f"{('wall', 'floor', 'table')[ids[10, 1]]} at x 1, y 10"


def test_the_point_cloud_is_that_of_python_and_turns(page: Any, tmp_path: Path) -> None:
    image = photo(tmp_path / "photo.png")
    choose(page, tmp_path / "photo.png")
    depth = np.load(saved(page, "#save-values"))[0]
    saved(page, "#save-cloud").replace(tmp_path / "cloud.ply")
    header, _, content = (tmp_path / "cloud.ply").read_bytes().partition(b"end_header\n")
    points = np.frombuffer(content, POINT)
    assert b"element vertex 5120\n" in header and len(points) == depth.size
    xyz = backproject(depth, pinhole_from_fov(SIZE, 60)).reshape(-1, 3)
    assert np.abs(np.stack([points[axis] for axis in "xyz"], 1) - xyz).max() < 1e-5
    assert np.array_equal(np.stack([points[name] for name in ("red", "green", "blue")], 1), image.reshape(-1, 3))
    before = page.locator("#cloud").screenshot()
    page.focus("#cloud")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#cloud").screenshot() != before


@pytest.mark.parametrize("tags", [{EXIF.FocalLengthIn35mmFilm: 26}, PITCH])
def test_the_focal_length_of_a_photo_is_that_of_its_exif(page: Any, tmp_path: Path, tags: dict[int, Any]) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a quarter turn, as of a phone held upright
    exif.get_ifd(ExifTags.IFD.Exif).update(tags)
    Image.new("RGB", SIZE[::-1], "green").save(tmp_path / "photo.jpg", exif=exif)
    focal = exif_focal(tmp_path / "photo.jpg")
    assert focal is not None and focal > 0
    choose(page, tmp_path / "photo.jpg")
    depth = np.load(saved(page, "#save-values"))[0]
    (h, w), points = (
        depth.shape,
        np.frombuffer(saved(page, "#save-cloud").read_bytes().split(b"end_header\n")[1], POINT),
    )
    assert (h, w) == SIZE[::-1]
    xyz = backproject(depth, pinhole(focal, focal, (w - 1) / 2, (h - 1) / 2)).reshape(-1, 3)
    assert np.abs(np.stack([points[axis] for axis in "xyz"], 1) - xyz).max() < 1e-5
    assert page.input_value("#fov") == f"{field_of_view(w, focal):.1f}"
    assert "(EXIF)" in page.inner_text("#cloud-note")
    photo(tmp_path / "plain.png")
    choose(page, tmp_path / "plain.png")
    assert page.input_value("#fov") == "60"


def test_values_of_an_image_of_another_shape_have_its_size(page: Any, predictor: Predictor, tmp_path: Path) -> None:
    photo(tmp_path / "tall.png", (200, 100))
    choose(page, tmp_path / "tall.png")
    assert page.inner_text("#source") == "100 x 200 pixels"
    depth = np.load(saved(page, "#save-values"))[0]
    card, _ = at_size(predictor.card, SIZE)
    expected = predictor.with_options(card=card)(tmp_path / "tall.png", head="depth")
    assert depth.shape == (200, 100) and np.abs(depth / expected - 1).max() < 1e-3


def test_a_wide_image_stands_above_its_map(page: Any, tmp_path: Path) -> None:
    photo(tmp_path / "wide.png", (40, 400))
    choose(page, tmp_path / "wide.png")
    image, depth = (page.locator(name).bounding_box() for name in ("#image", "#map"))
    assert image["x"] == depth["x"] and image["y"] + image["height"] < depth["y"]


def test_the_scale_of_a_portrait_photo_is_on_the_first_screen(page: Any, tmp_path: Path) -> None:
    photo(tmp_path / "portrait.png", (400, 300))
    choose(page, tmp_path / "portrait.png")
    image, depth, scale = (page.locator(name).bounding_box() for name in ("#image", "#map", "#scale"))
    assert image["y"] == depth["y"] and scale["y"] + scale["height"] <= 900


def test_a_large_image_is_reduced_and_said_to_be(page: Any, tmp_path: Path) -> None:
    Image.new("RGB", (3000, 2000)).save(tmp_path / "large.png")
    choose(page, tmp_path / "large.png")
    assert page.inner_text("#source") == "3000 x 2000 pixels, reduced to 1732 x 1154"


def test_files_that_are_no_images_are_named_and_the_page_goes_on(page: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "empty.png").touch()
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    (tmp_path / "half.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:3000])
    Image.new("1", (20_000, 10_000)).save(tmp_path / "huge.png")
    photo(tmp_path / "good.png")
    reads, choice = "is no image that this browser reads", "Choose a JPEG, PNG, WebP or AVIF image."
    assert choose(page, tmp_path / "notes.pdf") == f"notes.pdf {reads} (application/pdf). {choice}"
    assert not page.is_visible("#result")  # no longer that of the image before
    assert choose(page, tmp_path / "cut.jpg") == f"cut.jpg {reads} (image/jpeg). {choice}"
    assert choose(page, tmp_path / "half.jpg").startswith("half.jpg is damaged, or too large")
    assert choose(page, tmp_path / "empty.png") == f"empty.png is empty. {choice}"
    assert "has 20000 x 10000 pixels, 200 megapixels; at most 100 are read" in choose(page, tmp_path / "huge.png")
    page.evaluate("document.dispatchEvent(new DragEvent('drop', {dataTransfer: new DataTransfer()}))")
    wait_for_status(page, "There is no file in what was dropped")
    assert choose(page, tmp_path / "good.png").startswith("good.png: ")


def test_camera_frames_are_predicted_until_it_is_stopped(page: Any) -> None:
    page.click("#webcam")
    wait_for_status(page, "^camera: ")
    assert "640 x 480 pixels" in page.inner_text("#source")
    assert re.search(r"are \d+ MB\.", page.text_content("#about"))
    page.click("#webcam")
    assert page.inner_text("#webcam") == "Use the camera"


@pytest.mark.parametrize("width", [1300, 390])
def test_nothing_is_wider_than_the_window(page: Any, width: int, tmp_path: Path) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    photo(tmp_path / "photo.png")
    choose(page, tmp_path / "photo.png")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_site_without_its_model_says_so(page: Any, folder: Path) -> None:
    (folder / "site/model.onnx").rename(folder / "model.onnx")
    page.reload()
    page.wait_for_selector("#status.error")
    said = page.inner_text("#status")
    assert said == "The model could not be loaded: the server has no model.onnx (404); upload the whole folder."
