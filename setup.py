"""Puts the scripts of experiments/ into a wheel, as fastdqn/experiments; pyproject.toml says everything else."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SCRIPTS = sorted(Path("experiments").glob("*.py"))


class BuildWithScripts(build_py):
    def run(self) -> None:
        if self.editable_mode:  # the checkout has them
            super().run()
            return
        shutil.rmtree(Path(self.build_lib, "fastdqn"), ignore_errors=True)  # what an older build has left
        super().run()
        folder = Path(self.build_lib, "fastdqn", "experiments")
        self.mkpath(str(folder))
        for script in SCRIPTS:
            self.copy_file(str(script), str(folder / script.name))

    def get_source_files(self) -> list[str]:  # of a source distribution
        return [*super().get_source_files(), *map(str, SCRIPTS)]


setup(cmdclass={"build_py": BuildWithScripts})
