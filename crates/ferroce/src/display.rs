//! Names as a person reads them.

use std::fmt;

/// Writes what `Debug` says in small words: `AddressResolved` as "address resolved".
pub(crate) fn words(name: &dyn fmt::Debug, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = format!("{name:?}");
    let mut text = String::with_capacity(name.len() + 4);
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    f.pad(&text)
}

/// What a program told another one as private data, without the zeros behind it.
pub(crate) struct Said<'d>(&'d [u8]);

impl<'d> Said<'d> {
    pub(crate) fn new(private_data: &'d [u8]) -> Self {
        let end = private_data.iter().rposition(|byte| *byte != 0);
        Self(&private_data[..end.map_or(0, |last| last + 1)])
    }
}

/// As a byte string: `b"not today"`.
impl fmt::Debug for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// Where it is text, behind a colon; otherwise nothing.
impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match str::from_utf8(self.0) {
            Ok(text) if !text.is_empty() && !text.contains(char::is_control) => {
                write!(f, ": {text:?}")
            }
            _ => Ok(()),
        }
    }
}

/// Has enumerations shown in small words.
macro_rules! shown_in_words {
    ($($name:ty),*) => {
        $(impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                crate::display::words(self, f)
            }
        })*
    };
}

pub(crate) use shown_in_words;

#[cfg(test)]
mod tests {
    use crate::cm::EventKind;
    use crate::cq::WorkKind;
    use crate::device::{Atomicity, EventSubject};

    #[test]
    fn names_are_words() {
        assert_eq!(EventKind::AddressResolved.to_string(), "address resolved");
        let info = EventKind::AddressInfoError;
        assert_eq!(info.to_string(), "address info error");
        assert_eq!(Atomicity::Device.to_string(), "device");
        assert_eq!(EventSubject::Port(2).to_string(), "port 2");
        assert_eq!(EventKind::Other(99).to_string(), "other(99)");
        assert_eq!(format!("{:>6}", WorkKind::Send), "  send");
    }
    #[test]
    #[cfg(feature = "software")]
    fn wires_have_the_names_of_the_field() {
        use crate::Wire;
        assert_eq!(Wire::RoceV2.to_string(), "RoCE v2");
        assert_eq!(Wire::Both.to_string(), "RoCE v2 and iWARP");
        assert_eq!(format!("{:>6}", Wire::Iwarp), " iWARP");
    }
}
