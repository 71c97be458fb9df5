#!/usr/bin/env python3
"""Builds the Python client as its users get it, and installs that where nothing else is. It needs no network.

    package.py --check       fails if this Python cannot do it, and says what is missing
    package.py SOURCE DIR    makes DIR/dist with the sdist, and with the wheel that is built of the sdist, and the
                             environment DIR/env with the wheel; prints the Python of that environment
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import venv

OFFLINE = ("--no-index", "--no-deps", "--disable-pip-version-check")


def missing():
    names = [name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name) is None]
    if names == ["wheel"]:
        version = importlib.metadata.version("setuptools").split(".")
        if [int(part) for part in version[:2]] >= [70, 1]:  # it makes wheels by itself
            return []
    return names


def python(*args, **options):
    """Runs this Python. What it says is shown only if it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    env["PIP_CONFIG_FILE"] = os.devnull
    ran = subprocess.run([sys.executable, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         **options)
    if ran.returncode != 0:
        sys.exit(f"{args}: status {ran.returncode}\n{ran.stdout}")


def main(source, top):
    tree, dist, env = top / "source", top / "dist", top / "env"
    # A build writes beside its sources.
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    dist.mkdir()
    backend = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    python("-c", backend, str(dist.resolve()), cwd=tree)
    (sdist,) = dist.iterdir()
    python("-m", "pip", "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", str(dist), str(sdist))
    (wheel,) = dist.glob("*.whl")
    venv.create(env, symlinks=os.name != "nt")
    installed = env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    python("-m", "pip", "--python", str(installed), "install", *OFFLINE, str(wheel))
    print(installed)


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if names := missing():
            sys.exit(f"{sys.executable} has no {', '.join(names)}")
    elif len(sys.argv) == 3:
        main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
