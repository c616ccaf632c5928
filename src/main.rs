//! The `perf-prof` executable: hands the arguments to the command line room and exits with its status.

fn main() -> std::process::ExitCode {
    perf_prof::cli::main()
}
