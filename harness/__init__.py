"""Powercut: does this kernel's file system keep its promises when the power fails?"""

__version__ = "0.1.0"
