# Calls getppid() in many kinds of functions. Before each call, faulthandler writes the Python stack to the file
# argv[1]. The program begins when the file argv[3] exists, and ends when the file argv[2] exists.
import asyncio, faulthandler, functools, os, re, sys, threading, time

truth = open(sys.argv[1], "w")
one_at_a_time = threading.Lock()
kept = []  # Functions that would be freed at once. perf-prof could not read their names afterwards.


def tell_by_frames(*_, **__):
    """As faulthandler. That of 3.14 says nothing of the callers of an `__init__`."""
    frame, lines = sys._getframe(1), ["Stack (most recent call first):\n"]
    while frame:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n')
        frame = frame.f_back
    truth.write("".join(lines))
    truth.flush()


tell = faulthandler.dump_traceback if sys.version_info < (3, 14) else tell_by_frames


def mark(*_):
    with one_at_a_time:
        tell(truth, all_threads=False); os.getppid()  # On one line, as in both stacks.
    return 0


def recursion(depth):
    return mark() if depth == 0 else recursion(depth - 1) + 1


def generator():
    mark()
    yield mark()
    yield from (mark() for _ in range(2))


class Class:
    def __init__(self):
        mark()

    def __lt__(self, other):
        return mark() == 1

    @property
    def value(self):
        return [mark() for _ in range(2)]

    @staticmethod
    def by_c():
        return sorted([3, 1, 2], key=mark)


async def inner():
    mark()
    await asyncio.sleep(0)
    mark()


async def outer():
    await inner()
    await asyncio.gather(inner(), inner())


@functools.lru_cache(None)
def cached(_):
    def local():
        return re.sub("a", lambda found: str(mark()), "aba")

    return local()


def every_kind(turn):
    recursion(turn % 30)
    list(generator())
    sorted([Class(), Class()])
    Class().value
    Class.by_c()
    cached(turn)
    list(map(functools.partial(mark, turn), [1]))
    kept.append(compile("[\n\n\nmark(\n),\n]", "made.py", "eval"))
    eval(kept[-1])
    asyncio.run(outer())


def last():
    mark()
    end = time.time() + 30
    while not os.path.exists(sys.argv[2]) and time.time() < end:
        time.sleep(0.01)


def ready():
    # perf-prof notices a new process only when it reads its rings. So the program calls getppid() until perf-prof is
    # ready.
    end = time.time() + 60
    while not os.path.exists(sys.argv[3]) and time.time() < end:
        os.getppid()
        time.sleep(0.02)


ready()
threads = [threading.Thread(target=every_kind, args=(turn,)) for turn in range(3)]
for thread in threads:
    thread.start()
for turn in range(30):
    every_kind(turn)
for thread in threads:
    thread.join()
last()
