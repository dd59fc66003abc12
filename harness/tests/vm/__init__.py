"""Tests with real guests. Each says what it needs; under POWERCUT_REQUIRE_VM=1 lacking it is a failure."""
