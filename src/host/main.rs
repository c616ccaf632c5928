//! The `perf-prof` executable: runs the command line (room `cli`) and exits with its status.

fn main() -> std::process::ExitCode {
    perf_prof_host::cli::main()
}
