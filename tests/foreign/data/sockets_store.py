"""Puts values into a store over plain sockets, and checks the values that the store returns.

Uses several connections at once, and sizes from a single byte to more than a socket holds.

usage: sockets_store.py redis|memcached PORT CONNECTIONS
"""
import select
import socket
import sys

kind, port, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SIZES = [1, 100, 4096, 65_537, 300_000]


def value(key, size):
    return bytes((key * 131 + at * 7 + at // 251) & 0xFF for at in range(size))


def command(key, data=None):
    name = b"key%d" % key
    if kind == "redis":
        words = [b"GET", name] if data is None else [b"SET", name, data]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
    return b"get %s\r\n" % name if data is None else b"set %s 0 0 %d\r\n%s\r\n" % (name, len(data), data)


def answer(key, data=None):
    if kind == "redis":
        return b"+OK\r\n" if data is None else b"$%d\r\n%s\r\n" % (len(data), data)
    head = b"VALUE key%d 0 %d\r\n" % (key, len(data or b""))
    return b"STORED\r\n" if data is None else head + data + b"\r\nEND\r\n"


class Line:
    """A connection with bytes to send and bytes to expect. Neither direction blocks."""

    def __init__(self, say, hear):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.say, self.hear, self.heard = say, hear, b""

    def step(self, events):
        if events & select.POLLOUT and self.say:
            self.say = self.say[self.socket.send(self.say[:100_000]) :]
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            more = self.socket.recv(65536)
            assert more, "the server has hung up"
            self.heard += more
        return len(self.heard) >= len(self.hear)


lines = []
for first in range(connections):
    say = hear = b""
    for n, size in enumerate(SIZES):
        key = first * 100 + n
        data = value(key, size)
        say += command(key, data) + command(key)
        hear += answer(key) + answer(key, data)
    lines.append(Line(say, hear))

waiting = {line.socket.fileno(): line for line in lines}
while waiting:
    poll = select.poll()
    for fd, line in waiting.items():
        poll.register(fd, select.POLLIN | (select.POLLOUT if line.say else 0))
    for fd, events in poll.poll(60_000) or sys.exit("nothing comes: %r" % [len(l.heard) for l in lines]):
        if waiting[fd].step(events):
            del waiting[fd]
for line in lines:
    assert line.heard == line.hear, "other bytes than were sent"
    line.socket.close()
print("ok", sum(len(line.hear) for line in lines), "bytes")
