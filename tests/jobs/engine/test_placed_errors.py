"""SpecErrors of the engine: the file and the key are in the message, once."""

import pytest

from jobs.engine.placed_errors import PlacedSpecError, naming
from windowlib.errors import SpecError


def test_an_error_of_windowlib_gets_the_file_and_the_key() -> None:
    with pytest.raises(PlacedSpecError, match=r"^p\.yaml: windows: too long$"), naming("p.yaml", "windows"):
        raise SpecError("too long")


def test_an_error_with_a_place_keeps_its_own_place() -> None:
    with pytest.raises(PlacedSpecError, match=r"^p\.yaml: windows\.trigger: wrong$"), naming("p.yaml", "windows"):
        raise PlacedSpecError.at("p.yaml", "windows.trigger", "wrong")


def test_the_wording_of_an_error_decides_nothing() -> None:
    with pytest.raises(PlacedSpecError, match=r"^p: windows: p is not a number$"), naming("p", "windows"):
        raise SpecError("p is not a number")
