"""Windows of MongoDB Atlas Stream Processing, in its own notation. docs/reference/atlas.md lists them."""

from windowlib.atlas.atlas_operator import AtlasOperator
from windowlib.atlas.policies import ATLAS_PROFILES, AtlasProfile
from windowlib.atlas.spec import OUTPUT_COLUMNS, SIDE_OUTPUT_COLUMNS, AtlasSpec
from windowlib.atlas.time_driver import AtlasDriver

__all__ = [
    "ATLAS_PROFILES",
    "OUTPUT_COLUMNS",
    "SIDE_OUTPUT_COLUMNS",
    "AtlasDriver",
    "AtlasOperator",
    "AtlasProfile",
    "AtlasSpec",
]
