"""Crash states: which exist under each fault model. Knows no file system."""

from harness.states.legal import Choices, CrashTime, LegalStates, Unclear
from harness.states.models import FAULT_MODELS, FaultModel, enumerate_prefixes, enumerate_states

__all__ = [
    "FAULT_MODELS",
    "Choices",
    "CrashTime",
    "FaultModel",
    "LegalStates",
    "Unclear",
    "enumerate_prefixes",
    "enumerate_states",
]
