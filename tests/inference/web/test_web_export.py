"""Web pages: the folder, its settings, and the messages before anything is computed. A browser runs it in
test_page.py."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from shell import Shell
from toy_models import toy_network
from web_sites import ENCODER, SIZE, save_model

from densevit.api import load
from densevit.cli.main import main
from densevit.errors import ConfigError
from densevit.inference.web.export import FILES, PACKAGE, at_size, copy_runtime, describe, export_web, shown
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.colors import table
from densevit.preprocess_config import PreprocessConfig


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for the npm package: each file holds its own name."""
    folder = tmp_path_factory.mktemp("npm") / "onnxruntime-web"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "package.json").write_text('{"version": "1.2.3"}')
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Path:
    folder = tmp_path_factory.mktemp("web")
    save_model(folder / "model")
    options = ["--image-size", "64,80", "--heads", "depth,classes", "--web-runtime", str(package)]
    assert main(["export", str(folder / "model"), str(folder / "site"), *options]) == 0
    return folder


@pytest.mark.slow
def test_the_site_holds_page_model_and_runtime_and_names_no_other_host(folder: Path) -> None:
    site = folder / "site"
    assert {path.name for path in (site / "ort").iterdir()} == set(FILES.values())
    assert (site / "ort/webgpu.wasm").read_text() == "dist/ort-wasm-simd-threaded.asyncify.wasm"
    pages = [path for path in site.iterdir() if path.suffix in (".html", ".js", ".css")]
    assert {path.name for path in pages} >= {"index.html", "page.js", "page.css", "worker.js"}
    assert not [path.name for path in pages if "http://" in path.read_text() or "https://" in path.read_text()]
    assert "--ink:" in (site / "page.css").read_text()  # the look of the reports


@pytest.mark.slow
def test_the_settings_say_what_the_page_must_know(folder: Path) -> None:
    settings = json.loads((folder / "site/model.json").read_text())
    assert settings["size"] == list(SIZE) and settings["title"] == "model" and not settings["needsFocal"]
    assert settings["data"] == settings["limitation"] == settings["details"] == ""
    assert settings["modelBytes"] == (folder / "site/model.onnx").stat().st_size
    depth, classes = settings["outputs"]
    assert (depth["name"], depth["kind"], depth["unit"]) == ("depth", "metric", "m")
    assert classes["classes"] == ["wall", "floor", "table"] and classes["palette"][0] == [128, 0, 0]
    assert settings["colormaps"]["turbo"] == table("turbo").ravel().tolist()


@pytest.mark.slow
def test_the_model_gives_what_the_checkpoint_gives(folder: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    session = onnxruntime.InferenceSession(folder / "site/model.onnx", providers=["CPUExecutionProvider"])
    depth, ids = session.run(["depth", "classes"], {"image": image[None]})
    expected = load(folder / "model", device="cpu", precision="fp32").predict_all(image)
    assert np.abs(depth[0, 0] - expected["depth"]).max() < 1e-4
    assert np.array_equal(ids[0], expected["classes"].argmax(0))


def card(**resize: object) -> ModelCard:
    return ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=14, resize=PreprocessConfig(**resize))  # type: ignore[arg-type]


def test_the_network_sees_images_at_the_size_of_its_training_or_at_the_one_that_is_chosen() -> None:
    anything = card(mode="lower_bound", size=(518, 518))
    assert at_size(anything, None)[1] == (518, 518)
    chosen, size = at_size(anything, (252, 336))
    assert size == chosen.resize.size == (252, 336) and chosen.resize.mode == "fixed"
    sliding, size = at_size(card(mode="shortest", size=(640, 640), window=(512, 512), stride=(341, 341)), None)
    assert size == (512, 512) and sliding.resize.window is None
    with pytest.raises(ConfigError, match="--image-size: this model takes images of any size.*multiples of 14"):
        at_size(card(), None)


def test_a_model_that_needs_the_focal_length_says_so_to_the_page() -> None:
    spec = ModelCard(outputs={"depth": HeadSpec(kind="metric", focal=500.0)}, multiple=14, fov=(55.0, 71.0))
    settings = describe(spec, SIZE, "", 1)
    assert settings["needsFocal"] and settings["fov"] == 63


def test_segments_and_focal_lengths_are_left_out_of_the_page_and_refused_where_they_are_named() -> None:
    kinds = {"depth": "metric", "f": "focal", "things": "panoptic", "things/classes": "query_classes"}
    everything = ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in kinds.items()}, multiple=14)
    assert list(shown(everything, ()).outputs) == list(shown(everything, ("depth",)).outputs) == ["depth"]
    with pytest.raises(ConfigError, match="--heads: f gives the focal length, which a web page does not show"):
        shown(everything, ("depth", "f"))
    unsure = replace(everything, outputs={"d": HeadSpec(kind="metric"), "d/uncertainty": HeadSpec(kind="uncertainty")})
    assert list(shown(unsure, ("d/uncertainty",)).outputs) == ["d", "d/uncertainty"]
    segments = replace(everything, outputs={"things": everything.outputs["things"]})
    with pytest.raises(ConfigError, match="--heads: things gives panoptic segments, which a web page does not show"):
        shown(segments, ())


def test_a_model_whose_sizes_are_fixed_is_refused_in_words_of_the_page(tmp_path: Path, package: Path) -> None:
    """The message asked for another --image-size, which changes nothing here."""
    network = toy_network(std=None, encoder=ENCODER, rule=PreprocessConfig(mode="fixed", size=(64, 80), margin=3.0))
    with pytest.raises(ConfigError, match="a web page: not for this model: the width of the margin.*FILE.onnx"):
        export_web(*network, tmp_path / "site", size=(64, 80), runtime=package)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_page_names_the_maps_that_its_model_gives(tmp_path: Path, package: Path) -> None:
    heads = {"f": {"type": "focal"}, "depth": {"type": "metric"}}
    pool = {"f": {"type": "pool", "pool": "average"}}
    network = toy_network(heads, std=None, encoder=ENCODER, decoders=pool, camera="canonical", canonical_focal=60.0)
    export_web(*network, tmp_path / "site", size=SIZE, runtime=package)
    session = onnxruntime.InferenceSession(tmp_path / "site/model.onnx", providers=["CPUExecutionProvider"])
    named = json.loads((tmp_path / "site/model.json").read_text())["outputs"]
    assert [output["name"] for output in named] == [output.name for output in session.get_outputs()] == ["depth"]


@pytest.mark.slow
def test_faults_are_reported_before_the_checkpoint_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr("densevit.api.export_model.restore", lambda *given, **more: pytest.fail("it was read"))
    (tmp_path / "photos").mkdir()
    site, foreign, missing = str(folder / "site"), str(tmp_path / "photos"), str(tmp_path / "none.tgz")
    assert "exists already; --overwrite replaces it" in shell.refused("export", "model", site)
    assert "is no site of export and is not replaced" in shell.refused("export", "model", foreign, "--overwrite")
    assert "none.tgz does not exist" in shell.refused("export", "model", tmp_path / "new", "--web-runtime", missing)
    monkeypatch.setenv("PATH", "")
    told = shell.refused("export", "model", tmp_path / "new")
    assert (
        f"npm, which fetches ONNX Runtime Web, is not installed. Install Node.js, or run `npm pack {PACKAGE}`" in told
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.slow
def test_a_failing_export_leaves_the_site_that_is_there(folder: Path, tmp_path: Path, shell: Shell) -> None:
    before = (folder / "site/model.json").read_bytes()
    command = ["export", str(folder / "model"), str(folder / "site"), "--overwrite"]
    told = shell.refused(*command, "--web-runtime", tmp_path, "--image-size", "64,80")
    assert f"has no dist/ort.wasm.min.mjs; it must be the npm package {PACKAGE}" in told
    assert (folder / "site/model.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["model", "site"]


def test_the_package_may_be_an_archive(package: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "ort.tgz", "w:gz") as archive:
        archive.add(package, "package")
    (tmp_path / "ort").mkdir()
    assert copy_runtime(tmp_path / "ort.tgz", tmp_path / "ort") == "1.2.3"
    assert (tmp_path / "ort/wasm.js").read_text() == "dist/ort-wasm-simd-threaded.mjs"
    (tmp_path / "other.tgz").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="other.tgz: is not the npm package"):
        copy_runtime(tmp_path / "other.tgz", tmp_path / "ort")


def test_what_npm_fetches_is_used_only_if_its_sum_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho package > ort.tgz\necho ort.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ConfigError, match="what npm fetched has the sha512 .*; it is not used"):
        copy_runtime(None, tmp_path)
    npm.write_text("#!/bin/sh\necho 'npm error network is unreachable' >&2\nexit 1\n")
    with pytest.raises(ConfigError, match=r"npm could not fetch .* \(npm error network is unreachable\)"):
        copy_runtime(None, tmp_path)
