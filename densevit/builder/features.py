"""Fills the feature cache of a training before its first step: every view goes once through the frozen encoder."""

import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8

from densevit.builder.plan import Plan
from densevit.config.schema import CacheFeatures
from densevit.data.datasets.base import dataset_fingerprint
from densevit.data.loading.augmented import AugmentedDataset, describe_with_files
from densevit.data.loading.feature_cache import (
    SHARD_BYTES,
    FeatureCache,
    Shapes,
    count,
    flatten,
    hash_image,
    remove_damaged,
    shapes_of,
)
from densevit.data.loading.sampler import SampleKey
from densevit.data.loading.workers import WorkerProgress, run_jobs
from densevit.errors import ConfigError, DataError
from densevit.models.dense import DenseModel
from densevit.structures import EncoderOutput
from densevit.utils import atomic_io
from densevit.utils.device import autocast, resolve
from densevit.utils.output import tqdm
from densevit.utils.process import poll
from densevit.utils.process_group import ProcessGroup
from densevit.utils.state_dict import fingerprint

DTYPES: dict[str, np.dtype[Any]] = {"fp16": np.dtype(np.float16), "fp32": np.dtype(np.float32)}
BATCH = 8
LAYOUT = "channels last"  # of the stored maps
STOPPED = "stopped while the encoder's outputs were cached; what was written stays."
View = tuple[str, UInt8[np.ndarray, "h w 3"] | None]
"""Hash of an augmented image, and its pixels where the cache lacks it."""


def feature_cache(plan: Plan, model: Any, world: ProcessGroup, workers: int) -> FeatureCache:
    """Return the outputs of the frozen encoder for all views of the training images, as `data.cache_features` says.

    Says first how many gigabytes they take. Raises ConfigError: a decoder runs blocks of the encoder itself. Raises
    StorageError if the disk has no room for them. Raises Preempted: a signal came; what was written stays.
    """
    options = plan.run.data.cache_features
    assert options is not None
    if getattr(model.encoder, "num_detached", 0):
        raise ConfigError(
            plan.locate("data.cache_features: the decoder runs the encoder's last blocks, which nothing can cache.")
        )
    folder = atomic_io.make_folder(options.folder.expanduser() / encoder_key(plan, model, options, world))
    world.on_main(lambda: remove_damaged(folder))
    cache = FeatureCache(folder, DTYPES[options.dtype])
    views = views_key(plan, options)
    if not all(world.all_gather(cache.is_complete(views))):
        samples = AugmentedDataset(plan.train, plan.build_transform(), plan.run.seed, options.views)
        names = _fill(plan, model, samples, cache, views, world, workers)
        everything = [name for share in world.all_gather(names) for name in share]
        world.on_main(lambda: cache.complete(views, everything))
        cache.reload()
    return cache


def encoder_key(plan: Plan, model: DenseModel, options: CacheFeatures, world: ProcessGroup) -> str:
    """Return a key of everything that an output depends on besides the image."""
    spec = {key: value for key, value in plan.model.encoder.spec().items() if key not in ("weights", "pretrained")}
    weights, precision = fingerprint(model.encoder.state_dict()), resolve(plan.run.precision, world.device)
    content = (weights, spec, precision, options.dtype, LAYOUT)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def views_key(plan: Plan, options: CacheFeatures) -> str:
    """Return a key of the views of a data set: which images, and how they are augmented."""
    transforms = [transform.spec() for transform in plan.transforms]
    content = (dataset_fingerprint(plan.train), plan.datasets["train"].spec(), transforms, plan.run.seed, options.views)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _fill(
    plan: Plan,
    model: DenseModel,
    samples: AugmentedDataset,
    cache: FeatureCache,
    views: str,
    world: ProcessGroup,
    workers: int,
) -> list[str]:
    """Encode this process's share of the views; return the hashes of all of its share."""
    options = plan.run.data.cache_features
    assert options is not None
    keys = [(view, index) for view in range(options.views) for index in range(len(samples.dataset))]
    share = keys[world.rank :: world.size]
    precision = resolve(plan.run.precision, world.device)
    shard = _Shard(cache, views)
    names: list[str] = []
    announced = False
    model.eval()
    with tqdm(total=len(share), desc="cache features", unit="view", disable=not world.is_main or None) as bar:
        for chunk in _read(samples, cache, share, plan, workers):
            poll(STOPPED)
            names += [name for name, _ in chunk]
            fresh = {name: image for name, image in chunk if image is not None and name not in shard.names}
            for _, same_size in groupby(fresh.items(), key=lambda item: item[1].shape):
                hashes, images = zip(*same_size, strict=True)
                pixels = torch.from_numpy(np.stack(images)).to(world.device).permute(0, 3, 1, 2).float().div_(255)
                with torch.inference_mode(), autocast(precision, world.device):
                    output: EncoderOutput = model.encoder(pixels)
                if not announced:
                    size = count(shapes_of(output)) * cache.dtype.itemsize
                    _check_room(cache, len(keys) - cache.written_for(views), size, world)
                    announced = True
                shard.add(hashes, output)
            bar.update(len(chunk))
    shard.write()
    return names


def _check_room(cache: FeatureCache, missing: int, size: int, world: ProcessGroup) -> None:
    """Say how much will be written, and refuses where the disk cannot hold it."""
    if world.is_main:
        what = f"{missing:,} views, {size * missing / 1e9:.2f} GB in {cache.dtype}"
        print(f"data.cache_features: {what}, under {cache.folder}", file=sys.stderr, flush=True)
    atomic_io.require_free_space(cache.folder, size * missing)


class _Shard:
    """Outputs that are waiting to be written together."""

    def __init__(self, cache: FeatureCache, views: str) -> None:
        self.cache, self.views = cache, views
        self.names: dict[str, None] = {}
        self.rows: list[np.ndarray] = []
        self.shapes: Shapes = {}

    def add(self, names: Sequence[str], output: EncoderOutput) -> None:
        rows, shapes = flatten(output, self.cache.dtype), shapes_of(output)
        if self.rows and (shapes != self.shapes or (len(self.names) + 1) * rows[0].nbytes > SHARD_BYTES):
            self.write()
        self.names |= dict.fromkeys(names)
        self.rows.append(rows)
        self.shapes = shapes

    def write(self) -> None:
        if self.rows:
            self.cache.write(list(self.names), self.shapes, np.concatenate(self.rows), self.views)
        self.names, self.rows = {}, []


def _read(
    samples: AugmentedDataset, cache: FeatureCache, keys: Sequence[SampleKey], plan: Plan, workers: int
) -> Iterator[list[View]]:
    """Return the views in order, some at a time."""
    jobs = [keys[i : i + BATCH] for i in range(0, len(keys), BATCH)]
    return run_jobs(
        jobs,
        partial(_views, samples, frozenset(cache.rows), plan.run.data.on_corrupt == "skip"),
        workers=min(workers, len(jobs)),
        timeout=plan.run.data.timeout,
        describe=partial(describe_with_files, samples.dataset),
    )


def _views(
    samples: AugmentedDataset, cached: Collection[str], skip: bool, progress: WorkerProgress, keys: Sequence[SampleKey]
) -> list[View]:
    """Return, in a worker, the hashes of views, and the pixels of what the cache lacks."""
    views: list[View] = []
    for key in keys:
        try:
            with progress.reading(key[1]):
                image = samples.read(key[1], key).image
        except DataError:
            if not skip:
                raise
            continue  # the training takes another sample in its place
        name = hash_image(image)
        views.append((name, None if name in cached else image))
    return views
