"""Tests of the analysis that finds in the bytecode of a `perf script` handler what the handler reads."""

import os
import tempfile
import unittest
from unittest import mock

from perf_prof import _reads

# The body of a function f(d, x, y), and what the function reads of each parameter: "-" nothing, "*" all, else keys of
# the dict.
CASES = {
    "pass": "- - -",
    "x": "- * -",
    "d = 1": "- - -",
    "return d['a'], d['sample']['pid'], d['sample']": "a,sample.pid,sample - -",
    "return 'a' in d and 'b' not in d": "a,b - -",
    "return d.get('a'), d.get('b', None), d.setdefault('c', x)": "a,b,c * -",
    "d['a'] = x": "a * -",
    "return '%s %d' % (d['a'], d['b'])": "a,b - -",
    "try: return d['a']\n    except KeyError: return f\"{d['b']} {x!r}\"": "a,b * -",
    "return d[x]": "* * -",
    "return (x or 'a') in d": "* * -",
    "return d.get('a' + x)": "* * -",
    "return d.get('a', default=x)": "* * -",
    "return d.pop('a')": "* - -",
    "return d['a' if x else 'b']": "* * -",
    "return (x or d)['a']": "* * -",
    "d['a'] += 1": "* - -",
    "for key in d: print(d[key])": "* - -",
    "other = d; return other['a']": "* - -",
    "return lambda: d['a']": "* - -",
    "return [d[key] for key in x]": "* * -",
    "return x, y": "- * *",
    "get = d.get; return get('a')": "* - -",
    "return d['sample'].get('pid')": "sample - -",
}


def shown(read):
    return "*" if read is None else ",".join(".".join(path) for path in read) or "-"


class Reads(unittest.TestCase):
    def function(self, text, name="f"):
        """Executes the text as a script, and returns a function of this script."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "handlers_under_test.py")
        with open(file, "w") as script:
            script.write(text)
        names = {}
        exec(compile(text, file, "exec"), names)
        return names[name]

    def reads(self, text, count=3, names=()):
        function = self.function(text)
        # The analysis treats only the file of the script as the script's own code. This test file is not part of the
        # script.
        with mock.patch.object(_reads, "_is_own", lambda file: os.path.basename(file) == "handlers_under_test.py"):
            found = _reads.reads(function, count, names)
        return found and " ".join(map(shown, found))

    def test_what_the_code_names_is_read(self):
        for body, expected in CASES.items():
            with self.subTest(body):
                self.assertEqual(self.reads(f"def f(d, x, y):\n    {body}\n"), expected)

    def test_parameters_that_collect_arguments(self):
        self.assertEqual(self.reads("def f(d, *rest): pass"), "- - -")
        self.assertEqual(self.reads("def f(d, *rest): rest[1]"), "- * *")
        self.assertEqual(self.reads("def f(d, *rest, x, **more): more['a'], d['b']", 2, ("x", "a")), "b - - *")
        self.assertEqual(self.reads("def f(d, x): x", 1, ("x",)), "- *")

    def test_the_object_of_a_method_is_no_argument(self):
        text = "class C:\n    def method(self, d, x): self.last = d['a']\nf = C().method"
        self.assertEqual(self.reads(text, 2), "a -")

    def test_a_script_that_may_look_at_frames_gets_all(self):
        for text in (
            "def f(d, x, y): locals()",
            "def f(d, x, y): exec('d')",
            "import sys\ndef g(): return sys._getframe(1).f_locals\ndef f(d, x, y): g()",
            "look = locals\ndef f(d, x, y): look()",
            "def f(d, x, y): breakpoint()",
            "def f(d, x, y): yield 1",
            "f = print",
        ):
            with self.subTest(text):
                self.assertIsNone(self.reads(text))
        self.assertEqual(self.reads("def f(d, x, y): pass\ndef g(a): f(**locals())"), "- - -")

    def test_a_function_without_a_file_gets_all(self):
        names = {}
        exec("def f(d): pass", names)
        self.assertIsNone(_reads.reads(names["f"], 1, ()))


if __name__ == "__main__":
    unittest.main()
