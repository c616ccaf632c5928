//! Checks that the stub `python/perf_prof/_native.pyi` contains the same names, parameters, defaults and texts as the
//! native module, and that everything in the package has a text.

use std::{path::Path, process::Command};

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
};

/// A script that compares the stub with the live module, and prints a line for each difference.
const COMPARE: &str = r#"
import ast, inspect, sys
import perf_prof
from perf_prof import _native

stub_text = open(sys.argv[1]).read()
stub = ast.parse(stub_text)
# Below this line, the stub has no texts.
package_only = stub_text.splitlines().index('# The rest is only for the files of the package. Its docstrings are in the Rust files.')
names_in_stub = {}
for node in stub.body:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        names_in_stub[node.name] = node
    elif isinstance(node, ast.AnnAssign):
        names_in_stub[node.target.id] = node

compared = 0


def differ(what):
    print("DIFFERENT:", what)


def same(what, in_stub, live):
    global compared
    compared += 1
    if in_stub != live:
        differ(f"{what}: the stub has {in_stub!r}, the module {live!r}")


def parameters_of_stub(node):
    args = node.args.posonlyargs + node.args.args
    defaults = [None] * (len(args) - len(node.args.defaults)) + node.args.defaults
    found = []
    for arg, default in zip(args, defaults):
        if arg.annotation is None and arg.arg not in ("self", "cls"):
            differ(f"{node.name}({arg.arg}) has no type in the stub")
        found.append((arg.arg, None if default is None else ast.literal_eval(default), default is not None))
    if node.args.vararg:
        found.append((node.args.vararg.arg, None, False))
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
        found.append((arg.arg, None if default is None else ast.literal_eval(default), default is not None))
    if node.args.kwarg:
        found.append((node.args.kwarg.arg, None, False))
    return found


def parameters(function):
    empty = inspect.Parameter.empty
    return [
        (name, None if of.default is empty else of.default, of.default is not empty)
        for name, of in inspect.signature(function).parameters.items()
    ]


def text(live):
    return inspect.cleandoc(inspect.getdoc(live) or "")


def is_property(node):
    return any(isinstance(name, ast.Name) and name.id == "property" for name in node.decorator_list)


def compare(name, node, live):
    if node.returns is None:
        differ(f"{name} has no return type in the stub")
    if node.lineno < package_only:
        same(f"text of {name}", ast.get_docstring(node), text(live))
    if not text(live):
        differ(f"{name} has no text")
    if not is_property(node):
        same(f"parameters of {name}", parameters_of_stub(node), parameters(live))


def compare_class(name, node, live):
    """A class that scripts make objects of."""
    members = {node.name: node for node in node.body if isinstance(node, ast.FunctionDef)}
    given = {"__doc__", "__module__", "__str__"}
    is_private = lambda member: member.startswith("_") and not member.startswith("__")
    shown = [member for member in members if not is_private(member)]
    same(f"members of {name}", sorted(shown), sorted(m for m in set(live.__dict__) - given if not is_private(m)))
    same(f"parameters of {name}", parameters_of_stub(members.pop("__new__"))[1:], parameters(live))
    for name, node in members.items():
        if not name.startswith("__"):
            member = live.__dict__[name]
            compare(name, node, member.__func__ if isinstance(member, staticmethod) else member)


def check_texts():
    """Everything that the package gives to programs has a text."""
    public = {name for name in dir(perf_prof) if not name.startswith("_")} | {"__version__"}
    same("public names", sorted(perf_prof.__all__), sorted(public))
    for name in public - {"__version__"}:
        live = getattr(perf_prof, name)
        members = vars(live).items() if isinstance(live, type) else ()
        functions = {f"{name}.{of}": member for of, member in members if of[0] != "_" and inspect.isroutine(member)}
        for what, member in {name: live, **functions}.items():
            if not text(member):
                differ(f"{what} has no text")


def __init__():
    # The stub also has private names, which are types alone.
    native = set(_native.__all__)
    same("names", sorted(name for name in names_in_stub if name in native or not name.startswith("_")), sorted(native))
    same("text of the module", ast.get_docstring(stub), text(_native))
    check_texts()
    for name, node in names_in_stub.items():
        if isinstance(node, ast.FunctionDef):
            compare(name, node, getattr(_native, name))
        elif isinstance(node, ast.ClassDef) and not name.startswith("_"):
            live = getattr(_native, name)
            if node.lineno < package_only:
                same(f"text of {name}", ast.get_docstring(node), text(live))
            if name != "PerfEvent":
                bases = [ast.unparse(base).split("[")[0] for base in node.bases] or ["object"]
                same(f"bases of {name}", bases, [base.__name__ for base in live.__bases__])
                members = {node.name: node for node in node.body if isinstance(node, ast.FunctionDef)}
                if "__new__" in members:
                    compare_class(name, node, live)
                else:
                    # Programs get objects of this class from functions.
                    for member, node in members.items():
                        if not member.startswith("__"):
                            compare(f"{name}.{member}", node, live.__dict__[member])

    members = {node.name: node for node in names_in_stub["PerfEvent"].body if isinstance(node, ast.FunctionDef)}
    base = perf_prof.PerfEvent
    (event,) = base.__subclasses__()
    common = {name for name in event.__dict__ if name.startswith("common_")}
    # What every class or every comparison has by itself.
    # `__getattribute__` is how attributes are found, not what there is; the stub says that with `__getattr__`.
    given = {"__getattribute__", "__doc__", "__module__", "__lt__", "__le__", "__ne__", "__gt__", "__ge__", "__str__", "__repr__"}
    live = set(base.__dict__) - given | common
    # Fields differ from event to event: the stub has `__getattr__` for them.
    same("members", sorted(set(members) - {"__getattr__"}), sorted(live))
    for name, node in members.items():
        slot = name.startswith("__") and not ast.get_docstring(node)
        if name in live and name not in common and not slot:
            compare(name, node, getattr(base, name))
    print("compared", compared)
    sys.exit(0)


def __sample__(event):
    pass
"#;

#[test]
fn stubs_and_module_say_the_same() {
    needs([Need::Tracefs]);
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("compare.py");
    std::fs::write(&script, COMPARE).unwrap();
    let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/perf_prof/_native.pyi");
    let mut command = Command::new(tested_program());
    let output = command.args(["python", "-e", "sched:sched_wakeup"]).arg(script).arg(stub).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(!out.contains("DIFFERENT"), "{out}");
    let compared: usize = out.trim().strip_prefix("compared ").unwrap().parse().unwrap();
    assert!(compared > 40, "only {compared} things were compared");
}
