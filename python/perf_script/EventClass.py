"""The module `EventClass` for scripts of `perf script`: samples of the PMU as objects."""

import struct

# The kinds of events.
EVTYPE_GENERIC = 0
EVTYPE_PEBS = 1  # A PEBS record.
EVTYPE_PEBS_LL = 2  # A PEBS record with the latency of a load.
EVTYPE_IBS = 3


class PerfEvent:
    """A sample. event_num counts the objects of this class and of its subclasses."""

    event_num = 0

    def __init__(self, name, comm, dso, symbol, raw_buf, ev_type=EVTYPE_GENERIC):
        """Stores the event's name, the comm, the dso and the symbol of the address, and the raw data."""
        self.name = name
        self.comm = comm
        self.dso = dso
        self.symbol = symbol
        self.raw_buf = raw_buf
        self.ev_type = ev_type
        PerfEvent.event_num += 1

    def show(self):
        """Prints the sample in one line."""
        shown = (self.name, self.symbol, self.comm, self.dso)
        print("PMU event: name=%12s, symbol=%24s, comm=%8s, dso=%12s" % shown)


class PebsEvent(PerfEvent):
    """A PEBS record of Intel's Core CPUs: the flags, the instruction pointer and the first registers."""

    pebs_num = 0

    def __init__(self, name, comm, dso, symbol, raw_buf, ev_type=EVTYPE_PEBS):
        """Reads the registers from the first 80 bytes of the raw data."""
        registers = struct.unpack("10Q", raw_buf[:80])
        self.flags, self.ip, self.ax, self.bx, self.cx, self.dx, self.si, self.di, self.bp, self.sp = registers
        super().__init__(name, comm, dso, symbol, raw_buf, ev_type)
        PebsEvent.pebs_num += 1


class PebsNHM(PebsEvent):
    """A PEBS record of Nehalem and Westmere: also the status, and the address, source and latency of a load."""

    pebs_nhm_num = 0

    def __init__(self, name, comm, dso, symbol, raw_buf, ev_type=EVTYPE_PEBS_LL):
        """Reads the values about the load from the bytes 144 to 175 of the raw data."""
        self.status, self.dla, self.dse, self.lat = struct.unpack("4Q", raw_buf[144:176])
        super().__init__(name, comm, dso, symbol, raw_buf, ev_type)
        PebsNHM.pebs_nhm_num += 1


def create_event(name, comm, dso, symbol, raw_buf):
    """Returns the object for a sample. The size of the raw data shows the kind of record."""
    classes = {144: PebsEvent, 176: PebsNHM}
    return classes.get(len(raw_buf), PerfEvent)(name, comm, dso, symbol, raw_buf)
