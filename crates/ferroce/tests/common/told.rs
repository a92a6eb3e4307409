//! What a subscriber of tracing writes.

use std::io;
use std::sync::{Arc, Mutex};

/// Keeps what is written to it, and to its clones.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<u8>>>);

impl Told {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }
}

impl io::Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
