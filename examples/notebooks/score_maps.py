# %% [markdown]
# # Score somebody's depth maps, and ask whether a difference is more than chance
#
# Predictions may be a folder of files, arrays, or a function of the image; nothing of densevit need have made them.

# %%
from pathlib import Path

import cv2
import numpy as np

import densevit
from densevit.data.datasets.base import open_dataset
from densevit.evaluation.compare import compare, table

photo = open_dataset({"type": "middlebury_motorcycle"}).read(0)
filled = np.where(photo.valid, photo.depth, np.median(photo.depth[photo.valid]))
windows = [(slice(t, t + 160), slice(x, x + 160)) for t in range(0, 330, 80) for x in range(0, 570, 80)]
data = densevit.Pairs([(photo.image[window], photo.depth[window]) for window in windows])

# %% [markdown]
# Two stand-ins for models: a blurred truth that is 10 % too far, and the same without the fine detail.

# %%
blurred = [cv2.blur(filled[window].copy(), (3, 3)) * 1.1 for window in windows]
coarse = [cv2.blur(depth, (41, 41)) for depth in blurred]

one = densevit.evaluate(predictions=blurred, data=data)
other = densevit.evaluate(predictions=coarse, data=data)
aligned = densevit.evaluate(predictions=blurred, data=data, align="median")
print(one)

# %%
aligned  # without the wrong scale

# %%
one.report("scores/blurred")
other.report("scores/coarse")
comparison = compare(Path("scores/blurred"), Path("scores/coarse"))
print(table(comparison))
