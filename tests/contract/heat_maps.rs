//! `Heatmap`: counts of values over time, and the picture of them.

use expect_test::expect;

use crate::harness::script::{RENAME, Run, prints};

#[test]
fn values_are_counted_over_time_and_parts_are_merged() {
    let text = "
import copy, pickle
from perf_prof import Heatmap
one, two, whole = (Heatmap('t', unit='us') for _ in range(3))
for number in range(2000):
    for to in (one if number % 3 else two, whole):
        to.add(5_000_000 + number * 1_000, number % 7 + 0.9)
one.add(0, -1, n=2)
whole.add(0, -1, n=2)
pickled = pickle.loads(pickle.dumps(one))
pickled.update(two)
pickled.update(Heatmap())
print(pickled.cells() == whole.cells(), len(pickled), len(whole), whole.column_width, repr(pickled))
print(sum(count for *_, count in whole.cells()), whole.cells()[0], copy.copy(whole).cells() == whole.cells())
whole.clear()
print(len(whole), whole.cells(), bool(whole), whole._repr_svg_())
whole.add(time=7, value=2**70)
whole.update(whole)
print(whole.cells())
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        True 2002 2002 4096 <perf_prof.Heatmap: 2002 values in us>
        2000 (4997120, 0, 0, 1) True
        0 [] False None
        [(7, 16140901064495857664, 18446744073709551615, 2)]
    "#]],
    );
}

#[test]
fn a_heat_map_is_saved_as_a_picture() {
    let text = "
import re, socket
from perf_prof import Heatmap
names = Heatmap('Lengths of names', unit='bytes', subtitle='of tasks')
def task__task_rename(event):
    names.add(event._time, len(event.newcomm))
def __exit__():
    names.save('x.svg')
    svg = open('x.svg').read()
    print(svg.startswith('<svg '), 'Lengths of names' in svg, 'of tasks; 3 values in ' in svg, f'; {socket.gethostname()}, 20' in svg)
    shown = [re.sub(r' in [0-9.]+ s, ', '', of) for of in (svg, names._repr_svg_())]  # The run goes on.
    print(shown[0] == shown[1], '; 3 values' in shown[0], [count for *_, count in names.cells()], svg.count('<title>') == len(names.cells()))
";
    prints(
        Run::script(text).event(RENAME).workload("renames 3"),
        expect![[r#"
        True True True True
        True True [1, 1, 1] True
    "#]],
    );
}

#[test]
fn the_duration_of_the_run_is_not_that_of_values_with_other_times() {
    let text = "
from perf_prof import Heatmap
log = Heatmap('Times of a log', unit='ms')
HOUR = 3_600_000_000_000
def task__task_rename(event):
    log.add(time=1_700_000_000_000_000_000 + len(log) * HOUR, value=5)
def __exit__():
    log.save('x.svg')
    svg = open('x.svg').read()
    print('3 values, at most 1 in a box' in svg, '>time since the first value</text>' in svg.replace('\\n', ''), '>30 min</text>' in svg.replace('\\n', ''), '>1 h 30 min</text>' in svg.replace('\\n', ''))
";
    prints(
        Run::script(text).event(RENAME).workload("renames 3"),
        expect![[r#"
        True True True True
    "#]],
    );
}

#[test]
fn errors_of_heat_maps_name_the_file_or_the_value() {
    let text = "
from perf_prof import Heatmap
heat = Heatmap()
for call in (
    lambda: heat.add(-1, 5), lambda: heat.add(1, float('nan')), lambda: heat.add(1, 'x'), lambda: heat.save('x.png'),
    lambda: heat.save('x.svg'), lambda: Heatmap.check('x.folded'), lambda: Heatmap.check('no/such/x.svg'),
    lambda: heat.__setstate__(([(9, 1, 1)], None, 0)), lambda: heat.__setstate__(([], (5, 1), 0)),
):
    try: print(call())
    except Exception as error: print(type(error).__name__, error)
Heatmap.check('x.svg')
print(len(heat))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            OverflowError can't convert negative int to unsigned
            ValueError nan is not a number; it cannot be counted
            TypeError 'str' object cannot be interpreted as an integer
            ValueError x.png: the name of a heat map must end in .svg
            ValueError x.svg: no values were added
            ValueError x.folded: the name of a heat map must end in .svg
            OSError cannot write 'no/such/x.svg': there is no folder 'no/such'; create it or give another file
            ValueError the pickle of this Heatmap is damaged
            None
            0
        "#]],
    );
}
