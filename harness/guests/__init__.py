"""Booting and talking to guests (QEMU, UML), and the disk they are given."""
