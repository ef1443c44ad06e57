"""CUDA_FORCE_PTX_JIT, CUDA_FORCE_JIT and CUDA_DISABLE_PTX_JIT: which of a program's code the driver takes."""

import os
from pathlib import Path

import pytest
from cuda_calls import KERNELS, Alone, Cuda

IMAGES = Path(__file__).parents[1] / "data/images"
KINDS = ("text-none", "text-default", "machine-none", "managed-both")
ALL = ["SUCCESS"] * 5
NO_MACHINE_CODE = ["SUCCESS", "SUCCESS", "SUCCESS", "ERROR_NO_BINARY_FOR_GPU", "SUCCESS"]


def loading(cuda: Cuda) -> None:
    images = [KERNELS]
    for name in os.environ["IMAGES"].split(":"):
        with open(name, "rb") as file:
            images.append(file.read())
    for image in images:
        print(cuda.result("cuModuleLoadData", image))
        result, library = cuda.driver.cuLibraryLoadData(image, [], [], 0, [], [], 0)
        if int(result) == 0:
            result, _ = cuda.driver.cuLibraryGetModule(library)
        print(result.name.removeprefix("CUDA_"))


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CUDA_FORCE_PTX_JIT", "0", ALL),
        ("CUDA_FORCE_PTX_JIT", "1", NO_MACHINE_CODE),
        ("CUDA_FORCE_PTX_JIT", "2", ALL),
        ("CUDA_FORCE_JIT", "1", NO_MACHINE_CODE),
        ("CUDA_DISABLE_PTX_JIT", "1", ALL),
    ],
)
def test_code_that_is_not_wanted(alone: Alone, variable: str, value: str, expected: list[str]) -> None:
    images = ":".join(str(IMAGES / f"{kind}.fatbin") for kind in KINDS)
    got = alone(loading, IMAGES=images, **{variable: value}).split()
    assert got == [result for result in expected for _ in range(2)]
