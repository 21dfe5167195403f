"""`self_supervised`: depth from the frames of videos, which must look alike once each is moved into its neighbour.

n images, h x w pixels.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from densevit.config.schema import NonNegative, TrainConfig
from densevit.config.validation import TaskSpec
from densevit.data.loading.workers import auto_workers
from densevit.engine.objective import OBJECTIVES, AllReduceMean, TrainerContext, TrainingSetup
from densevit.engine.train_state import Scores
from densevit.errors import ConfigError
from densevit.inference.forward import forward
from densevit.objectives.self_supervised.evaluation import HeldOutVideos, mean_over, trajectory_scores
from densevit.objectives.self_supervised.geometry import FramePairs, Motion, Plane, exactly, inverse, rigid, scaled
from densevit.objectives.self_supervised.monitor import Monitor
from densevit.objectives.self_supervised.odometry import MeasuredMotion, baseline_lengths
from densevit.objectives.self_supervised.pairs import PairMeasurements
from densevit.objectives.self_supervised.parallax import check_video, chosen_frames
from densevit.objectives.self_supervised.photometric import smoothness
from densevit.objectives.self_supervised.views import CompareOptions, compare
from densevit.objectives.sources import evaluating
from densevit.objectives.supervised import Supervised
from densevit.ops.camera import Camera, canonical_scale
from densevit.structures import Batch
from densevit.tasks.base import task_class
from densevit.tasks.depth import DepthTask
from densevit.utils.device import gpu_products

log = logging.getLogger(__name__)

LEAST_DISPARITY = 0.01  # of heads without unit: depth is 1 / (this + disparity)


@OBJECTIVES.register("self_supervised")
class SelfSupervised(Supervised):
    """Depth from videos without ground truth: each frame of a clip (`data.clip`), moved by its depth and the motion of
    the camera, must look like its neighbours (Monodepth2, SC-Depth). Other tasks learn as usual."""

    needs_truth = False
    scores: ClassVar[Mapping[str, Literal["min", "max"]]] = {"photometric": "min", "ate": "min"}

    def __init__(
        self,
        setup: TrainingSetup,
        *,
        motion: Literal["poses", "matches"] = "poses",
        smoothness: NonNegative = 1e-3,
        geometry: NonNegative = 0.1,
        velocity: bool = False,
        ground_truth: NonNegative = 0.0,
        pyramid: Annotated[int, Field(ge=1, le=6)] = 3,
        auto_mask: bool = True,
        occlusion: bool = False,
        brightness: bool = False,
        similarity: Literal["ssim", "census"] = "ssim",
        strides: tuple[Annotated[int, Field(ge=1)], ...] = (),
    ) -> None:
        """Raise ConfigError if no head or several give depth.

        Args:
            motion: source of the camera's motion: `poses` of the data (depth is in their metres), or `matches`:
                rotation and direction are measured before the training by the optical flow, and the length of each
                step follows the depth that is predicted (up to a scale, unless `velocity` or `ground_truth` sets it).
            smoothness: weight of the edge-aware smoothness of disparity.
            geometry: weight of the consistency of the depths of neighbours; above 0 pixels count less where they
                disagree.
            velocity: with `matches`, take the length of each step from the data's poses: depth is in their metres.
            ground_truth: weight of the depth losses of `tasks`, where images have depth; 0 uses none.
            pyramid: sizes of the images that are compared, each half as large as the one before.
            auto_mask: pixels that match best unmoved teach nothing: a standing camera, objects at its speed.
            occlusion: leave out pixels that do not come back to their place from the other frame.
            brightness: match mean and contrast of each pair first, for cameras that change their exposure.
            similarity: how images are compared: ssim and colours, or census: which neighbours are brighter, so that
                exposure, also one that changes over the image, cancels out.
            strides: distances, in frames, at which a frame may be compared; the smallest with enough parallax is taken,
                and a frame is left out where none has any. Empty: every `data.clip_stride`-th.
        """
        super().__init__(setup)
        self.head = depth_head(setup.task_specs, {name: task.output.kind for name, task in setup.tasks.items()})
        self.disparity = setup.tasks[self.head].output.kind == "disparity"
        self.measured, self.velocity = motion == "matches", velocity
        self.weights = {"smoothness": smoothness, "geometry": geometry}
        self.ground_truth, self.pyramid = ground_truth, pyramid
        if not ground_truth:
            del self.taught[self.head]
        self.options = CompareOptions(auto_mask, occlusion, brightness, weighted=geometry > 0, similarity=similarity)
        self.monitor = Monitor()
        self.strides = strides
        self.held_out: HeldOutVideos | None = None

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        yield from super().incompatible(run)
        if run.data.clip == 1:
            yield "data.clip: objective 'self_supervised' compares neighbouring frames; set it to 3, say."
        if run.data.cache_features is not None:
            yield "data.cache_features: objective 'self_supervised' learns from videos, with their poses; leave it out."
        if run.objective.get("velocity") and run.objective.get("motion", "poses") == "poses":
            yield "objective.velocity: motion 'poses' has its distances already; set objective.motion=matches."
        for name in (name for name, head in run.model.heads.items() if head.get("uncertainty")):
            if not run.objective.get("ground_truth"):
                yield f"model.heads.{name}.uncertainty: is learned from ground truth; set objective.ground_truth."
        if run.parallel == "fsdp":
            yield "parallel: objective 'self_supervised' needs ddp: each process validates clips of its own."
        if run.objective.get("strides") and run.data.clip_stride != 1:
            yield "data.clip_stride: objective.strides chooses the distance of frames; set only one of the two."

    @classmethod
    def check_data(cls, run: TrainConfig, tasks: Mapping[str, TaskSpec], data: Mapping[str, Any]) -> None:
        super().check_data(run, tasks, data)
        check_video(run, data["train"], poses=run.objective["motion"] == "poses" or run.objective["velocity"])

    def attach(self, context: TrainerContext) -> None:
        """Measure parallax and motion of the videos where they are needed. Raises DataError if there is none."""
        super().attach(context)
        run, world = self.setup.run, context.state.world
        workers = auto_workers(world.local_size) if run.data.workers == "auto" else run.data.workers
        measurements = PairMeasurements(run.output, world, workers)
        val = self.setup.data.get("val")
        val = val if val is not None and val.video else None
        for data in (self.setup.data["train"], *([] if val is None else [val])):
            if self.strides:
                data.next_frames = chosen_frames(data, self.strides, measurements)
            if self.measured:
                data.annotate = MeasuredMotion(data, run.data.clip_stride, measurements)
        if val is not None:
            clips = run.data.clip, run.data.clip_stride
            self.held_out = HeldOutVideos(
                val, *clips, self.setup.card, run.data.on_corrupt, run.data.max_corrupt_fraction
            )

    def on_train_step(self, progress: float) -> None:
        super().on_train_step(progress)
        self.monitor.progress = progress

    def weighted_losses(self, predictions: Mapping[str, Tensor], batch: Batch, *given: Any) -> dict[str, Tensor]:
        losses = super().weighted_losses(predictions, batch, *given)
        return losses | self.video_losses(predictions[self.head], batch)

    def _task_losses(self, name: str, *given: Any) -> dict[str, Tensor]:
        if name != self.head:
            return super()._task_losses(name, *given)
        if name not in self.taught:
            return {}
        return {key: self.ground_truth * loss for key, loss in super()._task_losses(name, *given).items()}

    def video_losses(self, prediction: Plane, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted losses of neighbouring frames."""
        depth = self.depth(prediction.float(), batch)
        pairs = FramePairs.of(len(batch), batch.clip_length, depth.device)
        motion, camera, known = self.motions(batch, pairs, depth)
        image, total, losses = batch.image, torch.zeros((), device=depth.device), {}
        for level in range(self.pyramid):
            if level:
                image, camera = F.avg_pool2d(image, 2), scaled(camera, 0.5)
            views = compare(image, F.interpolate(depth, image.shape[-2:], mode="area") if level else depth,
                            camera, motion, known, pairs, self.options)  # fmt: skip
            total = total + views.error.mean() / self.pyramid
            if not level:
                moving, losses["geometry"] = views.moving, self.weights["geometry"] * views.difference
        losses["photometric"] = total
        losses["smoothness"] = self.weights["smoothness"] * smoothness(1 / depth.clamp_min(1e-3), batch.image)
        self.monitor.see(depth.detach(), motion.detach(), known, moving, pairs)
        return {name: loss for name, loss in losses.items() if self.weights.get(name, 1)}

    def depth(self, prediction: Plane, batch: Batch) -> Plane:
        """Return a prediction as depth: in metres, or of a disparity up to a scale."""
        if self.disparity:
            return 1 / (LEAST_DISPARITY + prediction)
        focal = self.setup.tasks[self.head].output.focal
        return prediction if focal is None else prediction * canonical_scale(Camera.of(batch), focal)

    def motions(
        self, batch: Batch, pairs: FramePairs, depth: Plane
    ) -> tuple[Motion, Float[Tensor, "n 3 3"], Bool[Tensor, "pairs 1 1 1"]]:
        """Return the motion of each pair, the camera of each image, and of which pairs both are known."""
        camera, has_camera = filled(batch.intrinsics, 3, batch)
        motion, has_pose = poses_of(batch, pairs)
        if self.measured:
            first = pairs.targets[: len(pairs.targets) // 2]
            measured, has_motion = (x[first] for x in filled(batch.inputs.get("next_motion"), 4, batch))
            length, has_length = motion[: len(first), :3, 3].norm(dim=1), has_pose[: len(first)]
            if not self.velocity:
                points = batch.inputs.get("baselines", torch.zeros_like(depth))
                length, has_length = (x[first] for x in baseline_lengths(depth, points))
            forward = rigid(measured[:, :3, :3], length[:, None] * measured[:, :3, 3])
            motion, has_pose = torch.cat([forward, inverse(forward)]), (has_motion & has_length).repeat(2)
        known = has_camera[pairs.targets] & has_camera[pairs.sources] & has_pose
        return motion, camera, known[:, None, None, None]

    @torch.no_grad()
    def before_validation(self) -> Scores:
        """Return the photometric error of held-out clips, and of measured trajectories ATE and RPE, where the data have
        poses; the trajectories are written to `trajectories/` in the folder of the run."""
        if self.held_out is None:
            return {}
        state, world = self.context.state, self.context.state.world
        averaged = state.ema.applied() if state.ema else nullcontext()
        with evaluating(state.model), evaluating(self), averaged, gpu_products(tf32=self.context.precision == "tf32"):
            batches = self.held_out.batches(world.rank, world.size)
            scores = {"photometric": mean_over(batches, self._held_out_error, world.all_reduce_mean)}
            if self.measured:
                folder = self.setup.run.output / "trajectories" if world.is_main else None
                scores |= trajectory_scores(self.held_out.trajectories(self._steps), folder)
        return scores

    def _held_out_error(self, batch: Batch) -> Tensor:
        """Return the photometric error of a clip at the network's size, without masks, over the pixels that a neighbour
        sees; NaN if there are none."""
        batch, depth = self._held_out_depth(batch)
        pairs = FramePairs.of(len(batch), batch.clip_length, depth.device)
        motion, camera, known = self.motions(batch, pairs, depth)
        unmasked = replace(self.options, auto_mask=False, occlusion=False, weighted=False)
        views = compare(batch.image, depth, camera, motion, known, pairs, unmasked)
        return views.error[views.moving].mean()

    def _steps(self, batch: Batch) -> Motion:
        """Return the motion from each frame of a clip to the next; where it is not measured, none."""
        batch, depth = self._held_out_depth(batch)
        pairs = FramePairs.of(len(batch), batch.clip_length, depth.device)
        motion, _, known = self.motions(batch, pairs, depth)
        motion = torch.where(known[..., 0], motion, torch.eye(4, device=depth.device))
        return motion[: len(motion) // 2]

    def _held_out_depth(self, batch: Batch) -> tuple[Batch, Plane]:
        """Return a batch on the device, and its depth at the network's size."""
        model: Any = self.setup.model
        card, batch = self.setup.card, model.for_validation(batch.to(self.context.state.world.device))
        inputs = model.inputs_of(batch)
        options: dict[str, Any] = {"precision": self.context.precision, "heads": card.outputs}
        prediction = forward(model, batch.image, card.resize, card.multiple, inputs, **options)[self.head]
        return batch, 1 / (LEAST_DISPARITY + prediction) if self.disparity else prediction

    def log_values(self, all_reduce_mean: AllReduceMean) -> dict[str, float | None]:
        values = all_reduce_mean(self.monitor.values())
        for warning in self.monitor.warnings(values):
            log.warning("%s", warning)
        return {**super().log_values(all_reduce_mean), **values}


def depth_head(specs: Mapping[str, TaskSpec], kinds: Mapping[str, str]) -> str:
    """Return the one head that gives depth or disparity."""
    heads = [name for name, spec in specs.items() if issubclass(task_class(spec.task), DepthTask)]
    if len(heads) != 1:
        raise ConfigError(f"objective: 'self_supervised' trains one head of depth, and there are {len(heads)}.")
    if kinds[heads[0]] not in ("metric", "disparity"):
        raise ConfigError(
            f"model.heads.{heads[0]}: depth up to scale and shift moves no pixel into another view; "
            "take type 'metric' or 'disparity'."
        )
    return heads[0]


def filled(matrix: Tensor | None, side: int, batch: Batch) -> tuple[Tensor, Bool[Tensor, " n"]]:
    """Return square matrices of the images, the identity where they are not known, and which are."""
    eye = torch.eye(side, device=batch.image.device).expand(len(batch), side, side)
    if matrix is None:
        return eye, torch.zeros(len(batch), dtype=torch.bool, device=eye.device)
    known = matrix.isfinite().all(-1).all(-1)
    return torch.where(known[:, None, None], matrix, eye), known


@exactly
def poses_of(batch: Batch, pairs: FramePairs) -> tuple[Motion, Bool[Tensor, " pairs"]]:
    """Return the motion of each pair by the data's poses, and of which it is known."""
    pose, known = filled(batch.pose, 4, batch)
    return inverse(pose[pairs.sources]) @ pose[pairs.targets], known[pairs.targets] & known[pairs.sources]
