"""The window operator without its fast paths, for comparisons with the operator that a spec builds."""

from dataclasses import dataclass

from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import KeyGroupRange
from windowlib.windows.spec import WindowSpec
from windowlib.windows.window_operator import WindowOperator


@dataclass(frozen=True, slots=True)
class PlainSpec:
    """Builds the plain operator of a spec."""

    spec: WindowSpec

    def build(self, groups: KeyGroupRange | None = None) -> WindowOperator:
        return WindowOperator(self.spec.build().windowing, groups)

    def state_rules(self) -> StateRules:
        return self.spec.state_rules()
