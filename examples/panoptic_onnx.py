"""Panoptic segments from an exported model with ONNX Runtime and NumPy alone, without densevit and torch.

    densevit export runs/rooms_panoptic model.onnx --image-size 480,640
    python examples/panoptic_onnx.py model.onnx photo.jpg

The file gives logits: the masks of queries at the size of the image, and the classes of each, `no object` last.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image


def merge(masks, classes, things, threshold=0.8, overlap=0.8):
    """Masks q h w and classes q k+1 -> a map of segments, 0 for none, and the class and score of segment 1, 2, ..."""
    shares = np.exp(classes - classes.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    labels, scores = shares.argmax(1), shares.max(1)
    kept = (labels < shares.shape[1] - 1) & (scores > threshold)
    labels, scores, inside = labels[kept], scores[kept], 1 / (1 + np.exp(-masks[kept]))
    segments, found = np.zeros(masks.shape[1:], np.int32), []
    if not kept.any():
        return segments, found
    owner = (scores[:, None, None] * inside).argmax(0)
    stuff = {}
    for query, (label, score) in enumerate(zip(labels.tolist(), scores.tolist(), strict=True)):
        mask, mine = inside[query] >= 0.5, owner == query
        if not (mask & mine).any() or mine.sum() / mask.sum() < overlap:
            continue
        if label not in stuff:
            found.append((label, score))
        number = stuff.get(label, len(found))
        if label not in things:
            stuff[label] = number
        segments[mask & mine] = number
    return segments, found


def main(model, photo):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    heads = json.loads(session.get_modelmeta().custom_metadata_map["card"])["outputs"]
    name = next(name for name, spec in heads.items() if spec["kind"] == "panoptic")
    h, w = session.get_inputs()[0].shape[1:3]
    image = np.asarray(Image.open(photo).convert("RGB").resize((w, h)))
    masks, classes = session.run([name, f"{name}/classes"], {"image": image[None]})
    spec = heads[name]
    classes = classes.reshape(masks.shape[1], -1)
    segments, found = merge(masks[0], classes, set(spec["things"]), spec["threshold"])
    for number, (label, score) in enumerate(found, 1):
        print(f"{number}: {spec['classes'][label]}, score {score:.2f}, {(segments == number).mean():.1%} of the image")


if __name__ == "__main__":
    main(*sys.argv[1:])
