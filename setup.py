"""The package is described in setup.cfg. A wheel also holds the recipes: `configs/` becomes `densevit/configs`."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install finds them in the clone
            shutil.copytree("configs", Path(self.build_lib, "densevit", "configs"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithRecipes})
