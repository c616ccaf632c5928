//! The `perf-prof` executable: runs the command line (room `cli`) and exits with its status.

fn main() -> std::process::ExitCode {
    #[cfg(feature = "python")]
    perf_prof_host::native::register();
    perf_prof_host::cli::main()
}
