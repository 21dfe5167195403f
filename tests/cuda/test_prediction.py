"""Predictions on the stand-in of a GPU: the host waits for the last maps only, and the numbers are those of the CPU."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import fake_gpu
import numpy as np
import pytest
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from densevit.errors import ConfigError, DataError
from densevit.inference.backends.onnx_runtimes import RuntimeName
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.output_plan import OutputPlan
from densevit.inference.predict.pipeline import Exporter, ImageExporter
from densevit.inference.predictor import Predictor
from densevit.inference.video import export as video_export
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.export import ClipExporter
from densevit.inference.writers import DEPTH_FORMATS
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.resize import cached_constants
from densevit.preprocess_config import PreprocessConfig
from densevit.utils.device import Pending, read_pending

pytestmark = pytest.mark.fake_cuda

LAST = Counter({"event with nothing queued behind it": 1})
WRITER = DEPTH_FORMATS.check({"type": "png16"}, "png16").build()
RESIZES = [
    PreprocessConfig(mode="fixed", size=(14, 28), interpolation="bicubic"),
    PreprocessConfig(mode="fixed", size=(7, 14), interpolation="area"),
    PreprocessConfig(mode="fixed", size=(14, 28), interpolation="bicubic", round_to_uint8=True),
]


class Depth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(inplace=True)) for _ in range(4)))

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        return {"depth": self.layers(image).mean(1, keepdim=True).exp()}


def predictor(
    device: str, resize: PreprocessConfig = RESIZES[0], focal: float | None = None, batch: int = 1,
    model: nn.Module | None = None, runtime: RuntimeName = "torch",
) -> Predictor:  # fmt: skip
    head = HeadSpec(kind="metric", range=(1e-3, 10.0), focal=focal)
    card = ModelCard(outputs={"depth": head}, multiple=7, resize=resize)
    camera = None if focal is None else 50.0
    options: dict[str, Any] = {"batch_size": batch, "camera": camera, "runtime": runtime}
    return Predictor(model or Depth(), card, device=device, precision="fp32", **options)


def images(count: int, sizes: Sequence[tuple[int, int]] = ((20, 40),)) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*sizes[i % len(sizes)], 3), np.uint8) for i in range(count)]


def waits(counts: fake_gpu.Counts) -> Counter[str]:
    found: Counter[str] = Counter()
    for (what, _), count in counts.waits.items():
        found[what] += count
    return found


@pytest.mark.parametrize("focal", [None, 25.0])
@pytest.mark.parametrize("resize", RESIZES, ids=["bicubic", "area", "bytes"])
def test_images_one_after_another_wait_for_the_last_maps_only(resize: PreprocessConfig, focal: float | None) -> None:
    several = images(5, [(20, 40), (30, 20)])
    expected = predictor("cpu", resize, focal).predict(several)
    with fake_gpu.fake_gpu() as counts:
        predict = predictor("cuda", resize, focal)
        counts.reset()
        found = predict.predict(several)
        assert waits(counts) == LAST, counts.said()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_interpolation_weights_go_up_once_a_size() -> None:
    with fake_gpu.fake_gpu() as counts:
        predict = predictor("cuda")
        first, second = images(2)
        predict(first)
        counts.reset()
        predict(second)
        assert counts.bytes_up == second.size and cached_constants.cache_info().hits


def finished(exporter: Exporter, counts: fake_gpu.Counts | None = None) -> list[bytes]:
    """The maps of an export, which waits for the last ones only."""
    exporter.prepare()
    if counts is not None:
        counts.reset()
    exporter.run_and_finish()
    assert counts is None or waits(counts) == LAST, counts.said()
    return [path.read_bytes() for path in sorted(exporter.plan.folder.rglob("*.png"))]


def test_an_export_waits_for_the_last_maps_only_and_writes_what_a_cpu_writes(tmp_path: Path) -> None:
    for i, image in enumerate(images(6, [(20, 40), (30, 20)])):
        Image.fromarray(image).save(tmp_path / f"{i}.png")

    def exporter(predict: Predictor, folder: Path) -> Exporter:
        items = find_items([str(path) for path in sorted(tmp_path.glob("*.png"))], [".png"], folder).items
        return ImageExporter(predict, OutputPlan(items, {"png16": WRITER}, folder))

    expected = finished(exporter(predictor("cpu"), tmp_path / "cpu"))
    with fake_gpu.fake_gpu() as counts:
        assert finished(exporter(predictor("cuda", batch=3), tmp_path / "gpu"), counts) == expected
    assert len(expected) == 6


def test_so_does_that_of_a_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The stand-in is there in one thread only.
    monkeypatch.setattr(video_export, "prefetch_iterator", lambda frames, ahead: (frame for frame in frames))
    (tmp_path / "clip").mkdir()
    for i, image in enumerate(images(6)):
        Image.fromarray(image).save(tmp_path / f"clip/{i}.png")

    def exporter(predict: Predictor, folder: Path) -> Exporter:
        return ClipExporter(predict, ClipPlan(find_clips([str(tmp_path / "clip")], 10), {"png16": WRITER}, {}, folder))

    expected = finished(exporter(predictor("cpu"), tmp_path / "cpu"))
    with fake_gpu.fake_gpu() as counts:
        assert finished(exporter(predictor("cuda", batch=2), tmp_path / "gpu"), counts) == expected
    assert len(expected) == 6


def test_maps_come_in_order_and_an_error_after_the_maps_before_it() -> None:
    log: list[str] = []

    def read(i: int) -> dict[str, np.ndarray]:
        log.append(f"read {i}")
        return {}

    def started(complete: bool) -> Iterator[tuple[Pending, int]]:
        for i in range(3):
            if i == 2:
                raise DataError("2.png: no image")
            log.append(f"start {i}")
            yield Pending(partial(read, i), complete), i

    for complete, expected in (
        (False, ["start 0", "start 1", "read 0", "read 1"]),
        (True, ["start 0", "read 0", "start 1", "read 1"]),
    ):
        log.clear()
        found = read_pending(started(complete))
        assert [number for _, number in islice(found, 2)] == [0, 1] and log == expected
        with pytest.raises(DataError, match=r"2\.png"):
            next(found)


def test_a_graph_is_recorded_once_a_size_and_replayed_with_the_numbers_of_torch() -> None:
    several = images(6, [(20, 40), (30, 20)])
    expected = predictor("cpu").predict(several)
    with fake_gpu.fake_gpu() as counts:
        predict, plain = predictor("cuda", runtime="cuda_graphs"), predictor("cuda")
        found = predict.predict(several)
        launched = []
        for each in (predict, plain):
            counts.reset()
            each(several[0])
            launched.append(counts.kernels)
            assert waits(counts) == LAST, counts.said()
        network = 4 * 2 + 2  # kernels of the model
        assert launched == [launched[1] - network + 3, launched[1]]  # copy in, replay, copy out
        assert len(predict.network.recordings) == 1  # both sizes enter the network at one
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_network_that_waits_for_the_device_cannot_be_recorded() -> None:
    class Looking(Depth):
        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            return {"depth": image.mean(1, keepdim=True) * image.max().item()}

    with fake_gpu.fake_gpu(), pytest.raises(ConfigError, match="cannot record this network .*capturing: item"):
        predictor("cuda", model=Looking(), runtime="cuda_graphs")(images(1)[0])


def test_cuda_graphs_are_for_a_gpu() -> None:
    with pytest.raises(ConfigError, match="cuda_graphs is for NVIDIA GPUs, not for 'cpu'; take torch"):
        predictor("cpu", runtime="cuda_graphs")
