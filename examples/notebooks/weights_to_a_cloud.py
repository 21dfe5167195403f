# %% [markdown]
# # From published weights to a point cloud
#
# `weights` is a checkpoint that gives metres: Depth Anything V2's metric models, ZoeDepth, one of your own ...;
# docs/models.md says where to get them and under which licences.

# %%
import os
from pathlib import Path

import densevit
from densevit.data.datasets.base import open_dataset

weights = Path(os.environ.get("WEIGHTS", "depth_anything_v2_metric_hypersim_vits.pth"))
family = os.environ.get("FAMILY", "depth-anything-v2-metric")
predictor = densevit.load(weights, family=family, family_options={"max_depth": 20})
predictor

# %% [markdown]
# A photograph with its camera: that of Middlebury's Motorcycle, which comes with scikit-image.

# %%
photo = open_dataset({"type": "middlebury_motorcycle"}).read(0)
depth = predictor(photo.image)
depth

# %%
from PIL import Image

Image.fromarray(photo.image).save("photo.png")
camera = [float(photo.intrinsics[i]) for i in ((0, 0), (1, 1), (0, 2), (1, 2))]  # fx, fy, cx, cy in pixels
summary = densevit.predict(predictor, "photo.png", "cloud", formats=["ply", "color"], intrinsics=camera)
print(summary)

# %% [markdown]
# `cloud/photo.ply` opens in MeshLab, CloudCompare or Blender. How good are these metres? The photograph has measured
# ones:

# %%
print(densevit.evaluate(predictor, [(photo.image, photo.depth)]))
