# Writes nonsense into the state of its interpreter, calls getppid(), and repairs the state. A child with the same memory calls getppid()
# meanwhile in `innocent`. The program begins when the file argv[3] exists, and goes on to its last part when the file argv[2] exists.
# It ends when there is a file of that name with `.slow`, and writes what it did to the file argv[1].
import ctypes, fcntl, mmap, os, signal, struct, sys, time

word = ctypes.c_uint64.from_address
# Where a frame has its code object and the frame that called it, and where a code object has its name, lines and version.
CODE, PREVIOUS = (32, 48) if sys.version_info.minor == 11 else (0, 8)
QUALNAME, LINETABLE, VERSION = 128, 136, 72 if sys.version_info.minor == 11 else 92
CODE_BYTES = 512
F_FRAME = 24
kept = []


def exists(file, seconds=60):
    end = time.time() + seconds
    while not os.path.exists(file) and time.time() < end:
        os.getppid()
        time.sleep(0.02)


def ready():
    exists(sys.argv[3])


def innocent():
    os.getppid()


def child(parent):
    while os.getppid() == parent:
        innocent()
        time.sleep(0.001)
    os._exit(0)


def memory(content):
    kept.append(ctypes.create_string_buffer(content, len(content)))
    return ctypes.addressof(kept[-1])


def made_code(**words):
    made = bytearray(ctypes.string_at(id(innocent.__code__), CODE_BYTES))
    for at, value in words.items():
        struct.pack_into("Q", made, globals()[at], value)
    return memory(bytes(made))


def made_object(of, words):
    """An object of the class of another one, with these words behind its class."""
    return memory(ctypes.string_at(id(of), 16) + struct.pack(f"{len(words)}Q", *words))


def this_frame():
    return word(id(sys._getframe(1)) + F_FRAME).value


def see(frame, at, value):
    """Calls getppid() while a word of a frame is another one."""
    place = word(frame + at)
    before = place.value
    place.value = value
    os.getppid()
    place.value = before


def pointers():
    frame = this_frame()
    values = [0, 1, 8, frame, frame + 4, id("text"), id(None), id(os), 1 << 47, 1 << 63, (1 << 64) - 1, 0xFFFFFFFF81000000]
    for value in values:
        see(frame, PREVIOUS, value)
        see(frame, CODE, value)


def code_objects():
    frame = this_frame()
    huge = 1 << 62
    of_text = struct.unpack("Q", ctypes.string_at(id("text") + 32, 8))[0]
    texts = [made_object("text", [length, 0, of_text]) for length in (4096, 4097, huge, (1 << 64) - 1)]
    tables = [made_object(b"", [length, 0]) for length in (1 << 17, (1 << 17) + 1, huge)]
    for value in [*texts, *tables, id(None), frame, 8]:
        see(frame, CODE, made_code(QUALNAME=value))
        see(frame, CODE, made_code(LINETABLE=value))


def many_functions():
    """A chain of frames, each with a function that nobody has seen, with a long name and a long table of lines."""
    frame = this_frame()
    name, lines = "n" * 4000, bytes([0x87, 0]) * 50_000
    codes = [made_code(QUALNAME=id(name), LINETABLE=id(lines)) for _ in range(60)]
    above = 0
    for code in codes:
        made = bytearray(ctypes.string_at(frame, 80))
        struct.pack_into("Q", made, CODE, code)
        struct.pack_into("Q", made, PREVIOUS, above)
        above = memory(bytes(made))
    for turn in range(300):
        for code in codes:
            ctypes.c_uint32.from_address(code + VERSION).value = turn + 1
        see(frame, PREVIOUS, above)


def memory_that_waits():
    """A code object in memory whose readers wait until this process ends. Returns whether there is one."""
    frame = this_frame()
    descriptor = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC | os.O_NONBLOCK)
    if descriptor < 0:
        return False
    fcntl.ioctl(descriptor, 0xC018AA3F, bytearray(struct.pack("3Q", 0xAA, 0, 0)))
    kept.append(mmap.mmap(-1, 1 << 16))
    start = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
    fcntl.ioctl(descriptor, 0xC020AA00, bytearray(struct.pack("4Q", start, 1 << 16, 1, 0)))
    end = time.time() + 30
    while not os.path.exists(sys.argv[2] + ".slow") and time.time() < end:
        see(frame, CODE, start + 512 * (int(time.time() * 100) % 100))
        time.sleep(0.01)
    return True


def last():
    os.getppid()
    exists(sys.argv[2], 30)


ready()
this = os.getpid()
of_child = os.fork()
if of_child == 0:
    child(this)
pointers()
code_objects()
many_functions()
last()
waits = memory_that_waits()
with open(sys.argv[1], "w") as truth:
    print(of_child, "waits" if waits else "does not wait", file=truth)
os.kill(of_child, signal.SIGKILL)
os.waitpid(of_child, 0)
