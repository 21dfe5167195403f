"""Runs EoMT's own code beside densevit on the same random weights, and prints the largest differences.

    git clone https://github.com/tue-mps/eomt
    python benchmarks/eomt_reference.py eomt

Needs timm, torchvision and transformers; Lightning and the loggers are replaced, as no training loop runs. The network
is a DINOv2 ViT-S with 40 queries in its last three blocks, for 21 classes at 96 x 96.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
import torch.nn.functional as F

import densevit
from densevit.builder.checkpoint import restore
from densevit.losses import point_sampling, set_criterion
from densevit.ops.segments import merge_panoptic

SIDE, CLASSES, QUERIES, BLOCKS, THINGS = 96, 21, 40, 3, tuple(range(12))
THRESHOLDS = {"threshold": 0.3, "overlap": 0.05}  # lower than published: random masks overlap
REPLACED = "lightning lightning.fabric lightning.fabric.utilities wandb matplotlib matplotlib.colors matplotlib.lines \
    matplotlib.pyplot torchmetrics torchmetrics.classification torchmetrics.detection torchmetrics.functional \
    torchmetrics.functional.detection torchmetrics.functional.detection._panoptic_quality_common"


class Module(torch.nn.Module):
    device = torch.device("cpu")


def import_theirs(clone: str) -> tuple[Any, ...]:
    sys.path.insert(0, clone)
    sys.modules.update({name: MagicMock() for name in REPLACED.split()})
    sys.modules["lightning"].LightningModule = Module
    from models.eomt import EoMT
    from models.vit import ViT
    from training.mask_classification_instance import MaskClassificationInstance
    from training.mask_classification_loss import MaskClassificationLoss
    from training.mask_classification_panoptic import MaskClassificationPanoptic
    from training.mask_classification_semantic import MaskClassificationSemantic

    vit = ViT((SIDE, SIDE), 16, "vit_small_patch14_reg4_dinov2", ckpt_path="random")
    criterion = MaskClassificationLoss(400, 1.25, 0.75, 5.0, 5.0, 2.0, CLASSES, 0.1)
    tasks = (MaskClassificationPanoptic, MaskClassificationInstance, MaskClassificationSemantic)
    return EoMT(vit, CLASSES, QUERIES, BLOCKS), criterion, tasks


def randomise(network: torch.nn.Module) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter += 0.05 * torch.randn_like(parameter) + 0.3 * ("gamma" in name)
        network.q.weight *= 10
        network.class_head.weight *= 12  # sure of classes
        network.class_head.bias[-1] -= 1000
        for bias in (network.mask_head[-1].bias, network.upscale[-1].norm.bias):
            bias.zero_()  # masks of their own
    network.attn_mask_probs.zero_()


def task(cls: type, network: torch.nn.Module, **attributes: Any) -> Any:
    """Their module for a task, with its inference code but without metrics; what it scores is in `seen`."""
    one = object.__new__(cls)
    torch.nn.Module.__init__(one)
    one.network, one.img_size, one.num_classes, one.seen = network, (SIDE, SIDE), CLASSES, []
    one.mask_thresh, one.overlap_thresh = THRESHOLDS.values()
    one.stuff_classes = [i for i in range(CLASSES) if i not in THINGS]
    one.eval_top_k_instances, one.ignore_idx, one.plot_semantic = 100, 255, lambda *_: None
    for name in ("panoptic", "instance", "semantic"):
        setattr(one, f"update_metrics_{name}", lambda preds, *_: one.seen.append(preds))
    return one


def report(name: str, found: Any, expected: Any) -> None:
    found, expected = (torch.as_tensor(x).detach().double() for x in (found, expected))
    difference, largest = (found - expected).abs().max(), expected.abs().max()
    print(f"| {name} | {difference:.1e} | {difference / largest:.1e} |")


def inference(path: Path, network: torch.nn.Module, tasks: tuple[type, ...], size: tuple[int, int]) -> None:
    print(f"| **image of {size[0]} x {size[1]}** | | |")
    image = np.random.default_rng(0).integers(0, 255, (12, 20, 3), dtype=np.uint8).repeat(13, 0).repeat(13, 1)
    image = image[: size[0], : size[1]].copy()
    empty = {"masks": torch.zeros(1, *image.shape[:2], dtype=torch.bool), "labels": torch.zeros(1).long()}
    batch = [torch.from_numpy(image).permute(2, 0, 1)], [{**empty, "is_crowd": torch.zeros(1).bool()}]
    options = {"device": "cpu", "precision": "fp32"}
    panoptic, instances, semantic = (task(cls, network) for cls in tasks)
    with torch.no_grad():
        masks, classes = (x[-1] for x in panoptic(panoptic.resize_and_pad_imgs_instance_panoptic(batch[0])))
        masks = F.interpolate(masks, (SIDE, SIDE), mode="bilinear")
        masks = panoptic.revert_resize_and_pad_logits_instance_panoptic(masks, [image.shape[:2]])[0]
        for one in (panoptic, instances, semantic):
            one.eval_step(batch, 1)
    family = {"kind": "panoptic", "things": THINGS}
    predictor, inputs = densevit.load(path, family_options=family, **options), []
    predictor.model.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    maps = predictor.start(image[None]).read()
    resized = panoptic.resize_and_pad_imgs_instance_panoptic(batch[0])
    print(f"| input: values that differ, of 255 | {((255 * inputs[-1]).round() != resized).sum()} | |")
    report("masks", maps["panoptic"][0], masks)
    logits = maps["panoptic/classes"].reshape(QUERIES, -1)
    report("classes, without `no object`", logits[:, :-1], classes[0, :, :-1])
    ours = merge_panoptic(*map(torch.from_numpy, (maps["panoptic"][0], logits)), THINGS, **THRESHOLDS)
    theirs = panoptic.seen[-1][0].numpy()
    of_pixels = np.append(ours.classes, CLASSES)[np.where(ours.segments > 0, ours.segments - 1, len(ours.classes))]
    other = (ours.segments - 1 != theirs[..., 1]) | (of_pixels != theirs[..., 0])
    print(f"| panoptic: pixels of another segment or class ({len(ours.classes)} segments) | {other.sum()} | |")
    found = densevit.load(path, family_options={"kind": "instances"}, **options)(image)
    wanted = instances.seen[-1][0]
    order = wanted["scores"].argsort(descending=True)
    order = order[wanted["scores"][order] > 0]
    report(f"scores of {len(order)} instances", found.scores, wanted["scores"][order])
    print(f"| pixels of their masks | {(found.masks != wanted['masks'][order].numpy()).sum()} | |")
    predictor = densevit.load(path, family_options={"kind": "labels"}, **options)
    predictor.model.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    labels, resized = predictor.classes(image), semantic.window_imgs_semantic(batch[0])[0]
    same = inputs[-1].shape == resized.shape and ((255 * inputs[-1]).round() != resized).sum()
    print(f"| windows: values that differ, of 255 ({tuple(inputs[-1].shape)}, {tuple(resized.shape)}) | {same} | |")
    expected = semantic.seen[-1][0]
    print(f"| classes of pixels, share that differs | {(labels != expected.argmax(0).numpy()).mean():.4f} | |")
    plain, semantic.to_per_pixel_logits_semantic = semantic.to_per_pixel_logits_semantic, lambda m, c: plain(m, c).log()
    with torch.no_grad():
        semantic.eval_step(batch, 1)
    other = labels != semantic.seen[-1][0].argmax(0).numpy()
    print(f"| the same where theirs averages logarithms, too | {other.mean():.4f} | |")


def training(path: Path, network: Any, criterion: Any) -> None:
    """Masked attention in all blocks, the loss of all predictions, and the gradients of every parameter."""
    images = torch.rand(2, 3, SIDE, SIDE)
    ids = torch.randint(0, 7, (2, 6, 6)).repeat_interleave(16, 1).repeat_interleave(16, 2)
    of_segments = torch.randint(0, CLASSES, (2, 7))
    present = [one.unique() for one in ids]
    targets = [
        {"masks": one == found[:, None, None], "labels": row[found]}
        for one, found, row in zip(ids, present, of_segments, strict=True)
    ]
    model, _ = restore(path, "eomt", kind="panoptic", things=THINGS)
    outputs: list[Any] = []
    model.train().decoder.register_forward_hook(lambda *args: outputs.append(args[2].extras))
    model(images)
    network.train().attn_mask_probs.fill_(1)
    masks, classes = network(images)
    report("masks of every block in training", outputs[0]["masks"], torch.stack(masks, 1))
    report("classes of every block in training", outputs[0]["classes"], torch.stack(classes, 1))
    places, random = torch.rand(1, 500, 2), torch.rand
    for module in (set_criterion, point_sampling):
        module.random_points = lambda n, p, device: places[:, :p].expand(n, -1, -1)
    loss = set_criterion.SetCriterion(points=400, oversample=1.25)
    ours = loss(masks[-1], set_criterion.BatchSegments(ids, of_segments), outputs[0])
    torch.rand = lambda *size, **_: places[:, : size[1]].repeat(size[0], 1, 1)
    every = {}
    for i, (mask, kinds) in enumerate(zip(masks, classes, strict=True)):
        losses = criterion(masks_queries_logits=mask, class_queries_logits=kinds, targets=targets)
        every |= {f"{key}_{i}": value for key, value in losses.items()}
    theirs, torch.rand = criterion.loss_total(every, lambda *_, **__: None), random
    report("loss", ours, theirs)
    ours.backward()
    theirs.backward()
    named = {k.replace("encoder.vit.", "encoder.backbone."): p for k, p in model.named_parameters()}
    pairs = {k: (named.get(k, named.get(f"decoder.{k}")), p) for k, p in network.named_parameters()}
    assert all(mine is not None for mine, _ in pairs.values()), [k for k, (mine, _) in pairs.items() if mine is None]
    used = [(mine, other) for mine, other in pairs.values() if other.grad is not None]
    norms = torch.stack([torch.stack([(a.grad - b.grad).norm(), b.grad.norm()]) for a, b in used])
    report(f"gradients of {len(used)} tensors, together", torch.cat([a.grad.flatten() for a, _ in used]),
           torch.cat([b.grad.flatten() for _, b in used]))  # fmt: skip
    difference, whole = norms[:, 0].norm(), norms[:, 1].norm()
    print(f"| the same, norm of the difference | {difference:.1e} | {difference / whole:.1e} |")


def main() -> None:
    network, criterion, tasks = import_theirs(sys.argv[1])
    randomise(network.eval())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pytorch_model.bin"
        torch.save({f"network.{name}": tensor for name, tensor in network.state_dict().items()}, path)
        print("| | largest difference | of the largest value |\n|---|---|---|")
        for size in ((SIDE, 64), (SIDE, 146), (117, 77)):  # nothing is resized for segments, for classes; both
            inference(path, network, tasks, size)
        training(path, network, criterion)


if __name__ == "__main__":
    main()
