"""Runs two Mooncake transfer engines in two processes.

The initiator writes into the target's memory, reads the memory back, and compares.

usage: mooncake_pair.py DEVICE ROUNDS [FAULT]

DEVICE may be a list with commas. After half of the rounds, both processes get the fault (`adverb fault`).
"""
import ctypes
import multiprocessing
import os
import subprocess
import sys

from mooncake.engine import TransferEngine

LEN = 8 << 20
SIZES = [1, 64, 4096, 65537, 1 << 20, LEN]


def engine(device):
    e = TransferEngine()
    assert e.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", device) == 0, "initialize"
    memory = ctypes.create_string_buffer(LEN)
    assert e.register_memory(ctypes.addressof(memory), LEN) == 0, "register_memory"
    return e, memory


def target(device, pipe):
    e, memory = engine(device)
    pipe.send((e.get_rpc_port(), ctypes.addressof(memory)))
    # The target returns the written bytes through the pipe, apart from the path of the transfer.
    while (wanted := pipe.recv()) is not None:
        pipe.send(memory.raw[:wanted])


def pattern(size, seed):
    unit = bytes((seed * 7 + i * 31 + (i >> 8)) & 255 for i in range(65521))
    return (unit * (size // len(unit) + 1))[:size]


def main():
    device, rounds = sys.argv[1], int(sys.argv[2])
    ctx = multiprocessing.get_context("spawn")
    here, there = ctx.Pipe()
    child = ctx.Process(target=target, args=(device, there), daemon=True)
    child.start()
    there.close()
    e, memory = engine(device)
    assert here.poll(60), "the other engine did not start"
    port, remote = here.recv()
    local, peer = ctypes.addressof(memory), f"127.0.0.1:{port}"
    done = 0
    for seed in range(rounds):
        if seed == rounds // 2 and len(sys.argv) > 3:
            command = [os.environ["ADVERB"], "fault", str(os.getpid()), sys.argv[3]]
            subprocess.run(command, check=True)
        for size in SIZES:
            data = pattern(size, seed + size)
            ctypes.memmove(local, data, size)
            assert e.transfer_sync_write(peer, local, remote, size) == 0, f"write of {size}"
            here.send(size)
            assert here.recv() == data, f"{size} bytes written are not what was sent"
            ctypes.memset(local, 0, size)
            assert e.transfer_sync_read(peer, local, remote, size) == 0, f"read of {size}"
            assert memory.raw[:size] == data, f"{size} bytes read are not what was written"
            done += 2
    here.send(None)
    child.join(30)
    print(f"ok {done} transfers", flush=True)


if __name__ == "__main__":
    main()
