"""A stand-in for a CUDA device: tensors that say `cuda:0` and go through torch's CUDA dispatch, with their numbers on
the CPU or, with `shapes_only`, nowhere (meta tensors, so that models of any size cost nothing).

Like CUDA: an operation on tensors of both devices fails; so does `.numpy()`; autocast follows CUDA's lists; optimisers
are fused; copies to the device are asynchronous from pinned memory only. Counted: every time that the host waits for
the device, by the line that makes it wait; kernels; bytes copied up; operations in float64.

Not seen: CUDA's kernels, their rounding, speed and memory; whether a stream waits for another; NCCL; cuDNN;
torch.compile. C++ that asks a tensor for its device is told "cpu", so C++ that makes new tensors beside another makes
them on the CPU, which passes here for tensors without dimensions only.
"""

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import densevit
from densevit.ops.resize import cached_constants

DEVICE = torch.device("cuda:0")
PACKAGE = f"{Path(densevit.__file__).parent}/"
aten = torch.ops.aten


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operations that start no kernel.
NO_KERNEL = words(
    "view _unsafe_view expand permute transpose t slice select unsqueeze squeeze detach alias as_strided split "
    "split_with_sizes unbind chunk unfold _reshape_alias narrow diagonal lift_fresh empty empty_like new_empty "
    "empty_strided new_empty_strided unflatten view_as_real movedim"
)
# Operations whose result has a size that only the device knows, or that return a number: the host waits.
WAITING = words(
    "nonzero masked_select bincount _unique2 unique_dim unique_consecutive equal repeat_interleave is_nonzero histc"
)
INDEXING = words("index index_put _index_put_impl _unsafe_index _unsafe_index_put")


class DeviceMismatch(RuntimeError):
    """What CUDA would refuse."""


@dataclass
class Counts:
    """What happened since the last `reset`.

    Attributes:
        waits: (what, where) -> how often the host waited for the device.
        float64: operations with a float64 tensor on the device, by where.
        casts: kernels that only copy a tensor into another dtype.
    """

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    float64: Counter[str] = field(default_factory=Counter)
    kernels: int = 0
    casts: int = 0
    bytes_up: int = 0
    launched: int = 0  # kernels since the beginning; not reset

    def launch(self) -> None:
        self.kernels += 1
        self.launched += 1

    def wait(self, what: str) -> None:
        if RECORDED is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what}")
        self.waits[what, place()] += 1

    def reset(self) -> None:
        self.waits.clear()
        self.float64.clear()
        self.kernels = self.casts = self.bytes_up = 0

    def said(self) -> str:
        return "; ".join(f"{n} x {what} at {where}" for (what, where), n in self.waits.most_common())


def place() -> str:
    """The innermost lines of densevit that are running."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)]
    return " < ".join(f"{frame.filename.removeprefix(PACKAGE)}:{frame.lineno}" for frame in frames[:-3:-1])


COUNTS = Counts()
RECORDED: list[Callable[[], None]] | None = None
_shapes_only = False


class GpuTensor(torch.Tensor):
    """A tensor on the stand-in; `inner` holds its numbers or its shape."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "GpuTensor":
        self = torch.Tensor._make_subclass(cls, inner.detach(), False, device_for_backend_keys=DEVICE)
        self.inner = inner.detach()
        return self

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(op, args, kwargs or {})

    @property
    def device(self) -> torch.device:
        return DEVICE

    def get_device(self) -> int:
        return 0

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise DeviceMismatch("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def tolist(self) -> Any:
        COUNTS.wait("tolist")
        return download(self).tolist()

    def cpu(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> Tensor:
        return self

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        copy = kwargs.pop("copy", False)
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype)
        device, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
        options = {} if layout is None else {"memory_format": layout}
        if device is not None and device.type != "cuda":
            if not non_blocking:
                COUNTS.wait("copy to the CPU")
            assert not (self.requires_grad and torch.is_grad_enabled()), "autograd through .cpu() is not emulated"
            down = download(self)
            return down.to(dtype=dtype or down.dtype, **options)
        if (dtype is not None and dtype != self.dtype) or options:
            return torch.Tensor.to(self, dtype=dtype or self.dtype, copy=copy, **options)
        return self.clone() if copy else self

    def record_stream(self, stream: Any) -> None: ...

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or DEVICE)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = self.detach().clone()
        return memo.setdefault(
            id(self), nn.Parameter(copy, self.requires_grad) if isinstance(self, nn.Parameter) else copy
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.inner.__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:
        return f"GpuTensor({tuple(self.shape)}, {self.dtype})"


def download(x: GpuTensor) -> Tensor:
    """The numbers; zeros where there are none."""
    return torch.zeros(x.shape, dtype=x.dtype) if _shapes_only else x.inner.clone()


def upload(x: Tensor, *, asynchronous: bool) -> GpuTensor:
    if not asynchronous:
        COUNTS.wait("copy of pageable memory to the device")
    if RECORDED is not None:
        raise RuntimeError("operation not permitted when stream is capturing: copy to the device")
    COUNTS.bytes_up += x.numel() * x.element_size()
    return GpuTensor(torch.empty_like(x, device="meta") if _shapes_only else x.clone())


def inner(x: Any) -> Any:
    if isinstance(x, GpuTensor):
        return x.inner
    on_meta = _shapes_only and isinstance(x, torch.Tensor) and x.device.type == "cpu"
    return x.to("meta") if on_meta else x


def dispatch(op: Any, args: Any, kwargs: Any) -> Any:
    name = op._schema.name.removeprefix("aten::")
    base = name.rstrip("_") or name
    leaves = pytree.tree_leaves((args, kwargs))
    ours = [x for x in leaves if isinstance(x, GpuTensor)]
    cpu = [x for x in leaves if isinstance(x, torch.Tensor) and not isinstance(x, GpuTensor) and x.device.type == "cpu"]
    if not ours and not any(isinstance(x, torch.device) and x.type == "cuda" for x in leaves):
        return op(*args, **kwargs)
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd"):  # in inference mode
        with Everywhere():
            return op.decompose(*args, **kwargs)
    if name == "_to_copy":
        return to_copy(op, args[0], kwargs)
    if name == "copy_":
        return copy_into(args[0], args[1])
    if name == "_local_scalar_dense":
        COUNTS.wait("item")
        return 1 if _shapes_only else args[0].inner.item()
    check_devices(op, base, args, ours, [x for x in cpu if x.ndim])
    if base in WAITING:
        COUNTS.wait(base)
    if base in INDEXING and any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
        COUNTS.wait(f"{base} by a mask")
    if base not in NO_KERNEL:
        COUNTS.launch()
    if any(x.dtype == torch.float64 for x in ours) or kwargs.get("dtype") == torch.float64:
        COUNTS.float64[place()] += 1
    return run(op, base, args, kwargs, ours)


def to_copy(op: Any, x: Tensor, kwargs: dict[str, Any]) -> GpuTensor:
    options = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking", "pin_memory")}
    if not isinstance(x, GpuTensor):
        return upload(op(x, **options), asynchronous=bool(kwargs.get("non_blocking")) and is_pinned(x))
    COUNTS.launch()
    COUNTS.casts += options.get("dtype", x.dtype) != x.dtype
    if torch.float64 in (x.dtype, options.get("dtype")):
        COUNTS.float64[place()] += 1
    return GpuTensor(computed(op, (x.inner,), options))


def copy_into(target: Tensor, source: Tensor) -> Tensor:
    if isinstance(target, GpuTensor) != isinstance(source, GpuTensor) and source.ndim:
        COUNTS.wait("copy_ between devices")
    COUNTS.launch()
    COUNTS.casts += target.dtype != source.dtype
    to, given = inner(target), inner(source)
    if to.device == given.device:
        computed(aten.copy_.default, (to, given), {})
    return target


def check_devices(op: Any, base: str, args: Any, ours: list[GpuTensor], others: list[Tensor]) -> None:
    if not ours or not others:
        return
    if base not in INDEXING or not isinstance(args[0], GpuTensor):
        raise DeviceMismatch(
            f"{op}: expected all tensors to be on the same device, found cuda:0 {[tuple(x.shape) for x in ours]} and "
            f"cpu {[tuple(x.shape) for x in others]}"
        )
    COUNTS.wait("CPU indices of a tensor on the device")


def run(op: Any, base: str, args: Any, kwargs: dict[str, Any], ours: list[GpuTensor]) -> Any:
    """The operation on the inner tensors; a result that is an argument stays that argument."""
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("meta" if _shapes_only else "cpu")}
    if "pin_memory" in kwargs:
        kwargs = {**kwargs, "pin_memory": None}
    if _shapes_only and base.startswith("_fused_sgd"):  # which has no rule for shapes
        return None
    plain_args, plain_kwargs = pytree.tree_map(inner, (args, kwargs))
    out = computed(op, plain_args, plain_kwargs)
    known = {id(x.inner): x for x in ours}
    return pytree.tree_map_only(torch.Tensor, lambda x: known[id(x)] if id(x) in known else GpuTensor(x), out)


def computed(op: Any, args: Any, kwargs: Any) -> Any:
    """The result; while a graph is recorded, its replay computes into the same memory."""
    out = op(*args, **kwargs)

    def again() -> None:
        for old, new in zip(pytree.tree_leaves(out), pytree.tree_leaves(op(*args, **kwargs)), strict=True):
            if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                old.copy_(new)

    if RECORDED is not None:
        RECORDED.append(again)
    return out


class Graph:
    """A CUDA graph: the operations of a recording, one launch in all."""

    def __init__(self) -> None:
        self.operations: list[Callable[[], None]] = []

    def pool(self) -> None: ...

    def replay(self) -> None:
        COUNTS.launch()
        for operation in self.operations:
            operation()


@contextmanager
def recorded(graph: Graph, pool: Any = None) -> Iterator[None]:
    global RECORDED
    COUNTS.wait("synchronize")
    RECORDED = graph.operations
    try:
        yield
    finally:
        RECORDED = None


class Everywhere(TorchDispatchMode):
    """Takes operations that make tensors from nothing, and copies to the device."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(op, args, kwargs or {})


# torch's own autocast kernels ask in C++ where a tensor is, and would leave these alone. The lists are those of
# aten/src/ATen/autocast_mode.h; what the dispatcher has a kernel for and no list names is computed in fp32.
LOWER = words(
    "_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul "
    "mm einsum mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot scaled_dot_product_attention "
    "_scaled_dot_product_flash_attention _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell "
    "rnn_relu_cell"
)
PROMOTED = words("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
FP32_RESULT = words("prod prod.dim_int softmax.int log_softmax.int cumprod cumsum sum sum.dim_IntList")
HALF = (torch.float16, torch.bfloat16)


def autocast_kernel(op: Any, name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
            if name == "binary_cross_entropy":
                raise DeviceMismatch("binary_cross_entropy is unsafe to autocast; use the one with logits.")
            numbers = [x for x in pytree.tree_leaves((args, kwargs)) if is_castable(x)]
            if name in FP32_RESULT:
                if kwargs.get("dtype") is None and numbers and numbers[0].dtype in HALF:
                    kwargs["dtype"] = torch.float32
                return op(*args, **kwargs)
            low = name in LOWER or (name in PROMOTED and not any(x.dtype == torch.float32 for x in numbers))
            dtype = torch.get_autocast_dtype("cuda") if low else torch.float32
            args, kwargs = pytree.tree_map(lambda x: x.to(dtype) if is_castable(x) else x, (args, kwargs))
            return op(*args, **kwargs)

    return kernel


def is_castable(x: Any) -> bool:
    return isinstance(x, GpuTensor) and x.is_floating_point() and x.dtype != torch.float64


@contextmanager
def cuda_autocast() -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL", "AutocastCUDA")
    with warnings.catch_warnings(action="ignore"):
        for full in torch._C._dispatch_get_all_op_names():
            name = full.removeprefix("aten::")
            if full.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(full, "AutocastCUDA"):
                packet, _, overload = name.partition(".")
                library.impl(name, autocast_kernel(getattr(getattr(aten, packet), overload or "default"), name))
    try:
        yield
    finally:
        library._destroy()


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    """The kernels that CUDA would take, which keep no n x n map; only their shapes are needed here."""
    low = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else q.dtype
    q, k, v = (x.to(low) for x in (q, k, v))
    if attn_mask is None and low != torch.float32:
        return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=low).masked_fill(~attn_mask, float("-inf"))
    bias = None if attn_mask is None else attn_mask.expand(*q.shape[:2], -1, -1)
    grad = torch.is_grad_enabled()
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, grad, dropout_p, is_causal, scale=scale)[0]


class Event:
    """A marker in the queue. Waiting for one is no wait if the device has been given work since."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0

    def record(self, stream: Any = None) -> None:
        self.at = COUNTS.launched

    def synchronize(self) -> None:
        if COUNTS.launched <= self.at:
            COUNTS.wait("event with nothing queued behind it")

    def query(self) -> bool:
        return True


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None: ...
    def wait_stream(self, other: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def synchronize(self) -> None:
        COUNTS.wait("stream")


def is_pinned(x: Tensor) -> bool:
    return bool(getattr(x, "_pinned", False))


def pin_memory(x: Tensor, *_: Any) -> Tensor:
    copy = x.clone()
    copy._pinned = True  # type: ignore[attr-defined]
    return copy


def patches(bf16: bool) -> Iterator[Any]:
    """torch's entry points to the device."""
    properties = type("Properties", (), {"name": "a stand-in", "major": 9, "minor": 0, "total_memory": 2**37})()
    stream = Stream()
    cuda: dict[str, Any] = {
        "is_available": lambda: True, "is_initialized": lambda: True, "_lazy_init": lambda: None,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": lambda *_: None,
        "device": lambda *_: nullcontext(), "is_bf16_supported": lambda including_emulation=True: bf16,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties, "get_device_name": lambda *_: properties.name,
        "get_rng_state": lambda *_: torch.get_rng_state(), "set_rng_state": lambda *_: None,
        "manual_seed_all": lambda *_: None, "synchronize": lambda *_: COUNTS.wait("synchronize"),
        "is_current_stream_capturing": lambda: False, "_is_in_bad_fork": lambda: False, "Event": Event,
        "CUDAGraph": Graph, "graph": recorded, "Stream": Stream, "stream": lambda *_: nullcontext(),
        "reset_peak_memory_stats": lambda *_: None, "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0, "current_stream": lambda *_: stream, "default_stream": lambda *_: stream,
    }  # fmt: skip
    yield from (patch.object(torch.cuda, name, value) for name, value in cuda.items())
    yield patch.object(torch.Tensor, "pin_memory", pin_memory)
    yield patch.object(torch.Tensor, "is_pinned", is_pinned)
    yield patch.object(torch.Tensor, "to", to_the_device_of(torch.Tensor.to))
    yield torch.backends.cudnn.flags(enabled=False)
    for name in ("tensor", "as_tensor"):
        yield patch.object(torch, name, made_on_the_cpu(getattr(torch, name)))
    group = torch._C._group_tensors_by_device_and_dtype
    yield patch.object(torch._C, "_group_tensors_by_device_and_dtype", lambda *args: regrouped(group(*args)))
    if _shapes_only:
        yield patch.object(torch.nn.functional, "scaled_dot_product_attention", fused_attention)


def made_on_the_cpu(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.tensor` asks C++ for the device; here it makes the tensor on the CPU and copies it, as CUDA does, too."""

    def made(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Tensor:
        return function(*args, **kwargs).to(device or "cpu").requires_grad_(requires_grad)

    return made


def to_the_device_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`x.to(other)` asks C++ for the device of the other."""

    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args and isinstance(args[0], GpuTensor):
            args = (DEVICE, args[0].dtype, *args[1:])
        return function(self, *args, **kwargs)

    return to


def regrouped(found: dict[Any, Any]) -> dict[Any, Any]:
    """Optimisers sort tensors by device, in C++."""
    return {
        (DEVICE if any(isinstance(x, GpuTensor) for x in lists[0]) else device, dtype): (lists, indices)
        for (device, dtype), (lists, indices) in found.items()
    }


@contextmanager
def fake_gpu(*, shapes_only: bool = False, bf16: bool = True) -> Iterator[Counts]:
    """Inside, there is a device `cuda`.

    Args:
        shapes_only: tensors have no numbers; `.item()` gives 1.
        bf16: whether it multiplies in bf16.
    """
    global _shapes_only
    before, _shapes_only = _shapes_only, shapes_only
    torch._C._ensureCUDADeviceGuardSet()  # a guard that does nothing, which stays for the process
    conversion = torch.__future__.get_overwrite_module_params_on_conversion()
    try:
        with ExitStack() as stack:
            for entry in patches(bf16):
                stack.enter_context(entry)
            stack.enter_context(cuda_autocast())
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            COUNTS.reset()
            cached_constants.cache_clear()
            stack.callback(cached_constants.cache_clear)  # none of its tensors leave it
            stack.enter_context(Everywhere())
            yield COUNTS
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(conversion)
        _shapes_only = before
