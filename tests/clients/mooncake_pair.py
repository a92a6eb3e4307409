"""Two engines of Mooncake: `mooncake_pair.py target HOST PORT`, then `mooncake_pair.py initiator HOST TARGET PORT`.

The initiator writes into the target's memory, reads it back, and compares each byte. PORT is where
the target tells its session and address. No device is named: the engine looks for all.
"""

import socket
import sys
import time

import numpy as np
from mooncake.engine import TransferEngine

LENGTH = 16 << 20


def engine(host):
    own = TransferEngine()
    if own.initialize(host, "P2PHANDSHAKE", "rdma", "") != 0:
        sys.exit("the engine does not start")
    memory = np.zeros(LENGTH, dtype=np.uint8)
    if own.register_memory(memory.ctypes.data, LENGTH) != 0:
        sys.exit("memory is not registered")
    return own, memory


def pattern():
    return (np.arange(LENGTH, dtype=np.uint32) * 2654435761 >> 24).astype(np.uint8)


def target(host, port):
    own, memory = engine(host)
    with socket.create_server((host, port)) as listener:
        asker, _ = listener.accept()
    with asker:
        session = f"{host}:{own.get_rpc_port()} {memory.ctypes.data}\n"
        asker.sendall(session.encode())
        asker.recv(1)
    if not np.array_equal(memory, pattern()):
        sys.exit("the target has other bytes than were written")
    print("target verified", flush=True)


def initiator(host, target_host, port):
    own, memory = engine(host)
    with socket.create_connection((target_host, port)) as asked:
        session, address = asked.makefile().readline().split()
        memory[:] = pattern()
        for _ in range(2):
            begun = time.monotonic()
            check(own.transfer_sync_write(session, memory.ctypes.data, int(address), LENGTH))
            took = time.monotonic() - begun
        memory[:] = 0
        check(own.transfer_sync_read(session, memory.ctypes.data, int(address), LENGTH))
        if not np.array_equal(memory, pattern()):
            sys.exit("other bytes were read than had been written")
        asked.sendall(b".")
    print(f"initiator verified, WRITE {LENGTH / took / 1e6:.2f} MB/s", flush=True)


def check(status):
    if status != 0:
        sys.exit(f"a transfer ended with {status}")


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(sys.argv[2], int(sys.argv[3]))
    else:
        initiator(sys.argv[2], sys.argv[3], int(sys.argv[4]))
