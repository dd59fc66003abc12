"""Boots guests (QEMU, UML), talks to them, and runs their disks."""
