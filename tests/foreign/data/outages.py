"""Checks the events of two equal devices while a link is down, and after a failure (FLT-7, FLT-8).

usage: outages.py ADVERB
"""
import errno
import os
import subprocess
import sys

import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.cq import CQ
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError

NAMES = ("rxe0", "rxe1")


def fault(text):
    subprocess.run([sys.argv[1], "fault", str(os.getpid()), text], check=True)


def take(context, wanted):
    event = context.get_async_event()
    assert event.event_type == wanted, f"{event.event_type} instead of {wanted}"
    event.ack()


def states(contexts):
    return [context.query_port(1).state for context in contexts]


def gids(context):
    return [str(context.query_gid(1, i)) for i in range(context.query_port(1).gid_tbl_len)]


def main():
    contexts = [Context(name=name) for name in NAMES]
    first, second = contexts
    twin = Context(name=NAMES[0])
    up = [e.IBV_PORT_ACTIVE, e.IBV_PORT_ACTIVE]
    assert states(contexts) == up
    before = gids(first)
    fault("link-down=rxe0")
    for context in (first, twin):
        take(context, e.IBV_EVENT_PORT_ERR)
    assert states(contexts) == [e.IBV_PORT_DOWN, e.IBV_PORT_ACTIVE]
    assert gids(first) == before
    # The link comes back with the end of the second fault.
    fault("link-down=rxe0+1ms")
    for context in (first, twin):
        take(context, e.IBV_EVENT_PORT_ACTIVE)
    assert states(contexts) == up
    fault("link-down=rxe1+1ms")
    take(second, e.IBV_EVENT_PORT_ERR)
    take(second, e.IBV_EVENT_PORT_ACTIVE)
    pd = PD(first)
    cq = CQ(first, 4)
    caps = QPCap(max_send_wr=1, max_recv_wr=1)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=caps))
    fault("device-fatal=rxe0")
    for context in (first, twin):
        take(context, e.IBV_EVENT_DEVICE_FATAL)
    try:
        PD(first)
        raise AssertionError("a failed device has allocated a protection domain")
    except PyverbsRDMAError as error:
        assert error.error_code == errno.EIO, error
    for read in (lambda: first.query_port(1), lambda: cq.resize(16), lambda: qp.query(e.IBV_QP_STATE)):
        try:
            read()
            raise AssertionError("a failed device has answered")
        except PyverbsRDMAError as error:
            assert error.error_code == errno.EIO, error
    try:
        Context(name=NAMES[0])
        raise AssertionError("a failed device was opened")
    except PyverbsError:
        pass
    qp.close()
    cq.close()
    pd.close()
    for context in (first, twin):
        context.close()
    PD(second).close()
    print("ok outages", flush=True)


main()
