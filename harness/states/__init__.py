"""Crash states: which exist under each fault model, and the contents of each. Knows no file system."""

from harness.states.legal import Choices, CrashTime, LegalStates
from harness.states.models import FAULT_MODELS, FaultModel, enumerate_prefixes, enumerate_states
from harness.states.replay import replay

__all__ = [
    "FAULT_MODELS",
    "Choices",
    "CrashTime",
    "FaultModel",
    "LegalStates",
    "enumerate_prefixes",
    "enumerate_states",
    "replay",
]
