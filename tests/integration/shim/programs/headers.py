"""Where CUDA's headers lie: in its wheels, or in the toolkit."""

import importlib.util
from pathlib import Path


def folders():
    """Those that there are; CUDA 13 keeps the headers of libcu++ apart, in `cccl`."""
    wheels = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
    places = list(wheels.submodule_search_locations) if wheels else []
    roots = [Path(place) / "include" for place in (*places, "/usr/local/cuda")]
    return [folder for root in roots for folder in (root, root / "cccl") if folder.is_dir()]


def has(*names):
    """Whether all of these headers are there."""
    return all(any((folder / name).is_file() for folder in folders()) for name in names)
