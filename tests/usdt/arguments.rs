//! The arguments of static probes have the values that the program passes.

use super::{Programs, fields};

/// A program that passes numbers of all sizes and signs, at their limits, and prints them. The compiler options decide
/// whether they are in registers, on the stack or in variables.
const NUMBERS: &str = r#"
#include <inttypes.h>
#include <stdio.h>
#include <sys/sdt.h>
static int8_t b; static uint8_t ub; static int16_t h; static uint16_t uh;
static int32_t w; static uint32_t uw; static int64_t g; static uint64_t ug;
__attribute__((noinline)) void all(int8_t b, uint8_t ub, int16_t h, uint16_t uh, int32_t w, uint32_t uw, int64_t g, uint64_t ug) {
    DTRACE_PROBE8(app, all, b, ub, h, uh, w, uw, g, ug);
    printf("%" PRId8 " %" PRIu8 " %" PRId16 " %" PRIu16 " %" PRId32 " %" PRIu32 " %" PRId64 " %" PRIu64 "\n", b, ub, h, uh, w, uw, g, ug);
}
__attribute__((noinline)) void globals(void) {
    DTRACE_PROBE8(app, globals, b, ub, h, uh, w, uw, g, ug);
    printf("%" PRId8 " %" PRIu8 " %" PRId16 " %" PRIu16 " %" PRId32 " %" PRIu32 " %" PRId64 " %" PRIu64 "\n", b, ub, h, uh, w, uw, g, ug);
}
int main(void) {
    all(-1, 255, -1, 65535, -1, UINT32_MAX, -1, UINT64_MAX);
    all(INT8_MIN, 128, INT16_MIN, 32768, INT32_MIN, 1u << 31, INT64_MIN, 1ull << 63);
    all(1, 2, 3, 4, 5, 6, 7, 8);
    for (int i = 0; i < 3; i++) {
        b = -1 - i; ub = 255 - i; h = -300 - i; uh = 65000 + i; w = -70000 - i; uw = UINT32_MAX - i; g = INT64_MIN + i; ug = UINT64_MAX - i;
        globals();
    }
    DTRACE_PROBE8(app, constants, (int8_t)-1, (uint8_t)255, (int16_t)-1, (uint16_t)65535, -1, UINT32_MAX, INT64_MIN, UINT64_MAX);
    printf("-1 255 -1 65535 -1 4294967295 -9223372036854775808 18446744073709551615\n");
    return 0;
}
"#;

const EIGHT: [&str; 8] = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6", "arg7", "arg8"];

#[test]
fn numbers_have_their_sizes_and_signs_in_registers_in_memory_and_as_constants() {
    let kinds: [&[&str]; 4] = [&["-O2"], &["-O0"], &["-O2", "-no-pie", "-fno-pie"], &["-O2", "-static"]];
    for options in kinds {
        let programs = Programs::compiled(NUMBERS, options);
        let (events, printed) = programs.trace("usdt:app:*@./p", &[]);
        assert_eq!(events.len(), 7, "{options:?}");
        assert_eq!(fields(&events, &EIGHT), printed, "{options:?}");
    }
}

const TEXTS: &str = r#"
#include <stdio.h>
#include <sys/sdt.h>
struct request { long id; const char *path; };
__attribute__((noinline)) void handle(const struct request *request, const char *user, int size) {
    DTRACE_PROBE3(app, request, request, user, size);
    DTRACE_PROBE2(app, path, request->path, size);
    printf("%ld %s %s %d\n", request->id, request->path, user, size);
}
int main(void) {
    struct request requests[] = {{1, "/a"}, {2, ""}, {3, "/with blank"}};
    for (int i = 0; i < 3; i++) handle(&requests[i], i ? "root" : "nobody", 10 * i);
    return 0;
}
"#;

#[test]
fn texts_and_members_are_read_where_an_argument_points_to() {
    let programs = Programs::compiled(TEXTS, &[]);
    let asked = "usdt:app:request@./p//id=+0(arg1):s64/path=+0(+8(arg1)):string/arg2:string/size=arg3/";
    let (events, printed) = programs.trace(asked, &[]);
    assert_eq!(fields(&events, &["id", "path", "arg2", "size"]), printed);
    // The other arguments keep their names.
    assert!(events.iter().all(|event| event["arg3"] == event["size"] && event["arg1"].as_u64() > Some(4096)));
    let (events, _) = programs.trace("usdt:app:path@./p//path=arg1:string/", &[]);
    assert_eq!(fields(&events, &["path"]), ["/a", "", "/with blank"]);
}

#[test]
fn a_filter_of_the_kernel_knows_the_arguments() {
    let programs = Programs::compiled(TEXTS, &[]);
    let (events, _) = programs.trace("usdt:app:path@\"./p\"/arg2 > 0 && arg2 < 20/path=arg1:string/", &[]);
    assert_eq!(fields(&events, &["path", "arg2"]), [" 10"]);
    let (events, _) = programs.trace("usdt:app:path@\"./p\"/path ~ \"/w*\"/path=arg1:string/", &[]);
    assert_eq!(fields(&events, &["path"]), ["/with blank"]);
}

/// The kernel cannot add two registers, and does not support floating-point numbers. Arguments that need neither are still read.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_argument_that_the_kernel_cannot_read_is_left_out_and_named() {
    const PROGRAM: &str = r#"
#include <sys/sdt.h>
volatile long table[4] = {5, 6, 7, 8};
__attribute__((noinline)) void at(volatile long *of, long i, double x) { DTRACE_PROBE3(app, at, of[i], i, x); }
int main(void) { for (long i = 0; i < 3; i++) at(table, i, 1.5); return 0; }
"#;
    let programs = Programs::compiled(PROGRAM, &["-DSTAP_SDT_ARG_CONSTRAINT=nom"]);
    let output = programs.run(&["trace", "--json", "-e", "usdt:app:at@./p", "--", "./p"]);
    let said = crate::harness::run::said(&output);
    assert_eq!(
        said,
        "perf-prof: usdt:app:at has no arg1: the kernel's probes cannot add two registers for an address\n\
         perf-prof: usdt:app:at has no arg3: the kernel's probes cannot read floating-point numbers\n"
    );
    let events = crate::harness::counting::objects(&crate::harness::run::stdout(&output));
    assert_eq!(fields(&events, &["arg2", "arg1", "arg3"]), ["0 null null", "1 null null", "2 null null"]);
}
