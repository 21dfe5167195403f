"""`profile: true`: a trace of five steps by torch's profiler, as Chrome and https://ui.perfetto.dev read it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile, schedule

from densevit.config.schema import Run
from densevit.engine.distributed import DistributedContext
from densevit.utils import atomic_io
from densevit.utils.progress import tqdm

BEFORE, WARMUP, STEPS = 3, 2, 5


@contextmanager
def profiled(run: Run, world: DistributedContext, start: int) -> Iterator[Callable[[], object]]:
    """Yield what is called after each step. The first process writes five steps, after five others,
    to `profile/from-step-6.json` in the run's folder.

    Args:
        start: steps that were taken before.
    """
    if not world.is_main:
        yield lambda: None
        return
    first = start + BEFORE + WARMUP + 1
    path = run.output / "profile" / f"from-step-{first}.json"
    path.unlink(missing_ok=True)

    def write(trace: profile) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_io.atomic_path(path) as unfinished:
            trace.export_chrome_trace(str(unfinished))

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if world.device.type == "cuda" else [])]
    when = schedule(wait=BEFORE, warmup=WARMUP, active=STEPS, repeat=1)
    with profile(activities=kinds, schedule=when, on_trace_ready=write) as trace:
        yield trace.step
    written = f"{path}  (open in https://ui.perfetto.dev)"
    tqdm.write(f"profile     {written if path.exists() else f'none: the run ended before step {first}'}")
