"""`densevit export-depth`: arguments, exit codes and messages. The checkpoint is a stand-in that loads at once."""

import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

from densevit.cli.main import main
from densevit.data.io.readers import read_depth
from densevit.inference.predictor import Predictor
from densevit.inference.writers import OUTPUTS
from densevit.model_card import HeadSpec, Kind, ModelCard


class Mean(nn.Module):
    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"depth": 1 + image.mean(1, keepdim=True)}


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Kind:
    return "metric"


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    def load(path: str, family: object = None, family_options: object = None, **options: object) -> Predictor:
        return Predictor(Mean(), ModelCard(outputs={"depth": HeadSpec(kind=kind)}, multiple=1), **options)  # type: ignore[arg-type]

    monkeypatch.setitem(sys.modules, "densevit.builder.training", types.SimpleNamespace(load=load))  # type: ignore[arg-type]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i, name in enumerate(("a.jpg", "sub/b.png")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 8, 3), 40 * i, np.uint8)).save(path)
    return tmp_path / "in"


def test_all_formats_in_one_go(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    names = ",".join(sorted(OUTPUTS.parts))
    arguments = ["--format", names, "--fov", "60", "--range", "0,2", "--cmap", "magma", "--scale", "500"]
    assert main(["export-depth", "checkpoint", str(photos), "--output", str(out), *arguments]) == 0
    made = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    suffixes = [".png", ".npy", ".npz", ".pfm", ".h5", ".color.png", ".ply"]
    assert made == {name + suffix for name in ("a", "sub/b") for suffix in suffixes} | {"export.json"}
    np.testing.assert_allclose(read_depth(out / "a.png"), 1.0, atol=1e-6)
    assert "2 images in" in capsys.readouterr().out


def test_another_program_writes_the_same_maps_and_is_named(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for runtime in ("torch", "openvino"):
        arguments = ["--runtime", runtime, "--precision", "fp32", "--output", str(tmp_path / runtime)]
        assert main(["export-depth", "checkpoint", str(photos), *arguments]) == 0
    np.testing.assert_array_equal(read_depth(tmp_path / "openvino/sub/b.png"), read_depth(tmp_path / "torch/sub/b.png"))
    assert "2 images on cpu in fp32 by openvino" in capsys.readouterr().err


def test_a_bad_image_gives_exit_code_3_and_one_line(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "c.jpg").write_text("no picture")
    assert main(["export-depth", "checkpoint", str(photos), "--output", str(tmp_path / "out")]) == 3
    said = capsys.readouterr()
    assert said.out.count("c.jpg") == 1 and "1 of 3 images failed" in said.err
    assert (tmp_path / "out" / "a.png").exists() and (tmp_path / "out" / "sub" / "b.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "png"], "no format 'png'. Did you mean 'png16'"),
        (["--format", ","], "names no format"),
        (["--fov", "60", "--range", "0,1"], "--range is for color, which --format does not name."),
        (["--format", "ply"], "give the camera as one of fov"),
        (["--format", "color", "--cmap", "jet"], "cmap: input should be 'turbo'"),
        (["--device", "cuda:99"], "device"),
        (["--head", "sky"], "no head 'sky'"),
    ],
)
def test_wrong_arguments_end_with_exit_code_2_and_nothing_written(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["export-depth", "checkpoint", str(photos), "--output", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["affine", "disparity"])
def test_a_point_cloud_of_a_relative_model_is_refused_before_any_work(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    given = [str(photos), "--output", str(tmp_path / "out"), "--format", "npy,ply", "--fov", "60"]
    assert main(["export-depth", "checkpoint", *given]) == 2
    assert f"this model gives {kind} values" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments", [["--batch-size", "0"], ["--batch", "2"], ["--intrinsics", "1,2"], ["--range", "a,b"]]
)
def test_arguments_are_never_guessed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export-depth", "checkpoint", "in", "--output", "out", *arguments])
    assert caught.value.code == 2


def test_the_door_answers_help_without_heavy_imports_and_names_every_format() -> None:
    door = Path(__file__).parents[2] / "tools" / "export_depth.py"
    told = subprocess.run(
        [sys.executable, "-X", "importtime", door, "--help"], capture_output=True, text=True, check=True
    )
    assert all(name in told.stdout for name in OUTPUTS.parts)
    assert not any(f" {heavy}\n" in told.stderr for heavy in ("torch", "numpy", "cv2", "pydantic"))


def test_tiles_are_an_option_and_noted_in_the_record(photos: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "large.png")
    out = tmp_path / "out"
    assert (
        main(["export-depth", "checkpoint", str(tmp_path / "large.png"), "--output", str(out), "--tile-size", "32"])
        == 0
    )
    np.testing.assert_allclose(read_depth(out / "large.png"), 1 + image.mean(-1) / 255, atol=0.1)
    assert '"side": 32' in (out / "export.json").read_text()


def test_an_overlap_without_tiles_is_refused(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export-depth", "checkpoint", str(photos), "--output", str(tmp_path / "out"), "--tile-overlap", "0.3"]
    assert main(arguments) == 2
    assert "belongs to --tile-size" in capsys.readouterr().err
