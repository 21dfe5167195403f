"""An output kind that the package does not know, as a plug-in: trained, evaluated, written and exported."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnxruntime
import pytest
from small import small_config

import densevit
from densevit.api.evaluation import SCORERS
from densevit.inference.predictor import Predictor
from densevit.inference.writers.base import DEPTH_FORMATS
from densevit.models.heads.base import HEADS
from densevit.output_kinds import OUTPUT_KINDS
from densevit.tasks.base import TASKS

SLANT = dedent('''
    """How bright the image is to the right of each pixel minus to its left: a map whose sign changes in a mirror."""

    from dataclasses import dataclass
    from typing import Any

    import numpy as np
    import torch

    from densevit.api.evaluation import SCORERS
    from densevit.data.loading.prefetch import prefetch_samples
    from densevit.evaluation.scores import Scores
    from densevit.scorers.base import Evaluation, input_of
    from densevit.inference.writers.arrays import Npy
    from densevit.inference.writers.base import DEPTH_FORMATS
    from densevit.losses.depth import DEPTH_LOSSES
    from densevit.model_card import HeadSpec
    from densevit.models.heads.base import HEADS, Head
    from densevit.models.layers import ConvHead
    from densevit.output_kinds import OutputKind, register
    from densevit.tasks.base import NO_EXTRAS, TASKS, Task


    class SlantKind(OutputKind):
        def mirrored(self, y):
            return -y


    register(SlantKind("slant", "brightness slant", "slant"))


    @HEADS.register("slant")
    class SlantHead(Head):
        def __init__(self, channels):
            super().__init__()
            self.projection = ConvHead(channels, 1, hidden=8, align_corners=False)
            self.output = HeadSpec(kind="slant", unit="")

        def forward(self, x, size):
            return self.projection(x, size).float()


    def slant(image):
        gray = image.mean(1, keepdim=True)
        return gray.roll(-1, -1) - gray.roll(1, -1)


    @TASKS.register("slant")
    class SlantTask(Task):
        best = ("mae", "min")
        kinds = ("slant",)
        loss_registry = DEPTH_LOSSES
        default_losses = ({"type": "l1"},)

        def losses(self, prediction, batch, step, extras=NO_EXTRAS):
            valid = torch.ones_like(prediction, dtype=torch.bool)
            return self.weighted_losses(step, prediction, slant(batch.image), valid)

        def image_scores(self, prediction, batch):
            errors = (prediction - slant(batch.image)).abs().mean((1, 2, 3))
            return [{"mae": float(error)} for error in errors]

        def dataset_scores(self, rows):
            return {"mae": float(np.mean([row["mae"] for row in rows]))}

        def panel(self, prediction, batch):
            return (batch.image[0].permute(1, 2, 0).cpu().numpy() * 255).astype(np.uint8)


    @dataclass(frozen=True)
    class SlantScores(Scores):
        rows: Any
        mean: Any
        skipped: Any = ()
        task = "slant"
        ranking = "mae"

        @property
        def counts(self):
            return {"images": len(self.rows), "scored": len(self.rows)}

        def direction(self, metric):
            return "min"

        def formula(self, metric):
            return "mean(|s - p|)"

        def summary_sentence(self):
            return f"{len(self.rows)} images scored."

        def cards(self):
            return [("MAE", f"{self.mean['mae']:.4f}", "of the pixels")]


    def score(predictor, data, data_name, *, head=None):
        rows = []
        for sample in prefetch_samples(data):
            image = torch.from_numpy(np.array(sample.image)).permute(2, 0, 1)[None] / 255
            errors = np.abs(predictor(input_of(predictor, sample), head=head) - slant(image)[0, 0].numpy())
            rows.append((sample.name, {"mae": float(errors.mean())}))
        mean = {"mae": float(np.mean([row["mae"] for _, row in rows]))}
        return Evaluation(results=[SlantScores(rows, mean)], data=data)


    SCORERS["slant"] = score


    @DEPTH_FORMATS.register("slant")
    class SlantNpy(Npy):
        suffix = ".slant.npy"
        kinds = ("slant",)
    ''')


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    config = small_config(tmp_path_factory.mktemp("slant"))
    plugin = config.parent / "slant.py"
    plugin.write_text(SLANT)
    densevit.train(
        config, output=str(config.parent / "run"), plugins=[str(plugin)], model={"heads": {"slant": {"type": "slant"}}},
        tasks={"slant": {"type": "slant"}}, steps=4, validate_every=2, save_every=2, keep_last=0,
    )  # fmt: skip
    yield config.parent / "run"
    OUTPUT_KINDS.pop("slant")
    SCORERS.pop("slant")
    for registry in (HEADS, TASKS, DEPTH_FORMATS):
        registry.components.pop("slant")


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return densevit.load(run / "checkpoints/step-00000004", device="cpu", precision="fp32")


IMAGE = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)


def test_evaluation_scores_it_as_validation_did_and_writes_a_report(
    run: Path, predictor: Predictor, tmp_path: Path
) -> None:
    data = {"type": "folder", "root": str(run.parent / "data"), "depth_scale": 1000}
    found = densevit.evaluate(predictor, data, head="slant")
    assert found.scores["mae"] == pytest.approx(densevit.Run(run).val_log[-1]["slant/mae"], rel=1e-3)
    assert {path.name for path in found.report(tmp_path)} == {"metrics.json", "per_image.csv", "report.html"}


def test_the_mirrored_prediction_is_averaged_by_its_kind(predictor: Predictor) -> None:
    flipping = predictor.with_options(flip=True)
    mirrored = flipping(np.ascontiguousarray(IMAGE[:, ::-1]), head="slant")[:, ::-1]
    np.testing.assert_allclose(flipping(IMAGE, head="slant"), -mirrored, atol=1e-6)


@pytest.mark.slow
def test_it_is_written_by_a_format_of_its_own_and_exported(predictor: Predictor, run: Path, tmp_path: Path) -> None:
    photo = next((run.parent / "data/images").iterdir())
    densevit.predict(predictor, photo, tmp_path / "maps", formats=["slant"])
    np.testing.assert_array_equal(np.load(tmp_path / f"maps/{photo.stem}.slant.npy"), predictor(photo, head="slant"))
    made = densevit.export(predictor, tmp_path / "model.onnx", image_size=(48, 64))
    assert made.metadata["output slant"] == "float32 1 x 1 x 48 x 64, brightness slant"
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(["slant"], {"image": IMAGE[None]})
    np.testing.assert_allclose(found[0, 0], predictor(IMAGE, head="slant"), atol=1e-5)
