"""The model that comes with the package: taken where none is named, by its name elsewhere."""

from pathlib import Path

import numpy as np
import pytest
from small import small_folder
from toy_room_model import write_toy

import densevit
from densevit.cli.main import main
from densevit.errors import ConfigError
from densevit.utils.network import PACKAGED, PUBLISHED
from densevit.weights import checkpoint, hub


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toy in place of the package's weights."""
    folder = write_toy(tmp_path / "toy")
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", folder)
    return folder


def test_it_is_taken_where_no_model_is_named_and_says_what_it_is(
    packaged: Path, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photo, other = sorted((small_folder(here / "photos", 2) / "images").iterdir())
    assert main(["predict", str(photo)]) == 0
    assert "trained on rendered rooms only" in caplog.text and "a field of view of 60 degrees is assumed" in caplog.text
    stem = photo.stem
    names = {f"{stem}.png", f"{stem}.color.png", f"{stem}.overlay.png", f"{stem}.normals.png"}
    assert names <= {path.name for path in (here / "predictions").iterdir()}
    assert densevit.predict(photo, [other], "two", formats="npy").done == 2
    named = densevit.load(PACKAGED)
    metres = named(photo)
    assert metres.dtype == np.float32 and np.array_equal(metres, densevit.load()(photo))
    focal = metres.shape[1] / 2 / np.tan(np.radians(30))
    assert np.allclose(metres, named.with_options(camera=float(focal))(photo), rtol=1e-4)
    with pytest.raises(ConfigError, match="toy is a model; name images"):
        densevit.predict(packaged, output=here / "none")
    with pytest.raises(ConfigError, match=f"{PACKAGED} is a model; name images"):
        densevit.predict(PACKAGED, output=here / "none")


@pytest.mark.skipif(not (hub.PACKAGED_FOLDER / checkpoint.WEIGHTS).exists(), reason="this clone has no weights yet")
def test_the_weights_of_the_package_are_small_and_give_metres() -> None:
    file = hub.PACKAGED_FOLDER / checkpoint.WEIGHTS
    assert file.stat().st_size < 8_000_000
    card = checkpoint.read_card(file)
    assert "does not replace published weights" in card.limitations and PUBLISHED in card.limitations
    assert card.licence == "Apache-2.0" and card.config == {} and set(card.outputs) == {"depth", "normals", "labels"}
    image = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    metres = densevit.load(precision="fp32")(image)
    assert metres.shape == (120, 160) and np.isfinite(metres).all() and 0 < metres.min() < metres.max() < 100
