"""The notebook in docs/ runs in a kernel of Jupyter, on a recording of this machine.

Needs nbclient and ipykernel in the environment of perf_prof, and root for the kernel's tracepoints.
"""

import os
import pathlib
import tempfile
import unittest

import perf_prof as pp

try:
    import nbclient
    import nbformat
except ImportError:
    nbclient = None

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "notebook.ipynb"

# Sleeps, so that it waits for a CPU afterwards, and works in between.
WORK = "for i in 1 2 3 4 5 6 7 8; do sleep 0.02; j=0; while [ $j -lt 20000 ]; do j=$((j + 1)); done; done"


@unittest.skipUnless(nbclient, "nbclient is not installed")
@unittest.skipUnless(os.geteuid() == 0, "tracepoints need root")
class Notebook(unittest.TestCase):
    def test_it_runs_and_shows_its_pictures(self):
        with tempfile.TemporaryDirectory() as folder:
            pp.record(
                "sched:sched_wakeup", "sched:sched_wakeup_new", "sched:sched_switch", "cpu-clock",
                output=f"{folder}/perf.data", exec=["sh", "-c", WORK], freq=997, call_graph=True,
            )  # fmt: skip
            notebook = nbformat.read(NOTEBOOK, as_version=4)
            client = nbclient.NotebookClient(
                notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
            )
            client.execute()
        shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        kinds = [output for output in shown if "sched:sched_switch" in str(output.get("data"))]
        self.assertEqual(len(kinds), 1, shown)
        html = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
        self.assertEqual(len(html), 2, shown)
        table, graph = html
        self.assertIn("<th style=\"text-align:right\">usecs</th>", table)
        self.assertIn("<iframe sandbox=\"allow-scripts\"", graph)
        svg = [output["data"]["image/svg+xml"] for output in shown if "image/svg+xml" in output.get("data", {})]
        self.assertEqual(len(svg), 1)
        self.assertIn("<title>sh (", svg[0])
        if page := os.environ.get("PERF_PROF_TESTS_NOTEBOOK_PAGE"):
            pathlib.Path(page).write_text("<meta charset=utf-8>" + "".join(html))


if __name__ == "__main__":
    unittest.main()
