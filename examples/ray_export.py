"""`densevit predict` on a Ray cluster: each actor holds a model, and the files have the same bytes.

    pip install 'densevit[ray]'
    python examples/ray_export.py runs/nyu photos/ 'shards/*.tar' --output /shared/maps --actors 8 --gpus 1
    python examples/ray_export.py runs/nyu s3://bucket/photos/ --parquet image --name path --output /shared/maps

takes the options of `predict`. Files and archives are read by the actors: all machines see them, and the output
folder, under the same path, and only numbers pass through Ray. Parquet is read by Ray Data from wherever it can.
docs/scale.md says when to take which.
"""

import argparse
import inspect
import math
import os
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports to its makers otherwise

try:
    import ray
    import ray.data
except ImportError as error:
    sys.exit(f"{error}; pip install 'densevit[ray]'")
import numpy as np

from densevit import api
from densevit.api.predict import predict
from densevit.api.prediction import build_writer, camera_of, plan_export, point_files, with_options
from densevit.cli.parser import inherited_parameters, make_parser
from densevit.data.io.tar import bytes_as_path
from densevit.errors import DataError, DensevitError, PartialError
from densevit.inference.predict import pipeline
from densevit.inference.predict.cameras import plan_cameras, resolve_cameras
from densevit.inference.predict.inputs import Item, name_items
from densevit.inference.predict.output_plan import OutputPlan
from densevit.inference.predict.summary import Summary, merge_summaries
from densevit.inference.predictor import Predictor
from densevit.utils.atomic_io import remove_stale_temporaries

GROUPS = 16  # batches of the model that an actor takes at a time


@dataclass(frozen=True)
class Encoded:
    """An image file in memory, as a row of a Parquet file holds it; stands where an archive's member does."""

    name: str
    data: bytes

    def file(self) -> AbstractContextManager[Path]:
        return bytes_as_path(self.data, Path(self.name))


class Row(Item):
    """An image of a Parquet table; what is done is told by its name alone, since the driver reads no images."""

    def digest(self) -> str:
        return self.name


def load(args: argparse.Namespace) -> Predictor:
    """The model, on the device that Ray gave this process."""
    return api.load(args.model, **args.options)


def prepare(plan: OutputPlan, args: argparse.Namespace) -> OutputPlan | DensevitError:
    """Check the plan against the model on a machine that has the model's device; return the plan with cameras."""
    try:
        predictor = load(args)
        if predictor.card.needs_camera or predictor.card.fov is not None:
            plan = replace(plan, items=resolve_cameras(plan.items, predictor.cameras))
        pipeline.ImageExporter(predictor, plan, heads=args.heads, existing=args.existing).prepare()
        return plan
    except DensevitError as error:
        return error  # Ray would wrap it in its own


class Exporter:
    """An actor: loads the model once and writes the maps of the images whose numbers or rows it is given."""

    def __init__(self, job: Any, args: argparse.Namespace) -> None:
        self.plan = ray.get(job)
        self.args, self.predictor = args, load(args)
        self.numbers = {str(item.source): number for number, item in enumerate(self.plan.items)}

    def items(self, batch: dict[str, np.ndarray]) -> list[Item]:
        plan, size = self.plan.items, self.predictor.batch_size
        if self.args.parquet is None:  # whole batches of the model in their order, as predict cuts them
            return [item for group in sorted(batch["id"]) for item in plan[group * size : (group + 1) * size]]
        rows = zip(batch[self.args.name], batch[self.args.parquet], strict=True)
        encoded = [Encoded(name, as_bytes(value)) for name, value in rows]
        return [replace(plan[self.numbers[str(Path(one.name))]], member=one) for one in encoded]

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        part = pipeline.ImageExporter(
            self.predictor, replace(self.plan, items=self.items(batch)), heads=self.args.heads,
            existing=self.args.existing, workers=self.args.workers, max_pixels=self.args.max_pixels,
        )  # fmt: skip
        part.run()
        summary = np.empty(1, object)
        summary[0] = part.summary
        return {"summary": summary}


def as_bytes(value: Any) -> bytes:
    """A Parquet cell: bytes, or a Hugging Face `Image`, {bytes, path}; nothing fails as a damaged image does."""
    return bytes((value["bytes"] if isinstance(value, dict) else value) or b"")


def parquet_plan(rows: Any, args: argparse.Namespace, given: Any) -> OutputPlan:
    """The plan for the images of a Parquet column.

    Raises:
        DataError: columns that are not there; names that are given twice, are empty, or lead out of the output folder.
    """
    if missing := {args.parquet, args.name} - set(columns := rows.columns() or []):
        raise DataError(f"--parquet, --name: no column {', '.join(sorted(missing))}; there are {', '.join(columns)}.")
    names = [row[args.name] for row in rows.select_columns([args.name]).iter_rows()]
    for name in names:
        if not isinstance(name, str) or not name or {"..", "/"} & set(PurePosixPath(name).parts):
            raise DataError(f"--name {args.name}: {name!r} is no path below the output folder.")
    if twice := [name for name, count in Counter(str(Path(name)) for name in names).items() if count > 1]:
        raise DataError(f"--name {args.name}: {twice[0]!r} names several images.")
    writers = {name: build_writer(name, options) for name, options in args.formats.items()}
    items = name_items([(Path(name), name) for name in names], [writer.suffix for writer in writers.values()])
    rows = [Row(item.source, item.name) for item in items]
    return OutputPlan(rows if given is None else plan_cameras(rows, given), writers, args.output.absolute())


def run(args: argparse.Namespace) -> Summary:
    """
    Raises:
        DensevitError: before anything is written; PartialError when some images failed.
    """
    begun = time.perf_counter()
    given = camera_of(args.intrinsics, args.options.get("focal"), args.fov)
    if args.parquet is None:
        points = point_files(args.points, args.points_scale, args.points_pose)
        plan = plan_export(args.inputs, args.output, args.formats, given, args.existing, points)
        groups = math.ceil(len(plan.items) / args.batch_size)
        # Items, not a range: reading a range is a task that waits for ever where the actors hold every CPU.
        data = ray.data.from_items([{"id": i} for i in range(groups)], override_num_blocks=math.ceil(groups / GROUPS))
    else:
        data = ray.data.read_parquet(args.inputs)
        plan = parquet_plan(data, args, given)
        data = data.select_columns([args.parquet, args.name])
    resources = {"num_gpus": args.gpus, "num_cpus": args.cpus}
    ready = ray.get(ray.remote(prepare).options(**resources).remote(plan, args))
    if isinstance(ready, DensevitError):
        raise ready
    done = data.map_batches(
        Exporter,
        fn_constructor_args=(ray.put(ready), args),
        batch_size=GROUPS if args.parquet is None else GROUPS * args.batch_size,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=args.actors),
        **resources,
    )
    parts = [row["summary"] for row in done.iter_rows()]
    for folder in {*plan.folders(plan.outputs()), plan.folder}:
        remove_stale_temporaries(folder)  # of actors that were killed
    summary = replace(merge_summaries(parts), unsupported=plan.unsupported, seconds=time.perf_counter() - begun)
    return plan.finish(summary, stopped=False)


OF_FORMATS = (
    "scale", "cmap", "range", "axes", "normals", "min_confidence", "assume_depth", "edge", "palette", "opacity"
)  # fmt: skip


def parse() -> argparse.Namespace:
    """The options of `densevit predict`, and those of the cluster."""
    parser = make_parser("ray_export", predict)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--actors", type=int, default=1, metavar="N", help="models at work (1)")
    cluster.add_argument("--gpus", type=float, default=0, metavar="N", help="of each actor; 0.5 puts two on one (0)")
    cluster.add_argument("--cpus", type=float, default=1, metavar="N", help="of each actor (1)")
    cluster.add_argument("--parquet", metavar="COLUMN", help="inputs are Parquet; this column holds encoded images")
    cluster.add_argument("--name", metavar="COLUMN", default="name", help="of Parquet: the images' names (name)")
    defaults = {name: p.default for name, p in inspect.signature(predict).parameters.items()}
    args = argparse.Namespace(**{**defaults, **vars(parser.parse_args())})
    args.options = {name: getattr(args, name) for name in inherited_parameters(predict) if hasattr(args, name)}
    args.batch_size, args.fov = args.options.get("batch_size", 1), args.options.pop("fov", None)
    args.output, args.workers = Path(args.output), args.workers or min(8, os.cpu_count() or 1)
    args.existing = "resume" if args.resume else "overwrite" if args.overwrite else "refuse"
    return args


def main() -> int:
    args = parse()
    ray.data.DataContext.get_current().enable_progress_bars = sys.stderr.isatty()
    try:
        given = {name: getattr(args, name) for name in OF_FORMATS if getattr(args, name) is not None}
        args.formats = with_options(args.formats or ["png16"], given)
        print(run(args))
    except DensevitError as error:
        if isinstance(error, PartialError):
            print(error.summary)
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
