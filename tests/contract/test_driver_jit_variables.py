"""CUDA_DISABLE_PTX_JIT and CUDA_FORCE_PTX_JIT: which of a program's code the driver takes."""

import os
from pathlib import Path

import pytest
from cuda_calls import KERNELS, Alone, Cuda

IMAGES = Path(__file__).parents[1] / "data/images"
pytestmark = pytest.mark.skipif(
    os.environ.get("FIKIT_TEST_DEVICE") == "real", reason="an H200's driver was not asked"
)
KINDS = ("text-none", "text-default", "machine-none", "managed-both")
DISABLED, NOTHING = "ERROR_JIT_COMPILATION_DISABLED", "ERROR_NO_BINARY_FOR_GPU"


def loading(cuda: Cuda) -> None:
    os.environ[os.environ["VARIABLE"]] = os.environ["VALUE"]  # what open_cuda loads is PTX
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
    ("variable", "expected"),
    [
        ("CUDA_DISABLE_PTX_JIT", [DISABLED, DISABLED, DISABLED, "SUCCESS", "SUCCESS"]),
        ("CUDA_FORCE_PTX_JIT", ["SUCCESS", "SUCCESS", "SUCCESS", NOTHING, "SUCCESS"]),
    ],
)
@pytest.mark.parametrize("value", ["0", "1"])
def test_code_that_is_not_wanted(alone: Alone, variable: str, expected: list[str], value: str) -> None:
    images = ":".join(str(IMAGES / f"{kind}.fatbin") for kind in KINDS)
    got = alone(loading, IMAGES=images, VARIABLE=variable, VALUE=value).split()
    wanted = expected if value == "1" else ["SUCCESS"] * len(expected)
    assert got == [result for result in wanted for _ in range(2)]
