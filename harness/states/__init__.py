"""Crash states: which there are, under which fault model, and what each holds. Knows no file system."""

from harness.states.models import FAULT_MODELS, FaultModel, enumerate_prefixes
from harness.states.replay import replay

__all__ = ["FAULT_MODELS", "FaultModel", "enumerate_prefixes", "replay"]
