"""A client of Mooncake's store: `mooncake_store.py keep HOST MASTER`, then `mooncake_store.py use HOST MASTER`.

The keeper lends a segment of memory to the store. The user, which lends none, puts values there and
gets them back.
"""

import signal
import sys
import time

from mooncake.store import MooncakeDistributedStore

SEGMENT = 64 << 20
BUFFER = 32 << 20
VALUES = 8
LENGTH = 2 << 20


def store(host, master, segment):
    own = MooncakeDistributedStore()
    status = own.setup(host, "P2PHANDSHAKE", segment, BUFFER, "rdma", "", master)
    if status != 0:
        sys.exit(f"the store does not start: {status}")
    return own


def keep(host, master):
    own = store(host, master, SEGMENT)
    print("keeping", flush=True)
    signal.sigwait({signal.SIGTERM})
    own.close()


def value(at):
    return bytes((at * 7 + byte) & 0xFF for byte in range(256)) * (LENGTH // 256)


def use(host, master):
    own = store(host, master, 0)
    begun = time.monotonic()
    for at in range(VALUES):
        status = own.put(f"key{at}", value(at))
        if status != 0:
            sys.exit(f"a put ends with {status}")
    took = time.monotonic() - begun
    for at in range(VALUES):
        if own.get(f"key{at}") != value(at):
            sys.exit(f"value {at} came back as another one")
    print(f"user verified, put {VALUES * LENGTH / took / 1e6:.2f} MB/s", flush=True)
    own.close()


if __name__ == "__main__":
    # Threads of the store inherit this, so that the signal waits for `keep`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    (keep if sys.argv[1] == "keep" else use)(sys.argv[2], sys.argv[3])
