"""Programs that run in the measuring guest, by its own python3: standard library only, one file each.

Each takes one argument, a JSON object, and prints one line of JSON. Times are of the guest's monotonic
clock. They do in one process what the originals did in many: under emulation a process start costs more than
a thousand system calls.
"""
