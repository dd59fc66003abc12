"""Crash states: which exist under each fault model, and the contents of each. Knows no file system."""

from harness.states.legal import Choices, LegalStates, Moment
from harness.states.models import FAULT_MODELS, FaultModel, enumerate_prefixes
from harness.states.replay import replay

__all__ = ["FAULT_MODELS", "Choices", "FaultModel", "LegalStates", "Moment", "enumerate_prefixes", "replay"]
