"""Tests of static probes (USDT) in programs: live and from a recording."""

import pathlib
import subprocess
import tempfile
import unittest

import perf_prof as pp
from library_testing import needs_root

PROGRAM = """
#include <sys/sdt.h>
int main(void) {
    for (int i = 0; i < 5; i++) DTRACE_PROBE2(app, step, -i, i % 2 ? "odd" : "even");
    return 0;
}
"""


@needs_root
class StaticProbes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        source, self.program = self.folder / "p.c", str(self.folder / "p")
        source.write_text(PROGRAM)
        compiled = subprocess.run(["gcc", "-O1", source, "-o", self.program], capture_output=True, text=True)
        if compiled.returncode != 0:
            self.skipTest(f"no compiler, or no sys/sdt.h: {compiled.stderr}")
        self.selector = f"usdt:app:step@{self.program}//word=arg2:string/"

    def test_events_have_the_arguments_live_and_recorded(self):
        expected = [(-i, "odd" if i % 2 else "even") for i in range(5)]
        with pp.trace(self.selector, exec=[self.program], order=True) as events:
            self.assertEqual([(e.arg1, e.word) for e in events], expected)
        path = str(self.folder / "r.data")
        pp.record(self.selector, output=path, exec=[self.program])
        with pp.replay(path, "usdt:app:step") as events:
            self.assertEqual([(e.arg1, e.word) for e in events], expected)
        handled = []
        pp.run(input=path, handlers={"sdt_app__step": lambda e: handled.append((e.arg1, e.word))})
        self.assertEqual(handled, expected)

    def test_a_probe_that_does_not_exist_is_named(self):
        with self.assertRaisesRegex(pp.SelectorError, "did you mean `app:step`"):
            pp.trace(f"usdt:app:stop@{self.program}", exec=[self.program]).__enter__()


if __name__ == "__main__":
    unittest.main()
