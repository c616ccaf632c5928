//! The queue of messages from the reader thread to the consumer.
//!
//! A consumer that finds no message sleeps at once. Other channels try again for some microseconds first, and a consumer
//! of many events waits hundreds of times a second. The reader says when a consumer that waits is woken, because it knows
//! when more messages follow.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, PoisonError},
    time::Instant,
};

use perf_prof_system::mutex::Mutex;

use super::message::Message;

#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<State>,
    /// Signalled when the consumer waits and there are messages, or when there will be no more.
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    /// True while the consumer waits and has not been woken yet.
    is_awaited: bool,
    is_closed: bool,
}

/// The reader's end. Dropping it closes the mailbox.
#[derive(Debug)]
pub(super) struct Sender(Arc<Mailbox>);

/// The consumer's end.
#[derive(Debug)]
pub(super) struct Receiver(Arc<Mailbox>);

/// The reason why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoMessage {
    /// The time to wait is over.
    Timeout,
    /// There will be no more messages.
    Closed,
}

/// Creates the two ends of a mailbox.
pub(super) fn mailbox() -> (Sender, Receiver) {
    let mailbox = Arc::new(Mailbox::default());
    (Sender(Arc::clone(&mailbox)), Receiver(mailbox))
}

impl Sender {
    /// Adds a message. A consumer that waits gets it after [`Sender::wake`].
    pub fn send(&self, message: Message) {
        self.0.state.lock().messages.push_back(message);
    }

    /// Wakes the consumer if it waits and there are messages.
    pub fn wake(&self) {
        let mut state = self.0.state.lock();
        let is_needed = state.is_awaited && (state.is_closed || !state.messages.is_empty());
        state.is_awaited &= !is_needed;
        drop(state);
        if is_needed {
            self.0.arrived.notify_one();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.wake();
    }
}

impl Receiver {
    /// Takes the next message. Waits for it until `until`, or for ever if `until` is `None`.
    pub fn take(&self, until: Option<Instant>) -> Result<Message, NoMessage> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(message) = state.messages.pop_front() {
                return Ok(message);
            } else if state.is_closed {
                return Err(NoMessage::Closed);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(NoMessage::Timeout);
            }
            state.is_awaited = true;
            state = match left {
                None => self.0.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.0.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.is_awaited = false;
        }
    }

    /// Returns whether the consumer waits and has not been woken.
    #[cfg(test)]
    pub fn is_waiting(&self) -> bool {
        self.0.state.lock().is_awaited
    }

    /// Takes all messages that are there.
    #[cfg(test)]
    pub fn take_all(&self) -> Vec<Message> {
        self.0.state.lock().messages.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn messages_arrive_in_order_and_the_end_comes_last() {
        let (sender, receiver) = mailbox();
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        assert!(matches!(receiver.take(soon()), Err(NoMessage::Timeout)));
        assert!(matches!(receiver.take(Some(Instant::now())), Err(NoMessage::Timeout)));
        sender.send(Message::Flushed);
        sender.send(Message::WakeUp);
        drop(sender);
        assert!(matches!(receiver.take(None), Ok(Message::Flushed)));
        assert!(matches!(receiver.take(soon()), Ok(Message::WakeUp)));
        assert!(matches!(receiver.take(None), Err(NoMessage::Closed)));
    }

    #[test]
    fn a_consumer_that_waits_for_ever_gets_each_message_and_the_end() {
        let (sender, receiver) = mailbox();
        let consumer = thread::spawn(move || {
            let mut taken = 0;
            while receiver.take(None).is_ok() {
                taken += 1;
            }
            taken
        });
        for turn in 0..1000 {
            (0..turn % 3).for_each(|_| sender.send(Message::RoundEnded));
            sender.wake();
        }
        drop(sender);
        assert_eq!(consumer.join().unwrap(), (0..1000).map(|turn| turn % 3).sum::<usize>());
    }
}
