//! The pictures that scripts make: flame graphs and histograms.

use expect_test::expect;

use crate::harness::script::{RENAME, Run, prints};

#[test]
fn stacks_of_names_are_merged_and_folded() {
    let text = "
from perf_prof import FlameGraph
graph = FlameGraph()
print(len(graph), graph.total, bool(graph), repr(graph.folded()))
graph.add(['main', 'read'], 3)
graph.add(('main', 'read'))
graph.add(['main'], weight=2)
graph.add(['main', 'f<[u8; 8]>', 'wait 5'])
graph.add(['name \\udcff'])
graph.add([])
graph.add(['nothing'], 0)
print(graph.folded(), end='')
print(len(graph), graph.total, bool(graph))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        0 0 False ''
        [unknown] 1
        main 2
        main;f<[u8: 8]>;wait_5 1
        main;read 4
        name ��� 1
        5 9 True
    "#]],
    );
}

#[test]
fn a_stack_of_something_else_is_an_error_that_changes_nothing() {
    let text = "
from perf_prof import FlameGraph
graph = FlameGraph()
for stack, weight in ('main', 1), (5, 1), (['main', 5], 1), (['main'], -1), (['main'], 1.5), (['main'], 2**64):
    try: graph.add(stack, weight)
    except Exception as error: print(type(error).__name__, error)
graph.add(['a'], 2**64 - 1)
try: graph.add(['b'])
except OverflowError as error: print(error)
print(len(graph), graph.total)
try: FlameGraph(colors='blood')
except ValueError as error: print(error)
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        TypeError a stack must be an event or a list of names, not 'str'
        TypeError a stack must be an event or a list of names, not 'int'
        TypeError names of frames must be str, but name 1 is 'int'
        OverflowError can't convert negative int to unsigned
        TypeError 'float' object cannot be interpreted as an integer
        OverflowError int too big to convert
        the weights add up to more than 2**64 - 1
        1 18446744073709551615
        unknown colors 'blood'; choose one of offcpu, aqua, blue, green, hot, io, java, js, mem, orange, perl, python, purple, red, rust, wakeup, yellow
    "#]],
    );
}

#[test]
fn the_file_is_what_its_ending_says_or_an_error_that_names_it() {
    let text = "
import pathlib
from perf_prof import FlameGraph
graph = FlameGraph('<title>', count_name='us', subtitle='below')
def save(path):
    try: graph.save(path)
    except Exception as error: print(type(error).__name__, error)
save('empty.svg')
save('empty.folded')
graph.add(['main', '<f>'], 5)
save('x.folded')
save(pathlib.Path('x.svg'))
for path in 'x.png', 'x', 'nowhere/x.svg', '/proc/x.svg', b'x.svg':
    save(path)
print(repr(open('empty.folded').read()), repr(open('x.folded').read()))
import xml.etree.ElementTree as ElementTree
svg = ElementTree.parse('x.svg').getroot()
print([title.text for title in svg.iter('{http://www.w3.org/2000/svg}title')])
print([text.text for text in svg.iter('{http://www.w3.org/2000/svg}text') if text.get('id') in ('title', 'subtitle')])
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        ValueError empty.svg: no stacks were added
        ValueError x.png: the name of a flame graph must end in .svg or .folded
        ValueError x: the name of a flame graph must end in .svg or .folded
        FileNotFoundError [Errno 2] No such file or directory: 'nowhere/x.svg'
        FileNotFoundError [Errno 2] No such file or directory: '/proc/x.svg'
        TypeError 'bytes' object is not an instance of 'str'
        '' 'main;<f> 5\n'
        ['all (5 us, 100%)', 'main (5 us, 100.00%)', '<f> (5 us, 100.00%)']
        ['<title>', 'below']
    "#]],
    );
}

/// A picture is pasted into a report, where nothing else says what its numbers are, and where they come from.
#[test]
fn a_graph_without_subtitle_says_its_sum_where_and_when() {
    let text = "
import copy, re, socket
from perf_prof import FlameGraph, Stacks
own, graph, calls = FlameGraph(subtitle='own'), FlameGraph(count_name='ns'), Stacks('_comm')
def add(event):
    own.add(['f'])
    graph.add(['f'], 500_000)
task__task_rename = add, calls
WHERE = r' in [0-9]+\\.[0-9]{3} s; ' + re.escape(socket.gethostname()) + r', 20[0-9-]{8} [0-9:]{8} [+-][0-9:]{5}'
def subtitle(graph):
    return re.search(r'id=\"subtitle\"[^>]*>([^<]*)<', graph._repr_svg_())[1]
def __exit__():
    print(subtitle(own))
    for of, total in (graph, '1.5 ms'), (copy.copy(graph), '1.5 ms'), (calls.flame_graph(colors='red'), '3 samples'):
        print(bool(re.fullmatch(re.escape(total) + WHERE, subtitle(of))) or subtitle(of))
";
    prints(
        Run::script(text).event(format!("{RENAME}stack/")).workload("renames 3"),
        expect![[r#"
        own
        True
        True
        True
    "#]],
    );
}

/// A picture of the largest stacks alone would say that they are all.
#[test]
fn a_graph_of_a_table_has_the_folded_stacks_too() {
    let text = "
import copy, pickle, re
from perf_prof import Stacks
few, whole = Stacks('_time', limit=2), Stacks('_time')
task__task_rename = few, whole
def marks(svg):
    return re.findall('stacks were folded into .others. ([0-9a-z ]+),', svg), '<title>[others] (' in svg
def __exit__():
    few.save('few.folded')
    print(sum(int(line.rsplit(' ', 1)[1]) for line in open('few.folded')), few.folded().splitlines()[-1], whole.total)
    few.save('few.svg')
    print(marks(open('few.svg').read()))
    graph = whole.flame_graph()
    print(marks(graph._repr_svg_()), 'partial: ' in graph._repr_svg_())
    for _ in range(2):
        graph.update(pickle.loads(pickle.dumps(few.flame_graph())))
    print(marks(copy.copy(graph)._repr_svg_()))
";
    prints(
        Run::script(text).event(format!("{RENAME}stack/")).workload("renames 9"),
        expect![[r#"
        9 [others] 7 9
        (['7 times'], True)
        ([], False) False
        (['14 times'], True)
    "#]],
    );
}

/// The script and the graph add up the same stacks. The weights are then also read from the picture.
#[test]
fn a_graph_of_events_has_the_names_and_weights_of_their_call_chains() {
    let text = "
import re
from collections import Counter
from xml.etree import ElementTree
from perf_prof import FlameGraph
graph = FlameGraph()
counts = Counter()
def task__task_rename(event):
    graph.add(event, 2)
    names = [frame['symbol'] + '_[k]' for frame in reversed(event._callchain)]
    counts[';'.join([event.oldcomm, *names])] += 2
def __exit__():
    lines = dict(line.rsplit(' ', 1) for line in graph.folded().splitlines())
    print(lines == {stack: str(count) for stack, count in counts.items()}, len(lines) == len(graph), graph.total)
    print(all(stack.endswith('__set_task_comm_[k]') for stack in lines), sorted(stack.split(';')[0] for stack in lines))
    graph.save('x.svg')
    svg = ElementTree.parse('x.svg').getroot()
    titles = [title.text for title in svg.iter('{http://www.w3.org/2000/svg}title')]
    boxes = {}
    for title in titles:
        name, weight = re.fullmatch(r'(.*) \\(([0-9,]+) samples, [0-9.]+%\\)', title).groups()
        boxes[name] = boxes.get(name, 0) + int(weight.replace(',', ''))
    print(boxes['all'], boxes['__set_task_comm'], boxes['worker'], any('_[k]' in name for name in boxes))
";
    let run = Run::script(text).event(format!("{RENAME}stack/")).workload("comm first renames 10");
    prints(
        run,
        expect![[r#"
        True True 20
        True ['first', 'worker']
        20 20 18 False
    "#]],
    );
}

#[test]
fn without_call_chain_the_task_is_the_stack() {
    let text = "
from perf_prof import FlameGraph
graph = FlameGraph()
kept = []
def __sample__(event):
    graph.add(event)
    kept.append(event)
def __exit__():
    import pickle
    graph.add(pickle.loads(pickle.dumps(kept[0])), 10)
    print(graph.folded(), end='')
";
    prints(
        Run::script(text).call_event().workload("comm first calls 2 comm second calls 1"),
        expect![[r#"
        first 12
        second 1
    "#]],
    );
}

#[test]
fn a_histogram_has_the_form_that_bpf_tools_made_known() {
    let text = "
import io
from collections import defaultdict
from perf_prof import Log2Hist
hist = Log2Hist()
print(len(hist), hist.to_dict())
hist.print()
hist.update([1, 2.9, 3, 5, True])
hist.update(i * i for i in range(20))
hist.add(100, n=7)
hist.add(-0.5)
print(len(hist), hist.to_dict())
hist.print()
file = io.StringIO()
hist.print(file)
print(file.getvalue() == str(hist) + '\\n')
other = Log2Hist('bytes')
other.update(hist)
other.update(other)
print(len(other), str(other).splitlines()[0])
other.clear()
print(len(other), bool(other))
large = Log2Hist('ns')
for value in 2**63, 2**64, float('inf'), -2**70: large.add(value)
large.print()
each = defaultdict(Log2Hist)
each['a'].add(1)
print(each['a'].to_dict())
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        0 {}
             value               : count     distribution
        33 {-1: 1, 0: 4, 2: 2, 4: 2, 8: 1, 16: 2, 32: 2, 64: 11, 128: 4, 256: 4}
             value               : count     distribution
               < 0               : 1        |***                                     |
                 0 -> 1          : 4        |**************                          |
                 2 -> 3          : 2        |*******                                 |
                 4 -> 7          : 2        |*******                                 |
                 8 -> 15         : 1        |***                                     |
                16 -> 31         : 2        |*******                                 |
                32 -> 63         : 2        |*******                                 |
                64 -> 127        : 11       |****************************************|
               128 -> 255        : 4        |**************                          |
               256 -> 511        : 4        |**************                          |
        True
        66      bytes               : count     distribution
        0 False
                  ns                                 : count     distribution
                         < 0                         : 1        |*************                           |
         9223372036854775808 -> 18446744073709551615 : 3        |****************************************|
        {0: 1}
    "#]],
    );
}

#[test]
fn invalid_values_raise_errors() {
    let text = "
from perf_prof import Log2Hist
hist = Log2Hist()
def values():
    yield 1
    hist.add(2)
    raise LookupError('enough')
for call in lambda: hist.add('1'), lambda: hist.add(float('nan')), lambda: hist.add(1, -1), lambda: hist.update(5), lambda: hist.update(values()):
    try: call()
    except Exception as error: print(type(error).__name__, error)
print(hist.to_dict())
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
        TypeError 'str' object cannot be interpreted as an integer
        ValueError nan is not a number; it cannot be counted
        OverflowError can't convert negative int to unsigned
        TypeError 'int' object is not iterable
        LookupError enough
        {0: 1, 2: 1}
    "#]],
    );
}

/// Pictures can be passed to another process.
#[test]
fn pictures_are_copied_pickled_and_merged() {
    let text = "
import copy, pickle
from perf_prof import FlameGraph, Log2Hist
graph = FlameGraph('T', 'offcpu', 'us', 'S', True)
graph.add(['main', 'f<[u8; 8]>', 'wait 5'], 3)
graph.add(['main'], 4)
other = pickle.loads(pickle.dumps(graph))
other.add(['main', 'read_[k]'])
graph.update(other)
graph.update(graph)
print(graph.folded(), len(graph), graph.total)
graph.save('a.svg'); pickle.loads(pickle.dumps(graph)).save('b.svg')
print(open('a.svg').read() == open('b.svg').read())
empty = copy.copy(FlameGraph())
print(len(empty), empty.folded() == '')
hist = Log2Hist('bytes')
for value in -5, 0, 1, 3, 2**63, 2**64: hist.add(value)
other = pickle.loads(pickle.dumps(hist))
print(str(other) == str(hist), other.to_dict() == hist.to_dict(), len(copy.deepcopy(hist)))
other.add(1); print(len(hist), len(other))
try: graph.__setstate__(('no weight', 0, 0))
except ValueError as error: print(error)
def __sample__(event): pass
";
    let folder = tempfile::tempdir().unwrap();
    let text = text.replace("'a.svg'", &format!("'{0}/a.svg'", folder.path().display()));
    let text = text.replace("'b.svg'", &format!("'{0}/b.svg'", folder.path().display()));
    prints(
        Run::script(&text).call_event().workload("exit 0"),
        expect![[r#"
            main 16
            main;f<[u8: 8]>;wait_5 12
            main;read_[k] 2
             3 30
            True
            0 True
            True True 6
            6 7
            'no weight' does not end in a weight
        "#]],
    );
}

#[test]
fn notebooks_show_pictures_that_zoom_and_tables_with_bars() {
    let text = "
import base64, re
from xml.etree import ElementTree
from perf_prof import FlameGraph, Log2Hist
graph = FlameGraph('<T>')
print(graph._repr_svg_(), graph._repr_html_())
graph.add(['main', 'read<int>'], 3)
svg = graph._repr_svg_()
html = graph._repr_html_()
frame = ElementTree.fromstring(html)
kind, data = frame.get('src').split(',')
print(frame.tag, frame.get('sandbox'), kind, base64.b64decode(data).decode() == svg)
print(re.search(r'height:\\d+px', frame.get('style'))[0][:-2].split(':')[1] == ElementTree.fromstring(svg).get('height'))
print('onload=\"init(evt)\"' in svg, 'function zoom' in svg)
hist = Log2Hist('<ns>')
for value in (1, 5, 5, 70): hist.add(value)
rows = ElementTree.fromstring(hist._repr_html_()).iter('tr')
for row in rows: print(*(cell.text for cell in row))
def __sample__(event): pass
";
    prints(
        Run::script(text).call_event().workload("exit 0"),
        expect![[r#"
            None <p>no stacks</p>
            iframe allow-scripts data:image/svg+xml;base64 True
            True
            True True
            <ns> count distribution
            0 – 1 1 None
            2 – 3 0 None
            4 – 7 2 None
            8 – 15 0 None
            16 – 31 0 None
            32 – 63 0 None
            64 – 127 1 None
        "#]],
    );
}
