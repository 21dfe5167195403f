"""Files of Segmenter and EoMT, under their authors' names and transformers', say what the originals say, and back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

import densevit
from densevit.builder.checkpoint import restore
from densevit.builder.convert import convert
from densevit.errors import CheckpointError
from densevit.models.decoders.base import DECODERS
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.segmentation import MasksHead
from densevit.ops.segments import InstancePrediction, PanopticPrediction, merge_panoptic
from densevit.registry import ComponentConfig

VIT: ComponentConfig = {
    "type": "vit",
    "dim": 64,
    "depth": 3,
    "heads": 1,
    "patch_size": 8,
    "image_size": 32,
    "out_indices": 1,
}


def model(encoder: ComponentConfig, decoder: ComponentConfig) -> DenseModel:
    torch.manual_seed(0)
    vit = ENCODERS.check({**VIT, **encoder}, "encoder").build()
    part = DECODERS.check({"classes": 5, **decoder}, "decoder").build(vit.features, vit.prefix_tokens)
    whole = DenseModel(vit, part, {"labels": MasksHead(5, classes=5)})
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    return whole.eval()


def theirs(whole: DenseModel, *rules: tuple[str, str]) -> dict[str, Tensor]:
    named = {}
    for name, tensor in whole.state_dict().items():
        for ours, other in rules:
            name = name.replace(ours, other)
        named[name] = tensor.clone()
    return {name: tensor for name, tensor in named.items() if not name.endswith(("encoder.mean", "encoder.std"))}


def answers(path: Path, image: Tensor, family: str | None = None, **options: Any) -> tuple[Tensor, Any]:
    found, card = restore(path, family, **options)
    return found.eval()(image)["labels"], card


@pytest.mark.parametrize("distilled", [False, True])
def test_segmenters_file_gives_segmenters_masks(tmp_path: Path, distilled: bool) -> None:
    half = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    encoder = {"eps": 1e-5, "pos_embed_interpolation": "bilinear", **({"registers": 1} if distilled else half)}
    whole, image = model(encoder, {"type": "mask_transformer", "layers": 2}), torch.rand(1, 3, 40, 48)
    state = theirs(whole, ("encoder.vit.reg_token", "encoder.vit.dist_token"), ("encoder.vit.", "encoder."))
    state |= {"encoder.head.weight": torch.zeros(1000, 64), "encoder.head.bias": torch.zeros(1000)}
    path = tmp_path / "checkpoint.pth"
    torch.save({"model": state, "optimizer": {}, "epoch": 63}, path)
    found, card = answers(path, image)
    torch.testing.assert_close(found, whole(image)["labels"])
    assert card.resize.window == card.resize.size == card.resize.stride == (32, 32)
    assert "Segmenter" in card.source
    assert card.outputs["labels"].classes == tuple("01234")  # so many classes no published model has
    _, card = answers(path, image, family="segmenter", short_side=64, stride=16)
    assert (card.resize.size, card.resize.stride) == ((64, 64), (16, 16))


@pytest.mark.parametrize("registers", [0, 4])
def test_eomts_file_gives_eomts_scores(tmp_path: Path, registers: int) -> None:
    encoder = {"registers": registers, "no_embed_class": bool(registers), "layer_scale": 1.0}
    whole, image = model(encoder, {"type": "eomt", "queries": 6, "blocks": 2}), torch.rand(1, 3, 40, 48)
    state = theirs(whole, ("encoder.vit.", "network.encoder.backbone."), ("decoder.", "network."))
    state |= {"network.encoder.pixel_mean": torch.zeros(1, 3, 1, 1), "network.attn_mask_probs": torch.zeros(2)}
    state |= {"criterion.empty_weight": torch.ones(6)}
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path)
    found, card = answers(path, image)
    torch.testing.assert_close(found, whole(image)["labels"])
    assert card.resize.window == (32, 32)
    assert card.outputs["labels"].kind == "labels"
    del state["network.class_head.bias"]
    torch.save(state, path)
    with pytest.raises(CheckpointError, match="class_head"):
        answers(path, image)


SIDE, CLASSES, QUERIES = 64, 7, 12
PANOPTIC = {"do_resize": True, "size": {"shortest_edge": SIDE, "longest_edge": SIDE}, "do_pad": True, "resample": 2}
IMAGE = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8).repeat(10, 0).repeat(9, 1)


def folder(path: Path, processor: dict[str, Any]) -> Any:
    """A folder of transformers with random weights, and its model."""
    eomt = pytest.importorskip("transformers.models.eomt.modeling_eomt")
    torch.manual_seed(1)
    config = eomt.EomtConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=2, image_size=SIDE, num_blocks=2, num_queries=QUERIES,
        num_labels=CLASSES, attn_implementation="eager",
    )  # fmt: skip
    network = eomt.EomtForUniversalSegmentation(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for bias in (network.mask_head.fc3.bias, network.upscale_block.block[-1].layernorm2d.bias):
            bias.zero_()  # masks of their own
        network.query.weight *= 10
        network.class_predictor.weight *= 8  # sure of classes
        network.class_predictor.bias[-1] -= 1000
        network.attn_mask_probs.zero_()
    network.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return network


def published(network: Any, size: dict[str, Any], image: np.ndarray = IMAGE, **options: Any) -> tuple[Any, Any]:
    """Transformers' preprocessing and network for an image, and its processor."""
    processing = pytest.importorskip("transformers.models.eomt.image_processing_pil_eomt")
    processor = processing.EomtImageProcessorPil(size=size, **options)
    inputs = processor(images=image, return_tensors="pt")
    with torch.no_grad():
        return processor, network(inputs["pixel_values"], patch_offsets=inputs.get("patch_offsets"))


@pytest.fixture
def folder_of_densevit(tmp_path: Path) -> Path:
    """A folder as transformers has them, written without it."""
    encoder = {"image_size": SIDE, "registers": 4, "no_embed_class": True, "layer_scale": 1.0}
    whole = model(encoder, {"type": "eomt", "queries": QUERIES, "blocks": 2})
    state = theirs(whole, ("encoder.vit.", "network.encoder.backbone."), ("decoder.", "network."))
    torch.save(state | {"network.attn_mask_probs": torch.zeros(2)}, tmp_path / "eomt.bin")
    convert(str(tmp_path / "eomt.bin"), tmp_path / "theirs", "huggingface-eomt", kind="panoptic")
    return tmp_path / "theirs"


@pytest.fixture
def panoptic(tmp_path: Path) -> tuple[Any, Path]:
    path = tmp_path / "theirs"
    path.mkdir()
    return folder(path, PANOPTIC), path


def test_panoptic_segments_are_those_of_transformers(panoptic: tuple[Any, Path]) -> None:
    network, path = panoptic
    options = {"kind": "panoptic", "things": (0, 2, 4)}
    predictor = densevit.load(path, family_options=options, device="cpu", precision="fp32")
    processor, outputs = published(network, PANOPTIC["size"], do_pad=True)
    maps = predictor.start(IMAGE[None]).read()
    masks = F.interpolate(outputs.masks_queries_logits, (SIDE, SIDE), mode="bilinear")
    expected = processor.unpad_image(masks, [IMAGE.shape[:2]], PANOPTIC["size"])[0]
    np.testing.assert_allclose(maps["panoptic"][0], expected, atol=1e-4 * float(expected.abs().max()))
    classes = maps["panoptic/classes"].reshape(QUERIES, -1)
    np.testing.assert_allclose(classes, outputs.class_queries_logits[0], atol=1e-4)
    (wanted,) = processor.post_process_panoptic_segmentation(
        outputs, [IMAGE.shape[:2]], threshold=0.3, overlap_mask_area_threshold=0.05, stuff_classes=[1, 2, 5],
        size=PANOPTIC["size"],
    )  # fmt: skip
    found = merge_panoptic(
        *map(torch.from_numpy, (maps["panoptic"][0], classes)), (0, 3, 4, 6), threshold=0.3, overlap=0.05
    )
    assert len(found.classes) > 3
    np.testing.assert_array_equal(found.segments - 1, wanted["segmentation"])
    assert found.classes.tolist() == [one["label_id"] for one in wanted["segments_info"]]
    assert isinstance(predictor(IMAGE), PanopticPrediction)


def test_instances_are_those_of_transformers(panoptic: tuple[Any, Path]) -> None:
    # Transformers takes the best class of each query; with 84 pairs among the 100 best these are among ours.
    network, path = panoptic
    found = densevit.load(path, family_options={"kind": "instances"}, device="cpu", precision="fp32")(IMAGE)
    assert isinstance(found, InstancePrediction)
    processor, outputs = published(network, PANOPTIC["size"], do_pad=True)
    masks = F.interpolate(outputs.masks_queries_logits, (SIDE, SIDE), mode="bilinear")
    logits = processor.unpad_image(masks, [IMAGE.shape[:2]], PANOPTIC["size"])[0]
    shares = outputs.class_queries_logits[0].softmax(-1)[:, :-1]
    quality = (logits.sigmoid() * (logits > 0)).sum((1, 2)) / ((logits > 0).sum((1, 2)) + 1e-6)
    wanted = sorted((shares * quality[:, None]).flatten().tolist(), reverse=True)
    np.testing.assert_allclose(found.scores, [score for score in wanted if score > 0], atol=1e-4)
    best = int((shares * quality[:, None]).argmax())
    assert found.classes[0] == best % CLASSES
    assert (found.masks[0] != (logits[best // CLASSES] > 0).numpy()).mean() < 1e-3


def test_classes_of_pixels_are_those_of_transformers(panoptic: tuple[Any, Path]) -> None:
    network, path = panoptic
    (path / "preprocessor_config.json").write_text(json.dumps({**PANOPTIC, "do_pad": False, "do_split_image": True}))
    predictor = densevit.load(path, device="cpu", precision="fp32")
    image = np.resize(IMAGE, (SIDE, SIDE, 3))  # one window; nothing is resized, logarithms here and scores there
    size = {"shortest_edge": SIDE, "longest_edge": None}
    processor, outputs = published(network, size, image, do_split_image=True)
    (wanted,) = processor.post_process_semantic_segmentation(outputs, [image.shape[:2]], size=size)
    assert (predictor.classes(image) != wanted.numpy()).mean() < 1e-3


def test_a_folder_says_how_bytes_become_numbers_and_the_epsilon(folder_of_densevit: Path) -> None:
    other = {**PANOPTIC, "rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.9, 0.8], "image_std": [1.0, 1.0, 0.5]}
    (folder_of_densevit / "preprocessor_config.json").write_text(json.dumps(other))
    change_config(folder_of_densevit, layer_norm_eps=1e-5)
    card = densevit.load(folder_of_densevit, device="cpu").card
    assert card.mean == pytest.approx((0.5, 0.45, 0.4)) and card.std == pytest.approx((0.5, 0.5, 0.25))
    assert card.model["encoder"]["eps"] == 1e-5


@pytest.mark.parametrize(
    ("config", "processor", "probability", "message"),
    [
        ({"model_type": "eomt_dinov3"}, {}, 0, "EoMT on DINOv3; only models on DINOv2 are read"),
        ({"hidden_act": "relu"}, {}, 0, "has hidden_act 'relu'; what is read here is 'gelu'"),
        ({}, {"resample": 3}, 0, "has resample 3; what is read here is 2"),
        ({}, {"size": {"shortest_edge": 640, "longest_edge": None}}, 0, "size shortest_edge 640; .* here is 64"),
        ({}, {}, 0.5, "masks the attention of its last blocks"),
    ],
)
def test_folders_that_would_predict_something_else_are_refused(
    folder_of_densevit: Path, config: dict[str, Any], processor: dict[str, Any], probability: float, message: str
) -> None:
    change_config(folder_of_densevit, **config)
    (folder_of_densevit / "preprocessor_config.json").write_text(json.dumps({**PANOPTIC, **processor}))
    weights = folder_of_densevit / "model.safetensors"
    save_file(load_file(weights) | {"attn_mask_probs": torch.full((2,), probability)}, weights)
    with pytest.raises(CheckpointError, match=message):
        densevit.load(folder_of_densevit, device="cpu")


def change_config(path: Path, **options: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **options}))


@pytest.mark.parametrize("kind", ["panoptic", "instances", "labels"])
def test_a_folder_goes_to_the_authors_file_and_back(panoptic: tuple[Any, Path], tmp_path: Path, kind: str) -> None:
    _, path = panoptic
    options: dict[str, Any] = {"kind": kind} | ({"things": (0, 1)} if kind == "panoptic" else {})
    convert(str(path), tmp_path / "eomt.bin", "eomt", **options)
    notes = convert(str(tmp_path / "eomt.bin"), tmp_path / "again", "huggingface-eomt", **options)
    before, after = (load_file(folder / "model.safetensors") for folder in (path, tmp_path / "again"))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert len(notes) == (kind != "labels")


@pytest.mark.parametrize(
    ("to", "options", "notes"),
    [
        ("huggingface-eomt", {"kind": "labels"}, []),
        ("huggingface-eomt", {"kind": "instances"}, ["'kind=instances'"]),
        ("huggingface-eomt", {"kind": "panoptic", "things": (0, 2)}, ["'things=[0, 2]'"]),
        ("eomt", {"kind": "panoptic", "things": (0, 2)}, ["'kind=panoptic,things=[0, 2]'", "the names of its classes"]),
    ],
)
def test_what_a_layout_does_not_say_is_told_with_the_options_that_read_it(
    folder_of_densevit: Path, tmp_path: Path, to: str, options: dict[str, Any], notes: list[str]
) -> None:
    change_config(folder_of_densevit, id2label={str(i): f"class {i}" for i in range(CLASSES)})
    told = convert(str(folder_of_densevit), tmp_path / ("a.bin" if to == "eomt" else "again"), to, **options)
    assert len(told) == len(notes) and all(note in text for note, text in zip(notes, told, strict=True)), told


def test_colours_of_classes_have_no_place_in_a_layout(folder_of_densevit: Path, tmp_path: Path) -> None:
    predictor = densevit.load(folder_of_densevit, device="cpu")
    ((name, head),) = ((k, v) for k, v in predictor.card.outputs.items() if v.classes)
    outputs = {**predictor.card.outputs, name: replace(head, palette=((1, 2, 3),) * len(head.classes))}
    predictor.with_options(card=replace(predictor.card, outputs=outputs)).save_pretrained(tmp_path / "ours")
    assert convert(str(tmp_path / "ours"), tmp_path / "again", "huggingface-eomt") == [
        f"the colours of {name}'s classes have no place there."
    ]


def test_the_authors_panoptic_file_gives_segments(tmp_path: Path) -> None:
    whole = model(
        {"registers": 4, "no_embed_class": True, "layer_scale": 1.0}, {"type": "eomt", "queries": 200, "blocks": 2}
    )
    state = theirs(whole, ("encoder.vit.", "network.encoder.backbone."), ("decoder.", "network."))
    torch.save(state | {"network.attn_mask_probs": torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    card = densevit.load(tmp_path / "pytorch_model.bin", device="cpu").card
    assert card.outputs["panoptic"].kind == "panoptic"
    assert (card.resize.mode, card.resize.size) == ("padded", (32, 32))
