"""LMDB as run and check use it: its library by ctypes (http://www.lmdb.tech/doc/group__mdb.html)."""

from __future__ import annotations

import ctypes
import glob
from collections.abc import Iterator

FLAGS = {"sync": 0, "nometasync": 0x40000, "nosync": 0x10000}
READ_ONLY = 0x20000
NOT_FOUND = -30798
FIRST, LAST, NEXT, PREVIOUS = 0, 6, 8, 12
MAP_BYTES = 1 << 20

_lmdb = ctypes.CDLL(glob.glob("/usr/lib/*/liblmdb.so.0")[0])
_lmdb.mdb_strerror.restype = ctypes.c_char_p
_env, _txn, _cursor = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p


class _Value(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class LmdbError(Exception):
    """What a call of the library says."""


def _call(name: str, *arguments: object, accepted: tuple[int, ...] = (0,)) -> int:
    code = getattr(_lmdb, name)(*arguments)
    if code not in accepted:
        raise LmdbError(f"{name}: {_lmdb.mdb_strerror(code).decode()}")
    return code


def _value(data: bytes) -> _Value:
    return _Value(len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p))


class Database:
    """The database of the current directory, in the files data.mdb and lock.mdb."""

    def __init__(self, flags: int) -> None:
        self._env = _env()
        _call("mdb_env_create", ctypes.byref(self._env))
        _call("mdb_env_set_mapsize", self._env, ctypes.c_size_t(MAP_BYTES))
        _call("mdb_env_open", self._env, b".", ctypes.c_uint(flags), 0o644)

    def change(self, put: dict[str, str], remove: list[str]) -> None:
        """One transaction."""
        txn, dbi = self._begin(0)
        for key, text in put.items():
            _call("mdb_put", txn, dbi, *map(ctypes.byref, (_value(key.encode()), _value(text.encode()))), 0)
        for key in remove:
            _call("mdb_del", txn, dbi, ctypes.byref(_value(key.encode())), None)
        _call("mdb_txn_commit", txn)

    def all(self, *, backward: bool = False) -> list[tuple[str, str]]:
        """Everything in it, by a cursor from one end to the other."""
        txn, dbi = self._begin(READ_ONLY)
        try:
            return [*self._entries(txn, dbi, LAST if backward else FIRST, PREVIOUS if backward else NEXT)]
        finally:
            _lmdb.mdb_txn_abort(txn)

    def get(self, key: str) -> str | None:
        """One value, found through the tree."""
        txn, dbi = self._begin(READ_ONLY)
        value = _Value()
        wanted = ctypes.byref(_value(key.encode()))
        try:
            code = _call("mdb_get", txn, dbi, wanted, ctypes.byref(value), accepted=(0, NOT_FOUND))
            return None if code else _text(value)
        finally:
            _lmdb.mdb_txn_abort(txn)

    def close(self) -> None:
        _lmdb.mdb_env_close(self._env)

    def _begin(self, flags: int) -> tuple[ctypes.c_void_p, ctypes.c_uint]:
        txn, dbi = _txn(), ctypes.c_uint()
        _call("mdb_txn_begin", self._env, None, ctypes.c_uint(flags), ctypes.byref(txn))
        _call("mdb_dbi_open", txn, None, 0, ctypes.byref(dbi))
        return txn, dbi

    def _entries(
        self, txn: ctypes.c_void_p, dbi: ctypes.c_uint, step: int, following: int
    ) -> Iterator[tuple[str, str]]:
        cursor = _cursor()
        _call("mdb_cursor_open", txn, dbi, ctypes.byref(cursor))
        key, value = _Value(), _Value()
        while not _call(
            "mdb_cursor_get", cursor, ctypes.byref(key), ctypes.byref(value), step, accepted=(0, NOT_FOUND)
        ):
            yield _text(key), _text(value)
            step = following
        _lmdb.mdb_cursor_close(cursor)


def _text(value: _Value) -> str:
    return ctypes.string_at(value.data, value.size).decode(errors="replace")


def rows(k: int) -> dict[str, str]:
    """The rows of transaction `k`: some fit a page with others, some need pages of their own."""
    return {f"{k:02}.{part}": chr(64 + k) * (900 * part * part) for part in (1, 2, 3)}
