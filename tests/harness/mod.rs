//! Helpers for the tests of all modules, by subject.

pub mod awake;
pub mod calls;
pub mod capture;
pub mod cgroup;
pub mod compile;
pub mod counting;
pub mod loop_device;
pub mod machine;
pub mod made;
pub mod memory;
pub mod plain_user;
pub mod probe_lock;
pub mod recorder;
pub mod recording;
pub mod run;
pub mod running;
pub mod script;
pub mod scripts;
pub mod seccomp;
pub mod stacks;
pub mod suite;
pub mod task;
pub mod terminal;
pub mod wait;
pub mod watchdog;
pub mod workload;
