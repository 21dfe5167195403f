"""A mixture small enough for a test: images with metric depth, with disparity alone, and with labels alone."""

from pathlib import Path

from small_scenes import MODEL, RUN, small_scenes

CONFIG = (
    MODEL
    + """
  heads:
    depth: {{type: metric, max_depth: 10, hidden: 0}}
    relative: {{type: disparity, hidden: 0}}
    labels: {{type: segmentation, dropout: 0}}
tasks:
  depth: {{losses: [{{type: silog}}]}}
  relative: {{losses: [{{type: ssi}}, {{type: ssi_gradient, weight: 0.5}}]}}
  labels: {{type: segmentation, losses: [{{type: cross_entropy, pool: image}}]}}
data:
  train:
    type: mix
    sources:
      - {{name: rooms, data: {{type: folder, root: {root}/a, depth_scale: 1000}}, weight: 2, truth: metric}}
      - name: web
        data: {{type: folder, root: {root}/b, depth_scale: 1000}}
        weight: 1
        truth: disparity
        transforms: [{{type: color, p: 1.0}}]
      - {{name: seg, data: {{type: folder, root: {root}/c, depth_scale: 1000}}, weight: 1, truth: labels}}
  val:
    type: mix
    sources:
      - {{name: rooms, data: {{type: folder, root: {root}/a, depth_scale: 1000}}}}
      - {{name: seg, data: {{type: folder, root: {root}/c, depth_scale: 1000}}}}
"""
    + RUN
    + "steps: 4\n"
)


def small_mixture_config(folder: Path) -> Path:
    for count, name in enumerate("abc", 4):
        small_scenes(folder / name, count=count)
    path = folder / "mix.yaml"
    path.write_text(CONFIG.format(root=folder, output=folder / "run"))
    return path
