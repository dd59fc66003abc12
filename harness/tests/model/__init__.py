"""Tests of `harness.model`."""
