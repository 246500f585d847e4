"""Build the extension modules with CMake; all other settings are in pyproject.toml.

PYC_BUILD_PRESET  a preset of CMakePresets.json (default: release)
PYC_BUILD_DIR     a build folder to keep, for incremental builds (default: a fresh configuration each time)
PYC_CUDA          support of CUDA devices: ON (the default) or OFF; needs no CUDA toolkit
CMAKE_ARGS        further arguments of cmake
MPICC             the MPI to build against (default: see CMakeLists.txt)
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent


sys.path.insert(0, str(ROOT / "_build"))
import index_page  # noqa: E402

COMMIT = ROOT / "COMMIT"
"""File in a source distribution with the commit that it was made from."""


def current_commit() -> str:
    """Return the commit that is built, with "-dirty" if the tree differs; "unknown" outside a git checkout."""
    if COMMIT.exists():
        return COMMIT.read_text().strip()
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class CMakeBuild(build_ext):
    """Runs CMake's configure, build and install steps."""

    def build_extension(self, ext: Extension) -> None:
        """Build all extensions together with the first, and record the version and commit."""
        if ext is not self.extensions[0]:
            return
        for names, remedy in (
            ((os.environ.get("CXX"), "c++", "g++", "clang++", "CC"), "a C++20 compiler (g++ >= 11 or clang++ >= 14)"),
            (("cmake",), "cmake (it comes from PyPI when pip builds in isolation)"),
            (("ninja",), "ninja (it comes from PyPI when pip builds in isolation)"),
        ):
            if not any(name and shutil.which(shlex.split(name)[0]) for name in names):
                sys.exit(f"pycollectives cannot be built: {remedy} is needed and none is on PATH.")

        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        kept = os.environ.get("PYC_BUILD_DIR")
        build = Path(kept or self.build_temp).resolve()
        preset = os.environ.get("PYC_BUILD_PRESET", "release")
        configure = ["cmake", "--log-level=NOTICE", f"--preset={preset}", "-S", ROOT, "-B", build]
        configure.append(f"-DPython_EXECUTABLE={sys.executable}")
        configure.append(f"-DPYC_CUDA={os.environ.get('PYC_CUDA') or 'ON'}")
        if not kept:
            configure.append("--fresh")
        configure += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
        install = ["cmake", "--install", build, "--component", "python", "--prefix", package.parent]
        if preset == "release":
            install.append("--strip")
        for command in (configure, ["cmake", "--build", build, "--parallel", jobs], install):
            try:
                subprocess.run([str(word) for word in command], cwd=ROOT, check=True)
            except subprocess.CalledProcessError as error:
                sys.exit(f"pycollectives cannot be built: `{shlex.join(error.cmd)}` failed, see the messages above.")

        if self.editable_mode:
            package = ROOT / "pycollectives"  # where setuptools copies the extension to
        version = self.distribution.get_version()
        text = f'"""Written by the build."""\n\nversion = "{version}"\ncommit = "{current_commit()}"\n'
        (package / "_version.py").write_text(text)


class SourceDistribution(sdist):
    """A source distribution that records its commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the files, and write COMMIT."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, COMMIT.name).write_text(current_commit() + "\n")


VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]

setup(
    ext_modules=[Extension(f"pycollectives.{name}", sources=[]) for name in ("_core", "_zipline")],
    cmdclass={"build_ext": CMakeBuild, "sdist": SourceDistribution},
    long_description=index_page.description((ROOT / "README.md").read_text(encoding="utf-8"), VERSION),
    long_description_content_type="text/markdown",
    project_urls=index_page.addresses(VERSION),
)
