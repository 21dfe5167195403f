"""Train, evaluate and deploy dense-prediction Vision Transformers: monocular depth and semantic segmentation.

    import densevit

    run = densevit.train("depth/folder", data={"root": "mine"}, output="runs/mine")
    depth = run.predictor("photo.jpg")                    # float32 h w, metres; a NumPy array
    evaluation = densevit.evaluate(run.best)              # on the run's own validation data
    evaluation.report("scores/mine")                      # metrics.json, per_image.csv, report.html
    densevit.predict(run.best, "photos/", "maps")         # PNG16 files
    predictor = densevit.load("depth_anything_v2_vits.pth", family="depth-anything-v2")

Functions
    train(config, **overrides) -> Run             a recipe, file or dict; trained, with its scores and predictor
    load(path, ...) -> Predictor                  a checkpoint of densevit's, or a published one
    predict_video(predictor, path, ...)           maps of a video, frame by frame; predict_frames those of a camera
    evaluate(model_or_maps, data, ...) -> Evaluation    by the protocol of a paper
    predict(model, inputs, output, ...) -> Summary      what it predicts for many images or videos, as files
    export(model, output, ...)                    an ONNX file, a compiled package for C++ programs, or a web page
    load_pt2(path)                                runs such a package in Python
    compare, calibrate                            two evaluations; a model against measured images

Classes
    Predictor     images in, NumPy maps out
    ImageInput    an image with its camera and measured points
    Run           the folder of a training
    Evaluation    scores with intervals, a table, a report
    Dataset       the interface of data sets; `Pairs` makes one of a list, `Sample` is one image with ground truth

`help(densevit.train)` lists the arguments; the same is done from a shell by `densevit --help`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from densevit.version import __version__

if TYPE_CHECKING:
    from densevit.api.evaluate import calibrate, compare, evaluate
    from densevit.api.models import export, load
    from densevit.api.predict import predict
    from densevit.api.train import train
    from densevit.api.training import Run
    from densevit.data.datasets.base import Dataset
    from densevit.data.datasets.pairs import Pairs
    from densevit.inference.image_input import ImageInput
    from densevit.inference.predictor import Predictor
    from densevit.inference.pt2 import load_pt2
    from densevit.inference.video.predict import predict_frames, predict_video
    from densevit.scorers.base import Evaluation
    from densevit.structures import Sample

__all__ = [
    "Dataset",
    "Evaluation",
    "ImageInput",
    "Pairs",
    "Predictor",
    "Run",
    "Sample",
    "__version__",
    "calibrate",
    "compare",
    "evaluate",
    "export",
    "load",
    "load_pt2",
    "predict",
    "predict_frames",
    "predict_video",
    "train",
]

# Torch takes a second to import; `densevit --help` must not wait for it.
_MODULES = {
    "Dataset": "densevit.data.datasets.base",
    "Evaluation": "densevit.scorers.base",
    "ImageInput": "densevit.inference.image_input",
    "Pairs": "densevit.data.datasets.pairs",
    "Predictor": "densevit.inference.predictor",
    "Run": "densevit.api.training",
    "Sample": "densevit.structures",
    "calibrate": "densevit.api.evaluate",
    "compare": "densevit.api.evaluate",
    "evaluate": "densevit.api.evaluate",
    "export": "densevit.api.models",
    "load": "densevit.api.models",
    "load_pt2": "densevit.inference.pt2",
    "predict": "densevit.api.predict",
    "predict_frames": "densevit.inference.video.predict",
    "predict_video": "densevit.inference.video.predict",
    "train": "densevit.api.train",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'densevit' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
