//! The perf ABI as data: record types, sample and read bits, attr. Knows nothing of system calls.

use perf_event_open_sys::bindings as sys;
pub use perf_event_open_sys::bindings::perf_event_attr;

macro_rules! constants {
    ($kind:ty: $($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of `include/uapi/linux/perf_event.h`.")]
            pub const $name: $kind = sys::$name as $kind;
        )*
    };
}

constants! { u32:
    PERF_RECORD_LOST PERF_RECORD_COMM PERF_RECORD_EXIT PERF_RECORD_THROTTLE PERF_RECORD_UNTHROTTLE PERF_RECORD_FORK
    PERF_RECORD_SAMPLE PERF_RECORD_MMAP2 PERF_RECORD_LOST_SAMPLES
    PERF_TYPE_SOFTWARE PERF_TYPE_TRACEPOINT PERF_COUNT_SW_DUMMY
}

constants! { u16: PERF_RECORD_MISC_COMM_EXEC PERF_RECORD_MISC_MMAP_BUILD_ID }

constants! { u64:
    PERF_SAMPLE_IP PERF_SAMPLE_TID PERF_SAMPLE_TIME PERF_SAMPLE_ADDR PERF_SAMPLE_READ PERF_SAMPLE_CALLCHAIN
    PERF_SAMPLE_ID PERF_SAMPLE_CPU PERF_SAMPLE_PERIOD PERF_SAMPLE_STREAM_ID PERF_SAMPLE_RAW PERF_SAMPLE_IDENTIFIER
    PERF_SAMPLE_REGS_USER PERF_SAMPLE_STACK_USER
    PERF_FORMAT_TOTAL_TIME_ENABLED PERF_FORMAT_TOTAL_TIME_RUNNING PERF_FORMAT_ID PERF_FORMAT_GROUP PERF_FORMAT_LOST
    PERF_CONTEXT_KERNEL PERF_CONTEXT_USER PERF_CONTEXT_HV PERF_CONTEXT_MAX
}
