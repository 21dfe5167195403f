"""The card of a model that is trained: from which data, and from which weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from densevit.builder.model import build_card
from densevit.builder.plan import Plan
from densevit.config import parser
from densevit.config.parser import OBJECT
from densevit.data.sanity_checks import fields_of_view
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel


def describe_data(data: Mapping[str, Any]) -> str:
    """Return a data set in a line, for those who get the model: of the folder that it lies in only the last part.

    >>> describe_data({"type": "folder", "root": "/home/me/garden", "split": "train", "depth_scale": 1000})
    'folder garden, split train'
    >>> describe_data({"type": "mix", "sources": [{"data": {"type": "nyu"}}, {"data": {"type": "vkitti2"}}]})
    'nyu + vkitti2'
    """
    if "sources" in data:
        return " + ".join(describe_data(source["data"]) for source in data["sources"])
    root = Path(data["root"]).name if data.get("root") else ""
    name = data.get("name") if data["type"] == OBJECT else f"{data['type']} {root}".strip()
    return f"{name}, split {data['split']}" if data.get("split") else str(name)


def training_card(plan: Plan, model: DenseModel) -> ModelCard:
    """Return the card of the model of a plan, before it is trained."""
    trained_on, palette = describe_data(plan.run.data.train), plan.train.palette
    fov = fields_of_view(plan.train, on_corrupt=plan.run.data.on_corrupt)
    if plan.init is None:
        licence = model.encoder.licence
        card = build_card(model, plan.model, trained_on=trained_on, palette=palette, licence=licence, fov=fov)
    else:
        init = plan.init.info
        card = build_card(
            model,
            plan.model,
            trained_on=trained_on,
            palette=palette,
            source="densevit, from " + init.source.removeprefix("densevit, from "),  # the first of several trainings
            licence=init.licence,
            multiple=init.multiple if init.resize == plan.model.resize else None,
            fov=fov,
        )
    teachers = {teacher.name: teacher.licence for teacher in plan.train.teachers}
    return replace(card, config=parser.to_dict(plan.run), teachers=teachers)
