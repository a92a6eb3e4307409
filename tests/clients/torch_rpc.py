"""Two workers of torch's RPC over TensorPipe's ibv transport: `torch_rpc.py RANK ADDRESS PORT`.

Rank 1 sends tensors to rank 0, which doubles them, and compares each number.
"""

import sys
import time

import torch
import torch.distributed.rpc as rpc

SIZES = [1, 1 << 10, 1 << 20]
ROUNDS = 10


def double(tensor):
    return tensor * 2


def ask():
    took = 0.0
    for size in SIZES:
        tensor = torch.arange(size, dtype=torch.int32)
        begun = time.monotonic()
        for _ in range(ROUNDS):
            if not torch.equal(rpc.rpc_sync("worker0", double, args=(tensor,)), tensor * 2):
                sys.exit(f"{size} numbers came back as others")
        took = (time.monotonic() - begun) / ROUNDS
    print(f"worker1 verified, 4 MiB there and back {took * 1e3:.1f} ms", flush=True)


def main():
    rank, address, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://{address}:{port}",
        rpc_timeout=60,
        _transports=["ibv"],
        _channels=["basic"],
    )
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 1:
        ask()
    rpc.shutdown()


if __name__ == "__main__":
    main()
