# What an idle device costs: milliseconds of processor time per second while the device is open, with queue pairs, and nothing happens.
import resource
import time

import pyverbs.device as d
from pyverbs.cq import CQ
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
import pyverbs.enums as e


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


context = d.Context(name=d.get_device_list()[0].name.decode())
pd, cq = PD(context), CQ(context, 16)


def make():
    cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))


kept = [make() for _ in range(100)]
time.sleep(0.2)
before, begun = used(), time.monotonic()
time.sleep(2)
print((used() - before) * 1000 / (time.monotonic() - begun))
