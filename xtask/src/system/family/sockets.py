"""Programs on sockets that know nothing of Ferroce: a server that answers, and its clients.

Each connection's bytes come back, and both ends check them by a digest.
"""
import asyncio
import ctypes
import hashlib
import os
import random
import signal
import socket
import sys
import threading

PORT = int(os.environ.get("PORT", 7700))
LIBC = ctypes.CDLL(None, use_errno=True)


def is_stream(fd):
    """The kernel's own word: getsockname by the system call."""
    room, length = ctypes.create_string_buffer(128), ctypes.c_uint(128)
    LIBC.syscall(51 if os.uname().machine == "x86_64" else 204, fd, room, ctypes.byref(length))
    return int.from_bytes(room.raw[:2], sys.byteorder) == socket.AF_UNIX


async def answer(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(host):
    server = await asyncio.start_server(answer, host, PORT, backlog=4096)
    print("listens", flush=True)
    await server.serve_forever()


def exchange(client, size, seed):
    data = random.Random(seed).randbytes(size)
    sender = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
    sender.start()
    back = hashlib.sha256()
    while part := client.recv(1 << 16):
        back.update(part)
    sender.join()
    assert back.digest() == hashlib.sha256(data).digest(), f"the bytes of seed {seed} differ"


def call(host, count):
    kinds = [0, 0]
    for seed in range(count):
        with socket.create_connection((host, PORT)) as client:
            assert client.getpeername() == (host, PORT), client.getpeername()
            kinds[is_stream(client.fileno())] += 1
            exchange(client, 4 << 20 if seed % 10 == 0 else 3000 * (seed + 1), seed)
    print(f"tcp {kinds[0]} streams {kinds[1]}", flush=True)


def call_until_end(host):
    """Says when it is connected, sends for ever, and wants the end that TCP would give."""
    with socket.create_connection((host, PORT)) as client:
        client.settimeout(60)
        print("connected", is_stream(client.fileno()), flush=True)
        try:
            while True:
                client.sendall(b"x" * 1000)
                if not client.recv(1 << 16):
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
    print("ended", flush=True)


def call_stopped(host):
    """The server does not run: connect must not wait for it, and the bytes must reach it."""
    with socket.create_connection((host, PORT), timeout=20) as client:
        print("connected", is_stream(client.fileno()), flush=True)
        exchange(client, 100_000, 1)
    print("exchanged", flush=True)


def call_many(host, count):
    clients = []
    for _ in range(count):
        clients.append(socket.create_connection((host, PORT)))
    for turn in range(2):
        for number, client in enumerate(clients):
            client.sendall(b"%08d" % number)
        for number, client in enumerate(clients):
            back = client.recv(8, socket.MSG_WAITALL)
            assert back == b"%08d" % number, (turn, number, back, client)
    kinds = [is_stream(client.fileno()) for client in clients]
    print(f"tcp {kinds.count(False)} streams {kinds.count(True)}", flush=True)
    return clients


def serve_raw(host):
    """Accepts by system calls that no library sees, as Go and io_uring do."""
    number = 288 if os.uname().machine == "x86_64" else 242
    listener = socket.create_server((host, PORT))
    print("listens", flush=True)
    raw = ctypes.CDLL(None).syscall
    while True:
        fd = raw(number, listener.fileno(), None, None, 0)
        server = socket.socket(fileno=fd)
        while data := server.recv(1 << 16):
            server.sendall(data)
        server.close()


if __name__ == "__main__":
    what, host, *rest = sys.argv[1:]
    match what:
        case "serve":
            asyncio.run(serve(host))
        case "serve-raw":
            serve_raw(host)
        case "call":
            call(host, int(rest[0]))
        case "until-end":
            call_until_end(host)
        case "stopped":
            call_stopped(host)
        case "many":
            call_many(host, int(rest[0]))
        case "many-until-signal":
            kept = call_many(host, int(rest[0]))
            signal.pause()
