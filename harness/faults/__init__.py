"""Planted kernel faults: how many of them does Powercut find?"""
