//! What a program in the kernel needs to find the frames of a thread: addresses and offsets.

/// The words of a [`Walk`], in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkWord {
    /// The number of the process's interpreter, which records have.
    Number,
    /// The address of the pointer to the first interpreter.
    Interpreters,
    /// In an interpreter: the next one.
    NextInterpreter,
    /// In an interpreter: its first thread.
    Threads,
    /// In a thread: the next one.
    NextThread,
    /// In a thread: the id that the kernel gave it.
    ThreadId,
    /// In a thread: what has its current frame, or [`Walk::ITSELF`].
    Holder,
    /// In what `Holder` leads to: the current frame.
    Current,
    /// In a frame: the code object. The lowest three bits of the pointer have no meaning.
    Code,
    /// In a frame: the one that called it.
    Previous,
    /// In a frame: the instruction.
    Instruction,
    /// In a frame: the byte that says to whom it belongs.
    Mark,
    /// In a code object: the two pointers that identify it.
    Identity,
    /// In a code object: a word that no other one has, if the interpreter counts them.
    Version,
}

/// How to find the frames of a thread. Everything is in the memory of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk([u64; Walk::WORDS]);

impl Walk {
    /// The number of words.
    pub const WORDS: usize = WalkWord::Version as usize + 1;
    /// The value of [`WalkWord::Holder`] if the thread itself has the frame.
    pub const ITSELF: u64 = u64::MAX;
    /// The most that is read of a frame, in bytes. [`WalkWord::Code`] and so on are below it.
    pub const FRAME_BYTES: usize = 80;

    /// Creates a value from words. `None` if the frame has something outside of what is read.
    pub fn new(words: &[(WalkWord, u64)]) -> Option<Walk> {
        let mut walk = Walk([0; Walk::WORDS]);
        words.iter().for_each(|&(word, value)| walk.set(word, value));
        let pointers = [WalkWord::Code, WalkWord::Previous, WalkWord::Instruction];
        let fits = |word: WalkWord| walk.get(word).is_multiple_of(8) && walk.get(word) <= Walk::FRAME_BYTES as u64 - 8;
        let is_right = pointers.into_iter().all(fits) && walk.get(WalkWord::Mark) < Walk::FRAME_BYTES as u64;
        is_right.then_some(walk)
    }

    /// Returns a word.
    pub fn get(&self, word: WalkWord) -> u64 {
        self.0[word as usize]
    }

    /// Changes a word.
    pub fn set(&mut self, word: WalkWord, value: u64) {
        self.0[word as usize] = value;
    }

    /// Returns the bytes that the program gets.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
