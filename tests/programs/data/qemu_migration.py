"""Migrates a stopped virtual machine to another QEMU over RDMA, and compares the memory.

usage: qemu_migration.py on|off

With `on`, QEMU registers all memory before the migration (rdma-pin-all).
"""

import os
import socket
import subprocess
import sys
import tempfile
import time

SIZE, AT, LIMIT = 32 << 20, 0x1000000, 60
QEMU = "qemu-system-x86_64 -nodefaults -display none -machine q35 -accel tcg -m 96 -S".split()


class Machine:
    """A stopped machine and its monitor."""

    def __init__(self, name, *more):
        self.process = subprocess.Popen([*QEMU, "-monitor", f"unix:{name},server,nowait", *more])
        self.end = time.monotonic() + LIMIT
        self.monitor = socket.socket(socket.AF_UNIX)
        while self.monitor.connect_ex(name):
            assert self.process.poll() is None and time.monotonic() < self.end, f"{name} does not start"
            time.sleep(0.05)
        self.monitor.settimeout(LIMIT)
        self.answer()

    def answer(self):
        text = b""
        while not text.endswith(b"(qemu) "):
            more = self.monitor.recv(65536)
            assert more, "the monitor closed"
            text += more
        return text.decode(errors="replace")

    def ask(self, line):
        self.monitor.sendall(line.encode() + b"\n")
        return self.answer()

    def quit(self):
        self.monitor.sendall(b"quit\n")
        assert self.process.wait(LIMIT) == 0, "it ended badly"


def main():
    pin = f"migrate_set_capability rdma-pin-all {sys.argv[1]}"
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        sent = os.urandom(SIZE)
        with open("sent", "wb") as file:
            file.write(sent)
        there = Machine("there", "-incoming", "defer")
        here = Machine("here", "-device", f"loader,file=sent,addr={AT},force-raw=on")
        for machine in (there, here):
            machine.ask(pin)
        there.ask("migrate_incoming rdma:127.0.0.1:4444")
        here.ask("migrate_set_parameter max-bandwidth 10G")
        here.ask("migrate -d rdma:127.0.0.1:4444")
        state = ""
        while "Migration status: completed" not in state:
            assert "failed" not in state and time.monotonic() < here.end, state
            time.sleep(0.1)
            state = here.ask("info migrate")
        there.ask(f"pmemsave {AT} {SIZE} got")
        with open("got", "rb") as file:
            got = file.read()
        assert got == sent, "other bytes came"
        for machine in (here, there):
            machine.quit()
        print(f"ok {len(got)} bytes")


if __name__ == "__main__":
    main()
