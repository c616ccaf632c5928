"""Runs the notebook in docs/ in a Jupyter kernel, with a recording of this machine.

Needs nbclient and ipykernel in the environment of perf_prof, and root for the kernel's tracepoints.
"""

import os
import pathlib
import tempfile
import unittest

import perf_prof as pp
from perf_prof.testing import make_event

try:
    import nbclient
    import nbformat
except ImportError:
    nbclient = None

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs" / "notebook.ipynb"

# Sleeps and computes in turn. After each sleep, it waits for a CPU.
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


class Shown(unittest.TestCase):
    def test_tables_events_and_formats_are_tables_in_notebooks(self):
        shown = pp.event("sched:sched_switch", formats="shipped")._repr_html_()
        self.assertIn(">prev_comm</td>", shown)
        event = make_event("sched:sched_switch", formats="shipped", prev_comm="<b>", prev_pid=7, _callchain=[1, 2])
        self.assertIn("&lt;b&gt;</td>", event._repr_html_())
        self.assertIn("2 frames</td>", event._repr_html_())
        whole, kept = pp.Top(3, "prev_pid"), pp.Top(3, "prev_pid", keep=("prev_comm",))
        for top in whole, kept:
            top.add(event)
        self.assertIn("prev_comm=&lt;b&gt;", whole._repr_html_())
        self.assertIn("<td style=\"text-align:left\">&lt;b&gt;</td>", kept._repr_html_())

    def test_a_table_shows_its_first_rows_and_counts_show_their_units(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/perf.data"
            pp.record("page-faults:u", output=path, exec=["sh", "-c", "true"], count=1)
            with pp.replay(path) as events:
                table = events.table(["_cpu", "_comm"])
        self.assertGreater(len(table), 20)
        self.assertEqual(table._repr_html_().count("<tr>"), 21)
        self.assertIn(f"the first 20 of {len(table)} rows", table._repr_html_())
        counts = pp.stat("task-clock:u", "page-faults:u", exec=["true"])
        self.assertEqual([count.unit for count in counts.values()], ["ns", ""])
        self.assertIn("<td>ms</td>", counts._repr_html_())


if __name__ == "__main__":
    unittest.main()
