# %% [markdown]
# # From a folder of images and depth maps to a scored model and a picture
#
# The folder here is cut from one photograph with measured depth that comes with scikit-image; put the path of your own
# into `folder`. `densevit init` looks at a folder and writes a config for it.

# %%
from pathlib import Path

import numpy as np
from PIL import Image

import densevit
from densevit.data.datasets.base import open_dataset

folder = Path("motorcycle")
photo = open_dataset({"type": "middlebury_motorcycle"}).read(0)
for i, (top, left) in enumerate((t, x) for t in (0, 120, 240) for x in (0, 120, 240, 360, 500)):
    for kind, pixels in (("images", photo.image), ("depths", (1000 * photo.depth).astype(np.uint16))):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[top : top + 240, left : left + 240]).save(folder / kind / f"{i:02d}.png")

# %% [markdown]
# A small encoder from scratch keeps this quick on a CPU: without `model` and `quick` the recipe tunes DINOv2, which is
# fetched once.

# %%
small = {"type": "vit", "dim": 64, "depth": 4, "heads": 2, "patch_size": 16, "image_size": 96}
data = {"root": folder, "depth_scale": 1000, "transforms": [{"type": "random_crop", "size": [96, 96]}]}
model = {"encoder": small, "decoder": {"type": "conv_transpose", "stride": 4}}
quick = {"optim": {"lr": 1e-3, "encoder_lr_scale": 1.0}, "ema": None, "steps": 30, "batch_size": 8}
run = densevit.train("depth/folder", data=data, model=model, **quick, validate_every=15, output="run")
evaluation = densevit.evaluate(run.best)
evaluation.report("scores")
depth = run.predictor(folder / "images/00.png")

# %%
evaluation  # the scores, with their intervals where there are enough images

# %%
depth  # the picture, with its scale in metres

# %%
print(run.report)  # curves, scores and the worst images on one page
