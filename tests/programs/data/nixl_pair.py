"""Two NIXL agents on two hosts: the initiator writes into the target's memory, and the target compares.

usage: nixl_pair.py target|initiator DIRECTORY. Both agents share the directory.
"""
import ctypes
import os
import pickle
import sys
import time

from nixl_cu12 import nixl_agent, nixl_agent_config

LEN = 1 << 20
PATTERN = bytes((i * 31 + (i >> 8)) & 255 for i in range(LEN))
LIMIT = 120


def wait(what, ready):
    end = time.monotonic() + LIMIT
    while not (found := ready()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def put(path, value):
    with open(path + ".new", "wb") as file:
        pickle.dump(value, file)
    os.rename(path + ".new", path)


def take(path):
    wait(f"{path} does not come", lambda: os.path.exists(path))
    with open(path, "rb") as file:
        return pickle.load(file)


def main():
    role, at = sys.argv[1], sys.argv[2]
    agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
    memory = ctypes.create_string_buffer(PATTERN if role == "initiator" else LEN, LEN)
    address = ctypes.addressof(memory)
    assert agent.register_memory([(address, LEN, 0, "")], "DRAM") is not None
    if role == "target":
        put(f"{at}/target", (agent.get_agent_metadata(), address))
        take(f"{at}/written")
        assert memory.raw == PATTERN, "other bytes"
        print("ok nixl", flush=True)
        return
    metadata, there = take(f"{at}/target")
    peer = agent.add_remote_agent(metadata)
    peer = peer.decode() if isinstance(peer, bytes) else peer
    local = agent.get_xfer_descs([(address, LEN, 0)], "DRAM")
    remote = agent.get_xfer_descs([(there, LEN, 0)], "DRAM")
    handle = agent.initialize_xfer("WRITE", local, remote, peer)
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    assert state == "DONE", state
    put(f"{at}/written", True)


main()
