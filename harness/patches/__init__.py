"""A patch to Linux: does it break a promise that its base keeps, and which of its commits does?"""
