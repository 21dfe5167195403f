"""The page of `densevit app` in Chromium, as a visitor uses it; what it shows is compared with Python's prediction.

Needs gradio and playwright (pip) and Chromium (`CHROMIUM`, /usr/bin/chromium), and is skipped without them.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from web_sites import CHROMIUM, SIZE, save_model

from densevit.api import load
from densevit.api.predict import predict
from densevit.ops.colors import colorize

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_spec("gradio") is None, reason="gradio is not installed"),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM}"),
]

VALUES = """() => {
  const stack = document.querySelector("#view-0 .stack");
  const bytes = Uint8Array.from(atob(stack.dataset.values), (letter) => letter.charCodeAt(0));
  return Array.from(new Float32Array(bytes.buffer));
}"""
PIXELS = """async () => {
  const picture = document.querySelector("#view-0 .map");
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  return Array.from(context.getImageData(0, 0, canvas.width, canvas.height).data);
}"""

WEBCAM = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # Chromium draws a moving image

SHOWN = """(canvas) => {
  const [w, h, ratio] = [canvas.width, canvas.height, canvas.height / innerHeight];
  const { data } = canvas.getContext("2d").getImageData(0, 0, w, h), rows = [], columns = [];
  for (let i = 0; i < w * h; i++) {
    if (data[4 * i] === 0x14 && data[4 * i + 1] === 0x18 && data[4 * i + 2] === 0x1f) continue;
    rows.push(Math.floor(i / w)); columns.push(i % w);
  }
  const ends = (places) => [Math.min(...new Set(places)), Math.max(...new Set(places))];
  return { rows: ends(rows), columns: ends(columns), bottom: document.getElementById("panel").offsetTop * ratio, w };
}"""


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    from skimage import data

    save_model(folder / "model")
    Image.fromarray(data.astronaut()).resize(SIZE[::-1]).save(folder / "photo.png")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Of the page, served by the command; Ctrl-C ends it, and nothing is left behind."""
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "densevit", "app", str(folder / "model"), "--max-pixels", "1000000"]
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    server = subprocess.Popen(
        [*command, "--device", "cpu", "--precision", "fp32"], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        said = next((line for line in server.stdout if "Ctrl-C" in line), "")
        yield said.split()[0]
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        server.stdout.close()
    assert list((folder / "tmp").iterdir()) == []


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Any]:
    """The page; requests to other hosts fail the test."""
    playwright.expect.set_options(timeout=60_000)
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *WEBCAM])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(60_000)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("#file input[type=file]", state="attached")
        yield page
        browser.close()
    assert [url for url in requests if not url.startswith((address, "blob:", "data:"))] == []


def test_a_port_that_is_in_use_is_named(address: str, folder: Path) -> None:
    port = address.strip("/").split(":")[2]
    command = [sys.executable, "-m", "densevit", "app", str(folder / "model"), "--port", port]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 2 and "The port is in use, or the host" in said.stderr


def save_frames(folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "walk").mkdir()
    for i in range(3):
        Image.open(folder / "photo.png").save(tmp_path / f"walk/{i}.png")
    return tmp_path / "walk"


def drop(page: Any, path: Path | list[Path], said: str) -> None:
    """Gives the page files, and waits for what it says."""
    for remove in page.locator("#file button[aria-label='Clear']").all():
        remove.click()
    page.wait_for_selector("#file input[type=file]", state="attached")
    page.set_input_files("#file input[type=file]", path)
    playwright.expect(page.locator("#status")).to_contain_text(re.compile(said))


def test_the_map_is_that_of_python_and_its_values_stand_under_the_pointer(page: Any, folder: Path) -> None:
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels: model .* s.*Field of view: 60 degrees")
    expected = np.asarray(load(folder / "model", device="cpu", precision="fp32")(folder / "photo.png", head="depth"))
    page.wait_for_selector("#view-0 .stack")
    assert np.abs(np.reshape(page.evaluate(VALUES), SIZE) - expected).max() < 1e-3
    pixels = np.reshape(page.evaluate(PIXELS), (*SIZE, 4))[..., :3].astype(int)
    assert np.abs(pixels - colorize(expected)).max() <= 8  # one step of the table's 256
    page.hover("#view-0 .stack", position={"x": 1, "y": 1})
    assert page.inner_text("#view-0 .readout") == f"{expected[0, 0]:.3f} m at x 0, y 0"
    page.fill("#low textarea, #low input", "9")
    page.fill("#high textarea, #high input", "3")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#status")).to_contain_text("Colours run from 9 to 3")
    page.fill("#low textarea, #low input", "")
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#view-0 .scale")).to_contain_text("3 m")


def test_a_refused_file_is_named_and_clears_the_page_and_a_large_one_is_reduced(
    page: Any, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.pdf").write_bytes(b"%PDF-1.4")
    Image.new("1", (5_000, 4_000)).save(tmp_path / "huge.png")
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")
    drop(page, tmp_path / "notes.pdf", "notes.pdf: is PDF; images may be.*The result of photo.png was cleared")
    assert page.locator("#view-0 .stack").count() == 0
    assert page.inner_text("#view-0").startswith("notes.pdf: is PDF")
    drop(page, tmp_path / "huge.png", "huge.png, 1118 x 894 pixels.*Reduced from 5000 x 4000 pixels")
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")


def test_of_several_files_each_is_shown_and_a_video_under_the_name_of_an_image_is_a_clip(
    page: Any, folder: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (96, 64), "teal").save(tmp_path / "second.png")
    predict(load(folder / "model", device="cpu"), save_frames(folder, tmp_path), tmp_path, formats=["mp4"])
    (tmp_path / "walk.color.mp4").rename(tmp_path / "clip.jpg")
    drop(page, [folder / "photo.png", tmp_path / "second.png", tmp_path / "clip.jpg"], "photo.png, 80 x 64 pixels")
    for name, said in (("second.png", "second.png, 96 x 64 pixels"), ("clip.jpg", "clip.mp4: model .* s")):
        choose(page, name, said)
    Image.new("RGB", (64, 64), "teal").save(tmp_path / "added.png")
    page.set_input_files("#file input[type=file]", tmp_path / "added.png")
    playwright.expect(page.locator("#status")).to_contain_text("added.png, 64 x 64 pixels")
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")
    playwright.expect(page.locator("#shown")).to_be_hidden()


def choose(page: Any, name: str, said: str) -> None:
    page.click("#shown input")
    page.get_by_role("option", name=name).click()
    playwright.expect(page.locator("#status")).to_contain_text(re.compile(said))


def test_a_choice_is_predicted_once_and_removed_files_leave_the_list(page: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes((folder / "photo.png").read_bytes()[:900])
    Image.new("RGB", (96, 64), "teal").save(tmp_path / "second.png")
    drop(page, [folder / "photo.png", tmp_path / "cut.png", tmp_path / "second.png"], "photo.png, 80 x 64 pixels")
    choose(page, "cut.png", "cut.png: .*The result of photo.png was cleared")
    page.wait_for_timeout(2000)
    playwright.expect(page.locator("#status")).to_contain_text("The result of photo.png was cleared")
    page.locator("#file button[aria-label='Remove this file']").first.click()
    playwright.expect(page.locator("#file button[aria-label='Remove this file']")).to_have_count(2)
    page.wait_for_timeout(1000)
    choose(page, "second.png", "second.png, 96 x 64 pixels")
    page.locator("#file button[aria-label='Clear']").first.click()
    playwright.expect(page.locator("#shown")).to_be_hidden()
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")


def test_the_scale_of_a_portrait_photo_is_on_the_first_screen(page: Any, folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (300, 600), "teal").save(tmp_path / "portrait.png")
    drop(page, tmp_path / "portrait.png", "portrait.png, 300 x 600 pixels")
    scale, photo, stack = (page.locator(f"#view-0 {part}").bounding_box() for part in (".scales", ".photo", ".stack"))
    assert scale["y"] + scale["height"] <= 900
    assert photo["y"] == stack["y"] and abs(stack["height"] - 2 * stack["width"]) <= 2
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")


def test_values_and_attention_are_there_for_the_keyboard(page: Any, folder: Path) -> None:
    page.hover("#view-0 .stack", position={"x": 1, "y": 1})
    page.focus("#view-0 .stack")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowDown")
    expected = load(folder / "model", device="cpu", precision="fp32")(folder / "photo.png", head="depth")[10, 1]
    assert page.inner_text("#view-0 .readout") == f"{expected:.3f} m at x 1, y 10"
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#attention-0")).to_contain_text("patch in row 0, column 0, layer 1 of 1")


def test_an_example_is_shown_at_first_and_at_a_click(page: Any, folder: Path) -> None:
    page.reload()
    playwright.expect(page.locator("#status")).to_contain_text("lounge.jpg, 640 x 480 pixels")
    page.get_by_role("button", name="tables").click()
    playwright.expect(page.locator("#status")).to_contain_text("tables.jpg, 640 x 480 pixels")
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")


def test_a_click_shows_the_attention_of_its_patch(page: Any) -> None:
    box = page.locator("#view-0 .stack").bounding_box()
    page.click("#view-0 .stack", position={"x": box["width"] * 0.9, "y": box["height"] * 0.3})
    playwright.expect(page.locator("#attention-0")).to_contain_text("patch in row 1, column 4, layer 1 of 1")
    caption, picture = (page.locator(f"#attention-0 {part}").bounding_box() for part in ("label", "img"))
    assert caption["y"] + caption["height"] <= picture["y"]


def test_the_point_cloud_turns(page: Any) -> None:
    page.get_by_role("tab", name="Point cloud").click()
    view = page.frame_locator("#cloud-0 iframe")
    playwright.expect(view.locator("h1")).to_have_text("photo")
    canvas = view.locator("canvas")
    seen = canvas.evaluate(SHOWN)  # all of the cloud, above the panel
    assert 0 < seen["rows"][0] < seen["rows"][1] < seen["bottom"]
    assert 0 < seen["columns"][0] < seen["columns"][1] < seen["w"] - 1
    before = canvas.screenshot()
    page.wait_for_timeout(1000)
    assert canvas.screenshot() != before  # by itself, until it is taken
    canvas.click()
    before = canvas.screenshot()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 100)
    page.mouse.up()
    assert canvas.screenshot() != before


def test_files_can_be_downloaded(page: Any, folder: Path) -> None:
    page.get_by_role("tab", name="Files").click()
    page.click("#write")
    link = page.locator("#written a", has_text=re.compile("KB|B")).first
    playwright.expect(link).to_be_visible()
    names = page.locator("#written").inner_text().replace("\n", "")
    assert "photo.npy" in names and "photo.ply" in names and "photo.labels.png" in names


def test_classes_have_a_legend(page: Any) -> None:
    page.get_by_role("tab", name="Maps").click()
    page.click("#head input")
    page.get_by_role("option", name="classes").click()
    playwright.expect(page.locator("#view-0 .scales")).to_contain_text(re.compile(r"(wall|floor|table) \d+\.\d%"))
    playwright.expect(page.locator("#cmap")).to_be_hidden()


def test_a_clip_plays(page: Any, folder: Path, tmp_path: Path) -> None:
    predict(load(folder / "model", device="cpu"), save_frames(folder, tmp_path), tmp_path, formats=["mp4"])
    drop(page, tmp_path / "walk.color.mp4", "walk.color.mp4: model .* s")
    video = page.locator("#clip-0 video")
    playwright.expect(video).to_be_visible()
    page.wait_for_function("document.querySelector('#clip-0 video').videoWidth === 80")
    clip, depth = page.locator("#clip").bounding_box(), page.locator("#clip-0").bounding_box()
    assert clip["y"] == depth["y"] and clip["x"] + clip["width"] < depth["x"]
    page.set_viewport_size({"width": 390, "height": 800})
    clip, depth = page.locator("#clip").bounding_box(), page.locator("#clip-0").bounding_box()
    assert clip["x"] == depth["x"] and 0 <= depth["y"] - clip["y"] - clip["height"] < 40


@pytest.mark.parametrize("width", [1300, 390])
def test_nothing_is_wider_than_the_window(page: Any, width: int, folder: Path) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    drop(page, folder / "photo.png", "photo.png, 80 x 64 pixels")
    page.wait_for_selector("#view-0 .stack")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    intro, rest = page.locator("#intro"), page.get_by_text("million parameters")
    assert intro.bounding_box()["height"] < 140
    playwright.expect(intro).to_contain_text("model: trained on unknown data.")
    playwright.expect(rest).to_be_hidden()
    for shown in (True, False):
        page.locator("#intro summary").press("Enter")
        playwright.expect(rest).to_be_visible(visible=shown)
    file, stack = page.locator("#file").bounding_box(), page.locator("#view-0 .stack").bounding_box()
    if width == 390:  # one column: photo and map, then the controls
        assert stack["y"] + stack["height"] <= file["y"]
    else:
        assert file["x"] + file["width"] <= stack["x"] and file["y"] < stack["y"]


def test_a_shot_of_the_webcam_is_called_so(page: Any) -> None:
    page.set_viewport_size({"width": 1300, "height": 900})
    page.get_by_role("button", name="Webcam").click()
    page.locator("#webcam").get_by_role("button").first.click()
    page.wait_for_function("document.querySelector('#webcam video')?.videoWidth > 0")
    page.locator("#webcam button[aria-label*='capture']").click()
    playwright.expect(page.locator("#status")).to_contain_text(re.compile(r"webcam\.\w+, \d+ x \d+ pixels"))
