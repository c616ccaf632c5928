//! Runs programs in tests without the kernel, with the interpreter `rbpf`. Implements helper functions and maps, so that a
//! test can look into maps.
//!
//! All memory of a program is one list of words: the stack, the record, the counters, and the values of rows. So helper
//! functions read and write this memory without pointers. `rbpf` has its own stack, so `R5` takes the place of the frame
//! register. (Programs use `R5` only for the fifth argument of a helper function.) `rbpf` knows no atomic operations, so
//! they become loads and stores.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_format::abi::bpf::*;
use rbpf::EbpfVmNoData;

use super::{Code, Condition, Instruction, MapUse, Operand, Operation, Register, Size};

/// How many words the stack, the longest record, the counters and all rows take.
const STACK: usize = 64;
const RECORD: usize = 1024;
const COUNTERS: usize = 64;
/// The index of the word that contains the length of the record that a program writes. The record follows.
const LENGTH: usize = STACK + RECORD + COUNTERS + ROWS;
const ROWS: usize = 8192;
/// The number of words of the record that a program writes.
const WRITTEN: usize = 1280;
/// What programs get instead of the addresses of maps.
const TABLES: u64 = 101;
const TASKS: u64 = 102;
const CGROUPS: u64 = 103;
const HASH: u64 = 104;
const OPEN: u64 = 105;
const RECORDS: u64 = 106;
const OUTPUT: u64 = 107;
const ARGUMENTS: u64 = 108;
const NAMES: u64 = 109;
const MARKS: u64 = 110;
const GAPS: u64 = 111;
/// The index of the first word of all marks, and the number of words that the marks of each CPU take.
const OF_MARKS: usize = LENGTH + 1 + WRITTEN;
const MARKS_OF_CPU: usize = 11;
const CPUS: usize = 4;
const SEGMENTS: u64 = 112;
const SEGMENT_HASH: u64 = 113;
const SINCE: u64 = 114;
const PATHS: u64 = 115;
const FRAMES: u64 = 116;
/// The index of the first word of the map in which paths are built.
const OF_PATHS: usize = OF_MARKS + CPUS * MARKS_OF_CPU;
/// The number of words of this map.
const WORDS_OF_PATHS: usize = 2200;

/// The index of the first word of the map in which frames are read, and the number of words of each value. Only the first words of a
/// value are there, which say whether a program uses it.
const OF_FRAMES: usize = OF_PATHS + WORDS_OF_PATHS;
const WORDS_OF_FRAMES: usize = 12;
const VALUES_OF_FRAMES: usize = 8;

/// The result of an update if the hash is full: `-E2BIG`.
const FULL: i64 = -7;

/// A machine on which a program runs.
#[derive(Default)]
pub struct Machine {
    memory: Vec<AtomicU64>,
    /// The rows of a table.
    pub table: Hash,
    /// The open spans.
    pub open: Hash,
    /// The names of programs that threads are about to run.
    pub names: Hash,
    /// The tasks with missing events.
    pub gaps: Hash,
    /// The segments of call chains.
    pub segments: Hash,
    /// The call chain: frames of the kernel, and frames of the process.
    pub chain: (Vec<u64>, Vec<u64>),
    /// The time at which each process got its mappings, in ns.
    pub since: HashMap<u32, u64>,
    /// How many words the values of all hashes use. The words of removed entries are not reused.
    used: usize,
    /// Keys and values that another CPU adds right before the program adds the same key. The program's update then fails
    /// with `-EEXIST`.
    pub added_meanwhile: HashMap<Vec<u8>, Vec<u64>>,
    /// The selected tasks.
    pub tasks: HashSet<u32>,
    /// Whether the maps of tasks have no room for more tasks.
    pub tasks_are_full: bool,
    /// The indexes of the selected cgroups that contain the task.
    pub cgroups: HashSet<u64>,
    /// The process id and the thread id of the task.
    pub ids: (u32, u32),
    /// The CPU on which the program runs.
    pub cpu: u32,
    /// The name of the task, as the kernel stores it.
    pub comm: [u8; 16],
    /// The time, in ns.
    pub time: u64,
    /// The strings in user space, by address.
    pub strings: HashMap<u64, Vec<u8>>,
    /// For each system call, which arguments are strings.
    pub arguments: HashMap<u32, u64>,
    /// The kernel's memory: its address and its bytes.
    pub kernel: (u64, Vec<u8>),
    /// More of the kernel's memory: the address and the bytes of each object.
    pub objects: Vec<(u64, Vec<u8>)>,
    /// The address of the running task's `task_struct`.
    pub task: u64,
    /// The records that programs wrote.
    pub written: Vec<Vec<u8>>,
    /// What the kernel returns when a program writes a record; 0 if it accepts the record.
    pub refuses: i64,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::default();
}

/// A hash map.
#[derive(Default)]
pub struct Hash {
    /// The sizes of keys and of values, in bytes.
    pub sizes: (usize, usize),
    /// The maximum number of entries.
    pub limit: usize,
    /// The index of the first word of each key's value.
    entries: HashMap<Vec<u8>, usize>,
}

impl Hash {
    /// Creates an empty hash.
    pub fn new(sizes: (usize, usize)) -> Hash {
        Hash { sizes, limit: usize::MAX, entries: HashMap::new() }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Machine {
    /// Creates a machine with an empty table. `sizes` are the sizes of keys and values.
    pub fn new(sizes: (usize, usize)) -> Machine {
        let words = OF_FRAMES + WORDS_OF_FRAMES * VALUES_OF_FRAMES;
        let memory = (0..words).map(|_| AtomicU64::new(0)).collect();
        Machine { memory, table: Hash::new(sizes), gaps: Hash::new((8, 24)), ..Machine::default() }
    }

    /// Runs a program on a record, and returns its result.
    pub fn run(&mut self, code: &Code, record: &[u8]) -> u64 {
        // Overwrite what the previous run left on the stack: programs must not depend on it.
        self.memory[..STACK].iter().for_each(|word| word.store(0xdead_beef_dead_beef, Relaxed));
        self.put(STACK, record);
        let words = self.words(code);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut vm = EbpfVmNoData::new(Some(&bytes)).unwrap();
        vm.register_allowed_memory(self.address(0)..self.address(self.memory.len()));
        for (number, helper) in HELPERS {
            vm.register_helper(number as u32, helper).unwrap();
        }
        MACHINE.with_borrow_mut(|machine| std::mem::swap(machine, self));
        let result = vm.execute_program();
        MACHINE.with_borrow_mut(|machine| std::mem::swap(machine, self));
        result.unwrap()
    }

    /// Returns the words of a program, with addresses in the memory of this machine.
    fn words(&self, code: &Code) -> Vec<u64> {
        let mut whole = Code { labels: code.labels, ..Code::new() };
        whole.push(Instruction::Set(Register::R5, self.address(STACK)));
        whole.push(Instruction::Set(Register::R1, self.address(STACK)));
        for &instruction in &code.instructions {
            match instruction {
                // In this interpreter, `R5` contains the address of the stack. So the fifth argument of a helper function,
                // the length of a record, is passed in memory.
                Instruction::Do(Operation::Move, Register::R5, Operand::Register(length)) => {
                    whole.push(Instruction::Set(Register::R0, self.address(LENGTH)));
                    whole.store(Size::Double, Register::R0.at(0), length);
                }
                instruction => push_without_atomics(&mut whole, on_own_stack(instruction)),
            }
        }
        let program = whole.program();
        let mut words = program.instructions.clone();
        for reference in &program.maps {
            let handle = match reference.map {
                MapUse::Tables => TABLES,
                MapUse::Open => OPEN,
                MapUse::Marks => MARKS,
                MapUse::Gaps => GAPS,
                MapUse::Tasks => TASKS,
                MapUse::Cgroups => CGROUPS,
                MapUse::Record => RECORDS,
                MapUse::Output => OUTPUT,
                MapUse::Arguments => ARGUMENTS,
                // Programs that read strings have no open spans, so this hash is free.
                MapUse::Unread => OPEN,
                MapUse::Names => NAMES,
                // A program that writes records takes no call chains.
                MapUse::Chain => RECORDS,
                MapUse::Segments => SEGMENTS,
                MapUse::Since => SINCE,
                MapUse::Paths => PATHS,
                // Tests do not run programs that read the memory of a process.
                MapUse::Interpreters => panic!("no map for {:?}", reference.map),
                MapUse::Frames => FRAMES,
                MapUse::Counters => self.address(STACK + RECORD),
            };
            words[reference.at] |= handle << 32;
            // A source register of `BPF_PSEUDO_MAP_FD` says that the number is a map. rbpf does not know this, so set the
            // source register to 0.
            words[reference.at] &= !0xf000;
            words[reference.at + 1] |= handle & !0xffff_ffff;
        }
        words
    }

    fn address(&self, word: usize) -> u64 {
        self.memory.as_ptr() as u64 + 8 * word as u64
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        for (word, bytes) in self.memory[at..].iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Relaxed);
        }
    }

    /// Returns the bytes at an address.
    fn bytes(&self, address: u64, size: usize) -> Vec<u8> {
        let from = (address - self.address(0)) as usize;
        let words = self.memory[from / 8..(from + size).div_ceil(8)].iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        bytes[from % 8..from % 8 + size].to_vec()
    }

    /// Returns the counters.
    pub fn counters<const WORDS: usize>(&self) -> [u64; WORDS] {
        std::array::from_fn(|at| self.memory[STACK + RECORD + at].load(Relaxed))
    }

    /// Returns the keys and values of the table.
    pub fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entries = self.table.entries.iter();
        entries.map(|(key, &at)| (key.clone(), self.bytes(self.address(at), self.table.sizes.1))).collect()
    }

    pub fn open_values(&self) -> Vec<Vec<u8>> {
        self.open.entries.values().map(|&at| self.bytes(self.address(at), self.open.sizes.1)).collect()
    }

    /// Returns the tasks with missing events, and how many events each misses.
    pub fn gaps(&self) -> HashMap<u64, u64> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        let entries = self.gaps.entries.iter();
        entries.map(|(key, &at)| (word(key), word(&self.bytes(self.address(at), 8)))).collect()
    }

    /// Returns the keys and values of the segments.
    pub fn segments(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entries = self.segments.entries.iter();
        entries.map(|(key, &at)| (key.clone(), self.bytes(self.address(at), self.segments.sizes.1))).collect()
    }

    /// Sets a counter.
    pub fn set_counter(&self, at: usize, word: u64) {
        self.memory[STACK + RECORD + at].store(word, Relaxed);
    }

    fn hash(&mut self, map: u64) -> &mut Hash {
        match map {
            HASH => &mut self.table,
            OPEN => &mut self.open,
            NAMES => &mut self.names,
            GAPS => &mut self.gaps,
            SEGMENT_HASH => &mut self.segments,
            _ => panic!("no hash: {map:#x}"),
        }
    }

    fn insert(&mut self, map: u64, key: Vec<u8>, value: &[u8]) {
        let at = STACK + RECORD + COUNTERS + self.used;
        self.used += value.len() / 8;
        self.put(at, value);
        self.hash(map).entries.insert(key, at);
    }

    fn look_up(&mut self, map: u64, key: u64) -> u64 {
        match map {
            TABLES => {
                assert_eq!(self.bytes(key, 4), [0; 4]);
                HASH
            }
            TASKS => {
                let id = u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap());
                if self.tasks.contains(&id) { self.address(0) } else { 0 }
            }
            SEGMENTS => {
                assert_eq!(self.bytes(key, 4), [0; 4]);
                SEGMENT_HASH
            }
            SINCE => {
                let process = u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap());
                let Some(&since) = self.since.get(&process) else { return 0 };
                self.memory[LENGTH].store(since, Relaxed);
                self.address(LENGTH)
            }
            RECORDS => self.address(LENGTH + 1),
            PATHS => self.address(OF_PATHS),
            FRAMES => {
                let index = u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap()) as usize;
                if index < VALUES_OF_FRAMES { self.address(OF_FRAMES + WORDS_OF_FRAMES * index) } else { 0 }
            }
            MARKS => self.address(OF_MARKS + MARKS_OF_CPU * self.cpu as usize),
            ARGUMENTS => {
                let call = u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap());
                self.memory[LENGTH].store(self.arguments.get(&call).copied().unwrap_or(0), Relaxed);
                self.address(LENGTH)
            }
            _ => {
                let size = self.hash(map).sizes.0;
                let key = self.bytes(key, size);
                self.hash(map).entries.get(&key).copied().map_or(0, |at| self.address(at))
            }
        }
    }

    /// Copies a string from user space, cut off at `size`.
    fn read_string(&self, to: u64, size: usize, from: u64) -> i64 {
        let Some(string) = self.strings.get(&from) else { return -14 };
        let text = &string[..string.len().min(size - 1)];
        self.copy(to, text.iter().chain([&0]));
        text.len() as i64 + 1
    }

    /// Copies memory of the kernel. The test provides only some of it: bytes that it does not provide become 0.
    fn read_kernel(&self, to: u64, size: usize, from: u64) -> i64 {
        if let Some(at) = from.checked_sub(self.address(0)).filter(|at| at / 8 < self.memory.len() as u64) {
            assert!(at as usize + size <= 8 * self.memory.len());
            self.copy(to, &self.bytes(from, size));
            return 0;
        }
        let of = |(start, bytes): &(u64, Vec<u8>)| {
            let at = usize::try_from(from.checked_sub(*start)?).ok()?;
            bytes.get(at..)?.get(..size).map(<[u8]>::to_vec)
        };
        let found = [&self.kernel].into_iter().chain(&self.objects).find_map(of);
        self.copy(to, found.as_ref().unwrap_or(&vec![0; size]));
        if found.is_some() { 0 } else { -14 }
    }

    fn copy<'a>(&self, to: u64, bytes: impl IntoIterator<Item = &'a u8>) {
        for (at, byte) in (to..).zip(bytes) {
            let word = &self.memory[(at - self.address(0)) as usize / 8];
            let mut bytes = word.load(Relaxed).to_ne_bytes();
            bytes[at as usize % 8] = *byte;
            word.store(u64::from_ne_bytes(bytes), Relaxed);
        }
    }

    /// Copies frames of the kernel or of the process, cut off at `size`.
    fn get_stack(&self, to: u64, size: u64, flags: u64) -> i64 {
        let frames = if flags == BPF_F_USER_STACK { &self.chain.1 } else { &self.chain.0 };
        if frames == &[u64::MAX] {
            return -14;
        }
        let frames = &frames[..frames.len().min(size as usize / 8)];
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_ne_bytes()).collect();
        self.put((to - self.address(0)) as usize / 8, &bytes);
        bytes.len() as i64
    }

    fn update(&mut self, map: u64, (key, value): (u64, u64), flags: u64) -> i64 {
        if map == SINCE {
            let process = u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap());
            if self.tasks_are_full && !self.since.contains_key(&process) {
                return FULL;
            }
            self.since.insert(process, u64::from_ne_bytes(self.bytes(value, 8).try_into().unwrap()));
            return 0;
        }
        if map == TASKS {
            assert_eq!(flags, BPF_ANY);
            if self.tasks_are_full {
                return FULL;
            }
            self.tasks.insert(u32::from_ne_bytes(self.bytes(key, 4).try_into().unwrap()));
            return 0;
        }
        let sizes = self.hash(map).sizes;
        let (key, value) = (self.bytes(key, sizes.0), self.bytes(value, sizes.1));
        if let Some(other) = self.added_meanwhile.remove(&key) {
            let bytes: Vec<u8> = other.iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.insert(map, key, &bytes);
            return -17;
        }
        let hash = self.hash(map);
        match hash.entries.contains_key(&key) {
            true if flags == BPF_NOEXIST => return -17,
            false if hash.len() >= hash.limit => return FULL,
            _ => {}
        }
        self.insert(map, key, &value);
        0
    }
}

type Helper = fn(u64, u64, u64, u64, u64) -> u64;

const HELPERS: [(i32, Helper); 15] = [
    (BPF_FUNC_MAP_LOOKUP_ELEM, |map, key, _, _, _| MACHINE.with_borrow_mut(|machine| machine.look_up(map, key))),
    (BPF_FUNC_MAP_UPDATE_ELEM, |map, key, value, flags, _| {
        MACHINE.with_borrow_mut(|machine| machine.update(map, (key, value), flags)) as u64
    }),
    (BPF_FUNC_MAP_DELETE_ELEM, |map, key, _, _, _| {
        MACHINE.with_borrow_mut(|machine| {
            let is_removed = if map == TASKS {
                machine.tasks.remove(&u32::from_ne_bytes(machine.bytes(key, 4).try_into().unwrap()))
            } else {
                let size = machine.hash(map).sizes.0;
                let key = machine.bytes(key, size);
                machine.hash(map).entries.remove(&key).is_some()
            };
            if is_removed { 0 } else { -2i64 as u64 }
        })
    }),
    (BPF_FUNC_KTIME_GET_NS, |_, _, _, _, _| MACHINE.with_borrow(|machine| machine.time)),
    (BPF_FUNC_GET_SMP_PROCESSOR_ID, |_, _, _, _, _| MACHINE.with_borrow(|machine| machine.cpu.into())),
    (BPF_FUNC_GET_CURRENT_PID_TGID, |_, _, _, _, _| {
        MACHINE.with_borrow(|machine| u64::from(machine.ids.0) << 32 | u64::from(machine.ids.1))
    }),
    (BPF_FUNC_GET_CURRENT_COMM, |to, size, _, _, _| {
        assert_eq!(size, 16);
        MACHINE.with_borrow(|machine| machine.put((to - machine.address(0)) as usize / 8, &machine.comm));
        0
    }),
    (BPF_FUNC_CURRENT_TASK_UNDER_CGROUP, |map, index, _, _, _| {
        assert_eq!(map, CGROUPS);
        MACHINE.with_borrow(|machine| machine.cgroups.contains(&index).into())
    }),
    (BPF_FUNC_GET_STACK, |_, to, size, flags, _| {
        MACHINE.with_borrow(|machine| machine.get_stack(to, size, flags)) as u64
    }),
    (BPF_FUNC_PROBE_READ_USER_STR, |to, size, from, _, _| {
        MACHINE.with_borrow(|machine| machine.read_string(to, size as usize, from)) as u64
    }),
    (BPF_FUNC_PERF_EVENT_OUTPUT, |_, map, flags, from, _| {
        assert_eq!((map, flags), (OUTPUT, BPF_F_CURRENT_CPU));
        MACHINE.with_borrow_mut(|machine| {
            let length = machine.memory[LENGTH].load(Relaxed) as usize;
            let record = machine.bytes(from, length);
            if machine.refuses == 0 {
                machine.written.push(record);
            }
            machine.refuses as u64
        })
    }),
    (BPF_FUNC_PROBE_READ_KERNEL_STR, |to, size, from, _, _| {
        MACHINE.with_borrow(|machine| {
            let bytes = machine.bytes(from, size as usize);
            let text = bytes.split(|byte| *byte == 0).next().unwrap();
            machine.copy(to, text.iter().chain([&0]));
            text.len() as u64 + 1
        })
    }),
    (BPF_FUNC_GET_CURRENT_TASK, |_, _, _, _, _| MACHINE.with_borrow(|machine| machine.task)),
    (BPF_FUNC_PROBE_READ_USER, |to, size, from, _, _| {
        assert_eq!(size, 1);
        MACHINE.with_borrow(|machine| {
            let Some(string) = machine.strings.get(&from) else { return -14i64 as u64 };
            machine.copy(to, &[string.first().copied().unwrap_or(0)]);
            0
        })
    }),
    (BPF_FUNC_PROBE_READ_KERNEL, |to, size, from, _, _| {
        MACHINE.with_borrow(|machine| machine.read_kernel(to, size as usize, from)) as u64
    }),
];

/// Returns the instruction with `R5` in place of the frame register.
fn on_own_stack(instruction: Instruction) -> Instruction {
    let own = |register| {
        assert_ne!(register, Register::R5, "{instruction}");
        if register == Register::Frame { Register::R5 } else { register }
    };
    let place = |place: super::Place| own(place.base).at(place.offset);
    let operand = |operand| match operand {
        Operand::Register(register) => Operand::Register(own(register)),
        number => number,
    };
    match instruction {
        Instruction::Do(operation, register, by) => Instruction::Do(operation, own(register), operand(by)),
        Instruction::Load(size, register, from) => Instruction::Load(size, own(register), place(from)),
        Instruction::Store(size, to, register) => Instruction::Store(size, place(to), own(register)),
        Instruction::StoreNumber(size, to, number) => Instruction::StoreNumber(size, place(to), number),
        Instruction::AtomicAdd(to, register) => Instruction::AtomicAdd(place(to), own(register)),
        Instruction::CompareExchange(to, register) => Instruction::CompareExchange(place(to), own(register)),
        Instruction::JumpIf(condition, register, with, to) => {
            Instruction::JumpIf(condition, own(register), operand(with), to)
        }
        _ => instruction,
    }
}

/// Adds an instruction. An atomic instruction becomes loads and stores, which change `R4`.
fn push_without_atomics(code: &mut Code, instruction: Instruction) {
    match instruction {
        Instruction::AtomicAdd(place, register) => {
            code.load(Size::Double, Register::R4, place);
            code.operate(Operation::Add, Register::R4, register);
            code.store(Size::Double, place, Register::R4);
        }
        Instruction::CompareExchange(place, register) => {
            let differs = code.label();
            code.load(Size::Double, Register::R4, place);
            code.jump_if(Condition::NotEqual, Register::R4, Register::R0, differs);
            code.store(Size::Double, place, register);
            code.here(differs);
            code.copy(Register::R0, Register::R4);
        }
        _ => code.push(instruction),
    }
}
