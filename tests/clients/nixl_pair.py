"""Two agents of NIXL: `nixl_pair.py target PORT`, then `nixl_pair.py initiator ADDRESS PORT`.

The initiator writes blocks into the target's memory, reads them back, and compares each byte.
"""

import sys
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

BLOCK = 1 << 20
BLOCKS = 16
PATIENCE = 60


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come within {PATIENCE} s")
        time.sleep(0.001)
    return answer


def agent(name, port):
    config = nixl_agent_config(
        enable_listen_thread=True, listen_port=port, backends=["UCX"]
    )
    return nixl_agent(name, config)


def describe(memory):
    base = memory.ctypes.data
    return [(base + at * BLOCK, BLOCK, 0) for at in range(BLOCKS)]


def register(own, memory):
    blocks = [(address, length, 0, "") for address, length, _ in describe(memory)]
    own.register_memory(blocks, "DRAM")
    return own.get_xfer_descs(describe(memory), "DRAM")


def target(port):
    own = agent("target", port)
    memory = np.zeros(BLOCK * BLOCKS, dtype=np.uint8)
    descs = register(own, memory)
    print("listening", flush=True)
    wait_for("the initiator", lambda: own.check_remote_metadata("initiator"))
    own.send_notif("initiator", own.get_serialized_descs(descs))
    wait_for("the end", lambda: "initiator" in own.get_new_notifs())
    expected = pattern()
    if not np.array_equal(memory, expected):
        sys.exit("the target has other bytes than were written")
    print("target verified", flush=True)


def pattern():
    return (np.arange(BLOCK * BLOCKS, dtype=np.uint32) * 2654435761 >> 24).astype(
        np.uint8
    )


def transfer(own, kind, local, remote, notification=b""):
    """Moves bytes and then notifies the target, and says how long that took."""
    begun = time.monotonic()
    handle = own.initialize_xfer(kind, local, remote, "target", notification)
    if own.transfer(handle) == "ERR":
        sys.exit(f"{kind} could not be posted")
    wait_for(kind, lambda: own.check_xfer_state(handle) in ("DONE", "ERR"))
    if own.check_xfer_state(handle) != "DONE":
        sys.exit(f"{kind} failed")
    own.release_xfer_handle(handle)
    return time.monotonic() - begun


def initiator(address, port):
    own = agent("initiator", 0)
    source, back = pattern(), np.zeros(BLOCK * BLOCKS, dtype=np.uint8)
    local, returned = register(own, source), register(own, back)
    own.fetch_remote_metadata("target", address, port)
    own.send_local_metadata(address, port)
    notified = wait_for("the target", lambda: own.get_new_notifs().get("target"))
    remote = own.deserialize_descs(notified[0])
    wait_for("its keys", lambda: own.check_remote_metadata("target", remote))
    transfer(own, "WRITE", local, remote)
    took = transfer(own, "WRITE", local, remote)
    transfer(own, "READ", returned, remote, b"done")
    if not np.array_equal(source, back):
        sys.exit("other bytes were read than had been written")
    print(f"initiator verified, WRITE {BLOCK * BLOCKS / took / 1e6:.2f} MB/s", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "target":
        target(int(sys.argv[2]))
    else:
        initiator(sys.argv[2], int(sys.argv[3]))
