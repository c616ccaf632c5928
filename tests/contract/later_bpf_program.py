# A test runs this script. The script reads the kernel's symbols, and then loads a BPF program, which is later part of a
# call chain.
import ctypes, os, socket, struct, sys
import perf_prof

libc = ctypes.CDLL(None, use_errno=True)
BPF = perf_prof.syscall_nr('bpf')

def checked(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def load():
    # r1 = 'called'; *(u64 *)(r10 - 8) = r1; bpf_trace_printk(r10 - 8, 7); return 0
    low, high = struct.unpack('<iI', b'called\0\0')
    program = b''.join(struct.pack('<BBhi', *one) for one in [
        (0x18, 0x01, 0, low), (0, 0, 0, high), (0x7b, 0x1a, -8, 0),
        (0xbf, 0xa1, 0, 0), (0x07, 0x01, 0, -8), (0xb7, 0x02, 0, 7), (0x85, 0, 0, 6), (0xb7, 0, 0, 0), (0x95, 0, 0, 0)])
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b'GPL')
    attr = struct.pack('<IIQQIIQII16s', 1, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence),
                       0, 0, 0, 0, 0, b'later_prog')
    return checked(libc.syscall(BPF, 5, attr, len(attr)))

def call(program):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.setsockopt(socket.SOL_SOCKET, 50, program)  # SO_ATTACH_BPF
    one.send(b'x')

def __interval__():
    # This line makes perf-prof read the symbols for the first time. The BPF program is loaded afterwards.
    print('+0x' in perf_prof.ksym(int(next(open('/proc/kallsyms')).split()[0], 16)))
    call(load())

def bpf_trace__bpf_trace_printk(event):
    print([frame['symbol'].split('_', 3)[-1] for frame in event._callchain if 'later_prog' in frame['symbol']])
    sys.exit()
