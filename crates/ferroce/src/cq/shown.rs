//! Completions as a person reads them.

use std::fmt;

use super::{Completion, Done, Timestamp, WorkKind};

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tag, queue_pair, ..
        } = self;
        write!(f, "tag {tag} of queue pair {queue_pair:#08x}: ")?;
        match &self.result {
            Ok(done) => write!(f, "{done}")?,
            Err(error) => write!(f, "{error}")?,
        }
        match self.timestamp {
            Some(time) => write!(f, ", at {time}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bytes, .. } = self;
        write!(f, "{what}")?;
        // Of other work the number means nothing.
        let brings = [
            WorkKind::Receive,
            WorkKind::ReceiveWriteImmediate,
            WorkKind::Read,
        ];
        if brings.contains(what) {
            write!(f, ", {bytes} bytes")?;
        }
        if let Some(immediate) = self.immediate {
            write!(f, ", immediate {immediate:#x}")?;
        }
        match self.invalidated {
            Some(key) => write!(f, ", key {key:#x} invalidated"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ticks(ticks) => f.pad(&format!("{ticks} ticks")),
            Self::Nanoseconds(time) => f.pad(&format!("{time} ns since 1970")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Completion, Done, Timestamp, WorkKind};
    use crate::cq::{WorkError, WorkStatus};
    use crate::ud::Origin;

    fn done(what: WorkKind) -> Done {
        Done {
            what,
            bytes: 64,
            immediate: None,
            invalidated: None,
            origin: Origin::default(),
        }
    }

    #[test]
    fn work_says_what_it_brought() {
        assert_eq!(done(WorkKind::Send).to_string(), "send");
        assert_eq!(done(WorkKind::Read).to_string(), "read, 64 bytes");
        let mut came = done(WorkKind::ReceiveWriteImmediate);
        came.immediate = Some(0x11);
        let said = "receive write immediate, 64 bytes, immediate 0x11";
        assert_eq!(came.to_string(), said);
        let mut came = done(WorkKind::Receive);
        came.invalidated = Some(0x700);
        let said = "receive, 64 bytes, key 0x700 invalidated";
        assert_eq!(came.to_string(), said);
    }

    #[test]
    fn a_completion_says_of_what_it_is() {
        let mut completion = Completion {
            tag: 5,
            queue_pair: 0x12,
            result: Ok(done(WorkKind::Send)),
            timestamp: Some(Timestamp::Ticks(7)),
        };
        let said = "tag 5 of queue pair 0x000012: send, at 7 ticks";
        assert_eq!(completion.to_string(), said);
        let error = WorkError::new(WorkStatus::RETRIES_EXCEEDED, 0, None);
        completion.result = Err(error);
        completion.timestamp = None;
        let said = completion.to_string();
        assert_eq!(said, format!("tag 5 of queue pair 0x000012: {error}"));
        assert!(said.contains("IBV_WC_RETRY_EXC_ERR"), "{said}");
        assert_eq!(format!("{:>9}", Timestamp::Ticks(7)), "  7 ticks");
        let time = Timestamp::Nanoseconds(9).to_string();
        assert_eq!(time, "9 ns since 1970");
    }
}
