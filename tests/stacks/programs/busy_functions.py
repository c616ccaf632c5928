# Spends CPU time in functions: in `half` half of it, in `third` a third, and in `sixth` a sixth. Each of them waits for the clock on
# one line. When the file argv[1] exists, or after a minute, the program stops.
import os, sys, time


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass  # The only line that takes time.


def half():
    spin(0.03)


def third():
    spin(0.02)


def sixth():
    list(map(spin, [0.01]))  # Called by C.


def turn():
    half()
    third()
    sixth()


end = time.time() + 60
while not os.path.exists(sys.argv[1]) and time.time() < end:
    turn()
