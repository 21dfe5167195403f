"""Scores a panoptic model of rooms beside connected components, and draws what it predicts.

    python benchmarks/panoptic_rooms.py runs/rooms_panoptic --root data/rooms [--pictures FOLDER]

Rows: the merged queries; connected components of the classes that the same queries give (one segment for each part of
a thing); and of the true classes, the most that any semantic model can reach so. Mask AP is that of the queries.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import torch

import densevit
from densevit.data.datasets.rooms import Rooms
from densevit.data.io.writers import encode
from densevit.evaluation.segments import panoptic
from densevit.evaluation.segments.validation import segment_scores
from densevit.model_card import HeadSpec
from densevit.ops.segments import PanopticPrediction, draw_segments, merge_panoptic, select_instances, write_names
from densevit.structures import IGNORE

HEAD = "panoptic"


def components(labels: np.ndarray, things: set[int]) -> PanopticPrediction:
    """A segment for each connected part of a thing, and one for each class of stuff."""
    segments, classes = np.zeros(labels.shape, np.int32), []
    for label in [i for i in np.unique(labels).tolist() if i != IGNORE]:
        mask = (labels == label).astype(np.uint8)
        count, parts = cv2.connectedComponents(mask) if label in things else (2, mask)
        segments[parts > 0] = len(classes) + parts[parts > 0]
        classes += [label] * (count - 1)
    ones = np.ones(len(classes), np.float32)
    return PanopticPrediction(segments, np.array(classes, np.int64), ones, np.isin(classes, list(things)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    args = parser.parse_args()
    predictor = densevit.load(args.checkpoint, device="cpu", precision="fp32")
    spec: HeadSpec = predictor.card.outputs[HEAD]
    data, things = Rooms(root=args.root, split="test", instances=True), set(spec.things)
    rows: dict[str, list[dict[str, float]]] = {}
    score_ap, ap = segment_scores(HeadSpec(kind="instances", unit="", classes=spec.classes, things=spec.things))
    matches, errors = [], []
    for index in range(len(data)):
        sample = data.read(index)
        maps = predictor.predict_arrays(sample.image[None])
        masks = torch.from_numpy(maps[HEAD][0])
        classes = torch.from_numpy(maps[f"{HEAD}/classes"].reshape(len(masks), -1))
        scores = torch.einsum("qk,qhw->khw", classes.softmax(1)[:, :-1], masks.sigmoid())
        truth = (sample.segments, sample.segment_classes, sample.segment_crowd)
        assert sample.labels is not None and sample.depth is not None
        threshold = spec.threshold or 0.0
        found = {
            f"queries, threshold {threshold:g}": merge_panoptic(masks, classes, things, threshold=threshold),
            "queries, threshold 0.3": merge_panoptic(masks, classes, things, threshold=0.3),
            "components of the classes": components(scores.argmax(0).numpy(), things),
            "components of the true classes": components(sample.labels, things),
        }
        for name, one in found.items():
            stats = panoptic.count(one.segments, one.classes, *truth, len(spec.classes))
            rows.setdefault(name, []).append(panoptic.as_row(stats))
        matches.append(score_ap(select_instances(masks, classes), *truth))
        depth = maps["depth"][0, 0]
        errors.append(float((abs(depth - sample.depth)[sample.valid] / sample.depth[sample.valid]).mean()))
        if args.pictures and index % (len(data) // 4) == 0:
            draw(args.pictures, sample, *list(found.values())[::3], spec, depth)
    print("| | PQ | SQ | RQ | PQ things | PQ stuff |\n|---|---|---|---|---|---|")
    for name, counts in rows.items():
        mean = panoptic.pooled(counts, len(spec.classes), spec.things)
        keys = ("pq", "sq", "rq", "pq_things", "pq_stuff")
        print(f"| {name} | {' | '.join(f'{mean[key]:.3f}' for key in keys)} |")
    mean = ap(matches)
    print(f"\nmask AP {mean['ap']:.4f}, AP50 {mean['ap50']:.4f}; AbsRel {np.mean(errors):.3f}; {len(data)} images")


def draw(folder, sample, found, true, spec, depth) -> None:
    metres = [np.median(depth[found.segments == row + 1]) for row in range(len(found.classes))]
    names = [f"{spec.classes[k]} {value:.1f} m" for k, value in zip(found.classes, metres, strict=True)]
    large = [cv2.resize(x, None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST) for x in (sample.image, found.segments)]
    wide = PanopticPrediction(large[1], found.classes, found.scores, found.is_thing)
    truth = cv2.resize(draw_segments(sample.image, true, spec), None, fx=2, fy=2, interpolation=cv2.INTER_NEAREST)
    predicted = write_names(draw_segments(large[0], wide, spec), wide, names)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sample.name.replace('/', '_')}.png"
    path.write_bytes(encode(".png", np.concatenate([large[0], truth, predicted], axis=1)))


if __name__ == "__main__":
    main()
