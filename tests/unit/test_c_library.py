"""Programs of older containers load the libraries that are put before theirs."""

import re
from pathlib import Path

import fikit
import pytest

OLDEST = (2, 28)
LIBRARIES = sorted((Path(fikit.__file__).parent / "libcuda").iterdir())


def test_there_are_some() -> None:
    assert {each.name for each in LIBRARIES} == {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"}


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_any_c_library_of_recent_years_will_do(library: Path) -> None:
    image = library.read_bytes()
    asked = {tuple(map(int, each.split(b"."))) for each in re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", image)}
    assert not {each for each in asked if each > OLDEST}
    assert b"libstdc++" not in image
    assert b"libgcc_s" not in image
    if library.name != "libcuda.so":  # which is empty
        assert (2, 2, 5) in asked
