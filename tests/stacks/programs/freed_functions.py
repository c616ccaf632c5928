# Executes code that is freed at once. Before each call of getppid(), it writes the innermost function to the file
# argv[1]. The program begins when the file argv[3] exists, and ends when the file argv[2] exists.
import os, sys, time

truth = open(sys.argv[1], "w")


def ready():
    end = time.time() + 60
    while not os.path.exists(sys.argv[3]) and time.time() < end:
        os.getppid()
        time.sleep(0.02)


def last():
    truth.write("last@freed_functions.py:")
    truth.close()
    os.getppid()
    end = time.time() + 30
    while not os.path.exists(sys.argv[2]) and time.time() < end:
        time.sleep(0.01)


ready()
for turn in range(1000):
    line = turn % 7 + 1
    exec(compile("\n" * (line - 1) + "import os; os.getppid()", f"made{turn}.py", "exec"))
    truth.write(f"<module>@made{turn}.py:{line}\n")
    if turn % 50 == 0:
        time.sleep(0.05)
last()
