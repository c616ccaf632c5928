//! The addresses and offsets with which a BPF program finds the interpreter's frames of a thread.

/// The indexes of the words in a [`Walk`]. Most words are the offset of a field in a structure of the interpreter, in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkWord {
    /// The number of the process's interpreter. Records of frames contain the number.
    Number,
    /// The address of the pointer to the first interpreter state.
    Interpreters,
    /// In an interpreter state: the pointer to the next interpreter state.
    NextInterpreter,
    /// In an interpreter state: the pointer to its first thread.
    Threads,
    /// In a thread: the pointer to the next thread.
    NextThread,
    /// In a thread: the thread id that the kernel assigned.
    ThreadId,
    /// In a thread: the pointer to the structure that contains the current frame. [`Walk::ITSELF`] if the thread
    /// contains the current frame.
    Holder,
    /// In the structure that `Holder` points to: the pointer to the current frame.
    Current,
    /// In a frame: the pointer to the code object. The lowest three bits of the pointer have no meaning.
    Code,
    /// In a frame: the pointer to the frame of its caller.
    Previous,
    /// In a frame: the pointer to the instruction.
    Instruction,
    /// In a frame: the byte that distinguishes the kinds of frames: `is_entry` in 3.11, `owner` since 3.12.
    Mark,
    /// In a code object: two adjacent pointers, to the name and to the table of lines. They identify the code object.
    Identity,
    /// In a code object: the version. The version differs between code objects if the interpreter numbers them.
    Version,
    /// In a task of the kernel: the pointer to the task's ids in all PID namespaces. The word is 0 if the offset is not
    /// known.
    TaskPid,
    /// In the structure that `TaskPid` points to: the level of the task's PID namespace.
    PidLevel,
    /// In the structure that `TaskPid` points to: the array with the task's id at each level.
    PidNumbers,
}

/// What a BPF program needs to find the frames of a thread in the memory of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk([u64; Walk::WORDS]);

impl Walk {
    /// The number of words in a walk.
    pub const WORDS: usize = WalkWord::PidNumbers as usize + 1;
    /// The value of [`WalkWord::Holder`] if the thread itself contains the current frame.
    pub const ITSELF: u64 = u64::MAX;
    /// The number of bytes that a BPF program reads of a frame. All offsets of fields in a frame are smaller than this
    /// number.
    pub const FRAME_BYTES: usize = 80;
    /// The number of bytes that a BPF program reads of a code object, starting at its version. These bytes include the
    /// two pointers that identify the code object.
    pub const CODE_BYTES: usize = 80;

    /// Creates a walk from its words. Returns `None` if a field of a frame is not aligned or beyond
    /// [`Walk::FRAME_BYTES`], or if the pointers of a code object are too far from its version.
    pub fn new(words: &[(WalkWord, u64)]) -> Option<Walk> {
        let mut walk = Walk([0; Walk::WORDS]);
        words.iter().for_each(|&(word, value)| walk.set(word, value));
        let pointers = [WalkWord::Code, WalkWord::Previous, WalkWord::Instruction];
        let fits = |word: WalkWord| walk.get(word).is_multiple_of(8) && walk.get(word) <= Walk::FRAME_BYTES as u64 - 8;
        let is_right = pointers.into_iter().all(fits) && walk.get(WalkWord::Mark) < Walk::FRAME_BYTES as u64;
        let distance = walk.get(WalkWord::Identity).wrapping_sub(walk.get(WalkWord::Version));
        (is_right && distance < Walk::CODE_BYTES as u64 - 16).then_some(walk)
    }

    /// Returns a word.
    pub fn get(&self, word: WalkWord) -> u64 {
        self.0[word as usize]
    }

    /// Changes a word.
    pub fn set(&mut self, word: WalkWord, value: u64) {
        self.0[word as usize] = value;
    }

    /// Returns the words as bytes, for the BPF map that the BPF program reads.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
